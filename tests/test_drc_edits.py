"""Typed edits: JSON round trips, applying and refusing, dirty boxes, undo and snapshots."""

from __future__ import annotations

import json
import os
from pathlib import Path

import klayout.db as kdb
import numpy as np
import pytest
from drc_drawings import DBU, TABLE, box, contact_x, design, inverter
from hypothesis import given, settings
from hypothesis import strategies as st

from edagym.envs.drc.edits import LayoutEditor, hull, shape_polygons
from edagym.errors import EditError
from edagym.spaces.drc_edits import (
    MAX_POINTS,
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
    drc_edit_to_json,
    points_box,
)
from edagym.task_assets.drc.blocks import generate_block
from edagym.verifiers.drc import DRCLayout
from edagym.verifiers.drc.diff import compare_layouts

L_SHAPE = ((0, 0), (0, 40), (20, 40), (20, 20), (60, 20), (60, 0))


def editor(layout: DRCLayout | None = None, **kwargs) -> LayoutEditor:
    return LayoutEditor(design() if layout is None else layout, TABLE, **kwargs)


def region(layout: DRCLayout, name: str, cell: str = "") -> kdb.Region:
    entry = TABLE.layers[name]
    where = layout.layout.cell(cell) if cell else layout.top
    return kdb.Region(where.shapes(layout.layout.layer(entry.layer, entry.datatype)))


def refused(edit: DRCEdit, layout: DRCLayout | None = None, **kwargs) -> EditError:
    """Apply an edit that must be refused and leave the layout as it was."""
    e = editor(layout, **kwargs)
    before = e.layout.to_bytes()
    with pytest.raises(EditError) as caught:
        e.apply(edit)
    assert e.layout.to_bytes() == before
    assert e.edits == ()
    assert caught.value.field
    return caught.value


# -- JSON ----------------------------------------------------------------------------------------------------------

EDITS: list[DRCEdit] = [
    AddShape("M2", box_points((0, 0, 10, 20))),
    AddShape("M2", L_SHAPE, "INV"),
    ChangeShape("M1", ShapeRef(box=(0, 0, 10, 20)), Move(-3, 4)),
    ChangeShape("M1", ShapeRef(points=L_SHAPE), MoveEdge(2, -5), "INV"),
    ChangeShape("M1", ShapeRef(index=7), Resize(1, -2, 3, 4)),
    ChangeShape("M1", ShapeRef(index=0), Replace(L_SHAPE)),
    ChangeShape("M1", ShapeRef(index=0), Replace(box_points((-5, -5, 5, 5)))),
    ChangeShape("M1", ShapeRef(index=0), Delete()),
    MoveCell("VIA12", (100, -200), (4, 0)),
    MoveCell("VIA12", (100, -200), (4, 0), "m90", "INV"),
]


@pytest.mark.parametrize("edit", EDITS, ids=repr)
def test_json_round_trip(edit):
    data = json.loads(json.dumps(drc_edit_to_json(edit)))
    assert drc_edit_from_json(data) == edit


def test_json_forms():
    assert drc_edit_to_json(EDITS[0]) == {"op": "add_shape", "layer": "M2", "box": [0, 0, 10, 20]}
    assert drc_edit_to_json(EDITS[3]) == {
        "op": "change_shape",
        "layer": "M1",
        "shape": {"points": [list(p) for p in L_SHAPE]},
        "change": "move_edge",
        "edge": 2,
        "by": -5,
        "cell": "INV",
    }
    assert drc_edit_to_json(EDITS[8]) == {"op": "move_cell", "cell": "VIA12", "at": [100, -200], "by": [4, 0]}


def test_agents_may_write_whole_floats_and_any_corner_first():
    edit = drc_edit_from_json({"op": "add_shape", "layer": "M1", "box": [10.0, 20, 0, 0]})
    assert edit == AddShape("M1", box_points((0, 0, 10, 20)))


