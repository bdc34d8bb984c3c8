"""Evaluation and sweeps on Ray: the same results as with local processes; lost actors and nodes lose nothing."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any

import pytest

pytest.importorskip("ray", reason="Ray is in the extra `distributed`")

import ray

from edagym.baselines.evaluate import evaluate
from edagym.baselines.ray_executor import Cluster, RayExecutor, parse_resources, ray_map
from edagym.baselines.records import read_records, untimed
from edagym.cli import main
from edagym.errors import TaskError, ToolError


@pytest.fixture(scope="module")
def local() -> Iterator[None]:
    """A local cluster that all tests of this file share."""
    import tempfile

    folder = tempfile.mkdtemp(prefix="ray")
    ray.init(
        num_cpus=4,
        resources={"flow": 1.0},
        include_dashboard=False,
        _temp_dir=folder,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"env_vars": {"PYTHONPATH": str(Path(__file__).parent)}},
    )
    yield
    ray.shutdown()


def plain(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return records without what the number of tries changes."""
    skip = ("infra_retries", "retried", "checksum")
    return [{k: v for k, v in untimed(r).items() if k not in skip} for r in records]


def test_a_cluster_that_is_not_there():
    # First in this file: later tests are connected to one.
    with pytest.raises(ToolError, match="cannot connect"):
        RayExecutor(1, cluster=Cluster("127.0.0.1:1"))


def test_results_equal_those_of_local_processes(local, tmp_path):
    given: dict[str, Any] = {"attempts": 2, "tasks": ["L1/case_1", "L1/case_2"], "progress": False}
    here = evaluate("random", ["FET-L1"], out=tmp_path / "here", **given)
    there = evaluate("random", ["FET-L1"], executor="ray", workers=2, out=tmp_path / "there", **given)
    assert plain(here) == plain(there)
    assert sorted(r["checksum"] for r in read_records(tmp_path / "there")) == sorted(r["checksum"] for r in here)
    # Nothing is left to do.
    again = evaluate("random", ["FET-L1"], executor="ray", workers=2, out=tmp_path / "there", resume=True, **given)
    assert again == there


class _Sabotage:
    """Kills the worker process of the first attempt it sees."""

    name, privileged, deterministic = "sabotage", False, True

    def __init__(self, flag: str) -> None:
        self.flag = Path(flag)

    def bind(self, attempt: Any) -> None:
        if not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def act(self, observation: Any, info: Any) -> Any:
        return {"op": "submit"}


def test_a_killed_worker_costs_a_try(local, tmp_path):
    records = evaluate(
        "test_ray:_Sabotage",
        ["FET-L1"],
        tasks=["L1/case_1"],
        options={"flag": str(tmp_path / "flag")},
        executor="ray",
        workers=1,
        progress=False,
    )
    assert [(r["infra_retries"], r["error_type"]) for r in records] == [(1, None)]
    assert records[0]["retried"][0]["error_type"] == "WorkerDied"


def test_a_killed_actor_is_replaced(local):
    executor = RayExecutor(1)
    try:
        started: list[Any] = []

        def kill_first() -> None:
            until = monotonic() + 60
            while monotonic() < until and not executor._busy:
                sleep(0.01)
            started.extend(a for a, _ in executor._busy.values())
            for actor in started:
                ray.kill(actor)

        killer = Thread(target=kill_first)
        killer.start()
        records = evaluate("random", ["FET-L1"], tasks=["L1/case_1"], attempts=2, executor=executor, progress=False)
        killer.join()
        assert started
    finally:
        executor.close()
    assert all(r["error_type"] is None for r in records)
    assert sum(r["infra_retries"] for r in records) == 1


def double(x: int) -> int:
    if x < 0:
        raise ToolError("negative")
    return 2 * x


def overlap(x: str) -> tuple[float, float]:
    start = monotonic()
    sleep(0.2)
    return start, monotonic()


def test_map(local):
    assert dict(ray_map(double, {"a": 1, "b": 2, "c": 3}, 2)) == {"a": 2, "b": 4, "c": 6}
    with pytest.raises(ToolError, match="negative"):
        list(ray_map(double, {"a": -1}, 1))


def test_resources_limit_how_many_run_at_a_time(local):
    one = Cluster(resources={"flow": 1.0}, cpus=0.5)
    spans = sorted(span for _, span in ray_map(overlap, dict.fromkeys("abc", ""), 3, one))
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    assert parse_resources(["orfs=2", "gpu=0.5"]) == {"orfs": 2.0, "gpu": 0.5}
    for text in ("orfs", "orfs=", "orfs=-1", "=1", "a b=1"):
        with pytest.raises(TaskError, match="not a resource"):
            parse_resources([text])


def test_flags(capsys):
    command = ["eval", "--policy", "random", "--suite", "FET-L1"]
    assert main([*command, "--ray-address", "auto"]) == 2
    assert "--executor ray" in capsys.readouterr().err
    assert main([*command, "--executor", "ray", "--ray-cpus", "0"]) == 2
    assert "--ray-cpus" in capsys.readouterr().err


@pytest.mark.slow
def test_sweep(local, tmp_path):
    from edagym.envs.ppa.sweep import base_design
    from edagym.task_assets.ppa.designs import load_design

    base_design(load_design("gcd")).write(tmp_path / "gcd")
    command = ["sweep", "ppa", str(tmp_path / "gcd"), "--axis", "ABC_AREA=0,1", "--axis", "CORE_UTILIZATION=50,60"]
    for name, flags in (("here", []), ("there", ["--executor", "ray", "--workers", "2"])):
        assert main([*command, "--out", str(tmp_path / name), *flags]) == 0
    assert (tmp_path / "here" / "gcd.json").read_bytes() == (tmp_path / "there" / "gcd.json").read_bytes()


@pytest.mark.slow
def test_two_nodes_and_one_is_killed(tmp_path):
    """64 attempts on two nodes; one dies in the middle: nothing is lost, only what it had in hand is tried again."""
    from ray.cluster_utils import Cluster as Nodes

    if ray.is_initialized():
        ray.shutdown()
    nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    first, second = nodes.add_node(num_cpus=2), nodes.add_node(num_cpus=2)
    nodes.wait_for_nodes()
    assert first is not second
    out = tmp_path / "run"
    try:

        def kill() -> None:
            records = out / "records.jsonl"
            while not records.exists() or records.read_bytes().count(b"\n") < 16:
                sleep(0.02)
            nodes.remove_node(second, allow_graceful=False)

        killer = Thread(target=kill)
        killer.start()
        there = evaluate(
            "random",
            ["FET-L1"],
            attempts=8,
            out=out,
            executor="ray",
            workers=4,
            cluster=Cluster(nodes.address),
            progress=False,
        )
        killer.join()
    finally:
        ray.shutdown()
        nodes.shutdown()
    here = evaluate("random", ["FET-L1"], attempts=8, out=tmp_path / "here", progress=False)
    assert len(there) == 64
    assert plain(there) == plain(here)
    tries = [r["infra_retries"] for r in there]
    assert sum(tries) <= 2  # the two attempts that the node had in hand
    lines = [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]
    assert len({(r["task_id"], r["attempt"]) for r in lines}) == len(lines) == 64
