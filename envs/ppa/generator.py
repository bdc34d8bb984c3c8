"""The PPA suite: 75 tasks made from sweeps of the embedded flow (PostEDA-Bench, Section 3.2 and Appendix D.3).

Performance, Power and Area L1 and L2: the reference is the setting of a design's sweep with the best value of the
metric; one knob (L1), or two to three (L2), are then moved so that the metric gets worse. Performance L3: the target is
out of reach of every setting of the sweep, and the reference rewrites the RTL. Multi: the targets are a point of the
sweep's Pareto front of two (L1) or three (L2) metrics, the start is a setting off the front that misses each of them.

All targets are the reference's values plus `SLACK`; each start misses its targets by `MIN_GAP` at least.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from edagym.envs.ppa.flow.embedded import EmbeddedFlow
from edagym.envs.ppa.prompt import render_prompt
from edagym.envs.ppa.reference import outcome
from edagym.envs.ppa.rewrites import REWRITES, Rewrite
from edagym.envs.ppa.runner import FlowRunner
from edagym.envs.ppa.sweep import PERIOD, Axis, base_design, default_axes, grid, run_designs, run_sweep
from edagym.envs.ppa.training import MIN_GAP, SLACK, apply_settings, difference, make_task, pareto_front
from edagym.errors import TaskError
from edagym.spaces.ppa_actions import PPAActionSpace
from edagym.task_assets.ppa.designs import load_design
from edagym.task_assets.ppa.suite import SIZES, task_folder
from edagym.task_assets.ppa.sweep import Sweep, SweepPoint
from edagym.task_assets.ppa.task import METRICS, PPATask

SEED = 7
FULL = ("gcd", "multi_pipe_8bit", "multi_16bit", "radix2_div", "uart")
"""Designs swept over all axes but the slack margin."""
MARGIN = ("sub_64bit",)
"""Designs swept over the slack margin too, and over fewer other axes."""
SMALL = ("adder_pipe_64bit", "fifo_sync")
"""Dearer ones, swept over the axes with the largest effects only."""
MONO = {"Performance": "effective_period", "Power": "total_power", "Area": "die_area"}


def sweep_axes(name: str) -> tuple[Axis, ...]:
    """Return the axes of a design's sweep in the suite."""
    axes = default_axes(base_design(load_design(name)))
    left_out = {"SETUP_SLACK_MARGIN"} if name in FULL else {"PLACE_DENSITY", "RECOVER_POWER"}
    if name in SMALL:
        left_out.add("SETUP_SLACK_MARGIN")
    return tuple(axis for axis in axes if axis.name not in left_out)


def generate_suite(
    out: str | Path,
    seed: int = SEED,
    *,
    sweeps: Sequence[Sweep] | None = None,
    only: Sequence[str] | None = None,
    workers: int = 1,
    progress: bool = True,
) -> dict[str, Any]:
    """Build the suite: ``out/sweeps/NAME.json`` and ``out/suite/multi/L1/q1`` and so on.

    Args:
        out: Folder; made. ``out/runs.jsonl`` keeps finished runs, so that a stopped generation goes on where it was.
        seed: Seed of the choices among what the sweeps offer; 7 made the shipped suite.
        sweeps: Tables to build from; None: they are run.
        only: Groups (``"Multi-L1"``) to build; None: all.
        workers: Processes for the sweeps.
        progress: Whether to show progress bars.

    Returns:
        Counts: runs, failed settings, tasks per group, share of Multi tasks on which each greedy search fails.

    Raises:
        TaskError: If a group is unknown, or the sweeps don't hold enough tasks.
        ToolError: If an engine is missing or fails.
    """
    unknown = sorted(set(only or ()) - set(SIZES))
    if unknown:
        raise TaskError("unknown groups", field="only", value=unknown, allowed=[*SIZES])
    folder = Path(out)
    record = folder / "runs.jsonl"
    if sweeps is None:
        sweeps = run_sweeps(record, workers=workers, progress=progress)
        for sweep in sweeps:
            sweep.save(folder / "sweeps" / f"{sweep.name}.json")
    tables = {s.name: s for s in sweeps}
    groups = [g for g in SIZES if only is None or g in only]
    tasks: list[PPATask] = []
    for group in groups:
        tasks += _group(group, tables, seed, record, workers, progress)
    flow = EmbeddedFlow()
    prompt = PPAActionSpace().describe()
    for task in tqdm(tasks, desc="tasks", disable=not progress):
        whole = _with_report(task, flow)
        whole.save(folder / "suite" / task_folder(task.id), prompt=render_prompt(whole.view(), prompt))
    multi = [t.metadata["greedy"] for t in tasks if t.suite == "multi"]
    return {
        "settings": sum(len(s.points) for s in sweeps),
        "failed_settings": sum(p.values is None for s in sweeps for p in s.points),
        "tasks": {g: sum(t.id.startswith(f"{g}/") for t in tasks) for g in groups},
        "greedy_fails": {k: sum(not g[k] for g in multi) / len(multi) for k in multi[0]} if multi else {},
    }


