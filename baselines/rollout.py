"""`run_attempt`, the one loop in which every policy runs, and `rollout`, which runs it over tasks in this process."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import format_exception
from types import FrameType
from typing import Any

import gymnasium as gym
from tqdm import tqdm

import edagym
from edagym.baselines.policies import Attempt, Policy, attempt_seed
from edagym.baselines.records import RECORD_SCHEMA, Record, RunFolder, key_of, read_records, task_hash
from edagym.baselines.registry import env_options, make_policy
from edagym.envs.core.edit_env import EditEnv
from edagym.envs.core.trace import tool_versions
from edagym.envs.fet.env import FETEnv
from edagym.errors import PolicyError, TaskError, ToolError
from edagym.task_assets.ppa.design import DesignFiles

Env = EditEnv[Any, Any]

POLICY_CRASH = "PolicyCrash"
"""Error type of an attempt that a fault in the policy's own code ended: no verdict, and not retried."""
ENV_CRASH = "EnvironmentCrash"
"""Error type of an attempt that a fault in the environment ended: an infrastructure error."""


def make_env(suite: str, **kwargs: Any) -> Env:
    """Return the environment of a suite or registered id, without Gymnasium's wrappers.

    Args:
        suite: ``"FET-L1"``, ``"DRC-Essential-L1-v0"``, ``"PPA-All"`` and so on, or a folder of DRC or PPA task folders,
            such as `edagym import-posteda` writes.
        **kwargs: Keyword arguments of the environment.

    Raises:
        TaskError: If the suite is unknown.
    """
    from edagym.task_assets.drc.suite import SUITES as DRC_SUITES
    from edagym.task_assets.ppa.suite import SUITES as PPA_SUITES

    edagym.register_all()
    folder = os.path.isdir(suite)  # `Path.is_dir` raises for names that no file can have
    env_id = suite if suite in gym.registry else f"{suite}-v0"
    try:
        if not folder and env_id in edagym.ENVIRONMENTS:
            env = gym.make(env_id, disable_env_checker=True, **kwargs).unwrapped
            assert isinstance(env, EditEnv)
            return env
        # Folders, and suites such as DRC-All that have no id.
        if suite in PPA_SUITES or (folder and next(Path(suite).glob("**/config/*.mk"), None) is not None):
            from edagym.envs.ppa.env import PPAEnv

            return PPAEnv(suite=suite, **kwargs)
        if suite in DRC_SUITES or folder:
            from edagym.envs.drc.env import DRCEnv

            return DRCEnv(suite=suite, **kwargs)
    except (TypeError, ValueError) as e:
        raise TaskError(f"the environment does not take these options ({e})", field="env_options", value=kwargs) from e
    known = [name.removesuffix("-v0") for name in edagym.ENVIRONMENTS]
    raise TaskError("unknown suite", field="suite", value=suite, allowed=known)


def suite_name(env: Env | str) -> str:
    """Return the name under which records of an environment, a suite, an id or a folder of tasks are kept."""
    if not isinstance(env, str):
        return (env.spec.id if env.spec else type(env).__name__).removesuffix("-v0")
    return Path(env).resolve().name if os.path.isdir(env) else env.removesuffix("-v0")


# -- one attempt -------------------------------------------------------------------------------------------------------


class _OutOfTime(BaseException):
    """Raised inside a policy whose time is up. No `Exception`, so that no policy takes it for one of its own."""


