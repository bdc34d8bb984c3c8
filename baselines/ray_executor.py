"""Attempts and flow runs on a Ray cluster (extra ``distributed``): an existing one, or a local one made for the run.

Ray places the work and notices lost nodes; what an attempt is, its retries, records and files stay as they are with
local processes. Every machine of the cluster needs the same `edagym` installed.

Attempts run in actors, one per attempt at a time, each with a worker process of its own (`ProcessExecutor`): time
limits and dying processes mean the same as without Ray. A lost node loses the attempts that it had in hand; they come
back as ``WorkerDied`` and are tried again elsewhere.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from edagym.errors import TaskError, ToolError

if TYPE_CHECKING:
    from edagym.baselines.jobs import Job, Result

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")

MAP_RETRIES = 3
"""How often Ray runs a flow again whose node or process was lost."""


@dataclass(frozen=True)
class Cluster:
    """Which cluster, and what an attempt or a flow run takes of it.

    Attributes:
        address: Address of a running cluster, ``"auto"``, or None: what ``RAY_ADDRESS`` says, else a local cluster
            that ends with the run.
        cpus: CPUs of each.
        resources: Custom resources of each, e.g. ``{"orfs": 1}``: nodes started with ``--resources '{"orfs": 2}'``
            then run two at a time. So are scarce tools and licences shared.
    """

    address: str | None = None
    cpus: float = 1.0
    resources: Mapping[str, float] = field(default_factory=dict)

    def options(self) -> dict[str, Any]:
        """Return the options of a Ray task or actor."""
        return {"num_cpus": self.cpus, "resources": dict(self.resources)}


def parse_resources(items: Iterable[str]) -> dict[str, float]:
    """Return custom resources from ``NAME=AMOUNT`` texts; raises `TaskError`."""
    found: dict[str, float] = {}
    for item in items:
        name, _, amount = item.partition("=")
        try:
            found[name] = float(amount)
        except ValueError:
            found[name] = 0.0
        if not name.isidentifier() or not found[name] > 0:
            raise TaskError("not a resource", field="ray_resource", value=item, allowed="NAME=AMOUNT, e.g. orfs=1")
    return found


def connect(cluster: Cluster, workers: int) -> bool:
    """Connect this process to a cluster; return whether it was not connected before.

    Args:
        cluster: The cluster.
        workers: CPUs of a local cluster, if one is made.

    Raises:
        TaskError: If Ray is not installed.
        ToolError: If there is no cluster at the address.
    """
    try:
        import ray
    except ImportError as e:
        raise TaskError("Ray is not installed", field="executor", value="ray", allowed="edagym[distributed]") from e
    if ray.is_initialized():
        return False
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    address = cluster.address or os.environ.get("RAY_ADDRESS")
    try:
        if address:
            _reach(address)
            ray.init(address=address, **quiet)
        else:
            # Paths of Ray's sockets have to be short.
            folder = tempfile.mkdtemp(prefix="ray", dir=tempfile.gettempdir())
            local = {name: amount * max(workers, 1) for name, amount in cluster.resources.items()}
            cpus = max(round(cluster.cpus * max(workers, 1)), 1)
            ray.init(num_cpus=cpus, resources=local, include_dashboard=False, _temp_dir=folder, **quiet)
    except Exception as e:
        raise ToolError(f"cannot connect to Ray: {e}", field="address", value=address) from e
    return True


def _reach(address: str) -> None:
    """Raise `OSError` if nothing listens at a ``host:port``: Ray itself would try for many minutes, then exit."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=10.0).close()


class _Slot:
    """What an actor does: it runs one attempt at a time in a process of its own."""

    def __init__(self, timeout_s: float | None) -> None:
        from edagym.baselines.executors import ProcessExecutor

        self._inner = ProcessExecutor(1, timeout_s)

    def ready(self) -> None:
        """Return as soon as the actor has its resources."""

    def run(self, job: Job) -> Result:
        """Run an attempt."""
        self._inner.submit(job)
        return self._inner.wait()[1]


