"""What a DRC episode runs on: a task prepared once, and its layout under edits, with its markers up to date."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import klayout.db as kdb
import numpy as np

from edagym.envs.drc.edits import Applied, LayoutEditor
from edagym.envs.drc.observation import shape_arrays, static_arrays, violation_arrays
from edagym.envs.drc.queries import FoundShape, shapes_near
from edagym.envs.drc.reporting import Box, place
from edagym.errors import TaskError, ToolError
from edagym.spaces.drc_actions import MAX_CELLS, MAX_SHAPES
from edagym.spaces.drc_edits import DRCEdit
from edagym.task_assets.drc.task import DRCTask
from edagym.verifiers.drc import CheckReport, DRCLayout, Marker, MarkerStore, full_check, load_table
from edagym.verifiers.drc.connectivity import guard_windows, window_guard
from edagym.verifiers.drc.guards import die_box
from edagym.verifiers.drc.incremental import IncrementalChecker
from edagym.verifiers.drc.verifier import DRCVerifier

NEAR_NM = 150
"""Shapes are listed whose bounding boxes lie within this distance of the selected violation's, nm."""

MAX_GUARD_WINDOWS = 8
"""Of edits at more places than this the circuit is not looked at before the final audit."""
MAX_GUARD_UM = 4.0
"""Nor of edits that change more than a window of this size, um."""

_MAX_STORES = 512
_MAX_NEARBY = 64

Nearby = tuple[tuple[FoundShape, ...], dict[str, np.ndarray]]
"""Listed shapes and their arrays (`edagym.envs.drc.observation.shape_arrays`)."""


class PreparedTask:
    """What depends on a task only; shared by the environments of a process, so treat it as read-only.

    Args:
        task: The task.

    Raises:
        TaskError: If layout, rules or violations of the task are unusable or do not fit each other.
    """

    def __init__(self, task: DRCTask) -> None:
        self.task = task
        self.view = task.view()
        self.table = load_table(task.rules)
        self.initial = DRCLayout.from_bytes(task.gds, f"layout of {task.id}")
        if self.initial.top.name != task.top:
            raise TaskError(f"{task.id}: another top cell", field="top", value=self.initial.top.name, allowed=task.top)
        names = sorted(c.name for c in self.initial.layout.each_cell() if c.name != task.top)
        if len(names) >= MAX_CELLS:
            raise TaskError(f"{task.id}: too many cells", field="cells", value=len(names), allowed=f"< {MAX_CELLS}")
        self.cells = ("", *names)
        self.cell_rows = {name: i for i, name in enumerate(self.cells)}
        self.layers = tuple(self.table.layers)
        self.arrays = tuple(static_arrays(self.view, self.table, self.initial.dbu).items())
        self.violations = place(task.violations, self.initial, self.table)
        self.violation_arrays = violation_arrays(
            self.violations, task.counts, self.table, self.cell_rows, self.initial.dbu
        )
        self.die = die_box(self.initial)
        golden = None if task.golden is None else DRCLayout.from_bytes(task.golden, f"golden layout of {task.id}")
        self.verifier = DRCVerifier(self.initial, self.table, task.counts, task.limits, golden)
        self._markers: MarkerStore | None = None
        self._plain: dict[str, Any] | None = None

    @property
    def markers(self) -> MarkerStore:
        """The initial layout's markers: the task's own, or those of a full check where it has none."""
        if self._markers is None:
            if self.task.markers is None:
                self._markers = full_check(self.initial, self.table).markers
            else:
                self._markers = MarkerStore(self.table.rules, self.initial.dbu)
                for rule, kind, rings, symmetric, count in self.task.markers:
                    if rule not in self.table.rules:
                        raise TaskError(f"{self.task.id}: marker of an unknown rule", field="markers", value=rule)
                    self._markers.add(Marker(rule, kind, rings, symmetric), count)  # type: ignore[arg-type]
        return self._markers

    @property
    def plain(self) -> dict[str, Any]:
        """The whole task as plain data, made once: treat it as read-only."""
        if self._plain is None:
            self._plain = task_to_plain(self.task)
        return self._plain


def task_to_plain(task: DRCTask) -> dict[str, Any]:
    """Return a task with its layouts as JSON-ready data, and a digest of it all."""
    data: dict[str, Any] = {"task": task.to_dict(), "gds": _pack(task.gds)}
    data["golden"] = None if task.golden is None else _pack(task.golden)
    data["digest"] = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    return data


def task_from_plain(data: Any) -> DRCTask:
    """Undo `task_to_plain`; raises `TaskError`, `KeyError`, `TypeError` or `ValueError`."""
    golden = data["golden"]
    return DRCTask.from_dict(
        data["task"], _unpack(data["gds"]), None if golden is None else _unpack(golden), source="snapshot"
    )


