"""Runs as a report reads them: records of any schema, with what cannot be read told apart and never fatal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edagym.baselines.records import Key, Record, key_of, read_lines, read_run
from edagym.baselines.tables import SCORES
from edagym.errors import TaskError

FAMILIES = ("FET", "DRC", "PPA")
_OUTCOMES = ("is_success", "paper_success", "strict_success")
_LARGEST = 1e30
_COUNTS = ("charged", "budget", "refused", "unreadable")


@dataclass
class Run:
    """A run's folder.

    Attributes:
        folder: The folder.
        name: Its last part; unique among the runs of a report.
        settings: ``run.json``; empty for folders of `edagym rollout`.
        records: The readable records, one per attempt, in the order in which they came.
        faults: What could not be read, one sentence each, without paths.
    """

    folder: Path
    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


@dataclass
class Arm:
    """What a report compares: the attempts of one policy in one run.

    Attributes:
        label: Name in tables and figures, unique.
        run: The run.
        policy: Name of the policy.
        records: Its records.
    """

    label: str
    run: Run
    policy: str
    records: list[Record]


def load_runs(paths: Sequence[str | Path]) -> list[Run]:
    """Read runs.

    Args:
        paths: Folders of `edagym eval` or `edagym rollout`.

    Raises:
        TaskError: If a folder has no records file.
    """
    runs: list[Run] = []
    for path in paths:
        folder = Path(path)
        name = folder.resolve().name or "run"
        taken = {run.name for run in runs}
        unique = next(n for i in range(1, len(paths) + 2) if (n := name if i == 1 else f"{name} #{i}") not in taken)
        run = Run(folder, unique)
        try:
            run.settings = read_run(folder)
        except TaskError as e:
            run.faults.append(f"run.json cannot be read ({type(e.__cause__ or e).__name__})")
        _read_records(run)
        runs.append(run)
    return runs


def _read_records(run: Run) -> None:
    found: dict[Key, Record] = {}
    for number, record, fault in read_lines(run.folder):
        # The sentence of `read_lines` starts with the file's path.
        wrong = (
            fault.rpartition(f"line {number} is no record")[2].strip(" ()") if record is None else _malformed(record)
        )
        if wrong or record is None:
            run.faults.append(f"line {number} of records.jsonl is no record ({wrong})")
        else:
            found[key_of(record)] = record
    with (run.folder / "records.jsonl").open("rb") as f:
        tail = f.read().rpartition(b"\n")[2]
    if tail.strip():
        run.faults.append(f"the last line of records.jsonl is cut short ({len(tail)} bytes): that attempt is left out")
    run.records = list(found.values())


def _malformed(record: Record) -> str:
    """Return what keeps a record from being counted, or an empty text."""
    for name in _OUTCOMES:
        if not any(record.get(name, 0) is value for value in (True, False, None)):
            return f"{name} is neither true, false nor null"
    for name in ("suite", "policy", "task_id", "ended"):
        if not isinstance(record.get(name), str):
            return f"{name} is no text"
    for name in ("attempt", "run_seed", *_COUNTS):
        if not _number(record.get(name)):
            return f"{name} is no number"
    metrics = record.get("metrics")
    if not isinstance(metrics, Mapping) or not all(_number(v) for k, v in metrics.items() if k in SCORES):
        return "metrics are no table, or its scores no numbers"
    failed = record.get("failed")
    if not isinstance(failed, list) or not all(isinstance(one, str) for one in failed):
        return "failed is no list of texts"
    tokens = record.get("tokens")
    if not isinstance(tokens, Mapping) or not all(_number(tokens.get(name)) for name in ("prompt", "completion")):
        return "tokens are no counts"
    if not isinstance(record.get("error_type"), str | None) or not isinstance(record.get("folder"), str | None):
        return "error_type or folder is no text"
    if not all(_number(record.get(name)) for name in ("model_calls", "model_retries", "infra_retries")):
        return "calls and retries are no counts"
    return "cost is no number" if record.get("cost") is not None and not _number(record["cost"]) else ""


def _number(value: Any) -> bool:
    """Return whether a value is a number that can be summed and shown: finite, and not beyond all measure."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST


def arms_of(runs: Sequence[Run]) -> list[Arm]:
    """Return the arms of runs, in the order of runs and of first appearance."""
    arms: list[Arm] = []
    for run in runs:
        by_policy: dict[str, list[Record]] = {}
        for record in run.records:
            by_policy.setdefault(record["policy"], []).append(record)
        arms += [Arm(policy, run, policy, records) for policy, records in by_policy.items()]
    policies = [arm.policy for arm in arms]
    for arm in arms:
        if policies.count(arm.policy) > 1:
            arm.label = f"{arm.policy} ({arm.run.name})"
    return arms


def family_of(record: Mapping[str, Any]) -> str:
    """Return the family of a record's task: by its suite, else (folders of tasks) by its measures."""
    prefix = str(record["suite"]).partition("-")[0]
    if prefix in FAMILIES:
        return prefix
    if "vrr" in record["metrics"] or "violations" in record["metrics"]:
        return "DRC"
    return "PPA" if "nis" in record["metrics"] else "Other"


def read_trace(arm: Arm, record: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the trace of a record's attempt, or None where there is none that can be read."""
    folder = attempt_dir(arm.run, record)
    if folder is None:
        return None
    try:
        data = json.loads((folder / "trace.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    steps = data.get("steps") if isinstance(data, dict) else None
    if not isinstance(steps, list) or not all(isinstance(s, dict) and isinstance(s.get("action"), dict) for s in steps):
        return None
    return dict(data)


def read_notes(arm: Arm, record: Mapping[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """Return what the policy noted in an attempt, and the number of lines that cannot be read."""
    folder = attempt_dir(arm.run, record)
    try:
        lines = (
            [] if folder is None else (folder / "notes.jsonl").read_text(encoding="utf-8", errors="replace").split("\n")
        )
    except OSError:
        return [], 0
    notes, broken = [], 0
    for line in filter(str.strip, lines):
        try:
            note = json.loads(line)
        except (ValueError, RecursionError):
            note = None
        if isinstance(note, dict) and isinstance(note.get("kind"), str):
            notes.append(note)
        else:
            broken += 1
    return notes, broken


def segments_of(trace: Mapping[str, Any] | None, notes: Sequence[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the steps of an attempt by start: those that a policy gave up for a fresh start, then the trace.

    Args:
        trace: The trace, which holds the steps of the last start only.
        notes: The policy's notes; ``restore`` notes hold what was given up as ``dropped``.
    """
    found = [list(n["dropped"]) for n in notes if gave_up(n)]
    return [*found, list(trace["steps"]) if trace else []]


def gave_up(note: Mapping[str, Any]) -> bool:
    """Return whether a note says that the steps so far were given up, and which."""
    steps = note.get("dropped") if note["kind"] == "restore" else None
    return isinstance(steps, list) and all(isinstance(s, dict) and isinstance(s.get("action"), dict) for s in steps)


def attempt_dir(run: Run, record: Mapping[str, Any]) -> Path | None:
    """Return the folder of an attempt; None where it has none, or one outside the run's folder."""
    where = record.get("folder")
    if not where:
        return None
    try:
        folder = (run.folder / where).resolve()
    except (OSError, ValueError):  # names that no file can have
        return None
    return folder if folder.is_relative_to(run.folder.resolve()) and folder.is_dir() else None
