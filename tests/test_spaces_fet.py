"""The FET spaces: conversions in both directions, limits, and everything that Gymnasium does with a space."""

from __future__ import annotations

import json
import math
import pickle

import numpy as np
import pytest
from fet_cases import bar_fet, box, make_task
from gymnasium import spaces as gym_spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, create_shared_memory, iterate
from gymnasium.vector.utils import read_from_shared_memory as read_shared
from gymnasium.vector.utils import write_to_shared_memory as write_shared
from hypothesis import given, settings
from hypothesis import strategies as st

from edagym.errors import EditError, TaskError
from edagym.spaces import (
    MAX_COORD_UM,
    MAX_HOLE_POINTS,
    MAX_LAYERS,
    MAX_REGIONS,
    MAX_RING_POINTS,
    MAX_SHAPE_POINTS,
    MAX_SHAPES,
    OPERATIONS,
    AddPath,
    AddPolygon,
    Clear,
    Command,
    ContourSpace,
    Cut,
    EditSpace,
    LayoutSpace,
    TaskSpace,
    action_from_json,
    action_text,
    action_to_json,
    parse_action_text,
)
from edagym.task_assets.fet import CircuitSpec, Region
from edagym.task_assets.fet.task import ARCHITECTURES, DRC_KINDS, ROLES

ALL_SPACES = [ContourSpace, LayoutSpace, TaskSpace, EditSpace]
LAYERS = ("graphene", "contacts", "gate")


def equal(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


# -- what Gymnasium does with a space ----------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", ALL_SPACES)
def test_sample_is_inside_and_seeded(cls):
    space, twin = cls(seed=3), cls(seed=3)
    for _ in range(3):
        sample = space.sample()
        assert sample in space
        assert equal(sample, twin.sample())


@pytest.mark.parametrize("cls", ALL_SPACES)
def test_equality_and_pickle(cls):
    assert cls() == cls()
    again = pickle.loads(pickle.dumps(cls(seed=1)))
    assert type(again) is cls
    assert again == cls()


@pytest.mark.parametrize("cls", ALL_SPACES)
def test_flatten_round_trip(cls):
    space = cls(seed=0)
    sample = space.sample()
    flat = gym_spaces.flatten(space, sample)
    assert flat in gym_spaces.flatten_space(space)
    assert equal(gym_spaces.unflatten(space, flat), sample)


@pytest.mark.parametrize("cls", ALL_SPACES)
def test_batching_and_shared_memory(cls):
    space = cls(seed=0)
    samples = tuple(space.sample() for _ in range(3))
    batch = concatenate(space, samples, create_empty_array(space, 3))
    assert batch in batch_space(space, 3)
    for sample, item in zip(samples, iterate(batch_space(space, 3), batch)):
        assert equal(sample, item)
    memory = create_shared_memory(space, 3)
    for i, sample in enumerate(samples):
        write_shared(space, i, sample, memory)
    shared = read_shared(space, memory, 3)
    assert all(np.array_equal(shared[k], batch[k]) for k in batch)


@pytest.mark.parametrize("cls", ALL_SPACES)
def test_jsonable_round_trip(cls):
    space = cls(seed=0)
    samples = [space.sample() for _ in range(2)]
    text = json.dumps(space.to_jsonable(samples))
    for sample, again in zip(samples, space.from_jsonable(json.loads(text))):
        assert again in space
        assert equal(sample, again)


def test_sample_with_mask():
    space = EditSpace(seed=0)
    only_verify = np.array([name == "verify" for name in OPERATIONS], np.int8)
    mask = {"op": only_verify, "layer": None, "points": None, "n_points": None, "width": None}
    assert {int(space.sample(mask=mask)["op"]) for _ in range(5)} == {OPERATIONS.index("verify")}


# -- edits -------------------------------------------------------------------------------------------------------------

grid_um = st.integers(-2_000_000, 2_000_000).map(lambda n: n / 1000)
rings = st.lists(st.tuples(grid_um, grid_um), max_size=MAX_SHAPE_POINTS).map(tuple)
layers = st.sampled_from(LAYERS)
actions = st.one_of(
    st.builds(AddPolygon, layers, rings),
    st.builds(Cut, layers, rings),
    st.builds(AddPath, layers, rings, st.integers(0, 100_000).map(lambda n: n / 1000)),
    st.builds(Clear, layers),
    st.sampled_from(list(Command)),
)


@settings(max_examples=60, deadline=None)
@given(actions)
def test_edit_round_trips(action):
    space = EditSpace()
    array = space.from_edit(action, LAYERS)
    assert array in space
    assert space.to_edit(array, LAYERS) == action
    assert action_from_json(json.loads(json.dumps(action_to_json(action)))) == action
    assert parse_action_text(action_text(action)) == action
    assert equal(space.from_json(space.to_json(array, LAYERS), LAYERS), array)
    assert equal(space.from_text(space.to_text(array, LAYERS), LAYERS), array)


def test_layer_names_with_spaces_survive_text():
    edit = Cut('top "gate" 2', ((0.0, 0.0), (1.5, 0.0), (1.0, -2.25)))
    assert parse_action_text(action_text(edit)) == edit


def test_text_of_a_path():
    assert action_text(AddPath("gate", ((0.0, 0.0), (1.25, 3.0)), 0.5)) == "add_path gate width=0.5: 0,0 1.25,3"


def test_array_points_are_rounded_to_the_grid():
    space = EditSpace()
    action = space.from_edit(AddPolygon("gate", ((0.0, 0.0), (1.1, 0.0), (1.1, 2.2))), LAYERS)
    action["points"][1, 0] = 1.10004
    assert space.to_edit(action, LAYERS).points == ((0.0, 0.0), (1.1, 0.0), (1.1, 2.2))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"op": 7}, "op"),
        ({"op": -1}, "op"),
        ({"layer": 3}, "layer"),
        ({"layer": -1}, "layer"),
        ({"n_points": 65}, "n_points"),
        ({"points": np.full((64, 2), np.nan, np.float32)}, "points or width"),
        ({"points": np.full((64, 2), np.inf, np.float32)}, "points or width"),
        ({"op": 1, "width": np.float32(np.nan)}, "points or width"),
    ],
)
def test_bad_arrays_are_refused(change, field):
    space = EditSpace()
    action = space.from_edit(AddPolygon("gate", box(0, 0, 1, 1)), LAYERS) | change
    with pytest.raises(EditError) as e:
        space.to_edit(action, LAYERS)
    assert e.value.field == field


