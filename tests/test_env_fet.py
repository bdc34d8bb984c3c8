"""`FETEnv`: episodes, budgets, endings, observations, snapshots, replay, traces, rendering."""

from __future__ import annotations

import copy
import json
import math
import pickle

import gymnasium as gym
import numpy as np
import pytest
from fet_cases import bar_fet, box, draw, make_task
from gymnasium.utils.env_checker import data_equivalence

from edagym.envs.core import SparseReward, load_trace, trace_actions
from edagym.envs.fet.env import MIN_BUDGET, FETEnv
from edagym.envs.fet.observation import CHECK_KINDS
from edagym.errors import TaskError, ToolError
from edagym.spaces import AddPath, AddPolygon, Clear, Command, ContourSpace, Cut, LayoutSpace
from edagym.task_assets.fet import FETTask
from edagym.task_assets.fet.grid import ring_to_um
from edagym.verifiers.fet import FETLayout, FETVerifier, verify
from edagym.verifiers.verdict import Verdict

TASK = make_task()


def edits_of(layout: FETLayout) -> list[AddPolygon]:
    return [AddPolygon(s.name, ring_to_um(r)) for s in layout.layers if s.editable for r in layout.shapes(s.name)]


GOOD = edits_of(bar_fet(TASK))
BAD = GOOD[:-1]  # without the gate


def make_env(**kwargs) -> FETEnv:
    env = FETEnv(tasks=[TASK], **kwargs)
    env.reset(seed=0)
    return env


def run(env: FETEnv, actions):
    result = None
    for action in actions:
        result = env.step_edit(action)
    return result


# -- endings -----------------------------------------------------------------------------------------------------------


def test_the_drawn_cases_are_what_the_tests_take_them_for():
    assert verify(bar_fet(TASK), TASK).strict_success
    assert not verify(draw(TASK, contacts=[box(2, 1, 7, 5), box(13, 1, 18, 5)]), TASK).paper_success


@pytest.mark.parametrize("ending", [Command.VERIFY, Command.SUBMIT, Command.DECLARE_INFEASIBLE])
def test_passing_layout(ending):
    env = make_env()
    _, reward, terminated, truncated, info = run(env, [*GOOD, ending])
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info["is_success"] is True
    assert info["ended"] == ("success" if ending is Command.VERIFY else ending.value)
    assert info["verdict"] == {"paper": 1, "strict": 1, "share_passed": 1.0, "failed": "", "messages": ""}


@pytest.mark.parametrize("ending", [Command.SUBMIT, Command.DECLARE_INFEASIBLE])
def test_failing_layout(ending):
    _, reward, terminated, truncated, info = run(make_env(), [*BAD, ending])
    assert (reward, terminated, truncated, info["is_success"]) == (0.0, True, False, False)
    assert info["verdict"]["paper"] == 0
    assert "transistor_count:flake_1" in info["verdict"]["failed"]
    assert "layer_not_empty" in info["verdict"]["failed"]


def test_failing_verify_goes_on():
    env = make_env()
    _, reward, terminated, truncated, info = run(env, [*BAD, Command.VERIFY])
    assert (reward, terminated, truncated, info["ended"]) == (0.0, False, False, "")
    assert info["charged"] == len(BAD) + 1
    assert 0 < info["verdict"]["share_passed"] < 1
    # The verdict that was paid for stays, also after edits.
    info = run(env, [GOOD[-1]])[4]
    assert info["verdict"]["paper"] == 0
    assert run(env, [Command.VERIFY])[4]["is_success"]


def test_verdicts_are_hidden_until_paid_for():
    env = make_env()
    observation, _, _, _, info = run(env, GOOD)
    assert info["verdict"] == {"paper": -1, "strict": -1, "share_passed": -1.0, "failed": "", "messages": ""}
    assert (observation["last_checks"] == -1).all()
    assert (observation["last_transistors"] == -1).all()
    assert env.verdict is None


def test_without_stop_on_success():
    env = make_env(stop_on_success=False)
    _, reward, terminated, _, info = run(env, [*GOOD, Command.VERIFY])
    assert (reward, terminated, info["is_success"]) == (0.0, False, False)
    _, reward, terminated, _, info = run(env, [Command.SUBMIT])
    assert (reward, terminated, info["is_success"]) == (1.0, True, True)