@contextmanager
def _cpu_limit(seconds: float | None) -> Iterator[None]:
    """Raise `_OutOfTime` in the body once it has used so much CPU time of this process; main thread only."""
    if seconds is None:
        yield
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        raise _OutOfTime

    before = signal.signal(signal.SIGPROF, stop)
    # Repeated, because an exception raised while a destructor or a callback of C++ runs would be swallowed.
    signal.setitimer(signal.ITIMER_PROF, max(seconds, 1e-3), 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


class _Meter:
    """Calls a policy, and measures what it uses."""

    def __init__(self, cpu_limit_s: float | None) -> None:
        self.limit = cpu_limit_s
        self.cpu = self.wall = 0.0

    def __call__(self, call: Callable[..., Any], *args: Any) -> Any:
        cpu, wall = time.process_time(), time.perf_counter()
        try:
            with _cpu_limit(None if self.limit is None else self.limit - self.cpu):
                return call(*args)
        finally:
            self.cpu += time.process_time() - cpu
            self.wall += time.perf_counter() - wall


def begin_attempt(env: Env, policy: Policy, *, suite: str, episode: int, seed: int) -> Attempt:
    """Return the attempt of a policy at the environment's current task, with its own seed."""
    own_seed = attempt_seed(suite, env.observe()[1]["task_id"], episode, seed)
    return Attempt(env, own_seed, policy.privileged)


def run_attempt(
    env: Env,
    policy: Policy,
    *,
    suite: str,
    episode: int,
    seed: int,
    cpu_limit_s: float | None = None,
    attempt: Attempt | None = None,
    keep_crashes: bool = False,
) -> Record:
    """Run a policy on the environment's current task until the episode ends: the only loop.

    An attempt without verdict counts neither as passed nor as failed: its outcomes are None, and ``error_type`` or
    ``ended`` says why. Errors of the infrastructure are `ToolError` and its kinds (a model server among them) and
    `ENV_CRASH`. A `PolicyError` raised by ``act`` is an unreadable action: charged, counted, told to the policy.

    Args:
        env: The environment, just reset.
        policy: The policy.
        suite: Suite name for the record and the attempt's seed.
        episode: Number of the attempt at this task.
        seed: Seed of the run.
        cpu_limit_s: CPU seconds that the policy may use in this attempt, its own only; None: no limit. A policy that is
            out of time leaves the attempt unfinished: ``ended`` is ``"time_limit"``.
        attempt: The attempt (`begin_attempt`), for callers who want its notes; None: a new one.
        keep_crashes: Whether a fault in the policy's code is recorded as `POLICY_CRASH` instead of raised.

    Returns:
        The record (JSON-ready): outcome under both criteria, verdict, charges, refusals, settings, tokens. ``seconds``
        is all that differs between equal runs: wall time in the policy (with what it asked of the environment) and in
        the environment's steps, total, and CPU time of the policy.
    """
    started = time.perf_counter()
    own_seed = attempt_seed(suite, env.observe()[1]["task_id"], episode, seed)
    meter = _Meter(cpu_limit_s)
    total, refused, unread, env_wall = 0.0, 0, 0, 0.0
    unfinished, rewarded, error_type, error, trace = False, False, None, "", None
    if attempt is None:
        attempt = begin_attempt(env, policy, suite=suite, episode=episode, seed=seed)
    try:
        meter(policy.bind, attempt)
        observation, info = env.observe()
        while not env.ended:
            action, unreadable = None, ""
            try:
                action = meter(policy.act, observation, info)
            except PolicyError as e:
                unreadable = str(e)
                unread += not env.ended
            if env.ended:
                # The policy ended the episode through its attempt; what it returned can change nothing any more.
                break
            before = time.perf_counter()
            try:
                result = env.refuse(unreadable) if unreadable else env.step_any(action)
            except ToolError:
                raise
            except Exception as e:
                error_type, error, trace = ENV_CRASH, f"{type(e).__name__}: {e}", "".join(format_exception(e))
                break
            finally:
                env_wall += time.perf_counter() - before
            observation, reward, _, _, info = result
            refused += bool(info["edit_error"]) and not unreadable
            total += reward
            rewarded = bool(env.ended)
    except _OutOfTime:
        unfinished = not env.ended
    except ToolError as e:
        # What fails after the end takes no verdict away: else a policy could trade a failure for another try.
        if not env.ended:
            error_type, error = type(e).__name__, str(e)
    except Exception as e:
        if not keep_crashes:
            raise
        trace = "".join(format_exception(e))
        if not env.ended:
            error_type, error = POLICY_CRASH, f"{type(e).__name__}: {e}"
    info = env.observe()[1]
    if info["error"] and error_type is None:
        error_type, error = env.error_type, info["error"]
    if env.ended and not rewarded and not info["error"]:
        total += float(env.reward_fn(None, env.verdict, True))
    verdict = None if error_type or unfinished else env.verdict
    ended = info["ended"]
    if unfinished:
        ended = "time_limit"
    elif error_type:
        ended = "policy_crash" if error_type == POLICY_CRASH else "tool_error"
    failed = [c.id for c in verdict.failed("strict")] if verdict else []
    return {
        "schema_version": RECORD_SCHEMA,
        "suite": suite,
        "task_id": info["task_id"],
        "task_hash": task_hash(env.task),
        "attempt": episode,
        "episode": episode,
        "policy": policy.name,
        "privileged": policy.privileged,
        "deterministic": policy.deterministic,
        "settings": _settings(policy),
        "run_seed": seed,
        "seed": own_seed,
        "criterion": env.criterion,
        "is_success": info["is_success"] if verdict else None,
        "paper_success": verdict.paper_success if verdict else None,
        "strict_success": verdict.strict_success if verdict else None,
        "ended": ended,
        "error": error,
        "error_type": error_type,
        "traceback": trace,
        "infra_retries": 0,
        "retried": [],
        "reward": total if verdict else None,
        "charged": info["charged"],
        "budget": env.budget,
        "refused": refused,
        **_model_use(attempt, unread),
        "failed": failed,
        "first_failed": failed[0] if failed else None,
        "metrics": dict(verdict.metrics) if verdict else {},
        # As it will be read from a file: tuples are lists.
        "verdict": json.loads(json.dumps(verdict.to_dict())) if verdict else None,
        "memory": None,
        "recalled": 0,
        "versions": tool_versions(),
        **({} if cpu_limit_s is None else {"cpu_limit_s": cpu_limit_s}),
        "seconds": {
            "policy": round(meter.wall, 4),
            "env": round(env_wall, 4),
            "total": round(time.perf_counter() - started, 4),
            "policy_cpu": round(meter.cpu, 4),
        },
    }


def notes_of(attempt: Attempt) -> list[dict[str, Any]]:
    """Return what the policy noted during an attempt."""
    return list(getattr(attempt, "notes", []))


def _settings(policy: Policy) -> dict[str, Any]:
    settings = getattr(policy, "settings", None)
    try:
        return dict(settings()) if callable(settings) else {}
    except Exception as e:  # the attempt is over: nothing that a policy says of itself may take its verdict away
        return {"fault": f"settings: {type(e).__name__}: {e}"}


def _model_use(attempt: Attempt, unread: int) -> dict[str, Any]:
    """Return tokens, cost and counts of the model calls of an attempt; the cost is None unless every call has one."""
    calls = [note for note in notes_of(attempt) if note["kind"] == "model"]
    usage = [u if isinstance(u := note.get("usage"), Mapping) else {} for note in calls]
    costs = [u.get("cost") for u in usage]
    return {
        # A scaffold that deals with an unreadable reply itself says so in its notes only.
        "unreadable": max(unread, sum(note.get("parsed") is False for note in calls)),
        "tokens": {
            "prompt": sum(_count(u.get("prompt_tokens")) for u in usage),
            "completion": sum(_count(u.get("completion_tokens")) for u in usage),
        },
        "cost": sum(costs) if costs and all(isinstance(c, int | float) for c in costs) else None,
        "model_calls": len(calls),
        "model_retries": sum(_count(note.get("retries")) for note in calls),
    }


def _count(value: Any) -> int:
    """Return a count that a policy noted; 0 for what is none."""
    return value if isinstance(value, int) and value > 0 else 0


def attempt_files(env: Env, attempt: Attempt, *, pictures: bool = False) -> dict[str, bytes]:
    """Return the files of a finished attempt: relative path -> content.

    The trace, the final layout (``layout.gds``) or design (``design/``), the policy's notes if there are any, and the
    task itself for FET tasks that no suite holds.
    """
    files = {"trace.json": (json.dumps(env.trace(), indent=1) + "\n").encode()}
    layout = env.layout
    if isinstance(layout, DesignFiles):
        files |= {f"design/{path}": text.encode() for path, text in layout.files.items()}
    else:
        files["layout.gds"] = layout.to_gds_bytes() if isinstance(env, FETEnv) else layout.to_bytes()
    notes = notes_of(attempt)
    if notes:
        # Whatever a policy notes, it costs no verdict: other objects are written as texts, half characters escaped.
        files["notes.jsonl"] = "".join(map(_note_line, notes)).encode("utf-8", "backslashreplace")
    if isinstance(env, FETEnv) and not env.task_ids:
        files["task.json"] = env.task.to_json().encode()
    if pictures:
        files["layout.png"] = _picture(env)
    return files


def _note_line(note: Mapping[str, Any]) -> str:
    try:
        return json.dumps(note, ensure_ascii=False, default=repr) + "\n"
    except (TypeError, ValueError, RecursionError) as e:  # keys that are no texts, circles, abysses
        plain = {name: note[name] for name in ("n", "step", "kind")}
        return json.dumps({**plain, "text": f"[cannot be written: {type(e).__name__}]"}, default=repr) + "\n"


def _picture(env: Env) -> bytes:
    import io

    from PIL import Image

    from edagym.envs.fet.viewer import render_image

    fet = isinstance(env, FETEnv)
    image = render_image(env.view, env.layout, verdict=env.verdict) if fet else env.picture()
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, format="PNG")
    return stream.getvalue()


