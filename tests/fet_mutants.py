"""Mutants of a passing FET layout: each breaks one thing, and names the check kinds that have to notice.

Also the layouts that sit exactly at a limit, which have to pass. Everything is in database units (1 nm).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import klayout.db as kdb
import shapely

from edagym.task_assets.fet import FETTask
from edagym.task_assets.fet.grid import IntRing, to_dbu
from edagym.verifiers.fet.layout import FETLayout, polygon_ring, region_polygon

SHORT = 2  # nm below a limit: more than the paper's tolerance of about 1 nm
CLEAR = 2000  # nm of empty surroundings that a probe shape needs, and those that must do in crowded scenes
CLEAR_IN_A_CROWD = 600
PROBE = 400  # nm, side of a probe shape


@dataclass(frozen=True)
class Mutant:
    """A broken layout and the check kinds that have to reject it."""

    name: str
    layout: FETLayout
    kinds: frozenset[str]


def mutants(task: FETTask, layout: FETLayout) -> Iterator[Mutant]:
    """Yield every mutant that the task admits."""
    yield from _emptied_layers(task, layout)
    yield from _moved_inputs(task, layout)
    yield from _contacts(task, layout)
    yield from _gates(task, layout)
    yield from _forbidden_overlap(task, layout)
    yield from (Mutant(f"{n} short", m, frozenset({k})) for n, k, m in _distance_probes(task, layout, SHORT))
    yield from (Mutant(f"{n} short", m, frozenset({k})) for n, k, m in _enclosures(task, layout, SHORT))
    yield from _broken_sharing(task, layout)


def at_limit(task: FETTask, layout: FETLayout) -> Iterator[tuple[str, FETLayout]]:
    """Yield layouts exactly at each distance limit; they have to pass."""
    yield from ((f"{n} at limit", m) for n, _, m in _distance_probes(task, layout, 0))
    yield from ((f"{n} at limit", m) for n, _, m in _enclosures(task, layout, 0))
    for rule in task.drc_rules:
        if rule.kind == "min_width":
            changed = _gate_of_width(task, layout, rule.layers[0], to_dbu(rule.min_um or 0), at_least=True)
            if changed is not None:
                yield f"{rule.layers[0]} width at limit", changed


# -- helpers -----------------------------------------------------------------------------------------------------------


def _rings(region: kdb.Region) -> tuple[IntRing, ...]:
    return tuple(polygon_ring(p) for p in region.each_merged())


def _with(layout: FETLayout, layer: str, region: kdb.Region) -> FETLayout:
    out = layout.copy()
    out.replace(layer, _rings(region))
    return out


def _contact_layer(task: FETTask) -> str:
    return task.layers_of("contact")[0].name


def _gate_layers(task: FETTask) -> list[str]:
    return [s.name for s in task.layers_of("gate electrode")]


def _all_gates(task: FETTask, layout: FETLayout) -> kdb.Region:
    out = kdb.Region()
    for name in _gate_layers(task):
        out += layout.region(name)
    return out.merged()


def _pieces(task: FETTask, layout: FETLayout, index: int) -> list[kdb.Polygon]:
    """Components of a flake minus all gates, largest first, slivers left out."""
    flake = kdb.Region(region_polygon(task.regions[index]))
    parts = [p for p in (flake - _all_gates(task, layout)).each_merged() if p.area() > 10_000]
    return sorted(parts, key=lambda p: -p.area())


def _count_kinds(task: FETTask) -> frozenset[str]:
    return frozenset({"transistor_count", "circuit_spec"}) if task.circuit else frozenset({"transistor_count"})


# -- the mutants -------------------------------------------------------------------------------------------------------


def _emptied_layers(task: FETTask, layout: FETLayout) -> Iterator[Mutant]:
    for name in task.required_layers:
        changed = layout.copy()
        changed.replace(name, ())
        yield Mutant(f"{name} emptied", changed, frozenset({"layer_not_empty"}))


def _moved_inputs(task: FETTask, layout: FETLayout) -> Iterator[Mutant]:
    for spec in task.layers:
        if spec.editable:
            continue
        rings = layout.shapes(spec.name)
        shifted = layout.copy()
        shifted.replace(spec.name, [tuple((x + 1, y) for x, y in rings[0]), *rings[1:]])
        yield Mutant(f"{spec.name} shifted by 1 nm", shifted, frozenset({"inputs_preserved"}))
        redrawn = layout.copy()
        (x, y), *rest = rings[-1]
        # Away from the flake's centre, so that the vertex really moves the outline.
        cx = sum(p[0] for p in rings[-1]) / len(rings[-1])
        redrawn.replace(spec.name, [*rings[:-1], ((x + (1 if x >= cx else -1), y), *rest)])
        yield Mutant(f"{spec.name} redrawn with one vertex moved", redrawn, frozenset({"inputs_preserved"}))
        gone = layout.copy()
        gone.replace(spec.name, rings[1:])
        yield Mutant(f"{spec.name} contour deleted", gone, frozenset({"inputs_preserved"}))


def _contacts(task: FETTask, layout: FETLayout) -> Iterator[Mutant]:
    """Remove, or move off the flake, every contact of an end piece of a region's chain."""
    contacts = layout.region(_contact_layer(task))
    gates = _all_gates(task, layout)
    kinds = _count_kinds(task) if gates else frozenset({"strict_contacts"})
    if any(r.holes for r in task.regions):
        # Round a hole the paper's contract finds the current's way to another contact; strict does not.
        kinds |= {"strict_transistor_count"}
    for index, region in enumerate(task.regions):
        if task.demand[index] is None and gates:
            continue
        flake = kdb.Region(region_polygon(region))
        channels = (gates & flake).merged()
        for piece in _pieces(task, layout, index):
            bordering = channels.interacting(kdb.Region(piece).sized(5)) if gates else kdb.Region()
            if bordering.count() > 1:
                continue
            landed = contacts.interacting(kdb.Region(piece).sized(3))
            if landed.is_empty():
                continue
            rest = contacts - landed
            yield Mutant(f"end contact of {region.name} removed", _with(layout, _contact_layer(task), rest), kinds)
            bbox = (contacts + flake).bbox()
            away = landed.moved(0, bbox.height() * 4 + 50_000)
            yield Mutant(
                f"end contact of {region.name} moved off the flake",
                _with(layout, _contact_layer(task), rest + away),
                kinds,
            )
            break