@pytest.mark.parametrize(("layout", "success"), [(GOOD, True), (BAD, False)])
def test_budget_end_runs_the_final_verifier(layout, success):
    env = make_env(budget=6)
    extra = [Clear("gate")] * (6 - len(layout))
    _, reward, terminated, truncated, info = run(env, [*extra, *layout])
    assert (terminated, truncated, info["ended"]) == (False, True, "budget")
    assert info["is_success"] is success
    assert reward == float(success)
    assert info["budget_left"] == 0


def test_last_unit_spent_on_a_passing_verify_is_a_success():
    env = make_env(budget=len(GOOD) + 1)
    _, _, terminated, truncated, info = run(env, [*GOOD, Command.VERIFY])
    assert (terminated, truncated, info["ended"]) == (True, False, "success")


def test_refused_edits_are_charged_and_reported():
    env = make_env()
    observation, reward, terminated, truncated, info = run(env, [AddPolygon("gate", box(900, 0, 901, 1))])
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert info["edit_error"].startswith("point outside the window")
    assert info["charged"] == 1
    assert observation["last_edit_error"].tolist() == [1]
    observation, *_, info = run(env, [GOOD[0]])
    assert info["edit_error"] == ""
    assert observation["last_edit_error"].tolist() == [0]


def test_undecodable_action_is_refused_and_charged():
    env = make_env()
    action = env.action_space.from_edit(GOOD[0], [s.name for s in TASK.layers])
    action["points"][0, 0] = np.nan
    before = env.layout
    info = env.step(action)[4]
    assert "not finite" in info["edit_error"]
    assert info["charged"] == 1
    assert env.layout == before


def test_step_after_the_end_asks_for_a_reset():
    env = FETEnv(tasks=[TASK])
    with pytest.raises(gym.error.ResetNeeded):
        env.step_edit(GOOD[0])
    env.reset()
    run(env, [Command.SUBMIT])
    with pytest.raises(gym.error.ResetNeeded):
        run(env, [Command.SUBMIT])


def test_default_budget():
    assert make_env().budget == MIN_BUDGET
    data = TASK.to_dict()
    data["metadata"]["reference_edits"] = 33
    env = FETEnv(tasks=[FETTask.from_dict(data)])
    env.reset()
    assert env.budget == 66


@pytest.mark.parametrize(
    "kwargs",
    [
        {"criterion": "loose"},
        {"budget": 1},
        {"budget": 10**6},
        {"budget": 40.5},
        {"render_size": (64, 0)},
        {"render_size": (64,)},
        {"render_size": (64, 10**5)},
        {"reward": "dense"},
        {"render_mode": "gif"},
        {"on_tool_error": "ignore"},
    ],
)
def test_bad_arguments(kwargs):
    with pytest.raises(ValueError, match=next(iter(kwargs))):
        FETEnv(tasks=[TASK], **kwargs)


# -- criterion, reward, tool errors ------------------------------------------------------------------------------------


class FixedVerifier:
    """Stands in for the verifier to separate the two criteria."""

    def __init__(self, result):
        self.result = result
        self.calls = 0

    def verify(self, layout):
        self.calls += 1
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


def with_verifier(monkeypatch, result, **kwargs) -> FETEnv:
    env = make_env(**kwargs)
    monkeypatch.setattr(env._ready, "verifier", FixedVerifier(result))
    return env


@pytest.fixture(autouse=True)
def _own_verifier(monkeypatch):
    """Prepared tasks are shared by the process: put the real verifier back whatever a test did."""
    env = make_env()
    monkeypatch.setattr(env._ready, "verifier", FETVerifier(TASK))


@pytest.mark.parametrize(("criterion", "success"), [("paper", True), ("strict", False)])
def test_criterion_drives_success_and_reward(monkeypatch, criterion, success):
    env = with_verifier(monkeypatch, Verdict(True, False), criterion=criterion)
    _, reward, terminated, _, info = run(env, [Command.VERIFY])
    assert (reward, terminated, info["is_success"]) == (float(success), success, success)
    assert (info["verdict"]["paper"], info["verdict"]["strict"]) == (1, 0)


def test_unchanged_layouts_are_verified_once(monkeypatch):
    env = with_verifier(monkeypatch, Verdict(False, False))
    run(env, [Command.VERIFY, Command.VERIFY, AddPolygon("poly", box(0, 0, 1, 1)), Command.VERIFY])
    assert env._ready.verifier.calls == 1
    run(env, [GOOD[0], Command.VERIFY])
    assert env._ready.verifier.calls == 2


