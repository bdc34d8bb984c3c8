"""Injected violations: exactly the wanted rules, repaired by the recorded edits, reproducible."""

from __future__ import annotations

from functools import cache

import klayout.db as kdb
import numpy as np
import pytest

from edagym.envs.drc.edits import LayoutEditor
from edagym.envs.drc.inject import (
    FAMILIES,
    InjectionRecord,
    family,
    inject_cluster,
    inject_violation,
    isolate,
    targets,
)
from edagym.envs.drc.mutations import bumped, moved_edge, to_polygon
from edagym.envs.drc.probe import Change, Probe
from edagym.errors import TaskError
from edagym.spaces.drc_edits import drc_edit_from_json
from edagym.task_assets.drc.blocks import Block, gds_bytes, generate_block
from edagym.task_assets.drc.process import NM
from edagym.verifiers.drc import DRCLayout, full_check, load_table


@cache
def block() -> Block:
    return generate_block(np.random.default_rng(1), rows=3, width_cpp=40, top_metal="M7", n_fill=6)


def rules_of(layout: kdb.Layout) -> set[str]:
    return set(full_check(DRCLayout(layout), load_table("asap7")).counts)


def repaired(layout: kdb.Layout, record: InjectionRecord) -> kdb.Layout:
    """The layout after the recorded repair, taken through JSON."""
    copy = DRCLayout(layout.dup())
    editor = LayoutEditor(copy, load_table("asap7"), copy.top.bbox().enlarged(1000, 1000))
    for data in record.to_dict()["fix"]:
        editor.apply(drc_edit_from_json(data))
    return copy.layout


def test_blocks_with_fill_are_legal_and_have_some() -> None:
    assert len(block().fill) >= 10
    assert rules_of(block().layout()) == set()


@pytest.mark.parametrize(
    "target",
    ["width/M2", "width/M4", "spacing/M3", "enclosure/V3", "area/M2", "shape/M5", "WELL.W.1", "GATE.S.1", "V1.S.1"],
)
def test_one_violation_in_context(target: str) -> None:
    layout, record = inject_violation(np.random.default_rng(3), block(), target)
    (rule,) = record.rules
    assert rule in targets(target, load_table("asap7"))
    assert rules_of(layout) == {rule} == set(record.counts)
    assert len(record.edits) == len(record.fix) == 1
    fixed = repaired(layout, record)
    assert rules_of(fixed) == set()
    original = block().layout()
    for number in (19, 20, 30, 40):
        before, after = (kdb.Region(ly.top_cell().begin_shapes_rec(ly.layer(number, 0))) for ly in (original, fixed))
        assert (before ^ after).is_empty()


@pytest.mark.parametrize(
    "target", ["width/M3", "enclosure/V2", "V1.S.1", "GATE.S.1", "NSELECT.GATE.EX.1-2", "SDT.W.3", "M4.S.2", "WELL.S.2"]
)
def test_one_violation_alone(target: str) -> None:
    layout, record = isolate(np.random.default_rng(3), block(), target)
    assert rules_of(layout) == set(record.rules) == set(record.counts)
    assert rules_of(repaired(layout, record)) == set()
    top = layout.top_cell()
    assert top.bbox().left >= 0
    assert top.bbox().bottom >= 0
    shapes = [(index, shape) for index in layout.layer_indexes() for shape in top.shapes(index).each()]
    assert 1 <= len(shapes) <= 12
    changed = len(record.edits)
    # Every other shape is needed: without it the case isn't that one violation with that one repair any more.
    for drop in range(len(shapes) if len(shapes) > changed else 0):
        smaller = kdb.Layout()
        smaller.dbu = layout.dbu
        cell = smaller.create_cell("atomic")
        for number, (index, shape) in enumerate(shapes):
            if number != drop:
                cell.shapes(smaller.layer(layout.get_info(index))).insert(shape)
        try:
            still = rules_of(smaller) == set(record.rules) and rules_of(repaired(smaller, record)) == set()
        except Exception:
            still = False  # the changed shape itself was dropped
        assert not still


@pytest.mark.parametrize(("seed", "n"), [(1, 5), (2, 9)])
def test_clusters(seed: int, n: int) -> None:
    layout, record = inject_cluster(np.random.default_rng(seed), block(), n=n)
    assert len(record.rules) == len(record.edits) == n
    assert rules_of(layout) >= set(record.rules)
    assert rules_of(repaired(layout, record)) == set()
    for data, edit in zip(record.to_dict()["edits"], record.edits):
        assert drc_edit_from_json(data) == edit


def test_equal_seeds_give_equal_bytes() -> None:
    first, second, other = (
        gds_bytes(inject_violation(np.random.default_rng(seed), block(), "width/M3")[0]) for seed in (5, 5, 6)
    )
    assert first == second != other


def test_the_base_layout_is_left_alone() -> None:
    base = block().layout()
    before = gds_bytes(base)
    inject_violation(np.random.default_rng(4), base, "width/M2")
    isolate(np.random.default_rng(4), base, "width/M2")
    inject_cluster(np.random.default_rng(4), base, n=3)
    assert gds_bytes(base) == before


def test_families_cover_all_rules() -> None:
    table = load_table("asap7")
    assert {family(rule) for rule in table.rules} == set(FAMILIES)
    assert targets("width/M2", table) == ("M2.W.1",)
    assert "V2.M3.EN.2" in targets("enclosure/V2", table)
    for bad in ("M2.W.99", "width/M99", "colour/M2"):
        with pytest.raises(TaskError):
            targets(bad, table)


def test_impossible_targets_are_reported() -> None:
    with pytest.raises(TaskError):
        inject_violation(np.random.default_rng(1), block(), "V9.AUX.1", tries=20)
    with pytest.raises(TaskError):
        inject_cluster(np.random.default_rng(1), block(), n=200, tries=20)


def test_the_probe_agrees_with_full_checks() -> None:
    layout = block().layout()
    layout.top_cell().flatten(True)
    probe = Probe(layout)
    rng = np.random.default_rng(8)
    table = load_table("asap7")
    index = layout.layer(30, 0)
    shapes = sorted(layout.top_cell().shapes(index).each(), key=lambda shape: str(shape.bbox()))
    for number in rng.permutation(len(shapes))[:6]:
        box = shapes[int(number)].bbox()
        after = kdb.Box(box.left, box.bottom, box.right - 3 * NM, box.top + int(rng.integers(4, 30)) * NM)
        change = Change("M3", *(tuple((p.x, p.y) for p in kdb.Polygon(b).each_point_hull()) for b in (box, after)))
        added, removed = probe.effect([change])
        changed = layout.dup()
        target = changed.top_cell().shapes(index)
        target.erase(next(s for s in target.each_touching(box) if s.bbox() == box))
        target.insert(after)
        assert dict(added) == full_check(DRCLayout(changed), table).markers.counts()
        assert not removed


def test_outlines() -> None:
    square = ((0, 0), (0, 100), (100, 100), (100, 0))
    assert moved_edge(square, 0, -10) is not None
    assert to_polygon(moved_edge(square, 0, -10)).area() == 110 * 100
    assert moved_edge(square, 0, 100) is None
    rng = np.random.default_rng(0)
    grown = bumped(square, rng, 10, 20, outwards=True)
    dented = bumped(square, rng, 10, 20, outwards=False)
    assert to_polygon(grown).area() == 100 * 100 + 200
    assert to_polygon(dented).area() == 100 * 100 - 200
    assert bumped(square, rng, 10, 200, outwards=True) is None
