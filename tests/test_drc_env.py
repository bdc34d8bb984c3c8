"""The DRC environment: Gymnasium's checks, actions, budget, checks, snapshots, undo, determinism, pictures."""

from __future__ import annotations

import dataclasses
import json
import pickle
import warnings

import gymnasium as gym
import klayout.db as kdb
import numpy as np
import pytest
from drc_cases import bars, block_task, make_task
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env, data_equivalence
from hypothesis import given, settings
from hypothesis import strategies as st

from edagym.envs.drc.env import DRCEnv
from edagym.envs.drc.observation import SHAPE_POINTS, VIOLATION_POINTS
from edagym.errors import EditError, TaskError
from edagym.spaces.actions import Command
from edagym.spaces.drc_actions import (
    OPERATIONS,
    ActionContext,
    DRCActionSpace,
    drc_action_from_json,
    drc_action_to_json,
)
from edagym.spaces.drc_edits import (
    MAX_COORD,
    ORIENTATIONS,
    AddShape,
    ChangeShape,
    Delete,
    Move,
    MoveCell,
    MoveEdge,
    Replace,
    Resize,
    ShapeRef,
)
from edagym.spaces.drc_queries import KINDS, LEVELS, Query
from edagym.verifiers.drc import DRCLayout, full_check, load_table

TABLE = load_table()
SLIVER = ((-400, 0), (-400, 30), (-390, 30), (-390, 0))
REPAIR = ChangeShape("M3", ShapeRef(points=SLIVER), Delete())
LONER = AddShape("M3", ((-400, 400), (-400, 410), (-390, 410), (-390, 400)))


@pytest.fixture(scope="module")
def task():
    return block_task()


@pytest.fixture
def env(task):
    env = DRCEnv(tasks=[task, make_task(bars(10))], on_tool_error="raise", criterion="paper")
    env.reset(seed=0, options={"task": task.id})
    return env


# -- Gymnasium ---------------------------------------------------------------------------------------------------------


def test_check_env_without_a_warning(task, tmp_path, monkeypatch):
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    task.save(tmp_path)
    gym.register("DRCCheck-v0", entry_point="edagym.envs.drc.env:DRCEnv", kwargs={"suite": str(tmp_path)})
    try:
        env = gym.make("DRCCheck-v0", render_size=[96, 96])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            check_env(env.unwrapped)
        env.close()
    finally:
        gym.registry.pop("DRCCheck-v0")


def test_spec_and_vectors(task, tmp_path):
    task.save(tmp_path / "q1")
    gym.register("DRCSpec-v0", entry_point="edagym.envs.drc.env:DRCEnv", kwargs={"suite": str(tmp_path)})
    try:
        env = gym.make("DRCSpec-v0", budget=5)
        again = gym.make(EnvSpec.from_json(env.spec.to_json()))
        assert data_equivalence(env.reset(seed=5), again.reset(seed=5), exact=True)
        assert again.unwrapped.budget == 5
        for mode in ("sync", "async"):
            envs = gym.make_vec("DRCSpec-v0", num_envs=2, vectorization_mode=mode, budget=3)
            try:
                observation, info = envs.reset(seed=1)
                assert observation in envs.observation_space
                assert info["n_violations"].tolist() == [task.total] * 2
                action = envs.action_space.sample()
                action["op"][:] = 0
                for _ in range(3):
                    observation, _, _, truncated, info = envs.step(action)
                assert observation in envs.observation_space
                assert truncated.all()
                assert info["ended"].tolist() == ["budget"] * 2
            finally:
                envs.close()
    finally:
        gym.registry.pop("DRCSpec-v0")


def test_all_tasks_share_the_spaces(task):
    one, two = DRCEnv(tasks=[task]), DRCEnv(tasks=[make_task(bars(10))])
    assert one.observation_space == two.observation_space
    assert one.action_space == two.action_space


