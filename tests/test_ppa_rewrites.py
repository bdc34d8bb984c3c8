"""Legal rewrites pass the equivalence check, most of them with a proof."""

from __future__ import annotations

import pytest
from ppa_engine import need_engine
from ppa_rewrites import REWRITES, Rewrite

from edagym.task_assets.ppa.designs import load_design
from edagym.verifiers.ppa.equivalence import check_equivalence

need_engine()


def test_there_are_enough() -> None:
    assert len(REWRITES) >= 10


@pytest.mark.parametrize(
    "rewrite",
    [pytest.param(r, id=r.name, marks=[pytest.mark.slow] if "product first" in r.name else []) for r in REWRITES],
)
def test_rewrite_is_accepted(rewrite: Rewrite) -> None:
    design = load_design(rewrite.design)
    # The products of two multipliers of different structure are out of reach of SAT; no need to wait long for that.
    limit = 60 if rewrite.proved else 6
    found = check_equivalence(design.files.sources, rewrite.sources, design.top, design.interface, formal_s=limit)
    assert found.passed_paper
    assert found.passed_strict, [check.message for check in found.checks]
    assert found.latency == rewrite.latency
    if rewrite.proved:
        assert found.formal == "proved"
    assert found.counterexample is None
