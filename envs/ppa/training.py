"""Tasks drawn from sweep tables: a setting as the start, targets that another setting of the table reaches.

The construction is the public benchmark's: a single-objective task starts from a setting whose metric is worse than
that of a reference setting, one (L1) or several (L2) knobs apart; a trade-off task takes its targets from the Pareto
front of two (L1) or three (L2) metrics and starts from a setting that is not on it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from edagym.envs.ppa.edits import change
from edagym.errors import TaskError
from edagym.spaces.ppa_edits import PPAEdit, Read, Report, ppa_edit_from_json
from edagym.task_assets.ppa.config import parse_config
from edagym.task_assets.ppa.design import DesignFiles
from edagym.task_assets.ppa.knobs import knob_table
from edagym.task_assets.ppa.sdc import parse_sdc
from edagym.task_assets.ppa.sweep import Sweep, SweepPoint
from edagym.task_assets.ppa.task import METRICS, PPATask, default_bounds

KINDS = {"performance": "effective_period", "power": "total_power", "area": "die_area"}
LEVELS = ("L1", "L2")
MIN_GAP = 0.03
"""Smallest relative distance of a start from its target: less is the flow's own noise."""
SLACK = 0.005
"""Targets lie this share above what the reference reaches."""
_TRIES = 200

_Key = tuple[str, ...]


def sample_task(
    rng: np.random.Generator, sweeps: Sequence[Sweep], *, kind: str | None = None, level: str | None = None
) -> PPATask:
    """Draw a task.

    Args:
        rng: The generator.
        sweeps: Tables to draw from.
        kind: ``"performance"``, ``"power"``, ``"area"`` or ``"multi"``; None: any.
        level: ``"L1"`` or ``"L2"``; None: any.

    Raises:
        TaskError: If a name is unknown, or the tables hold no such task.
    """
    kinds = (*KINDS, "multi")
    for name, value, allowed in (("kind", kind, kinds), ("level", level, LEVELS)):
        if value is not None and value not in allowed:
            raise TaskError(f"no such {name}", field=name, value=value, allowed=allowed)
    for _ in range(_TRIES):
        sweep = sweeps[int(rng.integers(len(sweeps)))]
        chosen = kind or kinds[int(rng.integers(len(kinds)))]
        rank = level or LEVELS[int(rng.integers(len(LEVELS)))]
        found = _multi(rng, sweep, rank) if chosen == "multi" else _mono(rng, sweep, KINDS[chosen], rank)
        if found is not None:
            return make_task(sweep, *found, suite="train", level=rank, labels={"kind": chosen})
    raise TaskError("the sweep tables hold no such task", field="sweeps", value=[s.name for s in sweeps])


def make_task(
    sweep: Sweep,
    start: SweepPoint,
    reference: SweepPoint,
    metrics: Sequence[str],
    *,
    suite: str,
    level: str,
    task_id: str | None = None,
    slack: float = SLACK,
    labels: Mapping[str, Any] | None = None,
) -> PPATask:
    """Build a task from two settings of a table.

    Args:
        sweep: The table.
        start: The setting that the agent finds.
        reference: The setting whose values, with some slack, are the targets.
        metrics: Metrics with a target.
        suite: One of `edagym.task_assets.ppa.task.SUITES`.
        level: Level of the task.
        task_id: Id; None: one made of the table's name and the task's content.
        slack: Share by which the targets lie above the reference's values.
        labels: Hidden labels.

    Raises:
        TaskError: If one of the two settings failed in the flow, or an edit is malformed.
    """
    if start.values is None or reference.values is None:
        raise TaskError("a setting that failed in the flow makes no task", field="point", value=sweep.name)
    design = apply_settings(sweep.design, start.edits)
    targets = {m: float(f"{reference.values[m] * (1 + slack):.5g}") for m in METRICS if m in metrics}
    path = difference(sweep.design, start.edits, reference.edits)
    if task_id is None:
        content = json.dumps([sweep.name, sweep.engine, list(start.edits), path, targets], sort_keys=True)
        task_id = f"Train/{sweep.name}/{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    return PPATask(
        id=task_id,
        suite=suite,
        level=level,
        backend=sweep.backend,
        engine=sweep.engine,
        design=design,
        initial=dict(start.values),
        targets=targets,
        bounds=default_bounds(parse_sdc(sweep.design.one(".sdc")[1])),
        function=sweep.function,
        reference=tuple(path),
        reference_values=dict(reference.values),
        metadata={"design": sweep.name, **(labels or {})},
    )


