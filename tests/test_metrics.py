"""Statistics: the papers' published figures from their counts, hand-worked cases, and properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edagym.baselines import metrics


def _table(distribution: tuple[int, ...]) -> np.ndarray:
    """Outcomes (tasks, 5) in which `distribution[c]` tasks have c successes."""
    rows = [[1] * c + [0] * (5 - c) for c, tasks in enumerate(distribution) for _ in range(tasks)]
    return np.array(rows, dtype=float)


# 2D-FET-Bench V2, Figure 3 and Table 11: success distribution over 128 tasks, and the published row.
PUBLISHED = {
    "GPT5.6-Luna": (
        (25, 12, 9, 15, 11, 56),
        (62.3, 55.5, 69.2),
        (80.5, 73.4, 86.7),
        (43.8, 35.2, 52.3),
        399,
    ),
    "GLM-5": ((65, 16, 11, 10, 14, 12), (28.8, 22.8, 35.0), (49.2, 40.6, 57.8), (9.4, 4.7, 14.8), 184),
}


@pytest.mark.parametrize("model", PUBLISHED)
def test_published_rows_from_their_counts(model: str) -> None:
    distribution, *rows, successes = PUBLISHED[model]
    found = metrics.success_table(_table(distribution), np.random.default_rng(20260920))
    assert (found.tasks, found.attempts, found.missing, found.successes) == (128, 640, 0, successes)
    for interval, expected in zip((found.pass_1, found.pass_k, found.all_k), rows, strict=True):
        got = [100 * x for x in (interval.estimate, interval.low, interval.high)]
        assert got == pytest.approx(expected, abs=0.3)
        assert got[0] == pytest.approx(expected[0], abs=0.051)


def test_exact_percentiles_are_the_limit_of_many_draws() -> None:
    values = np.random.default_rng(0).integers(0, 6, 30) / 5
    exact = metrics.task_bootstrap(values, np.random.default_rng(0))
    # A shift far below the size of a step takes the values off the lattice, and they are resampled.
    drawn = metrics.task_bootstrap(values + 1e-7 * np.arange(30), np.random.default_rng(1), draws=200_000)
    assert (exact.low, exact.high) == pytest.approx((drawn.low, drawn.high), abs=0.2 / 30 + 1e-4)


def test_missing_attempts_leave_the_denominator() -> None:
    table = [[1, 0, None], [None, None, None], [1, 1, None], [0, None, 0]]
    assert metrics.pass_at_1(table) == pytest.approx([0.5, math.nan, 1.0, 0.0], nan_ok=True)
    assert metrics.observed_pass(table) == pytest.approx([1, math.nan, 1, 0], nan_ok=True)
    assert metrics.all_pass(table) == pytest.approx([0, math.nan, math.nan, 0], nan_ok=True)
    found = metrics.success_table(table, np.random.default_rng(0), draws=100)
    assert (found.tasks, found.attempts, found.missing, found.successes) == (3, 6, 6, 3)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 8), st.data())
def test_unbiased_pass_at_k_is_the_mean_over_all_subsets(n: int, data: st.DataObject) -> None:
    c = data.draw(st.integers(0, n))
    k = data.draw(st.integers(1, n))
    expected = 1 - math.comb(n - c, k) / math.comb(n, k)
    row = [[1.0] * c + [0.0] * (n - c)]
    assert metrics.unbiased_pass_at_k(row, k)[0] == pytest.approx(expected, abs=1e-12)
    assert np.isnan(metrics.unbiased_pass_at_k(row, n + 1)[0])


def test_vrr_by_hand() -> None:
    assert metrics.violation_reduction_rate(4, 1) == 0.75
    assert metrics.violation_reduction_rate(4, 9) == 0.0  # more violations than at first are no negative score
    assert metrics.violation_reduction_rate(0, 0) == 1.0
    assert metrics.violation_reduction_rate(0, 2) == 0.0
    with pytest.raises(ValueError, match="negative"):
        metrics.violation_reduction_rate(-1, 0)


def test_paired_bootstrap_is_tight_where_arms_move_together() -> None:
    rng = np.random.default_rng(1)
    base = rng.random(60)
    paired = metrics.paired_bootstrap(base + 0.1, base, np.random.default_rng(2))
    assert paired.estimate == pytest.approx(0.1)
    assert paired.high - paired.low < 1e-9
    unpaired = metrics.paired_bootstrap(rng.permutation(base) + 0.1, base, np.random.default_rng(2))
    assert unpaired.high - unpaired.low > 0.1
    with pytest.raises(ValueError, match="same tasks"):
        metrics.paired_bootstrap(base, base[1:], rng)


def test_cluster_bootstrap_with_single_tasks_is_the_task_bootstrap() -> None:
    values = np.random.default_rng(3).random(40)  # not on a lattice, so that both resample
    clusters = metrics.cluster_bootstrap({"a": values}, range(40), np.random.default_rng(4), draws=5_000)["a"]
    task = metrics.task_bootstrap(values, np.random.default_rng(4), draws=5_000)
    assert np.percentile(clusters, (2.5, 97.5)) == pytest.approx((task.low, task.high))


def test_cluster_bootstrap_keeps_the_weight_of_large_groups() -> None:
    # One group of nine ones, one of a single zero: the estimate is 0, 0.9 or 1, by which groups were drawn.
    values, groups = [1.0] * 9 + [0.0], ["big"] * 9 + ["small"]
    drawn = metrics.cluster_bootstrap({"a": values}, groups, np.random.default_rng(5), draws=4_000)["a"]
    assert set(np.round(drawn, 6)) == {0.0, 0.9, 1.0}
    assert np.mean(drawn == 1.0) == pytest.approx(0.25, abs=0.03)


def test_simultaneous_intervals_are_wider_and_cover() -> None:
    rng = np.random.default_rng(6)
    covered = 0
    for _ in range(100):
        base = rng.normal(0.5, 0.2, 50)
        arms = {"base": base, **{f"arm{i}": base + rng.normal(0.0, 0.2, 50) for i in range(6)}}
        intervals = metrics.simultaneous_intervals(arms, "base", range(50), rng, draws=800)
        covered += all(i.low <= 0.0 <= i.high for i in intervals.values())
    assert covered >= 86  # 95 % nominal; resampling 50 tasks undercovers by a little
    single = metrics.paired_bootstrap(arms["arm0"], base, np.random.default_rng(7), draws=4_000)
    assert intervals["arm0"].high - intervals["arm0"].low > single.high - single.low
    with pytest.raises(ValueError, match="baseline"):
        metrics.simultaneous_intervals(arms, "nobody", range(50), rng)


def test_spearman_with_ties_and_missing_values() -> None:
    found = metrics.spearman([1, 2, 2, 4, math.nan], [1, 3, 3, 9, 0], np.random.default_rng(8), draws=500)
    assert found.estimate == pytest.approx(1.0)
    from scipy.stats import spearmanr

    rng = np.random.default_rng(9)
    x, y = rng.integers(0, 6, 80), rng.integers(0, 6, 80)
    assert metrics.spearman(x, y, rng, draws=50).estimate == pytest.approx(spearmanr(x, y).statistic)
    assert np.isnan(metrics.spearman([1, 1, 1], [1, 2, 3], rng, draws=20).estimate)


def test_strata_keep_their_tasks_apart() -> None:
    found = metrics.strata([1, 1, 0, 0, 1], ["L1", "L1", "L2", "L2", "L2"], np.random.default_rng(0), draws=500)
    assert (found["L1"].estimate, found["L1"].low, found["L1"].high) == (1, 1, 1)
    assert found["L2"].estimate == pytest.approx(1 / 3)


def test_symptoms_and_transitions_by_hand() -> None:
    failed = [["min_width:a", "min_width:b", "must_cross:g"], ["must_cross:g"], []]
    assert metrics.symptoms(failed) == {"must_cross": 2, "min_width": 1}
    rounds = [[["a:1", "b"], ["a:2"], ["c"], ["c"], ["c", "d"], []], [["a"]], []]
    expected = {"same": 1, "resolved": 1, "introduced": 1, "exchanged": 1, "passed": 1}
    assert metrics.revision_transitions(rounds) == expected


def test_outcomes_refuse_other_numbers() -> None:
    with pytest.raises(ValueError, match="0, 1 or missing"):
        metrics.pass_at_1([[0.5]])
    with pytest.raises(ValueError, match="two dimensions"):
        metrics.pass_at_1([1, 0])
