"""The policy interface, and the two scripted policies that every family has: random and reference."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, overload, runtime_checkable

import numpy as np

from edagym.envs.core.edit_env import EditEnv, StepResult
from edagym.errors import PolicyError, TaskError
from edagym.spaces.actions import Command
from edagym.spaces.drc_edits import DRCEdit, drc_edit_from_json
from edagym.spaces.edits import AddPolygon, Edit, edit_from_json
from edagym.spaces.ppa_edits import PPAEdit
from edagym.task_assets.drc.task import DRCTask, DRCView
from edagym.task_assets.fet.task import FETTask, TaskView
from edagym.task_assets.ppa.task import PPATask, PPAView
from edagym.verifiers.verdict import Criterion, Verdict


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A place in an attempt to return to. Opaque: a snapshot holds the whole task, its hidden part included."""

    _snapshot: dict[str, Any]
    _attempt: object


class Attempt:
    """A policy's only handle on the task at hand, the same in every family.

    Restoring, restarting and forking are free; edits and verifies stay charged, also on abandoned branches and forks.

    Args:
        env: The environment, just reset.
        seed: Seed of this attempt's generator.
        privileged: Whether the policy may see the task's hidden part.

    Attributes:
        rng: The attempt's generator.
        notes: What the policy wrote down with `note`, JSON-ready, in order; forks write into the same list.
    """

    def __init__(self, env: EditEnv[Any, Any], seed: int = 0, privileged: bool = False) -> None:
        self._env = env
        self._root = env
        self._privileged = privileged
        self._identity = object()
        self._start = self.snapshot()
        self.rng = np.random.default_rng(seed)
        self.notes: list[dict[str, Any]] = []

    @property
    def task_view(self) -> Any:
        """What an agent may know about the task: `TaskView` (FET), `DRCView` or `PPAView`."""
        return self._env.view

    @property
    def task(self) -> Any:
        """The whole task, hidden criteria included; raises `PolicyError` for policies that are not privileged."""
        if not self._privileged:
            raise PolicyError("only a privileged policy may see the hidden part of a task", field="task")
        return self._env.task

    @property
    def prompt(self) -> str:
        """The task as a text for language models; for FET tasks with the scaffold C0."""
        text: str = self._env.prompt
        return text

    @property
    def layout(self) -> Any:
        """A copy of the current layout: `FETLayout`, `DRCLayout` or `DesignFiles`."""
        return self._env.layout

    @property
    def budget_left(self) -> int:
        """Units of budget left."""
        return self._root.budget_left

    @property
    def verdict(self) -> Verdict | None:
        """The last verdict that was paid for on this branch; None before any."""
        return self._env.verdict

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The trace of this branch so far: single edits and commands, JSON-ready."""
        steps: list[dict[str, Any]] = self._env.trace()["steps"]
        return steps

    @property
    def ended(self) -> str:
        """Why the episode is over (`EditEnv.ended`), or an empty string."""
        return self._root.ended

    @property
    def criterion(self) -> Criterion:
        """Which success flag counts."""
        return self._env.criterion

    def apply(self, action: Any) -> StepResult:
        """Run an action in any form that `EditEnv.step_any` takes."""
        return self._charged(self._env.step_any, action)

    def check(self) -> StepResult:
        """Run a (charged) verify."""
        return self._charged(self._env.step_edit, Command.VERIFY)

    def _charged(self, run: Callable[[Any], StepResult], action: Any) -> StepResult:
        """Run an action on this branch, and let all branches pay for it."""
        for env in (self._root, self._env):
            if env.ended:
                raise PolicyError("the episode is over", field="ended", value=env.ended)
        self._env.charge_up_to(self._root)
        try:
            return run(action)
        finally:
            self._root.charge_up_to(self._env)

    def fork(self) -> Attempt:
        """Return a second branch that starts from the current state: an attempt with its own layout and verdict.

        Its actions are charged to the common budget. It never ends on success, cannot be submitted (that would be a
        verdict for nothing), and its tool errors are raised. To go on from where a branch is, `restore` its `snapshot`.
        """
        twin = copy.copy(self)
        twin._env = self._env.fork()
        twin.rng = self.rng.spawn(1)[0]
        return twin

    def note(self, kind: str, **data: Any) -> None:
        """Write down what the record of the attempt shall hold beside its actions.

        Args:
            kind: What it is: "model", "plan", "reflection", "experience", "critique", "judge", "restore", "proposal",
                "lock".
            **data: JSON-ready values. The note also gets its number ``n`` and ``step``, the length of the trace.
        """
        self.notes.append({"n": len(self.notes), "step": self._env.n_steps, "kind": kind, **data})

    def snapshot(self) -> Bookmark:
        """Return a place to `restore`."""
        return Bookmark(self._env.snapshot(), self._identity)

    def restore(self, place: Bookmark) -> tuple[dict[str, Any], dict[str, Any]]:
        """Go to a place in this attempt or a fork of it; raises `PolicyError` elsewhere, and after its end."""
        if place._attempt is not self._identity:
            # It may be of an easier task, or of a richer attempt at this one.
            raise PolicyError("a place in another attempt", field="place", allowed="bookmarks of this attempt")
        if self._root.ended:
            raise PolicyError("the episode is over", field="ended", value=self._root.ended)
        # A fork that used up the budget has ended; the attempt may still submit what it drew.
        going_on = {**place._snapshot, "ended": "", "is_success": False, "tool_error": ""}
        result = self._env.restore(going_on, keep_charges=True)
        self._env.charge_up_to(self._root)
        return result

    def restart(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Go back to the task's initial layout."""
        return self.restore(self._start)


