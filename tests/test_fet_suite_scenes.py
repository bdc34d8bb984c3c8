from __future__ import annotations

import math

import numpy as np
import pytest
from shapely import Polygon

from edagym.envs.fet import scene
from edagym.envs.fet.plan import N_DISTINCT, plan_suite
from edagym.envs.fet.scene import place
from edagym.errors import ToolError
from edagym.task_assets.fet.contours import Contour, load_library, procedural_contour
from edagym.task_assets.fet.grid import to_dbu
from edagym.task_assets.fet.manifest import load_manifest
from edagym.task_assets.fet.suite import load_task, task_ids


def flakes(seed: int, n: int, tier: str = "G2") -> list[Contour]:
    rng = np.random.default_rng(seed)
    return [procedural_contour(rng, tier=tier) for _ in range(n)]


def bodies(placed: tuple[scene.Placed, ...]) -> list[Polygon]:
    return [Polygon(hull, holes) for hull, holes in placed]


def gaps(shapes: list[Polygon]) -> list[float]:
    return [a.distance(b) for i, a in enumerate(shapes) for b in shapes[:i]]


@pytest.mark.parametrize("n", [1, 2, 5, 10])
@pytest.mark.parametrize("tight", [None, 0.3])
def test_scenes_keep_gap_margin_grid_and_shapes(n: int, tight: float | None) -> None:
    for seed in range(4):
        contours = flakes(seed, n)
        placed = place(np.random.default_rng(seed), contours, tight=tight)
        shapes = bodies(placed)
        assert min(gaps(shapes), default=1.0) >= scene.GAP_UM
        assert (min(p.bounds[0] for p in shapes), min(p.bounds[1] for p in shapes)) == (5.0, 5.0)
        for contour, (hull, _), shape in zip(contours, placed, shapes):
            assert shape.is_valid
            assert shape.exterior.is_ccw
            assert shape.area == pytest.approx(contour.area_um2, rel=1e-3)
            assert len(hull) == contour.n_vertices
            assert all(abs(v * 1000 - to_dbu(v)) < 1e-6 for p in hull for v in p)


def test_holes_turn_with_their_flake() -> None:
    contour = procedural_contour(np.random.default_rng(3), tier="G1", n_holes=2)
    ((hull, holes),) = place(np.random.default_rng(4), [contour])
    assert Polygon(hull, holes).area == pytest.approx(contour.area_um2, rel=1e-3)
    assert all(Polygon(hull).contains(Polygon(h)) for h in holes)
    assert len(holes) == 2


def test_equal_generators_give_equal_scenes_and_rotations_vary() -> None:
    contours = flakes(5, 3)
    first, again, other = (place(np.random.default_rng(s), contours) for s in (1, 1, 2))
    assert first == again
    assert first != other


def test_single_flakes_turn_uniformly() -> None:
    bar = Contour("procedural:bar", ((0, 0), (20, 0), (20, 2), (0, 2)), (), "procedural", {"thick": False})
    angles = []
    for seed in range(300):
        ((hull, _),) = place(np.random.default_rng(seed), [bar])
        (x0, y0), (x1, y1) = max(
            ((hull[k - 1], hull[k]) for k in range(4)), key=lambda e: math.dist(*e) + 1e-9 * (e[1][0] > e[0][0])
        )
        angles.append(math.degrees(math.atan2(y1 - y0, x1 - x0)) % 180.0)
    counts, _ = np.histogram(angles, 6, (0, 180))
    assert counts.min() > 25
    assert counts.max() < 80


def test_tight_windows_bring_flakes_together() -> None:
    contours = flakes(6, 4)
    spread = []
    for tight in (None, 0.55, 0.3):
        widest = [max(gaps(bodies(place(np.random.default_rng(s), contours, tight=tight)))) for s in range(8)]
        spread.append(float(np.mean(widest)))
    assert spread[0] > 1.5 * spread[1] > 1.5 * spread[2]


def test_pairs_are_neighbours() -> None:
    contours = flakes(7, 8)
    together, apart = [], []
    for seed in range(6):
        for pairs, into in ((True, together), (False, apart)):
            shapes = bodies(place(np.random.default_rng(seed), contours, pairs=pairs))
            into.append(np.mean([a.distance(b) for a, b in zip(shapes[::2], shapes[1::2])]))
    assert np.mean(together) < 0.4 * np.mean(apart)


def test_width_preference_is_followed() -> None:
    contours = flakes(8, 2)
    wide: dict[tuple[float, float], list[float]] = {(22.0, 60.0): [], (150.0, 300.0): []}
    for preferred, found in wide.items():
        for seed in range(6):
            placed = place(np.random.default_rng(seed), contours, width_um=preferred)
            found.append(float(max(np.ptp([p for hull, _ in placed for p in hull], axis=0))))
    narrow, broad = wide.values()
    assert np.median(narrow) < 80 < 130 < np.median(broad)


def test_flakes_that_cannot_fit_raise_a_tool_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scene, "MAX_PATTERNS", 2)
    huge = Contour("procedural:huge", ((0, 0), (900, 0), (900, 900), (0, 900)), (), "procedural", {"thick": False})
    with pytest.raises(ToolError):
        place(np.random.default_rng(0), [huge, huge])


def test_suite_scenes_keep_the_gap_and_the_margin() -> None:
    for task in map(load_task, task_ids()):
        shapes = [Polygon(r.hull, r.holes) for r in task.regions]
        assert min(gaps(shapes), default=1.0) >= scene.GAP_UM, task.id
        assert min(p.bounds[0] for p in shapes) == 5.0
        assert min(p.bounds[1] for p in shapes) == 5.0


def test_plan_serves_small_tasks_with_real_contours() -> None:
    entries = load_manifest().entries
    plan = plan_suite(entries, load_library(), np.random.default_rng(7))
    placements = [s for slots in plan.values() for s in slots]
    assert len(placements) == 370
    real = [s.contour for s in placements if s.contour is not None]
    assert len(real) - len({c.id for c in real}) == 370 - N_DISTINCT
    for entry in entries:
        for slot in plan[entry.id]:
            assert slot.tier == entry.tier
            assert slot.contour is None or (slot.contour.tier, bool(slot.contour.holes)) == (entry.tier, entry.holes)
        ids = [s.contour.id for s in plan[entry.id] if s.contour is not None]
        assert len(set(ids)) == len(ids)
    whole = [e for e in entries if not e.holes and all(s.contour and not s.locked for s in plan[e.id])]
    assert len(whole) >= 60


def test_flake_model_draws_stay_in_their_bands() -> None:
    plan = plan_suite(load_manifest().entries, load_library(), np.random.default_rng(7))
    rng = np.random.default_rng(1)
    slots = [s for task in plan.values() for s in task if s.contour is None][::6]
    for slot in slots:
        contour = slot.draw(rng)
        assert slot.area_um2[0] <= contour.outer_area_um2 <= slot.area_um2[1]
        assert slot.solidity[0] <= contour.solidity <= slot.solidity[1]
        assert slot.vertices[0] <= contour.n_vertices <= slot.vertices[1]
        assert (contour.tier, len(contour.holes)) == (slot.tier, slot.n_holes)
