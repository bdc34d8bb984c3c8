"""The shipped 128-task suite: task ids, tasks and recorded references.

Files: ``suite/L2/case_12.json`` (task files; for circuit tasks with the netlist extracted from the reference layout)
and ``references/L2/case_12.json`` (edits of the scripted reference layout). `edagym.envs.fet.generator` writes both.
"""

from __future__ import annotations

import difflib
import json
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from edagym.errors import TaskError
from edagym.task_assets.fet.manifest import ManifestEntry, load_manifest
from edagym.task_assets.fet.task import FETTask

LEVELS = ("L1", "L2", "L3", "L4")
SUITES = (*(f"FET-{level}" for level in LEVELS), "FET-Holes", "FET-All")


def _in_suite(entry: ManifestEntry, suite: str) -> bool:
    if suite == "FET-All":
        return True
    return entry.holes if suite == "FET-Holes" else entry.level == suite.removeprefix("FET-")


@cache
def task_ids(suite: str = "FET-All") -> tuple[str, ...]:
    """Return the task ids of a suite, in level and case order.

    Args:
        suite: One of `SUITES`.

    Raises:
        TaskError: If the suite is unknown.
    """
    if suite not in SUITES:
        raise TaskError("unknown suite", field="suite", value=suite, allowed=SUITES)
    return tuple(e.id for e in load_manifest().entries if _in_suite(e, suite))


@cache
def load_task(task_id: str) -> FETTask:
    """Return a task of the suite, read once per process.

    Args:
        task_id: For example ``"L2/case_12"``.

    Raises:
        TaskError: If there is no such task (the message names close matches), or its file is malformed.
    """
    path = _path("suite", task_id)
    return FETTask.from_json(path.read_text(encoding="utf-8"), f"{task_id}.json")


@cache
def load_reference(task_id: str) -> dict[str, Any]:
    """Return the recorded reference of a task, read once per process; treat it as read-only.

    Args:
        task_id: For example ``"L2/case_12"``.

    Returns:
        ``{"task": id, "edits": [...]}``; the edits are in the JSON form of `edagym.spaces.edits`.

    Raises:
        TaskError: If there is no such task.
    """
    data: dict[str, Any] = json.loads(_path("references", task_id).read_text(encoding="utf-8"))
    return data


def _path(folder: str, task_id: str) -> Traversable:
    if task_id not in task_ids():
        close = difflib.get_close_matches(str(task_id), task_ids(), n=5, cutoff=0.5)
        raise TaskError("unknown task", field="task", value=task_id, allowed=close or "ids as listed by `edagym list`")
    path = resources.files("edagym.task_assets.fet").joinpath(folder, f"{task_id}.json")
    if not path.is_file():
        raise TaskError(
            "the suite's data files are missing; write them with `edagym generate fet-suite`", value=task_id
        )
    return path
