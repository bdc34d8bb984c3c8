"""Statistics of evaluations: success measures, bootstrap intervals, contrasts, associations.

Everything works on plain arrays, one row per task and one column per attempt, and is vectorised. Missing attempts
(tool failures) are NaN: they leave the denominator and are counted by `missing`, never as failures.

Sources: 2D-FET-Bench V2, Equation 2 (pass@1, pass@k, all-k), Appendix A (task and cluster bootstrap, Equations 3 and
4); PostEDA-Bench, Equations 1 to 3 (SR, VRR, NIS) and Appendix H (paired task bootstrap).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

DRAWS = 10_000
"""Task-bootstrap draws of a marginal interval (2D-FET-Bench V2, Section 5)."""
PAIRED_DRAWS = 20_000
"""Draws of a paired difference (PostEDA-Bench, Appendix H)."""
CLUSTER_DRAWS = 50_000
"""Draws of simultaneous intervals (2D-FET-Bench V2, Appendix A)."""
_CHUNK = 4_000_000  # numbers per block of draws, so that memory stays bounded


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95 % interval, in the unit of the data.

    Attributes:
        estimate: The statistic on the data themselves; NaN without data.
        low: Lower end.
        high: Upper end.
    """

    estimate: float
    low: float
    high: float

    def percent(self) -> str:
        """Return ``"62.3 [55.5, 69.2]"``, in per cent."""
        return f"{100 * self.estimate:.1f} [{100 * self.low:.1f}, {100 * self.high:.1f}]"


# -- success measures --------------------------------------------------------------------------------------------------


def outcomes(values: ArrayLike) -> Array:
    """Return outcomes as float64 (tasks, attempts): 1 success, 0 failure, NaN missing; None becomes NaN.

    Raises:
        ValueError: If there are not two dimensions or a value is neither 0, 1 nor missing.
    """
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2:
        raise ValueError(f"outcomes need two dimensions (tasks, attempts), got shape {table.shape}")
    if not np.isin(table[~np.isnan(table)], (0.0, 1.0)).all():
        raise ValueError("outcomes must be 0, 1 or missing (NaN)")
    return table


def missing(table: ArrayLike) -> int:
    """Return the number of attempts without a verdict."""
    return int(np.isnan(outcomes(table)).sum())


def pass_at_1(table: ArrayLike) -> Array:
    """Return each task's share of successful attempts, shape (tasks,); NaN where none has a verdict."""
    data = outcomes(table)
    done = (~np.isnan(data)).sum(axis=1)
    return np.divide(np.nansum(data, axis=1), done, out=np.full(len(data), np.nan), where=done > 0)


def observed_pass(table: ArrayLike) -> Array:
    """Return 1 for each task with a successful attempt, else 0, shape (tasks,); NaN where none has a verdict."""
    share = pass_at_1(table)
    return np.where(np.isnan(share), np.nan, (share > 0).astype(np.float64))


def all_pass(table: ArrayLike) -> Array:
    """Return 1 for each task whose attempts all succeeded, shape (tasks,); NaN where an attempt has no verdict.

    A missing attempt leaves it open whether all of them would have succeeded, unless one has failed already.
    """
    data = outcomes(table)
    failed = (data == 0).any(axis=1)
    return np.where(failed, 0.0, np.where(np.isnan(data).any(axis=1), np.nan, 1.0))


