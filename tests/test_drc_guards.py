"""Strict guards: what a repair must leave as it is, how much it may change, and the verdict made of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import klayout.db as kdb
import pytest
from drc_drawings import DBU, TABLE, box, contact_x, design, inverter, label

from edagym.envs.drc.posteda import import_posteda
from edagym.errors import TaskError
from edagym.task_assets.drc.task import Limits
from edagym.verifiers.drc import DRCLayout, full_check
from edagym.verifiers.drc.connectivity import Reference
from edagym.verifiers.drc.guards import DIE_MARGIN_UM, MAX_ADDED_SHAPES, derive_limits, die_box, strict_checks
from edagym.verifiers.drc.stack import stack_of
from edagym.verifiers.drc.verifier import DRCVerifier, rule_checks, verify_drc, violation_reduction
from edagym.verifiers.verdict import CheckResult

STACK = stack_of(TABLE)
Edit = Callable[[DRCLayout], object]

IDS = [
    "strict_frame",
    "strict_shape_count",
    "strict_cells",
    "strict_labels",
    "strict_fixed_layers",
    "strict_markers",
    "strict_rectilinear",
    "strict_die",
    "strict_elsewhere",
    "strict_area_kept",
    "strict_edited_area",
    "strict_opens",
    "strict_shorts",
    "strict_conductors",
    "strict_devices",
    "strict_net_labels",
]


def bars(*boxes: tuple[str, tuple[int, int, int, int]]) -> DRCLayout:
    """Lone shapes in one cell; database unit 1 nm."""
    layout = kdb.Layout()
    layout.dbu = 0.001
    top = layout.create_cell("TOP")
    for name, coords in boxes:
        box(layout, top, name, *coords)
    return DRCLayout(layout)


TWO = (("M1", (0, 0, 100, 20)), ("M1", (0, 30, 100, 50)))


def shapes(layout: DRCLayout, name: str, of: str = "") -> list[kdb.Shape]:
    entry = TABLE.layers[name]
    cell = layout.layout.cell(of) if of else layout.top
    found = cell.shapes(layout.layout.layer(entry.layer, entry.datatype)).each(kdb.Shapes.SRegions)
    return sorted(found, key=lambda s: (s.bbox().left, s.bbox().bottom, s.bbox().top))


def check(initial: DRCLayout, edit: Edit, limits: Limits | None = None, **kwargs) -> dict[str, CheckResult]:
    layout = initial.copy()
    edit(layout)
    found = strict_checks(initial, layout, TABLE, limits or Limits(), Reference(initial, STACK), **kwargs)
    assert all(c.strict and c.message for c in found)
    return {c.id: c for c in found}


def failed(initial: DRCLayout, edit: Edit, limits: Limits | None = None, **kwargs) -> set[str]:
    return {c.id for c in check(initial, edit, limits, **kwargs).values() if not c.passed}


def move(name: str, dx: int, dy: int, n: int = 0, of: str = "") -> Edit:
    return lambda layout: shapes(layout, name, of)[n].transform(kdb.Trans(kdb.Vector(dx, dy)))


def erase(name: str, n: int = 0, of: str = "") -> Edit:
    return lambda layout: shapes(layout, name, of)[n].delete()


def reshape(name: str, *coords: int, n: int = 0, of: str = "") -> Edit:
    return lambda layout: setattr(shapes(layout, name, of)[n], "box", kdb.Box(*coords))


def add(name: str, *coords: int, of: str = "") -> Edit:
    return lambda layout: box(layout.layout, layout.layout.cell(of) if of else layout.top, name, *coords)


def both(*edits: Edit) -> Edit:
    return lambda layout: [edit(layout) for edit in edits]


# -- ids, frame ----------------------------------------------------------------------------------------------------


def test_always_the_same_results_in_the_same_order():
    for edit in (lambda layout: None, erase("M2"), add("M5", 0, 0, 10, 10)):
        assert list(check(design(), edit)) == IDS
    assert failed(design(), lambda layout: None) == set()


def test_another_database_unit_or_top_cell():
    found = check(inverter(), lambda layout: setattr(layout.layout, "dbu", 0.001))
    assert list(found) == ["strict_frame"]
    assert "expected the database unit 0.00025 um, found 0.001 um" in found["strict_frame"].message
    found = check(inverter(), lambda layout: setattr(layout.top, "name", "X"))
    assert "expected the top cell INV, found X" in found["strict_frame"].message


# -- what has to stay ----------------------------------------------------------------------------------------------


def instance(layout: DRCLayout, name: str) -> kdb.Instance:
    return next(i for i in layout.top.each_inst() if layout.layout.cell(i.cell_index).name == name)


def set_trans(name: str, change: Callable[[kdb.Trans], kdb.Trans]) -> Edit:
    def edit(layout: DRCLayout) -> None:
        found = instance(layout, name)
        found.trans = change(found.trans)

    return edit


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda layout: instance(layout, "VIA12").delete(), "an instance of VIA12 in TOP was removed"),
        (set_trans("INV", lambda t: t * kdb.Trans.M90), "an instance of INV in TOP was turned or resized"),
        (set_trans("VIA23", lambda t: t * kdb.Trans.R90), "an instance of VIA23 in TOP was turned or resized"),
        (
            lambda layout: layout.top.insert(
                kdb.CellInstArray(layout.layout.cell("VIA12").cell_index(), kdb.Trans(kdb.Vector(50, 60)))
            ),
            "an instance of VIA12 was added to TOP",
        ),
        (lambda layout: layout.layout.cell("VIA23").delete(), "cell VIA23 was removed"),
        (
            lambda layout: layout.top.insert(
                kdb.CellInstArray(layout.layout.create_cell("NEW").cell_index(), kdb.Trans())
            ),
            "cell NEW was added",
        ),
        (
            lambda layout: layout.layout.rename_cell(layout.layout.cell("VIA23").cell_index(), "VIA"),
            "cell VIA23 was removed",
        ),
    ],
    ids=["remove", "mirror", "rotate", "add", "delete cell", "new cell", "rename"],
)
def test_cells_are_kept(edit, message):
    found = check(design(), edit)
    assert not found["strict_cells"].passed
    assert message in found["strict_cells"].message


def test_an_instance_may_be_displaced():
    assert check(design(), set_trans("VIA12", lambda t: kdb.Trans(kdb.Vector(4, 0)) * t))["strict_cells"].passed


def text_layer(layout: DRCLayout) -> kdb.Shapes:
    return layout.top.shapes(layout.layout.layer(TABLE.layers["M1"].layer, 251))


@pytest.mark.parametrize(
    "edit",
    [
        lambda layout: text_layer(layout).clear(),
        lambda layout: setattr(next(text_layer(layout).each()), "text_string", "other"),
        lambda layout: next(text_layer(layout).each()).transform(kdb.Trans(kdb.Vector(1, 0))),
        lambda layout: label(layout.layout, layout.top, "M1", "new", 0, 0),
        lambda layout: label(layout.layout, layout.layout.cell("INV"), "M3", "new", 0, 0),
    ],
    ids=["remove", "rename", "move", "add", "in a master"],
)
def test_labels_are_kept(edit):
    found = check(design(), edit)
    assert not found["strict_labels"].passed
    assert "label" in found["strict_labels"].message


def test_fixed_layers_are_kept():
    initial = inverter()
    pins = initial.layout.layer(TABLE.layers["M1"].layer, 251)
    initial.top.shapes(pins).insert(kdb.Box(300, 500, 340, 540))
    initial.top.shapes(initial.layout.layer(100, 0)).insert(kdb.Box(0, 0, 648, 1080))
    assert "strict_fixed_layers" in failed(
        initial, lambda layout: layout.top.shapes(layout.layout.layer(100, 0)).clear()
    )
    found = check(initial, lambda layout: layout.top.shapes(layout.layout.layer(19, 251)).insert(kdb.Box(0, 0, 9, 9)))
    assert "fixed layer 19/251 of cell INV was changed" in found["strict_fixed_layers"].message
    assert found["strict_fixed_layers"].where == pytest.approx((0, 0, 9 * DBU, 9 * DBU))
    assert "strict_fixed_layers" in failed(
        initial, lambda layout: layout.top.shapes(layout.layout.layer(999, 7)).insert(kdb.Box(0, 0, 9, 9))
    )


def test_layers_that_exempt_from_rules():
    """Drawing the SRAM marker over a violation changes the rules instead of the layout."""
    assert failed(inverter(), add("SRAMDRC", 0, 0, 648, 1080)) == {"strict_markers"}
    assert failed(inverter(), add("SRAMDRC", 0, 0, 648, 1080), rules=["M1.W.1"]) == {"strict_markers"}
    assert failed(inverter(), add("SRAMDRC", 0, 0, 648, 1080), rules=["SRAM.ACTIVE.AUX.2"]) == set()


def test_slanted_edges_slip_through_the_rules():
    def edit(layout: DRCLayout) -> None:
        corners = [kdb.Point(0, 2000), kdb.Point(50, 2100), kdb.Point(100, 2000)]
        layout.top.shapes(layout.layout.layer(20, 0)).insert(kdb.Polygon(corners))

    found = check(inverter(), edit)
    assert {c.id for c in found.values() if not c.passed} == {"strict_rectilinear"}
    assert "1 new shapes have slanted edges" in found["strict_rectilinear"].message


def test_the_die():
    initial = bars(*TWO)
    die = die_box(initial)
    assert die.right == 100 + round(DIE_MARGIN_UM / 0.001)
    assert failed(initial, add("M2", 100, 0, die.right, 40)) == set()
    assert failed(initial, add("M2", 100, 0, die.right + 1, 40)) == {"strict_die"}
    # A design with an outline has no margin.
    initial.top.shapes(initial.layout.layer(235, 0)).insert(kdb.Box(-10, -10, 200, 200))
    assert die_box(initial) == kdb.Box(-10, -10, 200, 200)
    assert failed(initial, add("M2", 150, 0, 201, 40)) == {"strict_die"}


def test_many_shapes():
    def edit(layout: DRCLayout) -> None:
        target = layout.top.shapes(layout.layout.layer(20, 0))
        for i in range(MAX_ADDED_SHAPES + 1):
            target.insert(kdb.Box(i % 40, 0, i % 40 + 20, 40))

    found = check(inverter(), edit)
    assert list(found) == IDS
    assert [c.id for c in found.values() if not c.passed] == ["strict_shape_count"]
    assert found["strict_shape_count"].measured == MAX_ADDED_SHAPES + 1
    assert all("not checked" in found[name].message for name in IDS[2:])


# -- areas ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "kept"),
    [
        (erase("M1"), False),
        (reshape("M1", 0, 0, 100, 18), True),
        (reshape("M1", 0, 0, 100, 17), False),
        (reshape("M1", 0, 0, 1, 1), False),
        (move("M1", 0, -20), True),
        (move("M1", 0, -500), True),
        (move("M1", 0, -1500), False),
        (both(erase("M1"), add("M1", 0, -60, 100, -40)), True),
        (both(erase("M1"), add("M1", 0, -60, 50, -40)), False),
        (reshape("M1", 0, -20, 100, 20), True),
        # A larger neighbour far away does not hide the loss of a small piece.
        (both(erase("M1"), add("M5", 0, 0, 100, 100)), False),
    ],
    ids=[
        "delete",
        "90 %",
        "85 %",
        "to a dot",
        "move",
        "move 0.5 um",
        "move away",
        "redraw",
        "redraw half",
        "grow",
        "other layer",
    ],
)
def test_area_of_a_lone_rectangle(edit, kept):
    result = check(bars(*TWO), edit)["strict_area_kept"]
    assert result.passed is kept, result
    assert kept or result.where


@pytest.mark.parametrize("dy", [-10, -20, -50, -500])
def test_a_lone_rectangle_may_be_moved(dy):
    assert failed(bars(*TWO), move("M1", 0, dy)) == set()


def test_every_piece_counts_beside_large_ones():
    """A small patch beside a rail of the same layer is well under a tenth of the layer's area near by."""
    initial = bars(("M1", (0, 100, 2000, 170)), ("M1", (900, 0, 940, 40)))
    result = check(initial, erase("M1", n=1))["strict_area_kept"]
    assert not result.passed
    assert result.measured == 0.0
    assert "0.0% of a piece of M1 is left, at least 90% has to be" in result.message


