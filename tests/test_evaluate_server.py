"""Model servers that fail: 500s, hangs, connections closed mid-stream, garbage. No attempt loses its verdict."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edagym.baselines.evaluate import evaluate
from edagym.baselines.records import read_records
from edagym.baselines.tables import level_rows

pytest.importorskip("openai")

POLICY = "evaluate_policies:Asker"
FAULTS = ("500", "429", "hang", "close", "garbage", "no completion")
HANG_S = 4.0
CANARY = "sk-canary-7f3d9a"

Fault = Callable[[int, str], str]
"""(number of the request, its text) -> one of `FAULTS`, or the content of a reply."""


def completion(text: str) -> bytes:
    return json.dumps(
        {
            "id": "x", "object": "chat.completion", "created": 0, "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }
    ).encode()  # fmt: skip


@contextmanager
def server(fault: Fault) -> Iterator[dict[str, Any]]:
    """Run a server; yields the model's settings, and under ``served`` what became of each request."""
    served: list[str] = []
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            pass

        def do_POST(self) -> None:
            asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
            with lock:
                kind = fault(len(served), asked)
                served.append(kind if kind in FAULTS else "ok")
            if kind in ("500", "429"):
                self.answer(int(kind), b'{"error": {"message": "no"}}')
            elif kind == "hang":
                time.sleep(HANG_S)
            elif kind == "close":
                body = completion("{}")
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) // 2])
            elif kind == "garbage":
                self.answer(200, b"\xff\xfe<html>busy")
            elif kind == "no completion":
                self.answer(200, b'{"choices": []}')
            else:
                self.answer(200, completion(kind))

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    host = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    host.daemon_threads = True
    thread = threading.Thread(target=host.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    url = f"http://127.0.0.1:{host.server_address[1]}/v1"
    model = {"model": "m", "base_url": url, "backoff_s": 0.0, "api_key_env": "EVALUATE_TEST_KEY"}
    try:
        yield {"model": model, "served": served}
    finally:
        host.shutdown()
        thread.join()
        host.server_close()


def ask(found: dict[str, Any], *, model_retries: int, timeout_s: float = 3.0, **kwargs: Any) -> list[dict[str, Any]]:
    options = {"model": {**found["model"], "retries": model_retries, "timeout_s": timeout_s}}
    return evaluate(POLICY, ["FET-L1"], options=options, progress=False, **kwargs)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALUATE_TEST_KEY", CANARY)


def test_a_stormy_server_costs_no_attempt_its_verdict(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    quick = [kind for kind in FAULTS if kind != "hang"]
    weather = [str(rng.choice(quick)) if rng.random() < 0.6 else "ok" for _ in range(400)]
    weather[: len(FAULTS)] = FAULTS  # each kind at least once

    def storm(number: int, asked: str) -> str:
        unreadable = number % 3 == 0
        return weather[number] if weather[number] != "ok" else "I'd draw a gate." if unreadable else '{"op": "submit"}'

    with server(storm) as found:
        records = ask(found, model_retries=20, out=tmp_path / "run")
    lost = sum(kind != "ok" for kind in found["served"])
    assert set(FAULTS) <= set(found["served"])
    assert all(r["verdict"] is not None and r["error_type"] is None for r in records)
    assert sum(r["model_retries"] for r in records) == lost > 0
    calls = sum(r["model_calls"] for r in records)
    assert (calls, sum(r["infra_retries"] for r in records)) == (len(found["served"]) - lost, 0)
    assert sum(r["unreadable"] for r in records) == calls - len(records) > 0
    assert all(r["tokens"] == {"prompt": 7 * r["model_calls"], "completion": 3 * r["model_calls"]} for r in records)
    assert read_records(tmp_path / "run") == records
    everything = b"".join(p.read_bytes() for p in (tmp_path / "run").rglob("*") if p.is_file())
    assert b"draw a gate" in everything
    assert CANARY.encode() not in everything


@pytest.mark.parametrize("kind", ["500", "hang", "close", "garbage"])
def test_a_dead_server_is_no_failure_of_the_agent(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "run"
    tasks = ["L1/case_1", "L1/case_2"]

    def dead_for_one(number: int, asked: str) -> str:
        return kind if "L1/case_1 " in asked else '{"op": "submit"}'

    with server(dead_for_one) as found:
        lost, scored = ask(found, model_retries=1, retries=1, timeout_s=1.0, tasks=tasks, out=out)
    assert (lost["error_type"], lost["paper_success"], lost["verdict"], lost["reward"]) == (
        "ModelError",
        None,
        None,
        None,
    )
    assert (lost["infra_retries"], found["served"].count(kind)) == (1, 4)
    assert scored["verdict"] is not None
    row = level_rows([lost, scored])[-1]
    assert (row["missing"], row["scored"], row["errors"]) == (1, 1, {"ModelError": 1})
    with server(lambda number, asked: '{"op": "submit"}') as well:  # at another port: no other settings
        again = ask(well, model_retries=1, retries=1, tasks=tasks, out=out, resume=True, retry_missing=True)
    assert [r["error_type"] for r in again] == [None, None]
    assert again[1] == scored
    assert set(well["served"]) == {"ok"}
