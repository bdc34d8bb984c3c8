"""The one rounding between micrometres (interface) and integer database units (inside)."""

from __future__ import annotations

import math
from collections.abc import Iterable

DBU_PER_UM = 1000

IntPoint = tuple[int, int]
IntRing = tuple[IntPoint, ...]


def to_dbu(value_um: float) -> int:
    """Return the nearest database unit (1 nm); halves go up, for both signs alike.

    Args:
        value_um: A finite coordinate or length in micrometres.

    Raises:
        ValueError: If `value_um` is not finite.
        OverflowError: If `value_um` is infinite.
    """
    return math.floor(value_um * DBU_PER_UM + 0.5)


def to_um(value: int) -> float:
    """Return a database-unit value in micrometres."""
    return value / DBU_PER_UM


def ring_to_dbu(points: Iterable[tuple[float, float]]) -> IntRing:
    """Round a ring of micrometre points to database units."""
    floor, scale = math.floor, DBU_PER_UM
    return tuple((floor(x * scale + 0.5), floor(y * scale + 0.5)) for x, y in points)


def ring_to_um(points: Iterable[IntPoint]) -> tuple[tuple[float, float], ...]:
    """Return a ring of database-unit points in micrometres."""
    return tuple((x / DBU_PER_UM, y / DBU_PER_UM) for x, y in points)