def run_sweeps(record: Path | None, *, workers: int = 1, progress: bool = True) -> list[Sweep]:
    """Run the sweep of every design of the suite."""
    found = []
    for name in (*FULL, *MARGIN, *SMALL):
        axes = sweep_axes(name)
        design = base_design(load_design(name))
        function = _interface(name)
        found.append(
            run_sweep(
                name, design, axes, grid(axes), function=function, record=record, workers=workers, progress=progress
            )
        )
    return found


def _interface(name: str) -> dict[str, Any]:
    path = resources.files("edagym.task_assets.ppa") / "designs" / name / "design.json"
    interface: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["interface"]
    return interface


def _group(
    group: str, tables: Mapping[str, Sweep], seed: int, record: Path, workers: int, progress: bool
) -> list[PPATask]:
    kind, level = group.split("-")
    # A generator of its own for each group: groups can be built alone.
    rng = np.random.default_rng([seed, list(SIZES).index(group)])
    if group == "Performance-L3":
        return [_rewrite_task(r, n, record, workers, progress) for n, r in enumerate(REWRITES[: SIZES[group]], 1)]
    if kind == "Multi":
        return _multi_tasks(level, tables, rng)
    return _mono_tasks(kind, level, tables, rng)


def _with_report(task: PPATask, flow: EmbeddedFlow) -> PPATask:
    """Return a task with what the flow reports on its start."""
    result = flow.run(task.design)
    report = result.report
    if {m: report.value(m) for m in METRICS} != dict(task.initial):
        raise TaskError(f"{task.id}: the sweep is of another flow", field="initial", value=dict(task.initial))
    metrics = {k: float(v) for k, v in sorted(report.metrics.items())}
    final = [f"report_clock_min_period: period_min = {report.effective_period:.2f}", "", *result.critical_path]
    facts = {
        "logs/6_report.json": json.dumps(metrics, indent=1) + "\n",
        "reports/6_finish.rpt": "\n".join(final) + "\n",
    }
    return dataclasses.replace(task, initial_metrics=metrics, facts=facts)


# -- one metric --------------------------------------------------------------------------------------------------------


