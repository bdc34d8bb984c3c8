"""Each FET scaffold completes tasks with the text-only solver, a process of its own behind the real client."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edagym.baselines.llm.client import ModelSpec
from edagym.baselines.policies import Attempt
from edagym.baselines.registry import make_policy
from edagym.baselines.rollout import make_env, run_attempt

SERVER = Path(__file__).resolve().parents[1] / "baselines" / "llm" / "text_solver" / "server.py"
NAMES = ("fet-plan-execute", "fet-react-3", "fet-react-4", "fet-reflexion-4", "fet-expel-4")
# One transistor with vias and pad covers; a circuit on two flakes; edge contacts on three.
TASKS = ("L1/case_1", "L3/case_24", "L4/case_30")


@pytest.fixture(scope="module")
def model() -> Iterator[ModelSpec]:
    pytest.importorskip("openai")
    with subprocess.Popen([sys.executable, str(SERVER), "--port", "0"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield ModelSpec("text-solver", json.loads(server.stdout.readline())["base_url"], timeout_s=120.0)
        finally:
            server.kill()


def run(policy: Any, task: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    env = make_env("FET-All", **policy.env_options)
    env.reset(options={"task": task})
    attempt = Attempt(env)
    return run_attempt(env, policy, suite="FET-All", episode=0, seed=0, attempt=attempt), attempt.notes


@pytest.mark.parametrize("name", NAMES)
def test_each_scaffold_completes_tasks(name: str, model: ModelSpec) -> None:
    policy = make_policy(name, model=model.to_dict())
    for i, task in enumerate(TASKS):
        record, notes = run(policy, task)
        assert record["is_success"], (task, record["failed"], record["error"])
        assert record["unreadable"] == record["refused"] == 0
        assert record["tokens"]["prompt"] > 500
        if name in NAMES[:2]:
            assert record["model_calls"] == 1
            continue
        layers = [n["layer"] for n in notes if n["kind"] == "plan"]
        assert len(layers) == len(set(layers)) > 1
        said = [n["messages"][1]["content"] for n in notes if n["kind"] == "model" and n["role"] == "planner"]
        assert all("passed at once" in text for text in said[1:])  # the reflection on the layer before
        if name == "fet-expel-4":
            assert policy.remember()["solved"]
            assert [n["record"]["task"] for n in notes if n["kind"] == "experience"] == list(TASKS[:i])


@pytest.mark.parametrize("scaffold", ["C1", "C2"])
def test_the_other_hints_are_read_too(scaffold: str, model: ModelSpec) -> None:
    policy = make_policy("fet-react-4", model=model.to_dict(), scaffold=scaffold)
    record, notes = run(policy, TASKS[0])
    assert record["is_success"]
    text = next(n for n in notes if n["kind"] == "model")["messages"][1]["content"]
    assert ("direction" if scaffold == "C1" else "two separate contact rectangles") in text
