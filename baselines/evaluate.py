"""`evaluate`: a policy on suites, several seeds, in processes; rates per level with 95 % intervals.

``python -m edagym.baselines.evaluate --policy search --suite DRC-Essential-L1 --seeds 5 --out records.jsonl`` runs what
the file does not hold yet and prints the table. Clocks run inside the workers and count CPU time of the policy only:
waiting for a free core costs an attempt nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from edagym.baselines.rollout import Env, env_options, make_env, make_policy, read_records, run_attempt, suite_name
from edagym.errors import EDAGymError, TaskError

RESAMPLES = 10_000
_Z = 1.959964  # 97.5 % quantile of the normal distribution
_LEVEL = re.compile(r"(?:-?L[0-9]+)$")

_ENVS: dict[str, Env] = {}


def run_one(suite: str, policy: str, task_id: str, seed: int, cpu_limit_s: float | None) -> dict[str, Any]:
    """Run one attempt in this process; return its record (`run_attempt`) with the ``actions`` to replay."""
    made = make_policy(policy)
    options = env_options(made)
    key = f"{suite} {sorted(options.items())}"
    env = _ENVS.get(key)
    if env is None:
        env = _ENVS[key] = make_env(suite, **options)
    env.reset(options={"task": task_id})
    name = suite_name(suite)
    record = run_attempt(env, made, suite=name, episode=0, seed=seed, cpu_limit_s=cpu_limit_s)
    return {**record, "actions": [step["action"] for step in env.trace()["steps"]]}


def evaluate(
    policy: str,
    suites: Sequence[str],
    seeds: Sequence[int] = (0,),
    *,
    tasks: Sequence[str] | None = None,
    workers: int = 1,
    cpu_limit_s: float | None = None,
    out: str | Path | None = None,
    progress: bool = True,
) -> list[dict[str, Any]]:
    """Run a policy on every task of suites, once per seed.

    Args:
        policy: Name of a policy (`edagym.baselines.rollout.POLICIES`).
        suites: Suite names, ids, or folders of tasks; none that makes its own tasks.
        seeds: Run seeds.
        tasks: Ids to run; None: all.
        workers: Processes. With 1, everything runs in this process.
        cpu_limit_s: CPU seconds of the policy per attempt; None: no limit. See `run_attempt`.
        out: JSONL file to which records are appended as they come. Attempts that it already holds are not run again.
        progress: Whether to show a progress bar.

    Returns:
        One record per attempt, by suite, task and seed.

    Raises:
        TaskError: If a suite, policy or task is unknown, or a suite is endless.
    """
    make_policy(policy)
    plan: list[tuple[str, str, int]] = []
    for suite in suites:
        ids = make_env(suite).task_ids
        if not ids:
            raise TaskError("an endless suite has no tasks to evaluate on", field="suite", value=suite)
        plan += [(suite, task_id, seed) for task_id in ids if tasks is None or task_id in tasks for seed in seeds]
    unknown = sorted(set(tasks or ()) - {task_id for _, task_id, _ in plan})
    if unknown:
        raise TaskError("no such tasks in these suites", field="tasks", value=unknown)
    path = None if out is None else Path(out)
    held = {} if path is None else read_records(path)
    known = {job: held[key] for job in plan if (key := (suite_name(job[0]), policy, job[1], 0, job[2])) in held}
    todo = [job for job in plan if job not in known]
    bar = tqdm(total=len(plan), initial=len(known), desc=f"{policy}", disable=not progress)
    for job, record in _run(todo, policy, workers, cpu_limit_s):
        known[job] = record
        bar.update()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as f:
                f.write(json.dumps(record) + "\n")
    bar.close()
    return [known[job] for job in plan]


def _run(
    jobs: Sequence[tuple[str, str, int]], policy: str, workers: int, cpu_limit_s: float | None
) -> Iterator[tuple[tuple[str, str, int], dict[str, Any]]]:
    if workers <= 1:
        for job in jobs:
            yield job, run_one(job[0], policy, job[1], job[2], cpu_limit_s)
        return
    # Spawned, not forked: a fork would inherit the parent's threads and engine state half-way.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = {
            pool.submit(run_one, suite, policy, task, seed, cpu_limit_s): (suite, task, seed)
            for suite, task, seed in jobs
        }
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


# -- rates ---------------------------------------------------------------------------------------------------------


def level_of(record: Mapping[str, Any]) -> str:
    """Return the level of a record's task: ``"L2"``, ``"Essential-L1"``."""
    return str(record["task_id"]).rpartition("/")[0]


