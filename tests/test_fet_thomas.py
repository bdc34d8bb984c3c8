from __future__ import annotations

import numpy as np
import pytest

from edagym.task_assets.fet import thomas

# 200 windows of 4 x 4 camera fields (1920 x 1200 px at 0.293 um): about 150 points each, so that the pair counts, not
# the fit, set the scatter (2 to 5 % between seeds).
FIT_WINDOW_UM = (4 * 1920 * thomas.PIXEL_UM, 4 * 1200 * thomas.PIXEL_UM)


@pytest.mark.parametrize("name", sorted(thomas.TABLE_13))
def test_fit_returns_table_13(name: str) -> None:
    true, _ = thomas.TABLE_13[name]
    rng = np.random.default_rng(20)
    fitted = thomas.fit([thomas.simulate(rng, true, FIT_WINDOW_UM) for _ in range(200)])
    assert fitted.kappa == pytest.approx(true.kappa, rel=0.15)
    assert fitted.sigma == pytest.approx(true.sigma, rel=0.15)
    assert fitted.mu == pytest.approx(true.mu, rel=0.15)


def test_fit_tells_processes_apart() -> None:
    rng = np.random.default_rng(21)
    wide = thomas.ThomasParameters(2e-5, 30.0, 2.0)
    fitted = thomas.fit([thomas.simulate(rng, wide, FIT_WINDOW_UM) for _ in range(60)])
    assert fitted.sigma == pytest.approx(30.0, rel=0.2)
    assert fitted.mu == pytest.approx(2.0, rel=0.2)


def test_border_corrected_k_equals_a_plain_count() -> None:
    rng = np.random.default_rng(3)
    radii = np.array([10.0, 25.0, 40.0, 60.0])
    patterns = [
        thomas.Pattern(rng.uniform(0, (300, 200), (n, 2)), np.zeros((n, 2)), (300.0, 200.0)) for n in (40, 0, 1, 25)
    ]
    counted = []
    for r in radii:
        centres = neighbours = 0
        for p in patterns:
            for i, (x, y) in enumerate(p.points):
                if min(x, 300 - x, y, 200 - y) >= r:
                    centres += 1
                    neighbours += sum(np.hypot(*(q - p.points[i])) <= r for j, q in enumerate(p.points) if j != i)
        counted.append(neighbours / centres / (66 / (4 * 300 * 200)))
    assert thomas.k_border(patterns, radii) == pytest.approx(counted)


def test_simulation_has_the_intensity_and_stays_inside() -> None:
    rng = np.random.default_rng(4)
    p = thomas.TABLE_13["GrapheneM"][0]
    patterns = [thomas.simulate(rng, p, FIT_WINDOW_UM) for _ in range(100)]
    n = sum(len(q.points) for q in patterns)
    assert n / (100 * FIT_WINDOW_UM[0] * FIT_WINDOW_UM[1]) == pytest.approx(p.intensity, rel=0.03)
    every = np.concatenate([q.points for q in patterns])
    assert (every >= 0).all()
    assert (every <= FIT_WINDOW_UM).all()
    offsets = np.concatenate([q.points - q.parents for q in patterns])
    assert offsets.std(axis=0) == pytest.approx([p.sigma, p.sigma], rel=0.03)


def test_window_of_the_paper() -> None:
    # Appendix F draws a six-flake scene in 835 x 522 um, which fits GrapheneL.
    assert thomas.TABLE_13["GrapheneL"][0].window(6) == pytest.approx((835, 522), abs=1)


def test_components_are_drawn_by_weight() -> None:
    rng = np.random.default_rng(5)
    drawn = [thomas.draw_component(rng) for _ in range(4000)]
    for name, (_, weight) in thomas.TABLE_13.items():
        assert drawn.count(name) / 4000 == pytest.approx(weight, abs=0.03)
