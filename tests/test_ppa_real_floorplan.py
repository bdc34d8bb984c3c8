"""The floorplan arithmetic against what the real flow printed for the public benchmark's tasks."""

import json
import os
import re
from pathlib import Path

import pytest

from edagym.envs.ppa.flow.floorplan import make_floorplan

pytestmark = pytest.mark.real
BOX = ("DIE_AREA", "CORE_AREA")


def test_die_and_core_areas_equal_the_reported_values():
    root = Path(os.environ["EDAGYM_REAL_DATA"]) / "posteda-dev"
    facts = json.loads((root / "ppa_facts.json").read_text())
    wrong = []
    for fact in facts:
        statistics = (root / "ppa_bench" / fact["task"] / "reports/synth_stat.txt").read_text()
        area = float(re.findall(r"Chip area for .*: ([\d.e+]+)", statistics)[-1])
        knobs = fact["knobs"]
        plan = make_floorplan(
            area,
            float(knobs["CORE_UTILIZATION"]) if "CORE_UTILIZATION" in knobs else None,
            float(knobs.get("CORE_ASPECT_RATIO", 1)),
            float(knobs.get("CORE_MARGIN", 1)),
            *(tuple(map(float, knobs[name].split())) if name in knobs else None for name in BOX),
        )
        ours = (f"{plan.die_area:.6g}", f"{plan.core_area:.6g}")
        if ours != (f"{fact['die_area_um2']:.6g}", f"{fact['core_area_um2']:.6g}"):
            wrong.append((fact["task"], ours, fact["die_area_um2"], fact["core_area_um2"]))
    assert len(facts) == 41
    assert not wrong
