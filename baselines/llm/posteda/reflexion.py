"""Reflexion: two trials from the same fresh state, with a verbal reflection carried over (Sections 4.4 and E.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edagym.baselines.llm.client import ModelSpec
from edagym.baselines.llm.posteda import prompts
from edagym.baselines.llm.posteda.agent import Message, Steps
from edagym.baselines.llm.posteda.react import ReActPolicy


class ReflexionPolicy(ReActPolicy):
    """ReAct, a reflection without tools, and ReAct again from the task's original state.

    By default each trial has the whole cap (Section 4.4), and the environment's budget is twice the task's; with
    `split` the trials share one cap (Section E.6). A submit in a trial that is not the last ends that trial: the state
    is checked, if a unit is left for it, and only success ends the episode.

    Args:
        model: See `PostEDAPolicy`.
        split: Whether the trials share the task's budget instead of getting it each.
        **kwargs: See `PostEDAPolicy`.
    """

    name = "posteda-reflexion"
    trials = 2

    def __init__(self, model: ModelSpec | Mapping[str, Any] | str, *, split: bool = False, **kwargs: Any) -> None:
        super().__init__(model, **kwargs)
        self.split = split
        self.env_options = {} if split else {"budget_factor": self.trials}

    def settings(self) -> dict[str, Any]:
        """Return what a record states about the scaffold: among others the caps of a trial and of the whole."""
        return {**super().settings(), "trials": self.trials, "split": self.split, "trial_cap": self._cap // self.trials}

    @property
    def call_budget(self) -> int:
        """Model calls: those of the actions, and the reflections."""
        return super().call_budget + self.trials - 1

    def episode(self) -> Steps:
        """Yield the actions of all trials."""
        lessons: list[str] = []
        for trial in range(1, self.trials + 1):
            last = trial == self.trials
            self._end = self.units if last else self._cap // self.trials
            note = prompts.trial_note(trial, self.trials, self._end, lessons)
            messages = self.opening(prompts.REACT, note, prompts.ANSWER)
            self._floor = self.units - self._end
            if last:
                yield from self.converse(messages)
            yield from self._early_trial(messages, trial * self.call_factor * self._end + trial - 1)
            lessons.append(self.reflect(messages))
            _, self._info = self._attempt.restart()
            self._attempt.note("restore", text=f"trial {trial + 1} starts from the task's original state")

    def _early_trial(self, messages: list[Message], calls: int) -> Steps:
        """Yield a trial's actions until its units are spent, it submits, or so many calls were made in all."""
        while self.units > self._floor and self._calls < calls:
            results: list[Message] = []
            for action in self.ask_actions("agent", messages):
                if self.units <= self._floor:
                    break
                submit = action["op"] == "submit"
                action = {"op": self._family.verify} if submit else action
                yield action
                results.append({"role": "user", "content": self.result(action, self.units - self._floor)})
                if submit:
                    messages += results
                    return
            messages += results

    def reflect(self, messages: list[Message]) -> str:
        """Return the reflection on a trial: one call without tools, which costs no unit."""
        asked = [*messages, {"role": "user", "content": prompts.REFLECT}]
        lesson = self.ask("reflection", asked, None, str.strip)
        self._attempt.note("reflection", text=lesson)
        return lesson