def _gates(task: FETTask, layout: FETLayout) -> Iterator[Mutant]:
    counts = _count_kinds(task)
    for index, region in enumerate(task.regions):
        if task.demand[index] is None:
            continue
        flake = kdb.Region(region_polygon(region))
        for name in _gate_layers(task):
            gates = layout.region(name)
            mine = gates.interacting(flake)
            inside = (mine & flake.sized(-250)).merged()
            yield Mutant(
                f"{name} stopped inside {region.name}",
                _with(layout, name, (gates - mine) + inside),
                counts | {"must_cross"},
            )
            first = kdb.Region(next(mine.each_merged()))
            yield Mutant(f"one {name} of {region.name} removed", _with(layout, name, gates - first), counts)
    for rule in task.drc_rules:
        if rule.kind == "min_width":
            changed = _gate_of_width(task, layout, rule.layers[0], to_dbu(rule.min_um or 0) - SHORT, at_least=False)
            if changed is not None:
                yield Mutant(f"{rule.layers[0]} narrowed", changed, frozenset({"min_width"}))


def _gate_of_width(task: FETTask, layout: FETLayout, name: str, width: int, *, at_least: bool) -> FETLayout | None:
    """Redraw one rectangular gate with a given width, rounded towards the wanted side of the limit."""
    rings = list(layout.shapes(name))
    for i, ring in enumerate(rings):
        if len(ring) != 4:
            continue
        alone = kdb.Region(kdb.Polygon([kdb.Point(*p) for p in ring]))
        others = kdb.Region([kdb.Polygon([kdb.Point(*p) for p in r]) for j, r in enumerate(rings) if j != i])
        if not (alone.sized(10) & others).is_empty():
            continue
        a, b, c, d = (shapely.Point(p) for p in ring)
        if a.distance(b) < b.distance(c):  # make a-b a long side
            a, b, c, d = b, c, d, a
        middle = shapely.LineString([((a.x + d.x) / 2, (a.y + d.y) / 2), ((b.x + c.x) / 2, (b.y + c.y) / 2)])
        for tenths in range(60):
            offset = width + (tenths if at_least else -tenths) / 10
            sides = [middle.offset_curve(s * offset / 2) for s in (-1, 1)]
            (p, q), (r, s) = ([tuple(map(round, xy)) for xy in side.coords] for side in sides)
            found = min(shapely.LineString([p, q]).distance(shapely.Point(x)) for x in (r, s))
            found = min(found, *(shapely.LineString([r, s]).distance(shapely.Point(x)) for x in (p, q)))
            if (found >= width) if at_least else (found <= width):
                rings[i] = (p, q, s, r)
                out = layout.copy()
                out.replace(name, rings)
                return out
    return None