def apply_settings(design: DesignFiles, edits: Sequence[Mapping[str, Any]]) -> DesignFiles:
    """Return a design after edits in JSON form; raises `TaskError` if one is malformed."""
    for data in edits:
        design = change(design, _edit(data))
    return design


def difference(
    base: DesignFiles, start: Sequence[Mapping[str, Any]], end: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the edits that lead from one setting of a base design to another; both are edits of the base.

    Raises:
        TaskError: If the settings differ by an edit of a file, which has no inverse.
    """
    first, second = ({_key(e): dict(e) for e in side} for side in (start, end))
    path = []
    for key in [*second, *(k for k in first if k not in second)]:
        if first.get(key) != second.get(key):
            path.append(second[key] if key in second else _base_value(base, first[key]))
    return path


def _edit(data: Mapping[str, Any]) -> PPAEdit:
    edit = ppa_edit_from_json(data)
    if isinstance(edit, Read | Report):
        raise TaskError("not an edit", field="edits", value=dict(data))
    return edit


def _key(data: Mapping[str, Any]) -> _Key:
    return (data["op"], *(str(data.get(k, "")) for k in ("name", "clock", "direction", "path", "old")))


def _base_value(base: DesignFiles, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the edit that takes another back to the base design's value."""
    op, constraints = data["op"], parse_sdc(base.one(".sdc")[1])
    if op == "set_knob":
        knobs = parse_config(base.one(".mk")[1]).knobs
        knob = knob_table()[data["name"]]
        return {"op": op, "name": knob.name, "value": knob.text(knobs.get(knob.name))}
    if op == "set_period":
        clock = next(c for c in constraints.clocks if data.get("clock") in (None, "", c.name))
        return {**data, "period": clock.period}
    if op == "set_io_fraction":
        return {**data, "fraction": constraints.io_fraction}
    if op == "set_max_fanout":
        return {**data, "fanout": constraints.max_fanout or 0}
    raise TaskError("an edit of a file has no inverse", field="edits", value=dict(data))


def distance(base: DesignFiles, start: SweepPoint, end: SweepPoint) -> int:
    """Return by how many knobs and constraints two settings differ."""
    return len(difference(base, start.edits, end.edits))


def _completed(sweep: Sweep) -> list[SweepPoint]:
    return [p for p in sweep.points if p.values is not None]


def _gap(start: SweepPoint, reference: SweepPoint, metric: str) -> float:
    assert start.values is not None
    assert reference.values is not None
    return start.values[metric] / (reference.values[metric] * (1 + SLACK)) - 1


def _mono(
    rng: np.random.Generator, sweep: Sweep, metric: str, level: str
) -> tuple[SweepPoint, SweepPoint, tuple[str, ...]] | None:
    points = _completed(sweep)
    if len(points) < 2:
        return None
    ordered = sorted(points, key=lambda p: p.values[metric] if p.values else 0.0)
    reference = ordered[int(rng.integers(max(1, len(ordered) // 4)))]
    starts = [p for p in points if _gap(p, reference, metric) >= MIN_GAP]
    apart = [(p, distance(sweep.design, p, reference)) for p in starts]
    fitting = [p for p, n in apart if (n == 1 if level == "L1" else 2 <= n <= 3)]
    if not fitting:
        return None
    return fitting[int(rng.integers(len(fitting)))], reference, (metric,)


def _multi(rng: np.random.Generator, sweep: Sweep, level: str) -> tuple[SweepPoint, SweepPoint, tuple[str, ...]] | None:
    points = _completed(sweep)
    pairs = list(combinations(METRICS, 2))
    metrics = METRICS if level == "L2" else pairs[int(rng.integers(len(pairs)))]
    front = pareto_front(points, metrics)
    rest = [p for p in points if p not in front]
    if not front or not rest:
        return None
    reference = front[int(rng.integers(len(front)))]
    starts = [p for p in rest if any(_gap(p, reference, m) >= MIN_GAP for m in metrics)]
    if not starts:
        return None
    return starts[int(rng.integers(len(starts)))], reference, metrics


def pareto_front(points: Sequence[SweepPoint], metrics: Sequence[str]) -> list[SweepPoint]:
    """Return the completed points that no other beats in one metric and equals or beats in all, in table order."""
    rows = [[p.values[m] for m in metrics] if p.values is not None else None for p in points]
    values = np.array([r for r in rows if r is not None]).reshape(-1, len(metrics))
    front = []
    for point, row in zip(points, rows):
        if row is not None:
            better = (values <= row).all(axis=1) & (values < row).any(axis=1)
            if not better.any():
                front.append(point)
    return front
