"""`EditEnv`: the skeleton that every task family fills in.

One step: decode the action, apply the edit or run the command, verify if asked, reward, observation, info.

Episodes end with `terminated` on a passing verify (`stop_on_success`), on submit and on declare_infeasible, and with
`truncated` when the budget is spent or a tool has failed. Whatever ends an episode, except a tool failure, runs the
verifier on the final layout, and ``info["is_success"]`` says what it found. A declare_infeasible on a failing layout
is a failure.

Every edit, refused or not, and every verify costs one unit of the budget. Submit and declare_infeasible cost none.
A family whose text policies act in lists (`takes_lists`) charges a list of edits as one action: its edits apply in
order, refused ones are reported by their index, and the rest still apply.
"""

from __future__ import annotations

import copy
import dataclasses
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast

import gymnasium as gym
import numpy as np

from edagym.envs.core.reward import RewardFn, SparseReward
from edagym.envs.core.trace import SCHEMA_VERSION, save_trace, tool_versions
from edagym.errors import EditError, TaskError, ToolError
from edagym.spaces.actions import Command
from edagym.verifiers.verdict import Criterion, Verdict

TaskT = TypeVar("TaskT")
EditT = TypeVar("EditT")

Observation = dict[str, Any]
StepResult = tuple[Observation, float, bool, bool, dict[str, Any]]

MAX_BUDGET = 32_767
MAX_LIST = 1024
"""Most edits in one list."""
_TERMINATES = ("success", "submit", "declare_infeasible")


def verdict_summary(verdict: Verdict | None, criterion: Criterion) -> dict[str, Any]:
    """Return what ``info["verdict"]`` says of a verdict: plain numbers and strings, -1 and empty for None."""
    if verdict is None:
        return {"paper": -1, "strict": -1, "share_passed": -1.0, "failed": "", "messages": ""}
    failed = verdict.failed(criterion)
    return {
        "paper": int(verdict.paper_success),
        "strict": int(verdict.strict_success),
        "share_passed": float(verdict.share_passed(criterion)),
        "failed": ", ".join(c.id for c in failed),
        "messages": "\n".join(c.message for c in failed),
    }


