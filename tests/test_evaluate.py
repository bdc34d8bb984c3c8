"""The evaluation: records, run folders, resuming, processes that die, errors apart from failures, memory, tables."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import edagym.baselines.evaluate as module
from edagym.baselines.evaluate import evaluate
from edagym.baselines.executors import ProcessExecutor
from edagym.baselines.jobs import Job, run_job
from edagym.baselines.records import RunFolder, attempt_folder, checksum, read_records, read_run, task_hash, untimed
from edagym.baselines.registry import make_policy, parse_options, refuse_credentials
from edagym.baselines.rollout import make_env, rollout
from edagym.baselines.tables import level_rows, level_text
from edagym.cli import main
from edagym.errors import TaskError, ToolError

TWO = ["L1/case_1", "L1/case_2"]
HERE = "evaluate_policies"


def run(policy: str = "random", **kwargs: Any) -> list[dict[str, Any]]:
    """Evaluate on two tasks in this process."""
    return evaluate(policy, ["FET-L1"], **{"tasks": TWO, "progress": False, **kwargs})


def plain(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records without times."""
    return [untimed(r) for r in records]


# -- records and folders -----------------------------------------------------------------------------------------------


def test_records_are_those_of_the_rollout(tmp_path: Path) -> None:
    records = run(attempts=2, seed=3, out=tmp_path / "run")
    assert read_records(tmp_path / "run") == records
    assert [(r["task_id"], r["attempt"]) for r in records] == [(t, n) for t in TWO for n in (0, 1)]
    alone = rollout("FET-L1", "random", tasks=TWO, episodes=2, seed=3, progress=False)
    added = ("folder", "artefacts", "checksum")
    assert [{k: v for k, v in r.items() if k not in added} for r in plain(records)] == plain(alone)


def test_the_run_folder(tmp_path: Path) -> None:
    records = run(out=tmp_path / "run", options={"n_edits": 4})
    settings = read_run(tmp_path / "run")
    assert (settings["policy"], settings["options"], settings["suites"]) == ("random", {"n_edits": 4}, ["FET-L1"])
    assert settings["versions"] == records[0]["versions"]
    for r in records:
        assert r["folder"] == attempt_folder("FET-L1", r["task_id"], 0)
        assert sorted(p.name for p in (tmp_path / "run" / r["folder"]).iterdir()) == sorted(r["artefacts"])
        assert sorted(r["artefacts"]) == ["layout.gds", "trace.json"]
        assert r["checksum"] == checksum(r)
        assert r["task_hash"] == task_hash(make_env("FET-L1").find_task(r["task_id"]))
        assert r["first_failed"] == r["failed"][0] == next(c["id"] for c in r["verdict"]["checks"] if not c["passed"])
    assert not (tmp_path / "run" / ".scratch").exists()


def test_what_a_kill_leaves_is_put_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    whole = run(attempts=2, out=tmp_path / "whole")
    first = run(attempts=2, out=out)
    path = out / "records.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1] + lines[2][:-40])  # the third line was being written, its folder was there
    stray = out / attempt_folder("FET-L1", TWO[1], 0)
    (stray / "layout.gds").write_bytes(b"half")
    (stray / "stray.txt").write_text("left over")
    (out / ".scratch" / "x").mkdir(parents=True)
    ran: list[Job] = []
    submit = module.make_executor("process", 0)
    monkeypatch.setattr(submit, "submit", lambda job, go=submit.submit: ran.append(job) or go(job))
    records = run(attempts=2, out=out, resume=True, executor=submit)
    assert plain(records) == plain(first) == plain(whole)
    assert [(j.task_id, j.attempt) for j in ran] == [(TWO[1], 0), (TWO[1], 1)]
    assert len(path.read_text().splitlines()) == 4
    assert sorted(p.name for p in stray.iterdir()) == ["layout.gds", "trace.json"]


def test_resuming_needs_the_same_settings(tmp_path: Path) -> None:
    out = tmp_path / "run"
    model = {"model": "m", "temperature": 0.5}
    settings = {"policy": "random", "options": {"model": model}, "suites": ["FET-L1"], "tasks": None, "attempts": 1}
    settings |= {"seed": 0, "criterion": "strict", "env_options": {}, "cpu_limit_s": None, "versions": {}}
    with RunFolder(out) as folder:
        folder.write_run(settings)
    found = read_run(out)
    elsewhere = {**model, "base_url": "http://127.0.0.1:1/v1", "prices": {"prompt": 1.0, "completion": 2.0}}
    module._same_settings(found, {**settings, "options": {"model": elsewhere}})
    changes: list[tuple[dict[str, Any], str]] = [
        ({"attempts": 2}, "attempts: 1 in the run, 2 now"),
        ({"seed": 7}, "seed: 0 in the run, 7 now"),
        ({"options": {"model": {**model, "temperature": 1.0}}}, "options.model.temperature: 0.5 in the run, 1.0 now"),
        ({"criterion": "paper"}, "criterion: 'strict' in the run, 'paper' now"),
    ]
    for change, message in changes:
        with pytest.raises(TaskError, match=message):
            module._same_settings(found, {**settings, **change})


