"""`Job`, one attempt to run, and `run_job`, which runs it in whatever process it is called in."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from edagym.baselines.records import Record
from edagym.baselines.registry import env_options, make_policy
from edagym.baselines.rollout import (
    ENV_CRASH,
    POLICY_CRASH,
    Env,
    attempt_files,
    begin_attempt,
    make_env,
    run_attempt,
    suite_name,
)
from edagym.errors import TaskError, ToolError

WORKER_DIED = "WorkerDied"
"""Error type of an attempt whose process ended under it."""
ATTEMPT_TIMEOUT = "AttemptTimeout"
"""Error type of an attempt that the harness stopped."""


@dataclass(frozen=True)
class Job:
    """One attempt: plain data, so that it can be sent to any process or machine.

    Attributes:
        suite: Suite name or folder of tasks.
        task_id: The task.
        attempt: Number of the attempt.
        seed: Seed of the run.
        policy: Name of the policy (`edagym.baselines.registry`).
        options: Its options.
        env_options: Options of the environment, over those that the policy asks for.
        cpu_limit_s: See `run_attempt`.
        recall: What a policy with memory kept of earlier attempts, oldest first.
        pictures: Whether to draw the final layout.
        retried: What became of earlier tries, oldest first: error type, message, tokens.
    """

    suite: str
    task_id: str
    attempt: int
    seed: int
    policy: str
    options: dict[str, Any] = field(default_factory=dict)
    env_options: dict[str, Any] = field(default_factory=dict)
    cpu_limit_s: float | None = None
    recall: tuple[Any, ...] = ()
    pictures: bool = False
    retried: tuple[dict[str, Any], ...] = ()

    def again(self, error_type: str, error: str, record: Record | None) -> Job:
        """Return the job of the next try after one that an infrastructure error ended."""
        tried: dict[str, Any] = {"error_type": error_type, "error": error}
        if record is not None:
            tried |= {name: record[name] for name in ("model_calls", "tokens", "cost")}
        return replace(self, retried=(*self.retried, tried))


@dataclass(frozen=True)
class Result:
    """What a job gave.

    Attributes:
        record: The record, or None where the process was lost with it.
        files: Relative path -> content of the attempt's files.
        error_type: Why there is no record: `WORKER_DIED`, `ATTEMPT_TIMEOUT`, or the class of another error.
        error: The same in words.
    """

    record: Record | None
    files: dict[str, bytes] = field(default_factory=dict)
    error_type: str = ""
    error: str = ""


_envs: dict[str, Env] = {}


def run_job(job: Job) -> Result:
    """Run one attempt in this process.

    A new policy is made for every attempt, and given what earlier ones of its sequence kept: the result depends on the
    job only, and on nothing that ran here before. Errors become records or results; only the end of the process, or an
    interrupt, gets past.
    """
    try:
        policy = make_policy(job.policy, **job.options)
        env = _env_for(job, {**env_options(policy), **job.env_options})
        env.reset(options={"task": job.task_id})
        if job.recall and (fault := _call(policy, "recall", list(job.recall))[1]) is not None:
            return fault
        name = suite_name(job.suite)
        attempt = begin_attempt(env, policy, suite=name, episode=job.attempt, seed=job.seed)
        record = run_attempt(
            env,
            policy,
            suite=name,
            episode=job.attempt,
            seed=job.seed,
            cpu_limit_s=job.cpu_limit_s,
            attempt=attempt,
            keep_crashes=True,
        )
        record |= {"infra_retries": len(job.retried), "retried": list(job.retried), "recalled": len(job.recall)}
        if getattr(policy, "memory", False) and record["verdict"] is not None:
            record["memory"], fault = _call(policy, "remember")
            if fault is not None:
                return fault
        try:
            record = json.loads(json.dumps(record))
        except (TypeError, ValueError) as e:
            return Result(None, error_type=POLICY_CRASH, error=f"what the policy says of itself is not JSON: {e}")
        files = attempt_files(env, attempt, pictures=job.pictures)
    except (TaskError, ToolError) as e:
        return Result(None, error_type=type(e).__name__, error=str(e))
    except Exception as e:
        _envs.clear()  # whatever broke may have left an environment half-way
        return Result(None, error_type=ENV_CRASH, error=f"{type(e).__name__}: {e}")
    if record["error_type"] == ENV_CRASH:
        _envs.clear()
    return Result(record, files)


def _call(policy: Any, method: str, *args: Any) -> tuple[Any, Result | None]:
    """Call a method of a policy; return what it returned, and the result of an attempt that it broke, or None."""
    try:
        return getattr(policy, method)(*args), None
    except Exception as e:
        return None, Result(None, error_type=POLICY_CRASH, error=f"{method}: {type(e).__name__}: {e}")


def _env_for(job: Job, options: dict[str, Any]) -> Env:
    """Return the environment of a job; the last one is kept, because its tasks are prepared."""
    key = f"{job.suite} {sorted(options.items())!r}"
    env = _envs.get(key)
    if env is None:
        _envs.clear()
        env = _envs[key] = make_env(job.suite, **options)
    return env
