"""Slow and real-data tests run only when asked for with `-m`, and say so when they are skipped."""

from __future__ import annotations

import os

import pytest

_HOW = {
    "slow": "takes minutes: run `make test-slow`",
    "real": "needs the original images: run `make test-real` with EDAGYM_REAL_DATA set",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked = config.option.markexpr
    if "real" in asked.replace("not real", "") and not os.environ.get("EDAGYM_REAL_DATA"):
        raise pytest.UsageError("EDAGYM_REAL_DATA is not set: name the folder with the original masks and micrographs")
    for item in items:
        for name, how in _HOW.items():
            if item.get_closest_marker(name) and name not in asked:
                item.add_marker(pytest.mark.skip(reason=how))
