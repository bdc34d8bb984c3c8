"""Executors: where jobs run. Each takes jobs with `submit` and gives finished ones back with `wait`, in any order.

Another executor needs `run_job`, which runs in any process or machine and raises nothing, and says ``WorkerDied``
(`Result`) of a job that it lost. Retries, records and files are the caller's business (`edagym.baselines.evaluate`).
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import connection, get_context, parent_process
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol

from edagym.errors import TaskError

if TYPE_CHECKING:
    from edagym.baselines.jobs import Job, Result
    from edagym.baselines.ray_executor import Cluster

EXECUTORS = ("process", "ray")
"""Names for `make_executor`."""
START_LIMIT_S = 600.0
"""How long a new process may take before its first attempt begins: imports, the first environment."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Executor(Protocol):
    """Runs jobs.

    Attributes:
        capacity: Jobs that it can run at a time; submitting a few more keeps it busy.
    """

    capacity: int

    def submit(self, job: Job) -> None:
        """Take a job."""

    def wait(self) -> tuple[Job, Result]:
        """Return a finished job; call it only while there are jobs that have not come back."""

    def close(self) -> None:
        """Stop, jobs in hand included."""


def make_executor(name: str, workers: int, timeout_s: float | None = None, cluster: Cluster | None = None) -> Executor:
    """Return an executor.

    Args:
        name: One of `EXECUTORS`.
        workers: Jobs at a time; 0: in this process (``"process"``), or as many as the cluster has CPUs for (``"ray"``).
        timeout_s: Seconds of wall time per attempt; None: no limit.
        cluster: For ``"ray"``: the cluster, and what an attempt takes of it.

    Raises:
        TaskError: If there is none of that name, or it cannot do that.
    """
    if name not in EXECUTORS:
        raise TaskError("unknown executor", field="executor", value=name, allowed=EXECUTORS)
    if workers < 0:
        raise TaskError("not a number of processes", field="workers", value=workers, allowed=">= 0")
    if name == "ray":
        from edagym.baselines.ray_executor import RayExecutor

        return RayExecutor(workers, timeout_s, cluster)
    if workers:
        return ProcessExecutor(workers, timeout_s)
    if timeout_s is not None:
        raise TaskError(
            "a time limit needs worker processes", field="timeout_s", value=timeout_s, allowed="workers >= 1"
        )
    return InProcessExecutor()


class InProcessExecutor:
    """Runs one job after the other in this process: nothing can be timed out, and a crash ends the run."""

    capacity = 1

    def __init__(self) -> None:
        self._queue: deque[Job] = deque()

    def submit(self, job: Job) -> None:
        """Take a job."""
        self._queue.append(job)

    def wait(self) -> tuple[Job, Result]:
        """Run the oldest job."""
        from edagym.baselines.jobs import run_job

        job = self._queue.popleft()
        return job, run_job(job)

    def close(self) -> None:
        """Forget the jobs in hand."""
        self._queue.clear()


class _Worker:
    """A process, the pipe to it, and the job that it has."""

    def __init__(self) -> None:
        context = get_context("spawn")  # a fork would inherit the parent's threads and engine state half-way
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_serve, args=(theirs,))
        with _one_thread():
            self.process.start()
        theirs.close()  # so that the pipe ends when the process does
        self.job: Job | None = None
        self.deadline = 0.0

    def give(self, job: Job) -> None:
        self.job, self.deadline = job, time.monotonic() + START_LIMIT_S
        self.pipe.send(job)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


class ProcessExecutor:
    """Runs jobs in worker processes that may die: the job that one had is reported, and another takes its place.

    Args:
        workers: Number of processes.
        timeout_s: Seconds of wall time that an attempt may take; then its process is killed. The clock starts when the
            worker begins with the attempt, not when the job is submitted. None: no limit.
    """

    def __init__(self, workers: int, timeout_s: float | None = None) -> None:
        self.capacity = workers
        self._timeout = timeout_s
        self._queue: deque[Job] = deque()
        self._done: deque[tuple[Job, Result]] = deque()
        self._workers: list[_Worker] = []

    def submit(self, job: Job) -> None:
        """Take a job."""
        self._queue.append(job)
        self._feed()

    def _feed(self) -> None:
        while self._queue:
            worker = next((w for w in self._workers if w.job is None), None)
            if worker is None:
                if len(self._workers) >= self.capacity:
                    return
                worker = _Worker()
                self._workers.append(worker)
            try:
                worker.give(self._queue[0])
            except OSError:  # it died idle: nothing is lost
                worker.stop()
                self._workers.remove(worker)
                continue
            self._queue.popleft()

    def wait(self) -> tuple[Job, Result]:
        """Return a finished job."""
        while not self._done:
            busy = {w.pipe: w for w in self._workers if w.job is not None}
            left = min(w.deadline for w in busy.values()) - time.monotonic()
            # Never for ever: a limit of a day is a wake-up a day.
            for ready in connection.wait(list(busy), timeout=min(max(left, 0.0) + 0.01, 86_400.0)):
                self._read(busy[ready])  # type: ignore[index]
            for worker in list(busy.values()):
                if worker.job is not None and time.monotonic() > worker.deadline:
                    self._lose(worker, "AttemptTimeout", f"no result after {self._timeout or START_LIMIT_S:g} s")
            self._feed()
        return self._done.popleft()

    def _read(self, worker: _Worker) -> None:
        try:
            said = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join(5.0)
            self._lose(worker, "WorkerDied", f"the process ended (exit code {worker.process.exitcode})")
            return
        if said is None:  # the attempt begins
            worker.deadline = float("inf") if self._timeout is None else time.monotonic() + self._timeout
            return
        assert worker.job is not None
        self._done.append((worker.job, said))
        worker.job = None

    def _lose(self, worker: _Worker, error_type: str, error: str) -> None:
        from edagym.baselines.jobs import Result

        assert worker.job is not None
        self._done.append((worker.job, Result(None, error_type=error_type, error=error)))
        self._workers.remove(worker)
        worker.stop()

    def close(self) -> None:
        """Kill the processes."""
        for worker in self._workers:
            worker.stop()
        self._workers.clear()
        self._queue.clear()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Have a process that starts meanwhile compute with one thread, unless the user says otherwise."""
    added = [name for name in _THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _serve(pipe: Any) -> None:
    """Run the jobs that come through a pipe; the life of a worker process."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which then stops its workers
    os.dup2(2, 1)  # a policy that prints must not spoil the parent's output
    parent = parent_process()
    assert parent is not None
    Thread(target=_follow, args=(parent,), daemon=True).start()
    from edagym.baselines.jobs import run_job

    while True:
        try:
            job = pipe.recv()
            pipe.send(None)
            pipe.send(run_job(job))
        except (EOFError, OSError):
            return


def _follow(parent: Any) -> None:
    """End this process when its parent has ended, however that went."""
    parent.join()
    os._exit(1)
