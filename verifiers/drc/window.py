"""Windows of a layout: its conductors there, and the guard that compares them after every step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import klayout.db as kdb

from edagym.verifiers.drc.layout import DRCLayout
from edagym.verifiers.drc.netlist import WAY_OUT, Label, flat_texts, pin_layers
from edagym.verifiers.drc.stack import DERIVED, Stack, derive
from edagym.verifiers.verdict import BBox


def box_um(box: kdb.Box, dbu: float) -> BBox:
    """Return a box in um."""
    return (box.left * dbu, box.bottom * dbu, box.right * dbu, box.top * dbu)


def conductors(layout: DRCLayout, stack: Stack, window: kdb.Box) -> dict[str, kdb.Region]:
    """Return all conductors of a stack inside a window, merged, in the top cell's frame."""
    nodes, _, _ = derive({name: clip(layout, stack.gds[name], window) for name in stack.drawn}, stack)
    return {name: region.merged() for name, region in nodes.items()}


def clip(layout: DRCLayout, gds: tuple[int, int], window: kdb.Box) -> kdb.Region:
    """Return one layer inside a window, raw, in the top cell's frame."""
    index = layout.layer_index(*gds)
    if index is None:
        return kdb.Region()
    return kdb.Region(layout.top.begin_shapes_rec_touching(index, window)) & kdb.Region(window)


def changed_layers(
    golden: DRCLayout, layout: DRCLayout, window: kdb.Box, stack: Stack, layers: Iterable[str] | None
) -> dict[str, kdb.Region]:
    """Return where two layouts differ inside a window, by drawn layer of a stack (only `layers`, if given)."""
    candidates = [n for n in (*stack.drawn, *stack.marks) if layers is None or n in layers]
    differences = {n: clip(golden, stack.gds[n], window) ^ clip(layout, stack.gds[n], window) for n in candidates}
    return {n: region for n, region in differences.items() if not region.is_empty()}


def touch_devices(changed: Iterable[str], stack: Stack) -> bool:
    """Return whether any of these layers takes part in forming transistors."""
    return stack.mos is not None and not {*stack.mos.layers, *stack.marks}.isdisjoint(changed)


