"""The evaluator: flat, on raw shapes, the same code for a whole layout and for a window of it.

Facts of the KLayout engine that decide how it must be driven (measured on the sign-off deck's results):

* Leaves stay unmerged. Boolean operations between edges and polygons cut edges at the seams of raw polygons, and the
  deck sees raw shapes.
* The two operands of an operation must never be one object: an operation of a region with itself means something else
  than with an equal region.
* Differences have short cuts that change the number of polygons; see `edagym.verifiers.drc.presence`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import klayout.db as kdb

from edagym.verifiers.drc.graph import NOTCH_LOCAL, Graph, Node
from edagym.verifiers.drc.presence import Presence

Leaf = Callable[[str], "kdb.Region | None"]
Collection = Any  # kdb.Region | kdb.Edges | kdb.EdgePairs

METRICS = {"euclidian": kdb.Metrics.Euclidian, "projection": kdb.Metrics.Projection}
_RECT = {
    None: kdb.Region.NoRectFilter,
    "one_side": kdb.Region.OneSideAllowed,
    "two_connected": kdb.Region.TwoConnectedSidesAllowed,
    "two_opposite": kdb.Region.TwoOppositeSidesAllowed,
}
# Polygons longer than this many database units make shielded checks slow.
_LONG = 4000
DIFFERENCES = frozenset({"not", "not_interacting"})
SHORT_CUTS = DIFFERENCES | {"and"}


def evaluate(graph: Graph, leaf: Leaf, outputs: Iterable[int], presence: Presence) -> Iterator[tuple[int, Collection]]:
    """Evaluate measurements.

    Args:
        graph: The compiled rules.
        leaf: Gives the raw shapes of a layer, or None where there are none. Called once per layer and evaluation.
        outputs: Indices into `graph.outputs`.
        presence: What acts on what in the whole layout.

    Yields:
        (output index, kdb collection in database units) for every output that isn't empty, in no order that matters.
        Intermediate results are dropped as soon as nothing needs them any more.
    """
    wanted: dict[int, list[int]] = {}
    for i in outputs:
        wanted.setdefault(graph.outputs[i].node, []).append(i)
    order = graph.needed(i for indices in wanted.values() for i in indices)
    uses = dict.fromkeys(order, 0)
    for n in order:
        for a in graph.nodes[n].args:
            uses[a] += 1
    values: dict[int, Collection | None] = {}
    for n in order:
        node = graph.nodes[n]
        if node.op == "layer":
            value = leaf(node.params[0])
        else:
            value = apply(node, [values[a] for a in node.args], node.op in SHORT_CUTS and bool(presence.acts(n)))
        if value is not None and value.is_empty():
            value = None
        values[n] = value
        for a in node.args:
            uses[a] -= 1
            if not uses[a] and a not in wanted:
                values[a] = None
        if value is not None:
            for i in wanted.get(n, ()):
                yield i, value


def apply(node: Node, operands: list[Collection | None], acts: bool = False) -> Collection | None:
    """Apply one operation.

    Args:
        node: The operation.
        operands: Its operands; None stands for an empty collection.
        acts: For booleans: whether KLayout may take none of its short cuts, see `edagym.verifiers.drc.presence`.
    """
    a = operands[0]
    if node.op == "join":
        return _join(a, operands[1])
    if node.op == "or":
        # Not `a | b`, which leaves operands unmerged whose bounding boxes don't overlap.
        joined = _join(a, operands[1])
        return None if joined is None else joined.merged()
    if a is None:
        return None
    if len(operands) == 1:
        return _UNARY[node.op](a, node.params)
    b = operands[1]
    if node.op in DIFFERENCES:
        if acts:
            b = _acting(a, b)
        elif b is None:
            return a
    elif b is None:
        return None
    elif acts and isinstance(a, kdb.Region):
        a, b = _not_alone(a, b, 10), _not_alone(b, a, 20)
    return _BINARY[node.op](a, b.dup() if b is a else b, node.params)


def _not_alone(a: kdb.Region, b: kdb.Region, distance: int) -> kdb.Region:
    """Return a region that isn't a single rectangle, the same near both regions."""
    if not a.is_box():
        return a
    box = a.bbox() + b.bbox()
    x, y = box.left - distance, box.bottom - distance
    return a + kdb.Region(kdb.Box(x - 1, y - 1, x, y))


