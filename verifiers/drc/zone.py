"""Exact evaluation of a zone: the markers that touch a box, from the shapes around it alone.

An output's *reach* is the distance within which inputs decide it at a place. Shapes within the reach of the place give
the right answer, except where an operation decides about *whole objects*: keeps a polygon for its area, height, holes
or contacts, drops an error for what happens at another side of the same rectangle, or drops a pair of edges because a
third edge between them shields it from end to end. Such a decision is right once the object lies fully in view, or what
is in view already settles it. `evaluate_zone` looks at every such decision near the zone and says which rules need a
wider view, and how wide.

After an edit, whole objects also carry its influence away: a polygon that gains or loses a property changes what is
measured at its far end. `Dirty` makes `evaluate_zone` report how far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import klayout.db as kdb

from edagym.verifiers.drc.evaluate import DIFFERENCES, METRICS, Collection, Leaf, apply, unshielded
from edagym.verifiers.drc.graph import NOTCH_LOCAL, SLACK, Graph, Node
from edagym.verifiers.drc.markers import Box, Marker, collection_markers, touches
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
    return (min(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3]))


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
    """

    rule: str
    outputs: tuple[int, ...]
    nodes: tuple[int, ...]
    reach: int
    layers: frozenset[str]
    whole: frozenset[int]
    checks: frozenset[int]
    carried: frozenset[int]


def is_local_notch(node: Node) -> bool:
    """Return whether a notch check is narrow, so that only what is near can be a notch."""
    return node.op == "notch" and int(node.params[0]) <= NOTCH_LOCAL


def is_whole(node: Node) -> bool:
    """Return whether a node decides about whole objects."""
    return node.op in _WHOLE or has_rect_filter(node)


def has_rect_filter(node: Node) -> bool:
    """Return whether a node drops errors for what happens at other sides of the same rectangle."""
    return node.op in _RECT and node.params[2] is not None


def plan_rules(graph: Graph) -> dict[str, RulePlan]:
    """Return the plans of all rules, in reporting order."""
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
            while graph.nodes[n].op in _SELECTS or graph.nodes[n].op == "polygons":
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
        )
    return plans


@dataclass(frozen=True, slots=True)
class Dirty:
    """Where an edit happened: a box that covers all shapes added and removed, and the names of their layers."""

    box: Box
    layers: frozenset[str]


@dataclass(slots=True)
class ZoneResult:
    """One rule in one zone.

    Attributes:
        markers: Markers whose bounding boxes touch the zone, with multiplicities. Right only if `wider` and `zone` are
            None.
        wider: What the deciding box must cover too, or None if everything is decided.
        zone: The zone that the edit needs, if it is larger than the one given, or None.
    """

    markers: dict[Marker, int] = field(default_factory=dict)
    wider: Box | None = None
    zone: Box | None = None


def evaluate_zone(
    graph: Graph,
    plans: Sequence[RulePlan],
    shapes: Callable[[Box], Leaf],
    zone: Box,
    decide: Box,
    bounds: Box,
    presence: Presence,
    dirty: Dirty | None = None,
) -> dict[str, ZoneResult]:
    """Evaluate rules in a zone.

    Args:
        graph: The compiled rules.
        plans: The rules to evaluate, see `plan_rules`.
        shapes: Gives, for a window, a function from layer names to the raw shapes that touch the window, whole.
        zone: Markers that touch this box are wanted (database units).
        decide: A box around the zone in which everything is decided rightly; wanted markers must fit into it.
        bounds: Bounding box of the layout.
        presence: What acts on what in the whole layout; what it doesn't know is taken to act.
        dirty: The edit, if the zone belongs to one.

    Returns:
        A result per rule. Those with `wider` or `zone` set need another call with larger boxes.
    """
    reach = max(p.reach for p in plans)
    view = _View(graph, grown(decide, reach), decide, reach, bounds, dirty)
    whole = frozenset().union(*(p.whole for p in plans))
    checks = frozenset().union(*(p.checks for p in plans))
    carried = frozenset().union(*(p.carried for p in plans))
    leaf = shapes(view.window)
    for n in sorted(frozenset().union(*(p.nodes for p in plans))):
        node = graph.nodes[n]
        if node.op == "layer":
            value = leaf(node.params[0])
        else:
            acts = node.op in DIFFERENCES and presence.acts(n) is not False
            value = apply(node, [view.values[a] for a in node.args], acts)
        view.values[n] = None if value is None or value.is_empty() else value
        if not view.everything:
            if node.op == "layer":
                view.decide_slanted(n)
            if n in whole:
                view.decide_objects(n)
            if n in checks:
                view.decide_pairs(n)
        if dirty is not None:
            view.spread_edit(n, n in carried)
    return {p.rule: _result(p, view, zone) for p in plans}


