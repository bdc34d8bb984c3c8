"""Contours from instance masks: label, filter, outline (paper, Appendix F)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError
from scipy import ndimage
from shapely import Polygon
from shapely.affinity import translate

from edagym.errors import TaskError
from edagym.task_assets.fet.contours.library import Contour, normalized
from edagym.task_assets.fet.contours.smoothing import HULL_SMOOTHING_UM, PIXEL_DBU, SCALE_UM, outline

MIN_PIXELS = 300
MIN_EXTENT_PX = 60
MAX_AREA_UM2 = 800.0
EIGHT = np.ones((3, 3), dtype=bool)


@dataclass(frozen=True)
class Component:
    """One connected component of an image.

    Attributes:
        label: Its number in raster order, from 1.
        rows: Row slice of its bounding box.
        cols: Column slice of its bounding box.
        pixels: Boolean image of the bounding box that holds nothing else.
        area: Pixels.
        border: Whether it touches the image border.
    """

    label: int
    rows: slice
    cols: slice
    pixels: np.ndarray
    area: int
    border: bool

    @property
    def extent(self) -> int:
        """Larger side of the bounding box, pixels."""
        return max(self.pixels.shape)

    @property
    def kept(self) -> bool:
        """Whether it is a flake by the paper's filter: off the border, 300 pixels, 60 pixels of extent."""
        return not self.border and self.area >= MIN_PIXELS and self.extent >= MIN_EXTENT_PX


def components(mask: np.ndarray) -> Iterator[Component]:
    """Yield the 8-connected components of the non-zero pixels of `mask`, in raster order."""
    labels, n = ndimage.label(mask != 0, structure=EIGHT)
    height, width = mask.shape
    for k, (rows, cols) in enumerate(ndimage.find_objects(labels, n), start=1):
        pixels = labels[rows, cols] == k
        border = rows.start == 0 or cols.start == 0 or rows.stop == height or cols.stop == width
        yield Component(k, rows, cols, pixels, int(pixels.sum()), border)


def read_mask(path: Path) -> np.ndarray:
    """Return an instance mask as an integer image (rows, columns), 0 = background.

    Raises:
        TaskError: If the file cannot be read or is no single-channel image.
    """
    mask = np.asarray(open_image(path))
    if mask.ndim != 2:
        raise TaskError(f"mask {path.name}: one channel expected", field="shape", value=mask.shape)
    return mask


def open_image(path: Path) -> Image.Image:
    """Return a loaded image; raises `TaskError` naming the file."""
    try:
        with Image.open(path) as image:
            image.load()
            return image
    except (OSError, UnidentifiedImageError) as e:
        raise TaskError(f"cannot read image {path.name}: {e}", field="path") from e


def image_keys(paths: Iterable[Path]) -> dict[tuple[str, str], str]:
    """Return a short unique key per (set, file stem), e.g. ``"GrapheneH/45ce9af7"``.

    Keys use the first group of a file's id; where two files of a set share it, both keep their full stem.
    """
    files = {(path.parent.name, path.stem) for path in paths}
    short = Counter((folder, stem.split("-")[0]) for folder, stem in files)
    return {
        (folder, stem): f"{folder}/{head if short[folder, (head := stem.split('-')[0])] == 1 else stem}"
        for folder, stem in files
    }


def contour_of(
    component: Component,
    path: Path,
    key: str,
    source: str,
    provenance: Mapping[str, Any],
    smoothing: tuple[float, ...] = HULL_SMOOTHING_UM,
) -> Contour | None:
    """Return the contour of a component, or None if smoothing leaves no outline.

    Args:
        component: The component.
        path: The image file it comes from; its folder is the set.
        key: Short image key of `image_keys`.
        source: ``"mask"`` or ``"micrograph"``.
        provenance: What is recorded besides the fields that all real contours have.
        smoothing: Tolerances of the outline passes, um.
    """
    rings = outline(component.pixels, smoothing)
    if rings is None:
        return None
    x0 = component.cols.start + min(x for x, _ in rings[0]) / PIXEL_DBU
    y0 = component.rows.start - min(y for _, y in rings[0]) / PIXEL_DBU
    hull, holes = normalized(*rings)
    return Contour(
        id=f"{source}:{key}:{component.label}",
        hull=hull,
        holes=holes,
        source=source,
        provenance={
            "set": path.parent.name,
            "file": path.stem,
            "image": f"{path.parent.name}/{path.stem}",
            "component": component.label,
            "origin_px": [round(x0, 3), round(y0, 3)],
            "pixel_area": component.area,
            **provenance,
        },
    )


def placed(contour: Contour) -> Polygon:
    """Return a real contour as a polygon in its image's frame: um, x to the right, y up from the first row."""
    x0, y0 = contour.provenance["origin_px"]
    return translate(Polygon(contour.hull, contour.holes), x0 * SCALE_UM, -y0 * SCALE_UM)
