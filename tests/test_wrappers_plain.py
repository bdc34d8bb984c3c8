"""Plain actions and observations: checkers, replay on the base environment, encodings."""

from __future__ import annotations

import warnings

import gymnasium as gym
import numpy as np
import pytest
import shapely
from gymnasium.utils.env_checker import check_env
from rl_stacks import StandInFlow

import edagym
from edagym.envs.core.trace import trace_actions
from edagym.errors import EditError
from edagym.spaces.actions import Command
from edagym.spaces.ppa_edits import SetKnob, SetPeriod
from edagym.wrappers.core import BudgetTerminates, is_privileged, plain_wrapper
from edagym.wrappers.drc_actions import DISTANCES, EdgeMoves, EdgeSteps
from edagym.wrappers.observation import DRC_CHANNELS, FET_CHANNELS, FlatVector, Raster, frame
from edagym.wrappers.ppa_actions import LEVELS, PERIOD, KnobLevels, KnobVector
from edagym.wrappers.scan import fill, union

pytest.importorskip("klayout.db")
edagym.register_all()

IDS = {
    "FET": [i for i in edagym.ENVIRONMENTS if i.startswith("FET")],
    "DRC": [i for i in edagym.ENVIRONMENTS if i.startswith("DRC")],
    "PPA": [i for i in edagym.ENVIRONMENTS if i.startswith("PPA")],
}
STACKS = {
    "FET": [FlatVector, Raster],
    "DRC": [EdgeSteps, EdgeMoves, FlatVector, Raster, lambda e: Raster(EdgeSteps(e), size=36)],
    "PPA": [KnobLevels, KnobVector, FlatVector],
}
CASES = [(i, k) for family, ids in IDS.items() for i in ids for k in range(len(STACKS[family]))]


def _tables():
    from edagym.baselines.rl.stacks import _tables

    return _tables()


def make(env_id: str, **options):
    if env_id.startswith("PPA"):
        options = {"backend": StandInFlow(), **options}
    if env_id == "PPA-Train-v0":
        options = {"designs": ["gcd"], **options}
    if env_id == "DRC-Train-v0":
        options = {"level": "L1", **options}
    return gym.make(env_id, disable_env_checker=True, **options)


def stack(env_id: str, number: int):
    return STACKS[env_id[:3]][number](make(env_id))


QUICK = {"FET-L1-v0", "DRC-Essential-L1-v0", "PPA-Area-L1-v0"}


@pytest.mark.parametrize(
    ("env_id", "number"), [pytest.param(*c, marks=() if c[0] in QUICK else pytest.mark.slow) for c in CASES]
)
def test_the_checkers_find_nothing(env_id, number):
    env = stack(env_id, number)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Said of every wrapped environment, and the wrapped one is what is checked here.
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version.*")
        check_env(env, skip_render_check=True)
        if not isinstance(env.action_space, gym.spaces.Dict):
            sb3 = pytest.importorskip("stable_baselines3.common.env_checker")
            sb3.check_env(env, warn=True, skip_render_check=True)


def _play(env, n: int = 30, seed: int = 0):
    env.action_space.seed(seed)
    observation, info = env.reset(seed=seed)
    for _ in range(n):
        assert env.observation_space.contains(observation)
        observation, _, terminated, truncated, info = env.step(env.action_space.sample())
        if terminated or truncated:
            break
    assert env.observation_space.contains(observation)
    return observation, info


@pytest.mark.parametrize(
    ("env_id", "wrapper"),
    [
        ("DRC-Train-v0", EdgeSteps),
        ("DRC-Train-v0", EdgeMoves),
        ("PPA-Train-v0", KnobLevels),
        ("PPA-Train-v0", KnobVector),
    ],
)
def test_traces_replay_on_the_base_environment(env_id, wrapper):
    env = wrapper(make(env_id))
    for seed in range(3):
        _play(env, seed=seed)
        base = env.unwrapped
        trace = base.trace()
        assert trace["steps"]
        base.replay(trace_actions(trace))
        assert base.trace() == trace


def test_equal_seeds_and_actions_give_equal_observations():
    for env_id, wrapper in (("DRC-Train-v0", EdgeSteps), ("PPA-Train-v0", KnobLevels)):
        first, second = (_play(wrapper(make(env_id)), seed=3)[0] for _ in range(2))
        np.testing.assert_array_equal(first, second)


def test_specs_name_the_wrappers():
    env = EdgeSteps(make("DRC-Train-v0"))
    assert [w.name for w in env.spec.additional_wrappers] == ["EdgeSteps"]
    assert isinstance(plain_wrapper(env.spec.make()), EdgeSteps)
    assert not is_privileged(env)


# -- DRC -------------------------------------------------------------------------------------------------------------


