"""Pictures of a PPA attempt: placement coloured by slack, slacks of all endpoints, the runs against the targets.

Drawn with Pillow, without a display. Lengths of the placement are um, slacks ps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from edagym.envs.fet.canvas import Canvas, ImageCanvas, SvgCanvas
from edagym.envs.ppa.flow.backend import FlowResult, Placement
from edagym.envs.ppa.state import Run
from edagym.task_assets.ppa.task import METRICS, UNITS

MAX_SIZE = 1024
"""Largest width and height of a picture, pixels."""
MAX_CELLS = 20_000
"""Cells drawn; of more, every n-th."""
BINS = 24
_WORST, _MIDDLE, _BEST, _FREE = (202, 0, 32), (250, 220, 120), (26, 120, 160), (190, 190, 190)
_WORDS = {"effective_period": "period", "total_power": "power", "die_area": "area"}

_Frame = tuple[float, float, float, float]


def render_state(
    initial: Mapping[str, float],
    targets: Mapping[str, float],
    runs: Sequence[Run],
    result: FlowResult | None,
    *,
    size: tuple[int, int] = (768, 512),
) -> np.ndarray:
    """Return the picture of an attempt, uint8 (height, width, 3).

    Args:
        initial: Metric -> initial value.
        targets: Metric -> largest allowed value.
        runs: The runs so far.
        result: The last completed run, for placement and slacks; None: these panels say so.
        size: Width and height, pixels, at most 1,024 each.
    """
    canvas = ImageCanvas(min(size[0], MAX_SIZE), min(size[1], MAX_SIZE), scale=1)
    draw_state(canvas, initial, targets, runs, result)
    return canvas.to_array()


def render_svg(
    initial: Mapping[str, float],
    targets: Mapping[str, float],
    runs: Sequence[Run],
    result: FlowResult | None,
    *,
    size: tuple[int, int] = (960, 640),
) -> str:
    """Return the same picture as an SVG document, for notebooks and reports."""
    canvas = SvgCanvas(*size)
    draw_state(canvas, initial, targets, runs, result)
    return canvas.to_text()


def draw_state(
    canvas: Canvas,
    initial: Mapping[str, float],
    targets: Mapping[str, float],
    runs: Sequence[Run],
    result: FlowResult | None,
) -> None:
    """Draw the three panels: placement on the left, slack histogram above the runs on the right."""
    width, height = canvas.width, canvas.height
    middle = width * 0.55
    pad = max(width * 0.02, 2.0)
    placement = None if result is None else result.placement
    left: _Frame = (pad, pad, middle - pad, height - pad)
    _placement(canvas, left, placement)
    slacks = None if result is None else result.endpoint_slacks
    _histogram(canvas, (middle + pad, pad, width - pad, height * 0.45 - pad), slacks)
    _runs(canvas, (middle + pad, height * 0.45 + pad, width - pad, height - pad), initial, targets, runs)


def slack_color(slack: float, worst: float) -> str:
    """Return the colour of a cell: red at the worst slack, yellow at zero, blue well above; grey without paths."""
    if not math.isfinite(slack):
        return _hex(_FREE)
    reach = max(abs(worst), 1e-9)
    share = max(min(slack / reach, 1.0), -1.0)
    ends = (_WORST, -share) if share < 0 else (_BEST, share)
    return _hex(tuple(round(m + (e - m) * ends[1]) for m, e in zip(_MIDDLE, ends[0])))


def _hex(color: Sequence[int]) -> str:
    return "#" + "".join(f"{c:02x}" for c in color)


def _font(canvas: Canvas) -> float:
    return max(canvas.height / 42, 6.0)


def _placement(canvas: Canvas, frame: _Frame, placement: Placement | None) -> None:
    font = _font(canvas)
    x0, y0, x1, y1 = frame
    canvas.text((x0, y0 + font), "placement" if placement else "placement: no completed run here", font)
    if placement is None:
        return
    y0 += font * 1.6
    dx1, dy1, dx2, dy2 = placement.die
    scale = min((x1 - x0) / max(dx2 - dx1, 1e-9), (y1 - y0) / max(dy2 - dy1, 1e-9))

    def ring(box: Sequence[float]) -> list[tuple[float, float]]:
        a, b = x0 + (box[0] - dx1) * scale, x0 + (box[2] - dx1) * scale
        c, d = y1 - (box[1] - dy1) * scale, y1 - (box[3] - dy1) * scale
        return [(a, c), (b, c), (b, d), (a, d)]

    canvas.polygons([[ring(placement.die)]], "#f4f4f4", outline=1.0)
    canvas.outlines([ring(placement.core)], "#888888", 1.0, dashed=True)
    finite = placement.slacks[np.isfinite(placement.slacks)]
    worst = float(finite.min()) if len(finite) else 0.0
    groups: dict[str, list[list[list[tuple[float, float]]]]] = {}
    for i in range(0, len(placement.boxes), max(1, -(-len(placement.boxes) // MAX_CELLS))):
        color = slack_color(float(placement.slacks[i]), worst)
        groups.setdefault(color, []).append([ring(placement.boxes[i])])
    for color in sorted(groups):
        canvas.polygons(groups[color], color)


def _histogram(canvas: Canvas, frame: _Frame, slacks: np.ndarray | None) -> None:
    font = _font(canvas)
    x0, y0, x1, y1 = frame
    values = np.zeros(0) if slacks is None else np.asarray(slacks, float)
    values = values[np.isfinite(values)]
    if not len(values):
        canvas.text((x0, y0 + font), "endpoint slacks: no completed run here", font)
        return
    low, high = float(values.min()), float(values.max())
    canvas.text((x0, y0 + font), f"endpoint slacks: {low:.1f} to {high:.1f} ps", font)
    counts, edges = np.histogram(values, BINS, (low, high if high > low else low + 1))
    y0 += font * 1.6
    step = (x1 - x0) / BINS
    for i, n in enumerate(counts):
        top = y1 - (y1 - y0) * float(n) / float(counts.max())
        color = _hex(_WORST) if edges[i + 1] <= 0 else _hex(_BEST)
        if n:
            corners = [(x0 + i * step, y1), (x0 + (i + 1) * step, y1), (x0 + (i + 1) * step, top), (x0 + i * step, top)]
            canvas.polygons([[corners]], color, 0.8)
    canvas.line((x0, y1), (x1, y1), "#444444", 1.0)


def _runs(
    canvas: Canvas, frame: _Frame, initial: Mapping[str, float], targets: Mapping[str, float], runs: Sequence[Run]
) -> None:
    """Draw the runs over the two metrics that matter most, their Pareto front, and where both targets are met."""
    font = _font(canvas)
    names = [m for m in METRICS if m in targets]
    names = (names + [m for m in METRICS if m not in targets])[:2]
    points = [(initial[names[0]], initial[names[1]])]
    points += [(r.report.value(names[0]), r.report.value(names[1])) for r in runs if r.report is not None]
    x0, y0, x1, y1 = frame
    title = f"{_WORDS[names[1]]} ({UNITS[names[1]]}) over {_WORDS[names[0]]} ({UNITS[names[0]]}), {len(runs)} runs"
    canvas.text((x0, y0 + font), title, font)
    y0, y1 = y0 + font * 1.8, y1 - font * 1.2
    goals = [targets.get(n) for n in names]
    spans = []
    for k in range(2):
        values = [p[k] for p in points] + ([] if goals[k] is None else [float(goals[k] or 0.0)])
        low, high = min(values), max(values)
        room = 0.1 * (high - low) or 0.1 * abs(high) or 1.0
        spans.append((low - room, high + room))

    def at(x: float, y: float) -> tuple[float, float]:
        (a, b), (c, d) = spans
        return (x0 + (x - a) / (b - a) * (x1 - x0), y1 - (y - c) / (d - c) * (y1 - y0))

    corner = at(*(spans[k][1] if goals[k] is None else float(goals[k] or 0.0) for k in range(2)))
    canvas.polygons([[[(x0, y1), (corner[0], y1), corner, (x0, corner[1])]]], "#b8dfb8", 0.7)
    canvas.outlines([[(x0, y0), (x1, y0), (x1, y1), (x0, y1)]], "#888888", 1.0)
    r = max(font / 2.5, 3.0)
    for i, (x, y) in enumerate(points):
        px, py = at(x, y)
        color = "#222222" if i == 0 else _hex(_WORST) if i == len(points) - 1 else _hex(_BEST)
        canvas.polygons([[[(px - r, py), (px, py - r), (px + r, py), (px, py + r)]]], color, 0.9)
    # The staircase of the points that no other one beats in both metrics.
    front = [p for p in points if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in points)]
    for a, b in itertools.pairwise(sorted(set(front))):
        canvas.line(at(*a), at(b[0], a[1]), "#777777", 1.0)
        canvas.line(at(b[0], a[1]), at(*b), "#777777", 1.0)
    for k, value in enumerate(spans[0]):
        canvas.text((x1 if k else x0, y1 + font), f"{value:.4g}", font * 0.8, anchor="end" if k else "start")