def _mono_tasks(kind: str, level: str, tables: Mapping[str, Sweep], rng: np.random.Generator) -> list[PPATask]:
    """Return the tasks of a group, each of another design and, as far as possible, with other knobs moved."""
    metric, group = MONO[kind], f"{kind}-{level}"
    tasks: list[PPATask] = []
    used: dict[tuple[str, ...], int] = {}
    for name in (str(n) for n in rng.permutation(sorted(tables))):
        if len(tasks) == SIZES[group]:
            break
        sweep = tables[name]
        points = [p for p in sweep.points if p.values is not None]
        reference = min(points, key=lambda p: _value(p, metric))
        starts: dict[tuple[str, ...], list[SweepPoint]] = {}
        for p in points:
            moved = _moved(sweep, p, reference)
            if (len(moved) == 1 if level == "L1" else 2 <= len(moved) <= 3) and _gap(p, reference, metric) >= MIN_GAP:
                starts.setdefault(moved, []).append(p)
        if not starts:
            continue
        fewest = min(used.get(moved, 0) for moved in starts)
        offered = sorted(moved for moved in starts if used.get(moved, 0) == fewest)
        moved = offered[int(rng.integers(len(offered)))]
        used[moved] = used.get(moved, 0) + 1
        start = starts[moved][int(rng.integers(len(starts[moved])))]
        labels = {"moved": list(moved), "solved_by_table_share": _share(sweep, (metric,), reference)}
        task_id = f"{group}/q{len(tasks) + 1}"
        tasks.append(
            make_task(
                sweep, start, reference, (metric,), suite=kind.lower(), level=level, task_id=task_id, labels=labels
            )
        )
    if len(tasks) < SIZES[group]:
        raise TaskError("the sweeps hold too few tasks", field=group, value=len(tasks), allowed=SIZES[group])
    return tasks


def _rewrite_task(rewrite: Rewrite, n: int, record: Path, workers: int, progress: bool) -> PPATask:
    """Return a task whose target no setting of a sweep reaches, and which rewritten sources do."""
    rtl = load_design(rewrite.design)
    base = base_design(rtl)
    edit = dict(rewrite.edit(rtl))
    runs = {}
    changes: tuple[tuple[str, tuple[dict[str, Any], ...], bool], ...] = (
        ("knobs", (), False),
        ("rewritten", (edit,), True),
    )
    for label, change, quick in changes:
        axes = rewrite_axes(rewrite.design, quick)
        settings = [(), *(tuple(axis.edit(v) for axis, v in zip(axes, row, strict=True)) for row in grid(axes))]
        designs = [apply_settings(base, (*change, *s)) for s in settings]
        found = run_designs(
            designs, label=f"{rewrite.design} {label}", record=record, workers=workers, progress=progress
        )
        runs[label] = [SweepPoint(s, r.values) for s, r in zip(settings, found, strict=True) if r.values]
    metric = "effective_period"
    best_knobs = min(runs["knobs"], key=lambda p: _value(p, metric))
    best = min(runs["rewritten"], key=lambda p: _value(p, metric))
    start = next(p for p in runs["knobs"] if not p.edits)
    flow = EmbeddedFlow()
    sweep = Sweep(rewrite.design, flow.name, flow.engine, base, (), _interface(rewrite.design))
    labels = {
        "rewrite": rewrite.kind,
        "best_by_knobs": _value(best_knobs, metric),
        "settings_tried": len(runs["knobs"]),
        "gap_by_knobs": _gap(best_knobs, best, metric),
    }
    if _gap(best_knobs, best, metric) < MIN_GAP:
        raise TaskError("knobs come as far as the rewritten sources", field=rewrite.design, value=labels)
    task = make_task(
        sweep,
        start,
        best,
        (metric,),
        suite="performance",
        level="L3",
        task_id=f"Performance-L3/q{n}",
        labels=labels,
    )
    return dataclasses.replace(task, reference=(edit, *task.reference))


def rewrite_axes(name: str, quick: bool = False) -> tuple[Axis, ...]:
    """Return the axes of the sweep that shows what knobs can do for a design's period: the fast ends of each.

    Args:
        name: The design.
        quick: Fewer settings: for the rewritten sources, of which one good setting is enough.
    """
    axes = {a.name: a for a in default_axes(base_design(load_design(name)), (0.5, 0.7) if quick else (0.5, 0.7, 1.0))}
    margin = Axis("SETUP_SLACK_MARGIN", ("0",)) if quick else axes["SETUP_SLACK_MARGIN"]
    return (axes["ABC_AREA"], Axis("ASAP7_USE_VT", ("SLVT",)), axes[PERIOD], margin)