def test_unknown_tasks(env, tmp_path):
    with pytest.raises(TaskError, match="no such task"):
        env.reset(options={"task": "Essential-L9/q1"})
    with pytest.raises(TaskError):
        DRCEnv(suite="DRC-Fun")
    with pytest.raises(TaskError, match="no task folders"):
        DRCEnv(suite=str(tmp_path))
    with pytest.raises(TaskError):
        DRCEnv(tasks=[])
    with pytest.raises(ValueError, match="render_size"):
        DRCEnv(tasks=[make_task(bars(10))], render_size=(2048, 10))


# -- the episode -------------------------------------------------------------------------------------------------------


def test_a_repair_ends_the_episode(env, task):
    observation, info = env.observe()
    assert (info["n_violations"], info["vrr"], env.budget) == (task.total, 0.0, 8)
    assert observation["last_vrr"].tolist() == [-1.0]
    _, reward, terminated, truncated, info = env.step_edit(REPAIR)
    assert (reward, terminated, truncated, info["n_violations"]) == (0.0, False, False, task.total)
    observation, reward, terminated, truncated, info = env.step_edit(Command.VERIFY)
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert (info["is_success"], info["n_violations"], info["vrr"], info["charged"]) == (True, 0, 1.0, 2)
    assert info["text"] == "No violations.\n"
    assert observation["n_violations"].tolist() == [0]
    assert observation["selected"].tolist() == [-1]
    assert (observation["violation_rule"] == -1).all()
    assert env.verdict.metrics["vrr"] == 1.0


def test_strict_is_the_default(task):
    env = DRCEnv(tasks=[task], on_tool_error="raise")
    env.reset()
    env.step_edit(REPAIR)
    _, reward, terminated, _, info = env.step_edit(Command.VERIFY)
    # Deleting the sliver takes all of a piece of M3 away: legal for the paper's criterion, bounded by ours.
    assert (reward, terminated) == (0.0, False)
    assert (info["verdict"]["paper"], info["verdict"]["strict"]) == (1, 0)
    assert "strict_area_kept" in info["verdict"]["failed"]


def test_a_check_reports_what_is_left_and_new(env, task):
    env.step_edit(LONER)
    _, reward, terminated, _, info = env.step_edit(Command.VERIFY)
    assert (reward, terminated) == (0.0, False)
    assert info["n_violations"] > task.total
    assert info["vrr"] == 0.0
    assert len(env.report) == info["n_violations"]
    assert "M3.A.1" in info["text"]
    observation, _ = env.observe()
    assert observation["counts"].sum() == observation["n_violations"][0] == info["n_violations"]


def test_incremental_equals_full(env):
    rng = np.random.default_rng(5)
    for _ in range(6):
        x, y = (int(v) for v in rng.integers(0, 2000, 2))
        w, h = (int(v) for v in rng.integers(20, 200, 2))
        layer = ("M1", "M2", "M3", "V1")[int(rng.integers(4))]
        env.step_edit(AddShape(layer, ((x, y), (x, y + h), (x + w, y + h), (x + w, y))))
    assert env._ready.markers() == full_check(env.layout, TABLE).markers


@pytest.mark.parametrize("level", ["L1", "L3"])
def test_every_action_costs_and_the_budget_ends(level):
    task = make_task(bars(10), level=level, budget={"L1": 8, "L3": 16}[level])
    env = DRCEnv(tasks=[task])
    env.reset()
    query = Query("first", "edge", ((1040, 500), (1040, 700)))
    actions = [query, Command.VERIFY, AddShape("M7", ((0, 0), (0, 1), (1, 1))), query]
    for i in range(task.budget):
        _, reward, terminated, truncated, info = env.step_edit(actions[i % 4])
        assert info["budget_left"] == task.budget - i - 1
        assert bool(info["edit_error"]) == (i % 4 == 2)
    assert (terminated, truncated, reward, info["ended"]) == (False, True, 0.0, "budget")
    assert not info["is_success"]
    with pytest.raises(gym.error.ResetNeeded):
        env.step_edit(query)


def test_submit_runs_the_final_check(env):
    env.step_edit(REPAIR)
    _, reward, terminated, truncated, info = env.step_edit(Command.SUBMIT)
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert (info["charged"], info["ended"], info["n_violations"], info["vrr"]) == (1, "submit", 0, 1.0)


