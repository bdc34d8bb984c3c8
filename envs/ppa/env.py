"""`PPAEnv`: the Gymnasium environment of the PPA family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from edagym.envs.core.edit_env import Observation
from edagym.envs.core.tasks import Prepared, Procedural, SuiteEnv
from edagym.envs.ppa.edits import apply_edit
from edagym.envs.ppa.flow.backend import FlowBackend
from edagym.envs.ppa.observation import observation_space
from edagym.envs.ppa.prompt import render_prompt, render_report
from edagym.envs.ppa.runner import FlowRunner, FunctionChecker, check_function, shared_runner
from edagym.envs.ppa.sandbox import read_files
from edagym.envs.ppa.state import (
    MAX_PATH_LINES,
    PreparedTask,
    Run,
    setting_of,
    task_from_plain,
    visible_files,
)
from edagym.errors import FlowError, TaskError
from edagym.spaces.actions import Command
from edagym.spaces.knobs import MAX_KNOBS
from edagym.spaces.ppa_actions import PPAActionContext, PPAActionSpace, ppa_action_from_json, ppa_action_to_json
from edagym.spaces.ppa_edits import PPAEdit, PPAQuery, Read, Report
from edagym.spaces.reports import MAX_VALUE, ReportSpace
from edagym.task_assets.ppa.design import DesignFiles
from edagym.task_assets.ppa.task import METRICS, RUNS, PPATask, PPAView
from edagym.verifiers.ppa.report import PPAReport
from edagym.verifiers.ppa.score import score
from edagym.verifiers.ppa.verifier import NEVER_RUN, verify
from edagym.verifiers.verdict import Verdict

prepare = Prepared(PreparedTask, 128)
"""What depends on a task only, made once per process and task object."""
FREE_EDITS = 50
"""Edits per unit of budget that cost nothing where only runs are charged."""


class PPAEnv(SuiteEnv[PPATask, PPAEdit | PPAQuery]):
    """Bring a design's effective period, power and area to their targets.

    Actions are those of `PPAActionSpace`, observations those of `observation_space`; both are the same for every id.
    Every edit, read, report and run costs one unit of the budget, 16; submit costs none. A run that meets every target
    ends the episode. Whatever else ends it, the verdict is that of the design's own run: a design changed since, never
    run, or failing in the flow is no success, and the improvement score goes by the last completed run.

    ``info["text"]`` is what the last action answered; ``info["nis"]`` the score, beside ``info["nis_nothing"]``, the
    score of a design left alone.

    Flow results are kept by the digest of the design's files and the engine's version (`FlowRunner`): backends are
    deterministic, so restored states and repeated configurations take no time.

    Args:
        suite: Suite name (``"PPA-Multi-L1"`` ... ``"PPA-All"``), or a folder with task folders below it, such as
            `edagym import-posteda` writes; ignored with `tasks`.
        tasks: Task objects or suite ids to choose from, instead of a suite.
        backend: What runs the flow: a backend's name, a `FlowBackend`, or None: the task's own.
        function_check: What compares a changed design's function with the original's; None: the verifiers' check.
        charge: ``"actions"``: every action costs one unit, as agents are counted; ``"runs"``: only runs do, 18 of
            them, as searching policies are (the first 50 edits per unit are then free).
        render_size: Width and height of pictures, pixels, 16 to 1,024 each.
        **kwargs: See `EditEnv`: criterion, budget, stop_on_success, reward, on_tool_error, render_mode.

    Raises:
        TaskError: If the suite or a task is unknown.
        ValueError: If another argument is out of range.
    """

    task_type = PPATask

    def __init__(
        self,
        suite: str = "PPA-All",
        tasks: Sequence[PPATask | str] | None = None,
        *,
        backend: str | FlowBackend | None = None,
        function_check: FunctionChecker | None = None,
        charge: Literal["actions", "runs"] = "actions",
        render_size: Sequence[int] = (768, 512),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if len(render_size) != 2 or not all(16 <= n <= 1024 for n in render_size):
            raise ValueError(f"render_size must be two numbers in 16..1024, got {render_size!r}")
        if charge not in ("actions", "runs"):
            raise ValueError(f"charge must be 'actions' or 'runs', got {charge!r}")
        self.charge = charge
        self.render_size = (int(render_size[0]), int(render_size[1]))
        self._backend = backend
        self._own_runner: FlowRunner | None = None
        if function_check is not None or not (backend is None or isinstance(backend, str)):
            self._own_runner = FlowRunner(backend or "embedded", function_check or check_function)
        self._tasks = self._task_table(suite, tasks)
        self._reports = ReportSpace(MAX_KNOBS)
        self.observation_space = observation_space()
        self.action_space: PPAActionSpace = PPAActionSpace()

    def _task_table(self, suite: str, tasks: Sequence[PPATask | str] | None) -> dict[str, PPATask | None]:
        """Return task id -> task object; None where the suite's loader has it."""
        from edagym.task_assets.ppa.suite import SUITES, load_folder, task_ids

        if tasks is None and suite not in SUITES and Path(suite).is_dir():
            return dict(load_folder(suite))
        if tasks is None:
            ids = task_ids(suite)
            if not ids:
                raise TaskError("the suite has not been built", field="suite", value=suite)
            return dict.fromkeys(ids)
        return self._given(tasks)

    def _load_task(self, task_id: str) -> PPATask:
        from edagym.task_assets.ppa.suite import load_task

        return load_task(task_id)

    def _clear_episode(self) -> None:
        super()._clear_episode()
        self._prepared: PreparedTask | None = getattr(self, "_prepared", None)
        self._design: DesignFiles | None = None
        self._runs: tuple[Run, ...] = ()
        self._text = ""
        self._running = False

    # -- the running episode ---------------------------------------------------------------------------------------

    @property
    def view(self) -> PPAView:
        """What an agent may know about the current task."""
        return self._ready.view

    @property
    def layout(self) -> DesignFiles:
        """The design's files as they are now (a value: nothing to copy)."""
        task = self.task
        return task.design if self._design is None else self._design

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs so far, oldest first."""
        return self._runs

    @property
    def prompt(self) -> str:
        """The task as a text for language models."""
        return render_prompt(self.view, self.action_space.describe(), self.budget, self.charge)

    @property
    def context(self) -> PPAActionContext:
        """The tables that the current observation's actions point into."""
        bounds = self.task.bounds
        clocks = tuple(c.name for c in setting_of(self.layout).constraints.clocks)
        return PPAActionContext(tuple(self.layout.files), clocks, bounds.period, bounds.io_fraction or (0.0, 0.5))

    @property
    def files(self) -> dict[str, str]:
        """Path -> text of all that an agent may read."""
        return visible_files(self.task, self.layout, self._runs)

    @property
    def runner(self) -> FlowRunner:
        """What runs the flow for the current task."""
        if self._own_runner is not None:
            return self._own_runner
        return shared_runner(str(self._backend or self.task.backend))

    @property
    def _ready(self) -> PreparedTask:
        if self._prepared is None or self._prepared.task is not self.task:
            self._prepared = self._prepare(self.task)
        return self._prepared

    def _prepare(self, task: PPATask) -> PreparedTask:
        return prepare(task)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_prepared": None}

    # -- EditEnv ---------------------------------------------------------------------------------------------------

    def _default_budget(self, task: PPATask) -> int:
        return task.budget if self.charge == "actions" else RUNS

    def _begin(self, task: PPATask) -> None:
        try:
            setting_of(task.design)
        except FlowError as e:
            raise TaskError(f"{task.id}: {e}") from None

    def _cost(self, action: PPAEdit | PPAQuery | Command | None) -> int:
        free = self.charge == "runs" and action is not Command.VERIFY and len(self._steps) < FREE_EDITS * self._budget
        return 0 if free else 1

    def _decode(self, action: Any) -> PPAEdit | PPAQuery | Command:
        return self.action_space.to_edit(action, self.context)

    def _apply(self, edit: PPAEdit | PPAQuery) -> None:
        if isinstance(edit, Read):
            self._text = read_files(edit.command, self.files)
        elif isinstance(edit, Report):
            self._text = self._report_text()
        else:
            self._design = apply_edit(self.task, self.layout, edit)

    def _step(self, action: PPAEdit | PPAQuery | Command | None, refused: str, edits: Any = None) -> Any:
        self._text = ""
        # Where other branches have spent the budget, a run comes too late.
        self._running = action is Command.VERIFY and self.budget_left > 0
        return super()._step(action, refused, edits)

    def _run_verifier(self) -> Verdict:
        # Only a run action runs the flow: submitting is free, and an agent that has not run its last change has
        # nothing to show for it.
        if not self._running:
            return self._judge()
        task, design = self.task, self.layout
        outcome = self.runner.run(task, design)
        result = outcome.result
        run = Run(
            design.digest(),
            None if result is None else result.report,
            outcome.failure,
            outcome.function,
            () if result is None else result.critical_path[:MAX_PATH_LINES],
            0.0,
            (False, False),
            setting_of(design).plain,
        )
        self._runs = (*self._runs, run)
        verdict = self._judge()
        done = (verdict.paper_success, verdict.strict_success)
        self._runs = (*self._runs[:-1], Run(**{**vars(run), "nis": verdict.metrics["nis"], "success": done}))
        return verdict

    def _verify_now(self) -> Verdict:
        verdict = super()._verify_now()
        if self._running:
            # Also where nothing has changed since the last run: whoever pays for a run gets an answer.
            self._text = self._run_text(verdict)
        return verdict

    def peek(self) -> Verdict:
        """Return the verdict by the runs so far, see `EditEnv.peek`: nothing is run."""
        return self._judge()

    def _judge(self) -> Verdict:
        digest = self.layout.digest()
        run = next((r for r in reversed(self._runs) if r.digest == digest), None)
        return verify(
            self.task,
            self.layout,
            None if run is None else run.report,
            None if run is None else run.function,
            failure=NEVER_RUN if run is None else run.failure,
            last=self._last_report,
            last_function=None if self._last_completed is None else self._last_completed.function,
        )

    @property
    def _last_completed(self) -> Run | None:
        return next((r for r in reversed(self._runs) if r.report is not None), None)

    @property
    def _last_report(self) -> PPAReport | None:
        return None if self._last_completed is None else self._last_completed.report

    def _known_values(self) -> tuple[dict[str, float], Mapping[str, float]]:
        """Return the three metrics and the stage metrics of the last completed run, at first the initial ones."""
        report = self._last_report
        if report is None:
            return dict(self.task.initial), self.task.initial_metrics
        return {m: report.value(m) for m in METRICS}, report.metrics

    def _run_text(self, verdict: Verdict) -> str:
        run = self._runs[-1]
        if run.report is None:
            return f"The flow failed: {run.failure}\n"
        values = {m: run.report.value(m) for m in METRICS}
        text = render_report(values, self.task.targets, run.report.warnings)
        if run.function is not None and not run.function.strict:
            text += f"The design's function: {run.function.message}\n"
        return text + ("All targets are met.\n" if verdict.success(self.criterion) else "")

    def _report_text(self) -> str:
        values, stage = self._known_values()
        last = self._runs[-1] if self._runs else None
        text = "No run yet: the initial values.\n" if self._last_report is None else ""
        if last is not None and last.report is None:
            text += f"The last run failed: {last.failure}\nValues of the last completed run:\n"
        path = () if last is None else last.critical_path
        warnings = () if last is None or last.report is None else last.report.warnings
        text += render_report(values, self.task.targets, warnings, path)
        return text + "".join(f"{name}: {value:.6g}\n" for name, value in sorted(stage.items()))

    def _info(self) -> dict[str, Any]:
        values, _ = self._known_values()
        scored = score(self.task.initial, self.task.targets, values)
        last = self._runs[-1] if self._runs else None
        function = None if last is None else last.function
        scored_run = self._last_completed
        broken = scored_run is not None and scored_run.function is not None and not scored_run.function.paper
        return {
            **super()._info(),
            **values,
            "nis": float(scored.nis),
            "nis_nothing": float(scored.nothing),
            "nis_flagged": int(broken),
            "n_runs": len(self._runs),
            "flow_error": "" if last is None else last.failure,
            "function": "" if function is None else function.message,
            "text": self._text,
        }

    def _observe(self) -> Observation:
        task, design = self.task, self.layout
        values, stage = self._known_values()
        last = self._runs[-1] if self._runs else None
        observation: Observation = {key: array.copy() for key, array in self._ready.arrays.items()}
        observation.update({key: array.copy() for key, array in setting_of(design).arrays.items()})
        observation.update(ReportSpace.encode_report(values, stage, task.targets))
        observation.update(self._reports.encode_history([r.row() for r in self._runs]))
        ran = task.design.digest() if last is None else last.digest
        function = (-1, -1) if last is None or last.function is None else (last.function.paper, last.function.strict)
        nis = 0.0 if last is None else min(max(last.nis, -MAX_VALUE), 1.0)
        observation["design_changed"] = np.array((design.digest() != ran,), np.int8)
        observation["sources_changed"] = np.array((design.sources != task.design.sources,), np.int8)
        observation["budget_left"] = np.array((self.budget_left,), np.int16)
        observation["last_nis"] = np.array((nis,), np.float32)
        observation["last_success"] = np.array((-1, -1) if last is None else last.success, np.int8)
        observation["last_function"] = np.array(function, np.int8)
        observation["last_flow_error"] = np.array((last is not None and last.report is None,), np.int8)
        observation["last_edit_error"] = np.array((bool(self._edit_error),), np.int8)
        return observation

    def _to_json(self, action: PPAEdit | PPAQuery | Command) -> dict[str, Any]:
        return ppa_action_to_json(action)

    def _from_json(self, data: Mapping[str, Any]) -> PPAEdit | PPAQuery | Command:
        return ppa_action_from_json(data)

    def _task_to_plain(self, task: PPATask) -> dict[str, Any]:
        return self._ready.plain

    def _task_from_plain(self, data: Any) -> PPATask:
        if self._task is not None:
            plain = self._ready.plain
            if data is plain or data["digest"] == plain["digest"]:
                return self._task
        return task_from_plain(data)

    def _layout_to_plain(self) -> dict[str, Any]:
        before = self.task.design.files
        changed = {path: text for path, text in self.layout.files.items() if before.get(path) != text}
        return {"changed": changed, "runs": [r.to_plain() for r in self._runs], "text": self._text}

    def _layout_from_plain(self, data: Any) -> None:
        changed = dict(data["changed"])
        self._design = DesignFiles({**self.task.design.files, **changed}) if changed else None
        try:
            setting_of(self.layout)
        except FlowError as e:
            raise TaskError(f"the snapshot's files cannot be read ({e})", field="snapshot") from e
        self._runs = tuple(Run.from_plain(r) for r in data["runs"])
        self._text = str(data["text"])

    def _render_rgb(self) -> np.ndarray:
        from edagym.envs.ppa.viewer import render_state

        last = self._last_completed
        result = None if last is None else self.runner.recall(last.digest)
        return render_state(self.task.initial, self.task.targets, self._runs, result, size=self.render_size)

    def _render_text(self) -> str:
        values, _ = self._known_values()
        lines = [f"{self.task.id}: {len(self._runs)} runs; budget left: {self.budget_left} of {self.budget}"]
        lines.append(render_report(values, self.task.targets).rstrip("\n"))
        scored = score(self.task.initial, self.task.targets, values)
        lines.append(f"score {scored.nis:.3f} (left alone: {scored.nothing:.3f})")
        return "\n".join(lines) + "\n"


