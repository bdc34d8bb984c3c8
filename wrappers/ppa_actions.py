"""PPA with plain actions: a vector of knobs, then a flow run.

`KnobLevels` (MultiDiscrete) keeps each knob or sets it to one of a few levels; `KnobVector` (Box) places all of them in
their ranges. Edits are made only for what changes, since each costs a unit of the budget, and a run follows. The
observation is a normalised vector of what an agent may know: the knobs as they are, how far the values are from their
targets, and the last runs of the attempt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from edagym.spaces.actions import Command
from edagym.spaces.ppa_edits import PPAEdit, SetKnob, SetPeriod
from edagym.task_assets.ppa.config import parse_config
from edagym.task_assets.ppa.knobs import knob_table, number_text
from edagym.task_assets.ppa.sdc import parse_sdc
from edagym.wrappers.core import PlainWrapper

PERIOD = "clock_period"
"""Name of the knob that stands for the first clock's period; its levels are factors of the middle of its bounds."""
LEVELS: dict[str, tuple[str, ...]] = {
    "ABC_AREA": ("0", "1"),
    "ASAP7_USE_VT": ("RVT", "LVT", "SLVT"),
    "CORE_UTILIZATION": ("25", "50", "75"),
    "PLACE_DENSITY": ("0.6", "0.85"),
    "RECOVER_POWER": ("0", "100"),
    PERIOD: ("0.75", "1", "1.4"),
}
"""Levels of the shipped sweep tables."""
N_RUNS = 4
"""Runs in the observation, the latest."""
_NEAR = 0.02
"""Places nearer than this to the present one keep a number as it is."""
_CLIP = 5.0


class _Knobs(PlainWrapper):
    """What both wrappers share: knobs, observation, edits.

    Args:
        env: A PPA environment.
        levels: Knob -> texts of its levels; `PERIOD` -> factors.
    """

    def __init__(self, env: gym.Env[Any, Any], levels: Mapping[str, Sequence[str]] | None) -> None:
        super().__init__(env)
        self.levels = {name: tuple(map(str, texts)) for name, texts in (levels or LEVELS).items()}
        table = knob_table()
        for name, texts in self.levels.items():
            if (name != PERIOD and name not in table) or not texts:
                raise ValueError(f"levels: {name!r} is no knob, or has no level")
        n = len(self.levels)
        size = sum(map(len, self.levels.values())) + n + 12 + N_RUNS * (n + 6) + 4
        self.observation_space = gym.spaces.Box(-_CLIP, _CLIP, (size,), np.float32)

    # -- the design as it is -----------------------------------------------------------------------------------------

    def _middle(self) -> float:
        """Return the period, ps, that factors refer to: the geometric middle of its bounds."""
        low, high = self.base.view.bounds.period
        return float(math.sqrt(low * high)) if low > 0 else float(high) / 2

    def _present(self) -> dict[str, str]:
        """Return the text of each knob in the design as it is."""
        layout = self.base.layout
        config = parse_config(layout.one(".mk")[1])
        texts = {n: knob_table()[n].text(config.value(n)) for n in self.levels if n != PERIOD}
        if PERIOD in self.levels:
            texts[PERIOD] = number_text(parse_sdc(layout.one(".sdc")[1]).period)
        return texts

    def _text(self, name: str, level: int) -> str:
        text = self.levels[name][level]
        return number_text(round(float(text) * self._middle(), 3)) if name == PERIOD else text

    def _place(self, name: str, text: str) -> float:
        """Return where a value lies between the first and the last level, 0 to 1 and beyond; -1: it has no place."""
        texts = self.levels[name]
        knob = None if name == PERIOD else knob_table()[name]
        if knob is not None and knob.choices:
            return texts.index(text) / max(len(texts) - 1, 1) if text in texts else -1.0
        if not text:
            return -1.0
        value = float(text) / self._middle() if name == PERIOD else float(text)
        low, high = float(texts[0]), float(texts[-1])
        return (value - low) / (high - low) if high > low else 0.0

    # -- observation -------------------------------------------------------------------------------------------------

    def encode(self, observation: dict[str, Any], info: dict[str, Any]) -> np.ndarray:
        """Return the vector, float32: levels (one-hot), places, values against targets, runs, budget."""
        parts: list[float] = []
        present = self._present()
        for name, texts in self.levels.items():
            parts += [float(present[name] == self._text(name, i)) for i in range(len(texts))]
        parts += [self._place(name, present[name]) for name in self.levels]
        asked = observation["has_target"].astype(float)
        report, initial = (np.maximum(observation[k].astype(float), 1e-30) for k in ("report", "initial"))
        target = np.where(asked > 0, np.maximum(observation["target"], 1e-30), report)
        gaps, start = 20 * np.log(report / target), 20 * np.log(initial / np.where(asked > 0, target, initial))
        parts += [*asked, *np.clip(gaps, -_CLIP, _CLIP), *np.clip(start, -_CLIP, _CLIP)]
        # Their size tells designs apart; periods are around 300 ps, powers 1 mW, areas 100 um2.
        parts += [*(np.log(initial / np.array((300.0, 1e-3, 100.0))) / 2)]
        parts += self._history(observation, asked, target)
        left = float(observation["budget_left"][0])
        changed, failed = (float(observation[k][0]) for k in ("design_changed", "last_flow_error"))
        parts += [left / 16, float(left <= len(self.levels)), changed, failed]
        return np.clip(np.array(parts, np.float32), -_CLIP, _CLIP)

    def _history(self, observation: dict[str, Any], asked: np.ndarray, target: np.ndarray) -> list[float]:
        rows = {name: i for i, name in enumerate(knob_table())}
        numbers = [name for name in self.levels if name != PERIOD]
        n = min(int(observation["n_runs"][0]), len(observation["history_status"]))
        parts: list[float] = []
        for i in range(n - 1, n - 1 - N_RUNS, -1):
            if i < 0:
                parts += [0.0] * (len(self.levels) + 6)
                continue
            status = int(observation["history_status"][i])
            parts += [1.0, float(status == 0), float(observation["history_nis"][i])]
            values = np.maximum(observation["history_report"][i].astype(float), 1e-30)
            gaps = 20 * np.log(values / target) * (asked > 0) if status else np.zeros(3)
            parts += list(np.clip(gaps, -_CLIP, _CLIP))
            parts += [float(observation["history_knobs"][i][rows[name]]) for name in numbers]
            if PERIOD in self.levels:
                parts.append(math.log(max(float(observation["history_constraints"][i][0]), 1e-9) / self._middle()))
        return parts

    # -- action ------------------------------------------------------------------------------------------------------

    def _edits(self, texts: Mapping[str, str]) -> list[PPAEdit | Command]:
        """Return the edits that set the given knobs, those that change something, and a run."""
        present, locked = self._present(), self.base.view.bounds.locked
        found: list[PPAEdit | Command] = []
        for name, text in texts.items():
            if present[name] != text and name not in locked:
                found.append(SetPeriod(float(text)) if name == PERIOD else SetKnob(name, text))
        return [*found, Command.VERIFY]


