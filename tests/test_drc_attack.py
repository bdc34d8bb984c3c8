"""Attacks on the strict guards: ways to a clean report that break the design, and honest repairs that must pass.

Every attack was once let through, or is near one that was. The fuzz compares verdicts with `drc_netlist.Model`, which
shares no code with the guards.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache

import klayout.db as kdb
import numpy as np
import pytest
from drc_drawings import TABLE, box
from drc_netlist import Model

from edagym.envs.drc.edits import LayoutEditor
from edagym.envs.drc.labels import outcome
from edagym.errors import EditError
from edagym.spaces.drc_edits import (
    ORIENTATIONS,
    AddShape,
    ChangeShape,
    Delete,
    DRCEdit,
    Move,
    MoveCell,
    MoveEdge,
    Replace,
    Resize,
    ShapeRef,
    box_points,
    drc_edit_from_json,
)
from edagym.task_assets.drc.blocks import generate_block
from edagym.task_assets.drc.suite import load_task
from edagym.task_assets.drc.task import Limits
from edagym.verifiers.drc import DRCLayout, MarkerStore, full_check
from edagym.verifiers.drc.connectivity import Reference
from edagym.verifiers.drc.guards import strict_checks
from edagym.verifiers.drc.incremental import IncrementalChecker
from edagym.verifiers.drc.stack import stack_of
from edagym.verifiers.drc.verifier import DRCVerifier
from edagym.verifiers.verdict import Verdict

STACK = stack_of(TABLE)


@cache
def block() -> DRCLayout:
    """A clean block with taps, fillers and power vias."""
    drawn = generate_block(np.random.default_rng(5), rows=2, width_cpp=16, top_metal="M5")
    return DRCLayout.from_bytes(drawn.gds())


@cache
def reference() -> Reference:
    return Reference(block(), STACK)


def failed(edits: Iterable[DRCEdit], rules: Iterable[str] = ("M3.W.1",)) -> dict[str, str]:
    """Strict checks that fail after edits of the block, with their messages."""
    layout = block().copy()
    editor = LayoutEditor(layout, TABLE)
    for edit in edits:
        editor.apply(edit)
    found = strict_checks(block(), layout, TABLE, Limits(), reference(), rules=rules)
    return {c.id: c.message for c in found if not c.passed}


def own(name: str, cell: str, layout: DRCLayout | None = None) -> list[kdb.Box]:
    """Boxes of a cell's own shapes, from left to right."""
    source = block() if layout is None else layout
    where = source.layout.cell(cell) if cell else source.top
    entry = TABLE.layers[name]
    found = where.shapes(source.layout.layer(entry.layer, entry.datatype)).each(kdb.Shapes.SRegions)
    return sorted((s.bbox() for s in found), key=lambda b: (b.left, b.bottom, b.right))


def change(name: str, what: kdb.Box, how: object, cell: str = "") -> ChangeShape:
    ref = ShapeRef(box=(what.left, what.bottom, what.right, what.top))
    return ChangeShape(name, ref, how, cell)  # type: ignore[arg-type]


def placed(cell: str) -> list[tuple[int, int, str]]:
    found = (i for i in block().top.each_inst() if i.cell.name == cell)
    return sorted((i.trans.disp.x, i.trans.disp.y, ORIENTATIONS[i.trans.rot]) for i in found)


# -- the corpus ----------------------------------------------------------------------------------------------------


