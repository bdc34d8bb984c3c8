"""The PPA search baselines, on a task with a flow of a few lines."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from ppa_cases import FormulaFlow, make_task, same_function

from edagym.baselines.policies import RandomPolicy, ReferencePolicy
from edagym.baselines.registry import POLICIES, env_options, make_policy
from edagym.baselines.rollout import make_env, rollout, run_attempt
from edagym.baselines.search.ppa_space import dimensions, misfit, start_place
from edagym.baselines.tables import level_rows, level_text
from edagym.envs.ppa.env import PPAEnv
from edagym.spaces.ppa_edits import SetKnob, SetPeriod
from edagym.task_assets.ppa.task import RUNS

SEARCHES = ("ppa-random", "ppa-coordinate", "ppa-gp")


def attempt(policy, **kwargs):
    task = make_task(**kwargs)
    env = PPAEnv(tasks=[task], backend=FormulaFlow(), function_check=same_function, **env_options(policy))
    env.reset(seed=0, options={"task": task.id})
    return env, run_attempt(env, policy, suite="formula", episode=0, seed=0)


def out_of_reach():
    """Targets that nothing meets."""
    return dict.fromkeys(make_task().targets, 1e-9)


@cache
def search(name):
    """Return a search's record and steps, made once."""
    if name == "ppa-gp":
        pytest.importorskip("sklearn")
    env, record = attempt(make_policy(name), targets=out_of_reach())
    return record, env.trace()["steps"]


@pytest.mark.parametrize("name", SEARCHES)
def test_searches_run_18_times_and_hand_in_their_best(name):
    record, steps = search(name)
    assert (record["charged"], record["refused"]) == (RUNS, 0)
    assert record["ended"] == "submit"
    # The trace is that of the design handed in: runs of branches that were left are charged, but not in it.
    assert sum(s["action"]["op"] == "run" for s in steps) <= RUNS
    assert not record["paper_success"]
    assert record["metrics"]["nis"] >= record["metrics"]["nis_nothing"]


@pytest.mark.parametrize("name", SEARCHES)
def test_searches_are_deterministic_for_a_seed(name):
    _, steps = search(name)
    assert attempt(make_policy(name), targets=out_of_reach())[0].trace()["steps"] == steps


def test_the_reference_policy_runs_what_it_edits():
    _, record = attempt(ReferencePolicy())
    assert record["strict_success"]


def test_random_actions_fit_the_budget():
    env, record = attempt(RandomPolicy(), targets=out_of_reach())
    assert record["charged"] <= env.budget
    assert any(s["action"]["op"] == "run" for s in env.trace()["steps"])


def test_the_space_is_inside_the_bounds():
    view = make_task().view()
    dims = dimensions(view)
    assert not {d.name for d in dims} & set(view.bounds.locked)
    for dim in dims:
        for u in (0.0, 0.37, 1.0):
            edit = dim.edit(u)
            if isinstance(edit, SetPeriod):
                assert view.bounds.period[0] <= edit.period <= view.bounds.period[1]
            else:
                assert isinstance(edit, SetKnob)
            assert dim.place(dim.value(u)) == pytest.approx(u, abs=0.51 if dim.choices else 1e-3)
    assert all(0 <= u <= 1 for u in start_place(view, dims))


def test_rollout_saves_designs(tmp_path):
    make_task().save(tmp_path / "tasks" / "q1")
    env = PPAEnv(suite=str(tmp_path / "tasks"), backend=FormulaFlow(), function_check=same_function)
    (record,) = rollout(env, "reference", out=tmp_path / "out", pictures=False, progress=False)
    assert record["strict_success"]
    assert (tmp_path / "out" / record["folder"] / "design" / "config").is_dir()
    assert isinstance(make_env(str(tmp_path / "tasks")), PPAEnv)


def test_misfit():
    assert misfit({"die_area": 1.0}, {"die_area": 1.0}) == 0
    assert misfit({"die_area": 2.0, "total_power": 1.0}, {"die_area": 1.0, "total_power": 2.0}) == pytest.approx(
        np.log(2)
    )


def test_rates_have_the_improvement_score():
    _, record = attempt(make_policy("ppa-random"), targets=out_of_reach())
    rows = level_rows([{**record, "task_id": "Multi-L1/q1"}])
    assert rows[-1]["nis"]["estimate"] == record["metrics"]["nis"]
    assert "NIS of doing nothing" in level_text(rows)
    assert set(SEARCHES) <= set(POLICIES)
