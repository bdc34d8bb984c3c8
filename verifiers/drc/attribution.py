"""Attribution of flat markers to cells, so that counts are those of a hierarchical sign-off run.

The sign-off tool reports a violation once per cell and orientation in which the cell is placed, not once per placement,
if the violation is the cell's own. A marker is a cell's own if the merged polygons of the rule's primary layer that it
touches consist of shapes of one placement only, and if every placement of the cell in that orientation shows the same
marker. All other markers count at the top, one by one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import klayout.db as kdb

from edagym.verifiers.drc.graph import compile_table
from edagym.verifiers.drc.layout import DRCLayout
from edagym.verifiers.drc.markers import Marker
from edagym.verifiers.drc.rules import RuleTable, primary_layer

Path = tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Item:
    """One reported violation.

    Attributes:
        rule: Rule id.
        cell: Name of the cell that it is reported in.
        variant: Orientation of the cell's placements, e.g. ``"m0"``; empty at the top and for cells that are placed in
            one orientation only.
        marker: The geometry in the cell's own frame, in database units.
        parent: Name of the cell in which the example placement stands; empty at the top.
        trans: The example placement as KLayout writes it, in micrometres, e.g. ``"m0 *1 7.776,12.96"``; empty at the
            top.
        placements: Number of placements that show the violation.
        where: Bounding box (x1, y1, x2, y2) of the violation in micrometres in the top cell, at the example placement.
    """

    rule: str
    cell: str
    variant: str
    marker: Marker
    parent: str
    trans: str
    placements: int
    where: tuple[float, float, float, float]

    @property
    def qualified_cell(self) -> str:
        """The cell's name with its variant, as report databases write it."""
        return f"{self.cell}:{self.variant}" if self.variant else self.cell


def attribute(
    layout: DRCLayout, table: RuleTable, markers: Iterable[Marker], *, to_cells: bool = True
) -> tuple[Item, ...]:
    """Attribute flat markers to cells.

    Args:
        layout: The layout that the markers belong to.
        table: The rules.
        markers: Flat markers, repeated ones repeatedly, in reporting order.
        to_cells: Whether to look for cells; otherwise all count at the top.

    Returns:
        The items to report, rule by rule, those of cells before those at the top.
    """
    finder = _Finder(layout, table)
    flat = list(markers)
    owners: dict[Marker, kdb.ICplxTrans | None] = {}
    groups: dict[tuple[str, int, str, Marker], list[tuple[Marker, kdb.ICplxTrans]]] = {}
    for m in dict.fromkeys(flat) if to_cells else ():
        owner = finder.owner(m)
        if owner is not None:
            cell, trans = owner
            local = m.moved(trans.inverted(), finder.unordered(m))
            groups.setdefault((m.rule, cell, _orientation(trans), local), []).append((m, trans))
    repeats: dict[Marker, int] = {}
    for m in flat:
        repeats[m] = repeats.get(m, 0) + 1
    items: list[Item] = []
    for (rule, cell, orientation, local), members in groups.items():
        if len(members) == finder.placements(cell).get(orientation, 0):
            first, trans = members[0]
            variant = orientation if len(finder.placements(cell)) > 1 else ""
            name, parent, text = finder.example(cell, trans)
            item = Item(rule, name, variant, local, parent, text, len(members), _where(first, layout.dbu))
            items += [item] * repeats[first]
            owners.update(dict.fromkeys((m for m, _ in members), trans))
    top = layout.top.name
    items += [Item(m.rule, top, "", m, "", "", 1, _where(m, layout.dbu)) for m in flat if m not in owners]
    order = {rule: i for i, rule in enumerate(table.rules)}
    return tuple(sorted(items, key=lambda i: order[i.rule]))


def _where(m: Marker, dbu: float) -> tuple[float, float, float, float]:
    x1, y1, x2, y2 = (round(v * dbu, 9) for v in m.bbox)
    return (x1, y1, x2, y2)


def _orientation(trans: kdb.ICplxTrans) -> str:
    """Return a transformation without its displacement, as KLayout names cell variants, e.g. ``"m0"``."""
    turn, magnification = str(trans.to_s()).split(" ")[:2]
    return turn if magnification == "*1" else turn + magnification


