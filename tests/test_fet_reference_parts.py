"""Parts of the reference constructor: rectangles, rays, curves, stations, chains, wires."""

from __future__ import annotations

import math

import numpy as np
import pytest
import shapely
from fet_cases import box, rotate
from hypothesis import given, settings
from hypothesis import strategies as st

from edagym.envs.fet.construct.place import Chain, Limits, place_stack, separates, size_levels
from edagym.envs.fet.construct.router import Terminal, grow, route
from edagym.envs.fet.construct.shapes import Flake, Rect, gap, two_nearest
from edagym.envs.fet.construct.spine import curves, medial_paths, sweep
from edagym.envs.fet.construct.stations import Obstacles, contact_stations, gate_stations
from edagym.task_assets.fet.task import Region

BAR = box(0, 0, 20, 6)
LIMITS = Limits(1.0, 0.2, 0.2)


def flake(hull, holes=()) -> Flake:
    return Flake(Region("flake_1", "graphene", tuple(hull), tuple(holes)))


coordinate = st.floats(-10, 10)
rects = st.builds(
    lambda x, y, a, hx, hy: Rect(x, y, math.cos(a), math.sin(a), hx, hy),
    coordinate,
    coordinate,
    st.floats(0, math.tau),
    st.floats(0.1, 5),
    st.floats(0.1, 5),
)


@settings(max_examples=100, deadline=None)
@given(rects, rects)
def test_gap_never_exceeds_the_distance(p, q):
    distance = shapely.Polygon(p.corners).distance(shapely.Polygon(q.corners))
    assert gap(p, q) <= distance + 1e-9
    assert gap(p, q) == pytest.approx(gap(q, p), abs=1e-9)
    if distance > 1e-9:
        assert gap(p, q) > 0  # convex bodies apart always have a separating side


def test_rays_see_the_contour():
    f = flake(BAR)
    t = f.rays(np.array([[5.0, 2.0], [5.0, -1.0]]), np.array([[0.0, 1.0], [0.0, 1.0]]))
    first, second, inside = two_nearest(t)
    assert first.tolist() == [4.0, 1.0]
    assert second.tolist() == [math.inf, 7.0]
    assert inside.tolist() == [True, False]


def test_clockwise_hulls_are_turned():
    f = flake(BAR[::-1])
    assert shapely.is_ccw(shapely.LinearRing(f.hull))


def test_sweep_runs_down_the_middle():
    curve = sweep(flake(BAR), 0.0)
    assert curve.points[:, 1] == pytest.approx(3.0)
    assert np.diff(curve.points[1:-1, 0]) == pytest.approx(curve.step)


