"""The guarded drawing tools of the layer-wise scaffolds (2D-FET-Bench V2, Appendix B).

Guards turn away edits of any layer but the current one, which keeps finished layers locked; repair self-intersecting
polygons by their convex hull; and complete contacts where a flake has too few. Coordinates are um.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import shapely

from edagym.envs.fet.interpreter import apply_edit, ring_problem
from edagym.envs.fet.prompt import hint_of
from edagym.errors import EditError
from edagym.spaces.edits import AddPath, AddPolygon, Cut, edit_from_json, edit_to_json
from edagym.spaces.rings import MAX_COORD_UM
from edagym.task_assets.fet.grid import ring_to_dbu, ring_to_um, to_dbu
from edagym.task_assets.fet.task import Region, TaskView
from edagym.verifiers.fet.layout import FETLayout

Edits = list[dict[str, Any]]

# Contacts that the tools add: at least this wide, so long at most and at least, moved in such steps, um.
_WIDTH_UM = 0.5
_LENGTH_UM = 3.0
_SHORTEST_UM = 0.5
_STEP_UM = 0.25
# Assumed where the task has no such rule.
_GATE_UM = 0.5
_GAP_UM = 0.2
# Points beyond are outside every window, database units.
_FAR = to_dbu(MAX_COORD_UM)
_MARGIN_UM = 0.1


def guard(edits: Edits, layer: str, locked: Iterable[str], *, repair: bool = True) -> tuple[Edits, list[str]]:
    """Return the edits that may pass, repaired where they need it, and what was done to the others.

    Args:
        edits: The model's edits.
        layer: The layer whose turn it is.
        locked: Layers that are finished.
        repair: Whether self-intersecting polygons become their convex hull.
    """
    kept: Edits = []
    said: list[str] = []
    for i, edit in enumerate(edits):
        target = edit.get("layer")
        if target is not None and target != layer:
            why = "is locked" if target in locked else f"is not the layer to draw now, {layer}"
            said.append(f"edits[{i}]: {target} {why}")
            continue
        mended = _mended(edit) if repair else None
        if mended is not None:
            said.append(f"edits[{i}]: the outline crossed itself and was replaced by its convex hull")
        kept.append(edit if mended is None else mended)
    return kept, said


def _mended(edit: dict[str, Any]) -> dict[str, Any] | None:
    """Return a polygon with a faulty outline as its convex hull; None if there is nothing to mend."""
    try:
        parsed = edit_from_json(edit)
        if not isinstance(parsed, AddPolygon | Cut):
            return None
        ring = ring_to_dbu(parsed.points)
    except (EditError, ValueError, OverflowError):
        return None  # for the environment to refuse
    if any(abs(v) > _FAR for point in ring for v in point):
        return None
    ring = tuple(p for p, q in zip(ring, ring[-1:] + ring[:-1]) if p != q)
    if not ring_problem(ring) or len(set(ring)) < 3:
        return None
    hull = shapely.MultiPoint(ring).convex_hull
    if not isinstance(hull, shapely.Polygon):
        return None
    points = ring_to_um((int(x), int(y)) for x, y in hull.exterior.coords[:-1])
    return edit_to_json(type(parsed)(parsed.layer, points))


def complete_contacts(view: TaskView, layout: FETLayout, layer: str, edits: Edits) -> Edits:
    """Return the contacts that are missing after some edits: a flake that needs a device has fewer than two.

    They lie in the suggested source and drain zones, where no contact is yet, clear of the suggested crossing. Nothing
    is added for a model that draws no contact at all.

    Args:
        view: The task.
        layout: The layout before the edits; it is not changed.
        layer: The contact layer.
        edits: What the model draws on it.
    """
    after = layout.copy()
    for edit in edits:
        try:
            apply_edit(after, edit_from_json(edit))
        except EditError:
            continue
    shapes = [shapely.Polygon(ring_to_um(ring)).buffer(0) for ring in after.shapes(layer)]
    if not shapes:
        return []
    drawn = shapely.union_all(shapes)
    return [edit_to_json(e) for region in view.regions for e in _missing(view, region, layer, drawn)]


def _missing(view: TaskView, region: Region, layer: str, drawn: Any) -> list[AddPath]:
    flake = shapely.Polygon(region.hull, region.holes)
    have = sum(part.intersects(flake) for part in getattr(drawn, "geoms", [drawn]))
    hint = hint_of(region)
    if hint is None or have >= 2:
        return []
    width = max(_WIDTH_UM, _rule(view, "min_width", layer, 0.0), 2 * _rule(view, "min_enclosure", layer, 0.0) + 0.2)
    gate = max((_rule(view, "min_width", s.name, _GATE_UM) for s in view.layers_of("gate electrode")), default=0.0)
    gap = _rule(view, "min_separation", layer, _GAP_UM) + _MARGIN_UM
    # A gate must fit between the new contact and what is drawn.
    away = max(_rule(view, "min_spacing", layer, 0.0) + _MARGIN_UM, gate + 2 * gap)
    found: list[AddPath] = []
    for segment in (hint.source_segment, hint.drain_segment):
        path = _path(segment, hint.point, gate / 2 + gap, drawn, away + width / 2)
        if path is not None and have + len(found) < 2:
            found.append(AddPath(layer, path, round(width, 3)))
    return found


def _path(
    segment: Any, crossing: tuple[float, float], clear: float, drawn: Any, away: float
) -> tuple[tuple[float, float], ...] | None:
    """Return the part of a zone nearest to the crossing, clear of it and of what is drawn; None: there is none.

    Args:
        segment: The zone, two points.
        crossing: Where a gate shall cross.
        clear: Distance to keep from it, um.
        drawn: What is drawn.
        away: Distance to keep from it, um.
    """
    near, far = sorted(segment, key=lambda p: math.dist(p, crossing))
    length = math.dist(near, far)

    def at(s: float) -> tuple[float, float]:
        return (near[0] + (far[0] - near[0]) * s / length, near[1] + (far[1] - near[1]) * s / length)

    start = max(clear - math.dist(near, crossing), 0.0)
    while start + _SHORTEST_UM <= length:
        for long in (_LENGTH_UM, _SHORTEST_UM):
            path = (at(start), at(min(start + long, length)))
            if shapely.LineString(path).distance(drawn) >= away:
                return tuple((round(x, 3), round(y, 3)) for x, y in path)
        start += _STEP_UM
    return None


def _rule(view: TaskView, kind: str, layer: str, default: float) -> float:
    return max((r.min_um or 0.0 for r in view.drc_rules if r.kind == kind and layer in r.layers), default=default)
