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

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edagym.task_assets.fet.circuits import Stack, is_load_gate, is_onchip
from edagym.task_assets.fet.grid import to_um
from edagym.task_assets.fet.task import FETTask
from edagym.verifiers.fet.layout import FETLayout
from edagym.verifiers.fet.strict_geometry import Body, Crossing, Extraction, Piece, extract, solid_nets

# A mismatch is explained by the fewest faults that account for it; the search for them stops here.
MAX_FAULTS = 4
_EXPLAIN_STEPS = 1_000


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
    return _explain(netlist, stacks)


def _explain(netlist: Netlist, stacks: Sequence[Stack]) -> Mismatch:
    """Return the fewest faults that account for a mismatch, on the first flakes that do not match by themselves."""
    for regions in (*_groups(stacks), range(len(stacks))):
        own = [stack if region in regions else Stack((), ()) for region, stack in enumerate(stacks)]
        if _Search(netlist, own, allowed=0).run():
            continue
        where = ", ".join(netlist.regions[region] for region in regions)
        for allowed in range(1, MAX_FAULTS + 1):
            search = _Search(netlist, own, allowed)
            if search.run():
                return Mismatch(f"{where}: {'; '.join(search.faults)}")
        break
    return Mismatch(f"{where}: the transistors are connected in another way than the template's")


def _groups(stacks: Sequence[Stack]) -> list[list[int]]:
    """Return the regions that circuits have in common, in region order."""
    groups: list[tuple[set[str], list[int]]] = []
    for region, stack in enumerate(stacks):
        circuits = {_circuit_of(gate) for gate in stack.gates}
        if groups and groups[-1][0] & circuits:
            groups[-1][0].update(circuits)
            groups[-1][1].append(region)
        else:
            groups.append((circuits, [region]))
    return [regions for _, regions in groups]


def _circuit_of(gate: str) -> str:
    return gate.partition("#")[2]


@dataclass(frozen=True, slots=True)
class _Step:
    """One decision of the search.

    Attributes:
        region: Region of the transistor to match.
        gate: Template name of its gate.
        ends: Template names of its ends.
        load: Judge the gate of this load, given by its place among the transistors, instead of matching one.
    """

    region: int
    gate: str
    ends: tuple[str, str]
    load: int | None = None


def _plan(stacks: Sequence[Stack]) -> list[_Step]:
    """Return the steps of the search, circuit by circuit; in each, neighbours follow each other, loads come last."""
    circuits: dict[str, list[_Step]] = {}
    for region, stack in enumerate(stacks):
        for gate, first, second in stack.transistors:
            circuits.setdefault(_circuit_of(gate), []).append(_Step(region, gate, (first, second)))
    steps: list[_Step] = []
    count = 0
    for members in circuits.values():
        places = range(count, count + len(members))
        loads = [replace(step, load=i) for i, step in zip(places, members) if is_load_gate(step.gate)]
        steps += [*members, *loads]
        count += len(members)
    return steps


class _Search:
    """Backtracking over the template's transistors with a number of faults allowed.

    Circuits share supplies (and load bias lines) only. Where a new circuit begins, what was decided before matters
    only by the transistors that are taken and by the names of nets that the others are on. Such a state that has
    failed once is not tried again: symmetric circuits and inputs do not multiply the work.

    Args:
        netlist: Extracted netlist, with as many transistors in each region as the template (or, where the template
            has none, any number: these are left out).
        stacks: The template.
        allowed: Number of faults to accept. With some, the search gives up after a while.
    """

    def __init__(self, netlist: Netlist, stacks: Sequence[Stack], allowed: int) -> None:
        self.names: dict[str, list[str]] = {}
        self.faults: list[str] = []
        self.tries = 0
        self._allowed = allowed
        self._parts: dict[str, list[str]] = {}
        self._bare: set[str] = set()
        self._undo: list[Callable[[], object]] = []
        self._steps = _plan(stacks)
        self._by_region: list[list[int]] = [[] for _ in stacks]
        self._transistors = netlist.transistors
        for i, t in enumerate(netlist.transistors):
            if stacks[t.region].gates:
                self._by_region[t.region].append(i)
        # All ends on an on-chip net are of one circuit, so their number tells early which nets cannot be it.
        inside = [t for t in netlist.transistors if stacks[t.region].gates]
        self._ends_on = Counter(end.net for t in inside for end in (t.source, t.drain))
        self._ends_of = Counter(net for stack in stacks for t in stack.transistors for net in t[1:])
        self._chosen: list[int] = []
        self._dead: set[tuple[int, frozenset[int], tuple[tuple[str, str], ...]]] = set()

    def run(self) -> bool:
        """Return whether there is a match; `names` and `faults` then describe it."""
        return self._from(0)

    def _from(self, i: int) -> bool:
        if i == len(self._steps):
            return True
        step = self._steps[i]
        if step.load is not None:
            return self._try_load(i, step)
        begins = i == 0 or _circuit_of(self._steps[i - 1].gate) != _circuit_of(step.gate)
        if not begins or self._allowed:
            return self._try_transistors(i, step)
        state = self._state(i)
        if state in self._dead:
            return False
        found = self._try_transistors(i, step)
        if not found:
            self._dead.add(state)
        return found

    def _state(self, i: int) -> tuple[int, frozenset[int], tuple[tuple[str, str], ...]]:
        taken = frozenset(self._chosen)
        ahead = {
            net
            for region in self._by_region
            for j in region
            if j not in taken
            for t in (self._transistors[j],)
            for net in (*t.gates, t.source.net, t.drain.net)
        }
        return i, taken, tuple((net, self.names[net][0]) for net in sorted(ahead) if self.names.get(net))

    def _try_transistors(self, i: int, step: _Step) -> bool:
        for j in self._by_region[step.region]:
            if j in self._chosen:
                continue
            t = self._transistors[j]
            for first, second in ((t.source, t.drain), (t.drain, t.source)):
                self.tries += 1
                if self._allowed and self.tries > _EXPLAIN_STEPS:
                    return False
                mark = len(self._undo)
                self._chosen.append(j)
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
        if not self._allowed and is_onchip(name) and self._ends_on[terminal.net] != self._ends_of[name]:
            return False
        if not self._name(terminal.net, name):
            return False
        inner = is_onchip(name) and not name.startswith("OUT")
        if not terminal.port and not inner and terminal.solid not in self._bare:
            self._bare.add(terminal.solid)
            self._undo.append(lambda: self._bare.discard(terminal.solid))
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
        load = self._transistors[self._chosen[step.load]]
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
