"""Contact sheets: every contour drawn over its image, so that a person can judge the outlines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from edagym.task_assets.fet.contours.library import Contour
from edagym.task_assets.fet.contours.smoothing import SCALE_UM

_TILE = 200
_CAPTION = 48
_COLUMNS = 8
_ROWS = 6
_MARGIN_PX = 10
_OUTLINE = (255, 40, 40)
_HOLE = (255, 190, 0)


def tile(contour: Contour, image: np.ndarray, note: str = "") -> Image.Image:
    """Return one tile: the image around a contour, its outline, its id and its figures.

    Args:
        contour: A real contour with ``origin_px`` in its provenance.
        image: The micrograph (rows, columns, 3) or the mask (rows, columns) that it comes from, 8 bit.
        note: A further line's worth of text.
    """
    x0, y0 = contour.provenance["origin_px"]
    width, height = (v / SCALE_UM for v in contour.size_um)
    left, top = int(max(x0 - _MARGIN_PX, 0)), int(max(y0 - height - _MARGIN_PX, 0))
    right = int(min(x0 + width + _MARGIN_PX, image.shape[1]))
    bottom = int(min(y0 + _MARGIN_PX, image.shape[0]))
    crop = Image.fromarray(np.ascontiguousarray(image[top:bottom, left:right])).convert("RGB")
    zoom = _TILE / max(crop.size)
    crop = crop.resize((max(round(crop.width * zoom), 1), max(round(crop.height * zoom), 1)), Image.Resampling.BICUBIC)
    out = Image.new("RGB", (_TILE, _TILE + _CAPTION), (255, 255, 255))
    out.paste(crop, (0, 0))
    draw = ImageDraw.Draw(out)
    for ring, colour in ((contour.hull, _OUTLINE), *((h, _HOLE) for h in contour.holes)):
        points = [((x0 + x / SCALE_UM - left) * zoom, (y0 - y / SCALE_UM - top) * zoom) for x, y in ring]
        draw.line([*points, points[0]], fill=colour, width=1)
    font = ImageFont.load_default(11)
    thick = " thick" if contour.provenance.get("thick") else ""
    draw.text((2, _TILE + 2), contour.id.replace("micrograph:", "").replace("mask:", "mask "), (0, 0, 0), font=font)
    figures = f"{contour.tier} {contour.area_um2:.0f} um2 {contour.n_vertices}v{thick}"
    draw.text((2, _TILE + 17), figures, (0, 0, 0), font=font)
    draw.text((2, _TILE + 32), note, (0, 0, 0), font=font)
    return out


class SheetWriter:
    """Writes tiles to numbered pages ``<stem>-1.png``, ... of 8 x 6; only one page is held in memory.

    Args:
        folder: An existing folder.
        stem: File name stem.
    """

    def __init__(self, folder: Path, stem: str) -> None:
        self._folder, self._stem = folder, stem
        self._tiles: list[Image.Image] = []
        self.paths: list[Path] = []

    def add(self, picture: Image.Image) -> None:
        """Add one tile."""
        self._tiles.append(picture)
        if len(self._tiles) == _COLUMNS * _ROWS:
            self.close()

    def close(self) -> None:
        """Write the tiles that are not written yet."""
        if not self._tiles:
            return
        rows = -(-len(self._tiles) // _COLUMNS)
        page = Image.new("RGB", (_COLUMNS * (_TILE + 4), rows * (_TILE + _CAPTION + 4)), (230, 230, 230))
        for k, picture in enumerate(self._tiles):
            page.paste(picture, ((k % _COLUMNS) * (_TILE + 4) + 2, (k // _COLUMNS) * (_TILE + _CAPTION + 4) + 2))
        path = self._folder / f"{self._stem}-{len(self.paths) + 1}.png"
        page.save(path)
        self.paths.append(path)
        self._tiles.clear()