# -- several metrics ---------------------------------------------------------------------------------------------------


def _multi_tasks(level: str, tables: Mapping[str, Sweep], rng: np.random.Generator) -> list[PPATask]:
    """Return the tasks of a level; the metric pairs of L1 take turns, and so do the designs."""
    sets = [METRICS] if level == "L2" else list(combinations(METRICS, 2))
    size = SIZES[f"Multi-{level}"]
    tasks: list[PPATask] = []
    counts = dict.fromkeys(tables, 0)
    queues: dict[tuple[str, tuple[str, ...]], list[tuple[SweepPoint, SweepPoint]]] = {}
    seen: set[str] = set()
    for name in sorted(tables):
        for metrics in sets:
            queues[name, metrics] = _candidates(tables[name], metrics, rng)
    while len(tasks) < size:
        metrics = sets[len(tasks) % len(sets)]
        order = sorted((counts[n], str(i).zfill(3), n) for i, n in enumerate(sorted(tables)) if queues[n, metrics])
        if not order:
            raise TaskError("the sweeps hold too few tasks", field=f"Multi-{level}", value=len(tasks), allowed=size)
        name = order[0][2]
        start, reference = queues[name, metrics].pop()
        sweep = tables[name]
        greedy = greedy_outcomes(sweep, start, reference, metrics)
        labels = {
            "moved": list(_moved(sweep, start, reference)),
            "greedy": greedy,
            "solved_by_table_share": _share(sweep, metrics, reference),
        }
        task_id = f"Multi-{level}/q{len(tasks) + 1}"
        task = make_task(sweep, start, reference, metrics, suite="multi", level=level, task_id=task_id, labels=labels)
        key = json.dumps([name, dict(task.targets)])
        if key in seen:
            continue
        seen.add(key)
        counts[name] += 1
        tasks.append(task)
    return tasks


def _candidates(sweep: Sweep, metrics: Sequence[str], rng: np.random.Generator) -> list[tuple[SweepPoint, SweepPoint]]:
    """Return (start, reference) pairs, the best last: out of reach of the greedy searches, few settings that do.

    For each point of the front one start is drawn among those that miss every target and on which greedy searches
    fail, or else among all that miss every target.
    """
    front = pareto_front(sweep.points, metrics)
    found = []
    for reference in front:
        starts = [
            p
            for p in sweep.points
            if p.values is not None and p not in front and all(_gap(p, reference, m) >= MIN_GAP for m in metrics)
        ]
        if not starts:
            continue
        drawn = [starts[int(i)] for i in rng.permutation(len(starts))[:12]]
        hard = [min(drawn, key=lambda p: sum(greedy_outcomes(sweep, p, reference, metrics).values()))]
        solved = sum(greedy_outcomes(sweep, hard[0], reference, metrics).values())
        found.append(((-solved, -round(_share(sweep, metrics, reference), 4), float(rng.random())), hard[0], reference))
    return [(start, reference) for _, start, reference in sorted(found, key=lambda row: row[0])]