class PPATrainEnv(Procedural[PPATask, PPAEdit | PPAQuery], PPAEnv):
    """Endless tasks drawn from sweep tables, none of them in the fixed suite: a new one on every reset.

    Args:
        kind: ``"performance"``, ``"power"``, ``"area"`` or ``"multi"``; None: any.
        level: ``"L1"`` or ``"L2"``; None: any.
        sweeps: Folder with sweep tables; None: the shipped ones.
        designs: Names of the tables to draw from; None: all.
        **kwargs: See `PPAEnv` (but neither suite nor tasks).

    Raises:
        TaskError: If there are no sweep tables, or one is malformed.
    """

    def __init__(
        self,
        kind: str | None = None,
        level: str | None = None,
        sweeps: str | None = None,
        designs: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        from edagym.task_assets.ppa.sweep import FOLDER, load_sweeps

        self._refuse_choice(kwargs)
        tables = load_sweeps(FOLDER if sweeps is None else sweeps)
        unknown = sorted(set(designs or ()) - {s.name for s in tables})
        if unknown:
            raise TaskError("no such sweep table", field="designs", value=unknown, allowed=[s.name for s in tables])
        self._tables = tuple(s for s in tables if designs is None or s.name in designs)
        super().__init__(**kwargs)
        self.redirect(kind=kind, level=level)

    def redirect(
        self, *, kind: str | None = None, level: str | None = None, designs: Sequence[str] | None = None
    ) -> None:
        """Draw the tasks from the next reset on by another kind, level and designs, of those at hand; None: any."""
        self._kind, self._level = kind, level
        self._sweeps = tuple(s for s in self._tables if designs is None or s.name in designs)
        if not self._sweeps:
            raise TaskError(
                "no such sweep table", field="designs", value=designs, allowed=[s.name for s in self._tables]
            )

    def _prepare(self, task: PPATask) -> PreparedTask:
        return PreparedTask(task)  # seen once: not worth a place in the shared cache

    def _generate(self, rng: np.random.Generator) -> PPATask:
        from edagym.envs.ppa.training import sample_task

        return sample_task(rng, self._sweeps, kind=self._kind, level=self._level)
