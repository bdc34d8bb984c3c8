"""Loopback HTTP server that speaks the chat-completions protocol and answers by computation.

Run ``python server.py --port 0``: the first line of output is ``{"port": N, "base_url": "http://127.0.0.1:N/v1"}``.
Endpoints: ``GET /v1/models`` and ``POST /v1/chat/completions`` (no streaming). Requests are served in threads; errors
have the form ``{"error": {"message", "type", "param", "code"}}``.

The reply comes from the first module whose ``matches(messages)`` holds: `fet_roles`, `posteda`, `fet`, as far as they
exist. `messages` have string content: text parts joined, images left out. ``reply(messages, schema)`` returns the text
of the assistant message. `schema` is the JSON schema of ``response_format``, or None.

Standard library, numpy, scipy and shapely only.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import json
import sys
import traceback
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

MODEL = "text-solver"
MODULES = ("fet_roles", "posteda", "fet")
NO_MATCH = "[]"
"""Reply to messages that no module reads: an empty list of actions."""

# Largest request body that is read, bytes: the longest prompts have some tens of kilobytes.
_MAX_BODY = 64 * 2**20
_HERE = Path(__file__).resolve().parent


class RequestError(Exception):
    """A request that the protocol refuses.

    Args:
        status: HTTP status.
        message: What is wrong.
        param: The offending field, or None.
    """

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param = status, message, param


def load_modules() -> list[ModuleType]:
    """Import the solver modules that exist, from this file's folder, as the stand-alone package ``text_solver``."""
    if "text_solver" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "text_solver", _HERE / "__init__.py", submodule_search_locations=[str(_HERE)]
        )
        assert spec is not None
        assert spec.loader is not None
        package = importlib.util.module_from_spec(spec)
        sys.modules["text_solver"] = package
        spec.loader.exec_module(package)
    return [importlib.import_module(f"text_solver.{n}") for n in MODULES if (_HERE / f"{n}.py").exists()]


def flat_text(content: Any) -> str:
    """Return the text of a message's content, which is a string, a list of parts, or null."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if not isinstance(content, list):
        raise RequestError(400, "content must be a string or a list of parts", "messages")
    texts = []
    for part in content:
        if not isinstance(part, dict) or "type" not in part:
            raise RequestError(400, "content parts must be objects with a type", "messages")
        if part["type"] == "text":
            texts.append(str(part.get("text", "")))
    return "\n".join(texts)


def read_request(body: Any) -> tuple[list[dict[str, str]], dict[str, Any] | None]:
    """Return messages (role and flat text) and the JSON schema asked for, or None.

    Raises:
        RequestError: If the request is malformed.
    """
    if not isinstance(body, dict):
        raise RequestError(400, "the body must be a JSON object")
    if not isinstance(body.get("model"), str):
        raise RequestError(400, "you must provide a model parameter", "model")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError(400, "messages must be a non-empty list", "messages")
    flat = []
    for message in messages:
        if not isinstance(message, dict) or message.get("role") not in ("system", "developer", "user", "assistant"):
            raise RequestError(400, "each message needs a role: system, developer, user or assistant", "messages")
        flat.append({"role": str(message["role"]), "content": flat_text(message.get("content"))})
    if body.get("stream"):
        raise RequestError(400, "streaming is not supported", "stream")
    form = body.get("response_format")
    if form is None:
        return flat, None
    if not isinstance(form, dict) or form.get("type") not in ("text", "json_object", "json_schema"):
        raise RequestError(400, "response_format.type must be text, json_object or json_schema", "response_format")
    if form["type"] != "json_schema":
        return flat, None
    schema = form.get("json_schema")
    if not isinstance(schema, dict) or not isinstance(schema.get("schema"), dict):
        raise RequestError(400, "response_format.json_schema.schema must be an object", "response_format")
    return flat, schema["schema"]


def answer(modules: list[ModuleType], messages: list[dict[str, str]], schema: dict[str, Any] | None) -> str:
    """Return the reply of the first module that reads these messages."""
    for module in modules:
        if module.matches(messages):
            return str(module.reply(messages, schema))
    return NO_MATCH


def count_tokens(text: str) -> int:
    """Return a token estimate: a quarter of the characters, as is usual for English text."""
    return (len(text) + 3) // 4


class Handler(BaseHTTPRequestHandler):
    """One connection; `modules` is set by `make_server`."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    modules: ClassVar[list[ModuleType]] = []

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the client keeps the records."""

    def do_GET(self) -> None:
        """Serve the model list."""
        if self.path.rstrip("/") == "/v1/models":
            entry = {"id": MODEL, "object": "model", "created": 0, "owned_by": "local"}
            self._send(200, {"object": "list", "data": [entry]})
        else:
            self._fail(RequestError(404, f"unknown path {self.path}"))

    def do_POST(self) -> None:
        """Serve a chat completion."""
        try:
            length = self.headers.get("Content-Length", "")
            if not length.isdigit() or int(length) > _MAX_BODY:
                self.close_connection = True
                raise RequestError(400, "a Content-Length within limits is needed")
            raw = self.rfile.read(int(length))
            if self.path.rstrip("/") != "/v1/chat/completions":
                raise RequestError(404, f"unknown path {self.path}")
            try:
                body = json.loads(raw)
            except ValueError as e:
                raise RequestError(400, f"the body is not JSON: {e}") from e
            messages, schema = read_request(body)
            text = answer(self.modules, messages, schema)
        except RequestError as e:
            self._fail(e)
        except Exception:  # the real API answers a fault of its own with a 500, and the client must cope
            traceback.print_exc()
            self._fail(RequestError(500, "the server had an error while processing your request"))
        else:
            self._send(200, self._completion(body["model"], messages, text, raw))

    def _completion(self, model: str, messages: list[dict[str, str]], text: str, raw: bytes) -> dict[str, Any]:
        prompt, completion = sum(count_tokens(m["content"]) for m in messages), count_tokens(text)
        message = {"role": "assistant", "content": text}
        return {
            "id": "chatcmpl-" + hashlib.sha256(raw).hexdigest()[:24],
            "object": "chat.completion",
            "created": 0,
            "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt + completion,
            },
        }

    def _fail(self, error: RequestError) -> None:
        kind = "server_error" if error.status >= 500 else "invalid_request_error"
        body = {"error": {"message": error.message, "type": kind, "param": error.param, "code": None}}
        self._send(error.status, body)

    def _send(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def make_server(port: int = 0) -> ThreadingHTTPServer:
    """Return a server bound to a loopback port (0: any free one); call ``serve_forever`` on it."""
    handler = type("BoundHandler", (Handler,), {"modules": load_modules()})
    return ThreadingHTTPServer(("127.0.0.1", port), handler)


def main() -> None:
    """Run the server until it is interrupted."""
    parser = argparse.ArgumentParser(description="Chat-completions server that answers by geometry.")
    parser.add_argument("--port", type=int, default=0, help="loopback port; 0 takes a free one (default)")
    server = make_server(parser.parse_args().port)
    port = server.server_address[1]
    print(json.dumps({"port": port, "base_url": f"http://127.0.0.1:{port}/v1"}), flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()
