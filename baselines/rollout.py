"""`rollout`: run a policy over tasks and record both verdicts of every attempt."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
from tqdm import tqdm

import edagym
from edagym.baselines.policies import Attempt, Policy, RandomPolicy, ReferencePolicy, attempt_seed
from edagym.envs.core.trace import tool_versions
from edagym.envs.fet.env import FETEnv
from edagym.errors import PolicyError, TaskError

RECORD_SCHEMA = 1

POLICIES: dict[str, type] = {"random": RandomPolicy, "reference": ReferencePolicy}
"""Scripted policies by name."""


def make_env(suite: str, **kwargs: Any) -> FETEnv:
    """Return the environment of a suite or registered id, without Gymnasium's wrappers.

    Args:
        suite: ``"FET-L1"`` or ``"FET-L1-v0"``, and so on.
        **kwargs: Keyword arguments of the environment.

    Raises:
        TaskError: If the suite is unknown.
    """
    edagym.register_all()
    env_id = suite if suite in gym.registry else f"{suite}-v0"
    ids = [name for name in edagym.ENVIRONMENTS if name.startswith("FET-")]
    if env_id not in ids:
        known = [name.removesuffix("-v0") for name in ids]
        raise TaskError("unknown suite", field="suite", value=suite, allowed=known)
    env = gym.make(env_id, disable_env_checker=True, **kwargs).unwrapped
    assert isinstance(env, FETEnv)
    return env


def make_policy(name: str) -> Policy:
    """Return a scripted policy; raises `TaskError` if there is none of that name."""
    if name not in POLICIES:
        raise TaskError("unknown policy", field="policy", value=name, allowed=sorted(POLICIES))
    policy: Policy = POLICIES[name]()
    return policy


def run_attempt(env: FETEnv, policy: Policy, *, suite: str, episode: int, seed: int) -> dict[str, Any]:
    """Run a policy on the environment's current task until the episode ends: the only loop.

    Args:
        env: The environment, just reset.
        policy: The policy.
        suite: Suite name for the record and the attempt's seed.
        episode: Number of the attempt at this task.
        seed: Seed of the run.

    Returns:
        The record (JSON-ready): outcome under both criteria, charges, refusals, failed checks, settings. After a tool
        error both outcomes are None: such an attempt counts neither as passed nor as failed.
    """
    observation, info = env.observe()
    own_seed = attempt_seed(suite, info["task_id"], episode, seed)
    policy.bind(Attempt(env, own_seed, policy.privileged))
    total, refused, unread, done = 0.0, 0, 0, False
    while not done:
        try:
            action = policy.act(observation, info)
        except PolicyError as e:
            unread += 1
            observation, reward, terminated, truncated, info = env.refuse(str(e))
        else:
            observation, reward, terminated, truncated, info = env.step_any(action)
            refused += bool(info["edit_error"])
        total += reward
        done = terminated or truncated
    verdict = None if info["error"] else env.verdict
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
        "ended": info["ended"],
        "error": info["error"],
        "reward": total if verdict else None,
        "charged": info["charged"],
        "budget": env.budget,
        "refused": refused,
        "unreadable": unread,
        "failed": [c.id for c in verdict.failed("strict")] if verdict else [],
        "metrics": dict(verdict.metrics) if verdict else {},
        "versions": tool_versions(),
    }


def rollout(
    env: FETEnv | str,
    policy: Policy | str,
    *,
    tasks: Sequence[str] | None = None,
    episodes: int = 1,
    seed: int = 0,
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
    suite = env if isinstance(env, str) else (env.spec.id if env.spec else type(env).__name__)
    suite = suite.removesuffix("-v0")
    if isinstance(env, str):
        env = make_env(env)
    chosen = make_policy(policy) if isinstance(policy, str) else policy
    endless = not env.task_ids
    if endless and tasks is not None:
        raise TaskError("an endless environment makes its own tasks", field="tasks", value=list(tasks), allowed=None)
    ids: Iterable[str | None] = [None] if endless else (tasks if tasks is not None else env.task_ids)
    plan = [(task_id, episode) for task_id in ids for episode in range(episodes)]
    records: list[dict[str, Any]] = []
    recorded = {} if out is None else _recorded(Path(out) / "records.jsonl")
    env.reset(seed=seed, options={"task": plan[0][0]} if plan and not endless else None)
    for i, (task_id, episode) in enumerate(tqdm(plan, desc=f"{chosen.name} on {suite}", disable=not progress)):
        if i:
            env.reset(options=None if endless else {"task": task_id})
        known = recorded.get((suite, chosen.name, env.observe()[1]["task_id"], episode, seed))
        if known is not None:
            records.append(known)
            continue
        record = run_attempt(env, chosen, suite=suite, episode=episode, seed=seed)
        if out is not None:
            record["artefacts"] = _save(env, record, Path(out), pictures)
            with (Path(out) / "records.jsonl").open("a", encoding="utf-8") as f:
                f.write(json.dumps(record) + "\n")
        records.append(record)
    return records


def _recorded(path: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
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
    """Return counts and rates under both criteria; attempts lost to tool errors are left out of the rates."""
    scored = [r for r in records if r["paper_success"] is not None]
    paper = sum(r["paper_success"] for r in scored)
    strict = sum(r["strict_success"] for r in scored)
    n = len(scored)
    return {
        "attempts": len(records),
        "tool_errors": len(records) - n,
        "paper_passed": paper,
        "strict_passed": strict,
        "paper_rate": paper / n if n else None,
        "strict_rate": strict / n if n else None,
    }


def _save(env: FETEnv, record: dict[str, Any], out: Path, pictures: bool) -> dict[str, str]:
    """Write layout, trace and picture of a finished attempt; return their paths relative to `out`."""
    folder = Path(record["policy"]) / record["task_id"].replace(":", "_") / f"{record['episode']:03d}"
    (out / folder).mkdir(parents=True, exist_ok=True)
    paths = {"layout": folder / "layout.gds", "trace": folder / "trace.json"}
    layout = env.layout
    layout.write_gds(out / paths["layout"])
    env.save_trace(out / paths["trace"])
    if pictures:
        from PIL import Image

        from edagym.envs.fet.viewer import render_image

        paths["picture"] = folder / "layout.png"
        Image.fromarray(render_image(env.view, layout, verdict=env.verdict)).save(out / paths["picture"])
    return {name: path.as_posix() for name, path in paths.items()}
