"""`CheckReport`: what a check found, counted and worded as the sign-off tool does it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from edagym.verifiers.drc.layout import DRCLayout
from edagym.verifiers.drc.markers import Box, Marker, MarkerStore
from edagym.verifiers.drc.rules import RuleTable


@dataclass(eq=False)
class CheckReport:
    """The outcome of a check.

    Attributes:
        layout: The layout that was checked. Edit it only after the report has been read.
        table: The rules.
        markers: All flat markers in the frame of the top cell, in database units, whatever the region of interest.
        roi: Region of interest in micrometres, or None.
    """

    layout: DRCLayout
    table: RuleTable
    markers: MarkerStore
    roi: tuple[float, float, float, float] | None = None

    @cached_property
    def flat(self) -> tuple[Marker, ...]:
        """The flat markers that count: those inside the region of interest, if there is one."""
        if self.roi is None:
            return tuple(self.markers)
        box = roi_box(self.roi, self.layout.dbu)
        return tuple(m for m in self.markers if inside(m.bbox, box))

    @cached_property
    def counts(self) -> dict[str, int]:
        """Number of violations per rule; rules without any are left out."""
        counts: dict[str, int] = {}
        for m in self.flat:
            counts[m.rule] = counts.get(m.rule, 0) + 1
        return counts

    @property
    def total(self) -> int:
        """Number of violations."""
        return sum(self.counts.values())

    @property
    def clean(self) -> bool:
        """Whether there are no violations (in the region of interest)."""
        return not self.flat


def roi_box(roi: tuple[float, float, float, float], dbu: float) -> Box:
    """Return a region of interest in database units."""
    x1, y1, x2, y2 = (round(v / dbu) for v in roi)
    return (min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2))


def inside(inner: Box, outer: Box) -> bool:
    """Return whether a box lies inside another, borders included."""
    return inner[0] >= outer[0] and inner[1] >= outer[1] and inner[2] <= outer[2] and inner[3] <= outer[3]
