"""`ChatModel`: the one way to a language model, over any server that speaks the chat-completions protocol.

A call that fails for reasons of infrastructure (connection, timeout, 408, 409, 429, 5xx, a body that is no completion)
is retried with growing pauses; what fails for good raises `ModelError`, which never counts against an agent. An empty
or cut-off answer is the model's own and is returned. The API key is read from an environment variable when the first
call is made, is held by the SDK only, and is taken out of whatever a server sends back.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from queue import SimpleQueue
from typing import Any
from urllib.parse import urlsplit

from edagym.errors import ModelError

Message = dict[str, Any]

_RETRIED_STATUS = (408, 409, 425, 429)
_MAX_PAUSE_S = 60.0
_TOKENS_PER_PRICE = 1_000_000
# A "key" shorter than this is a placeholder for a local server, and may occur in any text.
_KEY_LENGTH = 8
# Several providers' keys could be names of variables; those of variables are rarely long, mixed and numbered.
_KEY_LIKE = re.compile(r"(?=.*[a-z])(?=.*\d)\w{20,}")
_MOST_TOKENS = 10**12


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Which model, where, and how it is asked. JSON-ready (`to_dict`) and free of credentials.

    Attributes:
        model: Name of the model at the server.
        base_url: Root of the server's API (``http://127.0.0.1:8000/v1``); None: the SDK's own.
        api_key_env: Environment variable that holds the API key. Servers with a `base_url` need none.
        temperature: Sampling temperature; None: the server's own.
        max_tokens: Most tokens of a reply; None: the server's own.
        timeout_s: Wall time of one request, seconds.
        attempt_timeout_s: Time that all calls of one attempt may take together, pauses included, seconds; None: no
            limit.
        retries: How often a failed request is repeated.
        backoff_s: Pause before the first repetition, seconds; it doubles each time, up to a minute.
        requests_per_minute: Rate limit of this process; None: no limit.
        prices: ``{"prompt": p, "completion": c}``, money per million tokens; None: no cost is reported.
        json_schema: Whether replies are constrained by a schema. A server that refuses schemas is asked without.
        thinking: Turn the model's reasoning on or off; None: the server's own. Sent as the chat template's
            ``enable_thinking`` to a `base_url`, else as a reasoning effort.
        reasoning_effort: Effort by name ("low", "high", ...); None: not sent.
        extra_body: Further fields of every request.
    """

    model: str
    base_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    temperature: float | None = None
    max_tokens: int | None = None
    timeout_s: float = 900.0
    attempt_timeout_s: float | None = None
    retries: int = 5
    backoff_s: float = 1.0
    requests_per_minute: float | None = None
    prices: Mapping[str, float] | None = None
    json_schema: bool = True
    thinking: bool | None = None
    reasoning_effort: str | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.model:
            raise ValueError("model must be named")
        if self.temperature is not None and not math.isfinite(self.temperature):
            raise ValueError(f"temperature must be finite, got {self.temperature!r}")
        for name in ("timeout_s", "attempt_timeout_s", "requests_per_minute", "max_tokens"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{name} must be positive, got {value!r}")
        if not (isinstance(self.retries, int) and 0 <= self.retries <= 100):
            raise ValueError(f"retries must be a whole number in 0..100, got {self.retries!r}")
        if not 0 <= self.backoff_s <= _MAX_PAUSE_S:
            raise ValueError(f"backoff_s must be in 0..{_MAX_PAUSE_S:g}, got {self.backoff_s!r}")
        if self.prices is not None and set(self.prices) != {"prompt", "completion"}:
            raise ValueError(f"prices must have the keys prompt and completion, got {sorted(self.prices)}")
        if self.prices is not None and not all(0 <= price < math.inf for price in self.prices.values()):
            raise ValueError(f"prices must be finite and not negative, got {dict(self.prices)}")
        if self.base_url is not None:
            parts = urlsplit(self.base_url)
            # The address goes into records.
            if parts.scheme not in ("http", "https") or "@" in parts.netloc or parts.query or parts.fragment:
                raise ValueError("base_url must be an http(s) address without user, password, query and fragment")
        if not re.fullmatch(r"[A-Za-z_]\w*", self.api_key_env) or _KEY_LIKE.match(self.api_key_env):
            # Whoever puts the key itself here would find it in every record; so the value is not repeated either.
            raise ValueError("api_key_env must be the name of an environment variable")

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ModelSpec:
        """Return the spec of `to_dict`'s output; raises `ValueError` for unknown or bad fields."""
        unknown = sorted(set(data) - {f.name for f in fields(cls)})
        if unknown or "model" not in data:
            raise ValueError(f"a model spec has the fields {[f.name for f in fields(cls)]}; unknown: {unknown}")
        return cls(**data)

    @classmethod
    def of(cls, model: ModelSpec | Mapping[str, Any] | str) -> ModelSpec:
        """Return a spec given as such, as its JSON form, or as the bare name of a model."""
        if isinstance(model, ModelSpec):
            return model
        return cls(model) if isinstance(model, str) else cls.from_dict(model)


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer.

    Attributes:
        text: The text; empty if the model said nothing.
        usage: ``{"prompt_tokens", "completion_tokens", "cost"}``; the cost is None without prices or token counts.
        finish_reason: The server's word for why it ended: "stop", "length" (cut off), ...
        retries: Repeated requests.
        seconds: Wall time, pauses included.
    """

    text: str
    usage: dict[str, Any]
    finish_reason: str
    retries: int
    seconds: float


class _RateLimit:
    """Spaces the requests of all threads of this process to one server and model."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0.0

    def wait(self, per_minute: float) -> None:
        with self._lock:
            now = time.monotonic()
            start = max(now, self._next)
            self._next = start + 60.0 / per_minute
        time.sleep(start - now)


_limits: dict[tuple[str | None, str], _RateLimit] = {}
_limits_lock = threading.Lock()


class _Retry(Exception):
    """A failure that may pass; `pause` is the server's own wish, seconds."""

    def __init__(self, why: str, pause: float | None = None) -> None:
        super().__init__(why)
        self.pause = pause


class ChatModel:
    """Asks a model.

    Args:
        spec: The model.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self._sdk: Any = None
        self._key = ""
        self._schema = spec.json_schema
        self._used_s = 0.0
        with _limits_lock:
            self._limit = _limits.setdefault((spec.base_url, spec.model), _RateLimit())

    def begin_attempt(self) -> None:
        """Start the clock of `ModelSpec.attempt_timeout_s` anew."""
        self._used_s = 0.0

    def ask(self, messages: Sequence[Message], *, schema: dict[str, Any] | None = None, role: str = "agent") -> Reply:
        """Return the model's answer.

        Args:
            messages: Chat messages; the content is a text or a list of text and image parts (`image_part`).
            schema: JSON schema of the answer; None: any text. The answer may still break it.
            role: Name of the schema, and of the agent in error messages.

        Raises:
            ModelError: If there is no answer after all retries, or the server refuses the request.
        """
        start = time.monotonic()
        retries = 0
        try:
            while True:
                try:
                    if self.spec.requests_per_minute is not None:
                        waiting = time.monotonic()
                        self._limit.wait(self.spec.requests_per_minute)
                        start += time.monotonic() - waiting  # waiting for one's turn is nobody's time
                    text, usage, reason = self._request(messages, schema, role, start)
                    return Reply(text, usage, reason, retries, round(time.monotonic() - start, 3))
                except _Retry as e:
                    if retries >= self.spec.retries:
                        raise ModelError(f"{role}: no answer after {retries} retries: {e}") from None
                    pause = e.pause if e.pause is not None else self.spec.backoff_s * 2**retries
                    retries += 1
                    time.sleep(min(pause, _MAX_PAUSE_S, max(self._left(start), 0.0)))
        except ModelError as e:
            e.retries, e.seconds = retries, round(time.monotonic() - start, 3)
            raise
        finally:
            self._used_s += time.monotonic() - start

    def _left(self, start: float) -> float:
        """Return the seconds that this attempt may still spend on calls."""
        limit = self.spec.attempt_timeout_s
        return math.inf if limit is None else limit - self._used_s - (time.monotonic() - start)

    def _request(
        self, messages: Sequence[Message], schema: dict[str, Any] | None, role: str, start: float
    ) -> tuple[str, dict[str, Any], str]:
        left = self._left(start)
        if left <= 0:
            raise ModelError(
                f"{role}: the attempt's time for model calls is used up",
                field="attempt_timeout_s",
                value=self.spec.attempt_timeout_s,
            )
        seconds = min(self.spec.timeout_s, left)
        client = self._client()
        body = self._body(messages, schema if self._schema else None, role)
        try:
            answer = _within(seconds, lambda: client.chat.completions.create(**body, timeout=seconds))
        except ModelError:
            raise
        except TimeoutError:
            raise _Retry(f"no answer within {seconds:g} s") from None
        except Exception as e:
            raise self._sorted(e, schema) from None
        return self._read(answer)

    def _client(self) -> Any:
        if self._sdk is None:
            try:
                import openai
            except ImportError as e:
                raise ModelError("language models need the extra llm: pip install edagym[llm]") from e
            # A line break at the end of a key, as files of secrets have it, would break every request.
            self._key = os.environ.get(self.spec.api_key_env, "").strip()
            if not self._key.isascii():
                raise ModelError(
                    "the API key has other characters than ASCII",
                    field="environment variable",
                    value=self.spec.api_key_env,
                )
            if not self._key and self.spec.base_url is None:
                raise ModelError("no API key", field="environment variable", value=self.spec.api_key_env)
            # The SDK does not retry: retries are counted here.
            self._sdk = openai.OpenAI(api_key=self._key or "none", base_url=self.spec.base_url, max_retries=0)
        return self._sdk

    def _body(self, messages: Sequence[Message], schema: dict[str, Any] | None, role: str) -> dict[str, Any]:
        spec = self.spec
        body: dict[str, Any] = {"model": spec.model, "messages": list(messages)}
        extra = dict(spec.extra_body)
        if spec.temperature is not None:
            body["temperature"] = spec.temperature
        if spec.max_tokens is not None:
            # Compatible servers know the older name; the newer models of the SDK's own server refuse it.
            body["max_tokens" if spec.base_url else "max_completion_tokens"] = spec.max_tokens
        if spec.reasoning_effort is not None:
            body["reasoning_effort"] = spec.reasoning_effort
        if spec.thinking is not None:
            if spec.base_url:
                extra["chat_template_kwargs"] = {
                    **extra.get("chat_template_kwargs", {}),
                    "enable_thinking": spec.thinking,
                }
            else:
                body.setdefault("reasoning_effort", "high" if spec.thinking else "none")
        if schema is not None:
            name = re.sub(r"\W", "_", role) or "answer"
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": name, "strict": True, "schema": schema},
            }
        if extra:
            body["extra_body"] = extra
        return body

    def _sorted(self, error: Exception, schema: dict[str, Any] | None) -> Exception:
        """Return what an exception of the SDK means: worth a retry, or final."""
        status = getattr(error, "status_code", None)
        text = self._clean(f"{type(error).__name__}: {error}")[:500]
        if status is None or status in _RETRIED_STATUS or status >= 500:
            return _Retry(text, _retry_after(error))
        if status in (400, 422) and schema is not None and self._schema and _about_schema(str(error)):
            self._schema = False
            return _Retry(text, 0.0)
        return ModelError(f"the model server refused the request: {text}", field="status", value=status)

    def _read(self, answer: Any) -> tuple[str, dict[str, Any], str]:
        """Return text, usage and finish reason of a completion; the SDK does not check what it gets."""
        try:
            choice = answer.choices[0]
            text = choice.message.content
            if not (text is None or isinstance(text, str)):
                raise TypeError("content is not a text")
            counts = [getattr(answer.usage, name, -1) for name in ("prompt_tokens", "completion_tokens")]
        except (AttributeError, LookupError, TypeError) as e:
            raise _Retry(f"the answer is no chat completion ({type(e).__name__})") from None
        known = all(isinstance(n, int) and 0 <= n <= _MOST_TOKENS for n in counts)
        prompt, completion = [int(n) for n in counts] if known else (0, 0)
        cost = None
        if known and self.spec.prices is not None:
            prices = self.spec.prices
            cost = (prompt * prices["prompt"] + completion * prices["completion"]) / _TOKENS_PER_PRICE
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "cost": cost}
        return self._clean(text or ""), usage, str(getattr(choice, "finish_reason", None) or "")

    def _clean(self, text: str) -> str:
        """Return a server's text without the API key, should it have sent it back, and without halves of characters."""
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return text.replace(self._key, "[api key]") if len(self._key) >= _KEY_LENGTH else text

    def __getstate__(self) -> dict[str, Any]:
        return {"spec": self.spec}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(state["spec"])  # type: ignore[misc]


def _about_schema(text: str) -> bool:
    return any(word in text.lower() for word in ("response_format", "json_schema", "schema", "grammar", "structured"))


def _retry_after(error: Exception) -> float | None:
    headers: Any = getattr(getattr(error, "response", None), "headers", {})
    try:
        wish = float(headers.get("retry-after"))
    except (TypeError, ValueError):
        return None
    return max(wish, 0.0) if math.isfinite(wish) else None


def _within(seconds: float, call: Callable[[], Any]) -> Any:
    """Run a call in a thread of its own and wait so long: a server that sends a byte now and then never times out.

    Raises:
        TimeoutError: If the call takes longer; its thread is left behind and dies with the connection.
    """
    done: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def run() -> None:
        try:
            done.put((call(), None))
        except BaseException as e:
            done.put((None, e))

    threading.Thread(target=run, daemon=True).start()
    try:
        # A little more than the SDK's own limit, which gives the better message.
        result, error = done.get(timeout=seconds + 1.0)
    except Exception:  # queue.Empty
        raise TimeoutError from None
    if error is not None:
        raise error
    return result


def image_part(data: bytes, kind: str = "jpeg") -> dict[str, Any]:
    """Return the part of a message's content that shows a picture.

    Args:
        data: The encoded picture.
        kind: Its format: "jpeg" or "png".
    """
    import base64

    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{base64.b64encode(data).decode()}"}}


def noted(messages: Sequence[Message]) -> list[Message]:
    """Return a copy of messages for notes: pictures are replaced by their digest and size."""
    return [{**m, "content": _noted_content(m.get("content"))} for m in messages]


def _noted_content(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return [_noted_part(p) if p.get("type") == "image_url" else dict(p) for p in content]


def _noted_part(part: Mapping[str, Any]) -> dict[str, Any]:
    import base64

    encoded = part["image_url"]["url"].partition("base64,")[2]
    data = base64.b64decode(encoded)
    return {"type": "image", "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
