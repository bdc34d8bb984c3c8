"""The evaluation: records in a file, resumed; processes; time limits apart from failures; rates and intervals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edagym.baselines.evaluate as module
from edagym.baselines.evaluate import bootstrap, evaluate, main, rates, rates_text, wilson
from edagym.baselines.rollout import POLICIES, rollout
from edagym.errors import TaskError
from edagym.spaces.actions import Command

TWO = ["L1/case_1", "L1/case_2"]


def test_records_are_those_of_the_rollout(tmp_path: Path) -> None:
    out = tmp_path / "records.jsonl"
    records = evaluate("random", ["FET-L1"], (3, 4), tasks=TWO, out=out, progress=False)
    assert [json.loads(line) for line in out.read_text().splitlines()] == records
    assert [(r["task_id"], r["run_seed"]) for r in records] == [(t, s) for t in TWO for s in (3, 4)]
    alone = rollout("FET-L1", "random", tasks=TWO, seed=4, progress=False)
    assert [{k: v for k, v in r.items() if k != "actions"} for r in records[1::2]] == alone


def test_what_the_file_holds_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "records.jsonl"
    first = evaluate("random", ["FET-L1"], (0,), tasks=TWO, out=out, progress=False)
    with out.open("a") as f:
        f.write('{"suite": "FET-L1", "ta')  # what a kill leaves behind
    ran: list[Any] = []
    run_one = module.run_one
    monkeypatch.setattr(module, "run_one", lambda *job: ran.append(job) or run_one(*job))
    both = evaluate("random", ["FET-L1"], (0, 1), tasks=TWO, out=out, progress=False)
    assert both[::2] == first
    assert [job[2:4] for job in ran] == [(t, 1) for t in TWO]
    assert evaluate("random", ["FET-L1"], (0, 1), tasks=TWO, out=out, progress=False) == both
    assert len(ran) == 2


def test_processes_give_the_same_records() -> None:
    here = evaluate("random", ["FET-L1"], (0, 1), tasks=TWO, progress=False)
    assert evaluate("random", ["FET-L1"], (0, 1), tasks=TWO, workers=2, progress=False) == here


class Ponderer:
    """Draws nothing and never ends."""

    name, privileged, deterministic = "ponderer", False, True

    def bind(self, attempt: Any) -> None:
        """Begin."""

    def act(self, observation: dict[str, Any], info: dict[str, Any]) -> Any:
        """Think."""
        if info["charged"]:
            while True:
                sum(range(1000))
        return Command.VERIFY


def test_time_limits_are_no_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "ponderer", Ponderer)
    records = evaluate("ponderer", ["FET-L1"], tasks=TWO, cpu_limit_s=0.05, progress=False)
    assert [(r["ended"], r["paper_success"], r["strict_success"], r["reward"]) for r in records] == [
        ("time_limit", None, None, None)
    ] * 2
    assert all(r["cpu_s"] >= 0.05 and r["charged"] == 1 for r in records)
    (level, total) = rates(records)
    assert (level["unfinished"], level["sr_paper"], level["sr_paper_all"], level["vrr"]) == (2, None, 0.0, None)
    assert "| 2 | 0 |" in rates_text([total])


def record(task: str, paper: bool | None, vrr: float = 0.0, **kwargs: Any) -> dict[str, Any]:
    """Return what `rates` reads of a record."""
    strict = None if paper is None else False
    return {
        "task_id": task, "paper_success": paper, "strict_success": strict, "ended": "submit", "error": "",
        "metrics": {} if paper is None else {"vrr": vrr}, **kwargs,
    }  # fmt: skip


def test_rates_count_tasks_and_leave_out_what_has_no_verdict() -> None:
    rows = rates(
        [
            record("Essential-L1/q1", True, 1.0),
            record("Essential-L1/q1", True, 1.0),
            record("Essential-L1/q2", False, 0.5),
            record("Essential-L2/q1", None, error="engine died", ended="tool_error"),
            record("Reasoning-L1/q1", True, 1.0),
        ]
    )
    assert [r["level"] for r in rows] == [
        "Essential-L1",
        "Essential-L2",
        "Essential",
        "Reasoning-L1",
        "Reasoning",
        "all",
    ]
    level, lost, suite = rows[:3]
    assert (level["tasks"], level["attempts"], level["sr_paper"]["mean"], level["vrr"]["mean"]) == (2, 3, 0.5, 0.75)
    assert (lost["tool_errors"], lost["unfinished"], lost["sr_paper"]) == (1, 0, None)
    assert (suite["sr_paper"]["mean"], suite["sr_paper_all"]) == (0.5, pytest.approx(1 / 3))


def test_intervals() -> None:
    # Wilson (1927) for 20 of 20 and for 10 of 20, computed by hand.
    assert wilson(1.0, 20)["low"] == pytest.approx(0.8389, abs=1e-4)
    half = wilson(0.5, 20)
    assert (half["low"], half["high"]) == (pytest.approx(0.2993, abs=1e-4), pytest.approx(0.7007, abs=1e-4))
    values = np.array([0.0, 1.0, 1.0, 1.0])
    found = bootstrap(values)
    assert found == bootstrap(values)
    assert found["low"] < 0.75 < found["high"] <= 1.0


def test_endless_suites_and_unknown_names() -> None:
    for kwargs in ({"suites": ["FET-Train"]}, {"suites": ["FET-L1"], "tasks": ["L9/case_1"]}):
        with pytest.raises(TaskError):
            evaluate("random", progress=False, **kwargs)
    with pytest.raises(TaskError, match="unknown policy"):
        evaluate("oracle", ["FET-L1"], progress=False)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--policy", "random", "--suite", "FET-L1", "--task", TWO[0], "--seeds", "1", "--out", str(tmp_path / "r")]
    assert main(args) == 0
    assert "| L1 | 1 | 1 |" in capsys.readouterr().out
    assert main([*args, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["level"] == "L1"
    assert main([*args, "--suite", "FET-L7"]) == 2
