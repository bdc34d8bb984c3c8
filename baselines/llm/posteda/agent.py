"""`PostEDAPolicy`: what the post-EDA scaffolds share: model calls within a call budget, replies, results, notes.

Budgets are counted in agent actions, and the environment holds them. A scaffold that asks several models per action
gets so many times the calls (PostEDA-Bench, Appendix E.2); on top of that the call budget allows for turns that lead to
no action: unreadable answers, proposals that the critic turns down. Such turns cost a call and no unit. When the calls
are used up, the state as it is is submitted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

from edagym.baselines.llm.client import ChatModel, ModelSpec, Reply, noted
from edagym.baselines.llm.parsing import parse_objects
from edagym.baselines.llm.posteda import prompts
from edagym.baselines.llm.posteda.family import Family, family_of
from edagym.baselines.policies import Attempt
from edagym.errors import ModelError, PolicyError
from edagym.spaces.actions import MAX_THOUGHT, Command
from edagym.spaces.json_schema import closed_object

Action = dict[str, Any]
Message = dict[str, Any]
Steps = Generator[Any, None, None]
T = TypeVar("T")

THOUGHT = {"type": "string", "maxLength": MAX_THOUGHT}
"""Schema of a thought: small models may never come to the action."""


class CallsSpent(Exception):
    """The call budget is used up; never leaves a policy."""


class PostEDAPolicy:
    """Base of the scaffolds. An episode is a generator of actions; the environment's answer to each is in `_info`.

    Args:
        model: The model, as `ModelSpec`, its JSON form, or its bare name.
        call_factor: Call budget over (agents per action x units of budget).

    Raises:
        ValueError: If an argument is out of range.
    """

    name = "posteda"
    privileged = False
    deterministic = False
    families: tuple[str, ...] = ("drc", "ppa")
    env_options: Mapping[str, Any] = {}

    def __init__(self, model: ModelSpec | Mapping[str, Any] | str, *, call_factor: int = 2) -> None:
        if not 1 <= call_factor <= 16:
            raise ValueError(f"call_factor must be in 1..16, got {call_factor!r}")
        self.model = ModelSpec.of(model)
        self.call_factor = call_factor
        self._chat = ChatModel(self.model)
        self._cap = 0

    # -- Policy ----------------------------------------------------------------------------------------------------

    def bind(self, attempt: Attempt) -> None:
        """Begin an attempt; raises `PolicyError` for a task of another family."""
        self._attempt = attempt
        self._family: Family = family_of(attempt.task_view)
        if self._family.name not in self.families:
            raise PolicyError("not for this family", field="policy", value=self.name, allowed=list(self.families))
        self._cap = attempt.budget_left
        self._calls = 0
        self._chat.begin_attempt()
        self._info: Mapping[str, Any] = {}
        self._steps = self._run()

    def act(self, observation: dict[str, Any], info: dict[str, Any]) -> Any:
        """Return the next action; raises `ModelError` if the model cannot be reached."""
        self._info = info
        return next(self._steps)

    def settings(self) -> dict[str, Any]:
        """Return what a record states about the scaffold; the caps are those of the last attempt."""
        return {
            "scaffold": self.name,
            "model": self.model.to_dict(),
            "agents": self.agents,
            "call_factor": self.call_factor,
            "action_cap": self._cap,
            "call_budget": self.call_budget,
        }

    # -- what a scaffold says --------------------------------------------------------------------------------------

    @property
    def agents(self) -> int:
        """Model calls per action."""
        return 1

    @property
    def call_budget(self) -> int:
        """Model calls that an attempt may use."""
        return self.call_factor * self.agents * self._cap

    def episode(self) -> Steps:
        """Yield the attempt's actions."""
        raise TypeError(f"{type(self).__name__} has no episode")

    def hand_in(self) -> None:
        """Return to the state that is to be submitted; the current one, unless a scaffold says otherwise."""

    def action_schema(self) -> dict[str, Any]:
        """Return the JSON schema of one action of this scaffold."""
        return self._family.schema

    # -- shared parts ----------------------------------------------------------------------------------------------

    def _run(self) -> Steps:
        try:
            yield from self.episode()
        except CallsSpent:
            self._attempt.note("plan", text=f"All {self.call_budget} model calls are used up: submitting.")
        self.hand_in()
        yield Command.SUBMIT

    @property
    def units(self) -> int:
        """Units that may still be spent."""
        return int(self._info["budget_left"])

    def opening(self, *system: str) -> list[Message]:
        """Return the first two messages: role and scaffold, then the task's own prompt."""
        parts = [prompts.ENGINEER[self._family.name], *system]
        return [
            {"role": "system", "content": "\n\n".join(parts)},
            {"role": "user", "content": self._attempt.prompt},
        ]

    def ask(self, role: str, messages: list[Message], schema: dict[str, Any] | None, read: Callable[[str], T]) -> T:
        """Ask the model once and read its reply; question and answer are noted.

        Raises:
            CallsSpent: If no call is left.
            ModelError: If the model cannot be reached.
            PolicyError: If the reply cannot be read.
        """
        if self._calls >= self.call_budget:
            raise CallsSpent
        self._calls += 1
        try:
            reply = self._chat.ask(messages, schema=schema, role=role)
        except ModelError as e:
            self._note(role, messages, Reply("", {}, "error", e.retries, e.seconds), str(e), failed=True)
            raise
        error: str | None = None
        try:
            return read(reply.text)
        except PolicyError as e:
            error = str(e)
            raise
        finally:
            self._note(role, messages, reply, error)
            messages.append({"role": "assistant", "content": reply.text})

    def _note(
        self, role: str, messages: list[Message], reply: Reply, error: str | None, *, failed: bool = False
    ) -> None:
        self._attempt.note(
            "model",
            role=role,
            messages=noted(messages),
            reply=reply.text,
            parsed=None if failed else error is None,
            error=error,
            usage=reply.usage,
            seconds=reply.seconds,
            retries=reply.retries,
            **({"failed": True} if failed else {}),
        )

    def ask_actions(self, role: str, messages: list[Message]) -> list[Action]:
        """Ask for actions; an unreadable answer becomes an observation, and the list is empty."""
        schema = closed_object(thought=THOUGHT, action=self.action_schema())
        try:
            return self.ask(role, messages, schema, read_actions)
        except PolicyError as e:
            messages.append({"role": "user", "content": prompts.UNREADABLE.format(error=e)})
            return []

    def result(self, action: Action, left: int | None = None) -> str:
        """Return what the last action led to, as text."""
        return self._family.result(action, self._info, self.units if left is None else left)


def read_actions(text: str) -> list[Action]:
    """Return the actions of a reply: ``{"thought": ..., "action": {...}}``, or the bare action, or several.

    Raises:
        PolicyError: If there is none.
    """
    found: list[Action] = []
    for value in parse_objects(text):
        inner = value.get("action", value.get("actions", value))
        for action in inner if isinstance(inner, list) else [inner]:
            # A reply that says the same twice, as a draft and as the answer, means it once.
            if isinstance(action, Mapping) and isinstance(action.get("op"), str) and action not in found:
                found.append(dict(action))
    if not found:
        raise PolicyError("no action in it", field="reply", value=text[:200], allowed='an object with "op"')
    return found


def read_object(text: str, *needed: str) -> dict[str, Any]:
    """Return the object of a reply that has certain fields; raises `PolicyError` if there is none."""
    for value in parse_objects(text):
        if all(name in value for name in needed):
            return value
    raise PolicyError("no such object in it", field="reply", value=text[:200], allowed=f"fields {list(needed)}")


def canonical(action: Action) -> str:
    """Return one text for equal actions."""
    return json.dumps({k: v for k, v in action.items() if v is not None}, sort_keys=True)
