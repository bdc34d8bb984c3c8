"""A small library of 7.5-track FinFET cells, drawn by rule from a list of source and drain nets.

Every cell has the same frame: ten fins, a gate every 54 nm, a P-well half (N transistors, VSS rail at the bottom) and
an N-well half (P transistors, VDD rail at the top), one uncontacted gate at each end so that diffusions of neighbours
are 92 nm apart. Sources reach the rails through LISD, gates are contacted in the middle of the cell, M1 joins the
drains in a bracket on the right. Coordinates are integer nanometres with the origin at the cell's lower left corner.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache

from edagym.task_assets.drc.process import CPP, M2_TRACKS, ROW_HEIGHT, Box

GATE_LEFT, GATE_RIGHT = 17, 37
"""Gate edges relative to its column, nm: 20 nm wide, centred."""

N_ACTIVE, P_ACTIVE = (27, 108), (162, 243)
"""Vertical extent of N and P diffusion, nm: three fins each."""

N_DRAIN_Y, P_DRAIN_Y = 38, 232
"""Height of the M1 arms that contact drains, nm."""

MIDDLE = 135
"""Height of gate contacts, nm."""

PIN_BAR = (67, 203)
"""Vertical extent of an input's M1 bar, nm: reaches four M2 tracks."""

HALF = 9
"""Half an M1 wire or a V0 or V1 cut, nm."""

END = 5
"""Extension of M1 beyond a cut along the wire, nm."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A signal pin.

    Attributes:
        name: Pin name.
        output: Whether the cell drives it.
        x: Centre of the vertical M1 bar that routing may land on, nm.
        tracks: M2 track centres (nm above the cell's lower edge) on which a V1 fits.
    """

    name: str
    output: bool
    x: int
    tracks: tuple[int, ...]


@dataclass(slots=True)
class Cell:
    """A drawn cell.

    Attributes:
        name: Cell name.
        columns: Width in gate pitches.
        boxes: Rectangles by layer, nm; those of M1 may overlap and are merged when written.
        pins: Signal pins by name.
        labels: Names on M1: text, x, y (nm).
        transistors: Number of N and of P transistors.
    """

    name: str
    columns: int
    boxes: dict[str, list[Box]] = field(default_factory=dict)
    pins: dict[str, Pin] = field(default_factory=dict)
    labels: list[tuple[str, int, int]] = field(default_factory=list)
    transistors: tuple[int, int] = (0, 0)

    @property
    def width(self) -> int:
        """Width, nm."""
        return self.columns * CPP

    def add(self, layer: str, box: Box) -> None:
        """Add a rectangle (nm) to `layer`."""
        self.boxes.setdefault(layer, []).append(box)


# -- parts ---------------------------------------------------------------------------------------------------------


