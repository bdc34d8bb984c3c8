"""`FETAgent`: what the five FET scaffolds share."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from edagym.baselines.llm.client import ModelSpec
from edagym.baselines.llm.parsing import parse_actions, parse_objects
from edagym.baselines.llm.talk import Talk
from edagym.baselines.policies import Attempt
from edagym.envs.fet.prompt import SCAFFOLDS, Scaffold
from edagym.errors import PolicyError
from edagym.spaces.actions import Command, EditSpace
from edagym.task_assets.fet.task import TaskView

Edits = list[dict[str, Any]]
Findings = list[str]


class Unreadable:
    """Yielded in the place of an action that could not be read: it is charged and counted, and the scaffold goes on.

    Args:
        error: Why.
    """

    def __init__(self, error: PolicyError) -> None:
        self.error = error


Steps = Generator[Any, None, None]


class FETAgent:
    """Base of the scaffolds. An attempt is a generator of actions; the environment's answer to each is in `_info`.

    Args:
        model: The model: a `ModelSpec`, its JSON form, or a name.
        scaffold: ``"C0"``, ``"C1"`` or ``"C2"``: see `edagym.envs.fet.prompt.render_prompt`.
        rounds: Most rounds of one list of edits and one verify.
        output_retries: How often an unreadable reply is asked for again.

    Raises:
        ValueError: If an argument is out of range.
    """

    name = "fet"
    privileged = False
    deterministic = False

    def __init__(
        self,
        model: ModelSpec | Mapping[str, Any] | str,
        *,
        scaffold: Scaffold = "C0",
        rounds: int = 3,
        output_retries: int = 2,
    ) -> None:
        if scaffold not in SCAFFOLDS:
            raise ValueError(f"scaffold must be one of {SCAFFOLDS}, got {scaffold!r}")
        if not (isinstance(rounds, int) and 1 <= rounds <= 20):
            raise ValueError(f"rounds must be in 1..20, got {rounds!r}")
        self.model = ModelSpec.of(model)
        self.scaffold: Scaffold = scaffold
        self.rounds = rounds
        self.output_retries = output_retries
        self._talk = Talk(self.model, output_retries)

    @property
    def env_options(self) -> dict[str, Any]:
        """Keyword arguments of the environment that the scaffold is evaluated under."""
        return {"rounds": self.rounds}

    def settings(self) -> dict[str, Any]:
        """Return what a record states about the scaffold."""
        return {
            "workflow": self.name,
            "scaffold": self.scaffold,
            "model": self.model.to_dict(),
            "rounds": self.rounds,
            "output_retries": self.output_retries,
        }

    def bind(self, attempt: Attempt) -> None:
        """Begin an attempt; raises `PolicyError` for a task of another family."""
        if not isinstance(attempt.task_view, TaskView):
            raise PolicyError("not a FET task", field="policy", value=self.name)
        self._attempt = attempt
        self._view: TaskView = attempt.task_view
        self._talk.begin(attempt)
        self._info: Mapping[str, Any] = {}
        self._steps = self.episode()

    def act(self, observation: dict[str, Any], info: dict[str, Any]) -> Any:
        """Return the next action; raises `ModelError` if the model fails, `PolicyError` for an unreadable reply."""
        self._info = info
        action = next(self._steps, Command.SUBMIT)
        if isinstance(action, Unreadable):
            raise action.error
        return action

    def episode(self) -> Steps:
        """Yield the attempt's actions."""
        raise TypeError(f"{type(self).__name__} has no episode")

    # -- shared parts ----------------------------------------------------------------------------------------------

    @property
    def findings(self) -> Findings:
        """Messages of the last verify."""
        text: str = self._info["verdict"]["messages"]
        return text.splitlines()

    def ask_edits(
        self, role: str, messages: list[dict[str, Any]], layers: list[str]
    ) -> tuple[Edits, str, str] | Unreadable:
        """Ask for edits; return them with the model's thought and the whole reply.

        Args:
            role: The agent's part.
            messages: The conversation.
            layers: Layers that a constrained reply may name.
        """
        try:
            edits, reply = self._talk.ask(role, messages, read_edits, EditSpace.reply_schema(layers))
        except PolicyError as e:
            return Unreadable(e)
        return edits, thought_of(reply), reply

    def ask_text(self, role: str, messages: list[dict[str, Any]], field: str) -> str:
        """Ask for one field of text; an answer without form is taken as a whole, an unreadable one is empty."""
        schema = {
            "type": "object",
            "properties": {field: {"type": "string"}},
            "required": [field],
            "additionalProperties": False,
        }
        try:
            return self._talk.ask(role, messages, text_reader(field), schema)[0]
        except PolicyError:
            return ""


def gives_up(edits: Edits) -> bool:
    """Whether a reply says nothing but that the task cannot be done."""
    return all(e.get("op") == Command.DECLARE_INFEASIBLE.value for e in edits)


def read_edits(text: str) -> Edits:
    """Return the edits of a reply; raises `PolicyError` if there are none."""
    return parse_actions(text, EditSpace.schema())


def thought_of(text: str) -> str:
    """Return the thought of a reply, or an empty string."""
    for value in parse_objects(text):
        if isinstance(thought := value.get("thought"), str):
            return thought
    return ""


MAX_TEXT = 2000
"""Characters of a reflection that are kept."""


def text_reader(field: str) -> Callable[[str], str]:
    """Return a reader of replies that hold one text."""

    def read(reply: str) -> str:
        found = [v[field] for v in parse_objects(reply) if isinstance(v.get(field), str)]
        text = (found[-1] if found else reply).strip()
        if not text:
            raise PolicyError("an empty reply", field=field, value=reply, allowed="a text")
        return str(text[:MAX_TEXT])

    return read
