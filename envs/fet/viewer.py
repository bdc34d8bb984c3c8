"""Pictures of FET layouts: SVG, RGB arrays and a text summary.

Layouts hold integer database units (1 nm), y upwards; pictures are in pixels, y downwards. Colours are those of Okabe
and Ito's palette, which people with colour-vision deficiencies can tell apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from edagym.envs.fet.canvas import Canvas, ImageCanvas, Pixel, SvgCanvas
from edagym.task_assets.fet.grid import DBU_PER_UM
from edagym.task_assets.fet.task import Region, TaskView
from edagym.verifiers.fet.layout import FETLayout
from edagym.verifiers.verdict import CheckResult, Verdict

MATERIAL_COLORS = {"graphene": "#b0b0b0", "mose2": "#009e73", "wse2": "#cc79a7"}
MATERIAL_ROLES = {"mose2": "n-type role", "wse2": "p-type role"}
_OTHER_MATERIALS = ("#6b8e9f", "#a0785a", "#7a7a52")
_VIOLATION = "#d55e00"
_INK = "#222222"
_MARGIN = 14
_MAX_LISTED = 8


@dataclass(frozen=True, slots=True)
class Style:
    """How a layer is drawn.

    Attributes:
        color: Fill colour.
        alpha: Fill opacity.
        note: What the legend says after the layer's name.
    """

    color: str
    alpha: float
    note: str


def layer_styles(view: TaskView) -> dict[str, Style]:
    """Return the style of every layer in drawing order, bottom first (the design order)."""
    order = [entry.lstrip("@") for entry in view.design_order]
    order += [spec.name for spec in view.layers if spec.name not in order]
    lowest_flake = min((i for i, n in enumerate(order) if not view.layer(n).editable), default=0)
    styles: dict[str, Style] = {}
    for i, name in enumerate(order):
        role = view.layer(name).role
        if role == "channel material":
            styles[name] = Style(material_color(name), 0.75, MATERIAL_ROLES.get(name.lower(), "flake"))
        elif role == "gate electrode":
            below = i < lowest_flake
            styles[name] = Style("#56b4e9" if below else "#0072b2", 0.7, "gate, below" if below else "gate")
        else:
            color, alpha = {
                "contact": ("#e69f00", 0.85),
                "via": ("#111111", 0.85),
                "pad cover": ("#7b4f00", 0.3),
                "dielectric": ("#f0e442", 0.35),
            }[role]
            styles[name] = Style(color, alpha, role)
    return styles


def architecture_name(architecture: str) -> str:
    """Return an architecture in words, e.g. ``"local back-gated"``."""
    head, _, tail = architecture.rpartition("_")
    return f"{head.replace('_', ' ')}-{tail}"


def material_color(name: str) -> str:
    """Return the colour of a material label."""
    fallback = _OTHER_MATERIALS[sum(name.encode()) % len(_OTHER_MATERIALS)]
    return MATERIAL_COLORS.get(name.lower(), fallback)


def render_svg(
    view: TaskView, layout: FETLayout, *, verdict: Verdict | None = None, size: tuple[int, int] | None = None
) -> str:
    """Return a layout as an SVG document.

    Layers are coloured by role, flake contours outlined by material; there are a scale bar, a legend and, for a
    verdict, a numbered box around every violation that has a place and a list of the failed checks.

    Args:
        view: The task.
        layout: The layout.
        verdict: Verdict of this layout; its failed checks are marked.
        size: Width and height in pixels; default: 900 wide, height by the scene's shape.
    """
    canvas = SvgCanvas(*(size or _default_size(view, layout, verdict)))
    _draw(canvas, view, layout, verdict, titled=True)
    return canvas.to_text()


def render_image(
    view: TaskView, layout: FETLayout, *, verdict: Verdict | None = None, size: tuple[int, int] | None = None
) -> np.ndarray:
    """Return the picture of `render_svg` as an array, uint8 of shape (height, width, 3)."""
    canvas = ImageCanvas(*(size or _default_size(view, layout, verdict)), scale=2)
    _draw(canvas, view, layout, verdict, titled=True)
    return canvas.to_array()


def render_rgb(view: TaskView, layout: FETLayout, *, size: tuple[int, int] = (512, 512)) -> np.ndarray:
    """Return a frame for ``render_mode="rgb_array"``: the layout, a scale bar and, from 256 pixels on, a legend.

    Args:
        view: The task.
        layout: The layout.
        size: Width and height in pixels.

    Returns:
        uint8 array of shape (height, width, 3); equal layouts give equal bytes.
    """
    canvas = ImageCanvas(*size, scale=2)
    _draw(canvas, view, layout, None, titled=False)
    return canvas.to_array()


def render_text(view: TaskView, layout: FETLayout, verdict: Verdict | None = None) -> str:
    """Return a compact summary for ``render_mode="ansi"``: regions, shapes per layer and the last verdict."""
    left, bottom, right, top = (v / DBU_PER_UM for v in _bounds(view, layout))
    lines = [
        f"{view.id}  {architecture_name(view.architecture)}  {view.objective}",
        f"scene  x {left:.2f} .. {right:.2f} um, y {bottom:.2f} .. {top:.2f} um",
    ]
    for region, demand in zip(view.regions, view.demand):
        holes = f", {len(region.holes)} hole{'s' if len(region.holes) != 1 else ''}" if region.holes else ""
        want = f", transistors asked: {demand}" if demand is not None else ""
        lines.append(f"region {region.name}  {region.material}, {len(region.hull)} vertices{holes}{want}")
    for spec in view.layers:
        shapes = layout.shapes(spec.name)
        area = layout.region(spec.name).area() / DBU_PER_UM**2 if shapes else 0.0
        fixed = "" if spec.editable else "  (fixed)"
        lines.append(
            f"layer {spec.name} {spec.gds_layer}/{spec.datatype}  {spec.role}: {len(shapes)} "
            f"shape{'s' if len(shapes) != 1 else ''}, {area:.2f} um2{fixed}"
        )
    if verdict is None:
        lines.append("verdict: none yet")
    else:
        paper, strict = ("pass" if ok else "fail" for ok in (verdict.paper_success, verdict.strict_success))
        lines.append(f"verdict: paper {paper}, strict {strict}")
        lines.extend(f"  failed {c.id}: {c.message}" for c in verdict.failed("strict"))
    return "\n".join(lines) + "\n"


# -- the picture ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Frame:
    """The mapping from database units to pixels: one scale for both axes, y flipped.

    Attributes:
        scale: Pixels per database unit.
        x0: Pixel x of database x = 0.
        y0: Pixel y of database y = 0.
    """

    scale: float
    x0: float
    y0: float

    @classmethod
    def fit(cls, bounds: tuple[float, float, float, float], area: tuple[float, float, float, float]) -> Frame:
        """Fit `bounds` (left, bottom, right, top; database units) centred into `area` (x, y, width, height; pixels)."""
        left, bottom, right, top = bounds
        x, y, width, height = area
        scale = min(width / max(right - left, 1), height / max(top - bottom, 1))
        x0 = x + width / 2 - scale * (left + right) / 2
        y0 = y + height / 2 + scale * (bottom + top) / 2
        return cls(scale, x0, y0)

    def ring(self, points: Iterable[tuple[float, float]]) -> list[Pixel]:
        """Return the pixels of a ring in database units."""
        return [(self.x0 + self.scale * x, self.y0 - self.scale * y) for x, y in points]


def nice_length(longest: float) -> float:
    """Return the largest of 1, 2, 5 times a power of ten that is at most `longest` (> 0)."""
    step = 10.0 ** np.floor(np.log10(longest))
    return float(max(m * step for m in (1, 2, 5) if m * step <= longest * (1 + 1e-9)))


def draw_scale_bar(canvas: Canvas, frame: Frame, at: Pixel, longest_px: float, size: float = 12) -> None:
    """Draw a scale bar of a nice length with its label above; `at` is its left end."""
    length_um = nice_length(longest_px / (frame.scale * DBU_PER_UM))
    pixels = length_um * DBU_PER_UM * frame.scale
    canvas.line(at, (at[0] + pixels, at[1]), _INK, 3)
    canvas.text((at[0], at[1] - 5), f"{length_um:g} um", size)


def region_rings(region: Region) -> list[list[tuple[float, float]]]:
    """Return hull and holes of a flake in database units."""
    return [[(x * DBU_PER_UM, y * DBU_PER_UM) for x, y in ring] for ring in (region.hull, *region.holes)]


def _draw(canvas: Canvas, view: TaskView, layout: FETLayout, verdict: Verdict | None, *, titled: bool) -> None:
    width, height = canvas.width, canvas.height
    styles = layer_styles(view)
    failed = _shown(verdict)
    small = 13 if titled else 11
    legend = _legend_rows(styles, width - 2 * _MARGIN, small) if titled or width >= 256 else []
    listed = _list_lines(failed)
    line = small + 6
    top = 52 if titled else 6
    foot = len(legend) * line + (len(listed) * line + 6 if listed else 0) + 6
    bar_room = 30
    area = (_MARGIN, top, width - 2 * _MARGIN, max(height - top - foot - bar_room, 10))
    frame = Frame.fit(_bounds(view, layout), area)

    if titled:
        canvas.text((_MARGIN, 22), f"{view.id} · {architecture_name(view.architecture)}", 16)
        canvas.text((_MARGIN, 41), _shorten(view.objective, width - 2 * _MARGIN, 13), 13, "#555555")
    draw_layers(canvas, frame, view, layout, outline=_outline(frame, view))
    if titled:
        _label_regions(canvas, frame, view)
    _mark(canvas, frame, failed)

    y = height - foot - 8
    draw_scale_bar(canvas, frame, (_MARGIN, y), width / 5, small)
    y = height - foot + line - 4
    for row in legend:
        for x, name in row:
            style = styles[name]
            swatch = [[(x, y - 10), (x + 14, y - 10), (x + 14, y + 1), (x, y + 1)]]
            canvas.polygons([swatch], style.color, style.alpha, outline=1)
            canvas.text((x + 19, y), _legend_label(name, style), small)
        y += line
    for text in listed:
        canvas.text((_MARGIN, y + 4), _shorten(text, width - 2 * _MARGIN, small), small, "#8a3d00")
        y += line


def draw_layers(canvas: Canvas, frame: Frame, view: TaskView, layout: FETLayout, outline: float = 1.0) -> None:
    """Draw all layers of a layout, bottom first, and the contours of the task's flakes over them."""
    styles = layer_styles(view)
    for name, style in styles.items():
        polygons = [
            [frame.ring((p.x, p.y) for p in poly.each_point_hull())]
            + [frame.ring((p.x, p.y) for p in poly.each_point_hole(i)) for i in range(poly.holes())]
            for poly in layout.region(name).each()
        ]
        canvas.polygons(polygons, style.color, style.alpha, outline=outline if view.layer(name).editable else 0.0)
    # Contours last, so that a flake's edge shows through metal that covers it.
    for region in view.regions:
        rings = [frame.ring(ring) for ring in region_rings(region)]
        canvas.outlines(rings, _darker(styles[region.material].color), 1.5 * outline)


