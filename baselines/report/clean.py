"""What leaves a run for a report: texts without credentials and machine paths, of bounded length."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from typing import Any

MAX_TEXT = 24_000
"""Characters of one text; the middle of longer ones is left out."""

_ROOTS = "home|root|tmp|var|usr|opt|mnt|media|srv|etc|run|proc|private|Users|Volumes|work|workspace|scratch|data|nfs"
_PATH = re.compile(
    rf"(?<![\w./-])(?:file://)?/(?:{_ROOTS})/[^\s\"'<>:,;)\]}}|]+|(?<!\w)[A-Za-z]:\\(?:[^\s\"'<>:,;|]+\\)+[^\s\"'<>:,;|]*"
)
_SECRET = re.compile(
    # With a separator: names of cells and nets begin like keys (sky130_fd_sc_hd__dfxtp_1).
    r"\b(?:(?:sk|pk|rk|gsk|hf|ghp|gho|ghs|xox[abp]|glpat)[-_]|AKIA|AIza)[-_A-Za-z0-9]{14,}"
    r"|(?i:\bbearer\s+)[A-Za-z0-9._~+/-]{8,}=*"
    r"|(?i:\b(?:api[-_ ]?key|secret|password|passwd|access[-_ ]?token|auth[-_ ]?token)\b[\"']?\s*[:=]\s*)"
    r"[\"']?[^\s\"',;}]{6,}"
    r"|(?<=://)[^\s/@:]+:[^\s/@]+(?=@)"
)


class Cleaner:
    """Takes credentials and machine paths out of JSON-like data.

    Args:
        key_names: Environment variables that hold credentials, as the settings of the runs name them; their values are
            taken out wherever they stand.
    """

    def __init__(self, key_names: set[str] | frozenset[str] = frozenset()) -> None:
        values = (os.environ.get(name, "") for name in sorted(key_names))
        self._keys = tuple(v for v in values if len(v) >= 8)

    def text(self, text: str, limit: int = MAX_TEXT) -> str:
        """Return a text with credentials and paths replaced, its middle left out beyond `limit` characters."""
        for key in self._keys:
            text = text.replace(key, "[credential]")
        text = _PATH.sub("[path]", _SECRET.sub("[credential]", text))
        if len(text) > limit:
            left = len(text) - limit
            text = f"{text[: limit * 2 // 3]}\n[... {left} characters left out ...]\n{text[-(limit // 3) :]}"
        # Lone surrogates of broken replies cannot be written as UTF-8.
        return text.encode("utf-8", "replace").decode("utf-8")

    def data(self, value: Any, depth: int = 0) -> Any:
        """Return JSON-like data with every text cleaned; numbers that JSON has no form for become texts."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bool | int) or value is None:
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)
        if depth > 40:
            return "[nested too deep]"
        if isinstance(value, Mapping):
            return {self.text(str(k), 200): self.data(v, depth + 1) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.data(v, depth + 1) for v in value]
        return self.text(str(value), 200)


def key_names(settings: Any) -> set[str]:
    """Return the names of environment variables under ``api_key_env`` anywhere in a run's settings."""
    if isinstance(settings, Mapping):
        own = {v for k, v in settings.items() if k == "api_key_env" and isinstance(v, str)}
        return own.union(*(key_names(v) for v in settings.values()))
    return set().union(*(key_names(v) for v in settings)) if isinstance(settings, list) else set()
