"""The procedural flake model: every draw is valid and of the tier asked for, and a mix has the published statistics."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shapely import Polygon

from edagym.errors import TaskError, ToolError
from edagym.task_assets.fet.contours import TIERS, procedural_contour
from edagym.task_assets.fet.contours.flake_model import AREA_UM2, HOLED_AREA_UM2
from edagym.task_assets.fet.grid import ring_to_dbu, ring_to_um


def check(contour, tier: str, area: tuple[float, float], max_vertices: int = 51) -> Polygon:
    shape = Polygon(contour.hull, contour.holes)
    assert shape.is_valid
    assert Polygon(contour.hull).exterior.is_ccw
    assert shape.bounds[:2] == (0.0, 0.0)
    assert 4 <= contour.n_vertices <= max_vertices
    assert area[0] <= contour.outer_area_um2 <= area[1]
    assert contour.tier == tier
    assert contour.source == "procedural"
    for ring in (contour.hull, *contour.holes):
        assert ring_to_um(ring_to_dbu(ring)) == ring
        assert len(set(ring)) == len(ring)
    return shape


@given(seed=st.integers(0, 2**32 - 1), tier=st.sampled_from(TIERS))
@settings(max_examples=300, deadline=None)
def test_any_seed_gives_a_sound_flake_of_its_tier(seed: int, tier: str) -> None:
    contour = procedural_contour(np.random.default_rng(seed), tier=tier)
    shape = check(contour, tier, AREA_UM2)
    # The longest chord is at least the 60 pixels that a real flake needs.
    xy = np.asarray(contour.hull)
    assert np.sqrt(((xy[:, None] - xy[None]) ** 2).sum(axis=2)).max() >= 17.57
    # Necks under 0.8 um (less on small flakes) do not occur: the peeled flake is one piece.
    depth = min(0.4, 0.055 * np.sqrt(contour.area_um2))
    assert isinstance(shape.buffer(-0.999 * depth, join_style="mitre"), Polygon)


@given(seed=st.integers(0, 2**32 - 1), tier=st.sampled_from(TIERS), n=st.integers(1, 3))
@settings(max_examples=120, deadline=None)
def test_holes_lie_inside_with_walls(seed: int, tier: str, n: int) -> None:
    contour = procedural_contour(np.random.default_rng(seed), tier=tier, n_holes=n)
    check(contour, tier, HOLED_AREA_UM2)
    assert len(contour.holes) == n
    outer = Polygon(contour.hull)
    holes = [Polygon(h) for h in contour.holes]
    for k, hole in enumerate(holes):
        assert hole.exterior.is_ccw
        assert outer.contains(hole)
        assert outer.exterior.distance(hole) >= 1.0
        assert 0.8 <= 2.0 * np.sqrt(hole.area / np.pi) <= 5.0
        assert all(hole.distance(other) >= 1.0 for other in holes[:k])


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("area", [(26.5, 40.0), (150.0, 160.0), (600.0, 796.7)])
def test_area_range_and_vertex_limit_are_kept(tier: str, area: tuple[float, float]) -> None:
    rng = np.random.default_rng(11)
    for _ in range(10):
        check(procedural_contour(rng, tier=tier, area_um2=area, max_vertices=20), tier, area, max_vertices=20)


def test_equal_seeds_give_equal_contours_and_the_stream_goes_on() -> None:
    a, b = np.random.default_rng(5), np.random.default_rng(5)
    first = [procedural_contour(a, tier=t, n_holes=k) for t in TIERS for k in (0, 1)]
    second = [procedural_contour(b, tier=t, n_holes=k) for t in TIERS for k in (0, 1)]
    assert first == second
    assert len({c.id for c in first}) == 6
    assert a.random() == b.random()


def test_mix_has_the_published_statistics() -> None:
    """370 flakes of tiers 134/151/85 (the paper's counts): medians of area, solidity and vertices, and their ranges."""
    rng = np.random.default_rng(7)
    mix = [procedural_contour(rng, tier=t) for t, n in zip(TIERS, (134, 151, 85)) for _ in range(n)]
    area = np.array([c.outer_area_um2 for c in mix])
    solidity = np.array([c.solidity for c in mix])
    vertices = np.array([c.n_vertices for c in mix])
    assert np.median(area) == pytest.approx(150.6, rel=0.12)
    assert area.min() >= 26.5
    assert area.max() <= 796.7
    assert area.max() > 500.0
    assert np.median(solidity) == pytest.approx(0.86, abs=0.02)
    assert 0.31 <= solidity.min() < 0.55
    assert 12 <= np.median(vertices) <= 14
    assert vertices.min() <= 7
    assert 28 <= vertices.max() <= 51
    assert len({c.id for c in mix}) == len(mix)


@pytest.mark.parametrize(
    ("field", "kwargs"),
    [
        ("tier", {"tier": "G4"}),
        ("n_holes", {"tier": "G1", "n_holes": 5}),
        ("n_holes", {"tier": "G1", "n_holes": -1}),
        ("max_vertices", {"tier": "G1", "max_vertices": 5}),
        ("area_um2", {"tier": "G1", "area_um2": (100.0, 50.0)}),
        ("area_um2", {"tier": "G1", "area_um2": (0.0, 50.0)}),
    ],
)
def test_bad_arguments_are_named(field: str, kwargs: dict) -> None:
    with pytest.raises(TaskError) as e:
        procedural_contour(np.random.default_rng(0), **kwargs)
    assert e.value.field == field


def test_impossible_request_ends_with_a_tool_error() -> None:
    with pytest.raises(ToolError, match="no flake"):
        procedural_contour(np.random.default_rng(0), tier="G1", n_holes=4, area_um2=(10.0, 12.0))
