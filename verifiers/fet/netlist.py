"""Circuit netlists: extraction from a layout, and comparison with the task's template.

The extracted netlist equals a template (`task_assets.fet.circuits`) when its transistors can be matched one to one to
the template's, region by region, source and drain being interchangeable, so that

* every extracted net gets one template name (two names on one net are a short);
* an on-chip net of the template (OUT, x1, x2) is exactly one extracted net, solidly joined (else it is open);
* VDD, GND and inputs may each be several extracted nets: those are joined off-chip;
* every source or drain, except on the inner nets x1 and x2, is a port: a contact lands there, with a via (and pad
  cover) where the task has these layers;
* the gate of an active load is a free port: a net of its own (which several loads may share as one bias line), or
  tied to VDD or to its own OUT, never to an input or GND.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from edagym.task_assets.fet.circuits import Stack, is_load_gate, is_onchip, is_supply
from edagym.task_assets.fet.grid import to_um
from edagym.task_assets.fet.task import FETTask
from edagym.verifiers.fet.layout import FETLayout
from edagym.verifiers.fet.strict_geometry import Body, Crossing, Extraction, Piece, extract, solid_nets

# A mismatch is explained by the fewest faults that account for it; the search for them stops here.
MAX_FAULTS = 4
_EXPLAIN_STEPS = 20_000


@dataclass(frozen=True, slots=True)
class Terminal:
    """Source or drain of an extracted transistor.

    Attributes:
        net: Net name; terminals with equal names conduct to each other in any way.
        solid: Name of the solidly joined part of that net.
        port: Whether it can be reached from outside (module docstring).
    """

    net: str
    solid: str
    port: bool = True


@dataclass(frozen=True, slots=True)
class Transistor:
    """An extracted transistor.

    Attributes:
        region: Index of its region.
        gates: Gate net of each gate layer.
        source: One end; source and drain are interchangeable.
        drain: The other end.
        at: Centre of the channel, um.
    """

    region: int
    gates: tuple[str, ...]
    source: Terminal
    drain: Terminal
    at: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Fault:
    """A crossing of gate and region that is no transistor of a circuit, and why."""

    region: int
    message: str
    at: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Netlist:
    """Extracted netlist of a layout.

    Attributes:
        regions: Region names.
        gate_layers: Gate layer names.
        transistors: All transistors, by region.
        faults: Crossings that are no transistors but are not harmless either.
    """

    regions: tuple[str, ...]
    gate_layers: tuple[str, ...]
    transistors: tuple[Transistor, ...]
    faults: tuple[Fault, ...] = ()

    def to_dict(self, names: dict[str, str] | None = None) -> dict[str, Any]:
        """Return a JSON-ready dict.

        Args:
            names: Template name of each net (`assign_nets`), added where given.
        """
        nets = dict.fromkeys(n for t in self.transistors for n in (*t.gates, t.source.net, t.drain.net))
        return {
            "regions": list(self.regions),
            "gate_layers": list(self.gate_layers),
            "nets": {net: (names or {}).get(net) for net in nets} if names else list(nets),
            "transistors": [
                {
                    "region": self.regions[t.region],
                    "gates": list(t.gates),
                    "source": t.source.net,
                    "drain": t.drain.net,
                    "at_um": list(t.at),
                }
                for t in self.transistors
            ],
            "faults": [f"{self.regions[f.region]}: {f.message}" for f in self.faults],
        }


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Why a netlist differs from its template."""

    message: str


def extract_netlist(task: FETTask, layout: FETLayout) -> Netlist:
    """Return the transistor netlist of a layout.

    Args:
        task: A task with or without a circuit.
        layout: The layout.
    """
    return netlist_of(extract(task, layout))


def netlist_of(extraction: Extraction) -> Netlist:
    """Return the netlist of extracted conductors (`strict_geometry.extract`)."""
    task = extraction.task
    solid, reached = solid_nets(extraction)
    needs_via = bool(task.layers_of("via"))
    net_name, solid_name = _namer("n"), _namer("s")
    gate_names = [_namer(f"{spec.name}.") for spec in task.layers_of("gate electrode")]

    def is_port(body: Body) -> bool:
        return bool(body.landed) and (solid.find(body.number) in reached or not needs_via)

    def terminal(crossing: Crossing, piece: Piece) -> Terminal:
        bodies = sorted(crossing.bodies_of(piece), key=is_port, reverse=True)
        if not bodies:  # too narrow to carry anything; a part of its own
            return Terminal(net_name(extraction.net(piece)), f"{net_name(extraction.net(piece))}?", False)
        return Terminal(net_name(extraction.net(piece)), solid_name(solid.find(bodies[0].number)), is_port(bodies[0]))

    transistors: list[Transistor] = []
    faults: list[Fault] = []
    for region, crossings in enumerate(extraction.crossings):
        uses: dict[int, int] = {}
        for crossing in crossings:
            for piece in crossing.pieces:
                uses[piece.net] = uses.get(piece.net, 0) + 1
        seen: set[tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]] = set()
        for crossing in crossings:
            ends = [p for p in crossing.pieces if p.touched or uses[p.net] > 1]
            key = (crossing.gates, tuple(sorted(p.net for p in ends)))
            if len(ends) < 2 or key in seen:
                continue  # a dead end, or another arm of a transistor already seen
            seen.add(key)
            reason = _fault(crossing, ends)
            if reason:
                faults.append(Fault(region, reason, _centre(crossing)))
                continue
            gates = tuple(name(shapes[0]) for name, shapes in zip(gate_names, crossing.gates))
            first, second = (terminal(crossing, end) for end in ends)
            transistors.append(Transistor(region, gates, first, second, _centre(crossing)))
    return Netlist(
        regions=tuple(r.name for r in task.regions),
        gate_layers=tuple(spec.name for spec in task.layers_of("gate electrode")),
        transistors=tuple(transistors),
        faults=tuple(faults),
    )


