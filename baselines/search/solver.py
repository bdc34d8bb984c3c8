"""The search policy as a solver of layouts without a task: what the suite's reasoning references come from."""

from __future__ import annotations

from edagym.baselines.search.drc_repair import SearchSettings, Workbench, repair
from edagym.envs.drc.reporting import report_items
from edagym.spaces.drc_edits import DRCEdit
from edagym.verifiers.drc import DRCLayout, full_check, load_table
from edagym.verifiers.drc.guards import derive_limits

WORK = 6_000
"""Effort per pass (`SearchSettings.work`)."""


def solve(layout: DRCLayout, most: int) -> tuple[DRCEdit, ...] | None:
    """Search for a repair of a layout that keeps its circuit.

    Args:
        layout: The layout; it is not changed.
        most: Most edits.

    Returns:
        The edits, or None if some violation is left.
    """
    table = load_table()
    report = full_check(layout, table)
    limits = derive_limits([m.bbox for m in report.flat], layout.dbu)
    bench = Workbench(layout, table, report_items(report), report.markers, limits)
    found = repair(bench, most, SearchSettings(work=WORK))
    return found.edits if found.after == 0 else None
