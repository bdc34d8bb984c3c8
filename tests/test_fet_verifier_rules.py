"""Design rules, completeness and input preservation: exactly at each limit, 1 nm and 2 nm short, and the traps."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

import pytest
from fet_cases import Ring, bar_fet, box, draw, make_task, rotate

from edagym.errors import TaskError
from edagym.task_assets.fet import FETTask, Region
from edagym.task_assets.fet.template import RuleValues
from edagym.verifiers.fet import FETLayout, FETVerifier, verify
from edagym.verifiers.fet.layout import region_ring
from edagym.verifiers.verdict import CheckResult, Verdict

GATE, LEFT, RIGHT = box(9, -1, 11, 7), box(2, 1, 7, 5), box(13, 1, 18, 5)


def check(verdict: Verdict, id_: str) -> CheckResult:
    (result,) = (c for c in verdict.checks if c.id == id_)
    return result


def failures(task: FETTask, layout: FETLayout) -> set[str]:
    return {c.id for c in verify(layout, task, strict=False).checks if not c.passed}


@pytest.mark.parametrize(
    "architecture", ["top_gated", "local_back_gated", "global_back_gated", "dual_gated", "edge_contacted"]
)
@pytest.mark.parametrize("via", [False, True])
def test_plain_transistor_passes(architecture: str, via: bool):
    task = make_task(architecture=architecture, via=via, pad_cover=via, dielectric=architecture == "dual_gated")
    layout = bar_fet(task)
    if architecture == "edge_contacted":
        layout = draw(task, contacts=[box(-4, 1, 0.1, 5), box(19.9, 1, 24, 5)], gate=[GATE])
        if via:
            for layer, half in (("via", 0.5), ("pad_cover", 1.0)):
                for x in (-2, 22):
                    layout.add(layer, _square(x, 3, half))
    verdict = verify(layout, task, strict=False)
    assert not verdict.failed("paper")
    assert verdict.paper_success
    assert not verdict.strict_success
    assert verdict.metrics["transistors"] == 1
    assert verdict.metrics["transistors:flake_1"] == 1
    assert verdict.metrics["channels"] == len(task.layers_of("gate electrode"))


def _square(x: float, y: float, half: float) -> tuple[tuple[int, int], ...]:
    return tuple((round(a * 1000), round(b * 1000)) for a, b in box(x - half, y - half, x + half, y + half))


def test_ids_are_unique_and_every_rule_is_reported():
    task = make_task(architecture="dual_gated", via=True, pad_cover=True, dielectric=True)
    verdict = verify(bar_fet(task), task, strict=False)
    ids = [c.id for c in verdict.checks]
    assert len(set(ids)) == len(ids)
    assert {
        "min_width:top_gate",
        "min_spacing:contacts",
        "min_separation:contacts:back_gate",
        "min_enclosure:contacts:via",
        "must_not_overlap:contacts:top_gate",
        "min_separation:via:top_gate",
        "must_not_overlap:via:back_gate",
        "must_overlap:contacts:graphene",
        "must_cross:back_gate:graphene",
        "transistor_count:flake_1",
        "layer_not_empty:dielectric",
        "inputs_preserved:graphene",
    } <= set(ids)
    n_rules = len(task.drc_rules) + len(task.derived_rules) + len(task.structural) + len(task.completeness)
    assert len(ids) == n_rules + 1
    hidden = {c.kind for c in verdict.checks if c.hidden}
    assert hidden == {"must_overlap", "must_cross"}


# -- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("short_nm", "passes"), [(0, True), (1, True), (2, False), (-5, True), (300, False)])
class TestLimits:
    """Rule limits, with the measured side short of the limit by `short_nm`."""

    def run(self, task: FETTask, layout: FETLayout, id_: str, passes: bool, limit: float, short_nm: int) -> None:
        verdict = verify(layout, task, strict=False)
        result = check(verdict, id_)
        assert result.passed == passes
        assert result.required == limit
        assert {c.id for c in verdict.checks if not c.passed} == (set() if passes else {id_})
        if not passes:
            assert result.measured == pytest.approx(limit - short_nm / 1000, abs=1e-9)
            assert result.where is not None
            assert "expected at least" in result.message
            assert "found" in result.message

    def test_width(self, short_nm: int, passes: bool):
        task = make_task()
        layout = draw(task, contacts=[LEFT, RIGHT], gate=[box(9, -1, 10 - short_nm / 1000, 7)])
        self.run(task, layout, "min_width:gate", passes, 1.0, short_nm)

    def test_spacing(self, short_nm: int, passes: bool):
        task = make_task()
        extra = box(13, 5.2 - short_nm / 1000, 18, 7)
        layout = draw(task, contacts=[LEFT, RIGHT, extra], gate=[GATE])
        if short_nm == 300:
            assert not failures(task, layout)  # overlapping shapes of one layer are one shape
        else:
            self.run(task, layout, "min_spacing:contacts", passes, 0.2, short_nm)

    def test_notch(self, short_nm: int, passes: bool):
        task = make_task()
        gap = max(0.2 - short_nm / 1000, 0)
        notched = [box(13, 1, 18, 2), box(13, 2 + gap, 18, 5), box(13, 1, 14, 5)]
        layout = draw(task, contacts=[LEFT, *notched], gate=[GATE])
        if short_nm == 300:
            assert not failures(task, layout)
        else:
            self.run(task, layout, "min_spacing:contacts", passes, 0.2, short_nm)

    def test_separation(self, short_nm: int, passes: bool):
        task = make_task()
        layout = draw(task, contacts=[LEFT, box(11.2 - short_nm / 1000, 1, 18, 5)], gate=[GATE])
        if short_nm == 300:
            assert failures(task, layout) == {"min_separation:contacts:gate", "must_not_overlap:contacts:gate"}
        else:
            self.run(task, layout, "min_separation:contacts:gate", passes, 0.2, short_nm)

    def test_enclosure(self, short_nm: int, passes: bool):
        task = make_task(via=True)
        layout = draw(
            task, contacts=[LEFT, RIGHT], gate=[GATE], via=[box(13.5 - short_nm / 1000, 2, 14.5, 3), box(4, 2, 5, 3)]
        )
        self.run(task, layout, "min_enclosure:contacts:via", passes, 0.5, short_nm)

    def test_via_isolation(self, short_nm: int, passes: bool):
        # A contact under the gate's layer cannot hold the via, so the contact rules give way here.
        task = make_task(via=True, values=RuleValues(contact_gate_separation=0.6, via_enclosure=0.1))
        layout = draw(
            task,
            contacts=[LEFT, box(11.4, 1, 18, 5)],
            gate=[GATE],
            via=[box(4, 2, 5, 3), box(11.6 - short_nm / 1000, 2, 13, 3)],
        )
        result = check(verify(layout, task, strict=False), "min_separation:via:gate")
        assert result.passed == passes


@pytest.mark.parametrize("degrees", [0.0, 17.3, 45.0, 123.456, 289.99])
def test_rotated_shapes_hold_and_break_every_limit(degrees: float):
    """Snapping costs under 1.5 nm: 3 nm above each limit passes, 4 nm short fails."""

    def turn(ring: Ring) -> Ring:
        return rotate(ring, degrees, (3.0, 2.0))

    def layout(task: FETTask, slack: float) -> FETLayout:
        return draw(
            task,
            contacts=[
                turn(r)
                for r in (box(2, 1, 9 - 0.2 - slack, 5), box(10.2 + slack + slack, 1, 18, 5), box(2, 5.2 + slack, 8, 7))
            ],
            gate=[turn(box(9, -1, 10 + slack, 7))],
            via=[turn(box(2.5 + slack, 2, 3.5, 3)), turn(box(15, 2, 16, 3))],
        )

    flake = tuple((round(x, 3), round(y, 3)) for x, y in turn(box(0, 0, 20, 6)))
    task = make_task([(flake, ())], via=True)
    assert not failures(task, layout(task, 0.003))
    assert failures(task, layout(task, -0.004)) == {
        "min_width:gate",
        "min_spacing:contacts",
        "min_separation:contacts:gate",
        "min_enclosure:contacts:via",
    }


# -- what edge checks cannot see --------------------------------------------------------------------------------------


def test_via_far_outside_any_contact_fails_enclosure():
    task = make_task(via=True)
    layout = bar_fet(task)
    layout.add("via", _square(50, 50, 0.5))
    result = check(verify(layout, task, strict=False), "min_enclosure:contacts:via")
    assert not result.passed
    assert result.where == (49.5, 49.5, 50.5, 50.5)


def test_via_half_outside_and_larger_than_a_contact_fail_enclosure():
    task = make_task(via=True)
    for via in (box(1, 2, 3, 3), box(1, 0, 8, 6), box(6.0, 2, 14, 3)):
        layout = bar_fet(task)
        layout.add("via", tuple((round(x * 1000), round(y * 1000)) for x, y in via))
        assert "min_enclosure:contacts:via" in failures(task, layout)


def test_via_in_a_contact_with_a_hole_near_it():
    task = make_task(via=True)
    ring = [box(12, 1, 18, 2), box(12, 4, 18, 5), box(12, 1, 13, 5), box(16, 1, 18, 5), box(12.5, 1.5, 14.6, 4.5)]
    layout = draw(task, contacts=[LEFT, *ring], gate=[GATE], via=[box(4, 2, 5, 3), box(13.4, 2.4, 14.2, 3.2)])
    assert check(verify(layout, task, strict=False), "min_enclosure:contacts:via").measured == pytest.approx(0.4)


def test_contact_and_via_deep_inside_a_gate_fail():
    task = make_task(via=True)
    layout = bar_fet(task)
    layout.add("gate", _square(30, 30, 10))
    layout.add("contacts", _square(30, 30, 2))
    layout.add("via", _square(30, 30, 0.5))
    assert failures(task, layout) == {
        "min_separation:contacts:gate",
        "must_not_overlap:contacts:gate",
        "min_separation:via:gate",
        "must_not_overlap:via:gate",
    }


def test_touching_contact_and_gate_are_at_distance_zero():
    task = make_task()
    for right in (box(11, 1, 18, 5), box(11, 7, 18, 9)):  # shared edge, shared corner
        result = check(
            verify(draw(task, contacts=[LEFT, right], gate=[GATE]), task, strict=False), "min_separation:contacts:gate"
        )
        assert (result.passed, result.measured) == (False, 0.0)


def test_contacts_that_touch_at_a_corner_have_no_spacing():
    task = make_task()
    layout = draw(task, contacts=[LEFT, RIGHT, box(18, 5, 19, 6)], gate=[GATE])
    result = check(verify(layout, task, strict=False), "min_spacing:contacts")
    assert (result.passed, result.measured) == (False, 0.0)


def test_needle_tip_close_to_a_gate_fails_separation():
    """KLayout's separation_check passes a needle that points at an edge: both of its sides face it at 90 degrees."""
    task = make_task()
    needle = ((13.5, 2.99), (13.5, 3.01), (11.1, 3.0))
    layout = draw(task, contacts=[LEFT, RIGHT, needle], gate=[GATE])
    assert check(verify(layout, task, strict=False), "min_separation:contacts:gate").measured == pytest.approx(0.1)