coordinates = st.integers(-(2**29), 2**29)
rings = st.lists(st.tuples(coordinates, coordinates), min_size=4, max_size=12).map(tuple)
refs = st.one_of(
    st.builds(lambda p: ShapeRef(points=p), rings),
    st.builds(
        lambda a, b, w, h: ShapeRef(box=(a, b, a + w, b + h)),
        st.integers(-999, 999),
        st.integers(-999, 999),
        st.integers(0, 99),
        st.integers(0, 99),
    ),
    st.builds(lambda i: ShapeRef(index=i), st.integers(0, 10**6)),
)
changes = st.one_of(
    st.builds(Move, coordinates, coordinates),
    st.builds(MoveEdge, st.integers(0, 300), coordinates),
    st.builds(Resize, coordinates, coordinates, coordinates, coordinates),
    st.builds(Delete),
)


@given(st.builds(ChangeShape, st.sampled_from(["M1", "V0"]), refs, changes, st.sampled_from(["", "INV"])))
def test_any_change_survives_json(edit):
    assert drc_edit_from_json(json.loads(json.dumps(drc_edit_to_json(edit)))) == edit


@given(st.tuples(coordinates, coordinates, coordinates, coordinates))
def test_boxes_and_their_points(corners):
    x1, y1, x2, y2 = corners
    found = points_box(box_points((min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2))))
    assert found == ((min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)) if x1 != x2 and y1 != y2 else None)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["op", "layer", "shape", "by", "box", "points", "change", "at", "cell"]),
                inner | st.sampled_from(["add_shape", "change_shape", "move_cell", "move"]),
                max_size=6,
            )
        ),
        max_leaves=10,
    )
)
def test_any_json_is_an_edit_or_an_edit_error(data):
    try:
        edit = drc_edit_from_json(data)
    except EditError:
        return
    assert drc_edit_from_json(drc_edit_to_json(edit)) == edit


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (None, "edit"),
        ([], "edit"),
        ({}, "op"),
        ({"op": "flip_cell"}, "op"),
        ({"op": "add_shape"}, "layer"),
        ({"op": "add_shape", "layer": 3, "box": [0, 0, 1, 1]}, "layer"),
        ({"op": "add_shape", "layer": "M1"}, "points"),
        ({"op": "add_shape", "layer": "M1", "box": [0, 0, 1, 1], "points": [[0, 0]]}, "points"),
        ({"op": "add_shape", "layer": "M1", "box": [0, 0, 1]}, "box"),
        ({"op": "add_shape", "layer": "M1", "box": [0, 0, 1, 0.5]}, "box[3]"),
        ({"op": "add_shape", "layer": "M1", "box": [0, 0, 1, float("nan")]}, "box[3]"),
        ({"op": "add_shape", "layer": "M1", "box": [0, 0, 1, 2**40]}, "box[3]"),
        ({"op": "add_shape", "layer": "M1", "box": [0, 0, 1, 10**400]}, "box[3]"),
        ({"op": "add_shape", "layer": "M1", "box": [0, 0, 1, "1"]}, "box[3]"),
        ({"op": "add_shape", "layer": "M1", "box": [0, 0, 1, True]}, "box[3]"),
        ({"op": "add_shape", "layer": "M1", "points": [[0, 0], [1]]}, "points[1]"),
        ({"op": "add_shape", "layer": "M1", "points": [[0, 0]] * (MAX_POINTS + 1)}, "points"),
        ({"op": "add_shape", "layer": "M1", "box": [0, 0, 1, 1], "rotate": 90}, "rotate"),
        ({"op": "change_shape", "layer": "M1", "change": "delete"}, "shape"),
        ({"op": "change_shape", "layer": "M1", "shape": {}, "change": "delete"}, "shape"),
        (
            {"op": "change_shape", "layer": "M1", "shape": {"index": 1, "box": [0, 0, 1, 1]}, "change": "delete"},
            "shape",
        ),
        ({"op": "change_shape", "layer": "M1", "shape": {"index": -1}, "change": "delete"}, "shape.index"),
        ({"op": "change_shape", "layer": "M1", "shape": {"index": 1}, "change": "rotate"}, "change"),
        ({"op": "change_shape", "layer": "M1", "shape": {"index": 1}, "change": "move", "by": 3}, "by"),
        ({"op": "change_shape", "layer": "M1", "shape": {"index": 1}, "change": "delete", "by": 3}, "by"),
        ({"op": "change_shape", "layer": "M1", "shape": {"index": 1}, "change": "move_edge", "by": 3}, "edge"),
        ({"op": "move_cell", "at": [0, 0], "by": [0, 1]}, "cell"),
        ({"op": "move_cell", "cell": "", "at": [0, 0], "by": [0, 1]}, "cell"),
        ({"op": "move_cell", "cell": "X", "at": [0, 0]}, "by"),
        ({"op": "move_cell", "cell": "X", "at": [0, 0], "by": [1, 1], "mirror": True}, "mirror"),
        ({"op": "move_cell", "cell": "X", "at": [0, 0], "by": [1, 1], "orientation": "flipped"}, "orientation"),
    ],
)
def test_what_is_no_edit_is_refused_with_the_field(data, field):
    with pytest.raises(EditError) as caught:
        drc_edit_from_json(data)
    assert caught.value.field == field