def _acting(a: Collection, b: Collection | None) -> Collection:
    """Return a second operand of a difference on which KLayout can take none of its short cuts."""
    box = a.bbox()
    if b is not None and (isinstance(b, kdb.Edges) or isinstance(a, kdb.Edges) or b.bbox().overlaps(box)):
        return b
    around = kdb.Region(kdb.Box(box.left - 11, box.bottom - 11, box.left - 10, box.bottom - 10))
    around.insert(kdb.Box(box.right + 10, box.top + 10, box.right + 11, box.top + 11))
    return around if b is None else b + around


def _join(a: Collection | None, b: Collection | None) -> Collection | None:
    if a is None or b is None:
        return a if b is None else b
    return a + b


def _separation(a: Collection, b: Collection, p: tuple[Any, ...]) -> kdb.EdgePairs:
    if isinstance(a, kdb.Edges):
        return a.separation_check(b, p[0], False, METRICS[p[1]], None, None, None)
    return a.separation_check(
        b, p[0], False, METRICS[p[1]], None, None, None, True, kdb.Region.NoOppositeFilter, _RECT[p[2]]
    )


def _plain_enclosing(a: kdb.Region, b: kdb.Region, d: int, metric: str, rect: str | None = None) -> kdb.EdgePairs:
    # Shielding takes time quadratic in the number of vias on one rail. With a limit of one database unit only
    # coincident edges are found; nothing can lie between those, unless slanted edges meet in a point.
    shielded = not (d == 1 and rect is None and a.non_rectilinear().is_empty() and b.non_rectilinear().is_empty())
    return a.enclosing_check(
        b, d, False, METRICS[metric], None, None, None, shielded, kdb.Region.NoOppositeFilter, _RECT[rect]
    )


def _split_filtered(a: kdb.Region, b: kdb.Region, d: int) -> tuple[kdb.Region, kdb.Region] | None:
    """Split the merged polygons of an enclosing check's first operand: can a rectangle filter act on them or not?

    The filter drops a side's error only where one pair covers that side of a rectangle from corner to corner, so it
    needs something of `b` within the limit of a corner.

    Returns:
        (those on which it can act, the others), or None where splitting doesn't pay (no long polygons) or isn't exact
        (slanted edges snap to the grid in every step).
    """
    merged = a.merged()
    if merged.with_bbox_max(_LONG, None, False).is_empty():
        return None
    if not (merged.non_rectilinear().is_empty() and b.non_rectilinear().is_empty()):
        return None
    boxes = merged.rectangles()
    hit = boxes.corners(-180.0, 180.0, d + 1).interacting(b)
    if hit.is_empty():
        return kdb.Region(), merged
    boxes = boxes.interacting(hit)
    return boxes, merged.not_inside(boxes)


def _enclosing(a: kdb.Region, b: kdb.Region, p: tuple[Any, ...]) -> kdb.EdgePairs:
    d, metric, rect = p
    if rect is None:
        return _plain_enclosing(a, b, d, metric)
    split = _split_filtered(a, b, d)
    if split is None:
        return _plain_enclosing(a, b, d, metric, rect)
    filtered, rest = split
    if filtered.is_empty():
        return _plain_enclosing(rest, b, d, metric)
    # Polygons of the first operand don't influence one another's pairs.
    return _plain_enclosing(filtered, b, d, metric, rect) + _plain_enclosing(rest, b, d, metric)


def _enclosing_filtered(a: kdb.Region, b: kdb.Region, p: tuple[Any, ...]) -> kdb.Edges | None:
    """The edges that one rectangle filter leaves and another doesn't.

    Only polygons with a filtered side can make a difference; their neighbours may cancel it.
    """
    d, metric, left, removed = p
    split = _split_filtered(a, b, d)
    if split is None:
        near = a
    else:
        filtered, rest = split
        if filtered.is_empty():
            return None
        near = rest.interacting(filtered.sized(2 * d, 2 * d, 2)) + filtered
    first, second = (_plain_enclosing(near, b, d, metric, rect).edges() for rect in (left, removed))
    return first.merged() if second.is_empty() else first - second


