"""Thomas cluster process: simulation, border-corrected K function, and the fit of the paper's Appendix F.

Parents are a Poisson process of intensity kappa; each has a Poisson number of offspring with mean mu, at Gaussian
offsets of scale sigma. Intensity: ``lambda = kappa * mu``. ``K(r) = pi r^2 + (1 - exp(-r^2 / (4 sigma^2))) / kappa``
(Equation 5). Lengths are micrometres.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.spatial import cKDTree

PIXEL_UM = 0.293
RADII_UM = np.linspace(20.0, 420.0, 41) * PIXEL_UM
"""Radii of the fit: 20 to 420 pixels."""

N_STARTS = 16
PAD_SIGMA = 4.0
ASPECT = 1.6


@dataclass(frozen=True, slots=True)
class ThomasParameters:
    """Parameters of a Thomas process.

    Attributes:
        kappa: Parent intensity, 1/um2.
        sigma: Offset scale, um.
        mu: Mean number of offspring of a parent.
    """

    kappa: float
    sigma: float
    mu: float

    @property
    def intensity(self) -> float:
        """Points per um2."""
        return self.kappa * self.mu

    def window(self, n: int) -> tuple[float, float]:
        """Return width and height (um) of the window that holds `n` points on average, aspect ratio 1.6."""
        area = n / self.intensity
        return math.sqrt(area * ASPECT), math.sqrt(area / ASPECT)


TABLE_13 = {
    "GrapheneH": (ThomasParameters(1.375e-5, 12.07, 1.112), 0.365),
    "GrapheneL": (ThomasParameters(1.605e-5, 14.77, 0.858), 0.399),
    "GrapheneM": (ThomasParameters(1.162e-5, 12.14, 1.324), 0.236),
}
"""Fitted components with their weights (paper, Table 13)."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One simulated pattern.

    Attributes:
        points: (n, 2) positions inside the window, um.
        parents: (n, 2) position of each point's parent, which may lie outside the window.
        window: Width and height, um; the window's lower-left corner is the origin.
    """

    points: np.ndarray
    parents: np.ndarray
    window: tuple[float, float]


def draw_component(rng: np.random.Generator) -> str:
    """Draw a component of `TABLE_13` by its weight."""
    names = list(TABLE_13)
    weights = np.array([TABLE_13[name][1] for name in names])
    return names[int(rng.choice(len(names), p=weights / weights.sum()))]


def simulate(rng: np.random.Generator, parameters: ThomasParameters, window: tuple[float, float]) -> Pattern:
    """Simulate one pattern.

    Parents live on the window padded by 4 sigma; offspring outside the window are dropped.

    Args:
        rng: Source of randomness.
        parameters: Process parameters.
        window: Width and height, um.
    """
    w, h = window
    pad = PAD_SIGMA * parameters.sigma
    n_parents = rng.poisson(parameters.kappa * (w + 2 * pad) * (h + 2 * pad))
    parents = rng.uniform((-pad, -pad), (w + pad, h + pad), (n_parents, 2))
    parents = np.repeat(parents, rng.poisson(parameters.mu, n_parents), axis=0)
    points = parents + rng.normal(0.0, parameters.sigma, parents.shape)
    inside = ((points >= 0.0) & (points <= (w, h))).all(axis=1)
    return Pattern(points[inside], parents[inside], window)


def k_model(radii: np.ndarray, kappa: float, sigma: float) -> np.ndarray:
    """Return K(r) of a Thomas process, um2 (Equation 5)."""
    return np.pi * radii**2 + (1.0 - np.exp(-(radii**2) / (4.0 * sigma**2))) / kappa


def k_border(patterns: Sequence[Pattern], radii: np.ndarray = RADII_UM) -> np.ndarray:
    """Return the border-corrected empirical K of pooled patterns, um2.

    A point counts at radius r when it is at least r away from its window's border; numerators and denominators are
    pooled over the patterns, and the intensity is that of all patterns together.

    Args:
        patterns: Simulated or observed patterns.
        radii: Increasing radii, um.
    """
    n_radii = len(radii)
    steps = np.zeros(n_radii + 1)
    eligible = np.zeros(n_radii)
    total, area = 0, 0.0
    for pattern in patterns:
        (w, h), points = pattern.window, pattern.points
        total, area = total + len(points), area + w * h
        if not len(points):
            continue
        border = np.minimum(np.minimum(points[:, 0], w - points[:, 0]), np.minimum(points[:, 1], h - points[:, 1]))
        # Last radius (exclusive index) up to which each point is an eligible centre.
        last = np.searchsorted(radii, border, side="right")
        eligible += (last[:, None] > np.arange(n_radii)).sum(axis=0)
        pairs = cKDTree(points).query_pairs(float(radii[-1]), output_type="ndarray")
        distance = np.hypot(*(points[pairs[:, 0]] - points[pairs[:, 1]]).T)
        first = np.searchsorted(radii, distance, side="left")
        for centre in (pairs[:, 0], pairs[:, 1]):
            counted = first < last[centre]
            steps += np.bincount(first[counted], minlength=n_radii + 1)
            steps -= np.bincount(last[centre][counted], minlength=n_radii + 1)
    neighbours = np.cumsum(steps)[:n_radii]
    return neighbours / np.maximum(eligible, 1) / (total / area)


def fit(patterns: Sequence[Pattern], radii: np.ndarray = RADII_UM, n_starts: int = N_STARTS) -> ThomasParameters:
    """Fit a Thomas process to patterns by minimum contrast on fourth roots of K, as the paper does.

    Args:
        patterns: Observed patterns.
        radii: Radii of the contrast, um.
        n_starts: Nelder-Mead starts, on a grid of kappa and sigma around the data's scales.

    Returns:
        The best of all starts; mu is the pooled intensity over kappa.
    """
    empirical = k_border(patterns, radii) ** 0.25
    intensity = sum(len(p.points) for p in patterns) / sum(p.window[0] * p.window[1] for p in patterns)

    def contrast(log: np.ndarray) -> float:
        kappa, sigma = np.exp(np.clip(log, -40.0, 40.0))
        return float(((empirical - k_model(radii, kappa, sigma) ** 0.25) ** 2).sum())

    side = max(2, math.ceil(math.sqrt(n_starts)))
    starts = [
        (math.log(intensity * k), math.log(s))
        for k in np.geomspace(0.2, 5.0, side)
        for s in np.geomspace(radii[0], radii[-1] / 2.0, side)
    ][:n_starts]
    options = {"xatol": 1e-5, "fatol": 1e-10, "maxiter": 2000}
    best = min((minimize(contrast, s, method="Nelder-Mead", options=options) for s in starts), key=lambda r: r.fun)
    kappa, sigma = (float(v) for v in np.exp(best.x))
    return ThomasParameters(kappa, sigma, intensity / kappa)
