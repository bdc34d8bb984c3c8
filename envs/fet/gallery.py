"""The gallery: the flake contours of all suite tasks by level, as the paper's Figures 9-11 show them.

One page per level, as SVG and PNG. Every panel has its own scale bar and two label lines: level and case; difficulty
class, shape tier, required transistors, and whether there is a circuit template. On request the reference layouts are
drawn over the contours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from edagym.envs.fet.canvas import Canvas, ImageCanvas, SvgCanvas
from edagym.envs.fet.viewer import (
    MATERIAL_ROLES,
    Frame,
    draw_layers,
    draw_scale_bar,
    layer_styles,
    material_color,
    region_rings,
)
from edagym.task_assets.fet.task import FETTask
from edagym.verifiers.fet.layout import FETLayout

_COLUMNS = 6
_PANEL = (210, 168)
_LABELS = 40
_GAP = 14
_HEAD = 46
_FOOT = 40


def make_gallery(
    out_dir: str | Path,
    *,
    references: bool = False,
    levels: Sequence[str] | None = None,
    progress: Callable[[Iterable[str]], Iterable[str]] = lambda ids: ids,
) -> list[Path]:
    """Write the gallery pages of the suite.

    Args:
        out_dir: Folder for ``L1.svg``, ``L1.png``, ...; it is created.
        references: Draw the recorded reference layouts over the contours.
        levels: Levels to draw, default all four.
        progress: Wraps the task ids of each level, for a progress bar.

    Returns:
        The files written.

    Raises:
        TaskError: If a level is unknown.
    """
    from edagym.task_assets.fet.suite import LEVELS, load_task, task_ids

    out = Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for level in levels or LEVELS:
        ids = task_ids(f"FET-{level}")
        tasks = [load_task(task_id) for task_id in progress(ids)]
        layouts = [reference_layout(task) for task in tasks] if references else None
        title = f"Level {level[1:]} ({len(tasks)} tasks)"
        written += write_page(out / level, title, tasks, layouts)
    return written


def write_page(
    stem: Path, title: str, tasks: Sequence[FETTask], layouts: Sequence[FETLayout] | None = None
) -> list[Path]:
    """Write one page of panels as ``stem.svg`` and ``stem.png``.

    Args:
        stem: Path without suffix.
        title: Heading of the page.
        tasks: One panel each, in order.
        layouts: Layouts to draw over the contours, one per task.
    """
    rows = -(-len(tasks) // _COLUMNS)
    width = _GAP + _COLUMNS * (_PANEL[0] + _GAP)
    height = _HEAD + rows * (_PANEL[1] + _LABELS + _GAP) + _FOOT
    svg, image = SvgCanvas(width, height), ImageCanvas(width, height, scale=2)
    for canvas in (svg, image):
        _draw_page(canvas, title, tasks, layouts)
    svg_path, png_path = stem.with_suffix(".svg"), stem.with_suffix(".png")
    svg_path.write_text(svg.to_text(), encoding="utf-8")
    image.to_image().save(png_path, optimize=True)
    return [svg_path, png_path]


def panel_labels(task: FETTask) -> tuple[str, str]:
    """Return the two label lines of a panel, e.g. ``("L3/case 8", "D3 · G2 · 6T")``."""
    meta = task.metadata
    parts = [str(meta[key]) for key in ("difficulty", "tier") if meta.get(key)]
    total = sum(n or 0 for n in task.demand)
    if total:
        parts.append(f"{total}T")
    if task.circuit is not None:
        parts.append("circuit")
    return task.id.replace("case_", "case "), " · ".join(parts)


def reference_layout(task: FETTask) -> FETLayout:
    """Return the recorded reference layout of a suite task.

    Raises:
        TaskError: If the task is not in the suite.
    """
    from edagym.envs.fet.interpreter import apply_edit
    from edagym.spaces.edits import edit_from_json
    from edagym.task_assets.fet.suite import load_reference

    layout = FETLayout.from_task(task)
    for data in load_reference(task.id)["edits"]:
        apply_edit(layout, edit_from_json(data))
    return layout


def _draw_page(canvas: Canvas, title: str, tasks: Sequence[FETTask], layouts: Sequence[FETLayout] | None) -> None:
    canvas.text((_GAP, 28), title, 18)
    for i, task in enumerate(tasks):
        x = _GAP + (i % _COLUMNS) * (_PANEL[0] + _GAP)
        y = _HEAD + (i // _COLUMNS) * (_PANEL[1] + _LABELS + _GAP)
        _draw_panel(canvas, x, y, task, layouts[i] if layouts else None)
    _draw_legend(canvas, tasks, layouts is not None)


def _draw_panel(canvas: Canvas, x: float, y: float, task: FETTask, layout: FETLayout | None) -> None:
    width, height = _PANEL
    box = [(x, y), (x + width, y), (x + width, y + height), (x, y + height)]
    canvas.outlines([box], "#cccccc", 1)
    points = [p for region in task.regions for p in region_rings(region)[0]]
    if layout is not None:
        points += [p for spec in layout.layers for ring in layout.shapes(spec.name) for p in ring]
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    frame = Frame.fit((min(xs), min(ys), max(xs), max(ys)), (x + 8, y + 8, width - 16, height - 40))
    if layout is not None:
        draw_layers(canvas, frame, task.view(), layout, outline=0.6)
    else:
        for region in task.regions:
            canvas.polygons([[frame.ring(ring) for ring in region_rings(region)]], material_color(region.material))
    draw_scale_bar(canvas, frame, (x + 8, y + height - 8), width / 4, 11)
    first, second = panel_labels(task)
    canvas.text((x + width / 2, y + height + 16), first, 13, anchor="middle")
    canvas.text((x + width / 2, y + height + 32), second, 12, "#555555", "middle")


def _draw_legend(canvas: Canvas, tasks: Sequence[FETTask], references: bool) -> None:
    materials: dict[str, tuple[str, float]] = {}
    drawn: dict[str, tuple[str, float]] = {}
    for task in tasks:
        for name, style in layer_styles(task.view()).items():
            role = task.layer(name).role
            if role == "channel material":
                note = MATERIAL_ROLES.get(name.lower())
                materials.setdefault(f"{name} ({note})" if note else name, (style.color, 1.0))
            elif references:
                drawn.setdefault(style.note, (style.color, style.alpha))
    x, y = float(_GAP), canvas.height - 18
    for label, (color, alpha) in {**dict(sorted(materials.items(), key=_graphene_first)), **drawn}.items():
        canvas.polygons([[[(x, y - 11), (x + 16, y - 11), (x + 16, y + 1), (x, y + 1)]]], color, alpha, outline=1)
        canvas.text((x + 22, y), label, 13)
        x += 22 + 7.4 * len(label) + 20


def _graphene_first(entry: tuple[str, object]) -> tuple[bool, str]:
    return entry[0] != "graphene", entry[0]
