"""`DRCLayout`: a hierarchical layout that pickles, with the checks that untrusted files need."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import klayout.db as kdb

from edagym.errors import TaskError

COORD_LIMIT = 2**29
MAX_FLAT_SHAPES = 20_000_000
MAX_BYTES = 2_000_000_000
# Checks take time that grows with the third power of the number of shapes on one spot.
MAX_STACK = 100
_SAMPLES = 2000


class DRCLayout:
    """A KLayout layout with one top cell, held lazily; pickles and copies as GDSII bytes.

    Args:
        layout: The KLayout layout. It is not copied.
        source: Name for error messages.

    Raises:
        TaskError: As `from_bytes`, except for unreadable data.
    """

    def __init__(self, layout: kdb.Layout, source: str = "layout") -> None:
        self.source = source
        self._data: bytes | None = None
        self._layout: kdb.Layout | None = layout
        self._top: kdb.Cell | None = validate(layout, source)

    @classmethod
    def from_gds(cls, path: str | Path) -> DRCLayout:
        """Read a layout file (GDSII, OASIS or whatever KLayout reads).

        Raises:
            TaskError: If the file can't be read, has more than 2 GB or is refused; see `from_bytes`.
        """
        try:
            size = Path(path).stat().st_size
            if size > MAX_BYTES:
                raise TaskError(f"{path}: file too large", field="size", value=size, allowed=f"up to {MAX_BYTES} bytes")
            data = Path(path).read_bytes()
        except OSError as e:
            raise TaskError(f"{path}: cannot be read ({e.strerror})") from None
        return cls.from_bytes(data, str(path))

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "GDS data") -> DRCLayout:
        """Read a layout from a stream.

        Args:
            data: The stream.
            source: Name for error messages.

        Raises:
            TaskError: If the stream is truncated or malformed, has a database unit outside 1e-6..1 um, no or several
                top cells, cells that contain themselves, coordinates beyond 2^29 database units, more than 20 million
                flat shapes, or more than 100 shapes of a layer on one spot. The message names the source and the fault.
        """
        return cls(_read(data, source), source)

    @property
    def layout(self) -> kdb.Layout:
        """The KLayout layout; edit it in place."""
        if self._layout is None:
            assert self._data is not None
            self._layout, self._data = _read(self._data, self.source), None
            self._top = self._layout.top_cell()
        return self._layout

    @property
    def top(self) -> kdb.Cell:
        """The top cell."""
        self.layout  # noqa: B018  # makes it
        assert self._top is not None
        return self._top

    @property
    def dbu(self) -> float:
        """Database unit in micrometres."""
        return float(self.layout.dbu)

    def layer_index(self, layer: int, datatype: int) -> int | None:
        """Return KLayout's index of a layer, or None if the layout has no such layer."""
        index = self.layout.find_layer(layer, datatype)
        return None if index is None else int(index)

    def copy(self) -> DRCLayout:
        """Return an independent copy."""
        other = DRCLayout.__new__(DRCLayout)
        other.source, other._data = self.source, None
        other._layout = self.layout.dup()
        other._top = other._layout.cell(self.top.cell_index())
        return other

    def to_bytes(self) -> bytes:
        """Return the GDSII stream, without timestamps: equal layouts have equal bytes."""
        if self._layout is None:
            assert self._data is not None
            return self._data
        options = kdb.SaveLayoutOptions()
        options.format = "GDS2"
        options.gds2_write_timestamps = False
        options.gds2_max_vertex_count = 8000
        return bytes(self._layout.write_bytes(options))

    def write_gds(self, path: str | Path) -> None:
        """Write a GDSII file (`to_bytes`)."""
        Path(path).write_bytes(self.to_bytes())

    def flat_shapes(self) -> int:
        """Return the number of polygons, boxes and paths in the flattened layout."""
        return flat_shapes(self.layout, self.top)

    def __getstate__(self) -> tuple[Any, ...]:
        return (self.source, self.to_bytes())

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.source, self._data = state
        self._layout = self._top = None


def _read(data: bytes, source: str) -> kdb.Layout:
    layout = kdb.Layout()
    try:
        layout.read_bytes(data, kdb.LoadLayoutOptions())
    except (RuntimeError, MemoryError) as e:
        if "topological_sort" in str(e):  # all that KLayout says about a cell below itself
            raise TaskError(f"{source}: cells contain themselves", field="cells") from None
        raise TaskError(f"{source}: not a readable layout file ({' '.join(str(e).split())})") from None
    return layout


def validate(layout: kdb.Layout, source: str) -> kdb.Cell:
    """Check what untrusted layouts get wrong and return the top cell.

    Raises:
        TaskError: See `DRCLayout.from_bytes`.
    """
    if not (math.isfinite(layout.dbu) and 1e-6 <= layout.dbu <= 1.0):
        raise TaskError(f"{source}: unusable database unit", field="dbu", value=layout.dbu, allowed="1e-6..1 um")
    tops = layout.top_cells()
    if _recursive(layout):
        raise TaskError(f"{source}: cells contain themselves", field="cells")
    if len(tops) != 1:
        names = [c.name for c in tops[:10]]
        raise TaskError(f"{source}: need exactly one top cell, found {len(tops)}", field="top", value=names)
    for index in layout.each_cell_bottom_up():
        _check_coordinates(layout, layout.cell(index), source)
    n = flat_shapes(layout, tops[0])
    if n > MAX_FLAT_SHAPES:
        raise TaskError(f"{source}: too many shapes", field="shapes", value=n, allowed=MAX_FLAT_SHAPES)
    for cell in layout.each_cell():
        _check_stacks(layout, cell, source)
    return tops[0]


