"""`rescore`: agrees with what was recorded, and finds edited records, edited files, missing files, other tasks."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ppa_cases import FormulaFlow, make_task, same_function

import edagym.baselines.rescore as module
from edagym.baselines.evaluate import evaluate
from edagym.baselines.records import checksum, read_records
from edagym.baselines.rescore import rescore
from edagym.baselines.rollout import rollout
from edagym.cli import main
from edagym.envs.ppa.env import PPAEnv
from edagym.errors import ToolError
from edagym.spaces.actions import Command
from edagym.spaces.ppa_edits import SetPeriod
from edagym.task_assets.fet.suite import load_task
from edagym.verifiers.fet import FETLayout
from edagym.verifiers.verdict import Verdict

SUITE = ["FET-L1"]


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the reference on FET-L1, and a random one that one task has failed."""
    out = tmp_path_factory.mktemp("rescore") / "run"
    evaluate("reference", SUITE, out=out, allow_privileged=True, progress=False)
    return out


@pytest.fixture
def run(evaluated: Path, tmp_path: Path) -> Path:
    """A copy of the run, to spoil."""
    return Path(shutil.copytree(evaluated, tmp_path / "run"))


def edit(run: Path, change: Callable[[dict[str, Any]], None], *, seal: bool = False) -> None:
    """Change the first record; with `seal`, hide the change from the checksum."""
    lines = (run / "records.jsonl").read_text().splitlines()
    record = json.loads(lines[0])
    change(record)
    if seal:
        record["checksum"] = checksum(record)
    (run / "records.jsonl").write_text("\n".join([json.dumps(record), *lines[1:]]) + "\n")


def found(run: Path, **kwargs: Any) -> list[tuple[str, str]]:
    return [(f.kind, f.message) for f in rescore(run, progress=False, **kwargs).findings]


def code(run: Path, *argv: str) -> int:
    return main(["rescore", str(run), *argv])


