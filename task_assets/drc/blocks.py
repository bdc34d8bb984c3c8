"""Procedural blocks: rows of cells with power rails, straps and routed nets, legal under the ASAP7 rules.

`generate_block` draws everything from one random generator and returns a `Block`, which keeps instances, nets and
shapes apart so that violations can be injected at known places, and writes itself as a layout of one hierarchy level:
cell and via masters under a top cell that holds the wires.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import klayout.db as kdb
import numpy as np

from edagym.errors import TaskError
from edagym.task_assets.drc.cells import Cell, cell_library, get_cell
from edagym.task_assets.drc.process import (
    ALL_METALS,
    CPP,
    DBU_UM,
    LABEL_DATATYPE,
    LAYERS,
    M2_TRACKS,
    METALS,
    NM,
    OUTLINE,
    ROW_HEIGHT,
    VIAS,
    WIRES,
    Box,
)
from edagym.task_assets.drc.router import Occupancy, Router, Terminal, Via, Wire

TOP_CELL = "block"

CELL_WEIGHTS = {
    "INVx1": 5.0,
    "INVx2": 3.0,
    "BUFx1": 3.0,
    "NAND2x1": 5.0,
    "NOR2x1": 4.0,
    "NAND3x1": 2.0,
    "NOR3x1": 1.5,
    "AND2x1": 2.0,
    "OR2x1": 2.0,
    "SRLATCHx1": 1.0,
    "DLATCHx1": 1.0,
    "TIEHIx1": 0.4,
    "TIELOx1": 0.4,
    "FILLx1": 2.5,
    "FILLx2": 2.0,
}
"""Relative frequencies of cells in a row."""

TAP_PERIOD = 48
"""Gate pitches between columns of taps."""

RAIL_VIA_PITCH = 4 * CPP
"""Distance of the V1 that join the M1 and M2 rails, nm."""

RAIL_CUT_GAP = 24
"""Distance of the two cuts of such a via from its middle, nm: 30 nm between them."""

STRAP_PERIOD = 40 * CPP
"""Distance of two M5 straps of one supply, nm."""

STRAP_WIDTH = {"M5": 72, "M6": 96, "M7": 96, "M8": 40, "M9": 40}
"""Strap widths, nm: on M5 to M7 three times the minimum, as M*.W.3 forbids even multiples."""

MIN_THICK = 1900
"""Smallest block extent, nm, with straps on M8 and M9: shorter ones would have to be wider (M8.W.2 to M8.W.4)."""

DIE_MARGIN = 2 * CPP
"""Room between the rows and the die's outline, nm."""

MAX_FANOUT = 3

FILL_NET = "fill"

BARE_SHARE = 0.4
"""Share of nets whose via masters hold cuts only."""

ORIENTATIONS = {
    "r0": kdb.Trans.R0,
    "r180": kdb.Trans.R180,
    "m0": kdb.Trans.M0,
    "m90": kdb.Trans.M90,
}
"""KLayout's names of the orientations used: m0 mirrors in y, m90 in x."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A placed cell.

    Attributes:
        name: Instance name.
        cell: Library cell.
        x: Left edge, nm.
        y: Lower edge, nm.
        orientation: r0, r180, m0 or m90.
    """

    name: str
    cell: str
    x: int
    y: int
    orientation: str

    @property
    def origin(self) -> tuple[int, int]:
        """Displacement of the placement, nm: where the master's origin goes."""
        width = get_cell(self.cell).width
        return (
            self.x + (width if self.orientation in ("r180", "m90") else 0),
            self.y + (ROW_HEIGHT if self.orientation in ("r180", "m0") else 0),
        )

    def place(self, box: Box) -> Box:
        """Take a rectangle (nm) from the master's frame to the block's."""
        x0, y0 = self.origin
        left, bottom, right, top = box
        if self.orientation in ("r180", "m90"):
            left, right = -right, -left
        if self.orientation in ("r180", "m0"):
            bottom, top = -top, -bottom
        return (left + x0, bottom + y0, right + x0, top + y0)

    def terminal(self, pin: str) -> Terminal:
        """Return a pin's place in the block, nm."""
        entry = get_cell(self.cell).pins[pin]
        boxes = [self.place((entry.x, track, entry.x, track)) for track in entry.tracks]
        return Terminal(boxes[0][0], tuple(sorted(box[1] for box in boxes)))