def test_repairs_of_single_violations_are_in_the_action_space():
    """Where the recorded repair moves one edge of a box, some action names that edge and that distance."""
    env = EdgeSteps(make("DRC-Train-v0"))
    numbers = [(s, e, d) for s in range(4) for e in range(6) for d in range(len(DISTANCES))]
    checked = 0
    for seed in range(14):
        env.reset(seed=seed)
        (edit,) = env.unwrapped.task.reference
        before = np.array(edit["shape"]["points"])
        moved = np.array(edit["box"]) - np.array((*before.min(axis=0), *before.max(axis=0)))
        # A wire that was cut off by far more than its rule asks for takes less than the recorded repair.
        if len(before) != 4 or np.count_nonzero(moved) != 1 or np.abs(moved).max() > 160:
            continue
        side = int(np.flatnonzero(moved)[0])  # x1, y1, x2, y2
        # Edges of a box: 0 left, 1 top, 2 right, 3 bottom; outwards is positive.
        edge, outward = (0, 3, 2, 1)[side], int(moved[side]) * (-1 if side < 2 else 1)
        changes = [env.to_edits(n)[0] for n in numbers]
        found = [c.change for c in changes if [list(p) for p in c.shape.points] == edit["shape"]["points"]]
        assert edge in {c.edge for c in found}
        step = min(abs(c.distance - outward) for c in found if c.edge == edge)
        assert step <= max(0.35 * abs(outward), 2)
        checked += 1
    assert checked >= 4


def test_an_action_moves_the_edge_it_names():
    env = EdgeSteps(make("DRC-Train-v0"))
    env.reset(seed=1)
    shapes = env.unwrapped.context.shapes
    nm4 = next(i for i, d in enumerate(DISTANCES) if d == (-1, 0.0, 4.0))
    edit, check = env.to_edits((0, 0, nm4))
    assert check is Command.VERIFY
    assert edit.shape.points in [s.points for s in shapes]
    assert edit.change.distance == -16  # 0.25 nm
    assert env.to_edits((99, 99, nm4))  # beyond the lists: their last entries
    mask = env.action_masks()
    assert mask.shape == (sum(env.action_space.nvec),)
    assert mask.any()


def test_nothing_listed_is_refused():
    env = EdgeSteps(make("DRC-Train-v0"))
    env.reset(seed=1)
    env.begin()
    with pytest.raises(EditError, match="no shape"):
        env.to_edits((0, 0, 0))
    _, _, _, _, info = env.step((0, 0, 0))
    assert (info["n_edits"], info["n_refused"], info["charged"]) == (1, 1, 1)


# -- PPA -------------------------------------------------------------------------------------------------------------


def test_knob_levels_set_what_changes_and_run():
    env = KnobLevels(make("PPA-Train-v0"))
    env.reset(seed=0)
    present = env._present()
    assert env.to_edits(np.zeros(len(LEVELS))) == [Command.VERIFY]
    everything = env.to_edits(np.array([len(t) for t in LEVELS.values()]))
    assert everything[-1] is Command.VERIFY
    names = {PERIOD if isinstance(e, SetPeriod) else e.name for e in everything[:-1]}
    wanted = {n: env._text(n, len(t) - 1) for n, t in LEVELS.items()}
    assert names == {n for n in LEVELS if present[n] != wanted[n]}
    before = env.unwrapped.layout
    env.step(np.array([len(t) for t in LEVELS.values()]))
    assert env._present() == wanted
    assert env.unwrapped.layout != before


def test_knob_vectors_reach_both_ends():
    env = KnobVector(make("PPA-Train-v0"))
    env.reset(seed=0)
    for end in (-1.0, 1.0):
        texts = {
            PERIOD if isinstance(e, SetPeriod) else e.name: e
            for e in env.to_edits(np.full(len(LEVELS), end, np.float32))[:-1]
        }
        for name, edit in texts.items():
            level = LEVELS[name][0 if end < 0 else -1]
            if isinstance(edit, SetKnob):
                assert float(edit.value) == float(level) if level[0].isdigit() else edit.value == level


def test_unknown_knobs_are_refused():
    with pytest.raises(ValueError, match="no knob"):
        KnobLevels(make("PPA-Train-v0"), levels={"NOTHING": ["1"]})


def test_recorded_runs_are_what_the_flow_gives():
    pytest.importorskip("pyosys")
    from edagym.envs.ppa.flow.embedded import EmbeddedFlow
    from edagym.envs.ppa.training import apply_settings
    from edagym.task_assets.ppa.sweep import load_sweeps

    sweep = next(s for s in load_sweeps() if s.name == "gcd")
    design = apply_settings(sweep.design, sweep.points[17].edits)
    looked_up, run = _tables().run(design).report, EmbeddedFlow().run(design).report
    for metric in ("effective_period", "total_power", "die_area"):
        assert looked_up.value(metric) == pytest.approx(run.value(metric), rel=1e-12)
    assert (looked_up.backend, looked_up.engine) == (run.backend, run.engine)