def test_one_shapes_growth_pays_for_one_loss_only():
    initial = bars(*TWO, ("M1", (0, 60, 100, 80)))
    grown = both(erase("M1", n=0), erase("M1", n=0), add("M1", 0, -60, 100, -40))
    assert not check(initial, grown)["strict_area_kept"].passed


def test_duplicates_are_free():
    initial = bars(*TWO, TWO[0], ("M1", (20, 0, 60, 20)))
    for n in (0, 1, 3):
        assert failed(initial, erase("M1", n=n)) == set()
    assert check(initial, erase("M1", n=0))["strict_edited_area"].measured == 0.0


def test_duplicates_in_other_cells_are_free():
    initial = design()
    # The top cell repeats a master's shape: the merged region does not change without it.
    box(initial.layout, initial.top, "M1", contact_x(1) - 36, 108, contact_x(1) + 36, 972)
    assert failed(initial, erase("M1")) == set()


def test_limits_per_layer():
    assert failed(bars(*TWO), reshape("M1", 0, 0, 100, 17), Limits({"M1": 0.8})) == set()
    assert failed(bars(*TWO), reshape("M1", 0, 0, 100, 17), Limits({"M2": 0.8})) == {"strict_area_kept"}
    assert failed(bars(*TWO), reshape("M1", 0, 0, 100, 18), Limits({"M1": 0.95})) == {"strict_area_kept"}