@dataclass(frozen=True, slots=True)
class Net:
    """A routed signal net.

    Attributes:
        name: Net name.
        pins: Driver first, then sinks: instance name and pin name.
        trunk: Metal of the common wire.
        wires: Its wires; they cover the pads that the vias need.
        vias: Its vias.
        bare: Whether its via masters hold cuts only, not pads as well.
    """

    name: str
    pins: tuple[tuple[str, str], ...]
    trunk: str
    wires: tuple[Wire, ...]
    vias: tuple[Via, ...]
    bare: bool = False


@dataclass(frozen=True, slots=True)
class PowerVia:
    """A placed power via master.

    Attributes:
        cell: Master name, see `power_vias`.
        net: VDD or VSS.
        x: Centre, nm.
        y: Centre, nm.
    """

    cell: str
    net: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Block:
    """A generated block. Lengths are integer nanometres.

    Attributes:
        width: Width, nm.
        height: Height, nm.
        instances: Cells, row by row from the lower left.
        nets: Routed nets.
        rails: Power wires with their supply: M2 rails and straps.
        power_vias: Placed power vias.
        fill: Floating wires.
        loose: Other rectangles of the top cell, layer and extent.
        unrouted: Number of nets that found no way; they are absent and their pins unconnected.
    """

    width: int
    height: int
    instances: tuple[Instance, ...]
    nets: tuple[Net, ...]
    rails: tuple[tuple[str, Wire], ...]
    power_vias: tuple[PowerVia, ...]
    fill: tuple[Wire, ...] = ()
    loose: tuple[tuple[str, Box], ...] = ()
    unrouted: int = 0

    def layout(self) -> kdb.Layout:
        """Draw the block: masters, placements, wires and labels, in that order and always the same."""
        return _draw(self)

    def gds(self) -> bytes:
        """Return the block as GDSII, without time stamps: equal blocks give equal bytes."""
        return gds_bytes(self.layout())


def gds_bytes(layout: kdb.Layout) -> bytes:
    """Write a layout as GDSII without time stamps.

    Args:
        layout: The layout.

    Returns:
        The file's bytes.
    """
    options = kdb.SaveLayoutOptions()
    options.format = "GDS2"
    options.gds2_write_timestamps = False
    return layout.write_bytes(options)


# -- masters -------------------------------------------------------------------------------------------------------


def via_name(layer: str, bare: bool) -> str:
    """Return the name of a signal via's master: VIA_M2M3 with pads, CUT_M2M3 without."""
    return f"{'CUT' if bare else 'VIA'}_{VIAS[layer].lower}{VIAS[layer].upper}"


