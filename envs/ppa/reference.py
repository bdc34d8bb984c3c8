"""Recorded references of PPA tasks: replay them, and judge designs outside an episode (for generators and tests)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edagym.envs.ppa.edits import apply_edit
from edagym.envs.ppa.runner import FlowRunner
from edagym.errors import TaskError
from edagym.spaces.ppa_edits import PPAEdit, Read, Report, ppa_edit_from_json
from edagym.task_assets.ppa.design import DesignFiles
from edagym.task_assets.ppa.task import PPATask
from edagym.verifiers.ppa.verifier import verify
from edagym.verifiers.verdict import Verdict


def reference_edits(task: PPATask) -> tuple[PPAEdit, ...]:
    """Return the edits of a task's reference.

    Raises:
        TaskError: If none is recorded.
    """
    if not task.reference:
        raise TaskError(f"{task.id}: no reference is recorded", field="reference", value=None)
    return tuple(_edit(e) for e in task.reference)


def edited_design(task: PPATask, edits: Iterable[PPAEdit | Mapping[str, Any]]) -> DesignFiles:
    """Return a task's design after edits, under the task's rules; raises `EditError` or `TaskError`."""
    design = task.design
    for edit in edits:
        design = apply_edit(task, design, _edit(edit) if isinstance(edit, Mapping) else edit)
    return design


def outcome(task: PPATask, edits: Iterable[PPAEdit | Mapping[str, Any]], runner: FlowRunner) -> Verdict:
    """Apply edits, run the flow, check the function, and judge: what one run action would find.

    Args:
        task: The task.
        edits: Edits or their JSON forms, in order.
        runner: What runs the flow.

    Raises:
        EditError: If an edit is refused.
        ToolError: If an engine is missing or fails.
    """
    design = edited_design(task, edits)
    found = runner.run(task, design)
    report = None if found.result is None else found.result.report
    return verify(task, design, report, found.function, failure=found.failure)


def _edit(data: Mapping[str, Any]) -> PPAEdit:
    edit = ppa_edit_from_json(data)
    if isinstance(edit, Read | Report):
        raise TaskError("not an edit", field="reference", value=dict(data))
    return edit