def test_needle_slit_almost_through_a_gate_fails_width():
    task = make_task()
    slit = ((9, -1), (11, -1), (11, 2.995), (9.1, 3), (11, 3.005), (11, 7), (9, 7))
    layout = draw(task, contacts=[LEFT, RIGHT], gate=[slit])
    assert check(verify(layout, task, strict=False), "min_width:gate").measured == pytest.approx(0.1)


def test_gates_joined_by_a_corner_fail_width():
    task = make_task()
    layout = draw(task, contacts=[LEFT, RIGHT], gate=[box(9, -1, 11, 7), box(10.9, 6.9, 13, 9)])
    result = check(verify(layout, task, strict=False), "min_width:gate")
    assert result.measured == pytest.approx(0.1 * math.sqrt(2), abs=1e-4)
    touching = draw(task, contacts=[LEFT, RIGHT], gate=[box(9, -1, 11, 7), box(11, 7, 13, 9)])
    assert check(verify(touching, task, strict=False), "min_width:gate").measured == 0.0


def test_wide_steps_and_bends_pass_width():
    """Concave corners of shapes that are wide everywhere are no narrow places."""
    task = make_task()
    bend = (
        (9, -1),
        (11, -1),
        (11, 7),
        (13, 7.05),
        (13, 12),
        (4, 12),
        (4, 9.5),
        (8.95, 9.5),
        (8.95, 7.2),
        (9, 7.2),
    )
    for degrees in (0.0, 31.7, 200.4):
        flake = tuple((round(x, 3), round(y, 3)) for x, y in rotate(box(0, 0, 20, 6), degrees))
        turned = make_task([(flake, ())])
        layout = draw(turned, contacts=[rotate(r, degrees) for r in (LEFT, RIGHT)], gate=[rotate(bend, degrees)])
        assert not failures(turned, layout)
    assert not failures(task, draw(task, contacts=[LEFT, RIGHT], gate=[bend]))