# -- many attempts -----------------------------------------------------------------------------------------------------


def rollout(
    env: Env | str,
    policy: Policy | str,
    *,
    tasks: Sequence[str] | None = None,
    episodes: int = 1,
    seed: int = 0,
    cpu_limit_s: float | None = None,
    out: str | Path | None = None,
    pictures: bool = True,
    progress: bool = True,
) -> list[Record]:
    """Run a policy on every task of an environment, in this process.

    For processes, retries and policies with memory there is `edagym.baselines.evaluate.evaluate`.

    Args:
        env: An environment, a suite name or an id.
        policy: A policy, or a name (`edagym.baselines.registry`).
        tasks: Ids to run; None: all tasks of the suite. Must be None for endless environments.
        episodes: Attempts per task; for endless environments: number of tasks.
        seed: Seed of the run.
        cpu_limit_s: See `run_attempt`.
        out: Folder for ``records.jsonl`` (appended to) and, per attempt, the layout as GDSII, the trace and a picture.
            Attempts that the file already holds (same suite, policy, task, episode and run seed) are not run again, so
            that an interrupted run is resumed by calling it once more.
        pictures: Whether to write pictures.
        progress: Whether to show a progress bar.

    Returns:
        One record per attempt (`run_attempt`), in task order.

    Raises:
        TaskError: If a suite, policy or task is unknown.
    """
    suite = suite_name(env)
    chosen = make_policy(policy) if isinstance(policy, str) else policy
    if isinstance(env, str):
        env = make_env(env, **env_options(chosen))
    endless = not env.task_ids
    if endless and tasks is not None:
        raise TaskError("an endless environment makes its own tasks", field="tasks", value=list(tasks), allowed=None)
    ids: Iterable[str | None] = [None] if endless else (tasks if tasks is not None else env.task_ids)
    plan = [(task_id, episode) for task_id in ids for episode in range(episodes)]
    folder = None if out is None else RunFolder(out)
    try:
        known = {key_of(r): r for r in read_records(folder.path)} if folder and folder.records_path.exists() else {}
        records: list[Record] = []
        env.reset(seed=seed, options={"task": plan[0][0]} if plan and not endless else None)
        for i, (task_id, episode) in enumerate(tqdm(plan, desc=f"{chosen.name} on {suite}", disable=not progress)):
            if i:
                env.reset(options=None if endless else {"task": task_id})
            record = known.get((suite, chosen.name, env.observe()[1]["task_id"], episode, seed))
            if record is None:
                attempt = begin_attempt(env, chosen, suite=suite, episode=episode, seed=seed)
                record = run_attempt(
                    env, chosen, suite=suite, episode=episode, seed=seed, cpu_limit_s=cpu_limit_s, attempt=attempt
                )
                if folder is not None:
                    where = f"{record['policy']}/{record['task_id'].replace(':', '_')}/{episode:03d}"
                    record = folder.commit(record, attempt_files(env, attempt, pictures=pictures), where)
            records.append(record)
        return records
    finally:
        if folder is not None:
            folder.close()


def summarise(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return counts and rates under both criteria; attempts without a verdict are in no rate."""
    scored = [r for r in records if r["paper_success"] is not None]
    paper = sum(r["paper_success"] for r in scored)
    strict = sum(r["strict_success"] for r in scored)
    n = len(scored)
    return {
        "attempts": len(records),
        "tool_errors": sum(bool(r["error"]) for r in records),
        "unfinished": sum(r["ended"] == "time_limit" for r in records),
        "paper_passed": paper,
        "strict_passed": strict,
        "paper_rate": paper / n if n else None,
        "strict_rate": strict / n if n else None,
    }
