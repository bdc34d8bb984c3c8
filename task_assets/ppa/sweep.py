"""`Sweep`: what the flow gave for many settings of one design; `PPA-Train-v0` draws its targets from these tables.

A table is one JSON file ``sweeps/NAME.json``: the base design's files, the backend and engine that ran it, and one row
per setting: the edits (JSON form) that lead there from the base design, and the three metrics, or null where the flow
failed. Times are ps, powers W, areas um2.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from edagym.errors import TaskError
from edagym.task_assets.ppa.design import DesignFiles
from edagym.task_assets.ppa.task import METRICS

SCHEMA_VERSION = 1
FOLDER = Path(__file__).parent / "sweeps"


@dataclass(frozen=True)
class SweepPoint:
    """One setting.

    Attributes:
        edits: JSON forms of the edits that lead from the base design to it, at most one per knob or constraint.
        values: Metric -> value; None: the flow failed.
    """

    edits: tuple[Mapping[str, Any], ...]
    values: Mapping[str, float] | None


@dataclass(frozen=True)
class Sweep:
    """All settings of one design.

    Attributes:
        name: Name of the design.
        backend: Backend that ran it.
        engine: Versions that the numbers depend on.
        design: The base design.
        points: The settings.
        function: What the functional check has to know about the design's interface, JSON.
    """

    name: str
    backend: str
    engine: str
    design: DesignFiles = field(repr=False)
    points: tuple[SweepPoint, ...] = field(repr=False)
    function: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def save(self, path: str | Path) -> None:
        """Write the table as JSON, one setting a line."""
        head = {
            "schema_version": SCHEMA_VERSION,
            "name": self.name,
            "backend": self.backend,
            "engine": self.engine,
            "function": dict(self.function),
            "design": dict(self.design.files),
        }
        rows = [
            {"edits": [dict(e) for e in p.edits], "values": None if p.values is None else dict(p.values)}
            for p in self.points
        ]
        text = json.dumps({**head, "points": "@"}, indent=1, ensure_ascii=False)
        body = "[\n  " + ",\n  ".join(json.dumps(r, ensure_ascii=False) for r in rows) + "\n ]"
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text.replace('"points": "@"', f'"points": {body}') + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Sweep:
        """Read a table; raises `TaskError` naming file and field."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as e:
            raise TaskError(f"{path}: not a readable sweep table ({e})") from None
        if not isinstance(data, dict) or data.get("schema_version") != SCHEMA_VERSION:
            raise TaskError(f"{path}: not a sweep table", field="schema_version", allowed=SCHEMA_VERSION)
        try:
            points = tuple(SweepPoint(tuple(dict(e) for e in p["edits"]), _values(p["values"])) for p in data["points"])
            return cls(
                str(data["name"]),
                str(data["backend"]),
                str(data["engine"]),
                DesignFiles(dict(data["design"])),
                points,
                dict(data["function"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            raise TaskError(f"{path}: malformed sweep table ({type(e).__name__}: {e})") from None


def _values(data: Any) -> dict[str, float] | None:
    if data is None:
        return None
    values = {m: float(data[m]) for m in METRICS}
    if not all(math.isfinite(v) and v > 0 for v in values.values()):
        raise ValueError(f"bad values {data}")
    return values


@cache
def load_sweeps(folder: str | Path = FOLDER) -> tuple[Sweep, ...]:
    """Return all tables of a folder by name, read once per process.

    Raises:
        TaskError: If there is none, or one is malformed.
    """
    found = tuple(Sweep.load(path) for path in sorted(Path(folder).glob("*.json")))
    if not found:
        raise TaskError("no sweep tables there", field="sweeps", value=str(folder))
    return found
