"""What a change of a legal layout violates, found by checking only its surroundings, before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import klayout.db as kdb

from edagym.envs.drc.mutations import to_polygon
from edagym.spaces.drc_edits import Points
from edagym.verifiers.drc import DRCLayout, Marker, RuleTable, full_check, load_table

MARGIN_NM = 400
"""Surroundings that are looked at. Markers cut at the window's border are the same before and after and cancel out."""

WIDE_MARGIN_NM = {"M4": 800, "M5": 800, "M6": 800, "M7": 800, "M8": 2200, "M9": 2200}
"""Larger surroundings for metals with long-range rules (M*.W.2 and M*.W.3 to 641 nm, M8.S.8 and M8.W.5 to 2 um)."""


@dataclass(frozen=True, slots=True)
class Change:
    """A shape in the top cell's frame that goes, comes or is replaced; vertices in database units."""

    layer: str
    before: Points | None
    after: Points | None

    @property
    def bbox(self) -> kdb.Box:
        """Extent of both versions."""
        box = kdb.Box()
        for points in (self.before, self.after):
            if points is not None:
                box += to_polygon(points).bbox()
        return box


class Probe:
    """Looks at changes of one layout without making them.

    Args:
        layout: The layout; it must not change while the probe is used.
        table: The rules; None: the ASAP7 table.
    """

    def __init__(self, layout: kdb.Layout, table: RuleTable | None = None) -> None:
        self.layout = layout
        self.table = table or load_table("asap7")
        self.top = layout.top_cell()

    def effect(
        self, changes: Sequence[Change], wanted: Iterable[str] | None = None
    ) -> tuple[Counter[str], Counter[str]] | None:
        """Return violations per rule that the changes add and that they remove.

        Args:
            changes: Changes, all made at once.
            wanted: Rules of which at least one must be violated anew; None: no condition. They are looked at first,
                which makes most refusals cheap.

        Returns:
            Added and removed flat markers, counted per rule; None where no wanted rule is violated anew.
        """
        margin = max([MARGIN_NM, *(WIDE_MARGIN_NM.get(change.layer, 0) for change in changes)])
        grow = round(margin * 0.001 / self.layout.dbu)
        box = kdb.Box()
        for change in changes:
            box += change.bbox
        window = box.enlarged(grow, grow)
        affected = rules_on(self.table, frozenset(change.layer for change in changes))
        view: dict[str, list[kdb.Polygon]] = {}
        if wanted is not None:
            before, after = self._compare(changes, window, affected & frozenset(wanted), view)
            if not after - before:
                return None
        before, after = self._compare(changes, window, affected, view)
        return per_rule(after - before), per_rule(before - after)

    def _compare(
        self, changes: Sequence[Change], window: kdb.Box, rules: frozenset[str], view: dict[str, list[kdb.Polygon]]
    ) -> tuple[Counter[Marker], Counter[Marker]]:
        """Markers of some rules in a window before and after; `view` keeps the raw shapes that were read."""
        table = subtable(self.table, rules)
        layers = {layer for rule in table.rules.values() for layer in rule.layers}
        for layer in layers - view.keys():
            view[layer] = self.raw(layer, window)
        before = {layer: view[layer] for layer in layers}
        after = dict(before)
        for change in changes:
            if change.layer in layers:
                after[change.layer] = _replaced(after[change.layer], change)
        cut = kdb.Region(window)
        versions = [
            {layer: (kdb.Region(polygons) & cut).each() for layer, polygons in version.items()}
            for version in (before, after)
        ]
        return (
            markers_of(self.table, table, self.layout.dbu, versions[0]),
            markers_of(self.table, table, self.layout.dbu, versions[1]),
        )

    def raw(self, name: str, window: kdb.Box) -> list[kdb.Polygon]:
        """Return the raw shapes of a layer that touch a window, flat."""
        entry = self.table.layers[name]
        index = self.layout.find_layer(entry.layer, entry.datatype)
        if index is None:
            return []
        return list(kdb.Region(self.top.begin_shapes_rec_touching(index, window)).each())


def _replaced(polygons: Iterable[kdb.Polygon], change: Change) -> list[kdb.Polygon]:
    """Return the polygons of a layer after a change."""
    result = list(polygons)
    if change.before is not None:
        result.remove(to_polygon(change.before))
    if change.after is not None:
        result.append(to_polygon(change.after))
    return result


@lru_cache(maxsize=256)
def rules_on(table: RuleTable, layers: frozenset[str]) -> frozenset[str]:
    """Return the rules that read any of `layers`."""
    return frozenset(name for name, rule in table.rules.items() if rule.layers & layers)


@lru_cache(maxsize=256)
def subtable(table: RuleTable, rules: frozenset[str]) -> RuleTable:
    """Return a table with some of the rules."""
    kept = [entry for entry in table.data["rules"] if entry["id"] in rules]
    return RuleTable.from_dict({**table.data, "rules": kept})


def markers_of(
    table: RuleTable, rules: RuleTable, dbu: float, shapes: Mapping[str, Iterable[kdb.Polygon]]
) -> Counter[Marker]:
    """Check loose shapes.

    Args:
        table: The table that has the layers.
        rules: The table that has the rules to check.
        dbu: Database unit, um.
        shapes: Polygons by layer name.

    Returns:
        The flat markers with their multiplicities.
    """
    layout = kdb.Layout()
    layout.dbu = dbu
    top = layout.create_cell("probe")
    for name, polygons in shapes.items():
        entry = table.layers[name]
        target = top.shapes(layout.layer(entry.layer, entry.datatype))
        for polygon in polygons:
            target.insert(polygon)
    return Counter(full_check(DRCLayout(layout), rules).markers)


def per_rule(markers: Counter[Marker]) -> Counter[str]:
    """Count markers per rule."""
    counts: Counter[str] = Counter()
    for marker, number in markers.items():
        counts[marker.rule] += number
    return counts