def test_region_of_interest():
    task = make_task(bars(10), roi=(1.0, 0.4, 1.2, 0.8))
    env = DRCEnv(tasks=[task], criterion="paper")
    observation, _ = env.reset()
    assert observation["has_roi"].tolist() == [1]
    assert observation["roi"] == pytest.approx(task.roi)
    env.step_edit(LONER)  # a violation outside the region
    info = env.step_edit(Command.VERIFY)[4]
    assert info["n_violations"] == task.total


def test_refused_edits_leave_the_layout(env):
    before = env.layout.to_bytes()
    bad = [
        AddShape("NONE", SLIVER),
        AddShape("M3", ((0, 0), (10, 10), (0, 10))),
        AddShape("M3", SLIVER, "NOWHERE"),
        AddShape("M3", ((10**6, 0), (10**6, 9), (10**6 + 9, 9), (10**6 + 9, 0))),
        ChangeShape("M3", ShapeRef(points=((0, 0), (0, 7), (7, 7), (7, 0))), Delete()),
        MoveCell("NOWHERE", (0, 0), (1, 1)),
    ]
    for edit in bad:
        observation, _, _, _, info = env.step_edit(edit)
        assert info["edit_error"]
        assert observation["last_edit_error"].tolist() == [1]
    assert env.layout.to_bytes() == before
    assert env.edits == ()


def test_queries_answer_and_select(env):
    violation = env.context.violations[-1]
    action = env.action_space.blank() | {"op": np.int64(3), "violation": np.int64(len(env.context.violations))}
    observation, _, _, _, info = env.step(action)
    assert info["text"].startswith(f"first level, {violation.kind} in cell block")
    assert "M3 in block" in info["text"]
    assert observation["selected"].tolist() == [len(env.context.violations) - 1]
    info = env.step_edit(Query("first", "edge", ((0, 0), (0, 1)), "NOWHERE"))[4]
    assert info["text"] == ""
    assert "unknown cell" in info["edit_error"]
    assert env.step_edit(LONER)[4]["text"] == ""


def test_observation_shows_the_cause(env):
    observation, _ = env.observe()
    rows = [i for i in range(128) if observation["shape_distance"][i] == 0]
    names = list(TABLE.layers)
    shown = {(names[observation["shape_layer"][i]], observation["shape_cell"][i]) for i in rows}
    assert ("M3", 0) in shown
    i = next(i for i in rows if names[observation["shape_layer"][i]] == "M3")
    n = observation["shape_n_points"][i]
    assert tuple(map(tuple, observation["shape_points"][i, :n].tolist())) == SLIVER
    box = observation["violation_box"][0]
    size = (box[2] - box[0]) * observation["dbu_nm"][0]
    local = observation["violation_local"][0, : observation["violation_n_points"][0], 0]
    assert np.ptp(local) == pytest.approx(size)
    assert local.mean() == pytest.approx(0, abs=1e-3)
    distances = observation["shape_distance"][observation["shape_layer"] >= 0]
    assert (np.diff(distances) >= 0).all()


def test_pointing_at_a_listed_shape(env):
    shapes = env.context.shapes
    k = next(i for i, s in enumerate(shapes) if s.layer == "M3" and s.points == SLIVER)
    delete = env.action_space.blank() | {"op": np.int64(1), "target": np.int64(k + 1), "change": np.int64(4)}
    assert env.action_space.to_edit(delete, env.context) == REPAIR
    env.step(delete)
    assert env.edits == (REPAIR,)


