"""Rewards as functions of verdicts."""

from __future__ import annotations

from collections.abc import Callable

from edagym.verifiers.verdict import Criterion, Verdict

RewardFn = Callable[[Verdict | None, Verdict | None, bool], float]
"""(last verdict that the agent saw before this step, verdict run in this step, episode over) -> reward."""


class SparseReward:
    """1.0 on the step that ends an episode with a passing layout, else 0.0.

    Args:
        criterion: Which success flag counts.
    """

    def __init__(self, criterion: Criterion = "strict") -> None:
        self.criterion: Criterion = criterion

    def __call__(self, before: Verdict | None, after: Verdict | None, done: bool) -> float:
        """Return the reward of a step; see `RewardFn`."""
        return float(done and after is not None and after.success(self.criterion))
