"""Hand-drawn FinFET cells and small designs for the tests of connectivity, guards and edits; database unit 0.25 nm.

Only what conducts and what forms transistors matters here: the drawings are not free of rule violations.
"""

from __future__ import annotations

import klayout.db as kdb

from edagym.verifiers.drc import DRCLayout, load_table

DBU = 0.00025
PITCH = 216
HEIGHT = 1080
GATE_X = [68 + PITCH * i for i in range(4)]
GATE_WIDTH = 80
N_ROW, P_ROW = (108, 432), (648, 972)
PIN_Y = (504, 576)
TABLE = load_table()


def layer(layout: kdb.Layout, name: str) -> int:
    entry = TABLE.layers[name]
    return layout.layer(entry.layer, entry.datatype)


def box(layout: kdb.Layout, cell: kdb.Cell, name: str, *coords: int) -> None:
    cell.shapes(layer(layout, name)).insert(kdb.Box(*coords))


def label(layout: kdb.Layout, cell: kdb.Cell, name: str, text: str, x: int, y: int) -> None:
    cell.shapes(layout.layer(TABLE.layers[name].layer, 251)).insert(kdb.Text(text, x, y))


def contact_x(column: int) -> int:
    """Middle of the source/drain column left of gate `column` + 1."""
    return GATE_X[column] + GATE_WIDTH + (PITCH - GATE_WIDTH) // 2


