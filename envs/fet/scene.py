"""Scenes: contours turned and placed on the plane as the paper's Appendix F does, with its retry limits.

One flake gets a uniform random rotation. Several get positions of a Thomas process in a window that holds that many on
average. All flakes keep a gap of 0.5 um; the finished scene is moved to a 5 um margin at its lower left. Lengths are
micrometres; finished coordinates lie on the 1 nm grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import shapely
from shapely import Polygon, affinity

from edagym.errors import ToolError
from edagym.task_assets.fet.contours import Contour
from edagym.task_assets.fet.grid import DBU_PER_UM, ring_to_um, to_dbu
from edagym.task_assets.fet.task import Ring
from edagym.task_assets.fet.thomas import TABLE_13, draw_component, simulate

GAP_UM = 0.5
MARGIN_UM = 5.0
MAX_CENTROID_DRAWS = 500
MAX_PROPOSALS = 25
MAX_PATTERNS = 20

# Where a scene gives way to keep the gap it moves by this much more than needed, so that rounding cannot undo it.
_SLACK_UM = 0.01
_MAX_RELAXATIONS = 2000

Placed = tuple[Ring, tuple[Ring, ...]]


def place(
    rng: np.random.Generator,
    contours: Sequence[Contour],
    *,
    tight: float | None = None,
    pairs: bool = False,
    width_um: tuple[float, float] | None = None,
) -> tuple[Placed, ...]:
    """Return the outer ring and hole rings of every contour in its place.

    Args:
        rng: Source of randomness.
        contours: One per flake, in region order.
        tight: Factor of the tight-window transform: distances of flake centres shrink by it, as far as the gap allows.
        pairs: Whether consecutive flakes belong together (complementary circuits): positions are dealt so that the two
            of a pair are neighbours, and of several patterns the one with the closest pairs is kept.
        width_um: Preferred range of the scene's longer side; of several patterns the closest is kept.

    Raises:
        ToolError: If no pattern within the retry limits holds all flakes.
    """
    bodies = [_centred(c) for c in contours]
    if len(bodies) == 1:
        return _finished([_turned(rng, bodies[0])])
    best: tuple[float, list[Polygon]] | None = None
    for _ in range(MAX_PATTERNS):
        scene = _pattern(rng, bodies, pairs)
        if scene is None:
            continue
        if tight is not None:
            scene = _tightened(scene, tight)
            if scene is None:
                continue
        penalty = _penalty(scene, pairs, width_um)
        if best is None or penalty < best[0]:
            best = penalty, scene
        if penalty == 0.0:
            break
    if best is None:
        raise ToolError("no pattern holds all flakes", field="flakes", value=len(contours), allowed="other contours")
    return _finished(best[1])


def _centred(contour: Contour) -> Polygon:
    body = Polygon(contour.hull, contour.holes)
    centre = Polygon(contour.hull).centroid
    return affinity.translate(body, -centre.x, -centre.y)


def _turned(rng: np.random.Generator, body: Polygon) -> Polygon:
    return affinity.rotate(body, rng.uniform(0.0, 360.0), origin=(0.0, 0.0))


def _pattern(rng: np.random.Generator, bodies: Sequence[Polygon], pairs: bool) -> list[Polygon] | None:
    """Return one placement of all flakes in a Thomas pattern, or None if the retry limits are exhausted."""
    parameters, _ = TABLE_13[draw_component(rng)]
    n = len(bodies)
    window = parameters.window(n)
    for _ in range(MAX_CENTROID_DRAWS):
        pattern = simulate(rng, parameters, window)
        if len(pattern.points) >= n:
            break
    else:
        return None
    chosen = rng.choice(len(pattern.points), n, replace=False)
    points, parents = pattern.points[chosen], pattern.parents[chosen]
    if pairs:
        order = _paired(points)
        points, parents = points[order], parents[order]
    frame = shapely.box(0.0, 0.0, *window)
    placed: list[Polygon] = []
    for body, point, parent in zip(bodies, points, parents):
        for proposal in range(MAX_PROPOSALS + 1):
            if proposal:
                point = parent + rng.normal(0.0, parameters.sigma, 2)
            flake = affinity.translate(_turned(rng, body), *point)
            if frame.covers(flake) and all(flake.distance(other) >= GAP_UM + _SLACK_UM for other in placed):
                placed.append(flake)
                break
        else:
            return None
    return placed


def _paired(points: np.ndarray) -> list[int]:
    """Return an order in which consecutive points, two by two, are close: the closest free pair first."""
    free = set(range(len(points)))
    distance = np.hypot(*(points[:, None] - points[None]).T)
    order: list[int] = []
    while free:
        i, j = min(((i, j) for i in free for j in free if i < j), key=lambda p: (distance[p], p))
        order += [i, j]
        free -= {i, j}
    return order


def _penalty(scene: Sequence[Polygon], pairs: bool, width_um: tuple[float, float] | None) -> float:
    """Return how far a scene is from what is preferred; 0 is as wanted."""
    penalty = 0.0
    if width_um is not None:
        x0, y0, x1, y1 = shapely.total_bounds(scene)
        width = max(x1 - x0, y1 - y0)
        penalty += max(0.0, math.log(width_um[0] / width), math.log(width / width_um[1]))
    if pairs:
        reach = max(a.distance(b) for a, b in zip(scene[::2], scene[1::2]))
        penalty += max(0.0, reach / 25.0 - 1.0)
    return penalty


def _tightened(scene: Sequence[Polygon], factor: float) -> list[Polygon] | None:
    """Shrink the distances of flake centres by `factor`, then push flakes apart until every gap is kept."""
    centres = np.array([Polygon(p.exterior).centroid.coords[0] for p in scene])
    middle = centres.mean(axis=0)
    moved = [affinity.translate(p, *((factor - 1.0) * (c - middle))) for p, c in zip(scene, centres)]
    where = middle + factor * (centres - middle)
    for _ in range(_MAX_RELAXATIONS):
        settled = True
        for i in range(len(moved)):
            for j in range(i):
                short = GAP_UM + _SLACK_UM - moved[i].distance(moved[j])
                if short <= 0.0:
                    continue
                settled = False
                line = where[i] - where[j]
                length = float(np.hypot(*line))
                step = (line / length if length else np.array([1.0, 0.0])) * (0.5 * short + _SLACK_UM)
                for k, shift in ((i, step), (j, -step)):
                    moved[k] = affinity.translate(moved[k], *shift)
                    where[k] = where[k] + shift
        if settled:
            return moved
    return None


def _finished(scene: Sequence[Polygon]) -> tuple[Placed, ...]:
    """Snap a scene to the 1 nm grid and move it to the margin."""
    rings = [[_snapped(r.coords) for r in (p.exterior, *p.interiors)] for p in scene]
    every = [point for flake in rings for point in flake[0]]
    margin = to_dbu(MARGIN_UM)
    dx, dy = (margin - min(p[axis] for p in every) for axis in (0, 1))
    moved = [[tuple((x + dx, y + dy) for x, y in ring) for ring in flake] for flake in rings]
    bodies = [Polygon(flake[0], flake[1:]) for flake in moved]
    limit = GAP_UM * DBU_PER_UM
    if not all(b.is_valid for b in bodies) or any(
        a.distance(b) < limit for i, a in enumerate(bodies) for b in bodies[:i]
    ):
        raise ToolError("rounding broke a scene", field="flakes", value=len(scene), allowed="another rotation")
    return tuple((ring_to_um(flake[0]), tuple(ring_to_um(r) for r in flake[1:])) for flake in moved)


def _snapped(coords: Sequence[tuple[float, float]]) -> tuple[tuple[int, int], ...]:
    return tuple((to_dbu(x), to_dbu(y)) for x, y in list(coords)[:-1])