def test_settings_outside_the_tables_need_the_flow():
    from edagym.envs.ppa.flow.table import TableFlow
    from edagym.errors import ToolError
    from edagym.task_assets.ppa.design import DesignFiles
    from edagym.task_assets.ppa.sweep import load_sweeps

    design = load_sweeps()[0].design
    with pytest.raises(ToolError, match="no sweep table"):
        TableFlow(run_others=False).run(DesignFiles({**design.files, "src/other.v": "module other; endmodule\n"}))


# -- observations ----------------------------------------------------------------------------------------------------


def test_scan_conversion_is_exact_at_pixel_centres():
    rng = np.random.default_rng(0)
    ys, xs = np.mgrid[0:40, 0:50] + 0.5
    for _ in range(40):
        angles = np.sort(rng.uniform(0, 2 * np.pi, int(rng.integers(3, 12))))
        radii = rng.uniform(4, 30, len(angles))
        hull = np.column_stack((25 + radii * np.cos(angles), 20 + radii * np.sin(angles)))
        polygon = shapely.Polygon(hull)
        hole = np.array((25, 20)) + (hull - (25, 20)) * 0.4
        if not polygon.is_valid or not polygon.contains(shapely.Polygon(hole)):
            continue
        expected = shapely.contains_xy(polygon, xs, ys)
        np.testing.assert_array_equal(fill([hull], 40, 50), expected)
        np.testing.assert_array_equal(union([hull], 40, 50), expected)
        expected &= ~shapely.contains_xy(shapely.Polygon(hole), xs, ys)
        np.testing.assert_array_equal(fill([hull, hole], 40, 50), expected)


def test_union_keeps_overlaps():
    a, b = (np.array(((x, 1), (x + 4, 1), (x + 4, 5), (x, 5)), float) for x in (1, 3))
    assert union([a, b], 6, 8).sum() == 24
    assert fill([a, b], 6, 8).sum() == 16  # even-odd


def test_the_fet_raster_shows_flakes_and_shapes():
    env = Raster(gym.make("FET-Holes-v0"), size=96)
    picture, _ = env.reset(seed=0)
    view = env.unwrapped.view
    _, half = frame(view)
    area = sum(shapely.Polygon(r.hull, r.holes).area for r in view.regions)
    material = picture[FET_CHANNELS.index("material")] > 0
    assert material.sum() * (2 * half / 96) ** 2 == pytest.approx(area, rel=0.05)
    spine = picture[FET_CHANNELS.index("spine")]
    assert spine.max() == 255
    assert not spine[~material].any()
    assert not picture[3:].any()
    from edagym.baselines.policies import reference_edits

    for edit in reference_edits(env.unwrapped.task):
        picture = env.observation(env.unwrapped.step_edit(edit)[0])
    roles = {spec.role for spec in view.layers if spec.editable and env.unwrapped.layout.shapes(spec.name)}
    for i, name in enumerate(FET_CHANNELS[3:], 3):
        assert picture[i].any() == any(name.startswith(role) for role in roles if name != "gate electrode 2") or (
            name == "gate electrode 2"
        )


def test_the_drc_raster_shows_the_violation_and_its_neighbours():
    env = Raster(make("DRC-Train-v0"))
    picture, _ = env.reset(seed=0)
    assert picture[0].any()
    layers = {s.layer for s in env.unwrapped.context.shapes}
    for i, name in enumerate(DRC_CHANNELS[1:-1], 1):
        assert picture[i].any() == (name in layers)


def test_a_raster_joins_the_vector_of_an_action_wrapper():
    env = Raster(EdgeSteps(make("DRC-Train-v0")), size=40)
    observation, _ = _play(env, seed=5)
    assert set(observation) == {"raster", "vector"}
    alone = Raster(make("DRC-Train-v0"), size=40)
    np.testing.assert_array_equal(env.reset(seed=6)[0]["raster"], alone.reset(seed=6)[0])


def test_vectors_are_scaled_and_tell_tasks_apart():
    for family in ("FET-L2-v0", "DRC-Train-v0", "PPA-Train-v0"):
        env = FlatVector(make(family))
        first, second = env.reset(seed=0)[0], env.reset(seed=1)[0]
        assert first.dtype == np.float32
        assert not np.array_equal(first, second)
        assert np.mean(np.abs(first) >= 5) < 0.05


def test_a_spent_budget_terminates():
    env = BudgetTerminates(EdgeMoves(make("DRC-Train-v0", budget=4)))
    env.reset(seed=0)
    env.unwrapped.stop_on_success = False
    results = [env.step(np.array((0, 0, 1.0), np.float32)) for _ in range(2)]
    assert results[-1][2:4] == (True, False)
    assert results[-1][4]["ended"] == "budget"
