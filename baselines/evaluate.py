"""`evaluate`: tasks x attempts x policy, in processes, into a run's folder; survives kills, and goes on where it was.

An infrastructure failure (a tool, a model server, a process, a time limit of the harness) is never an answer of the
agent: such attempts are tried again, and if that does not help they are recorded as missing.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from edagym.baselines.executors import Executor, make_executor
from edagym.baselines.jobs import Job, Result
from edagym.baselines.policies import Policy, attempt_seed
from edagym.baselines.ray_executor import Cluster
from edagym.baselines.records import (
    RECORD_SCHEMA,
    Record,
    RunFolder,
    key_of,
    read_records,
    read_run,
    task_hash,
)
from edagym.baselines.registry import env_options as options_of
from edagym.baselines.registry import make_policy, refuse_credentials
from edagym.baselines.rollout import POLICY_CRASH, Env, make_env, suite_name
from edagym.envs.core.trace import tool_versions
from edagym.errors import TaskError, ToolError
from edagym.verifiers.verdict import Criterion

SETTINGS = (
    "policy",
    "options",
    "suites",
    "tasks",
    "attempts",
    "seed",
    "criterion",
    "env_options",
    "cpu_limit_s",
)
"""Entries of ``run.json`` that a run keeps for good: `evaluate` does not resume it under others."""
_MOVABLE = ("base_url", "api_key_env", "timeout_s", "retries", "backoff_s", "requests_per_minute", "prices")
"""Entries of a model's options that say where it is, not what it is: these may change when a run is resumed."""
_NOT_RETRIED = (POLICY_CRASH, "TaskError")
GIVE_UP = 30
"""Tries in a row that an infrastructure error may end before an evaluation stops: nothing will get better by itself."""