def test_surplus_vias_may_go_where_a_task_is_about_them():
    cuts = [("V2", (40 * i, 0, 40 * i + 18, 18)) for i in range(3)]
    initial = bars(("M2", (-10, -10, 200, 40)), ("M3", (-10, -10, 200, 40)), *cuts)
    assert failed(initial, erase("V2", n=1)) == {"strict_area_kept"}
    relaxed = derive_limits([(0, 0, 10, 10)], 0.001, ["V2.M3.AUX.2"], TABLE)
    assert set(relaxed.min_area_kept) == {"V2"}
    assert failed(initial, erase("V2", n=1), relaxed) == set()
    assert "strict_area_kept" in failed(initial, both(erase("V2"), erase("V2")), relaxed)
    assert derive_limits([(0, 0, 10, 10)], 0.001, ["M2.W.1"], TABLE).min_area_kept == {}


def test_edited_area():
    result = check(bars(*TWO), add("M1", 200, 0, 300, 100), Limits(max_edited_area=0.02))["strict_edited_area"]
    assert result.passed
    assert result.measured == pytest.approx(0.01)
    assert "strict_edited_area" in failed(bars(*TWO), add("M1", 200, 0, 300, 100), Limits(max_edited_area=0.009))
    moved = check(bars(*TWO), move("M1", 0, -10))["strict_edited_area"]
    assert moved.measured == pytest.approx(2 * 100 * 10 * 1e-6)


