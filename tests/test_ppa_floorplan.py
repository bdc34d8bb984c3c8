"""Floorplan arithmetic: closed forms, grid, and designs that do not fit."""

import math

import pytest

from edagym.envs.ppa.flow.floorplan import ROW, SITE, make_floorplan
from edagym.errors import FlowError


def test_utilisation_sets_the_core_area():
    plan = make_floorplan(45.0, utilization=50)
    side = math.floor(1000 * math.sqrt(90))
    assert plan.die == (0, 0, side + 2000, side + 2000)
    assert plan.die_area == pytest.approx((side + 2000) ** 2 / 1e6)
    assert 0.9 * 90 < plan.core_area <= 90


def test_rows_and_sites_lie_on_the_grid_inside_the_core():
    plan = make_floorplan(100.0, utilization=37, aspect_ratio=1.7, margin=0.333)
    x1, y1, x2, y2 = plan.core
    assert x1 % SITE == 0
    assert y1 % ROW == 0
    assert (x2 - x1, y2 - y1) == (plan.sites * SITE, plan.rows * ROW)
    assert x1 >= 333
    assert y1 >= 333
    assert x2 <= plan.die[2] - 333
    assert y2 <= plan.die[3] - 333


@pytest.mark.parametrize(("low", "high"), [(20, 40), (40, 80)])
def test_higher_utilisation_gives_a_smaller_die(low, high):
    assert make_floorplan(60.0, utilization=high).die_area < make_floorplan(60.0, utilization=low).die_area


def test_margin_and_aspect_ratio():
    base = make_floorplan(60.0, utilization=40)
    assert make_floorplan(60.0, utilization=40, margin=2).die_area > base.die_area
    tall = make_floorplan(60.0, utilization=40, aspect_ratio=2)
    assert (tall.die[3] - 2000) == 2 * (tall.die[2] - 2000)
    assert tall.core_area == pytest.approx(base.core_area, rel=0.05)


BOXES = {"die_area": (0.0, 0.0, 16.2, 16.2), "core_area": (1.08, 1.08, 15.12, 15.12)}


def test_given_boxes_do_not_depend_on_the_netlist():
    plan = make_floorplan(40.0, **BOXES)
    assert plan == make_floorplan(4.0, **BOXES)
    assert plan.die_area == pytest.approx(262.44)
    assert (plan.rows, plan.sites) == (52, 260)


def test_utilisation_counts_before_boxes():
    assert make_floorplan(40.0, utilization=50, **BOXES) == make_floorplan(40.0, utilization=50)


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"utilization": 0},
        {"utilization": 101},
        {"utilization": 50, "aspect_ratio": 0},
        {"utilization": 50, "margin": -1},
        {"die_area": (0.0, 0.0, 10.0, 10.0)},
        {"die_area": (0.0, 0.0, 10.0, 10.0), "core_area": (1.0, 1.0, 11.0, 9.0)},
        {"die_area": (0.0, 0.0, 10.0, 10.0), "core_area": (5.0, 5.0, 5.0, 9.0)},
        {"die_area": (0.0, 0.0, 1.0, 1.0), "core_area": (0.1, 0.1, 0.9, 0.4)},
    ],
)
def test_what_has_no_floorplan_is_refused(knobs):
    with pytest.raises(FlowError) as error:
        make_floorplan(40.0, **knobs)
    assert error.value.field == "floorplan"