def power_vias() -> dict[str, list[tuple[str, Box]]]:
    """Return the power via masters: layer and rectangle (nm, centred on the origin)."""
    m5, m6, m7, m8 = (STRAP_WIDTH[metal] // 2 for metal in ("M5", "M6", "M7", "M8"))
    stack: list[tuple[str, Box]] = []
    for layer in ("V2", "V3"):
        via = Via(layer, 0, 0)
        stack += [(layer, via.cut), (VIAS[layer].upper, via.pad(lower=False))]
    stack = [entry for entry in stack if entry[0] not in ("M3", "M4")]
    stack += [("M3", Via("V3", 0, 0).pad(lower=True)), ("M4", (-m5 - 11, -12, m5 + 11, 12)), ("V4", (-m5, -12, m5, 12))]
    return {
        "PWR_M1M2": [("V1", Via("V1", x, 0).cut) for x in (-RAIL_CUT_GAP, RAIL_CUT_GAP)],
        "PWR_M2M5": stack,
        "PWR_M5M6": [("V5", (-m5, -m6, m5, m6))],
        "PWR_M6M7": [("V6", (-m7, -m6, m7, m6))],
        "PWR_M7M8": [("V7", (-m8, -m8, m8, m8))],
        "PWR_M8M9": [("V8", (-m8, -m8, m8, m8))],
    }


# -- generation ----------------------------------------------------------------------------------------------------


def generate_block(
    rng: np.random.Generator,
    *,
    rows: int = 3,
    width_cpp: int = 40,
    n_nets: int | None = None,
    top_metal: str = "M5",
    n_fill: int = 0,
) -> Block:
    """Draw a block that no ASAP7 rule objects to.

    Args:
        rng: Source of every choice.
        rows: Rows of cells, 0.27 um each; 1 to 40.
        width_cpp: Width in gate pitches of 54 nm; 12 to 200.
        n_nets: Largest number of nets to route; None connects every input.
        top_metal: Highest metal used, M2 to M9. M8 and M9 carry straps only, in blocks of at least 1.9 um.
        n_fill: Number of floating wires to try on every signal layer, as metal fill leaves them.

    Returns:
        The block.

    Raises:
        TaskError: `rows`, `width_cpp`, `n_nets`, `top_metal` or `n_fill` is out of range.
    """
    if not 1 <= rows <= 40:
        raise TaskError("a block has between one and forty rows", field="rows", value=rows, allowed="1..40")
    if not 12 <= width_cpp <= 200:
        raise TaskError("a block's width is out of range", field="width_cpp", value=width_cpp, allowed="12..200")
    if top_metal not in ALL_METALS[1:]:
        raise TaskError("no such metal", field="top_metal", value=top_metal, allowed=list(ALL_METALS[1:]))
    if n_nets is not None and n_nets < 0:
        raise TaskError("a number of nets cannot be negative", field="n_nets", value=n_nets, allowed=">= 0")
    if n_fill < 0:
        raise TaskError("a number of wires cannot be negative", field="n_fill", value=n_fill, allowed=">= 0")
    width, height = width_cpp * CPP, rows * ROW_HEIGHT
    instances = _place(rng, rows, width_cpp)
    rails, vias = _power(width, rows, top_metal)
    occupancy = occupied(instances, rails, vias)
    nets, unrouted = _connect(rng, width, height, instances, occupancy, n_nets, top_metal)
    fill = _fill(rng, width, height, occupancy, n_fill, top_metal)
    return Block(width, height, tuple(instances), tuple(nets), tuple(rails), tuple(vias), tuple(fill), (), unrouted)


def _fill(
    rng: np.random.Generator, width: int, height: int, occupancy: Occupancy, n_fill: int, top_metal: str
) -> list[Wire]:
    """Place floating wires where they are legal; those that find no room are left out."""
    fill: list[Wire] = []
    for metal in METALS[1 : ALL_METALS.index(top_metal) + 1]:
        rule = WIRES[metal]
        across_limit, along_limit = (width, height) if rule.vertical else (height, width)
        tracks = _tracks(metal, across_limit)
        for _ in range(n_fill):
            across = tracks[int(rng.integers(len(tracks)))]
            length = min(rule.length + 2 * int(rng.integers(0, 100)), along_limit)
            start = int(rng.integers(0, along_limit - length + 1))
            half = rule.width // 2
            along_box = (start, across - half, start + length, across + half)
            wire = Wire(metal, (along_box[1], along_box[0], along_box[3], along_box[2]) if rule.vertical else along_box)
            if occupancy.free([wire], (), FILL_NET):
                occupancy.add(metal, wire.box, f"{FILL_NET}{len(fill)}")
                fill.append(wire)
    return fill


def _tracks(metal: str, limit: int) -> list[int]:
    """Track centres of a layer, nm."""
    rule = WIRES[metal]
    if metal == "M2":
        return [row + track for row in range(0, limit - ROW_HEIGHT + 1, ROW_HEIGHT) for track in M2_TRACKS]
    return list(range(rule.offset, limit - rule.width, rule.pitch))


def _place(rng: np.random.Generator, rows: int, width_cpp: int) -> list[Instance]:
    """Fill every row with cells between columns of taps."""
    library = cell_library()
    names = list(CELL_WEIGHTS)
    taps = [0]
    while width_cpp - 2 - taps[-1] > TAP_PERIOD * 3 // 2:
        taps.append(taps[-1] + TAP_PERIOD)
    taps.append(width_cpp - 2)
    instances: list[Instance] = []
    for row in range(rows):
        placed: list[tuple[str, int]] = []
        for left, right in pairwise(taps):
            placed.append(("TAPx1", left))
            column = left + 2
            while column < right:
                fitting = [name for name in names if library[name].columns <= right - column]
                weights = np.array([CELL_WEIGHTS[name] for name in fitting])
                name = fitting[int(rng.choice(len(fitting), p=weights / weights.sum()))]
                placed.append((name, column))
                column += library[name].columns
        placed.append(("TAPx1", taps[-1]))
        for index, (name, column) in enumerate(placed):
            flipped = name in CELL_WEIGHTS and bool(rng.random() < 0.4)
            orientation = ("m90" if flipped else "r0") if row % 2 == 0 else ("r180" if flipped else "m0")
            instances.append(Instance(f"u{row}_{index}", name, column * CPP, row * ROW_HEIGHT, orientation))
    return instances


def _power(width: int, rows: int, top_metal: str) -> tuple[list[tuple[str, Wire]], list[PowerVia]]:
    """Rails on M2, straps on M5 to M9 where these layers are used, and the vias between them."""
    height = rows * ROW_HEIGHT
    top = ALL_METALS.index(top_metal)
    rails: list[tuple[str, Wire]] = []
    vias: list[PowerVia] = []
    half = WIRES["M2"].width // 2
    for line in range(rows + 1):
        net, y = ("VSS" if line % 2 == 0 else "VDD"), line * ROW_HEIGHT
        rails.append((net, Wire("M2", (0, y - half, width, y + half))))
        vias += [PowerVia("PWR_M1M2", net, x, y) for x in range(CPP, width - CPP // 2, RAIL_VIA_PITCH)]
    if top < ALL_METALS.index("M5"):
        return rails, vias
    columns: list[tuple[str, int]] = []
    for index, x in enumerate(range(STRAP_PERIOD // 4 + CPP // 2, width - 4 * CPP, STRAP_PERIOD // 2)):
        net = "VSS" if index % 2 == 0 else "VDD"
        columns.append((net, x))
        w = STRAP_WIDTH["M5"] // 2
        rails.append((net, Wire("M5", (x - w, -half - 32, x + w, height + half + 32))))
        vias += [
            PowerVia("PWR_M2M5", net, x, y)
            for y in range(0 if net == "VSS" else ROW_HEIGHT, height + 1, 2 * ROW_HEIGHT)
        ]
    if top < ALL_METALS.index("M6"):
        return rails, vias
    lines: list[tuple[str, int]] = []
    for index, y in enumerate(range(ROW_HEIGHT // 2, height, 3 * ROW_HEIGHT // 2)):
        net = "VDD" if index % 2 == 0 else "VSS"
        crossings = [x for owner, x in columns if owner == net]
        if crossings:
            w = STRAP_WIDTH["M6"] // 2
            lines.append((net, y))
            rails.append((net, Wire("M6", (0, y - w, width, y + w))))
            vias += [PowerVia("PWR_M5M6", net, x, y) for x in crossings]
    if top < ALL_METALS.index("M7"):
        return rails, vias
    for index, x in enumerate(range(STRAP_PERIOD // 2 + CPP // 2, width - 4 * CPP, STRAP_PERIOD)):
        net = "VSS" if index % 2 == 0 else "VDD"
        crossings = [y for owner, y in lines if owner == net]
        if crossings:
            w = STRAP_WIDTH["M7"] // 2
            rails.append((net, Wire("M7", (x - w, 0, x + w, height))))
            vias += [PowerVia("PWR_M6M7", net, x, y) for y in crossings]
    if top < ALL_METALS.index("M8") or min(width, height) < MIN_THICK:
        return rails, vias
    w = STRAP_WIDTH["M8"] // 2
    columns = [(net, (wire.box[0] + wire.box[2]) // 2) for net, wire in rails if wire.layer == "M7"]
    for net, x in columns:
        # M8 runs along M7: V7.M8.AUX.2 wants the vertical edges of V7 and M8 to coincide.
        rails.append((net, Wire("M8", (x - w, 0, x + w, height))))
        vias += [PowerVia("PWR_M7M8", net, x, y) for owner, y in lines if owner == net]
    if top < ALL_METALS.index("M9"):
        return rails, vias
    for index, y in enumerate(range(STRAP_PERIOD // 4, height - CPP, STRAP_PERIOD // 2)):
        net = "VSS" if index % 2 == 0 else "VDD"
        rails.append((net, Wire("M9", (0, y - w, width, y + w))))
        vias += [PowerVia("PWR_M8M9", net, x, y) for owner, x in columns if owner == net]
    return rails, vias


def occupied(instances: Sequence[Instance], rails: Sequence[tuple[str, Wire]], vias: Sequence[PowerVia]) -> Occupancy:
    """Return everything that routing has to keep away from: wires and cuts of cells and of the supply."""
    occupancy = Occupancy()
    for instance in instances:
        cell = get_cell(instance.cell)
        for layer in ("V1", "M2"):
            for box in cell.boxes.get(layer, ()):
                occupancy.add(layer, instance.place(box), f"{instance.name}/")
    for net, wire in rails:
        occupancy.add(wire.layer, wire.box, net)
    masters = power_vias()
    for via in vias:
        for layer, (left, bottom, right, top) in masters[via.cell]:
            occupancy.add(layer, (left + via.x, bottom + via.y, right + via.x, top + via.y), via.net)
    return occupancy


def _connect(
    rng: np.random.Generator,
    width: int,
    height: int,
    instances: Sequence[Instance],
    occupancy: Occupancy,
    n_nets: int | None,
    top_metal: str,
) -> tuple[list[Net], int]:
    """Give inputs a driver nearby, then route the nets, short ones first; also return how many failed."""
    drivers: list[tuple[str, str]] = []
    sinks: list[tuple[str, str]] = []
    where: dict[tuple[str, str], Terminal] = {}
    for instance in instances:
        for pin in get_cell(instance.cell).pins.values():
            key = (instance.name, pin.name)
            where[key] = instance.terminal(pin.name)
            (drivers if pin.output else sinks).append(key)
    fans: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for index in rng.permutation(len(sinks)):
        sink = sinks[int(index)]
        far = _distance_scale(rng, width, height)
        options = [d for d in drivers if len(fans.get(d, ())) < MAX_FANOUT and d[0] != sink[0]]
        if not options:
            continue
        costs = [abs(_distance(where[d], where[sink]) - far) for d in options]
        fans.setdefault(options[int(np.argmin(costs))], []).append(sink)
    wanted = sorted(fans.items(), key=lambda item: _length([where[pin] for pin in (item[0], *item[1])]))
    if n_nets is not None:
        kept = np.sort(rng.permutation(len(wanted))[:n_nets])
        wanted = [wanted[int(i)] for i in kept]
    router = Router(width, height, occupancy)
    nets: list[Net] = []
    unrouted = 0
    for driver, fan in wanted:
        pins = (driver, *fan)
        terminals = [where[pin] for pin in pins]
        name = f"n{len(nets)}"
        for trunk in _trunks(rng, terminals, top_metal):
            found = router.route(name, terminals, trunk, rng)
            if found is not None:
                bare = bool(rng.random() < BARE_SHARE)
                nets.append(Net(name, pins, trunk, tuple(found[0]), tuple(found[1]), bare))
                break
        else:
            unrouted += 1
    return nets, unrouted


def _distance(a: Terminal, b: Terminal) -> int:
    return abs(a.x - b.x) + abs(a.tracks[0] - b.tracks[0])


def _length(terminals: Sequence[Terminal]) -> int:
    xs = [terminal.x for terminal in terminals]
    ys = [terminal.tracks[0] for terminal in terminals]
    return max(xs) - min(xs) + max(ys) - min(ys)


def _distance_scale(rng: np.random.Generator, width: int, height: int) -> float:
    """Wanted length of a connection, nm: mostly local, sometimes across the block."""
    return float(min(rng.exponential(350.0), width + height))


def _trunks(rng: np.random.Generator, terminals: Sequence[Terminal], top_metal: str) -> list[str]:
    """Layers to try for the common wire: higher ones first for long nets."""
    length = _length(terminals)
    top = min(ALL_METALS.index(top_metal), METALS.index("M7"))
    level = 1 if length < 400 else 2 if length < 900 else 3 if length < 1800 else 4
    level = min(top, level + int(rng.integers(0, 3)))
    order = [*range(level, top + 1), *range(level - 1, 0, -1)]
    return [METALS[index] for index in order]


# -- drawing -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Sheet:
    layout: kdb.Layout
    layers: dict[str, int] = field(default_factory=dict)

    def index(self, layer: str) -> int:
        return self.layers[layer]


def _scaled(box: Box) -> kdb.Box:
    return kdb.Box(*(value * NM for value in box))


def _draw(block: Block) -> kdb.Layout:
    layout = kdb.Layout()
    layout.dbu = DBU_UM
    sheet = _Sheet(layout)
    for name, (number, datatype) in LAYERS.items():
        sheet.layers[name] = layout.layer(number, datatype)
    top = layout.create_cell(TOP_CELL)
    masters: dict[str, int] = {}
    for name in sorted({instance.cell for instance in block.instances}):
        masters[name] = _draw_cell(sheet, get_cell(name))
    for layer, bare in sorted({(via.layer, net.bare) for net in block.nets for via in net.vias}):
        cell = layout.create_cell(via_name(layer, bare))
        masters[cell.name] = cell.cell_index()
        via = Via(layer, 0, 0)
        cell.shapes(sheet.index(layer)).insert(_scaled(via.cut))
        if not bare:
            cell.shapes(sheet.index(VIAS[layer].lower)).insert(_scaled(via.pad(lower=True)))
            cell.shapes(sheet.index(VIAS[layer].upper)).insert(_scaled(via.pad(lower=False)))
    shapes = power_vias()
    for name in sorted({via.cell for via in block.power_vias}):
        cell = layout.create_cell(name)
        masters[name] = cell.cell_index()
        for layer, box in shapes[name]:
            cell.shapes(sheet.index(layer)).insert(_scaled(box))
    for instance in block.instances:
        x, y = instance.origin
        trans = kdb.Trans(ORIENTATIONS[instance.orientation], x * NM, y * NM)
        top.insert(kdb.CellInstArray(masters[instance.cell], trans))
    for power in block.power_vias:
        top.insert(kdb.CellInstArray(masters[power.cell], kdb.Trans(power.x * NM, power.y * NM)))
    for net in block.nets:
        for via in net.vias:
            top.insert(kdb.CellInstArray(masters[via_name(via.layer, net.bare)], kdb.Trans(via.x * NM, via.y * NM)))
    for supply, wire in block.rails:
        _wire(sheet, top, wire, supply)
    for net in block.nets:
        for wire in net.wires:
            _wire(sheet, top, wire, net.name if wire.layer == net.trunk else None)
    for wire in block.fill:
        _wire(sheet, top, wire, None)
    for layer, box in block.loose:
        top.shapes(sheet.index(layer)).insert(_scaled(box))
    die = (-DIE_MARGIN, -DIE_MARGIN, block.width + DIE_MARGIN, block.height + DIE_MARGIN)
    top.shapes(layout.layer(*OUTLINE)).insert(_scaled(die))
    return layout


def _wire(sheet: _Sheet, top: kdb.Cell, wire: Wire, label: str | None) -> None:
    top.shapes(sheet.index(wire.layer)).insert(_scaled(wire.box))
    if label is not None:
        left, bottom, right, upper = wire.box
        text = kdb.Text(label, kdb.Trans((left + right) // 2 * NM, (bottom + upper) // 2 * NM))
        top.shapes(sheet.layout.layer(LAYERS[wire.layer][0], LABEL_DATATYPE)).insert(text)


def _draw_cell(sheet: _Sheet, cell: Cell) -> int:
    """Draw a library cell; M1 becomes one polygon per net."""
    master = sheet.layout.create_cell(cell.name)
    for layer, boxes in cell.boxes.items():
        shapes = master.shapes(sheet.index(layer))
        if layer == "M1":
            region = kdb.Region()
            for box in boxes:
                region.insert(_scaled(box))
            for polygon in region.merged().each():
                shapes.insert(polygon)
        else:
            for box in boxes:
                shapes.insert(_scaled(box))
    master.shapes(sheet.layout.layer(*OUTLINE)).insert(_scaled((0, 0, cell.width, ROW_HEIGHT)))
    names = master.shapes(sheet.layout.layer(LAYERS["M1"][0], LABEL_DATATYPE))
    for text, x, y in cell.labels:
        names.insert(kdb.Text(text, kdb.Trans(x * NM, y * NM)))
    return master.cell_index()
