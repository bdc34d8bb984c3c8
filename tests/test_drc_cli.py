"""`edagym drc` and `edagym import-posteda`."""

from __future__ import annotations

import json

import klayout.db as kdb
import klayout.rdb as rdb
import pytest
from drc_cases import bars, write_benchmark

from edagym.cli import main
from edagym.envs.drc.env import DRCEnv
from edagym.errors import ToolError
from edagym.task_assets.drc.suite import load_folder
from edagym.verifiers.drc import load_table
from edagym.verifiers.drc.lyrdb import read_lyrdb


@pytest.fixture
def run(capsys):
    def call(*argv: object) -> tuple[int, str, str]:
        code = main([str(a) for a in argv])
        return (code, *capsys.readouterr())

    return call


def test_violations(run, tmp_path):
    (tmp_path / "a.gds").write_bytes(bars(10))
    code, out, _ = run("drc", tmp_path / "a.gds")
    assert code == 1
    assert "1 violations" in out
    assert "M1.S.1" in out
    code, out, _ = run("drc", tmp_path / "a.gds", "--json")
    data = json.loads(out)
    assert code == 1
    assert data["counts"] == {"M1.S.1": 1}
    assert (data["total"], data["clean"], data["dbu_um"]) == (1, False, 0.001)
    (item,) = data["items"]
    assert item["category"] == "M1.S.1"
    assert item["cell_name"] in ("top_cell", "PAIR")
    assert item["values"][0].startswith("polygon: (")


def test_clean(run, tmp_path):
    (tmp_path / "a.gds").write_bytes(bars(40))
    code, out, _ = run("drc", tmp_path / "a.gds", "--json")
    assert code == 0
    assert json.loads(out)["items"] == []


def test_report_database(run, tmp_path):
    """KLayout reads what we write: categories, cells with an example placement, values in the cell's frame."""
    (tmp_path / "a.gds").write_bytes(bars(10))
    out = tmp_path / "a.lyrdb"
    code, text, _ = run("drc", tmp_path / "a.gds", "--lyrdb", out, "--json")
    (item,) = json.loads(text)["items"]
    assert code == 1
    database = rdb.ReportDatabase("")
    database.load(str(out))
    assert (database.top_cell_name, database.generator) == ("top_cell", "edagym drc")
    assert {c.name() for c in database.each_category()} == set(load_table().rules)
    (entry,) = database.each_item()
    assert database.category_by_id(entry.category_id()).name() == item["category"] == "M1.S.1"
    cell = database.cell_by_id(entry.cell_id())
    assert cell.name() == item["cell_name"] == "PAIR"
    (reference,) = cell.each_reference()
    assert database.cell_by_id(reference.parent_cell_id).name() == "top_cell"
    assert reference.trans == kdb.DCplxTrans(1.0, 0.0, False, 1.0, 0.5)
    assert [v.to_s() for v in entry.each_value()] == item["values"]
    (imported,) = read_lyrdb(out).items
    assert (imported.rule, imported.cell, imported.value) == ("M1.S.1", "PAIR", item["values"][0])


def test_report_database_of_a_clean_layout(run, tmp_path):
    (tmp_path / "a.gds").write_bytes(bars(40))
    assert run("drc", tmp_path / "a.gds", "--lyrdb", tmp_path / "a.lyrdb")[0] == 0
    assert read_lyrdb(tmp_path / "a.lyrdb").items == ()


def test_report_database_nowhere(run, tmp_path):
    (tmp_path / "a.gds").write_bytes(bars(10))
    for target in (tmp_path, tmp_path / "no" / "a.lyrdb"):
        code, out, err = run("drc", tmp_path / "a.gds", "--lyrdb", target)
        assert (code, out) == (2, "")
        assert str(target) in err


def test_rule_table_from_a_file(run, tmp_path):
    (tmp_path / "a.gds").write_bytes(bars(10))
    table = dict(load_table("tutorial").data)
    (tmp_path / "mine.json").write_text(json.dumps(table))
    code, out, _ = run("drc", tmp_path / "a.gds", "--rules", tmp_path / "mine.json", "--json")
    assert code in (0, 1)
    assert json.loads(out)["rules"] == table["name"]
    assert run("drc", tmp_path / "a.gds", "--rules", "tutorial", "--json")[1] == out


def test_progress_goes_to_standard_error(run, tmp_path):
    (tmp_path / "a.gds").write_bytes(bars(10))
    _, out, err = run("drc", tmp_path / "a.gds")
    assert "DRC" in err
    assert "DRC:" not in out
    assert run("drc", tmp_path / "a.gds", "--json")[2] == ""


def test_tool_error(run, tmp_path, monkeypatch):
    def broken(*args, **kwargs):
        raise ToolError("a worker process failed")

    monkeypatch.setattr("edagym.verifiers.drc.full_check", broken)
    (tmp_path / "a.gds").write_bytes(bars(10))
    code, out, err = run("drc", tmp_path / "a.gds")
    assert (code, out) == (3, "")
    assert "tool error" in err


def test_region_of_interest(run, tmp_path):
    (tmp_path / "a.gds").write_bytes(bars(10))
    assert run("drc", tmp_path / "a.gds", "--roi", "1.03,0.4,1.06,0.8")[0] == 1
    assert run("drc", tmp_path / "a.gds", "--roi", "1.045,0.4,1.06,0.8")[0] == 0


@pytest.mark.parametrize("roi", ["1,2,3", "a,b,c,d", "1,1,1,2", "0,0,inf,1", "nan,0,1,1"])
def test_bad_region(run, tmp_path, capsys, roi):
    (tmp_path / "a.gds").write_bytes(bars(10))
    with pytest.raises(SystemExit) as stop:
        run("drc", tmp_path / "a.gds", "--roi", roi)
    assert stop.value.code == 2


@pytest.mark.parametrize(
    ("data", "extra", "match"),
    [
        (b"", (), "a.gds"),
        (bars(10)[:80], (), "a.gds"),
        (bars(10), ("--rules", "none"), "unknown rule table"),
        (bars(10), ("--rules", "none.json"), "none.json"),
    ],
)
def test_bad_input(run, tmp_path, data, extra, match):
    (tmp_path / "a.gds").write_bytes(data)
    code, out, err = run("drc", tmp_path / "a.gds", *extra)
    assert code == 2
    assert out == ""
    assert match in err
    assert run("drc", tmp_path / "absent.gds")[0] == 2


def test_import_and_play(run, tmp_path):
    write_benchmark(tmp_path / "bench")
    code, out, _ = run("import-posteda", tmp_path / "bench", "--out", tmp_path / "out", "--json")
    data = json.loads(out)
    assert code == 1, "the second task's report is made up"
    assert data["counts_differ"] == ["posteda/Reasoning-L3/q12"]
    assert [t["violations"] for t in data["tasks"]] == [1, 2]
    assert list(load_folder(tmp_path / "out")) == ["posteda/Essential-L1/q3", "posteda/Reasoning-L3/q12"]
    env = DRCEnv(suite=str(tmp_path / "out"))
    _, info = env.reset(options={"task": "posteda/Essential-L1/q3"})
    assert (info["n_violations"], env.budget) == (1, 8)


def test_import_without_a_check(run, tmp_path):
    write_benchmark(tmp_path / "bench")
    code, out, _ = run("import-posteda", tmp_path / "bench", "--out", tmp_path / "out", "--no-check")
    assert code == 0
    assert "wrote 2 tasks" in out
    assert all(t.markers is None for t in load_folder(tmp_path / "out").values())
    assert run("import-posteda", tmp_path / "nothing")[0] == 2