def attacks() -> dict[str, tuple[list[DRCEdit], str, str]]:
    """Edits, a strict check that has to fail, and words of its message."""
    tap = "TAPx1"
    sdt, active = own("SDT", tap)[-1], own("ACTIVE", tap)[-1]
    fin = own("FIN", "INVx1")[1]
    inverter = own("ACTIVE", "INVx1")
    well, nselect = own("WELL", "INVx1")[0], own("NSELECT", "INVx1")[0]
    gates = own("GATE", "INVx1")
    cuts = own("V1", "PWR_M1M2")
    (x1, y, turn), (x2, *_) = [p for p in placed("PWR_M1M2") if p[1] == placed("PWR_M1M2")[0][1]][:2]
    source = kdb.Box(inverter[0].left, inverter[0].bottom, inverter[0].left + 60, inverter[0].top)
    return {
        "one via on another, by its cell": (
            [MoveCell("PWR_M1M2", (x1, y), (x2 - x1, 0), turn)],
            "strict_area_kept",
            "of a piece of",
        ),
        "one via on another, in a master": (
            [change("V1", cuts[0], Move(cuts[1].left - cuts[0].left, 0), "PWR_M1M2")],
            "strict_area_kept",
            "of a piece of V1",
        ),
        "a contact that only abuts its tap": (
            [change("SDT", sdt, Move(0, active.bottom - sdt.top), tap)],
            "strict_opens",
            "cut off from its net",
        ),
        "a contact beside its tap": ([change("SDT", sdt, Move(-96, 0), tap)], "strict_opens", "cut off from its net"),
        "a fin taken from a transistor": (
            [change("FIN", fin, Delete(), "INVx1")],
            "strict_devices",
            "had 3 fins and has 2",
        ),
        "a fin moved onto its neighbour": ([change("FIN", fin, Move(0, 108), "INVx1")], "strict_devices", "fins"),
        "a fin cut under a source": (
            [change("FIN", fin, Resize(-source.center().x, 0, 0, 0), "INVx1")],
            "strict_devices",
            "fins",
        ),
        "another threshold over a source": (
            [AddShape("LVT", box_points((source.left, source.bottom, source.right, source.top)), "INVx1")],
            "strict_devices",
            "LVT over the active area",
        ),
        "another threshold over a tap": (
            [AddShape("SLVT", box_points((active.left, active.bottom, active.right, active.top)), tap)],
            "strict_devices",
            "SLVT over the active area",
        ),
        "a well taken from a source": (
            [change("WELL", well, MoveEdge(0, -(inverter[1].left + 60)), "INVx1")],
            "strict_devices",
            "WELL over the active area",
        ),
        "an implant taken from a tap": (
            [change("NSELECT", own("NSELECT", tap)[0], Delete(), tap)],
            "strict_devices",
            "NSELECT over the active area",
        ),
        "an implant over the other one": (
            [change("NSELECT", nselect, MoveEdge(1, 540), "INVx1")],
            "strict_devices",
            "NSELECT over the active area",
        ),
        "a gate on another": ([change("GATE", gates[0], Move(216, 0), "INVx1")], "strict_area_kept", "GATE"),
        "a transistor of one fin more": (
            [change("ACTIVE", inverter[0], MoveEdge(1, 108), "INVx1")],
            "strict_devices",
            "had 3 fins and has 4",
        ),
        "a longer gate": (
            [change("GATE", gates[1], Resize(2, 0, 2, 0), "INVx1")],
            "strict_devices",
            "um (channel)",
        ),
        "a gate cut removed": (
            [change("GCUT", g, Delete(), "INVx1") for g in own("GCUT", "INVx1")],
            "strict_area_kept",
            "GCUT",
        ),
    }


@pytest.mark.parametrize("name", attacks())
def test_attacks_fail_with_a_reason(name):
    edits, check, words = attacks()[name]
    found = failed(edits)
    assert check in found, found
    assert words in found[check], found


def lone(*boxes: tuple[str, tuple[int, int, int, int]]) -> DRCLayout:
    layout = kdb.Layout()
    layout.dbu = 0.001
    top = layout.create_cell("TOP")
    for name, coords in boxes:
        box(layout, top, name, *coords)
    return DRCLayout(layout)


def lone_failed(initial: DRCLayout, edits: Iterable[DRCEdit], **kwargs) -> dict[str, str]:
    layout = initial.copy()
    editor = LayoutEditor(layout, TABLE)
    for edit in edits:
        editor.apply(edit)
    found = strict_checks(initial, layout, TABLE, Limits(), Reference(initial, STACK), **kwargs)
    return {c.id: c.message for c in found if not c.passed}


def at(*coords: int) -> kdb.Box:
    return kdb.Box(*coords)