# -- applying ------------------------------------------------------------------------------------------------------


def test_add_shape():
    e = editor()
    applied = e.apply(AddShape("M2", ((0, 2000), (100, 2000), (100, 2040), (0, 2040))))
    assert region(e.layout, "M2").bbox().top == 2040
    assert applied.boxes == ((0, 2000, 100, 2040),)
    assert applied.layers == {"M2"}
    assert (applied.cell, applied.master) == ("TOP", False)


def test_add_shape_on_a_layer_that_the_layout_lacks():
    e = editor()
    assert e.layout.layer_index(*_gds("M7")) is None
    e.apply(AddShape("M7", L_SHAPE))
    assert region(e.layout, "M7").area() == 60 * 20 + 20 * 20
    e.undo()
    assert e.layout.to_bytes() == design().to_bytes()


def _gds(name: str) -> tuple[int, int]:
    return (TABLE.layers[name].layer, TABLE.layers[name].datatype)


def test_a_master_changes_in_every_instance():
    e = editor()
    applied = e.apply(AddShape("M1", box_points((20, 200, 60, 240)), "INV"))
    assert applied.master
    assert sorted(applied.boxes) == [(20, 200, 60, 240), (668, 200, 708, 240)]
    flat = kdb.Region(e.layout.top.begin_shapes_rec(e.layout.layer_index(*_gds("M1")))).merged()
    assert all(kdb.Region(kdb.Box(*b)).inside(flat).count() == 1 for b in applied.boxes)


def test_boxes_of_turned_instances():
    layout = inverter()
    top = layout.layout.create_cell("ABOVE")
    top.insert(kdb.CellInstArray(layout.layout.cell("INV").cell_index(), kdb.Trans(kdb.Trans.R90, 5000, 0)))
    top.insert(kdb.CellInstArray(layout.layout.cell("INV").cell_index(), kdb.Trans(kdb.Trans.M90, 5000, 5000)))
    e = editor(DRCLayout(layout.layout))
    applied = e.apply(AddShape("M1", box_points((20, 200, 60, 240)), "INV"))
    assert sorted(applied.boxes) == [(4760, 20, 4800, 60), (4940, 5200, 4980, 5240)]


WIRE = (396, 576, 1656, 648)


