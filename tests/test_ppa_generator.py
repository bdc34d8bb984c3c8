"""Sweeps and the suite generator: settings, records, choices, greedy searches, and bytes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from ppa_engine import need_engine

from edagym.cli import main
from edagym.envs.ppa import generator
from edagym.envs.ppa import sweep as sweeps
from edagym.envs.ppa.generator import generate_suite, greedy_outcomes, sweep_axes
from edagym.envs.ppa.rewrites import REWRITES
from edagym.envs.ppa.sweep import Axis, base_design, default_axes, edits_of, grid, latin_hypercube, run_sweep
from edagym.envs.ppa.training import apply_settings, pareto_front
from edagym.errors import TaskError
from edagym.task_assets.ppa.config import parse_config
from edagym.task_assets.ppa.designs import load_design
from edagym.task_assets.ppa.sdc import parse_sdc
from edagym.task_assets.ppa.suite import SIZES, load_task
from edagym.task_assets.ppa.sweep import FOLDER, Sweep, SweepPoint, load_sweeps
from edagym.task_assets.ppa.task import METRICS
from edagym.verifiers.ppa.equivalence import check_equivalence

need_engine()
SUITE = FOLDER.parent / "suite"
SMALL = "traffic_light"


def settings(design, n=4):
    axes = default_axes(design)
    return axes, latin_hypercube(axes, n, np.random.default_rng(0))


def test_base_designs_state_every_axis():
    design = base_design(load_design("gcd"))
    config = parse_config(design.one(".mk")[1])
    assert {a.name for a in default_axes(design)} - {sweeps.PERIOD} <= set(config.knobs)
    assert parse_sdc(design.one(".sdc")[1]).io_fraction == pytest.approx(sweeps.IO_FRACTION)
    assert not config.warnings


def test_edits_lead_to_the_setting_and_only_differ():
    design = base_design(load_design("gcd"))
    axes = default_axes(design)
    for row in grid(axes)[::29]:
        changed = apply_settings(design, edits_of(design, axes, row))
        assert tuple(axis.base_value(changed) for axis in axes) == row
    base = tuple(axis.base_value(design) for axis in axes)
    assert edits_of(design, axes, base) == ()


def test_the_hypercube_takes_each_value_equally_often():
    axes = (Axis("A", ("0", "1")), Axis("B", ("x", "y", "z")))
    rows = latin_hypercube(axes, 12, np.random.default_rng(3))
    assert [sum(r[0] == v for r in rows) for v in "01"] == [6, 6]
    assert [sum(r[1] == v for r in rows) for v in "xyz"] == [4, 4, 4]


def test_a_stopped_sweep_goes_on(tmp_path, monkeypatch):
    design = base_design(load_design(SMALL))
    axes, rows = settings(design)
    record = tmp_path / "runs.jsonl"
    whole = run_sweep(SMALL, design, axes, rows, record=record, progress=False)
    lines = record.read_text().splitlines(keepends=True)
    record.write_text("".join(lines[:2]) + lines[2][:20])
    ran = []
    monkeypatch.setattr(sweeps, "run_one", lambda d, run=sweeps.run_one: ran.append(d) or run(d))
    again = run_sweep(SMALL, design, axes, rows, record=record, progress=False)
    assert again.points == whole.points
    assert len(ran) == len(lines) - 2
    again.save(tmp_path / "a.json")
    assert Sweep.load(tmp_path / "a.json") == whole


def test_a_failing_setting_is_a_row(tmp_path):
    design = base_design(load_design(SMALL))
    axes = (Axis("CORE_UTILIZATION", ("50", "100")),)
    found = run_sweep(SMALL, design, axes, grid(axes), progress=False)
    assert [p.values is None for p in found.points] == [False, True]


def test_shipped_tables_are_what_the_flow_gives():
    """One row of the tables, run anew."""
    table = next(s for s in load_sweeps() if s.name == "uart")
    point = table.points[101]
    assert sweeps.run_one(apply_settings(table.design, point.edits)).values == point.values


@pytest.mark.slow
@pytest.mark.parametrize("name", [p.stem for p in sorted(FOLDER.glob("*.json"))])
def test_shipped_tables_are_reproduced(name, tmp_path):
    axes = sweep_axes(name)
    table = next(s for s in load_sweeps() if s.name == name)
    found = run_sweep(name, base_design(load_design(name)), axes, grid(axes), function=table.function, progress=False)
    found.save(tmp_path / "t.json")
    assert (tmp_path / "t.json").read_bytes() == (FOLDER / f"{name}.json").read_bytes()


def test_a_group_is_regenerated_byte_for_byte(tmp_path):
    report = generate_suite(tmp_path, sweeps=load_sweeps(), only=["Area-L1"], progress=False)
    assert report["tasks"] == {"Area-L1": 5}
    assert same_bytes(tmp_path / "suite") == 5


@pytest.fixture
def shipped_starts(monkeypatch):
    """Takes the flow's reports on the starts from the shipped suite: one flow run per task less."""

    def with_report(task, flow):
        shipped = load_task(task.id)
        return dataclasses.replace(task, initial_metrics=shipped.initial_metrics, facts=shipped.facts)

    monkeypatch.setattr(generator, "_with_report", with_report)


