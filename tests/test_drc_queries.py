"""Text queries and prompts of the DRC family."""

from __future__ import annotations

import json

import klayout.db as kdb
import pytest
from drc_cases import bars, make_task

from edagym.envs.drc.prompt import render_prompt, render_violations
from edagym.envs.drc.queries import run_query, shapes_near
from edagym.errors import EditError
from edagym.spaces.drc_queries import LEVELS, MAX_PAGE, PAGE, Query, query_from_dict, query_to_dict
from edagym.task_assets.drc.task import Violation
from edagym.verifiers.drc import DRCLayout, load_table

TABLE = load_table()
GAP = ((1040, 500), (1040, 700), (1050, 700), (1050, 500))  # between the bars, top frame


@pytest.fixture
def layout() -> DRCLayout:
    found = DRCLayout.from_bytes(bars(10))
    m1, v1 = found.layout.layer(19, 0), found.layout.layer(21, 0)
    top = found.top
    top.shapes(v1).insert(kdb.Box(1042, 600, 1048, 606))  # in the gap
    top.shapes(m1).insert(kdb.Box(1100, 500, 1118, 700))  # 50 from the gap
    top.shapes(m1).insert(kdb.Box(1200, 500, 1218, 700))
    return found


def ask(layout, level, **fields):
    return run_query(layout, TABLE, Query(level, "edge_pair", GAP, **fields))


def test_three_levels(layout):
    first = ask(layout, "first", direct_layers=("M1",))
    assert [(s.cell, s.distance) for s in first.shapes] == [("PAIR", 0)] * 2
    second = ask(layout, "second", direct_layers=("M1",))
    assert [s.layer for s in second.shapes] == ["V1"]
    third = ask(layout, "third", direct_layers=("M1",), context_layers=("M1",))
    assert [s.points[0][0] for s in third.shapes] == [1100, 1200]
    assert [s.distance for s in third.shapes] == [50, 150]


def test_masters_are_given_in_both_frames(layout):
    bar = ask(layout, "first", direct_layers=("M1",)).shapes[0]
    assert bar.points[0] == (1000, 500)
    assert bar.own[0] == (0, 0)
    assert bar.trans == "r0 *1 1000,500"
    inside = run_query(layout, TABLE, Query("first", "edge", ((40, 0), (40, 200)), "PAIR")).shapes[0]
    assert inside.points == inside.own == bar.own
    assert inside.trans == ""


def test_nearest_first_and_pages(layout):
    everything = ask(layout, "third", direct_layers=("M1",)).shapes
    distances = [s.distance for s in everything]
    assert distances == sorted(distances)
    assert len(everything) == 3  # two M1 bars and the M3 bar 950 away
    pages = [ask(layout, "third", direct_layers=("M1",), start=i, stop=i + 1).shapes for i in range(4)]
    assert [s for page in pages for s in page] == list(everything)
    assert pages[3] == ()
    assert "more with start=1" in ask(layout, "third", direct_layers=("M1",), start=0, stop=1).text()
    assert "more" not in ask(layout, "third", direct_layers=("M1",)).text()


def test_coordinates_are_database_units():
    source = DRCLayout.from_bytes(bars(10))
    source.layout.dbu = 0.00025
    text = run_query(source, TABLE, Query("first", "edge_pair", GAP)).text()
    assert "(1000,500)" in text
    assert "units of 0.00025 um" in text


def test_every_kind_of_shape(layout):
    m3 = layout.layout.layer(30, 0)
    ring = kdb.Polygon(kdb.Box(3000, 0, 3100, 100))
    ring.insert_hole(kdb.Box(3020, 20, 3080, 80))
    layout.top.shapes(m3).insert(ring)
    layout.top.shapes(m3).insert(kdb.Path([kdb.Point(3300, 0), kdb.Point(3300, 100)], 20))
    layout.top.shapes(m3).insert(kdb.Text("VDD", kdb.Trans(3300, 50)))
    found = shapes_near(layout, TABLE, (2990, 0, 3400, 100), (2990, 0, 2990, 0), ["M3"])
    assert [s.points[0] for s in found] == [(3000, 0), (3290, 0)]
    assert len(found[0].points) >= 8


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("level", "fourth"),
        ("level", None),
        ("kind", "blob"),
        ("points", None),
        ("points", [[0, 0]]),
        ("points", [[0, 0.5], [1, 1]]),
        ("points", [[0, 2**40], [1, 1]]),
        ("points", [[0, True], [1, 1]]),
        ("points", [[0, 0, 0], [1, 1]]),
        ("cell", 5),
        ("start", -1),
        ("start", "0"),
        ("stop", 0),
        ("stop", MAX_PAGE + 1),
        ("direct_layers", "M1"),
        ("context_layers", [1]),
        ("zoom", 1),
    ],
)
def test_malformed_queries(field, value):
    data = {"op": "query", "level": "first", "kind": "edge", "points": [[0, 0], [0, 1]], field: value}
    with pytest.raises(EditError) as caught:
        query_from_dict(data)
    assert field in (caught.value.field or "")


@pytest.mark.parametrize("fields", [{"cell": "NONE"}, {"direct_layers": ("MX",)}, {"context_layers": ("MX",)}])
def test_unknown_names(layout, fields):
    with pytest.raises(EditError, match="unknown"):
        ask(layout, "first", **fields)


def test_json_round_trip():
    query = Query("third", "edge_pair", GAP, "PAIR", ("M1",), ("M2", "V1"), 3, 9)
    assert query_from_dict(json.loads(json.dumps(query_to_dict(query)))) == query
    short = query_from_dict({"op": "query", "kind": "edge", "points": [[0, 0], [0, 1]]})
    assert (short.level, short.start, short.stop) == (LEVELS[0], 0, PAGE)


def test_violation_text_follows_the_benchmark():
    items = [Violation("M2.W.1", "narrow", "CELL", ("edge: (0,0;0,1)",), "top", "m0 *1 1,2")] * 12
    items.append(Violation("M1.S.1", "close", "top", ("edge: (0,0;0,1)",)))
    lines = render_violations(items, "top", "rules").splitlines()
    assert lines[:4] == ["Description: rules", "=" * 39, "Top Cell: top", "=" * 39]
    assert lines[4] == "--- M1.S.1  |  cell: top ---"
    assert lines[5].startswith("[0] {'category': 'M1.S.1', 'description': 'close', 'values': ['edge: (0,0;0,1)'], ")
    assert lines[5].endswith("'cell_name': 'top', 'parent': None, 'trans': None}")
    assert lines[7] == "--- M2.W.1  |  cell: CELL  |  first 10 of 12 ---"
    assert sum(line.startswith("[") for line in lines) == 11
    assert "'trans': 'm0 *1 1,2'" in lines[8]


def test_prompt_has_everything_but_the_ground_truth():
    task = make_task(bars(10), reference=({"op": "move_secret"},), steps=3, roi=(0.5, 0.25, 2.5, 1.0), golden=bars(30))
    text = render_prompt(task.view(), 0.001, "ACTIONS")
    for item in task.violations:
        assert item.rule in text
        assert item.values[0] in text
    assert "(0.5, 0.25)-(2.5, 1) um" in text
    assert "2 um2" in text
    assert "ACTIONS" in text
    assert "costs one of 8" in text
    assert "secret" not in text