@pytest.mark.parametrize(
    ("change", "result", "dirty"),
    [
        (Move(10, -4), (406, 572, 1666, 644), (396, 572, 1666, 648)),
        (MoveEdge(0, 6), (390, 576, 1656, 648), (390, 576, 1656, 648)),
        (MoveEdge(1, 6), (396, 576, 1656, 654), (396, 576, 1656, 654)),
        (MoveEdge(2, -6), (396, 576, 1650, 648), WIRE),
        (MoveEdge(3, 6), (396, 570, 1656, 648), (396, 570, 1656, 648)),
        (Resize(1, 2, 3, 4), (395, 574, 1659, 652), (395, 574, 1659, 652)),
        (Resize(-1, -2, -3, -4), (397, 578, 1653, 644), WIRE),
        (Replace(box_points((400, 580, 500, 600))), (400, 580, 500, 600), WIRE),
    ],
    ids=repr,
)
@pytest.mark.parametrize(
    "ref",
    [
        ShapeRef(box=WIRE),
        ShapeRef(points=box_points(WIRE)[2:] + box_points(WIRE)[:2]),
        ShapeRef(points=box_points(WIRE)[::-1]),
    ],
    ids=["box", "points", "reversed"],
)
def test_change_shape(change, result, dirty, ref):
    e = editor()
    applied = e.apply(ChangeShape("M2", ref, change))
    boxes = {str(p.bbox()) for p in region(e.layout, "M2").each()}
    assert str(kdb.Box(*result)) in boxes
    assert str(kdb.Box(*WIRE)) not in boxes
    assert applied.boxes == (dirty,)
    e.undo()
    assert compare_layouts(design().layout, e.layout.layout).empty


def test_delete_shape():
    e = editor()
    e.apply(ChangeShape("M2", ShapeRef(box=WIRE), Delete()))
    assert region(e.layout, "M2").count() == 1
    refused(ChangeShape("M2", ShapeRef(box=WIRE), Delete()), e.layout)


def test_shapes_by_index_are_sorted_by_place():
    e = editor()
    found = shape_polygons(e.layout.layout.cell("INV"), e.layout.layer_index(*_gds("M1")))
    assert [str(p.bbox()) for p in found] == sorted(
        (str(p.bbox()) for p in found), key=lambda s: [int(v) for v in s.strip("()").replace(";", ",").split(",")]
    )
    for i, polygon in enumerate(found):
        again = editor()
        again.apply(ChangeShape("M1", ShapeRef(index=i), Delete(), "INV"))
        assert str(polygon) not in {str(p) for p in region(again.layout, "M1", "INV").each()}
    assert "0..3" in str(refused(ChangeShape("M1", ShapeRef(index=4), Delete(), "INV")))


def test_edges_of_polygons_are_numbered_clockwise_from_the_lowest():
    e = editor()
    (polygon,) = (
        p for p in shape_polygons(e.layout.layout.cell("NAND"), e.layout.layer_index(*_gds("M1"))) if not p.is_box()
    )
    points = hull(polygon)
    assert points[0] == min(points, key=lambda p: (p[1], p[0]))
    top = next(i for i in range(6) if points[i][1] == points[(i + 1) % 6][1] == 756)
    e.apply(ChangeShape("M1", ShapeRef(points=points), MoveEdge(top, 12), "NAND"))
    assert region(e.layout, "M1", "NAND").area() == region(design(), "M1", "NAND").area() + 12 * (
        contact_x(2) - contact_x(1) + 72
    )


def test_paths_move_as_paths_and_are_reshaped_as_polygons():
    e = editor()
    index = e.layout.layer_index(*_gds("M3"))
    (path,) = e.layout.top.shapes(index).each()
    points = hull(path.polygon)
    e.apply(ChangeShape("M3", ShapeRef(points=points), Move(0, 8)))
    (path,) = e.layout.top.shapes(index).each()
    assert path.is_path()
    e.apply(ChangeShape("M3", ShapeRef(points=hull(path.polygon)), MoveEdge(0, 8)))
    (shape,) = e.layout.top.shapes(index).each()
    assert not shape.is_path()
    e.restore(())
    (path,) = e.layout.top.shapes(index).each()
    assert path.is_path()
    assert hull(path.polygon) == points


def test_properties_stay_with_their_shape():
    layout = design()
    (wire,) = (s for s in layout.top.shapes(layout.layer_index(*_gds("M2"))).each() if s.bbox() == kdb.Box(*WIRE))
    wire.set_property(1, "net5")
    e = editor(layout)

    def names() -> list[str]:
        return [s.property(1) for s in e.layout.top.shapes(e.layout.layer_index(*_gds("M2"))).each() if s.prop_id]

    e.apply(ChangeShape("M2", ShapeRef(box=WIRE), Resize(0, 4, 0, 4)))
    assert names() == ["net5"]
    e.apply(ChangeShape("M2", ShapeRef(box=(396, 572, 1656, 652)), Delete()))
    assert names() == []
    e.undo()
    assert names() == ["net5"]


