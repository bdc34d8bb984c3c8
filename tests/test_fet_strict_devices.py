"""Strict device checks on drawings in many poses: what must pass, what must fail, and where the limits lie."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import shapely
from fet_cases import Ring, box, rotate
from fet_drawings import (
    BAR,
    GATE,
    LEFT,
    RIGHT,
    Drawing,
    bar,
    bar_with_vias,
    inverter_active,
    nand2_active,
    nand2_complementary,
    nor2_active,
    row,
    strap,
)

from edagym.envs.fet.interpreter import WINDOW_MARGIN_UM
from edagym.task_assets.fet.template import RuleValues
from edagym.verifiers.fet import strict
from edagym.verifiers.fet.layout import FETLayout
from edagym.verifiers.fet.strict import strict_checks
from edagym.verifiers.fet.verifier import verify
from edagym.verifiers.verdict import CheckResult

RING = (box(0, 0, 20, 14), (box(6, 5, 14, 9),))
U_SHAPE = (((0, 0), (20, 0), (20, 20), (14, 20), (14, 5), (6, 5), (6, 20), (0, 20)), ())
Y_SHAPE = (((8, 0), (12, 0), (12, 10), (20, 10), (20, 14), (0, 14), (0, 10), (8, 10)), ())
DUAL = {"architecture": "dual_gated"}
EDGE = {"architecture": "edge_contacted"}
POSES = [(0.0, False), (90.0, True), (270.0, False), *((13.0 * k + 5.1, k % 2 == 1) for k in range(1, 8))]


def count(drawing: Drawing, flake: int = 1) -> CheckResult:
    task, layout = drawing.build()
    return next(c for c in strict_checks(task, layout) if c.id == f"strict_transistor_count:flake_{flake}")


def shared(n: int) -> Drawing:
    flake, gates, contacts = row(n)
    return Drawing({"contacts": contacts, "gate": gates}, [flake], {"demand": (n,)})


def around_a_neighbour() -> Drawing:
    """Three contacts; the outer ones belong together and are joined by a wire that passes the middle one."""
    drawing = shared(2)
    contacts = drawing.shapes["contacts"]
    return drawing.adding(contacts=strap(contacts[0], contacts[2], 9))


def comb_contacted_everywhere() -> Drawing:
    flake, gates, contacts = row(3)
    return Drawing({"contacts": contacts, "gate": [*gates, box(2.95, 6.2, 12.05, 7.4)]}, [flake], {"demand": (3,)})


def curved() -> Drawing:
    """A gate that follows a bend, with slanted contacts."""
    flake: Ring = ((0, 0), (10, 0), (18, 6), (22, 14), (17, 16), (13, 9), (8, 5), (0, 5))
    line = shapely.LineString([(10.5, -2), (9, 3), (6.5, 7)])
    gate = tuple(line.buffer(1, cap_style="flat", join_style="mitre").exterior.coords)[:-1]
    return Drawing(
        {"contacts": [box(1, 1, 5, 4), rotate(box(12, 6, 16, 8), 40, (14, 7))], "gate": [gate]},
        [(flake, ())],
    )


def edge_contacts(depth: float) -> Drawing:
    return Drawing({"contacts": [box(-3, 1, depth, 5), box(20 - depth, 1, 23, 5)], "gate": [GATE]}, task=EDGE)


def dual(top: Ring, back: Ring, dielectric: Ring | None = None) -> Drawing:
    shapes: dict[str, list[Ring]] = {"contacts": [LEFT, RIGHT], "top_gate": [top], "back_gate": [back]}
    if dielectric:
        shapes["dielectric"] = [dielectric]
    return Drawing(shapes, task={**DUAL, "dielectric": dielectric is not None})


WORKING: dict[str, Callable[[], Drawing]] = {
    "bar": bar,
    "local back gate": lambda: Drawing(
        {"contacts": [LEFT, RIGHT], "back_gate": [GATE]}, task={"architecture": "local_back_gated"}
    ),
    "global back gate": lambda: Drawing(
        {"contacts": [LEFT, RIGHT]}, task={"architecture": "global_back_gated", "demand": (None,)}
    ),
    "vias": bar_with_vias,
    "vias and pad covers": lambda: bar_with_vias(pads=True),
    "dual gate": lambda: dual(GATE, GATE),
    "dual gate, back gate wider": lambda: dual(GATE, box(8, -2, 12, 8)),
    "dual gate, shifted": lambda: dual(box(8, -1, 10.5, 7), box(9.5, -1, 12, 7)),
    "dual gate with dielectric": lambda: dual(GATE, GATE, box(8.8, -1.2, 11.2, 7.2)),
    "dual gate with dielectric on the flake only": lambda: dual(GATE, GATE, box(8.8, 0, 11.2, 6)),
    "edge contacts abut": lambda: edge_contacts(0.0),
    "edge contacts enter 0.1 um": lambda: edge_contacts(0.1),
    "edge contacts enter 0.4 um": lambda: edge_contacts(0.4),
    "three transistors share contacts": lambda: shared(3),
    "a wire around a neighbouring contact": around_a_neighbour,
    "comb with a contact in every gap": comb_contacted_everywhere,
    "curved flake and gate": curved,
    "slanted gate": lambda: bar().with_shapes(gate=[rotate(box(9, -3, 11, 9), 20, (10, 3))]),
    "gate with a branch into the drain": lambda: bar().adding(gate=[box(10.5, 2, 12.5, 4)]),
    "gate in two abutting halves": lambda: bar().with_shapes(gate=[box(9, -1, 10, 7), box(10, -1, 11, 7)]),
    "gate in two halves with a seam of 1 nm": lambda: bar().with_shapes(
        gate=[box(8.5, -1, 10, 7), box(10.001, -1, 11.5, 7)]
    ),
    "contact in two overlapping halves": lambda: bar().adding(contacts=[box(4, 1, 8, 5)]),
    "contact reaches over the flake's edge": lambda: bar().with_shapes(contacts=[box(-2, -2, 7, 8), RIGHT]),
    "two contacts on one side": lambda: bar().with_shapes(contacts=[box(1, 1, 3, 5), box(5, 1, 7, 5), RIGHT]),
    "a gate without contacts further on": lambda: bar().adding(gate=[box(18.5, -1, 19.6, 7)]),
    "a stray contact outside": lambda: bar().adding(contacts=[box(9, 10, 11, 12)]),
    "ring, one gate over both arms": lambda: Drawing(
        {"contacts": [box(1, 6, 5, 8), box(15, 6, 19, 8)], "gate": [box(9, -1, 11, 15)]}, [RING]
    ),
    "ring, a gate over each arm": lambda: Drawing(
        {"contacts": [box(1, 6, 5, 8), box(15, 6, 19, 8)], "gate": [box(9, -1, 11, 6), box(9, 8, 11, 15)]},
        [RING],
        {"demand": (2,)},
    ),
    "ring, gate over the whole hole": lambda: Drawing(
        {"contacts": [box(1, 6, 4, 8), box(16, 6, 19, 8)], "gate": [box(5, -1, 15, 15)]}, [RING]
    ),
    "U, one gate over both prongs": lambda: Drawing(
        {"contacts": [box(1, 14, 5, 18), box(15, 14, 19, 18), box(8, 1, 12, 4)], "gate": [box(-1, 9, 21, 11)]},
        [U_SHAPE],
        {"demand": (2,)},
    ),
    "Y, gate over the junction, two arms contacted": lambda: Drawing(
        {"contacts": [box(1, 11, 5, 13), box(15, 11, 19, 13)], "gate": [box(7, 7, 13, 15)]}, [Y_SHAPE]
    ),
    "gate cuts off a corner": lambda: bar().with_shapes(
        gate=[rotate(box(0.5, -4, 2, 12), -45, (1.25, 3.5))], contacts=[box(-1, 4.9, 0.6, 7), RIGHT]
    ),
    "one contact on two flakes": lambda: Drawing(
        {
            "contacts": [box(2, 1, 7, 15), RIGHT, box(13, 11, 18, 15)],
            "gate": [GATE, box(9, 9, 11, 17)],
        },
        [BAR, (box(0, 10, 20, 16), ())],
        {"demand": (1, 1)},
    ),
    "two flakes, one gate": lambda: Drawing(
        {
            "contacts": [LEFT, RIGHT, box(2, 11, 7, 15), box(13, 11, 18, 15)],
            "gate": [box(9, -1, 11, 17)],
        },
        [BAR, (box(0, 10, 20, 16), ())],
        {"demand": (1, 1)},
    ),
    "inverter, active load": inverter_active,
    "NAND2, active load": nand2_active,
    "NAND2, inner piece contacted": lambda: nand2_active().adding(contacts=[box(8.5, 1, 10.5, 5)]),
    "NOR2, active load": nor2_active,
    "NAND2, complementary": nand2_complementary,
}


@pytest.mark.parametrize("name", WORKING)
def test_working_devices_pass_in_every_pose(name: str) -> None:
    for degrees, mirrored in POSES:
        task, layout = WORKING[name]().posed(degrees, mirrored).build()
        verdict = verify(layout, task)
        assert verdict.strict_success, (degrees, mirrored, [c.message for c in verdict.failed()])


@pytest.mark.parametrize("name", WORKING)
def test_every_check_is_strict_hidden_and_named_once(name: str) -> None:
    task, layout = WORKING[name]().build()
    checks = strict_checks(task, layout)
    assert len({c.id for c in checks}) == len(checks)
    assert all(c.strict and c.hidden and c.kind.startswith("strict_") and c.message for c in checks)
    assert checks == strict_checks(task, layout)
    empty = FETLayout.from_task(task)
    assert [c.id for c in strict_checks(task, empty)] == [c.id for c in checks]
    assert not all(c.passed for c in strict_checks(task, empty))


# -- limits ------------------------------------------------------------------------------------------------------------

LIMITS: dict[str, tuple[Callable[[float], Drawing], float, float]] = {
    # what: drawing as a function of a length, a length that passes, one that fails (um)
    "overhang": (lambda d: bar().with_shapes(gate=[box(9, -d, 11, 7)]), 0.1, 0.095),
    "overhang into a hole": (
        lambda d: Drawing(
            {
                "contacts": [box(1, 6, 5, 8), box(15, 6, 19, 8)],
                "gate": [box(9, -1, 11, 5 + d), box(9, 7, 11, 15)],
            },
            [RING],
        ),
        0.1,
        0.095,
    ),
    "landing across": (lambda d: bar().with_shapes(contacts=[LEFT, box(13, 3, 18, 3 + d)]), 0.1, 0.09),
    "landing over the flake's end": (lambda d: bar().with_shapes(contacts=[LEFT, box(20 - d, 1, 24, 5)]), 0.1, 0.09),
    "common length of two gates": (lambda d: dual(box(8, -1, 10, 7), box(10 - d, -1, 12, 7)), 0.1, 0.09),
    "edge contact's length": (
        lambda d: edge_contacts(0.1).with_shapes(contacts=[box(-3, 1, 0.1, 5), box(19.9, 3, 23, 3 + d)]),
        0.1,
        0.09,
    ),
    "edge contact's depth": (edge_contacts, 0.5, 0.51),
    "edge contact's metal outside": (
        lambda d: edge_contacts(0.1).with_shapes(contacts=[box(-3, 1, 0.1, 5), box(19.8, 1, 20 + d, 5)]),
        0.05,
        0.04,
    ),
    "width of a via": (lambda d: bar_with_vias().with_shapes(via=[box(4, 2, 5, 3), box(15, 2, 15 + d, 3)]), 0.05, 0.04),
    "distance of pad covers": (
        lambda d: bar_with_vias(pads=True).with_shapes(pad_cover=[box(3.5, 1.5, 10, 3.5), box(10 + d, 1.5, 16.5, 3.5)]),
        0.055,
        0.045,
    ),
    "neck beside a second gate": (
        lambda d: bar().with_shapes(gate=[box(8, -1, 9.5, 7), box(10.5, -1, 12, 6 - d)]),
        0.05,
        0.04,
    ),
    "width of an OUT wire": (
        lambda d: nor2_active().with_shapes(
            contacts=[
                *nor2_active().shapes["contacts"][:4],
                box(5.25, 4.8, 5.75, 8.2),
                box(5.5, 8, 13.5, 8 + d),
                box(13.25, 4.8, 13.75, 8.2),
            ]
        ),
        0.05,
        0.04,
    ),
}


@pytest.mark.parametrize("name", LIMITS)
def test_limits_hold_in_every_pose(name: str) -> None:
    draw, passes, fails = LIMITS[name]
    for degrees, mirrored in POSES:
        for length, expected in ((passes, True), (fails, False)):
            task, layout = draw(length).posed(degrees, mirrored).build()
            failed = [c.message for c in strict_checks(task, layout) if not c.passed]
            assert (not failed) == expected, (degrees, mirrored, length, failed)


# -- counts and messages -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_count_of_shared_contacts(n: int) -> None:
    result = count(shared(n))
    assert (result.passed, result.measured, result.required) == (True, n, n)
    contacts = shared(n).shapes["contacts"]
    short = count(shared(n).with_shapes(contacts=contacts[:-1]))
    assert (short.passed, short.measured) == (False, n - 1)
    assert f"expected at least {n} strict transistor(s), found {n - 1}" in short.message
    assert short.where is not None


@pytest.mark.parametrize(
    ("drawing", "reason"),
    [
        (bar().with_shapes(gate=[box(9, 0, 11, 6)]), "overhangs"),
        (bar().with_shapes(gate=[box(9, -1, 11, 3)]), "does not part the flake"),
        (bar().with_shapes(contacts=[LEFT]), "contacts land"),
        (bar().with_shapes(contacts=[box(2, 1, 18, 5)]), "one net"),
        (bar_with_vias().with_shapes(via=[box(4, 2, 5, 3)]), "no usable via"),
        (dual(box(8, -1, 9.5, 7), box(9.6, -1, 11, 7)), "contacts land"),
        (dual(box(8, -1, 9.5, 7), box(9.48, -1, 11, 7)), "face each other"),
        (dual(GATE, GATE, box(9.5, -1, 11, 7)), "dielectric"),
        (bar().adding(contacts=[box(9.8, 2, 10.2, 3)]), "overlaps the channel"),
    ],
)
def test_reasons_are_told(drawing: Drawing, reason: str) -> None:
    result = count(drawing)
    assert not result.passed
    assert reason in result.message


def test_stray_contact_and_via_name_the_flake() -> None:
    task, layout = bar_with_vias().adding(via=[box(9.5, 2, 10.5, 3)]).build()
    stray = next(c for c in strict_checks(task, layout) if c.kind == "strict_stray")
    assert not stray.passed
    assert "flake_1" in stray.message
    assert "via" in stray.message


def test_regions_without_demand_are_not_asked_for_transistors() -> None:
    drawing = Drawing(
        {"contacts": [LEFT, RIGHT], "gate": [GATE]}, [BAR, (box(0, 10, 20, 16), ())], {"demand": (1, None)}
    )
    task, layout = drawing.build()
    assert verify(layout, task).strict_success
    assert not any(c.id.endswith("flake_2") for c in strict_checks(task, layout))


def test_trapped_contact_is_free_where_vias_lift_it_out() -> None:
    ring = [box(4, -3, 5.5, 4), box(12.5, -3, 14, 4), box(4, -3, 14, -1.5), box(4, 2.5, 14, 4)]
    contacts = [box(7, -0.5, 10, 1.8), box(15, 1, 18, 5)]
    bare = Drawing({"contacts": contacts, "gate": ring})
    assert not count(bare).passed
    lifted = Drawing(
        {"contacts": contacts, "gate": ring, "via": [box(8, 0.2, 9, 1), box(16, 2, 17, 3)]}, task={"via": True}
    )
    assert count(lifted).passed


def test_via_must_be_on_the_contact_that_lands() -> None:
    # The drain's only via sits on another contact, joined to the landing one by a hairline of 20 nm.
    drawing = bar_with_vias().with_shapes(
        contacts=[LEFT, box(13, 1, 18, 5), box(13, 8, 18, 12), box(15, 4.9, 15.02, 8.1)],
        via=[box(4, 2, 5, 3), box(15, 10, 16, 11)],
    )
    assert "no usable via" in count(drawing).message
    thick = drawing.adding(contacts=[box(15, 4.9, 15.1, 8.1)])
    assert count(thick).passed


def test_window_is_that_of_the_interpreter() -> None:
    assert strict.WINDOW_UM == WINDOW_MARGIN_UM
    for x, expected in ((20 + WINDOW_MARGIN_UM - 1, True), (20 + WINDOW_MARGIN_UM - 0.99, False)):
        task, layout = bar().adding(contacts=[box(x, 0, x + 1, 1)]).build()
        assert all(c.passed for c in strict_checks(task, layout)) == expected


def test_strict_checks_take_the_flakes_from_the_task() -> None:
    task, layout = bar().with_shapes(gate=[box(9, -1, 11, 4.5)]).build()
    layout.replace("graphene", [((0, 0), (20000, 0), (20000, 4000), (0, 4000))])
    assert not all(c.passed for c in strict_checks(task, layout))


def test_tight_rules_do_not_change_strict_limits() -> None:
    values = RuleValues(min_gate_width=0.5, contact_spacing=0.1, contact_gate_separation=0.1)
    drawing = Drawing(
        {"contacts": [box(2, 1, 9, 5), box(9.7, 1, 18, 5)], "gate": [box(9.1, -0.1, 9.6, 6.1)]},
        task={"values": values},
    )
    for degrees in (0.0, 33.0, 71.0):
        task, layout = drawing.posed(degrees).build()
        assert verify(layout, task).strict_success