def test_a_master_counts_once():
    single = check(design(), add("M5", 0, 0, 40, 100, of="INV"))["strict_edited_area"].measured
    assert single == pytest.approx(4000 * DBU * DBU)


def test_derived_limits_cover_the_surroundings_of_violations():
    limits = derive_limits([(0, 0, 100, 100), (20, 20, 80, 80)], 0.001)
    assert limits.max_edited_area == pytest.approx(0.3 * 0.3)
    assert derive_limits([], 0.001).max_edited_area == 0


# -- verdicts ------------------------------------------------------------------------------------------------------


def narrow() -> DRCLayout:
    """An M3 bar, 12 nm wide: M3.W.1 asks for 18 nm."""
    return bars(("M3", (0, 0, 12, 300)))


def verdict(initial: DRCLayout, edit: Edit, **kwargs):
    counts = full_check(initial, TABLE).counts
    layout = initial.copy()
    edit(layout)
    return verify_drc(initial, full_check(layout, TABLE), counts, **kwargs)


def test_verdict_of_a_repair():
    v = verdict(narrow(), reshape("M3", 0, 0, 18, 300))
    assert (v.paper_success, v.strict_success) == (True, True)
    assert v.metrics["vrr"] == 1.0
    assert v.checks[0].id == "drc:M3.W.1"
    assert v.checks[0].passed


def test_verdict_of_a_deletion():
    v = verdict(narrow(), erase("M3"))
    assert (v.paper_success, v.strict_success) == (True, False)
    assert [c.id for c in v.failed("strict")] == ["strict_area_kept", "strict_conductors"]
    assert v.failed("paper") == ()


