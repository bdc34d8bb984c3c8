"""Channels against an independent count in shapely, on random flakes, gates and contacts.

On a flake without holes a component K of (gates AND flake) is a transistor when at least two pieces of (flake minus
K) carry a contact: no arcs, no sides. Drawings near a tolerance are left out: the oracle must agree with itself for
gates 6 nm larger and smaller, and landings must be clearly larger or smaller than 20 nm.
"""

from __future__ import annotations

import math

import klayout.db as kdb
import numpy as np
import pytest
import shapely

from edagym.verifiers.fet.drc import to_shapely
from edagym.verifiers.fet.transistors import (
    ContactShapes,
    Flake,
    GateShapes,
    analyse,
    count_transistors,
    find_channels,
)

Ring = list[tuple[int, int]]


def _region(*rings: Ring) -> kdb.Region:
    region = kdb.Region()
    for ring in rings:
        region.insert(kdb.Polygon([kdb.Point(x, y) for x, y in ring]))
    return region.merged()


def _star(rng: np.random.Generator, n: int, r0: float, r1: float, cx: float = 0.0, cy: float = 0.0) -> Ring:
    angles, radii = np.sort(rng.uniform(0, 2 * math.pi, n)), rng.uniform(r0, r1, n)
    return [(round(cx + r * math.cos(a)), round(cy + r * math.sin(a))) for a, r in zip(angles, radii)]


def _box(cx: float, cy: float, half_w: float, half_h: float, turn: float) -> Ring:
    c, s = math.cos(turn), math.sin(turn)
    corners = ((-half_w, -half_h), (half_w, -half_h), (half_w, half_h), (-half_w, half_h))
    return [(round(cx + c * x - s * y), round(cy + s * x + c * y)) for x, y in corners]


def _gates(rng: np.random.Generator, hull: Ring) -> list[Ring]:
    """One long box, often with a side within 3 nm of a vertex of the flake, sometimes with a second box."""
    turn = rng.uniform(0, math.pi) if rng.random() < 0.7 else float(rng.choice([0, math.pi / 2]))
    half_w, half_h = rng.uniform(300, 1500), rng.uniform(2000, 20_000)
    cx, cy = rng.uniform(-3000, 3000, 2)
    if rng.random() < 0.5:
        x, y = hull[int(rng.integers(len(hull)))]
        across, along = float(rng.choice([-half_w, half_w])) + int(rng.integers(-3, 4)), rng.uniform(-half_h, half_h)
        c, s = math.cos(turn), math.sin(turn)
        cx, cy = x - c * across + s * along, y - s * across - c * along
    gates = [_box(cx, cy, half_w, half_h, turn)]
    if rng.random() < 0.3:
        dx, dy = rng.uniform(-3000, 3000, 2)
        gates.append(_box(cx + dx, cy + dy, *rng.uniform(300, 3000, 2), rng.uniform(0, 3)))
    return gates


def _parts(geometry: shapely.Geometry) -> list[shapely.Polygon]:
    return [g for g in getattr(geometry, "geoms", [geometry]) if g.geom_type == "Polygon" and g.area > 1]


def _oracle(flake: shapely.Polygon, gates: shapely.Geometry, contacts: shapely.Geometry) -> int:
    total = 0
    for component in _parts(flake.intersection(gates)):
        pieces = _parts(flake.difference(component.buffer(1, join_style="mitre")))
        total += sum(not piece.intersection(contacts).buffer(-10).is_empty for piece in pieces) >= 2
    return total


def _drawings(seed: int, n: int, holed: bool):
    rng = np.random.default_rng(seed)
    while n:
        hull = _star(rng, int(rng.integers(4, 14)), 2500, 12_000)
        holes = [_star(rng, int(rng.integers(3, 7)), 300, 2500, *rng.uniform(-3000, 3000, 2))] if holed else []
        flake = shapely.Polygon(hull)
        if not flake.is_valid or flake.area < 2e7:
            continue
        if holed:
            hole = shapely.Polygon(holes[0])
            if not (hole.is_valid and hole.within(flake.buffer(-300))):
                continue
            flake = shapely.Polygon(hull, holes)
        gates = _gates(rng, hull)
        gate = shapely.union_all([shapely.Polygon(ring) for ring in gates])
        contacts = []
        for _ in range(int(rng.integers(2, 14))):
            ring = _box(*rng.uniform(-7000, 7000, 2), *rng.uniform(100, 1500, 2), rng.uniform(0, 3))
            if shapely.Polygon(ring).distance(gate) > 100:
                contacts.append(ring)
        contact = shapely.union_all([shapely.Polygon(ring) for ring in contacts])
        counts = {_oracle(flake, gate.buffer(d, join_style="mitre") if d else gate, contact) for d in (0, 6, -6)}
        landings = _parts(flake.intersection(contact))
        if len(counts) > 1 or any(p.buffer(-5).is_empty != p.buffer(-14).is_empty for p in landings):
            continue
        n -= 1
        near_hole = holed and gate.distance(shapely.Polygon(holes[0])) < 30
        yield hull, holes, gates, contacts, counts.pop(), near_hole


