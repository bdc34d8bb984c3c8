"""Layer-wise scaffolds: ReAct-4, Reflexion-4 and ExpeL-4 (2D-FET-Bench V2, Sections 3 and 5, Appendix B).

Layers are drawn in the design order. For each, a planner draws and a code critic (`critic`, on a charged verify) finds
faults; while there are any, a fixer mends the layer, up to so many rounds. Checks that refer to later layers wait. Then
the layer is locked, faults or not: the guarded tools (`tools`) turn away edits of it. A reflector looks back at every
layer, and later planners read what it said.

ReAct-4 reflects once on each layer. Reflexion-4 and ExpeL-4 reflect a second time on layers that pass the critic.
ExpeL-4 keeps a record of every task and shows the three most recent ones to its planners, in order.

A planner or fixer may declare its layer infeasible; the layer is then left as it is, the rest is still drawn, and the
attempt ends with that declaration.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from edagym.baselines.llm.client import ModelSpec
from edagym.baselines.llm.fet import prompts
from edagym.baselines.llm.fet.agent import FETAgent, Findings, Steps, Unreadable, gives_up
from edagym.baselines.llm.fet.critic import review
from edagym.baselines.llm.fet.tools import complete_contacts, guard
from edagym.baselines.policies import Attempt
from edagym.envs.fet.prompt import Scaffold, render_brief
from edagym.spaces.actions import Command

RECENT = 3
"""Experience records that a planner reads."""


class LayerWise(FETAgent):
    """Base of the layer-wise scaffolds.

    Args:
        model: See `FETAgent`.
        scaffold: See `FETAgent`.
        rounds: Most rounds of planner or fixer and critic for each layer.
        output_retries: See `FETAgent`.
        guarded_tools: Whether the tools repair outlines and complete contacts. Locks hold in any case.
        trials: Attempts at the whole layout within the episode: a failed one is reflected on, and the next starts from
            the initial scene with the full budget of rounds. The paper's scaffolds have 1.

    Raises:
        ValueError: If an argument is out of range.
    """

    reflects_on_success = False

    def __init__(
        self,
        model: ModelSpec | Mapping[str, Any] | str,
        *,
        scaffold: Scaffold = "C0",
        rounds: int = 3,
        output_retries: int = 2,
        guarded_tools: bool = True,
        trials: int = 1,
    ) -> None:
        super().__init__(model, scaffold=scaffold, rounds=rounds, output_retries=output_retries)
        if not (isinstance(trials, int) and 1 <= trials <= 4):
            raise ValueError(f"trials must be in 1..4, got {trials!r}")
        self.guarded_tools = guarded_tools
        self.trials = trials
        self._memories: list[dict[str, Any]] = []

    @property
    def env_options(self) -> dict[str, Any]:
        """A budget of so many rounds for each layer and trial."""
        return {"rounds": self.rounds, "rounds_per": "layer", "budget_factor": self.trials}

    def settings(self) -> dict[str, Any]:
        """Return what a record states about the scaffold."""
        return {**super().settings(), "guarded_tools": self.guarded_tools, "trials": self.trials}

    # -- the workflow ----------------------------------------------------------------------------------------------

    @property
    def order(self) -> list[str]:
        """The layers to draw, in order."""
        return [name for name in self._view.design_order if not name.startswith("@")]

    def bind(self, attempt: Attempt) -> None:
        """Begin an attempt."""
        super().bind(attempt)
        self._reflections: list[str] = []
        self._layers: dict[str, dict[str, Any]] = {}
        self._current: tuple[str, list[dict[str, Any]]] = ("", [])

    def experiences(self) -> Sequence[Mapping[str, Any]]:
        """Return what planners read of earlier tasks."""
        return ()

    def episode(self) -> Steps:
        """Yield the actions of all layers and trials."""
        for trial in range(1, self.trials + 1):
            infeasible = False
            self._layers = {}
            for place, layer in enumerate(self.order, 1):
                infeasible |= yield from self._draw(layer, f"{place} of {len(self.order)} in the design order")
            if trial < self.trials:
                self._begin_anew(trial)
        yield Command.DECLARE_INFEASIBLE if infeasible else Command.SUBMIT

    def _draw(self, layer: str, position: str) -> Generator[Any, None, bool]:
        """Draw and lock one layer; return whether it was declared infeasible."""
        rounds: list[dict[str, Any]] = []
        self._current = (layer, rounds)
        drawn = [*self._layers, layer]
        messages = self._planner_messages(layer, position)
        role, passed, infeasible = "planner", False, False
        deferred: list[str] = []
        for number in range(1, self.rounds + 1):
            plan = self.ask_edits(role, messages, [layer])
            if isinstance(plan, Unreadable):
                yield plan
                rounds.append({"thought": "", "findings": ["the reply could not be read"]})
                continue
            edits, thought, _ = plan
            infeasible = gives_up(edits)
            about = {"layer": layer, "role": role, "round": number, "edits": len(edits), "infeasible": infeasible}
            self._attempt.note("plan", text=thought, **about)
            if infeasible:
                rounds.append({"thought": thought, "findings": [f"{layer} was declared infeasible"]})
                break
            edits, turned_away = self._guarded(edits, layer)
            if edits:
                yield edits
                turned_away += str(self._info["edit_error"]).splitlines()
                yield Command.VERIFY
                findings, deferred = self._criticise(layer, drawn, number)
            else:
                findings = [f"nothing was drawn on {layer}"]
            rounds.append({"thought": thought, "findings": findings})
            if not findings:
                passed = True
                break
            role, messages = "fixer", self._fixer_messages(layer, findings, turned_away)
        self._layers[layer] = {"rounds": len(rounds), "passed": passed, "infeasible": infeasible}
        if passed and self.reflects_on_success:
            self._reflect(layer, prompts.look_back(layer, rounds, passed, deferred, success=True), "success")
        self._lock(layer, passed)
        self._reflect(layer, prompts.look_back(layer, rounds, passed, deferred, success=False), "layer")
        return infeasible

    def _criticise(self, layer: str, drawn: Sequence[str], number: int) -> tuple[Findings, list[str]]:
        """Return the messages of the faults that count now, and the ids of the deferred checks."""
        verdict = self._attempt.verdict
        assert verdict is not None, "the critic follows a verify"
        failed, waiting = review(verdict, self._view, drawn, self._attempt.criterion)
        findings, deferred = [c.message for c in failed], [c.id for c in waiting]
        self._attempt.note("critique", text="\n".join(findings), layer=layer, round=number, deferred=deferred)
        return findings, deferred

    def _guarded(self, edits: list[dict[str, Any]], layer: str) -> tuple[list[dict[str, Any]], list[str]]:
        kept, said = guard(edits, layer, tuple(self._layers), repair=self.guarded_tools)
        if self.guarded_tools and kept and self._view.layer(layer).role == "contact":
            added = complete_contacts(self._view, self._attempt.layout, layer, kept)
            if added:
                said.append(f"{len(added)} missing contact(s) were added on {layer} in the suggested zones")
                kept = [*kept, *added]
        if said:
            self._attempt.note("proposal", text="\n".join(said), layer=layer, by="tools")
        return kept, said

    def _lock(self, layer: str, passed: bool) -> None:
        shapes = len(self._attempt.layout.shapes(layer))
        text = f"{layer} is locked with {shapes} shape(s), {'no' if passed else 'with'} open faults"
        self._attempt.note("lock", text=text, layer=layer, passed=passed, shapes=shapes)

    def _reflect(self, layer: str, request: str, when: str) -> None:
        """Have the reflector look back; what it says joins the reflections that later planners read."""
        messages = [{"role": "system", "content": prompts.REFLECTOR}, {"role": "user", "content": request}]
        text = self.ask_text("reflector", messages, "reflection")
        self._attempt.note("reflection", text=text, layer=layer, when=when)
        if text:
            self._reflections.append(f"{layer}: {text}")

    def _begin_anew(self, trial: int) -> None:
        """Reflect on the trial that failed and go back to the initial scene."""
        self._reflect("whole layout", prompts.look_back_on_trial(self.order, self.findings), "trial")
        dropped = self._attempt.steps
        self._attempt.restart()
        self._attempt.note("restore", text="a fresh trial from the initial scene", trial=trial + 1, dropped=dropped)

    # -- messages --------------------------------------------------------------------------------------------------

    def _planner_messages(self, layer: str, position: str) -> list[dict[str, Any]]:
        parts = [
            render_brief(self._view, self.scaffold),
            prompts.exemplar(self._view),
            prompts.lessons(self._reflections, self.experiences()),
            prompts.scene(self._view, self._attempt.layout, tuple(self._layers)),
            prompts.layer_task(self._view, layer, position),
        ]
        return [
            {"role": "system", "content": prompts.LAYER_PLANNER},
            {"role": "user", "content": "\n".join(p for p in parts if p)},
        ]

    def _fixer_messages(self, layer: str, findings: Findings, turned_away: Sequence[str]) -> list[dict[str, Any]]:
        parts = [
            render_brief(self._view, self.scaffold),
            prompts.scene(self._view, self._attempt.layout, tuple(self._layers)),
            prompts.mend_task(layer, findings, turned_away),
        ]
        return [{"role": "system", "content": prompts.FIXER}, {"role": "user", "content": "\n".join(parts)}]


class React4Policy(LayerWise):
    """ReAct-4: layer by layer, one reflection after each layer."""

    name = "fet-react-4"


class Reflexion4Policy(LayerWise):
    """Reflexion-4: ReAct-4 with a second reflection after each layer that passes the critic."""

    name = "fet-reflexion-4"
    reflects_on_success = True


class ExpeL4Policy(LayerWise):
    """ExpeL-4: Reflexion-4 with a memory of earlier tasks; depends on their order."""

    name = "fet-expel-4"
    reflects_on_success = True
    memory = True

    def experiences(self) -> Sequence[Mapping[str, Any]]:
        """Return the most recent records, oldest first."""
        return self._memories[-RECENT:]

    def bind(self, attempt: Attempt) -> None:
        """Begin an attempt; the records that it will read are noted."""
        super().bind(attempt)
        for record in self.experiences():
            attempt.note("experience", text=f"recalls {record['task']}", record=dict(record))

    def remember(self) -> dict[str, Any] | None:
        """Return the record of the attempt that just ended, and keep it; None if it came to no verdict."""
        verdict = self._attempt.verdict
        if verdict is None or self._attempt.ended in ("", "tool_error"):
            return None
        criterion = self._attempt.criterion
        solved = verdict.success(criterion)
        layer, rounds = self._current
        layers = dict(self._layers)
        if layer and layer not in layers:  # the verify that ended the episode came in the middle of it
            layers[layer] = {"rounds": len(rounds) + 1, "passed": solved, "infeasible": False}
        record = {
            "task": self._view.id,
            "objective": self._view.objective,
            "architecture": self._view.architecture,
            "solved": solved,
            "failed": [c.id for c in verdict.failed(criterion)],
            "layers": layers,
            "lessons": self._reflections[-RECENT:],
        }
        self._memories.append(record)
        return record

    def recall(self, memories: list[Any]) -> None:
        """Take these records for the policy's own, oldest first."""
        self._memories = [dict(m) for m in memories]