def _outline(frame: Frame, view: TaskView) -> float:
    """Return the stroke width: thinner in wide scenes, where it would fill the flakes."""
    sizes = []
    for region in view.regions:
        ring = frame.ring(region_rings(region)[0])
        xs, ys = [p[0] for p in ring], [p[1] for p in ring]
        sizes.append(max(max(xs) - min(xs), max(ys) - min(ys)))
    return 1.0 if min(sizes) >= 80 else 0.5


def _label_regions(canvas: Canvas, frame: Frame, view: TaskView) -> None:
    for region, demand in zip(view.regions, view.demand):
        ring = frame.ring(region_rings(region)[0])
        x = (min(p[0] for p in ring) + max(p[0] for p in ring)) / 2
        y = min(p[1] for p in ring) - 5
        want = "" if demand is None else f" ({demand}T)"
        canvas.text((x, max(y, 62)), f"{region.name}{want}", 11, "#333333", "middle", halo=True)


def _mark(canvas: Canvas, frame: Frame, failed: Sequence[CheckResult]) -> None:
    badges: list[Pixel] = []
    for number, check in enumerate(failed, 1):
        if check.where is None:
            continue
        x1, y1, x2, y2 = (v * DBU_PER_UM for v in check.where)
        (left, bottom), (right, top) = frame.ring([(x1, y1), (x2, y2)])
        # Many violations are a few nanometres wide: the box is grown until it can be seen.
        grow_x, grow_y = max(0.0, 10 - (right - left)) / 2 + 2, max(0.0, 10 - (bottom - top)) / 2 + 2
        left, right, top, bottom = left - grow_x, right + grow_x, top - grow_y, bottom + grow_y
        ring = [(left, top), (right, top), (right, bottom), (left, bottom)]
        canvas.outlines([ring], "#ffffff", 4)
        canvas.outlines([ring], _VIOLATION, 2)
        x, y = right, top - 14
        while any(abs(x - bx) < 17 and abs(y - by) < 17 for bx, by in badges):
            x += 18  # boxes of several checks often coincide: their numbers stand side by side
        badges.append((x, y))
        canvas.polygons([[[(x, y), (x + 16, y), (x + 16, y + 16), (x, y + 16)]]], _VIOLATION)
        canvas.text((x + 8, y + 12), str(number), 11, "#ffffff", "middle")


