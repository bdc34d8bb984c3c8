"""Tables of evaluation records: success per level under both criteria, with task-bootstrap intervals.

The unit is the task: attempts of one task are no independent samples. Attempts without a verdict are in no rate and are
counted apart, by whose fault it was: ``missing`` (infrastructure), ``unfinished`` (the policy's own time limit) and
``crashed`` (a fault in the policy's code). The last two are the policy's doing, so each rate has a ``floor`` beside it
that counts them as unsolved.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edagym.baselines.metrics import Interval, success_table, task_bootstrap
from edagym.baselines.rollout import POLICY_CRASH

_LEVEL = re.compile(r"-?L[0-9]+$")
CRITERIA = ("paper", "strict")
SCORES = {"vrr": "VRR", "nis": "NIS", "nis_nothing": "NIS of doing nothing"}
"""Entries of a record's metrics that have a mean per level, and their titles."""


def level_of(record: Mapping[str, Any]) -> str:
    """Return the level of a record's task: ``"L2"``, ``"Essential-L1"``."""
    return str(record["task_id"]).rpartition("/")[0]


def level_rows(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return measures per level, per group of levels (``"Essential"``) and over all.

    Returns:
        Per row: ``level``, ``tasks``, ``attempts``, ``scored``, ``missing``, ``unfinished``, ``crashed``, ``errors``
        (error type -> attempts), ``k`` (attempts per task); under ``paper`` and ``strict``: ``pass_1``, ``pass_k``
        (observed), ``all_k``, each an object with ``estimate``, ``low``, ``high`` (None without a verdict), and
        ``floor``; ``vrr``, ``nis``, ``nis_nothing`` likewise, None where the family has none.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for r in records:
        level = level_of(r)
        for name in dict.fromkeys((level, _LEVEL.sub("", level) or "all", "all")):
            groups.setdefault(name, []).append(r)
    return [{"level": name, **_measures(groups[name])} for name in sorted(groups, key=_order)]


def _order(name: str) -> tuple[bool, str, str]:
    """Sort levels below their group, and the total last."""
    return (name == "all", _LEVEL.sub("", name), name if _LEVEL.search(name) else name + "~")


def _measures(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    errors: dict[str, int] = {}
    for r in records:
        if r["error_type"]:
            errors[r["error_type"]] = errors.get(r["error_type"], 0) + 1
    crashed = errors.get(POLICY_CRASH, 0)
    table = outcome_table(records, "paper")
    row: dict[str, Any] = {
        "tasks": len(table),
        "attempts": len(records),
        "scored": sum(r["paper_success"] is not None for r in records),
        "missing": sum(errors.values()) - crashed,
        "unfinished": sum(r["ended"] == "time_limit" for r in records),
        "crashed": crashed,
        "errors": dict(sorted(errors.items())),
        "k": table.shape[1],
    }
    own = [{**r, **dict.fromkeys(("paper_success", "strict_success"), False)} if _own_doing(r) else r for r in records]
    for criterion in CRITERIA:
        found = success_table(outcome_table(records, criterion), np.random.default_rng(0))
        floor = success_table(outcome_table(own, criterion), np.random.default_rng(0)).pass_1
        row[criterion] = {
            "pass_1": _plain(found.pass_1),
            "pass_k": _plain(found.pass_k),
            "all_k": _plain(found.all_k),
            "floor": _plain(floor),
        }
    for score in SCORES:
        means = _task_means([r for r in records if score in r["metrics"]], score)
        row[score] = _plain(task_bootstrap(means, np.random.default_rng(0))) if len(means) else None
    return row


def _own_doing(record: Mapping[str, Any]) -> bool:
    return record["ended"] == "time_limit" or record["error_type"] == POLICY_CRASH


def outcome_table(records: Sequence[Mapping[str, Any]], criterion: str) -> np.ndarray:
    """Return outcomes (tasks, attempts) as `edagym.baselines.metrics` takes them; tasks in order of appearance.

    Attempts of a task are sorted by run seed and number. Attempts without a verdict, or without a record, are NaN.
    """
    by_task: dict[tuple[str, str], dict[tuple[int, int], Any]] = {}
    for r in records:
        by_task.setdefault((r["suite"], r["task_id"]), {})[r["run_seed"], r["attempt"]] = r[f"{criterion}_success"]
    columns = {place: i for i, place in enumerate(sorted({p for row in by_task.values() for p in row}))}
    table = np.full((len(by_task), len(columns)), np.nan)
    for i, row in enumerate(by_task.values()):
        for place, value in row.items():
            table[i, columns[place]] = np.nan if value is None else value
    return table


def _task_means(records: Sequence[Mapping[str, Any]], score: str) -> np.ndarray:
    by_task: dict[tuple[str, str], list[float]] = {}
    for r in records:
        by_task.setdefault((r["suite"], r["task_id"]), []).append(float(r["metrics"][score]))
    return np.array([np.mean(values) for values in by_task.values()])


def _plain(interval: Interval) -> dict[str, float] | None:
    if np.isnan(interval.estimate):
        return None
    return {"estimate": interval.estimate, "low": interval.low, "high": interval.high}


def level_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return `level_rows` as a Markdown table, in per cent with 95 % intervals."""
    k = max((row["k"] for row in rows), default=1)
    measures = [("pass_1", "pass@1")]
    measures += [("pass_k", f"pass@{k}"), ("all_k", f"all-{k}")] if k > 1 else []
    measures += [("floor", "pass@1 floor")] if any(row["unfinished"] or row["crashed"] for row in rows) else []
    scores = [score for score in SCORES if any(row[score] for row in rows)]
    lost = [
        name for name in ("missing", "unfinished", "crashed") if name == "missing" or any(row[name] for row in rows)
    ]
    header = ["level", "tasks", "attempts", *lost]
    header += [f"{criterion} {title}" for criterion in CRITERIA for _, title in measures]
    header += [SCORES[score] for score in scores]
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    for row in rows:
        cells = [row["level"], *(str(row[name]) for name in ("tasks", "attempts", *lost))]
        cells += [_cell(row[criterion][name]) for criterion in CRITERIA for name, _ in measures]
        cells += [_cell(row[score]) for score in scores]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(interval: Mapping[str, float] | None) -> str:
    return "–" if interval is None else Interval(**interval).percent()