def test_ambiguous_boxes_are_refused():
    layout = design()
    corner = [kdb.Point(*p) for p in ((396, 576), (396, 648), (1656, 648), (1656, 620), (1000, 620), (1000, 576))]
    layout.top.shapes(layout.layer_index(*_gds("M2"))).insert(kdb.Polygon(corner))
    error = refused(ChangeShape("M2", ShapeRef(box=WIRE), Delete()), layout)
    assert error.field == "shape.box"
    assert "several shapes" in str(error)
    editor(layout).apply(ChangeShape("M2", ShapeRef(points=box_points(WIRE)), Delete()))


def test_one_of_two_exact_duplicates_is_changed():
    layout = design()
    box(layout.layout, layout.top, "M2", *WIRE)
    e = editor(layout)
    e.apply(ChangeShape("M2", ShapeRef(box=WIRE), Delete()))
    assert str(kdb.Box(*WIRE)) in {str(p.bbox()) for p in region(e.layout, "M2").each()}


def test_move_cell():
    e = editor()
    applied = e.apply(MoveCell("VIA12", (432, 612), (12, -4)))
    assert applied.boxes == ((396, 572, 480, 648),)
    assert applied.layers == {"M1", "V1", "M2"}
    moved = {(i.trans.disp.x, i.trans.disp.y) for i in e.layout.top.each_inst()}
    assert (444, 608) in moved
    assert (432, 612) not in moved
    e.undo()
    assert compare_layouts(design().layout, e.layout.layout).empty


def test_instances_that_share_a_place_are_told_apart():
    layout = design()
    via = layout.layout.cell("VIA12").cell_index()
    layout.top.insert(kdb.CellInstArray(via, kdb.Trans(kdb.Trans.R90, 432, 612)))
    error = refused(MoveCell("VIA12", (432, 612), (4, 0)), layout)
    assert (error.field, error.allowed) == ("orientation", ["r0", "r90"])
    e = editor(layout)
    e.apply(MoveCell("VIA12", (432, 612), (4, 0), "r90"))
    assert sorted(i.trans.rot for i in e.layout.top.each_inst() if i.trans.disp == kdb.Vector(436, 612)) == [1]


