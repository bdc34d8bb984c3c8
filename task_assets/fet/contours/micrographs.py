"""Contours from micrographs without masks: colour contrast against a flattened background.

Method, per image: (1) the background is the commonest colour, fitted by a quadratic surface per channel, so that
uneven illumination drops out; (2) contrast is the relative deviation of each channel from it; (3) pixels above a
noise-based threshold form components, split into darker and brighter parts where both are sizeable (a thin flake on a
thick crystal); (4) each component is cut again at 45 % of its own contrast, which moves its outline from the foot of
the blurred edge to the edge; (5) the outline is smoothed as a mask's and once more by 0.75 um; (6) doubtful
outlines are dropped by the rules of `doubt`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy import ndimage

from edagym.errors import TaskError
from edagym.task_assets.fet.contours.library import Contour
from edagym.task_assets.fet.contours.pipeline import (
    MIN_EXTENT_PX,
    MIN_PIXELS,
    Component,
    components,
    contour_of,
    open_image,
)
from edagym.task_assets.fet.contours.smoothing import HULL_SMOOTHING_UM

EXTRA_SMOOTHING_UM = 0.75
"""Third outline pass: a thresholded photograph has noisier edges than a drawn mask."""

OWN_CONTRAST_CUT = 0.45
"""Where a component's outline lies between background (0) and its own contrast (1)."""

MIN_CONTRAST = 0.045
"""Root-mean-square contrast that counts as an object: five to six times the noise of the blurred images."""

_BLUR_PX = 0.8
_NOISE_STEP = 0.012
_PAD = 8
_DISC2 = np.hypot(*np.mgrid[-2:3, -2:3]) <= 2.3
_DISC3 = np.hypot(*np.mgrid[-3:4, -3:4]) <= 3.2


def micrograph_contour(segment: Segment, path: Path, key: str) -> Contour | None:
    """Return the smoothed contour of a segment with its measures in the provenance, or None without an outline."""
    quality = segment.quality
    return contour_of(
        segment.component,
        path,
        key,
        "micrograph",
        {
            "method": "colour contrast",
            "thick": quality.thick,
            "contrast_rgb": list(quality.contrast_rgb),
            "sharpness": quality.sharpness,
            "free_rim": quality.free_rim,
        },
        (*HULL_SMOOTHING_UM, EXTRA_SMOOTHING_UM),
    )


def read_micrograph(path: Path) -> np.ndarray:
    """Return a micrograph as floats (rows, columns, 3); raises `TaskError`."""
    image = open_image(path)
    if image.mode != "RGB":
        raise TaskError(f"micrograph {path.name}: an RGB image expected", field="mode", value=image.mode)
    return np.asarray(image, dtype=np.float32)


