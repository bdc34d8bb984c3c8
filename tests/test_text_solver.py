"""The text-only solver: a process without edagym that passes FET tasks from the prompt that any model sees."""

from __future__ import annotations

import ast
import contextlib
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import edagym.baselines.llm as llm_package
from edagym.baselines.llm.text_solver import fet, server
from edagym.baselines.llm.text_solver.fet_feedback import heed
from edagym.baselines.llm.text_solver.fet_prompt import DEFAULT_WIDTH, read_prompt
from edagym.baselines.policies import Attempt
from edagym.baselines.registry import make_policy
from edagym.baselines.rollout import run_attempt
from edagym.envs.fet.env import FETEnv, FETTrainEnv
from edagym.envs.fet.prompt import render_prompt
from edagym.spaces.edits import edit_from_json
from edagym.task_assets.fet import FETTask
from edagym.task_assets.fet.suite import load_task, task_ids
from edagym.verifiers.verdict import Verdict

FOLDER = Path(llm_package.__file__).parent / "text_solver"

# One of each: via and pad, several flakes, three materials, tight windows, circuits, holes, all architectures.
SAMPLE = (
    "L1/case_1",
    "L2/case_6",
    "L2/case_18",
    "L2/case_30",
    "L2/case_42",
    "L3/case_15",
    "L3/case_28",
    "L3/case_36",
    "L3/case_41",
    "L4/case_17",
    "L4/case_19",
    "L4/case_36",
)

# Runs the server as a program in an interpreter in which `import edagym` fails, whoever asks.
ALONE = """
import runpy, sys
sys.modules["edagym"] = None
sys.argv = [{path!r}, "--port", "0"]
runpy.run_path({path!r}, run_name="__main__")
"""


@contextlib.contextmanager
def running() -> Iterator[str]:
    """Start the server in a process of its own and yield its base URL."""
    program = ALONE.format(path=str(FOLDER / "server.py"))
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["base_url"]
    finally:
        process.terminate()
        process.communicate(timeout=30)


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with running() as url:
        yield url


