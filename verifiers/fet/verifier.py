"""The FET verifier: a pure function from a layout and a task to a verdict.

`paper_success` is the paper's Equation 1: all design rules, all structural criteria, non-empty required layers, and
unchanged inputs. `strict_success` also needs the device and netlist checks of `edagym.verifiers.fet.strict`.
"""

from __future__ import annotations

import klayout.db as kdb

from edagym.errors import EDAGymError, TaskError, ToolError
from edagym.task_assets.fet.grid import IntRing, to_um
from edagym.task_assets.fet.task import FETTask, Rule
from edagym.verifiers.fet import circuit, drc, structure
from edagym.verifiers.fet.drc import Shapes
from edagym.verifiers.fet.layout import FETLayout, region_polygon
from edagym.verifiers.fet.preservation import InputPreservation
from edagym.verifiers.fet.strict import strict_checks
from edagym.verifiers.fet.structure import RegionState
from edagym.verifiers.fet.transistors import ContactShapes, Flake, GateShapes, RegionAnalysis, analyse
from edagym.verifiers.verdict import CheckResult, Verdict

MAX_COORDINATE = 2**29
"""Largest coordinate (dbu, 1 nm) that the geometry engine handles exactly; shapes beyond it fail the verdict."""


class FETVerifier:
    """Verifier of one task; keeps what depends on the task only.

    Args:
        task: The task.

    Raises:
        TaskError: If the task has no contact layer, or several.
    """

    def __init__(self, task: FETTask) -> None:
        contacts = task.layers_of("contact")
        if len(contacts) != 1:
            raise TaskError(
                f"task {task.id}: needs exactly one contact layer",
                field="layers",
                value=[spec.name for spec in contacts],
                allowed=1,
            )
        self.task = task
        self._contact_layer = contacts[0].name
        self._flakes = [Flake(kdb.Region(region_polygon(r)).merged(), r.name) for r in task.regions]
        self._by_name = {flake.name: i for i, flake in enumerate(self._flakes)}
        self._inputs = InputPreservation(task)
        self._drc = _with_ids((*task.drc_rules, *task.derived_rules))
        self._structural = _with_ids(task.structural)
        self._completeness = _with_ids(task.completeness)

    def __reduce__(self) -> tuple[type[FETVerifier], tuple[FETTask]]:
        # KLayout objects do not pickle; everything here is made from the task.
        return FETVerifier, (self.task,)

    def verify(self, layout: FETLayout, *, strict: bool = True) -> Verdict:
        """Return the verdict on a layout.

        Args:
            layout: The layout; it is not changed.
            strict: Whether to run the strict checks too. Without them `strict_success` is False.

        Raises:
            TaskError: If the layout has another layer table than the task.
            ToolError: If the geometry engine fails; never a verdict.
        """
        if layout.layers != self.task.layers:
            raise TaskError(
                "layout and task have different layers",
                field="layers",
                value=[spec.name for spec in layout.layers],
                allowed=[spec.name for spec in self.task.layers],
            )
        try:
            return self._verify(layout, strict)
        except EDAGymError:
            raise
        except Exception as e:  # an engine failure must never look like a failed check
            raise ToolError(f"verifier failed on task {self.task.id}: {type(e).__name__}: {e}") from e

    def _verify(self, layout: FETLayout, strict: bool) -> Verdict:
        layout, out_of_range = _within_range(layout)
        shapes = Shapes(layout)
        states = self._analyse(shapes)
        checks = [self._check_drc(rule, id_, shapes) for id_, rule in self._drc]
        checks += [self._check_structural(rule, id_, shapes, states) for id_, rule in self._structural]
        checks += [structure.layer_not_empty(rule, id_, shapes) for id_, rule in self._completeness]
        checks += self._inputs.check(layout)
        checks += out_of_range
        paper = all(c.passed for c in checks)
        guards = strict_checks(self.task, layout) if strict else []
        metrics = {"transistors": float(sum(s.transistors for s in states))}
        metrics |= {f"transistors:{s.flake.name}": float(s.transistors) for s in states}
        metrics["channels"] = float(sum(len(a.channels) for s in states for a in s.layers))
        success = strict and paper and all(c.passed for c in guards)
        return Verdict(paper, success, (*checks, *guards), metrics)

    def _analyse(self, shapes: Shapes) -> list[RegionState]:
        task = self.task
        gates = [GateShapes(shapes[spec.name].region, spec.name) for spec in task.layers_of("gate electrode")]
        contact_layer = self._contact_layer
        edge_contacted = task.architecture == "edge_contacted"
        landed = [_contacts(shapes[contact_layer], g, shapes) for g in gates]
        states: list[RegionState] = []
        for flake, region, demand in zip(self._flakes, task.regions, task.demand):
            layers: list[RegionAnalysis] = []
            landings = ContactShapes(shapes[contact_layer].region).landings(flake, edge_contacted) if not gates else []
            for gate, contacts in zip(gates, landed):
                landings = contacts.landings(flake, edge_contacted)
                layers.append(analyse(flake, gate, landings))
            states.append(RegionState(flake, region.material, demand is not None, landings, layers))
        return states

    def _check_drc(self, rule: Rule, id_: str, shapes: Shapes) -> CheckResult:
        if rule.kind == "must_touch_boundary":
            return drc.must_touch_boundary(rule, id_, shapes, self._flakes[self._by_name[str(rule.region)]])
        return drc.PAIR_CHECKS[rule.kind](rule, id_, shapes)

    def _check_structural(self, rule: Rule, id_: str, shapes: Shapes, states: list[RegionState]) -> CheckResult:
        if rule.kind == "must_overlap":
            return structure.must_overlap(rule, id_, shapes, states)
        if rule.kind == "must_cross":
            return structure.must_cross(rule, id_, states)
        if rule.kind == "transistor_count":
            return structure.transistor_count(rule, id_, states[self._by_name[str(rule.region)]])
        return circuit.circuit_spec(rule, id_, states)


