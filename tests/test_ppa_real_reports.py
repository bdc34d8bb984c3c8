"""Logs and reports that the real flow wrote for the public benchmark's tasks, against the values stated for them."""

import json
import os
from pathlib import Path

import pytest

from edagym.envs.ppa.flow.orfs import make_report
from edagym.envs.ppa.flow.orfs_reports import parse_finish, parse_synth, read_metrics
from edagym.envs.ppa.posteda import reported_values

pytestmark = pytest.mark.real
# Column of ppa_facts.json -> metric of the last stage. What is called the worst negative slack there is the worst one.
METRICS = {
    "total_power_w": "finish__power__total",
    "die_area_um2": "finish__design__die__area",
    "core_area_um2": "finish__design__core__area",
    "stdcell_area_um2": "finish__design__instance__area__stdcell",
    "setup_wns_ps": "finish__timing__setup__ws",
    "setup_tns_ps": "finish__timing__setup__tns",
    "power_internal_w": "finish__power__internal__total",
    "power_switching_w": "finish__power__switching__total",
    "power_leakage_w": "finish__power__leakage__total",
}


def root() -> Path:
    return Path(os.environ["EDAGYM_REAL_DATA"]) / "posteda-dev"


def task_folders() -> list[Path]:
    """All task folders that are there, also such as ppa_facts.json does not know."""
    return sorted(p.parent.parent for p in (root() / "ppa_bench").rglob("reports/6_finish.rpt"))


def read(folder: Path):
    metrics, properties = read_metrics(folder / "logs")
    finish = parse_finish((folder / "reports/6_finish.rpt").read_text(), str(folder))
    synth = parse_synth((folder / "reports/synth_stat.txt").read_text(), str(folder))
    return metrics, properties, finish, synth


def test_every_log_and_report_is_read():
    folders = task_folders()
    assert len(folders) >= 41
    for folder in folders:
        metrics, properties, finish, synth = read(folder)
        report = make_report("public", metrics, finish, synth, str(folder))
        assert properties["run__flow__platform__time_units"] == "1ps"
        # Two decimals, three digits: what the report prints of the numbers that the logs hold.
        assert finish.worst_slack == pytest.approx(metrics["finish__timing__setup__ws"], abs=0.0051), folder
        assert finish.tns == pytest.approx(metrics["finish__timing__setup__tns"], rel=1e-5, abs=0.0051), folder
        assert finish.wns == min(finish.worst_slack, 0.0), folder
        for part, key in enumerate(("internal", "switching", "leakage")):
            assert finish.power["Total"][part] == pytest.approx(metrics[f"finish__power__{key}__total"], rel=0.006)
        assert finish.power["Total"][3] == pytest.approx(report.total_power, rel=0.006)
        assert set(finish.power) == {"Sequential", "Combinational", "Clock", "Macro", "Pad", "Total"}
        for part in range(3):
            groups = sum(v[part] for g, v in finish.power.items() if g != "Total")
            assert groups == pytest.approx(finish.power["Total"][part], rel=0.02, abs=1e-12), folder
        assert finish.critical_path[-1] == f"slack {finish.worst_slack:.2f}", folder
        assert len(finish.critical_path) > 3
        assert 0 < synth.area < report.die_area
        assert (synth.sequential_area or 0.0) <= synth.area
        assert synth.cells > 0
        values, stages = reported_values(folder)
        assert values == {m: report.value(m) for m in ("effective_period", "total_power", "die_area")}
        assert stages == metrics


def test_values_equal_those_stated():
    facts = json.loads((root() / "ppa_facts.json").read_text())
    assert len(facts) == 41
    several = []
    for fact in facts:
        folder = root() / "ppa_bench" / fact["task"]
        metrics, _, finish, synth = read(folder)
        assert {c: metrics[m] for c, m in METRICS.items()} == {c: fact[c] for c in METRICS}, fact["task"]
        assert synth.top == fact["design"]
        # The facts carry the first clock's period, as the public harness does; ours is the largest over the clocks.
        assert finish.first_period == fact["effective_period_ps"], fact["task"]
        if len(finish.periods) == 1:
            assert finish.effective_period == fact["effective_period_ps"]
        else:
            several.append((fact["design"], finish))
    # One design has three clocks. The initial value in its info.json is the largest too.
    ((design, finish),) = several
    assert design == "ethmac"
    assert finish.periods == {"mrx_clk_pad_i": 300.44, "mtx_clk_pad_i": 258.03, "wb_clk_i": 497.44}
    assert (finish.first_period, finish.effective_period) == (300.44, 497.44)
    (info,) = [f["info"] for f in facts if f["design"] == design]
    assert info["initial_effective_period"] == finish.effective_period


def test_initial_values_of_the_benchmark_are_these_reports():
    names = {"effective_period": "effective_period", "power": "total_power", "area": "die_area"}
    compared = 0
    for folder in task_folders():
        info = json.loads((folder / "info.json").read_text())
        values, _ = reported_values(folder)
        for public, metric in names.items():
            if info.get(f"initial_{public}") is not None:  # some are rounded to three digits there
                assert info[f"initial_{public}"] == pytest.approx(values[metric], rel=5e-3), (folder, metric)
                compared += 1
    assert compared >= 41
