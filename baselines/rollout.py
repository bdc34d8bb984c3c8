"""`rollout`: run a policy over tasks and record both verdicts of every attempt."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import gymnasium as gym
from tqdm import tqdm

import edagym
from edagym.baselines.policies import Attempt, Policy, RandomPolicy, ReferencePolicy, attempt_seed
from edagym.baselines.search.drc_repair import DRCSearchPolicy
from edagym.baselines.search.ppa_search import CoordinatePPAPolicy, GaussianProcessPPAPolicy, RandomPPAPolicy
from edagym.envs.core.edit_env import EditEnv
from edagym.envs.core.trace import tool_versions
from edagym.envs.fet.env import FETEnv
from edagym.errors import PolicyError, TaskError
from edagym.task_assets.ppa.design import DesignFiles

RECORD_SCHEMA = 1

POLICIES: dict[str, type] = {
    "random": RandomPolicy,
    "reference": ReferencePolicy,
    "search": DRCSearchPolicy,
    **{p.name: p for p in (RandomPPAPolicy, CoordinatePPAPolicy, GaussianProcessPPAPolicy)},
}
"""Scripted policies by name."""

Env = EditEnv[Any, Any]


def make_env(suite: str, **kwargs: Any) -> Env:
    """Return the environment of a suite or registered id, without Gymnasium's wrappers.

    Args:
        suite: ``"FET-L1"``, ``"DRC-Essential-L1-v0"`` and so on, or a folder of DRC or PPA task folders, such as
            `edagym import-posteda` writes.
        **kwargs: Keyword arguments of the environment.

    Raises:
        TaskError: If the suite is unknown.
    """
    if Path(suite).is_dir():
        if next(Path(suite).glob("**/config/*.mk"), None) is not None:
            from edagym.envs.ppa.env import PPAEnv

            return PPAEnv(suite=suite, **kwargs)
        from edagym.envs.drc.env import DRCEnv

        return DRCEnv(suite=suite, **kwargs)
    edagym.register_all()
    env_id = suite if suite in gym.registry else f"{suite}-v0"
    if env_id not in edagym.ENVIRONMENTS:
        known = [name.removesuffix("-v0") for name in edagym.ENVIRONMENTS]
        raise TaskError("unknown suite", field="suite", value=suite, allowed=known)
    env = gym.make(env_id, disable_env_checker=True, **kwargs).unwrapped
    assert isinstance(env, EditEnv)
    return env


def make_policy(name: str) -> Policy:
    """Return a scripted policy; raises `TaskError` if there is none of that name."""
    if name not in POLICIES:
        raise TaskError("unknown policy", field="policy", value=name, allowed=sorted(POLICIES))
    policy: Policy = POLICIES[name]()
    return policy


def env_options(policy: Policy) -> dict[str, Any]:
    """Return the environment's options that a policy is evaluated under; none unless it says so."""
    return dict(getattr(policy, "env_options", {}))


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