def _result(plan: RulePlan, view: _View, zone: Box) -> ZoneResult:
    result = ZoneResult()
    for n in plan.nodes:
        if n in view.wider:
            result.wider = union(view.wider[n], result.wider)
    for i in plan.outputs:
        n = view.graph.outputs[i].node
        if n in view.spread and not contains(zone, view.spread[n]):
            result.zone = union(view.spread[n], result.zone or zone)
        value = view.values[n]
        if value is None or not touches(_box(value.bbox()), zone):
            continue
        for marker in collection_markers(plan.rule, value, view.graph.outputs[i].unordered):
            box = marker.bbox
            if touches(box, zone):
                result.markers[marker] = result.markers.get(marker, 0) + 1
                if not view.everything and not contains(view.decide, box):
                    result.wider = union(box, result.wider)
    return result


def _box(b: kdb.Box) -> Box:
    return (b.left, b.bottom, b.right, b.top)


class _View:
    """The state of one evaluation: node values, open decisions about whole objects, and how far an edit spreads."""

    def __init__(self, graph: Graph, window: Box, decide: Box, reach: int, bounds: Box, dirty: Dirty | None) -> None:
        self.graph = graph
        self.window = window
        self.decide = decide
        self.everything = contains(window, bounds)
        self.values: dict[int, Collection | None] = {}
        self.wider: dict[int, Box] = {}
        self.spread: dict[int, Box] = {}
        self._reach = reach
        self._dirty = dirty
        self._objects: dict[int, list[tuple[Box, Any]]] = {}
        self._cut: dict[int, list[tuple[Box, Any]]] = {}

    def objects(self, n: int) -> list[tuple[Box, Any]]:
        """Return (bounding box, object) of the merged objects of a node."""
        if n not in self._objects:
            value = self.values[n]
            self._objects[n] = [] if value is None else [(_box(o.bbox()), o) for o in value.each_merged()]
        return self._objects[n]

    def cut_objects(self, n: int) -> list[tuple[Box, Any]]:
        """Return those objects of a node that don't lie fully in view."""
        if n not in self._cut:
            valid = self.valid(n)
            self._cut[n] = [(b, o) for b, o in self.objects(n) if not contains(valid, b)]
        return self._cut[n]

    def valid(self, n: int) -> Box:
        """Return the box inside which a node's value is right."""
        return grown(self.window, -self.graph.nodes[n].reach)

    def _region(self, n: int) -> kdb.Region:
        return kdb.Region(kdb.Box(*self.valid(n)))

    def decide_slanted(self, n: int) -> None:
        """Find slanted polygons of a layer near the zone that lie partly out of view.

        Whatever crosses a slanted edge, however far away, puts a corner on the grid there and so moves the edge.
        """
        if self.values[n] is None:
            return
        near, valid = grown(self.decide, self._reach - SLACK), self.valid(n)
        for o in self.values[n].non_rectilinear().each():
            box = _box(o.bbox())
            if touches(box, near) and not contains(valid, box):
                self.wider[n] = union(box, self.wider.get(n))

    def decide_objects(self, n: int) -> None:
        """Find the decisions of whole-object node `n` near the zone that need a wider view."""
        node = self.graph.nodes[n]
        subject = node.args[0]
        if self.values[subject] is None:
            return
        near = grown(self.decide, self._reach - node.reach)
        if node.op == "notch" and is_local_notch(node):
            if self._open_notch(n, near):
                self.wider[n] = grown(self.window, 1)
            return
        for box, o in self.cut_objects(subject):
            if touches(box, near) and not self._settled(node, o):
                self.wider[n] = union(box, self.wider.get(n))

    def _settled(self, node: Node, o: Any) -> bool:
        """Return whether what is in view of an object decides about it, whatever lies outside."""
        if node.op in _FILTERS:
            limits = [v for v in node.params[1:] if v is not None]
            part = kdb.Region(o) & self._region(node.args[0])
            seen = part.bbox()
            size = {"area": part.area, "height": seen.height, "width": seen.width}[node.op.split("_")[1]]()
            return bool(size > max(limits, default=-1))
        if node.op in ("interacting", "not_interacting"):
            other = self.values[node.args[1]]
            if other is None:
                return False
            part = (kdb.Edges(o) if isinstance(o, kdb.Edge) else kdb.Region(o)) & self._region(node.args[0])
            if self.graph.nodes[node.args[1]].op != "layer":
                other = other & self._region(node.args[1])
            return not part.interacting(other).is_empty()
        if has_rect_filter(node):
            return self._unfiltered(node, o)
        return False

    def _unfiltered(self, node: Node, o: kdb.Polygon) -> bool:
        """Return whether a rectangle filter surely leaves a polygon alone.

        It does if the polygon isn't a rectangle, or if nothing that could cover a side is near the corners in view or
        runs out of view with the polygon.
        """
        valid = self.valid(node.args[0])
        if any(not p.is_box() for p in (kdb.Region(o) & kdb.Region(kdb.Box(*grown(valid, -1)))).each()):
            return True
        if not o.is_box():
            return False
        other, d = self.values[node.args[1]], int(node.params[0]) + 1
        if other is None:
            return True
        b = o.bbox()
        corners = kdb.Region()
        for x in (b.left, b.right):
            for y in (b.bottom, b.top):
                if valid[0] < x < valid[2] and valid[1] < y < valid[3]:
                    corners.insert(kdb.Box(x - d, y - d, x + d, y + d))
        if not corners.interacting(other).is_empty():
            return False
        beside = other.interacting(kdb.Region(b.enlarged(d, d)))
        return contains(self.valid(node.args[1]), _box(beside.bbox())) if not beside.is_empty() else True

    def _open_notch(self, n: int, near: Box) -> bool:
        """Return whether polygons in view could be one polygon out of view, with a notch between them."""
        node, value = self.graph.nodes[n], self.values[n]
        d, metric = node.params
        subject: Any = self.values[node.args[0]]
        known = {} if value is None else {_pair_key(p): None for p in value.each()}
        return any(
            touches(_box(p.bbox()), near) and _pair_key(p) not in known
            for p in subject.space_check(d, False, METRICS[metric], None, None, None).each()
        )

    def spread_edit(self, n: int, carries: bool) -> None:
        """Find the box in which the edit may have changed node `n`'s value, if any."""
        assert self._dirty is not None
        node = self.graph.nodes[n]
        if node.op == "layer":
            if node.params[0] in self._dirty.layers:
                self.spread[n] = grown(self._dirty.box, node.reach)
            return
        sources = [self.spread[a] for a in node.args if a in self.spread]
        if not sources:
            return
        own = node.reach - max(self.graph.nodes[a].reach for a in node.args)
        box = sources[0] if len(sources) == 1 else union(sources[0], sources[1])
        box = grown(box, own) if own else box
        if carries and is_whole(node):
            box = self._carry(n, box)
        if carries and node.op in _CHECKS:
            box = self._carry_pairs(n, box)
        self.spread[n] = box

    def _pairs(self, n: int) -> list[tuple[Box, kdb.EdgePair]]:
        """Return (bounding box, pair) of all pairs of a check, those that shielding drops included."""
        if n not in self._objects:
            node = self.graph.nodes[n]
            operands = [self.values[a] for a in node.args]
            found = [] if any(o is None for o in operands) else unshielded(node, *operands).each()
            self._objects[n] = [(_box(p.bbox()), p) for p in found]
        return self._objects[n]

    def decide_pairs(self, n: int) -> None:
        """Find the pairs of check `n` near the zone that may be shielded by what lies out of view."""
        node = self.graph.nodes[n]
        near = grown(self.decide, self._reach - node.reach)
        if any(self.values[a] is None or not self._has_cut(a, near) for a in node.args):
            return
        valid = self.valid(n)
        cut = [(b, p) for b, p in self._pairs(n) if touches(b, near) and not contains(valid, b)]
        if not cut:
            return
        if len(node.args) == 1:
            # A shield runs through the whole pair, so some of it is in view.
            view = kdb.Region(kdb.Box(*valid))
            edges = self.values[node.args[0]].edges()  # type: ignore[union-attr]
            cut = [(b, p) for b, p in cut if not edges.inside_part(kdb.Region(p.polygon(0)) & view).is_empty()]
        for box, _ in cut:
            self.wider[n] = union(box, self.wider.get(n))

    def _has_cut(self, n: int, near: Box) -> bool:
        return any(touches(box, near) for box, _ in self.cut_objects(n))

    def _carry_pairs(self, n: int, spread: Box) -> Box:
        """Return `spread` and the pairs that an edit there can shield or unshield."""
        node = self.graph.nodes[n]
        # What changed must lie between the pair's edges, not only touch them.
        inner = max(self.graph.nodes[a].reach for a in node.args if a in self.spread)
        changed = grown(self._dirty.box, inner - SLACK)  # type: ignore[union-attr]
        valid = self.valid(n)
        result = spread
        for box, pair in self._pairs(n):
            if contains(result, box) or not touches(box, changed):
                continue
            if (kdb.Region(pair.polygon(0)) & kdb.Region(kdb.Box(*changed))).is_empty():
                continue
            result = union(box, result)
            if not self.everything and not contains(valid, box):
                self.wider[n] = union(box, self.wider.get(n))
        return result

    def _carry(self, n: int, spread: Box) -> Box:
        """Return `spread` and the objects that an edit there can give or take a property."""
        node = self.graph.nodes[n]
        subject = node.args[0]
        valid = self.valid(subject)
        result = spread
        for box, o in self.objects(subject):
            if not touches(box, spread):
                continue
            extents: list[Box]
            if not has_rect_filter(node):
                extents = [box]
            elif subject in self.spread:
                extents = _rectangles(o, spread, valid)
            else:
                cornered = any(touches((x, y, x, y), spread) for x in box[::2] for y in box[1::2])
                extents = [box] if o.is_box() and cornered else []
            for extent in extents:
                result = union(extent, result)
                if not self.everything and not contains(valid, extent):
                    self.wider[n] = union(extent, self.wider.get(n))
        return result


def _rectangles(o: kdb.Polygon, hidden: Box, valid: Box) -> list[Box]:
    """Return the boxes of rectangles that a polygon may be now, or may have been before an edit inside `hidden`.

    Only what lies inside `valid` is known of the polygon.
    """
    cover, view = kdb.Region(kdb.Box(*hidden)), kdb.Region(kdb.Box(*valid))
    pieces = [kdb.Region(o)] + [kdb.Region(p) for p in (kdb.Region(o) - cover).each()]
    found = []
    for k, piece in enumerate(pieces):
        seen = piece & view
        missing = kdb.Region(seen.bbox()) - seen
        if (missing - cover if k else missing).is_empty():
            found.append(_box(piece.bbox()))
    return found


def _pair_key(p: kdb.EdgePair) -> tuple[Any, ...]:
    a = (p.first.x1, p.first.y1, p.first.x2, p.first.y2)
    b = (p.second.x1, p.second.y1, p.second.x2, p.second.y2)
    return (a, b) if a <= b else (b, a)