class Policy(Protocol):
    """Chooses actions.

    Attributes:
        name: Name in records.
        privileged: Whether it uses what agents may not know; evaluation refuses such policies for published tables.
        deterministic: Whether equal tasks give equal actions, whatever the seed.

    A policy may have more, which the harness asks for by name:

    * ``env_options: dict``: keyword arguments of the environment that it is evaluated under.
    * ``settings() -> dict``: JSON-ready settings for the record.
    * ``memory: bool``, ``remember() -> JSON | None``, ``recall(list)``: see `MemoryPolicy`.
    """

    name: str
    privileged: bool
    deterministic: bool

    def bind(self, attempt: Attempt) -> None:
        """Begin an attempt."""

    def act(self, observation: dict[str, Any], info: dict[str, Any]) -> Any:
        """Return the next action, in any form that `EditEnv.step_any` takes; raises `PolicyError`."""


@runtime_checkable
class MemoryPolicy(Protocol):
    """A policy that learns from attempt to attempt.

    The harness runs such a policy as one sequence per attempt number, in task order, and records what it remembers, so
    that a resumed run recalls it.

    Attributes:
        memory: True.
    """

    memory: bool

    def remember(self) -> Any:
        """Return what the policy keeps of the attempt that just ended, JSON-ready; None: nothing."""

    def recall(self, memories: list[Any]) -> None:
        """Forget everything, then take these memories for its own, oldest first: before the first attempt."""


