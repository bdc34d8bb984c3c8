"""The interpreter of typed edits: what it draws, what it refuses, and that a refusal changes nothing."""

from __future__ import annotations

import math

import pytest
from fet_cases import bar_fet, box, make_task, rotate
from hypothesis import given, settings
from hypothesis import strategies as st
from shapely.geometry import LineString, Polygon
from shapely.ops import unary_union

from edagym.envs.fet.interpreter import WINDOW_MARGIN_UM, apply_edit, drawing_window, ring_problem
from edagym.errors import EditError
from edagym.spaces import MAX_SHAPE_POINTS, MAX_SHAPES, AddPath, AddPolygon, Clear, Cut
from edagym.task_assets.fet.grid import ring_to_dbu
from edagym.verifiers.fet.layout import FETLayout


@pytest.fixture
def layout() -> FETLayout:
    return FETLayout.from_task(make_task())


def area(layout: FETLayout, layer: str) -> float:
    return layout.region(layer).area() / 1e6


def test_polygon_is_drawn_on_the_grid(layout):
    apply_edit(layout, AddPolygon("gate", ((0.0004, 0.0), (1.0, 0.0006), (1.0, 2.0))))
    assert layout.shapes("gate") == (((0, 0), (1000, 1), (1000, 2000)),)


def test_closing_point_and_repeats_are_dropped(layout):
    apply_edit(layout, AddPolygon("gate", ((0, 0), (0, 0), (1, 0), (1, 1), (1.0002, 1), (0, 0))))
    assert layout.shapes("gate") == (((0, 0), (1000, 0), (1000, 1000)),)


def test_collinear_points_are_fine(layout):
    apply_edit(layout, AddPolygon("gate", ((0, 0), (1, 0), (2, 0), (2, 2), (0, 2))))
    assert area(layout, "gate") == 4


def test_cut_clear_and_keyhole(layout):
    apply_edit(layout, AddPolygon("gate", box(0, 0, 10, 10)))
    apply_edit(layout, AddPolygon("gate", box(20, 0, 30, 10)))
    apply_edit(layout, Cut("gate", box(2, 2, 4, 4)))
    assert area(layout, "gate") == 196
    assert layout.region("gate").is_merged()
    assert len(layout.shapes("gate")) == 2
    assert layout.shapes("gate")[1] == ring_to_dbu(box(20, 0, 30, 10)), "shapes that the cut misses stay as drawn"
    apply_edit(layout, Cut("gate", box(4, -1, 6, 11)))
    assert area(layout, "gate") == 176
    assert len(layout.shapes("gate")) == 3
    apply_edit(layout, Clear("gate"))
    assert layout.shapes("gate") == ()


def test_cut_of_an_empty_layer_changes_nothing(layout):
    apply_edit(layout, Cut("gate", box(0, 0, 1, 1)))
    assert layout.n_shapes == 0


def test_path_has_flat_ends(layout):
    apply_edit(layout, AddPath("gate", ((0, 0), (4, 0)), 0.5))
    assert layout.region("gate").bbox().to_s() == "(0,-250;4000,250)"


@pytest.mark.parametrize(
    "points",
    [
        ((0, 0), (6, 0), (6, 6)),
        ((0, 0), (6, 0), (6, 6), (0, 6), (0, 0)),
        ((0, 0), (6, 0), (6, 4), (3, 4), (3, -4)),
        ((0, 0), (10, 0), (10, 5), (2, 5), (2, -5), (12, -5)),
        rotate(((0, 0), (6, 0), (6, 4), (3, 4), (3, -4)), 33),
    ],
)
def test_paths_agree_with_shapely(layout, points):
    apply_edit(layout, AddPath("gate", tuple(points), 1.0))
    corners = [points[i : i + 3] for i in range(len(points) - 2)]
    want = unary_union([LineString(c).buffer(0.5, cap_style="flat", join_style="mitre") for c in corners])
    drawn = unary_union([Polygon(r).buffer(0) for r in layout.shapes("gate")])
    assert drawn.area / 1e6 == pytest.approx(want.area, rel=1e-3)
    assert area(layout, "gate") == pytest.approx(want.area, rel=1e-3)


def test_path_that_doubles_back_is_its_box(layout):
    apply_edit(layout, AddPath("gate", ((0, 0), (4, 0), (1, 0)), 1.0))
    assert area(layout, "gate") == pytest.approx(4.0, abs=0.6)