def test_runs_are_not_overwritten(tmp_path: Path) -> None:
    run(out=tmp_path / "run")
    with pytest.raises(TaskError, match="--resume"):
        run(out=tmp_path / "run")
    with pytest.raises(TaskError, match="attempts: 1 in the run, 2 now"):
        run(out=tmp_path / "run", resume=True, attempts=2)
    rollout("FET-L1", "random", tasks=TWO, out=tmp_path / "other", pictures=False, progress=False)
    with pytest.raises(TaskError, match="something else"):
        run(out=tmp_path / "other", resume=True)
    with RunFolder(tmp_path / "run"), pytest.raises(TaskError, match="another process"):
        run(out=tmp_path / "run", resume=True)


def test_a_changed_task_is_not_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(out=tmp_path / "run")
    monkeypatch.setattr(module, "task_hash", lambda task: "another")
    with pytest.raises(TaskError, match="changed since"):
        run(out=tmp_path / "run", resume=True)


def test_records_of_schema_1_are_read(tmp_path: Path) -> None:
    old = {
        "schema_version": 1, "suite": "FET-L1", "task_id": TWO[0], "episode": 2, "policy": "random", "run_seed": 0,
        "error": "", "failed": ["drc"], "paper_success": False, "strict_success": False, "ended": "submit",
        "metrics": {}, "artefacts": {"trace": "random/L1/case_1/002/trace.json"},
    }  # fmt: skip
    (tmp_path / "records.jsonl").write_text(json.dumps(old) + '\n{"schema_version": 1, "su')
    (record,) = read_records(tmp_path)
    assert (record["attempt"], record["folder"], record["first_failed"]) == (2, "random/L1/case_1/002", "drc")
    assert (record["error_type"], record["verdict"], record["artefacts"]) == (None, None, {})
    assert level_rows([record])[-1]["paper"]["pass_1"]["estimate"] == 0.0
    (tmp_path / "records.jsonl").write_text('{"schema_version": 1}\n')
    with pytest.raises(TaskError, match="line 1"):
        read_records(tmp_path)


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def test_time_limits_are_no_failures() -> None:
    records = run(f"{HERE}:Ponderer", cpu_limit_s=0.05)
    assert [(r["ended"], r["paper_success"], r["strict_success"], r["reward"], r["error_type"]) for r in records] == [
        ("time_limit", None, None, None, None)
    ] * 2
    assert all(r["seconds"]["policy_cpu"] >= 0.05 and r["charged"] == 1 for r in records)
    (level, _) = level_rows(records)
    assert (level["unfinished"], level["missing"], level["scored"]) == (2, 0, 0)
    assert (level["paper"]["pass_1"], level["paper"]["floor"]["estimate"], level["vrr"]) == (None, 0.0, None)
    assert "pass@1 floor" in level_text([level])


def faulty(tmp_path: Path, kind: str, **kwargs: Any) -> list[dict[str, Any]]:
    """Evaluate a policy that fails on the first of two tasks."""
    marks = tmp_path / "marks"
    marks.mkdir()
    options = {"task": TWO[0], "kind": kind, "folder": str(marks), **kwargs.pop("options", {})}
    return run(f"{HERE}:Faulty", options=options, **kwargs)


def test_infrastructure_errors_are_tried_again(tmp_path: Path) -> None:
    first, second = faulty(tmp_path, "tool", options={"times": 2}, out=tmp_path / "run")
    assert (first["error_type"], first["infra_retries"], first["strict_success"]) == (None, 2, False)
    assert [t["error_type"] for t in first["retried"]] == ["ToolError"] * 2
    assert second["infra_retries"] == 0
    assert len((tmp_path / "run" / "records.jsonl").read_text().splitlines()) == 2