def test_many_points_are_shown_as_a_box():

    layout = DRCLayout.from_bytes(bars(10))
    comb = kdb.Region()
    comb.insert(kdb.Box(1000, 705, 1400, 723))
    for i in range(20):
        comb.insert(kdb.Box(1000 + 20 * i, 705, 1010 + 20 * i, 760))
    layout.top.shapes(layout.layout.layer(19, 0)).insert(comb.merged()[0])
    task = make_task(layout.to_bytes(), "Essential-L1/q9")
    observation, _ = DRCEnv(tasks=[task]).reset()
    i = int(np.argmax(observation["shape_n_points"]))
    assert observation["shape_n_points"][i] > SHAPE_POINTS
    assert observation["shape_points"][i, :4].tolist() == [[1000, 705], [1000, 760], [1400, 760], [1400, 705]]
    assert (observation["shape_points"][i, 4:] == 0).all()
    assert VIOLATION_POINTS <= SHAPE_POINTS


# -- snapshots, undo, traces -------------------------------------------------------------------------------------------


def test_snapshot_and_restore(env):
    env.step_edit(LONER)
    env.step_edit(Command.VERIFY)
    before = env.observe()
    snapshot = json.loads(json.dumps(env.snapshot()))
    env.step_edit(REPAIR)
    env.step_edit(Command.VERIFY)
    after = env.observe()
    assert not data_equivalence(before, after, exact=True)
    assert data_equivalence(env.restore(snapshot), before, exact=True)
    assert env.edits == (LONER,)
    other = DRCEnv(tasks=[make_task(bars(30, 20))], criterion="paper")
    assert data_equivalence(other.restore(snapshot), before, exact=True)
    env.step_edit(REPAIR)
    env.step_edit(Command.VERIFY)
    assert data_equivalence(env.observe(), after, exact=True)
    env.restore(snapshot, keep_charges=True)
    assert env.budget_left == 4


@pytest.mark.parametrize("change", [{"layout": None}, {"task": {}}, {"schema_version": 0}, {"layout": {"edits": [1]}}])
def test_malformed_snapshots(env, change):
    with pytest.raises(TaskError):
        env.restore({**env.snapshot(), **change})
    with pytest.raises(gym.error.ResetNeeded):
        _ = env.task


def test_snapshot_of_a_changed_task(env):
    snapshot = env.snapshot()
    snapshot["task"] = {**snapshot["task"], "gds": "!", "digest": ""}
    with pytest.raises(TaskError, match="snapshot"):
        env.restore(snapshot)


def test_undo(env):
    first = env.observe()[0]
    env.step_edit(LONER)
    mid = env.layout.to_bytes()
    env.step_edit(Query("first", "edge", ((0, 0), (0, 1))))
    env.step_edit(REPAIR)
    env.undo()
    assert env.edits == (LONER,)
    assert env.layout.to_bytes() == mid
    assert env.budget_left == 5
    assert [s["action"]["op"] for s in env.trace()["steps"]] == ["add_shape"]
    observation, info = env.undo()
    assert info["edit_error"] == ""
    assert (observation["shape_points"] == first["shape_points"]).all()
    with pytest.raises(EditError, match="no edit to undo"):
        env.undo()
    env.step_edit(Command.SUBMIT)
    with pytest.raises(EditError, match="over"):
        env.undo()


def test_trace_replays(env, task, tmp_path):
    env.step_edit(LONER)
    env.step_any({"op": "query", "kind": "edge", "points": [[0, 0], [0, 1]]})
    env.step_any(
        {"op": "change_shape", "layer": "M3", "shape": {"points": [list(p) for p in SLIVER]}, "change": "delete"}
    )
    env.step_any({"op": "check"})
    trace = env.trace()
    env.save_trace(tmp_path / "t.json")
    assert json.loads((tmp_path / "t.json").read_text()) == trace
    last = env.observe()
    env.replay([s["action"] for s in trace["steps"]])
    assert data_equivalence(env.observe()[0], last[0], exact=True)
    assert env.trace() == trace


def test_reset_after_a_long_episode_is_the_first_state(env, task):
    first = env.reset(options={"task": task.id})
    for edit in (LONER, REPAIR):
        env.step_edit(edit)
    env.step_edit(Command.VERIFY)
    assert data_equivalence(env.reset(options={"task": task.id}), first, exact=True)
    fresh = DRCEnv(tasks=[task], criterion="paper")
    assert data_equivalence(fresh.reset(), first, exact=True)


