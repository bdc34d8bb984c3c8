"""Every counterexample of the channel rule, axis-aligned and in 24 random rotations snapped to the grid."""

from __future__ import annotations

import pytest
from fet_counterexamples import CASES, N_POSES, Case, poses

from edagym.verifiers.fet.transistors import count_transistors
from edagym.verifiers.fet.verifier import verify


def test_there_are_44_cases_with_25_poses():
    assert len(CASES) == 44
    assert len({case.name for case in CASES}) == 44
    assert len(list(poses(CASES[0]))) == N_POSES == 25


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_count_in_every_pose(case: Case):
    allowed = {case.truth}
    for angle, pose in poses(case):
        flake, gates, contacts = pose.regions()
        found = count_transistors(flake, [gates], contacts, edge_contacted=case.edge_contacted)
        assert found in allowed, f"rotated by {angle:.3f} degrees"
        if case.tolerance:
            allowed = {case.truth, case.truth - 1}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verdict_counts_the_same(case: Case):
    task, layout = case.task_and_layout(demand=max(case.truth, 1))
    verdict = verify(layout, task, strict=False)
    (count,) = (c for c in verdict.checks if c.kind == "transistor_count")
    assert count.measured == case.truth
    assert count.passed == (case.truth > 0)
    assert verdict.metrics["transistors"] == case.truth
    assert verdict.paper_success <= (case.truth > 0)
