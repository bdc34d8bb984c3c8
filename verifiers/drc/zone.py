"""Exact local evaluation: what a rule yields in a zone, from the shapes around it alone.

Most operations are local: inputs within a known distance decide the output at a place. Others decide about *whole
objects*: they keep a polygon for its area, height, holes or contacts, drop an error for what happens at another side of
the same rectangle, or drop a pair of edges because a third edge shields it from end to end. `LocalView` computes every
node for a box and looks at every such decision that matters in the box: where an object runs out of view and what is in
view doesn't settle the matter, it computes the operands (and only those) for a larger box.

After an edit, whole objects also carry its influence away: a polygon that gains or loses a property changes what is
measured at its far end. `LocalView.spread` follows that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any

import klayout.db as kdb

from edagym.verifiers.drc.evaluate import METRICS, SHORT_CUTS, Collection, apply, unshielded
from edagym.verifiers.drc.graph import NOTCH_LOCAL, SLACK, Graph, Node
from edagym.verifiers.drc.markers import Box, Marker, from_klayout, geometry_touches, touches
from edagym.verifiers.drc.presence import Presence

_FILTERS = frozenset(f"{w}_{m}" for w in ("with", "without") for m in ("area", "height", "width"))
_WHOLE = _FILTERS | {"interacting", "not_interacting", "with_holes", "holes", "notch"}
_RECT = frozenset({"enclosing", "separation", "enclosing_filtered"})
_CHECKS = _RECT | {"width", "space", "notch", "width_not"}
# Operations that pass objects on unchanged: a decision below them is about the markers themselves.
_SELECTS = _FILTERS | {"interacting", "not_interacting", "with_holes", "with_angle", "with_length", "without_length"}


def grown(box: Box, d: int) -> Box:
    """Return a box grown by `d` on all sides."""
    return (box[0] - d, box[1] - d, box[2] + d, box[3] + d)


def union(a: Box, b: Box | None) -> Box:
    """Return the bounding box of two boxes."""
    if b is None:
        return a
    return (
        a[0] if a[0] < b[0] else b[0],
        a[1] if a[1] < b[1] else b[1],
        a[2] if a[2] > b[2] else b[2],
        a[3] if a[3] > b[3] else b[3],
    )


def contains(outer: Box, inner: Box) -> bool:
    """Return whether a box contains another, borders included."""
    return outer[0] <= inner[0] and outer[1] <= inner[1] and outer[2] >= inner[2] and outer[3] >= inner[3]


@dataclass(frozen=True, slots=True)
class RulePlan:
    """What a rule needs: its outputs and nodes, its reach, and its decisions about whole objects.

    Attributes:
        rule: Rule id.
        outputs: Indices into `Graph.outputs`.
        nodes: Node numbers in topological order.
        reach: Largest reach of its outputs, in database units.
        layers: Layer names.
        whole: Nodes that decide about whole objects.
        checks: Nodes that decide about pairs of edges.
        carried: Those of `whole` and `checks` whose decisions are measured further, so that edits act beyond their
            reach.
        booleans: Nodes whose outcome depends on the whole layout, see `edagym.verifiers.drc.presence`.
        judge: The node that finds objects of another height (or width) than the one right one, if the rule's markers
            are those objects, perhaps sized.
    """

    rule: str
    outputs: tuple[int, ...]
    nodes: tuple[int, ...]
    reach: int
    layers: frozenset[str]
    whole: frozenset[int]
    checks: frozenset[int]
    carried: frozenset[int]
    booleans: tuple[int, ...]
    judge: int | None


def is_local_notch(node: Node) -> bool:
    """Return whether a notch check is narrow, so that only what is near can be a notch."""
    return node.op == "notch" and int(node.params[0]) <= NOTCH_LOCAL


def is_whole(node: Node) -> bool:
    """Return whether a node decides about whole objects."""
    return node.op in _WHOLE or has_rect_filter(node)


def has_rect_filter(node: Node) -> bool:
    """Return whether a node drops errors for what happens at other sides of the same rectangle."""
    return node.op in _RECT and node.params[2] is not None


@lru_cache(maxsize=16)
def plan_rules(graph: Graph) -> Mapping[str, RulePlan]:
    """Return the plans of all rules, in reporting order. Read only: they are made once per graph."""
    outputs: dict[str, list[int]] = {}
    for i, o in enumerate(graph.outputs):
        outputs.setdefault(o.rule, []).append(i)
    plans = {}
    for rule, indices in outputs.items():
        nodes = graph.needed(indices)
        whole = frozenset(n for n in nodes if is_whole(graph.nodes[n]))
        checks = frozenset(n for n in nodes if graph.nodes[n].op in _CHECKS)
        settled: set[int] = set()
        for i in indices:
            n = graph.outputs[i].node
            while graph.nodes[n].op in _SELECTS or graph.nodes[n].op in ("polygons", "sized"):
                settled.add(n)
                n = graph.nodes[n].args[0]
            if graph.nodes[n].op == "holes" or (graph.nodes[n].op in _CHECKS and not is_whole(graph.nodes[n])):
                settled.add(n)
        # A node may be an object filter on one path and an operand on another.
        used = {a for n in nodes for k, a in enumerate(graph.nodes[n].args) if k or n not in settled}
        carried = frozenset(n for n in whole | checks if n not in settled or n in used)
        plans[rule] = RulePlan(
            rule,
            tuple(indices),
            tuple(nodes),
            max(graph.nodes[graph.outputs[i].node].reach for i in indices),
            frozenset().union(*(graph.nodes[graph.outputs[i].node].layers for i in indices)),
            whole,
            checks,
            carried,
            tuple(n for n in nodes if graph.nodes[n].op in SHORT_CUTS),
            _judge(graph, indices),
        )
    return plans


def _judge(graph: Graph, outputs: Sequence[int]) -> int | None:
    if len(outputs) != 1:
        return None
    n = graph.outputs[outputs[0]].node
    if graph.nodes[n].op == "sized" and min(graph.nodes[n].params) >= 0:
        n = graph.nodes[n].args[0]
    node = graph.nodes[n]
    exact = node.op in ("without_height", "without_width") and node.params[0] == "values" and len(node.params) == 2
    return n if exact else None


@dataclass(frozen=True, slots=True)
class Dirty:
    """Where an edit happened: a box that covers all shapes added and removed, and the names of their layers."""

    box: Box
    layers: frozenset[str]


class _Entry:
    """A node's value, right inside `valid`, and its merged objects."""

    __slots__ = ("_edges", "_index", "_objects", "valid", "value")

    def __init__(self, value: Collection | None, valid: Box) -> None:
        self.value = value
        self.valid = valid
        self._objects: list[tuple[Box, Any]] | None = None
        self._edges: kdb.Edges | None = None
        self._index: kdb.Shapes | None = None

    def near(self, box: Box) -> list[Box]:
        """Return the bounding boxes of the merged objects that touch a box."""
        if self.value is None:
            return []
        if self._index is None and self.value.count() <= _MANY:
            return [b for b, _ in self.objects() if touches(b, box)]
        if self._index is None:
            self._index = kdb.Shapes()
            self._index.insert(self.value.merged())
        return [box_of(s.bbox()) for s in self._index.each_touching(kdb.Box(*box))]

    def edges(self) -> kdb.Edges:
        """Return the edges."""
        if self._edges is None:
            value: Any = kdb.Edges() if self.value is None else self.value
            self._edges = value if isinstance(value, kdb.Edges) else value.edges()
        return self._edges

    def objects(self) -> list[tuple[Box, Any]]:
        """Return (bounding box, object) of the merged objects."""
        if self._objects is None:
            merged = () if self.value is None else self.value.each_merged()
            self._objects = [(box_of(o.bbox()), o) for o in merged]
        return self._objects

    def cut(self, q: Box, known: Box) -> list[tuple[Box, Any]]:
        """Return (bounding box, object) of the merged objects that touch `q` and don't lie inside `known`."""
        if self.value is None or contains(known, box_of(self.value.bbox())):
            return []
        if self._objects is None and self.value.count() > _MANY:
            outside = self.value.not_inside(kdb.Region(kdb.Box(*known)))
            found: Iterable[tuple[Box, Any]] = ((box_of(o.bbox()), o) for o in outside.each())
        else:
            found = self.objects()
        return [(b, o) for b, o in found if touches(b, q) and not contains(known, b)]