@pytest.mark.parametrize("command", [Command.VERIFY, Command.SUBMIT])
def test_tool_error_truncates_without_a_score(monkeypatch, command):
    env = with_verifier(monkeypatch, ToolError("engine died"))
    _, reward, terminated, truncated, info = run(env, [command])
    assert (terminated, truncated, info["ended"], info["is_success"]) == (False, True, "tool_error", False)
    assert math.isnan(reward), "a tool failure is never a reward of 0"
    assert info["error"] == "engine died"


def test_tool_error_raises_on_request(monkeypatch):
    env = with_verifier(monkeypatch, ToolError("engine died"), on_tool_error="raise")
    with pytest.raises(ToolError, match="engine died"):
        run(env, [Command.SUBMIT])


def test_own_reward_function():
    seen = []

    def reward(before, after, done):
        seen.append((before, after, done))
        return 0.5

    env = make_env(reward=reward)
    assert run(env, [*BAD, Command.VERIFY])[1] == 0.5
    run(env, [Command.SUBMIT])
    (*edits, (b1, a1, d1), (b2, a2, d2)) = seen
    assert all(e == (None, None, False) for e in edits)
    assert (b1, d1) == (None, False)
    assert a1 is b2
    assert d2
    assert a2 == a1


def test_sparse_reward():
    passed, failed = Verdict(True, False), Verdict(False, False)
    assert SparseReward("paper")(None, passed, True) == 1.0
    assert SparseReward("paper")(None, passed, False) == 0.0
    assert SparseReward("strict")(None, passed, True) == 0.0
    assert SparseReward("paper")(passed, failed, True) == 0.0


# -- observations ------------------------------------------------------------------------------------------------------

LAYERS = [s.name for s in TASK.layers]


def assert_observation(env: FETEnv, observation) -> None:
    """The arrays equal what the spaces make of the layout from scratch."""
    assert observation in env.observation_space
    shapes = {n: env.layout.shapes(n) for n in LAYERS if n != "graphene"}
    fresh = LayoutSpace().from_shapes(shapes, LAYERS)
    for key, array in fresh.items():
        assert np.array_equal(observation[key], array), key


def test_observation_follows_every_edit():
    env = make_env()
    rng = np.random.default_rng(0)
    for i in range(30):
        x, y = rng.integers(0, 15, 2)
        layer = ("gate", "contacts")[int(rng.integers(2))]
        edit = (
            AddPolygon(layer, box(x, y, x + 3, y + 2)),
            AddPolygon(layer, ((x, y), (x + 3, y), (x + 1, y + 2))),
            Cut(layer, box(x, y, x + 2, y + 1)),
            AddPath(layer, ((x, y), (x + 3, y), (x + 3, y + 3)), 0.4),
            Clear(layer),
            AddPolygon("graphene", box(0, 0, 1, 1)),
        )[int(rng.choice(6, p=[0.3, 0.25, 0.2, 0.15, 0.05, 0.05]))]
        observation = env.step_edit(edit)[0]
        assert_observation(env, observation)
        assert observation["budget_left"].tolist() == [MIN_BUDGET - i - 1]
    observation, _ = env.reset()
    assert_observation(env, observation)


def test_observation_states_the_task():
    env = FETEnv(tasks=[make_task([(box(0, 0, 20, 6), [box(8, 2, 9, 3)]), (box(0, 10, 20, 16), ())], (3, None))])
    observation, _ = env.reset(seed=0)
    regions, demand = ContourSpace().to_regions(observation, [s.name for s in env.view.layers])
    assert regions == env.view.regions
    assert demand == (3, None)


def test_check_flags():
    env = make_env()
    observation = run(env, [*BAD, Command.VERIFY])[0]
    flags = dict(zip(CHECK_KINDS, observation["last_checks"].tolist()))
    verdict = env.verdict
    for kind in CHECK_KINDS:
        of_kind = [c.passed for c in verdict.checks if c.kind == kind]
        assert flags[kind] == (int(all(of_kind)) if of_kind else -1), kind
    assert flags["transistor_count"] == 0
    assert flags["min_spacing"] == 1
    assert flags["circuit_spec"] == -1
    assert {c.kind for c in verdict.checks} <= set(CHECK_KINDS)
    assert observation["last_transistors"].tolist() == [0] + [-1] * 19
    assert observation["last_share"][0] == pytest.approx(verdict.share_passed("strict"))


def test_strict_flags_are_kept_from_the_paper_criterion():
    paper, strict = (run(make_env(criterion=c), [*BAD, Command.VERIFY])[0]["last_checks"] for c in ("paper", "strict"))
    of_strict = [kind.startswith("strict_") for kind in CHECK_KINDS]
    assert (paper[of_strict] == -1).all()
    assert (strict[of_strict] >= 0).any()
    assert np.array_equal(paper[np.logical_not(of_strict)], strict[np.logical_not(of_strict)])