def attempt_seed(suite: str, task_id: str, attempt: int, run_seed: int) -> int:
    """Return the seed of an attempt: a hash, so that it does not depend on the order in which tasks are run."""
    text = "\x1f".join((suite, task_id, str(attempt), str(run_seed)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


class RandomPolicy:
    """Draws random edits, then submits.

    FET: rectangles inside the flakes' bounding boxes on random editable layers. DRC: one edge of a shape near a listed
    violation, moved by up to 100 nm. PPA: one to three random knobs, then a run, until the budget is used up.

    Args:
        n_edits: Edits per attempt; None: what the task asks for (FET: one per editable layer and requested transistor)
            within the budget.
    """

    name = "random"
    privileged = False
    deterministic = False

    def __init__(self, n_edits: int | None = None) -> None:
        self.n_edits = n_edits
        self._plan: Iterator[Any] = iter(())

    def bind(self, attempt: Attempt) -> None:
        """Draw the attempt's edits."""
        view = attempt.task_view
        if isinstance(view, PPAView):
            from edagym.baselines.search.ppa_space import dimensions

            dims = dimensions(view)
            left, plan = attempt.budget_left, []
            while left > 1:
                # Up to three knobs, then a run.
                n = min(int(attempt.rng.integers(1, 4)), left - 1)
                chosen = attempt.rng.choice(len(dims), n, replace=False)
                plan += [dims[int(i)].edit(float(attempt.rng.random())) for i in chosen] + [Command.VERIFY]
                left -= n + 1
            self._plan = iter([*plan, Command.SUBMIT])
            return
        if isinstance(view, DRCView):
            from edagym.baselines.search.drc_random import random_edits

            n = min(attempt.budget_left - 1, self.n_edits or attempt.budget_left)
            self._plan = iter([*random_edits(view, attempt.layout, attempt.rng, n), Command.SUBMIT])
            return
        wanted = sum(n or 1 for n in view.demand) * (len(view.editable_layers) + 1)
        n = min(wanted if self.n_edits is None else self.n_edits, attempt.budget_left - 1)
        self._plan = iter([*(self._rectangle(view, attempt.rng) for _ in range(n)), Command.SUBMIT])

    def act(self, observation: dict[str, Any], info: dict[str, Any]) -> Any:
        """Return the next edit, or submit."""
        return next(self._plan)

    @staticmethod
    def _rectangle(view: TaskView, rng: np.random.Generator) -> Edit:
        region = view.regions[int(rng.integers(len(view.regions)))]
        layer = view.editable_layers[int(rng.integers(len(view.editable_layers)))]
        hull = np.array(region.hull)
        low, high = hull.min(axis=0), hull.max(axis=0)
        # Both corners uniform in the flake's box; at least 10 nm apart, so that the rectangle survives rounding.
        corners = np.sort(rng.uniform(low, high, (2, 2)), axis=0)
        (x1, y1), (x2, y2) = corners[0], np.maximum(corners[1], corners[0] + 0.01)
        points = ((x1, y1), (x2, y1), (x2, y2), (x1, y2))
        return AddPolygon(layer.name, tuple((round(float(x), 3), round(float(y), 3)) for x, y in points))


class ReferencePolicy:
    """Replays the reference of a task and submits; it knows the hidden part of the task."""

    name = "reference"
    privileged = True
    deterministic = True

    def __init__(self) -> None:
        self._plan: Iterator[Any] = iter(())

    def bind(self, attempt: Attempt) -> None:
        """Look the reference up, or construct it for FET tasks outside the suite."""
        # A PPA design that has not been run has nothing to show for it.
        end = Command.VERIFY if isinstance(attempt.task, PPATask) else Command.SUBMIT
        self._plan = iter([*reference_edits(attempt.task), end])

    def act(self, observation: dict[str, Any], info: dict[str, Any]) -> Any:
        """Return the next edit of the reference, or submit."""
        return next(self._plan)


@overload
def reference_edits(task: FETTask) -> tuple[Edit, ...]: ...
@overload
def reference_edits(task: DRCTask) -> tuple[DRCEdit, ...]: ...
@overload
def reference_edits(task: PPATask) -> tuple[PPAEdit, ...]: ...
def reference_edits(
    task: FETTask | DRCTask | PPATask,
) -> tuple[Edit, ...] | tuple[DRCEdit, ...] | tuple[PPAEdit, ...]:
    """Return the edits of a task's reference.

    DRC and PPA tasks carry them. For FET tasks they are the recorded ones for a suite task, else newly made ones.

    Raises:
        TaskError: If a DRC or PPA task has no reference.
        EDAGymError: If the constructor finds no solution.
    """
    if isinstance(task, DRCTask):
        if not task.reference:
            raise TaskError(f"{task.id}: no reference repair is recorded", field="reference", value=None)
        return tuple(drc_edit_from_json(e) for e in task.reference)
    if isinstance(task, PPATask):
        from edagym.envs.ppa import reference

        return reference.reference_edits(task)
    from edagym.envs.fet.reference import build_reference
    from edagym.task_assets.fet.suite import load_reference, load_task

    try:
        if load_task(task.id) == task:
            return tuple(edit_from_json(e) for e in load_reference(task.id)["edits"])
    except TaskError:  # not a task of the suite
        pass
    return build_reference(task)