class KnobLevels(_Knobs):
    """Each knob is kept (0) or set to one of its levels (1 ...): MultiDiscrete; a flow run follows.

    Args:
        env: A PPA environment.
        levels: Knob -> texts of its levels, `PERIOD` -> factors of the middle of the period's bounds; None: `LEVELS`.
    """

    def __init__(self, env: gym.Env[Any, Any], levels: Mapping[str, Sequence[str]] | None = None) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, levels=levels)
        super().__init__(env, levels)
        self.action_space = gym.spaces.MultiDiscrete([len(texts) + 1 for texts in self.levels.values()])

    def to_edits(self, action: Any) -> list[PPAEdit | Command]:
        """Return the edits of an action, and the run."""
        chosen = zip(self.levels, np.asarray(action).ravel(), strict=True)
        return self._edits({name: self._text(name, int(i) - 1) for name, i in chosen if int(i) > 0})


class KnobVector(_Knobs):
    """All knobs by their places between first and last level, -1 to 1: Box; a flow run follows.

    Numbers take any value in between, to four digits, and stay as they are within a hundredth of the range; names and
    switches are those whose share of the range the number falls into.

    Args:
        env: A PPA environment.
        levels: As for `KnobLevels`; of numbers the first and the last count.
    """

    def __init__(self, env: gym.Env[Any, Any], levels: Mapping[str, Sequence[str]] | None = None) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, levels=levels)
        super().__init__(env, levels)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (len(self.levels),), np.float32)

    def to_edits(self, action: Any) -> list[PPAEdit | Command]:
        """Return the edits of an action, and the run."""
        numbers = np.clip(np.asarray(action, float).ravel(), -1.0, 1.0) * 0.5 + 0.5
        present = self._present()
        texts = {}
        for (name, levels), u in zip(self.levels.items(), numbers, strict=True):
            knob = None if name == PERIOD else knob_table()[name]
            if knob is not None and (knob.choices or knob.type == "bool"):
                texts[name] = levels[min(int(u * len(levels)), len(levels) - 1)]
                continue
            if abs(self._place(name, present[name]) - u) < _NEAR / 2:
                continue
            low, high = float(levels[0]), float(levels[-1])
            value = low + (high - low) * float(u)
            if name == PERIOD:
                value = min(
                    max(value * self._middle(), self.base.view.bounds.period[0]), self.base.view.bounds.period[1]
                )
            value = float(f"{value:.4g}")
            texts[name] = number_text(round(value) if knob is not None and knob.type == "int" else value)
        return self._edits(texts)
