"""Speed of the evaluation harness: attempts per second with a policy that takes no time, beside the bare loop."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from edagym.baselines.evaluate import evaluate
from edagym.baselines.executors import InProcessExecutor, ProcessExecutor
from edagym.baselines.policies import Attempt
from edagym.baselines.rollout import make_env, run_attempt
from edagym.envs.core.trace import tool_versions
from edagym.spaces.actions import Command

SUITE = "FET-L1"
ROUNDS = 3


class InstantPolicy:
    """Submits at once: what an attempt takes then is the environment's and the harness's."""

    name = "instant"
    privileged = False
    deterministic = True

    def bind(self, attempt: Attempt) -> None:
        """Begin an attempt."""

    def act(self, observation: dict[str, Any], info: dict[str, Any]) -> Command:
        """Submit."""
        return Command.SUBMIT


def bench_eval(attempts: int = 25, workers: int = 2, progress: bool = True) -> dict[str, Any]:
    """Measure the harness on FET-L1; the ways of running take turns, so that a busy machine is as busy for all.

    Args:
        attempts: Attempts per task and round; the suite has 8 tasks, and there are 3 rounds.
        workers: Processes of the last way; they have started before the clock does.
        progress: Whether to show a progress bar.

    Returns:
        Per way of running: ``attempts_per_s`` (wall time, median of the rounds), ``overhead_ms`` per attempt and
        ``ratio`` beside the bare loop of reset, submit and final verification; ``cpu_ms`` per attempt of this process.
        ``loop`` is `run_attempt`, ``memory`` the evaluation in this process without files, ``disk`` with a run folder
        (every attempt synced to disk), ``processes`` the same with worker processes.
    """
    env = make_env(SUITE)
    policy = f"{InstantPolicy.__module__}:{InstantPolicy.__name__}"
    jobs = [task for task in env.task_ids for _ in range(attempts)]

    def bare() -> None:
        for task in jobs:
            env.reset(options={"task": task})
            env.step_edit(Command.SUBMIT)

    def loop() -> None:
        instant = InstantPolicy()
        for n, task in enumerate(jobs):
            env.reset(options={"task": task})
            run_attempt(env, instant, suite=SUITE, episode=n, seed=0)

    def whole(executor: Any, out: Path | None) -> None:
        evaluate(policy, [SUITE], attempts=attempts, out=out, executor=executor, progress=False)

    with tempfile.TemporaryDirectory() as folder:
        fresh = iter(range(1_000))
        processes = ProcessExecutor(workers)
        try:
            evaluate(policy, [SUITE], attempts=workers, executor=processes, progress=False)
            ways: dict[str, Callable[[], None]] = {
                "bare": bare,
                "loop": loop,
                "memory": lambda: whole(InProcessExecutor(), None),
                "disk": lambda: whole(InProcessExecutor(), Path(folder) / str(next(fresh))),
                "processes": lambda: whole(processes, Path(folder) / str(next(fresh))),
            }
            bare()  # tasks are read and prepared on the first visit
            wall: dict[str, list[float]] = {name: [] for name in ways}
            cpu: dict[str, list[float]] = {name: [] for name in ways}
            for name in tqdm([name for _ in range(ROUNDS) for name in ways], desc="bench eval", disable=not progress):
                start, used = time.perf_counter(), time.process_time()
                ways[name]()
                wall[name].append((time.perf_counter() - start) / len(jobs))
                cpu[name].append((time.process_time() - used) / len(jobs))
        finally:
            processes.close()
    least = float(np.median(wall["bare"]))
    result: dict[str, Any] = {}
    for name in ways:
        took = float(np.median(wall[name]))
        result[name] = {
            "attempts_per_s": round(1 / took, 1),
            "overhead_ms": round(1e3 * (took - least), 3),
            "ratio": round(took / least, 2),
            "cpu_ms": round(1e3 * float(np.median(cpu[name])), 3),
        }
    result["machine"] = {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "workers": workers, **tool_versions()}
    return result
