"""The engine on the public benchmark's tasks: counts of info.json, items of the sign-off report, cells included."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from edagym.verifiers.drc import DRCLayout, full_check, load_table
from edagym.verifiers.drc.deck import compare
from edagym.verifiers.drc.lyrdb import read_lyrdb

pytestmark = pytest.mark.real

BENCH = Path(os.environ.get("EDAGYM_REAL_DATA", "")) / "posteda-dev" / "drc_bench"
# Larger files than this hold hundreds of thousands of shapes.
_LARGE_BYTES = 1_000_000
# Tasks whose own deck reports only what lies inside a region, in micrometres. Copies of the benchmark without the decks
# need it written down.
REGIONS = {"drc_reasoning/L2/q5": (13.56, 13.28, 13.74, 13.37)}
_ROI = re.compile(r"^\s*roi_box\s*=\s*box\(([^)]*)\)", re.MULTILINE)


def tasks(large: bool) -> list[str]:
    """All task folders of the copy of the benchmark at hand that have a layout, by size."""
    if "EDAGYM_REAL_DATA" not in os.environ:
        return []
    layouts = sorted(BENCH.glob("drc_*/L*/q*/top_cell.gds"))
    return [str(p.parent.relative_to(BENCH)) for p in layouts if (p.stat().st_size > _LARGE_BYTES) == large]


def region(task: str) -> tuple[float, ...] | None:
    deck = BENCH / task / "drc.lydrc"
    match = _ROI.search(deck.read_text(encoding="utf-8")) if deck.is_file() else None
    if match is None:
        return REGIONS.get(task)
    return tuple(float(v.strip().removesuffix(".um")) for v in match[1].split(","))


def check(task: str, workers: int) -> None:
    folder = BENCH / task
    layout = DRCLayout.from_gds(folder / "top_cell.gds")
    report = full_check(layout, load_table("asap7"), roi=region(task), workers=workers)
    info = json.loads((folder / "info.json").read_text())
    assert report.counts == info["init_error_types"]
    assert report.total == info["init_errors_num"]
    comparison = compare(report, read_lyrdb(folder / "6_drc_count.rpt"))
    assert comparison.agree, comparison


@pytest.mark.parametrize("task", tasks(large=False))
def test_task(task: str) -> None:
    check(task, workers=1)


@pytest.mark.slow
@pytest.mark.parametrize("task", tasks(large=True))
def test_large_task(task: str) -> None:
    check(task, workers=2)


def test_the_benchmark_is_there() -> None:
    """So that no run passes on an empty folder."""
    assert len(tasks(large=False)) + len(tasks(large=True)) >= 30
