"""The DRC benchmark: what it measures exists and is measured as said; no figure is asserted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edagym.baselines.bench_drc import bench_drc, one_shape
from edagym.cli import main
from edagym.verifiers.drc import full_check, load_table


def test_the_lone_shape_violates_rules() -> None:
    assert full_check(one_shape(load_table()), load_table()).counts["M2.W.1"] == 1


def test_figures_of_a_block_and_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "small.gds"
    one_shape(load_table()).write_gds(path)
    before = path.read_bytes()
    result = bench_drc([path], edits=8, progress=False)
    assert set(result["recheck_ms"]) == {"block", "small"} == set(result["audit_ms"])
    for figures in result["recheck_ms"].values():
        assert 0 < figures["recheck"]["n"] <= 8
        assert figures["recheck"]["median"] <= figures["recheck"]["max"]
    assert path.read_bytes() == before
    json.dumps(result)


def test_command_refuses_no_edits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "drc", "--edits", "0"]) == 2
    assert "--edits" in capsys.readouterr().err
