"""What a careless flow leaves behind: blocks with the violations of an imperfect router and of ill-matched cells.

`roughen` takes a legal block and redoes parts of it the way that routers and cell libraries get them wrong
(PostEDA-Bench, Section 3.1.3). Nets stay connected as they were. No repair is known from the construction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edagym.task_assets.drc.blocks import Block, Instance, Net, occupied
from edagym.task_assets.drc.cells import get_cell
from edagym.task_assets.drc.process import METALS, VIAS, WIRES, Box, WireLayer
from edagym.task_assets.drc.router import Occupancy, Router, Via, Wire, touching

WIDER_NM = 10
"""How much ill-matched cells widen the bars that face each other: 36 nm apart before, 16 nm after."""

WIDENABLE = ("INVx1", "INVx2", "NAND2x1", "NOR2x1", "NAND3x1", "NOR3x1")
"""Cells whose output bar is the outermost M1 on one side."""


@dataclass(frozen=True, slots=True)
class Residual:
    """One careless piece of work.

    Attributes:
        kind: One of `KINDS`.
        where: Its extent, nm.
        owner: The net or the instance pair concerned.
    """

    kind: str
    where: Box
    owner: str


def roughen(
    rng: np.random.Generator,
    block: Block,
    kinds: Sequence[str],
    n: int,
    tries: int = 60,
    taken: frozenset[str] = frozenset(),
) -> tuple[Block, tuple[Residual, ...]]:
    """Redo up to `n` parts of a legal block carelessly.

    Args:
        rng: Source of every choice.
        block: The block.
        kinds: Kinds to draw from, names of `KINDS`.
        n: Number of careless pieces wanted.
        tries: Largest number of attempts.
        taken: Nets and instances to leave alone.

    Returns:
        The block and what was done; fewer than `n` pieces where attempts failed.
    """
    done: list[Residual] = []
    for _ in range(tries):
        if len(done) == n:
            break
        kind = kinds[int(rng.integers(len(kinds)))]
        result = KINDS[kind](rng, block, taken | {residual.owner for residual in done})
        if result is not None:
            block, where, owner = result
            done.append(Residual(kind, where, owner))
    return block, tuple(done)


_Result = tuple[Block, Box, str] | None


# -- careless spacing ----------------------------------------------------------------------------------------------


def _relaxed(change: Callable[[np.random.Generator, WireLayer], WireLayer]) -> Callable[..., _Result]:
    """A kind that routes one net again under laxer spacing rules."""

    def redo(rng: np.random.Generator, block: Block, taken: frozenset[str]) -> _Result:
        net = _some_net(rng, block, taken)
        if net is None:
            return None
        rules = {name: change(rng, rule) for name, rule in WIRES.items()}
        others = [other for other in block.nets if other is not net]
        router = Router(block.width, block.height, _occupancy(block, others), rules)
        places = {instance.name: instance for instance in block.instances}
        terminals = [places[instance].terminal(pin) for instance, pin in net.pins]
        highest = max(METALS.index(wire.layer) for other in block.nets for wire in other.wires)
        level = min(highest, max(1, METALS.index(net.trunk) + int(rng.integers(-1, 2))))
        found = router.route(net.name, terminals, METALS[level], rng)
        if found is None:
            return None
        wires, vias = tuple(found[0]), tuple(found[1])
        renewed = Net(net.name, net.pins, METALS[level], wires, vias, net.bare)
        nets = tuple(renewed if other is net else other for other in block.nets)
        return replace(block, nets=nets), _hull([wire.box for wire in wires]), net.name

    return redo


def _tips(rng: np.random.Generator, rule: WireLayer) -> WireLayer:
    return replace(rule, tip=int(rng.integers(10, rule.tip)))


def _corners(rng: np.random.Generator, rule: WireLayer) -> WireLayer:
    return replace(rule, corner=int(rng.integers(4, 18)) if rule.corner else 0, reach=0)


def _runs(rng: np.random.Generator, rule: WireLayer) -> WireLayer:
    return replace(rule, run=0)


# -- careless wires and vias ---------------------------------------------------------------------------------------


def _short_end(rng: np.random.Generator, block: Block, taken: frozenset[str]) -> _Result:
    """Let a wire end too close to its last cut."""
    net = _some_net(rng, block, taken)
    if net is None:
        return None
    ends: list[tuple[int, Wire, bool, int]] = []
    for index, wire in enumerate(net.wires):
        if wire.layer == "M1":
            continue
        axis = 1 if WIRES[wire.layer].vertical else 0
        for via in net.vias:
            if wire.layer in (VIAS[via.layer].lower, VIAS[via.layer].upper) and touching(via.cut, wire.box):
                for high in (False, True):
                    room = wire.box[axis + 2] - via.cut[axis + 2] if high else via.cut[axis] - wire.box[axis]
                    if 0 < room <= 11:
                        ends.append((index, wire, high, room))
    if not ends:
        return None
    index, wire, high, room = ends[int(rng.integers(len(ends)))]
    cut = int(rng.integers(1, room + 1))
    axis = 1 if WIRES[wire.layer].vertical else 0
    box = list(wire.box)
    box[axis + 2 if high else axis] += -cut if high else cut
    if any(not _covers(box, via.cut) and _covers(wire.box, via.cut) for via in net.vias):
        return None
    wires = tuple(Wire(wire.layer, _box(box)) if k == index else other for k, other in enumerate(net.wires))
    renewed = replace(net, wires=wires, bare=True)
    nets = tuple(renewed if other is net else other for other in block.nets)
    return replace(block, nets=nets), _box(box), net.name


def _wide_wire(rng: np.random.Generator, block: Block, taken: frozenset[str]) -> _Result:
    """Draw a wire three times as wide with the cuts of a narrow one."""
    net = _some_net(rng, block, taken)
    if net is None:
        return None
    order = [int(k) for k in rng.permutation(len(net.wires))]
    others = _occupancy(block, [other for other in block.nets if other is not net])
    for index in order:
        wire = net.wires[index]
        rule = WIRES[wire.layer]
        if wire.layer not in ("M4", "M5", "M6", "M7"):
            continue
        left, bottom, right, top = wire.box
        grow = rule.width
        box = (left - grow, bottom, right + grow, top) if rule.vertical else (left, bottom - grow, right, top + grow)
        wider = Wire(wire.layer, box)
        inside = box[0] >= 0 and box[1] >= 0 and box[2] <= block.width and box[3] <= block.height
        if inside and others.free([wider], (), net.name):
            wires = tuple(wider if k == index else other for k, other in enumerate(net.wires))
            nets = tuple(replace(net, wires=wires) if other is net else other for other in block.nets)
            return replace(block, nets=nets), box, net.name
    return None


def _odd_cut(rng: np.random.Generator, block: Block, taken: frozenset[str]) -> _Result:
    """Use a cut of another size than the wires ask for."""
    net = _some_net(rng, block, taken)
    if net is None:
        return None
    index = int(rng.integers(len(net.vias)))
    via = net.vias[index]
    width, height = VIAS[via.layer].width, VIAS[via.layer].height
    if rng.random() < 0.5:
        width -= 2 * int(rng.integers(1, 4))
    else:
        height -= 2 * int(rng.integers(1, 4))
    cut = (via.x - width // 2, via.y - height // 2, via.x + width // 2, via.y + height // 2)
    vias = tuple(other for k, other in enumerate(net.vias) if k != index)
    loose: list[tuple[str, Box]] = [(via.layer, cut)]
    if not net.bare and VIAS[via.layer].lower != "M1":
        loose.append((VIAS[via.layer].lower, via.pad(lower=True)))
    if not net.bare:
        loose.append((VIAS[via.layer].upper, via.pad(lower=False)))
    nets = tuple(replace(net, vias=vias) if other is net else other for other in block.nets)
    return replace(block, nets=nets, loose=(*block.loose, *loose)), cut, net.name


def _patch(rng: np.random.Generator, block: Block, taken: frozenset[str]) -> _Result:
    """Leave a patch that is wider than the wire at one of its ends."""
    net = _some_net(rng, block, taken)
    if net is None:
        return None
    wire = net.wires[int(rng.integers(len(net.wires)))]
    rule = WIRES[wire.layer]
    grow, length = 2 * int(rng.integers(1, 5)), int(rng.integers(12, 40))
    box = list(wire.box)
    along, across = (1, 0) if rule.vertical else (0, 1)
    if length >= box[along + 2] - box[along]:
        return None
    if rng.random() < 0.5:
        box[along] = box[along + 2] - length
    else:
        box[along + 2] = box[along] + length
    side = across + 2 if rng.random() < 0.5 else across
    box[side] += grow if side > 1 else -grow
    patch = _box(box)
    others = _occupancy(block, [other for other in block.nets if other is not net])
    if any(touching(patch, other) for owner, other in others.near(wire.layer, patch) if owner != net.name):
        return None
    return replace(block, loose=(*block.loose, (wire.layer, patch))), patch, net.name


def _stub(rng: np.random.Generator, block: Block, taken: frozenset[str]) -> _Result:
    """Leave the landing of a net that was given up: a V1 and too little M2 on a pin that nothing else uses."""
    used = {pin for net in block.nets for pin in net.pins}
    free = [
        (instance, pin)
        for instance in block.instances
        for pin in get_cell(instance.cell).pins
        if (instance.name, pin) not in used and instance.name not in taken
    ]
    if not free:
        return None
    instance, pin = free[int(rng.integers(len(free)))]
    terminal = instance.terminal(pin)
    y = terminal.tracks[int(rng.integers(len(terminal.tracks)))]
    via = Via("V1", terminal.x, y)
    left, bottom, right, top = via.cut
    end = int(rng.integers(6, 10))
    wire = Wire("M2", (left, bottom, right + end, top) if rng.random() < 0.5 else (left - end, bottom, right, top))
    if not _occupancy(block, block.nets).free([wire], [via], instance.name):
        return None
    loose = (*block.loose, ("V1", via.cut), ("M2", wire.box))
    return replace(block, loose=loose), wire.box, instance.name


# -- careless cells ------------------------------------------------------------------------------------------------


def _abutment(rng: np.random.Generator, block: Block, taken: frozenset[str]) -> _Result:
    """Put two cells side by side whose output bars face each other and are wider than others."""
    pairs = [
        (a, b)
        for a, b in zip(block.instances, block.instances[1:])
        if a.y == b.y
        and a.cell in WIDENABLE
        and b.cell in WIDENABLE
        and a.orientation in ("r0", "m0")
        and b.orientation in ("m90", "r180")
        and not {a.name, b.name} & taken
    ]
    if not pairs:
        return None
    a, b = pairs[int(rng.integers(len(pairs)))]
    wider = {instance.name: f"{instance.cell}_w{WIDER_NM}" for instance in (a, b)}
    instances = tuple(Instance(i.name, wider.get(i.name, i.cell), i.x, i.y, i.orientation) for i in block.instances)
    where = (b.x - 30, a.y, b.x + 30, a.y + 270)
    return replace(block, instances=instances), where, a.name


KINDS: dict[str, Callable[[np.random.Generator, Block, frozenset[str]], _Result]] = {
    "tip-to-tip": _relaxed(_tips),
    "corner-to-corner": _relaxed(_corners),
    "parallel-run": _relaxed(_runs),
    "short-end": _short_end,
    "via-on-wide-wire": _wide_wire,
    "odd-cut": _odd_cut,
    "patch": _patch,
    "stub": _stub,
    "abutment": _abutment,
}
"""Kinds of careless work by name."""


# -- helpers -------------------------------------------------------------------------------------------------------


def _some_net(rng: np.random.Generator, block: Block, taken: frozenset[str]) -> Net | None:
    nets = [net for net in block.nets if net.name not in taken]
    return nets[int(rng.integers(len(nets)))] if nets else None


def _occupancy(block: Block, nets: Sequence[Net]) -> Occupancy:
    occupancy = occupied(block.instances, block.rails, block.power_vias)
    for net in nets:
        for wire in net.wires:
            occupancy.add(wire.layer, wire.box, net.name)
        for via in net.vias:
            occupancy.add(via.layer, via.cut, net.name)
    for number, wire in enumerate(block.fill):
        occupancy.add(wire.layer, wire.box, f"fill{number}")
    for number, (layer, box) in enumerate(block.loose):
        occupancy.add(layer, box, f"loose{number}")
    return occupancy


def _covers(outer: Sequence[int], inner: Box) -> bool:
    return outer[0] <= inner[0] and outer[1] <= inner[1] and inner[2] <= outer[2] and inner[3] <= outer[3]


def _hull(boxes: Sequence[Box]) -> Box:
    return (
        min(box[0] for box in boxes),
        min(box[1] for box in boxes),
        max(box[2] for box in boxes),
        max(box[3] for box in boxes),
    )


def _box(values: Sequence[int]) -> Box:
    left, bottom, right, top = values
    return (left, bottom, right, top)