def _forbidden_overlap(task: FETTask, layout: FETLayout) -> Iterator[Mutant]:
    contact = _contact_layer(task)
    for name in _gate_layers(task):
        gate = max(layout.region(name).each_merged(), key=lambda p: p.area())
        inner = kdb.Region(gate).sized(-150)
        center = next(inner.each_merged()).bbox().center() if inner else gate.bbox().center()
        changed = layout.copy()
        changed.add(contact, _box(center.x - 50, center.y - 50, center.x + 50, center.y + 50))
        yield Mutant(f"contact on {name}", changed, frozenset({"must_not_overlap"}))
        for via in task.layers_of("via"):
            changed = layout.copy()
            changed.add(via.name, _box(center.x - 50, center.y - 50, center.x + 50, center.y + 50))
            yield Mutant(f"via on {name}", changed, frozenset({"must_not_overlap"}))


def _box(x1: int, y1: int, x2: int, y2: int) -> IntRing:
    return ((x1, y1), (x2, y1), (x2, y2), (x1, y2))


def _distance_probes(task: FETTask, layout: FETLayout, short: int) -> Iterator[tuple[str, str, FETLayout]]:
    """Put a probe on one layer at the limit (minus `short`) from an extreme point of another."""
    wanted = [(r.layers[0], r.layers[-1], to_dbu(r.min_um or 0), r.kind) for r in task.drc_rules if r.min_um]
    wanted += [(r.layers[0], r.layers[1], to_dbu(r.min_um or 0), r.kind) for r in task.derived_rules if r.min_um]
    for probe_layer, target_layer, limit, kind in wanted:
        if kind not in ("min_spacing", "min_separation"):
            continue
        if probe_layer in {v.name for v in task.layers_of("via")} and short == 0:
            continue  # a lone via cannot pass: it needs a contact around it
        ring = _probe(layout, target_layer, limit - short)
        if ring is not None:
            changed = layout.copy()
            changed.add(probe_layer, ring)
            yield f"{kind} of {probe_layer} and {target_layer}", kind, changed