def call(url: str, body: Any = None) -> tuple[int, dict[str, Any]]:
    """GET, or POST a body (bytes as they are), and return status and parsed answer."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as e:
        return e.code, json.load(e)


def verdict_of(task: FETTask, edits: Sequence[dict[str, Any]]) -> Verdict:
    env = FETEnv(tasks=[task])
    env.reset(seed=0)
    env.step_any([edit_from_json(e) for e in edits])
    return env.peek()


def solve(prompt: str, *said: str) -> list[dict[str, Any]]:
    messages = [{"role": "user", "content": text} for text in (prompt, *said)]
    return json.loads(fet.reply(messages, None))["edits"]


def strict(task: FETTask, prompt: str) -> bool:
    return verdict_of(task, solve(prompt)).strict_success


def attempt_at(policy: Any, task_id: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    env = FETEnv(tasks=[task_id], **policy.env_options)
    env.reset(seed=0)
    attempt = Attempt(env)
    record = run_attempt(env, policy, suite="test", episode=0, seed=0, attempt=attempt)
    return record, attempt.notes


def make(name: str, base_url: str) -> Any:
    pytest.importorskip("openai")
    return make_policy(name, model={"model": "text-solver", "base_url": base_url, "retries": 0})


# -- a program of its own ----------------------------------------------------------------------------------------------


def test_no_module_imports_edagym() -> None:
    allowed = {"numpy", "scipy", "shapely", *sys.stdlib_module_names}
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [str(node.module)]
            assert not {n.split(".")[0] for n in names} - allowed, path.name


def test_the_process_cannot_import_edagym() -> None:
    program = 'import sys; sys.modules["edagym"] = None; import edagym'
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode != 0


def test_models_and_usage(base_url: str) -> None:
    status, models = call(f"{base_url}/models")
    assert (status, [m["id"] for m in models["data"]]) == (200, [server.MODEL])
    body = {"model": "any", "messages": [{"role": "user", "content": "hello"}]}
    status, answer = call(f"{base_url}/chat/completions", body)
    assert status == 200
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": server.NO_MATCH}
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 0
    assert call(f"{base_url}/chat/completions", body) == (status, answer)


def test_content_may_be_text_or_parts_and_a_schema_shapes_the_reply(base_url: str) -> None:
    prompt = render_prompt(load_task("L1/case_3").view(), "C0")
    parts = [{"type": "text", "text": prompt}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]
    form = {
        "type": "object",
        "properties": {"plan": {"type": "array"}, "why": {"type": "string"}},
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "edits", "strict": True, "schema": form}}
    for content in (prompt, parts):
        body = {"model": "m", "messages": [{"role": "user", "content": content}], "response_format": wanted}
        status, answer = call(f"{base_url}/chat/completions", body)
        assert status == 200
        found = json.loads(answer["choices"][0]["message"]["content"])
        assert set(found) == {"plan", "why"}
        assert found["plan"] == solve(prompt)


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/chat/completions", b"{", 400, None),
        ("/chat/completions", [1], 400, None),
        ("/chat/completions", {"messages": [{"role": "user", "content": "x"}]}, 400, "model"),
        ("/chat/completions", {"model": "m"}, 400, "messages"),
        ("/chat/completions", {"model": "m", "messages": []}, 400, "messages"),
        ("/chat/completions", {"model": "m", "messages": [{"content": "x"}]}, 400, "messages"),
        ("/chat/completions", {"model": "m", "messages": [{"role": "user", "content": 3}]}, 400, "messages"),
        ("/chat/completions", {"model": "m", "messages": [{"role": "user", "content": [3]}]}, 400, "messages"),
        (
            "/chat/completions",
            {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True},
            400,
            "stream",
        ),
        (
            "/chat/completions",
            {"model": "m", "messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_schema"}},
            400,
            "response_format",
        ),
        ("/embeddings", {"model": "m"}, 404, None),
        ("/nothing", None, 404, None),
    ],
)
def test_errors_look_like_the_api_s(base_url: str, path: str, body: Any, status: int, param: str | None) -> None:
    found, answer = call(base_url + path, body)
    assert found == status
    assert set(answer["error"]) == {"message", "type", "param", "code"}
    assert (answer["error"]["type"], answer["error"]["param"]) == ("invalid_request_error", param)


def test_requests_are_served_at_once(base_url: str) -> None:
    prompts = [render_prompt(load_task(t).view(), "C0") for t in SAMPLE[:3]] * 2
    bodies = [{"model": "m", "messages": [{"role": "user", "content": p}]} for p in prompts]
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda b: call(f"{base_url}/chat/completions", b)[1], bodies))
    assert answers[:3] == answers[3:]


# -- what it solves ----------------------------------------------------------------------------------------------------


def test_a_sample_passes_under_plan_and_execute(base_url: str) -> None:
    policy = make("fet-plan-execute", base_url)
    for task_id in SAMPLE:
        record, notes = attempt_at(policy, task_id)
        assert record["strict_success"], task_id
        assert record["paper_success"], task_id
        (asked,) = [n for n in notes if n["kind"] == "model"]
        prompt = render_prompt(load_task(task_id).view(), "C0")
        assert [m["content"] for m in asked["messages"] if m["role"] == "user"] == [prompt]
        assert "assistant" not in {m["role"] for m in asked["messages"]}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "share"), [("fet-plan-execute", 0.95), ("fet-react-3", 0.98)])
def test_the_whole_suite(base_url: str, name: str, share: float) -> None:
    policy = make(name, base_url)
    table: Counter[tuple[str, str]] = Counter()
    for task_id in task_ids():
        record, _ = attempt_at(policy, task_id)
        groups = ["all", task_id[:2]] + ["circuits"] * (load_task(task_id).circuit is not None)
        for group in groups:
            table.update({(group, "n"): 1, (group, "strict"): record["strict_success"]})
            table.update({(group, "paper"): record["paper_success"]})
    for group in ("L1", "L2", "L3", "L4", "circuits", "all"):
        print(f"{name} {group}: {table[group, 'strict']} strict, {table[group, 'paper']} paper of {table[group, 'n']}")
    assert table["all", "n"] == 128
    assert table["all", "strict"] >= share * 128
    assert table["all", "paper"] >= share * 128


@pytest.mark.slow
def test_tasks_it_has_never_met() -> None:
    env = FETTrainEnv()
    passed = []
    for seed in range(40):
        env.reset(seed=seed)
        passed.append(strict(env.task, render_prompt(env.view, "C0")))
    assert sum(passed) >= 36


# -- that it reads -----------------------------------------------------------------------------------------------------


def without_rules(prompt: str) -> str:
    return re.sub(r"^- .*(width|spacing|separation|encloses).*\n", "", prompt, flags=re.M)


def without_demand(prompt: str) -> str:
    prompt = re.sub(r"^(Objective|Circuit): .*\n", "", prompt, flags=re.M)
    return re.sub(r",? ?(at least|exactly) \d+ transistors?", "", prompt)


def test_the_cuts_cut() -> None:
    prompt = render_prompt(load_task("L4/case_17").view(), "C0")
    assert "at least 0.5 um" in prompt
    assert "exactly 3" in prompt
    whole, bare = read_prompt(prompt), read_prompt(without_rules(prompt))
    assert whole is not None
    assert bare is not None
    assert (whole.width, bare.width) == (0.5, DEFAULT_WIDTH)
    assert [f.demand for f in bare.flakes] == [3, 3, 3]
    alone = read_prompt(without_demand(prompt))
    assert alone is not None
    assert [(f.demand, f.gates) for f in alone.flakes] == [(1, ())] * 3
    assert alone.width == 0.5


def test_without_the_rules_it_fails_more_often() -> None:
    tasks = [load_task(t) for t in ("L1/case_1", "L2/case_14", "L2/case_18", "L3/case_15", "L3/case_37", "L4/case_25")]
    prompts = [render_prompt(task.view(), "C0") for task in tasks]
    assert all(strict(task, prompt) for task, prompt in zip(tasks, prompts))
    assert sum(strict(task, without_rules(prompt)) for task, prompt in zip(tasks, prompts)) <= 1


def test_without_the_demand_it_draws_one_transistor_per_flake() -> None:
    tasks = [load_task(t) for t in ("L1/case_3", "L2/case_14", "L2/case_18", "L3/case_15", "L3/case_28", "L4/case_25")]
    prompts = [render_prompt(task.view(), "C0") for task in tasks]
    assert all(strict(task, prompt) for task, prompt in zip(tasks, prompts))
    passed = [strict(task, without_demand(prompt)) for task, prompt in zip(tasks, prompts)]
    assert passed == [True, *[False] * 5]


def test_without_flakes_or_layers_it_draws_nothing() -> None:
    prompt = render_prompt(load_task("L1/case_3").view(), "C0")
    assert solve(re.sub(r"^flake_1 .*\n", "", prompt, flags=re.M)) == []
    assert solve(re.sub(r"^contacts, .*\n", "", prompt, flags=re.M)) == []


def test_a_moved_flake_moves_the_layout() -> None:
    prompt = render_prompt(load_task("L1/case_3").view(), "C0")
    moved = re.sub(r"\((-?[\d.]+), (-?[\d.]+)\)", lambda m: f"({float(m[1]) + 40:.2f}, {float(m[2]) - 7:.2f})", prompt)
    for here, there in zip(solve(prompt), solve(moved)):
        for a, b in zip(here["points"], there["points"]):
            assert (b[0] - a[0], b[1] - a[1]) == pytest.approx((40, -7), abs=0.02)


# -- feedback ----------------------------------------------------------------------------------------------------------


def test_messages_teach_limits_and_demands() -> None:
    prompt = without_demand(without_rules(render_prompt(load_task("L2/case_14").view(), "C0")))
    problem = read_prompt(prompt)
    assert problem is not None
    said = (
        "- width on gate: expected at least 0.8 um, found 0.5 um\n"
        "- width on contacts: expected at least 3 um, found 2 um\n"
        "- separation of contacts and gate: expected at least 0.25 um, found 0.1 um\n"
        "- spacing on contacts: expected at least 0.3 um, found 0 um\n"
        "- flake_1: expected at least 3 transistors, found 1"
    )
    learnt, variants = heed(problem, [said])
    assert (learnt.width, learnt.separation, learnt.spacing) == (0.8, 0.25, 0.3)
    assert ([f.demand for f in learnt.flakes], variants) == ([3], {})
    assert verdict_of(load_task("L2/case_14"), solve(prompt, said)).strict_success


def test_a_fault_that_teaches_nothing_asks_for_another_variant() -> None:
    problem = read_prompt(render_prompt(load_task("L2/case_15").view(), "C0"))
    assert problem is not None
    fault = "flake_2: expected at least 1 transistors, found 0"
    assert heed(problem, [fault, fault])[1] == {"flake_2": 2}
    assert heed(problem, ["expected no overlap of contacts and gate, found one"])[1] == {"flake_1": 1, "flake_2": 1}
    assert heed(problem, ["Your reply could not be read."]) == (problem, {})
    prompt = render_prompt(load_task("L2/case_15").view(), "C0")
    first, second = solve(prompt), solve(prompt, fault)
    assert first != second
    assert verdict_of(load_task("L2/case_15"), second).strict_success


def test_react_3_mends_what_the_messages_name(base_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = "edagym.baselines.llm.fet.whole.render_prompt"
    monkeypatch.setattr(shown, lambda view, scaffold: without_rules(render_prompt(view, scaffold)))
    record, _ = attempt_at(make("fet-plan-execute", base_url), "L3/case_37")
    assert not record["strict_success"]
    record, notes = attempt_at(make("fet-react-3", base_url), "L3/case_37")
    assert record["strict_success"]
    assert 2 <= len([n for n in notes if n["kind"] == "model"]) <= 3
