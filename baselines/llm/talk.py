"""`Talk`: asking a model within an attempt: replies are read, unreadable ones asked for again, and all is noted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from edagym.baselines.llm.client import ChatModel, Message, ModelSpec, noted
from edagym.baselines.policies import Attempt
from edagym.errors import ModelError, PolicyError

T = TypeVar("T")

UNREADABLE = "Your reply could not be read: {error}\nAnswer again, in the form that was asked for."
MAX_OUTPUT_RETRIES = 12
"""As many output-validation retries as the paper's runs had (2D-FET-Bench V2, Appendix B)."""


class Talk:
    """Conversations of one policy with its model.

    Args:
        spec: The model.
        output_retries: How often the model is asked again, with the error, when its reply cannot be read.

    Raises:
        ValueError: If `output_retries` is out of range.
    """

    def __init__(self, spec: ModelSpec, output_retries: int = 2) -> None:
        if not (isinstance(output_retries, int) and 0 <= output_retries <= MAX_OUTPUT_RETRIES):
            raise ValueError(f"output_retries must be in 0..{MAX_OUTPUT_RETRIES}, got {output_retries!r}")
        self.spec = spec
        self.output_retries = output_retries
        self._chat = ChatModel(spec)
        self._attempt: Attempt | None = None

    def begin(self, attempt: Attempt) -> None:
        """Begin an attempt: its clock and its notes."""
        self._attempt = attempt
        self._chat.begin_attempt()

    def ask(
        self,
        role: str,
        messages: Sequence[Message],
        read: Callable[[str], T],
        schema: dict[str, Any] | None = None,
    ) -> tuple[T, str]:
        """Return what was read of the model's reply, and the reply.

        Args:
            role: The agent's part, for notes.
            messages: The conversation; it is not changed.
            read: Reads a reply; raises `PolicyError`.
            schema: JSON schema of the reply.

        Raises:
            ModelError: If the model cannot be reached.
            PolicyError: If no reply can be read.
        """
        talk = list(messages)
        for left in range(self.output_retries, -1, -1):
            try:
                reply = self._chat.ask(talk, schema=schema, role=role)
            except ModelError as e:
                self._note(role, talk, None, None, str(e), {}, e.seconds, e.retries)
                raise
            try:
                value = read(reply.text)
            except PolicyError as e:
                self._note(role, talk, reply.text, False, str(e), reply.usage, reply.seconds, reply.retries)
                if not left:
                    raise
                talk.append({"role": "assistant", "content": reply.text})
                talk.append({"role": "user", "content": UNREADABLE.format(error=e)})
            else:
                self._note(role, talk, reply.text, True, None, reply.usage, reply.seconds, reply.retries)
                return value, reply.text
        raise PolicyError("no reply was asked for")  # not reached: the last reply is returned or raised

    def _note(
        self,
        role: str,
        messages: Sequence[Message],
        reply: str | None,
        parsed: bool | None,
        error: str | None,
        usage: dict[str, Any],
        seconds: float,
        retries: int,
    ) -> None:
        assert self._attempt is not None, "begin() comes first"
        self._attempt.note(
            "model",
            role=role,
            messages=noted(messages),
            reply=reply,
            parsed=parsed,
            error=error,
            usage=dict(usage) or {"prompt_tokens": 0, "completion_tokens": 0, "cost": None},
            seconds=seconds,
            retries=retries,
        )
