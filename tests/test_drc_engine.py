"""The DRC engine: rule tables, evaluation, full check, attribution, regions of interest, reports, hostile files."""

from __future__ import annotations

import copy
import json
import pickle
import stat
import struct
import sys
from pathlib import Path

import klayout.db as kdb
import numpy as np
import pytest

from edagym.errors import TaskError, ToolError, ToolTimeout
from edagym.task_assets.drc.blocks import generate_block
from edagym.verifiers.drc import DRCLayout, Marker, MarkerStore, RuleTable, full_check, load_table
from edagym.verifiers.drc import evaluate as ev
from edagym.verifiers.drc.check import find_markers
from edagym.verifiers.drc.deck import DeckBackend, compare
from edagym.verifiers.drc.expression import Quantity
from edagym.verifiers.drc.graph import compile_table
from edagym.verifiers.drc.lyrdb import read_lyrdb, write_lyrdb

ASAP7, TUTORIAL = load_table("asap7"), load_table("tutorial")
L = {name: (entry.layer, entry.datatype) for name, entry in TUTORIAL.layers.items()}


def drawn(shapes: dict[str, list[tuple[int, ...]]], dbu: float = 0.001, table: RuleTable = TUTORIAL) -> DRCLayout:
    """A flat layout of boxes (x1, y1, x2, y2) in database units per layer."""
    layout = kdb.Layout()
    layout.dbu = dbu
    top = layout.create_cell("TOP")
    for name, boxes in shapes.items():
        entry = table.layers[name]
        for b in boxes:
            top.shapes(layout.layer(entry.layer, entry.datatype)).insert(kdb.Box(*b))
    return DRCLayout(layout)


# -- rule tables ---------------------------------------------------------------------------------------------------


def test_asap7_table() -> None:
    assert len(ASAP7.rules) == 256
    assert sum(len(r.measures) for r in ASAP7.rules.values()) == 262
    assert len(ASAP7.layers) == 35
    assert all(r.description for r in ASAP7.rules.values())
    for dbu in (0.001, 0.00025, 5e-05):
        graph = compile_table(ASAP7, dbu)
        # Shared sub-expressions are one node, and the rules that ask what doesn't touch itself are dropped.
        assert len(graph.nodes) < 1000
        assert len(graph.outputs) == 259
    assert ASAP7.rules["WELL.GATE.EX.1"].layers == {"WELL", "GATE", "GCUT"}
    assert ASAP7.rules["V1.M1.EN.1"].primary_layer == "V1"


def test_lengths_are_rounded_as_the_deck_does_it() -> None:
    assert Quantity("length", 13.5).in_dbu(0.001) == 14
    assert Quantity("length", -2.5, 1).in_dbu(0.001) == -1
    assert Quantity("length", -2.5, 1).in_dbu(0.00025) == -9
    assert Quantity("length", 0, 2).in_dbu(5e-05) == 2
    assert Quantity("area", 864).in_dbu(0.00025) == 13824


def test_tables_pickle_and_compile_once() -> None:
    again = pickle.loads(pickle.dumps(ASAP7))
    assert list(again.rules) == list(ASAP7.rules)
    assert again.rules["M1.S.6"] == ASAP7.rules["M1.S.6"]
    assert compile_table(ASAP7, 0.001) is compile_table(load_table(), 0.001)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda d: d.update(format="other"), "format"),
        (lambda d: d.update(name="no spaces allowed"), "name"),
        (lambda d: d.update(layers={}), "layers"),
        (lambda d: d["layers"].update(nm={"gds": [9, 0]}), "layers"),
        (lambda d: d["layers"].update(X={"gds": [1, 0]}), "layers.X.gds"),
        (lambda d: d["layers"].update(X={"gds": [True, 0]}), "layers.X.gds"),
        (lambda d: d["layers"].update(X={"gds": [1, -1]}), "layers.X.gds"),
        (lambda d: d["derived"].update(M1="V1 & M2"), "derived"),
        (lambda d: d.update(rules=[]), "rules"),
        (lambda d: d["rules"].append(dict(d["rules"][0])), "rules[11].id"),
        (lambda d: d["rules"][0].update(id=""), "rules[0].id"),
        (lambda d: d["rules"][0].update(measure=[]), "rules[0].measure"),
        (lambda d: d["rules"][0].update(description=3), "rules[0].description"),
    ],
)
def test_bad_tables_name_the_field(change, field: str) -> None:
    data = copy.deepcopy(dict(TUTORIAL.data))
    change(data)
    with pytest.raises(TaskError) as e:
        RuleTable.from_dict(data)
    assert e.value.field == field


