"""What all task families share: the `EditEnv` skeleton, rewards, snapshots and traces."""

from edagym.envs.core.edit_env import EditEnv
from edagym.envs.core.reward import RewardFn, SparseReward
from edagym.envs.core.trace import load_trace, trace_actions

__all__ = ["EditEnv", "RewardFn", "SparseReward", "load_trace", "trace_actions"]