def test_edges_that_face_each_other_through_a_notch_are_no_narrow_place():
    """KLayout flags this legal gate (0.9 um through the outside) or not, depending on its options."""
    parts = [
        ((-4.07, -1.115), (-0.568, -1.115), (-0.568, 0.898), (-4.07, 0.898)),
        ((0.273, -0.755), (-2.302, 1.827), (-4.415, -0.28), (-1.84, -2.862)),
        ((-3.145, -3.605), (0.851, -3.605), (0.851, -1.252), (-3.145, -1.252)),
    ]
    task = make_task([(box(100, 0, 120, 6), ())])
    assert check(verify(draw(task, gate=parts), task, strict=False), "min_width:gate").passed


def test_acute_corner_has_no_width_and_the_message_says_so():
    task = make_task()
    slanted = ((8, -1), (10, -1), (13, 7), (11, 7))
    result = check(verify(draw(task, gate=[slanted]), task, strict=False), "min_width:gate")
    assert (result.passed, result.measured) == (False, 0.0)
    assert "corner sharper than 90 degrees" in result.message


# -- emptiness --------------------------------------------------------------------------------------------------------


def test_untouched_layout_fails_and_says_why():
    task = make_task(via=True, pad_cover=True)
    verdict = verify(FETLayout.from_task(task), task, strict=False)
    failed = {c.id for c in verdict.checks if not c.passed}
    assert failed == {
        "must_overlap:contacts:graphene",
        "must_overlap:gate:graphene",
        "must_cross:gate:graphene",
        "transistor_count:flake_1",
        "layer_not_empty:contacts",
        "layer_not_empty:gate",
        "layer_not_empty:via",
        "layer_not_empty:pad_cover",
    }
    skipped = {c.id for c in verdict.checks if "skipped" in c.message}
    assert skipped == {
        "min_separation:contacts:gate",
        "min_enclosure:contacts:via",
        "must_not_overlap:contacts:gate",
        "min_separation:via:gate",
        "must_not_overlap:via:gate",
    }
    count = check(verdict, "transistor_count:flake_1")
    assert count.message == "flake_1: expected at least 1 transistors, found 0"
    assert (count.required, count.measured, count.unit) == (1, 0, "count")