def rates(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return success rates and mean metrics per level, per group of levels (``"Essential"``) and over all.

    Seeds of a task are no independent samples, so the unit is the task: a task's rate is the mean over its finished
    attempts, a level's rate the mean over its tasks. Intervals are 95 %: Wilson's with the number of tasks for success
    rates, the task-level bootstrap for the violation reduction rate.

    Attempts that ran out of time or fell to a tool error are counted in ``unfinished`` and ``tool_errors`` and are in
    none of these rates; ``sr_paper_all`` and ``sr_strict_all`` count them as unsolved.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for r in records:
        level = level_of(r)
        for name in dict.fromkeys((level, _LEVEL.sub("", level) or "all", "all")):
            groups.setdefault(name, []).append(r)
    return [{"level": name, **_rates_of(groups[name])} for name in sorted(groups, key=_order)]


def _order(name: str) -> tuple[bool, str, str]:
    """Sort levels below their group, and the total last."""
    return (name == "all", _LEVEL.sub("", name), name if _LEVEL.search(name) else name + "~")


def _rates_of(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    scored = [r for r in records if r["paper_success"] is not None]
    row: dict[str, Any] = {
        "tasks": len({r["task_id"] for r in records}),
        "attempts": len(records),
        "unfinished": sum(r["ended"] == "time_limit" for r in records),
        "tool_errors": sum(bool(r["error"]) for r in records),
    }
    for criterion in ("paper", "strict"):
        means = _task_means(scored, f"{criterion}_success")
        row[f"sr_{criterion}"] = wilson(float(means.mean()), len(means)) if len(means) else None
        row[f"sr_{criterion}_all"] = float(_task_means(records, f"{criterion}_success").mean())
    means = _task_means([{**r, **r["metrics"]} for r in scored if "vrr" in r["metrics"]], "vrr")
    row["vrr"] = bootstrap(means) if len(means) else None
    for key in ("nis", "nis_nothing"):
        means = _task_means([{**r, **r["metrics"]} for r in scored if key in r["metrics"]], key)
        row[key] = bootstrap(means) if len(means) else None
    return row


def _task_means(records: Sequence[Mapping[str, Any]], key: str) -> np.ndarray:
    """Return the mean of an entry per task; None counts as 0."""
    by_task: dict[str, list[float]] = {}
    for r in records:
        by_task.setdefault(r["task_id"], []).append(float(r[key] or 0.0))
    return np.array([np.mean(by_task[t]) for t in sorted(by_task)])


def wilson(rate: float, n: int) -> dict[str, float]:
    """Return a rate with Wilson's 95 % interval for `n` independent samples."""
    z2 = _Z * _Z
    middle = (rate + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z * np.sqrt(rate * (1 - rate) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return {"mean": rate, "low": max(0.0, float(middle - half)), "high": min(1.0, float(middle + half))}


def bootstrap(values: np.ndarray) -> dict[str, float]:
    """Return the mean of values with the 95 % percentile interval of resampled means; always the same resamples."""
    rng = np.random.default_rng(0)
    sampled = values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(axis=1)
    low, high = np.percentile(sampled, (2.5, 97.5))
    return {"mean": float(values.mean()), "low": float(low), "high": float(high)}


def rates_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return `rates` as a Markdown table, in per cent; NIS 0 is the score of doing nothing where nothing is met."""
    scores = [key for key in ("vrr", "nis", "nis_nothing") if any(row.get(key) for row in rows)] or ["vrr"]
    titles = {"vrr": "VRR", "nis": "NIS", "nis_nothing": "NIS of doing nothing"}
    names = " | ".join(titles[key] for key in scores)
    lines = [
        f"| level | tasks | attempts | SR paper | SR strict | {names} | unfinished | tool errors |",
        "|" + "---|" * (7 + len(scores)),
    ]
    for row in rows:
        cells = [_cell(row.get(key)) for key in ("sr_paper", "sr_strict", *scores)]
        counts = (row["unfinished"], row["tool_errors"])
        lines.append(
            f"| {row['level']} | {row['tasks']} | {row['attempts']} | {' | '.join(cells)} | {counts[0]} | {counts[1]} |"
        )
    return "\n".join(lines)


def _cell(rate: Mapping[str, float] | None) -> str:
    if rate is None:
        return "–"
    return f"{100 * rate['mean']:.1f} [{100 * rate['low']:.1f}, {100 * rate['high']:.1f}]"


# -- command -------------------------------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m edagym.baselines.evaluate", description=__doc__)
    parser.add_argument("--policy", required=True, help="name of a policy: random, reference, search")
    parser.add_argument(
        "--suite",
        "--env",
        dest="suites",
        action="append",
        required=True,
        metavar="SUITE",
        help="suite, environment id or folder of tasks (repeatable)",
    )
    parser.add_argument("--task", dest="tasks", action="append", metavar="TASK", help="only this task (repeatable)")
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="run seeds 0..N-1 (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes (default: %(default)s)")
    parser.add_argument(
        "--cpu-limit",
        type=float,
        default=None,
        metavar="S",
        help="CPU seconds of the policy per attempt; more is unfinished, not failed (default: none)",
    )
    parser.add_argument("--out", metavar="FILE", help="JSONL file of records; attempts that it holds are not run again")
    parser.add_argument("--json", action="store_true", help="print the rates as JSON")
    args = parser.parse_args(argv)
    try:
        records = evaluate(
            args.policy,
            args.suites,
            range(args.seeds),
            tasks=args.tasks,
            workers=args.workers,
            cpu_limit_s=args.cpu_limit,
            out=args.out,
        )
    except EDAGymError as e:
        print(f"evaluate: {e}", file=sys.stderr)
        return 2
    rows = rates(records)
    if args.json:
        print(json.dumps(rows, indent=1))
        return 0
    print(rates_text(rows))
    for r in records:
        if not r["strict_success"]:
            print(f"{r['task_id']} seed {r['run_seed']}: {r['ended']}, paper {r['paper_success']}, {r['failed']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