TWO_ACTIVES = (("ACTIVE", (0, 0, 108, 513)), ("ACTIVE", (199, 0, 307, 513)), ("NSELECT", (-50, -50, 357, 563)))


@pytest.mark.parametrize("dx", [91, 100, 107, 108, 110, 150, 198, 199])
def test_lone_pieces_must_not_be_merged(dx):
    """Flush or overlapping: two active areas are one afterwards."""
    found = lone_failed(lone(*TWO_ACTIVES), [change("ACTIVE", at(0, 0, 108, 513), Move(dx, 0))])
    assert {"strict_shorts", "strict_conductors"} & found.keys(), found


@pytest.mark.parametrize("dx", [10, -40])
def test_lone_pieces_may_be_moved(dx):
    assert lone_failed(lone(*TWO_ACTIVES), [change("ACTIVE", at(0, 0, 108, 513), Move(dx, 0))]) == {}


def test_a_fin_moved_off_a_lone_active_area():
    initial = lone(("ACTIVE", (0, 27, 70, 108)), ("FIN", (-60, 64, 90, 71)), ("NSELECT", (-200, -100, 300, 300)))
    found = lone_failed(initial, [change("FIN", at(-60, 64, 90, 71), Move(0, 200))])
    assert "had 1 fins and has 0" in found["strict_devices"]
    assert lone_failed(initial, [change("FIN", at(-60, 64, 90, 71), Resize(10, 0, 10, 0))]) == {}


def test_a_via_that_abuts_its_wire_does_not_conduct():
    initial = lone(("M2", (0, 0, 100, 18)), ("V2", (40, 0, 58, 18)), ("M3", (40, -100, 58, 100)))
    found = lone_failed(initial, [change("V2", at(40, 0, 58, 18), Move(0, 18))])
    assert {"strict_opens", "strict_conductors"} & found.keys(), found


def test_a_wire_moved_off_its_via():
    """The net keeps its other shapes and both pieces their areas."""
    initial = lone(("M2", (0, 0, 100, 18)), ("V2", (40, 0, 58, 18)), ("M3", (40, -100, 58, 100)))
    found = lone_failed(initial, [change("M2", at(0, 0, 100, 18), Move(0, 200))])
    assert {"strict_opens", "strict_conductors"} & found.keys(), found


def test_a_large_piece_does_not_pay_for_a_small_one():
    """A patch is deleted, a rail beside it loses a corner: together nine tenths of their area are left."""
    rail, patch = (0, 100, 2000, 170), (900, 0, 940, 40)
    initial = lone(("M1", rail), ("M1", patch))
    edits = [change("M1", at(*patch), Delete()), change("M1", at(*rail), Resize(-1, 0, 0, 0))]
    found = lone_failed(initial, edits)
    assert "0.0% of a piece of M1 is left" in found["strict_area_kept"]


def test_widened_vias_do_not_pay_for_one_that_was_taken_out() -> None:
    task = load_task("Essential-L3/q6")
    repair = [drc_edit_from_json(edit) for edit in task.reference]
    taken = ChangeShape("V1", ShapeRef(box=(-132, -36, -60, 36)), Delete(), "PWR_M1M2_v1")
    for extra, kept in ([], True), ([taken], False):
        verdict = outcome(task, [*repair, *extra])
        assert verdict is not None
        assert verdict.paper_success
        assert verdict.strict_success == kept
        assert [c.id for c in verdict.failed()] == ([] if kept else ["strict_area_kept"])


def test_a_relaxed_limit_is_of_every_piece():
    """Where a task lets wires lose a quarter, it does not let one of four wires go."""
    wires = [("M2", (0, 60 * i, 300, 60 * i + 18)) for i in range(5)]
    initial = lone(*wires)
    limits = Limits({"M2": 0.74})
    layout = initial.copy()
    LayoutEditor(layout, TABLE).apply(change("M2", at(*wires[0][1]), Delete()))
    found = strict_checks(initial, layout, TABLE, limits, Reference(initial, STACK))
    assert "0.0% of a piece of M2 is left" in {c.id: c.message for c in found}["strict_area_kept"]