def test_pickle_in_the_middle(env):
    env.step_edit(LONER)
    twin = pickle.loads(pickle.dumps(env))
    for action in (Query("second", "edge", ((0, 0), (0, 9))), REPAIR, Command.VERIFY, Command.SUBMIT):
        if env.ended:
            break
        assert data_equivalence(env.step_edit(action), twin.step_edit(action), exact=True)
    assert data_equivalence(env.reset(), twin.reset(), exact=True)


def test_sampled_actions_are_deterministic_and_never_crash(task):
    def episode(seed):
        env = DRCEnv(tasks=[task, make_task(bars(10))])
        out = [env.reset(seed=seed)]
        env.action_space.seed(seed)
        while not env.ended:
            out.append(env.step(env.action_space.sample()))
            assert out[-1][0] in env.observation_space
        return out

    for seed in range(4):
        assert data_equivalence(episode(seed), episode(seed), exact=True)


def test_layout_without_markers_is_checked_once():
    plain = dataclasses.replace(make_task(bars(10)), markers=None)
    env = DRCEnv(tasks=[plain])
    env.reset()
    assert env.step_edit(Command.VERIFY)[4]["n_violations"] == plain.total


@pytest.mark.parametrize(
    ("field", "value", "match"),
    [
        ("gds", b"junk", "layout of"),
        ("top", "other", "top cell"),
        ("rules", "none", "unknown rule table"),
        ("golden", b"junk", "golden layout of"),
        ("markers", (("X.1", "edge", ((0, 0, 1, 1),), True, 1),), "unknown rule"),
    ],
)
def test_bad_tasks(field, value, match):
    def episode(env):
        env.reset()
        env.step_edit(Command.VERIFY)

    env = DRCEnv(tasks=[dataclasses.replace(make_task(bars(10)), **{field: value})])
    with pytest.raises(TaskError, match=match):
        episode(env)


# -- pictures and texts ------------------------------------------------------------------------------------------------


def test_pictures(task):
    env = DRCEnv(tasks=[task], render_mode="rgb_array", render_size=(120, 90))
    env.reset()
    one = env.render()
    assert (one.shape, one.dtype) == ((90, 120, 3), np.uint8)
    red = (one == (0xD0, 0, 0)).all(axis=-1)
    assert red.any()
    env.step_edit(AddShape("M3", ((-700, 300), (-700, 600), (-500, 600), (-500, 300))))
    assert (env.render() != one).any()
    env.undo()
    assert (env.render() == one).all()
    env.step_edit(REPAIR)
    env.step_edit(Command.VERIFY)
    assert not (env.render() == (0xD0, 0, 0)).all(axis=-1).any()


def test_ansi(task):
    env = DRCEnv(tasks=[task], render_mode="ansi")
    env.reset()
    assert f"{task.total} of {task.total} violations left" in env.render()


def test_prompt(env, task):
    assert task.violations[0].values[0] in env.prompt
    assert "add_shape" in env.prompt
    assert "golden" not in env.prompt


# -- the action space --------------------------------------------------------------------------------------------------