def test_every_check_of_the_suite_has_a_flag():
    env = FETEnv("FET-All")
    kinds = {c.kind for t in env.task_ids for c in env_verdict(env, t).checks}
    assert kinds <= set(CHECK_KINDS)


def env_verdict(env: FETEnv, task_id: str) -> Verdict:
    env.reset(options={"task": task_id})
    run(env, [Command.SUBMIT])
    return env.verdict


def test_observations_share_no_memory():
    env = make_env()
    first, _ = env.reset()
    second = env.step_edit(GOOD[0])[0]
    third = env.step_edit(GOOD[1])[0]
    for key in first:
        assert not np.shares_memory(first[key], second[key])
        assert not np.shares_memory(second[key], third[key])


def test_unguarded_inputs_are_seen_and_judged():
    env = make_env(guard_inputs=False)
    observation, *_, info = run(env, [Cut("graphene", box(0, 0, 1, 6))])
    assert info["edit_error"] == ""
    assert observation["inputs_changed"].tolist() == [1]
    assert "inputs_preserved" in run(env, [Command.SUBMIT])[4]["verdict"]["failed"]
    assert env.reset()[0]["inputs_changed"].tolist() == [0]


def test_array_actions_and_objects_agree():
    one, two = make_env(), make_env()
    for edit in [*GOOD, Command.VERIFY]:
        a = one.step(one.action_space.from_edit(edit, LAYERS))
        b = two.step_edit(edit)
        assert data_equivalence(a[0], b[0], exact=True)
        assert a[1:] == b[1:]
    assert one.layout == two.layout


# -- tasks -------------------------------------------------------------------------------------------------------------


def test_task_choice_is_seeded_and_spread():
    tasks = [make_task(task_id=f"test/case_{i}") for i in range(5)]

    def ids(seed):
        env = FETEnv(tasks=tasks)
        chosen = [env.reset(seed=seed)[1]["task_id"]]
        return chosen + [env.reset()[1]["task_id"] for _ in range(30)]

    assert ids(1) == ids(1)
    assert ids(1) != ids(2)
    assert set(ids(1)) == {t.id for t in tasks}


def test_options_pick_the_task():
    env = FETEnv("FET-L2")
    assert env.reset(options={"task": "L2/case_12"})[1]["task_id"] == "L2/case_12"
    assert env.reset(options={"task": TASK})[1]["task_id"] == TASK.id
    with pytest.raises(TaskError, match="no such task"):
        env.reset(options={"task": "L3/case_1"})
    with pytest.raises(TaskError, match="no such task"):
        env.reset(options={"task": ["L2/case_12"]})
    with pytest.raises(TaskError, match="unknown reset option"):
        env.reset(options={"tsak": "L2/case_12"})


def test_unknown_suites_and_tasks():
    with pytest.raises(TaskError):
        FETEnv("FET-L9")
    with pytest.raises(TaskError):
        FETEnv(tasks=["L2/case_999"])
    with pytest.raises(TaskError):
        FETEnv(tasks=[])


# -- snapshots, replay, traces -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("through", [lambda s: s, lambda s: json.loads(json.dumps(s)), copy.deepcopy])
def test_snapshot_and_restore(through):
    env = make_env()
    run(env, [*BAD, Command.VERIFY, AddPolygon("poly", ())])
    observation, info = env.observe()
    snapshot = through(env.snapshot())
    reference = run(env, [GOOD[-1], Command.SUBMIT])
    again = env.restore(snapshot)
    assert data_equivalence(observation, again[0], exact=True)
    assert info == again[1]
    result = run(env, [GOOD[-1], Command.SUBMIT])
    assert data_equivalence(result[0], reference[0], exact=True)
    assert result[1:] == reference[1:]
    other = FETEnv(tasks=[make_task(task_id="test/other")])
    again = other.restore(pickle.loads(pickle.dumps(snapshot)))
    assert data_equivalence(observation, again[0], exact=True)
    assert info == again[1]


def test_snapshot_of_an_ended_episode():
    env = make_env()
    run(env, [Command.SUBMIT])
    snapshot = env.snapshot()
    env.reset()
    env.restore(snapshot)
    assert env.ended == "submit"
    with pytest.raises(gym.error.ResetNeeded):
        run(env, [Command.VERIFY])


