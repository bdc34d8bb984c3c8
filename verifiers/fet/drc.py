"""Design rules on merged geometry: the six rule kinds of the paper's Table 1 that agents see.

Distances are exact Euclidean distances between merged polygons (shapely, in database units), because KLayout's edge
checks miss sharp tips: a needle that points at a gate passes `separation_check` at any distance. KLayout's edge
checks remain for widths and notches, which are about two edges of one polygon, joined by `tips` for places where a
vertex is what comes close and for what stands between; with the default `ignore_angle` of 90 they flag corners of
rotated rectangles after snapping, hence `IGNORE_ANGLE`.

Tolerance (paper, Appendix G): deficits of up to `TOLERANCE` pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import klayout.db as kdb
import numpy as np
import shapely

from edagym.task_assets.fet.grid import to_um
from edagym.task_assets.fet.task import DBU_UM, Rule
from edagym.verifiers.fet.layout import FETLayout
from edagym.verifiers.fet.tips import Outline, Sight, narrowest
from edagym.verifiers.fet.transistors import EDGE_LENGTH, EDGE_REACH, Flake
from edagym.verifiers.verdict import BBox, CheckResult

TOLERANCE = 1.001
"""Deficit in database units (1 nm) up to which a distance rule holds."""

IGNORE_ANGLE = 89.5

# Violations after which the search for the worst one stops: a curve of 10,000 vertices makes almost a million.
_ENOUGH = 200

# Edge pairs hidden from each other after which an outline counts as violating: no drawing of devices comes near it.
_TOO_MANY = 5000

# Edges shorter than this (dbu) are jogs where flush shapes were rounded to the grid: they have no angle of their own.
_JOG = 2.0

# Points on a layer above which edge checks start with smaller distances.
_MANY_POINTS = 1000


class LayerShapes:
    """The merged polygons of one layer, in the forms that the checks need.

    Args:
        region: Merged region of the layer (dbu).

    Attributes:
        region: As given; shapes that touch at a corner are one polygon, as KLayout merges them.
        polygons: Polygons of the layer; shapes that touch at a corner are separate where they would make one invalid.
    """

    def __init__(self, region: kdb.Region) -> None:
        self.region = region
        self.polygons: list[kdb.Polygon] = list(region.each())
        self._geometries: np.ndarray | None = None
        self._tree: shapely.STRtree | None = None
        self._sights: dict[int, Sight] = {}

    @property
    def empty(self) -> bool:
        """Whether the layer holds no area."""
        return not self.polygons

    @property
    def n_points(self) -> int:
        """Number of vertices of all polygons."""
        return sum(polygon.num_points() for polygon in self.polygons)

    @property
    def geometries(self) -> np.ndarray:
        """The polygons as shapely geometries (dbu), shape (n,)."""
        if self._geometries is None:
            self._geometries = to_shapely(self.polygons)
            if not shapely.is_valid(self._geometries).all():
                apart = self.region.dup()
                apart.min_coherence = True
                self.polygons = list(apart.merged().each())
                self._geometries = to_shapely(self.polygons)
        return self._geometries

    @property
    def tree(self) -> shapely.STRtree:
        """Search tree over `geometries`."""
        if self._tree is None:
            self._tree = shapely.STRtree(self.geometries)
        return self._tree

    def sight(self, k: int) -> Sight:
        """Lines of sight in polygon `k`."""
        if k not in self._sights:
            self._sights[k] = Sight(self.geometries[k])
        return self._sights[k]


class Shapes:
    """`LayerShapes` of a layout, made on demand.

    Args:
        layout: The layout under check.
    """

    def __init__(self, layout: FETLayout) -> None:
        self._layout = layout
        self._made: dict[str, LayerShapes] = {}

    def __getitem__(self, layer: str) -> LayerShapes:
        shapes = self._made.get(layer)
        if shapes is None:
            shapes = self._made[layer] = LayerShapes(self._layout.region(layer))
        return shapes


def to_shapely(polygons: list[kdb.Polygon]) -> np.ndarray:
    """Return KLayout polygons as shapely polygons (dbu), shape (n,)."""
    coordinates: list[tuple[int, int]] = []
    ring_of: list[int] = []
    polygon_of: list[int] = []
    n_rings = 0
    for i, polygon in enumerate(polygons):
        rings = [polygon.each_point_hull(), *(polygon.each_point_hole(h) for h in range(polygon.holes()))]
        for ring in rings:
            points = [(p.x, p.y) for p in ring]
            coordinates += points
            ring_of += [n_rings] * len(points)
            polygon_of.append(i)
            n_rings += 1
    if not polygons:
        return np.empty(0, dtype=object)
    rings_ = shapely.linearrings(np.array(coordinates, dtype=float), indices=np.array(ring_of))
    return shapely.polygons(rings_, indices=np.array(polygon_of))


def box_um(box: kdb.Box) -> BBox:
    """Return a KLayout box in um."""
    return (to_um(box.left), to_um(box.bottom), to_um(box.right), to_um(box.top))


def _line_um(line: shapely.LineString) -> BBox:
    return tuple(round(v * DBU_UM, 4) for v in line.bounds)  # type: ignore[return-value]


def _distance_result(rule: Rule, id_: str, what: str, worst: tuple[float, BBox] | None) -> CheckResult:
    """Result of a distance rule; `worst` is the least distance (dbu) below the limit and its place."""
    required = float(rule.min_um)  # type: ignore[arg-type]
    if worst is None:
        return CheckResult(id_, rule.kind, True, required, None, "um", None, f"{what} at least {required:g} um: holds")
    found = round(worst[0] * DBU_UM, 4)
    message = f"{what}: expected at least {required:g} um, found {found:g} um"
    return CheckResult(id_, rule.kind, False, required, found, "um", worst[1], message)


def _skipped(rule: Rule, id_: str, empty: str) -> CheckResult:
    return CheckResult(
        id_, rule.kind, True, rule.min_um, None, "um" if rule.min_um else "", None, f"skipped: layer {empty} is empty"
    )


def _limit(rule: Rule) -> float:
    """Distance in dbu below which the rule is violated."""
    return float(rule.min_um) / DBU_UM - TOLERANCE  # type: ignore[arg-type]


def _narrowest(shapes: LayerShapes, limit: float, *, inside: bool) -> tuple[float, BBox] | None:
    """Find the narrowest place below `limit` (dbu) within single polygons: of their width, or of their notches."""
    check = shapes.region.width_check if inside else shapes.region.notch_check
    distance = math.ceil(limit)
    tiers = [distance]
    if shapes.n_points > _MANY_POINTS:
        # The cost grows with the number of edges within reach: look for much narrower places first.
        tiers = sorted({math.ceil(distance / 16), math.ceil(distance / 4), distance})
    worst: tuple[float, BBox] | None = None
    for tier in tiers:
        # KLayout's own shielding depends on `whole_edges` and takes minutes on long outlines: `_worst_pair` does it.
        pairs = check(tier, True, kdb.Metrics.Euclidian, IGNORE_ANGLE, None, None, False)
        worst = _worst_pair(pairs, shapes, limit, inside)
        if worst is not None:
            break
    for k, polygon in enumerate(shapes.polygons):
        if polygon.holes() or not polygon.is_convex():
            tip = narrowest(Outline(polygon), shapes.sight(k), limit, inside=inside)
            if tip is not None and (worst is None or tip[0] < worst[0]):
                worst = (tip[0], _line_um(tip[1]))
    return worst


def _worst_pair(pairs: kdb.EdgePairs, shapes: LayerShapes, limit: float, inside: bool) -> tuple[float, BBox] | None:
    """Return least distance and place of the edge pairs that see each other through the polygon, or outside of it."""
    worst: tuple[float, BBox] | None = None
    n_visible = n_hidden = 0
    for pair in pairs.each():
        if _square_corner(pair.first, pair.second):
            continue
        # EdgePair.distance() rounds to whole database units.
        lines = [line for line in _lines_between(pair.first, pair.second) if line.length < limit]
        if not lines:
            continue
        seen = [
            line
            for line in lines
            if any(shapes.sight(k).visible(line, inside=inside) for k in shapes.tree.query(line).tolist())
        ]
        n_visible, n_hidden = n_visible + bool(seen), n_hidden + (not seen)
        if seen or n_hidden == _TOO_MANY:
            found = min(line.length for line in seen or lines), box_um(pair.bbox())
            worst = found if worst is None else min(worst, found)
        if n_visible == _ENOUGH or n_hidden == _TOO_MANY:
            break
    return worst


def _lines_between(a: kdb.Edge, b: kdb.Edge) -> list[shapely.LineString]:
    """Return the shortest lines between two edges: from anywhere, and from the middle of each."""
    one, two = _segment(a), _segment(b)
    return [
        shapely.shortest_line(one, two),
        shapely.shortest_line(one.interpolate(0.5, normalized=True), two),
        shapely.shortest_line(one, two.interpolate(0.5, normalized=True)),
    ]


def _square_corner(a: kdb.Edge, b: kdb.Edge) -> bool:
    """Whether two edges may be at a right angle or in line but for the snapping of their ends to the grid."""
    lengths = math.hypot(a.dx(), a.dy()), math.hypot(b.dx(), b.dy())
    if min(lengths) < _JOG and {a.p1, a.p2} & {b.p1, b.p2}:
        return True
    cosine = -(a.dx() * b.dx() + a.dy() * b.dy()) / (lengths[0] * lengths[1])
    angle = math.degrees(math.acos(max(-1.0, min(1.0, cosine))))
    snapping = sum(math.degrees(math.atan(math.sqrt(2) / length)) for length in lengths)
    return angle >= max(IGNORE_ANGLE - snapping, 60.0)


def _segment(edge: kdb.Edge) -> shapely.LineString:
    return shapely.LineString([(edge.x1, edge.y1), (edge.x2, edge.y2)])


def _least(*found: tuple[float, BBox] | None) -> tuple[float, BBox] | None:
    return min((f for f in found if f is not None), default=None)


def _closest_pair(a: np.ndarray, b: np.ndarray, limit: float) -> tuple[float, BBox] | None:
    """Least distance below `limit` between paired geometries."""
    if not len(a):
        return None
    distances = shapely.distance(a, b)
    i = int(np.argmin(distances))
    if distances[i] >= limit:
        return None
    return float(distances[i]), _line_um(shapely.shortest_line(a[i], b[i]))


def min_width(rule: Rule, id_: str, shapes: Shapes) -> CheckResult:
    """Every gate is at least the limit wide, measured inside the merged polygon.

    As in KLayout, edges that meet at less than a right angle have no width at their corner.
    """
    (layer,) = rule.layers
    limit = _limit(rule)
    result = _distance_result(rule, id_, f"width on {layer}", _narrowest(shapes[layer], limit, inside=True))
    if result.measured == 0:
        return replace(result, message=f"{result.message} (at a corner sharper than 90 degrees)")
    return result


def min_spacing(rule: Rule, id_: str, shapes: Shapes) -> CheckResult:
    """Shapes of one layer keep the limit from each other, and from themselves across notches."""
    (layer,) = rule.layers
    limit = _limit(rule)
    here = shapes[layer]
    worst = _narrowest(here, limit, inside=False)
    if len(here.polygons) > 1:
        i, j = here.tree.query(here.geometries, predicate="dwithin", distance=limit)
        one = i < j
        worst = _least(worst, _closest_pair(here.geometries[i[one]], here.geometries[j[one]], limit))
    return _distance_result(rule, id_, f"spacing on {layer}", worst)


def min_separation(rule: Rule, id_: str, shapes: Shapes) -> CheckResult:
    """Shapes of two layers keep the limit from each other; touching and overlapping ones are at distance 0."""
    a, b = rule.layers
    for layer in (a, b):
        if shapes[layer].empty:
            return _skipped(rule, id_, layer)
    limit = _limit(rule)
    i, j = shapes[a].tree.query(shapes[b].geometries, predicate="dwithin", distance=max(limit, 0.0))
    worst = _closest_pair(shapes[b].geometries[i], shapes[a].geometries[j], limit)
    return _distance_result(rule, id_, f"separation of {a} and {b}", worst)


def min_enclosure(rule: Rule, id_: str, shapes: Shapes) -> CheckResult:
    """Every inner shape lies in an outer shape with at least the limit as margin."""
    outer, inner = rule.layers
    for layer in (outer, inner):
        if shapes[layer].empty:
            return _skipped(rule, id_, layer)
    limit = _limit(rule)
    what = f"enclosure of {inner} by {outer}"
    outers, inners = shapes[outer], shapes[inner]
    i, j = outers.tree.query(inners.geometries, predicate="covered_by")
    outside = set(range(len(inners.polygons))) - set(i.tolist())
    if outside:  # boundary distance alone would pass a via far outside any contact
        where = box_um(inners.polygons[min(outside)].bbox())
        message = f"{what}: expected at least {rule.min_um:g} um, found a shape of {inner} not inside {outer}"
        return CheckResult(id_, rule.kind, False, rule.min_um, 0.0, "um", where, message)
    worst = _closest_pair(inners.geometries[i], shapely.boundary(outers.geometries[j]), limit)
    return _distance_result(rule, id_, what, worst)


def must_not_overlap(rule: Rule, id_: str, shapes: Shapes) -> CheckResult:
    """Two layers share no area."""
    a, b = rule.layers
    for layer in (a, b):
        if shapes[layer].empty:
            return _skipped(rule, id_, layer)
    overlap = common_area(shapes[a], shapes[b])
    if overlap is None:
        return CheckResult(id_, rule.kind, True, message=f"{a} and {b} do not overlap")
    where = box_um(overlap.bbox())
    return CheckResult(id_, rule.kind, False, None, None, "", where, f"expected no overlap of {a} and {b}, found one")


def common_area(a: LayerShapes, b: LayerShapes) -> kdb.Polygon | None:
    """Return one polygon of the intersection of two layers, or None."""
    i, j = a.tree.query(b.geometries, predicate="intersects")
    for k, m in sorted(zip(i.tolist(), j.tolist())):
        for polygon in (kdb.Region(b.polygons[k]) & kdb.Region(a.polygons[m])).each():
            return polygon
    return None


def must_touch_boundary(rule: Rule, id_: str, shapes: Shapes, flake: Flake) -> CheckResult:
    """Contacts reach the region from its edge, as edge contacts do.

    Every contact shape that meets the region must hold at least `EDGE_LENGTH` of the region's boundary (outer ring or
    holes) within `EDGE_REACH`, and there must be one. The paper names the rule and does not define it; a contact that
    lies wholly inside the flake is a top contact.
    """
    (layer,) = rule.layers
    required = EDGE_LENGTH * DBU_UM
    boundary = flake.region.edges()
    longest = None
    near = flake.bbox.enlarged(EDGE_REACH, EDGE_REACH)
    for polygon in shapes[layer].polygons:
        if not polygon.bbox().touches(near):
            continue
        grown = kdb.Region(polygon).sized(EDGE_REACH, 2)
        if (grown & flake.region).is_empty():
            continue
        length = boundary.inside_part(grown).length()
        if length < EDGE_LENGTH:
            return CheckResult(
                id_,
                rule.kind,
                False,
                required,
                length * DBU_UM,
                "um",
                box_um(polygon.bbox()),
                f"expected every shape of {layer} at {flake.name} to hold at least {required:g} um of its boundary, "
                f"found one with {length * DBU_UM:g} um",
            )
        longest = max(longest or 0.0, length * DBU_UM)
    if longest is None:
        message = f"expected {layer} at the boundary of {flake.name}, found none"
        return CheckResult(id_, rule.kind, False, required, 0.0, "um", box_um(flake.bbox), message)
    return CheckResult(id_, rule.kind, True, required, longest, "um", None, f"{layer} touches {flake.name}'s boundary")


PAIR_CHECKS: dict[str, Callable[[Rule, str, Shapes], CheckResult]] = {
    "min_width": min_width,
    "min_spacing": min_spacing,
    "min_separation": min_separation,
    "min_enclosure": min_enclosure,
    "must_not_overlap": must_not_overlap,
}
