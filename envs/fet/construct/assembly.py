"""Whole scenes: chains on every flake that respect each other, and the wires of circuits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import shapely

from edagym.envs.fet.construct.edge import place_edge_device
from edagym.envs.fet.construct.place import GATE_GAP_UM, MARGIN_UM, Chain, Limits, place_stack, without_gates
from edagym.envs.fet.construct.router import Terminal, Wire, grow, route, wire_width
from edagym.envs.fet.construct.shapes import Flake
from edagym.envs.fet.construct.stations import Obstacles
from edagym.task_assets.fet.circuits import CircuitSpec, Stack

# Distance of drawn shapes to other flakes, um; scenes keep 0.5 um between flakes.
FLAKE_CLEAR_UM = 0.08
# Wires keep more distance to flakes than that where there is room.
_WIRE_CLEARS_UM = (0.3, 0.08)
# Nothing drawn for one flake reaches farther than this from it, um.
_REACH_UM = 4.0
_ALTERNATIVES = 10
_MAX_RESTARTS = 12


class Stuck(Exception):
    """No way on was found for one region.

    Args:
        region: Its index.
        reason: Why.
        final: Whether other variants need not be tried.
    """

    def __init__(self, region: int, reason: str, final: bool = False) -> None:
        super().__init__(reason)
        self.region = region
        self.reason = reason
        self.final = final


@dataclass(frozen=True, slots=True)
class Plan:
    """What to build.

    Attributes:
        architecture: One of `task.ARCHITECTURES`.
        limits: Rule values.
        flakes: All flakes.
        counts: Transistors per flake (0: leave it alone).
        stacks: Nets per flake, for circuits.
        circuit: The circuit, or None.
    """

    architecture: str
    limits: Limits
    flakes: tuple[Flake, ...]
    counts: tuple[int, ...]
    stacks: tuple[Stack, ...] | None = None
    circuit: CircuitSpec | None = None


@dataclass
class Assembly:
    """A finished scene.

    Attributes:
        chains: Chain per flake index; contact i of a circuit's chain carries net i of its stack.
        wires: Wires on the contact layer.
    """

    chains: dict[int, Chain] = field(default_factory=dict)
    wires: list[tuple[str, Wire]] = field(default_factory=list)


def assemblies(plan: Plan, first: int = 0) -> Iterator[Assembly]:
    """Yield finished scenes, the most promising first.

    Args:
        plan: What to build.
        first: Variant to start from.

    Raises:
        Stuck: When a region's chain or a net's wires find no place.
    """
    last: Stuck | None = None
    yielded = False
    for variant in itertools.chain(range(first, _ALTERNATIVES), range(first)):
        try:
            assembly = _place_all(plan, variant)
            if plan.stacks is not None:
                _wire_all(plan, assembly)
        except Stuck as e:
            last = e
            if e.final:
                break
            continue
        yielded = True
        yield assembly
    if last is not None and not yielded:
        raise last


def chains_for(plan: Plan, k: int, obstacles: Obstacles, variant: int) -> Iterator[Chain]:
    """Yield candidates for flake `k`; higher variants start from other curves and tighter sizes."""
    flake, n = plan.flakes[k], plan.counts[k]
    if plan.architecture == "edge_contacted":
        if n <= 1:
            yield from place_edge_device(flake, plan.limits, obstacles)
        return
    order = None if variant == 0 else tuple(range(variant, variant + 3))
    for chain in place_stack(flake, n, plan.limits, obstacles, first_level=min(variant, 2), order=order):
        yield without_gates(chain) if plan.architecture == "global_back_gated" else chain


def obstacles_of(plan: Plan, k: int, chains: dict[int, Chain]) -> Obstacles:
    """Return what is in the way on flake `k`: other flakes, and shapes placed for them."""
    box = _grown(plan.flakes[k].box, _REACH_UM)
    near = [
        i for i, f in enumerate(plan.flakes) if i != k and _meet(box, _grown(f.box, _REACH_UM if i in chains else 0.0))
    ]
    limits = plan.limits
    flakes = [plan.flakes[i].filled for i in near]
    gates = [shapely.Polygon(g.corners) for i in near if i in chains for g in chains[i].gates]
    contacts = [shapely.Polygon(c.corners) for i in near if i in chains for c in chains[i].contacts]
    common = grow(flakes, FLAKE_CLEAR_UM)
    for_gates = [*common, *grow(gates, GATE_GAP_UM), *grow(contacts, limits.separation + MARGIN_UM)]
    for_contacts = [*common, *grow(gates, limits.separation + MARGIN_UM), *grow(contacts, limits.spacing + MARGIN_UM)]
    return Obstacles(_prepared(for_gates), _prepared(for_contacts))


def _place_all(plan: Plan, variant: int) -> Assembly:
    todo = [k for k, n in enumerate(plan.counts) if n > 0]
    size = [max(f.box[2] - f.box[0], f.box[3] - f.box[1]) for f in plan.flakes]
    order = sorted(todo, key=lambda k: (-plan.counts[k] / size[k], k))
    for _ in range(_MAX_RESTARTS):
        chains: dict[int, Chain] = {}
        for k in order:
            chain = next(chains_for(plan, k, obstacles_of(plan, k, chains), variant), None)
            if chain is None:
                if k == order[0]:
                    # Variant 0 tries every curve and size, and no neighbour's shapes were in the way.
                    raise Stuck(k, f"no place for {plan.counts[k]} transistors", final=variant == 0)
                order = [k, *(i for i in order if i != k)]
                break
            chains[k] = chain
        else:
            return Assembly(chains)
    raise Stuck(order[0], f"no place for {plan.counts[order[0]]} transistors beside its neighbours")


def _wire_all(plan: Plan, assembly: Assembly) -> None:
    """Give every chain its nets (from either end) and join the contacts of every output."""
    assert plan.stacks is not None
    assert plan.circuit is not None
    size = plan.circuit.flakes_per_instance
    for first in range(0, len(plan.flakes), size):
        members = list(range(first, first + size))
        _wire_group(plan, assembly, members)


def _wire_group(plan: Plan, assembly: Assembly, members: list[int]) -> None:
    assert plan.stacks is not None
    joined = _outputs(plan.stacks, members)
    if all(len(places) < 2 for places in joined.values()):
        return
    options = list(itertools.product(*[(False, True)] * len(members)))
    chains = [assembly.chains[k] for k in members]

    def reach(flips: tuple[bool, ...]) -> float:
        turned = dict(zip(members, (c.reversed() if f else c for c, f in zip(chains, flips))))
        total = 0.0
        for places in joined.values():
            at = [turned[k].contacts[i] for k, i in places]
            total += sum(np.hypot(p.cx - q.cx, p.cy - q.cy) for p, q in itertools.combinations(at, 2))
        return float(total)

    for clear in _WIRE_CLEARS_UM:
        for flips in sorted(options, key=lambda f: (round(reach(f), 3), f)):
            turned = dict(zip(members, (c.reversed() if f else c for c, f in zip(chains, flips))))
            trial = Assembly({**assembly.chains, **turned}, list(assembly.wires))
            if all(_wire_net(plan, trial, net, places, clear) for net, places in joined.items() if len(places) > 1):
                assembly.chains.update(trial.chains)
                assembly.wires[:] = trial.wires
                return
    nets = ", ".join(net for net, places in joined.items() if len(places) > 1)
    raise Stuck(members[0], f"no way for the wires of {nets}")


def _outputs(stacks: Sequence[Stack], members: Sequence[int]) -> dict[str, list[tuple[int, int]]]:
    """Output nets of a group: net -> [(flake, contact)]."""
    result: dict[str, list[tuple[int, int]]] = {}
    for k in members:
        for i, net in enumerate(stacks[k].nets):
            if net.startswith("OUT"):
                result.setdefault(net, []).append((k, i))
    return result


def _wire_net(plan: Plan, assembly: Assembly, net: str, places: list[tuple[int, int]], clear: float) -> bool:
    """Join all contacts of a net by wires; adds them to the assembly."""
    chains, limits = assembly.chains, plan.limits
    mine = set(places)
    rects = [chains[k].contacts[i] for k, i in places]
    width = wire_width(rects)
    if width < 0.15:
        return False
    half = width / 2
    separation, spacing = limits.separation + MARGIN_UM, limits.spacing + MARGIN_UM
    gates = [shapely.Polygon(g.corners) for c in chains.values() for g in c.gates]
    others = [
        shapely.Polygon(c.corners)
        for k, chain in chains.items()
        for i, c in enumerate(chain.contacts)
        if (k, i) not in mine
    ]
    others += [shapely.Polygon(p) for name, w in assembly.wires if name != net for p in w.polygons]
    metal = shapely.union_all(gates)
    foreign = []
    own = {k for k, _ in places}
    for k, flake in enumerate(plan.flakes):
        if k not in own:
            foreign.append(flake.filled)
            continue
        contacts = [shapely.Polygon(r.corners) for (j, _), r in zip(places, rects) if j == k]
        pieces = shapely.get_parts(shapely.difference(flake.polygon, metal))
        foreign += [p for p in pieces if not any(p.intersects(c) for c in contacts)]
    walls = grow(gates, separation + half) + grow(others, spacing + half) + grow(foreign, clear + half)
    terminals = [Terminal(r) for r in rects]
    reached, rest = [0], list(range(1, len(rects)))
    drawn: list[Any] = []
    while rest:
        wire = route(terminals, reached, rest, walls, drawn, width, limits.spacing)
        if wire is None:
            return False
        for t, side in wire.ends:
            terminals[t] = Terminal(terminals[t].rect, tuple(s for s in terminals[t].sides if s != side))
        new = wire.ends[1][0]
        reached.append(new)
        rest.remove(new)
        drawn.append(shapely.union_all([shapely.Polygon(p) for p in wire.polygons]))
        assembly.wires.append((net, wire))
    return True


def _prepared(geometries: list[Any]) -> Any:
    if not geometries:
        return None
    union = shapely.union_all(geometries)
    shapely.prepare(union)
    return union


def _grown(box: tuple[float, float, float, float], d: float) -> tuple[float, float, float, float]:
    return box[0] - d, box[1] - d, box[2] + d, box[3] + d


def _meet(p: tuple[float, float, float, float], q: tuple[float, float, float, float]) -> bool:
    return p[0] < q[2] and q[0] < p[2] and p[1] < q[3] and q[1] < p[3]
