"""Scores of a PPA attempt: success and the normalised improvement score (PostEDA-Bench, Section 3.2.1, Equation 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edagym.verifiers.ppa.report import METRICS


@dataclass(frozen=True)
class PPAScore:
    """Scores of one attempt.

    Attributes:
        nis: Normalised improvement score: mean of `parts`; 1 where every target is met.
        nothing: Its value for a design left as it was: the yardstick beside it.
        parts: Metric -> s_i.
        met: Metric -> whether its target is met.
    """

    nis: float
    nothing: float
    parts: Mapping[str, float]
    met: Mapping[str, bool]

    @property
    def all_met(self) -> bool:
        """Whether every target is met."""
        return all(self.met.values())


def metric_score(initial: float, target: float, final: float) -> float:
    """Return s_i of one metric; smaller values of the metric are better.

    Set A (misses its target initially): the share of the way to the target that was made, at most 1; negative where
    the metric got worse. Set B (meets it initially): 1 while it still does, else 1 - r_i. Where initial value and
    target coincide, r_i has no value; a final value beyond the target then costs its relative excess,
    ``1 - (final - target) / |target|``.
    """
    if initial > target:
        return min(1.0, (final - initial) / (target - initial))
    if final <= target:
        return 1.0
    if target == initial:
        return 1.0 - (final - target) / abs(target)
    return 1.0 - (final - initial) / (target - initial)


def score(initial: Mapping[str, float], targets: Mapping[str, float], final: Mapping[str, float] | None) -> PPAScore:
    """Score an attempt.

    Args:
        initial: Metric -> value before the attempt.
        targets: Metric -> largest allowed value; only these metrics count.
        final: Metric -> value of the last completed run; None: no run completed, and the initial values stand.

    Raises:
        ValueError: If there are no targets or a metric is unknown.
    """
    if not targets or not set(targets) <= set(METRICS):
        raise ValueError(f"targets must be of {METRICS}, got {list(targets)}")
    values = initial if final is None else final
    names = [m for m in METRICS if m in targets]
    parts = {m: metric_score(initial[m], targets[m], values[m]) for m in names}
    nothing = [metric_score(initial[m], targets[m], initial[m]) for m in names]
    return PPAScore(
        sum(parts.values()) / len(parts),
        sum(nothing) / len(nothing),
        parts,
        {m: values[m] <= targets[m] for m in names},
    )