@pytest.mark.parametrize("holed", [False, True], ids=["without holes", "with a hole"])
def test_random_drawings(holed: bool):
    counted = exact = 0
    for hull, holes, gates, contacts, expected, near_hole in _drawings(2026, 150, holed):
        flake, gate, contact = _region(hull) - _region(*holes), _region(*gates), _region(*contacts)
        found = count_transistors(flake, [gate], contact)
        drawing = f"hull={hull} holes={holes} gates={gates} contacts={contacts}"
        if near_hole:
            # A gate over one arm of a ring also counts, and the oracle knows nothing of it.
            assert found >= expected, drawing
        else:
            assert found == expected, drawing
            exact += 1
        counted += expected > 0
        shapes = GateShapes(gate)
        here = Flake(flake)
        quick = analyse(here, shapes, ContactShapes(contact, shapes.region).landings(here, False))
        assert quick.transistors == found, drawing
    assert counted >= 20
    assert exact >= 75


NOTCHED = [
    (5024, 4984),
    (-4355, 2496),
    (-4676, -7391),
    (-1767, -3903),
    (-2212, -6948),
    (36, -3378),
    (3949, -6244),
    (9316, -260),
]


def test_gate_side_that_brushes_a_notch_of_the_flake_stays_one_side():
    """The gate's upper side passes 2 nm above a vertex of the flake: both halves face the same piece."""
    gate = [(9583, -5494), (9583, -3901), (-14364, -3901), (-14364, -5494)]
    contacts = [
        [(-572, -1200), (1164, 238), (1001, 434), (-734, -1004)],
        [(4033, -2991), (6165, -1563), (4549, 849), (2417, -579)],
    ]
    assert count_transistors(_region(NOTCHED), [_region(gate)], _region(*contacts)) == 0


@pytest.mark.parametrize("holes", [[], [[(-2000, -500), (-1000, -500), (-1000, 500)]]], ids=["whole", "hole elsewhere"])
@pytest.mark.parametrize("rise", [0.5, 1.5, 4.0, 40.0])
def test_gate_side_along_an_almost_flat_notch(rise: float, holes: list[Ring]):
    """The flake's edge comes up to the gate's side at a small angle: within 2 nm over a long way."""
    flake = [
        (-9000, -4000),
        (-9000, 4000),
        (9000, 4000),
        (9000, -4000),
        (8000, -1500),
        (0, -1001),
        (-8000, round(-1001 - rise * 100)),
    ]
    gate = [(-20_000, -6000), (20_000, -6000), (20_000, -1000), (-20_000, -1000)]
    contacts = [_box(-5000, 2000, 500, 500, 0), _box(5000, 2000, 500, 500, 0)]
    assert count_transistors(_region(flake) - _region(*holes), [_region(gate)], _region(*contacts)) == 0


def test_gate_tip_that_pokes_out_by_a_hair_does_not_cross():
    flake = [(0, 0), (20_000, 0), (20_000, 6000), (0, 6000)]
    contacts = [_box(4000, 3000, 1000, 1000, 0), _box(16_000, 3000, 1000, 1000, 0)]
    for overshoot, expected in ((-10, 0), (2, 0), (500, 1)):
        gate = [(9000, -1000), (11_000, -1000), (10_000, 6000 + overshoot)]
        assert count_transistors(_region(flake), [_region(gate)], _region(*contacts)) == expected


def test_gate_that_leaves_at_the_edge_where_it_entered_encloses_a_piece():
    flake = [(0, 0), (20_000, 0), (20_000, 12_000), (0, 12_000)]
    gate = [
        (-1000, 2000),
        (6000, 2000),
        (6000, 10_000),
        (-1000, 10_000),
        (-1000, 8500),
        (4500, 8500),
        (4500, 3500),
        (-1000, 3500),
    ]
    inner, outer = _box(2000, 6000, 1000, 1000, 0), _box(12_000, 6000, 1000, 1000, 0)
    assert count_transistors(_region(flake), [_region(gate)], _region(inner, outer)) == 1
    assert count_transistors(_region(flake), [_region(gate)], _region(outer, _box(12_000, 2000, 500, 500, 0))) == 0


def test_ring_gate_that_touches_the_flake_edge_from_inside_is_no_channel():
    flake = [(0, 0), (20_000, 0), (20_000, 20_000), (0, 20_000)]
    outer = [
        (round(10_000 + 9000 * math.cos(a)), round(9000 + 9000 * math.sin(a)))
        for a in np.linspace(0, 2 * math.pi, 64, endpoint=False)
    ]
    inner = [
        (round(10_000 + 6000 * math.cos(a)), round(9000 + 6000 * math.sin(a)))
        for a in np.linspace(0, 2 * math.pi, 64, endpoint=False)
    ]
    gate = _region(outer) - _region(inner)
    contacts = _region(_box(10_000, 9000, 2000, 2000, 0), _box(1500, 18_500, 1000, 1000, 0))
    assert find_channels(_region(flake), gate, contacts) == []


def test_channel_lists_its_sides_and_landings():
    flake = [(0, 0), (20_000, 0), (20_000, 6000), (0, 6000)]
    gate = [(9000, -1000), (11_000, -1000), (11_000, 7000), (9000, 7000)]
    (channel,) = find_channels(
        _region(flake), _region(gate), _region(_box(4000, 3000, 1000, 1000, 0)), name="bar", gate_layer="gate"
    )
    assert (channel.region, channel.gate_layer, channel.transistor) == ("bar", "gate", False)
    assert sorted(channel.sides) == [(0,), (1,)]
    assert sorted(len(on_it) for on_it in channel.landings) == [0, 1]
    areas = sorted(round(p.area) for p in to_shapely(list(channel.pieces)))
    assert areas == [(9000 - 3) * 6000] * 2
    assert sorted(arc.length for arc in channel.arcs) == [pytest.approx(6000, abs=6)] * 2
