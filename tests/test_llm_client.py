"""The model client over real HTTP: retries, faults, timeouts, schemas, usage, rate limit, and no key anywhere."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from llm_server import Raw, completion, failure, scripted

from edagym.baselines.llm.client import ChatModel, ModelSpec, image_part, noted
from edagym.errors import ModelError, ToolError

pytest.importorskip("openai")

KEY = "sk-canary-8f3a61"
ASK = [{"role": "user", "content": "hello"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def chat(url: str, **options: Any) -> ChatModel:
    return ChatModel(ModelSpec("m", **{"base_url": url, "backoff_s": 0.0, "timeout_s": 10.0, **options}))


def test_an_answer_with_usage_and_cost() -> None:
    with scripted(["hi"]) as server:
        model = chat(server.base_url, prices={"prompt": 2.0, "completion": 10.0}, temperature=0.5, max_tokens=77)
        reply = model.ask(ASK)
    assert (reply.text, reply.finish_reason, reply.retries) == ("hi", "stop", 0)
    assert reply.usage == {"prompt_tokens": 1000, "completion_tokens": 100, "cost": pytest.approx(0.003)}
    assert reply.seconds >= 0
    assert server.requests == [{"model": "m", "messages": ASK, "temperature": 0.5, "max_tokens": 77}]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


def test_without_prices_or_counts_there_is_no_cost() -> None:
    with scripted([completion("a"), completion("b", usage=None)]) as server:
        assert chat(server.base_url).ask(ASK).usage["cost"] is None
        reply = chat(server.base_url, prices={"prompt": 1.0, "completion": 1.0}).ask(ASK)
    assert reply.usage == {"prompt_tokens": 0, "completion_tokens": 0, "cost": None}


CUT = Raw(body=completion("x").body[:60], announced=len(completion("x").body))
FAULTS = {
    "500": failure(500),
    "503": failure(503),
    "429": failure(429),
    "408": failure(408),
    "cut off": CUT,
    "empty": Raw(body=b""),
    "no JSON": Raw(body=b"\x00\xff garbage"),
    "HTML": Raw(body=b"<html>gateway</html>", headers={"Content-Type": "text/html"}),
    "another object": Raw(body=b'{"hello": [1]}'),
    "a list": Raw(body=b"[1, 2]"),
    "no choices": completion("x", choices=[]),
    "choices of another kind": completion("x", choices=7),
    "content of another kind": completion("x", choices=[{"index": 0, "message": {"content": {"a": 1}}}]),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_of_the_server_is_retried_and_counted(fault: Raw) -> None:
    with scripted([fault, fault, "good"]) as server:
        reply = chat(server.base_url).ask(ASK)
    assert (reply.text, reply.retries, len(server.requests)) == ("good", 2, 3)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_lasting_fault_is_a_model_error(fault: Raw) -> None:
    with scripted([fault]) as server, pytest.raises(ModelError, match="no answer after 2 retries") as caught:
        chat(server.base_url, retries=2).ask(ASK)
    assert (caught.value.retries, len(server.requests)) == (2, 3)
    assert isinstance(caught.value, ToolError)


def test_a_dead_server_is_a_model_error() -> None:
    with scripted(["x"]) as server:
        url = server.base_url
    with pytest.raises(ModelError, match="no answer after 1 retries"):
        chat(url, retries=1).ask(ASK)


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_a_refused_request_is_final(status: int) -> None:
    with scripted([failure(status, "bad request")]) as server, pytest.raises(ModelError, match="refused"):
        chat(server.base_url).ask(ASK)
    assert len(server.requests) == 1


def test_a_server_that_hangs_or_drips_is_given_up() -> None:
    drip = Raw(body=completion("late").body, drip_s=0.2)
    for fault in (Raw(wait_s=60.0), drip):
        with scripted([fault, "good"]) as server:
            reply = chat(server.base_url, timeout_s=1.0).ask(ASK)
        assert reply.text == "good"
        assert reply.retries >= 1


def test_the_attempt_has_a_time_of_its_own() -> None:
    with scripted([Raw(wait_s=60.0)]) as server:
        model = chat(server.base_url, timeout_s=20.0, attempt_timeout_s=1.0)
        for calls in (1, 1):  # the second call finds no time left, and asks nothing
            with pytest.raises(ModelError, match="used up"):
                model.ask(ASK)
            assert len(server.requests) == calls
        model.begin_attempt()
        with pytest.raises(ModelError, match="used up"):
            model.ask(ASK)
        assert len(server.requests) == 2


class Clock:
    """A clock that stands still but for the pauses."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("edagym.baselines.llm.client.time", made)
    return made


def test_pauses_grow_and_heed_the_server(clock: Clock) -> None:
    waits = [failure(429, **{"Retry-After": seconds}) for seconds in ("7", "900")]
    with scripted([failure(500), failure(500), *waits, "x"]) as server:
        reply = chat(server.base_url, backoff_s=0.5).ask(ASK)
    assert clock.pauses == [0.5, 1.0, 7.0, 60.0]
    assert reply.seconds == 68.5


