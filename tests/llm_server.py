"""A loopback chat-completions server that answers by script, faults included: real HTTP for tests of the client."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}


@dataclass
class Raw:
    """An answer as it goes over the wire.

    Attributes:
        status: HTTP status.
        body: Bytes of the body.
        headers: Further headers.
        announced: Content-Length to claim, if another than that of the body.
        wait_s: Pause before the answer.
        drip_s: Pause after each byte of the body.
    """

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    announced: int | None = None
    wait_s: float = 0.0
    drip_s: float = 0.0


Answer = str | Raw | Callable[[dict[str, Any]], "str | Raw"]


def completion(text: str | None, **changes: Any) -> Raw:
    """Return a chat completion with a text; `changes` replace top-level fields."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted",
        "choices": [choice],
        "usage": USAGE,
    }
    return Raw(body=json.dumps({**body, **changes}).encode())


def failure(status: int, message: str = "no", **headers: str) -> Raw:
    """Return an error of the API."""
    return Raw(status, json.dumps({"error": {"message": message, "type": "error"}}).encode(), headers)


@dataclass
class Scripted:
    """A running server.

    Attributes:
        base_url: Root of its API.
        requests: Bodies of the requests so far.
        headers: Their headers.
        times: When they came, monotonic seconds.
    """

    base_url: str
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def said(self, i: int = -1) -> str:
        """Return the text of the last message of a request."""
        text: str = self.requests[i]["messages"][-1]["content"]
        return text


@contextlib.contextmanager
def scripted(answers: Sequence[Answer] | Callable[[dict[str, Any]], str | Raw]) -> Iterator[Scripted]:
    """Run a server that gives these answers in order, the last one for ever; or those of a function of the request."""
    lock = threading.Lock()
    stopping = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                n = len(server.requests)
                server.requests.append(body)
                server.headers.append({k.lower(): v for k, v in self.headers.items()})
                server.times.append(time.monotonic())
            answer = answers if callable(answers) else answers[min(n, len(answers) - 1)]
            said = answer(body) if callable(answer) else answer
            raw = completion(said) if isinstance(said, str) else said
            stopping.wait(raw.wait_s)
            with contextlib.suppress(OSError):
                self._write(raw)

        def _write(self, raw: Raw) -> None:
            self.send_response(raw.status)
            headers = {"Content-Type": "application/json", **raw.headers}
            length = len(raw.body) if raw.announced is None else raw.announced
            for name, value in {**headers, "Content-Length": str(length)}.items():
                self.send_header(name, value)
            self.end_headers()
            if raw.drip_s:
                for i in range(len(raw.body)):
                    if stopping.wait(raw.drip_s):
                        break
                    self.wfile.write(raw.body[i : i + 1])
                    self.wfile.flush()
            else:
                self.wfile.write(raw.body)
            if raw.announced is not None:
                self.close_connection = True

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    server = Scripted(f"http://127.0.0.1:{httpd.server_address[1]}/v1")
    threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield server
    finally:
        stopping.set()
        httpd.shutdown()
        httpd.server_close()
