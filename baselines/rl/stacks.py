"""Wrapper stacks of presets: ``make(base=None, ...)`` puts the wrappers around a base, or makes a training environment.

A tool's failure is raised in training: it says nothing about the agent, and a run can be resumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Literal

import gymnasium as gym

import edagym
from edagym.envs.ppa.flow.table import TableFlow
from edagym.wrappers.drc_actions import EdgeMoves, EdgeSteps
from edagym.wrappers.ppa_actions import KnobLevels, KnobVector

Env = gym.Env[Any, Any]

FULL_TABLES = ("gcd", "multi_16bit", "multi_pipe_8bit", "radix2_div", "uart")
"""Designs whose sweep tables hold every combination of `edagym.wrappers.ppa_actions.LEVELS`."""


@cache
def _tables() -> TableFlow:
    """Return the recorded flow runs, shared by the environments of a process."""
    return TableFlow()


def _training_env(env_id: str, options: Mapping[str, Any]) -> Env:
    edagym.register_all()
    return gym.make(env_id, disable_env_checker=True, on_tool_error="raise", **options)


def drc_edit(base: Env | None = None, *, actions: Literal["discrete", "box"] = "discrete", **options: Any) -> Env:
    """Edits at a violation.

    Args:
        base: The environment to wrap; None: ``DRC-Train-v0``.
        actions: ``"discrete"`` (`EdgeSteps`) or ``"box"`` (`EdgeMoves`).
        **options: Keyword arguments of the training environment.
    """
    wrapper = {"discrete": EdgeSteps, "box": EdgeMoves}[actions]
    return wrapper(_training_env("DRC-Train-v0", options) if base is None else base)


def ppa_knobs(
    base: Env | None = None,
    *,
    actions: Literal["discrete", "box"] = "discrete",
    levels: Mapping[str, Sequence[str]] | None = None,
    designs: Sequence[str] = FULL_TABLES,
    recorded: bool = True,
    **options: Any,
) -> Env:
    """Knob vectors.

    Args:
        base: The environment to wrap; None: ``PPA-Train-v0``.
        actions: ``"discrete"`` (`KnobLevels`) or ``"box"`` (`KnobVector`).
        levels: Levels of the knobs; None: those of the shipped tables.
        designs: Designs of the training tasks.
        recorded: Whether training looks runs up in the sweep tables (`TableFlow`).
        **options: Further keyword arguments of the training environment.
    """
    if base is None:
        backend = {"backend": _tables()} if recorded else {}
        base = _training_env("PPA-Train-v0", {"designs": list(designs), **backend, **options})
    return {"discrete": KnobLevels, "box": KnobVector}[actions](base, levels)
