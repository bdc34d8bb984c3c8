"""From a check's outcome to what agents read: report items, and items with their geometry in database units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import klayout.db as kdb

from edagym.envs.drc.geometry import parse_value
from edagym.errors import TaskError
from edagym.spaces.drc_actions import ListedViolation
from edagym.spaces.drc_queries import MAX_POINTS
from edagym.task_assets.drc.task import Violation
from edagym.verifiers.drc import CheckReport, DRCLayout, RuleTable

Box = tuple[int, int, int, int]
Points = tuple[tuple[int, int], ...]


def report_items(report: CheckReport) -> tuple[Violation, ...]:
    """Return the items of a check in the form of a sign-off report.

    One item per cell and orientation where all its placements show the violation, in the frame of the cell as it can be
    edited, with one example placement; else one per place in the top cell (`edagym.verifiers.drc.attribution`).
    """
    dbu, rules = report.layout.dbu, report.table.rules
    return tuple(
        Violation(i.rule, rules[i.rule].description, i.cell, (i.marker.text(dbu),), i.parent or None, i.trans or None)
        for i in report.items
    )


@dataclass(frozen=True, slots=True)
class PlacedViolation:
    """A report item with numbers.

    Attributes:
        rule: Rule id.
        listed: What a query about it asks.
        placed: Its points in the top cell's frame at the example placement, database units.
        box: Their bounding box.
    """

    rule: str
    listed: ListedViolation
    placed: Points
    box: Box


def place(items: Iterable[Violation], layout: DRCLayout, table: RuleTable) -> tuple[PlacedViolation, ...]:
    """Return report items with their geometry in database units.

    Args:
        items: The items; of several values the first counts.
        layout: The layout that was checked.
        table: The rules.

    Raises:
        TaskError: If an item's geometry, rule or placement cannot be read.
    """
    layers = {
        rule: tuple(n for n in table.layers if n in table.rules[rule].layers)
        for rule in {v.rule for v in items} & table.rules.keys()
    }
    return tuple(_place(item, layout, layers) for item in items)


def _place(item: Violation, layout: DRCLayout, layers: Mapping[str, tuple[str, ...]]) -> PlacedViolation:
    if item.rule not in layers:
        raise TaskError("a violation of an unknown rule", field="category", value=item.rule)
    if not item.values:
        raise TaskError("a violation without geometry", field="values", value=item.rule)
    kind, rings = parse_value(item.values[0])
    dbu = layout.dbu
    points = tuple((round(x / dbu), round(y / dbu)) for ring in rings for x, y in ring)
    placed = points
    if item.trans:
        try:
            trans = kdb.ICplxTrans(kdb.DCplxTrans.from_s(item.trans), dbu)
        except RuntimeError as e:
            raise TaskError("an unreadable placement", field="trans", value=item.trans) from e
        placed = tuple((p.x, p.y) for p in (trans * kdb.Point(x, y) for x, y in points))
    xs, ys = [x for x, _ in placed], [y for _, y in placed]
    box = (min(xs), min(ys), max(xs), max(ys))
    cell = "" if item.cell == layout.top.name else item.cell
    if len(points) > MAX_POINTS:  # a query takes fewer: its bounding box says where to look
        ox, oy = [x for x, _ in points], [y for _, y in points]
        points = ((min(ox), min(oy)), (min(ox), max(oy)), (max(ox), max(oy)), (max(ox), min(oy)))
        kind = "polygon"
    return PlacedViolation(item.rule, ListedViolation(cell, kind, points, layers[item.rule]), placed, box)
