"""The numbers of a report: tables, paired differences, distributions. Figures, pages, Markdown and CSV show these."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from edagym.baselines.metrics import Interval, paired_bootstrap, pass_at_1, revision_transitions, symptoms
from edagym.baselines.report.runs import FAMILIES, Arm, Run, family_of, read_notes, read_trace, segments_of
from edagym.baselines.rollout import POLICY_CRASH
from edagym.baselines.tables import CRITERIA, SCORES, level_rows, outcome_table

MAX_PAIRS = 12
"""Paired differences per family; of more arms, all are compared with the first one only."""

Numbers = dict[str, Any]


def summarise(runs: Sequence[Run], arms: Sequence[Arm], *, traces: bool = True) -> Numbers:
    """Return all numbers of a report, JSON-ready.

    Args:
        runs: The runs.
        arms: Their arms (`edagym.baselines.report.runs.arms_of`).
        traces: Whether to read the traces, from which the revision transitions come.

    Returns:
        ``arms``: one entry per arm with its run, policy, settings and use of resources; ``families``: per family the
        rows of `edagym.baselines.tables.level_rows` with their arm, and ``differences``, ``distribution``,
        ``symptoms``, ``transitions``; ``faults``: what could not be read.
    """
    names = [f for f in (*FAMILIES, "Other") if any(family_of(r) == f for arm in arms for r in arm.records)]
    families = [_family(name, arms, traces) for name in names]
    colors: dict[str, int] = {}
    for arm in arms:
        # The first colour that no other arm of its families has.
        beside = {label for f in families if arm.label in f["arms"] for label in f["arms"]}
        taken = {colors[label] for label in beside if label in colors}
        colors[arm.label] = next(i for i in range(len(arms)) if i not in taken)
    return {
        "arms": [{**_arm(arm), "color": colors[arm.label]} for arm in arms],
        "families": families,
        "faults": [{"run": run.name, "message": message} for run in runs for message in run.faults],
        "runs": [{"run": run.name, "records": len(run.records)} for run in runs],
    }


def _arm(arm: Arm) -> Numbers:
    records = arm.records
    costs = [r["cost"] for r in records if r["cost"] is not None]
    errors = Counter(r["error_type"] for r in records if r["error_type"])
    scored = sum(r["paper_success"] is not None for r in records)
    found = records[0].get("versions")
    versions = found if isinstance(found, Mapping) else {}
    return {
        "label": arm.label,
        "run": arm.run.name,
        "policy": arm.policy,
        "privileged": any(r.get("privileged") for r in records),
        "deterministic": all(r.get("deterministic") for r in records),
        "memory": bool(arm.run.settings.get("memory", False)),
        "attempts": len(records),
        "scored": scored,
        "missing": sum(n for kind, n in errors.items() if kind != POLICY_CRASH),
        "unfinished": sum(r["ended"] == "time_limit" for r in records),
        "crashed": errors.get(POLICY_CRASH, 0),
        "errors": dict(sorted(errors.items())),
        "infra_retries": sum(r["infra_retries"] for r in records),
        "charged": _mean(r["charged"] for r in records if r["paper_success"] is not None),
        "refused": sum(r["refused"] for r in records),
        "unreadable": sum(r["unreadable"] for r in records),
        "model_calls": sum(r["model_calls"] for r in records),
        "model_retries": sum(r["model_retries"] for r in records),
        "prompt_tokens": sum(r["tokens"]["prompt"] for r in records),
        "completion_tokens": sum(r["tokens"]["completion"] for r in records),
        "cost": sum(costs) if costs else None,
        "costed": len(costs),
        "infeasible": sum(r["ended"] == "declare_infeasible" for r in records),
        "infeasible_passing": sum(r["ended"] == "declare_infeasible" and bool(r["is_success"]) for r in records),
        "ended": dict(sorted(Counter(r["ended"] for r in records).items())),
        "versions": dict(sorted((k, str(v)) for k, v in versions.items())),
    }


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return sum(found) / len(found) if found else None


def _family(name: str, arms: Sequence[Arm], traces: bool) -> Numbers:
    own = [(arm, [r for r in arm.records if family_of(r) == name]) for arm in arms]
    own = [(arm, records) for arm, records in own if records]
    rows = [{"arm": arm.label, **row} for arm, records in own for row in level_rows(records)]
    levels = list(dict.fromkeys(row["level"] for row in rows))
    # A family's own order of levels, from whichever arm has them; the total comes last.
    levels = [v for v in sorted(levels, key=_level_key) if v != "all"] + ["all"]
    labels = [arm.label for arm, _ in own]
    rows.sort(key=lambda row: (levels.index(row["level"]), labels.index(row["arm"])))
    rounds = {arm.label: _rounds(arm, records) if traces else [] for arm, records in own}
    return {
        "family": name,
        "arms": labels,
        "levels": levels,
        "rows": rows,
        "scores": [score for score in SCORES if any(row[score] for row in rows)],
        "differences": _differences(own),
        "distribution": {c: {arm.label: _distribution(records, c) for arm, records in own} for c in CRITERIA},
        "failed_attempts": {arm.label: sum(bool(r["failed"]) for r in records) for arm, records in own},
        "symptoms": {arm.label: symptoms([r["failed"] for r in records if r["failed"]]) for arm, records in own},
        "transitions": {label: revision_transitions(found) for label, found in rounds.items()},
    }


def _level_key(level: str) -> tuple[str, bool, str]:
    group, _, number = level.rpartition("-")
    return (group or number, True, number) if group else (level, False, "")


def _distribution(records: Sequence[Mapping[str, Any]], criterion: str) -> list[int]:
    """Return how many tasks had 0, 1, ..., k successes; tasks with a missing attempt are left out."""
    table = outcome_table(records, criterion)
    whole = table[~np.isnan(table).any(axis=1)]
    return [int(n) for n in np.bincount(whole.sum(axis=1).astype(int), minlength=table.shape[1] + 1)]


def _rounds(arm: Arm, records: Sequence[Mapping[str, Any]]) -> list[list[list[str]]]:
    """Return per attempt, per verifier check, the ids of the failed checks."""
    found = []
    for record in records:
        steps = itertools.chain(*segments_of(read_trace(arm, record), read_notes(arm, record)[0]))
        verdicts = [s["verdict"] for s in steps if isinstance(s.get("verdict"), Mapping)]
        found.append([[one for one in str(v.get("failed", "")).split(", ") if one] for v in verdicts])
    return found


def _differences(own: Sequence[tuple[Arm, Sequence[Mapping[str, Any]]]]) -> list[Numbers]:
    pairs = list(itertools.combinations(own, 2))
    if len(pairs) > MAX_PAIRS:
        pairs = [(own[0], other) for other in own[1:]]
    rows = []
    for (a, first), (b, second) in pairs:
        hashes_a, hashes_b = ({r["task_id"]: r.get("task_hash") for r in records} for records in (first, second))
        other = {t for t, h in hashes_a.items() if h and hashes_b.get(t) and hashes_b[t] != h}
        row: Numbers = {"first": a.label, "second": b.label, "other_tasks": len(other)}
        for measure in (*CRITERIA, *(s for s in SCORES if s != "nis_nothing")):
            x, y = (
                {t: v for t, v in _task_values(records, measure).items() if t not in other}
                for records in (first, second)
            )
            common = [t for t in x if t in y and not np.isnan(x[t] + y[t])]
            if common:
                found = paired_bootstrap([y[t] for t in common], [x[t] for t in common], np.random.default_rng(0))
                row[measure] = _plain(found)
            else:
                row[measure] = None
            if measure == "strict":
                row["tasks"] = len(common)
        rows.append(row)
    return rows


def _task_values(records: Sequence[Mapping[str, Any]], measure: str) -> dict[str, float]:
    """Return task id -> share of successes under a criterion, or mean of a score."""
    by_task: dict[str, list[float]] = {}
    if measure in CRITERIA:
        tasks = list(dict.fromkeys((r["suite"], r["task_id"]) for r in records))
        for (_, task), value in zip(tasks, pass_at_1(outcome_table(records, measure))):
            by_task.setdefault(task, []).append(float(value))
    else:
        for r in records:
            if measure in r["metrics"]:
                by_task.setdefault(r["task_id"], []).append(float(r["metrics"][measure]))
    return {task: float(np.mean(values)) for task, values in by_task.items()}


def _plain(interval: Interval) -> dict[str, float]:
    return {"estimate": interval.estimate, "low": interval.low, "high": interval.high}


def percent(interval: Mapping[str, float] | None, *, sign: bool = False) -> str:
    """Return ``"62.3 [55.5, 69.2]"`` in per cent, or a dash; every face of a report writes its numbers so."""
    if interval is None:
        return "–"
    form = "{:+.1f} [{:+.1f}, {:+.1f}]" if sign else "{:.1f} [{:.1f}, {:.1f}]"
    # Adding 0.0 turns a rounded -0.0 into 0.0.
    return form.format(*(round(100 * interval[name], 1) + 0.0 for name in ("estimate", "low", "high")))