class TooWide(Exception):
    """A view would have to grow beyond its limit."""


Shapes = Callable[[str, Box | None], "kdb.Region | None"]
Recorded = Callable[[str, Box], bool]


class LocalView:
    """Evaluates rules near a box.

    Args:
        graph: The compiled rules.
        plans: The rules that will be asked for.
        shapes: Gives the raw shapes of a layer that touch a box, whole; all shapes for None.
        base: The box near which values will be wanted: a tile, or an edit's bounding box.
        pad: How much more than strictly needed to compute at once, in database units.
        bounds: Bounding box of the layout.
        presence: What acts on what in the whole layout; what it doesn't know is taken to act.
        slanted: Tells whether a layer may have slanted edges anywhere.
        dirty: The edit, if there is one.
        recorded: Tells whether a rule had markers that touch a box before the edit.
        limit: Views may not grow beyond this box; `TooWide` is raised instead.
    """

    def __init__(
        self,
        graph: Graph,
        plans: Sequence[RulePlan],
        shapes: Shapes,
        base: Box,
        pad: int,
        bounds: Box,
        presence: Presence,
        slanted: Callable[[str], bool],
        dirty: Dirty | None = None,
        recorded: Recorded | None = None,
        limit: Box | None = None,
    ) -> None:
        self._graph = graph
        self._shapes = shapes
        self._base = base
        self._pad = pad
        self._limit = limit
        self._bounds = bounds
        self._presence = presence
        self._dirty = dirty
        self._entries: dict[int, list[_Entry]] = {}
        self._spread: dict[int, Box | None] = {}
        self._carried = frozenset().union(*(p.carried for p in plans))
        self._margin = self._margins(plans)
        self._recorded = recorded
        self._slanted = slanted
        self._judges: dict[int, str] = {}
        if recorded is not None:
            for p in plans:
                if p.judge is not None:
                    self._judges[p.judge] = p.rule

    def _margins(self, plans: Sequence[RulePlan]) -> dict[int, int]:
        """Return, per node, how far around the base values will usually be wanted."""
        nodes = self._graph.nodes
        margins: dict[int, int] = {}
        for p in plans:
            for i in p.outputs:
                n = self._graph.outputs[i].node
                # Around an edit, markers change within the reach.
                start = (nodes[n].reach if self._dirty is not None else 0) + self._pad
                margins[n] = max(start, margins.get(n, 0))
        wide = frozenset().union(*(p.whole | p.checks for p in plans))
        for n in sorted({n for p in plans for n in p.nodes}, reverse=True):
            # Far enough for common objects that stick out of a box to be in view.
            more = margins[n] + nodes[n].own + 2 + (self._pad if n in wide else 0)
            for a in nodes[n].args:
                if more > margins.get(a, 0):
                    margins[a] = more
        return margins

    def markers(self, plan: RulePlan, zone: Box) -> dict[Marker, int]:
        """Return the rule's markers that touch a zone, with multiplicities."""
        found: dict[Marker, int] = {}
        for i in plan.outputs:
            output = self._graph.outputs[i]
            view = zone
            for turn in count():
                value = self._entry(output.node, view).value
                near = [] if value is None else self._touching(value, zone)
                touching = [(b, o) for b, o in near if geometry_touches(o, b, zone)]
                need = self._widened(view, (b for b, _ in touching), turn)
                if need is None:
                    break
                view = need
            for _, o in touching:
                m = from_klayout(plan.rule, o, output.unordered)
                found[m] = found.get(m, 0) + 1
        return found

    def zone(self, plan: RulePlan) -> Box | None:
        """Return the box outside which the edit can't have changed the rule's markers, or None if it can't anywhere."""
        result: Box | None = None
        for i in plan.outputs:
            spread = self.spread(self._graph.outputs[i].node)
            if spread is not None:
                result = union(spread, result)
        return result

    # -- values ----------------------------------------------------------------------------------------------------

    def _entry(self, n: int, q: Box) -> _Entry:
        """Return node `n`, right inside `q`."""
        entries = self._entries.setdefault(n, [])
        wide = union(q, grown(self._base, self._margin[n]))
        for e in entries:
            if contains(e.valid, q) and (
                e.value is None or e.value.count() <= _FEW or _area(e.valid) <= _WASTE * _area(wide)
            ):
                return e
        node = self._graph.nodes[n]
        if contains(wide, self._bounds):
            wide = grown(self._bounds, _EVERYWHERE)
        if node.op == "layer":
            value = self._layer(node, wide)
        elif node.op in _CHECKS:
            value = self._check(n, node, wide)
        elif is_whole(node):
            value = self._whole(n, node, wide)
        else:
            value = self._apply(n, node, [self._entry(a, grown(wide, node.own + 1)).value for a in node.args])
        entry = _Entry(None if value is None or value.is_empty() else value, wide)
        entries.append(entry)
        return entry

    def _apply(self, n: int, node: Node, operands: list[Collection | None]) -> Collection | None:
        return apply(node, operands, node.op in SHORT_CUTS and self._presence.acts(n) is not False)

    def _widened(self, view: Box, boxes: Iterable[Box], turn: int) -> Box | None:
        """Return a view that covers `boxes`, or None if `view` does.

        The sides that move go farther than needed, the more so the more often this has happened (`turn`): what sticks
        out of a view may go on outside it.
        """
        need: Box | None = None
        for b in boxes:
            if not contains(view, b):
                need = union(b, need)
        if need is None or contains(view, self._bounds):
            return None
        far = 2 * self._pad * 8 ** (turn * (turn + 1) // 2)
        sides = list(view)
        for k, sign in ((0, -1), (1, -1), (2, 1), (3, 1)):
            if sign * need[k] > sign * view[k]:
                limit = sign * self._bounds[k] + self._pad
                # A side that has hardly moved is not pushed far away by others.
                more = min(far, max(2 * self._pad, 4 * sign * (view[k] - self._base[k])))
                sides[k] = sign * max(sign * need[k] + 1, min(sign * need[k] + more, limit))
        wider = (sides[0], sides[1], sides[2], sides[3])
        if self._limit is not None and not contains(self._limit, wider):
            raise TooWide
        return wider

    @staticmethod
    def _touching(value: Collection, box: Box) -> list[tuple[Box, Any]]:
        """Return (bounding box, object) of a collection's raw objects that touch a box."""
        if not touches(box_of(value.bbox()), box):
            return []
        return [(b, o) for o in value.each() if touches(b := box_of(o.bbox()), box)]

    def _layer(self, node: Node, q: Box) -> kdb.Region | None:
        """The shapes that touch `q`, and all that cross a slanted polygon that does.

        Whatever crosses a slanted edge, however far away, puts a corner on the grid there and so moves the edge.
        """
        view = q
        for turn in count():
            region = self._shapes(node.params[0], grown(view, SLACK))
            if region is None:
                return None
            if not self._slanted(node.params[0]):
                return region
            cut = [b for b, _ in self._touching(region.non_rectilinear(), q)]
            need = self._widened(view, cut, turn)
            if need is None:
                break
            view = need
        return region

    def _check(self, n: int, node: Node, q: Box) -> Collection | None:
        """A check: pairs that run out of view are right unless something in view may shield them."""
        view = grown(q, node.own + self._pad)
        for turn in count():
            entries = [self._entry(a, view) for a in node.args]
            if any(e.value is None for e in entries):
                break
            known = grown(view, -1)
            far = node.op == "notch" and not is_local_notch(node)
            open_boxes = [] if far else self._open_pairs(node, entries, q, known)
            if any(map(self._slanted, node.layers)):
                # How a slanted edge pairs with another depends on both from end to end.
                open_boxes += [b for e in entries for b, _ in e.cut(q, known)]
            if has_rect_filter(node):
                open_boxes += [b for b, o in entries[0].cut(q, known) if self._filterable(node, o, entries[1], known)]
            if node.op == "notch" and self._open_notch(node, entries[0], q, known):
                open_boxes.append(grown(view, 1))
            need = self._widened(view, open_boxes, turn)
            if need is None:
                break
            view = need
        if node.op == "notch" and not is_local_notch(node) and entries[0].value is not None:
            return self._apply(n, node, [_touched(entries[0], q)])
        return self._apply(n, node, [e.value for e in entries])

    @staticmethod
    def _filterable(node: Node, o: kdb.Polygon, other: _Entry, known: Box) -> bool:
        """Return whether a rectangle filter may act on a polygon of which only what lies in `known` is known."""
        if any(not p.is_box() for p in (kdb.Region(o) & kdb.Region(kdb.Box(*grown(known, -1)))).each()):
            return False
        return not o.is_box() or _coverable(box_of(o.bbox()), other, int(node.params[0]) + 1, known, None)

    def _open_pairs(self, node: Node, entries: list[_Entry], q: Box, known: Box) -> list[Box]:
        """Return the boxes of pairs touching `q` that what lies out of view may shield."""
        if any(not e.cut(q, known) for e in entries):
            return []
        found = unshielded(node, *(_near_border(e.value, known, node.own) for e in entries))
        cut = [(b, p) for b, p in self._touching(found, q) if not contains(known, b)]
        # A shield runs through the whole pair, so some of it is in view.
        return [b for b, p in cut if _inner_edges(entries, p, kdb.Region(kdb.Box(*known)))]

    def _open_notch(self, node: Node, subject: _Entry, q: Box, known: Box) -> bool:
        """Return whether polygons in view could be one polygon out of view, with a notch between them."""
        if not is_local_notch(node):
            return bool(subject.cut(q, known))
        region: Any = subject.value
        d, metric = node.params
        notches = region.notch_check(d, False, METRICS[metric], None, None, None)
        sure = {_pair_key(p) for p in notches.each()}
        spaces = region.space_check(d, False, METRICS[metric], None, None, None)
        unsure = [p for _, p in self._touching(spaces, q) if _pair_key(p) not in sure]
        if not unsure:
            return False
        # Both polygons must run out of view to be one.
        cut = kdb.Region([o for b, o in subject.objects() if not contains(known, b)])
        return any(all(kdb.Edges([e]).interacting(cut).count() for e in (p.first, p.second)) for p in unsure)

    def _whole(self, n: int, node: Node, q: Box) -> Collection | None:
        """A decision about whole objects: those that touch `q` are in view as far as the decision needs."""
        subject, others = node.args[0], node.args[1:]
        view = grown(q, node.own + self._pad + 1)
        for turn in count():
            entry = self._entry(subject, view)
            if entry.value is None:
                return None
            known = grown(view, -1)
            around = [self._entry(a, view) for a in others]
            cut = [
                b
                for b, o in entry.cut(q, known)
                if not self._settled(node, o, around, known) and not self._unharmed(n, node, o, known)
            ]
            need = self._widened(view, cut, turn)
            if need is None:
                break
            view = need
        return self._apply(n, node, [entry.value, *(e.value for e in around)])

    def _settled(self, node: Node, o: Any, around: list[_Entry], known: Box) -> bool:
        """Return whether what is in view of an object decides about it, whatever lies outside."""
        view = kdb.Region(kdb.Box(*known))
        if node.op in _FILTERS:
            limits = [v for v in node.params[1:] if v is not None]
            part = kdb.Region(o) & view
            seen = part.bbox()
            size = {"area": part.area, "height": seen.height, "width": seen.width}[node.op.split("_")[1]]()
            return bool(size > max(limits, default=-1))
        if around and around[0].value is not None:
            piece = (kdb.Edges(o) if isinstance(o, kdb.Edge) else kdb.Region(o)) & view
            # Leaves are right everywhere: what is there of them is real.
            other = around[0].value if self._graph.nodes[node.args[1]].op == "layer" else around[0].value & view
            return not piece.interacting(other).is_empty()
        return False

    def _unharmed(self, n: int, node: Node, o: kdb.Polygon, known: Box) -> bool:
        """Return whether an object has the one height (or width) it should have, as it had before the edit.

        If the rule had no marker there, every object that this one was made of had that height. Where a part of it
        that the edit didn't touch shows the whole height, what continues out of view lies between the same lines.
        """
        rule = self._judges.get(n)
        spread = None if rule is None else self.spread(node.args[0])
        if rule is None or spread is None or self._recorded is None:
            return False
        size = (lambda b: b.height()) if node.op == "without_height" else (lambda b: b.width())
        seen = kdb.Region(o) & kdb.Region(kdb.Box(*known))
        if size(seen.bbox()) != node.params[1]:
            return False
        inner = grown(known, -1)
        for part in (seen - kdb.Region(kdb.Box(*spread))).each():
            if not contains(inner, box_of(part.bbox())) and size(part.bbox()) != node.params[1]:
                return False
        return not self._recorded(rule, grown(box_of(seen.bbox()), self._pad))

    # -- spread of an edit -----------------------------------------------------------------------------------------

    def spread(self, n: int) -> Box | None:
        """Return a box outside which the edit hasn't changed node `n`'s value, or None if it hasn't at all."""
        if n not in self._spread:
            self._spread[n] = self._find_spread(n)
        return self._spread[n]

    def _find_spread(self, n: int) -> Box | None:
        assert self._dirty is not None
        node = self._graph.nodes[n]
        if node.op == "layer":
            if node.params[0] not in self._dirty.layers:
                return None
            dirty = grown(self._dirty.box, SLACK)
            return union(dirty, self._carry_slanted((n,), dirty)) if self._slanted(node.params[0]) else dirty
        box: Box | None = None
        for a in node.args:
            source = self.spread(a)
            if source is not None:
                box = union(source, box)
        if box is None:
            return None
        changed = box
        box = grown(box, node.own)
        if any(map(self._slanted, node.layers)):
            box = union(box, self._carry_slanted(node.args, box, all_shapes=node.op in _CHECKS))
        if n in self._carried:
            if is_whole(node):
                box = union(box, self._carry_objects(node, box))
            if node.op in _CHECKS and (node.op != "notch" or is_local_notch(node)):
                box = union(box, self._carry_pairs(node, grown(changed, -SLACK), box))
        return box

    def _carry_slanted(self, operands: tuple[int, ...], spread: Box, all_shapes: bool = False) -> Box | None:
        """Return the extent of slanted polygons in `spread`: what crosses their edges there moves them all along.

        Args:
            operands: Nodes whose polygons to look at.
            spread: Where something changed.
            all_shapes: Whether to take upright polygons too, whose long edges pair with slanted ones elsewhere.
        """
        result: Box | None = None
        for n in operands:
            if self._graph.nodes[n].kind == "edge_pairs":
                continue
            view = spread
            for turn in count():
                entry = self._entry(n, view)
                boxes = [
                    b
                    for b, o in entry.objects()
                    if touches(b, spread) and (all_shapes or isinstance(o, kdb.Edge) or not o.is_rectilinear())
                ]
                need = self._widened(view, (grown(b, 1) for b in boxes), turn)
                if need is None:
                    break
                view = need
            for b in boxes:
                result = union(b, result)
        return result

    def _carry_objects(self, node: Node, spread: Box) -> Box | None:
        """Return the extent of the objects that an edit in `spread` can give or take a property."""
        subject = node.args[0]
        moved = self.spread(subject) is not None
        view = spread
        for turn in count():
            known = grown(view, -1)
            extents: list[Box] = []
            for box, o in self._entry(subject, view).objects():
                if not touches(box, spread):
                    continue
                if not has_rect_filter(node):
                    extents.append(box)
                elif moved:
                    extents += _rectangles(o, spread, known)
                elif o.is_box():
                    extents.append(box)
            if has_rect_filter(node):
                others = self._entry(node.args[1], view)
                extents = [b for b in extents if _coverable(b, others, int(node.params[0]) + 1, known, spread)]
            need = self._widened(view, (grown(b, 1) for b in extents), turn)
            if need is None:
                break
            view = need
        result: Box | None = None
        for b in extents:
            result = union(b, result)
        return result

    def _carry_pairs(self, node: Node, changed: Box, spread: Box) -> Box | None:
        """Return the extent of the pairs that an edit in `changed`, between their edges, can shield or unshield."""
        view = grown(spread, int(node.params[0]) + 1)
        for turn in count():
            entries = [self._entry(a, view) for a in node.args]
            if any(e.value is None for e in entries):
                return None
            extents = [
                b
                for b, p in self._touching(unshielded(node, *(e.value for e in entries)), changed)
                if not contains(spread, b) and _shield_changes(entries, p, changed)
            ]
            need = self._widened(view, (grown(b, 1) for b in extents), turn)
            if need is None:
                break
            view = need
        result: Box | None = None
        for b in extents:
            result = union(b, result)
        return result


_EVERYWHERE = 2**28
# A value with more objects than this, computed for an area this much larger than wanted, is rather computed anew.
_FEW = 100
_WASTE = 6
_MANY = 500  # objects, from which on KLayout selects faster than Python


def _area(b: Box) -> int:
    return (b[2] - b[0]) * (b[3] - b[1])


def box_of(b: kdb.Box) -> Box:
    """Return a KLayout box as a tuple."""
    return (b.left, b.bottom, b.right, b.top)


def _touched(entry: _Entry, q: Box) -> kdb.Region:
    """Return the shapes of the polygons that touch a box: a notch lies within one polygon."""
    near = kdb.Region([o for b, o in entry.objects() if touches(b, q)])
    raw = entry.value.dup()  # type: ignore[union-attr]
    raw.merged_semantics = False
    found: kdb.Region = raw.interacting(near)
    found.merged_semantics = True
    return found


def _near_border(value: Collection, known: Box, d: int) -> Collection:
    """Return the shapes that stick out of `known` and those within `d` of them: all that make pairs sticking out."""
    if value.count() <= _MANY or not isinstance(value, kdb.Region):
        return value
    raw = value.dup()
    raw.merged_semantics = False
    cut = raw.not_inside(kdb.Region(kdb.Box(*known)))
    found = raw.interacting(cut.sized(d, d, 2))
    found.merged_semantics = True
    return found


def _inner_edges(entries: list[_Entry], pair: kdb.EdgePair, view: kdb.Region) -> bool:
    """Return whether edges in view run between the edges of a pair, or along them on another layer."""
    quad = kdb.Region(pair.polygon(0)) & view
    if quad.is_empty():
        return False
    edges = [e.edges() for e in entries]
    if any(not found.inside_part(quad).is_empty() for found in edges):
        return True
    return len(edges) > 1 and not (edges[0] & edges[1] & quad).is_empty()


def _shield_changes(entries: list[_Entry], pair: kdb.EdgePair, changed: Box) -> bool:
    """Return whether an edit inside `changed` may have given or taken a pair's shield.

    A shield is one edge that crosses the pair from end to end. What of it lies outside `changed` is still there.
    """
    quad = kdb.Region(pair.polygon(0))
    cover = kdb.Region(kdb.Box(*changed))
    if (quad & cover).is_empty() or not _inner_edges(entries, pair, quad - cover):
        return False
    ends = (kdb.Edge(pair.first.p1, pair.second.p2), kdb.Edge(pair.second.p1, pair.first.p2))
    own = ((pair.first.p1, pair.first.p2), (pair.second.p1, pair.second.p2))
    for e in entries:
        for edge in e.edges().interacting(quad).each():
            if any(edge.contains(a) and edge.contains(b) for a, b in own):
                continue
            if all(edge.intersects(end) for end in ends) and not touches(box_of(edge.bbox()), changed):
                return False
    return True


def _sides(box: Box) -> list[tuple[Box, int]]:
    """Return the sides of a rectangle as flat boxes, each with the axis that it runs along."""
    x1, y1, x2, y2 = box
    return [((x1, y1, x2, y1), 0), ((x1, y2, x2, y2), 0), ((x1, y1, x1, y2), 1), ((x2, y1, x2, y2), 1)]


def _coverable(box: Box, other: _Entry, d: int, known: Box, hidden: Box | None) -> bool:
    """Return whether some object may cover a side of a rectangle, seen or unseen, from corner to corner.

    Args:
        box: The rectangle. Corners outside `known` may not be where they seem.
        other: The objects.
        d: How near to the side they must be.
        known: Where the view is right.
        hidden: If given, objects may have changed in this box, and sides inside it don't count.
    """
    changed = hidden
    if hidden is not None:
        for b in other.near(hidden):
            changed = union(b, changed)
    for side, axis in _sides(box):
        if hidden is not None and contains(hidden, side):
            continue
        strip = grown(side, d)
        low, high = side[axis], side[axis + 2]
        # What covers the side is near its low end, or where that runs out of view.
        start = list(strip)
        start[axis], start[axis + 2] = (known[axis], known[axis]) if low <= known[axis] else (low - d, low + d)
        found = other.near((start[0], start[1], start[2], start[3]))
        if changed is not None and touches(changed, strip):
            found.append(changed)
        for b in found:
            from_low = b[axis] <= low + d or (low <= known[axis] and b[axis] <= known[axis])
            to_high = b[axis + 2] >= high - d or (high >= known[axis + 2] and b[axis + 2] >= known[axis + 2])
            if from_low and to_high:
                return True
    return False


def _rectangles(o: kdb.Polygon, hidden: Box, known: Box) -> list[Box]:
    """Return the boxes of rectangles that a polygon may be now, or may have been before an edit inside `hidden`.

    Only what lies inside `known` is known of the polygon.
    """
    cover, view = kdb.Region(kdb.Box(*hidden)), kdb.Region(kdb.Box(*known))
    pieces = [kdb.Region(o)] + [kdb.Region(p) for p in (kdb.Region(o) - cover).each()]
    found = []
    for k, piece in enumerate(pieces):
        seen = piece & view
        missing = kdb.Region(seen.bbox()) - seen
        if (missing - cover if k else missing).is_empty():
            found.append(box_of(piece.bbox()))
    return found


def _pair_key(p: kdb.EdgePair) -> tuple[Any, ...]:
    a = (p.first.x1, p.first.y1, p.first.x2, p.first.y2)
    b = (p.second.x1, p.second.y1, p.second.x2, p.second.y2)
    return (a, b) if a <= b else (b, a)