@pytest.mark.parametrize("layer", ["contacts", "gate", "via", "pad_cover"])
def test_a_required_layer_without_area_fails(layer: str):
    task = make_task(via=True, pad_cover=True)
    for rings in ((), (((5000, 5000), (6000, 5000), (7000, 5000)),), (((5000, 5000),) * 4,)):
        layout = bar_fet(task)
        layout.replace(layer, rings)
        assert f"layer_not_empty:{layer}" in failures(task, layout)


# -- structure --------------------------------------------------------------------------------------------------------


def test_count_is_per_region_and_a_lower_bound():
    flakes = [(box(0, 0, 20, 6), ()), (box(0, 10, 20, 16), ())]
    task = make_task(flakes, (1, 2))
    up = lambda ring: tuple((x, y + 10) for x, y in ring)  # noqa: E731
    one = [GATE, up(GATE)]
    contacts = [LEFT, RIGHT, up(LEFT), up(RIGHT)]
    verdict = verify(draw(task, contacts=contacts, gate=one), task, strict=False)
    assert {c.id for c in verdict.checks if not c.passed} == {"transistor_count:flake_2"}
    assert verdict.metrics["transistors"] == 2
    more = [box(7.3, -1, 8.6, 7), box(10, -1, 12, 7), up(box(7.3, -1, 8.6, 7)), up(box(10, -1, 12, 7))]
    verdict = verify(draw(task, contacts=contacts, gate=more), task, strict=False)
    assert verdict.paper_success
    assert verdict.metrics["transistors:flake_1"] == 2


