"""Typed errors of every EDAGym layer.

The hierarchy tells a caller who is at fault, because only one of the three may cost an agent anything:

* `TaskError`: the task's own data is wrong. Nobody can be scored on it.
* `EditError`: an agent's edit is refused. It becomes an observation and the episode goes on.
* `FlowError`: a design cannot be implemented (it does not fit, does not synthesise). A real outcome that an agent sees.
* `ToolError` (`ToolTimeout`, `ModelError`): an engine, external tool or model server failed. It is never scored as a
  reward of 0.
* `PolicyError`: a policy's output cannot be read. It becomes an observation and is counted apart.

Every error carries `field`, `value` and `allowed` where these are known, so that messages can be machine-read.
"""

from __future__ import annotations

from typing import Any


class EDAGymError(Exception):
    """Base class of all errors that EDAGym raises on purpose.

    Args:
        message: What is wrong, in one sentence.
        field: Name of the offending field (dotted path), if known.
        value: The offending value, if known.
        allowed: What would have been accepted, if known.
    """

    def __init__(self, message: str, *, field: str | None = None, value: Any = None, allowed: Any = None) -> None:
        self.field = field
        self.value = value
        self.allowed = allowed
        parts = [message]
        if field is not None:
            parts.append(f"field: {field}")
        if value is not None:
            text = repr(value)
            parts.append(f"value: {text if len(text) <= 200 else text[:197] + '...'}")
        if allowed is not None:
            parts.append(f"allowed: {allowed}")
        super().__init__("; ".join(parts))
        self._message = message

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions with keyword-only arguments do not pickle by default; worker processes must be able to raise these.
        return (_rebuild, (type(self), self._message, self.field, self.value, self.allowed))


def _rebuild(cls: type[EDAGymError], message: str, field: str | None, value: Any, allowed: Any) -> EDAGymError:
    return cls(message, field=field, value=value, allowed=allowed)


class TaskError(EDAGymError):
    """A task file or a layout file that belongs to a task is malformed or unknown."""


class EditError(EDAGymError):
    """An agent's edit is refused; the layout before the edit is intact."""


class FlowError(EDAGymError):
    """A design cannot be implemented: a real outcome of the flow, which the agent sees; `field` names the stage."""


class ToolError(EDAGymError):
    """An engine or an external tool failed. Never a reward of 0."""


class ToolTimeout(ToolError):
    """An engine or an external tool ran past its time limit."""


class ModelError(ToolError):
    """A model server gave no usable answer, retries included: an infrastructure failure, never one of the agent.

    Attributes:
        retries: Repeated requests of the failed call.
        seconds: What the call took, s.
    """

    retries: int = 0
    seconds: float = 0.0


class PolicyError(EDAGymError):
    """A policy's output cannot be read as an action."""
