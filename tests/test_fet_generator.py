from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edagym.envs.fet.generator import generate_task
from edagym.envs.fet.interpreter import apply_edit, drawing_window
from edagym.envs.fet.reference import build_reference
from edagym.errors import TaskError
from edagym.task_assets.fet import FETTask
from edagym.task_assets.fet.suite import load_task, task_ids
from edagym.verifiers.fet import FETLayout, verify


def solved(task: FETTask) -> bool:
    layout, window = FETLayout.from_task(task), drawing_window(task.regions)
    for edit in build_reference(task):
        apply_edit(layout, edit, window=window)
    verdict = verify(layout, task)
    return verdict.paper_success and verdict.strict_success


def check_tasks(seeds: range) -> None:
    suite_contours = {c["id"] for i in task_ids() for c in load_task(i).metadata["contours"]}
    suite_regions = {load_task(i).regions for i in task_ids()}
    seen = set()
    for seed in seeds:
        task = generate_task(np.random.default_rng(seed))
        assert solved(task), seed
        assert task.id.startswith("train/")
        assert task.id not in seen
        seen.add(task.id)
        assert task.regions not in suite_regions
        assert suite_contours.isdisjoint(c["id"] for c in task.metadata["contours"])
        assert {c["source"] for c in task.metadata["contours"]} == {"procedural"}


def test_training_tasks_are_solved_and_are_no_suite_tasks() -> None:
    check_tasks(range(15))


@pytest.mark.slow
def test_a_thousand_training_tasks_are_solved_and_are_no_suite_tasks() -> None:
    check_tasks(range(1000))


def test_equal_generators_give_equal_tasks() -> None:
    one, two = (generate_task(np.random.default_rng(11)) for _ in range(2))
    assert one.to_json() == two.to_json()
    rng = np.random.default_rng(11)
    assert generate_task(rng).id == one.id
    assert generate_task(rng).id != one.id
    assert FETTask.from_json(one.to_json()).to_json() == one.to_json()


@pytest.mark.parametrize(
    "options",
    [
        {"level": "L1"},
        {"level": "L4", "n_regions": 4, "demand": 3},
        {"tier": "G3", "demand": 4},
        {"tier": "G1", "n_regions": 2},
        {"architecture": "edge_contacted", "n_regions": 2, "demand": 1},
        {"architecture": "dual_gated", "demand": [2, 1, 1]},
        {"architecture": "local_back_gated", "holes": 1},
        {"architecture": "global_back_gated"},
        {"holes": 2, "demand": 2},
        {"holes": True, "level": "L2"},
        {"n_regions": 10, "demand": 1},
        {"tier": "G2", "demand": 8, "n_regions": 1},
    ],
)
def test_options_are_honoured(options: dict[str, Any]) -> None:
    for seed in range(3):
        task = generate_task(np.random.default_rng(seed), **options)
        meta = task.metadata
        assert options.get("level", meta["level"]) == meta["level"]
        assert options.get("tier", meta["tier"]) == meta["tier"]
        assert options.get("architecture", task.architecture) == task.architecture
        if "demand" in options:
            asked = options["demand"]
            assert task.demand == (tuple(asked) if isinstance(asked, list) else (asked,) * len(task.regions))
        if "n_regions" in options:
            assert len(task.regions) == options["n_regions"]
        if "holes" in options:
            assert {len(r.holes) for r in task.regions} == {int(options["holes"])}
        assert meta["reference_edits"] == len(build_reference(task))


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"level": "L5"}, "level"),
        ({"tier": "G0"}, "tier"),
        ({"architecture": "finfet"}, "architecture"),
        ({"n_regions": 0}, "n_regions"),
        ({"n_regions": 11}, "n_regions"),
        ({"demand": 9}, "demand"),
        ({"demand": []}, "demand"),
        ({"demand": [1, 0]}, "demand"),
        ({"demand": [1, 1], "n_regions": 3}, "demand"),
        ({"holes": 3}, "holes"),
        ({"n_regions": "two"}, "n_regions"),
    ],
)
def test_bad_options_name_the_field(options: dict[str, Any], field: str) -> None:
    with pytest.raises(TaskError) as e:
        generate_task(np.random.default_rng(0), **options)
    assert e.value.field == field


def test_levels_follow_the_suite() -> None:
    values = {r.min_um for s in range(5) for r in generate_task(np.random.default_rng(s), level="L4").drc_rules}
    assert values <= {None, 0.5, 0.1}
    one = [generate_task(np.random.default_rng(s), level="L1") for s in range(5)]
    assert {t.demand for t in one} == {(1,)}
