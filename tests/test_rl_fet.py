"""FET presets: warm starts, dense credit, the training stack and the shipped policy."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import shapely

pytest.importorskip("torch")
pytest.importorskip("sb3_contrib")

import gymnasium as gym

from edagym.baselines.policies import Attempt
from edagym.baselines.rl.checkpoint import SHIPPED, load_policy, shipped_names
from edagym.baselines.rl.fet_rectangle_start import collect as collect_rectangles
from edagym.baselines.rl.fet_stacks import fet_macro, fet_rectangle
from edagym.baselines.rl.fet_warm_start import collect, collect_wires, teacher
from edagym.baselines.rl.policy import RLPolicy
from edagym.baselines.rl.presets import load_preset
from edagym.envs.fet.env import FETEnv
from edagym.wrappers.core import is_privileged
from edagym.wrappers.fet_macro import COMPONENTS, JOIN, TransistorMacro
from edagym.wrappers.fet_training import DenseCredit, progress, sound, walls


def _dense(**options: Any) -> DenseCredit:
    return DenseCredit(fet_macro(**options))


def test_dense_credit_says_that_it_is_privileged() -> None:
    env = _dense(level="L1")
    assert is_privileged(env)
    assert env.spec is not None
    spec = env.spec.additional_wrappers[-1]
    assert spec.name == "DenseCredit"
    assert spec.kwargs is not None
    assert spec.kwargs["privileged"] is True


def test_dense_credit_adds_up_to_progress() -> None:
    env = _dense(level="L3")
    env.cost, env.wire = 0.0, 0.0
    macro = cast(TransistorMacro, env.env)
    rng = np.random.default_rng(0)
    for seed in range(3):
        env.reset(seed=seed)
        total, over, success = 0.0, False, False
        while not over:
            _, reward, terminated, truncated, info = env.step(teacher(macro.desk, rng))
            total += float(reward)
            over, success = terminated or truncated, info["is_success"]
        verdict = macro.base.verdict
        assert verdict is not None
        assert total == pytest.approx(progress(verdict) + env.success * success)


def test_teacher_beats_blind_macros() -> None:
    """Most rows of the teacher's are kept, and they say what the masks allow."""
    env = _dense(level="L2")
    env.reset(seed=0)
    data = collect(env, 250, np.random.default_rng(0))
    assert len(data["action"]) > 150
    starts = np.cumsum([0, *COMPONENTS.values()])[:-1]
    chosen = data["action"] + starts
    assert data["mask"][np.arange(len(chosen))[:, None], chosen].all()


def test_teachers_wires_are_sound() -> None:
    env = fet_macro(level="L3")
    env.reset(seed=1)
    data = collect_wires(env, 4, np.random.default_rng(0), repeats=2)
    assert (data["action"][:, 0] == JOIN).all()


def test_walls_stop_wires_over_gates_and_foreign_flakes() -> None:
    env = fet_macro()
    macro = cast(TransistorMacro, env)
    rng = np.random.default_rng(3)
    for seed in range(40):
        env.reset(seed=seed)
        circuit = macro.base.view.circuit
        if circuit is not None and circuit.load == "complementary":
            break
    while macro.desk.open_rows:
        macro.step(teacher(macro.desk, rng))
    pair = macro.desk.join()
    assert pair is not None
    blocked = walls(macro.desk, pair[0], frozenset(pair[1:]))
    gate = macro.desk.rows[0].gates[0]
    assert blocked.intersects(shapely.Polygon(gate.corners))
    straight = macro.desk.wire_path(
        pair, {"side_a": 0, "side_b": 0, "out_a": 9.0, "out_b": 9.0, "bend_at": 0.5, "bend_off": 9.0}
    )
    macro.desk.wires.append(straight)
    ribbon = shapely.LineString(straight.points).buffer(straight.width / 2)
    if blocked.intersects(ribbon):
        assert not sound(macro.desk, straight)


def test_rectangle_teacher() -> None:
    env = DenseCredit(fet_rectangle(level="L1"), cost=0.0)
    env.reset(seed=0)
    observations, actions, share = collect_rectangles(env, 120)
    assert share > 0.5
    assert observations.shape[0] == actions.shape[0] > 50
    assert np.abs(actions).max() <= 1.0


@pytest.mark.parametrize(("name", "make"), [("fet-macro", fet_macro), ("fet-rectangle", fet_rectangle)])
def test_presets_train_for_a_few_steps(name: str, make: Any, tmp_path: Any) -> None:
    from edagym.baselines.rl.trainer import train

    changes = ["n_envs=2", "hyperparameters.n_steps=32", "hyperparameters.batch_size=32", "hyperparameters.n_epochs=1"]
    changes += ["total_steps=64", "checkpoint_every=64", "env_kwargs.pool=2", "warm_start=null"]
    hashes = []
    for run in ("a", "b"):
        train(load_preset(name, changes), tmp_path / run)
        hashes.append(load_policy(tmp_path / run).metadata["hash"])
    assert hashes[0] == hashes[1]


def test_pool_repeats_tasks_and_obeys_the_seed() -> None:
    ids = []
    for _ in range(2):
        env = fet_macro(level="L1", pool=3, fresh=0.0)
        seen = []
        for i in range(12):
            env.reset(seed=5 if i == 0 else None)
            seen.append(cast(TransistorMacro, env).base.task.id)
        assert len(set(seen)) == 3
        ids.append(seen)
    assert ids[0] == ids[1]


@pytest.mark.skipif("fet-macro" not in shipped_names(), reason="no shipped policy")
def test_shipped_policy_is_small_and_has_a_card() -> None:
    for name in ("fet-macro", "fet-rectangle"):
        assert (SHIPPED / f"{name}.npz").stat().st_size <= 2_000_000
        card = (SHIPPED / f"{name}.md").read_text(encoding="utf-8")
        metadata = load_policy(name).metadata
        assert metadata["hash"][:12] in card
        assert f"edagym train {name}" in card


@pytest.mark.skipif("fet-macro" not in shipped_names(), reason="no shipped policy")
def test_shipped_policy_solves_simple_tasks() -> None:
    """Through the harness's own handle: typed edits on base environments, no wrapper, no privilege."""
    policy = RLPolicy("fet-macro")
    assert not policy.privileged
    passed = 0
    for k, task_id in enumerate(("L1/case_3", "L1/case_4", "L1/case_7", "L2/case_22", "L3/case_4", "L4/case_37")):
        env = FETEnv(tasks=[task_id])
        observation, info = env.reset(seed=k)
        policy.bind(Attempt(env, seed=k))
        while not env.ended:
            observation, _, _, _, info = env.step_any(policy.act(observation, info))
        passed += bool(info["is_success"])
    assert passed >= 4


def test_traces_of_the_shipped_policy_replay() -> None:
    if "fet-macro" not in shipped_names():
        pytest.skip("no shipped policy")
    policy = RLPolicy("fet-macro")
    env = FETEnv(tasks=["L2/case_8"])
    observation, info = env.reset(seed=0)
    policy.bind(Attempt(env, seed=0))
    while not env.ended:
        observation, _, _, _, info = env.step_any(policy.act(observation, info))
    other = FETEnv(tasks=["L2/case_8"])
    other.reset(seed=1)
    last = other.replay(step["action"] for step in env.trace()["steps"])[-1]
    assert last[4]["is_success"] == info["is_success"]
    assert other.layout == env.layout


def test_factories_wrap_a_given_base() -> None:
    base = cast(gym.Env[Any, Any], FETEnv("FET-L1"))
    assert fet_macro(base=base).unwrapped is base
    assert fet_rectangle(base=base).unwrapped is base