# -- refusing ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "field", "words"),
    [
        (AddShape("M10", box_points((0, 0, 9, 9))), "layer", "unknown layer"),
        (AddShape("19/251", box_points((0, 0, 9, 9))), "layer", "unknown layer"),
        (AddShape("M1", box_points((0, 0, 9, 9)), "NOPE"), "cell", "unknown cell"),
        (AddShape("M1", ()), "points", "zero area"),
        (AddShape("M1", ((0, 0), (9, 0), (9, 9))), "points", "neither horizontal nor vertical"),
        (AddShape("M1", ((0, 0), (9, 0), (20, 0), (5, 0))), "points", "zero area"),
        (AddShape("M1", ((0, 0), (0, 9), (0, 0), (0, 9))), "points", "zero area"),
        (AddShape("M1", ((0, 0), (9, 3), (9, 9), (0, 9))), "points", "neither horizontal nor vertical"),
        (AddShape("M1", ((0, 0), (9, 9), (9, 0), (0, 9))), "points", "neither horizontal nor vertical"),
        (AddShape("M1", ((0, 0), (0, 9), (9, 9), (9, 4), (-9, 4), (-9, 0))), "points", "touches or crosses itself"),
        (
            AddShape("M1", ((0, 0), (0, 9), (5, 9), (5, 5), (9, 5), (9, 9), (5, 9), (5, 12), (15, 12), (15, 0))),
            "points",
            "touches or crosses itself",
        ),
        (
            AddShape("M1", ((0, 0), (0, 9), (9, 9), (9, 20), (9, 4), (20, 4), (20, 0))),
            "points",
            "touches or crosses itself",
        ),
        (AddShape("M1", ((0, 0), (0, 9.5), (9, 9.5), (9, 0))), "points[1]", "off the grid"),
        (AddShape("M1", ((0, 0), (0, 2**30), (9, 2**30), (9, 0))), "points[1]", "too far away"),
        (AddShape("M1", tuple((i, i % 2) for i in range(MAX_POINTS + 1))), "points", "too many points"),
        (AddShape("M1", box_points((10**6, 0, 10**6 + 9, 9))), "points", "outside the die"),
        (ChangeShape("M9", ShapeRef(index=0), Delete()), "layer", "no shapes"),
        (ChangeShape("M2", ShapeRef(index=99), Delete()), "shape.index", "no such shape"),
        (ChangeShape("M2", ShapeRef(box=(0, 0, 1, 1)), Delete()), "shape.box", "no such shape"),
        (ChangeShape("M2", ShapeRef(points=L_SHAPE), Delete()), "shape.points", "no such shape"),
        (ChangeShape("M2", ShapeRef(), Delete()), "shape.points", "zero area"),
        (ChangeShape("M2", ShapeRef(box=WIRE), Move(0, 0)), "change", "as it is"),
        (ChangeShape("M2", ShapeRef(box=WIRE), Move(10**7, 0)), "by", "outside the die"),
        (ChangeShape("M2", ShapeRef(box=WIRE), Move(2**31, 0)), "by", "too large"),
        (ChangeShape("M2", ShapeRef(box=WIRE), Resize(-2000, 0, 0, 0)), "by", "nothing would be left"),
        (ChangeShape("M2", ShapeRef(box=WIRE), Resize(0, -36, 0, -36)), "by", "nothing would be left"),
        (ChangeShape("M2", ShapeRef(box=WIRE), MoveEdge(1, -72)), "by", "nothing would be left"),
        (ChangeShape("M2", ShapeRef(box=WIRE), MoveEdge(1, -100)), "by", "nothing would be left"),
        (ChangeShape("M2", ShapeRef(box=WIRE), MoveEdge(4, 10)), "edge", "no such edge"),
        (ChangeShape("M2", ShapeRef(box=WIRE), Replace(((0, 0), (5, 5), (9, 0)))), "points", ""),
        (ChangeShape("M3", ShapeRef(index=0), Resize(1, 1, 1, 1)), "change", "only boxes can be resized"),
        (MoveCell("NOPE", (0, 0), (1, 0)), "cell", "unknown cell"),
        (MoveCell("VIA12", (0, 0), (1, 0)), "at", "no such instance"),
        (MoveCell("VIA12", (432, 612), (0, 0)), "by", "does not move"),
        (MoveCell("VIA12", (432, 612), (10**7, 0)), "by", "outside the die"),
        (MoveCell("VIA12", (432, 612), (2**31, 0)), "by", "too large"),
        (MoveCell("VIA12", (432, 612), (1, 0), "r90"), "at", "no such instance"),
        (MoveCell("VIA12", (432, 612), (1, 0), "", "INV"), "at", "no such instance"),
    ],
    ids=lambda v: repr(v)[:60] if not isinstance(v, str) else v or "-",
)
def test_refused(edit, field, words):
    error = refused(edit)
    assert error.field == field
    assert words in str(error)


def test_messages_name_what_is_near():
    assert "(396, 576, 1656, 648)" in str(refused(ChangeShape("M2", ShapeRef(box=(390, 576, 1656, 648)), Delete())))
    assert "(432, 612, 'r0')" in str(refused(MoveCell("VIA12", (430, 612), (1, 0))))


def test_a_master_must_stay_inside_the_die_in_every_instance():
    layout = design()
    e = editor(layout, die=layout.top.bbox())
    shape = AddShape("M1", box_points((640, 500, 700, 560)), "NAND")
    assert e.apply(shape)
    out = AddShape("M1", box_points((900, 500, 2000, 560)), "INV")
    error = refused(out, layout, die=layout.top.bbox())
    assert error.field == "points"


