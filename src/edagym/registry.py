"""Registration of every environment id with Gymnasium: string entry points and JSON keyword arguments only."""

from __future__ import annotations

from typing import Any

import gymnasium as gym

_FET = "edagym.envs.fet.env:FETEnv"
_FET_TRAIN = "edagym.envs.fet.env:FETTrainEnv"
_DRC = "edagym.envs.drc.env:DRCEnv"
_DRC_TRAIN = "edagym.envs.drc.env:DRCTrainEnv"
_PPA = "edagym.envs.ppa.env:PPAEnv"
_PPA_TRAIN = "edagym.envs.ppa.env:PPATrainEnv"

ENVIRONMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "FET-L1-v0": (_FET, {"suite": "FET-L1"}),
    "FET-L2-v0": (_FET, {"suite": "FET-L2"}),
    "FET-L3-v0": (_FET, {"suite": "FET-L3"}),
    "FET-L4-v0": (_FET, {"suite": "FET-L4"}),
    "FET-Holes-v0": (_FET, {"suite": "FET-Holes"}),
    "FET-All-v0": (_FET, {"suite": "FET-All"}),
    "FET-Train-v0": (_FET_TRAIN, {}),
    "DRC-Essential-L1-v0": (_DRC, {"suite": "DRC-Essential-L1"}),
    "DRC-Essential-L2-v0": (_DRC, {"suite": "DRC-Essential-L2"}),
    "DRC-Essential-L3-v0": (_DRC, {"suite": "DRC-Essential-L3"}),
    "DRC-Reasoning-L1-v0": (_DRC, {"suite": "DRC-Reasoning-L1"}),
    "DRC-Reasoning-L2-v0": (_DRC, {"suite": "DRC-Reasoning-L2"}),
    "DRC-Reasoning-L3-v0": (_DRC, {"suite": "DRC-Reasoning-L3"}),
    "DRC-Train-v0": (_DRC_TRAIN, {}),
    "PPA-Performance-L1-v0": (_PPA, {"suite": "PPA-Performance-L1"}),
    "PPA-Performance-L2-v0": (_PPA, {"suite": "PPA-Performance-L2"}),
    "PPA-Performance-L3-v0": (_PPA, {"suite": "PPA-Performance-L3"}),
    "PPA-Power-L1-v0": (_PPA, {"suite": "PPA-Power-L1"}),
    "PPA-Power-L2-v0": (_PPA, {"suite": "PPA-Power-L2"}),
    "PPA-Area-L1-v0": (_PPA, {"suite": "PPA-Area-L1"}),
    "PPA-Area-L2-v0": (_PPA, {"suite": "PPA-Area-L2"}),
    "PPA-Multi-L1-v0": (_PPA, {"suite": "PPA-Multi-L1"}),
    "PPA-Multi-L2-v0": (_PPA, {"suite": "PPA-Multi-L2"}),
    "PPA-Train-v0": (_PPA_TRAIN, {}),
}
"""Id -> (entry point, keyword arguments). Budgets are the environments' own, so no id has max_episode_steps."""


def register_all() -> None:
    """Register every id; calling it again changes nothing."""
    for env_id, (entry_point, kwargs) in ENVIRONMENTS.items():
        if env_id not in gym.registry:
            gym.register(env_id, entry_point=entry_point, kwargs=dict(kwargs))