def test_verdict_of_no_repair():
    v = verdict(narrow(), lambda layout: None)
    assert (v.paper_success, v.strict_success) == (False, False)
    (c,) = (c for c in v.failed("paper") if c.id == "drc:M3.W.1")
    assert c.measured == 1.0
    assert c.where == pytest.approx((0, 0, 0.012, 0.3))
    assert v.metrics["violations"] == v.metrics["initial_violations"] > 0
    assert v.metrics["vrr"] == 0.0


def test_verdict_of_a_new_violation():
    v = verdict(narrow(), both(reshape("M3", 0, 0, 18, 300), add("M5", 0, 0, 3, 100)))
    assert not v.paper_success
    assert any(c.id.startswith("drc:M5.") and not c.passed for c in v.checks)


def test_without_strict_checks():
    v = verdict(narrow(), reshape("M3", 0, 0, 18, 300), strict=False)
    assert (v.paper_success, v.strict_success) == (True, False)
    assert not any(c.strict for c in v.checks)


def test_the_region_of_interest_decides_what_counts():
    initial = bars(("M3", (0, 0, 12, 300)), ("M3", (500, 0, 512, 300)))
    roi = (-0.01, -0.01, 0.1, 0.4)
    report = full_check(initial, TABLE, roi=roi)
    verifier = DRCVerifier(initial, TABLE, report.counts)
    layout = initial.copy()
    reshape("M3", 0, 0, 18, 300)(layout)
    assert verifier.verify(full_check(layout, TABLE, roi=roi)).strict_success
    assert not verifier.verify(full_check(layout, TABLE)).paper_success


def test_a_golden_layout_can_differ_from_the_initial_one():
    """Where the violation broke a net, the circuit to keep is the original's."""
    golden = design()
    initial = golden.copy()
    erase("M2")(initial)
    add("M2", 396, 576, 1000, 648)(initial)
    reference = Reference(golden, STACK)
    repaired = golden.copy()
    assert {c.id for c in strict_checks(initial, initial, TABLE, Limits(), reference) if not c.passed} == {
        "strict_opens"
    }
    assert all(c.passed for c in strict_checks(initial, repaired, TABLE, Limits(), reference))


def test_rules_of_another_table_are_refused():
    with pytest.raises(TaskError, match="unknown rules"):
        rule_checks(full_check(narrow(), TABLE), ["NO.SUCH.RULE"])


def test_no_rule_at_all():
    (c,) = rule_checks(full_check(bars(), TABLE), [])
    assert c.passed


@pytest.mark.parametrize(
    ("initial", "final", "rate"), [(4, 1, 0.75), (4, 0, 1.0), (4, 9, 0.0), (0, 0, 1.0), (0, 1, 0.0)]
)
def test_violation_reduction(initial, final, rate):
    assert violation_reduction(initial, final) == rate


# -- real tasks ----------------------------------------------------------------------------------------------------

# Tasks on one design, each with its own violation: the others' layout at that place is the engineers' repair.
GCD_TASKS = [
    "essential/L2/q3",
    "essential/L2/q5",
    "essential/L2/q7",
    "essential/L3/q1",
    "essential/L3/q3",
    "essential/L3/q5",
    "reasoning/L1/q7",
    "reasoning/L2/q3",
    "reasoning/L3/q7",
]


@pytest.mark.real
@pytest.mark.parametrize("name", GCD_TASKS)
def test_the_engineers_repairs_are_within_the_derived_limits(name):
    folder = Path(os.environ["EDAGYM_REAL_DATA"]) / "posteda-dev" / "drc_bench"
    repaired = DRCLayout.from_gds(folder / "drc_essential" / "L2" / "q1" / "top_cell.gds")
    (wire,) = (s for s in shapes(repaired, "M3") if s.is_path() and s.path_width == 36)
    wire.path_width = 72
    (task,) = import_posteda(folder / f"drc_{name}")
    initial = DRCLayout.from_bytes(task.gds)
    results = strict_checks(initial, repaired, TABLE, task.limits, Reference(initial, STACK), rules=task.counts)
    assert [c for c in results if not c.passed] == []
    assert all(c.passed for c in strict_checks(initial, initial, TABLE, task.limits, Reference(initial, STACK)))