def test_malformed_action_is_refused():
    with pytest.raises(EditError, match="malformed action"):
        EditSpace().to_edit({"op": 0}, LAYERS)


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (AddPolygon("gate", ((0.0, 0.0),) * 65), "points"),
        (AddPolygon("gate", ((0.0, MAX_COORD_UM + 1), (1.0, 0.0), (0.0, 0.0))), "points[0]"),
        (AddPolygon("gate", ((0.0, 0.0), (math.nan, 0.0), (0.0, 1.0))), "points[1]"),
        (AddPath("gate", ((0.0, 0.0), (1.0, 0.0)), 101.0), "width"),
        (AddPath("gate", ((0.0, 0.0), (1.0, 0.0)), math.nan), "width"),
        (Clear("poly"), "layer"),
    ],
)
def test_edits_that_do_not_fit_are_refused(edit, field):
    with pytest.raises(EditError) as e:
        EditSpace().from_edit(edit, LAYERS)
    assert e.value.field == field


@pytest.mark.parametrize(
    "data",
    [None, [], {"op": "erase"}, {"op": "cut"}, {"op": "cut", "layer": "gate"}, {"op": 3}],
)
def test_bad_json_actions_are_refused(data):
    with pytest.raises(EditError):
        action_from_json(data)


@pytest.mark.parametrize("text", ["", "draw it", "cut gate: 0,0 1", "add_path gate width=x: 0,0 1,1", "cut gate 0,0"])
def test_bad_text_actions_are_refused(text):
    with pytest.raises(EditError):
        parse_action_text(text)


# -- contours ----------------------------------------------------------------------------------------------------------

REGIONS = (
    Region("flake_1", "graphene", box(-3.125, 0, 20, 6.001), (box(1, 1, 2, 2), box(4, 1, 5, 2.5))),
    Region("flake_2", "WSe2", ((0.0, 10.0), (7.5, 10.0), (3.3, 17.7))),
)


def test_contours_round_trip():
    space, names = ContourSpace(), ("graphene", "WSe2", "contacts")
    sample = space.from_regions(REGIONS, names, (2, None))
    assert sample in space
    assert space.to_regions(sample, names) == (REGIONS, (2, None))
    assert equal(space.from_json(space.to_json(sample, names), names), sample)
    assert equal(space.from_text(space.to_text(sample, names), names), sample)
    assert "demand=2: -3.125,0 20,0" in space.to_text(sample, names)


@pytest.mark.parametrize(
    "regions",
    [
        [Region(f"flake_{i}", "graphene", box(0, 0, 1, 1)) for i in range(MAX_REGIONS + 1)],
        [Region("flake_1", "graphene", tuple((float(i), i * i / 100) for i in range(MAX_RING_POINTS + 1)))],
        [Region("flake_1", "graphene", box(0, 0, 9, 9), (tuple((i / 100, i * i / 1e5) for i in range(161)),))],
        [Region("flake_1", "graphene", box(0, 0, 99, 9), tuple(box(2 * i, 1, 2 * i + 1, 2) for i in range(41)))],
        [Region("flake_1", "graphene", box(0, 0, MAX_COORD_UM + 1, 9))],
    ],
)
def test_contours_that_do_not_fit_are_refused(regions):
    assert MAX_HOLE_POINTS == 160
    with pytest.raises(TaskError, match="does not fit"):
        ContourSpace().from_regions(regions, LAYERS)


