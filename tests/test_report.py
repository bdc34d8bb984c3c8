"""`edagym report`: numbers, escaping, what must not leave a run, steps, and runs that cannot be read in part."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import math
import shutil
from pathlib import Path

import klayout.db as kdb
import numpy as np
import pytest
from report_runs import (
    EVIL,
    HOME,
    KEY,
    PATH,
    TASKS,
    Page,
    everything,
    flow_run,
    lines_of,
    random_run,
    repair_run,
    talking_run,
    unpack,
    write_lines,
)

from edagym.baselines.metrics import paired_bootstrap, revision_transitions, success_table
from edagym.baselines.report import build_report
from edagym.baselines.report.clean import Cleaner
from edagym.baselines.report.runs import arms_of, load_runs
from edagym.baselines.report.summary import percent, summarise
from edagym.baselines.report.text import tables
from edagym.baselines.tables import outcome_table
from edagym.cli import main
from edagym.errors import TaskError
from edagym.task_assets.fet.suite import load_task
from edagym.verifiers.fet.layout import FETLayout


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    top = tmp_path_factory.mktemp("runs")
    made = [random_run(top / "dice"), talking_run(top / "talk"), repair_run(top / "repair")]
    made.append(flow_run(top / "flow", lines_of(made[0])[0]))
    return made


@pytest.fixture(scope="module")
def report(runs):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPORT_TEST_KEY", "REPORTKEYVALUE")
        return build_report(runs)


@pytest.fixture(scope="module")
def page(report):
    return Page(report.html)


@pytest.fixture(scope="module")
def traces(page):
    return {int(n[6:]): unpack(text) for n, text in page.scripts.items() if n.startswith("trace-")}


def rows_of(page):
    return unpack(page.scripts["index"])["rows"]


# -- numbers -----------------------------------------------------------------------------------------------------------


def test_levels_agree_with_metrics(runs, report):
    records = lines_of(runs[1])
    found = success_table(outcome_table(records, "strict"), np.random.default_rng(0))
    family = next(f for f in report.numbers["families"] if f["family"] == "FET")
    row = next(r for r in family["rows"] if r["level"] == "all" and r["arm"].startswith("talker"))
    assert (row["tasks"], row["attempts"], row["scored"], row["missing"]) == (3, 6, 5, 1)
    for name in ("pass_1", "pass_k", "all_k"):
        own = getattr(found, name)
        assert row["strict"][name] == {"estimate": own.estimate, "low": own.low, "high": own.high}
    assert row["strict"]["pass_1"]["estimate"] == 1.0, "a lost attempt is no failure"
    assert math.isclose(next(r for r in family["rows"] if r["arm"] == "random")["strict"]["pass_1"]["estimate"], 0.0)


def test_page_and_markdown_show_the_tables(report, page):
    wanted = {title: [header, *rows] for title, header, rows in tables(report.numbers)}
    for title, rows in page.tables.items():
        header, *body = wanted[title]
        stripped = [
            h.removeprefix("strict ").removeprefix("paper ") if "success per level" in title else h for h in header
        ]
        assert rows == [stripped, *body], title
    assert set(wanted) - set(page.tables) == {t for t in wanted if "one check to the next" in t}
    lines = report.markdown.splitlines()
    for title, header, rows in tables(report.numbers):
        start = lines.index(f"## {title}") + 2
        assert lines[start].count(" | ") == len(header) - 1
        for line, row in zip(lines[start + 2 :], rows):
            for cell in row:
                if cell.replace(".", "").isdigit():
                    assert f"| {cell} |" in line
    assert EVIL not in report.markdown


def test_csv_agrees_with_the_page(report, page):
    lines = list(csv.DictReader(io.StringIO(report.csv)))
    family = page.tables["FET: success per level"]
    header, *rows = family
    for row in rows:
        own = [x for x in lines if x["family"] == "FET" and x["level"] == row[0] and x["policy"].lstrip("'") == row[1]]
        strict = next(x for x in own if x["measure"] == "strict_pass_1")
        values = {n: float(strict[n]) for n in ("estimate", "low", "high")}
        assert percent(values) == row[header.index("pass@1")]
        assert (strict["tasks"], strict["attempts"], strict["scored"]) == tuple(row[2:5])
    measures = {x["measure"] for x in lines}
    assert {"nis", "nis_nothing", "vrr", "difference_strict", "paper_all_k"} <= measures


def test_paired_differences_agree_with_metrics(runs):
    chosen = load_runs(runs[:2])
    family = summarise(chosen, arms_of(chosen))["families"][0]
    wanted = paired_bootstrap([1.0, 1.0, 1.0], [0.0, 0.0, 0.0], np.random.default_rng(0))
    (row,) = family["differences"]
    assert (row["first"], row["tasks"]) == ("random", 3)
    assert row["strict"] == {"estimate": wanted.estimate, "low": wanted.low, "high": wanted.high}
    assert percent(row["strict"], sign=True) == "+100.0 [+100.0, +100.0]"


def test_differences_leave_other_versions_of_a_task_out(runs, tmp_path):
    records = lines_of(runs[0])
    for record in records[:2]:
        record["task_hash"] = "0" * 64
    write_lines(tmp_path / "other", records)
    (row,) = build_report([runs[0], tmp_path / "other"], max_traces=0).numbers["families"][0]["differences"]
    assert (row["tasks"], row["other_tasks"]) == (2, 1)


def test_scores_stand_beside_doing_nothing(report):
    family = next(f for f in report.numbers["families"] if f["family"] == "PPA")
    row = next(r for r in family["rows"] if r["level"] == "all")
    assert family["scores"] == ["nis", "nis_nothing"]
    assert (row["nis"]["estimate"], row["nis_nothing"]["estimate"]) == (0.375, 0.1)
    assert "NIS, and NIS of doing nothing" in report.html


def test_losses_have_their_own_denominator(report, page):
    row = next(r for r in page.tables["Lost attempts"] if r[0].startswith("talker"))
    assert row[2:] == ["6", "5", "1 (16.7 %)", "0", "0", "ModelError: 1", "2"]
    use = next(r for r in page.tables["Use of resources"] if r[0].startswith("talker"))
    assert use[3] == "6"
    assert use[5:] == ["12", "6", "132", "84", "3.0000"]


def test_distribution_symptoms_transitions(report):
    family = next(f for f in report.numbers["families"] if f["family"] == "FET")
    talker = next(a for a in family["arms"] if a.startswith("talker"))
    assert family["distribution"]["strict"] == {"random": [3, 0, 0], talker: [0, 0, 2]}
    # The check of the trial that was given up counts, and is followed by the one that passed.
    assert family["transitions"][talker]["passed"] == revision_transitions([[["min_width:gate"], []]])["passed"] == 1
    assert family["failed_attempts"]["random"] == 6
    assert family["symptoms"]["random"]["transistor_count"] >= 1


def test_two_runs_of_one_policy_are_told_apart(runs, tmp_path):
    shutil.copytree(runs[0], tmp_path / "again")
    shutil.copytree(runs[0], tmp_path / "x" / "again")
    found = build_report([runs[0], tmp_path / "again", tmp_path / "x" / "again"], max_traces=0)
    assert [a["label"] for a in found.numbers["arms"]] == ["random (dice)", "random (again)", "random (again #2)"]


# -- what must not happen ----------------------------------------------------------------------------------------------


def test_texts_are_escaped(report, page):
    assert EVIL not in report.html
    assert "window.hacked" in everything(page, report.html), "the text is there, as text"
    ids = {n for t, a, n in page.attributes if t == "script" and a == "id"}
    assert page.tags.count("script") == len(ids) + 1
    assert not [a for _, a, _ in page.attributes if a.startswith("on")]
    assert "img" not in page.tags
    assert not [v for _, a, v in page.attributes if a in ("src", "href") and not v.startswith(("#", "data:,"))]


def test_the_page_may_load_nothing(report, page):
    policy = next(v for _, a, v in page.attributes if a == "content" and "default-src" in v)
    assert "default-src 'none'" in policy
    digest = base64.b64encode(hashlib.sha256(page.scripts[""].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert "unsafe" not in policy
    script = page.scripts[""]
    assert not [
        word for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(") if word in script
    ]


def test_no_credentials_and_no_machine_paths(runs, report, page):
    text = everything(page, report.html) + report.markdown + report.csv
    for secret in (KEY, "REPORTKEYVALUE", PATH, str(runs[0]), str(runs[0].parent), HOME):
        assert secret not in text
    assert "[credential]" in text
    assert "[path]" in text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        (f"see {HOME}/x/y.py, line 3", "see [path], line 3"),
        ("see " + "/".join(("", "root", "x", "y.py")) + ", line 3", "see [path], line 3"),
        ("layer 4/0 of L1/case_1, 1/2", "layer 4/0 of L1/case_1, 1/2"),
        ("config/config.mk and src/run/x.v", "config/config.mk and src/run/x.v"),
        ("C:\\Users\\me\\run.json", "[path]"),
        ("Authorization: Bearer abc.def-ghi_jkl", "Authorization: [credential]"),
        ('"api_key": "0123456789abc"', "[credential]"),
        ("http://me:pass@host/v1", "http://[credential]@host/v1"),
        ("task-keeps-its-name sk-short", "task-keeps-its-name sk-short"),
    ],
)
def test_cleaner(text, clean):
    found = Cleaner().text(text)
    assert clean in found
    assert ("[" in found) == ("[" in clean)


def test_long_and_odd_values():
    cleaner = Cleaner()
    text = cleaner.text("a" * 100_000)
    assert len(text) < 30_000
    assert "76000 characters left out" in text
    assert cleaner.data({"x": [float("nan"), "\ud800", 1, None, True]}) == {"x": ["nan", "?", 1, None, True]}
    deep: list = []
    for _ in range(200):
        deep = [deep]
    assert "nested too deep" in json.dumps(cleaner.data(deep))


def test_equal_runs_give_equal_bytes(runs, tmp_path):
    moved = []
    for run in runs:
        shutil.copytree(run, tmp_path / run.name)
        moved.append(tmp_path / run.name)
    first, second = build_report(runs), build_report(moved)
    assert (first.html, first.markdown, first.csv) == (second.html, second.markdown, second.csv)


# -- runs that cannot be read in part ----------------------------------------------------------------------------------


def test_broken_lines_are_reported(runs, tmp_path):
    good = lines_of(runs[0])
    odd = [{**good[0], "metrics": None}, {**good[0], "strict_success": "yes"}, {**good[0], "failed": 3}]
    odd += [{**good[0], "tokens": []}, {**good[0], "folder": 1}, {"schema_version": 2}]
    write_lines(tmp_path / "run", good, '{"schema_version": 2, "suite": "FET')
    text = (tmp_path / "run" / "records.jsonl").read_text()
    broken = "".join(json.dumps(o) + "\n" for o in odd) + "garbage\n[]\n"
    (tmp_path / "run" / "records.jsonl").write_text(broken + text)
    (tmp_path / "run" / "run.json").write_text("{")
    found = build_report([tmp_path / "run"])
    messages = [f["message"] for f in found.numbers["faults"]]
    assert len(messages) == 1 + len(odd) + 2 + 1
    assert any("cut short" in m for m in messages)
    assert not [m for m in messages if str(tmp_path) in m]
    assert "line 7 of records.jsonl" in found.html
    assert found.numbers["runs"] == [{"run": "run", "records": 6}]
    assert found.shown == 0
    assert "6 attempts have no files" in found.markdown


def test_runs_without_records_are_refused(tmp_path):
    with pytest.raises(TaskError, match="records"):
        build_report([tmp_path])
    (tmp_path / "records.jsonl").write_text("\n")
    with pytest.raises(TaskError, match="no readable record"):
        build_report([tmp_path])
    with pytest.raises(TaskError, match="max_traces"):
        build_report([tmp_path], max_traces=-1)


def test_records_of_the_first_schema(runs, tmp_path):
    new = lines_of(runs[0])
    kept = ("suite", "task_id", "policy", "privileged", "deterministic", "run_seed", "seed", "criterion", "is_success")
    kept += ("paper_success", "strict_success", "ended", "error", "reward", "charged", "budget", "refused", "failed")
    kept += ("metrics", "versions")
    old = []
    for r in new:
        old.append({"schema_version": 1, "episode": r["attempt"], "unreadable": 0, **{k: r[k] for k in kept}})
        old[-1]["artefacts"] = {"trace": f"{r['folder']}/trace.json", "gds": f"{r['folder']}/layout.gds"}
    shutil.copytree(runs[0] / "attempts", tmp_path / "old" / "attempts")
    write_lines(tmp_path / "old", old)
    before, after = build_report([runs[0]]), build_report([tmp_path / "old"])
    assert before.numbers["families"][0]["rows"] == after.numbers["families"][0]["rows"]
    assert not after.numbers["faults"]
    assert after.shown == 6
    assert Page(after.html).scripts["trace-0"]


def test_folders_outside_the_run_are_not_read(runs, tmp_path):
    records = [{**r, "folder": f"../{runs[0].name}/{r['folder']}"} for r in lines_of(runs[0])]
    write_lines(runs[0].parent / "sly", records)
    assert build_report([runs[0].parent / "sly"]).shown == 0


def test_traces_that_cannot_be_read(runs, tmp_path):
    shutil.copytree(runs[0], tmp_path / "run")
    records = lines_of(runs[0])
    (tmp_path / "run" / records[0]["folder"] / "trace.json").write_text("{")
    for name in ("no_such", "L1/case_1"):
        records[1]["task_id" if name == "no_such" else "suite"] = name
    write_lines(tmp_path / "run", records)
    found = build_report([tmp_path / "run"])
    scripts = Page(found.html).scripts
    rows = unpack(scripts["index"])["rows"]
    said = [unpack(scripts[f"trace-{i}"])["faults"] for i in range(len(rows))]
    assert sum("no trace" in "".join(s) for s in said) == 1
    assert sum("no pictures" in "".join(s) for s in said) == 1


# -- size --------------------------------------------------------------------------------------------------------------


def test_size_is_bounded_and_said(runs):
    few = build_report(runs, max_traces=4)
    scripts = Page(few.html).scripts
    rows = unpack(scripts["index"])["rows"]
    assert few.shown == 4
    assert len(rows) == 15
    assert "4 of 15 attempts can be opened" in few.html
    assert "4 of 15 attempts can be opened" in few.markdown
    # Every policy is there.
    assert len({row[0] for i, row in enumerate(rows) if f"trace-{i}" in scripts}) == 4
    tiny = build_report(runs, max_bytes=7000)
    assert sum(len(t) for n, t in Page(tiny.html).scripts.items() if n.startswith("trace-")) <= 7000
    assert 0 < tiny.shown < 15
    assert build_report(runs, max_traces=0).shown == 0


# -- steps -------------------------------------------------------------------------------------------------------------


def test_last_frame_is_the_saved_layout(runs, page, traces):
    records = {(r["policy"], r["task_id"], r["attempt"]): r for r in lines_of(runs[0])}
    checked = 0
    for i, row in enumerate(rows_of(page)):
        record = records.get(("random", row[3], row[4])) if row[0] == 0 else None
        if record is None:
            continue
        task = load_task(record["task_id"])
        layout = FETLayout.from_gds_bytes((runs[0] / record["folder"] / "layout.gds").read_bytes(), task.layers)
        trace = traces[i]
        assert not trace["faults"]
        scene = trace["scene"]
        for layer, shapes in zip(scene["layers"], trace["steps"][-1]["shapes"]):
            drawn = kdb.Region()
            for index in shapes:
                hull, *holes = scene["polygons"][index]
                polygon = kdb.Polygon([kdb.Point(*p) for p in zip(hull[::2], hull[1::2])])
                for hole in holes:
                    polygon.insert_hole([kdb.Point(*p) for p in zip(hole[::2], hole[1::2])])
                drawn.insert(polygon)
            assert (drawn ^ layout.region(layer["name"])).is_empty()
        assert not any(trace["first"]["shapes"]), "an attempt starts without shapes"
        checked += 1
    assert checked == 6


def test_given_up_trials_and_conversations(page, traces):
    i = next(i for i, r in enumerate(rows_of(page)) if "notes" in traces.get(i, {}) and len(traces[i]["notes"]) == 4)
    trace = traces[i]
    assert trace["starts"] == 2
    assert [s["segment"] for s in trace["steps"]][:3] == [0, 0, 1]
    assert "1 lines of notes.jsonl cannot be read" in trace["faults"]
    assert [n["step"] for n in trace["notes"]] == [0, 2, 2, 2]
    assert trace["notes"][1]["gave_up"] == 2
    first = trace["notes"][0]
    assert first["reply"].startswith("</script>")
    assert [role for role, _ in first["messages"]] == ["system", "user"]
    # The same prompt stands in the page once.
    assert trace["notes"][3]["messages"][0] == first["messages"][0]
    assert "[image, 1234 bytes" in trace["texts"][trace["notes"][3]["messages"][2][1]]
    # After the fresh start the layout is empty again but for the first edit.
    assert sum(map(len, trace["steps"][2]["shapes"])) == 1
    assert "prompt" not in trace, "the real prompts are there"


def test_scripted_attempts_show_the_task_as_a_text(page, traces):
    i = next(i for i, r in enumerate(rows_of(page)) if r[0] == 0)
    assert load_task(TASKS[0]).objective in traces[i]["prompt"]
    assert rows_of(page)[i][-1] == load_task(TASKS[0]).objective


def test_repairs_show_the_violations(page, traces):
    i = next(i for i, r in enumerate(rows_of(page)) if r[1] == "DRC-Essential-L1")
    trace = traces[i]
    assert trace["first"]["marks"]
    assert "marks" not in trace["steps"][-1], "clean after the last check"
    assert trace["first"]["shapes"] != trace["steps"][-1]["shapes"]
    (x1, y1, x2, y2), dbu = trace["scene"]["bounds"], trace["scene"]["dbu"]
    for _, box in trace["first"]["marks"]:
        assert x1 * dbu <= box[0] <= box[2] <= x2 * dbu
        assert y1 * dbu <= box[1] <= box[3] <= y2 * dbu


def test_designs_show_their_changes(page, traces):
    i = next(i for i, r in enumerate(rows_of(page)) if r[1] == "PPA-Area-L1")
    trace = traces[i]
    assert "CORE_UTILIZATION" in trace["steps"][0]["diff"]
    assert trace["design"]["diff"] == trace["steps"][0]["diff"]
    assert "diff" not in trace["steps"][1]
    assert set(trace["design"]["targets"]) == {"die_area"}
    assert trace["design"]["final"]["die_area"] == 178.0


# -- command -----------------------------------------------------------------------------------------------------------


def test_command(runs, tmp_path, capsys):
    out = tmp_path / "new" / "r.html"
    args = ["report", *map(str, runs[:2]), "--out", str(out), "--max-traces", "2", "--title", "A < B"]
    assert main([*args, "--markdown", str(tmp_path / "r.md"), "--csv", str(tmp_path / "r.csv"), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["shown"] == 2
    assert Path(out).read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert "<title>A &lt; B</title>" in out.read_text(encoding="utf-8")
    assert (tmp_path / "r.md").read_text(encoding="utf-8").startswith("# ")
    assert (tmp_path / "r.csv").read_text(encoding="utf-8").startswith("family,level")
    assert main(["report", str(tmp_path / "nothing"), "--out", str(out)]) == 2
