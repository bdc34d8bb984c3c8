"""A small, fast wrapper stack for tests of training: boxes on a flake of a suite task."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

import edagym
from edagym.envs.ppa.flow.backend import FlowResult
from edagym.spaces.actions import Command
from edagym.spaces.edits import AddPolygon
from edagym.task_assets.ppa.config import parse_config
from edagym.task_assets.ppa.sdc import parse_sdc
from edagym.task_assets.ppa.sweep import load_sweeps
from edagym.verifiers.ppa.report import PPAReport
from edagym.wrappers.core import PlainWrapper


class StandInFlow:
    """A flow by formula that passes for the one that made the sweep tables: fast, and it takes any setting."""

    name = load_sweeps()[0].backend
    engine = load_sweeps()[0].engine

    def run(self, design):
        config, period = parse_config(design.one(".mk")[1]), parse_sdc(design.one(".sdc")[1]).period
        use = config.number("CORE_UTILIZATION")
        fast = {"RVT": 0.0, "LVT": 1.0, "SLVT": 2.0}[config.names("ASAP7_USE_VT")[0]]
        values = (0.5 * period + 150 - 15 * fast + 0.2 * use, (1 + 0.1 * fast) / period, 4000 / use)
        return FlowResult(PPAReport(self.name, self.engine, *values))


class Boxes(PlainWrapper):
    """Draws a box a step on the first flake: (layer, x, y, width, height), -1 to 1; a verify every third."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (5,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (5,), np.float32)
        self.begin()

    def begin(self) -> None:
        self._n = 0

    def encode(self, observation, info):
        shapes = float((observation["shape_layer"] >= 0).sum())
        numbers = (
            shapes / 20,
            float(observation["budget_left"][0]) / 100,
            self._n % 3,
            *observation["last_share"],
            0.0,
        )
        return np.clip(np.array(numbers, np.float32), -1.0, 1.0)

    def to_edits(self, action):
        self._n += 1
        layers = self.base.view.editable_layers
        hull = np.array(self.base.view.regions[0].hull)
        low, high = hull.min(axis=0), hull.max(axis=0)
        a = np.asarray(action, float)
        layer = layers[min(int((a[0] + 1) / 2 * len(layers)), len(layers) - 1)]
        at = low + (a[1:3] + 1) / 2 * (high - low)
        half = 0.05 + (a[3:5] + 1) / 4 * (high - low)
        (x1, y1), (x2, y2) = np.round(at - half, 3), np.round(at + half, 3)
        box = tuple((float(x), float(y)) for x, y in ((x1, y1), (x2, y1), (x2, y2), (x1, y2)))
        return [AddPolygon(layer.name, box), *([Command.VERIFY] if self._n % 3 == 0 else [])]


class Levels(Boxes):
    """The same by whole numbers, with masks."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.action_space = gym.spaces.MultiDiscrete([3, 5, 5, 5, 5])

    def to_edits(self, action):
        a = np.asarray(action, float)
        return super().to_edits(np.array([a[0] - 1, *(a[1:] / 2 - 1)]))

    def action_masks(self):
        return np.ones(23, bool)


class Peeking(Boxes):
    privileged = True


def _base(base):
    edagym.register_all()
    return gym.make("FET-L1-v0", disable_env_checker=True, on_tool_error="raise") if base is None else base


def boxes(base=None):
    return Boxes(_base(base))


def levels(base=None):
    return Levels(_base(base))


def peeking(base=None):
    return Peeking(_base(base))