def test_deleting_what_lies_outside_the_die_is_allowed():
    layout = design()
    box(layout.layout, layout.top, "M2", 90000, 0, 90100, 50)
    e = editor(layout, die=kdb.Box(0, -100, 3000, 2000))
    e.apply(ChangeShape("M2", ShapeRef(box=(90000, 0, 90100, 50)), Delete()))
    assert region(e.layout, "M2").bbox().right < 3000


def test_edges_of_polygons_must_not_pass_each_other():
    e = editor()
    e.apply(AddShape("M2", tuple((x, y + 3000) for x, y in L_SHAPE)))
    ring = hull(kdb.Polygon([kdb.Point(x, y + 3000) for x, y in L_SHAPE]))
    inner = next(i for i, (a, b) in enumerate(zip(ring, ring[1:] + ring[:1])) if a[1] == b[1] == 3020)
    for distance in (-20, -25):
        with pytest.raises(EditError, match="touches or crosses itself|nothing would be left"):
            e.apply(ChangeShape("M2", ShapeRef(points=ring), MoveEdge(inner, distance)))
    e.apply(ChangeShape("M2", ShapeRef(points=ring), MoveEdge(inner, -19)))


# -- undo and snapshots --------------------------------------------------------------------------------------------


def random_edits(layout: DRCLayout, rng: np.random.Generator, n: int) -> list[DRCEdit]:
    """Edits that an editor accepts one after the other, of every kind, at top and in masters."""
    e = LayoutEditor(layout.copy(), TABLE)
    done: list[DRCEdit] = []
    names = [k for k in TABLE.layers if layout.layer_index(*_gds(k)) is not None]
    while len(done) < n:
        cells = sorted(c.name for c in e.layout.layout.each_cell())
        cell = e.layout.layout.cell(cells[rng.integers(len(cells))])
        name = names[rng.integers(len(names))]
        polygons = shape_polygons(cell, e.layout.layer_index(*_gds(name)))
        a, b = (int(v) for v in rng.integers(-20, 21, size=2))
        instances = list(cell.each_inst())
        kind = int(rng.integers(6))
        if kind == 5 and instances:
            inst = instances[rng.integers(len(instances))]
            at = (inst.trans.disp.x, inst.trans.disp.y)
            edit: DRCEdit = MoveCell(
                inst.cell.name,
                at,
                (a, b),
                ("r0", "r90", "r180", "r270", "m0", "m45", "m90", "m135")[inst.trans.rot],
                cell.name,
            )
        elif polygons:
            polygon = polygons[rng.integers(len(polygons))]
            box_ = polygon.bbox()
            change = (
                Move(a, b),
                MoveEdge(int(rng.integers(4)), a),
                Resize(a, b, b, a),
                Delete(),
                Replace(box_points((box_.left, box_.bottom, box_.right + abs(a), box_.top))),
            )[kind % 5]
            edit = ChangeShape(name, ShapeRef(points=hull(polygon)), change, cell.name)
            if kind == 3 and rng.random() < 0.5:
                edit = AddShape(
                    name, box_points((box_.left + a, box_.bottom + b, box_.right, box_.top + 30)), cell.name
                )
        else:
            continue
        try:
            e.apply(edit)
        except EditError:
            continue
        done.append(edit)
    return done


@pytest.mark.parametrize("seed", range(3))
def test_undo_restores_every_state(seed):
    rng = np.random.default_rng(seed)
    initial = DRCLayout.from_bytes(generate_block(rng, rows=2, width_cpp=14).gds())
    edits = random_edits(initial, rng, 60)
    assert {type(e) for e in edits} == {AddShape, ChangeShape, MoveCell}
    e = LayoutEditor(initial.copy(), TABLE)
    states = [e.layout.copy()]
    for edit in edits:
        applied = e.apply(edit)
        states.append(e.layout.copy())
        assert_dirty(states[-2], states[-1], applied)
    for state in reversed(states[:-1]):
        e.undo()
        assert compare_layouts(state.layout, e.layout.layout).empty
    with pytest.raises(EditError, match="no edit to undo"):
        e.undo()
    for k in (40, 10, 55, 0, 60):
        e.restore(edits[:k])
        assert e.edits == tuple(edits[:k])
        assert compare_layouts(states[k].layout, e.layout.layout).empty