def test_a_well_that_was_cut():
    initial = lone(
        ("WELL", (0, 0, 1000, 270)), ("ACTIVE", (100, 50, 200, 131)), ("ACTIVE", (800, 50, 900, 131)),
        ("PSELECT", (0, 0, 1000, 270)),
    )  # fmt: skip
    edits = [
        change("WELL", at(0, 0, 1000, 270), Replace(box_points((0, 0, 470, 270)))),
        AddShape("WELL", box_points((530, 0, 1000, 270))),
    ]
    assert "a WELL was cut into 2 parts" in lone_failed(initial, edits)["strict_opens"]


def test_a_violation_pushed_out_of_the_region_of_interest():
    initial = lone(("M3", (0, 0, 12, 300)), ("M3", (500, 0, 512, 300)))
    roi = (-0.01, -0.01, 0.1, 0.4)
    verifier = DRCVerifier(initial, TABLE, full_check(initial, TABLE, roi=roi).counts)

    def verdict(how: object) -> Verdict:
        layout = initial.copy()
        LayoutEditor(layout, TABLE).apply(change("M3", at(0, 0, 12, 300), how))
        return verifier.verify(full_check(layout, TABLE, roi=roi))

    pushed = verdict(Move(95, 0))
    assert (pushed.paper_success, pushed.strict_success) == (True, False)
    (check,) = pushed.failed("strict")
    assert check.id == "strict_elsewhere"
    assert check.message.startswith("1 new violation(s) of M3.W.1 outside the region of interest")
    # The one that was there before is nobody's fault.
    assert verdict(Resize(0, 0, 6, 0)).strict_success


# -- honest repairs ------------------------------------------------------------------------------------------------


def honest() -> dict[str, list[DRCEdit]]:
    wire = max(own("M3", ""), key=lambda b: b.height())
    (x, y, turn) = placed("VIA_M2M3")[0]
    return {
        "a wider wire": [change("M3", wire, Resize(4, 0, 4, 0))],
        "a longer wire": [change("M3", wire, Resize(0, 20, 0, 20))],
        "a wire drawn twice": [AddShape("M3", box_points((wire.left, wire.bottom, wire.right, wire.top)))],
        "a wire in two pieces that overlap": [
            change("M3", wire, Replace(box_points((wire.left, wire.bottom, wire.right, wire.center().y + 40)))),
            AddShape("M3", box_points((wire.left, wire.center().y - 40, wire.right, wire.top))),
        ],
        "a via moved along its wire": [MoveCell("VIA_M2M3", (x, y), (0, 8), turn)],
        "a patch that enlarges a wire": [
            AddShape("M3", box_points((wire.left - 40, wire.bottom, wire.left, wire.bottom + 120)))
        ],
        "a larger cut in every via": [change("V2", own("V2", "VIA_M2M3")[0], Resize(2, 2, 2, 2), "VIA_M2M3")],
        "a gate cut that reaches further": [change("GCUT", own("GCUT", "FILLx1")[0], MoveEdge(1, 20), "FILLx1")],
    }


@pytest.mark.parametrize("name", honest())
def test_honest_repairs_keep_all_guards(name):
    assert failed(honest()[name]) == {}


def test_a_cell_moves_to_its_neighbour():
    """The last cell of a row leaves a gap of a gate pitch, and closes it again."""
    layout = block().copy()
    end = max((i for i in layout.top.each_inst() if i.cell.name.startswith("FILL")), key=lambda i: i.bbox().right)
    end.trans = kdb.Trans(kdb.Vector(216, 0)) * end.trans
    gap, here = layout.copy(), end.trans.disp
    editor = LayoutEditor(layout, TABLE)
    editor.apply(MoveCell(end.cell.name, (here.x, here.y), (-216, 0), ORIENTATIONS[end.trans.rot]))
    found = strict_checks(gap, layout, TABLE, Limits(), Reference(gap, STACK), rules=["M3.W.1"])
    assert [c for c in found if not c.passed] == []