@pytest.mark.usefixtures("shipped_starts")
def test_trade_offs_are_regenerated_byte_for_byte(tmp_path):
    report = generate_suite(tmp_path, sweeps=load_sweeps(), only=["Power-L2", "Multi-L1", "Multi-L2"], progress=False)
    assert report["tasks"] == {"Power-L2": 5, "Multi-L1": 20, "Multi-L2": 20}
    assert same_bytes(tmp_path / "suite") == 45


@pytest.mark.slow
def test_the_suite_is_regenerated_byte_for_byte(tmp_path):
    assert generate_suite(tmp_path, sweeps=load_sweeps(), progress=False)["tasks"] == SIZES
    assert same_bytes(tmp_path / "suite") == 75


def same_bytes(folder: Path) -> int:
    """Compare all files with the shipped ones; return the number of tasks."""
    files = [p.relative_to(folder) for p in sorted(folder.rglob("*")) if p.is_file()]
    for path in files:
        assert (folder / path).read_bytes() == (SUITE / path).read_bytes(), path
    return sum(p.name == "task.json" for p in files)


@pytest.mark.usefixtures("shipped_starts")
def test_another_seed_gives_other_tasks(tmp_path):
    generate_suite(tmp_path, 8, sweeps=load_sweeps(), only=["Power-L1"], progress=False)
    ours = [(SUITE / f"power/L1/q{n}/task.json").read_bytes() for n in range(1, 6)]
    assert ours != [(tmp_path / f"suite/power/L1/q{n}/task.json").read_bytes() for n in range(1, 6)]


def test_unknown_groups():
    with pytest.raises(TaskError, match="unknown groups"):
        generate_suite("x", only=["Multi-L3"])


def made_table(values: dict[tuple[str, str], tuple[float, float]]) -> Sweep:
    """A table of two knobs and made-up period and power."""
    points = tuple(
        SweepPoint(
            (
                {"op": "set_knob", "name": "ABC_AREA", "value": a},
                {"op": "set_knob", "name": "ASAP7_USE_VT", "value": b},
            ),
            dict(zip(METRICS, (*v, 1.0))),
        )
        for (a, b), v in values.items()
    )
    return Sweep("made", "embedded", "", base_design(load_design(SMALL)), points)


def test_greedy_searches():
    metrics = METRICS[:2]
    # Both knobs have to move, and each alone makes both metrics worse: no greedy search gets there.
    trap = made_table({("0", "RVT"): (2, 2), ("0", "LVT"): (3, 3), ("1", "RVT"): (3, 3), ("1", "LVT"): (1, 1)})
    assert not any(greedy_outcomes(trap, trap.points[0], trap.points[3], metrics).values())
    # One move does it.
    easy = made_table({("0", "RVT"): (2, 2), ("0", "LVT"): (1, 1), ("1", "RVT"): (3, 3), ("1", "LVT"): (4, 4)})
    assert all(greedy_outcomes(easy, easy.points[0], easy.points[1], metrics).values())
    # Two moves, downhill all the way.
    slope = made_table({("0", "RVT"): (4, 4), ("0", "LVT"): (3, 3), ("1", "RVT"): (2, 2), ("1", "LVT"): (1, 1)})
    found = greedy_outcomes(slope, slope.points[0], slope.points[3], metrics)
    assert found == {"single_knob": False, "single_metric": True, "steepest": True}
    # The best of one metric alone is not the point between.
    front = made_table({("0", "RVT"): (5, 5), ("0", "LVT"): (1, 4), ("1", "RVT"): (6, 1), ("1", "LVT"): (2, 2)})
    assert len(pareto_front(front.points, metrics)) == 3
    assert not greedy_outcomes(front, front.points[0], front.points[3], metrics)["single_metric"]


@pytest.mark.parametrize("rewrite", REWRITES, ids=[r.design for r in REWRITES])
def test_rewrites_keep_the_function(rewrite):
    rtl = load_design(rewrite.design)
    edit = rewrite.edit(rtl)
    text = rtl.files.sources[edit["path"]]
    assert text.count(edit["old"]) == 1
    changed = {**rtl.files.sources, edit["path"]: text.replace(edit["old"], edit["new"])}
    found = check_equivalence(rtl.files.sources, changed, rtl.top, rtl.interface)
    assert found.passed_strict, [c.message for c in found.checks]


def test_sweep_command(tmp_path, capsys):
    base_design(load_design(SMALL)).write(tmp_path / "design")
    arguments = ["sweep", "ppa", str(tmp_path / "design"), "--out", str(tmp_path / "out"), "--json"]
    axes = ["--axis", "ASAP7_USE_VT=RVT,SLVT", "--axis", "clock_period=150,300"]
    assert main([*arguments, *axes]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["settings"], data["completed"]) == (4, 4)
    assert data["front"]
    assert Sweep.load(data["table"]).engine == data["engine"]
    assert main([*arguments, "--points", "2"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"] == 2
    for bad in ("NO=1", "ABC_AREA=7", "clock_period=-1", "ABC_AREA="):
        assert main([*arguments, "--axis", bad]) == 2