def unbiased_pass_at_k(table: ArrayLike, k: int) -> Array:
    """Return the unbiased estimate of pass@k per task: 1 - C(n - c, k) / C(n, k) (Chen et al., 2021).

    Args:
        table: Outcomes (tasks, attempts).
        k: Attempts that a user would make, at least 1.

    Returns:
        Shape (tasks,); NaN where fewer than `k` attempts have a verdict.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    data = outcomes(table)
    n = (~np.isnan(data)).sum(axis=1)
    failed = (data == 0).sum(axis=1)
    factors = np.arange(k)[None, :]
    top, bottom = failed[:, None] - factors, n[:, None] - factors
    # The product holds a factor 0 (and is then exactly 0) as soon as there are fewer than k failures.
    none = np.prod(np.clip(top, 0, None) / np.where(bottom > 0, bottom, 1), axis=1)
    return np.where(n >= k, 1.0 - none, np.nan)


def violation_reduction_rate(initial: float, final: float) -> float:
    """Return VRR = max(0, initial - final) / initial (PostEDA-Bench, Equation 1); 1 where nothing was to repair."""
    if initial < 0 or final < 0:
        raise ValueError(f"violation counts must not be negative, got {initial}, {final}")
    return max(0.0, initial - final) / initial if initial else float(final == 0)


# -- bootstrap ---------------------------------------------------------------------------------------------------------


def _draws(groups: int, draws: int, rng: np.random.Generator) -> Any:
    """Yield index arrays (rows, groups) of resampled groups, `draws` rows in all."""
    step = max(1, _CHUNK // max(groups, 1))
    for start in range(0, draws, step):
        yield rng.integers(groups, size=(min(step, draws - start), groups))


def _exact_percentiles(data: Array) -> tuple[float, float] | None:
    """Return the 2.5 and 97.5 % quantiles of a resampled mean of multiples of 1/k (k <= 20), or None for other data."""
    for k in range(1, 21):
        steps = np.rint(data * k)
        if np.abs(data * k - steps).max() > 1e-9:
            continue
        base = int(steps.min())
        one = np.bincount((steps - base).astype(np.intp)) / data.size
        if (one.size - 1) * data.size > 50_000:
            return None
        total, power, n = np.ones(1), one, data.size
        while n:  # the n-fold convolution by squaring
            if n & 1:
                total = np.convolve(total, power)
            n >>= 1
            if n:
                power = np.convolve(power, power)
        ends = np.searchsorted(np.cumsum(total), (0.025, 0.975))
        low, high = (ends + base * data.size) / (k * data.size)
        return float(low), float(high)
    return None


def _ratio(top: Array, bottom: Array) -> Array:
    return np.divide(top, bottom, out=np.full(np.shape(top), np.nan), where=bottom > 0)


def task_bootstrap(values: ArrayLike, rng: np.random.Generator, *, draws: int = DRAWS) -> Interval:
    """Return the mean over tasks with its percentile interval under resampling of whole tasks.

    Shares of a few attempts lie on a lattice. The distribution of a resampled mean is then computed exactly, which is
    the limit of many draws: rates move in steps of one task, and drawn percentiles would jump by a step from seed to
    seed. Other values are resampled.

    Args:
        values: One number per task, shape (tasks,), e.g. of `pass_at_1`; NaN: the task has no verdict and is left out.
        rng: Source of the draws.
        draws: Number of resamples.
    """
    data = np.asarray(values, dtype=np.float64)
    data = data[~np.isnan(data)]
    if not data.size:
        return Interval(float("nan"), float("nan"), float("nan"))
    exact = _exact_percentiles(data)
    if exact is not None:
        return Interval(float(data.mean()), *exact)
    means = np.concatenate([data[index].mean(axis=1) for index in _draws(data.size, draws, rng)])
    low, high = np.percentile(means, (2.5, 97.5))
    return Interval(float(data.mean()), float(low), float(high))


def paired_bootstrap(
    first: ArrayLike, second: ArrayLike, rng: np.random.Generator, *, draws: int = PAIRED_DRAWS
) -> Interval:
    """Return the mean difference first - second over common tasks; both arms are resampled with the same tasks.

    Args:
        first: One number per task, shape (tasks,).
        second: The same tasks in the same order.
        rng: Source of the draws.
        draws: Number of resamples.

    Raises:
        ValueError: If the shapes differ.
    """
    a, b = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if a.shape != b.shape:
        raise ValueError(f"paired values need the same tasks, got shapes {a.shape} and {b.shape}")
    return task_bootstrap(a - b, rng, draws=draws)


def cluster_bootstrap(
    arms: Mapping[str, ArrayLike], groups: Sequence[Any], rng: np.random.Generator, *, draws: int = CLUSTER_DRAWS
) -> dict[str, Array]:
    """Return bootstrap estimates of every arm's mean over tasks under resampling of groups (Equation 3).

    A draw takes as many groups as there are, with replacement, and divides the summed contributions by the summed group
    sizes, so that large groups keep their weight. All arms share the draws.

    Args:
        arms: Arm -> one number per task, shape (tasks,). Tasks without a verdict (NaN) leave both sums.
        groups: The group of every task, any hashable labels.
        rng: Source of the draws.
        draws: Number of resamples.

    Returns:
        Arm -> float64 (draws,).

    Raises:
        ValueError: If an arm has another number of tasks than `groups`.
    """
    labels: dict[Any, int] = {}
    index = np.array([labels.setdefault(label, len(labels)) for label in groups], dtype=np.intp)
    sums: dict[str, tuple[Array, Array]] = {}
    for arm, values in arms.items():
        data = np.asarray(values, np.float64)
        if data.shape != index.shape:
            raise ValueError(f"arm {arm!r} has shape {data.shape}, but there are {index.size} group labels")
        known = ~np.isnan(data)
        top = np.bincount(index, weights=np.where(known, data, 0.0), minlength=len(labels))
        size = np.bincount(index, weights=known.astype(np.float64), minlength=len(labels))
        sums[arm] = (top.astype(np.float64), size.astype(np.float64))
    parts: dict[str, list[Array]] = {arm: [] for arm in arms}
    for drawn in _draws(len(labels), draws, rng):
        for arm, (total, sizes) in sums.items():
            parts[arm].append(_ratio(total[drawn].sum(axis=1), sizes[drawn].sum(axis=1)))
    return {arm: np.concatenate(blocks) for arm, blocks in parts.items()}


def simultaneous_intervals(
    arms: Mapping[str, ArrayLike],
    baseline: str,
    groups: Sequence[Any],
    rng: np.random.Generator,
    *,
    draws: int = CLUSTER_DRAWS,
) -> dict[str, Interval]:
    """Return arm - baseline for every other arm, with intervals that hold together at 95 % (Equation 4).

    The critical value is the 95 % quantile of the largest standardised deviation over all contrasts; each contrast is
    standardised with one standard error, that of its own bootstrap estimates.

    Args:
        arms: Arm -> one number per task, shape (tasks,).
        baseline: The arm that the others are compared with.
        groups: The group of every task.
        rng: Source of the draws.
        draws: Number of resamples.

    Raises:
        ValueError: If `baseline` is not an arm.
    """
    if baseline not in arms:
        raise ValueError(f"baseline must be one of {sorted(arms)}, got {baseline!r}")
    estimates = cluster_bootstrap(arms, groups, rng, draws=draws)
    others = [arm for arm in arms if arm != baseline]
    means = {arm: float(np.nanmean(np.asarray(values, np.float64))) for arm, values in arms.items()}
    largest = np.zeros(draws)
    spread: dict[str, float] = {}
    for arm in others:
        deviation = estimates[arm] - estimates[baseline] - (means[arm] - means[baseline])
        spread[arm] = float(np.nanstd(deviation, ddof=1))
        if spread[arm] > 0:
            largest = np.fmax(largest, np.abs(deviation) / spread[arm])
    critical = float(np.quantile(largest, 0.95))
    result = {}
    for arm in others:
        difference = means[arm] - means[baseline]
        result[arm] = Interval(difference, difference - critical * spread[arm], difference + critical * spread[arm])
    return result


def strata(
    values: ArrayLike, labels: Sequence[Any], rng: np.random.Generator, *, draws: int = DRAWS
) -> dict[Any, Interval]:
    """Return `task_bootstrap` within each group of tasks, in order of first appearance."""
    data = np.asarray(values, np.float64)
    if data.shape != (len(labels),):
        raise ValueError(f"values have shape {data.shape}, but there are {len(labels)} labels")
    return {
        label: task_bootstrap(data[[one == label for one in labels]], rng, draws=draws)
        for label in dict.fromkeys(labels)
    }


# -- associations and tables -------------------------------------------------------------------------------------------


def spearman(x: ArrayLike, y: ArrayLike, rng: np.random.Generator, *, draws: int = DRAWS) -> Interval:
    """Return Spearman's rank correlation (ties get mean ranks) with its task-bootstrap interval.

    Args:
        x: One number per task, shape (tasks,), e.g. a task property. Tasks with a NaN in either are left out.
        y: The same tasks, e.g. successful attempts.
        rng: Source of the draws.
        draws: Number of resamples. Resamples in which a variable is constant have no correlation and are left out.
    """
    from scipy.stats import rankdata

    a, b = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if a.shape != b.shape or a.ndim != 1:
        raise ValueError(f"both need one number per task, got shapes {a.shape} and {b.shape}")
    known = ~(np.isnan(a) | np.isnan(b))
    a, b = a[known], b[known]
    if a.size < 2:
        return Interval(float("nan"), float("nan"), float("nan"))

    def correlation(u: Array, v: Array) -> Array:
        ranks_u, ranks_v = rankdata(u, axis=-1), rankdata(v, axis=-1)
        ranks_u -= ranks_u.mean(axis=-1, keepdims=True)
        ranks_v -= ranks_v.mean(axis=-1, keepdims=True)
        norm = np.sqrt((ranks_u**2).sum(axis=-1) * (ranks_v**2).sum(axis=-1))
        return _ratio((ranks_u * ranks_v).sum(axis=-1), norm)

    drawn = np.concatenate([correlation(a[index], b[index]) for index in _draws(a.size, draws, rng)])
    drawn = drawn[~np.isnan(drawn)]
    low, high = np.percentile(drawn, (2.5, 97.5)) if drawn.size else (float("nan"), float("nan"))
    return Interval(float(correlation(a[None, :], b[None, :])[0]), float(low), float(high))


def symptoms(failed: Sequence[Sequence[str]]) -> dict[str, int]:
    """Return check kind -> number of failed attempts with it; kinds overlap, so the sum is no total.

    Args:
        failed: Per failed attempt the ids of its failed checks; the kind is the part before the first colon.
    """
    counts: dict[str, int] = {}
    for ids in failed:
        for kind in sorted({one.split(":")[0] for one in ids}):
            counts[kind] = counts.get(kind, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def revision_transitions(rounds: Sequence[Sequence[Sequence[str]]]) -> dict[str, int]:
    """Return how the failed check kinds changed between consecutive verifier checks (2D-FET-Bench V2, Appendix K.1).

    Args:
        rounds: Per attempt, per verifier check, the ids of the failed checks.

    Returns:
        Counts of transitions: ``same``, ``resolved`` (only fewer kinds), ``introduced`` (only more), ``exchanged`` (at
        least one resolved while another came), and ``passed`` (no failed check left).
    """
    counts = dict.fromkeys(("same", "resolved", "introduced", "exchanged", "passed"), 0)
    for checks in rounds:
        kinds = [{one.split(":")[0] for one in ids} for ids in checks]
        for before, after in itertools.pairwise(kinds):
            gone, new = before - after, after - before
            if before and not after:
                counts["passed"] += 1
            elif gone and new:
                counts["exchanged"] += 1
            elif gone:
                counts["resolved"] += 1
            elif new:
                counts["introduced"] += 1
            else:
                counts["same"] += 1
    return counts


@dataclass(frozen=True, slots=True)
class SuccessTable:
    """The three task-averaged measures of one configuration (2D-FET-Bench V2, Equation 2).

    Attributes:
        tasks: Tasks with at least one verdict.
        attempts: Attempts with a verdict.
        missing: Attempts without one.
        successes: Successful attempts.
        pass_1: Mean share of successful attempts.
        pass_k: Share of tasks with a success.
        all_k: Share of tasks whose attempts all succeeded.
    """

    tasks: int
    attempts: int
    missing: int
    successes: int
    pass_1: Interval
    pass_k: Interval
    all_k: Interval


def success_table(table: ArrayLike, rng: np.random.Generator, *, draws: int = DRAWS) -> SuccessTable:
    """Return the measures of outcomes (tasks, attempts) with task-bootstrap intervals."""
    data = outcomes(table)
    known = ~np.isnan(data)
    return SuccessTable(
        tasks=int(known.any(axis=1).sum()),
        attempts=int(known.sum()),
        missing=int((~known).sum()),
        successes=int(np.nansum(data)),
        pass_1=task_bootstrap(pass_at_1(data), rng, draws=draws),
        pass_k=task_bootstrap(observed_pass(data), rng, draws=draws),
        all_k=task_bootstrap(all_pass(data), rng, draws=draws),
    )