def _namer(prefix: str) -> Callable[[int], str]:
    """Return a function that numbers keys in the order in which it first sees them."""
    names: dict[int, str] = {}
    return lambda key: names.setdefault(key, f"{prefix}{len(names) + 1}")


def _centre(crossing: Crossing) -> tuple[float, float]:
    centre = crossing.polygon.bbox().center()
    return (to_um(centre.x), to_um(centre.y))


def _fault(crossing: Crossing, ends: Sequence[Piece]) -> str:
    if len(ends) > 2:
        return f"a channel with {len(ends)} terminals"
    if any(len(shapes) != 1 for shapes in crossing.gates):
        return "a channel that does not lie under exactly one gate of each gate layer"
    return crossing_fault(crossing, ends[0], ends[1])


def crossing_fault(crossing: Crossing, first: Piece, second: Piece) -> str:
    """Return why a crossing is no channel between two pieces, or "" (contacts and nets aside)."""
    if first.facing == second.facing and len(crossing.gates) > 1:
        return "the gates of the two layers do not face each other across the flake"
    if crossing.stray:
        return f"a {crossing.stray} overlaps the channel"
    if crossing.uncovered:
        return "the dielectric does not cover the channel under the upper gate"
    return ""


# -- comparison --------------------------------------------------------------------------------------------------------


def match_template(netlist: Netlist, stacks: Sequence[Stack]) -> Mismatch | None:
    """Compare a netlist with a template.

    Args:
        netlist: The extracted netlist.
        stacks: The template's stack of every region (`FETTask.stacks`).

    Returns:
        None when they are equal (module docstring), else the difference.
    """
    result = assign_nets(netlist, stacks)
    return result if isinstance(result, Mismatch) else None


def assign_nets(netlist: Netlist, stacks: Sequence[Stack]) -> dict[str, str] | Mismatch:
    """Return the template name of every extracted net, or the difference if there is no such assignment."""
    if netlist.faults:
        fault = netlist.faults[0]
        return Mismatch(f"{netlist.regions[fault.region]}: {fault.message} at {fault.at}")
    for region, stack in enumerate(stacks):
        found = sum(t.region == region for t in netlist.transistors)
        if found != len(stack.gates):
            return Mismatch(f"{netlist.regions[region]}: expected {len(stack.gates)} transistors, found {found}")
    shorted = next((t for t in netlist.transistors if t.source.net == t.drain.net), None)
    if shorted is not None:
        return Mismatch(f"{netlist.regions[shorted.region]}: source and drain are one net at {shorted.at}")
    search = _Search(netlist, stacks, allowed=0)
    if search.run():
        return {net: names[0] for net, names in search.names.items() if names}
    for allowed in range(1, MAX_FAULTS + 1):
        search = _Search(netlist, stacks, allowed=allowed)
        if search.run():
            return Mismatch("; ".join(search.faults))
    return Mismatch("the transistors are connected in another way than the template's")


@dataclass(frozen=True, slots=True)
class _Step:
    """One decision of the search.

    Attributes:
        region: Region of the transistor to match.
        gate: Template name of its gate.
        ends: Template names of its ends.
        starts_group: Whether a new circuit (or group of circuits on common regions) begins here.
        load: Judge the gate of this load, given by its place among the transistors, instead of matching one.
    """

    region: int
    gate: str
    ends: tuple[str, str]
    starts_group: bool = False
    load: int | None = None


def _plan(stacks: Sequence[Stack]) -> tuple[list[_Step], list[int]]:
    """Return the steps of the search, circuit by circuit, and for every region the circuit group it belongs to."""
    members: list[tuple[set[str], list[int]]] = []
    for region, stack in enumerate(stacks):
        own = {net for net in (*stack.nets, *stack.gates) if not is_supply(net)}
        joined = [m for m in members if m[0] & own]
        members = [m for m in members if not m[0] & own]
        members.append((own.union(*(m[0] for m in joined)), sorted(sum((m[1] for m in joined), [region]))))
    steps: list[_Step] = []
    group_of = [0] * len(stacks)
    count = 0
    for group, (_, regions) in enumerate(sorted(members, key=lambda m: m[1])):
        start, loads = len(steps), []
        for region in regions:
            group_of[region] = group
            for gate, first, second in stacks[region].transistors:
                if is_load_gate(gate):
                    loads.append(_Step(region, gate, (first, second), load=count))
                steps.append(_Step(region, gate, (first, second), starts_group=len(steps) == start))
                count += 1
        steps.extend(loads)
    return steps, group_of