def test_the_rate_limit_spaces_requests_of_all_models(clock: Clock) -> None:
    with scripted(["x"]) as server:
        replies = [chat(server.base_url, requests_per_minute=6.0).ask(ASK) for _ in range(3)]
    assert clock.pauses == [0.0, 10.0, 10.0]
    assert [r.seconds for r in replies] == [0.0, 0.0, 0.0]  # waiting for one's turn is nobody's time


def test_the_schema_goes_along_strictly() -> None:
    with scripted(["{}"]) as server:
        chat(server.base_url).ask(ASK, schema=SCHEMA, role="layer planner")
        chat(server.base_url, json_schema=False).ask(ASK, schema=SCHEMA)
    assert server.requests[0]["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "layer_planner", "strict": True, "schema": SCHEMA},
    }
    assert "response_format" not in server.requests[1]


def test_a_server_that_knows_no_schemas_is_asked_without() -> None:
    def answer(body: dict[str, Any]) -> Any:
        return failure(400, "response_format is not supported") if "response_format" in body else "free text"

    with scripted(answer) as server:
        model = chat(server.base_url)
        replies = [model.ask(ASK, schema=SCHEMA) for _ in range(2)]
    assert [(r.text, r.retries) for r in replies] == [("free text", 1), ("free text", 0)]
    assert ["response_format" in body for body in server.requests] == [True, False, False]


@pytest.mark.parametrize("text", [None, "", "  "])
def test_an_empty_answer_is_the_models_own(text: str | None) -> None:
    with scripted([completion(text)]) as server:
        assert chat(server.base_url).ask(ASK).text == (text or "")


def test_a_cut_off_answer_says_so() -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "[1,"}, "finish_reason": "length"}
    with scripted([completion("", choices=[choice])]) as server:
        assert chat(server.base_url).ask(ASK).finish_reason == "length"


def test_thinking_can_be_turned_on_and_off() -> None:
    with scripted(["x"]) as server:
        chat(server.base_url, thinking=False, extra_body={"chat_template_kwargs": {"other": 1}, "top_k": 5}).ask(ASK)
        chat(server.base_url, thinking=True, reasoning_effort="low").ask(ASK)
    assert server.requests[0]["chat_template_kwargs"] == {"other": 1, "enable_thinking": False}
    assert server.requests[0]["top_k"] == 5
    assert server.requests[1]["chat_template_kwargs"] == {"enable_thinking": True}
    assert server.requests[1]["reasoning_effort"] == "low"


def test_the_key_is_taken_out_of_what_comes_back() -> None:
    def echo(body: dict[str, Any]) -> Any:
        return failure(401, f"Incorrect API key provided: {KEY}.")

    with scripted(echo) as server, pytest.raises(ModelError) as caught:
        chat(server.base_url).ask(ASK)
    assert KEY not in str(caught.value)
    assert "[api key]" in str(caught.value)
    with scripted([f"your key is {KEY}"]) as server:
        model = chat(server.base_url)
        assert model.ask(ASK).text == "your key is [api key]"
    assert KEY.encode() not in pickle.dumps(model)
    assert pickle.loads(pickle.dumps(model)).spec == model.spec


def test_without_a_key_the_default_server_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ModelError, match="OPENAI_API_KEY"):
        ChatModel(ModelSpec("m")).ask(ASK)
    with scripted(["x"]) as server:
        assert chat(server.base_url).ask(ASK).text == "x"


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    with pytest.raises(ModelError, match=r"edagym\[llm\]"):
        chat("http://127.0.0.1:9/v1").ask(ASK)


def test_a_spec_survives_json_and_refuses_nonsense() -> None:
    spec = ModelSpec("m", "http://h:1/v1", prices={"prompt": 1.0, "completion": 2.0}, extra_body={"a": [1]})
    assert ModelSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    assert ModelSpec.of("m") == ModelSpec("m") == ModelSpec.of({"model": "m"})
    assert ModelSpec.of(spec) is spec
    for bad in (
        {"model": ""},
        {"model": "m", "timeout_s": 0},
        {"model": "m", "attempt_timeout_s": float("inf")},
        {"model": "m", "retries": -1},
        {"model": "m", "backoff_s": -1.0},
        {"model": "m", "prices": {"prompt": 1}},
        {"model": "m", "base_url": "http://me:secret@h/v1"},
        {"model": "m", "base_url": "http://h/v1?api-key=secret"},
        {"model": "m", "api_key_env": "sk-secret-secret"},
        {"model": "m", "key": "secret"},
        {},
    ):
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message depends on the case
            ModelSpec.from_dict(bad)
        assert "secret" not in str(caught.value)


def test_pictures_are_noted_by_their_digest() -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "see"}, image_part(b"jpeg bytes")]}
    part = noted([message])[0]["content"][1]
    assert part["type"] == "image"
    assert part["bytes"] == 10
    assert len(part["sha256"]) == 64
    assert message["content"][1]["image_url"]["url"].startswith("data:image/jpeg;base64,")
