"""`FETEnv` and `FETTrainEnv`: the Gymnasium environments of the FET family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from edagym.envs.core.edit_env import MAX_BUDGET, Observation
from edagym.envs.core.tasks import Prepared, Procedural, SuiteEnv
from edagym.envs.fet.interpreter import apply_edit, drawing_window
from edagym.envs.fet.observation import (
    LayoutArrays,
    check_flags,
    found_transistors,
    observation_space,
    static_arrays,
)
from edagym.errors import TaskError
from edagym.spaces.actions import Command, EditSpace, action_from_json, action_to_json
from edagym.spaces.edits import AddPolygon, Edit
from edagym.task_assets.fet.task import FETTask, TaskView
from edagym.verifiers.fet import FETVerifier
from edagym.verifiers.fet.layout import FETLayout
from edagym.verifiers.verdict import Verdict

MIN_BUDGET = 40
"""Least default budget; beyond it, twice the edits of the task's reference."""

MAX_ROUNDS = 100

_TASK_ARGUMENTS = ("level", "tier", "architecture", "n_regions", "demand", "holes")


class _Prepared:
    """What depends on a task only: view, observation arrays, verifier, initial layout."""

    def __init__(self, task: FETTask) -> None:
        self.task = task
        self.view = task.view()
        self.layers = tuple(spec.name for spec in task.layers)
        self.window = drawing_window(task.regions)
        self.arrays = tuple(static_arrays(self.view).items())
        self.initial = FETLayout.from_task(task)
        self.verifier = FETVerifier(task)


_prepare = Prepared(_Prepared, 256)


