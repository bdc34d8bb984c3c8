"""What only the whole layout tells about the operands of booleans.

KLayout takes short cuts that change the number of polygons. It returns the first operand of a difference as it is,
unmerged, if there is nothing to subtract or, for polygons, if the bounding boxes of the operands don't overlap;
otherwise it returns it merged, also where nothing is subtracted. And it clips the shapes of one operand of an
intersection one by one if the other operand is a single rectangle; otherwise it merges them. The sign-off deck counts
accordingly: two overlapping shapes are two violations in one case and one in the other. What a window shows must
therefore be read in the light of the whole layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import klayout.db as kdb

from edagym.verifiers.drc.graph import Graph
from edagym.verifiers.drc.layout import DRCLayout
from edagym.verifiers.drc.markers import Box

_SMALL_SHAPES = 3000


def is_small(layout: DRCLayout) -> bool:
    """Return whether a layout is one cell of at most 3000 shapes, so that whole-layout answers cost nothing."""
    if layout.layout.cells() != 1:
        return False
    return sum(layout.top.shapes(i).size() for i in layout.layout.layer_indexes()) <= _SMALL_SHAPES


@dataclass(frozen=True, slots=True)
class Extent:
    """A layer's bounding box in database units, and whether the layer is just that rectangle."""

    box: Box
    alone: bool


def layer_extents(layout: DRCLayout, graph: Graph, names: Iterable[str] | None = None) -> dict[str, Extent | None]:
    """Return the extents of layers (default: all of the table), None for empty ones."""
    extents: dict[str, Extent | None] = {}
    for name in graph.table.layers if names is None else names:
        entry = graph.table.layers[name]
        index = layout.layer_index(entry.layer, entry.datatype)
        box = None if index is None else layout.top.bbox_per_layer(index)
        if index is None or box is None or box.empty():
            extents[name] = None
        else:
            extents[name] = Extent((box.left, box.bottom, box.right, box.top), _alone(layout.top, index))
    return extents


def _alone(top: kdb.Cell, layer: int) -> bool:
    it = top.begin_shapes_rec(layer)
    it.shape_flags = kdb.Shapes.SRegions
    first = None if it.at_end() else it.shape().polygon
    if first is None:
        return False
    it.next()
    return bool(it.at_end() and first.is_box())


class Slants:
    """Which layers may have slanted edges. Layers are looked at when first asked for; an answer of yes stays.

    All states of one edited layout share one object, so that a layer that was slanted in any of them counts as slanted.
    """

    def __init__(self) -> None:
        self._layers: dict[str, bool] = {}
        self._turned: bool | None = None

    def has(self, layout: DRCLayout, graph: Graph, name: str) -> bool:
        """Return whether a layer may have slanted edges."""
        if name not in self._layers:
            entry = graph.table.layers[name]
            index = layout.layer_index(entry.layer, entry.datatype)
            if self._turned is None:  # edits move placements, but don't turn them
                self._turned = _turned(layout)
            self._layers[name] = index is not None and (self._turned or _slanted(layout, index))
        return self._layers[name]

    def note(self, name: str, shapes: kdb.Region | None) -> None:
        """Note what an edit may have added to a layer."""
        if shapes is not None and not shapes.non_rectilinear().is_empty():
            self._layers[name] = True


def _slanted(layout: DRCLayout, layer: int) -> bool:
    for cell in layout.layout.each_cell():
        if not cell.shapes(layer).is_empty():
            region = kdb.Region(cell.shapes(layer))
            region.merged_semantics = False
            if not region.non_rectilinear().is_empty():
                return True
    return False


def _turned(layout: DRCLayout) -> bool:
    """Return whether any cell is placed at an odd angle."""
    for cell in layout.layout.each_cell():
        if any(i.is_complex() and i.cplx_trans.angle % 90.0 for i in cell.each_inst()):
            return True
    return False


class Presence:
    """Answers for one state of a layout.

    Args:
        graph: The compiled rules.
        extents: See `layer_extents`.
        small: Whether the layout is small, see `is_small`.
    """

    def __init__(self, graph: Graph, extents: Mapping[str, Extent | None], small: bool) -> None:
        self._graph = graph
        self._extents = extents
        self._answers: dict[int, bool | None] = {}
        self.small = small

    def acts(self, n: int) -> bool | None:
        """Return whether boolean node `n` takes no short cut; None: only an evaluation of the whole layout can tell.

        Layers, and layers joined or grown, are known from their bounding boxes. For other operands a small layout is
        evaluated; in a large one no short cuts are taken.
        """
        if n not in self._answers:
            self._answers[n] = self._answer(n)
        return self._answers[n]

    def _answer(self, n: int) -> bool | None:
        node = self._graph.nodes[n]
        a, b = node.args
        unknown = None if self.small else True
        if node.op == "and":
            if node.kind == "edges":
                return True
            if any(self._graph.nodes[k].op == "layer" and self._alone(k) for k in (a, b)):
                return False
            return True if all(self._graph.nodes[k].op == "layer" for k in (a, b)) else unknown
        if not self._plain(b):
            return unknown
        other = self._hull(b)
        if other is None:
            return False
        if node.op == "not_interacting" or node.kind == "edges":
            return True
        if not self._plain(a):
            return unknown
        own = self._hull(a)
        if own is None:
            return False
        return own[0] < other[2] and other[0] < own[2] and own[1] < other[3] and other[1] < own[3]

    def _alone(self, n: int) -> bool:
        extent = self._extents[self._graph.nodes[n].params[0]]
        return extent is not None and extent.alone

    def _plain(self, n: int) -> bool:
        node = self._graph.nodes[n]
        if node.op == "sized" and min(node.params) < 0:
            return False
        return node.op == "layer" or (node.op in ("join", "sized") and all(self._plain(a) for a in node.args))

    def _hull(self, n: int) -> Box | None:
        node = self._graph.nodes[n]
        if node.op == "layer":
            extent = self._extents[node.params[0]]
            return None if extent is None else extent.box
        hulls = [h for h in (self._hull(a) for a in node.args) if h is not None]
        if not hulls:
            return None
        dx, dy = node.params if node.op == "sized" else (0, 0)
        return (
            min(h[0] for h in hulls) - dx,
            min(h[1] for h in hulls) - dy,
            max(h[2] for h in hulls) + dx,
            max(h[3] for h in hulls) + dy,
        )