def run_attempt(
    env: Env, policy: Policy, *, suite: str, episode: int, seed: int, cpu_limit_s: float | None = None
) -> dict[str, Any]:
    """Run a policy on the environment's current task until the episode ends: the only loop.

    Args:
        env: The environment, just reset.
        policy: The policy.
        suite: Suite name for the record and the attempt's seed.
        episode: Number of the attempt at this task.
        seed: Seed of the run.
        cpu_limit_s: CPU seconds that the policy may use in this attempt, its own only; None: no limit. A policy that is
            out of time leaves the attempt unfinished: ``ended`` is ``"time_limit"`` and both outcomes are None.

    Returns:
        The record (JSON-ready): outcome under both criteria, charges, refusals, failed checks, settings. After a tool
        error both outcomes are None: such an attempt counts neither as passed nor as failed. With a limit it also says
        what the policy used, ``cpu_s``: the only entry that differs between equal runs.
    """
    observation, info = env.observe()
    own_seed = attempt_seed(suite, info["task_id"], episode, seed)
    total, refused, unread, done, used = 0.0, 0, 0, False, 0.0

    def timed(call: Callable[..., Any], *args: Any) -> Any:
        nonlocal used
        start = time.process_time()
        try:
            with _cpu_limit(None if cpu_limit_s is None else cpu_limit_s - used):
                return call(*args)
        finally:
            used += time.process_time() - start

    unfinished = False
    attempt = Attempt(env, own_seed, policy.privileged)
    try:
        timed(policy.bind, attempt)
        while not done:
            try:
                action = timed(policy.act, observation, info)
            except PolicyError as e:
                unread += 1
                observation, reward, terminated, truncated, info = env.refuse(str(e))
            else:
                observation, reward, terminated, truncated, info = env.step_any(action)
                refused += bool(info["edit_error"])
            total += reward
            done = terminated or truncated
    except _OutOfTime:
        unfinished = True
    verdict = None if info["error"] or unfinished else env.verdict
    return {
        "schema_version": RECORD_SCHEMA,
        "suite": suite,
        "task_id": info["task_id"],
        "episode": episode,
        "policy": policy.name,
        "privileged": policy.privileged,
        "deterministic": policy.deterministic,
        "run_seed": seed,
        "seed": own_seed,
        "criterion": env.criterion,
        "is_success": info["is_success"] if verdict else None,
        "paper_success": verdict.paper_success if verdict else None,
        "strict_success": verdict.strict_success if verdict else None,
        "ended": "time_limit" if unfinished else info["ended"],
        "error": info["error"],
        "reward": total if verdict else None,
        "charged": info["charged"],
        "budget": env.budget,
        "refused": refused,
        "unreadable": unread,
        "failed": [c.id for c in verdict.failed("strict")] if verdict else [],
        "metrics": dict(verdict.metrics) if verdict else {},
        "versions": tool_versions(),
        **({} if cpu_limit_s is None else {"cpu_limit_s": cpu_limit_s, "cpu_s": round(used, 2)}),
    }


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
) -> list[dict[str, Any]]:
    """Run a policy on every task of an environment.

    Args:
        env: An environment, a suite name or an id.
        policy: A policy, or the name of a scripted one (`POLICIES`).
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
    records: list[dict[str, Any]] = []
    recorded = {} if out is None else read_records(Path(out) / "records.jsonl")
    env.reset(seed=seed, options={"task": plan[0][0]} if plan and not endless else None)
    for i, (task_id, episode) in enumerate(tqdm(plan, desc=f"{chosen.name} on {suite}", disable=not progress)):
        if i:
            env.reset(options=None if endless else {"task": task_id})
        known = recorded.get((suite, chosen.name, env.observe()[1]["task_id"], episode, seed))
        if known is not None:
            records.append(known)
            continue
        record = run_attempt(env, chosen, suite=suite, episode=episode, seed=seed, cpu_limit_s=cpu_limit_s)
        if out is not None:
            record["artefacts"] = _save(env, record, Path(out), pictures)
            with (Path(out) / "records.jsonl").open("a", encoding="utf-8") as f:
                f.write(json.dumps(record) + "\n")
        records.append(record)
    return records


def suite_name(env: Env | str) -> str:
    """Return the name under which records of an environment, a suite, an id or a folder of tasks are kept."""
    if not isinstance(env, str):
        return (env.spec.id if env.spec else type(env).__name__).removesuffix("-v0")
    return Path(env).resolve().name if Path(env).is_dir() else env.removesuffix("-v0")


def read_records(path: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Return the attempts of a records file by what identifies them; a line cut short by a kill is sealed off."""
    if not path.exists():
        return {}
    text = path.read_text(encoding="utf-8")
    if text and not text.endswith("\n"):
        with path.open("a", encoding="utf-8") as f:
            f.write("\n")
    found = {}
    for line in text.splitlines():
        try:
            r = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[r["suite"], r["policy"], r["task_id"], r["episode"], r["run_seed"]] = r
    return found


def summarise(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return counts and rates under both criteria; attempts lost to tool errors or time limits are in no rate."""
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


def _save(env: Env, record: dict[str, Any], out: Path, pictures: bool) -> dict[str, str]:
    """Write layout, trace and picture of a finished attempt; return their paths relative to `out`."""
    folder = Path(record["policy"]) / record["task_id"].replace(":", "_") / f"{record['episode']:03d}"
    (out / folder).mkdir(parents=True, exist_ok=True)
    paths = {"layout": folder / "layout.gds", "trace": folder / "trace.json"}
    layout = env.layout
    if isinstance(layout, DesignFiles):
        paths["layout"] = folder / "design"
        layout.write(out / paths["layout"])
    else:
        layout.write_gds(out / paths["layout"])
    env.save_trace(out / paths["trace"])
    if pictures:
        from PIL import Image

        from edagym.envs.fet.viewer import render_image

        fet = isinstance(env, FETEnv)
        picture = render_image(env.view, layout, verdict=env.verdict) if fet else env.picture()
        paths["picture"] = folder / "layout.png"
        Image.fromarray(picture).save(out / paths["picture"])
    return {name: path.as_posix() for name, path in paths.items()}