def test_lasting_infrastructure_errors_are_missing(tmp_path: Path) -> None:
    first, second = faulty(tmp_path, "tool", retries=1)
    assert (first["error_type"], first["error"], first["ended"]) == ("ToolError", "engine died", "tool_error")
    assert (first["paper_success"], first["verdict"], first["reward"]) == (None, None, None)
    assert second["paper_success"] is False
    (level, _) = level_rows([first, second])
    assert (level["missing"], level["errors"], level["scored"]) == (1, {"ToolError": 1}, 1)
    assert level["paper"]["floor"] == level["paper"]["pass_1"], "not the policy's doing"


def test_a_fault_of_the_policy_is_its_own_kind(tmp_path: Path) -> None:
    first, second = faulty(tmp_path, "bug")
    assert (first["error_type"], first["infra_retries"], first["paper_success"]) == ("PolicyCrash", 0, None)
    assert "no such thing" in first["traceback"]
    assert second["error_type"] is None
    (level, _) = level_rows([first, second])
    assert (level["crashed"], level["missing"]) == (1, 0)


def test_unreadable_replies_are_failures_of_the_policy(tmp_path: Path) -> None:
    first, _ = faulty(tmp_path, "unreadable", options={"times": 3})
    assert (first["unreadable"], first["charged"], first["error_type"], first["paper_success"]) == (3, 3, None, False)


def test_missing_attempts_can_be_tried_again(tmp_path: Path) -> None:
    first, second = faulty(tmp_path, "tool", options={"times": 1}, retries=0, out=tmp_path / "run")
    assert first["error_type"] == "ToolError"
    options = read_run(tmp_path / "run")["options"]
    again = run(f"{HERE}:Faulty", options=options, out=tmp_path / "run", resume=True)
    assert again == [first, second]
    again = run(f"{HERE}:Faulty", options=options, out=tmp_path / "run", resume=True, retry_missing=True)
    assert [r["error_type"] for r in again] == [None, None]
    assert again[1] == second
    assert {r["task_id"]: r for r in read_records(tmp_path / "run")} == {r["task_id"]: r for r in again}


def test_an_evaluation_gives_up_where_nothing_works(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"gave up: the last 2 tries .* engine died"):
        faulty(tmp_path, "tool", tasks=[TWO[0]], retries=5, give_up=2, out=tmp_path / "run")
    options = read_run(tmp_path / "run")["options"]
    assert not (tmp_path / "run" / "records.jsonl").exists()
    options["times"] = 2  # from now on it works; the settings are what they were
    (record,) = run(f"{HERE}:Faulty", options=options, tasks=[TWO[0]])
    assert record["verdict"] is not None


def test_what_a_policy_says_costs_no_verdict() -> None:
    records = run(f"{HERE}:Mumbler", tasks=[TWO[0]])
    assert records[0]["verdict"] is not None
    job = Job("FET-L1", TWO[0], 0, 0, f"{HERE}:Mumbler")
    note = json.loads(run_job(job).files["notes.jsonl"])
    assert (note["text"], note["value"]) == ("half \ud800", "{1}")
    (record,) = run(f"{HERE}:Mumbler", tasks=[TWO[0]], options={"settings_too": True})
    assert (record["error_type"], "not JSON" in record["error"]) == ("PolicyCrash", True)


def test_processes(tmp_path: Path) -> None:
    """Two workers give what this process gives; one that is killed loses nothing, one that hangs is stopped."""
    here = run(attempts=2)
    executor = ProcessExecutor(2, timeout_s=300.0)
    try:
        assert plain(run(attempts=2, executor=executor)) == plain(here)
        assert len({w.process.pid for w in executor._workers}) == 2
        first, second = faulty(tmp_path, "killed", options={"times": 1}, executor=executor)
        assert (first["error_type"], first["infra_retries"], first["retried"][0]["error_type"]) == (
            None,
            1,
            "WorkerDied",
        )
        assert second["strict_success"] is False
        lost, _ = run(f"{HERE}:Faulty", options={**_always(tmp_path), "kind": "killed"}, executor=executor, retries=1)
        assert (lost["error_type"], lost["paper_success"], lost["task_hash"]) == (
            "WorkerDied",
            None,
            here[0]["task_hash"],
        )
        assert set(lost) == set(second), "records have the same keys whatever became of the attempt"
        executor._timeout = 1.0
        (late,) = run(f"{HERE}:Sleeper", options={"task": TWO[0]}, tasks=TWO[:1], executor=executor, retries=0)
        assert (late["error_type"], late["paper_success"]) == ("AttemptTimeout", None)
        executor._timeout = None
        assert plain(run(attempts=2, executor=executor)) == plain(here)
    finally:
        executor.close()


