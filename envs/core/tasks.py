"""How environments choose tasks: `SuiteEnv` from a fixed set, `Procedural` makes a new one on every reset."""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar, cast

import numpy as np

from edagym.envs.core.edit_env import EditEnv, EditT, TaskT
from edagym.errors import TaskError

PreparedT = TypeVar("PreparedT")


class Prepared(Generic[PreparedT]):
    """What depends on a task only, made once per process and task object and shared by its environments.

    Args:
        make: Makes it.
        size: Entries kept; the one that was made first goes first.
    """

    def __init__(self, make: Callable[[Any], PreparedT], size: int) -> None:
        self._make = make
        self._size = size
        # Keyed by identity, because tasks are not hashable. Entries keep their task alive, so that its identity is not
        # used again while it is here.
        self._entries: OrderedDict[int, tuple[Any, PreparedT]] = OrderedDict()

    def __call__(self, task: Any) -> PreparedT:
        """Return what belongs to a task."""
        entry = self._entries.get(id(task))
        if entry is None:
            entry = self._entries[id(task)] = (task, self._make(task))
            if len(self._entries) > self._size:
                self._entries.popitem(last=False)
        return entry[1]


class SuiteEnv(EditEnv[TaskT, EditT]):
    """An environment with a set of tasks to choose from: `_tasks`, id -> task, None where `_load_task` has it."""

    task_type: ClassVar[type]
    _tasks: dict[str, TaskT | None]

    @property
    def task_ids(self) -> tuple[str, ...]:
        """Ids of the tasks to choose from."""
        return tuple(self._tasks)

    @abstractmethod
    def _load_task(self, task_id: str) -> TaskT:
        """Return a task of the family's suite; raises `TaskError`."""

    def _given(self, tasks: Sequence[TaskT | str]) -> dict[str, TaskT | None]:
        """Return the table of tasks given as objects or suite ids."""
        if not tasks:
            raise TaskError("an environment needs a task", field="tasks", value=[])
        objects: list[Any] = [self._load_task(t) if isinstance(t, str) else t for t in tasks]
        return {t.id: t for t in objects}

    def _task_id(self) -> str:
        task: Any = self.task
        return str(task.id)

    def _sample_task(self, rng: np.random.Generator) -> TaskT:
        ids = tuple(self._tasks)
        return self.find_task(ids[int(rng.integers(len(ids)))])

    def find_task(self, key: Any) -> TaskT:
        """Return the task of an id, or a given task object itself; raises `TaskError`."""
        if isinstance(key, self.task_type):
            return cast(TaskT, key)
        if not isinstance(key, str) or key not in self._tasks:
            shown = list(self._tasks)[:10]
            raise TaskError("no such task in this environment", field="task", value=key, allowed=f"{shown}, ...")
        task = self._tasks[key]
        if task is None:
            task = self._tasks[key] = self._load_task(key)
        return task


class Procedural(SuiteEnv[TaskT, EditT]):
    """Makes a new task on every reset; put it before the family's environment among the bases."""

    @staticmethod
    def _refuse_choice(arguments: Mapping[str, Any]) -> None:
        """Refuse arguments that choose tasks; raises `TaskError`."""
        given = sorted({"suite", "tasks"} & arguments.keys())
        if given:
            raise TaskError("this environment makes its own tasks", field=", ".join(given), allowed="neither")

    def _task_table(self, suite: str, tasks: Any) -> dict[str, TaskT | None]:
        return {}

    @abstractmethod
    def redirect(self, *args: Any, **kwargs: Any) -> None:
        """Draw the tasks from the next reset on by other arguments, those of the constructor that choose tasks."""

    @abstractmethod
    def _generate(self, rng: np.random.Generator) -> TaskT:
        """Make a task; all randomness comes from `rng`."""

    def _sample_task(self, rng: np.random.Generator) -> TaskT:
        return self._generate(rng)

    def find_task(self, key: Any) -> TaskT:
        """Return a given task object itself; raises `TaskError` for ids."""
        if isinstance(key, self.task_type):
            return cast(TaskT, key)
        allowed = f"a {self.task_type.__name__} object"
        raise TaskError("procedural tasks have no lasting id", field="task", value=key, allowed=allowed)
