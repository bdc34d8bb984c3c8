"""Procedural flakes: cleavage edges along crystal directions, steps, tears, lobes, rough edges and holes.

The model works in micrometres. A draft is a convex body (or, for strongly concave flakes, a few joined strips) cut
along directions of a hexagonal lattice; operations then lower its solidity to a drawn value, edges are roughened to a
drawn vertex count, and the result is scaled, turned and snapped to 1 nm. Drafts that miss the tier, the area, the
extent or a device-sized neck are thrown away, so that what is returned always holds all of them. Distributions follow
the placed flakes of the paper (Section 4, Figure 2).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable

import numpy as np
import shapely
from shapely import Polygon, affinity

from edagym.errors import TaskError, ToolError
from edagym.task_assets.fet.contours.library import TIER_G1, TIER_G2, TIERS, Contour, normalized, tier_of
from edagym.task_assets.fet.grid import IntRing, ring_to_dbu, ring_to_um

AREA_UM2 = (26.5, 796.7)
"""Published area range of placed flakes, um2 (Section 4)."""

HOLED_AREA_UM2 = (60.0, 796.7)
"""Area range of flakes with holes: the paper's hole records start at 60 um2 (Appendix F)."""

MIN_EXTENT_UM = 17.58
"""60 pixels, the extent below which the paper drops a flake (Appendix F); here of the longest chord, so that the random
rotation does not matter."""

SMALL_EXTENT_UM = 8.0
"""Extent asked of a flake whose area range lies under the published one."""

_MEDIAN_AREA_UM2 = 150.6
_LOG_AREA_SIGMA = 0.72
_MEDIAN_VERTICES = {"G1": 8.0, "G2": 10.8, "G3": 15.0}
_LOG_VERTICES_SIGMA = 0.42
_DRAFTS_PER_AREA = 40
_MAX_DRAFTS = 400


def procedural_contour(
    rng: np.random.Generator,
    *,
    tier: str,
    n_holes: int = 0,
    area_um2: tuple[float, float] | None = None,
    max_vertices: int = 51,
) -> Contour:
    """Draw one flake.

    Args:
        rng: The only source of randomness; equal generators give equal contours.
        tier: Shape tier that the flake must have: ``"G1"``, ``"G2"`` or ``"G3"``.
        n_holes: Interior holes, 0 to 4.
        area_um2: Range of the outer area, um2 (default: the published range; 60 to 796.7 with holes).
        max_vertices: Upper bound of outer vertices, at least 8 (published maximum: 51).

    Returns:
        A contour with ``source="procedural"`` and an id made from its geometry. Its hull is a simple polygon of 4 to
        `max_vertices` vertices; holes lie inside with walls of at least 1 um, to the rim and to each other.

    Raises:
        TaskError: If an argument is out of range.
        ToolError: If no draft fits (an area range too narrow for the holes, say).
    """
    if tier not in TIERS:
        raise TaskError("unknown shape tier", field="tier", value=tier, allowed=TIERS)
    if not 0 <= n_holes <= 4:
        raise TaskError("hole count out of range", field="n_holes", value=n_holes, allowed="0 .. 4")
    if max_vertices < 8:
        raise TaskError("too few vertices for a flake", field="max_vertices", value=max_vertices, allowed=">= 8")
    low, high = area_um2 or (HOLED_AREA_UM2 if n_holes else AREA_UM2)
    if not 10.0 <= low < high <= 5000.0:
        raise TaskError("area range", field="area_um2", value=(low, high), allowed="10 <= low < high <= 5000 um2")
    # Mitred buffers of drafts with needles raise the "invalid" flag inside GEOS; the results are checked anyway.
    with np.errstate(invalid="ignore"):
        return _first_fit(rng, tier, n_holes, low, high, max_vertices)