@pytest.mark.parametrize(
    "text",
    [
        "",
        "M1.",
        "M9",
        "M1.width(100*nm)",
        "M1.width(100, euclidian)",
        "M1.width(100*nm2, euclidian)",
        "M1.width(-1*nm, euclidian)",
        "M1.width(0*nm, euclidian)",
        "M1.width(1e12*nm, euclidian)",
        "M1.width(100*nm, square)",
        "M1.width(100*nm, euclidian).sized(1*nm, 1*nm)",
        "M1.with_area(1*nm)",
        "M1.with_area(1*nm2, below=2*nm2)",
        "M1.with_area(above=2*nm2)",
        "M1.edges().with_area(below=2*nm2)",
        "M1.with_length(below=2*nm)",
        "M1.with_holes(min=0)",
        "M1.with_holes(min=1.5)",
        "M1.edges() | M2.edges()",
        "M1 & M2.edges()",
        "M1 + M2.edges()",
        "M1.enclosing(V1, 1*nm, projection, three)",
        "M1.explode()",
        "M1.with_angle('x')",
        "__import__('os').system('true')",
        "M1.width(*[100*nm], euclidian)",
        "M1.with_area(**{})",
        "M1 if M2 else V1",
        "(" * 500 + "M1" + ")" * 500,
        "M1" + ".sized(1*nm, 1*nm)" * 900,
        "M1 " * 9000,
        7,
    ],
)
def test_bad_measurements_are_refused(text) -> None:
    data = copy.deepcopy(dict(TUTORIAL.data))
    data["rules"][0]["measure"] = text
    with pytest.raises(TaskError):
        RuleTable.from_dict(data)


def test_lengths_that_do_not_fit_the_database_unit() -> None:
    data = copy.deepcopy(dict(TUTORIAL.data))
    data["rules"][0]["measure"] = "M1.width(1000000000*nm, euclidian)"
    with pytest.raises(TaskError, match="too large"):
        compile_table(RuleTable.from_dict(data), 1e-6)


def test_table_files(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(TUTORIAL.data))
    assert list(load_table(str(path)).rules) == list(TUTORIAL.rules)
    path.write_text("{")
    with pytest.raises(TaskError, match=r"mine\.json"):
        load_table(str(path))
    with pytest.raises(TaskError, match="unknown rule table"):
        load_table("sky130")


# -- evaluation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shapes", "counts"),
    [
        ({"M1": [(0, 0, 400, 100)]}, {}),
        ({"M1": [(0, 0, 500, 99)]}, {"M1.W": 1}),
        ({"M1": [(0, 0, 400, 100), (0, 219, 400, 319)]}, {"M1.S": 1}),
        ({"M1": [(0, 0, 400, 100), (0, 220, 400, 320)]}, {}),
        ({"M1": [(0, 0, 400, 100), (480, 180, 880, 280)]}, {"M1.S": 2}),
        ({"M1": [(0, 0, 200, 200)]}, {}),
        ({"M1": [(0, 0, 200, 199)]}, {"M1.A": 1}),
        ({"V1": [(0, 0, 100, 100)], "M1": [(-20, -20, 300, 120)], "M2": [(-20, -20, 500, 120)]}, {}),
        ({"V1": [(0, 0, 100, 100)], "M1": [(-20, -20, 300, 120)]}, {"V1.M2.EN": 1, "V1.OPEN": 1}),
        ({"V1": [(0, 0, 100, 100)], "M1": [(-19, -20, 300, 120)], "M2": [(-20, -20, 500, 120)]}, {"V1.M1.EN": 1}),
        ({"V1": [(0, 0, 100, 110)], "M1": [(-20, -20, 300, 130)], "M2": [(-20, -20, 500, 130)]}, {"V1.W": 1}),
    ],
)
def test_tutorial_rules(shapes: dict, counts: dict[str, int]) -> None:
    assert full_check(drawn(shapes), TUTORIAL).counts == counts
    # The same drawing at a quarter of the database unit.
    fine = {n: [tuple(4 * v for v in b) for b in boxes] for n, boxes in shapes.items()}
    assert full_check(drawn(fine, dbu=0.00025), TUTORIAL).counts == counts