def background(image: np.ndarray) -> np.ndarray:
    """Return the background (rows, columns, 3): a quadratic surface per channel through the commonest colour.

    Args:
        image: Float image (rows, columns, 3).
    """
    height, width = image.shape[:2]
    rows, cols = np.mgrid[0:height:4, 0:width:4]
    sample = image[::4, ::4].reshape(-1, 3)
    # The commonest colour in bins of 8 levels, then the mean around it.
    bins = (sample // 8).astype(np.int64) @ np.array([1024, 32, 1])
    values, counts = np.unique(bins, return_counts=True)
    mode = sample[bins == values[np.argmax(counts)]].mean(axis=0)
    x, y = (cols.ravel() / width * 2.0 - 1.0), (rows.ravel() / height * 2.0 - 1.0)
    terms = np.column_stack([np.ones_like(x), x, y, x * x, x * y, y * y])
    level = np.broadcast_to(mode, sample.shape)
    for tolerance in (0.12, 0.08, 0.05):
        near = (np.abs(sample - level) <= tolerance * level + 2.0).all(axis=1)
        fit, *_ = np.linalg.lstsq(terms[near], sample[near], rcond=None)
        level = terms @ fit
    y1, x1 = (np.arange(height) / height * 2.0 - 1.0)[:, None], (np.arange(width) / width * 2.0 - 1.0)[None, :]
    grids = (1.0, x1, y1, x1 * x1, x1 * y1, y1 * y1)
    surface = sum(fit[k] * np.broadcast_to(g, (height, width))[..., None] for k, g in enumerate(grids))
    return np.asarray(surface, dtype=np.float32)


def contrast(image: np.ndarray) -> np.ndarray:
    """Return the relative contrast (rows, columns, 3) against the fitted background, slightly blurred."""
    relative = image / background(image) - 1.0
    return ndimage.gaussian_filter(relative, (_BLUR_PX, _BLUR_PX, 0.0))


@dataclass(frozen=True, slots=True)
class Quality:
    """Measures of one segmented component, and the rules that drop doubtful ones.

    Attributes:
        contrast_rgb: Median relative contrast of the interior per channel.
        texture: Median step between neighbouring interior pixels beyond that of the image noise, over the component's
            contrast.
        edge_step: Median contrast step from 2 px inside to 3 px outside the outline, over the component's contrast.
        free_rim: Share of the surroundings (3 to 5 px outside) that is background.
        weak_edge: Share of the outline across which that step is under a fifth of the component's contrast.
        sharpness: Median over the outline of the steepest contrast slope within 2 px, over the component's contrast,
            per px: low for blurred dirt.
        second_piece: Second largest piece over the largest one when necks under 6 px are cut: 0 for one crystal, high
            for crystals that merely touch.
        solid_share: Share of the pixels that survives an opening by 3 px.
        n_holes: Holes that show background.
    """

    contrast_rgb: tuple[float, float, float]
    texture: float
    edge_step: float
    weak_edge: float
    sharpness: float
    free_rim: float
    second_piece: float
    solid_share: float
    n_holes: int

    @property
    def thick(self) -> bool:
        """Whether the component outshines the substrate in red and green, as only crystals of bulk thickness do.

        Every flake that the masks label (one to some ten layers) is darker than its substrate in both channels.
        """
        return self.contrast_rgb[0] + self.contrast_rgb[1] > 0.0


# Rules that drop doubtful outlines. The limits were set on the 31 micrographs of the project's real data, by looking at
# contact sheets sorted by each measure; they separate kinds of picture, not single contours.
MAX_TEXTURE = 0.045
EDGE_STEP = (0.25, 1.3)
MAX_WEAK_EDGE = 0.22
MIN_SHARPNESS = 0.26
MIN_FREE_RIM = 0.25
MAX_SECOND_PIECE = 0.25
MIN_SOLID_SHARE = 0.85
MAX_VERTICES = 30
OPAQUE = -0.80


def doubt(quality: Quality, contour: Contour) -> str | None:
    """Return the first rule that a micrograph contour breaks, or None for a good one.

    ``cluster``: several pieces joined by necks under 6 px (1.8 um), more than one hole, over 30 vertices in the end
    (ragged heaps of splinters), or over a sixth of the pixels in filaments. ``residue``: textured or opaque (black in
    all channels), as tape glue and dirt are. ``blurred``: no sharp edge, or no clear step across the outline as a whole
    or over more than a fifth of it.
    ``crowded``: under a quarter of the surroundings is bare substrate, so that the outline is mostly an inner step of
    a larger object.
    """
    if quality.second_piece > MAX_SECOND_PIECE or quality.n_holes > 1 or quality.solid_share < MIN_SOLID_SHARE:
        return "cluster"
    if contour.n_vertices > MAX_VERTICES:
        return "cluster"
    if quality.texture > MAX_TEXTURE or max(quality.contrast_rgb) < OPAQUE:
        return "residue"
    if quality.sharpness < MIN_SHARPNESS or quality.weak_edge > MAX_WEAK_EDGE:
        return "blurred"
    if not EDGE_STEP[0] <= quality.edge_step <= EDGE_STEP[1]:
        return "blurred"
    if quality.free_rim < MIN_FREE_RIM:
        return "crowded"
    return None


@dataclass(frozen=True, slots=True)
class Segment:
    """A segmented component with its measures."""

    component: Component
    quality: Quality


def segments(image: np.ndarray) -> list[Segment]:
    """Return the refined components of a micrograph that pass the mask pipeline's size filter, in raster order."""
    c = contrast(image)
    strength = np.sqrt((c * c).mean(axis=2))
    shown = strength > MIN_CONTRAST
    bright = c[..., 0] + c[..., 1] > 0.0
    found: list[Segment] = []
    taken = np.zeros(shown.shape, dtype=bool)
    for polarity in (~bright, bright):
        # The opening takes off the dark rims of bright crystals, which blur and focus draw one to three pixels wide.
        parts = ndimage.binary_opening(shown & polarity, structure=_DISC2)
        for part in components(parts):
            if part.area < MIN_PIXELS // 2 or part.extent < MIN_EXTENT_PX // 2:
                continue
            for piece in _refined(c, part, polarity, taken):
                taken[piece.rows, piece.cols] |= piece.pixels
                if piece.kept:
                    found.append(Segment(piece, _measure(c, strength, piece)))
    found.sort(key=lambda s: (s.component.rows.start, s.component.cols.start))
    return [Segment(replace(s.component, label=k), s.quality) for k, s in enumerate(found, start=1)]


def _refined(c: np.ndarray, part: Component, polarity: np.ndarray, taken: np.ndarray) -> Iterator[Component]:
    """Yield the pieces of a component after the cut at its own contrast, holes with content filled."""
    height, width = taken.shape
    rows = slice(max(part.rows.start - _PAD, 0), min(part.rows.stop + _PAD, height))
    cols = slice(max(part.cols.start - _PAD, 0), min(part.cols.stop + _PAD, width))
    local = c[rows, cols]
    pixels = np.zeros(local.shape[:2], dtype=bool)
    r0, c0 = part.rows.start - rows.start, part.cols.start - cols.start
    pixels[r0 : r0 + part.pixels.shape[0], c0 : c0 + part.pixels.shape[1]] = part.pixels
    near = ndimage.binary_dilation(pixels, structure=_DISC2) & ~taken[rows, cols]
    own = _own_contrast(local, pixels)
    along = local @ (own / float(own @ own))
    # Flakes of several thicknesses are cut for their thinner part: the lower fifth of the interior counts.
    core = _core(pixels)
    # Bright crystals get less room: their ghost images (reflections between lenses) would count as a thinner part.
    bright = own[0] + own[1] > 0.0
    level = float(np.clip(np.percentile(along[core], 20), 0.75 if bright else 0.4, 1.0))
    cut = (along >= OWN_CONTRAST_CUT * level) & near
    cut = ndimage.binary_opening(cut, structure=_DISC2)
    strength = np.sqrt((local * local).mean(axis=2))
    if bright:
        # The edge of a bright crystal lies in its dark rim, one pixel outside the half-height of the bright side.
        cut |= ndimage.binary_dilation(cut) & near & (along < OWN_CONTRAST_CUT * level) & (strength > MIN_CONTRAST)
    holes = ndimage.binary_fill_holes(cut) & ~cut
    labels, n = ndimage.label(holes)
    for k in range(1, n + 1):
        hole = labels == k
        if np.median(strength[hole]) > MIN_CONTRAST:
            cut |= hole
    for piece in components(cut):
        r = slice(piece.rows.start + rows.start, piece.rows.stop + rows.start)
        q = slice(piece.cols.start + cols.start, piece.cols.stop + cols.start)
        border = r.start <= 1 or q.start <= 1 or r.stop >= height - 1 or q.stop >= width - 1
        yield Component(part.label, r, q, piece.pixels, piece.area, border)


def _core(pixels: np.ndarray) -> np.ndarray:
    """Return the pixels at least 3 px from the outline, or the deepest ones of a narrow component."""
    depth = ndimage.distance_transform_edt(np.pad(pixels, 1))[1:-1, 1:-1]
    return depth >= min(3.0, 0.7 * depth.max())


def _own_contrast(c: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    return np.median(c[_core(pixels)], axis=0)


def _measure(c: np.ndarray, strength: np.ndarray, piece: Component) -> Quality:
    """Return the quality measures of a refined component."""
    rows = slice(piece.rows.start, piece.rows.stop)
    height, width = strength.shape
    rows = slice(max(piece.rows.start - _PAD, 0), min(piece.rows.stop + _PAD, height))
    cols = slice(max(piece.cols.start - _PAD, 0), min(piece.cols.stop + _PAD, width))
    local = c[rows, cols]
    pixels = np.zeros(local.shape[:2], dtype=bool)
    r0, c0 = piece.rows.start - rows.start, piece.cols.start - cols.start
    pixels[r0 : r0 + piece.pixels.shape[0], c0 : c0 + piece.pixels.shape[1]] = piece.pixels
    own = _own_contrast(local, pixels)
    size = float(np.sqrt(own @ own))
    filled = ndimage.binary_fill_holes(pixels)
    outside = ndimage.distance_transform_edt(~filled)
    inside = ndimage.distance_transform_edt(filled)
    core = _core(pixels)
    steps = np.linalg.norm(np.diff(local, axis=0), axis=2)[:, :-1], np.linalg.norm(np.diff(local, axis=1), axis=2)[:-1]
    texture = max(float(np.median(np.hypot(*steps)[core[:-1, :-1]])) - _NOISE_STEP, 0.0) / size
    along = local @ (own / size**2)
    inner, outer = (inside > 1.5) & (inside <= 2.6), (outside > 2.4) & (outside <= 3.6)
    # Nearest inner pixel of every outer one: the step is taken across the outline, place by place.
    _, (ri, ci) = ndimage.distance_transform_edt(~inner, return_indices=True)
    jumps = (along[ri, ci] - along)[outer]
    ring = (outside > 2.6) & (outside <= 5.0)
    slope = ndimage.maximum_filter(np.hypot(*np.gradient(along)), footprint=_DISC2)
    solid = ndimage.binary_opening(filled, structure=_DISC3)
    cores, n = ndimage.label(inside > 3.0)
    sizes = sorted((float((cores == k).sum()) for k in range(1, n + 1)), reverse=True)
    _, n_holes = ndimage.label(filled & ~pixels)
    return Quality(
        contrast_rgb=tuple(round(float(v), 3) for v in own),  # type: ignore[arg-type]
        texture=round(texture, 4),
        edge_step=round(float(np.median(jumps)), 3) if jumps.size else 0.0,
        weak_edge=round(float((jumps < 0.2).mean()), 3) if jumps.size else 1.0,
        sharpness=round(float(np.median(slope[(inside > 0.0) & (inside <= 1.0)])), 3),
        free_rim=round(float((strength[rows, cols][ring] < 1.5 * MIN_CONTRAST).mean()), 3),
        second_piece=round(sizes[1] / sizes[0], 3) if len(sizes) > 1 else 0.0,
        solid_share=round(float(solid.sum() / filled.sum()), 3),
        n_holes=n_holes,
    )