def _first_fit(
    rng: np.random.Generator, tier: str, n_holes: int, low: float, high: float, max_vertices: int
) -> Contour:
    area = 0.0
    for draft in range(_MAX_DRAFTS):
        # An area keeps its turn for many drafts: were it drawn anew each time, small flakes, whose drafts fail most
        # often (extent, necks), would be rare.
        if draft % _DRAFTS_PER_AREA == 0:
            area = _draw_area(rng, low, high)
        ring = _draw_hull(rng, tier, area, max_vertices)
        if ring is None or not low <= Polygon(ring_to_um(ring)).area <= high:
            continue
        holes = _draw_holes(rng, Polygon(ring_to_um(ring)), n_holes)
        if holes is None:
            continue
        hull, inner = normalized(ring, holes)
        digest = hashlib.sha256(repr((hull, inner)).encode()).hexdigest()[:12]
        return Contour(
            id=f"procedural:{digest}",
            hull=hull,
            holes=inner,
            source="procedural",
            provenance={"method": "lattice flake model 1", "tier": tier, "thick": False},
        )
    raise ToolError(
        "the flake model found no flake", field="area_um2", value=(tier, n_holes, low, high), allowed="a wider range"
    )


# -- drawn quantities ----------------------------------------------------------------------------------------------


def _draw_area(rng: np.random.Generator, low: float, high: float) -> float:
    """Log-normal around the published median where the range allows, else log-uniform in the range."""
    for _ in range(8):
        area = _MEDIAN_AREA_UM2 * math.exp(rng.normal(0.0, _LOG_AREA_SIGMA))
        if low <= area <= high:
            return area
    # A margin of 0.2 % keeps snapping and scaling inside the range.
    return math.exp(rng.uniform(math.log(low * 1.002), math.log(high * 0.998)))


def _draw_solidity(rng: np.random.Generator, tier: str) -> float:
    u = rng.random()
    if tier == "G1":
        return TIER_G1 + 0.075 * u
    if tier == "G2":
        return TIER_G2 + 0.15 * u**0.5
    return 0.75 - 0.40 * u**2.6


def _direction(rng: np.random.Generator) -> float:
    """An edge direction, rad: mostly a multiple of 60 degrees, else of 30, with a few degrees of jitter."""
    step = 60.0 if rng.random() < 0.7 else 30.0
    return math.radians(step * rng.integers(0, round(360 / step)) + rng.normal(0.0, 2.5))


# -- the outline ---------------------------------------------------------------------------------------------------


def _draw_hull(rng: np.random.Generator, tier: str, area: float, max_vertices: int) -> IntRing | None:
    """Return an outer ring in database units, or None if this draft does not fit."""
    extent = MIN_EXTENT_UM if area >= AREA_UM2[0] else SMALL_EXTENT_UM
    target = _draw_solidity(rng, tier)
    body = _strips(rng, area) if tier == "G3" and rng.random() < 0.55 else _convex_body(rng, area, extent, target)
    if body is None:
        return None
    body = _carve(rng, body, tier, target)
    if body is None:
        return None
    wanted = _MEDIAN_VERTICES[tier] * math.exp(rng.normal(0.0, _LOG_VERTICES_SIGMA))
    body = _cleaned(_stretched(_scaled(body, area), extent), area)
    if body is None:
        return None
    body = _roughen(rng, body, min(round(wanted), max_vertices))
    body = affinity.rotate(_scaled(body, area), rng.uniform(0.0, 360.0), origin=(0.0, 0.0))
    ring = _snapped(body)
    if not 4 <= len(ring) <= max_vertices:
        return None
    final = Polygon(ring_to_um(ring))
    if not final.is_valid or tier_of(_solidity(final)) != tier:
        return None
    if _longest(final)[0] < extent or not _device_sized(final):
        return None
    return ring


def _convex_body(rng: np.random.Generator, area: float, extent: float, solidity: float) -> Polygon | None:
    """Return a convex polygon with edges along lattice directions, elongated enough to reach the extent."""
    # An ellipse of this aspect ratio and of the hull's area is about `extent` long.
    least = extent**2 * math.pi / 4.0 / (area / solidity)
    aspect = max(1.0, least) * math.exp(abs(rng.normal(0.0, 0.35)))
    if aspect > 14.0:
        return None
    a, b = math.sqrt(aspect), 1.0 / math.sqrt(aspect)
    axis = _direction(rng)
    normals = [math.radians(60.0 * k + rng.normal(0.0, 2.5)) + math.pi / 6.0 for k in range(6)]
    normals += [_direction(rng) for _ in range(rng.integers(0, 4))]
    normals += [axis + k * math.pi / 2.0 + rng.normal(0.0, 0.04) for k in range(4)]
    body = shapely.box(-9.0, -9.0, 9.0, 9.0)
    for angle in normals:
        # Support of the ellipse in this direction, varied from cut to cut: cleavage is not symmetric.
        u = angle - axis
        reach = math.hypot(a * math.cos(u), b * math.sin(u)) * rng.uniform(0.78, 1.25)
        body = body & _half_plane(angle, reach)
    return body if isinstance(body, Polygon) and not body.is_empty else None