def random_region(rng: np.random.Generator, n: int, size: int, angle: float = 0.0) -> kdb.Region:
    region = kdb.Region()
    for _ in range(n):
        x, y = (int(v) for v in rng.integers(0, 120, 2))
        w, h = (int(v) for v in rng.integers(4, size, 2))
        if rng.random() < 0.75:
            region.insert(kdb.Box(x, y, x + w, y + h))
        else:
            pts = [(0, 0), (0, h), (w // 2, h), (w // 2, h // 2), (w, h // 2), (w, 0)]
            region.insert(kdb.Polygon([kdb.Point(x + a, y + b) for a, b in pts]))
    region.transform(kdb.ICplxTrans(1.0, angle, False, 0, 0))
    return region


def edge_set(edges: kdb.Edges | None) -> list[str]:
    return [] if edges is None else sorted(str(e) for e in edges.merged().each())


@pytest.mark.parametrize("angle", [0.0, 30.0])
def test_rectangle_filters_without_long_scans(monkeypatch: pytest.MonkeyPatch, angle: float) -> None:
    """The split evaluation of enclosing checks yields what KLayout yields on everything at once."""
    monkeypatch.setattr(ev, "_LONG", 5)
    rng = np.random.default_rng(1)
    region = kdb.Region
    rects = {
        "one_side": region.OneSideAllowed,
        "two_connected": region.TwoConnectedSidesAllowed,
        "two_opposite": region.TwoOppositeSidesAllowed,
    }
    filtered = differ = 0
    for _ in range(600):
        a = random_region(rng, int(rng.integers(1, 7)), int(rng.choice((20, 40, 70))))
        b = random_region(rng, int(rng.integers(1, 9)), int(rng.choice((16, 30, 60))))
        for p in list(a.each())[:2]:  # vias that fill a rectangle's end
            box = p.bbox()
            x, y = box.left + int(rng.integers(0, 3)), box.bottom + int(rng.choice((0, 0, 2)))
            b.insert(kdb.Box(x, y, box.left + int(rng.integers(5, 20)), box.top - int(rng.choice((0, 0, 2)))))
        for r in (a, b):
            r.transform(kdb.ICplxTrans(1.0, angle, False, 0, 0))
        d, metric = int(rng.choice((1, 2, 5, 11))), str(rng.choice(("projection", "euclidian")))

        def plain(rect, a=a, b=b, d=d, metric=metric):
            none = kdb.Region.NoOppositeFilter
            return a.enclosing_check(b, d, False, ev.METRICS[metric], None, None, None, True, none, rect)

        for name, rect in rects.items():
            expected = sorted(str(p) for p in plain(rect).each())
            filtered += len(expected) < plain(region.NoRectFilter).count()
            assert sorted(str(p) for p in ev._enclosing(a, b, (d, metric, name)).each()) == expected
        expected = edge_set(plain(rects["two_connected"]).edges() - plain(rects["one_side"]).edges())
        differ += bool(expected)
        assert edge_set(ev._enclosing_filtered(a, b, (d, metric, "two_connected", "one_side"))) == expected
    assert angle or (filtered > 100 and differ > 50)


def test_operands_are_never_one_object() -> None:
    """KLayout gives `x.not_interacting(x)` another meaning for one object than for two equal ones."""
    table = RuleTable.from_dict(
        {
            **TUTORIAL.data,
            "rules": [{"id": "R", "measure": "M1.sized(1*nm, 1*nm).interacting(M1.sized(1*nm, 1*nm))"}],
        }
    )
    assert full_check(drawn({"M1": [(0, 0, 10, 10)]}), table).counts == {"R": 1}


# -- full check ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dirty_block() -> DRCLayout:
    """A block with violations of many kinds: shapes strewn over it, long ones and masters' own included."""
    layout = DRCLayout(generate_block(np.random.default_rng(3), rows=4, width_cpp=30).layout())
    rng = np.random.default_rng(4)
    box = layout.top.bbox()
    masters = [layout.layout.cell(i) for i in layout.top.each_child_cell()]
    for name in ("GATE", "FIN", "ACTIVE", "LIG", "LISD", "V0", "M1", "V1", "M2", "V2", "M3", "V3", "M4", "V4", "M5"):
        entry = ASAP7.layers[name]
        index = layout.layout.layer(entry.layer, entry.datatype)
        for k in range(4):
            cell = masters[int(rng.integers(len(masters)))] if k == 0 else layout.top
            x, y = int(rng.integers(box.left, box.right)), int(rng.integers(box.bottom, box.top))
            w, h = (int(v) for v in rng.choice((20, 72, 96, 400, 6000), 2))
            cell.shapes(index).insert(kdb.Box(x, y, x + w, y + h))
    return layout


def test_result_depends_on_neither_tiles_nor_workers(dirty_block: DRCLayout) -> None:
    whole = find_markers(dirty_block, ASAP7)
    assert len(whole.counts()) > 30
    for options in ({"tile": 1.0}, {"tile": 0.35}, {"tile": 0.7, "workers": 2}, {"workers": 2}):
        assert find_markers(dirty_block, ASAP7, **options) == whole
    some = list(whole.counts())[::3]
    part = find_markers(dirty_block, ASAP7, some, tile=0.9)
    assert part.counts() == {r: n for r, n in whole.counts().items() if r in some}


def test_groups_of_rules_equal_one_evaluation(dirty_block: DRCLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    grouped = list(find_markers(dirty_block, ASAP7))
    monkeypatch.setattr("edagym.verifiers.drc.check._GROUPED_FROM", 10**9)
    assert list(find_markers(dirty_block, ASAP7)) == grouped


def test_a_worker_that_dies_is_a_tool_error(dirty_block: DRCLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edagym.verifiers.drc.pool._COMMAND", "raise SystemExit(3)")
    with pytest.raises(ToolError, match="worker"):
        find_markers(dirty_block, ASAP7, tile=1.0, workers=2)


def test_reports_are_deterministic(dirty_block: DRCLayout) -> None:
    first, second = (json.dumps(full_check(dirty_block, ASAP7).to_dict()) for _ in range(2))
    assert first == second


def test_empty_layouts_are_clean() -> None:
    layout = kdb.Layout()
    layout.create_cell("EMPTY")
    for options in ({}, {"tile": 1.0}):
        assert not len(find_markers(DRCLayout(layout), ASAP7, **options))


# -- attribution, regions of interest ------------------------------------------------------------------------------


def placed(*placements: tuple[int, int, bool], own: tuple[int, ...] = (0, 0, 500, 99)) -> kdb.Layout:
    """A cell with one narrow M1 wire, placed at (x, y), mirrored or not."""
    layout = kdb.Layout()
    layout.dbu = 0.001
    top, cell = layout.create_cell("TOP"), layout.create_cell("CELL")
    cell.shapes(layout.layer(*L["M1"])).insert(kdb.Box(*own))
    for x, y, mirrored in placements:
        trans = kdb.Trans(kdb.Trans.M0 if mirrored else kdb.Trans.R0, x, y)
        top.insert(kdb.CellInstArray(cell.cell_index(), trans))
    return layout


def test_a_violation_of_a_cell_counts_once_per_orientation() -> None:
    layout = DRCLayout(placed((0, 0, False), (1000, 0, False), (2000, 500, True)))
    report = full_check(layout, TUTORIAL)
    assert len(report.flat) == 3
    assert report.counts == {"M1.W": 2}
    assert [(i.qualified_cell, i.placements) for i in report.items] == [("CELL:r0", 2), ("CELL:m0", 1)]
    local = {i.marker.text(0.001) for i in report.items}
    assert all("0.099" in text for text in local)
    assert [i.trans for i in report.items] == ["r0 *1 0,0", "m0 *1 2,0.5"]
    assert report.items[1].where == (2.0, 0.401, 2.5, 0.5)


def test_one_orientation_has_no_variant() -> None:
    report = full_check(DRCLayout(placed((0, 0, False), (1000, 0, False))), TUTORIAL)
    assert [(i.qualified_cell, i.placements) for i in report.items] == [("CELL", 2)]


def test_what_a_neighbour_or_the_top_takes_part_in_counts_at_the_top() -> None:
    layout = placed((0, 0, False), (1000, 0, False))
    layout.top_cell().shapes(layout.layer(*L["M1"])).insert(kdb.Box(500, 0, 600, 99))
    report = full_check(DRCLayout(layout), TUTORIAL)
    # The wire that goes on at the top isn't the cell's own, and so not every placement shows the cell's violation.
    assert [(i.cell, i.rule) for i in report.items] == [("TOP", "M1.W")] * 2


def test_deeper_hierarchies() -> None:
    layout = placed((0, 0, False), (1000, 0, False))
    inner, outer = layout.top_cell(), layout.create_cell("OUTER")
    for y in (0, 1000):
        outer.insert(kdb.CellInstArray(inner.cell_index(), kdb.Trans(0, y)))
    report = full_check(DRCLayout(layout), TUTORIAL)
    assert [(i.cell, i.placements, i.trans) for i in report.items] == [("CELL", 4, "r0 *1 0,0")]


def test_arrays_count_as_placements() -> None:
    layout = placed()
    array = kdb.CellInstArray(
        layout.cell("CELL").cell_index(), kdb.Trans(), kdb.Vector(1000, 0), kdb.Vector(0, 500), 3, 2
    )
    layout.cell("TOP").insert(array)
    assert [(i.cell, i.placements) for i in full_check(DRCLayout(layout), TUTORIAL).items] == [("CELL", 6)]


def test_region_of_interest() -> None:
    layout = DRCLayout(placed((0, 0, False), (1000, 0, False)))
    assert full_check(layout, TUTORIAL, roi=(-0.1, -0.1, 0.6, 0.2)).counts == {"M1.W": 1}
    report = full_check(layout, TUTORIAL, roi=(-0.1, -0.1, 2.0, 0.2))
    assert report.counts == {"M1.W": 2}
    assert {i.cell for i in report.items} == {"TOP"}
    outside = full_check(layout, TUTORIAL, roi=(0.1, -0.1, 0.6, 0.2))
    assert outside.clean
    assert len(outside.markers) == 2


# -- markers -------------------------------------------------------------------------------------------------------


def test_marker_store_keeps_multiplicities_and_copies_cheaply() -> None:
    m, other = Marker("A", "polygon", ((0, 0, 0, 5, 5, 5, 5, 0),)), Marker("A", "edge", ((0, 0, 9000, 9000),))
    store = MarkerStore(["A", "B"], 0.001, [m, m, other])
    twin = store.copy()
    twin.remove(m)
    twin.put(other, 3)
    assert store.counts() == {"A": 3}
    assert twin.counts() == {"A": 3}
    assert store.multiplicity(m) == 2
    assert twin.multiplicity(m) == 0
    assert store != twin
    assert list(pickle.loads(pickle.dumps(store))) == list(store)
    # The diagonal's bounding box covers this place, the edge itself is far from it.
    assert store.touching("A", (5000, 0, 5010, 10)) == []
    assert store.touching("A", (5000, 4990, 5010, 5010)) == [other]


# -- report databases, deck backend --------------------------------------------------------------------------------


def test_report_database_round_trip(tmp_path: Path, dirty_block: DRCLayout) -> None:
    report = full_check(dirty_block, ASAP7)
    path = tmp_path / "report.lyrdb"
    write_lyrdb(report, path)
    found = read_lyrdb(path)
    assert found.top_cell == dirty_block.top.name
    assert found.counts() == report.counts
    assert compare(report, found).agree
    by_place = {(i.rule, i.qualified_cell): (i.parent, i.trans) for i in found.items}
    for item in report.items:
        assert by_place[item.rule, item.qualified_cell][0] == item.parent
    first = path.read_bytes()
    write_lyrdb(report, path)
    assert path.read_bytes() == first


def test_unreadable_report_databases(tmp_path: Path) -> None:
    path = tmp_path / "bad.lyrdb"
    with pytest.raises(TaskError, match=r"bad\.lyrdb"):
        read_lyrdb(path)
    path.write_text("<report-database><items>")
    with pytest.raises(TaskError, match=r"bad\.lyrdb"):
        read_lyrdb(path)


def fake_klayout(folder: Path, body: str) -> str:
    """A program that takes KLayout's arguments and runs `body` with `layout` and `report` set."""
    path = folder / "klayout"
    path.write_text(
        f"#!{sys.executable}\nimport sys, time, shutil\n"
        "given = dict(a.split('=', 1) for a in sys.argv if '=' in a)\n"
        f"layout, report = given['in_gds'], given['report_file']\n{body}\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_deck_backend(tmp_path: Path) -> None:
    layout = DRCLayout(placed((0, 0, False), (1000, 0, True)))
    report = full_check(layout, TUTORIAL)
    write_lyrdb(report, tmp_path / "truth.lyrdb")
    deck = tmp_path / "rules.lydrc"
    deck.write_text("# a deck")
    good = fake_klayout(
        tmp_path, f"assert open(layout, 'rb').read(2)\nshutil.copy({str(tmp_path / 'truth.lyrdb')!r}, report)"
    )
    found = DeckBackend(deck, good).run(layout)
    assert compare(report, found).agree
    clean = full_check(drawn({"M1": [(0, 0, 400, 100)]}), TUTORIAL)
    difference = compare(clean, found)
    assert difference.counts == {"M1.W": (0, 2)}
    assert not difference.agree
    assert len(difference.only_deck) == 2


@pytest.mark.parametrize(
    ("body", "error", "match"),
    [
        ("sys.exit('no such layer')", ToolError, "no such layer"),
        ("pass", ToolError, "no report"),
        ("open(report, 'w').write('<')", ToolError, "can't be read"),
        ("time.sleep(30)", ToolTimeout, "too long"),
    ],
)
def test_deck_backend_failures(tmp_path: Path, body: str, error: type[ToolError], match: str) -> None:
    deck = tmp_path / "rules.lydrc"
    deck.write_text("# a deck")
    timeout = 1.0 if error is ToolTimeout else 60.0
    with pytest.raises(error, match=match):
        DeckBackend(deck, fake_klayout(tmp_path, body), timeout=timeout).run(drawn({"M1": [(0, 0, 9, 9)]}))


def test_deck_backend_needs_program_and_deck(tmp_path: Path) -> None:
    layout = drawn({"M1": [(0, 0, 9, 9)]})
    with pytest.raises(ToolError, match="no such program"):
        DeckBackend(tmp_path / "rules.lydrc", "no-such-klayout").run(layout)
    with pytest.raises(ToolError, match="no such rule deck"):
        DeckBackend(tmp_path / "rules.lydrc", fake_klayout(tmp_path, "pass")).run(layout)


# -- files ---------------------------------------------------------------------------------------------------------


def test_layouts_pickle_and_write_equal_bytes(dirty_block: DRCLayout) -> None:
    again = pickle.loads(pickle.dumps(dirty_block))
    assert again.to_bytes() == dirty_block.to_bytes() == dirty_block.copy().to_bytes()
    assert again.dbu == dirty_block.dbu
    assert find_markers(again, ASAP7, ["M1.W.1"]) == find_markers(dirty_block, ASAP7, ["M1.W.1"])


def record(kind: int, data_type: int, payload: bytes = b"") -> bytes:
    return struct.pack(">HBB", 4 + len(payload), kind, data_type) + payload


def real8(value: float) -> bytes:
    """An excess-64 number of GDSII."""
    if value == 0:
        return bytes(8)
    exponent = 64
    while value >= 1:
        value, exponent = value / 16, exponent + 1
    while value < 1 / 16:
        value, exponent = value * 16, exponent - 1
    return bytes([exponent]) + int(value * 2**56).to_bytes(7, "big")


def gds(cells: dict[bytes, list[bytes]], dbu: float = 1e-3) -> bytes:
    """A GDSII stream of cells with raw elements."""
    times = struct.pack(">12h", *[0] * 12)
    data = record(0x00, 2, struct.pack(">h", 600)) + record(0x01, 2, times) + record(0x02, 6, b"LIB\0")
    data += record(0x03, 5, real8(dbu) + real8(dbu * 1e-6))
    for name, elements in cells.items():
        data += record(0x05, 2, times) + record(0x06, 6, name) + b"".join(elements) + record(0x07, 0)
    return data + record(0x04, 0)


def boundary(*points: tuple[int, int]) -> bytes:
    xy = b"".join(struct.pack(">ii", *p) for p in (*points, points[0]))
    head = record(0x08, 0) + record(0x0D, 2, struct.pack(">h", 1)) + record(0x0E, 2, struct.pack(">h", 0))
    return head + record(0x10, 3, xy) + record(0x11, 0)


def reference(name: bytes, *, columns: int = 0) -> bytes:
    if not columns:
        return record(0x0A, 0) + record(0x12, 6, name) + record(0x10, 3, bytes(8)) + record(0x11, 0)
    xy = struct.pack(">6i", 0, 0, 10 * columns, 0, 0, 10 * columns)
    array = record(0x13, 2, struct.pack(">hh", columns, columns))
    return record(0x0B, 0) + record(0x12, 6, name) + array + record(0x10, 3, xy) + record(0x11, 0)


SQUARE = boundary((0, 0), (0, 400), (400, 400), (400, 0))
FAR = boundary((0, 0), (0, 400), (2**31 - 1, 400), (2**31 - 1, 0))


def test_the_handmade_stream_is_readable() -> None:
    layout = DRCLayout.from_bytes(gds({b"TOP\0": [SQUARE]}))
    assert layout.dbu == pytest.approx(0.001)
    assert full_check(layout, TUTORIAL).clean


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "not a readable layout"),
        (b"GIF89a" + bytes(99), "not a readable layout"),
        (gds({b"TOP\0": [SQUARE]})[:90], "not a readable layout"),
        (gds({b"TOP\0": [SQUARE]})[:-20], "not a readable layout"),
        (gds({b"A\0": [reference(b"B\0")], b"B\0": [reference(b"A\0")]}), "contain themselves|not a readable layout"),
        (gds({b"A\0": [SQUARE, reference(b"A\0")]}), "contain themselves|not a readable layout"),
        (gds({b"TOP\0": [FAR]}), "coordinates too large"),
        (gds({b"TOP\0": [SQUARE]}, dbu=0.0), "database unit|not a readable layout"),
        (gds({b"TOP\0": [SQUARE]}, dbu=1e4), "database unit"),
        (gds({b"A\0": [SQUARE], b"B\0": [SQUARE]}), "exactly one top cell, found 2"),
        (gds({}), "exactly one top cell, found 0"),
        (
            gds({b"TOP\0": [reference(b"A\0", columns=9999)], b"A\0": [SQUARE]}),
            "too many shapes",
        ),
    ],
)
def test_hostile_files(tmp_path: Path, data: bytes, fault: str) -> None:
    path = tmp_path / "hostile.gds"
    path.write_bytes(data)
    with pytest.raises(TaskError, match=rf"hostile\.gds: .*({fault})"):
        DRCLayout.from_gds(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"none\.gds"):
        DRCLayout.from_gds(tmp_path / "none.gds")


def test_odd_geometry_does_not_break_the_check() -> None:
    layout = kdb.Layout()
    layout.dbu = 0.001
    top = layout.create_cell("TOP")
    m1, v1 = layout.layer(*L["M1"]), layout.layer(*L["V1"])
    bow = [kdb.Point(*p) for p in ((0, 0), (300, 300), (300, 0), (0, 300))]
    top.shapes(m1).insert(kdb.Polygon(bow, True))
    top.shapes(m1).insert(kdb.Path([kdb.Point(0, 500), kdb.Point(700, 500), kdb.Point(700, 900)], 80))
    top.shapes(m1).insert(kdb.Box(5, 5, 5, 90))
    top.shapes(m1).insert(kdb.Text("label", 0, 0))
    top.shapes(v1).insert(kdb.Polygon([kdb.Point(*p) for p in ((0, 0), (57, 91), (120, 31))]))
    for options in ({}, {"tile": 0.2}):
        found = find_markers(DRCLayout(layout), TUTORIAL, **options)
        assert found.counts()["M1.W"] >= 1
        assert found.counts()["V1.W"] >= 1
