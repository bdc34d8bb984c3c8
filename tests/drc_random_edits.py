"""Random edits for the tests of the incremental check: add, move, resize, delete, in top and master cells."""

from __future__ import annotations

from dataclasses import dataclass

import klayout.db as kdb
import numpy as np

from edagym.verifiers.drc import DRCLayout, RuleTable
from edagym.verifiers.drc.incremental import ShapeChange
from edagym.verifiers.drc.markers import Box

REGIONS = kdb.Shapes.SPolygons | kdb.Shapes.SBoxes | kdb.Shapes.SPaths
STEPS_NM = (-40.0, -18.0, -9.0, -4.5, -1.0, 0.0, 1.0, 5.0, 9.0, 18.0, 27.0, 54.0)
SIZES_NM = (1.0, 5.0, 7.0, 18.0, 20.0, 24.0, 27.0, 36.0, 54.0, 96.0, 200.0, 480.0, 1500.0)


@dataclass
class RandomEditor:
    """Edits a layout in place.

    Attributes:
        layout: The layout.
        table: Names the layers.
        rng: Source of every choice.
        layers: Layers to edit.
        slanted: Whether to add triangles too.
        masters: Whether to edit masters too.
    """

    layout: DRCLayout
    table: RuleTable
    rng: np.random.Generator
    layers: tuple[str, ...]
    slanted: bool = False
    masters: bool = True

    def edit(self) -> tuple[list[Box], str, str, ShapeChange] | None:
        """Make one edit.

        Returns (dirty boxes in the top cell, layer, description, shapes), or None if it came to nothing.
        """
        layout = self.layout.layout
        masters = [layout.cell(i) for i in self.layout.top.each_child_cell()]
        cell = self._choice(masters) if masters and self.masters and self.rng.random() < 0.25 else self.layout.top
        name = str(self._choice(self.layers))
        entry = self.table.layers[name]
        shapes = cell.shapes(layout.layer(entry.layer, entry.datatype))
        there = list(shapes.each(REGIONS))
        kind = str(self._choice(("add", "add", "polygon", "move", "resize", "delete")))
        if kind in ("add", "polygon") or not there:
            new = self._new_shape(cell, there, kind)
            if new is None:
                return None
            shapes.insert(new)
            removed, added = [], [new]
        else:
            shape = self._choice(there)
            removed, added = [shape.polygon.dup()], []
            if kind == "delete":
                shapes.erase(shape)
            else:
                new = self._changed(shape, kind)
                if new is None:
                    return None
                shapes.replace(shape, new)
                added.append(new)
        changed = [p.bbox() for p in removed + added]
        placements = self._placements(cell)
        boxes = [t * b for t in placements for b in changed]
        shapes_of = ([p.transformed(t) for t in placements for p in some] for some in (removed, added))
        change = ShapeChange(name, *map(tuple, shapes_of))
        text = f"{kind} {name} in {cell.name}: {' to '.join(map(str, changed))}"
        return [(b.left, b.bottom, b.right, b.top) for b in boxes], name, text, change

    def _choice(self, options):
        return options[int(self.rng.integers(len(options)))]

    def _dbu(self, nm: float) -> int:
        return round(nm * 0.001 / self.layout.dbu)

    def _size(self) -> int:
        return max(1, self._dbu(self._choice(SIZES_NM)))

    def _step(self) -> int:
        return self._dbu(self._choice(STEPS_NM))

    def _placements(self, cell: kdb.Cell) -> list[kdb.ICplxTrans]:
        if cell.cell_index() == self.layout.top.cell_index():
            return [kdb.ICplxTrans()]
        found = []
        for inst in self.layout.top.each_inst():
            if inst.cell_index == cell.cell_index():
                found += list(inst.cell_inst.each_cplx_trans())
        return found

    def _new_shape(self, cell: kdb.Cell, there: list[kdb.Shape], kind: str) -> kdb.Polygon | None:
        area = next((b for b in (cell.bbox(), self.layout.top.bbox()) if not b.empty()), kdb.Box(0, 0, 2000, 2000))
        if there and self.rng.random() < 0.7:
            near = self._choice(there).bbox()
            x = self._choice((near.left, near.right)) + self._step()
            y = self._choice((near.bottom, near.top)) + self._step()
        else:
            x = int(self.rng.integers(area.left, area.right + 1))
            y = int(self.rng.integers(area.bottom, area.top + 1))
        w, h = self._size(), self._size()
        points = [(0, 0), (0, h), (w, h), (w, 0)]
        if kind == "polygon":
            points = [(0, 0), (0, h), (w // 2, h), (w // 2, h // 2), (w, h // 2), (w, 0)]
            if self.slanted and self.rng.random() < 0.4:
                points = [(0, 0), (w // 3, h), (w, h // 2)]
        polygon = kdb.Polygon([kdb.Point(x + dx, y + dy) for dx, dy in points])
        return polygon if polygon.area() > 0 else None

    def _changed(self, shape: kdb.Shape, kind: str) -> kdb.Polygon | None:
        if kind == "move":
            return shape.polygon.moved(self._step(), self._step())
        box = shape.bbox()
        sides = [box.left, box.bottom, box.right, box.top]
        sides[int(self.rng.integers(4))] += int(self._choice((-1, 1))) * self._size()
        if sides[0] >= sides[2] or sides[1] >= sides[3]:
            return None
        return kdb.Polygon(kdb.Box(*sides))


def crop(layout: DRCLayout, box_um: tuple[float, float, float, float]) -> DRCLayout:
    """Return a part of a layout: cells that overlap the box, whole, and shapes of the top cell cut to it."""
    part = layout.copy()
    x1, y1, x2, y2 = (round(v / part.dbu) for v in box_um)
    window = kdb.Box(x1, y1, x2, y2)
    for inst in [i for i in part.top.each_inst() if not i.bbox().overlaps(window)]:
        inst.delete()
    for index in part.layout.layer_indexes():
        inside = kdb.Region(part.top.shapes(index))
        inside.merged_semantics = False
        inside &= kdb.Region(window)
        part.top.shapes(index).clear()
        part.top.shapes(index).insert(inside)
    kept = {part.top.cell_index(), *part.top.called_cells()}
    for index in [c.cell_index() for c in part.layout.each_cell() if c.cell_index() not in kept]:
        part.layout.delete_cell(index)
    return part
