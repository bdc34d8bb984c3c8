"""What the search baselines of the PPA family search over, and how far a run is from the targets.

All of it comes from what an agent may know: the design's files, the bounds on the period, the targets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edagym.spaces.ppa_edits import PPAEdit, SetKnob, SetPeriod
from edagym.task_assets.ppa.config import parse_config
from edagym.task_assets.ppa.knobs import knob_table, number_text
from edagym.task_assets.ppa.sdc import parse_sdc
from edagym.task_assets.ppa.task import PPAView

PERIOD = "clock_period"
_CHOICES = {"ABC_AREA": ("0", "1"), "ASAP7_USE_VT": ("RVT", "LVT", "SLVT")}
_RANGES = {
    "CORE_UTILIZATION": (20.0, 85.0),
    "PLACE_DENSITY": (0.4, 0.95),
    "SETUP_SLACK_MARGIN": (0.0, 60.0),
    "RECOVER_POWER": (0.0, 100.0),
}


@dataclass(frozen=True)
class Dimension:
    """One dimension of the search.

    Attributes:
        name: A knob, or `PERIOD`.
        choices: Texts of a knob without order, or empty.
        low: Smallest number.
        high: Largest number.
        whole: Whether numbers are whole.
    """

    name: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 1.0
    whole: bool = False

    def value(self, u: float) -> str:
        """Return the value at a place in 0..1; numbers have four digits, if they are not whole."""
        if self.choices:
            return self.choices[min(int(u * len(self.choices)), len(self.choices) - 1)]
        number = self.low + (self.high - self.low) * min(max(u, 0.0), 1.0)
        return number_text(float(round(number)) if self.whole else float(f"{number:.4g}"))

    def place(self, value: str) -> float:
        """Return the place of a value: the middle of its share of 0..1 for choices."""
        if self.choices:
            return (self.choices.index(value) + 0.5) / len(self.choices) if value in self.choices else 0.5
        return min(max((float(value) - self.low) / (self.high - self.low), 0.0), 1.0)

    def edit(self, u: float) -> PPAEdit:
        """Return the edit that sets the value at a place."""
        if self.name == PERIOD:
            return SetPeriod(min(max(float(self.value(u)), self.low), self.high))
        return SetKnob(self.name, self.value(u))


def dimensions(view: PPAView) -> tuple[Dimension, ...]:
    """Return the dimensions for a task: the usual knobs that it does not lock, and the clock period within bounds."""
    found = [Dimension(n, choices=c) for n, c in _CHOICES.items()]
    found += [Dimension(n, low=low, high=high) for n, (low, high) in _RANGES.items()]
    found.append(Dimension(PERIOD, low=view.bounds.period[0], high=view.bounds.period[1]))
    return tuple(d for d in found if d.name not in view.bounds.locked)


def start_place(view: PPAView, dims: Sequence[Dimension]) -> list[float]:
    """Return the place of the design as the agent finds it."""
    config, period = parse_config(view.design.one(".mk")[1]), parse_sdc(view.design.one(".sdc")[1]).period
    texts = {d.name: "" if d.name == PERIOD else knob_table()[d.name].text(config.value(d.name)) for d in dims}
    texts[PERIOD] = number_text(period)
    return [d.place(texts[d.name]) if texts[d.name] else 0.5 for d in dims]


def misfit(values: Mapping[str, float], targets: Mapping[str, float]) -> float:
    """Return by how much values miss the targets: the sum of the logarithms of what is too large, 0 if nothing."""
    return sum(max(0.0, math.log(values[m] / t)) for m, t in targets.items())