def test_dual_gated_count_is_the_least_of_both_layers():
    task = make_task(architecture="dual_gated")
    layout = bar_fet(task)
    layout.replace("back_gate", [tuple((round(x * 1000), round(y * 1000)) for x, y in box(9, -1, 11, 5))])
    assert failures(task, layout) == {"must_cross:back_gate:graphene", "transistor_count:flake_1"}


def test_crossing_and_overlap_are_required_on_every_demanded_region_of_a_material():
    flakes = [(box(0, 0, 20, 6), ()), (box(0, 10, 20, 16), ()), (box(0, 20, 20, 26), ())]
    materials = ["graphene", "WSe2", "graphene"]
    task = make_task(flakes, (1, None, 1), materials=materials)
    layout = draw(task, contacts=[LEFT, RIGHT], gate=[GATE])
    assert failures(task, layout) == {
        "must_overlap:contacts:graphene",
        "must_overlap:gate:graphene",
        "must_cross:gate:graphene",
        "transistor_count:flake_3",
        # No region of WSe2 has a demand: then the material's regions all count.
        "must_overlap:contacts:WSe2",
        "must_overlap:gate:WSe2",
        "must_cross:gate:WSe2",
    }


def test_gate_overlapping_without_crossing_fails_only_must_cross_and_count():
    task = make_task()
    layout = draw(task, contacts=[LEFT, RIGHT], gate=[box(9, 2, 11, 7)])
    assert failures(task, layout) == {"must_cross:gate:graphene", "transistor_count:flake_1"}


def test_edge_contacts_must_hold_the_boundary():
    task = make_task(architecture="edge_contacted")
    good = [box(-4, 1, 0.1, 5), box(20, 1, 24, 5)]  # one enters, one abuts
    assert not failures(task, draw(task, contacts=good, gate=[GATE]))
    inside = draw(task, contacts=[good[0], RIGHT], gate=[GATE])
    assert failures(task, inside) == {"must_touch_boundary:flake_1"}
    corner = draw(task, contacts=[good[0], box(20, 6, 24, 9)], gate=[GATE])
    assert failures(task, corner) == {"must_touch_boundary:flake_1", "transistor_count:flake_1"}
    nowhere = draw(task, contacts=[box(-9, 1, -5, 5)], gate=[GATE])
    assert failures(task, nowhere) == {"must_touch_boundary:flake_1", "transistor_count:flake_1"}


# -- inputs -----------------------------------------------------------------------------------------------------------

HOLED = (((0.0, 0.0), (20.003, 0.7), (21.0, 6.0), (11.0, 8.0), (0.4, 6.1)), (box(3, 2, 5, 3),))


@pytest.mark.parametrize("flake", [(box(0, 0, 20, 6), ()), HOLED], ids=["bar", "holed"])
@pytest.mark.parametrize("shift", [(1, 0), (0, -1), (1, 1), (1000, 0)])
def test_a_shifted_contour_is_found(flake, shift):
    task = make_task([flake])
    layout = bar_fet(task)
    moved = [tuple((x + shift[0], y + shift[1]) for x, y in ring) for ring in layout.shapes("graphene")]
    layout.replace("graphene", moved)
    assert "inputs_preserved:graphene" in failures(task, layout)


@pytest.mark.parametrize("flake", [(box(0, 0, 20, 6), ()), HOLED], ids=["bar", "holed"])
@pytest.mark.parametrize("by", [(1, 0), (-1, 0), (0, 1), (0, -1), (7, 7)])
def test_every_single_moved_vertex_is_found(flake, by):
    task = make_task([flake])
    verifier = FETVerifier(task)
    layout = FETLayout.from_task(task)
    rings = (flake[0], *flake[1])
    for k, ring in enumerate(rings):
        for i, (x, y) in enumerate(ring):
            moved = (*ring[:i], (x + by[0] / 1000, y + by[1] / 1000), *ring[i + 1 :])
            hull, *holes = (*rings[:k], moved, *rings[k + 1 :])
            layout.replace("graphene", [region_ring(Region("moved", "graphene", hull, tuple(holes)))])
            verdict = verifier.verify(layout, strict=False)
            assert not check(verdict, "inputs_preserved:graphene").passed, (x, y)