def test_it_agrees(evaluated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code(evaluated, "--replay", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["attempts"], data["verdicts"], data["agreed"], data["absent"], data["findings"]) == (8, 8, 8, 0, [])


def test_it_agrees_with_failures_and_rollouts(tmp_path: Path) -> None:
    evaluate("random", SUITE, attempts=2, out=tmp_path / "run", progress=False)
    assert rescore(tmp_path / "run", replay=True, progress=False).agreed == 16
    rollout("FET-L1", "random", out=tmp_path / "rollout", pictures=False, progress=False)
    rollout("FET-Train", "random", episodes=2, out=tmp_path / "rollout", progress=False)
    done = rescore(tmp_path / "rollout", replay=True, progress=False)
    assert (done.agreed, done.findings) == (10, [])


def test_edited_records(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def charged(r: dict[str, Any]) -> None:
        r["charged"] += 1

    edit(run, charged)
    assert ("record", "the record was edited: its checksum differs") in found(run)
    assert code(run) == 1
    assert "7 of 8 verdicts agree" in capsys.readouterr().out
    edit(run, lambda r: None, seal=True)
    assert [kind for kind, _ in found(run)] == ["record"], "the trace has another number"


def test_an_edited_verdict_is_found_by_computing_it(run: Path) -> None:
    def fail(r: dict[str, Any]) -> None:
        r["strict_success"] = r["is_success"] = r["verdict"]["strict_success"] = False

    edit(run, fail, seal=True)
    messages = found(run)
    assert ("verdict", "strict_success: False in the record, True now") in messages
    edit(run, lambda r: r.update(strict_success=True), seal=True)
    assert any(kind == "record" and m.startswith("strict_success is True") for kind, m in found(run))


def test_an_edited_check_or_metric_is_found(run: Path) -> None:
    def change(r: dict[str, Any]) -> None:
        r["verdict"]["checks"][0]["measured"] = 7.5
        r["verdict"]["metrics"]["transistors"] += 1
        r["metrics"] = r["verdict"]["metrics"]

    edit(run, change, seal=True)
    messages = [m for kind, m in found(run) if kind == "verdict"]
    assert len(messages) == 2
    assert "measured" in messages[0]
    assert messages[1].startswith("metric transistors")


def first(run: Path) -> tuple[dict[str, Any], Path]:
    record = read_records(run)[0]
    return record, run / record["folder"]


def test_an_edited_layout(run: Path) -> None:
    record, folder = first(run)
    task = load_task(record["task_id"])
    layout = FETLayout.read_gds(folder / "layout.gds", task.layers)
    layout.replace("gate", ())
    layout.write_gds(folder / "layout.gds")
    kinds = {kind for kind, _ in found(run)}
    assert kinds == {"file", "verdict"}
    # Even where record and hash are made to fit, the trace does not.
    digest = module.hashlib.sha256((folder / "layout.gds").read_bytes()).hexdigest()
    edit(run, lambda r: r["artefacts"].update({"layout.gds": digest}), seal=True)
    assert {kind for kind, _ in found(run, replay=True)} == {"verdict", "replay"}


def test_missing_and_added_files(run: Path) -> None:
    _, folder = first(run)
    (folder / "note.txt").write_text("mine")
    assert found(run) == [("file", "note.txt is not of this attempt")]
    (folder / "note.txt").unlink()
    (folder / "layout.gds").unlink()
    assert ("file", "layout.gds is missing") in found(run)
    shutil.rmtree(folder)
    assert len([m for _, m in found(run) if "missing" in m]) == 2
    assert code(run) == 1


def test_lines_that_are_none_or_too_many(run: Path) -> None:
    lines = (run / "records.jsonl").read_text().splitlines(keepends=True)
    (run / "records.jsonl").write_text("".join([*lines, lines[0]]))
    assert found(run) == [("record", "a second record of an attempt with a verdict")]
    (run / "records.jsonl").write_text("".join([lines[0][:50] + "\n", *lines[1:]]))
    done = rescore(run, progress=False)
    assert (done.absent, done.agreed, [f.kind for f in done.findings]) == (1, 7, ["record"])
    (run / "records.jsonl").write_text("".join(lines[2:]))
    done = rescore(run, progress=False)
    assert (done.absent, done.agreed, done.findings) == (2, 6, []), "an unfinished run is no fault"
    edit(run, lambda r: r.update(attempt=5), seal=True)
    assert "not an attempt of this run" in [m for _, m in found(run)]
    (run / "records.jsonl").write_text(json.dumps({**json.loads(lines[0]), "verdict": 3}) + "\n")
    assert any("malformed" in m for _, m in found(run))


def test_other_tasks(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(run, lambda r: r.update(task_hash="0" * 64), seal=True)
    ((kind, message),) = found(run)
    assert (kind, "another than the one that was run" in message) == ("task", True)
    assert code(run) == 2
    settings = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**settings, "suites": ["moved/tasks"]}))
    assert code(run) == 2
    assert "moved/tasks" in capsys.readouterr().out
    assert code(run / "nowhere") == 2
    assert "cannot read records" in capsys.readouterr().err


def test_a_tool_that_fails_now_is_no_finding_against_the_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> Verdict:
        raise ToolError("engine died")

    monkeypatch.setattr(module, "_fet_verdict", broken)
    assert {kind for kind, _ in found(run)} == {"tool"}
    assert code(run) == 3


# -- DRC and PPA -------------------------------------------------------------------------------------------------------


def test_drc(tmp_path: Path) -> None:
    out = tmp_path / "run"
    tasks = ["Essential-L1/q1", "Essential-L1/q2"]
    suite = ["DRC-Essential-L1"]
    evaluate("reference", suite, tasks=tasks, out=out, allow_privileged=True, progress=False)
    assert rescore(out, replay=True, progress=False).agreed == 2
    record, folder = first(out)
    data = (folder / "layout.gds").read_bytes()
    initial = module.make_env("DRC-Essential-L1").find_task(record["task_id"]).gds
    (folder / "layout.gds").write_bytes(initial)
    kinds = {kind for kind, _ in found(out)}
    assert kinds == {"file", "verdict"}, "the violations are back"
    (folder / "layout.gds").write_bytes(data[:-20])
    assert {kind for kind, _ in found(out)} == {"file"}