class _Search:
    """Backtracking over the template's transistors with a number of faults allowed.

    Circuits share supplies (and load bias lines) only. Where a new circuit begins, what was decided before matters
    only by the names of the nets that occur in several circuits. Combinations of those that have failed once are not
    tried again, so that the work grows with the sum over the circuits, not with the product.

    Args:
        netlist: Extracted netlist, with as many transistors in each region as the template.
        stacks: The template.
        allowed: Number of faults to accept.
    """

    def __init__(self, netlist: Netlist, stacks: Sequence[Stack], allowed: int) -> None:
        self.names: dict[str, list[str]] = {}
        self.faults: list[str] = []
        self._allowed = allowed
        self._tries = 0
        self._parts: dict[str, list[str]] = {}
        self._ports: set[str] = set()
        self._undo: list[Callable[[], object]] = []
        self._steps, group_of = _plan(stacks)
        self._candidates: list[list[Transistor]] = [[] for _ in stacks]
        where: dict[str, set[int]] = {}
        for t in netlist.transistors:
            self._candidates[t.region].append(t)
            for net in (*t.gates, t.source.net, t.drain.net):
                where.setdefault(net, set()).add(group_of[t.region])
        self._common = [net for net, groups in where.items() if len(groups) > 1]
        self._chosen: list[Transistor] = []
        self._dead: set[tuple[int, tuple[str, ...]]] = set()

    def run(self) -> bool:
        """Return whether there is a match; `names` and `faults` then describe it."""
        return self._from(0)

    def _from(self, i: int) -> bool:
        if i == len(self._steps):
            return True
        step = self._steps[i]
        state = (i, tuple(",".join(self.names.get(net, ())) for net in self._common))
        skippable = step.starts_group and not self._allowed
        if skippable and state in self._dead:
            return False
        found = self._try_load(i, step) if step.load is not None else self._try_transistors(i, step)
        if skippable and not found:
            self._dead.add(state)
        return found

    def _try_transistors(self, i: int, step: _Step) -> bool:
        for t in self._candidates[step.region]:
            if any(t is other for other in self._chosen):
                continue
            for first, second in ((t.source, t.drain), (t.drain, t.source)):
                self._tries += 1
                if self._allowed and self._tries > _EXPLAIN_STEPS:
                    return False
                mark = len(self._undo)
                self._chosen.append(t)
                if self._connect(t, step, first, second) and self._from(i + 1):
                    return True
                self._chosen.pop()
                self._back_to(mark)
        return False

    def _connect(self, t: Transistor, step: _Step, first: Terminal, second: Terminal) -> bool:
        if not is_load_gate(step.gate) and not all(self._name(net, step.gate) for net in t.gates):
            return False
        return self._attach(first, step.ends[0]) and self._attach(second, step.ends[1])

    def _attach(self, terminal: Terminal, name: str) -> bool:
        if not self._name(terminal.net, name):
            return False
        inner = is_onchip(name) and not name.startswith("OUT")
        if not terminal.port and not inner and terminal.solid not in self._ports:
            self._ports.add(terminal.solid)
            self._undo.append(lambda: self._ports.discard(terminal.solid))
            if not self._fault(f"{name} has no usable contact on one of its pieces (net {terminal.net})"):
                return False
        if is_onchip(name):
            parts = self._parts.setdefault(name, [])
            if terminal.solid not in parts:
                parts.append(terminal.solid)
                self._undo.append(parts.pop)
                if len(parts) > 1:
                    return self._fault(f"{name} is open: its pieces are not joined in the layout")
        return True

    def _name(self, net: str, name: str) -> bool:
        names = self.names.setdefault(net, [])
        if name not in names:
            names.append(name)
            self._undo.append(names.pop)
            if len(names) > 1:
                return self._fault(f"{names[0]} and {name} are one net ({net})")
        return True

    def _try_load(self, i: int, step: _Step) -> bool:
        assert step.load is not None
        load = self._chosen[step.load]
        mark = len(self._undo)
        for net in load.gates:
            names = self.names.get(net) or []
            free = all(is_load_gate(n) or n in step.ends for n in names)  # its ends are VDD and its own OUT
            if not names:
                self._name(net, step.gate)
            if not free and not self._fault(f"the gate of a load, {step.gate}, is on net {net} of {names[0]}"):
                self._back_to(mark)
                return False
        if self._from(i + 1):
            return True
        self._back_to(mark)
        return False

    def _fault(self, message: str) -> bool:
        self.faults.append(message)
        self._undo.append(self.faults.pop)
        return len(self.faults) <= self._allowed

    def _back_to(self, mark: int) -> None:
        while len(self._undo) > mark:
            self._undo.pop()()
