"""`build_report`: from runs to the page, Markdown and CSV."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from edagym.baselines.report.clean import Cleaner, key_names
from edagym.baselines.report.page import pack, page
from edagym.baselines.report.runs import Arm, arms_of, attempt_dir, load_runs
from edagym.baselines.report.steps import StepReader
from edagym.baselines.report.summary import Numbers, summarise
from edagym.baselines.report.text import csv_text, markdown
from edagym.baselines.tables import level_of
from edagym.errors import TaskError

MAX_TRACES = 150
MAX_BYTES = 24_000_000
"""Bytes of all steps in the page; attempts that do not fit any more are listed without them."""


@dataclass(frozen=True)
class Report:
    """A report in all its forms.

    Attributes:
        numbers: `edagym.baselines.report.summary.summarise`.
        html: The page.
        markdown: Its tables as Markdown.
        csv: Its measures as CSV.
        shown: Attempts with steps.
        notes: What was left out.
    """

    numbers: Numbers
    html: str
    markdown: str
    csv: str
    shown: int
    notes: tuple[str, ...]


def build_report(
    runs: Sequence[str | Path],
    *,
    title: str = "Evaluation report",
    max_traces: int = MAX_TRACES,
    max_bytes: float = MAX_BYTES,
    tasks: Sequence[str | Path] = (),
    progress: bool = False,
) -> Report:
    """Make a report of runs; equal runs give equal bytes.

    Args:
        runs: Folders of `edagym eval` or `edagym rollout`.
        title: Title of the page.
        max_traces: Most attempts that can be gone through step by step, chosen evenly over policies, levels and
            outcomes; 0: none.
        max_bytes: Most bytes of their steps.
        tasks: Folders of tasks, for suites that are not where the runs had them.
        progress: Whether to show a progress bar.

    Raises:
        TaskError: If a run has no records file, no run has a readable record, or a limit is negative.
    """
    for name, value in (("max_traces", max_traces), ("max_bytes", max_bytes)):
        if not value >= 0:
            raise TaskError("a limit must not be negative", field=name, value=value)
    loaded = load_runs(runs)
    arms = arms_of(loaded)
    if not arms:
        raise TaskError("no readable record", field="runs", value=[run.name for run in loaded])
    cleaner = Cleaner(frozenset().union(*(key_names(run.settings) for run in loaded)))
    numbers = cleaner.data(summarise(loaded, arms))
    attempts = _ordered(arms)
    rows = [_row(i, record, cleaner) for i, record in attempts]
    reader = StepReader(cleaner, [str(t) for t in tasks])
    traces: dict[int, str] = {}
    size = 0
    with_files = [n for n, (i, record) in enumerate(attempts) if attempt_dir(arms[i].run, record) is not None]
    chosen = list(itertools.islice(_spread(with_files, attempts), max_traces))
    for n in tqdm(chosen, desc="report", unit="attempt", disable=not progress):
        i, record = attempts[n]
        steps = reader.read(arms[i], record)
        if "design" in steps:
            steps["design"]["final"] = {m: record["metrics"].get(m) for m in steps["design"]["units"]}
        text = pack(steps)
        if size + len(text) > max_bytes:
            continue
        traces[n] = text
        size += len(text)
        rows[n][_COLUMNS.index("trace")] = 1
        rows[n][_COLUMNS.index("text")] = steps.get("objective", "")
    notes = _notes(len(attempts), len(with_files), len(traces))
    index = {"arms": [{"label": a["label"], "color": a["color"]} for a in numbers["arms"]], "rows": rows}
    title = cleaner.text(title)
    html = page(numbers, index, dict(sorted(traces.items())), notes, title=title)
    return Report(numbers, html, markdown(numbers, notes), csv_text(numbers), len(traces), notes)


def _notes(attempts: int, with_files: int, shown: int) -> tuple[str, ...]:
    notes = []
    if shown < with_files:
        notes.append(
            f"{shown} of {with_files} attempts can be opened step by step; the others are listed without their steps, "
            "to bound the size of this file."
        )
    if with_files < attempts:
        notes.append(f"{attempts - with_files} attempts have no files.")
    return tuple(notes)


_COLUMNS = (
    "arm",
    "suite",
    "level",
    "task",
    "attempt",
    "seed",
    "strict",
    "paper",
    "ended",
    "error",
    "failed",
    "charged",
    "budget",
    "tokens",
    "unreadable",
    "score",
    "trace",
    "message",
    "text",
)
"""Columns of the list's rows; the page's script has the same."""


def _row(arm: int, record: Mapping[str, Any], cleaner: Cleaner) -> list[Any]:
    metrics = record["metrics"]
    values = {
        "arm": arm,
        "suite": record["suite"],
        "level": level_of(record),
        "task": record["task_id"],
        "attempt": record["attempt"],
        "seed": record["run_seed"],
        "strict": record["strict_success"],
        "paper": record["paper_success"],
        "ended": record["ended"],
        "error": record["error_type"],
        "failed": record["failed"][0] if record["failed"] else "",
        "charged": record["charged"],
        "budget": record["budget"],
        "tokens": record["tokens"]["prompt"] + record["tokens"]["completion"],
        "unreadable": record["unreadable"],
        "score": metrics.get("nis", metrics.get("vrr")),
        "trace": 0,
        "message": cleaner.text(str(record.get("error") or ""), 600),
        "text": "",
    }
    return list(cleaner.data([values[name] for name in _COLUMNS]))


def _ordered(arms: Sequence[Arm]) -> list[tuple[int, Mapping[str, Any]]]:
    """Return arm and record of every attempt, sorted by arm, suite, task (numbers by value), attempt and seed."""
    found = [(i, record) for i, arm in enumerate(arms) for record in arm.records]
    return sorted(
        found, key=lambda x: (x[0], x[1]["suite"], _natural(x[1]["task_id"]), x[1]["attempt"], x[1]["run_seed"])
    )


def _natural(text: str) -> list[tuple[int, str]]:
    parts = ["".join(group) for _, group in itertools.groupby(text, str.isdecimal)]
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _spread(rows: Sequence[int], attempts: Sequence[tuple[int, Mapping[str, Any]]]) -> Iterator[int]:
    """Yield rows in turn from every arm, and of an arm from every level and outcome: any first few show all sides."""
    arms: dict[int, dict[tuple[str, str], list[int]]] = {}
    for n in rows:
        arm, record = attempts[n]
        arms.setdefault(arm, {}).setdefault((level_of(record), str(record["strict_success"])), []).append(n)
    return _in_turn([list(_in_turn(list(groups.values()))) for groups in arms.values()])


def _in_turn(lists: Sequence[Sequence[int]]) -> Iterator[int]:
    for turn in itertools.zip_longest(*lists):
        yield from (n for n in turn if n is not None)