def test_restore_may_keep_charges():
    env = make_env()
    start = env.snapshot()
    run(env, GOOD)
    assert env.restore(start, keep_charges=True)[1]["charged"] == len(GOOD)
    assert env.restore(start)[1]["charged"] == 0


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 2},
        {"task": {}},
        {"layout": {}},
        {"layout": {name: [[[0, "a"]]] for name in (s.name for s in TASK.layers)}},
        {"budget": None},
        {"seen": {"paper_success": True}},
        None,
    ],
    ids=str,
)
def test_what_is_no_snapshot_is_refused(change):
    env = make_env()
    good = env.snapshot()
    with pytest.raises(TaskError):
        env.restore({} if change is None else {**good, **change})
    with pytest.raises(gym.error.ResetNeeded):
        env.step_edit(GOOD[0])
    assert env.restore(good)[1]["charged"] == 0


def test_trace_replays(tmp_path):
    env = make_env()
    bad_array = env.action_space.from_edit(GOOD[0], LAYERS) | {"op": 99}
    env.step(bad_array)
    run(env, [GOOD[0], AddPolygon("gate", box(900, 0, 901, 1)), Command.VERIFY, *GOOD[1:]])
    final = run(env, [Command.SUBMIT])
    env.save_trace(tmp_path / "trace.json")
    trace = load_trace(tmp_path / "trace.json")
    assert trace["task_id"] == TASK.id
    assert trace["is_success"] is True
    assert trace["charged"] == 3 + len(GOOD)
    assert {"edagym", "klayout", "gymnasium"} <= trace["versions"].keys()
    assert trace["steps"][0]["action"] == {"op": "unreadable"}
    assert "edit_error" in trace["steps"][2]
    assert trace["steps"][3]["verdict"]["paper"] == 0
    other = make_env()
    result = other.replay(trace_actions(trace))[-1]
    assert data_equivalence(result[0], final[0], exact=True)
    # The replayed marker is refused for another reason than the array was; everything else is equal.
    assert result[1:] == final[1:]
    assert other.layout == env.layout
    assert [s["action"] for s in other.trace()["steps"]] == [s["action"] for s in trace["steps"]]


def test_replay_takes_every_form_and_stops_at_the_end():
    env = make_env()
    array = env.action_space.from_edit(GOOD[0], LAYERS)
    results = env.replay([array, {"op": "cut", "layer": "gate"}, *GOOD[1:], Command.SUBMIT, Command.VERIFY])
    assert len(results) == len(GOOD) + 2
    assert results[1][4]["edit_error"]
    assert results[-1][4]["is_success"]


def test_bad_trace_files(tmp_path):
    for text in ("{", "{}", "[]"):
        (tmp_path / "t.json").write_text(text)
        with pytest.raises(TaskError):
            load_trace(tmp_path / "t.json")
    with pytest.raises(TaskError):
        load_trace(tmp_path / "missing.json")


def test_pickled_environment_goes_on():
    env = make_env()
    run(env, BAD)
    twin = pickle.loads(pickle.dumps(env))
    a, b = run(env, [GOOD[-1], Command.VERIFY]), run(twin, [GOOD[-1], Command.VERIFY])
    assert data_equivalence(a[0], b[0], exact=True)
    assert a[1:] == b[1:]
    assert env.reset()[1] == twin.reset()[1]


# -- rendering ---------------------------------------------------------------------------------------------------------


def test_rgb_and_ansi():
    env = make_env(render_mode="rgb_array", render_size=[200, 160])
    empty = env.render()
    run(env, GOOD)
    full = env.render()
    assert full.shape == (160, 200, 3)
    assert full.dtype == np.uint8
    assert (empty != full).any()
    env = make_env(render_mode="ansi")
    run(env, [*BAD, Command.VERIFY])
    text = env.render()
    assert TASK.id in text
    assert "contacts" in text
    assert "transistor_count:flake_1" in text
    assert "budget left: 37 of 40" in text


def test_human_mode(monkeypatch):
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = make_env(render_mode="human")
    assert env.render() is None
    run(env, GOOD)
    pickle.dumps(env)
    env.close()
    env.close()


def test_human_mode_without_pygame(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pygame", None)
    with pytest.raises(gym.error.DependencyNotInstalled, match="pip install pygame"):
        make_env(render_mode="human")


@pytest.mark.parametrize("junk", [7, "add_polygon", None, [1, 2], 2.5, np.zeros(3)])
def test_an_action_of_no_known_form_is_charged_and_refused(junk: object) -> None:
    env = FETEnv(tasks=[make_task()])
    env.reset(seed=0)
    *_, info = env.step_any(junk)
    assert "not an action" in info["edit_error"]
    assert info["charged"] == 1