def greedy_outcomes(sweep: Sweep, start: SweepPoint, reference: SweepPoint, metrics: Sequence[str]) -> dict[str, bool]:
    """Return which greedy searches over the table's settings reach all targets, anywhere on their way.

    ``single_knob``: one knob changed, any value. ``single_metric``: for one of the metrics at a time, each axis in turn
    is set to the value that is best for that metric, until nothing changes. ``steepest``: the single change that brings
    the targets nearest, again and again.

    Args:
        sweep: The table, a full grid.
        start: Where they start.
        reference: The setting whose values, with `SLACK`, are the targets.
        metrics: Metrics with a target.
    """
    table = _Table.of(sweep)
    targets = {m: _value(reference, m) * (1 + SLACK) for m in metrics}

    def misfit(row: tuple[str, ...]) -> float:
        values = table.values.get(row)
        return np.inf if values is None else sum(max(0.0, values[m] / t - 1) for m, t in targets.items())

    def descend(cost: Callable[[tuple[str, ...]], float]) -> bool:
        at, reached = first, False
        while True:
            before = at
            for i in range(len(first)):
                at = min((at, *table.line(at, i)), key=cost)
                reached |= misfit(at) == 0
            if at == before:
                return reached

    def metric_cost(metric: str) -> Callable[[tuple[str, ...]], float]:
        return lambda row: np.inf if (values := table.values.get(row)) is None else values[metric]

    first = table.row(start)
    around = [r for i in range(len(first)) for r in table.line(first, i)]
    at = first
    while True:
        step = min((r for i in range(len(first)) for r in table.line(at, i)), key=misfit)
        if misfit(step) >= misfit(at):
            break
        at = step
    return {
        "single_knob": any(misfit(r) == 0 for r in around),
        "single_metric": any(descend(metric_cost(m)) for m in metrics),
        "steepest": misfit(at) == 0,
    }


@dataclasses.dataclass(frozen=True)
class _Table:
    """A sweep by setting: one text per axis that the table's edits name."""

    keys: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    values: Mapping[tuple[str, ...], Mapping[str, float] | None]

    @classmethod
    def of(cls, sweep: Sweep) -> _Table:
        keys = tuple(sorted({_axis(e) for p in sweep.points for e in p.edits}))
        rows = {_row(keys, p): p.values for p in sweep.points}
        levels = tuple(tuple(sorted({r[i] for r in rows})) for i in range(len(keys)))
        return cls(keys, levels, rows)

    def row(self, point: SweepPoint) -> tuple[str, ...]:
        return _row(self.keys, point)

    def line(self, row: tuple[str, ...], i: int) -> list[tuple[str, ...]]:
        """Return the other rows that differ from one in an axis only."""
        return [(*row[:i], v, *row[i + 1 :]) for v in self.levels[i] if v != row[i]]


def _axis(edit: Mapping[str, Any]) -> str:
    return PERIOD if edit["op"] == "set_period" else str(edit["name"])


def _row(keys: Sequence[str], point: SweepPoint) -> tuple[str, ...]:
    given = {_axis(e): str(e.get("value", e.get("period"))) for e in point.edits}
    return tuple(given.get(key, "") for key in keys)


def _moved(sweep: Sweep, start: SweepPoint, reference: SweepPoint) -> tuple[str, ...]:
    return tuple(sorted(_axis(e) for e in difference(sweep.design, start.edits, reference.edits)))


def _value(point: SweepPoint, metric: str) -> float:
    if point.values is None:
        raise TaskError("a setting that failed has no values", field="point", value=list(point.edits))
    return point.values[metric]


def _gap(start: SweepPoint, reference: SweepPoint, metric: str) -> float:
    """Return by which share a start misses the target that a reference gives."""
    return _value(start, metric) / (_value(reference, metric) * (1 + SLACK)) - 1


def _share(sweep: Sweep, metrics: Sequence[str], reference: SweepPoint) -> float:
    """Return the share of completed settings that reach the targets."""
    points = [p for p in sweep.points if p.values is not None]
    good = [p for p in points if all(_value(p, m) <= _value(reference, m) * (1 + SLACK) for m in metrics)]
    return len(good) / len(points)


def check_tasks(tasks: Sequence[PPATask], runner: FlowRunner, progress: bool = True) -> list[str]:
    """Return what is wrong with tasks, by running start and reference of each: nothing, if all is well."""
    faults = []
    for task in tqdm(tasks, desc="check", disable=not progress):
        before, after = outcome(task, (), runner), outcome(task, task.reference, runner)
        met = [m for m in task.targets if before.metrics[m] <= task.targets[m]]
        if met:
            faults.append(f"{task.id}: met at the start: {', '.join(met)}")
        if not after.strict_success:
            faults.append(f"{task.id}: reference fails: {', '.join(c.message for c in after.failed('strict'))}")
    return faults