CONTEXT = ActionContext(("M1", "V1", "M2"), ("", "A", "B"))
coordinate = st.integers(-MAX_COORD, MAX_COORD)
point = st.tuples(coordinate, coordinate)
rings = st.lists(point, min_size=1, max_size=12).map(tuple)
layer = st.sampled_from(CONTEXT.layers)
cell = st.sampled_from(CONTEXT.cells)
boxes = st.tuples(coordinate, coordinate, coordinate, coordinate).map(
    lambda b: (min(b[0], b[2]), min(b[1], b[3]), max(b[0], b[2]), max(b[1], b[3]))
)
refs = st.one_of(
    rings.map(lambda r: ShapeRef(points=r)),
    boxes.map(lambda b: ShapeRef(box=b)),
    st.integers(0, 10_000).map(lambda i: ShapeRef(index=i)),
)
changes = st.one_of(
    st.builds(Move, coordinate, coordinate),
    st.builds(MoveEdge, st.integers(0, 255), coordinate),
    st.builds(Resize, coordinate, coordinate, coordinate, coordinate),
    rings.map(Replace),
    st.just(Delete()),
)
subsets = st.sets(layer).map(lambda s: tuple(n for n in CONTEXT.layers if n in s))
queries = st.sampled_from([("edge", 2), ("edge_pair", 4), ("polygon", 5)]).flatmap(
    lambda k: st.builds(
        lambda level, points, where, direct, near, start, count: Query(
            level, k[0], points, where, direct, near, start, start + count
        ),
        st.sampled_from(LEVELS),
        st.lists(point, min_size=k[1], max_size=k[1]).map(tuple),
        cell,
        subsets,
        subsets,
        st.integers(0, 1000),
        st.integers(1, 200),
    )
)
actions = st.one_of(
    st.builds(AddShape, layer, rings, cell),
    st.builds(ChangeShape, layer, refs, changes, cell),
    st.builds(MoveCell, st.sampled_from(("A", "B")), point, point, st.sampled_from(("", *ORIENTATIONS)), cell),
    queries,
    st.sampled_from((Command.VERIFY, Command.SUBMIT)),
)
SPACE = DRCActionSpace()


@given(actions)
@settings(max_examples=200, deadline=None)
def test_actions_go_both_ways(action):
    arrays = SPACE.from_edit(action, CONTEXT)
    assert arrays in SPACE
    assert SPACE.to_edit(arrays, CONTEXT) == action
    data = drc_action_to_json(action)
    assert drc_action_from_json(json.loads(json.dumps(data))) == action


@given(st.integers(0, 2**31))
@settings(max_examples=50, deadline=None)
def test_sampled_actions_are_read_or_refused(seed):
    SPACE.seed(seed)
    sample = SPACE.sample()
    try:
        action = SPACE.to_edit(sample, CONTEXT)
    except EditError:
        return
    assert drc_action_to_json(action)["op"] == OPERATIONS[sample["op"]]


@pytest.mark.parametrize(
    "edit",
    [
        AddShape("M9", SLIVER),
        AddShape("M1", SLIVER, "NOWHERE"),
        AddShape("M1", ((0, 2**40),)),
        AddShape("M1", ((0, 0),) * 257),
        ChangeShape("M1", ShapeRef(index=10**9), Delete()),
        ChangeShape("M1", ShapeRef(index=1), MoveEdge(300, 1)),
        ChangeShape("M1", ShapeRef(index=1), Move(2**40, 1)),
        MoveCell("A", (0, 0), (1, 1), "r45"),
        Command.DECLARE_INFEASIBLE,
    ],
)
def test_what_does_not_fit_is_refused(edit):
    with pytest.raises(EditError):
        SPACE.from_edit(edit, CONTEXT)


@pytest.mark.parametrize(
    "change",
    [
        {"op": 99},
        {"op": -1},
        {"op": "x"},
        {"layer": 3},
        {"cell": 3},
        {"n_points": 400},
        {"points": None},
        {"points": np.full((256, 2), np.nan)},
        {"op": 1, "target": 1},
        {"op": 1, "change": 7},
        {"op": 1, "by": [1]},
        {"op": 3, "violation": 1},
        {"op": 3, "kind": 0, "n_points": 0},
    ],
)
def test_malformed_arrays(change):
    action = SPACE.blank() | {"n_points": 4} | change
    with pytest.raises(EditError):
        SPACE.to_edit(action, CONTEXT)
    with pytest.raises(EditError):
        SPACE.to_edit({}, CONTEXT)
    with pytest.raises(EditError):
        SPACE.to_edit(None, CONTEXT)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"op": "fly"}', '{"op": 3}', "[" * 100_000, '{"op": "declare_infeasible"}']
)
def test_malformed_json(text):
    with pytest.raises(EditError):
        SPACE.from_json(text, CONTEXT)


def test_kinds_agree():
    from edagym.task_assets.drc.task import MARKER_KINDS

    assert set(KINDS) == set(MARKER_KINDS)
