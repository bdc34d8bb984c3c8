"""The embedded flow against recorded runs of the real one, on the designs rebuilt from public knowledge.

Run with ``-s`` to see the table. The bounds are what was reached, with some room: they notice a stage that breaks.
"""

import os
from pathlib import Path

import pytest

from edagym.baselines import ppa_accuracy
from edagym.envs.ppa.flow.embedded import EmbeddedFlow

pytestmark = pytest.mark.real
DESIGNS = ("gcd", "adder32", "sub_64bit", "adder_pipe_64bit", "multi_pipe_8bit")


def test_period_power_and_area_follow_the_real_flow():
    facts = Path(os.environ["EDAGYM_REAL_DATA"]) / "posteda-dev" / "ppa_facts.json"
    result = ppa_accuracy.compare(EmbeddedFlow(), facts, DESIGNS, progress=False)
    print("\n" + ppa_accuracy.text(result))
    assert not [row for row in result["rows"] if "error" in row]
    period, power, die = (result[name] for name in ppa_accuracy.METRICS)
    assert period["spearman"] > 0.9
    assert period["median_error"] < 0.08
    assert period["pairs"] > 0.8
    assert power["spearman"] > 0.9
    assert power["pairs"] > 0.8
    assert die["spearman"] > 0.95