def test_a_vertex_moved_along_an_almost_straight_edge_is_found():
    """The sliver is thinner than the grid: an XOR alone finds nothing."""
    task = make_task([(((0, 0), (20, 0), (20, 6), (10.0, 6.001), (0, 6)), ())])
    layout = bar_fet(task)
    ring = [(0, 0), (20000, 0), (20000, 6000), (10000, 6001), (0, 6000)]
    layout.replace("graphene", [tuple(ring)])
    assert not failures(task, layout)
    ring[3] = (10001, 6001)
    layout.replace("graphene", [tuple(ring)])
    assert failures(task, layout) == {"inputs_preserved:graphene"}


def test_inputs_may_be_drawn_differently_but_not_changed():
    task = make_task([HOLED])
    hull, _ = HOLED
    layout = bar_fet(task)
    (ring,) = layout.shapes("graphene")
    same = [
        [ring[::-1]],  # other direction
        [(*ring[3:], *ring[:3])],  # other start
        [ring, ring],  # twice
        [ring, ((1000, 1000), (2000, 1000), (2000, 1500))],  # more of what is there
    ]
    for rings in same:
        layout.replace("graphene", rings)
        assert check(verify(layout, task, strict=False), "inputs_preserved:graphene").passed
    filled = tuple((round(x * 1000), round(y * 1000)) for x, y in hull)
    for rings in ([], [filled], [ring, ((30000, 0), (31000, 0), (31000, 1000))]):
        layout.replace("graphene", rings)
        assert not check(verify(layout, task, strict=False), "inputs_preserved:graphene").passed


def test_each_material_is_its_own_input():
    flakes = [(box(0, 0, 20, 6), ()), (box(0, 10, 20, 16), ())]
    task = make_task(flakes, (1, 1), materials=["MoSe2", "WSe2"])
    up = lambda ring: tuple((x, y + 10) for x, y in ring)  # noqa: E731
    layout = draw(task, contacts=[LEFT, RIGHT, up(LEFT), up(RIGHT)], gate=[GATE, up(GATE)])
    assert verify(layout, task, strict=False).paper_success
    layout.replace("WSe2", layout.shapes("MoSe2"))
    assert failures(task, layout) == {"inputs_preserved:WSe2"}


def test_layout_of_another_task_is_refused():
    task, other = make_task(), make_task(via=True)
    with pytest.raises(TaskError, match="different layers"):
        verify(FETLayout.from_task(other), task)


def test_task_without_a_contact_layer_is_refused():
    task = make_task(architecture="global_back_gated")
    layers = tuple(replace(spec, role="pad cover") if spec.role == "contact" else spec for spec in task.layers)
    with pytest.raises(TaskError, match="exactly one contact layer"):
        FETVerifier(replace(task, layers=layers))


def test_verifier_pickles():
    task = make_task(via=True)
    layout = bar_fet(task)
    verifier = pickle.loads(pickle.dumps(FETVerifier(task)))
    assert verifier.task == task
    assert verifier.verify(layout, strict=False) == verify(layout, task, strict=False)


def test_verifier_object_and_function_agree_and_leave_the_layout_alone():
    task = make_task(via=True)
    verifier = FETVerifier(task)
    layout = bar_fet(task)
    before = layout.to_gds_bytes()
    first = verifier.verify(layout, strict=False)
    assert first == verify(layout, task, strict=False) == verifier.verify(layout.copy(), strict=False)
    assert layout.to_gds_bytes() == before


def test_metrics_of_an_untouched_layout():
    task = make_task()
    assert verify(FETLayout.from_task(task), task, strict=False).metrics == {
        "transistors": 0.0,
        "transistors:flake_1": 0.0,
        "channels": 0.0,
    }