def _frame(cell: Cell) -> None:
    """Draw what every cell has, active or not."""
    width = cell.width
    cell.add("WELL", (0, MIDDLE, width, ROW_HEIGHT))
    cell.add("NSELECT", (0, 0, width, MIDDLE))
    cell.add("PSELECT", (0, MIDDLE, width, ROW_HEIGHT))
    for fin in range(10):
        cell.add("FIN", (0, 10 + 27 * fin, width, 17 + 27 * fin))
    for y in (0, ROW_HEIGHT):
        cell.add("GCUT", (0, y - 22, width, y + 22))
        cell.add("LIG", (0, y - 8, width, y + 8))
        cell.add("M1", (0, y - HALF, width, y + HALF))
    for column in range(cell.columns):
        x = column * CPP
        cell.add("GATE", (x + GATE_LEFT, -5, x + GATE_RIGHT, ROW_HEIGHT + 5))
    cell.labels += [("VSS", width // 2, 0), ("VDD", width // 2, ROW_HEIGHT)]


def _cut(cell: Cell, columns: Iterable[int]) -> None:
    """Cut uncontacted gates between the P and the N side."""
    for column in columns:
        cell.add("GCUT", (column * CPP, MIDDLE - 22, (column + 1) * CPP, MIDDLE + 22))


def _diffusion(cell: Cell, first: int, last: int, n_nets: Sequence[str], p_nets: Sequence[str]) -> None:
    """Draw transistors on gates `first` to `last` (both sides), with the nets of the source and drain columns."""
    for (bottom, top), nets, rail in ((N_ACTIVE, n_nets, 0), (P_ACTIVE, p_nets, ROW_HEIGHT)):
        cell.add("ACTIVE", (first * CPP + GATE_LEFT - 25, bottom, last * CPP + GATE_RIGHT + 25, top))
        for column, net in enumerate(nets, start=first):
            x = column * CPP
            cell.add("SDT", (x - 12, bottom, x + 12, top))
            if net in ("VSS", "VDD"):
                cell.add("LISD", (x - 12, min(bottom, rail), x + 12, max(top, rail)))
                _v0(cell, x, rail)
            else:
                cell.add("LISD", (x - 12, bottom, x + 12, top))
    n, p = cell.transistors
    cell.transistors = (n + last - first + 1, p + last - first + 1)


def _v0(cell: Cell, x: int, y: int) -> None:
    cell.add("V0", (x - HALF, y - HALF, x + HALF, y + HALF))


def _gate_contact(cell: Cell, columns: Sequence[int], x: int) -> None:
    """Contact the gates of neighbouring `columns` with one LIG and a V0 at `x`."""
    left, right = min(columns) * CPP + GATE_LEFT - 1, max(columns) * CPP + GATE_RIGHT + 1
    cell.add("LIG", (left, MIDDLE - 11, right, MIDDLE + 11))
    _v0(cell, x, MIDDLE)


def _bar(cell: Cell, x: int, bottom: int, top: int) -> None:
    """Vertical M1."""
    cell.add("M1", (x - HALF, bottom, x + HALF, top))


def _arm(cell: Cell, y: int, left: int, right: int, contacts: Sequence[int]) -> None:
    """Horizontal M1 with V0 on LISD at `contacts`."""
    cell.add("M1", (left, y - HALF, right, y + HALF))
    for x in contacts:
        _v0(cell, x, y)


def _pin(cell: Cell, name: str, output: bool, x: int, bottom: int, top: int) -> None:
    """Declare and label a pin on the vertical bar at `x`."""
    tracks = tuple(y for y in M2_TRACKS if bottom <= y - HALF - END and y + HALF + END <= top)
    cell.pins[name] = Pin(name, output, x, tracks)
    cell.labels.append((name, x, MIDDLE))


def _input(cell: Cell, name: str, column: int, columns: Sequence[int] | None = None) -> None:
    """Contact gate `column` (or several `columns`) and give it a pin bar."""
    x = column * CPP + CPP // 2
    _gate_contact(cell, columns or (column,), x)
    _bar(cell, x, *PIN_BAR)
    _pin(cell, name, False, x, *PIN_BAR)


def _output(cell: Cell, name: str, n_drains: Sequence[int], p_drains: Sequence[int]) -> None:
    """Join drain columns in a bracket that opens to the left."""
    x = (cell.columns - 1) * CPP + CPP // 2
    for y, drains in ((N_DRAIN_Y, n_drains), (P_DRAIN_Y, p_drains)):
        contacts = [column * CPP for column in drains]
        _arm(cell, y, min(contacts) - HALF - END, x + HALF, contacts)
    _bar(cell, x, N_DRAIN_Y - HALF, P_DRAIN_Y + HALF)
    _pin(cell, name, True, x, N_DRAIN_Y - HALF, P_DRAIN_Y + HALF)


def _logic(
    name: str,
    gates: Sequence[str],
    n_nets: Sequence[str],
    p_nets: Sequence[str],
    output: str = "Y",
) -> Cell:
    """A single-stage cell: one N and one P transistor per gate, source and drain nets from left to right."""
    cell = Cell(name, len(gates) + 2)
    _frame(cell)
    _cut(cell, (0, cell.columns - 1))
    _diffusion(cell, 1, len(gates), n_nets, p_nets)
    runs: list[tuple[str, list[int]]] = []
    for column, gate in enumerate(gates, start=1):
        if runs and runs[-1][0] == gate:
            runs[-1][1].append(column)
        else:
            runs.append((gate, [column]))
    for gate, columns in runs:
        _input(cell, gate, columns[0], columns)
    _output(
        cell,
        output,
        [column for column, net in enumerate(n_nets, start=1) if net == output],
        [column for column, net in enumerate(p_nets, start=1) if net == output],
    )
    return cell


# -- the cells -----------------------------------------------------------------------------------------------------


def _buffer() -> Cell:
    """Two inverters that share the middle source; the first one's output reaches the second gate under the arms."""
    cell = Cell("BUFx1", 5)
    _frame(cell)
    _cut(cell, (0, 4))
    _diffusion(cell, 1, 3, ("I", "VSS", "Y", "VSS"), ("I", "VDD", "Y", "VDD"))
    _gate_contact(cell, (2, 3), 2 * CPP + CPP // 2)
    _gate_contact(cell, (1,), CPP + CPP // 2)
    inner, riser, cross = CPP // 2, 2 * CPP + CPP // 2, 81
    _arm(cell, P_DRAIN_Y, inner - HALF, CPP + HALF + END, (CPP,))
    _arm(cell, cross, inner - HALF, riser + HALF, (CPP,))
    _bar(cell, inner, cross - HALF, P_DRAIN_Y + HALF)
    _bar(cell, riser, cross - HALF, MIDDLE + HALF + END)
    _bar(cell, CPP + CPP // 2, cross + HALF + 25, PIN_BAR[1])
    _pin(cell, "A", False, CPP + CPP // 2, cross + HALF + 25, PIN_BAR[1])
    _output(cell, "Y", (3,), (3,))
    return cell


def _tie(high: bool) -> Cell:
    """Constant cell: a diode-connected transistor opens the one that ties the output to a rail."""
    cell = Cell("TIEHIx1" if high else "TIELOx1", 3)
    _frame(cell)
    _cut(cell, (0, 2))
    _diffusion(cell, 1, 1, ("VSS", "N"), ("VDD", "P"))
    gate, right = CPP + CPP // 2, 2 * CPP + CPP // 2
    _gate_contact(cell, (1,), gate)
    diode, tied = (N_DRAIN_Y, P_DRAIN_Y) if high else (P_DRAIN_Y, N_DRAIN_Y)
    _arm(cell, diode, gate - HALF, 2 * CPP + HALF + END, (2 * CPP,))
    _arm(cell, tied, 2 * CPP - HALF - END, right + HALF, (2 * CPP,))
    if high:
        _bar(cell, gate, diode - HALF, MIDDLE + HALF + END)
        span = (PIN_BAR[0] + 36, P_DRAIN_Y + HALF)
    else:
        _bar(cell, gate, MIDDLE - HALF - END, diode + HALF)
        span = (N_DRAIN_Y - HALF, PIN_BAR[1] - 36)
    _bar(cell, right, *span)
    _pin(cell, "H" if high else "L", True, right, *span)
    return cell


def _filler(columns: int) -> Cell:
    cell = Cell(f"FILLx{columns}", columns)
    _frame(cell)
    _cut(cell, range(columns))
    return cell


def _tap() -> Cell:
    """Well and substrate tie: one 16 nm piece of diffusion between two gates on either side."""
    cell = Cell("TAPx1", 2)
    _frame(cell)
    cell.boxes["NSELECT"], cell.boxes["PSELECT"] = cell.boxes["PSELECT"], cell.boxes["NSELECT"]
    _cut(cell, range(2))
    for (bottom, top), rail in ((N_ACTIVE, 0), (P_ACTIVE, ROW_HEIGHT)):
        cell.add("ACTIVE", (CPP - 8, bottom, CPP + 8, top))
        cell.add("SDT", (CPP - 12, bottom, CPP + 12, top))
        cell.add("LISD", (CPP - 12, min(bottom, rail), CPP + 12, max(top, rail)))
        _v0(cell, CPP, rail)
    return cell


def _compose(
    name: str, parts: Sequence[tuple[str, Cell]], links: Sequence[tuple[int, Sequence[tuple[int, str]]]]
) -> Cell:
    """Put cells side by side and join pins with M2 inside the new cell.

    Args:
        name: Name of the new cell.
        parts: Prefix of the remaining pins' names, and cell, from left to right.
        links: M2 track (nm) and the pins (part, pin) that it joins; those pins disappear, unless they are outputs.

    Returns:
        The cell, still one level deep.
    """
    cell = Cell(name, sum(part.columns for _, part in parts))
    _frame(cell)
    offsets: list[int] = []
    x = 0
    for _, part in parts:
        offsets.append(x)
        for layer, boxes in part.boxes.items():
            for left, bottom, right, top in boxes:
                box = (left + x, bottom, right + x, top)
                if right - left < part.width and layer != "GATE":
                    cell.add(layer, box)
        cell.transistors = tuple(a + b for a, b in zip(cell.transistors, part.transistors))  # type: ignore[assignment]
        x += part.width
    used: set[tuple[int, str]] = set()
    for track, pins in links:
        centres = [offsets[index] + parts[index][1].pins[pin].x for index, pin in pins]
        cell.add("M2", (min(centres) - HALF - END, track - HALF, max(centres) + HALF + END, track + HALF))
        for centre in centres:
            cell.add("V1", (centre - HALF, track - HALF, centre + HALF, track + HALF))
        used |= {(index, pin) for index, pin in pins if not parts[index][1].pins[pin].output}
    blocked = [(box[0], box[2], (box[1] + box[3]) // 2) for box in cell.boxes["M2"]]
    for index, (prefix, part) in enumerate(parts):
        for pin in part.pins.values():
            centre = offsets[index] + pin.x
            if (index, pin.name) in used:
                continue
            tracks = tuple(
                y
                for y in pin.tracks
                if not any(left - 40 < centre < right + 40 and y == track for left, right, track in blocked)
            )
            label = prefix + pin.name
            cell.pins[label] = Pin(label, pin.output, centre, tracks)
            cell.labels.append((label, centre, MIDDLE))
    return cell


@cache
def cell_library() -> dict[str, Cell]:
    """Return the library by cell name. Treat the cells as read-only."""
    inverter = _logic("INVx1", ("A",), ("VSS", "Y"), ("VDD", "Y"))
    nand2 = _logic("NAND2x1", ("A", "B"), ("VSS", "-", "Y"), ("VDD", "Y", "VDD"))
    nor2 = _logic("NOR2x1", ("A", "B"), ("VSS", "Y", "VSS"), ("VDD", "-", "Y"))
    cells = (
        inverter,
        _logic("INVx2", ("A", "A"), ("VSS", "Y", "VSS"), ("VDD", "Y", "VDD")),
        _buffer(),
        nand2,
        nor2,
        _logic("NAND3x1", ("A", "B", "C"), ("VSS", "-", "-", "Y"), ("VDD", "Y", "VDD", "Y")),
        _logic("NOR3x1", ("A", "B", "C"), ("VSS", "Y", "VSS", "Y"), ("VDD", "-", "-", "Y")),
        _compose("AND2x1", (("", nand2), ("Z", inverter)), ((117, ((0, "Y"), (1, "A"))),)),
        _compose("OR2x1", (("", nor2), ("Z", inverter)), ((153, ((0, "Y"), (1, "A"))),)),
        _compose(
            "SRLATCHx1",
            (("S", nand2), ("R", nand2)),
            ((117, ((0, "Y"), (1, "A"))), (153, ((0, "B"), (1, "Y")))),
        ),
        _compose(
            "DLATCHx1",
            (("D", nand2), ("Q", nand2), ("N", nand2), ("E", nand2)),
            (
                (81, ((0, "Y"), (1, "A"), (3, "A"))),
                (117, ((1, "Y"), (2, "A"))),
                (153, ((1, "B"), (2, "Y"))),
                (189, ((2, "B"), (3, "Y"))),
            ),
        ),
        _tie(True),
        _tie(False),
        _filler(1),
        _filler(2),
        _tap(),
    )
    return {cell.name: cell for cell in cells}


CELLS = tuple(cell_library())
"""Names of the library's cells."""


def get_cell(name: str) -> Cell:
    """Return a cell by name.

    Args:
        name: A name of the library, or one with the suffix ``_w`` and a number: the same cell with the bar of its
            output that many nanometres wider on the outside.

    Returns:
        The cell; treat it as read-only.
    """
    library = cell_library()
    return library[name] if name in library else _widened(name)


@cache
def _widened(name: str) -> Cell:
    base, _, amount = name.rpartition("_w")
    source = cell_library()[base]
    cell = Cell(name, source.columns, {layer: list(boxes) for layer, boxes in source.boxes.items()}, source.pins)
    cell.labels, cell.transistors = source.labels, source.transistors
    x = source.pins["Y"].x
    cell.add("M1", (x, N_DRAIN_Y - HALF, x + HALF + int(amount), P_DRAIN_Y + HALF))
    return cell
