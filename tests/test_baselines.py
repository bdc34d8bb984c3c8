"""Scripted policies, the rollout loop, its records and files, and the bench's shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fet_cases import make_task

from edagym.baselines.bench import bench_fet
from edagym.baselines.policies import Attempt, RandomPolicy, ReferencePolicy, attempt_seed, reference_edits
from edagym.baselines.records import untimed
from edagym.baselines.rollout import make_env, rollout, run_attempt, summarise
from edagym.envs.core import load_trace, trace_actions
from edagym.envs.fet.env import FETEnv
from edagym.envs.fet.interpreter import WINDOW_MARGIN_UM
from edagym.errors import PolicyError, TaskError, ToolError
from edagym.spaces import (
    MAX_COORD_UM,
    MAX_HOLE_POINTS,
    MAX_HOLES,
    MAX_REGIONS,
    MAX_RING_POINTS,
    MAX_RULES,
    MAX_SHAPE_POINTS,
    MAX_SHAPES,
    Clear,
    Command,
    EditSpace,
)
from edagym.verifiers.fet import FETLayout, FETVerifier, verify


def plain(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records without their times."""
    return [untimed(r) for r in records]


@pytest.fixture(scope="module")
def references() -> list[dict]:
    return rollout("FET-All", "reference", progress=False)


def test_the_reference_policy_solves_the_suite(references):
    assert summarise(references) == {
        "attempts": 128,
        "tool_errors": 0,
        "unfinished": 0,
        "paper_passed": 128,
        "strict_passed": 128,
        "paper_rate": 1.0,
        "strict_rate": 1.0,
    }
    assert all(r["is_success"] and r["reward"] == 1.0 and r["privileged"] for r in references)
    assert all(r["charged"] <= r["budget"] / 2 for r in references), "budget: twice the reference's edits, at least 40"


def test_published_maxima_fit_every_task_and_reference_twice():
    env = make_env("FET-All")
    space, most = EditSpace(), {}

    def note(**values):
        for name, value in values.items():
            most[name] = max(most.get(name, 0), value)

    for task_id in env.task_ids:
        task = env.find_task(task_id)
        view, edits = task.view(), reference_edits(task)
        holes = [h for r in view.regions for h in r.holes]
        corners = [abs(v) for r in view.regions for p in r.hull for v in p]
        note(
            regions=len(view.regions),
            ring_points=max(len(r.hull) for r in view.regions),
            holes=len(holes),
            hole_points=max((len(h) for h in holes), default=0),
            rules=len(view.drc_rules),
            shapes=len(edits),
            shape_points=max(len(e.points) for e in edits),
            coordinate=max(corners) + WINDOW_MARGIN_UM,
        )
        layers = [s.name for s in view.layers]
        assert all(space.to_edit(space.from_edit(e, layers), layers) == e for e in edits)
    limits = {
        "regions": MAX_REGIONS,
        "ring_points": MAX_RING_POINTS,
        "holes": MAX_HOLES,
        "hole_points": MAX_HOLE_POINTS,
        "rules": MAX_RULES,
        "shapes": MAX_SHAPES,
        "shape_points": MAX_SHAPE_POINTS,
        "coordinate": MAX_COORD_UM,
    }
    assert {name: value for name, value in most.items() if 2 * value > limits[name]} == {}


def test_reference_on_a_new_task():
    env = FETEnv(tasks=[make_task(demand=(2,))])
    (record,) = rollout(env, "reference", progress=False)
    assert record["strict_success"]


def test_random_policy_is_seeded_and_seldom_refused():
    one = rollout("FET-L2", "random", seed=4, progress=False)
    assert plain(one) == plain(rollout("FET-L2", "random", seed=4, progress=False))
    other = rollout("FET-L2", "random", seed=5, progress=False)
    assert [r["failed"] for r in one] != [r["failed"] for r in other]
    assert sum(r["refused"] for r in one) == 0
    assert all(r["ended"] == "submit" and r["charged"] < r["budget"] for r in one)


def test_records_do_not_depend_on_the_order():
    ids = ["L2/case_12", "L2/case_1"]
    forth = rollout("FET-L2", "random", tasks=ids, progress=False)
    back = rollout("FET-L2", "random", tasks=ids[::-1], progress=False)
    assert plain(forth) == plain(back[::-1])
    assert forth[0]["seed"] == attempt_seed("FET-L2", ids[0], 0, 0)


def test_output_folder(tmp_path):
    records = rollout("FET-L1", "reference", tasks=["L1/case_1"], episodes=2, out=tmp_path, progress=False)
    lines = (tmp_path / "records.jsonl").read_text().splitlines()
    assert [json.loads(x) for x in lines] == records
    env = make_env("FET-L1")
    task = env.find_task("L1/case_1")
    for record in records:
        folder = tmp_path / record["folder"]
        assert sorted(record["artefacts"]) == ["layout.gds", "layout.png", "trace.json"]
        assert (folder / "layout.png").read_bytes().startswith(b"\x89PNG")
        layout = FETLayout.read_gds(folder / "layout.gds", task.layers)
        assert verify(layout, task).strict_success
        env.reset(options={"task": task.id})
        env.replay(trace_actions(load_trace(folder / "trace.json")))
        assert env.layout.to_gds_bytes() == (folder / "layout.gds").read_bytes()
    rollout("FET-L1", "random", tasks=["L1/case_1"], out=tmp_path, pictures=False, progress=False)
    assert len((tmp_path / "records.jsonl").read_text().splitlines()) == 3
    assert not list((tmp_path / "random").rglob("*.png"))


