"""Transistor macros and rectangles as actions: typed edits out, fixed-shape observations in, nothing privileged."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import edagym
from edagym.envs.fet.env import FETEnv
from edagym.spaces.actions import Command
from edagym.spaces.edits import AddPath, AddPolygon, Cut
from edagym.wrappers.core import is_privileged
from edagym.wrappers.fet_features import SIZE
from edagym.wrappers.fet_macro import (
    COMPONENTS,
    FOCUS,
    JOIN,
    PLACE,
    SELECT,
    SUBMIT,
    UNDO,
    UNWIRE,
    VALUES,
    VERIFY,
    Desk,
    Rules,
    TransistorMacro,
)
from edagym.wrappers.fet_rectangle import FIELDS, LENGTH_UM, RegionRectangle, to_log

NAMES = list(COMPONENTS)


def _base(env_id: str = "FET-L2-v0", **kwargs: Any) -> gym.Env[Any, Any]:
    edagym.register_all()
    return gym.make(env_id, disable_env_checker=True, **kwargs)


def _action(**levels: int) -> np.ndarray:
    """An action with middle-of-the-road sizes."""
    chosen = {
        "gap_source": 2,
        "gap_drain": 2,
        "contact_share": 2,
        "lateral": 3,
        "tilt": 2,
        "overhang": 1,
        "gate_extra": 1,
    }
    chosen |= {"contact_extra": 2, "advance": 3, "bend_off": 5} | levels
    return np.array([chosen.get(name, 0) for name in NAMES])


def _random(env: TransistorMacro, rng: np.random.Generator, share: int | None = 1) -> np.ndarray:
    action = []
    for name in NAMES:
        levels = env.desk.levels(name)
        action.append(int(rng.choice(levels)))
    if share is not None and share in env.desk.levels("share"):
        action[NAMES.index("share")] = share
    return np.array(action)


@pytest.mark.parametrize("actions", ["discrete", "box"])
def test_checkers_are_clean(actions: Any) -> None:
    from gymnasium.utils.env_checker import check_env as gymnasium_check

    sb3 = pytest.importorskip("stable_baselines3.common.env_checker")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Gymnasium's checker warns of every wrapper; the wrapped environment is what is meant here.
        warnings.filterwarnings("ignore", ".*is different from the unwrapped version.*")
        for env in (TransistorMacro(_base(), actions), RegionRectangle(_base())):
            sb3.check_env(env)
            gymnasium_check(env, skip_render_check=True)


def test_nothing_is_privileged() -> None:
    assert not is_privileged(TransistorMacro(_base()))
    assert not is_privileged(RegionRectangle(_base()))


def test_one_transistor_step_by_step() -> None:
    env = TransistorMacro(_base("FET-L1-v0"))
    observation, _ = env.reset(options={"task": "L1/case_4"}, seed=0)
    assert observation.shape == (SIZE,)
    assert env.desk.allowed() == (FOCUS,)
    _, _, _, _, info = env.step(_action(op=FOCUS))
    assert info["n_edits"] == 0
    assert info["charged"] == 0
    assert env.desk.allowed() == (SELECT,)
    env.step(_action(op=SELECT, branch=0))
    assert env.desk.allowed() == (PLACE,)
    _, _, _, _, info = env.step(_action(op=PLACE))
    layers = [spec.name for spec in env.base.view.editable_layers]
    # Two contacts with a via each, and a gate.
    assert info["n_edits"] == 5
    assert {name: len(env.base.layout.shapes(name)) for name in layers} == {"contacts": 2, "gate": 1, "via": 2}
    assert set(env.desk.allowed()) == {VERIFY, SUBMIT}
    _, _, terminated, _, info = env.step(_action(op=SUBMIT))
    assert terminated
    assert info["ended"] == "submit"


def test_layers_parameter_leaves_layers_out() -> None:
    counts = {}
    for layers in range(3):
        env = TransistorMacro(_base("FET-L1-v0"))
        env.reset(options={"task": "L1/case_1"})
        for op in (FOCUS, SELECT, PLACE):
            info = env.step(_action(op=op, layers=layers))[4]
        counts[layers] = info["n_edits"]
    assert counts == {0: 7, 1: 5, 2: 3}


def test_shared_contacts_make_a_row() -> None:
    env = TransistorMacro(_base("FET-L3-v0"))
    env.reset(options={"task": "L3/case_7"}, seed=0)
    env.step(_action(op=FOCUS))
    env.step(_action(op=SELECT))
    for _ in range(4):
        env.step(_action(op=PLACE, share=1))
    row = env.desk.rows[0]
    assert (len(row.contacts), len(row.gates)) == (5, 4)
    assert env.desk.focus is None
    # Elements follow each other along the curve without overlap.
    assert row.cursor > 4 * env.desk.rules.pitch


def test_macros_neither_search_nor_check() -> None:
    """What does not fit is drawn all the same, where the numbers put it."""
    env = TransistorMacro(_base("FET-L3-v0"))
    env.reset(options={"task": "L3/case_7"}, seed=0)
    env.step(_action(op=FOCUS))
    env.step(_action(op=SELECT, branch=0))
    far = len(VALUES["advance"]) - 1
    for _ in range(4):
        env.step(_action(op=PLACE, advance=far, gap_source=9, gap_drain=9))
    assert env.desk.rows[0].complete
    info = env.step(_action(op=VERIFY))[4]
    assert not info["is_success"]
    assert env.desk.rows[0].status == 0


def test_undo_removes_one_row_only() -> None:
    env = TransistorMacro(_base("FET-L2-v0"))
    env.reset(options={"task": "L2/case_8"}, seed=0)
    rng = np.random.default_rng(0)
    before: dict[str, Any] = {}
    for k in range(4):
        if k == 3:
            before = {s.name: env.base.layout.region(s.name) for s in env.base.view.editable_layers}
        for op in (FOCUS, SELECT, PLACE):
            action = _random(env, rng)
            action[0], action[NAMES.index("region")] = op, k
            env.step(action)
    env.step(_action(op=VERIFY))
    env.desk.rows[3].status = 0
    assert UNDO in env.desk.allowed()
    assert env.desk.levels("undo_region")[-1] == 3
    env.step(_action(op=UNDO, undo_region=3))
    layout = env.base.layout
    for name, region in before.items():
        assert (layout.region(name) ^ region).sized(-2).is_empty(), name
    assert env.desk.open_rows == [3]
    assert env.desk.rows[3].tries == 1


def test_join_and_unwire() -> None:
    env = TransistorMacro(_base("FET-L3-v0", budget=200, stop_on_success=False))
    env.reset(options={"task": "L3/case_25"}, seed=0)
    for k in range(2):
        for op in (FOCUS, SELECT, PLACE):
            env.step(_action(op=op, region=k, branch=6))
    assert JOIN in env.desk.allowed()
    contacts = env.base.layout.region("contacts")
    env.step(_action(op=JOIN, side_a=3, side_b=2, bend_off=2))
    assert env.desk.join() is None
    assert env.base.layout.region("contacts").area() > contacts.area()
    assert env.desk.allowed() == (VERIFY, SUBMIT)
    env.step(_action(op=VERIFY))
    env.desk.wire_suspect = True
    assert JOIN not in env.desk.allowed()
    env.step(_action(op=UNWIRE))
    assert (env.base.layout.region("contacts") ^ contacts).sized(-2).is_empty()
    assert env.desk.join() is not None


def _play(env: TransistorMacro, seed: int, steps: int = 200) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    observation, info = env.reset(seed=seed)
    for _ in range(steps):
        masks = env.action_masks()
        at = 0
        for n in COMPONENTS.values():
            assert masks[at : at + n].any()
            at += n
        assert observation in env.observation_space
        observation, _, terminated, truncated, info = env.step(_random(env, rng))
        if terminated or truncated:
            break
    return info


@pytest.mark.parametrize("level", ["L1", "L2", "L3", "L4"])
def test_traces_replay_on_the_base_environment(level: str) -> None:
    env = TransistorMacro(_base("FET-Train-v0", level=level))
    for seed in range(2):
        info = _play(env, seed)
        assert info["ended"]
        trace = env.base.trace()
        plain = FETEnv(tasks=[env.base.task])
        plain.reset()
        results = plain.replay(step["action"] for step in trace["steps"])
        assert results[-1][4]["is_success"] == info["is_success"]
        assert results[-1][4]["verdict"] == info["verdict"]
        assert plain.layout == env.base.layout


def test_boxes_reach_the_same_macros() -> None:
    views = []
    for actions, value in (("discrete", 0), ("box", -1.0)):
        env = TransistorMacro(_base("FET-L1-v0"), actions)  # type: ignore[arg-type]
        env.reset(options={"task": "L1/case_3"}, seed=0)
        for op in (FOCUS, SELECT, PLACE):
            action = np.full(len(NAMES), value)
            if actions == "discrete":
                action[0] = op
            env.step(action)
        views.append(env.base.layout)
    assert views[0] == views[1]


def test_random_boxes_run() -> None:
    env = TransistorMacro(_base("FET-Train-v0", level="L4"), "box")
    env.action_space.seed(0)
    env.reset(seed=3)
    for _ in range(150):
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()


def test_edits_are_typed() -> None:
    env = TransistorMacro(_base("FET-Train-v0", level="L4"))
    env.reset(seed=5)
    rng = np.random.default_rng(5)
    for _ in range(60):
        edits = env.to_edits(_random(env, rng))
        assert all(isinstance(e, (AddPolygon, AddPath, Cut, Command)) for e in edits)
        if Command.SUBMIT in edits:
            break
        for edit in edits:
            env.base.step_edit(edit)


def test_rules_are_read_from_the_view() -> None:
    env = _base("FET-L1-v0")
    env.reset(options={"task": "L1/case_4"})
    rules = Rules.of(env.unwrapped.view)  # type: ignore[attr-defined]
    assert (rules.gate_width, rules.spacing, rules.separation, rules.enclosure) == (1.0, 0.2, 0.2, 0.5)
    assert rules.least_contact == pytest.approx(2 * 0.52 + 0.2)


def test_observation_depends_on_the_flakes_frame_only() -> None:
    """Moving a whole scene leaves the observation as it is."""
    env = _base("FET-L1-v0")
    env.reset(options={"task": "L1/case_3"})
    task = env.unwrapped.task  # type: ignore[attr-defined]
    from dataclasses import replace

    moved = replace(
        task.regions[0],
        hull=tuple((x + 7.0, y + 3.0) for x, y in task.regions[0].hull),
    )
    seen = []
    for t in (task, replace(task, regions=(moved,))):
        wrapped = TransistorMacro(FETEnv(tasks=[t]))
        wrapped.reset()
        wrapped.step(_action(op=FOCUS))
        seen.append(wrapped.step(_action(op=SELECT, branch=6))[0])
    np.testing.assert_allclose(seen[0], seen[1], atol=1e-3)


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="actions"):
        TransistorMacro(_base(), "text")  # type: ignore[arg-type]


def test_rectangles() -> None:
    env = RegionRectangle(_base("FET-L1-v0"))
    env.reset(options={"task": "L1/case_3"}, seed=0)
    assert len(FIELDS) == 8
    action = np.array([-1, -1, -1, 0, 0, to_log(1.0, LENGTH_UM), 0, 0], np.float32)
    info = env.step(action)[4]
    assert info["n_edits"] == 1
    (ring,) = env.base.layout.shapes("contacts")
    sides = sorted(np.hypot(*np.diff(np.array([*ring, ring[0]]), axis=0).T))
    assert sides[0] == pytest.approx(1000, abs=3) or sides[-1] == pytest.approx(1000, abs=3)
    assert env.sheet.lacking(0) == {"contacts": 1, "gate": 1}
    terminated = env.step(np.ones(8, np.float32))[2]
    assert terminated


def test_desk_is_made_from_the_view_alone() -> None:
    env = _base("FET-L4-v0")
    env.reset(options={"task": "L4/case_19"})
    desk = Desk(env.unwrapped.view)  # type: ignore[attr-defined]
    assert [row.want for row in desk.rows] == [4, 4]
    assert desk.allowed() == (FOCUS,)
