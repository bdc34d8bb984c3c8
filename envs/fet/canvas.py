"""Two drawing surfaces with one interface, SVG text and a Pillow image, so that every picture is described once.

Coordinates are pixels, x to the right and y downwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from html import escape
from typing import Protocol

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont

Pixel = tuple[float, float]
Rings = Sequence[Sequence[Pixel]]

FONT_FAMILY = "DejaVu Sans, Helvetica, Arial, sans-serif"


class Canvas(Protocol):
    """What a picture is drawn on: `width` x `height` pixels."""

    width: int
    height: int

    def polygons(self, polygons: Iterable[Rings], color: str, alpha: float = 1.0, outline: float = 0.0) -> None:
        """Fill polygons; each is an outer ring followed by its holes. `outline`: stroke width in pixels."""

    def outlines(self, rings: Iterable[Sequence[Pixel]], color: str, width: float, dashed: bool = False) -> None:
        """Stroke closed rings."""

    def line(self, start: Pixel, end: Pixel, color: str, width: float) -> None:
        """Draw a line."""

    def text(
        self, at: Pixel, text: str, size: float, color: str = "#222222", anchor: str = "start", halo: bool = False
    ) -> None:
        """Write text with its baseline at `at`.

        `anchor` is ``"start"``, ``"middle"`` or ``"end"``; a halo is a white rim, for text over shapes.
        """


class SvgCanvas:
    """An SVG document.

    Args:
        width: Width in pixels.
        height: Height in pixels.
        background: Background colour.
    """

    def __init__(self, width: int, height: int, background: str = "#ffffff") -> None:
        self.width, self.height = width, height
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="{FONT_FAMILY}">',
            f'<rect width="{width}" height="{height}" fill="{background}"/>',
        ]

    def polygons(self, polygons: Iterable[Rings], color: str, alpha: float = 1.0, outline: float = 0.0) -> None:
        """See `Canvas`."""
        d = "".join(_path(ring) for rings in polygons for ring in rings)
        if d:
            stroke = f' stroke="{color}" stroke-width="{outline:g}" stroke-linejoin="round"' if outline else ""
            self._parts.append(f'<path d="{d}" fill="{color}" fill-opacity="{alpha:g}" fill-rule="evenodd"{stroke}/>')

    def outlines(self, rings: Iterable[Sequence[Pixel]], color: str, width: float, dashed: bool = False) -> None:
        """See `Canvas`."""
        d = "".join(_path(ring) for ring in rings)
        if d:
            dash = ' stroke-dasharray="5 3"' if dashed else ""
            self._parts.append(
                f'<path d="{d}" fill="none" stroke="{color}" stroke-width="{width:g}" stroke-linejoin="round"{dash}/>'
            )

    def line(self, start: Pixel, end: Pixel, color: str, width: float) -> None:
        """See `Canvas`."""
        self._parts.append(
            f'<path d="M{_n(start[0])} {_n(start[1])}L{_n(end[0])} {_n(end[1])}" stroke="{color}" '
            f'stroke-width="{width:g}"/>'
        )

    def text(
        self, at: Pixel, text: str, size: float, color: str = "#222222", anchor: str = "start", halo: bool = False
    ) -> None:
        """See `Canvas`."""
        rim = ' paint-order="stroke" stroke="#ffffff" stroke-width="3"' if halo else ""
        self._parts.append(
            f'<text x="{_n(at[0])}" y="{_n(at[1])}" font-size="{size:g}" fill="{color}" text-anchor="{anchor}"{rim}>'
            f"{escape(text)}</text>"
        )

    def to_text(self) -> str:
        """Return the document."""
        return "\n".join([*self._parts, "</svg>"]) + "\n"


class ImageCanvas:
    """An RGB image, drawn at `scale` times its size and averaged down.

    Args:
        width: Width in pixels.
        height: Height in pixels.
        scale: Supersampling factor, an integer.
        background: Background colour.
    """

    def __init__(self, width: int, height: int, scale: int = 2, background: str = "#ffffff") -> None:
        self.width, self.height, self.scale = width, height, scale
        self._image = Image.new("RGB", (width * scale, height * scale), background)
        self._draw = ImageDraw.Draw(self._image)

    def polygons(self, polygons: Iterable[Rings], color: str, alpha: float = 1.0, outline: float = 0.0) -> None:
        """See `Canvas`."""
        scaled = [[[(x * self.scale, y * self.scale) for x, y in ring] for ring in rings] for rings in polygons]
        points = [p for rings in scaled for ring in rings for p in ring]
        if not points:
            return
        # One mask of the polygons' bounding box: a whole-page mask per layer would cost several milliseconds.
        xs, ys = [p[0] for p in points], [p[1] for p in points]
        left, top = max(0, int(min(xs)) - 1), max(0, int(min(ys)) - 1)
        right = min(self._image.width, int(max(xs)) + 2)
        bottom = min(self._image.height, int(max(ys)) + 2)
        if right <= left or bottom <= top:
            return
        mask = Image.new("L", (right - left, bottom - top), 0)
        pen = ImageDraw.Draw(mask)
        value = round(255 * alpha)
        # Big ones first: a polygon that lies in another's hole must be drawn after that hole.
        for rings in sorted(scaled, key=lambda rings: -_box_area(rings[0])):
            for i, ring in enumerate(rings):
                pen.polygon([(x - left, y - top) for x, y in ring], fill=0 if i else value)
        self._image.paste(ImageColor.getrgb(color)[:3], (left, top, right, bottom), mask)
        if outline:
            self.outlines([ring for rings in polygons for ring in rings], color, outline)

    def outlines(self, rings: Iterable[Sequence[Pixel]], color: str, width: float, dashed: bool = False) -> None:
        """See `Canvas`; dashes are left out, because Pillow has none."""
        w = max(1, round(width * self.scale))
        for ring in rings:
            points = [(x * self.scale, y * self.scale) for x, y in ring]
            self._draw.line([*points, points[0], points[1]], fill=color, width=w, joint="curve" if w > 2 else None)

    def line(self, start: Pixel, end: Pixel, color: str, width: float) -> None:
        """See `Canvas`."""
        s = self.scale
        self._draw.line(
            [(start[0] * s, start[1] * s), (end[0] * s, end[1] * s)], fill=color, width=max(1, round(width * s))
        )

    def text(
        self, at: Pixel, text: str, size: float, color: str = "#222222", anchor: str = "start", halo: bool = False
    ) -> None:
        """See `Canvas`."""
        code = {"start": "ls", "middle": "ms", "end": "rs"}[anchor]
        self._draw.text(
            (at[0] * self.scale, at[1] * self.scale),
            text,
            fill=color,
            font=_font(size * self.scale),
            anchor=code,
            stroke_width=self.scale if halo else 0,
            stroke_fill="#ffffff",
        )

    def to_image(self) -> Image.Image:
        """Return the image at its final size."""
        return self._image.reduce(self.scale) if self.scale > 1 else self._image.copy()

    def to_array(self) -> np.ndarray:
        """Return the image as uint8 of shape (height, width, 3)."""
        return np.asarray(self.to_image(), dtype=np.uint8).copy()


@lru_cache(maxsize=16)
def _font(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)  # ships inside Pillow, so that pictures don't depend on the system's fonts


def _box_area(ring: Sequence[Pixel]) -> float:
    xs, ys = [p[0] for p in ring], [p[1] for p in ring]
    return (max(xs) - min(xs)) * (max(ys) - min(ys))


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _path(ring: Sequence[Pixel]) -> str:
    return "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in ring) + "Z"