class RayExecutor:
    """Runs jobs on a Ray cluster (`Executor`).

    Args:
        workers: Attempts at a time, at most; 0: as many as the cluster has CPUs for when the run begins.
        timeout_s: As for `ProcessExecutor`.
        cluster: The cluster.

    Raises:
        TaskError: If Ray is not installed.
        ToolError: If the cluster cannot be reached.
    """

    def __init__(self, workers: int, timeout_s: float | None = None, cluster: Cluster | None = None) -> None:
        self._cluster = cluster or Cluster()
        self._own = connect(self._cluster, workers)
        import ray

        self._ray = ray
        self.capacity = workers or max(int(ray.cluster_resources().get("CPU", 1) / self._cluster.cpus), 1)
        self._actor: Any = ray.remote(**self._cluster.options(), max_restarts=0)(_Slot)
        self._timeout = timeout_s
        self._queue: deque[Job] = deque()
        self._starting: dict[Any, Any] = {}  # ref of `ready` -> actor: it may wait for resources for long
        self._idle: list[Any] = []
        self._busy: dict[Any, tuple[Any, Job]] = {}  # ref of `run` -> actor, job

    def submit(self, job: Job) -> None:
        """Take a job."""
        self._queue.append(job)
        self._feed()

    def _feed(self) -> None:
        while self._queue and self._idle:
            actor, job = self._idle.pop(), self._queue.popleft()
            self._busy[actor.run.remote(job)] = (actor, job)
        wanted = min(self.capacity - len(self._busy) - len(self._idle), len(self._queue)) - len(self._starting)
        for _ in range(wanted):
            new: Any = self._actor.remote(self._timeout)
            self._starting[new.ready.remote()] = new

    def wait(self) -> tuple[Job, Result]:
        """Return a finished job."""
        from edagym.baselines.jobs import WORKER_DIED, Result

        while True:
            self._feed()
            (ref,), _ = self._ray.wait([*self._busy, *self._starting], num_returns=1)
            if ref in self._starting:
                actor = self._starting.pop(ref)
                try:
                    self._ray.get(ref)
                except self._ray.exceptions.RayError:  # its node went before it began: the next one takes its place
                    continue
                self._idle.append(actor)
                continue
            actor, job = self._busy.pop(ref)
            try:
                result: Result = self._ray.get(ref)
            except self._ray.exceptions.RayError as e:
                lines = str(e).strip().splitlines()
                return job, Result(
                    None, error_type=WORKER_DIED, error=f"{type(e).__name__}: {lines[0] if lines else ''}"
                )
            self._idle.append(actor)
            return job, result

    def close(self) -> None:
        """Stop the actors; a cluster that was made for this run ends."""
        for actor in [*self._idle, *self._starting.values(), *(a for a, _ in self._busy.values())]:
            self._ray.kill(actor)
        self._idle.clear()
        self._starting.clear()
        self._busy.clear()
        self._queue.clear()
        if self._own:
            self._ray.shutdown()


def ray_map(
    function: Callable[[T], R], items: Mapping[K, T], workers: int, cluster: Cluster | None = None
) -> Iterator[tuple[K, R]]:
    """Yield key and result of a function of every item, in the order in which they finish.

    Args:
        function: A function of a module that every node has; its results depend on the item only, because Ray runs it
            again where a node is lost.
        items: Key -> argument.
        workers: Calls at a time, at most; 0: as many as the cluster has CPUs for.
        cluster: The cluster.

    Raises:
        TaskError: If Ray is not installed.
        ToolError: If the cluster cannot be reached, or an item was lost too often. What the function raises is raised.
    """
    cluster = cluster or Cluster()
    own = connect(cluster, workers)
    import ray

    task = ray.remote(**cluster.options(), max_retries=MAP_RETRIES)(function)
    limit = workers or max(int(ray.cluster_resources().get("CPU", 1) / cluster.cpus), 1)
    left = deque(items.items())
    running: dict[Any, K] = {}
    try:
        while left or running:
            while left and len(running) < limit:
                key, item = left.popleft()
                running[task.remote(item)] = key
            (ref,), _ = ray.wait(list(running), num_returns=1)
            key = running.pop(ref)
            try:
                yield key, ray.get(ref)
            except ray.exceptions.RayTaskError as e:
                raise e.cause if isinstance(e.cause, Exception) else e from None
            except ray.exceptions.RayError as e:
                raise ToolError(f"a run was lost {MAP_RETRIES + 1} times: {e}", field="item", value=str(key)) from e
    finally:
        for ref in running:
            ray.cancel(ref, force=True)
        if own:
            ray.shutdown()
