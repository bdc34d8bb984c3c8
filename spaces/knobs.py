"""`KnobSpace`: the configuration and the constraints as fixed-shape arrays, and knobs as normalised numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from itertools import permutations
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict

from edagym.task_assets.ppa.config import FlowConfig
from edagym.task_assets.ppa.knobs import Knob, KnobValue, knob_table
from edagym.task_assets.ppa.sdc import Constraints

MAX_KNOBS = 96
"""Rows of the knob table; more than it has, so that the table can grow without changing the spaces."""
MAX_CLOCKS = 8
MAX_PERIOD = 1e6
_LOG_FROM = 100.0
"""Knobs whose positive range spans more than this factor are normalised by their logarithm."""


def knob_rows() -> dict[str, int]:
    """Return knob name -> row."""
    return {name: i for i, name in enumerate(knob_table())}


def normalise(knob: Knob, value: KnobValue | None) -> tuple[float, float, float, float]:
    """Return a knob's value as four numbers in [0, 1]; -1 where there is no number.

    Numbers are placed in the knob's range; switches are 0 or 1; names are their position among the choices; of several
    names each choice has its rank, 1 for the first one given, then falling, 0 for one that is not given; text is 0.
    """
    none = -1.0
    if value is None:
        return (none, none, none, none)
    if knob.type == "vts":
        given = [str(v) for v in value]  # type: ignore[union-attr]
        marks = [1 - given.index(c) / len(knob.choices) if c in given else 0.0 for c in knob.choices]
        return (*marks, *[none] * (4 - len(marks)))[:4]  # type: ignore[return-value]
    if knob.type == "text":
        return (0.0, none, none, none)
    if knob.type == "choice":
        return (knob.choices.index(str(value)) / max(len(knob.choices) - 1, 1), none, none, none)
    if knob.type == "bool":
        return (float(bool(value)), none, none, none)
    numbers = value if isinstance(value, tuple) else (value,)
    found = [position(knob, float(v)) for v in numbers]
    return (*found, *[none] * (4 - len(found)))[:4]  # type: ignore[return-value]


@cache
def arrangements(knob: Knob) -> tuple[tuple[str, ...], ...]:
    """Return every non-empty ordered choice of different names, short ones first: what a ``vts`` knob can be."""
    sizes = range(1, len(knob.choices) + 1)
    return tuple(found for n in sizes for found in permutations(knob.choices, n))


def position(knob: Knob, number: float) -> float:
    """Return where a number lies in its knob's range, 0 to 1; `number_at` undoes it."""
    low, high = _range(knob)
    if _logarithmic(low, high):
        return min(max(math.log(max(number, low) / low) / math.log(high / low), 0.0), 1.0)
    return min(max((number - low) / (high - low), 0.0), 1.0)


def number_at(knob: Knob, place: float) -> float:
    """Return the number at a place (0 to 1) of a knob's range, to four digits; whole for whole-number knobs."""
    low, high = _range(knob)
    place = min(max(place, 0.0), 1.0)
    number = low * (high / low) ** place if _logarithmic(low, high) else low + place * (high - low)
    number = float(f"{number:.4g}")
    number = min(max(number, low), high)
    return float(round(number)) if knob.type == "int" else number


def _range(knob: Knob) -> tuple[float, float]:
    return (0.0 if knob.min is None else knob.min, 1.0 if knob.max is None else knob.max)


def _logarithmic(low: float, high: float) -> bool:
    return low > 0 and high / low > _LOG_FROM


class KnobSpace(Dict):
    """Configuration and constraints.

    Keys:
        knob_values: (96, 4) float32: per row of the knob table the value in force (the default where unset) as
            `normalise` gives it; -1 where there is none.
        knob_set: (96,) int8: whether the configuration sets it.
        clock_period: (8,) float32, ps; 0: no such clock.
        io_fraction: (2,) float32: smallest input and output delay over period; -1: none.
        max_fanout: (1,) float32; 0: no bound.

    Args:
        seed: Seed of the space's own sampler.
    """

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(
            {
                "knob_values": Box(-1.0, 1.0, (MAX_KNOBS, 4), np.float32),
                "knob_set": Box(0, 1, (MAX_KNOBS,), np.int8),
                "clock_period": Box(0.0, MAX_PERIOD, (MAX_CLOCKS,), np.float32),
                "io_fraction": Box(-1.0, 1e3, (2,), np.float32),
                "max_fanout": Box(0.0, 1e4, (1,), np.float32),
            },
            seed=seed,
        )

    @staticmethod
    def encode(config: FlowConfig, constraints: Constraints) -> dict[str, np.ndarray]:
        """Return a design's configuration and constraints as arrays of the space."""
        values = np.full((MAX_KNOBS, 4), -1.0, np.float32)
        given = np.zeros(MAX_KNOBS, np.int8)
        for i, (name, knob) in enumerate(knob_table().items()):
            values[i] = normalise(knob, config.value(name))
            given[i] = name in config.knobs
        periods = np.zeros(MAX_CLOCKS, np.float32)
        for i, clock in enumerate(constraints.clocks[:MAX_CLOCKS]):
            periods[i] = clock.period
        shares = [
            min((d.fraction for d in constraints.io_delays if d.direction == side), default=-1.0)
            for side in ("input", "output")
        ]
        return {
            "knob_values": values,
            "knob_set": given,
            "clock_period": periods,
            "io_fraction": np.clip(np.array(shares, np.float32), -1.0, 1e3),
            "max_fanout": np.array((constraints.max_fanout or 0,), np.float32),
        }

    @staticmethod
    def decode(arrays: Mapping[str, Any]) -> dict[str, str]:
        """Return knob name -> text of the knobs that arrays set, numbers to four digits; free text is left out."""
        found = {}
        for i, (name, knob) in enumerate(knob_table().items()):
            if not arrays["knob_set"][i] or knob.type == "text":
                continue
            row = [float(v) for v in arrays["knob_values"][i]]
            value: KnobValue
            if knob.type == "vts":
                ranked = sorted(zip(row, knob.choices), key=lambda pair: -pair[0])
                value = tuple(c for v, c in ranked if v > 0)
            elif knob.type == "choice":
                value = knob.choices[round(row[0] * max(len(knob.choices) - 1, 1))]
            elif knob.type == "bool":
                value = row[0] > 0.5
            else:
                numbers = tuple(number_at(knob, v) for v in row if v >= 0)
                value = numbers if knob.type in ("box", "pair") else numbers[0]
            found[name] = knob.text(value)
        return found
