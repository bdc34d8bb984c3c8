"""Skips modules that need the synthesis engine where it is not installed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def need_engine() -> None:
    """Skip the calling module without the engine.

    Not `pytest.importorskip`: importing pyosys opens the symbols of every library that is loaded later to all others,
    and SDL then crashes. The project itself runs the engine in child processes only.
    """
    if find_spec("pyosys") is None:
        pytest.skip("needs pyosys", allow_module_level=True)
