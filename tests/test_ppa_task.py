"""Task format: folder and JSON round trips, what is hidden, what is refused; the suite's loader; sweep tables."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from ppa_cases import ENGINE, FormulaFlow, make_design, make_task

from edagym.envs.ppa.training import apply_settings, difference, distance, pareto_front, sample_task
from edagym.errors import TaskError
from edagym.task_assets.ppa import suite
from edagym.task_assets.ppa.sdc import parse_sdc
from edagym.task_assets.ppa.sweep import Sweep, SweepPoint, load_sweeps
from edagym.task_assets.ppa.task import METRICS, Bounds, PPATask, default_bounds

SETTINGS = [
    [
        {"op": "set_knob", "name": "ASAP7_USE_VT", "value": vt},
        {"op": "set_knob", "name": "CORE_UTILIZATION", "value": str(u)},
        {"op": "set_period", "period": period},
        {"op": "set_knob", "name": "PLACE_DENSITY", "value": density},
    ]
    for density in ("0.3", "0.8")
    for vt in ("RVT", "SLVT")
    for u in (30, 60, 95)
    for period in (250.0, 350.0)
]


def make_sweep() -> Sweep:
    points, flow = [], FormulaFlow()
    for edits in SETTINGS:
        try:
            report = flow.run(apply_settings(make_design(), edits)).report
            values = {m: report.value(m) for m in METRICS}
        except Exception:
            values = None
        points.append(SweepPoint(tuple(edits), values))
    return Sweep("adder", "embedded", ENGINE, make_design(), tuple(points), {"kind": "pipelined", "clock": "clk"})


def test_folder_round_trip(tmp_path):
    task = make_task()
    task.save(tmp_path, prompt="Do it.\n")
    assert PPATask.load(tmp_path) == task
    assert {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()} == {
        "config/config.mk",
        "config/constraint.sdc",
        "src/adder.v",
        "logs/6_report.json",
        "info.json",
        "task.json",
        "prompt.txt",
    }
    info = json.loads((tmp_path / "info.json").read_text())
    assert info["target_effective_period"] == 295.0
    assert info["initial_area"] == 100.0
    first = (tmp_path / "task.json").read_bytes()
    task.save(tmp_path)
    assert (tmp_path / "task.json").read_bytes() == first


def test_sets_a_and_b():
    task = make_task()
    assert task.to_improve == ("effective_period",)
    assert task.to_keep == ("total_power", "die_area")


def test_view_hides_the_reference():
    view = make_task().view()
    text = repr([getattr(view, f.name) for f in dataclasses.fields(view)])
    assert "reference" not in text
    assert "secret" not in text
    assert "ASAP7_USE_VT" not in text


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"schema_version": 2}, "schema_version"),
        ({"suite": "fun"}, "suite"),
        ({"level": "L9"}, "level"),
        ({"backend": "other"}, "backend"),
        ({"budget": 1}, "budget"),
        ({"budget": True}, "budget"),
        ({"targets": {}}, "targets"),
        ({"targets": {"speed": 1.0}}, "targets.speed"),
        ({"targets": {"die_area": -1.0}}, "targets.die_area"),
        ({"initial": {"die_area": 1.0}}, "initial"),
        ({"bounds": {"period": [300, 200], "io_fraction": None, "locked": []}}, "bounds.period"),
        ({"bounds": {"period": 300, "io_fraction": None}}, "bounds.period"),
        ({"bounds": {"period": [1, 2], "io_fraction": None}}, "locked"),
        ({"bounds": {"period": [1, 2], "io_fraction": None, "locked": ["X"]}}, "bounds.locked"),
        ({"verification_only": {}}, "reference"),
        ({"verification_only": {"reference": [3], "reference_values": {}, "metadata": {}}}, "reference"),
    ],
)
def test_malformed_tasks_name_the_field(change, field):
    task = make_task()
    with pytest.raises(TaskError) as caught:
        PPATask.from_dict({**task.to_dict(), **change}, task.design)
    assert caught.value.field == field


def test_unreadable_folders(tmp_path):
    with pytest.raises(TaskError, match="not a readable task file"):
        PPATask.load(tmp_path)
    make_task().save(tmp_path)
    (tmp_path / "config" / "config.mk").write_text("include x\n")
    with pytest.raises(TaskError, match="line 1: not an assignment"):
        PPATask.load(tmp_path)
    (tmp_path / "config" / "config.mk").unlink()
    with pytest.raises(TaskError, match="needs one"):
        PPATask.load(tmp_path)


def test_facts_do_not_follow_links(tmp_path):
    make_task().save(tmp_path / "t")
    (tmp_path / "secret.json").write_text("{}")
    (tmp_path / "t" / "logs" / "link.json").symlink_to(tmp_path / "secret.json")
    assert set(PPATask.load(tmp_path / "t").facts) == {"logs/6_report.json"}
    with pytest.raises(TaskError, match="not a log"):
        make_task(facts={"../secret.json": "{}"})


def test_bounds():
    constraints = parse_sdc(make_design().one(".sdc")[1])
    assert default_bounds(constraints) == Bounds((150.0, 600.0), (0.2, 0.5), ("CORE_MARGIN",))
    assert default_bounds(parse_sdc("create_clock -name c -period 100\n")).io_fraction is None


# -- suite -------------------------------------------------------------------------------------------------------------


def test_suite_ids():
    assert sum(suite.SIZES.values()) == 75
    assert suite.task_folder("Multi-L2/q20") == "multi/L2/q20"
    with pytest.raises(TaskError, match="not a task id"):
        suite.task_folder("Multi-L9/q1/../../x")
    with pytest.raises(TaskError, match="unknown suite"):
        suite.task_ids("PPA-Fun")
    with pytest.raises(TaskError, match="unknown task"):
        suite.load_task("Multi-L1/q999")


def test_folders_of_tasks(tmp_path):
    for n in (1, 2, 10):
        make_task(f"Multi-L1/q{n}").save(tmp_path / "multi" / "L1" / f"q{n}")
    assert list(suite.load_folder(tmp_path)) == ["Multi-L1/q1", "Multi-L1/q2", "Multi-L1/q10"]
    make_task("Multi-L1/q1").save(tmp_path / "again")
    with pytest.raises(TaskError, match="same id"):
        suite.load_folder(tmp_path)
    with pytest.raises(TaskError, match="no task folders"):
        suite.load_folder(tmp_path / "multi" / "L1" / "q1" / "src")


# -- sweep tables ------------------------------------------------------------------------------------------------------


def test_sweep_round_trip(tmp_path):
    sweep = make_sweep()
    assert sum(p.values is None for p in sweep.points) == 8
    sweep.save(tmp_path / "adder.json")
    assert load_sweeps(tmp_path) == (sweep,)
    (tmp_path / "bad.json").write_text('{"schema_version": 1}')
    load_sweeps.cache_clear()
    with pytest.raises(TaskError, match="malformed sweep table"):
        load_sweeps(tmp_path)
    with pytest.raises(TaskError, match="no sweep tables"):
        load_sweeps(tmp_path / "nothing")


def test_difference_leads_from_one_setting_to_another():
    base, flow = make_design(), FormulaFlow()
    chosen = (*SETTINGS[::5], [])
    for start in chosen:
        for end in chosen:
            path = difference(base, start, end)
            found = apply_settings(apply_settings(base, start), path)
            if not any(e.get("value") == "95" for e in (*start, *end)):
                wanted = flow.run(apply_settings(base, end)).report
                assert flow.run(found).report == wanted
            assert (path == []) == (start == end)


@pytest.mark.parametrize("kind", ["performance", "power", "area", "multi"])
@pytest.mark.parametrize("level", ["L1", "L2"])
def test_sampled_tasks(kind, level):
    sweep, flow = make_sweep(), FormulaFlow()
    for seed in range(5):
        task = sample_task(np.random.default_rng(seed), [sweep], kind=kind, level=level)
        again = sample_task(np.random.default_rng(seed), [sweep], kind=kind, level=level)
        assert task == again
        assert (task.suite, task.level) == ("train", level)
        before = flow.run(task.design).report
        assert {m: before.value(m) for m in METRICS} == pytest.approx(dict(task.initial))
        assert task.to_improve
        after = flow.run(apply_settings(task.design, task.reference)).report
        assert all(after.value(m) <= t for m, t in task.targets.items())
        n = len(task.reference)
        assert {"L1": n == 1, "L2": 2 <= n <= 3}[level] or kind == "multi"
        assert len(task.targets) == (1 if kind != "multi" else 2 if level == "L1" else 3)


def test_sampling_refuses():
    with pytest.raises(TaskError, match="no such kind"):
        sample_task(np.random.default_rng(0), [make_sweep()], kind="speed")
    empty = dataclasses.replace(make_sweep(), points=())
    with pytest.raises(TaskError, match="hold no such task"):
        sample_task(np.random.default_rng(0), [empty])


def test_pareto_front():
    rows = [(1, 5), (2, 2), (5, 1), (3, 3), (2, 2), (2, 4)]
    points = [SweepPoint((), {"effective_period": a, "total_power": b, "die_area": 1.0}) for a, b in rows]
    points.append(SweepPoint((), None))
    front = pareto_front(points, ("effective_period", "total_power"))
    assert [points.index(p) for p in front] == [0, 1, 2, 1]
    assert distance(make_design(), SweepPoint(tuple(SETTINGS[0]), None), SweepPoint((), None)) == 4
