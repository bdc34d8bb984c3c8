"""Strict checks: what a working device needs beyond the paper's verifier (paper, Section 6.5).

All geometry is merged, in integer database units (1 nm).
"""

from __future__ import annotations

import klayout.db as kdb

from edagym.task_assets.fet.task import FETTask
from edagym.verifiers.fet.layout import FETLayout
from edagym.verifiers.verdict import BBox, CheckResult

# Booleans snap to the 1 nm grid, so leftovers thinner than this are rounding, not geometry (database units).
SNAP = 2


def strict_checks(task: FETTask, layout: FETLayout) -> list[CheckResult]:
    """Return the strict checks of a layout, in a fixed order; every result has ``strict=True``.

    Args:
        task: The task; its fixed flakes are taken from here, not from the layout.
        layout: The layout to check.
    """
    return [_vias(task, layout)]


def _vias(task: FETTask, layout: FETLayout) -> CheckResult:
    """Every via lies inside a contact and, where the task has pad covers, inside a pad cover."""
    covers = [spec.name for role in ("contact", "pad cover") for spec in task.layers_of(role)]
    for via in task.layers_of("via"):
        for cover in covers:
            out = (layout.region(via.name) - layout.region(cover)).sized(-SNAP)
            if not out.is_empty():
                message = f"{via.name} must lie inside {cover}; {out.count()} place(s) do not"
                return CheckResult(
                    "strict_via", "strict_via", False, where=_um(out.bbox()), message=message, strict=True
                )
    return CheckResult("strict_via", "strict_via", True, message="every via lies where it should", strict=True)


def _um(box: kdb.Box) -> BBox:
    return (box.left / 1000, box.bottom / 1000, box.right / 1000, box.top / 1000)
