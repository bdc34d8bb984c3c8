"""Every mutant and every attack on the equivalence check fails under strict, with a reason."""

from __future__ import annotations

import pytest
from ppa_engine import need_engine
from ppa_mutants import ATTACKS, FAULTS, MUTANTS, Mutant

from edagym.task_assets.ppa.designs import load_design
from edagym.verifiers.ppa.equivalence import EquivalenceResult, check_equivalence

need_engine()

# What the paper's random simulation lets through: one in a thousand inputs, a long wait, or a state that nothing sets.
STRICT_ONLY = {
    "adder32 carry window of 24 bits",
    "adder32 wrong for one pair",
    "sub_64bit borrow window of 24 bits",
    "sub_64bit wrong behind a 64-bit trigger",
    "sub_64bit undefined for one value",
    "adder_pipe wrong behind a 32-bit trigger",
    "adder_pipe wrong after 100 000 results",
    "adder_pipe dead after 200 000 cycles",
    "adder_pipe depends on 32 registers that nothing sets",
    "multi_16bit holds a hidden counter",
    "float_multi rounding loses a carry",
    "float_multi rounds ties up",
    "float_adder infinities cancel",
    "fifo never full",
    "fifo with room for one word",
    "gcd faster but wrong behind a trigger",
    "gcd wrong behind a disguised trigger",
    "gcd faster and wrong behind a disguised trigger",
}
SLOW = {m.name for m in FAULTS[1::2]} - STRICT_ONLY | {
    m.name for m in MUTANTS if "hidden counter" in m.name or "200 000" in m.name
}


def verdict(mutant: Mutant) -> EquivalenceResult:
    design = load_design(mutant.design)
    return check_equivalence(design.files.sources, mutant.sources, design.top, design.interface, formal_s=12)


def test_there_are_enough() -> None:
    assert len(FAULTS) >= 40
    assert len({m.name for m in MUTANTS}) == len(MUTANTS)
    assert {m.name for m in MUTANTS} >= STRICT_ONLY


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(m, id=m.name, marks=[pytest.mark.slow] if m.name in SLOW else []) for m in FAULTS + ATTACKS],
)
def test_mutant_is_caught(mutant: Mutant) -> None:
    found = verdict(mutant)
    assert not found.passed_strict
    failed = [check for check in found.checks if not check.passed]
    assert failed
    assert all(check.message for check in failed)
    if mutant.name in STRICT_ONLY:
        assert found.passed_paper
