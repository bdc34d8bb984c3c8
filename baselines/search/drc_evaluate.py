"""Success rates of the search policy on DRC tasks, by level, with bootstrap intervals.

``python -m edagym.baselines.search.drc_evaluate FOLDER`` runs it on task folders or on a copy of the public benchmark.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from edagym.baselines.policies import attempt_seed
from edagym.baselines.search.drc_repair import CHECKED_LAYOUT, SearchSettings, Workbench, markers_at, repair
from edagym.envs.drc.edits import LayoutEditor
from edagym.spaces.drc_edits import DRCEdit, drc_edit_to_json
from edagym.task_assets.drc.task import DRCTask
from edagym.verifiers.drc import CheckReport, DRCLayout, full_check, load_table
from edagym.verifiers.drc.incremental import IncrementalChecker
from edagym.verifiers.drc.verifier import DRCVerifier, violation_reduction

RESAMPLES = 10_000


def search_task(task: DRCTask, run_seed: int = 0, settings: SearchSettings | None = None) -> dict[str, Any]:
    """Run the search on one task and verify its repair.

    Small layouts are checked in full afterwards. In larger ones all placements of all edits are re-checked, starting
    from the markers at the reported places; so the figure relies on the report being complete.

    Args:
        task: The task. The search sees what an agent may see.
        run_seed: Seed of the run.
        settings: How hard to search.

    Returns:
        A JSON-ready record; counts are of flat markers.
    """
    table = load_table(task.rules)
    view = task.view()
    initial = DRCLayout.from_bytes(task.gds, task.id)
    bench = Workbench(initial, table, items=view.violations, limits=view.limits, roi=view.roi)
    seed = attempt_seed(f"DRC-{task.suite.capitalize()}-{task.level}", task.id, 0, run_seed)
    found = repair(bench, task.budget - 1, settings, np.random.default_rng(seed))
    golden = None if task.golden is None else DRCLayout.from_bytes(task.golden, task.id)
    report = _checked(task, initial, found.edits)
    verdict = DRCVerifier(initial, table, task.counts, task.limits, golden).verify(report)
    return {
        "task_id": task.id,
        "suite": task.suite,
        "level": task.level,
        "run_seed": run_seed,
        "paper_success": verdict.paper_success,
        "strict_success": verdict.strict_success,
        "vrr": violation_reduction(found.before, report.total),
        "before": found.before,
        "after": report.total,
        "failed": [c.id for c in verdict.failed("strict")],
        "actions": len(found.edits) + 1,
        "budget": task.budget,
        "evaluations": found.evaluations,
        "edits": [drc_edit_to_json(e) for e in found.edits],
    }


def _checked(task: DRCTask, initial: DRCLayout, edits: Sequence[DRCEdit]) -> CheckReport:
    """Return the check of the repaired layout."""
    table = load_table(task.rules)
    layout = initial.copy()
    editor = LayoutEditor(layout, table)
    if initial.flat_shapes() <= CHECKED_LAYOUT:
        for edit in edits:
            editor.apply(edit)
        return full_check(layout, table, roi=task.roi)
    checker = IncrementalChecker(layout, table, markers_at(task.violations, layout, table))
    for edit in edits:
        applied = editor.apply(edit)
        checker.recheck(applied.boxes, applied.layers)
    return CheckReport(layout, table, checker.markers, task.roi)


def evaluate_search(
    tasks: Sequence[DRCTask],
    seeds: Sequence[int] = (0,),
    settings: SearchSettings | None = None,
    *,
    out: str | Path | None = None,
    progress: bool = True,
) -> list[dict[str, Any]]:
    """Run the search on tasks.

    Args:
        tasks: The tasks.
        seeds: Run seeds; every task is searched once per seed.
        settings: How hard to search.
        out: JSONL file to append the records to, each as soon as it is there.
        progress: Whether to show a progress bar.

    Returns:
        One record per task and seed (`search_task`).
    """
    records = []
    plan = [(task, seed) for task in tasks for seed in seeds]
    for task, seed in tqdm(plan, desc="search", disable=not progress):
        records.append(search_task(task, seed, settings))
        if out is not None:
            with Path(out).open("a", encoding="utf-8") as f:
                f.write(json.dumps(records[-1]) + "\n")
    return records


def summarise_search(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return, per suite and level and per suite, the rates with 95 % intervals.

    Intervals are of the mean over tasks: tasks are resampled with replacement, all seeds of a task together.
    """
    groups: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    for r in records:
        for level in (r["level"], "all"):
            groups.setdefault((r["suite"], level), {}).setdefault(r["task_id"], []).append(r)
    rows = []
    for (suite, level), by_task in sorted(groups.items()):
        row: dict[str, Any] = {"suite": suite, "level": level, "tasks": len(by_task)}
        row["attempts"] = sum(len(v) for v in by_task.values())
        for name, key in (("sr_paper", "paper_success"), ("sr_strict", "strict_success"), ("vrr", "vrr")):
            means = np.array([np.mean([float(r[key]) for r in by_task[t]]) for t in sorted(by_task)])
            rng = np.random.default_rng(0)
            sampled = means[rng.integers(len(means), size=(RESAMPLES, len(means)))].mean(axis=1)
            low, high = np.percentile(sampled, (2.5, 97.5))
            row[name] = {"mean": float(means.mean()), "low": float(low), "high": float(high)}
        rows.append(row)
    return rows


def summary_text(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rates as lines of text, in per cent."""
    lines = [f"{'suite':10} {'level':5} {'tasks':>5} {'SR paper':>20} {'SR strict':>20} {'VRR':>20}"]
    for row in rows:
        rates = (row[k] for k in ("sr_paper", "sr_strict", "vrr"))
        cells = [f"{100 * r['mean']:.1f} [{100 * r['low']:.1f}, {100 * r['high']:.1f}]" for r in rates]
        lines.append(f"{row['suite']:10} {row['level']:5} {row['tasks']:5} " + " ".join(f"{c:>20}" for c in cells))
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the search on the tasks of a folder and print the rates."""
    from edagym.envs.drc.posteda import import_posteda

    parser = argparse.ArgumentParser(description="Repair DRC tasks by search and print success rates.")
    parser.add_argument("folder", help="a copy of the public benchmark, or one task's folder in it")
    parser.add_argument("--seeds", type=int, default=1, help="number of run seeds (default: 1)")
    parser.add_argument("--max-bytes", type=int, default=None, help="leave out tasks with larger layouts")
    parser.add_argument("--evaluations", type=int, default=None, help="moves tried per pass over a task")
    parser.add_argument("--tasks", nargs="*", default=None, help="ids to run, e.g. posteda/Essential-L1/q3")
    parser.add_argument("--out", default=None, help="JSONL file to append records to")
    args = parser.parse_args(argv)
    settings = SearchSettings() if args.evaluations is None else SearchSettings(evaluations=args.evaluations)
    tasks = import_posteda(args.folder)
    if args.max_bytes is not None:
        tasks = [t for t in tasks if len(t.gds) <= args.max_bytes]
    if args.tasks is not None:
        tasks = [t for t in tasks if t.id in args.tasks]
    records = evaluate_search(tasks, range(args.seeds), settings, out=args.out)
    for r in records:
        outcome = "strict" if r["strict_success"] else "paper" if r["paper_success"] else "failed"
        print(f"{r['task_id']:32} {r['before']:4} -> {r['after']:<4} {outcome:7} {r['actions']} actions {r['failed']}")
    print(summary_text(summarise_search(records)))


if __name__ == "__main__":
    main()
