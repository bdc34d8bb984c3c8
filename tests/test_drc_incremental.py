"""The incremental check equals the full check, marker for marker, after every edit."""

from __future__ import annotations

import os
from pathlib import Path

import klayout.db as kdb
import numpy as np
import pytest
from drc_random_edits import RandomEditor, crop

from edagym.task_assets.drc.blocks import generate_block
from edagym.verifiers.drc import DRCLayout, MarkerStore, full_check, load_table
from edagym.verifiers.drc.check import find_markers
from edagym.verifiers.drc.incremental import IncrementalChecker, ShapeChange

TABLE = load_table()
FEOL = ("WELL", "FIN", "GATE", "GCUT", "ACTIVE", "SDT", "NSELECT", "PSELECT", "LIG", "LISD", "SRAMDRC", "LVT")
BEOL = ("V0", "M1", "V1", "M2", "V2", "M3", "V3", "M4", "V4", "M5", "V5", "M6", "V6", "M7", "V7", "M8", "V8", "M9")


def assert_equal_after_every_edit(
    layout: DRCLayout,
    edits: int,
    seed: int,
    layers: tuple[str, ...] = tuple(TABLE.layers),
    slanted: bool = False,
    masters: bool = True,
) -> None:
    """Edit and compare complete marker sets; rules that don't read the edited layer are compared every tenth time."""
    checker = IncrementalChecker(layout, TABLE)
    editor = RandomEditor(layout, TABLE, np.random.default_rng(seed), layers, slanted, masters)
    done = 0
    while done < edits:
        edit = editor.edit()
        if edit is None:
            continue
        boxes, layer, text, change = edit
        before = checker.markers.copy()
        changed = checker.recheck(boxes, [layer], change if done % 4 else None)
        everything = done % 10 == 0
        rules = [r.id for r in TABLE.rules.values() if everything or layer in r.layers]
        expected = find_markers(layout, TABLE, None if everything else rules)
        for rule in rules:
            assert checker.markers.of(rule) == expected.of(rule), f"edit {done}: {text}: {rule}"
            assert rule in changed or before.of(rule) == expected.of(rule), f"edit {done}: {text}: {rule}"
        done += 1


def block(seed: int, rows: int = 2, width_cpp: int = 16, top_metal: str = "M5") -> DRCLayout:
    made = generate_block(np.random.default_rng(seed), rows=rows, width_cpp=width_cpp, top_metal=top_metal)
    return DRCLayout(made.layout())


def test_block_all_layers() -> None:
    assert_equal_after_every_edit(block(1), 150, seed=1)


def test_block_high_metals() -> None:
    layout = block(2, rows=8, width_cpp=40, top_metal="M9")
    assert_equal_after_every_edit(layout, 80, seed=2, layers=("M6", "V6", "M7", "V7", "M8", "V8", "M9", "V9", "PAD"))


def test_slanted_shapes() -> None:
    assert_equal_after_every_edit(block(3), 100, seed=3, layers=("M1", "V0", "M2", "ACTIVE", "LIG"), slanted=True)


