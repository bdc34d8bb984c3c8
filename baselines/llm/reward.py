"""Tasks as reward functions of texts, for trainers of language models.

`TextReward` scores one reply per task, as the reward callables of TRL's GRPOTrainer do; `ChatEpisode` plays a task in
turns, for trainers that want a rollout. Both run the text's actions in the environment itself, so that a reward is the
environment's own verdict. A tool failure has no reward (None): it is no evidence about the model.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edagym.baselines.llm.parsing import parse_actions
from edagym.baselines.rollout import make_env
from edagym.errors import PolicyError, TaskError
from edagym.spaces.actions import Command
from edagym.verifiers.verdict import Criterion

Message = dict[str, Any]
ROUNDS = 3
"""Verifier rounds of a FET episode in turns (2D-FET-Bench V2, Section 3)."""

_WHOLE = "Answer with all actions at once, as a JSON list; the design is judged after the last of them."


@dataclass(frozen=True, slots=True)
class TextScore:
    """What a text was worth.

    Attributes:
        reward: 1.0 for a success, else `partial` times the share of checks passed; None after a tool failure.
        paper_success: Verdict by the paper's contract; None after a tool failure.
        strict_success: Verdict with our guards; likewise.
        error: What went wrong with the text or the tools, or ``""``.
        error_type: ``"PolicyError"`` (nothing could be read), ``"EditError"`` (actions were refused), the class of a
            tool failure, or ``""``.
        refused: Actions that were refused.
        failed: Ids of failed checks.
    """

    reward: float | None
    paper_success: bool | None
    strict_success: bool | None
    error: str = ""
    error_type: str = ""
    refused: int = 0
    failed: tuple[str, ...] = ()


class TextReward:
    """A reward function over replies: call it with completions and their tasks' ids.

    ``GRPOTrainer(reward_funcs=TextReward("FET-L1"), train_dataset=Dataset.from_list(reward.rows()), ...)`` works as it
    stands: TRL hands the dataset's column ``task_id`` on.

    Args:
        suite: Suite name, id, or folder of tasks (`edagym.baselines.rollout.make_env`); none that makes its own tasks.
        criterion: Which success flag counts.
        partial: Reward of a failing design that passes all checks but those that fail, in [0, 1): times the share.
        **kwargs: Further keyword arguments of the environment.

    Attributes:
        scores: `TextScore` of every completion of the last call, in order.

    Raises:
        TaskError: If the suite is unknown or endless.
        ValueError: If `partial` is out of range.
    """

    def __init__(
        self, suite: str = "FET-All", *, criterion: Criterion = "strict", partial: float = 0.0, **kwargs: Any
    ) -> None:
        if not 0.0 <= partial < 1.0:
            raise ValueError(f"partial must be in [0, 1), got {partial!r}")
        self.__name__ = f"edagym_{suite.lower().replace('-', '_')}"  # trainers log rewards under their functions' names
        self.partial = partial
        self.env = make_env(suite, criterion=criterion, **kwargs)
        self.suite = suite
        self.scores: list[TextScore] = []
        if not self.env.task_ids:
            raise TaskError("an endless suite has no tasks to come back to", field="suite", value=suite)

    def rows(self, tasks: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Return a dataset's rows: ``prompt``, a list of one user message, and ``task_id``.

        Args:
            tasks: Ids; None: all of the suite.
        """
        rows = []
        for task_id in self.env.task_ids if tasks is None else tasks:
            self.env.reset(options={"task": task_id})
            text = self.env.prompt
            if not self.env.takes_lists:
                text = f"{text}\n{_WHOLE}\n"
            rows.append({"prompt": [{"role": "user", "content": text}], "task_id": task_id})
        return rows

    def score(self, text: str, task_id: str) -> TextScore:
        """Run a reply's actions on a task and judge the design.

        Raises:
            TaskError: If the task is unknown.
        """
        env = self.env
        env.reset(options={"task": task_id})
        error, error_type, refused = "", "", 0
        try:
            actions = parse_actions(text, env.action_space)
        except PolicyError as e:
            # The untouched design is judged all the same: what fails there is the reward of having said nothing.
            actions, error, error_type = [], str(e), "PolicyError"
        for action in _steps(env, actions):
            info = env.step_any(action)[4]
            if info["edit_error"]:
                refused += len(info["edit_error"].splitlines())
                error, error_type = error or info["edit_error"], error_type or "EditError"
            if env.ended:
                break
        if not env.ended:
            env.step_edit(_last_word(env))
        if env.error_type:
            return TextScore(None, None, None, env.observe()[1]["error"], env.error_type, refused)
        verdict = env.verdict
        assert verdict is not None
        success = verdict.success(env.criterion)
        reward = 1.0 if success else self.partial * verdict.share_passed(env.criterion)
        if error_type == "PolicyError":
            reward = 0.0
        failed = tuple(c.id for c in verdict.failed(env.criterion))
        return TextScore(reward, verdict.paper_success, verdict.strict_success, error, error_type, refused, failed)

    def __call__(
        self, completions: Sequence[Any] = (), *, task_id: Sequence[str] = (), **kwargs: Any
    ) -> list[float | None]:
        """Return the reward of each completion, in order; None where a tool failed.

        Args:
            completions: Texts, or lists of messages of which the last one's ``content`` counts.
            task_id: Id of each completion's task.
            **kwargs: Ignored: prompts, token ids, and other columns that trainers hand over.

        Raises:
            TaskError: If there are not as many tasks as completions, or a task is unknown.
        """
        if len(completions) != len(task_id):
            raise TaskError(
                "one task per completion", field="task_id", value=len(task_id), allowed=f"{len(completions)} ids"
            )
        self.scores = [self.score(_text(c), t) for c, t in zip(completions, task_id)]
        return [s.reward for s in self.scores]


