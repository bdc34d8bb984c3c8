"""Traces: the single edits and commands of an episode as JSON, with the versions of the tools that ran it."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import Any

from edagym.errors import TaskError

SCHEMA_VERSION = 1
_TOOLS = ("edagym", "gymnasium", "klayout", "numpy", "shapely")


@cache
def _installed() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _TOOLS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # an uninstalled checkout on the path
            found[name] = "unknown"
    return found


def tool_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that decide geometry and verdicts."""
    return dict(_installed())


def save_trace(path: str | Path, trace: Mapping[str, Any]) -> None:
    """Write a trace as JSON: one fixed formatting, so that equal traces have equal bytes."""
    Path(path).write_text(json.dumps(trace, indent=1) + "\n", encoding="utf-8")


def load_trace(path: str | Path) -> dict[str, Any]:
    """Read a trace.

    Raises:
        TaskError: If the file cannot be read or is not a trace.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as e:
        raise TaskError(f"cannot read trace {path}: {e}") from e
    if not isinstance(data, dict) or data.get("schema_version") != SCHEMA_VERSION or "steps" not in data:
        raise TaskError(f"{path} is not a trace", field="schema_version", allowed=SCHEMA_VERSION)
    return data


def trace_actions(trace: Mapping[str, Any]) -> list[Any]:
    """Return the actions of a trace in JSON form, for `EditEnv.replay`.

    Single edits that were run as one list (equal ``group``) come as a list, so that a replay charges the same.
    """
    actions: list[Any] = []
    for _, steps in groupby(trace["steps"], key=lambda step: step.get("group", -1)):
        members = list(steps)
        grouped = "group" in members[0]
        actions += [[s["action"] for s in members]] if grouped else [s["action"] for s in members]
    return actions
