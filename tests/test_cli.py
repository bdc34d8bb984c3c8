"""The command line: exit codes, messages, JSON."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from edagym import __version__
from edagym.baselines.records import untimed
from edagym.cli import main
from edagym.cli.common import BAD_INPUT, FAIL, PASS, TOOL_ERROR, table
from edagym.envs.fet.gallery import reference_layout
from edagym.errors import ToolError
from edagym.task_assets.fet.suite import load_task
from edagym.verifiers.fet.layout import FETLayout

TASK = "L1/case_7"


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(argv)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def run_json(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, Any]:
    code, out, _ = run(capsys, *argv, "--json")
    return code, json.loads(out)


@pytest.fixture
def good(tmp_path: Path) -> str:
    path = tmp_path / "good.gds"
    reference_layout(load_task(TASK)).write_gds(path)
    return str(path)


@pytest.fixture
def empty(tmp_path: Path) -> str:
    path = tmp_path / "empty.gds"
    FETLayout.from_task(load_task(TASK)).write_gds(path)
    return str(path)


# -- verify --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("criterion", ["paper", "strict"])
def test_verify_passes_a_good_layout(capsys: pytest.CaptureFixture[str], good: str, criterion: str) -> None:
    code, out, err = run(capsys, "verify", TASK, good, "--criterion", criterion)
    assert code == PASS
    assert "paper pass, strict pass" in out
    assert not err


def test_verify_fails_a_bad_layout_and_says_why(capsys: pytest.CaptureFixture[str], empty: str, tmp_path: Path) -> None:
    svg = tmp_path / "marked.svg"
    code, out, _ = run(capsys, "verify", TASK, empty, "--svg", str(svg))
    assert code == FAIL
    assert "paper fail, strict fail" in out
    assert "failed transistor_count:flake_1: " in out
    assert "transistor_count:flake_1" in svg.read_text(encoding="utf-8")


def test_verify_json(capsys: pytest.CaptureFixture[str], good: str, empty: str) -> None:
    code, data = run_json(capsys, "verify", TASK, empty)
    assert code == FAIL
    assert data["success"] is data["paper_success"] is data["strict_success"] is False
    assert any(not check["passed"] and check["message"] for check in data["checks"])
    code, data = run_json(capsys, "verify", TASK, good)
    assert code == PASS
    assert data["success"] is True
    assert all(check["passed"] for check in data["checks"])


def test_verify_counts_by_the_criterion(
    capsys: pytest.CaptureFixture[str], good: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edagym.verifiers import fet
    from edagym.verifiers.verdict import CheckResult, Verdict

    guard = CheckResult("strict_overhang", "strict_overhang", False, message="too short", strict=True)
    monkeypatch.setattr(fet, "verify", lambda layout, task: Verdict(True, False, (guard,)))
    assert run(capsys, "verify", TASK, good, "--criterion", "paper")[0] == PASS
    code, out, _ = run(capsys, "verify", TASK, good)
    assert code == FAIL
    assert "failed strict_overhang (strict only): too short" in out


def test_verify_takes_a_task_file(capsys: pytest.CaptureFixture[str], good: str, tmp_path: Path) -> None:
    path = tmp_path / "task.json"
    path.write_text(load_task(TASK).to_json(), encoding="utf-8")
    assert run(capsys, "verify", str(path), good)[0] == PASS


# -- bad input and tool errors: one line on stderr, no traceback ----------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["verify", "L9/case_1", "x.gds"], "unknown task"),
        (["verify", TASK, "missing.gds"], "missing.gds"),
        (["verify", TASK, __file__], "not a readable layout file"),
        (["verify", "missing.json", "x.gds"], "missing.json"),
        (["show"], "nothing to show"),
        (["show", TASK, "--reference"], "with --svg OUT or --png OUT"),
        (["show", TASK, "--layout", "x.gds"], "with --svg OUT or --png OUT"),
        (["show", TASK, "--references"], "with --gallery DIR"),
        (["show", TASK, "--gallery", "g"], "a gallery shows all tasks"),
        (["show", TASK, "--png", "no/such/folder/x.png"], "no/such/folder/x.png"),
        (["show", TASK, "--svg", "no/such/folder/x.svg"], "no/such/folder/x.svg"),
        (["show", TASK, "--reference", "--layout", "x.gds"], "one layout at a time"),
        (["list", "XYZ"], "unknown family"),
        (["rollout", "--policy", "psychic"], "unknown policy"),
        (["rollout", "--policy", "random", "--suite", "FET-L9"], "unknown suite"),
        (["rollout", "--policy", "random", "--suite", "FET-L1", "--task", "L2/case_1"], "no such task"),
        (["rollout", "--policy", "random", "--episodes", "0"], "--episodes"),
        (["generate", "contours", "no/such/folder"], "no such folder"),
        (["generate", "fet-suite", "--only", "L9/case_1"], "unknown task"),
    ],
    ids=lambda value: " ".join(value[:3]).replace("/", "-") if isinstance(value, list) else "",
)
def test_bad_input(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *argv)
    assert code == BAD_INPUT
    assert not out
    assert err.startswith("edagym: ")
    assert says in err
    assert "Traceback" not in err


def test_unknown_level_of_the_gallery(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, "show", "--gallery", str(tmp_path / "g"), "--level", "L9")
    assert code == BAD_INPUT
    assert "L9" in err


def test_out_may_not_be_a_file(capsys: pytest.CaptureFixture[str], good: str) -> None:
    code, _, err = run(capsys, "rollout", "--policy", "random", "--suite", "FET-L1", "--out", good)
    assert code == BAD_INPUT
    assert "cannot make folder" in err


def test_tool_errors_have_their_own_code(
    capsys: pytest.CaptureFixture[str], good: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edagym.verifiers import fet

    def broken(layout: object, task: object) -> None:
        raise ToolError("the engine has stopped")

    monkeypatch.setattr(fet, "verify", broken)
    code, out, err = run(capsys, "verify", TASK, good)
    assert code == TOOL_ERROR
    assert not out
    assert "the engine has stopped" in err


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["fly"],
        ["verify", TASK],
        ["show", TASK, "--prompt", "C9"],
        ["bench", "x"],
        ["rollout", "--policy", "random", "--seed", "-1"],
        ["demo", "--seed", "1.5"],
        ["generate", "fet-suite", "--seed", "-3"],
    ],
)
def test_usage_errors_are_bad_input(capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    with pytest.raises(SystemExit) as e:
        main(argv)
    assert e.value.code == BAD_INPUT
    assert "usage:" in capsys.readouterr().err


# -- list ----------------------------------------------------------------------------------------------------------


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    code, data = run_json(capsys, "list")
    assert code == PASS
    assert {row["id"]: row["tasks"] for row in data}["FET-All-v0"] == 128
    assert {row["id"]: row["tasks"] for row in data}["FET-Train-v0"] is None
    assert run_json(capsys, "list", "FET")[1] == [row for row in data if row["id"].startswith("FET-")]
    assert {row["id"]: row["tasks"] for row in run_json(capsys, "list", "DRC")[1]}["DRC-Essential-L1-v0"] == 20
    _, out, _ = run(capsys, "list")
    assert re.search(r"FET-Train-v0 +endless", out)


def test_list_drc_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    code, data = run_json(capsys, "list", "DRC", "--tasks")
    assert code == PASS
    assert len(data) == 70
    assert all(row["violations"] > 0 and row["budget"] in (8, 16) for row in data)
    assert run(capsys, "list", "DRC", "--stats")[0] == BAD_INPUT


def test_list_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    code, data = run_json(capsys, "list", "FET", "--tasks")
    assert code == PASS
    assert len(data) == 128
    assert sum(row["transistors"] for row in data) == 631
    assert sum(row["circuit"] is not None for row in data) == 26
    assert sum(row["holes"] for row in data) == 15


def test_list_stats(capsys: pytest.CaptureFixture[str]) -> None:
    code, data = run_json(capsys, "list", "FET", "--stats")
    assert code == PASS
    assert data["missed"] == []
    assert data["gated"] > 100
    assert {"gated", "reported"} == {line["status"] for line in data["statistics"]}
    _, out, _ = run(capsys, "list", "FET", "--stats")
    assert "tokenizer: " in out
    assert f"{data['gated']} of {data['gated']} gated statistics met" in out


def test_list_stats_fails_when_a_gated_one_is_missed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from edagym.task_assets.fet import statistics

    lines = (
        statistics.Marginal("good", "Table 1", 3, 3, True, True),
        statistics.Marginal("bad", "Table 2", 4, 5, True, False),
        statistics.Marginal("unknown", "Table 3", 6, None, False, None),
    )
    monkeypatch.setattr(statistics, "suite_statistics", lambda text: lines)
    code, out, _ = run(capsys, "list", "FET", "--stats")
    assert code == FAIL
    assert "1 of 2 gated statistics met" in out
    assert "missed: bad: target 4, achieved 5" in out


# -- show ----------------------------------------------------------------------------------------------------------


def test_show_text_prompt_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Objective: " in run(capsys, "show", TASK)[1]
    assert "Spine of each flake" in run(capsys, "show", TASK, "--prompt", "C1")[1]
    _, data = run_json(capsys, "show", TASK)
    assert data["architecture"] == "top_gated"
    assert "structural" not in data
    assert "metadata" not in data


def test_show_pictures(capsys: pytest.CaptureFixture[str], tmp_path: Path, empty: str) -> None:
    files = [tmp_path / name for name in ("task.svg", "task.png", "reference.svg", "marked.svg")]
    code, out, _ = run(capsys, "show", TASK, "--svg", str(files[0]), "--png", str(files[1]))
    assert code == PASS
    assert out.count("wrote ") == 2
    run(capsys, "show", TASK, "--reference", "--svg", str(files[2]))
    run(capsys, "show", TASK, "--layout", empty, "--svg", str(files[3]))
    with Image.open(files[1]) as image:
        assert image.format == "PNG"
    plain, reference, marked = (files[i].read_text(encoding="utf-8") for i in (0, 2, 3))
    assert reference.count("<path") > plain.count("<path")
    assert "transistor_count:flake_1" in marked
    assert "transistor_count:flake_1" not in plain


def test_show_gallery(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "new" / "gallery"
    code, data = run_json(capsys, "show", "--gallery", str(folder), "--references", "--level", "L1")
    assert code == PASS
    assert [Path(f).name for f in data["files"]] == ["L1.svg", "L1.png"]
    text = (folder / "L1.svg").read_text(encoding="utf-8")
    assert text.count("L1/case ") == 8
    assert "#0072b2" in text


# -- rollout, demo, generate ---------------------------------------------------------------------------------------


def test_rollout(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, data = run_json(capsys, "rollout", "--policy", "reference", "--suite", "FET-L1")
    assert code == PASS
    assert data["summary"]["paper_passed"] == data["summary"]["strict_passed"] == 8
    assert len(data["records"]) == 8
    code, out, err = run(
        capsys, "rollout", "--policy", "random", "--suite", "FET-L1", "--task", TASK, "--out", str(tmp_path / "out")
    )
    assert code == PASS
    assert "random strict" in out
    assert "random on FET-L1" in err
    assert len((tmp_path / "out" / "records.jsonl").read_text(encoding="utf-8").splitlines()) == 1
    assert len(list((tmp_path / "out").rglob("*.gds"))) == 1


def test_rollout_is_seeded(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["rollout", "--policy", "random", "--suite", "FET-L1", "--seed"]
    first, again, other = (run_json(capsys, *argv, seed)[1]["records"] for seed in ("3", "3", "4"))
    assert [untimed(r) for r in first] == [untimed(r) for r in again]
    assert [untimed(r) for r in first] != [untimed(r) for r in other]


def test_demo(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out_dir = tmp_path / "demo"
    for _ in range(2):  # a second run replaces the records of the first
        code, out, _ = run(capsys, "demo", "--suite", "FET-L1", "--out", str(out_dir))
        assert code == PASS
    assert "8/8" in out
    summary = json.loads((out_dir / "summary.json").read_text(encoding="utf-8"))
    assert summary["policies"]["reference"]["strict_passed"] == 8
    assert summary["policies"]["random"]["attempts"] == 8
    assert len((out_dir / "records.jsonl").read_text(encoding="utf-8").splitlines()) == 16
    assert len(list(out_dir.rglob("*.gds"))) == 16
    assert len(list(out_dir.rglob("*.png"))) == 16


def test_demo_fails_when_the_reference_does(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edagym.baselines import policies

    monkeypatch.setattr(policies, "reference_edits", lambda task: ())
    assert run(capsys, "demo", "--suite", "FET-L1", "--out", str(tmp_path))[0] == FAIL


def test_generate_suite(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, data = run_json(capsys, "generate", "fet-suite", "--only", TASK, "--out", str(tmp_path))
    assert code == PASS
    assert data["tasks"] == 1
    written = (tmp_path / "suite" / f"{TASK}.json").read_text(encoding="utf-8")
    assert written == load_task(TASK).to_json()


# -- bench ---------------------------------------------------------------------------------------------------------

BENCH = {
    "edit_steps_per_s": {"made": 12345.6, "bare": 15000.0},
    "reset_ms": {"FET-All-v0": {"median": 0.5, "n": 500}},
    "async_steps_per_s": 99.5,
    "profile": {"verify": [{"function": "drc.py:check", "own_share": 0.25, "with_callees_share": 0.5, "calls": 7}]},
}


def test_bench_prints_every_figure(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from edagym.baselines import bench

    asked: list[tuple[float, int]] = []
    monkeypatch.setattr(bench, "bench_fet", lambda seconds, resets: asked.append((seconds, resets)) or BENCH)
    code, out, _ = run(capsys, "bench", "fet", "--seconds", "0.5", "--train-resets", "3")
    assert code == PASS
    assert asked == [(0.5, 3)]
    for figure in ("12,346", "15,000", "median 0.5, n 500", "99.5", "25.0%", "drc.py:check"):
        assert figure in out
    assert run_json(capsys, "bench", "fet")[1] == BENCH
    assert run(capsys, "bench", "fet", "--seconds", "-1")[0] == BAD_INPUT


@pytest.mark.slow
def test_bench_measures(capsys: pytest.CaptureFixture[str]) -> None:
    code, data = run_json(capsys, "bench", "fet", "--seconds", "0.2", "--train-resets", "1")
    assert code == PASS
    assert data["edit_steps_per_s"]["made"] > 0
    assert data["verify_ms"]["paper_only"]["n"] == 128


# -- the process ---------------------------------------------------------------------------------------------------


def process(*argv: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "edagym", *argv], capture_output=True, text=True, check=False, timeout=120, **kwargs
    )


def test_module_and_version() -> None:
    done = process("--version")
    assert (done.returncode, done.stdout.strip()) == (0, f"edagym {__version__}")


def test_exit_code_reaches_the_shell(empty: str) -> None:
    assert process("verify", TASK, empty).returncode == FAIL
    assert process("verify", TASK, "missing.gds").returncode == BAD_INPUT


def test_a_closed_pipe_is_no_traceback() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "edagym", "list", "--tasks"], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


def test_help_is_cheap() -> None:
    code = (
        "import sys; from edagym.cli import build_parser; build_parser().format_help();"
        "print([m for m in ('klayout', 'torch', 'scipy', 'PIL') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_table() -> None:
    assert table([("a", 1), ("bb", 20)], ("x", "n")).splitlines() == ["x    n", "--  --", "a    1", "bb  20"]
    assert table([], ("x",)).splitlines() == ["x", "-"]