def _always(tmp_path: Path) -> dict[str, Any]:
    return {"task": TWO[0], "folder": str(tmp_path / "marks")}


def test_a_policy_that_may_see_hidden_criteria_is_for_those_who_say_so() -> None:
    with pytest.raises(TaskError, match="--allow-privileged"):
        run("reference")
    records = run("reference", allow_privileged=True)
    assert all(r["privileged"] and r["strict_success"] for r in records)


def test_endless_suites_and_unknown_names() -> None:
    cases: list[tuple[str, list[str], dict[str, Any]]] = [
        ("endless", ["FET-Train"], {}),
        ("no such tasks", ["FET-L1"], {"tasks": ["L9/case_1"]}),
        ("two suites of one name", ["FET-L1", "FET-L1-v0"], {}),
        ("unknown executor", ["FET-L1"], {"executor": "pigeons"}),
        ("too small", ["FET-L1"], {"attempts": 0}),
        ("needs worker processes", ["FET-L1"], {"timeout_s": 1.0}),
        ("does not take these options", ["FET-L1"], {"env_options": {"wheels": 4}}),
    ]
    for message, suites, kwargs in cases:
        with pytest.raises(TaskError, match=message):
            evaluate("random", suites, progress=False, **kwargs)


def test_suites_of_a_whole_family() -> None:
    for suite, n in (("DRC-All", 70), ("DRC-Essential", 40), ("PPA-All", 75), ("FET-All", 128)):
        env = make_env(suite)
        assert len(env.task_ids) == n, suite
    assert [r["suite"] for r in evaluate("random", ["DRC-All"], tasks=["Essential-L1/q1"], progress=False)] == [
        "DRC-All"
    ]


# -- the registry ------------------------------------------------------------------------------------------------------