def with_rails(layout: DRCLayout) -> DRCLayout:
    """Draw long shapes at top: over the cells' own rails, gates and fins, and M2 rails with vias to M1."""
    top, box = layout.top, layout.top.bbox()

    def shapes(name: str) -> kdb.Shapes:
        entry = TABLE.layers[name]
        return top.shapes(layout.layout.layer(entry.layer, entry.datatype))

    rails = kdb.Region(top.begin_shapes_rec(layout.layer_index(TABLE.layers["M1"].layer, 0))).merged()
    for rail in rails.with_bbox_width(box.width() // 2, None, False).each():
        shapes("M1").insert(rail.bbox())
        shapes("M2").insert(rail.bbox())
        for x in range(rail.bbox().left + 100, rail.bbox().right - 100, 1080):
            shapes("V1").insert(kdb.Box(x, rail.bbox().bottom, x + 72, rail.bbox().top))
    for name, dx, dy in (("GATE", 0, box.height()), ("FIN", box.width(), 0)):
        drawn = kdb.Region(top.begin_shapes_rec(layout.layer_index(TABLE.layers[name].layer, 0))).merged()
        b = sorted(drawn.each(), key=lambda p: p.to_s())[0].bbox()
        shapes(name).insert(kdb.Box(b.left, b.bottom, max(b.right, b.left + dx), max(b.top, b.bottom + dy)))
    return layout


@pytest.mark.parametrize("layers", [("M1", "M2", "V1"), ("GATE", "FIN", "ACTIVE")])
def test_rails_and_columns(layers: tuple[str, ...]) -> None:
    """Long shapes, many of which cover others: only where they make a difference anything is looked at."""
    layout = with_rails(block(8))
    assert layout.top.shapes(layout.layer_index(TABLE.layers["M1"].layer, 0)).size() >= 3
    assert_equal_after_every_edit(layout, 60, seed=8, layers=layers, masters=False)


def test_both_ends_of_a_moved_rail() -> None:
    """The rail is one shape at both ends: what it doesn't share with its old place is new at either."""
    layout = DRCLayout(one_cell())
    shapes = layout.top.shapes(layout.layout.layer(19, 0))
    rail = shapes.insert(kdb.Box(0, 0, 40_000, 160))
    # Neighbours that come too near, and no longer, as the rail moves.
    shapes.insert(kdb.Box(-360, 0, -60, 160))
    shapes.insert(kdb.Box(40_060, 0, 40_360, 160))
    checker = IncrementalChecker(layout, TABLE)
    for step in (40, -80, 80, -40):
        old = rail.polygon.dup()
        new = old.moved(step, 0)
        rail = shapes.replace(rail, new)
        both = old.bbox() + new.bbox()
        checker.recheck([(both.left, 0, both.right, 160)], ["M1"], ShapeChange("M1", (old,), (new,)))
        assert checker.markers == full_check(layout, TABLE).markers
    assert checker.markers.counts()


def test_a_change_that_is_no_longer_there_is_not_trusted() -> None:
    layout = DRCLayout(one_cell())
    shapes = layout.top.shapes(layout.layout.layer(19, 0))
    checker = IncrementalChecker(layout, TABLE)
    box = kdb.Box(0, 0, 40, 40)
    shapes.insert(kdb.Box(0, 0, 20, 40))  # what stands there is not what the change says
    checker.recheck([(0, 0, 40, 40)], ["M1"], ShapeChange("M1", (), (kdb.Polygon(box),)))
    assert checker.markers == full_check(layout, TABLE).markers
    assert checker.markers.counts()


def test_flat_layout_that_empties_and_fills() -> None:
    """Booleans take short cuts on empty layers and single rectangles, which every edit here can start or end."""
    layout = DRCLayout(one_cell())
    assert_equal_after_every_edit(layout, 150, seed=4, layers=("V2", "M2", "M3", "V4", "M4", "NSELECT", "PSELECT"))


def one_cell() -> kdb.Layout:
    layout = kdb.Layout()
    layout.dbu = 0.00025
    layout.create_cell("TOP")
    return layout


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_blocks_at_length(seed: int) -> None:
    layout = block(10 + seed, rows=3, width_cpp=20, top_metal=("M3", "M5", "M7", "M7")[seed])
    assert_equal_after_every_edit(layout, 150, seed=20 + seed, slanted=seed == 3)


def test_an_edit_inside_a_master_reaches_every_placement() -> None:
    layout = block(5)
    checker = IncrementalChecker(layout, TABLE)
    assert not len(checker.markers)
    editor = RandomEditor(layout, TABLE, np.random.default_rng(5), ("M1",))
    masters = [layout.layout.cell(i) for i in layout.top.each_child_cell()]
    master = max(masters, key=lambda c: len(editor._placements(c)))
    placements = editor._placements(master)
    assert len(placements) > 1
    index = layout.layer_index(19, 0)
    assert index is not None
    # A stub on top of the cell, where nothing covers it.
    speck = kdb.Box(0, 0, 20, 20).moved(master.bbox().center().x, master.bbox().top)
    master.shapes(index).insert(speck)
    boxes = [(b.left, b.bottom, b.right, b.top) for b in (t * speck for t in placements)]
    checker.recheck(boxes, ["M1"])
    assert checker.markers == full_check(layout, TABLE).markers
    assert checker.markers.counts()["M1.W.1"] > 1


def test_markers_can_be_set_back() -> None:
    """An environment restores a layout and its markers together; what a checker remembers must not outlive that."""
    layout = DRCLayout(one_cell())
    top = layout.top
    v4 = layout.layout.layer(45, 0)
    m4 = layout.layout.layer(40, 0)
    for x in (0, 40):  # two overlapping vias: two violations while there is no M4 anywhere, one as soon as there is
        top.shapes(v4).insert(kdb.Box(x, 0, x + 96, 96))
    checker = IncrementalChecker(layout, TABLE)
    start = checker.markers.copy()
    assert start.counts()["V4.AUX.1"] == 4
    wire = kdb.Box(-50, -50, 60, 150)
    for _ in range(2):
        shape = top.shapes(m4).insert(wire)
        checker.recheck([(-50, -50, 60, 150)], ["M4"])
        assert checker.markers == full_check(layout, TABLE).markers
        top.shapes(m4).erase(shape)
        checker.markers = start.copy()
        assert checker.markers == full_check(layout, TABLE).markers


def test_the_result_does_not_depend_on_the_order_of_boxes() -> None:
    states = []
    for reverse in (False, True):
        layout = block(6)
        checker = IncrementalChecker(layout, TABLE)
        boxes = []
        for i, x in enumerate((500, 900, 1700, 2100)):
            box = kdb.Box(x, 300 + 40 * i, x + 50, 400 + 40 * i)
            layout.top.shapes(layout.layer_index(20, 0)).insert(box)
            boxes.append((box.left, box.bottom, box.right, box.top))
        checker.recheck(boxes[::-1] if reverse else boxes, ["M2"])
        states.append(list(checker.markers))
    assert states[0] == states[1]
    assert states[0]


def test_nothing_dirty_changes_nothing() -> None:
    layout = block(7)
    store = MarkerStore(TABLE.rules, layout.dbu)
    checker = IncrementalChecker(layout, TABLE, store)
    assert checker.recheck([], ["M1"]) == frozenset()
    assert checker.recheck([(0, 0, 10, 10)], []) == frozenset()


# -- real layouts --------------------------------------------------------------------------------------------------


def real(name: str) -> DRCLayout:
    return DRCLayout.from_gds(
        Path(os.environ["EDAGYM_REAL_DATA"]) / "posteda-dev" / "drc_bench" / name / "top_cell.gds"
    )


@pytest.mark.real
@pytest.mark.parametrize(
    ("window", "layers", "edits"),
    [
        ((5.0, 5.0, 10.0, 10.0), FEOL, 125),
        ((5.0, 5.0, 10.0, 10.0), BEOL, 125),
        ((0.0, 9.0, 5.0, 14.0), FEOL, 125),
        ((11.2, 11.2, 16.2, 16.2), BEOL, 125),
    ],
)
def test_500_edits_on_a_5_um_crop(
    window: tuple[float, float, float, float], layers: tuple[str, ...], edits: int
) -> None:
    layout = crop(real("drc_essential/L2/q5"), window)
    assert_equal_after_every_edit(layout, edits, seed=round(window[0] * 10), layers=layers)


@pytest.mark.real
def test_high_metals_of_a_whole_layout() -> None:
    layout = real("drc_reasoning/L2/q5")
    assert_equal_after_every_edit(layout, 40, seed=9, layers=("V7", "M8", "V8", "M9", "M7"))
