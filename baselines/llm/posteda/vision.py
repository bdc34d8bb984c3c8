"""Pictures for language models: the region of a query as a JPEG in a chat message (PostEDA-Bench, Appendix C.3)."""

from __future__ import annotations

import io
from typing import Any

from PIL import Image

from edagym.baselines.llm.client import image_part
from edagym.envs.drc.queries import run_query
from edagym.envs.drc.reporting import PlacedViolation
from edagym.envs.drc.viewer import layer_color, render_window
from edagym.errors import EditError
from edagym.spaces.drc_actions import ListedViolation
from edagym.spaces.drc_queries import Query
from edagym.task_assets.drc.task import DRCView
from edagym.verifiers.drc import DRCLayout, load_table

MAX_PIXELS = 1024
JPEG_QUALITY = 85
_MARGIN_NM = 60
_MAX_WINDOW_NM = 4000

Box = tuple[int, int, int, int]


def query_picture(layout: DRCLayout, view: DRCView, query: Query, pixels: int) -> tuple[bytes, str]:
    """Draw what a query is about.

    Args:
        layout: The layout as it is.
        view: What the agent may know about the task.
        query: The query.
        pixels: Width and height of the picture, at most `MAX_PIXELS`.

    Returns:
        The JPEG and a caption: window (database units of the queried cell), colours of the drawn layers.

    Raises:
        EditError: If the query names an unknown cell or layer.
    """
    table = load_table(view.rules)
    found = run_query(layout, table, query)
    focus = _box(query.points)
    window = _window([focus, *(_box(s.points) for s in found.shapes)], focus, layout.dbu)
    asked = query.direct_layers if query.level == "first" else query.direct_layers + query.context_layers
    marked = PlacedViolation("", ListedViolation(query.cell, query.kind, query.points, ()), query.points, focus)
    size = min(pixels, MAX_PIXELS)
    image = render_window(
        layout, table, window, [marked], size=(size, size), focus=asked or None, cell=_cell(layout, query)
    )
    names = sorted({s.layer for s in found.shapes}, key=list(table.layers).index)
    colors = ", ".join(f"{name} {layer_color(name)}" for name in names)
    x1, y1, x2, y2 = window
    caption = (
        f"{query.level} level in cell {found.cell}, window ({x1},{y1})-({x2},{y2}) in database units of "
        f"{layout.dbu:g} um, {found.total} shapes; colours: {colors or 'none'}"
    )
    return to_jpeg(Image.fromarray(image)), caption


def to_jpeg(image: Image.Image) -> bytes:
    """Return an image as RGB JPEG of quality 85, shrunk to fit within 1,024 x 1,024 pixels."""
    image = image.convert("RGB")
    image.thumbnail((MAX_PIXELS, MAX_PIXELS))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=JPEG_QUALITY)
    return out.getvalue()


def picture_message(text: str, jpeg: bytes) -> dict[str, Any]:
    """Return a user message with a text and a picture as a data URI."""
    return {"role": "user", "content": [{"type": "text", "text": text}, image_part(jpeg)]}


def _cell(layout: DRCLayout, query: Query) -> Any:
    cell = layout.top if not query.cell else layout.layout.cell(query.cell)
    if cell is None:
        raise EditError("unknown cell", field="cell", value=query.cell)
    return cell


def _box(points: Any) -> Box:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return (min(xs), min(ys), max(xs), max(ys))


def _window(boxes: list[Box], focus: Box, dbu: float) -> Box:
    """Return a square around the boxes with a margin, at most 4 um wide about the focus."""
    nm = 0.001 / dbu
    x1, y1 = min(b[0] for b in boxes), min(b[1] for b in boxes)
    x2, y2 = max(b[2] for b in boxes), max(b[3] for b in boxes)
    if max(x2 - x1, y2 - y1) > _MAX_WINDOW_NM * nm:
        # A rail across the chip would shrink the violation to a dot.
        reach = round(_MAX_WINDOW_NM * nm / 4)
        x1, y1, x2, y2 = (
            max(x1, focus[0] - reach),
            max(y1, focus[1] - reach),
            min(x2, focus[2] + reach),
            min(y2, focus[3] + reach),
        )
    half = round(max(x2 - x1, y2 - y1) / 2 + _MARGIN_NM * nm)
    x, y = (x1 + x2) // 2, (y1 + y2) // 2
    return (x - half, y - half, x + half, y + half)
