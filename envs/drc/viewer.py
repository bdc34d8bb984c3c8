"""Pictures and summaries of a DRC layout: the window around the violations, layers in stack order."""

from __future__ import annotations

from collections.abc import Container, Sequence

import klayout.db as kdb
import numpy as np

from edagym.envs.drc.queries import shapes_near
from edagym.envs.drc.reporting import Box, PlacedViolation
from edagym.envs.fet.canvas import ImageCanvas
from edagym.verifiers.drc import DRCLayout, RuleTable

MAX_SIZE = 1024
"""Largest width and height of a picture, pixels."""
_MARGIN_NM = 250
_MAX_WINDOW_NM = 4000
_MARKER = "#d00000"

_COLORS = {
    "WELL": "#f2e6c8",
    "ACTIVE": "#7fbf7b",
    "GATE": "#d95f5f",
    "GCUT": "#999999",
    "LIG": "#8c6bb1",
    "LISD": "#c994c7",
}
_METALS = ("#4393c3", "#f4a582", "#66a61e", "#e6ab02", "#7570b3", "#a6761d", "#1b9e77", "#e7298a", "#666666")
_HIDDEN = ("FIN", "NSELECT", "PSELECT", "SLVT", "LVT", "SRAMDRC", "SRAMVT", "DUMMY")


def layer_color(name: str) -> str:
    """Return a layer's colour; vias are darker than the metals below them."""
    if name in _COLORS:
        return _COLORS[name]
    if name[:1] in ("M", "V") and name[1:].isdigit():
        number = int(name[1:])
        return _METALS[(number - 1) % len(_METALS)] if name[0] == "M" else "#222222"
    return "#bbbbbb"


def view_window(
    violations: Sequence[PlacedViolation], layout: DRCLayout, selected: int = 0, margin_nm: float = _MARGIN_NM
) -> Box:
    """Return the window (database units) that shows the violations, or the selected one if they lie far apart.

    Without violations it is the middle of the layout.
    """
    nm = 0.001 / layout.dbu
    if not violations:
        b = layout.top.bbox()
        if b.empty():
            return (0, 0, round(nm), round(nm))
        half = round(min(max(b.width(), b.height()) / 2, _MAX_WINDOW_NM * nm / 2))
        c = b.center()
        return (c.x - half, c.y - half, c.x + half, c.y + half)
    boxes = [v.box for v in violations]
    x1, y1 = min(b[0] for b in boxes), min(b[1] for b in boxes)
    x2, y2 = max(b[2] for b in boxes), max(b[3] for b in boxes)
    if max(x2 - x1, y2 - y1) > _MAX_WINDOW_NM * nm:
        x1, y1, x2, y2 = boxes[min(max(selected, 0), len(boxes) - 1)]
    half = round(max(x2 - x1, y2 - y1) / 2 + margin_nm * nm)
    x, y = (x1 + x2) // 2, (y1 + y2) // 2
    return (x - half, y - half, x + half, y + half)


def render_window(
    layout: DRCLayout,
    table: RuleTable,
    window: Box,
    violations: Sequence[PlacedViolation] = (),
    *,
    size: tuple[int, int] = (512, 512),
    focus: Container[str] | None = None,
    cell: kdb.Cell | None = None,
) -> np.ndarray:
    """Draw a window of a layout with its violations in red.

    Args:
        layout: The layout.
        table: The rules: layers are drawn in their order; fins, implants and marker layers are left out.
        window: Box (x1, y1, x2, y2), database units of the drawn cell.
        violations: Violations to mark.
        size: Width and height, pixels, at most 1024 each.
        focus: Layers to draw in full colour, the others faintly; None: all.
        cell: The cell to draw; None: the top cell.

    Returns:
        uint8 of shape (height, width, 3).
    """
    width, height = (min(int(n), MAX_SIZE) for n in size)
    canvas = ImageCanvas(width, height, scale=1)
    scale = min(width / (window[2] - window[0]), height / (window[3] - window[1]))
    x0, y0 = (window[0] + window[2]) / 2, (window[1] + window[3]) / 2

    def pixel(point: tuple[int, int]) -> tuple[float, float]:
        return (width / 2 + (point[0] - x0) * scale, height / 2 - (point[1] - y0) * scale)

    reach_x, reach_y = round(width / scale / 2), round(height / scale / 2)
    seen = (round(x0) - reach_x, round(y0) - reach_y, round(x0) + reach_x, round(y0) + reach_y)
    shapes = shapes_near(layout, table, seen, seen, [n for n in table.layers if n not in _HIDDEN], cell)
    for name in table.layers:
        # Cut to the picture: a power rail across the whole chip would make Pillow fill millions of pixels.
        rings = [[[pixel(_clamp(p, seen)) for p in s.points]] for s in shapes if s.layer == name]
        faint = focus is not None and name not in focus
        if rings:
            alpha = 0.12 if faint else 0.8 if name.startswith("V") else 0.55
            canvas.polygons(rings, layer_color(name), alpha, outline=0.0 if faint else 1.0)
    for v in violations:
        x1, y1, x2, y2 = v.box
        pad = max(2, round(3 / scale))
        box = ((x1 - pad, y1 - pad), (x1 - pad, y2 + pad), (x2 + pad, y2 + pad), (x2 + pad, y1 - pad))
        canvas.outlines([[pixel(p) for p in box]], _MARKER, 2.0)
        if v.listed.kind == "polygon":
            canvas.outlines([[pixel(p) for p in v.placed]], _MARKER, 1.0)
        else:
            for a, b in zip(v.placed[::2], v.placed[1::2]):
                canvas.line(pixel(a), pixel(b), _MARKER, 3.0)
    return canvas.to_array()


def _clamp(point: tuple[int, int], box: Box) -> tuple[int, int]:
    """Move a point far outside the picture next to it; right for Manhattan outlines."""
    mx, my = box[2] - box[0], box[3] - box[1]
    return (min(max(point[0], box[0] - mx), box[2] + mx), min(max(point[1], box[1] - my), box[3] + my))
