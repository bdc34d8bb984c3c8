"""`CheckReport`: what a check found, counted and worded as the sign-off tool does it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from edagym.verifiers.drc.attribution import Item, attribute
from edagym.verifiers.drc.layout import DRCLayout
from edagym.verifiers.drc.markers import Box, Marker, MarkerStore
from edagym.verifiers.drc.rules import RuleTable

RoiUm = tuple[float, float, float, float]


@dataclass(eq=False)
class CheckReport:
    """The outcome of a check.

    Attributes:
        layout: The layout that was checked. Edit it only after the report has been read.
        table: The rules.
        markers: All flat markers in the frame of the top cell, in database units, whatever the region of interest.
        roi: Region of interest (x1, y1, x2, y2) in micrometres, or None. With one, only flat markers that lie inside
            count, each for itself.
    """

    layout: DRCLayout
    table: RuleTable
    markers: MarkerStore
    roi: RoiUm | None = None

    @cached_property
    def flat(self) -> tuple[Marker, ...]:
        """The flat markers that count: those inside the region of interest, if there is one."""
        if self.roi is None:
            return tuple(self.markers)
        box = roi_box(self.roi, self.layout.dbu)
        return tuple(m for m in self.markers if inside(m.bbox, box))

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """The violations, attributed to cells."""
        return attribute(self.layout, self.table, self.flat, to_cells=self.roi is None)

    @cached_property
    def counts(self) -> dict[str, int]:
        """Number of items per rule, in reporting order; rules without any are left out."""
        counts: dict[str, int] = {}
        for item in self.items:
            counts[item.rule] = counts.get(item.rule, 0) + 1
        return counts

    @property
    def total(self) -> int:
        """Number of items."""
        return len(self.items)

    @property
    def clean(self) -> bool:
        """Whether there are no violations (in the region of interest)."""
        return not self.flat

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict: counts per rule, and all items with their geometry in micrometres."""
        dbu = self.layout.dbu
        return {
            "table": self.table.name,
            "top_cell": self.layout.top.name,
            "dbu": dbu,
            "roi": None if self.roi is None else list(self.roi),
            "total": self.total,
            "counts": self.counts,
            "items": [
                {
                    "rule": i.rule,
                    "description": self.table.rules[i.rule].description,
                    "cell": i.cell,
                    "variant": i.variant,
                    "geometry": i.marker.text(dbu),
                    "parent": i.parent or None,
                    "trans": i.trans or None,
                    "placements": i.placements,
                    "where": list(i.where),
                }
                for i in self.items
            ],
        }

    def text(self, limit: int = 10) -> str:
        """Return the report for people and language models: at most `limit` items per rule and cell."""
        groups: dict[tuple[str, str], list[Item]] = {}
        for item in self.items:
            groups.setdefault((item.rule, item.cell), []).append(item)
        lines = [f"top cell {self.layout.top.name}: {self.total} violation(s) of {len(self.counts)} rule(s)"]
        for (rule, cell), items in groups.items():
            lines.append(f"{rule} in {cell}, {len(items)} item(s): {self.table.rules[rule].description}")
            for item in items[:limit]:
                place = f" [placed in {item.parent} at {item.trans}]" if item.parent else ""
                lines.append(f"  {item.marker.text(self.layout.dbu)}{place}")
            if len(items) > limit:
                lines.append(f"  and {len(items) - limit} more")
        return "\n".join(lines)


def roi_box(roi: RoiUm, dbu: float) -> Box:
    """Return a region of interest in database units."""
    x1, y1, x2, y2 = (round(v / dbu) for v in roi)
    return (min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2))


def inside(inner: Box, outer: Box) -> bool:
    """Return whether a box lies inside another, borders included."""
    return inner[0] >= outer[0] and inner[1] >= outer[1] and inner[2] <= outer[2] and inner[3] <= outer[3]