NAN, INF = math.nan, math.inf
REFUSED = {
    "unknown layer": AddPolygon("poly", box(0, 0, 1, 1)),
    "read-only layer": AddPolygon("graphene", box(0, 0, 1, 1)),
    "clear read-only": Clear("graphene"),
    "cut read-only": Cut("graphene", box(0, 0, 1, 1)),
    "no points": AddPolygon("gate", ()),
    "two points": AddPolygon("gate", ((0, 0), (1, 0))),
    "two distinct points": AddPolygon("gate", ((0, 0), (1, 0), (0, 0), (1, 0))),
    "vanishes on the grid": AddPolygon("gate", ((0, 0), (0.0001, 0), (0, 0.0001))),
    "zero area": AddPolygon("gate", ((0, 0), (1, 1), (2, 2))),
    "bow tie": AddPolygon("gate", ((0, 0), (2, 2), (2, 0), (0, 1))),
    "equal bow tie": AddPolygon("gate", ((0, 0), (1, 1), (1, 0), (0, 1))),
    "spike": AddPolygon("gate", ((0, 0), (4, 0), (2, 0), (2, 2))),
    "touches itself": AddPolygon("gate", ((0, 0), (4, 0), (4, 4), (2, 0), (0, 4))),
    "repeated point": AddPolygon("gate", ((0, 0), (2, 0), (1, 1), (2, 2), (0, 2), (1, 1))),
    "NaN": AddPolygon("gate", ((0, 0), (NAN, 0), (1, 1))),
    "infinite": AddPolygon("gate", ((0, 0), (INF, 0), (1, 1))),
    "minus infinite": Cut("gate", ((0, 0), (1, -INF), (1, 1))),
    "huge": AddPolygon("gate", ((0, 0), (1e300, 0), (1, 1))),
    "10,000 vertices": AddPolygon("gate", tuple((math.cos(i / 1600), math.sin(i / 1600)) for i in range(10_000))),
    "outside the window": AddPolygon("gate", box(500, 0, 501, 1)),
    "zero width": AddPath("gate", ((0, 0), (1, 0)), 0.0),
    "width under the grid": AddPath("gate", ((0, 0), (1, 0)), 0.0004),
    "negative width": AddPath("gate", ((0, 0), (1, 0)), -1.0),
    "NaN width": AddPath("gate", ((0, 0), (1, 0)), NAN),
    "infinite width": AddPath("gate", ((0, 0), (1, 0)), INF),
    "huge width": AddPath("gate", ((0, 0), (1, 0)), 101.0),
    "one point": AddPath("gate", ((0, 0),), 1.0),
    "zero length": AddPath("gate", ((0, 0), (0, 0)), 1.0),
    "NaN path": AddPath("gate", ((0, 0), (NAN, 0)), 1.0),
    "path with too many corners": AddPath("gate", tuple((i / 10, i % 2) for i in range(60)), 0.05),
    "path beyond the window": AddPath("gate", ((0, -49), (1, -49)), 20.0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_edits_leave_the_layout_alone(name):
    task = make_task()
    layout = bar_fet(task)
    before = layout.copy()
    with pytest.raises(EditError) as e:
        apply_edit(layout, REFUSED[name], window=drawing_window(task.regions))
    assert layout == before
    assert e.value.field


def test_messages_name_the_fault(layout):
    with pytest.raises(EditError, match=r"read-only layer.*graphene.*allowed: \['contacts', 'gate'\]"):
        apply_edit(layout, REFUSED["read-only layer"])
    with pytest.raises(EditError, match="crosses or touches itself"):
        apply_edit(layout, REFUSED["bow tie"])


def test_unguarded_edits_reach_the_flakes(layout):
    before = area(layout, "graphene")
    apply_edit(layout, Cut("graphene", box(0, 0, 1, 6)), guard_inputs=False)
    assert area(layout, "graphene") == before - 6


def test_shape_limits(layout):
    for i in range(MAX_SHAPES):
        apply_edit(layout, AddPolygon("gate", box(i, 0, i + 0.5, 1)))
    for edit in (
        AddPolygon("contacts", box(0, 0, 1, 1)),
        AddPath("contacts", ((0, 0), (1, 0)), 1.0),
        Cut("gate", box(0.2, -1, 0.3, 2)),
    ):
        with pytest.raises(EditError, match="too many shapes"):
            apply_edit(layout, edit)
    assert layout.n_shapes == MAX_SHAPES


def test_cut_that_makes_too_many_points_is_refused(layout):
    apply_edit(layout, AddPolygon("gate", box(-20, -20, 20, 20)))
    circle = tuple((5 * math.cos(a), 5 * math.sin(a)) for a in (2 * math.pi * i / 62 for i in range(62)))
    before = layout.copy()
    with pytest.raises(EditError, match="too many points"):
        apply_edit(layout, Cut("gate", circle))
    assert layout == before


def test_the_longest_polygon_is_accepted(layout):
    ring = tuple((10 * math.cos(a), 10 * math.sin(a)) for a in (2 * math.pi * i / 64 for i in range(MAX_SHAPE_POINTS)))
    apply_edit(layout, AddPolygon("gate", (*ring, ring[0])))
    assert len(layout.shapes("gate")[0]) == MAX_SHAPE_POINTS


def test_window_is_the_flakes_box_and_a_margin():
    task = make_task()
    x1, y1, x2, y2 = drawing_window(task.regions)
    assert (x1, y1, x2, y2) == (-WINDOW_MARGIN_UM, -WINDOW_MARGIN_UM, 20 + WINDOW_MARGIN_UM, 6 + WINDOW_MARGIN_UM)


coordinate = st.integers(-6, 6)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(coordinate, coordinate), min_size=3, max_size=12, unique=True))
def test_simplicity_agrees_with_shapely(points):
    """Random rings on a coarse grid, where touching and collinear cases are common."""
    ring = tuple(points)
    assert (ring_problem(ring) == "") == Polygon(ring).is_valid