class FETEnv(SuiteEnv[FETTask, Edit]):
    """Draw contacts, gates, vias and pads over fixed flakes until every requested transistor is there.

    Actions are those of `EditSpace`, observations those of `observation_space`; both are the same for every id.

    Args:
        suite: Suite name (``"FET-L1"`` ... ``"FET-L4"``, ``"FET-Holes"``, ``"FET-All"``); ignored with `tasks`.
        tasks: Task objects or suite ids to choose from, instead of a suite.
        guard_inputs: Refuse edits of read-only layers (True), or leave them to the verifier (False; paper, Appendix B).
        render_size: Width and height of pictures, pixels, 16 to 4,096 each.
        rounds: Budget of text policies in rounds of one list of edits and one verify, 1 to `MAX_ROUNDS`; None: the
            budget is counted in edits.
        rounds_per: Whether there are so many rounds for the whole layout, or for each layer to be drawn.
        **kwargs: See `EditEnv`: criterion, budget, stop_on_success, reward, on_tool_error, render_mode.

    Raises:
        TaskError: If the suite or a task is unknown.
        ValueError: If another argument is out of range.
    """

    task_type = FETTask
    takes_lists = True

    def __init__(
        self,
        suite: str = "FET-All",
        tasks: Sequence[FETTask | str] | None = None,
        *,
        guard_inputs: bool = True,
        render_size: Sequence[int] = (512, 512),
        rounds: int | None = None,
        rounds_per: Literal["layout", "layer"] = "layout",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.guard_inputs = guard_inputs
        if rounds is not None and not (isinstance(rounds, int) and 1 <= rounds <= MAX_ROUNDS):
            raise ValueError(f"rounds must be a whole number in 1..{MAX_ROUNDS}, got {rounds!r}")
        if rounds_per not in ("layout", "layer"):
            raise ValueError(f"rounds_per must be 'layout' or 'layer', got {rounds_per!r}")
        self.rounds = rounds
        self.rounds_per = rounds_per
        if len(render_size) != 2 or not all(16 <= n <= 4096 for n in render_size):
            raise ValueError(f"render_size must be two numbers in 16..4096, got {render_size!r}")
        self.render_size = (int(render_size[0]), int(render_size[1]))
        self._tasks = self._task_table(suite, tasks)
        self.observation_space = observation_space()
        self.action_space: EditSpace = EditSpace()
        self._prepared: _Prepared | None = None
        self._layout: FETLayout | None = None
        self._arrays: LayoutArrays | None = None

    def _task_table(self, suite: str, tasks: Sequence[FETTask | str] | None) -> dict[str, FETTask | None]:
        """Return task id -> task object; None where the suite's loader has it."""
        from edagym.task_assets.fet.suite import task_ids

        return dict.fromkeys(task_ids(suite)) if tasks is None else self._given(tasks)

    def _load_task(self, task_id: str) -> FETTask:
        from edagym.task_assets.fet.suite import load_task

        return load_task(task_id)

    # -- the running episode ---------------------------------------------------------------------------------------

    @property
    def view(self) -> TaskView:
        """What an agent may know about the current task."""
        return self._ready.view

    @property
    def prompt(self) -> str:
        """The task as a text for language models (scaffold C0)."""
        from edagym.envs.fet.prompt import render_prompt

        return render_prompt(self.view)

    @property
    def layout(self) -> FETLayout:
        """A copy of the current layout."""
        assert self._layout is not None, "there is no layout before reset()"
        return self._layout.copy()

    @property
    def window_um(self) -> tuple[float, float, float, float]:
        """Box (x1, y1, x2, y2) in um in which edits must lie."""
        return self._ready.window

    @property
    def _ready(self) -> _Prepared:
        if self._prepared is None:
            self._prepared = self._prepare(self.task)
        return self._prepared

    def _prepare(self, task: FETTask) -> _Prepared:
        return _prepare(task)

    def __getstate__(self) -> dict[str, Any]:
        # The prepared task holds KLayout objects, which do not pickle; it is made again on demand.
        return {**super().__getstate__(), "_prepared": None}

    # -- EditEnv ---------------------------------------------------------------------------------------------------

    def _default_budget(self, task: FETTask) -> int:
        if self.rounds is not None:
            return 2 * self.rounds * (len(task.required_layers) if self.rounds_per == "layer" else 1)
        return min(max(2 * int(task.metadata.get("reference_edits", 0)), MIN_BUDGET), MAX_BUDGET)

    def _begin(self, task: FETTask) -> None:
        if self._prepared is None or self._prepared.task is not task:
            self._prepared = self._prepare(task)
            self._arrays = None
        self._layout = self._prepared.initial.copy()
        if self._arrays is None:
            self._arrays = LayoutArrays(self._prepared.view)
        else:
            self._arrays.rebuilt(self._layout)

    def _decode(self, action: Any) -> Edit | Command:
        return self.action_space.to_edit(action, self._ready.layers)

    def _apply(self, edit: Edit) -> None:
        assert self._layout is not None
        assert self._arrays is not None
        apply_edit(self._layout, edit, guard_inputs=self.guard_inputs, window=self._ready.window)
        if type(edit) is AddPolygon:
            self._arrays.appended(self._layout, edit.layer)
        else:
            self._arrays.rebuilt(self._layout)

    def _run_verifier(self) -> Verdict:
        assert self._layout is not None
        return self._ready.verifier.verify(self._layout)

    def _set_seen(self, verdict: Verdict | None) -> None:
        super()._set_seen(verdict)
        self._flags = check_flags(verdict, self.criterion)
        self._found = found_transistors(verdict, self._ready.view.regions if verdict else ())

    def _observe(self) -> Observation:
        assert self._arrays is not None
        observation: Observation = {key: array.copy() for key, array in self._ready.arrays}
        observation.update(self._arrays.copies())
        observation["budget_left"] = np.array((self.budget_left,), np.int16)
        observation["last_checks"] = self._flags.copy()
        observation["last_transistors"] = self._found.copy()
        observation["last_share"] = np.array((self._verdict_info["share_passed"],), np.float32)
        observation["last_edit_error"] = np.array((bool(self._edit_error),), np.int8)
        observation["inputs_changed"] = np.array((self._inputs_changed(),), np.int8)
        return observation

    def _inputs_changed(self) -> bool:
        if self.guard_inputs:
            return False
        assert self._layout is not None
        initial = self._ready.initial
        fixed = [spec.name for spec in self.task.layers if not spec.editable]
        return any(self._layout.shapes(name) != initial.shapes(name) for name in fixed)

    def _to_json(self, action: Edit | Command) -> dict[str, Any]:
        return action_to_json(action)

    def _from_json(self, data: Mapping[str, Any]) -> Edit | Command:
        return action_from_json(data)

    def _task_to_plain(self, task: FETTask) -> dict[str, Any]:
        return task.to_dict()

    def _task_from_plain(self, data: Any) -> FETTask:
        task = FETTask.from_dict(data, "snapshot")
        known = self._task if self._task is not None and self._task.id == task.id else self._tasks.get(task.id)
        # The known object has its observation and verifier prepared already.
        return known if known is not None and known == task else task

    def _layout_to_plain(self) -> dict[str, Any]:
        assert self._layout is not None
        return {
            spec.name: [[list(p) for p in ring] for ring in self._layout.shapes(spec.name)] for spec in self.task.layers
        }

    def _layout_from_plain(self, data: Any) -> None:
        assert self._arrays is not None
        shapes = {
            spec.name: tuple(tuple((int(x), int(y)) for x, y in ring) for ring in data[spec.name])
            for spec in self.task.layers
        }
        self._layout = FETLayout(self.task.layers, shapes)
        self._arrays.rebuilt(self._layout)

    def _render_rgb(self) -> np.ndarray:
        from edagym.envs.fet.viewer import render_rgb

        return render_rgb(self.view, self.layout, size=self.render_size)

    def _render_text(self) -> str:
        from edagym.envs.fet.viewer import render_text

        return f"{render_text(self.view, self.layout, self.verdict)}budget left: {self.budget_left} of {self.budget}\n"


class FETTrainEnv(Procedural[FETTask, Edit], FETEnv):
    """Endless procedural tasks, disjoint from the fixed suite: a new one on every reset.

    Args:
        level: ``"L1"`` ... ``"L4"``; None: any. Likewise for the other task arguments (see
            `edagym.envs.fet.generator.generate_task`).
        tier: ``"G1"``, ``"G2"`` or ``"G3"``: shape tier of the flakes.
        architecture: Device architecture.
        n_regions: Number of flakes.
        demand: Transistors of each flake, or one number per flake.
        holes: Holes of each flake; True for 1.
        **kwargs: See `FETEnv` (but neither suite nor tasks).
    """

    def __init__(
        self,
        level: str | None = None,
        tier: str | None = None,
        architecture: str | None = None,
        n_regions: int | None = None,
        demand: int | Sequence[int] | None = None,
        holes: int | bool | None = None,
        **kwargs: Any,
    ) -> None:
        self._refuse_choice(kwargs)
        super().__init__(**kwargs)
        self.redirect(
            level=level, tier=tier, architecture=architecture, n_regions=n_regions, demand=demand, holes=holes
        )

    def redirect(self, **wanted: Any) -> None:
        """Draw the tasks from the next reset on by other arguments: level, tier and so on; None or absent: any."""
        unknown = sorted(set(wanted) - set(_TASK_ARGUMENTS))
        if unknown:
            raise TaskError("no argument of training tasks", field=unknown[0], allowed=_TASK_ARGUMENTS)
        self._wanted = {name: value for name, value in wanted.items() if value is not None}

    def _prepare(self, task: FETTask) -> _Prepared:
        return _Prepared(task)  # seen once: not worth a place in the shared cache

    def _generate(self, rng: np.random.Generator) -> FETTask:
        from edagym.envs.fet.generator import generate_task

        return generate_task(rng, **self._wanted)
