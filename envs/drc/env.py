"""`DRCEnv`: the Gymnasium environment of the DRC family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edagym.envs.core.edit_env import Observation
from edagym.envs.core.tasks import Prepared, Procedural, SuiteEnv
from edagym.envs.drc.observation import observation_space, violation_arrays
from edagym.envs.drc.prompt import render_prompt, render_violations
from edagym.envs.drc.queries import run_query
from edagym.envs.drc.reporting import PlacedViolation, place, report_items
from edagym.envs.drc.state import LayoutState, Nearby, PreparedTask, task_from_plain
from edagym.errors import EditError, TaskError
from edagym.spaces.actions import Command
from edagym.spaces.drc_actions import (
    MAX_VIOLATIONS,
    ActionContext,
    DRCActionSpace,
    NearbyShape,
    drc_action_from_json,
    drc_action_to_json,
)
from edagym.spaces.drc_edits import DRCEdit, drc_edit_from_json, drc_edit_to_json
from edagym.spaces.drc_queries import Query
from edagym.task_assets.drc.task import DRCTask, DRCView, Violation
from edagym.verifiers.drc import DRCLayout
from edagym.verifiers.drc.verifier import violation_reduction
from edagym.verifiers.verdict import Verdict

prepare = Prepared(PreparedTask, 128)
"""What depends on a task only, made once per process and task object."""


class DRCEnv(SuiteEnv[DRCTask, DRCEdit | Query]):
    """Repair the design rule violations of a layout.

    Actions are those of `DRCActionSpace`, observations those of `observation_space`; both are the same for every id.
    Every edit, query and check costs one unit of the budget, 8 for L1 and L2, 16 for L3; submit costs none. The
    violations in the observation are those of the task and then of the last check. ``info["text"]`` is what the last
    query or check answered, ``info["n_violations"]`` and ``info["vrr"]`` go by the last check, at the end by the final
    one. ``info["circuit_kept"]`` says after every edit whether it certainly kept nets and devices as they were (1),
    perhaps not (0), or was not looked at (-1); see `LayoutState.circuit_kept`.

    Args:
        suite: Suite name (``"DRC-Essential-L1"`` ... ``"DRC-All"``), or a folder with task folders below it, such as
            `edagym import-posteda` writes; ignored with `tasks`.
        tasks: Task objects or suite ids to choose from, instead of a suite.
        render_size: Width and height of pictures, pixels, 16 to 1,024 each.
        **kwargs: See `EditEnv`: criterion, budget, stop_on_success, reward, on_tool_error, render_mode.

    Raises:
        TaskError: If the suite or a task is unknown.
        ValueError: If another argument is out of range.
    """

    task_type = DRCTask

    def __init__(
        self,
        suite: str = "DRC-All",
        tasks: Sequence[DRCTask | str] | None = None,
        *,
        render_size: Sequence[int] = (512, 512),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if len(render_size) != 2 or not all(16 <= n <= 1024 for n in render_size):
            raise ValueError(f"render_size must be two numbers in 16..1024, got {render_size!r}")
        self.render_size = (int(render_size[0]), int(render_size[1]))
        self._tasks = self._task_table(suite, tasks)
        self.observation_space = observation_space()
        self.action_space: DRCActionSpace = DRCActionSpace()

    def _task_table(self, suite: str, tasks: Sequence[DRCTask | str] | None) -> dict[str, DRCTask | None]:
        """Return task id -> task object; None where the suite's loader has it."""
        from edagym.task_assets.drc.suite import SUITES, load_folder, task_ids

        if tasks is None and suite not in SUITES and Path(suite).is_dir():
            return dict(load_folder(suite))
        if tasks is None:
            ids = task_ids(suite)
            if not ids:
                raise TaskError("the suite has not been built", field="suite", value=suite)
            return dict.fromkeys(ids)
        return self._given(tasks)

    def _load_task(self, task_id: str) -> DRCTask:
        from edagym.task_assets.drc.suite import load_task

        return load_task(task_id)

    def _clear_episode(self) -> None:
        super()._clear_episode()
        self._state: LayoutState | None = getattr(self, "_state", None)
        self._saved_edits: tuple[DRCEdit, ...] = ()
        self._reported: tuple[Violation, ...] = ()
        self._counts: dict[str, int] = {}
        self._selected = 0
        self._text = ""
        self._violations: tuple[PlacedViolation, ...] = ()
        self._violation_arrays: dict[str, np.ndarray] = {}

    # -- the running episode ---------------------------------------------------------------------------------------

    @property
    def view(self) -> DRCView:
        """What an agent may know about the current task."""
        return self._ready.prepared.view

    @property
    def layout(self) -> DRCLayout:
        """A copy of the current layout."""
        return self._ready.layout.copy()

    @property
    def edits(self) -> tuple[DRCEdit, ...]:
        """The edits that led to the current layout, oldest first."""
        return self._ready.edits

    @property
    def report(self) -> tuple[Violation, ...]:
        """The violations that the agent knows: the task's, or those of the last check."""
        return self._reported

    @property
    def placed_violations(self) -> tuple[PlacedViolation, ...]:
        """The same with their geometry in database units, in the top cell's frame at their example placements."""
        return self._violations

    @property
    def prompt(self) -> str:
        """The task as a text for language models."""
        prepared = self._ready.prepared
        return render_prompt(prepared.view, prepared.initial.dbu, self.action_space.describe(), self.budget)

    @property
    def context(self) -> ActionContext:
        """The tables that the current observation's actions point into."""
        prepared = self._ready.prepared
        top = prepared.task.top
        shapes = tuple(NearbyShape(s.layer, "" if s.cell == top else s.cell, s.own) for s in self._nearby()[0])
        listed = tuple(v.listed for v in self._violations[:MAX_VIOLATIONS])
        return ActionContext(prepared.layers, prepared.cells, shapes, listed)

    def undo(self) -> tuple[Observation, dict[str, Any]]:
        """Take the last applied edit back, with what the trace recorded since. What it cost stays spent.

        Returns:
            Observation and info.

        Raises:
            EditError: If there is no edit to take back, or the episode is over.
        """
        if self._ended:
            raise EditError("the episode is over", field="undo")
        self._ready.undo()
        edits = [drc_edit_to_json(e) for e in self._ready.edits]
        kept = 0
        for i, step in enumerate(self._steps):
            if len(edits) > 0 and step["action"] == edits[0] and "edit_error" not in step:
                edits.pop(0)
                kept = i + 1
        self._steps = self._steps[:kept]
        self._current = None
        self._edit_error = ""
        return self.observe()

    @property
    def _ready(self) -> LayoutState:
        if self._state is None:
            self._state = LayoutState(self._prepare(self.task))
            self._state.restore(self._saved_edits)
        return self._state

    def _prepare(self, task: DRCTask) -> PreparedTask:
        return prepare(task)

    def __getstate__(self) -> dict[str, Any]:
        # The layout holds KLayout objects, which do not pickle; it is made again on demand.
        edits = self._saved_edits if self._state is None else self._state.edits
        return {**super().__getstate__(), "_state": None, "_saved_edits": edits}

    # -- EditEnv ---------------------------------------------------------------------------------------------------

    def _default_budget(self, task: DRCTask) -> int:
        return task.budget

    def _begin(self, task: DRCTask) -> None:
        if self._state is None or self._state.prepared.task is not task:
            self._state = LayoutState(self._prepare(task))
        else:
            self._state.restore(())
        prepared = self._state.prepared
        self._reported, self._counts, self._selected = task.violations, dict(task.counts), 0
        self._violations, self._violation_arrays = prepared.violations, prepared.violation_arrays

    def _set_report(self, items: tuple[Violation, ...], counts: Mapping[str, int]) -> None:
        """Remember a report as what the agent knows."""
        prepared = self._ready.prepared
        self._reported, self._counts, self._selected = items, dict(counts), 0
        self._violations = place(items, prepared.initial, prepared.table)
        self._violation_arrays = violation_arrays(
            self._violations, counts, prepared.table, prepared.cell_rows, prepared.initial.dbu
        )

    def _decode(self, action: Any) -> DRCEdit | Query | Command:
        return self.action_space.to_edit(action, self.context)

    def _apply(self, edit: DRCEdit | Query) -> None:
        if not isinstance(edit, Query):
            self._ready.apply(edit)
            return
        prepared = self._ready.prepared
        self._text = run_query(self._ready.layout, prepared.table, edit).text()
        cell = "" if edit.cell == prepared.task.top else edit.cell
        asked = (cell, edit.kind, edit.points)
        for i, v in enumerate(self._violations[:MAX_VIOLATIONS]):
            if (v.listed.cell, v.listed.kind, v.listed.points) == asked:
                self._selected = i
                break

    def _run_verifier(self) -> Verdict:
        state = self._ready
        report = state.report()
        # Guards cannot turn a layout with violations into a success: they run only where they decide.
        verdict = state.prepared.verifier.verify(report, strict=report.clean)
        self._set_report(report_items(report), report.counts)
        return verdict

    def _verify_now(self) -> Verdict:
        verdict = super()._verify_now()
        # Also where nothing has changed since the last check: whoever pays for a check gets an answer.
        clean = verdict.paper_success
        self._text = "No violations.\n" if clean else render_violations(self._reported, self.task.top)
        return verdict

    def peek(self) -> Verdict:
        """Return the verdict of the layout as it is; see `EditEnv.peek`."""
        # `_run_verifier` would also renew the report that the agent reads.
        report = self._ready.report()
        return self._ready.prepared.verifier.verify(report, strict=report.clean)

    def _step(self, action: DRCEdit | Query | Command | None, refused: str, edits: Any = None) -> Any:
        self._text = ""
        return super()._step(action, refused, edits)

    def _info(self) -> dict[str, Any]:
        found = sum(self._counts.values())
        return {
            **super()._info(),
            "n_violations": found,
            "vrr": float(violation_reduction(self.task.total, found)),
            "circuit_kept": self._ready.circuit_kept(),
            "text": self._text,
        }

    def _observe(self) -> Observation:
        observation: Observation = {key: array.copy() for key, array in self._ready.prepared.arrays}
        observation.update({key: array.copy() for key, array in self._violation_arrays.items()})
        observation.update({key: array.copy() for key, array in self._nearby()[1].items()})
        seen = self._seen
        success = (-1, -1) if seen is None else (seen.paper_success, seen.strict_success)
        observation["selected"] = np.array((self._selected if self._violations else -1,), np.int16)
        observation["budget_left"] = np.array((self.budget_left,), np.int16)
        observation["last_vrr"] = np.array((-1.0 if seen is None else seen.metrics["vrr"],), np.float32)
        observation["last_success"] = np.array(success, np.int8)
        observation["last_edit_error"] = np.array((bool(self._edit_error),), np.int8)
        return observation

    def _nearby(self) -> Nearby:
        """Return the shapes near the selected violation and their arrays."""
        return self._ready.nearby(self._violations[self._selected].box if self._violations else None)

    def _to_json(self, action: DRCEdit | Query | Command) -> dict[str, Any]:
        return drc_action_to_json(action)

    def _from_json(self, data: Mapping[str, Any]) -> DRCEdit | Query | Command:
        return drc_action_from_json(data)

    def _task_to_plain(self, task: DRCTask) -> dict[str, Any]:
        return self._ready.prepared.plain

    def _task_from_plain(self, data: Any) -> DRCTask:
        if self._task is not None:
            plain = self._ready.prepared.plain
            if data is plain or data["digest"] == plain["digest"]:
                return self._task
        return task_from_plain(data)

    def _layout_to_plain(self) -> dict[str, Any]:
        return {
            "edits": [drc_edit_to_json(e) for e in self._ready.edits],
            "report": None if self._reported is self.task.violations else [v.to_dict() for v in self._reported],
            "counts": dict(self._counts),
            "selected": self._selected,
            "text": self._text,
        }

    def _layout_from_plain(self, data: Any) -> None:
        try:
            self._ready.restore([drc_edit_from_json(e) for e in data["edits"]])
        except EditError as e:
            raise TaskError(f"the snapshot's edits do not fit ({e})", field="snapshot") from e
        if data["report"] is not None:
            items = tuple(
                Violation(v["category"], v["description"], v["cell_name"], tuple(v["values"]), v["parent"], v["trans"])
                for v in data["report"]
            )
            self._set_report(items, {str(k): int(n) for k, n in data["counts"].items()})
        self._selected = min(max(int(data["selected"]), 0), max(len(self._violations) - 1, 0))
        self._text = str(data["text"])

    def _render_rgb(self) -> np.ndarray:
        from edagym.envs.drc.viewer import render_window, view_window

        state = self._ready
        window = view_window(self._violations, state.layout, self._selected)
        return render_window(state.layout, state.prepared.table, window, self._violations, size=self.render_size)

    def _render_text(self) -> str:
        lines = [f"{self.task.id}: {sum(self._counts.values())} of {self.task.total} violations left"]
        lines += [f"  {rule}: {n}" for rule, n in self._counts.items()]
        lines.append(f"{len(self.edits)} edits; budget left: {self.budget_left} of {self.budget}")
        return "\n".join(lines) + "\n"


class DRCTrainEnv(Procedural[DRCTask, DRCEdit | Query], DRCEnv):
    """Endless tasks, none of them in the fixed suite: a new one on every reset.

    Args:
        level: ``"L1"`` (one violation alone), ``"L2"`` (one in context) or ``"L3"`` (several); None: any.
        target: Rule id or rule class, e.g. ``"width/M3"``, for L1 and L2; None: any.
        **kwargs: See `DRCEnv` (but neither suite nor tasks).
    """

    def __init__(self, level: str | None = None, target: str | None = None, **kwargs: Any) -> None:
        self._refuse_choice(kwargs)
        super().__init__(**kwargs)
        self.redirect(level=level, target=target)

    def redirect(self, *, level: str | None = None, target: str | None = None) -> None:
        """Draw the tasks from the next reset on by another level and target; None: any."""
        self._level, self._target = level, target

    def _prepare(self, task: DRCTask) -> PreparedTask:
        return PreparedTask(task)  # seen once: not worth a place in the shared cache

    def _generate(self, rng: np.random.Generator) -> DRCTask:
        from edagym.envs.drc.generator import generate_task

        return generate_task(rng, level=self._level, target=self._target)
