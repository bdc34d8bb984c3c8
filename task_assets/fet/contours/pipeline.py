"""Contours from instance masks: label, filter, outline (paper, Appendix F)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError
from scipy import ndimage

from edagym.errors import TaskError
from edagym.task_assets.fet.contours.library import Contour, normalized
from edagym.task_assets.fet.contours.smoothing import HULL_SMOOTHING_UM, PIXEL_DBU, outline

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


def image_key(path: Path) -> str:
    """Return ``"<set>/<first group of the file id>"``, e.g. ``"GrapheneH/45ce9af7"``."""
    return f"{path.parent.name}/{path.stem.split('-')[0]}"


def contour_of(
    component: Component, path: Path, source: str, provenance: dict, smoothing: tuple[float, ...]
) -> Contour | None:
    """Return the contour of a component (None if no outline is left), with the provenance that all sources share."""
    rings = outline(component.pixels, smoothing)
    if rings is None:
        return None
    x0 = component.cols.start + min(x for x, _ in rings[0]) / PIXEL_DBU
    y0 = component.rows.start - min(y for _, y in rings[0]) / PIXEL_DBU
    hull, holes = normalized(*rings)
    return Contour(
        id=f"{source}:{image_key(path)}:{component.label}",
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


def mask_contours(path: Path) -> tuple[list[Contour], list[Component]]:
    """Return the contours of one mask file, in raster order, and all its components.

    Kept are components that pass the paper's filter and whose outline is at most 800 um2 with at least four vertices.
    """
    found = list(components(read_mask(path)))
    contours = []
    for component in found:
        if not component.kept:
            continue
        contour = contour_of(component, path, "mask", {"method": "mask", "thick": False}, HULL_SMOOTHING_UM)
        if contour is not None and contour.outer_area_um2 <= MAX_AREA_UM2:
            contours.append(contour)
    return contours, found