def evaluate(
    policy: str,
    suites: Sequence[str],
    *,
    attempts: int = 1,
    seed: int = 0,
    tasks: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
    env_options: Mapping[str, Any] | None = None,
    criterion: Criterion = "strict",
    cpu_limit_s: float | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    retry_missing: bool = False,
    workers: int = 0,
    executor: str | Executor = "process",
    cluster: Cluster | None = None,
    timeout_s: float | None = None,
    retries: int = 2,
    give_up: int | None = GIVE_UP,
    allow_privileged: bool = False,
    pictures: bool = False,
    progress: bool = True,
) -> list[Record]:
    """Run a policy on every task of suites.

    Attempts run in any order and anywhere; the seed of each is a hash of suite, task, attempt and run seed. Policies
    with ``memory`` run as one sequence per attempt number, in task order, and recall what was kept before.

    Args:
        policy: Name of a policy (`edagym.baselines.registry`).
        suites: Suite names, ids, or folders of tasks; none that makes its own tasks.
        attempts: Attempts per task.
        seed: Seed of the run.
        tasks: Ids to run; None: all.
        options: Options of the policy, JSON-ready.
        env_options: Options of the environments, over those that the policy asks for; JSON-ready.
        criterion: What counts as success for the environment: it ends an episode.
        cpu_limit_s: CPU seconds of the policy per attempt; None: no limit. See `run_attempt`.
        out: Folder of the run (`edagym.baselines.records`); None: nothing is written.
        resume: Go on with the run that `out` holds: only what is missing is run.
        retry_missing: With `resume`: run attempts again that were recorded as missing.
        workers: Attempts at a time, in processes; 0: everything runs in this process, or wherever Ray has CPUs.
        executor: Name of an executor (`edagym.baselines.executors`), or an executor, which the caller closes.
        cluster: For executor ``"ray"``: the cluster, and what an attempt takes of it.
        timeout_s: Seconds of wall time per attempt, after which its process is killed; None: no limit.
        retries: How many times an attempt is tried again after an infrastructure error.
        give_up: Stop after so many tries in a row that an infrastructure error has ended, such as a model server that
            is down; None: never.
        allow_privileged: Run policies that know what agents may not know.
        pictures: Whether to keep a picture of each final layout.
        progress: Whether to show a progress bar.

    Returns:
        One record per attempt, by suite, task and attempt.

    Raises:
        TaskError: If a suite, policy or task is unknown, a suite is endless, `out` holds a run and `resume` is not set
            or the settings differ, or the policy is privileged and that is not allowed.
        ToolError: If the evaluation gave up; what has been recorded stays, and the run can be resumed.
    """
    options, own_env = dict(options or {}), dict(env_options or {})
    refuse_credentials(options)
    refuse_credentials(own_env, "env_options")
    for name, number, least in (("attempts", attempts, 1), ("retries", retries, 0)):
        if number < least:
            raise TaskError("too small", field=name, value=number, allowed=f">= {least}")
    for name, seconds in (("cpu_limit_s", cpu_limit_s), ("timeout_s", timeout_s)):
        if seconds is not None and not 0 < seconds < math.inf:
            raise TaskError("not a time limit", field=name, value=seconds, allowed="> 0 seconds")
    if own_env.get("criterion", criterion) != criterion:
        raise TaskError("two criteria", field="env_options.criterion", value=own_env["criterion"], allowed=criterion)
    made = make_policy(policy, **options)
    if made.privileged and not allow_privileged:
        raise TaskError(
            "this policy knows what agents may not know, and has no place in a published table",
            field="policy",
            value=policy,
            allowed="--allow-privileged",
        )
    settings: dict[str, Any] = {
        "policy": policy,
        "options": options,
        "suites": list(suites),
        "tasks": None if tasks is None else sorted(tasks),
        "attempts": attempts,
        "seed": seed,
        "criterion": criterion,
        "env_options": own_env,
        "cpu_limit_s": cpu_limit_s,
    }
    env_all = {**options_of(made), "criterion": criterion, **own_env}
    envs = {suite: make_env(suite, **env_all) for suite in suites}
    runner = make_executor(executor, workers, timeout_s, cluster) if isinstance(executor, str) else executor
    try:
        given = _shared_rate(options, runner.capacity)
        job = Job("", "", 0, seed, policy, given, {"criterion": criterion, **own_env}, cpu_limit_s, pictures=pictures)
        plan = _plan(envs, tasks, attempts, job)
        with nullcontext() if out is None else _open(out, resume, {**settings, **_facts(made)}) as folder:
            run = _Run(made, plan, envs, folder, retries, give_up, progress)
            run.recall_known(retry_missing)
            run.work(runner)
            return run.records()
    finally:
        if isinstance(executor, str):
            runner.close()


def _shared_rate(options: dict[str, Any], processes: int) -> dict[str, Any]:
    """Return a policy's options with the model's rate limit, which holds per process, divided among processes."""
    model = options.get("model")
    if not isinstance(model, Mapping) or model.get("requests_per_minute") is None:
        return options
    return {**options, "model": {**model, "requests_per_minute": model["requests_per_minute"] / processes}}


def _plan(envs: Mapping[str, Env], tasks: Sequence[str] | None, attempts: int, job: Job) -> list[Job]:
    plan: list[Job] = []
    for suite, env in envs.items():
        if not env.task_ids:
            raise TaskError("an endless suite has no tasks to evaluate on", field="suite", value=suite)
        chosen = [t for t in env.task_ids if tasks is None or t in tasks]
        plan += [replace(job, suite=suite, task_id=t, attempt=n) for t in chosen for n in range(attempts)]
    unknown = sorted(set(tasks or ()) - {j.task_id for j in plan})
    if unknown:
        raise TaskError("no such tasks in these suites", field="tasks", value=unknown)
    keys = [(suite_name(j.suite), j.task_id, j.attempt) for j in plan]
    if len(set(keys)) < len(keys):
        raise TaskError("two suites of one name", field="suites", value=list(envs))
    own = [(j.task_id, j.attempt) for j in plan if not os.path.isdir(j.suite)]
    if len(set(own)) < len(own):
        # Tables take every task for one of its own: twice the same would count twice.
        raise TaskError("suites that share tasks", field="suites", value=list(envs), allowed="suites without overlap")
    return plan