def test_policies_by_name() -> None:
    with pytest.raises(TaskError, match="unknown policy"):
        make_policy("oracle")
    with pytest.raises(TaskError, match="not available"):
        make_policy("no_such_module:Policy")
    with pytest.raises(TaskError, match="no such option"):
        make_policy("random", wheels=4)
    with pytest.raises(TaskError, match="needs options"):
        make_policy(f"{HERE}:Sleeper")
    assert make_policy("random", n_edits=3).n_edits == 3  # type: ignore[attr-defined]
    assert make_policy(f"{HERE}:Learner").name == "learner"
    code = (
        "import sys, edagym.baselines.registry; print([m for m in ('sklearn', 'torch', 'openai') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_options_from_texts_and_files(tmp_path: Path) -> None:
    config = tmp_path / "policy.json"
    config.write_text('{"scaffold": "C1", "model": {"model": "m", "max_tokens": 10}}')
    found = parse_options(["scaffold=C0", "model.temperature=0.5", "rounds=3", "name=true story"], config)
    assert found == {
        "scaffold": "C0",
        "model": {"model": "m", "max_tokens": 10, "temperature": 0.5},
        "rounds": 3,
        "name": "true story",
    }
    for pairs in (["=3"], ["scaffold"], ["scaffold=C0", "scaffold.x=1"], ["a..b=1"]):
        with pytest.raises(TaskError):
            parse_options(pairs)
    config.write_text("[1, 2]")
    with pytest.raises(TaskError, match="object"):
        parse_options([], config)


def test_credentials_are_not_written(tmp_path: Path) -> None:
    refuse_credentials({"model": {"api_key_env": "KEY", "max_tokens": 5, "base_url": "http://127.0.0.1:1/v1?v=1"}})
    for options in (
        {"model": {"api_key": "sk-canary"}},
        {"auth-token": "sk-canary"},
        {"model": {"base_url": "https://user:sk-canary@host/v1"}},
        {"model": {"base_url": "https://host/v1?key=sk-canary"}},
    ):
        with pytest.raises(TaskError) as caught:
            run(out=tmp_path / "run", options=options)
        assert "canary" not in str(caught.value)
    assert not (tmp_path / "run").exists()


# -- memory ------------------------------------------------------------------------------------------------------------


def test_policies_with_memory_run_as_sequences(tmp_path: Path) -> None:
    tasks = make_env("FET-L1").task_ids
    whole = run(f"{HERE}:Learner", tasks=None, attempts=2, out=tmp_path / "whole")
    for n in (0, 1):
        sequence = [r for r in whole if r["attempt"] == n]
        assert [r["memory"]["task"] for r in sequence] == list(tasks)
        assert [r["recalled"] for r in sequence] == list(range(len(tasks)))
        assert sequence[-1]["memory"]["before"] == list(tasks[:-1])
    notes = tmp_path / "whole" / whole[2]["folder"] / "notes.jsonl"
    assert json.loads(notes.read_text())["kind"] == "experience"
    out = tmp_path / "cut"
    run(f"{HERE}:Learner", tasks=None, attempts=2, out=out)
    lines = (out / "records.jsonl").read_bytes().splitlines(keepends=True)
    (out / "records.jsonl").write_bytes(b"".join(lines[:5]))
    resumed = run(f"{HERE}:Learner", tasks=None, attempts=2, out=out, resume=True)
    assert plain(resumed) == plain(whole)


# -- tables ------------------------------------------------------------------------------------------------------------


def record(task: str, paper: bool | None, attempt: int = 0, vrr: float = 0.0, **kwargs: Any) -> dict[str, Any]:
    """Return what the tables read of a record."""
    strict = None if paper is None else False
    return {
        "suite": "s", "task_id": task, "attempt": attempt, "run_seed": 0, "paper_success": paper,
        "strict_success": strict, "ended": "submit", "error_type": None,
        "metrics": {} if paper is None else {"vrr": vrr}, **kwargs,
    }  # fmt: skip


def test_tables_count_tasks_and_leave_out_what_has_no_verdict() -> None:
    rows = level_rows(
        [
            record("Essential-L1/q1", True, 0, 1.0),
            record("Essential-L1/q1", True, 1, 1.0),
            record("Essential-L1/q2", False, 0, 0.5),
            record("Essential-L2/q1", None, error_type="ToolError", ended="tool_error"),
            record("Reasoning-L1/q1", True, 0, 1.0),
        ]
    )
    names = ["Essential-L1", "Essential-L2", "Essential", "Reasoning-L1", "Reasoning", "all"]
    assert [r["level"] for r in rows] == names
    level, lost, suite = rows[:3]
    assert (level["tasks"], level["attempts"], level["vrr"]["estimate"]) == (2, 3, 0.75)
    assert level["paper"]["pass_1"]["estimate"] == level["paper"]["pass_k"]["estimate"] == 0.5
    assert level["paper"]["all_k"]["estimate"] == 0.5, "q2's second attempt is missing, but its first failed"
    assert (lost["missing"], lost["scored"], lost["paper"]["pass_1"]) == (1, 0, None)
    assert suite["paper"]["pass_1"]["estimate"] == 0.5
    text = level_text(rows)
    assert "paper pass@2" in text
    assert "| Essential-L2 | 1 | 1 | 1 | – |" in text


# -- the command -------------------------------------------------------------------------------------------------------


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    args = ["eval", "--policy", "random", "--suite", "FET-L1", "--attempts", "2", "--workers", "0", "--out", out]
    args += [x for t in TWO for x in ("--task", t)]
    assert main(args) == 0
    text = capsys.readouterr().out
    assert "| L1 | 2 | 4 | 0 | 0.0 [0.0, 0.0] |" in text
    assert "strict all-2" in text
    assert main([*args, "--resume", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["levels"][0]["level"], data["levels"][0]["k"], data["privileged"]) == ("L1", 2, False)
    assert main(args) == 2
    assert "--resume" in capsys.readouterr().err
    assert main([*args[:-4], "--suite", "FET-L7"]) == 2


def test_command_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    args = ["eval", "--policy", f"{HERE}:Faulty", "--suite", "FET-L1", "--workers", "0", "--retries", "0"]
    args += ["--task", TWO[0], "--option", f"task={TWO[0]}", "--option", f"folder={marks}"]
    assert main([*args, "--option", "kind=tool"]) == 3
    assert "ToolError: 1 attempts without verdict, e.g. L1/case_1: engine died" in capsys.readouterr().out
    assert main([*args, "--option", "kind=bug"]) == 1
    reference = ["eval", "--policy", "reference", "--suite", "FET-L1", "--workers", "0"]
    assert main(reference) == 2
    capsys.readouterr()
    assert main([*reference, "--allow-privileged"]) == 0
    assert "PRIVILEGED" in capsys.readouterr().out


def test_bench(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "eval", "--attempts", "1", "--workers", "1", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert set(data) == {"bare", "loop", "memory", "disk", "processes", "machine"}
    assert (data["bare"]["ratio"], data["bare"]["overhead_ms"]) == (1.0, 0.0)
    assert all(data[way]["attempts_per_s"] > 0 for way in data if way != "machine")
    assert main(["bench", "eval", "--attempts", "0"]) == 2
