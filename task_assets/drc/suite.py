"""The shipped DRC suite: task ids and tasks.

Folders ``suite/essential/L1/q3`` in the form of `DRCTask`, written by `edagym generate drc-suite`. Where no suite has
been built, it has no ids.
"""

from __future__ import annotations

import difflib
import re
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from edagym.errors import TaskError
from edagym.task_assets.drc.task import DRCTask

SIZES = {
    "Essential-L1": 20,
    "Essential-L2": 10,
    "Essential-L3": 10,
    "Reasoning-L1": 13,
    "Reasoning-L2": 10,
    "Reasoning-L3": 7,
}
"""Tasks per group (PostEDA-Bench, Table 2)."""
SUITES = (*(f"DRC-{group}" for group in SIZES), "DRC-Essential", "DRC-Reasoning", "DRC-All")
_ID = re.compile(r"(Essential|Reasoning)-(L[123])/(q\d+)")


def is_task_id(text: str) -> bool:
    """Return whether a text has the form of this suite's task ids."""
    return _ID.fullmatch(text) is not None


def task_folder(task_id: str) -> str:
    """Return the folder of a task relative to the suite's: ``Essential-L1/q3`` lies in ``essential/L1/q3``.

    Raises:
        TaskError: If it is no id of this suite.
    """
    match = _ID.fullmatch(task_id)
    if match is None:
        raise TaskError("not a task id", field="task", value=task_id, allowed="e.g. Essential-L1/q3")
    return f"{match[1].lower()}/{match[2]}/{match[3]}"


@cache
def task_ids(suite: str = "DRC-All") -> tuple[str, ...]:
    """Return the shipped task ids of a suite, in level and task order.

    Args:
        suite: One of `SUITES`.

    Raises:
        TaskError: If the suite is unknown.
    """
    if suite not in SUITES:
        raise TaskError("unknown suite", field="suite", value=suite, allowed=SUITES)
    wanted = suite.removeprefix("DRC-")
    groups = [g for g in SIZES if wanted == "All" or g == wanted or g.startswith(f"{wanted}-")]
    ids = [f"{group}/q{n}" for group in groups for n in range(1, SIZES[group] + 1)]
    return tuple(i for i in ids if _path(i).joinpath("task.json").is_file())


@cache
def load_task(task_id: str) -> DRCTask:
    """Return a task of the suite, read once per process.

    Args:
        task_id: For example ``"Essential-L1/q3"``.

    Raises:
        TaskError: If there is no such task (the message names close matches), or its files are malformed.
    """
    if task_id not in task_ids():
        close = difflib.get_close_matches(str(task_id), task_ids(), n=5, cutoff=0.5)
        raise TaskError("unknown task", field="task", value=task_id, allowed=close or "ids as listed by `edagym list`")
    return DRCTask.load(_path(task_id))


def load_folder(folder: str | Path) -> dict[str, DRCTask]:
    """Return all tasks in the task folders below a folder, by id, in the order of their paths.

    Args:
        folder: For example what `edagym import-posteda` wrote.

    Raises:
        TaskError: If there is none, two have the same id, or one is malformed.
    """
    found: dict[str, DRCTask] = {}
    for path in sorted(Path(folder).glob("**/task.json"), key=lambda p: [_natural(part) for part in p.parts]):
        task = DRCTask.load(path.parent)
        if task.id in found:
            raise TaskError("two tasks with the same id", field="id", value=task.id, allowed=str(path))
        found[task.id] = task
    if not found:
        raise TaskError("no task folders there", field="folder", value=str(folder))
    return found


def _natural(name: str) -> tuple[str, int]:
    """Sort key that puts q2 before q10."""
    match = re.fullmatch(r"(.*?)(\d{1,9})", name)
    return (name, 0) if match is None else (match[1], int(match[2]))


def _path(task_id: str) -> Traversable:
    return resources.files("edagym.task_assets.drc").joinpath("suite", task_folder(task_id))
