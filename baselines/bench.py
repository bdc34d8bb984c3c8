"""Speed of the FET family, measured in one run: steps, verification, resets, vector environments, and a profile."""

from __future__ import annotations

import cProfile
import gc
import os
import platform
import pstats
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from tqdm import tqdm

import edagym
from edagym.baselines.policies import RandomPolicy, reference_edits
from edagym.envs.core.trace import tool_versions
from edagym.envs.fet.env import MIN_BUDGET, FETEnv
from edagym.envs.fet.interpreter import apply_edit
from edagym.task_assets.fet.suite import load_task, task_ids
from edagym.verifiers.fet import FETLayout, FETVerifier


def bench_fet(seconds: float = 2.0, train_resets: int = 50, progress: bool = True) -> dict[str, Any]:
    """Measure the FET environments.

    Args:
        seconds: Time per throughput measurement.
        train_resets: Resets of ``FET-Train-v0`` to time; each builds a task.
        progress: Whether to show a progress bar.

    Returns:
        A JSON-ready dict: ``edit_steps_per_s`` (one core, default observation; `made` through ``gym.make`` with its
        wrappers, `bare` without), ``verify_ms`` over the reference layouts of the suite, ``reset_ms`` of a suite task
        on its first visit (file read, arrays and verifier made) and later ones, and of new training tasks,
        ``async_steps_per_s`` of two worker processes, ``profile`` (share of time by function, largest first),
        ``machine``.
    """
    edagym.register_all()
    steps: list[tuple[str, Callable[[], Any]]] = [
        ("edit_steps_per_s", lambda: {name: _steps_per_s(name == "made", seconds) for name in ("made", "bare")}),
        ("verify_ms", _verify_ms),
        (
            "reset_ms",
            lambda: {
                "FET-All-v0 first visits": _first_reset_ms(),
                "FET-All-v0": _reset_ms("FET-All-v0", 500),
                "FET-Train-v0": _reset_ms("FET-Train-v0", train_resets),
            },
        ),
        ("async_steps_per_s", lambda: _async_steps_per_s(2, seconds)),
        ("profile", lambda: {"edit_step": _profile(_edit_steps()), "verify": _profile(_verifications())}),
    ]
    results: dict[str, Any] = {}
    for name, measure in tqdm(steps, desc="bench fet", disable=not progress):
        gc.collect()
        results[name] = measure()
    results["machine"] = {"cpu": _cpu_name(), "cpus": os.cpu_count(), "load": os.getloadavg()[0], **tool_versions()}
    return results


def _spread(samples: Sequence[float]) -> dict[str, float]:
    return {
        "median": round(float(np.median(samples)), 3),
        "p99": round(float(np.percentile(samples, 99)), 3),
        "max": round(float(np.max(samples)), 3),
        "n": len(samples),
    }


def _actions(env: FETEnv, n: int) -> list[dict[str, Any]]:
    """Random rectangles on the current task, as arrays of the action space."""
    rng = np.random.default_rng(0)
    layers = [spec.name for spec in env.view.layers]
    return [env.action_space.from_edit(RandomPolicy._rectangle(env.view, rng), layers) for _ in range(n)]


def _steps_per_s(wrapped: bool, seconds: float) -> float:
    """Edit steps per second; resets and the making of actions are not counted, endings are avoided."""
    env = gym.make("FET-All-v0") if wrapped else gym.make("FET-All-v0", disable_env_checker=True).unwrapped
    env.reset(seed=0)
    base = env.unwrapped
    assert isinstance(base, FETEnv)
    spent, steps = 0.0, 0
    while spent < seconds:
        env.reset()
        actions = _actions(base, MIN_BUDGET - 1)
        start = time.perf_counter()
        for action in actions:
            env.step(action)
        spent += time.perf_counter() - start
        steps += len(actions)
    return round(steps / spent, 1)


def reference_layouts() -> list[tuple[FETVerifier, FETLayout]]:
    """Return verifier and reference layout of every suite task."""
    pairs = []
    for task_id in task_ids("FET-All"):
        task = load_task(task_id)
        layout = FETLayout.from_task(task)
        for edit in reference_edits(task):
            apply_edit(layout, edit)
        pairs.append((FETVerifier(task), layout))
    return pairs