# -- the same task, drawn otherwise --------------------------------------------------------------------------------

TURNS = {"moved": kdb.Trans(12_340, -5_680), "mirrored": kdb.Trans(kdb.Trans.M90, 0, 0), "turned": kdb.Trans.R180}


def drawn_otherwise(layout: DRCLayout, how: str) -> DRCLayout:
    other = layout.copy()
    if how in TURNS:
        other.layout.transform(kdb.Trans(TURNS[how]))
    elif how == "renamed":
        for cell in list(other.layout.each_cell()):
            other.layout.rename_cell(cell.cell_index(), f"X_{cell.name}")
    else:
        for cell in other.layout.each_cell():
            for index in other.layout.layer_indexes():
                found = [s.dup() for s in cell.shapes(index).each()]
                copies = kdb.Shapes()
                for shape in reversed(found):
                    copies.insert(shape)
                cell.shapes(index).clear()
                cell.shapes(index).insert(copies)
    return DRCLayout.from_bytes(other.to_bytes())


@pytest.mark.parametrize("how", [*TURNS, "renamed", "reordered"])
@pytest.mark.parametrize("task_id", ["Essential-L1/q14", "Reasoning-L1/q4"])
def test_verdicts_do_not_depend_on_how_a_task_is_drawn(task_id, how):
    """Repaired, untouched, and with a shape of the reference deleted."""
    task = load_task(task_id)
    first = drc_edit_from_json(task.reference[0])
    initial = DRCLayout.from_bytes(task.gds)
    golden = initial if task.golden is None else DRCLayout.from_bytes(task.golden)
    layouts = [initial, initial.copy(), initial.copy()]
    editor = LayoutEditor(layouts[1], TABLE)
    for edit in task.reference:
        editor.apply(drc_edit_from_json(edit))
    if isinstance(first, ChangeShape):
        LayoutEditor(layouts[2], TABLE).apply(ChangeShape(first.layer, first.shape, Delete(), first.cell))
    outcomes = []
    for draw in (lambda layout: layout, lambda layout: drawn_otherwise(layout, how)):
        verifier = DRCVerifier(draw(initial), TABLE, task.counts, task.limits, draw(golden))
        verdicts = [verifier.verify(full_check(draw(layout), TABLE)) for layout in layouts]
        outcomes.append([(v.paper_success, v.strict_success, {c.id for c in v.failed()}) for v in verdicts])
    assert outcomes[0] == outcomes[1]
    assert [o[1] for o in outcomes[0]] == [False, True, False]


# -- edits that are no edits ---------------------------------------------------------------------------------------

ODD = (math.nan, math.inf, -math.inf, 1e308, 0.5, 2**31, 2**64, 10**30, None, "4", [1], {}, b"x", np.float64(3.0))


def odd_edits() -> Iterable[object]:
    wire = own("M3", "")[0]
    (x, y, _), shape = placed("VIA_M2M3")[0], ShapeRef(box=(wire.left, wire.bottom, wire.right, wire.top))
    for v in ODD:
        yield AddShape("M3", ((0, 0), (0, v), (20, v), (20, 0)))  # type: ignore[arg-type]
        yield AddShape("M3", v)  # type: ignore[arg-type]
        yield AddShape(v, box_points((0, 0, 9, 9)))  # type: ignore[arg-type]
        for how in (Move(v, 0), MoveEdge(v, 4), MoveEdge(0, v), Resize(v, 0, 0, 0), Replace(v), v):  # type: ignore[arg-type]
            yield ChangeShape("M3", shape, how)  # type: ignore[arg-type]
        for ref in (ShapeRef(index=v), ShapeRef(box=(v, 0, 1, 1)), ShapeRef(points=v), v):  # type: ignore[arg-type]
            yield ChangeShape("M3", ref, Delete())  # type: ignore[arg-type]
        yield MoveCell("VIA_M2M3", (x, y), (v, 4))  # type: ignore[arg-type]
        yield MoveCell("VIA_M2M3", (v, y), (4, 4))  # type: ignore[arg-type]
        yield MoveCell(v, (x, y), (4, 4))  # type: ignore[arg-type]
        yield v