def _half_plane(angle: float, reach: float) -> Polygon:
    c, s = math.cos(angle), math.sin(angle)
    big = 40.0
    corners = [(reach, -big), (reach, big), (-big, big), (-big, -big)]
    return Polygon([(x * c - y * s, x * s + y * c) for x, y in corners])


def _strips(rng: np.random.Generator, area: float) -> Polygon | None:
    """Return two to four ribbons joined at their ends or flanks: L, T, Y, Z and U shaped flakes."""
    n = int(rng.choice([2, 3, 4], p=[0.5, 0.38, 0.12]))
    # Relative length of an arm; small flakes need slender arms to reach the extent.
    slender = rng.uniform(2.2, 3.6) * max(1.0, (90.0 / area) ** 0.3)
    at, angle = (0.0, 0.0), _direction(rng)
    pieces: list[Polygon] = []
    for _ in range(n):
        length, width = slender * rng.uniform(0.7, 1.3), rng.uniform(0.8, 1.4)
        c, s = math.cos(angle), math.sin(angle)
        # The ends are cut along lattice directions too (shear by up to tan 30 degrees).
        shear0, shear1 = rng.uniform(-0.58, 0.58, 2) * width
        taper = rng.uniform(0.7, 1.15)
        local = [
            (-0.5 * width - shear0, -0.5 * width),
            (length + shear1, -0.5 * width * taper),
            (length - shear1, 0.5 * width * taper),
            (-0.5 * width + shear0, 0.5 * width),
        ]
        pieces.append(Polygon([(at[0] + x * c - y * s, at[1] + x * s + y * c) for x, y in local]))
        if rng.random() < 0.6:
            at = (at[0] + length * c, at[1] + length * s)
        else:
            part = length * rng.uniform(0.2, 0.8)
            at = (at[0] + part * c, at[1] + part * s)
        angle += math.radians(float(rng.choice([60.0, 90.0, 120.0])) + rng.normal(0.0, 3.0)) * rng.choice([-1, 1])
    return _body(shapely.union_all(pieces))


def _body(shape: shapely.Geometry) -> Polygon | None:
    """Return the largest polygon of a shape with its holes filled and its slivers simplified away."""
    parts = [p for p in getattr(shape, "geoms", [shape]) if isinstance(p, Polygon)]
    if not parts:
        return None
    best = Polygon(max(parts, key=lambda p: p.area).exterior)
    best = best.simplify(0.01 * math.sqrt(best.area))
    return best if isinstance(best, Polygon) and best.is_valid and not best.is_empty else None


def _carve(rng: np.random.Generator, body: Polygon, tier: str, target: float) -> Polygon | None:
    """Lower the solidity to about `target` by steps, tears and lobes; None if the tier is missed."""
    operations: tuple[Callable[..., shapely.Geometry], ...] = (_step, _tear, _lobe)
    weights = {"G1": (0.6, 0.3, 0.1), "G2": (0.4, 0.3, 0.3), "G3": (0.25, 0.35, 0.4)}[tier]
    floor = {"G1": TIER_G1, "G2": TIER_G2, "G3": 0.31}[tier]
    solidity = _solidity(body)
    for _ in range(16):
        if solidity <= target + 0.012:
            break
        hull_area = body.area / solidity
        loss = (solidity - target) * hull_area * rng.uniform(0.45, 1.0)
        operation = operations[rng.choice(3, p=weights)]
        tried = _body(operation(rng, body, loss))
        if tried is None:
            continue
        value = _solidity(tried)
        if floor <= value < solidity and tried.area > 0.5 * body.area:
            body, solidity = tried, value
    return body if tier_of(solidity) == tier else None