def _verify_ms() -> dict[str, Any]:
    """Time of one verification, both criteria, on a layout with no cached geometry."""
    samples = []
    pairs = reference_layouts()
    for _ in range(3):
        for verifier, layout in pairs:
            fresh = FETLayout(layout.layers, {s.name: layout.shapes(s.name) for s in layout.layers})
            start = time.perf_counter()
            verifier.verify(fresh)
            samples.append((time.perf_counter() - start) * 1e3)
    paper = []
    for verifier, layout in pairs:
        fresh = FETLayout(layout.layers, {s.name: layout.shapes(s.name) for s in layout.layers})
        start = time.perf_counter()
        verifier.verify(fresh, strict=False)
        paper.append((time.perf_counter() - start) * 1e3)
    return {"both_criteria": _spread(samples), "paper_only": _spread(paper)}


def _reset_ms(env_id: str, n: int) -> dict[str, float]:
    env = gym.make(env_id, disable_env_checker=True).unwrapped
    env.reset(seed=0)
    samples = []
    for _ in range(n):
        start = time.perf_counter()
        env.reset()
        samples.append((time.perf_counter() - start) * 1e3)
    return _spread(samples)


def _first_reset_ms() -> dict[str, float]:
    env = gym.make("FET-All-v0", disable_env_checker=True).unwrapped
    assert isinstance(env, FETEnv)
    load_task.cache_clear()  # new task objects, so that nothing prepared for the old ones is found
    samples = []
    for task_id in env.task_ids:
        start = time.perf_counter()
        env.reset(options={"task": task_id})
        samples.append((time.perf_counter() - start) * 1e3)
    return _spread(samples)


def _async_steps_per_s(workers: int, seconds: float) -> float:
    """Steps per second of an asynchronous vector environment, all workers together, resets included."""
    envs = gym.make_vec("FET-All-v0", num_envs=workers, vectorization_mode="async")
    try:
        observation, _ = envs.reset(seed=0)
        actions = envs.action_space.sample()
        actions["op"][:] = 0
        actions["n_points"][:] = 4
        box = np.array([(0, 0), (2, 0), (2, 1), (0, 1)], np.float32)
        start, steps = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            # A box at the first flake's first vertex, on the first layer that may be drawn on.
            actions["layer"][:] = observation["layer_editable"].argmax(axis=1)
            actions["points"][:, :4] = observation["region_points"][:, 0, :1] + box
            observation, *_ = envs.step(actions)
            steps += workers
        return round(steps / (time.perf_counter() - start), 1)
    finally:
        envs.close()


def _edit_steps() -> Callable[[], None]:
    env = gym.make("FET-All-v0", disable_env_checker=True).unwrapped
    assert isinstance(env, FETEnv)
    env.reset(seed=0)
    start, actions = env.snapshot(), _actions(env, MIN_BUDGET - 1)

    def run() -> None:
        for _ in range(20):
            env.restore(start)
            for action in actions:
                env.step(action)

    return run


def _verifications() -> Callable[[], None]:
    pairs = reference_layouts()[::4]

    def run() -> None:
        for verifier, layout in pairs:
            verifier.verify(FETLayout(layout.layers, {s.name: layout.shapes(s.name) for s in layout.layers}))

    return run


def _profile(run: Callable[[], None], top: int = 12) -> list[dict[str, Any]]:
    """Run under cProfile; return the functions with the largest own time and their shares."""
    run()  # caches are filled outside the profile
    profile = cProfile.Profile()
    profile.runcall(run)
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    total = sum(row[2] for row in stats.values())
    rows = sorted(stats.items(), key=lambda item: item[1][2], reverse=True)[:top]
    return [
        {
            "function": f"{Path(file).name}:{name}" if file != "~" else name,
            "own_share": round(row[2] / total, 3),
            "with_callees_share": round(row[3] / total, 3),
            "calls": row[0],
        }
        for (file, _, name), row in rows
    ]


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