def _probe(layout: FETLayout, target_layer: str, distance: int) -> IntRing | None:
    """A square `distance` away from an extreme vertex of a layer, with nothing else nearby."""
    target = layout.region(target_layer)
    everything = kdb.Region()
    for spec in layout.layers:
        everything += layout.region(spec.name)
    half = PROBE // 2
    for clear in (CLEAR, CLEAR_IN_A_CROWD):
        for polygon in target.each_merged():
            points = [(p.x, p.y) for p in polygon.each_point_hull()]
            alone = kdb.Region(polygon)
            for axis, sign in itertools.product((0, 1), (-1, 1)):
                x, y = max(points, key=lambda p: sign * p[axis])
                cx = x + sign * (distance + half) if axis == 0 else x
                cy = y if axis == 0 else y + sign * (distance + half)
                ring = _box(cx - half, cy - half, cx + half, cy + half)
                probe = kdb.Region(kdb.Polygon([kdb.Point(*p) for p in ring]))
                if (probe.sized(clear) & (everything - alone)).is_empty():
                    return ring
    return None


def _enclosures(task: FETTask, layout: FETLayout, short: int) -> Iterator[tuple[str, str, FETLayout]]:
    """Grow one via until its margin inside the contact is the limit (minus `short`)."""
    for rule in task.drc_rules:
        if rule.kind != "min_enclosure":
            continue
        outer, inner = rule.layers
        limit = to_dbu(rule.min_um or 0) - short
        via = next(layout.region(inner).each_merged())
        contact = layout.region(outer).interacting(kdb.Region(via))
        hull = shapely.union_all([shapely.Polygon(_ring_points(p)) for p in contact.each_merged()]).boundary
        grown, size = None, 0
        while True:
            candidate = kdb.Region(via).sized(size)
            margin = hull.distance(shapely.Polygon(_ring_points(next(candidate.each_merged()))))
            if short and margin <= limit:
                grown = candidate
                break
            if not short and margin < limit:
                break
            grown = candidate
            size += 1
        assert grown is not None
        rest = layout.region(inner) - kdb.Region(via)
        yield f"min_enclosure of {inner} in {outer}", "min_enclosure", _with(layout, inner, rest + grown)


def _ring_points(polygon: kdb.Polygon) -> list[tuple[int, int]]:
    return [(p.x, p.y) for p in polygon.each_point_hull()]


def _broken_sharing(task: FETTask, layout: FETLayout) -> Iterator[Mutant]:
    """Slit the contact of a shared piece of a circuit into two contacts."""
    if task.circuit is None:
        return
    name = _contact_layer(task)
    contacts = layout.region(name)
    gates = _all_gates(task, layout)
    spacing = max(to_dbu(r.min_um or 0) for r in task.drc_rules if r.kind == "min_spacing") + 20
    for index, region in enumerate(task.regions):
        flake = kdb.Region(region_polygon(region))
        channels = (gates & flake).merged()
        for piece in _pieces(task, layout, index):
            here = kdb.Region(piece)
            bordering = list(channels.interacting(here.sized(5)).each_merged())
            landed = contacts.interacting(here)
            if len(bordering) != 2 or landed.count() != 1:
                continue
            # A slit across the line between the two channels, as long as the contact is.
            a, b = (shapely.Polygon(_ring_points(p)).centroid for p in bordering)
            on_piece = max((landed & here).each_merged(), key=lambda p: p.area())
            c = shapely.Polygon(_ring_points(on_piece)).centroid
            dx, dy = b.x - a.x, b.y - a.y
            length = (dx * dx + dy * dy) ** 0.5
            reach = 20_000
            slit = shapely.LineString(
                [
                    (c.x - dy / length * reach, c.y + dx / length * reach),
                    (c.x + dy / length * reach, c.y - dx / length * reach),
                ]
            ).buffer(spacing / 2, cap_style="flat")
            cut = kdb.Region(kdb.Polygon([kdb.Point(round(x), round(y)) for x, y in slit.exterior.coords]))
            halves = (landed - cut).merged()
            both = halves.interacting(here)
            if both.count() < 2:
                continue
            yield Mutant(
                f"shared contact of {region.name} slit",
                _with(layout, name, (contacts - landed) + halves),
                frozenset({"circuit_spec"}),
            )
            return
