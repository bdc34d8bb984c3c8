"""Placement and rows on meshes whose good placement is known."""

import numpy as np
import pytest

from edagym.envs.ppa.flow.floorplan import ROW, SITE, make_floorplan
from edagym.envs.ppa.flow.legalise import legalise
from edagym.envs.ppa.flow.place import Hypergraph, effective_density, place
from edagym.errors import FlowError


def mesh(side, seed=0):
    """Cells tied to their right and upper neighbours, numbered at random; ports on two edges."""
    rng = np.random.default_rng(seed)
    number = rng.permutation(side * side)
    pins, starts = [], [0]
    for i in range(side):
        for j in range(side):
            net = [number[i * side + j]]
            net += [number[(i + 1) * side + j]] if i + 1 < side else []
            net += [number[i * side + j + 1]] if j + 1 < side else []
            if i in (0, side - 1) and j % 2 == 0:
                net.append(side * side + j // 2 + (side // 2 if i else 0))
            if len(net) > 1:
                pins += net
                starts.append(len(pins))
    widths = rng.integers(3, 9, side * side)
    return Hypergraph(widths, 2 * (side // 2), np.array(pins), np.array(starts), np.ones(len(starts) - 1))


def plan_of(graph, utilization):
    return make_floorplan(graph.widths.sum() * SITE * ROW / 1e6, utilization)


def test_placement_beats_a_random_one_by_far():
    graph = mesh(16)
    plan = plan_of(graph, 40)
    places = place(graph, plan, 0.6)
    rng = np.random.default_rng(1)
    shuffled = places.copy()
    shuffled[: graph.cells] = places[rng.permutation(graph.cells)]
    assert graph.half_perimeters(places).sum() < 0.35 * graph.half_perimeters(shuffled).sum()


def test_lower_density_spreads_cells_and_lengthens_wires():
    graph = mesh(16)
    plan = plan_of(graph, 30)
    lengths = [graph.half_perimeters(place(graph, plan, d)).sum() for d in (0.35, 0.6, 0.9)]
    assert lengths[0] > lengths[1] > lengths[2]


def test_density_below_what_the_cells_need_is_raised():
    graph = mesh(8)
    plan = plan_of(graph, 60)
    assert effective_density(graph, plan, 0.1) > 0.6
    assert effective_density(graph, plan, 0.9) == 0.9
    np.testing.assert_array_equal(place(graph, plan, 0.1), place(graph, plan, 0.2))


def test_heavier_nets_become_shorter():
    graph = mesh(12)
    plan = plan_of(graph, 40)
    base = graph.half_perimeters(place(graph, plan, 0.6))
    long = np.argsort(-base)[:10]
    weights = graph.weights.copy()
    weights[long] = 4
    heavy = Hypergraph(graph.widths, graph.ports, graph.pins, graph.starts, weights)
    assert heavy.half_perimeters(place(heavy, plan, 0.6))[long].sum() < 0.8 * base[long].sum()


def test_placement_is_the_same_each_time():
    graph = mesh(10)
    plan = plan_of(graph, 40)
    assert place(graph, plan, 0.6).tobytes() == place(graph, plan, 0.6).tobytes()


@pytest.mark.parametrize("utilization", [20, 60, 90, 93])
def test_rows_hold_cells_on_sites_without_overlap(utilization):
    graph = mesh(30)
    plan = plan_of(graph, utilization)
    corners = legalise(graph.widths, place(graph, plan, 0.7)[: graph.cells], plan)
    x1, y1, x2, y2 = plan.core
    assert ((corners[:, 0] - x1) % SITE == 0).all()
    assert ((corners[:, 1] - y1) % ROW == 0).all()
    right = corners[:, 0] + graph.widths * SITE
    assert corners[:, 0].min() >= x1 + 2 * SITE
    assert right.max() <= x2 - 2 * SITE
    assert corners[:, 1].min() >= y1
    assert corners[:, 1].max() <= y2 - ROW
    for row in np.unique(corners[:, 1]):
        inside = np.flatnonzero(corners[:, 1] == row)
        inside = inside[np.argsort(corners[inside, 0])]
        assert (right[inside][:-1] <= corners[inside, 0][1:]).all()


def test_legal_places_stay():
    graph = mesh(10)
    plan = plan_of(graph, 40)
    corners = legalise(graph.widths, place(graph, plan, 0.6)[: graph.cells], plan)
    centres = corners + np.column_stack([graph.widths * SITE / 2, np.full(graph.cells, ROW / 2)])
    np.testing.assert_array_equal(legalise(graph.widths, centres, plan), corners)


def test_many_ports_are_matched_by_order(monkeypatch):
    graph = mesh(16)
    plan = plan_of(graph, 40)
    lengths = [graph.half_perimeters(place(graph, plan, 0.6)).sum()]
    monkeypatch.setattr("edagym.envs.ppa.flow.place.MANY_PORTS", 4)
    places = place(graph, plan, 0.6)
    lengths.append(graph.half_perimeters(places).sum())
    assert len(np.unique(places[graph.cells :], axis=0)) == graph.ports
    assert lengths[1] < 1.3 * lengths[0]


def test_too_many_cells_do_not_fit():
    widths = np.full(100, 10)
    plan = make_floorplan(95 * 10 * SITE * ROW / 1e6, 100)
    with pytest.raises(FlowError, match="infeasible") as error:
        legalise(widths, np.zeros((100, 2)), plan)
    assert error.value.field == "place"
