"""The engine on the public benchmark's tasks: counts of info.json, items of the sign-off report, cells included."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from edagym.verifiers.drc import DRCLayout, full_check, load_table
from edagym.verifiers.drc.deck import compare
from edagym.verifiers.drc.lyrdb import read_lyrdb

pytestmark = pytest.mark.real

# Large ones: 964 thousand shapes each.
ADDER = (
    *("drc_essential/L2/q9", "drc_essential/L3/q7", "drc_essential/L3/q9"),
    *("drc_reasoning/L1/q9", "drc_reasoning/L1/q11", "drc_reasoning/L3/q3", "drc_reasoning/L3/q5"),
)
OTHERS = (
    *(f"drc_essential/L1/q{n}" for n in range(1, 20, 2)),
    *(f"drc_essential/L2/q{n}" for n in range(1, 8, 2)),
    *(f"drc_essential/L3/q{n}" for n in range(1, 6, 2)),
    *(f"drc_reasoning/L1/q{n}" for n in range(1, 8, 2)),
    *(f"drc_reasoning/L2/q{n}" for n in range(1, 8, 2)),
    *("drc_reasoning/L3/q1", "drc_reasoning/L3/q7"),
)
# These tasks report only what lies inside a region (from their own decks), in micrometres.
REGIONS = {"drc_reasoning/L2/q5": (13.56, 13.28, 13.74, 13.37)}


def check(task: str, workers: int) -> None:
    folder = Path(os.environ["EDAGYM_REAL_DATA"]) / "posteda-dev" / "drc_bench" / task
    layout = DRCLayout.from_gds(folder / "top_cell.gds")
    report = full_check(layout, load_table("asap7"), roi=REGIONS.get(task), workers=workers)
    info = json.loads((folder / "info.json").read_text())
    assert report.counts == info["init_error_types"]
    assert report.total == info["init_errors_num"]
    comparison = compare(report, read_lyrdb(folder / "6_drc_count.rpt"))
    assert comparison.agree, comparison


@pytest.mark.parametrize("task", OTHERS)
def test_task(task: str) -> None:
    check(task, workers=1)


@pytest.mark.slow
@pytest.mark.parametrize("task", ADDER)
def test_large_task(task: str) -> None:
    check(task, workers=2)