def _shown(verdict: Verdict | None) -> tuple[CheckResult, ...]:
    return verdict.failed("strict") if verdict is not None else ()


def _list_lines(failed: Sequence[CheckResult]) -> list[str]:
    lines = [f"{i}  {c.id}: {c.message}" for i, c in enumerate(failed, 1)]
    if len(lines) > _MAX_LISTED:
        lines = [*lines[: _MAX_LISTED - 1], f"and {len(lines) - _MAX_LISTED + 1} more"]
    return lines


def _legend_label(name: str, style: Style) -> str:
    return name if style.note == name else f"{name} ({style.note})"


def _legend_rows(styles: dict[str, Style], width: float, size: float) -> list[list[tuple[float, str]]]:
    """Return rows of (pixel x, layer name), wrapped to `width`."""
    rows: list[list[tuple[float, str]]] = [[]]
    x = float(_MARGIN)
    for name, style in styles.items():
        needs = 19 + 0.56 * size * len(_legend_label(name, style)) + 16
        if rows[-1] and x + needs > width + _MARGIN:
            rows.append([])
            x = float(_MARGIN)
        rows[-1].append((x, name))
        x += needs
    return rows


def _shorten(text: str, width: float, size: float) -> str:
    room = int(width / (0.54 * size))
    return text if len(text) <= room else text[: max(room - 3, 1)] + "..."


def _bounds(view: TaskView, layout: FETLayout) -> tuple[float, float, float, float]:
    """Return left, bottom, right, top (database units) of flakes and shapes, with a margin."""
    points = [p for region in view.regions for p in region_rings(region)[0]]
    points += [p for spec in layout.layers for ring in layout.shapes(spec.name) for p in ring]
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    margin = 0.04 * max(max(xs) - min(xs), max(ys) - min(ys)) + 500
    return min(xs) - margin, min(ys) - margin, max(xs) + margin, max(ys) + margin


def _default_size(view: TaskView, layout: FETLayout, verdict: Verdict | None) -> tuple[int, int]:
    width = 900
    left, bottom, right, top = _bounds(view, layout)
    inner = width - 2 * _MARGIN
    plot = min(max(inner * (top - bottom) / (right - left), 220), 760)
    rows = len(_legend_rows(layer_styles(view), inner, 13)) + len(_list_lines(_shown(verdict)))
    return width, int(52 + plot + 30 + rows * 19 + 18)


def _darker(color: str) -> str:
    r, g, b = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"#{int(r * 0.55):02x}{int(g * 0.55):02x}{int(b * 0.55):02x}"