class LocalNets:
    """What changed conductors connect in a window: unchanged neighbours, ways out of the window and labels.

    If that is equal before and after, so is everything else. Only pieces that touch a difference and what they touch
    are looked at, which takes about a millisecond.

    Args:
        layout: One of the two layouts.
        window: The window; the differences lie inside, away from its border.
        stack: The conductors.
        changed: Where the two layouts differ, by conducting layer.
    """

    def __init__(self, layout: DRCLayout, window: kdb.Box, stack: Stack, changed: Mapping[str, kdb.Region]) -> None:
        self._parent: dict[Any, Any] = {}
        self._pieces: dict[str, list[kdb.Polygon]] = {}
        touched: dict[str, kdb.Region] = {}
        unchanged = _nodes(
            layout, stack, window, {n for pair in stack.joins for n in pair if not changed.keys().isdisjoint(pair)}
        )
        for name, difference in changed.items():
            region = clip(layout, stack.gds[name], window).merged()
            touched[name] = region.interacting(difference)
            unchanged[name] = region.not_interacting(difference)
            self._pieces[name] = list(touched[name].each())
            for i in range(len(self._pieces[name])):
                self._find((name, i))
        for name, region in touched.items():
            self._join_anchors(layout, window, stack, name, region)
            for pair in stack.joins:
                if name not in pair:
                    continue
                other = pair[0] if pair[1] == name else pair[1]
                for neighbour in unchanged[other].merged().overlapping(region).each():
                    self._join_at(name, neighbour, ("next", other, str(neighbour)), by_area=True)
                for i, piece in enumerate(self._pieces.get(other, ())):
                    self._join_at(name, piece, (other, i), by_area=True)
        groups: dict[Any, list[tuple[Any, ...]]] = {}
        for key in self._parent:
            group = groups.setdefault(self._find(key), [])
            if len(key) > 2:
                group.append(key)
        self.groups = sorted(sorted(group) for group in groups.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LocalNets) and self.groups == other.groups

    __hash__ = None  # type: ignore[assignment]  # compared once and dropped

    def _find(self, key: Any) -> Any:
        parent = self._parent.setdefault(key, key)
        while parent != key:
            key, parent = parent, self._parent[parent]
        return key

    def _join_anchors(self, layout: DRCLayout, window: kdb.Box, stack: Stack, name: str, region: kdb.Region) -> None:
        """Join ways out of the window, labels and pins with the pieces of a changed conductor."""
        for x, y in _crossings(region, window):
            self._join_at(name, kdb.Box(x, y, x, y), ("out", name, x, y))
        if name not in stack.labelled:
            return
        for index in pin_layers(layout.layout, stack, name):
            for text, x, y in flat_texts(layout.layout, layout.top.name, index, window):
                self._join_at(name, kdb.Box(x, y, x, y), ("label", text, name, x, y))
            info = layout.layout.get_info(index)
            for pin in clip(layout, (info.layer, info.datatype), window).merged().each():
                self._join_at(name, pin, ("pin", name, str(pin)))

    def _join_at(self, name: str, shape: kdb.Box | kdb.Polygon, key: Any, by_area: bool = False) -> None:
        """Join an anchor or piece with all pieces of a conductor that it touches or, `by_area`, overlaps."""
        box = shape if isinstance(shape, kdb.Box) else shape.bbox()
        for i, piece in enumerate(self._pieces[name]):
            if not piece.bbox().touches(box) or not piece.touches(shape):
                continue
            if not by_area or not (kdb.Region(piece) & kdb.Region(shape)).is_empty():
                self._parent[self._find(key)] = self._find((name, i))


def _nodes(layout: DRCLayout, stack: Stack, window: kdb.Box, names: set[str]) -> dict[str, kdb.Region]:
    """Return some conductors inside a window; derived ones are computed only if they are among them."""
    if not names.isdisjoint(DERIVED):
        return conductors(layout, stack, window)
    return {name: clip(layout, stack.gds[name], window) for name in names}


def clipped_layout(layout: DRCLayout, stack: Stack, window: kdb.Box) -> tuple[DRCLayout, list[Label]]:
    """Return a window as a flat layout, and labels for the conductors that leave it and for those inside."""
    window_layout = kdb.Layout()
    window_layout.dbu = layout.dbu
    top = window_layout.create_cell("WINDOW")
    drawn = {name: clip(layout, stack.gds[name], window) for name in stack.drawn}
    marks = {name: clip(layout, stack.gds[name], window) for name in stack.marks}
    for name, region in (drawn | marks).items():
        top.shapes(window_layout.layer(*stack.gds[name])).insert(region)
    labels: list[Label] = []
    for name in stack.labelled:
        for index in pin_layers(layout.layout, stack, name):
            info = layout.layout.get_info(index)
            target = top.shapes(window_layout.layer(info.layer, info.datatype))
            target.insert(clip(layout, (info.layer, info.datatype), window))
            texts = flat_texts(layout.layout, layout.top.name, index, window)
            labels += [(text, name, x, y) for text, x, y in texts]
    nodes, _, _ = derive(drawn, stack)
    for name, region in nodes.items():
        labels += [(f"{WAY_OUT}{name}", name, x, y) for x, y in _crossings(region, window)]
    return DRCLayout(window_layout, layout.source), labels


def _crossings(region: kdb.Region, window: kdb.Box) -> Iterable[tuple[int, int]]:
    """Middle points of the stretches of a window's border that conductors cross."""
    border = kdb.Edges(window)
    for edge in (region.merged().edges() & border).merged().each():
        middle = edge.bbox().center()
        yield middle.x, middle.y