def assert_dirty(before: DRCLayout, after: DRCLayout, applied) -> None:
    """All differences lie in the stated boxes and on the stated layers."""
    allowed = kdb.Region()
    for b in applied.boxes:
        allowed.insert(kdb.Box(*b))
    for name in TABLE.layers:
        index = before.layer_index(*_gds(name)), after.layer_index(*_gds(name))
        if None in index:
            assert name in applied.layers or index == (None, None)
            continue
        a, b = (kdb.Region(source.top.begin_shapes_rec(i)) for source, i in zip((before, after), index))
        difference = a ^ b
        assert difference.is_empty() or name in applied.layers
        assert (difference - allowed).is_empty()


def test_a_snapshot_is_plain_data():
    e = editor()
    e.apply(EDITS[0])
    e.apply(MoveCell("VIA12", (432, 612), (12, -4)))
    data = json.loads(json.dumps([drc_edit_to_json(edit) for edit in e.edits]))
    other = editor()
    changed = other.restore([drc_edit_from_json(d) for d in data])
    assert [a.edit for a in changed] == list(e.edits)
    assert compare_layouts(e.layout.layout, other.layout.layout).empty


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(-8, 8), st.integers(-8, 8)), min_size=3, max_size=9))
def test_outlines_are_simple_polygons_or_refused(points):
    """Against KLayout: an accepted outline encloses exactly the area that its merged polygon has, in one piece."""
    ring = tuple((10 * x, 10 * y) for x, y in points)
    # Half of the examples as staircases, which are Manhattan.
    stairs = tuple(p for a, b in zip(ring, ring[1:] + ring[:1]) for p in (a, (b[0], a[1])))
    for outline in (ring, stairs):
        e = editor()
        try:
            e.apply(AddShape("M7", outline))
        except EditError:
            continue
        drawn = region(e.layout, "M7")
        merged = drawn.merged(True, 0)
        (polygon,) = merged.each()
        assert polygon.holes() == 0
        assert (
            polygon.area()
            == abs(sum(a[0] * b[1] - b[0] * a[1] for a, b in zip(outline, outline[1:] + outline[:1]))) // 2
        )
        assert polygon.is_rectilinear()


# -- real layouts --------------------------------------------------------------------------------------------------


@pytest.mark.real
def test_gcd_repair():
    folder = Path(os.environ["EDAGYM_REAL_DATA"]) / "posteda-dev" / "drc_bench" / "drc_essential" / "L2" / "q1"
    layout = DRCLayout.from_gds(folder / "top_cell.gds")
    e = LayoutEditor(layout, TABLE)
    (wire,) = (
        s for s in layout.top.shapes(layout.layer_index(*_gds("M3"))).each() if s.is_path() and s.path_width == 36
    )
    b = wire.bbox()
    assert layout.dbu == DBU
    name = wire.property(1)
    applied = e.apply(ChangeShape("M3", ShapeRef(box=(b.left, b.bottom, b.right, b.top)), Resize(18, 18, 18, 18)))
    assert applied.boxes == ((b.left - 18, b.bottom - 18, b.right + 18, b.top + 18),)
    found = [s for s in layout.top.shapes(layout.layer_index(*_gds("M3"))).each() if s.bbox() == b.enlarged(18, 18)]
    assert [s.property(1) for s in found] == [name]
    # The power via's master is placed 53 times.
    via = "VIA_via1_2_14040_18_1_390_36_36"
    cut = hull(shape_polygons(layout.layout.cell(via), layout.layer_index(*_gds("V1")))[0])
    assert len(e.apply(ChangeShape("V1", ShapeRef(points=cut), Move(0, 4), via)).boxes) == 53
    e.restore(())
    assert compare_layouts(DRCLayout.from_gds(folder / "top_cell.gds").layout, layout.layout).empty
