"""Search baselines of the PPA family: random, coordinate descent, Gaussian process; 18 flow runs each.

They know what an agent knows (`PPAView`, reports), change knobs and clock period only, are charged by the run (PostEDA-
Bench, Appendix E.2), and hand in the best design that they found.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np

from edagym.baselines.policies import Attempt, Bookmark
from edagym.baselines.search.ppa_space import Dimension, dimensions, misfit, start_place
from edagym.errors import PolicyError
from edagym.spaces.actions import Command
from edagym.task_assets.ppa.task import METRICS, RUNS, PPAView

Place = list[float]
Search = Generator[Place, "dict[str, float] | None", None]
"""Yields places in the unit cube; is sent the metrics of each run, None where the flow failed."""


class PPASearchPolicy:
    """Base of the searches: runs what `search` proposes and submits the best.

    A run that meets every target ends the episode; else the best design is restored, which is free, and submitted.

    Args:
        runs: Flow runs.
    """

    name = "ppa-search"
    privileged = False
    deterministic = False
    env_options: Mapping[str, Any] = {"charge": "runs", "budget": RUNS + 1}
    """Environment options for evaluation: one unit is left over, so that the last run need not be the answer."""

    def __init__(self, runs: int = RUNS) -> None:
        self.runs = runs

    def bind(self, attempt: Attempt) -> None:
        """Begin an attempt."""
        view = attempt.task_view
        if not isinstance(view, PPAView):
            raise PolicyError("this policy is for PPA tasks", field="policy", value=self.name)
        self._attempt, self._view = attempt, view
        self._dims = dimensions(view)
        self._steps = self._episode()

    def act(self, observation: dict[str, Any], info: dict[str, Any]) -> Any:
        """Return the next action."""
        self._info = info
        return next(self._steps)

    def search(self, dims: Sequence[Dimension], view: PPAView, rng: np.random.Generator) -> Search:
        """Yield places to run."""
        raise TypeError(f"{type(self).__name__} says no order of search")

    def _episode(self) -> Generator[Any, None, None]:
        search = self.search(self._dims, self._view, self._attempt.rng)
        best = misfit(self._view.initial, self._view.targets)
        best_mark: Bookmark = self._attempt.snapshot()
        place = next(search)
        for n in range(self.runs):
            for dim, u in zip(self._dims, place, strict=True):
                yield dim.edit(u)
            yield Command.VERIFY
            info = self._info
            values = None if info["flow_error"] else {m: float(info[m]) for m in METRICS}
            if values is not None and misfit(values, self._view.targets) < best:
                best, best_mark = misfit(values, self._view.targets), self._attempt.snapshot()
            if n + 1 < self.runs:
                place = search.send(values)
        self._attempt.restore(best_mark)
        yield Command.SUBMIT


class RandomPPAPolicy(PPASearchPolicy):
    """Uniformly random settings."""

    name = "ppa-random"

    def search(self, dims: Sequence[Dimension], view: PPAView, rng: np.random.Generator) -> Search:
        """Yield random places."""
        while True:
            yield [float(u) for u in rng.random(len(dims))]


class CoordinatePPAPolicy(PPASearchPolicy):
    """Coordinate descent: one knob after the other, in random order, keeps the value nearest to the targets."""

    name = "ppa-coordinate"

    def search(self, dims: Sequence[Dimension], view: PPAView, rng: np.random.Generator) -> Search:
        """Yield neighbours of the best place: every other choice, or two other numbers."""
        at, cost = start_place(view, dims), misfit(view.initial, view.targets)
        while True:
            for i in (int(k) for k in rng.permutation(len(dims))):
                base = at
                for u in _other_places(dims[i], base[i]):
                    place = [*base[:i], u, *base[i + 1 :]]
                    values = yield place
                    found = np.inf if values is None else misfit(values, view.targets)
                    if found < cost:
                        at, cost = place, found


def _other_places(dim: Dimension, u: float) -> list[float]:
    if dim.choices:
        return [(i + 0.5) / len(dim.choices) for i, c in enumerate(dim.choices) if c != dim.value(u)]
    return [v for v in (max(0.0, u - 0.3), min(1.0, u + 0.3)) if abs(v - u) > 0.05]


class GaussianProcessPPAPolicy(PPASearchPolicy):
    """Latin hypercube, then upper confidence bound on Gaussian processes of the metrics' logarithms.

    One Matérn process per target metric; the next place is the candidate with the smallest misfit if every metric came
    out `kappa` standard deviations better than expected. Needs scikit-learn (the extra ``ppa``).

    Args:
        runs: Flow runs.
        first: Runs of the Latin hypercube.
        kappa: Standard deviations of optimism.
        candidates: Random places from which the next one is chosen.
    """

    name = "ppa-gp"

    def __init__(self, runs: int = RUNS, first: int = 6, kappa: float = 1.0, candidates: int = 1500) -> None:
        super().__init__(runs)
        self.first, self.kappa, self.candidates = first, kappa, candidates

    def search(self, dims: Sequence[Dimension], view: PPAView, rng: np.random.Generator) -> Search:
        """Yield the hypercube's places, then those of the processes."""
        n = len(dims)
        columns = [(rng.permutation(self.first) + rng.random(self.first)) / self.first for _ in dims]
        places: list[Place] = [start_place(view, dims)]
        seen: list[Mapping[str, float] | None] = [view.initial]
        for row in np.column_stack(columns):
            place = [float(u) for u in row]
            seen.append((yield place))
            places.append(place)
        while True:
            at = min(range(len(places)), key=lambda i: np.inf if (v := seen[i]) is None else misfit(v, view.targets))
            # Half anywhere, half around the best so far.
            around = np.array(places[at]) + rng.normal(0.0, 0.15, (self.candidates // 2, n))
            pool = np.vstack([rng.random((self.candidates - len(around), n)), np.clip(around, 0.0, 1.0)])
            best = rank_candidates(dims, view.targets, places, seen, pool, self.kappa)[0]
            place = [float(u) for u in pool[best]]
            seen.append((yield place))
            places.append(place)


def rank_candidates(
    dims: Sequence[Dimension],
    targets: Mapping[str, float],
    places: Sequence[Place],
    seen: Sequence[Mapping[str, float] | None],
    pool: np.ndarray,
    kappa: float,
) -> np.ndarray:
    """Rank candidates by the upper confidence bound of one Matérn process per target metric.

    Args:
        dims: The dimensions.
        targets: Metric -> largest allowed value.
        places: Where runs were made.
        seen: Metrics of each, None where the flow failed.
        pool: Candidates, (n, dimensions), places in the unit cube.
        kappa: Standard deviations of optimism.

    Returns:
        (n,) indices into `pool`: first those whose misfit would be smallest if every metric came out `kappa` standard
        deviations better than expected; among equals the nearest by expectation.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    features = _features(dims, np.array(places))
    lower, expected = np.zeros(len(pool)), np.zeros(len(pool))
    for metric, target in targets.items():
        logs = [np.nan if v is None else np.log(v[metric] / target) for v in seen]
        # A failed run stands for the worst that was seen, so that the search turns away from it.
        y = np.nan_to_num(np.array(logs), nan=float(np.nanmax(logs)) + 0.2)
        mean, scale = float(y.mean()), float(y.std()) or 1.0
        # One length for all dimensions: 18 runs are too few to tell which of them matter.
        kernel = ConstantKernel(1.0, (1e-2, 1e2)) * Matern(1.0, (0.1, 20.0), nu=2.5) + WhiteKernel(1e-3, "fixed")
        model = GaussianProcessRegressor(kernel, random_state=0)
        with warnings.catch_warnings():
            # A length at its bound is a flat or a rough metric, not a failure.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(features, (y - mean) / scale)
        mu, sigma = model.predict(_features(dims, pool), return_std=True)
        lower += np.maximum(0.0, mean + scale * (mu - kappa * sigma))
        expected += np.maximum(0.0, mean + scale * mu)
    # Among candidates that may meet every target, the one that is nearest by expectation.
    order: np.ndarray = np.lexsort((expected, np.round(lower, 4)))
    return order


def _features(dims: Sequence[Dimension], places: np.ndarray) -> np.ndarray:
    """Return places with each choice as columns of its own (one-hot), numbers as they are."""
    columns = []
    for i, dim in enumerate(dims):
        if dim.choices:
            index = np.minimum((places[:, i] * len(dim.choices)).astype(int), len(dim.choices) - 1)
            columns.append(np.eye(len(dim.choices))[index])
        else:
            columns.append(places[:, i : i + 1])
    return np.hstack(columns)
