"""What the text solver for DRC and PPA knows of an attempt so far: actions, and what the tools answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Action = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """An action and what the tools answered."""

    action: Action
    outcome: str

    @property
    def refused(self) -> bool:
        """Whether it was refused."""
        return self.outcome.startswith("Refused")
