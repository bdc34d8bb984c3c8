"""Policies with which the tests of the evaluation put it to the proof; workers import this module by name."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from edagym.baselines.policies import RandomPolicy
from edagym.errors import PolicyError, ToolError
from edagym.spaces.actions import Command


class Submitting:
    """Submits at once."""

    name, privileged, deterministic = "submitting", False, True

    def bind(self, attempt: Any) -> None:
        """Begin."""
        self.attempt = attempt

    def act(self, observation: dict[str, Any], info: dict[str, Any]) -> Any:
        """Submit."""
        return Command.SUBMIT


class Ponderer(Submitting):
    """Draws nothing and never ends."""

    name = "ponderer"

    def act(self, observation: dict[str, Any], info: dict[str, Any]) -> Any:
        """Verify once, then think."""
        if info["charged"]:
            while True:
                sum(range(1000))
        return Command.VERIFY


class Sleeper(Submitting):
    """Hangs on one task."""

    name = "sleeper"

    def __init__(self, task: str) -> None:
        self.task = task

    def act(self, observation: dict[str, Any], info: dict[str, Any]) -> Any:
        """Sleep, or submit."""
        if info["task_id"] == self.task:
            time.sleep(600)
        return Command.SUBMIT


class Faulty(Submitting):
    """Does what `kind` says on one task, as often as the files in a folder do not count up to `times`."""

    name = "faulty"

    def __init__(self, task: str, kind: str, folder: str, times: int = 1_000) -> None:
        self.task, self.kind, self.folder, self.times = task, kind, folder, times

    def act(self, observation: dict[str, Any], info: dict[str, Any]) -> Any:
        """Fail, or submit."""
        folder = Path(self.folder)
        if info["task_id"] == self.task and len(list(folder.iterdir())) < self.times:
            (folder / str(time.time_ns())).touch()
            self.fail()
        return Command.SUBMIT

    def fail(self) -> None:
        """Fail in the way asked for."""
        if self.kind == "tool":
            raise ToolError("engine died")
        if self.kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind == "bug":
            raise KeyError("no such thing")
        raise PolicyError("no JSON in the reply")


class Learner(RandomPolicy):
    """Keeps the number of each attempt of its sequence, and notes what it recalls."""

    name, memory = "learner", True

    def __init__(self) -> None:
        super().__init__()
        self.recalled: list[Any] = []

    def bind(self, attempt: Any) -> None:
        """Begin."""
        super().bind(attempt)
        self.task = attempt.task_view.id
        attempt.note("experience", text=repr(self.recalled))

    def recall(self, kept: list[Any]) -> None:
        """Take over what earlier attempts kept."""
        self.recalled = kept

    def remember(self) -> Any:
        """Keep the task and what was known before."""
        return {"task": self.task, "before": [kept["task"] for kept in self.recalled]}


class Dawdler(RandomPolicy):
    """Draws at random, and takes its time."""

    name = "dawdler"

    def act(self, observation: dict[str, Any], info: dict[str, Any]) -> Any:
        """Wait, then draw."""
        time.sleep(0.003)
        return super().act(observation, info)


class Asker(Submitting):
    """Asks a language model for one action at a time, and notes what came."""

    name = "asker"

    def __init__(self, model: dict[str, Any]) -> None:
        from edagym.baselines.llm.client import ChatModel, ModelSpec

        self.model = ChatModel(ModelSpec.of(model))

    def bind(self, attempt: Any) -> None:
        """Begin."""
        super().bind(attempt)
        self.model.begin_attempt()

    def act(self, observation: dict[str, Any], info: dict[str, Any]) -> Any:
        """Ask."""
        messages = [{"role": "user", "content": f"{info['task_id']} {info['edit_error']}"}]
        reply = self.model.ask(messages)
        action, error = None, None
        try:
            action = json.loads(reply.text)
        except ValueError as e:
            error = str(e)
        self.attempt.note(
            "model", role="agent", messages=messages, reply=reply.text, parsed=error is None, error=error,
            usage=reply.usage, seconds=reply.seconds, retries=reply.retries,
        )  # fmt: skip
        if error is not None:
            raise PolicyError("the reply is no JSON")
        return action


class Mumbler(Submitting):
    """Notes what no file can hold as it is."""

    name = "mumbler"

    def __init__(self, settings_too: bool = False) -> None:
        self.settings_too = settings_too

    def bind(self, attempt: Any) -> None:
        """Begin."""
        super().bind(attempt)
        attempt.note("plan", text="half \ud800", value={1})

    def settings(self) -> dict[str, Any]:
        """Return something that is no JSON, or nothing."""
        return {"set": {1}} if self.settings_too else {}


class Sore(Submitting):
    """Submits through its attempt, sees that it has failed, and tries to have the attempt not count."""

    name = "sore"

    def __init__(self, how: str) -> None:
        self.how = how

    def settings(self) -> dict[str, Any]:
        """Say nothing, or fail."""
        if self.how == "settings":
            raise RuntimeError("no settings")
        return {}

    def act(self, observation: dict[str, Any], info: dict[str, Any]) -> Any:
        """Submit, then fail."""
        self.attempt.apply(Command.SUBMIT)
        circle: list[Any] = []
        circle.append(circle)
        if self.how == "keys":
            self.attempt.note("plan", data={(1, 2): 3})
        if self.how == "circle":
            self.attempt.note("plan", data=circle)
        if self.how == "usage":
            self.attempt.note("model", usage="none", retries="few")
        if self.how == "tool":
            raise ToolError("the model server is away")
        if self.how == "bug":
            raise KeyError("no such thing")
        while self.how == "slow":
            sum(range(1000))
        return Command.SUBMIT
