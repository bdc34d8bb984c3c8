"""Input preservation: the saved layout's fixed layers equal the task's (paper, Section 3 and Appendix G).

Both sides are written as GDSII and read back before the XOR, so that holes are serialised (keyholed) alike.
"""

from __future__ import annotations

import klayout.db as kdb

from edagym.task_assets.fet.task import FETTask, LayerSpec
from edagym.verifiers.fet.drc import box_um
from edagym.verifiers.fet.layout import FETLayout
from edagym.verifiers.verdict import CheckResult


class InputPreservation:
    """Compares a layout's fixed layers with those of a task.

    Args:
        task: The task.
    """

    def __init__(self, task: FETTask) -> None:
        self._fixed = tuple(spec for spec in task.layers if not spec.editable)
        self._initial = FETLayout.from_task(task)
        self._expected = {spec.name: _saved(self._initial, spec) for spec in self._fixed}

    def check(self, layout: FETLayout) -> list[CheckResult]:
        """Return one result per fixed layer."""
        return [self._check_layer(layout, spec) for spec in self._fixed]

    def _check_layer(self, layout: FETLayout, spec: LayerSpec) -> CheckResult:
        id_ = f"inputs_preserved:{spec.name}"
        kept = CheckResult(id_, "inputs_preserved", True, message=f"{spec.name} is as the task gives it")
        # The GDSII stream of a layer is a function of its integer rings: the task's own rings, written once when the
        # expected side was made, need no second proof.
        if layout.shapes(spec.name) == self._initial.shapes(spec.name):
            return kept
        found, expected = _saved(layout, spec), self._expected[spec.name]
        difference = found ^ expected
        if not difference.is_empty():
            where = box_um(difference.bbox())
        elif _vertices(found) != _vertices(expected):
            # KLayout's XOR snaps to the grid: a vertex moved almost along its edge leaves no area behind.
            where = box_um(found.bbox())
        else:
            return kept
        message = f"expected {spec.name} unchanged after a GDSII round trip, found a difference"
        return CheckResult(id_, "inputs_preserved", False, None, None, "", where, message)


def _saved(layout: FETLayout, spec: LayerSpec) -> kdb.Region:
    """Return one layer after a write and a read, merged."""
    alone = FETLayout((spec,), {spec.name: layout.shapes(spec.name)})
    return alone.round_trip().region(spec.name)


def _vertices(region: kdb.Region) -> list[str]:
    return sorted(str(polygon) for polygon in region.each())
