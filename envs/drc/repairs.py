"""Recorded repairs of the shipped suite's reasoning tasks: what a search found once, for one seed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from edagym.errors import TaskError
from edagym.spaces.drc_edits import DRCEdit, drc_edit_from_json, drc_edit_to_json


@dataclass(frozen=True, slots=True)
class Repair:
    """A repair that was found.

    Attributes:
        attempt: Number of the draw of the task that it belongs to.
        edits: The edits.
        tried: Single edits that were tried to find a shorter one; 0: none.
        clean: Those of them that left no violation, but broke the circuit or the bounds on edits.
    """

    attempt: int
    edits: tuple[DRCEdit, ...]
    tried: int = 0
    clean: int = 0


def recorded_repairs(seed: int) -> dict[str, Repair]:
    """Return the recorded repairs of a seed by task id; empty for seeds other than the shipped suite's."""
    file = resources.files("edagym.task_assets.drc").joinpath("repairs.json")
    if not file.is_file():
        return {}
    data = json.loads(file.read_text(encoding="utf-8"))
    if data["seed"] != seed:
        return {}
    return {task_id: _from_json(task_id, entry) for task_id, entry in data["repairs"].items()}


def save_repairs(path: str | Path, seed: int, repairs: Mapping[str, Repair]) -> None:
    """Write repairs in the form that `recorded_repairs` reads."""
    entries = {
        task_id: {
            "attempt": r.attempt,
            "tried": r.tried,
            "clean": r.clean,
            "edits": [drc_edit_to_json(e) for e in r.edits],
        }
        for task_id, r in repairs.items()
    }
    lines = ",\n".join(f"  {json.dumps(task_id)}: {json.dumps(entry)}" for task_id, entry in entries.items())
    Path(path).write_text(f'{{"seed": {seed}, "repairs": {{\n{lines}\n}}}}\n', encoding="utf-8")


def _from_json(task_id: str, entry: Any) -> Repair:
    try:
        edits = tuple(drc_edit_from_json(e) for e in entry["edits"])
        return Repair(int(entry["attempt"]), edits, int(entry["tried"]), int(entry["clean"]))
    except (KeyError, TypeError, ValueError) as e:
        raise TaskError(f"{task_id}: not a recorded repair ({e})", field="repairs") from e