def unshielded(node: Node, a: Collection, b: Collection | None = None) -> kdb.EdgePairs:
    """Return all pairs of a check node, those that lie behind other edges included, without rectangle filters."""
    d, metric = node.params[0], METRICS[node.params[1]]
    if b is not None:
        b = b.dup() if b is a else b
        if isinstance(a, kdb.Edges):
            return a.separation_check(b, d, False, metric, None, None, None)
        check = a.separation_check if node.op == "separation" else a.enclosing_check
        return check(b, d, False, metric, None, None, None, False)
    if isinstance(a, kdb.Edges):
        return a.space_check(d, False, metric, None, None, None)
    if node.op == "width_not":
        return a.width_check(d + 1, False, metric, None, None, None, False)
    check = {"width": a.width_check, "space": a.space_check, "notch": a.notch_check}[node.op]
    return check(d, False, metric, None, None, None, False)


def _width_not(a: kdb.Region, p: tuple[Any, ...]) -> kdb.Edges:
    """Edges whose width differs from the value: the narrower ones and, as KLayout's negative output, the wider ones."""
    metric = METRICS[p[1]]
    narrow = a.width_check(p[0], False, metric, None, None, None)
    wide = a.width_check(p[0] + 1, False, metric, None, None, None, True, True)
    return narrow.first_edges() + wide.first_edges()


def _values(
    select: Callable[..., Collection], values: tuple[int, ...], inverse: bool, source: Collection
) -> Collection:
    """Keep objects that have one of the exact values (or, inverse, none of them)."""
    if inverse:
        for v in values:
            source = select(source, v, True)
        return source
    result = select(source, values[0], False)
    for v in values[1:]:
        result += select(source, v, False)
    return result


def _filter(name: str, inverse: bool) -> Callable[[Collection, tuple[Any, ...]], Collection]:
    method = {"height": "with_bbox_height", "width": "with_bbox_width"}.get(name, f"with_{name}")

    def select(source: Collection, *args: Any) -> Collection:
        return getattr(source, method)(*args)

    def run(a: Collection, p: tuple[Any, ...]) -> Collection:
        if p[0] == "values":
            return _values(select, p[1:], inverse, a)
        return select(a, p[1], p[2], inverse)

    return run


def _notch_limit(a: kdb.Region, d: int) -> int:
    """Return a smaller limit that finds the same notches: none is wider than its polygon. Wide limits are slow."""
    if d <= NOTCH_LOCAL:
        return d
    sizes = (max(b.width(), b.height()) for b in (p.bbox() for p in a.each_merged()))
    return min(d, max(sizes, default=0) + 1)


_UNARY: dict[str, Callable[[Any, tuple[Any, ...]], Collection]] = {
    "width": lambda a, p: a.width_check(p[0], False, METRICS[p[1]], None, None, None),
    "space": lambda a, p: a.space_check(p[0], False, METRICS[p[1]], None, None, None),
    "notch": lambda a, p: a.notch_check(_notch_limit(a, p[0]), False, METRICS[p[1]], None, None, None),
    "width_not": _width_not,
    "with_angle": lambda a, p: a.with_angle(p[0], False),
    **{f"with_{m}": _filter(m, False) for m in ("length", "area", "height", "width")},
    **{f"without_{m}": _filter(m, True) for m in ("length", "area", "height", "width")},
    "edges": lambda a, p: a.edges(),
    "polygons": lambda a, p: a.polygons(0),
    "holes": lambda a, p: a.holes(),
    "corners": lambda a, p: a.corners(p[0], p[1]),
    "sized": lambda a, p: a.sized(p[0], p[1], 2),
    "extended_out": lambda a, p: a.extended(0, 0, p[0], 0, False),
    "with_holes": lambda a, p: a.with_holes(p[0], None, False),
}
_BINARY: dict[str, Callable[[Any, Any, tuple[Any, ...]], Collection]] = {
    "and": lambda a, b, p: a & b,
    "not": lambda a, b, p: a - b,
    "interacting": lambda a, b, p: a.interacting(b),
    "not_interacting": lambda a, b, p: a.not_interacting(b),
    "separation": _separation,
    "enclosing": _enclosing,
    "enclosing_filtered": _enclosing_filtered,
}
