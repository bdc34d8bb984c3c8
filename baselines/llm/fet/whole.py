"""Whole-layout scaffolds: Plan-and-Execute and ReAct-3 (2D-FET-Bench V2, Section 5 and Appendix B).

A planner answers with one list of edits for all layers. The list is interpreted as it stands (`guard_inputs=False`):
edits of read-only layers go through and are left to the check of input preservation. Plan-and-Execute submits what its
one plan drew. ReAct-3 has up to three rounds: the verifier's messages go back to the planner, and every new plan starts
from the initial scene again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edagym.baselines.llm.client import ModelSpec
from edagym.baselines.llm.fet import prompts
from edagym.baselines.llm.fet.agent import FETAgent, Steps, Unreadable, gives_up
from edagym.envs.fet.prompt import Scaffold, render_prompt
from edagym.spaces.actions import Command


class WholeLayout(FETAgent):
    """Base of the planners of whole layouts."""

    @property
    def env_options(self) -> dict[str, Any]:
        """Direct interpretation, and a budget of so many rounds."""
        return {"rounds": self.rounds, "guard_inputs": False}

    def opening(self) -> list[dict[str, Any]]:
        """Return the first two messages: the planner's part, and the task's prompt as it is."""
        return [
            {"role": "system", "content": prompts.PLANNER},
            {"role": "user", "content": render_prompt(self._view, self.scaffold)},
        ]

    @property
    def layers(self) -> list[str]:
        """Names of the layers to draw on."""
        return [spec.name for spec in self._view.editable_layers]


class PlanExecutePolicy(WholeLayout):
    """Plan-and-Execute: one plan, no feedback.

    Args:
        model: See `FETAgent`.
        scaffold: See `FETAgent`.
        output_retries: See `FETAgent`.
    """

    name = "fet-plan-execute"

    def __init__(
        self, model: ModelSpec | Mapping[str, Any] | str, *, scaffold: Scaffold = "C0", output_retries: int = 2
    ) -> None:
        super().__init__(model, scaffold=scaffold, rounds=1, output_retries=output_retries)

    def episode(self) -> Steps:
        """Yield the plan, then submit."""
        plan = self.ask_edits("planner", self.opening(), self.layers)
        if isinstance(plan, Unreadable):
            yield plan
            return
        edits, thought, _ = plan
        self._attempt.note("plan", text=thought, edits=len(edits), infeasible=gives_up(edits))
        if gives_up(edits):
            yield Command.DECLARE_INFEASIBLE
        yield edits


class React3Policy(WholeLayout):
    """ReAct-3: whole plans with feedback of the verifier, each from the initial scene.

    Args:
        model: See `FETAgent`.
        scaffold: See `FETAgent`.
        rounds: Most plans; the paper has 3.
        output_retries: See `FETAgent`.
    """

    name = "fet-react-3"

    def episode(self) -> Steps:
        """Yield a plan and a verify per round."""
        messages = self.opening()
        for number in range(1, self.rounds + 1):
            plan = self.ask_edits("planner", messages, self.layers)
            if isinstance(plan, Unreadable):
                yield plan
                refused, findings, reply = str(plan.error), [], ""
            else:
                edits, thought, reply = plan
                self._attempt.note("plan", text=thought, edits=len(edits), infeasible=gives_up(edits), round=number)
                if gives_up(edits):
                    yield Command.DECLARE_INFEASIBLE
                yield edits
                refused = str(self._info["edit_error"])
                yield Command.VERIFY
                findings = self.findings
                self._attempt.note("critique", text="\n".join(findings), round=number)
            if number == self.rounds:
                return
            self._restore(number)
            said = prompts.feedback(number, self.rounds, findings, refused)
            messages += [{"role": "assistant", "content": reply or "(unreadable)"}, {"role": "user", "content": said}]

    def _restore(self, number: int) -> None:
        dropped = self._attempt.steps
        self._attempt.restart()
        self._attempt.note("restore", text="back to the initial scene", round=number, dropped=dropped)