def test_malformed_edits_are_refused_and_change_nothing():
    layout = block().copy()
    editor = LayoutEditor(layout, TABLE)
    before = layout.to_bytes()
    refused = 0
    for edit in odd_edits():
        # None in a reference means that it is not used.
        try:
            editor.apply(edit)  # type: ignore[arg-type]
        except EditError as e:
            refused += bool(e.field)
        else:
            editor.undo()
    assert refused > 200
    assert layout.to_bytes() == before


# -- fuzz ----------------------------------------------------------------------------------------------------------


def random_edit(layout: DRCLayout, rng: np.random.Generator) -> DRCEdit | None:
    """An edit that is likely to hurt: onto neighbours, flush with them, away, half of it, a layer over another."""

    def pick(options):
        return options[int(rng.integers(len(options)))]

    if rng.random() < 0.15:
        inst = pick(list(layout.top.each_inst()))
        others = [i for i in layout.top.each_inst() if i.cell_index == inst.cell_index and i.trans != inst.trans]
        here = inst.trans.disp
        step = kdb.Vector(4 * int(rng.integers(-60, 61)), 0)
        if others and rng.random() < 0.5:
            step = min((o.trans.disp - here for o in others), key=lambda v: v.sq_length())
        return MoveCell(inst.cell.name, (here.x, here.y), (step.x, step.y), ORIENTATIONS[inst.trans.rot])
    cell = pick(list(layout.layout.each_cell()))
    of = "" if cell.name == layout.top.name else cell.name
    filled = [n for n in TABLE.layers if (k := layout.layer_index(*STACK_GDS[n])) is not None and cell.shapes(k).size()]
    if not filled:
        return None
    name = pick(filled)
    shapes = own(name, of, layout)
    shape = pick(shapes)
    what = int(rng.integers(5))
    if what == 0:
        grown = shape.enlarged(pick((0, 4, 40)), pick((0, 4, 40)))
        return AddShape(pick(list(TABLE.layers)), box_points((grown.left, grown.bottom, grown.right, grown.top)), of)
    if what == 1:
        return change(name, shape, Delete(), of)
    if what == 2:
        return change(name, shape, MoveEdge(int(rng.integers(4)), pick((-216, -108, -36, 36, 108))), of)
    middle = shape.center()
    other = min(
        (s for s in shapes if s != shape),
        key=lambda s: (abs(s.center().x - middle.x) + abs(s.center().y - middle.y), str(s)),
        default=None,
    )
    steps = [(96, 0), (-216, 0), (0, 108), (0, -324), (0, shape.height()), (shape.width(), 0)]
    if other is not None:
        steps += 2 * [(other.left - shape.left, other.bottom - shape.bottom), (other.left - shape.right, 0)]
    return change(name, shape, Move(*pick(steps)), of)


STACK_GDS = {name: (entry.layer, entry.datatype) for name, entry in TABLE.layers.items()}


def test_passing_edits_keep_the_circuit_of_an_independent_model():
    rng = np.random.default_rng(3)
    model = Model(block())
    assert model.changes(Model(block().copy())) == []
    clean = MarkerStore(TABLE.rules, block().dbu)
    passed, caught = 0, 0
    for _ in range(110):
        layout = block().copy()
        edit = random_edit(layout, rng)
        if edit is None:
            continue
        try:
            applied = LayoutEditor(layout, TABLE).apply(edit)
        except EditError:
            continue
        found = strict_checks(block(), layout, TABLE, Limits(), reference(), rules=["M3.W.1"])
        strict = all(c.passed for c in found)
        if not strict:
            caught += bool(rng.random() < 0.1) and model.changes(Model(layout)) != []
            continue
        checker = IncrementalChecker(layout, TABLE, clean)
        checker.recheck(applied.boxes, applied.layers)
        if not list(checker.markers):
            passed += 1
            assert model.changes(Model(layout)) == [], edit
    assert passed >= 10
    assert caught >= 1
