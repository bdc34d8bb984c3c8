"""What the post-EDA scaffolds need to know about a family: schema, verifying action, progress, results as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edagym.baselines.search.ppa_space import misfit
from edagym.errors import PolicyError
from edagym.spaces.drc_actions import DRCActionSpace
from edagym.spaces.ppa_actions import PPAActionSpace
from edagym.task_assets.drc.task import DRCView
from edagym.task_assets.ppa.task import METRICS, PPAView

View = DRCView | PPAView


@dataclass(frozen=True)
class Family:
    """One of the two post-EDA families.

    Attributes:
        name: ``"drc"`` or ``"ppa"``.
        verify: The operation that verifies: ``"check"`` or ``"run"``.
        view: What an agent may know about the task.
    """

    name: str
    verify: str
    view: View

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of one action."""
        return DRCActionSpace.schema() if self.name == "drc" else PPAActionSpace.schema()

    def distance(self, info: Mapping[str, Any]) -> float:
        """Return how far the last verified state is from the goal; 0 is there.

        DRC: violations left. PPA: sum of the logarithms of value over target of the metrics that miss it.
        """
        if isinstance(self.view, DRCView):
            return float(info["n_violations"])
        return misfit({m: float(info[m]) for m in METRICS}, self.view.targets)

    def verified(self, action: Mapping[str, Any], info: Mapping[str, Any]) -> bool:
        """Return whether an action was a check or run that completed."""
        return action.get("op") == self.verify and not info["edit_error"] and not info.get("flow_error")

    def failed(self, action: Mapping[str, Any], info: Mapping[str, Any]) -> bool:
        """Return whether an action was refused, or was a run that did not complete."""
        return bool(info["edit_error"] or (action.get("op") == self.verify and info.get("flow_error")))

    def result(self, action: Mapping[str, Any], info: Mapping[str, Any], left: int) -> str:
        """Return what an action led to, as text.

        Args:
            action: The action.
            info: The environment's info after it.
            left: Units that may still be spent.
        """
        if info["edit_error"]:
            outcome = f"Refused, nothing changed: {info['edit_error']}\n"
        else:
            outcome = info["text"] or f"Done. The state has not been verified since; `{self.verify}` does that.\n"
        if info.get("circuit_kept") == 0:
            outcome += "Warning: nets or devices near the edits may differ from the original.\n"
        return f"Result of {json.dumps(action)}:\n{outcome}Units left: {left}\n"


def family_of(view: Any) -> Family:
    """Return the family of a task by its view.

    Raises:
        PolicyError: If it is neither a DRC nor a PPA task.
    """
    if isinstance(view, DRCView):
        return Family("drc", "check", view)
    if isinstance(view, PPAView):
        return Family("ppa", "run", view)
    raise PolicyError("this policy is for DRC and PPA tasks", field="task", value=type(view).__name__)