@pytest.mark.parametrize(
    "text",
    [
        "flake_1 graphene: 0,0 1",
        "flake_1: 0,0 1,1 1,0",
        "flake_1 mica: 0,0 1,1 1,0",
        "flake_1 graphene: 0,0 1e400,1 1,0",
        "flake_1 graphene demand=-1: 0,0 1,1 1,0",
        "hole: 0,0 1,1 1,0",
        "flake_1 graphene:",
    ],
)
def test_bad_contour_text_is_refused(text):
    with pytest.raises(TaskError):
        ContourSpace().from_text(text, LAYERS)


@pytest.mark.parametrize("hull", ["[[0, 0], [Infinity, 0], [1, 1]]", "[[0, NaN], [1, 0], [1, 1]]", '["ab"]', "3"])
def test_bad_contour_json_is_refused(hull):
    row = f'{{"name": "flake_1", "material": "graphene", "demand": 1, "holes": [], "hull": {hull}}}'
    with pytest.raises(TaskError):
        ContourSpace().from_json(f"[{row}]", LAYERS)


# -- layouts -----------------------------------------------------------------------------------------------------------


def test_layout_round_trip():
    task = make_task(via=True)
    layout = bar_fet(task)
    names = tuple(s.name for s in task.layers)
    space = LayoutSpace()
    shapes = {n: layout.shapes(n) for n in names}
    sample = space.from_shapes(shapes, names)
    assert sample in space
    assert space.to_shapes(sample, names) == shapes
    assert equal(space.from_json(space.to_json(sample, names), names), sample)
    assert equal(space.from_text(space.to_text(sample, names), names), sample)


def test_layout_limits():
    space, square = LayoutSpace(), ((0, 0), (10, 0), (10, 10))
    full = space.from_shapes({"gate": [square] * MAX_SHAPES}, LAYERS)
    assert int((full["shape_n_points"] == 3).sum()) == MAX_SHAPES
    for shapes in (
        {"gate": [square] * (MAX_SHAPES + 1)},
        {"gate": [tuple((i, i * i) for i in range(MAX_SHAPE_POINTS + 1))]},
        {"gate": [((0, 0), (5_000_000, 0), (0, 10))]},
        {"poly": [square]},
    ):
        with pytest.raises(EditError):
            space.from_shapes(shapes, LAYERS)


@pytest.mark.parametrize("text", ["[]", '{"gate": 3}', '{"gate": [[[0, null]]]}', "no"])
def test_bad_layout_json_is_refused(text):
    with pytest.raises(EditError):
        LayoutSpace().from_json(text, LAYERS)


@pytest.mark.parametrize("text", ["gate", "gate: 0,0 1", "gate: 0,0 1e400,0 1,1", "poly: 0,0 1,0 1,1"])
def test_bad_layout_text_is_refused(text):
    with pytest.raises(EditError):
        LayoutSpace().from_text(text, LAYERS)


# -- task --------------------------------------------------------------------------------------------------------------


def test_task_arrays_state_the_task():
    circuit = CircuitSpec("nand2", "complementary", 1, 4, (2, 2), 2)
    flakes = [(box(0, 0, 20, 6), ()), (box(0, 10, 20, 16), ())]
    task = make_task(flakes, (2, 2), materials=["MoSe2", "WSe2"], circuit=circuit, via=True)
    view = task.view()
    space = TaskSpace()
    sample = space.from_view(view)
    assert sample in space
    assert ARCHITECTURES[int(sample["architecture"].argmax())] == "top_gated"
    assert sample["architecture"].sum() == 1
    names = [s.name for s in view.layers]
    for i, spec in enumerate(view.layers):
        assert ROLES[sample["layer_role"][i]] == spec.role
        assert bool(sample["layer_editable"][i]) == spec.editable
        assert tuple(sample["layer_gds"][i]) == (spec.gds_layer, spec.datatype)
    assert (sample["layer_role"][len(names) : MAX_LAYERS] == -1).all()
    order = sorted((int(p), names[i]) for i, p in enumerate(sample["layer_order"]) if p >= 0)
    assert [n for _, n in order] == [n.lstrip("@") for n in view.design_order]
    for i, rule in enumerate(view.drc_rules):
        assert DRC_KINDS[sample["rule_kind"][i]] == rule.kind
        assert tuple(names[j] for j in sample["rule_layers"][i] if j >= 0) == rule.layers
        assert sample["rule_value"][i] == np.float32(rule.min_um or 0)
    assert (sample["rule_kind"][len(view.drc_rules) :] == -1).all()
    assert sample["circuit"].tolist() == [1, 1, 1, 4, 2]
    assert sample["circuit_exact"][:3].tolist() == [2, 2, -1]