class EditEnv(gym.Env[Observation, Any], Generic[TaskT, EditT]):
    """Base environment: task choice, budget, verification, rewards, snapshots, replay and traces.

    A family implements the methods at the end of this class, and sets `observation_space` and `action_space`.

    Args:
        criterion: ``"strict"`` or ``"paper"``: which success flag drives reward, `is_success` and ending.
        budget: Units per episode, at least 2; None: the family's default for the task.
        budget_factor: The episode has so many times the budget: for policies that take several trials in one.
        stop_on_success: Whether a passing verify ends the episode.
        reward: ``"sparse"`` (`SparseReward`) or a `RewardFn`.
        on_tool_error: What a `ToolError` does. ``"truncate"``: the episode is truncated, ``info["error"]`` holds the
            message and the reward is NaN, because a tool's failure is no evidence about the agent; drop such episodes.
            ``"raise"``: the error is raised.
        render_mode: One of ``metadata["render_modes"]``, or None.
    """

    # Gymnasium declares this as an instance variable, so that it cannot be a ClassVar here.
    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array", "ansi"], "render_fps": 4}  # noqa: RUF012

    takes_lists: ClassVar[bool] = False
    """Whether a list of edits is one action. Where every call of a tool counts, it is refused."""

    def __init__(
        self,
        *,
        criterion: Criterion = "strict",
        budget: int | None = None,
        budget_factor: int = 1,
        stop_on_success: bool = True,
        reward: Literal["sparse"] | RewardFn = "sparse",
        on_tool_error: Literal["truncate", "raise"] = "truncate",
        render_mode: str | None = None,
    ) -> None:
        _one_of("criterion", criterion, ("strict", "paper"))
        _one_of("on_tool_error", on_tool_error, ("truncate", "raise"))
        _one_of("render_mode", render_mode, (None, *self.metadata["render_modes"]))
        if not callable(reward):
            _one_of("reward", reward, ("sparse",))
        # A budget of 1 would truncate on the first step, which Gymnasium's own checker forbids.
        if budget is not None and not (isinstance(budget, int) and 2 <= budget <= MAX_BUDGET):
            raise ValueError(f"budget must be a whole number in 2..{MAX_BUDGET}, got {budget!r}")
        if not (isinstance(budget_factor, int) and 1 <= budget_factor <= 16):
            raise ValueError(f"budget_factor must be a whole number in 1..16, got {budget_factor!r}")
        self.criterion: Criterion = criterion
        self.stop_on_success = stop_on_success
        self.on_tool_error = on_tool_error
        self.render_mode = render_mode
        self.reward_fn: RewardFn = reward if callable(reward) else SparseReward(criterion)
        self._fixed_budget = budget
        self._budget_factor = budget_factor
        self._is_fork = False
        self._task: TaskT | None = None
        self._window: Any = None
        self._clear_episode()

    def _clear_episode(self) -> None:
        self._budget = 0
        self._charged = 0
        self._edit_error = ""
        self._tool_error = self._error_type = ""
        self._ended = ""
        self._is_success = False
        self._steps: list[dict[str, Any]] = []
        self._current: Verdict | None = None  # verdict of the layout as it is now, if it was ever run
        self._set_seen(None)

    def _set_seen(self, verdict: Verdict | None) -> None:
        """Remember the verdict that the agent has paid for."""
        self._seen = verdict
        self._verdict_info = verdict_summary(verdict, self.criterion)

    # -- the episode as others see it ------------------------------------------------------------------------------

    @property
    def task(self) -> TaskT:
        """The task of the running episode, hidden criteria included: not for policies.

        Raises:
            gymnasium.error.ResetNeeded: Before the first reset.
        """
        if self._task is None:
            raise gym.error.ResetNeeded("there is no task before reset()")
        return self._task

    @property
    @abstractmethod
    def task_ids(self) -> tuple[str, ...]:
        """Ids of the tasks to choose from; empty where tasks are made on reset."""

    @property
    @abstractmethod
    def view(self) -> Any:
        """What an agent may know about the current task."""

    @property
    @abstractmethod
    def prompt(self) -> str:
        """The task as a text for language models."""

    @property
    @abstractmethod
    def layout(self) -> Any:
        """A copy of the current layout."""

    @property
    def budget(self) -> int:
        """Units of budget of the running episode."""
        return self._budget

    @property
    def budget_left(self) -> int:
        """Units not yet spent."""
        return max(self._budget - self._charged, 0)

    @property
    def verdict(self) -> Verdict | None:
        """The last verdict that the agent has paid for, or the final one; None before any."""
        return self._seen

    @property
    def ended(self) -> str:
        """Why the episode ended: success, submit, declare_infeasible, budget, tool_error, or ``""`` while it runs."""
        return self._ended

    @property
    def n_steps(self) -> int:
        """Entries of the trace so far: single edits and commands of the branch that led here."""
        return len(self._steps)

    @property
    def error_type(self) -> str:
        """Class of the `ToolError` that ended the episode, or ``""``; its message is in ``info["error"]``."""
        return self._error_type

    # -- Gymnasium -------------------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: Seed of the environment's generator, which chooses tasks.
            options: ``{"task": id}`` (or a task object) picks the task; no other key is known.

        Raises:
            TaskError: If the task or an option is unknown.
        """
        super().reset(seed=seed)
        unknown = sorted(set(options or {}) - {"task"})
        if unknown:
            raise TaskError("unknown reset option", field="options", value=unknown, allowed=["task"])
        chosen = (options or {}).get("task")
        self._start(self._sample_task(self.np_random) if chosen is None else self.find_task(chosen))
        self._render_human()
        return self.observe()

    def observe(self) -> tuple[Observation, dict[str, Any]]:
        """Return the current observation and info without acting."""
        return self._observe(), self._info()

    def step(self, action: Any) -> StepResult:
        """Run one action of the action space; see the module docstring for endings and charges."""
        try:
            decoded = self._decode(action)
        except EditError as e:
            return self.refuse(str(e))
        return self._step(decoded, "")

    def step_edit(self, action: EditT | Command) -> StepResult:
        """Run one edit or command given as an object: `step` without the detour through arrays."""
        return self._step(action, "")

    def _step(
        self, action: EditT | Command | None, refused: str, edits: list[tuple[EditT | None, str]] | None = None
    ) -> StepResult:
        """Run one action, or a list of `edits` as one: each with what keeps it from being read, or an empty string."""
        if self._task is None or self._ended:
            raise gym.error.ResetNeeded("the episode is over (or never began): call reset()")
        before, after = self._seen, None
        ending = ""
        self._edit_error = refused
        try:
            ends = action in (Command.SUBMIT, Command.DECLARE_INFEASIBLE)
            if self._is_fork and ends:
                # It would come with a verdict, and cost nothing.
                action, self._edit_error = None, "a fork cannot end the episode"
                self._charged += self._cost(None)
            elif self._charged >= self._budget and not ends:
                # Other branches have spent the budget: this step comes too late.
                action, edits, self._edit_error = None, None, "the budget is spent"
            elif isinstance(action, Command):
                if action is Command.VERIFY:
                    self._charged += self._cost(action)
                    after = self._verify_now()
                    self._set_seen(after)
                    if self.stop_on_success and after.success(self.criterion):
                        ending = "success"
                else:
                    ending = action.value
            else:
                self._charged += self._cost(action)
                if edits is not None:
                    self._edit_error = self._apply_list(edits)
                elif action is not None:
                    self._edit_error = self._try_apply(action)
            if not ending and self._charged >= self._budget:
                ending = "budget"
            if ending and not self._is_fork:
                after = self._verify_now()
                self._set_seen(after)
                self._is_success = after.success(self.criterion)
        except ToolError as e:
            if self.on_tool_error == "raise":
                raise
            ending, self._tool_error, self._error_type = "tool_error", str(e), type(e).__name__
        self._ended = ending
        self._record(action, after, edits)
        reward = float("nan") if self._tool_error else float(self.reward_fn(before, after, bool(ending)))
        self._render_human()
        return self._observe(), reward, ending in _TERMINATES, ending in ("budget", "tool_error"), self._info()

    def _try_apply(self, edit: EditT) -> str:
        """Apply an edit; return why it was refused, or an empty string."""
        try:
            self._apply(edit)
        except EditError as e:
            return str(e)
        self._current = None
        return ""

    def _apply_list(self, edits: list[tuple[EditT | None, str]]) -> str:
        """Apply what can be read of a list, note in it why edits were refused; return the refusals, one a line."""
        for i, (edit, _) in enumerate(edits):
            if edit is not None:
                edits[i] = (edit, self._try_apply(edit))
        return "\n".join(f"edits[{i}]: {error}" for i, (_, error) in enumerate(edits) if error)

    def _cost(self, action: EditT | Command | None) -> int:
        """Return what an edit or a verify costs, units of budget; None: an action that could not be read."""
        return 1

    def _verify_now(self) -> Verdict:
        if self._current is None:
            self._current = self._run_verifier()
        return self._current

    def peek(self) -> Verdict:
        """Return the verdict of the episode as it is, at no charge; observations and infos keep what they had.

        For shaped rewards and studies of training: what it says is hidden from agents.

        Raises:
            ToolError: If the verifier fails.
        """
        return self._verify_now()

    def _info(self) -> dict[str, Any]:
        """Plain numbers and strings under the same keys in every step; no wall times, no ragged arrays."""
        return {
            "task_id": self._task_id(),
            "is_success": self._is_success,
            "verdict": dict(self._verdict_info),
            "edit_error": self._edit_error,
            "error": self._tool_error,
            "ended": self._ended,
            "charged": self._charged,
            "budget_left": self.budget_left,
        }

    def _start(self, task: TaskT) -> None:
        self._clear_episode()
        self._task = task
        self._begin(task)
        units = self._default_budget(task) if self._fixed_budget is None else self._fixed_budget
        self._budget = min(units * self._budget_factor, MAX_BUDGET)

    # -- snapshots, replay, traces ---------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return the episode's state as plain data (JSON and pickle); the environment's generator is not part of it."""
        return {
            "schema_version": SCHEMA_VERSION,
            "task": self._task_to_plain(self.task),
            "layout": self._layout_to_plain(),
            "budget": self._budget,
            "charged": self._charged,
            "edit_error": self._edit_error,
            "tool_error": self._tool_error,
            "ended": self._ended,
            "is_success": self._is_success,
            "current": self._current.to_dict() if self._current else None,
            "seen": self._seen.to_dict() if self._seen else None,
            "steps": list(self._steps),
        }

    def restore(self, snapshot: Mapping[str, Any], *, keep_charges: bool = False) -> tuple[Observation, dict[str, Any]]:
        """Return to a snapshot, of this or another environment of the family.

        Args:
            snapshot: Output of `snapshot`, also after a trip through JSON.
            keep_charges: Leave spent what was spent since (searching policies); else the budget is restored too.

        Returns:
            Observation and info of the restored state.

        Raises:
            TaskError: If the snapshot is of another schema or malformed; the environment then needs a reset.
        """
        spent = self._charged
        try:
            if snapshot["schema_version"] != SCHEMA_VERSION:
                raise ValueError(f"schema_version {snapshot['schema_version']!r}, not {SCHEMA_VERSION}")
            self._start(self._task_from_plain(snapshot["task"]))
            self._layout_from_plain(snapshot["layout"])
            self._budget = int(snapshot["budget"])
            self._charged = max(int(snapshot["charged"]), spent if keep_charges else 0)
            self._edit_error = str(snapshot["edit_error"])
            self._tool_error = str(snapshot["tool_error"])
            self._ended = str(snapshot["ended"])
            self._is_success = bool(snapshot["is_success"])
            self._current = Verdict.from_dict(snapshot["current"]) if snapshot["current"] else None
            self._set_seen(Verdict.from_dict(snapshot["seen"]) if snapshot["seen"] else None)
            self._steps = list(snapshot["steps"])
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            self._task = None
            raise TaskError(f"not a snapshot ({type(e).__name__}: {e})", field="snapshot") from e
        except TaskError:
            self._task = None
            raise
        return self.observe()

    def replay(self, actions: Iterable[Any]) -> list[StepResult]:
        """Start the current task anew and run a list of actions until it is spent or the episode ends.

        Args:
            actions: Actions in any form that `step_any` takes.

        Returns:
            What `step` returned for each action run.
        """
        self._start(self.task)
        results: list[StepResult] = []
        for action in actions:
            results.append(self.step_any(action))
            if results[-1][2] or results[-1][3]:
                break
        return results

    def fork(self) -> EditEnv[TaskT, EditT]:
        """Return an independent environment in the same state, with its own layout, budget and trace.

        It never ends on success, cannot be submitted, says nothing about its layout when the budget is spent, and
        raises tool errors, because what happens in it is no outcome of this episode: verdicts have to be paid for.
        """
        twin = copy.copy(self)  # by `__getstate__`, so without what is bound to the running episode
        twin.stop_on_success, twin.on_tool_error, twin.render_mode = False, "raise", None
        twin._is_fork = True
        twin.restore(self.snapshot())
        return twin

    def charge_up_to(self, other: EditEnv[Any, Any]) -> None:
        """Count as spent here what is spent in `other`: branches of one attempt share its budget."""
        self._charged = max(self._charged, other._charged)

    def step_any(self, action: Any) -> StepResult:
        """Run an action in any form.

        Args:
            action: An edit or command, its JSON form (as in a trace), action-space arrays, or a list of edits and
                their JSON forms (see the module docstring).
        """
        if isinstance(action, list | tuple):
            return self._step_list(action)
        if isinstance(action, Command) or (dataclasses.is_dataclass(action) and not isinstance(action, type)):
            return self.step_edit(cast(EditT | Command, action))
        if not isinstance(action, Mapping):
            return self.refuse(f"not an action: {type(action).__name__}; allowed: an edit, a command, or an object")
        if not isinstance(action.get("op"), str):
            return self.step(action)
        try:
            return self.step_edit(self._from_json(action))
        except EditError as e:
            return self.refuse(str(e))

    def _step_list(self, actions: Sequence[Any]) -> StepResult:
        if not self.takes_lists:
            return self.refuse("a list is no action here; allowed: one edit, query or command at a time")
        if not 0 < len(actions) <= MAX_LIST:
            return self.refuse(f"a list of {len(actions)} edits; allowed: 1..{MAX_LIST}")
        edits: list[tuple[EditT | None, str]] = []
        for item in actions:
            edit: EditT | Command | None = item
            error = ""
            if isinstance(item, Mapping):
                try:
                    edit = self._from_json(item)
                except EditError as e:
                    edit, error = None, str(e)
            elif not dataclasses.is_dataclass(item) and not isinstance(item, Command):
                edit, error = None, f"not an action: {type(item).__name__}; allowed: an edit or its object"
            if isinstance(edit, Command):
                edits.append((None, f"{edit.value} stands alone; allowed in a list: edits"))
            else:
                edits.append((edit, error))
        return self._step(None, "", edits)

    def refuse(self, message: str) -> StepResult:
        """Run a step whose action could not be read at all: it is charged, and `message` becomes its edit error."""
        return self._step(None, message)

    def _record(
        self,
        action: EditT | Command | None,
        verdict: Verdict | None,
        edits: list[tuple[EditT | None, str]] | None,
    ) -> None:
        single = [(action, self._edit_error)] if edits is None else edits
        group = {} if edits is None else {"group": len(self._steps)}
        for one, error in single:
            # What cannot be decoded has no edit; replaying the marker is refused, and charged, just as it was.
            step: dict[str, Any] = {"action": {"op": "unreadable"} if one is None else self._to_json(one), **group}
            if error:
                step["edit_error"] = error
            self._steps.append(step)
        if verdict is not None:
            self._steps[-1]["verdict"] = dict(self._verdict_info)

    def trace(self) -> dict[str, Any]:
        """Return the episode so far as a JSON-ready object: task, settings, tool versions, single edits, outcome."""
        return {
            "schema_version": SCHEMA_VERSION,
            "env": self.spec.id if self.spec else type(self).__name__,
            "task_id": self._task_id(),
            "criterion": self.criterion,
            "budget": self._budget,
            "charged": self._charged,
            "ended": self._ended,
            "is_success": self._is_success,
            "error": self._tool_error,
            "versions": tool_versions(),
            "steps": list(self._steps),
        }

    def save_trace(self, path: str | Path) -> None:
        """Write `trace` as a JSON file."""
        save_trace(path, self.trace())

    # -- rendering -------------------------------------------------------------------------------------------------

    def render(self) -> Any:
        """Return an RGB array, a text, or None (``human``: the window is updated)."""
        if self.render_mode is None:
            gym.logger.warn("render() was called without a render_mode; pass one to gym.make()")
            return None
        if self.render_mode == "ansi":
            return self._render_text()
        if self.render_mode == "rgb_array":
            return self._render_rgb()
        self._render_human()
        return None

    def picture(self) -> np.ndarray:
        """Return the picture of the layout, uint8 (height, width, 3), whatever the render mode."""
        return self._render_rgb()

    def _render_human(self) -> None:
        if self.render_mode == "human":
            from edagym.envs.core.human import Window  # pygame is optional

            if self._window is None:
                self._window = Window("EDAGym", self.metadata["render_fps"])
            self._window.show(self._render_rgb())

    def close(self) -> None:
        """Close the window, if any; calling it again does nothing."""
        if self._window is not None:
            self._window.close()
            self._window = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_window": None}

    # -- what a family implements ----------------------------------------------------------------------------------

    @abstractmethod
    def _sample_task(self, rng: np.random.Generator) -> TaskT:
        """Choose a task."""

    @abstractmethod
    def find_task(self, key: Any) -> TaskT:
        """Return the task of an id (or check a task object); raises `TaskError`."""

    @abstractmethod
    def _task_id(self) -> str:
        """Return the current task's id."""

    @abstractmethod
    def _default_budget(self, task: TaskT) -> int:
        """Return the budget of a task."""

    @abstractmethod
    def _begin(self, task: TaskT) -> None:
        """Set the layout to the task's initial one."""

    @abstractmethod
    def _decode(self, action: Any) -> EditT | Command:
        """Turn an action of the action space into an edit or command; raises `EditError`."""

    @abstractmethod
    def _apply(self, edit: EditT) -> None:
        """Apply an edit to the layout; raises `EditError` and then changes nothing."""

    @abstractmethod
    def _run_verifier(self) -> Verdict:
        """Verify the layout; raises `ToolError`."""

    @abstractmethod
    def _observe(self) -> Observation:
        """Return a fresh observation that shares no memory with earlier ones."""

    @abstractmethod
    def _to_json(self, action: EditT | Command) -> dict[str, Any]:
        """Return the JSON form of an edit or command."""

    @abstractmethod
    def _from_json(self, data: Mapping[str, Any]) -> EditT | Command:
        """Parse `_to_json`; raises `EditError`."""

    @abstractmethod
    def _task_to_plain(self, task: TaskT) -> Any:
        """Return a task as plain data."""

    @abstractmethod
    def _task_from_plain(self, data: Any) -> TaskT:
        """Undo `_task_to_plain`."""

    @abstractmethod
    def _layout_to_plain(self) -> Any:
        """Return the layout as plain data."""

    @abstractmethod
    def _layout_from_plain(self, data: Any) -> None:
        """Set the layout from `_layout_to_plain`'s output."""

    @abstractmethod
    def _render_rgb(self) -> np.ndarray:
        """Return the picture of the layout, uint8 (height, width, 3)."""

    @abstractmethod
    def _render_text(self) -> str:
        """Return a summary of the layout."""


def _one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {allowed}, got {value!r}")