def _edge(rng: np.random.Generator, body: Polygon) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return a boundary edge drawn by length: its start, unit direction, inward normal and length."""
    xy = np.asarray(shapely.geometry.polygon.orient(body).exterior.coords)
    vectors = np.diff(xy, axis=0)
    lengths = np.hypot(vectors[:, 0], vectors[:, 1])
    k = int(rng.choice(len(lengths), p=lengths / lengths.sum()))
    along = vectors[k] / lengths[k]
    return xy[k], along, np.array([-along[1], along[0]]), float(lengths[k])


def _step(rng: np.random.Generator, body: Polygon, loss: float) -> shapely.Geometry:
    """Cut a parallelogram off one end of an edge: a cleavage step."""
    start, along, inward, length = _edge(rng, body)
    depth = math.sqrt(loss) * rng.uniform(0.5, 1.1)
    width = min(loss / depth, 0.8 * length)
    if rng.random() < 0.5:
        start, along = start + along * length, -along
    slant = math.radians(float(rng.choice([60.0, 90.0, 120.0])) + rng.normal(0.0, 3.0))
    side = along * math.cos(slant) + inward * math.sin(slant)
    out = -inward * 0.2 - along * 2.0 * depth
    a = start + along * width
    b = a + side * depth
    return body - Polygon([a - inward * 0.2, b, b + out + inward * 0.2, a + out])


def _tear(rng: np.random.Generator, body: Polygon, loss: float) -> shapely.Geometry:
    """Cut a wedge or a blunt bite into an edge."""
    start, along, inward, length = _edge(rng, body)
    ratio = rng.uniform(0.7, 2.2)
    width = min(math.sqrt(2.0 * loss / ratio), 0.7 * length)
    depth = ratio * width
    middle = start + along * rng.uniform(0.2, 0.8) * length
    lean = math.radians(float(rng.choice([-30.0, 0.0, 30.0])) + rng.normal(0.0, 4.0))
    into = inward * math.cos(lean) + along * math.sin(lean)
    blunt = rng.choice([0.0, 0.35, 0.7]) * 0.5 * width
    a, b, tip = middle - along * 0.5 * width, middle + along * 0.5 * width, middle + into * depth
    out = inward * 0.3
    return body - Polygon([a - out, a, tip - along * blunt, tip + along * (blunt + 1e-3), b, b - out])


def _lobe(rng: np.random.Generator, body: Polygon, loss: float) -> shapely.Geometry:
    """Add a tapered strip to an edge; the hull grows faster than the area."""
    start, along, inward, length = _edge(rng, body)
    width = min(max(0.35 * math.sqrt(body.area) * rng.uniform(0.6, 1.4), 0.2), 0.6 * length)
    reach = min(1.6 * loss / max(length, 1e-6), 3.5 * width)
    middle = start + along * rng.uniform(0.25, 0.75) * length
    lean = math.radians(float(rng.choice([-30.0, 0.0, 30.0])) + rng.normal(0.0, 4.0))
    outward = -inward * math.cos(lean) + along * math.sin(lean)
    taper = rng.uniform(0.5, 1.0)
    root = inward * 0.1
    a, b, tip = middle - along * 0.5 * width, middle + along * 0.5 * width, middle + outward * reach
    return body | Polygon(
        [a + root, a, tip - along * 0.5 * width * taper, tip + along * 0.5 * width * taper, b, b + root]
    )


def _longest(body: Polygon) -> tuple[float, np.ndarray]:
    """Return the greatest distance of two vertices and the unit vector along it."""
    xy = np.asarray(body.exterior.coords)[:-1]
    vectors = xy[:, None] - xy[None]
    squared = (vectors**2).sum(axis=2)
    vector = vectors.reshape(-1, 2)[int(np.argmax(squared))]
    length = math.hypot(*vector)
    return length, vector / length


def _stretched(body: Polygon, extent: float) -> Polygon:
    """Stretch a draft that is a little short, at constant area; being affine, this leaves its solidity alone."""
    length, (c, s) = _longest(body)
    factor = min(max(1.04 * extent / length, 1.0), 1.5)
    if factor == 1.0:
        return body
    a, b = factor, 1.0 / factor
    return affinity.affine_transform(
        body, [a * c * c + b * s * s, (a - b) * c * s, (a - b) * c * s, a * s * s + b * c * c, 0.0, 0.0]
    )


def _cleaned(body: Polygon, area: float) -> Polygon | None:
    """Remove needles under 0.7 um and slits under 0.5 um (less on small flakes), too fine for a micrograph."""
    r = min(0.35, 0.04 * math.sqrt(area))
    opened = body.buffer(-r, join_style="mitre").buffer(1.7 * r, join_style="mitre", mitre_limit=3.0)
    return _body(opened.buffer(-0.7 * r, join_style="mitre", mitre_limit=3.0))


def _roughen(rng: np.random.Generator, body: Polygon, wanted: int) -> Polygon:
    """Simplify or break edges until the ring has about `wanted` vertices; offsets are of one to two pixels."""
    tolerance = 0.15
    while len(body.exterior.coords) - 1 > wanted and tolerance < 1.0:
        simpler = body.simplify(tolerance)
        if not isinstance(simpler, Polygon) or not simpler.is_valid or simpler.is_empty:
            break
        body = simpler
        tolerance += 0.15
    ring = [np.asarray(p) for p in body.exterior.coords[:-1]]
    while len(ring) < wanted:
        closed = np.asarray([*ring, ring[0]])
        vectors = np.diff(closed, axis=0)
        lengths = np.hypot(vectors[:, 0], vectors[:, 1])
        if lengths.max() < 1.6:
            break
        k = int(rng.choice(len(lengths), p=lengths**1.5 / (lengths**1.5).sum()))
        normal = np.array([-vectors[k][1], vectors[k][0]]) / lengths[k]
        offset = min(abs(rng.normal(0.0, 0.28)) + 0.12, 0.12 * lengths[k]) * rng.choice([-1.0, 1.0])
        ring.insert(k + 1, ring[k] + vectors[k] * rng.uniform(0.25, 0.75) + normal * offset)
    return Polygon(ring)


# -- finish --------------------------------------------------------------------------------------------------------


def _scaled(body: Polygon, area: float) -> Polygon:
    factor = math.sqrt(area / body.area)
    return affinity.scale(body, factor, factor, origin=(0.0, 0.0))


def _solidity(body: Polygon) -> float:
    return round(body.area / body.convex_hull.area, 4)


def _snapped(body: Polygon) -> IntRing:
    ring = ring_to_dbu(body.exterior.coords[:-1])
    return tuple(p for p, q in zip(ring, ring[1:] + ring[:1]) if p != q)


def _device_sized(body: Polygon) -> bool:
    """Whether the flake stays in one piece and keeps a body when its rim is peeled off by 0.4 um (small flakes: less).

    Necks under 0.8 um leave no room for a device and, in real flakes, are where a sheet comes apart. The half-way peel
    catches a thin-necked appendage that the full one would consume.
    """
    depth = min(0.4, 0.055 * math.sqrt(body.area))
    core = body.buffer(-depth, join_style="mitre")
    if not isinstance(core, Polygon) or core.area <= 0.25 * body.area:
        return False
    return isinstance(body.buffer(-0.5 * depth, join_style="mitre"), Polygon)


# -- holes ---------------------------------------------------------------------------------------------------------

_WALL_UM = 1.1


def _draw_holes(rng: np.random.Generator, body: Polygon, n: int) -> list[IntRing] | None:
    """Return `n` hole rings in database units with walls of at least 1 um, or None if they do not fit."""
    holes: list[IntRing] = []
    room: shapely.Geometry = body
    for _ in range(n):
        radius = rng.uniform(0.8, 2.4)
        free = room.buffer(-(radius + _WALL_UM))
        if free.is_empty:
            radius = 0.75
            free = room.buffer(-(radius + _WALL_UM))
            if free.is_empty:
                return None
        centre = _point_in(rng, free)
        if centre is None:
            return None
        x, y = centre
        k = int(rng.integers(5, 9))
        angles = (np.arange(k) + rng.uniform(-0.3, 0.3, k)) * (2.0 * math.pi / k) + rng.uniform(0.0, 2.0 * math.pi)
        radii = radius * rng.uniform(0.72, 1.0, k)
        ring = ring_to_dbu((x + r * math.cos(t), y + r * math.sin(t)) for r, t in zip(radii, angles))
        holes.append(ring)
        room = room.difference(Polygon(ring_to_um(ring)))
    return holes


def _point_in(rng: np.random.Generator, area: shapely.Geometry) -> tuple[float, float] | None:
    x0, y0, x1, y1 = area.bounds
    points = np.column_stack([rng.uniform(x0, x1, 64), rng.uniform(y0, y1, 64)])
    inside = np.flatnonzero(shapely.contains_xy(area, points))
    return tuple(points[inside[0]]) if inside.size else None  # type: ignore[return-value]
