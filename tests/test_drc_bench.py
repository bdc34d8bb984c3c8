"""The DRC benchmark: what it measures exists and is measured as said; no figure is asserted."""

from __future__ import annotations

import json
from pathlib import Path

import klayout.db as kdb
import numpy as np
import pytest

from edagym.baselines.bench_drc import _random_edits, bench_drc, one_shape
from edagym.cli import main
from edagym.spaces.drc_edits import AddShape, ChangeShape, Delete, Move, MoveEdge
from edagym.verifiers.drc import DRCLayout, full_check, load_table


def test_the_lone_shape_violates_rules() -> None:
    assert full_check(one_shape(load_table()), load_table()).counts["M2.W.1"] == 1


def test_figures_of_a_block_and_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "small.gds"
    one_shape(load_table()).write_gds(path)
    before = path.read_bytes()
    result = bench_drc([path], edits=8, progress=False, workers=1)
    (name,) = result["full_check_s"]
    assert name.endswith("/small")
    for part in ("recheck_ms", "audit_ms", "reset_ms", "load_ms"):
        assert set(result[part]) == {"block", name}
    assert result["full_check_s"][name]["markers"] == len(full_check(one_shape(load_table()), load_table()).markers)
    assert result["full_check_s"][name]["peak_mb"] > 10
    for figures in result["recheck_ms"].values():
        assert 0 < figures["recheck"]["n"] <= 8
        assert figures["recheck"]["median"] <= figures["recheck"]["max"]
        assert sum(figures["layers"].values()) == figures["recheck"]["n"] == figures["recheck_wall"]["n"]
    assert path.read_bytes() == before
    json.dumps(result)


def test_command_refuses_no_edits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "drc", "--edits", "0"]) == 2
    assert "--edits" in capsys.readouterr().err


def test_the_sample_holds_every_shape_and_layer() -> None:
    """Rails too: no shape of the top cell is left out, and additions reach layers that only cells draw on."""
    table = load_table()
    layout = kdb.Layout()
    layout.dbu = 0.001
    top, cell = layout.create_cell("top"), layout.create_cell("cell")
    for name, box in (("M1", kdb.Box(0, 0, 20_000, 18)), ("M2", kdb.Box(0, 100, 18, 200))):
        top.shapes(layout.layer(table.layers[name].layer, 0)).insert(box)
    cell.shapes(layout.layer(table.layers["GATE"].layer, 0)).insert(kdb.Box(0, 0, 20, 100))
    top.insert(kdb.CellInstArray(cell.cell_index(), kdb.Trans(500, 500)))
    edits = list(_random_edits(DRCLayout(layout), table, np.random.default_rng(0), 100))
    assert {e.layer for e, _ in edits if isinstance(e, AddShape)} == {"GATE", "M1", "M2"}
    changed = [(e.layer, size) for e, size in edits if isinstance(e, ChangeShape)]
    assert set(changed) == {("M1", 20_000), ("M2", 100)}
    assert {type(e.change) for e, _ in edits if isinstance(e, ChangeShape)} == {Move, MoveEdge, Delete}
