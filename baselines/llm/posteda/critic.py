"""Proposer-Critic: only what both agree to is carried out (PostEDA-Bench, Appendix E.2)."""

from __future__ import annotations

import json
from typing import Any

from edagym.baselines.llm.posteda import prompts
from edagym.baselines.llm.posteda.agent import THOUGHT, Action, Message, PostEDAPolicy, Steps, read_actions, read_object
from edagym.errors import PolicyError
from edagym.spaces.json_schema import closed_object

VERDICTS = ("accept", "revise", "reject")


class ProposerCriticPolicy(PostEDAPolicy):
    """A proposer drafts an action; a critic accepts, corrects or rejects it.

    Proposer, critic and dispatch together are one action. A round that ends without agreement costs its two calls and
    no unit. Of a proposal with several actions the first counts.
    """

    name = "posteda-proposer-critic"

    @property
    def agents(self) -> int:
        """Two: proposer and critic."""
        return 2

    def episode(self) -> Steps:
        """Yield what both agree to."""
        messages = self.opening(prompts.REACT, prompts.PROPOSER, prompts.ANSWER)
        history: list[str] = []
        while True:
            proposed = self.ask_actions("proposer", messages)
            if not proposed:
                continue
            action, reason = self.review(proposed[0], history)
            if action is None:
                messages.append({"role": "user", "content": f"The critic sends it back: {reason}\n"})
                continue
            changed = "" if action == proposed[0] else f"The critic corrected it: {reason}\n"
            yield action
            history.append(self.result(action))
            messages.append({"role": "user", "content": changed + history[-1]})

    def review(self, action: Action, history: list[str]) -> tuple[Action | None, str]:
        """Ask the critic about a proposal.

        Returns:
            What is to be carried out, None if nothing; and the critic's reason.
        """
        messages: list[Message] = self.opening(prompts.CRITIC)
        past = "\n".join(history) or "Nothing has been done yet.\n"
        messages.append({"role": "user", "content": f"{past}\nProposal: {json.dumps(action)}\n"})
        schema = closed_object(
            reason=THOUGHT,
            verdict={"enum": list(VERDICTS)},
            action={"anyOf": [*self.action_schema()["anyOf"], {"type": "null"}]},
        )
        try:
            verdict, reason, revised = self.ask("critic", messages, schema, read_verdict)
        except PolicyError:
            return None, "no readable answer from the critic"
        agreed = {"accept": action, "revise": revised, "reject": None}[verdict]
        self._attempt.note("critique", text=reason, verdict=verdict, proposal=action, agreed=agreed)
        return agreed, reason


def read_verdict(text: str) -> tuple[str, str, Action | None]:
    """Return verdict, reason and corrected action of a critic's reply; raises `PolicyError`."""
    value: dict[str, Any] = read_object(text, "verdict")
    verdict = str(value["verdict"]).lower()
    if verdict not in VERDICTS:
        raise PolicyError("unknown verdict", field="verdict", value=verdict, allowed=VERDICTS)
    revised = read_actions(json.dumps(value["action"]))[0] if verdict == "revise" and value.get("action") else None
    if verdict == "revise" and revised is None:
        raise PolicyError("a revised action is needed", field="action", value=None)
    return verdict, str(value.get("reason", "")), revised