def _facts(policy: Policy) -> dict[str, Any]:
    """Return what a run's settings say about its policy and tools, for readers."""
    return {
        "policy_name": policy.name,
        "privileged": policy.privileged,
        "deterministic": policy.deterministic,
        "memory": bool(getattr(policy, "memory", False)),
        "policy_env_options": options_of(policy),
        "versions": tool_versions(),
    }


# -- the folder --------------------------------------------------------------------------------------------------------


def _open(out: str | Path, resume: bool, settings: dict[str, Any]) -> RunFolder:
    """Return the open folder of a new or resumed run; raises `TaskError`."""
    path, settings = Path(out), json.loads(json.dumps(settings))
    found = read_run(path)
    if not found and (path / "records.jsonl").exists():
        raise TaskError("this folder holds records of something else", field="out", value=str(path))
    if found and not resume:
        raise TaskError("this folder holds a run already", field="out", value=str(path), allowed="--resume, or another")
    if found:
        _same_settings(found, settings)
    folder = RunFolder(path)
    try:
        if not found:
            folder.write_run(settings)
    except BaseException:
        folder.close()
        raise
    return folder


def _same_settings(found: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise `TaskError` that names what differs between a run's settings and those of now."""
    before, after = _flat({k: found.get(k) for k in SETTINGS}), _flat({k: now[k] for k in SETTINGS})
    changed = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    if changed:
        text = "; ".join(f"{name}: {before.get(name)!r} in the run, {after.get(name)!r} now" for name in changed)
        raise TaskError(f"a run is resumed under its own settings only: {text}", field=changed[0])
    old, new = found.get("versions", {}), now["versions"]
    moved = [
        f"{name} {old.get(name)} -> {new.get(name)}" for name in sorted({*old, *new}) if old.get(name) != new.get(name)
    ]
    if moved:
        print(f"edagym: note: resumed under other versions: {', '.join(moved)}", file=sys.stderr)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return settings with dotted names, without what may change."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        name = f"{prefix}{key}"
        if prefix == "options.model." and key in _MOVABLE:
            continue
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{name}.")
        else:
            flat[name] = value
    return flat


# -- the run -----------------------------------------------------------------------------------------------------------


class _Run:
    """The attempts of a run: which are done, which are next."""

    def __init__(
        self,
        policy: Policy,
        plan: Sequence[Job],
        envs: Mapping[str, Env],
        folder: RunFolder | None,
        retries: int,
        give_up: int | None,
        progress: bool,
    ) -> None:
        self.policy, self.plan, self.envs, self.folder, self.retries = policy, plan, envs, folder, retries
        self.give_up, self.failed_in_a_row = give_up, 0
        self.done: dict[tuple[str, str, int], Record] = {}
        memory = bool(getattr(policy, "memory", False))
        # With memory, an attempt number's tasks are a sequence; without, every attempt is one of its own.
        self.sequences: dict[Any, deque[Job]] = {}
        for job in plan:
            self.sequences.setdefault(job.attempt if memory else _place(job), deque()).append(job)
        self.memory = memory
        self.kept: dict[Any, list[Any]] = {}
        self.progress = progress

    def recall_known(self, retry_missing: bool) -> None:
        """Take over what the folder holds already."""
        if self.folder is None or not self.folder.records_path.exists():
            return
        known = {key_of(r): r for r in read_records(self.folder.path)}
        for job in self.plan:
            name = suite_name(job.suite)
            record = known.get((name, self.policy.name, job.task_id, job.attempt, job.seed))
            if record is None or (retry_missing and record["error_type"] is not None):
                continue
            now = task_hash(self.envs[job.suite].find_task(job.task_id))
            if record["task_hash"] != now:
                raise TaskError("the task has changed since the run began", field="task", value=job.task_id)
            self.done[_place(job)] = record

    def work(self, executor: Executor) -> None:
        """Run what is left."""
        bar = tqdm(
            total=len(self.plan),
            initial=len(self.done),
            desc=self.policy.name,
            unit="attempt",
            disable=not self.progress,
        )
        waiting = deque(job for key in self.sequences for job in self._next(key))
        in_hand = 0
        with bar:
            while waiting or in_hand:
                while waiting and in_hand < 2 * executor.capacity:
                    executor.submit(waiting.popleft())
                    in_hand += 1
                job, result = executor.wait()
                in_hand -= 1
                again = self._settle(job, result)
                if again is not None:
                    waiting.append(again)
                    continue
                bar.update()
                bar.set_postfix_str(self._lost_text(), refresh=False)
                waiting.extend(self._next(job.attempt if self.memory else _place(job)))

    def _lost_text(self) -> str:
        lost = sum(r["error_type"] is not None for r in self.done.values())
        return f"{lost} without verdict" if lost else ""

    def _next(self, name: Any) -> Iterator[Job]:
        """Yield the next job of a sequence that is not done, if there is one."""
        sequence, kept = self.sequences[name], self.kept.setdefault(name, [])
        while sequence:
            job = sequence[0]
            record = self.done.get(_place(job))
            if record is None:
                yield replace(job, recall=tuple(kept))
                return
            sequence.popleft()
            if record["memory"] is not None:
                kept.append(record["memory"])

    def _settle(self, job: Job, result: Result) -> Job | None:
        """Record an attempt's result, or return the job of its next try."""
        record = result.record
        kind = record["error_type"] if record is not None else result.error_type
        if kind is None or kind in _NOT_RETRIED:
            self.failed_in_a_row = 0
        else:
            error = result.error if record is None else record["error"]
            self.failed_in_a_row += 1
            if self.give_up is not None and self.failed_in_a_row >= self.give_up:
                message = (
                    f"gave up: the last {self.give_up} tries all ended with infrastructure errors ({kind}: {error})"
                )
                raise ToolError(message)
            if len(job.retried) < self.retries:
                return job.again(kind, error, record)
        if record is None:
            record = self._lost(job, result)
        if self.folder is not None:
            record = self.folder.commit(record, result.files)
        self.done[_place(job)] = record
        return None

    def _lost(self, job: Job, result: Result) -> Record:
        """Return the record of an attempt whose process left none."""
        name = suite_name(job.suite)
        blank: Record = dict.fromkeys(
            ("is_success", "paper_success", "strict_success", "reward", "cost", "first_failed", "verdict", "memory"),
        )
        return {
            **blank,
            "schema_version": RECORD_SCHEMA,
            "suite": name,
            "task_id": job.task_id,
            "task_hash": task_hash(self.envs[job.suite].find_task(job.task_id)),
            "attempt": job.attempt,
            "episode": job.attempt,
            "policy": self.policy.name,
            "privileged": self.policy.privileged,
            "deterministic": self.policy.deterministic,
            "settings": {},
            "run_seed": job.seed,
            "seed": attempt_seed(name, job.task_id, job.attempt, job.seed),
            "criterion": self.envs[job.suite].criterion,
            "ended": "policy_crash" if result.error_type == POLICY_CRASH else "tool_error",
            "error": result.error,
            "error_type": result.error_type,
            "traceback": None,
            "infra_retries": len(job.retried),
            "retried": list(job.retried),
            "charged": 0,
            "budget": 0,
            "refused": 0,
            "unreadable": 0,
            "tokens": {"prompt": 0, "completion": 0},
            "model_calls": 0,
            "model_retries": 0,
            "failed": [],
            "metrics": {},
            "recalled": len(job.recall),
            "versions": tool_versions(),
            **({} if job.cpu_limit_s is None else {"cpu_limit_s": job.cpu_limit_s}),
            "seconds": {"policy": 0.0, "env": 0.0, "total": 0.0, "policy_cpu": 0.0},
        }

    def records(self) -> list[Record]:
        """Return the records in the plan's order."""
        return [self.done[_place(job)] for job in self.plan]


def _place(job: Job) -> tuple[str, str, int]:
    return (job.suite, job.task_id, job.attempt)