def test_medial_path_follows_the_bend():
    f = flake([(0, 0), (24, 0), (24, 4), (4, 4), (4, 24), (0, 24)])
    curve = next(medial_paths(f))
    assert curve.length > 34
    directions = {tuple(np.abs(np.round(curve.tangents[k])).astype(int)) for k in (len(curve.points) // 5, -30)}
    assert directions == {(1, 0), (0, 1)}
    assert np.hypot(*curve.tangents.T) == pytest.approx(1.0)


def test_every_curve_lies_in_the_outer_contour():
    f = flake(rotate([(0, 0), (24, 0), (24, 4), (4, 4), (4, 24), (0, 24)], 20))
    for curve in curves(f):
        inside = shapely.contains_xy(f.filled.buffer(0.01), curve.points[:, 0], curve.points[:, 1])
        assert inside.mean() > 0.9


def test_gates_reach_past_both_edges():
    f = flake(BAR)
    sizes = size_levels(LIMITS)[0]
    stations = gate_stations(f, sweep(f, 0.0), sizes)
    used = [r for r, ok in zip(stations.rects, stations.ok) if ok]
    assert len(used) > 50
    for rect in used:
        ys = [y for _, y in rect.corners]
        assert min(ys) == pytest.approx(-sizes.overhang)
        assert max(ys) == pytest.approx(6 + sizes.overhang)


def test_gates_do_not_end_in_another_arm():
    """Between two arms 0.5 um apart no gate that crosses one of them may reach into the other."""
    f = flake([(0, 0), (20, 0), (20, 4), (3, 4), (3, 4.5), (20, 4.5), (20, 8), (0, 8)])
    sizes = size_levels(LIMITS)[0]
    for curve in curves(f):
        stations = gate_stations(f, curve, sizes)
        for rect, ok in zip(stations.rects, stations.ok):
            if ok:
                cut = shapely.intersection(f.filled, shapely.Polygon(rect.corners))
                ends = shapely.MultiPoint([rect.at(u, v) for u in (-rect.hx, 0, rect.hx) for v in (-rect.hy, rect.hy)])
                assert not f.filled.intersects(ends)
                assert cut.geom_type == "Polygon"


def test_stations_keep_off_obstacles():
    f = flake(BAR)
    wall = shapely.box(8, -5, 12, 12)
    shapely.prepare(wall)
    curve, sizes = sweep(f, 0.0), size_levels(LIMITS)[1]
    for find in (gate_stations, contact_stations):
        free, blocked = find(f, curve, sizes), find(f, curve, sizes, wall)
        assert free.ok.sum() > blocked.ok.sum() > 0
        for rect, ok in zip(blocked.rects, blocked.ok):
            assert not (ok and wall.intersects(shapely.Polygon(rect.corners)))


def test_chains_respect_obstacles_and_order():
    f = flake(BAR)
    wall = shapely.box(8, -5, 12, 12)
    shapely.prepare(wall)
    chain = next(place_stack(f, 2, LIMITS, Obstacles(wall, wall)))
    along = [r.cx for pair in zip(chain.contacts, chain.gates) for r in pair] + [chain.contacts[-1].cx]
    assert along in (sorted(along), sorted(along, reverse=True))
    assert all(gap(g, c) >= LIMITS.separation for g in chain.gates for c in chain.contacts)


def bar_chain(gate: Rect, *contacts: Rect) -> Chain:
    return Chain((gate,), contacts, size_levels(LIMITS)[0])


def upright(x: float, y: float, hx: float, hy: float) -> Rect:
    return Rect(x, y, 1.0, 0.0, hx, hy)


def test_separates_accepts_the_plain_transistor_only():
    f = flake(BAR)
    gate, left, right = upright(10, 3, 0.5, 4), upright(5, 3, 1, 1), upright(15, 3, 1, 1)
    assert separates(f, bar_chain(gate, left, right))
    short = upright(10, 2, 0.5, 3.5)
    assert not separates(f, bar_chain(short, left, right)), "a gate that ends inside cuts nothing"
    assert not separates(f, bar_chain(gate, left, upright(7, 3, 0.5, 1))), "both contacts on one side"
    assert not separates(f, bar_chain(gate, left, upright(22, 3, 1, 1))), "a contact beside the flake"


def test_separates_wants_all_arms_of_a_ring_cut():
    f = flake(BAR, [box(8, 2, 12, 4)])
    left, right = upright(4, 3, 1, 1), upright(16, 3, 1, 1)
    one_arm = upright(10, 0.75, 0.5, 1.75)
    assert not separates(f, bar_chain(one_arm, left, right))
    assert separates(f, bar_chain(upright(10, 3, 0.5, 4), left, right))


# -- wires ---------------------------------------------------------------------------------------------------------


def two_terminals() -> list[Terminal]:
    return [Terminal(upright(0, 0, 0.5, 0.5)), Terminal(upright(10, 0, 0.5, 0.5))]


def test_a_free_wire_is_straight_and_joins_the_contacts():
    terminals = two_terminals()
    wire = route(terminals, [0], [1], [], [], 0.4, 0.2)
    assert wire is not None
    assert math.dist(wire.points[0], wire.points[-1]) == pytest.approx(
        sum(map(math.dist, wire.points, wire.points[1:]))
    )
    metal = shapely.union_all([shapely.Polygon(p) for p in wire.polygons])
    assert metal.geom_type == "Polygon"
    assert all(metal.intersects(shapely.Polygon(t.rect.corners)) for t in terminals)


def test_a_wire_goes_round_a_wall_at_its_distance():
    wall = shapely.box(4, -6, 6, 3)
    wire = route(two_terminals(), [0], [1], grow([wall], 0.5), [], 0.4, 0.2)
    assert wire is not None
    assert max(y for _, y in wire.points) > 3
    metal = shapely.union_all([shapely.Polygon(p) for p in wire.polygons])
    assert metal.distance(wall) >= 0.5 - 0.2 - 1e-6
    assert all(len(p) <= 16 for p in wire.polygons)
    turns = [
        np.degrees(np.arccos(np.clip(np.dot(u, v) / np.linalg.norm(u) / np.linalg.norm(v), -1, 1)))
        for u, v in zip(np.diff(wire.points, axis=0), np.diff(wire.points, axis=0)[1:])
    ]
    assert max(turns) < 90


def test_an_enclosed_contact_cannot_be_reached():
    cage = shapely.difference(shapely.box(-3, -3, 3, 3), shapely.box(-2, -2, 2, 2))
    assert route(two_terminals(), [0], [1], [cage], [], 0.4, 0.2) is None


@pytest.mark.parametrize("width", [0.2, 0.4])
@pytest.mark.parametrize("seed", range(12))
def test_wires_between_scattered_walls_have_simple_outlines(seed, width):
    rng = np.random.default_rng(seed)
    walls = [
        shapely.box(x, y, x + w, y + h)
        for x, y, w, h in zip(
            rng.uniform(2, 16, 14), rng.uniform(-6, 6, 14), rng.uniform(0.1, 2, 14), rng.uniform(0.1, 2, 14)
        )
    ]
    terminals = [Terminal(upright(0, 0, 0.5, 0.5)), Terminal(upright(20, 0, 0.5, 0.5))]
    wire = route(terminals, [0], [1], grow(walls, 0.1 + width / 2), [], width, 0.1)
    assert wire is not None
    pieces = [shapely.Polygon(p) for p in wire.polygons]
    assert all(p.is_valid for p in pieces)
    assert shapely.union_all(pieces).distance(shapely.union_all(walls)) > 0.09


def test_a_used_side_is_not_used_again():
    first, second = two_terminals()
    wire = route([Terminal(first.rect, (0,)), second], [0], [1], [], [], 0.4, 0.2)
    assert wire is not None
    assert wire.ends[0] == (0, 0)
    assert min(x for x, _ in wire.points) < -0.5


def test_long_wires_are_drawn_in_overlapping_pieces():
    walls = [shapely.box(x, -40 + 20 * (x % 4 > 1), x + 0.5, 20 + 20 * (x % 4 > 1)) for x in range(2, 30, 2)]
    terminals = [Terminal(upright(0, 0, 0.5, 0.5)), Terminal(upright(32, 0, 0.5, 0.5))]
    wire = route(terminals, [0], [1], grow(walls, 0.3), [], 0.3, 0.2)
    assert wire is not None
    assert len(wire.points) > 9
    pieces = [shapely.Polygon(p) for p in wire.polygons]
    assert all(p.is_valid for p in pieces)
    assert shapely.union_all(pieces).geom_type == "Polygon"
    assert all(len(p) <= 16 for p in wire.polygons)
