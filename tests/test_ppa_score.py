"""Scores: Equation 3 of the paper by hand, its corners, and its properties."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edagym.verifiers.ppa.score import metric_score, score

positive = st.floats(1e-6, 1e6)


@pytest.mark.parametrize(
    ("initial", "target", "final", "expected"),
    [
        # A: the target is missed at first.
        (300, 200, 300, 0.0),
        (300, 200, 250, 0.5),
        (300, 200, 200, 1.0),
        (300, 200, 150, 1.0),
        (300, 200, 350, -0.5),
        # B: it is met at first.
        (100, 120, 100, 1.0),
        (100, 120, 120, 1.0),
        (100, 120, 80, 1.0),
        (100, 120, 130, -0.5),
        (100, 120, 140, -1.0),
        # B with target = initial: r has no value.
        (100, 100, 100, 1.0),
        (100, 100, 90, 1.0),
        (100, 100, 125, 0.75),
    ],
)
def test_equation_3(initial, target, final, expected):
    assert metric_score(initial, target, final) == pytest.approx(expected)


def test_score_of_an_attempt():
    initial = {"effective_period": 320.0, "total_power": 1.6e-3, "die_area": 293.0}
    targets = {"effective_period": 240.0, "total_power": 2.0e-3}
    half = score(initial, targets, {**initial, "effective_period": 280.0, "die_area": 1e9})
    assert half.parts == {"effective_period": pytest.approx(0.5), "total_power": 1.0}
    assert half.nis == pytest.approx(0.75)
    assert half.nothing == pytest.approx(0.5)
    assert half.met == {"effective_period": False, "total_power": True}
    assert not half.all_met
    assert score(initial, targets, {**initial, "effective_period": 240.0}).all_met


def test_no_completed_run_scores_like_nothing():
    initial = {"effective_period": 320.0, "total_power": 1.6e-3, "die_area": 293.0}
    found = score(initial, {"effective_period": 240.0}, None)
    assert found.nis == found.nothing == 0.0
    assert not found.all_met


@pytest.mark.parametrize("targets", [{}, {"speed": 1.0}])
def test_bad_targets(targets):
    with pytest.raises(ValueError, match="targets"):
        score({}, targets, None)


@given(positive, positive, positive)
def test_properties(initial, target, final):
    s = metric_score(initial, target, final)
    assert not math.isnan(s)
    assert s <= 1.0
    assert (s == 1.0) >= (final <= target)
    # Only a missed target may score less than 1 (up to rounding of a value next to it).
    if s < 1.0 - 1e-9:
        assert final > target


@given(positive, positive, positive, positive)
def test_better_values_never_score_less(initial, target, one, two):
    better, worse = sorted((one, two))
    assert metric_score(initial, target, better) >= metric_score(initial, target, worse) - 1e-9