class Script:
    """Plays a list of actions."""

    name, privileged, deterministic = "script", False, True

    def __init__(self, *actions: Any) -> None:
        self.actions = actions

    def bind(self, attempt: Any) -> None:
        """Begin."""
        self.left = list(self.actions)

    def act(self, observation: dict[str, Any], info: dict[str, Any]) -> Any:
        """Return the next action."""
        return self.left.pop(0)


def test_ppa_designs_go_through_the_flow_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, folder = make_task(), tmp_path / "PPAEnv"  # the name under which an environment's records are kept
    task.save(folder / "q1")
    flow = FormulaFlow()

    def env(suite: str, **kwargs: Any) -> PPAEnv:
        return PPAEnv(suite=suite, backend=flow, function_check=same_function, **kwargs)

    monkeypatch.setattr(module, "make_env", env)
    low, high = task.bounds.period
    first_period, second = SetPeriod(round(low + 0.4 * (high - low))), SetPeriod(round(low + 0.6 * (high - low)))
    scripts = {
        "run": (first_period, Command.VERIFY, Command.SUBMIT),
        "changed since": (first_period, Command.VERIFY, second, Command.SUBMIT),
        "back again": (first_period, Command.VERIFY, second, Command.VERIFY, first_period, Command.SUBMIT),
        "never": (first_period, Command.SUBMIT),
    }
    for name, actions in scripts.items():
        out = tmp_path / name
        (record,) = rollout(env(str(folder)), Script(*actions), out=out, pictures=False, progress=False)
        assert record["metrics"]["completed"] == (name in ("run", "back again")), name
        done = rescore(out, tasks=[folder], progress=False)
        assert (done.agreed, done.findings) == (1, []), name
    (config,) = (first(out)[1] / "design" / "config").glob("*.sdc")
    config.write_text(config.read_text().replace(str(first_period.period), "999"))
    assert {kind for kind, _ in found(out, tasks=[folder])} >= {"file", "replay"}


def test_verdicts_may_differ_by_rounding_only() -> None:
    task = load_task("L1/case_1")
    verdict = module._fet_verdict(task, FETLayout.from_task(task).to_gds_bytes())
    assert list(module.differences(verdict, verdict)) == []
    other = dataclasses.replace(verdict, metrics={k: v + 1e-13 for k, v in verdict.metrics.items()})
    assert list(module.differences(verdict, other)) == []
    fewer = dataclasses.replace(verdict, checks=verdict.checks[1:])
    assert list(module.differences(verdict, fewer)) == [f"check {verdict.checks[0].id}: only in the record"]


class Spender(Script):
    """Spends the budget on a fork, and runs its own change when nothing is left."""

    def act(self, observation: dict[str, Any], info: dict[str, Any]) -> Any:
        """Draw, spend, run."""
        if len(self.left) == 1:
            twin = self.attempt.fork()
            while self.attempt.budget_left:
                twin.apply({"op": "report"})
        return super().act(observation, info)

    def bind(self, attempt: Any) -> None:
        """Begin."""
        super().bind(attempt)
        self.attempt = attempt


def test_a_ppa_run_that_came_too_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, folder = make_task(), tmp_path / "PPAEnv"
    task.save(folder / "q1")
    kwargs: dict[str, Any] = {"backend": FormulaFlow(), "function_check": same_function}
    monkeypatch.setattr(module, "make_env", lambda suite, **own: PPAEnv(suite=suite, **kwargs, **own))
    low, high = task.bounds.period
    policy = Spender(SetPeriod(round(low + 0.4 * (high - low))), Command.VERIFY)
    env = PPAEnv(suite=str(folder), **kwargs)
    (record,) = rollout(env, policy, out=tmp_path / "run", pictures=False, progress=False)
    assert (record["ended"], record["metrics"]["completed"]) == ("budget", 0.0)
    done = rescore(tmp_path / "run", tasks=[folder], progress=False)
    assert (done.agreed, done.findings) == (1, [])
