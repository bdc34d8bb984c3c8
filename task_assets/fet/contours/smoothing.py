"""From a component's pixels to a smoothed outline on the 1 nm grid (KLayout)."""

from __future__ import annotations

import klayout.db as kdb
import numpy as np
from scipy import ndimage

from edagym.task_assets.fet.grid import IntRing, to_dbu

SCALE_UM = 0.293
"""Nominal um per pixel of a 20x micrograph (paper, Appendix F, which calls it uncertain)."""

PIXEL_DBU = to_dbu(SCALE_UM)
HULL_SMOOTHING_UM = (0.44, 0.293)
"""Tolerances of the two outline passes: 1.5 and 1.0 pixels (paper, Appendix F)."""

HOLE_SMOOTHING_UM = 0.15
"""Tolerance of a hole ring (paper, Appendix F)."""

MIN_HOLE_UM2 = 0.5
"""Smaller holes (under six pixels) are annotation or threshold noise and are filled."""


def outline(
    pixels: np.ndarray, hull_smoothing_um: tuple[float, ...] = HULL_SMOOTHING_UM
) -> tuple[IntRing, tuple[IntRing, ...]] | None:
    """Return the smoothed outline of one component.

    Args:
        pixels: Boolean image (rows, columns) that holds nothing but the component.
        hull_smoothing_um: Tolerances of the successive `Region.smoothed` passes on the outer ring, um.

    Returns:
        Outer ring and hole rings in database units (1 nm), y up: image row r, column c covers
        [c, c + 1] x [-(r + 1), -r] pixels, so that the outline looks as the image does. None if smoothing
        leaves nothing of at least four vertices.
    """
    # Masks leave an unlabelled seam of one pixel between the fragments of a flake, bridged at a few corners only;
    # closing by one pixel seals it. Without that, minimum coherence below would cut the flake into its fragments.
    sealed = ndimage.binary_closing(np.pad(pixels, 2), structure=np.ones((3, 3), dtype=bool))[2:-2, 2:-2]
    body = max(_region(sealed).merged().each(), key=lambda p: p.area(), default=None)
    if body is None:
        return None
    hull = kdb.Region(kdb.Polygon(list(body.each_point_hull())))
    for tolerance in hull_smoothing_um:
        hull = _largest(hull.smoothed(to_dbu(tolerance)))
    if hull.is_empty():
        return None
    holes = kdb.Region()
    for i in range(body.holes()):
        hole = kdb.Region(kdb.Polygon(list(body.each_point_hole(i))))
        if hole.area() >= MIN_HOLE_UM2 * 1e6:
            holes += hole.smoothed(to_dbu(HOLE_SMOOTHING_UM))
    # A hole that smoothing has brought to the rim opens it; the difference keeps such outlines valid.
    final = _largest(hull - holes)
    for polygon in final.each():
        if polygon.num_points_hull() >= 4:
            return (
                _points(polygon.each_point_hull()),
                tuple(_points(polygon.each_point_hole(i)) for i in range(polygon.holes())),
            )
    return None


def _region(pixels: np.ndarray) -> kdb.Region:
    """Return the pixels as one box per run of each row."""
    region = kdb.Region()
    padded = np.zeros((pixels.shape[0], pixels.shape[1] + 2), dtype=np.int8)
    padded[:, 1:-1] = pixels
    edges = np.diff(padded, axis=1)
    rows, starts = np.nonzero(edges == 1)
    _, ends = np.nonzero(edges == -1)
    d = PIXEL_DBU
    for r, a, b in zip(rows.tolist(), starts.tolist(), ends.tolist()):
        region.insert(kdb.Box(a * d, -(r + 1) * d, b * d, -r * d))
    region.min_coherence = True
    return region


def _largest(region: kdb.Region) -> kdb.Region:
    """Return the largest polygon of a region, as KLayout merges it with minimum coherence."""
    region.min_coherence = True
    best = max(region.merged().each(), key=lambda p: p.area(), default=None)
    return kdb.Region(best) if best is not None else kdb.Region()


def _points(points: object) -> IntRing:
    return tuple((p.x, p.y) for p in points)  # type: ignore[attr-defined]
