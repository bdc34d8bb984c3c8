"""Attacks on the evaluation: attempts that void their own failures, forged records, hostile replies and runs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from edagym.baselines.evaluate import evaluate
from edagym.baselines.llm.parsing import parse_objects, parse_values
from edagym.baselines.policies import Attempt
from edagym.baselines.rollout import make_env
from edagym.errors import PolicyError

TWO = ["L1/case_1", "L1/case_2"]
HERE = "evaluate_policies"


def run(policy: str, **kwargs: Any) -> list[dict[str, Any]]:
    """Evaluate on one or two tasks in this process."""
    return evaluate(policy, ["FET-L1"], **{"tasks": TWO[:1], "progress": False, **kwargs})


# -- attempts that void their own failures -----------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["tool", "bug", "slow", "keys", "circle", "usage", "settings"])
def test_a_verdict_stays_whatever_comes_after_it(how: str, tmp_path: Path) -> None:
    limit = 0.2 if how == "slow" else None
    record = run(f"{HERE}:Sore", options={"how": how}, out=tmp_path / "run", cpu_limit_s=limit)[0]
    assert (record["ended"], record["error_type"], record["infra_retries"]) == ("submit", None, 0)
    assert record["strict_success"] is False
    assert record["verdict"] is not None
    assert record["reward"] == 0.0
    assert (tmp_path / "run" / record["folder"] / "layout.gds").is_file()


def test_a_bookmark_belongs_to_one_attempt() -> None:
    env = make_env("FET-L1")
    env.reset(options={"task": TWO[0]})
    first = Attempt(env)
    place = first.fork().snapshot()
    first.restore(place)
    env.reset(options={"task": TWO[1]})
    second = Attempt(env)
    with pytest.raises(PolicyError, match="another attempt"):
        second.restore(place)
    assert second.task_view.id == TWO[1]


# -- replies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["<think>" * 57_000, "<think></reasoning>" * 20_000, "[/*" * 130_000])
def test_no_reply_takes_long_to_read(text: str) -> None:
    start = time.process_time()
    assert parse_values(text) == []
    # These took minutes; the bound is loose, and of this process alone.
    assert time.process_time() - start < 5.0


def test_reasoning_is_passed_over() -> None:
    text = (
        '<think>{"op": 1}<Reasoning>{"op": 2}</think>{"op": 3}<think>{"op": 4}<thinking>{"op": 5}</THINKING> {"op": 6}'
    )
    assert parse_objects(text) == [{"op": 3}, {"op": 4}, {"op": 6}]
    assert json.dumps(parse_objects("a </think> <think> b")) == "[]"