def _check_coordinates(layout: kdb.Layout, cell: kdb.Cell, source: str) -> None:
    """Refuse a cell that reaches too far; the cells that it places have been looked at."""

    def refuse(value: object) -> None:
        raise TaskError(
            f"{source}: coordinates too large in cell {cell.name}",
            field="bbox",
            value=str(value),
            allowed=f"up to {COORD_LIMIT} database units",
        )

    for inst in cell.each_inst():
        # Bounding boxes wrap around where coordinates overflow: nothing may come near that.
        array = inst.cell_inst
        reach = [abs(v) for v in (array.trans.disp.x, array.trans.disp.y)]
        if array.is_regular_array():
            reach = [
                reach[0] + abs(array.a.x) * array.na + abs(array.b.x) * array.nb,
                reach[1] + abs(array.a.y) * array.na + abs(array.b.y) * array.nb,
            ]
        size = _size(layout.cell(array.cell_index).bbox())
        if inst.is_complex():
            size *= max(1.0, inst.cplx_trans.mag)
        if max(reach) > 2 * COORD_LIMIT or size > 2 * COORD_LIMIT:
            refuse(inst)
    if _size(cell.bbox()) > COORD_LIMIT:
        refuse(cell.bbox())


def _size(box: kdb.Box) -> float:
    return 0.0 if box.empty() else max(map(abs, (box.left, box.bottom, box.right, box.top)))


def _check_stacks(layout: kdb.Layout, cell: kdb.Cell, source: str) -> None:
    """Refuse shapes or placements piled up on one spot. In large cells a sample of the shapes is looked at."""

    def refuse(what: str) -> None:
        raise TaskError(
            f"{source}: more than {MAX_STACK} {what} on one spot in cell {cell.name}", field="shapes", allowed=MAX_STACK
        )

    count = cell.child_instances()
    for inst in islice(cell.each_inst(), 0, None, max(1, count // _SAMPLES)) if count else ():
        center = inst.bbox().center()
        touching = cell.each_touching_inst(kdb.Box(center.x, center.y, center.x, center.y))
        if count > MAX_STACK and _more_than(touching, MAX_STACK):
            refuse("placements")
    for inst in cell.each_inst():
        if inst.is_regular_array() and _copies_on_a_spot(layout, inst) > MAX_STACK:
            refuse("placements")
    for index in layout.layer_indexes():
        shapes = cell.shapes(index)
        n = shapes.size()
        if n <= MAX_STACK:
            continue
        step = max(1, n // _SAMPLES)
        for shape in islice(shapes.each(kdb.Shapes.SRegions), 0, None, step):
            if not shape.is_null() and _more_than(shapes.each_touching(kdb.Shapes.SRegions, _middle(shape)), MAX_STACK):
                refuse("shapes")


def _copies_on_a_spot(layout: kdb.Layout, inst: kdb.Instance) -> int:
    """Return how many placements of an array may overlap."""
    box = inst.cell_inst.bbox(layout)
    found = 1
    for step, n in ((inst.a, inst.na), (inst.b, inst.nb)):
        width = box.width() - abs(inst.a.x) * (inst.na - 1) - abs(inst.b.x) * (inst.nb - 1)
        height = box.height() - abs(inst.a.y) * (inst.na - 1) - abs(inst.b.y) * (inst.nb - 1)
        near = [1 + size // abs(d) for size, d in ((width, step.x), (height, step.y)) if d]
        found *= min(n, *near) if near else n
    return found


def _middle(shape: kdb.Shape) -> kdb.Box:
    center = shape.bbox().center()
    return kdb.Box(center.x, center.y, center.x, center.y)


def _more_than(items: Iterable[object], n: int) -> bool:
    return next(islice(items, n, None), None) is not None


def _recursive(layout: kdb.Layout) -> bool:
    children = {c.cell_index(): list(c.each_child_cell()) for c in layout.each_cell()}
    state: dict[int, int] = {}
    for root in children:
        stack = [(root, iter(children[root]))] if root not in state else []
        if stack:
            state[root] = 1
        while stack:
            node, rest = stack[-1]
            child = next(rest, None)
            if child is None:
                state[node] = 2
                stack.pop()
            elif state.get(child) == 1:
                return True
            elif child not in state:
                state[child] = 1
                stack.append((child, iter(children[child])))
    return False


def flat_shapes(layout: kdb.Layout, top: kdb.Cell, layers: Sequence[int] | None = None) -> int:
    """Return the number of shapes below a cell, every placement counted, on all layers or on the given ones."""
    if layers is None:
        layers = list(layout.layer_indexes())
    totals: dict[int, int] = {}
    for index in layout.each_cell_bottom_up():
        cell = layout.cell(index)
        n = sum(cell.shapes(i).size() for i in layers)
        for inst in cell.each_inst():
            n += totals[inst.cell_index] * (inst.na * inst.nb if inst.is_regular_array() else 1)
        totals[index] = n
    return totals[top.cell_index()]
