"""Rings as padded arrays and as text, for the FET spaces: micrometres outside, always on the 1 nm grid."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from edagym.task_assets.fet.grid import DBU_PER_UM, IntRing, ring_to_dbu

MAX_COORD_UM = 4096.0
"""Largest coordinate in arrays, um. A float32 of this size still resolves the 1 nm grid four times over."""

_PAIR = re.compile(r"(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?),(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)")


def number_text(value_um: float) -> str:
    """Return a length in um with at most three decimals and no trailing zeros."""
    text = f"{value_um:.3f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def ring_text(points: Iterable[tuple[float, float]]) -> str:
    """Return um points as ``"x,y x,y ..."``, at most three decimals."""
    return " ".join(f"{number_text(x)},{number_text(y)}" for x, y in points)


def parse_ring(text: str) -> tuple[tuple[float, float], ...]:
    """Parse the output of `ring_text`.

    Raises:
        ValueError: If a token is not ``x,y``, or a number is too large for a float.
    """
    points = []
    for token in text.split():
        match = _PAIR.fullmatch(token)
        if match is None:
            raise ValueError(f"{token!r} is not x,y in um")
        x, y = float(match[1]), float(match[2])
        if math.isinf(x) or math.isinf(y):
            raise ValueError(f"{token!r} is not finite")
        points.append((x, y))
    return tuple(points)


def read_ring(array: NDArray[np.float32], n: int) -> IntRing:
    """Return the first `n` points (um) of a padded array as a ring in database units."""
    return ring_to_dbu(array[:n].tolist())


def write_ring(array: NDArray[np.float32], ring: IntRing) -> None:
    """Write a ring (database units) into a zeroed padded array (um)."""
    array[: len(ring)] = ring
    array[: len(ring)] /= DBU_PER_UM


def in_range(ring: Sequence[tuple[int, int]]) -> bool:
    """Whether all points (database units) fit `MAX_COORD_UM`."""
    limit = int(MAX_COORD_UM * DBU_PER_UM)
    return all(-limit <= x <= limit and -limit <= y <= limit for x, y in ring)
