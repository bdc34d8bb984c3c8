"""DRC tasks: folder form, refusal of bad files, what agents see, import of the public benchmark."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest
from drc_cases import bars, make_task, write_benchmark

from edagym.envs.drc.geometry import parse_value, value_box
from edagym.envs.drc.posteda import import_posteda, read_report
from edagym.errors import TaskError
from edagym.task_assets.drc.suite import SIZES, SUITES, load_task, task_folder, task_ids
from edagym.task_assets.drc.task import DRCTask, Limits
from edagym.verifiers.drc.guards import derive_limits

EDIT = {"op": "add_shape", "cell": "top_cell"}


@pytest.fixture(scope="module")
def task() -> DRCTask:
    return make_task(
        bars(10),
        golden=bars(30),
        reference=(EDIT,),
        steps=1,
        roi=(0.5, 0.25, 2.5, 1.0),
        limits=Limits({"M1": 0.75}, 0.5),
        metadata={"seed": 7},
    )


def test_the_engine_sees_the_gap(task):
    assert task.counts.keys() & {"M1.S.1"}
    assert task.total == sum(task.counts.values()) == len(task.violations)


def test_folder_round_trip(task, tmp_path):
    task.save(tmp_path / "a" / "b")
    again = DRCTask.load(tmp_path / "a" / "b")
    assert again == task
    again.save(str(tmp_path / "c"))
    for name in ("task.json", "layout.gds", "golden.gds"):
        assert (tmp_path / "a/b" / name).read_bytes() == (tmp_path / "c" / name).read_bytes()
    assert pickle.loads(pickle.dumps(task)) == task


def test_the_view_has_no_ground_truth(task):
    view = task.view()
    text = repr(view)
    assert "golden" not in text
    assert "reference" not in text
    assert EDIT["op"] not in text
    assert view.limits.kept("M1") == 0.75
    assert view.limits.kept("M2") == 0.9
    assert view.counts == task.counts


BAD = {
    "no object": (lambda d: [], "schema_version"),
    "schema": (lambda d: {**d, "schema_version": 99}, "schema_version"),
    "id": (lambda d: {**d, "id": 3}, "id"),
    "suite": (lambda d: {**d, "suite": "fun"}, "suite"),
    "level": (lambda d: {**d, "level": "L9"}, "level"),
    "budget": (lambda d: {**d, "budget": 1}, "budget"),
    "boolean budget": (lambda d: {**d, "budget": True}, "budget"),
    "roi": (lambda d: {**d, "roi": [0, 1, 2]}, "roi"),
    "empty roi": (lambda d: {**d, "roi": [1, 0, 1, 1]}, "roi"),
    "infinite roi": (lambda d: {**d, "roi": [0, 0, 1, float("inf")]}, "roi"),
    "count": (lambda d: {**d, "counts": {"M1.S.1": 0}}, "counts.M1.S.1"),
    "violations": (lambda d: {**d, "violations": {}}, "violations"),
    "violation": (lambda d: {**d, "violations": [{"category": "x"}]}, "values"),
    "share": (lambda d: {**d, "limits": {"min_area_kept": {"M1": 1.5}, "max_edited_area": None}}, "limits"),
    "area": (lambda d: {**d, "limits": {"min_area_kept": {}, "max_edited_area": -1}}, "limits.max_edited_area"),
    "hidden": (lambda d: {**d, "verification_only": None}, "verification_only"),
    "golden": (lambda d: _hidden(d, has_golden=False), "has_golden"),
    "edit": (lambda d: _hidden(d, reference=[{"no": "op"}]), "reference"),
    "steps": (lambda d: _hidden(d, steps=0), "steps"),
    "marker": (lambda d: _hidden(d, markers=[["M1.S.1", "blob", [[0, 0, 1, 1]], True, 1]]), "markers"),
    "marker ring": (lambda d: _hidden(d, markers=[["M1.S.1", "edge", [[0, 0, 1]], True, 1]]), "markers"),
    "markers": (lambda d: _hidden(d, markers=5), "markers"),
}


def _hidden(data, **changes):
    return {**data, "verification_only": {**data["verification_only"], **changes}}


@pytest.mark.parametrize("name", BAD)
def test_malformed_tasks_name_the_field(task, tmp_path, name):
    change, field = BAD[name]
    task.save(tmp_path)
    data = json.loads((tmp_path / "task.json").read_text())
    (tmp_path / "task.json").write_text(json.dumps(change(data)))
    with pytest.raises(TaskError) as caught:
        DRCTask.load(tmp_path)
    assert (caught.value.field or "").startswith(field)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "\x00"])
def test_unreadable_task_file(task, tmp_path, text):
    task.save(tmp_path)
    (tmp_path / "task.json").write_text(text)
    with pytest.raises(TaskError, match=r"task\.json"):
        DRCTask.load(tmp_path)


@pytest.mark.parametrize("name", ["task.json", "layout.gds", "golden.gds"])
def test_missing_file(task, tmp_path, name):
    task.save(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(TaskError, match=str(tmp_path)):
        DRCTask.load(tmp_path)


def test_suite_names():
    assert sum(SIZES.values()) == 70
    assert task_folder("Essential-L1/q3") == "essential/L1/q3"
    for suite in SUITES:
        assert all(task_folder(i) for i in task_ids(suite))
    with pytest.raises(TaskError, match="unknown suite"):
        task_ids("DRC-Fun")
    for bad in ("Essential-L1/q999", "../../etc", "Essential-L1/q1/.."):
        with pytest.raises(TaskError):
            load_task(bad)


# -- import ------------------------------------------------------------------------------------------------------------


def test_import(tmp_path):
    items = write_benchmark(tmp_path)
    one, two = import_posteda(tmp_path, markers=True)
    assert import_posteda(tmp_path / "drc_bench", markers=True) == [one, two]
    assert import_posteda(tmp_path / "drc_bench/drc_reasoning/L3/q12", markers=True) == [two]
    assert (one.id, two.id) == ("posteda/Essential-L1/q3", "posteda/Reasoning-L3/q12")
    assert (one.budget, two.budget, one.steps, two.steps) == (8, 16, None, 2)
    assert list(one.violations) == items["drc_essential/L1/q3"]
    assert list(two.violations) == items["drc_reasoning/L3/q12"]
    assert (one.roi, two.roi) == (None, (0.5, -1.0, 3.25, 2.0))
    assert one.gds == bars(10)
    assert one.golden is None
    assert one.limits == derive_limits([(1040, 500, 1050, 700)], 0.001)
    assert one.limits.max_edited_area > 0
    assert one.metadata["engine_counts"]["M1.S.1"] >= 1
    assert one.markers
    assert import_posteda(tmp_path)[0].markers is None
    one.save(tmp_path / "saved")
    assert DRCTask.load(tmp_path / "saved") == one


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("info.json", "{", "not JSON"),
        ("info.json", "[]", "no initial counts"),
        ("info.json", '{"init_error_types": {"M1.S.1": 1}}', "init_cell_name"),
        ("info.json", '{"init_error_types": {"M1.S.1": 2}, "init_cell_name": "x"}', "differ"),
        ("info.json", '{"init_error_types": {"M1.S.1": 1}, "init_cell_name": "x", "num_iterations": "8"}', "malformed"),
        ("6_drc_count.rpt", "<a>", "not a readable report"),
        ("6_drc_count.rpt", "<a/>", "not a report"),
        ("6_drc_count.rpt", None, "not a readable report"),
        ("top_cell.gds", None, "cannot be read"),
        ("top_cell.gds", "gds", "not a readable layout"),
        ("prompt.txt", None, "cannot be read"),
    ],
)
def test_import_names_the_file(tmp_path, name, text, match):
    write_benchmark(tmp_path)
    path = tmp_path / "drc_bench/drc_essential/L1/q3" / name
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(TaskError, match=match) as caught:
        import_posteda(tmp_path)
    assert name in str(caught.value)


def test_import_checks_layouts(tmp_path):
    write_benchmark(tmp_path)
    path = tmp_path / "drc_bench/drc_essential/L1/q3/top_cell.gds"
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(TaskError, match=r"top_cell\.gds"):
        import_posteda(tmp_path)


def test_nothing_to_import(tmp_path):
    with pytest.raises(TaskError, match="no DRC tasks"):
        import_posteda(tmp_path)
    with pytest.raises(TaskError, match="no DRC tasks"):
        import_posteda(tmp_path / "absent")


@pytest.mark.parametrize(
    ("text", "kind", "rings"),
    [
        ("edge: (0,0.5;-1,2)", "edge", (((0, 0.5), (-1, 2)),)),
        ("edge-pair: (0,0;0,1)|(2,1;2,0)", "edge_pair", (((0, 0), (0, 1)), ((2, 1), (2, 0)))),
        ("edge-pair: (0,0;0,1)/(2,1;2,-1e-3)", "edge_pair", (((0, 0), (0, 1)), ((2, 1), (2, -0.001)))),
        ("polygon: (0,0;0,1;1,0)", "polygon", (((0, 0), (0, 1), (1, 0)),)),
        ("polygon: (0,0;0,9;9,0/1,1;2,1;1,2)", "polygon", (((0, 0), (0, 9), (9, 0)), ((1, 1), (2, 1), (1, 2)))),
        ("box: (0,0;1,2)", "polygon", (((0, 0), (0, 2), (1, 2), (1, 0)),)),
    ],
)
def test_report_values(text, kind, rings):
    assert parse_value(text) == (kind, rings)


@pytest.mark.parametrize(
    "text", ["", "edge: (0,0)", "edge-pair: (0,0;1,1)", "polygon: (0,0;1,1)", "blob: (0,0;1,1)", "edge"]
)
def test_bad_report_values(text):
    with pytest.raises(TaskError):
        parse_value(text)


def test_value_box():
    assert value_box("edge-pair: (0,0;0,1)|(2,1;2,-3)") == (0, -3, 2, 1)


@pytest.mark.real
def test_import_of_the_real_tasks():
    root = Path(os.environ["EDAGYM_REAL_DATA"]) / "posteda-dev"
    if not root.is_dir():
        pytest.skip("no posteda-dev folder there")
    tasks = import_posteda(root)
    assert len(tasks) == 34
    assert sum(t.roi is not None for t in tasks) == sum(1 for _ in root.glob("drc_bench/*/*/*/drc.lydrc"))
    for task in tasks:
        folder = root / "drc_bench" / task.metadata["folder"]
        info = json.loads((folder / "info.json").read_text())
        assert task.total == info["init_errors_num"]
        assert task.budget == (16 if task.level == "L3" else 8)
        assert len(read_report(folder / "6_drc_count.rpt")) == task.total
        assert task.limits.max_edited_area is not None