class _Finder:
    """Finds the placement whose shapes alone make up a marker's polygons."""

    def __init__(self, layout: DRCLayout, table: RuleTable) -> None:
        self._layout = layout
        self._flat = layout.top.child_cells() == 0
        self._layers: dict[str, list[int]] = {}
        outputs = compile_table(table, layout.dbu).outputs
        self._unordered = {o.rule: o.unordered for o in outputs}
        for rule in table.rules.values():
            names = dict.fromkeys(primary_layer(e) for e in rule.measures)
            entries = [table.layers[n] for n in names]
            found = (layout.layer_index(e.layer, e.datatype) for e in entries)
            self._layers[rule.id] = [i for i in found if i is not None]
        self._placements: dict[int, dict[str, int]] = {}
        self._all: dict[int, list[kdb.ICplxTrans]] = {}

    def unordered(self, m: Marker) -> bool:
        """Return whether the edges of the rule's pairs lie on one layer."""
        return self._unordered[m.rule]

    def owner(self, m: Marker) -> tuple[int, kdb.ICplxTrans] | None:
        """Return (cell index, transformation into the top cell) of the placement that owns a marker, or None."""
        if self._flat:
            return None
        for layer in self._layers[m.rule]:
            seeds = self._shapes(layer, kdb.Box(*m.bbox))
            touching = [s for s in seeds if _meet(_region(m, self._unordered[m.rule]), s[1])]
            if touching:
                return self._common(layer, touching)
        return None

    def _shapes(self, layer: int, box: kdb.Box) -> list[tuple[Path, kdb.Polygon, kdb.ICplxTrans]]:
        found = []
        it = self._layout.top.begin_shapes_rec_touching(layer, box)
        while not it.at_end():
            shape = it.shape()
            if shape.is_box() or shape.is_polygon() or shape.is_path() or shape.is_simple_polygon():
                path = tuple((e.inst().cell_index, str(e.specific_cplx_trans())) for e in it.path())
                found.append((path, shape.polygon.transformed(it.itrans()), it.itrans().dup()))
            it.next()
        return found

    def _common(
        self, layer: int, seeds: list[tuple[Path, kdb.Polygon, kdb.ICplxTrans]]
    ) -> tuple[int, kdb.ICplxTrans] | None:
        """Follow touching shapes; return the placement that all of them stand in, or None if that's the top."""
        path = seeds[0][0]
        trans: kdb.ICplxTrans | None = seeds[0][2]
        seen: set[tuple[Path, str]] = set()
        queue = deque(seeds)
        while queue:
            p, polygon, _ = queue.popleft()
            key = (p, polygon.to_s())
            if key in seen:
                continue
            seen.add(key)
            if p != path:
                common = 0
                while common < min(len(p), len(path)) and p[common] == path[common]:
                    common += 1
                path, trans = path[:common], None
            if not path:
                return None
            own = kdb.Region(polygon)
            queue.extend(s for s in self._shapes(layer, polygon.bbox()) if _meet(own, s[1]))
        if trans is None:
            trans = kdb.ICplxTrans()
            for _, text in path:
                trans = trans * kdb.ICplxTrans.from_s(text)
        return path[-1][0], trans

    def _transformations(self, cell: int) -> list[kdb.ICplxTrans]:
        """Return the transformations of all placements of a cell into the top cell."""
        if cell not in self._all:
            if cell == self._layout.top.cell_index():
                self._all[cell] = [kdb.ICplxTrans()]
            else:
                found = []
                for parent in self._layout.layout.cell(cell).each_parent_inst():
                    inst = parent.child_inst()
                    for outer in self._transformations(parent.parent_cell_index()):
                        found += [outer * t for t in inst.cell_inst.each_cplx_trans()]
                self._all[cell] = found
        return self._all[cell]

    def placements(self, cell: int) -> dict[str, int]:
        """Return the number of a cell's placements per orientation."""
        if cell not in self._placements:
            counts: dict[str, int] = {}
            for t in self._transformations(cell):
                o = _orientation(t)
                counts[o] = counts.get(o, 0) + 1
            self._placements[cell] = counts
        return self._placements[cell]

    def example(self, cell: int, trans: kdb.ICplxTrans) -> tuple[str, str, str]:
        """Return (cell name, parent name, placement text in micrometres)."""
        layout = self._layout.layout
        text = str((kdb.CplxTrans(layout.dbu) * trans * kdb.VCplxTrans(1.0 / layout.dbu)).to_s())
        return layout.cell(cell).name, self._layout.top.name, text


def _region(m: Marker, unordered: bool) -> kdb.Region:
    """Return a marker's outline on the primary layer, a little thickened; of ordered pairs that is the first edge."""
    value = m.to_klayout()
    if isinstance(value, kdb.Polygon):
        return kdb.Region(value)
    if isinstance(value, kdb.EdgePair):
        edges = [value.first, value.second] if unordered else [value.first]
    else:
        edges = [value]
    return kdb.Edges(edges).extended(1, 1, 1, 1, False)


def _meet(region: kdb.Region, polygon: kdb.Polygon) -> bool:
    """Return whether a region and a polygon share a point."""
    return not region.interacting(kdb.Region(polygon)).is_empty()
