"""FET task dataclasses and their JSON form (the structure of the paper's Appendix L).

All coordinates are micrometres; the database unit is 0.001 um, and every stored coordinate lies on that grid.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from edagym.errors import TaskError
from edagym.task_assets.fet.circuits import CircuitSpec, Stack, stacks

DBU_UM = 0.001
SCHEMA_VERSION = 1
MAX_GDS_NUMBER = 32_767  # GDSII: signed 16 bits

ARCHITECTURES = ("top_gated", "local_back_gated", "global_back_gated", "dual_gated", "edge_contacted")
ROLES = ("channel material", "contact", "gate electrode", "via", "pad cover", "dielectric")
DRC_KINDS = ("min_width", "min_spacing", "min_separation", "min_enclosure", "must_not_overlap", "must_touch_boundary")
STRUCTURAL_KINDS = ("must_overlap", "must_cross", "transistor_count", "circuit_spec")
COMPLETENESS_KINDS = ("layer_not_empty",)

Point = tuple[float, float]
Ring = tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One row of the layer table.

    Attributes:
        name: Layer name, unique in the task.
        gds_layer: GDS layer number.
        datatype: GDS datatype number.
        role: One of `ROLES`.
        status: ``"read_only"`` (flakes) or ``"editable"``.
    """

    name: str
    gds_layer: int
    datatype: int
    role: str
    status: str

    @property
    def editable(self) -> bool:
        """Whether agents may draw on this layer."""
        return self.status == "editable"


