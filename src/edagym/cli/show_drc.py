"""`edagym show` for DRC tasks: the report in words, the prompt, and pictures before and after the reference repair."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from edagym.cli.common import PASS, emit
from edagym.errors import TaskError

SIZE = (480, 480)
MARGIN_NM = 120.0
"""Room around the violations in a picture, nm; only the layers of their rules are drawn in full colour."""


def is_drc(task_id: str | None) -> bool:
    """Whether a task id or folder is one of the DRC family."""
    from edagym.task_assets.drc.suite import is_task_id

    if task_id is None:
        return False
    return is_task_id(task_id) or (Path(task_id) / "layout.gds").is_file()


def show_drc(args: argparse.Namespace) -> int:
    """Show a DRC task."""
    from edagym.envs.drc.env import DRCEnv
    from edagym.envs.drc.prompt import render_violations
    from edagym.task_assets.drc.suite import is_task_id
    from edagym.task_assets.drc.task import DRCTask

    if args.svg or args.layout:
        raise TaskError("not drawn for DRC tasks", field="--svg, --layout", allowed="--png, --reference, --prompt")
    if args.reference and not args.png:
        raise TaskError("a layout is drawn", field="--reference", allowed="with --png OUT")
    env = DRCEnv(tasks=[args.task if is_task_id(args.task) else DRCTask.load(args.task)], render_size=SIZE)
    env.reset()
    task = env.task
    data: dict[str, Any] = {
        "task": task.id,
        "budget": task.budget,
        "counts": dict(task.counts),
        "violations": [v.to_dict() for v in task.violations],
    }
    text = f"{task.id}: {task.total} violations, budget {task.budget}\n{render_violations(task.violations, task.top)}"
    if args.prompt:
        data = {"task": task.id, "prompt": env.prompt}
        text = env.prompt
    if args.png:
        _draw(env, args.png, args.reference)
        data["files"] = [args.png]
        text = f"{text.rstrip()}\nwrote {args.png}"
    emit(args, data, text)
    return PASS


def _draw(env: Any, path: str, repaired: bool) -> None:
    """Draw the window around a task's violations, with them in red, or the same window after the reference repair."""
    from PIL import Image

    from edagym.envs.drc.viewer import render_window, view_window
    from edagym.spaces.drc_edits import drc_edit_from_json
    from edagym.verifiers.drc import load_table

    task, shown = env.task, env.placed_violations
    table = load_table(task.rules)
    window = view_window(shown, env.layout, margin_nm=MARGIN_NM)
    focus = {layer for rule in task.counts for layer in table.rules[rule].layers}
    if repaired:
        if not task.reference:
            raise TaskError("no repair is recorded", field="--reference", value=task.id)
        for edit in task.reference:
            env.step_edit(drc_edit_from_json(edit))
        shown = ()
    picture = render_window(env.layout, table, window, shown, size=SIZE, focus=focus)
    try:
        Image.fromarray(picture).quantize(128).save(path, format="PNG", optimize=True)
    except OSError as e:
        raise TaskError(f"cannot write picture {path}: {e}") from e