def _within_range(layout: FETLayout) -> tuple[FETLayout, list[CheckResult]]:
    """Leave out shapes beyond `MAX_COORDINATE`; a failed check names the first layer that had one."""
    limit = MAX_COORDINATE
    bad: dict[str, list[IntRing]] = {}
    for spec in layout.layers:
        rings = layout.shapes(spec.name)
        if any(max(map(max, ring)) > limit or min(map(min, ring)) < -limit for ring in rings if ring):
            bad[spec.name] = [r for r in rings if all(-limit <= v <= limit for point in r for v in point)]
    if not bad:
        return layout, []
    rest = layout.copy()
    for name, kept in bad.items():
        rest.replace(name, kept)
    largest = max(abs(v) for name in bad for ring in layout.shapes(name) for point in ring for v in point)
    required, found = to_um(limit), to_um(largest)
    message = f"expected coordinates within +-{required:g} um, found {found:g} um on layer {next(iter(bad))}"
    check = CheckResult("coordinates_in_range", "coordinates_in_range", False, required, found, "um", None, message)
    return rest, [check]


def _contacts(contacts: drc.LayerShapes, gates: GateShapes, shapes: Shapes) -> ContactShapes:
    """Contacts less gates; the subtraction is skipped where the two layers do not overlap."""
    overlap = gates.closed or drc.common_area(contacts, shapes[gates.layer]) is not None
    return ContactShapes(contacts.region, gates.region if overlap else None)


def _with_ids(rules: tuple[Rule, ...]) -> list[tuple[str, Rule]]:
    """Give every rule a stable id: kind, then region or layers, then a number where that repeats."""
    seen: dict[str, int] = {}
    result: list[tuple[str, Rule]] = []
    for rule in rules:
        id_ = ":".join((rule.kind, *((rule.region,) if rule.region else rule.layers)))
        seen[id_] = seen.get(id_, 0) + 1
        result.append((id_ if seen[id_] == 1 else f"{id_}#{seen[id_]}", rule))
    return result


_recent: FETVerifier | None = None


def verify(layout: FETLayout, task: FETTask, *, strict: bool = True) -> Verdict:
    """Verify one layout against one task (`FETVerifier.verify`).

    The verifier of the latest task is kept, so that many layouts of one task are cheap.
    """
    global _recent
    verifier = _recent
    if verifier is None or verifier.task is not task:
        verifier = _recent = FETVerifier(task)
    return verifier.verify(layout, strict=strict)