@dataclass(frozen=True, slots=True)
class Region:
    """One fixed flake.

    Attributes:
        name: ``"flake_1"``, ``"flake_2"``, ...
        material: Name of the read-only layer that holds it; also the material label.
        hull: Outer ring, um, not closed, counter-clockwise.
        holes: Interior rings, um.
    """

    name: str
    material: str
    hull: Ring
    holes: tuple[Ring, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule or criterion.

    Attributes:
        kind: One of `DRC_KINDS`, `STRUCTURAL_KINDS`, `COMPLETENESS_KINDS`.
        layers: Layer names. min_width, min_spacing, layer_not_empty: one. min_separation, must_not_overlap,
            must_overlap, must_cross: two (for must_cross: gate layer, material). min_enclosure: (outer, inner).
            must_touch_boundary: the contact layer. transistor_count: the material.
        min_um: Limit in um, for the four distance rules.
        region: Region name, for must_touch_boundary and transistor_count.
        min_count: Least number of transistors, for transistor_count.
        circuit: For circuit_spec.
    """

    kind: str
    layers: tuple[str, ...] = ()
    min_um: float | None = None
    region: str | None = None
    min_count: int | None = None
    circuit: CircuitSpec | None = None


@dataclass(frozen=True, slots=True)
class TaskView:
    """Everything an agent may know about a task; prompts and observations are made from this alone.

    Attributes:
        id: Task id, e.g. ``"L3/case_8"``.
        objective: The text of the objective.
        architecture: One of `ARCHITECTURES`.
        layers: The layer table.
        design_order: Layer names in drawing order; ``"@name"`` marks where a read-only layer sits.
        regions: The fixed flakes.
        drc_rules: The visible design rules (via-gate isolation included, `derived_rules`).
        demand: Transistors per region that the objective asks for (None: the objective gives no number).
        circuit: The circuit that the objective asks for, if any.
    """

    id: str
    objective: str
    architecture: str
    layers: tuple[LayerSpec, ...]
    design_order: tuple[str, ...]
    regions: tuple[Region, ...]
    drc_rules: tuple[Rule, ...]
    demand: tuple[int | None, ...]
    circuit: CircuitSpec | None

    def layer(self, name: str) -> LayerSpec:
        """Return the layer called `name`."""
        return _layer(self.layers, name)

    def layers_of(self, role: str) -> tuple[LayerSpec, ...]:
        """Return the layers of one role in table order."""
        return tuple(spec for spec in self.layers if spec.role == role)

    @property
    def editable_layers(self) -> tuple[LayerSpec, ...]:
        """Layers that agents draw, in table order."""
        return tuple(spec for spec in self.layers if spec.editable)


@dataclass(frozen=True)
class FETTask:
    """A FET task: what agents see, what only the verifier sees, and provenance.

    Attributes:
        id: ``"L2/case_12"``.
        name: Short human-readable name.
        objective: Objective text.
        architecture: One of `ARCHITECTURES`.
        layers: Layer table.
        design_order: See `TaskView`.
        regions: Fixed flakes.
        drc_rules: Visible design rules.
        structural: Hidden criteria (`STRUCTURAL_KINDS`).
        metadata: Labels and provenance (level, case, difficulty, tier, transistors, circuit, group, contours, ...).
    """

    id: str
    name: str
    objective: str
    architecture: str
    layers: tuple[LayerSpec, ...]
    design_order: tuple[str, ...]
    regions: tuple[Region, ...]
    drc_rules: tuple[Rule, ...]
    structural: tuple[Rule, ...]
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _validate(self)

    # -- lookups -------------------------------------------------------------------------------------------------

    def layer(self, name: str) -> LayerSpec:
        """Return the layer called `name`."""
        return _layer(self.layers, name)

    def layers_of(self, role: str) -> tuple[LayerSpec, ...]:
        """Return the layers of one role in table order."""
        return tuple(spec for spec in self.layers if spec.role == role)

    def region(self, name: str) -> Region:
        """Return the region called `name`."""
        for r in self.regions:
            if r.name == name:
                return r
        raise TaskError("unknown region", field="region", value=name, allowed=[r.name for r in self.regions])

    @property
    def editable_layers(self) -> tuple[LayerSpec, ...]:
        """Layers that agents draw, in table order."""
        return tuple(spec for spec in self.layers if spec.editable)

    @property
    def required_layers(self) -> tuple[str, ...]:
        """Editable layers of the design order: each must hold geometry (completeness)."""
        return tuple(n for n in self.design_order if not n.startswith("@"))

    @cached_property
    def demand(self) -> tuple[int | None, ...]:
        """Least transistor count of each region, in region order (None without a criterion)."""
        counts = {r.region: r.min_count for r in self.structural if r.kind == "transistor_count"}
        return tuple(counts.get(r.name) for r in self.regions)

    @cached_property
    def circuit(self) -> CircuitSpec | None:
        """The circuit requirement, if any."""
        return next((r.circuit for r in self.structural if r.kind == "circuit_spec"), None)

    @cached_property
    def stacks(self) -> tuple[Stack, ...] | None:
        """The template's stack per region (`circuits.stacks`), or None without a circuit."""
        return stacks(self.circuit) if self.circuit else None

    @cached_property
    def derived_rules(self) -> tuple[Rule, ...]:
        """Harness-derived via-gate isolation (paper, Section 3): visible to agents, absent from the task file.

        One ``min_separation`` and one ``must_not_overlap`` per (via layer, gate layer). The distance is that of the
        task's contact-gate separation.
        """
        gap = next((r.min_um for r in self.drc_rules if r.kind == "min_separation"), None)
        rules: list[Rule] = []
        for via in self.layers_of("via"):
            for gate in self.layers_of("gate electrode"):
                if gap is not None:
                    rules.append(Rule("min_separation", (via.name, gate.name), min_um=gap))
                rules.append(Rule("must_not_overlap", (via.name, gate.name)))
        return tuple(rules)

    @cached_property
    def completeness(self) -> tuple[Rule, ...]:
        """One layer_not_empty rule per required layer."""
        return tuple(Rule("layer_not_empty", (n,)) for n in self.required_layers)

    def view(self) -> TaskView:
        """Return the part of the task that an agent may know."""
        return TaskView(
            id=self.id,
            objective=self.objective,
            architecture=self.architecture,
            layers=self.layers,
            design_order=self.design_order,
            regions=self.regions,
            drc_rules=self.drc_rules + self.derived_rules,
            demand=self.demand,
            circuit=self.circuit,
        )

    # -- JSON ----------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the task-file form (JSON-ready)."""
        return {
            "schema_version": SCHEMA_VERSION,
            "id": self.id,
            "name": self.name,
            "objective": self.objective,
            "agent_visible": {
                "environment": {
                    "architecture": self.architecture,
                    "layers": [_slots(spec) for spec in self.layers],
                    "design_order": list(self.design_order),
                    "regions": [
                        {
                            "name": r.name,
                            "material": r.material,
                            "hull": [[float(x), float(y)] for x, y in r.hull],
                            "holes": [[[float(x), float(y)] for x, y in ring] for ring in r.holes],
                        }
                        for r in self.regions
                    ],
                },
                "drc_rules": [_rule_to_dict(r) for r in self.drc_rules],
            },
            "verification_only": {"structural": [_rule_to_dict(r) for r in self.structural]},
            "metadata": dict(self.metadata),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], source: str = "task") -> FETTask:
        """Build a task from its file form.

        Args:
            data: The parsed JSON object.
            source: Name for error messages (usually the file name).

        Raises:
            TaskError: If a field is missing, of the wrong type, or inconsistent.
        """
        try:
            if data.get("schema_version") != SCHEMA_VERSION:
                raise TaskError(
                    f"{source}: unsupported schema",
                    field="schema_version",
                    value=data.get("schema_version"),
                    allowed=SCHEMA_VERSION,
                )
            env = data["agent_visible"]["environment"]
            return cls(
                id=str(data["id"]),
                name=str(data["name"]),
                objective=str(data["objective"]),
                architecture=env["architecture"],
                layers=tuple(LayerSpec(**spec) for spec in env["layers"]),
                design_order=tuple(env["design_order"]),
                regions=tuple(
                    Region(r["name"], r["material"], _ring(r["hull"]), tuple(_ring(h) for h in r["holes"]))
                    for r in env["regions"]
                ),
                drc_rules=tuple(_rule_from_dict(r) for r in data["agent_visible"]["drc_rules"]),
                structural=tuple(_rule_from_dict(r) for r in data["verification_only"]["structural"]),
                metadata=dict(data.get("metadata", {})),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise TaskError(f"{source}: malformed task file ({type(e).__name__}: {e})") from e

    def to_json(self) -> str:
        """Return the task file's text: one fixed formatting, so that equal tasks have equal bytes."""
        return json.dumps(self.to_dict(), ensure_ascii=False, separators=(",", ":"), sort_keys=False) + "\n"

    @classmethod
    def from_json(cls, text: str, source: str = "task") -> FETTask:
        """Parse a task file's text; raises `TaskError`."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as e:
            raise TaskError(f"{source}: not JSON ({e})") from e
        if not isinstance(data, dict):
            raise TaskError(f"{source}: a task file holds one JSON object", value=type(data).__name__)
        return cls.from_dict(data, source)

    @classmethod
    def load(cls, path: str | Path) -> FETTask:
        """Read a task file; raises `TaskError` naming the file."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise TaskError(f"cannot read task file {path}: {e}") from e
        return cls.from_json(text, str(path))

    def with_regions(self, regions: tuple[Region, ...]) -> FETTask:
        """Return a copy with other regions (metamorphic tests, scene transforms)."""
        return replace(self, regions=regions)


def _layer(layers: tuple[LayerSpec, ...], name: str) -> LayerSpec:
    for spec in layers:
        if spec.name == name:
            return spec
    raise TaskError("unknown layer", field="layer", value=name, allowed=[spec.name for spec in layers])


def _slots(obj: Any) -> dict[str, Any]:
    return {n: getattr(obj, n) for n in obj.__slots__}


def _ring(points: Any) -> Ring:
    return tuple((float(x), float(y)) for x, y in points)


def _rule_to_dict(rule: Rule) -> dict[str, Any]:
    out: dict[str, Any] = {"kind": rule.kind}
    if rule.layers:
        out["layers"] = list(rule.layers)
    for name in ("min_um", "region", "min_count"):
        if getattr(rule, name) is not None:
            out[name] = getattr(rule, name)
    if rule.circuit is not None:
        out["circuit"] = {**_slots(rule.circuit), "exact_per_flake": list(rule.circuit.exact_per_flake)}
    return out


def _rule_from_dict(data: Mapping[str, Any]) -> Rule:
    circuit = data.get("circuit")
    return Rule(
        kind=data["kind"],
        layers=tuple(data.get("layers", ())),
        min_um=data.get("min_um"),
        region=data.get("region"),
        min_count=data.get("min_count"),
        circuit=CircuitSpec(**{**circuit, "exact_per_flake": tuple(circuit["exact_per_flake"])}) if circuit else None,
    )


_N_LAYERS = {
    "min_width": 1,
    "min_spacing": 1,
    "min_separation": 2,
    "min_enclosure": 2,
    "must_not_overlap": 2,
    "must_touch_boundary": 1,
    "must_overlap": 2,
    "must_cross": 2,
    "transistor_count": 1,
    "circuit_spec": 0,
    "layer_not_empty": 1,
}


def _validate(task: FETTask) -> None:
    """Raise `TaskError` on the first inconsistency of a task."""

    def fail(message: str, fld: str, value: Any, allowed: Any = None) -> None:
        raise TaskError(f"task {task.id}: {message}", field=fld, value=value, allowed=allowed)

    if task.architecture not in ARCHITECTURES:
        fail("unknown architecture", "architecture", task.architecture, ARCHITECTURES)
    names = [spec.name for spec in task.layers]
    if len(set(names)) != len(names):
        fail("layer names repeat", "layers", names)
    numbers = [(spec.gds_layer, spec.datatype) for spec in task.layers]
    for spec, pair in zip(task.layers, numbers):
        if not all(isinstance(n, int) and 0 <= n <= MAX_GDS_NUMBER for n in pair):
            fail("bad layer or datatype number", f"layers.{spec.name}", pair, f"whole numbers in 0..{MAX_GDS_NUMBER}")
    if len(set(numbers)) != len(numbers):
        fail("layer/datatype pairs repeat", "layers", numbers)
    for spec in task.layers:
        if spec.role not in ROLES:
            fail("unknown role", f"layers.{spec.name}.role", spec.role, ROLES)
        if spec.status not in ("read_only", "editable"):
            fail("unknown status", f"layers.{spec.name}.status", spec.status, ("read_only", "editable"))
        if (spec.role == "channel material") != (spec.status == "read_only"):
            fail("exactly the channel materials are read-only", f"layers.{spec.name}.status", spec.status)
    for entry in task.design_order:
        if entry.lstrip("@") not in names:
            fail("design order names an unknown layer", "design_order", entry, names)
        if entry.startswith("@") == task.layer(entry.lstrip("@")).editable:
            fail("'@' marks read-only layers, and only these", "design_order", entry)
    if not task.regions:
        fail("a task needs a region", "regions", [])
    region_names = [r.name for r in task.regions]
    if len(set(region_names)) != len(region_names):
        fail("region names repeat", "regions", region_names)
    for r in task.regions:
        if r.material not in names or task.layer(r.material).editable:
            fail("material must be a read-only layer", f"regions.{r.name}.material", r.material)
        for ring in (r.hull, *r.holes):
            if len(ring) < 3:
                fail("a ring needs three points", f"regions.{r.name}", len(ring), ">= 3")
            for x, y in ring:
                if not (abs(x) < 1e5 and abs(y) < 1e5):
                    fail("coordinate out of range", f"regions.{r.name}", (x, y), "|x|, |y| < 1e5 um")
    for fld, rules, kinds in (
        ("drc_rules", task.drc_rules, DRC_KINDS),
        ("structural", task.structural, STRUCTURAL_KINDS),
    ):
        for rule in rules:
            if rule.kind not in kinds:
                fail("unknown rule kind", f"{fld}.kind", rule.kind, kinds)
            if len(rule.layers) != _N_LAYERS[rule.kind] or any(n not in names for n in rule.layers):
                fail(f"wrong layers of {rule.kind}", f"{fld}.layers", rule.layers, names)
            if rule.region is not None and rule.region not in region_names:
                fail(f"unknown region of {rule.kind}", f"{fld}.region", rule.region, region_names)
            if rule.kind.startswith("min_") and not (rule.min_um is not None and 0 < rule.min_um < 100):
                fail(f"limit of {rule.kind}", f"{fld}.min_um", rule.min_um, "0 < um < 100")
            counted = isinstance(rule.min_count, int) and rule.min_count >= 1
            if rule.kind == "transistor_count" and not (counted and rule.region):
                fail("transistor_count needs region and min_count >= 1", fld, rule)
            if rule.kind == "must_touch_boundary" and not rule.region:
                fail("must_touch_boundary needs a region", fld, rule)
            if rule.kind == "circuit_spec":
                if rule.circuit is None:
                    fail("circuit_spec needs a circuit", fld, rule)
                elif len(rule.circuit.exact_per_flake) != len(task.regions):
                    fail("exact_per_flake must cover every region", fld, rule.circuit.exact_per_flake)
                else:
                    try:
                        stacks(rule.circuit)
                    except ValueError as e:
                        raise TaskError(f"task {task.id}: {e}", field=f"{fld}.circuit") from e