def draw_gates(layout: kdb.Layout, cell: kdb.Cell, inputs: list[str]) -> int:
    """Wells, implants, active areas, gates and input pins; returns the cell's width."""
    width = PITCH * (len(inputs) + 2)
    box(layout, cell, "WELL", 0, 540, width, HEIGHT)
    box(layout, cell, "NSELECT", 0, 0, width, 540)
    box(layout, cell, "PSELECT", 0, 540, width, HEIGHT)
    right = GATE_X[0] + PITCH * (len(inputs) + 1) - 36
    for low, high in (N_ROW, P_ROW):
        box(layout, cell, "ACTIVE", 184, low, right, high)
    for i in range(len(inputs) + 2):
        x = 68 + PITCH * i
        box(layout, cell, "GATE", x, -20, x + GATE_WIDTH, 1102)
    for low, high in ((-88, 88), (992, 1168)):
        box(layout, cell, "GCUT", 0, low, width, high)
    for i, name in enumerate(inputs):
        x = 68 + PITCH * (i + 1) + GATE_WIDTH // 2
        box(layout, cell, "LIG", x - 44, 496, x + 44, 584)
        box(layout, cell, "V0", x - 36, *PIN_Y[:1], x + 36, PIN_Y[1])
        box(layout, cell, "M1", x - 36, 440, x + 36, 640)
        label(layout, cell, "M1", name, x, 540)
    for name, low in (("VSS", -36), ("VDD", 1044)):
        box(layout, cell, "M1", 0, low, width, low + 72)
        label(layout, cell, "M1", name, width // 2, low + 36)
    return width


def draw_contact(layout: kdb.Layout, cell: kdb.Cell, column: int, row: tuple[int, int], rail: str = "") -> None:
    """Trench contact and local wire on one source/drain area, up or down to a rail if one is named."""
    x = contact_x(column)
    low, high = row
    box(layout, cell, "SDT", x - 48, low, x + 48, high)
    low, high = (0, high) if rail == "VSS" else (low, HEIGHT) if rail == "VDD" else (low, high)
    box(layout, cell, "LISD", x - 48, low, x + 48, high)
    if rail:
        y = 0 if rail == "VSS" else HEIGHT
        box(layout, cell, "V0", x - 36, y - 36, x + 36, y + 36)


def draw_inverter(layout: kdb.Layout, name: str = "INV") -> kdb.Cell:
    cell = layout.create_cell(name)
    draw_gates(layout, cell, ["A"])
    for row, rail in ((N_ROW, "VSS"), (P_ROW, "VDD")):
        draw_contact(layout, cell, 0, row, rail)
        draw_contact(layout, cell, 1, row)
    x = contact_x(1)
    for y in (144, 936):
        box(layout, cell, "V0", x - 36, y - 36, x + 36, y + 36)
    box(layout, cell, "M1", x - 36, 108, x + 36, 972)
    label(layout, cell, "M1", "Y", x, 720)
    return cell


def draw_nand(layout: kdb.Layout, name: str = "NAND") -> kdb.Cell:
    """Two n-type transistors in series, two p-type in parallel."""
    cell = layout.create_cell(name)
    draw_gates(layout, cell, ["A", "B"])
    draw_contact(layout, cell, 0, N_ROW, "VSS")
    draw_contact(layout, cell, 2, N_ROW)
    draw_contact(layout, cell, 0, P_ROW, "VDD")
    draw_contact(layout, cell, 1, P_ROW)
    draw_contact(layout, cell, 2, P_ROW, "VDD")
    middle, right = contact_x(1), contact_x(2)
    box(layout, cell, "V0", middle - 36, 684, middle + 36, 756)
    box(layout, cell, "V0", right - 36, 108, right + 36, 180)
    outline = [
        (middle - 36, 684),
        (middle - 36, 756),
        (right + 36, 756),
        (right + 36, 108),
        (right - 36, 108),
        (right - 36, 684),
    ]
    cell.shapes(layer(layout, "M1")).insert(kdb.Polygon([kdb.Point(*p) for p in outline]))
    label(layout, cell, "M1", "Y", right, 400)
    return cell


def draw_via(layout: kdb.Layout, name: str, lower: str, cut: str, upper: str) -> kdb.Cell:
    cell = layout.create_cell(name)
    for which in (lower, cut, upper):
        box(layout, cell, which, -36, -36, 36, 36)
    return cell


def inverter(labels: bool = True) -> DRCLayout:
    """One inverter as the top cell: M1 pins A, Y, VDD, VSS; one n-type and one p-type transistor."""
    layout = kdb.Layout()
    layout.dbu = DBU
    draw_inverter(layout)
    return finish(layout, labels)


def nand(labels: bool = True) -> DRCLayout:
    """One NAND as the top cell."""
    layout = kdb.Layout()
    layout.dbu = DBU
    draw_nand(layout)
    return finish(layout, labels)


def design(labels: bool = True) -> DRCLayout:
    """Two inverters and a NAND in a row under a top cell: both inverters drive the NAND by M2 wires.

    The first inverter's output joins the NAND's A at y = 720 by M2; the second one's joins B over M3.
    """
    layout = kdb.Layout()
    layout.dbu = DBU
    inv, two_in = draw_inverter(layout), draw_nand(layout)
    v12 = draw_via(layout, "VIA12", "M1", "V1", "M2")
    v23 = draw_via(layout, "VIA23", "M2", "V2", "M3")
    top = layout.create_cell("TOP")
    for x, cell in ((0, inv), (648, inv), (1296, two_in)):
        top.insert(kdb.CellInstArray(cell.cell_index(), kdb.Trans(kdb.Vector(x, 0))))
    y1, y2 = contact_x(1), 648 + contact_x(1)
    a, b = 1296 + 68 + PITCH + 40, 1296 + 68 + 2 * PITCH + 40

    def place(cell: kdb.Cell, x: int, y: int) -> None:
        top.insert(kdb.CellInstArray(cell.cell_index(), kdb.Trans(kdb.Vector(x, y))))

    place(v12, y1, 612)
    place(v12, a, 612)
    box(layout, top, "M2", y1 - 36, 576, a + 36, 648)
    place(v12, y2, 216)
    place(v23, y2 + 144, 216)
    box(layout, top, "M2", y2 - 36, 180, y2 + 180, 252)
    corners = [kdb.Point(y2 + 144, 216), kdb.Point(y2 + 144, 470), kdb.Point(b, 470)]
    top.shapes(layer(layout, "M3")).insert(kdb.Path(corners, 72, 36, 36))
    place(v23, b, 470)
    place(v12, b, 470)
    for text, x, y in (("in1", 324, 540), ("in2", 972, 540), ("out", 1296 + contact_x(2), 300)):
        label(layout, top, "M1", text, x, y)
    label(layout, top, "M2", "mid", 1000, 612)
    return finish(layout, labels)


def finish(layout: kdb.Layout, labels: bool = True) -> DRCLayout:
    if not labels:
        for cell in layout.each_cell():
            for index in layout.layer_indexes():
                for shape in list(cell.shapes(index).each(kdb.Shapes.STexts)):
                    cell.shapes(index).erase(shape)
    return DRCLayout(layout, "drawing")
