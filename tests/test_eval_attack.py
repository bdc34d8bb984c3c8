"""Attacks on the evaluation: attempts that void their own failures, forged records, hostile replies and runs."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from llm_server import completion, failure, scripted

from edagym.baselines.evaluate import evaluate
from edagym.baselines.llm.client import ChatModel, ModelSpec
from edagym.baselines.llm.parsing import parse_objects, parse_values
from edagym.baselines.llm.reward import ChatEpisode, TextReward
from edagym.baselines.policies import Attempt
from edagym.baselines.records import attempt_folder, checksum, read_records, task_hash
from edagym.baselines.registry import refuse_credentials
from edagym.baselines.report import build_report
from edagym.baselines.report.clean import Cleaner
from edagym.baselines.rescore import rescore
from edagym.baselines.rollout import make_env
from edagym.cli import main
from edagym.errors import ModelError, PolicyError, TaskError
from edagym.task_assets.fet.suite import load_task

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


# -- forged and broken runs --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two tasks and two attempts."""
    out = tmp_path_factory.mktemp("runs") / "run"
    evaluate("random", ["FET-L1"], tasks=TWO, attempts=2, options={"n_edits": 3}, out=out, progress=False)
    return out


def forge(run: Path, to: Path, **changes: Any) -> Path:
    """Copy a run and change its first record; its checksum is made to fit."""
    shutil.copytree(run, to)
    records = [json.loads(line) for line in (to / "records.jsonl").read_text().splitlines()]
    records[0] |= changes
    if "checksum" not in changes:
        records[0]["checksum"] = checksum(records[0])
    (to / "records.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return to


LOST: dict[str, Any] = {
    **dict.fromkeys(("verdict", "is_success", "paper_success", "strict_success", "first_failed", "reward")),
    **{"error_type": "ToolError", "error": "gone", "ended": "tool_error", "failed": [], "metrics": {}},
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unreadable": 7, "checksum": None}, "there is no checksum"),
        ({"task_hash": None}, "there is no task_hash"),
        ({"schema_version": 1, "tokens": {"prompt": 1, "completion": 1}, "checksum": None}, "not of schema 2"),
        ({"artefacts": {}}, "no hashes"),
        ({"seed": 1}, "seed is 1"),
        ({"error_type": "ToolError"}, "but there is a verdict"),
        (LOST, "the trace ended with one"),
        ({**LOST, "folder": None, "artefacts": {}}, "the trace ended with one"),
        ({"folder": "../run/attempts/FET-L1/L1__case_1/000"}, "outside the run"),
    ],
)
def test_rescore_finds_forgeries(finished: Path, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    run = forge(finished, tmp_path / "forged", **changes)
    found = rescore(run, progress=False)
    assert any(message in f.message for f in found.findings), found.findings
    assert main(["rescore", str(run)]) == 1


def test_two_records_of_one_folder_are_found(finished: Path, tmp_path: Path) -> None:
    other = read_records(finished)[1]
    run = forge(finished, tmp_path / "forged", **{**other, "attempt": 0, "episode": 0, "seed": 0})
    found = rescore(run, progress=False)
    assert "the folder is another attempt's" in {f.message for f in found.findings}


def test_a_task_put_beside_the_trace_is_not_the_one_judged(finished: Path, tmp_path: Path) -> None:
    easy = load_task(TWO[1])
    run = forge(finished, tmp_path / "forged", task_hash=task_hash(easy))
    (run / read_records(run)[0]["folder"] / "task.json").write_text(easy.to_json())
    found = rescore(run, progress=False)
    assert "task" in {f.kind for f in found.findings}
    assert found.agreed == 3


BROKEN: list[dict[str, Any]] = [
    {"task_id": []},
    {"budget": float("inf")},
    {"charged": float("nan")},
    {"charged": 10**400},
    {"cost": float("nan")},
    {"metrics": {"nis": float("nan")}},
    {"metrics": {"nis": 10**400}},
    {"verdict": {}},
    {"verdict": {"checks": 5}},
    {"versions": "none"},
    {"folder": "a\0b"},
    {"suite": "x" * 300},
]


@pytest.mark.parametrize("changes", BROKEN, ids=str)
def test_broken_records_stop_neither_report_nor_rescore(
    finished: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    run = forge(finished, tmp_path / "broken", **changes)
    report = build_report([run], max_traces=1)
    assert "NaN" not in json.dumps(report.numbers)
    assert 3 <= report.numbers["runs"][0]["records"] <= 4
    assert rescore(run, progress=False).findings or "cost" in changes or "versions" in changes


@pytest.mark.parametrize("line", [b"[" * 100_000, b'{"a":' * 100_000, b"\xff", b"5", b'{"schema_version": 1}'])
def test_lines_that_are_no_records(finished: Path, tmp_path: Path, line: bytes) -> None:
    run = forge(finished, tmp_path / "broken")
    with (run / "records.jsonl").open("ab") as f:
        f.write(line + b"\n")
    report = build_report([run], max_traces=0)
    assert len(report.numbers["faults"]) == 1
    assert len(rescore(run, progress=False).findings) == 1


@pytest.mark.parametrize("text", ["[" * 100_000, '{"schema_version": 1}', '{"schema_version": 1, "suites": 5}'])
def test_malformed_settings_of_a_run(
    finished: Path, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = forge(finished, tmp_path / "broken")
    (run / "run.json").write_text(text)
    assert main(["rescore", str(run)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_folders_of_attempts_are_never_shared() -> None:
    ids = ["a/b", "a__b", "a/_b", "a_/b", "a//b", "a_b", "a___b"]
    assert len({attempt_folder("S", i, 0) for i in ids}) == len(ids)
    assert attempt_folder("FET-L1", "L1/case_1", 0) == "attempts/FET-L1/L1__case_1/000"


# -- credentials, and what servers say ---------------------------------------------------------------------------------

KEY = "sk-proj-canary0123456789abcdef"


@pytest.mark.parametrize(
    "options",
    [
        {"model": {"extra_body": {"tools": [{"api_key": "x"}]}}},
        {"addresses": ["http://user:password@host"]},
        {"note": KEY},
        {"header": ["Bearer abcdefghijklmnop"]},
        {"model": {"api_key_env": "hf_abcdefghijklmnopqrst0123"}},
    ],
    ids=str,
)
def test_credentials_are_no_options(options: dict[str, Any]) -> None:
    with pytest.raises(TaskError, match="credential") as caught:
        refuse_credentials(options)
    assert KEY not in str(caught.value)


def test_names_of_models_are_options() -> None:
    for name in ("hf-internal-testing-tiny-llama-3", "skywater130_fd_sc_hd_library", "gpt-4o-2024-08-06", "sk-hynix"):
        refuse_credentials({"model": {"model": name, "api_key_env": "OPENROUTER_API_KEY_2"}})


@pytest.mark.parametrize(
    "changes",
    [
        {"base_url": "http://:password@host/v1"},
        {"base_url": f"http://host/v1#{KEY}"},
        {"api_key_env": "gsk_canary0123456789abcdef"},
        {"prices": {"prompt": float("nan"), "completion": 1.0}},
        {"prices": {"prompt": 1.0, "completion": -1.0}},
        {"temperature": float("nan")},
    ],
    ids=str,
)
def test_specs_without_credentials_and_with_numbers(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        ModelSpec("m", **changes)
    assert "canary" not in str(caught.value)


def test_hostile_answers_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openai")
    monkeypatch.setenv("CANARY", f"{KEY}\n")
    prices = {"prompt": 1.0, "completion": 1.0}
    huge = completion("b", usage={"prompt_tokens": 10**400, "completion_tokens": 1})
    answers = [failure(500, KEY, **{"Retry-After": "nan"}), "a", huge, failure(401, f"not {KEY}")]
    with scripted(answers) as server:
        spec = ModelSpec("m", base_url=server.base_url, api_key_env="CANARY", backoff_s=0.01, prices=prices)
        chat = ChatModel(spec)
        messages = [{"role": "user", "content": "?"}]
        first = chat.ask(messages)
        assert (first.text, first.retries) == ("a", 1)
        assert chat.ask(messages).usage == {"prompt_tokens": 0, "completion_tokens": 0, "cost": None}
        with pytest.raises(ModelError) as caught:
            chat.ask(messages)
        assert KEY not in str(caught.value)
        assert server.headers[-1]["authorization"] == f"Bearer {KEY}"


# -- careless users ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"cpu_limit_s": -1.0},
        {"cpu_limit_s": float("nan")},
        {"timeout_s": -1.0, "workers": 1},
        {"timeout_s": float("inf"), "workers": 1},
        {"env_options": {"criterion": "paper"}},
    ],
    ids=str,
)
def test_limits_and_criteria_that_make_no_sense(changes: dict[str, Any]) -> None:
    with pytest.raises(TaskError):
        run("random", **changes)


def test_no_task_counts_twice() -> None:
    with pytest.raises(TaskError, match="share tasks"):
        evaluate("random", ["FET-L1", "FET-All"], tasks=TWO[:1], progress=False)


def test_sizes_that_are_no_numbers(finished: Path, tmp_path: Path) -> None:
    assert main(["report", str(finished), "--out", str(tmp_path / "r.html"), "--max-mb", "nan"]) == 2
    assert main(["report", str(finished), "--out", str(tmp_path / "r.html"), "--max-mb", "inf"]) == 0


@pytest.mark.parametrize("text", ['[{"op": {"a": 1}}]', '{"edits": [{"op": ["verify"], "layer": {}}]}'])
def test_rewards_survive_every_op(text: str) -> None:
    reward = TextReward("FET-L1")
    assert reward([text], task_id=TWO[:1]) == [0.0]
    assert reward.scores[0].refused == 1
    episode = ChatEpisode("FET-L1", TWO[0])
    answer = episode.reply(text)
    assert answer is not None
    assert "op" in answer["content"]


def test_reports_blank_keys_and_no_names_of_cells() -> None:
    cleaner = Cleaner()
    for text in (KEY, "hf_canaryabcdefghij0123", "AKIAABCDEFGHIJKLMNOP", "Authorization: Bearer abcdefghijkl"):
        assert "[credential]" in cleaner.text(text)
    for text in ("sky130_fd_sc_hd__dfxtp_1", "hfnsbuffertree_root_12", "a token: 12 tokens"):
        assert cleaner.text(text) == text