def test_endless_environment():
    records = rollout("FET-Train", "random", episodes=3, seed=1, progress=False)
    assert len({r["task_id"] for r in records}) == 3
    assert plain(records) == plain(rollout("FET-Train", "random", episodes=3, seed=1, progress=False))
    with pytest.raises(TaskError):
        rollout("FET-Train", "random", tasks=["L1/case_1"], progress=False)


def test_unknown_names():
    with pytest.raises(TaskError, match="unknown suite"):
        rollout("FET-L7", "random")
    with pytest.raises(TaskError, match="unknown policy"):
        rollout("FET-L1", "oracle")


# -- attempts ----------------------------------------------------------------------------------------------------------


def attempt(**kwargs) -> Attempt:
    env = FETEnv(tasks=[make_task()])
    env.reset()
    return Attempt(env, **kwargs)


def test_hidden_criteria_are_for_privileged_policies():
    with pytest.raises(PolicyError):
        _ = attempt().task
    assert attempt(privileged=True).task.structural
    assert not hasattr(attempt().task_view, "structural")


def test_restoring_is_free_and_abandoned_branches_stay_charged():
    a = attempt()
    a.apply(Clear("gate"))
    there = a.snapshot()
    a.apply(Clear("gate"))
    a.check()
    left = a.budget_left
    assert left == 37
    a.restore(there)
    assert a.budget_left == left
    a.restart()
    assert a.budget_left == left
    a.apply({"op": "submit"})
    with pytest.raises(PolicyError, match="over"):
        a.restart()


class Stammering:
    """Cannot be read twice, then submits."""

    name, privileged, deterministic = "stammering", False, True

    def bind(self, attempt):
        self.left = 2

    def act(self, observation, info):
        self.left -= 1
        if self.left >= 0:
            raise PolicyError("no JSON in the reply")
        assert info["edit_error"].startswith("no JSON")
        return Command.SUBMIT


def test_unreadable_replies_are_charged_and_counted():
    env = FETEnv(tasks=[make_task()])
    env.reset()
    record = run_attempt(env, Stammering(), suite="test", episode=0, seed=0)
    assert (record["unreadable"], record["charged"], record["refused"]) == (2, 2, 0)


def test_tool_errors_are_no_failures(monkeypatch):
    def broken(self, layout):
        raise ToolError("engine died")

    monkeypatch.setattr(FETVerifier, "verify", broken)
    (record,) = rollout(FETEnv(tasks=[make_task()]), RandomPolicy(2), progress=False)
    assert (record["is_success"], record["paper_success"], record["reward"]) == (None, None, None)
    assert (record["error"], record["error_type"], record["ended"]) == ("engine died", "ToolError", "tool_error")
    assert summarise([record]) == {
        "attempts": 1,
        "tool_errors": 1,
        "unfinished": 0,
        "paper_passed": 0,
        "strict_passed": 0,
        "paper_rate": None,
        "strict_rate": None,
    }


def test_random_rectangles_lie_in_a_flake_box():
    a = attempt(seed=3)
    policy = RandomPolicy(20)
    policy.bind(a)
    edits = [policy.act({}, {}) for _ in range(20)]
    points = np.array([p for e in edits for p in e.points])
    assert points.min(axis=0).tolist() >= [0, 0]
    assert points.max(axis=0).tolist() <= [20.02, 6.02]
    assert {e.layer for e in edits} == {"contacts", "gate"}
    assert policy.act({}, {}) is Command.SUBMIT
    assert ReferencePolicy.privileged
    assert not RandomPolicy.privileged


@pytest.mark.slow
def test_bench_measures_everything():
    result = bench_fet(seconds=0.2, train_resets=2, progress=False)
    assert set(result) == {"edit_steps_per_s", "verify_ms", "reset_ms", "async_steps_per_s", "profile", "machine"}
    assert all(v > 0 for v in result["edit_steps_per_s"].values())
    assert result["verify_ms"]["paper_only"]["n"] == 128
    assert json.loads(json.dumps(result)) == result


def test_an_interrupted_run_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import edagym.baselines.rollout as module

    whole = rollout("FET-L1", "random", seed=3, out=tmp_path / "whole", pictures=False, progress=False)
    run, attempts = module.run_attempt, []

    def failing(*args: Any, **kwargs: Any) -> dict[str, Any]:
        if len(attempts) == 3:
            raise KeyboardInterrupt
        attempts.append(1)
        return run(*args, **kwargs)

    monkeypatch.setattr(module, "run_attempt", failing)
    with pytest.raises(KeyboardInterrupt):
        rollout("FET-L1", "random", seed=3, out=tmp_path / "cut", pictures=False, progress=False)
    monkeypatch.setattr(module, "run_attempt", run)
    path = tmp_path / "cut" / "records.jsonl"
    with path.open("a") as f:
        f.write('{"suite": "FET-L1", "task')  # what a kill leaves behind
    resumed = rollout("FET-L1", "random", seed=3, out=tmp_path / "cut", pictures=False, progress=False)
    assert [{**r, "checksum": None} for r in plain(resumed)] == [{**r, "checksum": None} for r in plain(whole)]
    assert sum(line.startswith('{"schema_version"') for line in path.read_text().splitlines()) == len(whole)
