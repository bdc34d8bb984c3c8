"""Stand-ins for a language model, and small tasks, for the tests of the post-EDA scaffolds."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from drc_cases import bars
from drc_cases import make_task as drc_task
from ppa_cases import FormulaFlow, make_task, same_function

from edagym.baselines.llm.client import Reply
from edagym.baselines.llm.posteda.agent import PostEDAPolicy
from edagym.baselines.policies import Attempt
from edagym.envs.core.edit_env import EditEnv
from edagym.envs.drc.env import DRCEnv
from edagym.envs.ppa.env import PPAEnv
from edagym.spaces.actions import Command

SPEC = {"model": "stand-in", "base_url": "http://127.0.0.1:9/v1"}
QUERY = {"op": "query", "level": "first", "kind": "edge", "points": [[1040, 500], [1040, 700]], "direct_layers": ["M1"]}
CHECK, RUN, SUBMIT = {"op": "check"}, {"op": "run"}, {"op": "submit"}
READ = {"op": "read_file", "command": "ls"}
DRC_TASK = drc_task(bars(10))
"""Two M1 bars 10 nm apart; the right one, moved by 8 nm, mends it."""
MEND = {
    "op": "change_shape",
    "layer": "M1",
    "shape": {"box": [50, 0, 90, 200]},
    "change": "move",
    "by": [8, 0],
    "cell": "PAIR",
}
SPOIL = {**MEND, "by": [-4, 0]}
PPA_TASK = make_task()
PPA_FIX = [
    {"op": "set_knob", "name": "ASAP7_USE_VT", "value": "LVT"},
    {"op": "set_knob", "name": "PLACE_DENSITY", "value": "0.8"},
]


def act(*actions: Any) -> str:
    """A reply with one action or several."""
    return json.dumps({"thought": "so", "action": actions[0] if len(actions) == 1 else list(actions)})


class StandIn:
    """Answers by a function of role and number of the call among those of the role; keeps what it was asked."""

    def __init__(self, answer: Callable[[str, int], str]) -> None:
        self.answer = answer
        self.asked: list[tuple[str, list[dict[str, Any]], Any]] = []

    def begin_attempt(self) -> None:
        self.asked.clear()

    def ask(self, messages: Any, *, schema: Any = None, role: str = "agent") -> Reply:
        number = sum(r == role for r, _, _ in self.asked)
        self.asked.append((role, copy.deepcopy(list(messages)), schema))
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "cost": None}
        return Reply(self.answer(role, number), usage, "stop", 0, 0.0)

    def by(self, role: str) -> list[list[dict[str, Any]]]:
        """The messages of a role's calls."""
        return [messages for r, messages, _ in self.asked if r == role]


def scripted(kind: type[PostEDAPolicy], answer: Callable[[str, int], str], **options: Any) -> Any:
    """A scaffold on a stand-in."""
    policy = kind(SPEC, **options)
    policy._chat = StandIn(answer)  # type: ignore[assignment]
    return policy


def make_env(family: str, policy: Any = None, **kwargs: Any) -> EditEnv[Any, Any]:
    options = {"on_tool_error": "raise", **getattr(policy, "env_options", {}), **kwargs}
    if family == "drc":
        return DRCEnv(tasks=[options.pop("task", DRC_TASK)], **{**options, "criterion": "paper"})
    task = options.pop("task", PPA_TASK)
    return PPAEnv(tasks=[task], backend=FormulaFlow(), function_check=same_function, **options)


def run(env: EditEnv[Any, Any], policy: Any, seed: int = 0) -> tuple[Attempt, dict[str, Any], list[Any]]:
    """Run one attempt; returns it, the last info and the actions taken."""
    env.reset(seed=0)
    attempt = Attempt(env, seed)
    observation, info = env.observe()
    policy.bind(attempt)
    actions: list[Any] = []
    done = False
    while not done:
        action = policy.act(observation, info)
        actions.append("submit" if action is Command.SUBMIT else "run" if action is Command.VERIFY else action)
        observation, _, terminated, truncated, info = env.step_any(action)
        done = terminated or truncated
    return attempt, info, actions


def notes(attempt: Attempt, kind: str) -> list[dict[str, Any]]:
    return [n for n in attempt.notes if n["kind"] == kind]