def _pack(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode("ascii")


def _unpack(text: str) -> bytes:
    try:
        return zlib.decompress(base64.b64decode(text, validate=True))
    except zlib.error as e:
        raise ValueError(str(e)) from e


class LayoutState:
    """A task's layout while it is edited.

    Args:
        prepared: The task.
    """

    def __init__(self, prepared: PreparedTask) -> None:
        self.prepared = prepared
        self.layout = prepared.initial.copy()
        self._editor = LayoutEditor(self.layout, prepared.table, prepared.die)
        self._checker: IncrementalChecker | None = None
        self._unchecked: list[Applied] = []
        # Markers of layouts met before, by their edits: searching policies come back to the same ones.
        self._stores: OrderedDict[tuple[DRCEdit, ...], MarkerStore] = OrderedDict()
        self._kept: OrderedDict[tuple[str, tuple[DRCEdit, ...]], int] = OrderedDict()
        self._nearby: OrderedDict[tuple[tuple[DRCEdit, ...], Box | None], Nearby] = OrderedDict()

    @property
    def edits(self) -> tuple[DRCEdit, ...]:
        """The applied edits, oldest first."""
        return self._editor.edits

    def apply(self, edit: DRCEdit) -> None:
        """Apply an edit; raises `EditError` and then changes nothing."""
        self._unchecked.append(self._editor.apply(edit))

    def undo(self) -> None:
        """Take the last edit back; raises `EditError` if there is none."""
        self._unchecked.append(self._editor.undo())

    def restore(self, edits: Sequence[DRCEdit]) -> None:
        """Return to the state after `edits`; raises `EditError` if one does not fit."""
        self._unchecked += self._editor.restore(edits)

    def markers(self) -> MarkerStore:
        """Return the markers of the layout as it is; a copy."""
        if self._checker is None:
            self._checker = IncrementalChecker(self.layout, self.prepared.table, self._initial_markers())
        key = self.edits
        known = self._stores.get(key)
        if known is not None:
            self._stores.move_to_end(key)
            self._checker.markers = known.copy()
        else:
            # What the shapes of an edit tell is true only while no other edit has followed.
            alone = len(self._unchecked) == 1
            for applied in self._unchecked:
                self._checker.recheck(applied.boxes, applied.layers, applied.change if alone else None)
            self._stores[key] = self._checker.markers.copy()
            if len(self._stores) > _MAX_STORES:
                self._stores.popitem(last=False)
        self._unchecked.clear()
        return self._stores[key].copy()

    def _initial_markers(self) -> MarkerStore:
        self._stores[()] = self.prepared.markers.copy()
        return self.prepared.markers

    def report(self) -> CheckReport:
        """Check the layout as it is. The report refers to the layout: read it before the next edit."""
        return CheckReport(self.layout, self.prepared.table, self.markers(), self.prepared.task.roi)

    def circuit_kept(self) -> int:
        """Say at small cost whether the edits so far keep the circuit of the task's own layout.

        Only windows around the edits are looked at (`edagym.verifiers.drc.connectivity.window_guard`), and nothing but
        the initial layout is compared with, which the agent has: the golden layout of a task plays no part.

        Returns:
            1: certainly; 0: perhaps not, a net may be open or joined, or a device changed; -1: not looked at, because
            the edits change too many or too large places, or the engine failed there. Only the audit at the end of the
            episode convicts.
        """
        changes = self._editor.applied
        if any(len(applied.boxes) > MAX_GUARD_WINDOWS for applied in changes):
            return -1
        windows = guard_windows((box for applied in changes for box in applied.boxes), self.layout.dbu)
        largest = max((max(w.width(), w.height()) for w in windows), default=0)
        if len(windows) > MAX_GUARD_WINDOWS or largest > MAX_GUARD_UM / self.layout.dbu:
            return -1
        kept = 1
        for window in windows:
            inside = [c for c in changes if any(window.touches(kdb.Box(*b)) for b in c.boxes)]
            key = (str(window), tuple(c.edit for c in inside))
            known = self._kept.get(key)
            if known is None:
                layers = sorted({name for c in inside for name in c.layers})
                known = self._kept[key] = self._look_at(window, layers)
                if len(self._kept) > _MAX_STORES:
                    self._kept.popitem(last=False)
            kept = min(kept, known)
        return kept

    def _look_at(self, box: kdb.Box, layers: list[str]) -> int:
        prepared = self.prepared
        try:
            found = window_guard(prepared.initial, self.layout, box, prepared.verifier.golden.stack, layers)
        except (ToolError, RuntimeError):
            return -1
        return 0 if found else 1

    def nearby(self, box: Box | None) -> Nearby:
        """Return the shapes around a box (database units, top frame; None: no shapes) and their arrays: read-only."""
        key = (self.edits, box)
        found = self._nearby.get(key)
        if found is None:
            found = self._nearby[key] = self._find_nearby(box)
            if len(self._nearby) > _MAX_NEARBY:
                self._nearby.popitem(last=False)
        return found

    def _find_nearby(self, box: Box | None) -> Nearby:
        prepared = self.prepared
        dbu = prepared.initial.dbu
        shapes: tuple[FoundShape, ...] = ()
        if box is not None:
            near = round(NEAR_NM * 0.001 / dbu)
            window = (box[0] - near, box[1] - near, box[2] + near, box[3] + near)
            shapes = tuple(shapes_near(self.layout, prepared.table, window, box, prepared.layers, limit=MAX_SHAPES))
        arrays = shape_arrays(shapes, box, prepared.table, prepared.cell_rows, prepared.task.top, dbu)
        return shapes, arrays