class ChatEpisode:
    """A task in turns: the model writes, the environment answers, until the episode is over.

    FET: a reply is a list of edits and is verified; the answer says which edits were refused and which checks fail, for
    `ROUNDS` rounds. DRC and PPA: a reply is one tool call or several; the answer is what they said.

    Args:
        suite: As for `TextReward`.
        task_id: The task.
        **kwargs: Further keyword arguments of the environment.
    """

    def __init__(self, suite: str, task_id: str, **kwargs: Any) -> None:
        rounds = {"rounds": ROUNDS} if _is_fet(suite) else {}
        self.env = make_env(suite, **{**rounds, **kwargs})
        self.env.reset(options={"task": task_id})
        self.messages: list[Message] = [{"role": "user", "content": self.env.prompt}]
        self.unreadable = 0

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return bool(self.env.ended)

    @property
    def reward(self) -> float | None:
        """1.0 or 0.0 once the episode is over; None before, and after a tool failure."""
        if not self.env.ended or self.env.error_type or self.env.verdict is None:
            return None
        return float(self.env.verdict.success(self.env.criterion))

    def reply(self, text: str) -> Message | None:
        """Take the model's turn.

        Returns:
            The environment's answer, a user message, or None if the episode is over.

        Raises:
            PolicyError: If the episode is over already.
        """
        env = self.env
        if env.ended:
            raise PolicyError("the episode is over", field="ended", value=env.ended)
        self.messages.append({"role": "assistant", "content": text})
        said: list[str] = []
        try:
            actions = parse_actions(text, env.action_space)
        except PolicyError as e:
            self.unreadable += 1
            actions = []
            said.append(str(e))
            env.refuse(str(e))
        for action in _steps(env, actions):
            info = env.step_any(action)[4]
            said += [t for t in (info["edit_error"], info.get("text", "")) if t]
            if env.ended:
                break
        if env.takes_lists and actions and not env.ended:
            info = env.step_edit(Command.VERIFY)[4]
            said.append(info["verdict"]["messages"] or "All checks pass.")
        if env.ended:
            return None
        said.append(f"Budget left: {env.budget_left} of {env.budget}.")
        answer = {"role": "user", "content": "\n".join(said)}
        self.messages.append(answer)
        return answer

    async def rollout(self, ask: Callable[[list[Message]], Awaitable[str]]) -> tuple[list[Message], float | None]:
        """Play the episode with a model to its end.

        Args:
            ask: Returns the model's reply to messages.

        Returns:
            All messages, and the reward.
        """
        while not self.done:
            self.reply(await ask(list(self.messages)))
        return self.messages, self.reward


def _is_fet(suite: str) -> bool:
    return suite.startswith("FET-")


def _steps(env: Any, actions: list[dict[str, Any]]) -> list[Any]:
    """Return actions as the environment takes them: one list of edits where it takes lists; commands follow anyway."""
    if not env.takes_lists:
        return actions
    # Equality, not membership of a set: a model may have written anything for an op.
    edits = [a for a in actions if a["op"] not in [c.value for c in Command]]
    return [edits] if edits else []


def _last_word(env: Any) -> Command:
    """Return what ends an episode: a PPA design counts by its last run, which submit doesn't start."""
    from edagym.envs.ppa.env import PPAEnv

    return Command.VERIFY if isinstance(env, PPAEnv) and env.budget_left else Command.SUBMIT


def _text(completion: Any) -> str:
    """Return the text of a completion: itself, or its last message's content."""
    if isinstance(completion, str):
        return completion
    message: Mapping[str, Any] = completion[-1]
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or () if isinstance(part, Mapping))
