"""FETLayout: GDSII round trip, hostile files, copies."""

from __future__ import annotations

import pickle

import gdstk
import klayout.db as kdb
import pytest
from fet_cases import bar_fet, box, make_task

from edagym.errors import TaskError
from edagym.verifiers.fet.layout import FETLayout


def _xor_empty(a: FETLayout, b: FETLayout) -> bool:
    return all((a.region(s.name) ^ b.region(s.name)).is_empty() for s in a.layers)


def test_gds_round_trip_keeps_geometry_and_bytes() -> None:
    task = make_task(flakes=[(box(0, 0, 20, 6), [box(4, 2, 6, 4), box(12, 2, 14, 4)])], via=True, pad_cover=True)
    layout = bar_fet(task)
    again = layout.round_trip()
    assert _xor_empty(layout, again)
    assert again.to_gds_bytes() == again.round_trip().to_gds_bytes()
    assert layout.to_gds_bytes() == bar_fet(task).to_gds_bytes()


def test_hole_is_a_hole_after_keyholing() -> None:
    task = make_task(flakes=[(box(0, 0, 20, 6), [box(4, 2, 6, 4)])])
    assert FETLayout.from_task(task).region("graphene").area() == (20 * 6 - 4) * 10**6


def test_copy_is_independent_and_pickles() -> None:
    layout = bar_fet(make_task())
    layout.region("contacts")
    other = layout.copy()
    other.replace("contacts", ())
    assert other.region("contacts").is_empty()
    assert not layout.region("contacts").is_empty()
    assert pickle.loads(pickle.dumps(layout)) == layout


def _gds(layout: kdb.Layout) -> bytes:
    options = kdb.SaveLayoutOptions()
    options.format = "GDS2"
    return bytes(layout.write_bytes(options))


def test_hierarchy_paths_and_boxes_are_read_flat() -> None:
    task = make_task()
    layout = kdb.Layout()
    layout.dbu = 0.001
    child, top = layout.create_cell("CHILD"), layout.create_cell("TOP")
    contacts = layout.layer(task.layer("contacts").gds_layer, 0)
    child.shapes(contacts).insert(kdb.Box(0, 0, 1000, 1000))
    top.shapes(contacts).insert(kdb.Path([kdb.Point(5000, 0), kdb.Point(9000, 0)], 500))
    top.insert(kdb.CellInstArray(child.cell_index(), kdb.Trans(2, False, 3000, 3000)))
    read = FETLayout.from_gds_bytes(_gds(layout), task.layers)
    assert read.region("contacts").area() == 10**6 + 4000 * 500
    assert read.region("contacts").bbox() == kdb.Box(2000, -250, 9000, 3000)


def _two_tops() -> kdb.Layout:
    layout = kdb.Layout()
    layout.create_cell("A")
    layout.create_cell("B")
    return layout


def _other_dbu() -> kdb.Layout:
    layout = kdb.Layout()
    layout.dbu = 0.005
    layout.create_cell("TOP")
    return layout


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "readable"),
        (b"not a layout", "readable"),
        (_gds(_two_tops()), "top cell"),
        (_gds(kdb.Layout()), "top cell"),
        (_gds(_other_dbu()), "database unit"),
    ],
    ids=["empty", "text", "two tops", "no top", "dbu"],
)
def test_hostile_files_are_task_errors(data: bytes, word: str) -> None:
    with pytest.raises(TaskError, match=word):
        FETLayout.from_gds_bytes(data, make_task().layers, "hostile.gds")


def test_truncated_file_is_a_task_error(tmp_path) -> None:
    task = make_task()
    data = bar_fet(task).to_gds_bytes()
    path = tmp_path / "cut.gds"
    for n in range(0, len(data) - 4, 40):
        path.write_bytes(data[:n])
        with pytest.raises(TaskError, match="cut.gds"):
            FETLayout.read_gds(path, task.layers)


def test_missing_file_is_a_task_error(tmp_path) -> None:
    with pytest.raises(TaskError, match="nowhere.gds"):
        FETLayout.read_gds(tmp_path / "nowhere.gds", make_task().layers)


def test_an_array_of_cells_that_unfolds_to_millions_is_a_task_error() -> None:
    task = make_task()
    layout = kdb.Layout()
    layout.dbu = 0.001
    child, top = layout.create_cell("CHILD"), layout.create_cell("TOP")
    child.shapes(layout.layer(task.layer("contacts").gds_layer, 0)).insert(kdb.Box(0, 0, 10, 10))
    step_x, step_y = kdb.Vector(20, 0), kdb.Vector(0, 20)
    top.insert(kdb.CellInstArray(child.cell_index(), kdb.Trans(), step_x, step_y, 30_000, 30_000))
    with pytest.raises(TaskError, match="too many vertices"):
        FETLayout.from_gds_bytes(_gds(layout), task.layers, "bomb.gds")


def test_gdstk_round_trip() -> None:
    task = make_task(flakes=[(box(0, 0, 20, 6), [box(4, 2, 6, 4)])], via=True, pad_cover=True)
    layout = bar_fet(task)
    assert _xor_empty(FETLayout.from_gdstk(layout.to_gdstk(), task.layers), layout)


def test_gdstk_units_references_and_top_cells(tmp_path) -> None:
    task = make_task()
    spec = task.layer("contacts")
    library = gdstk.Library(unit=1e-9, precision=1e-9)
    child = library.new_cell("CHILD")
    child.add(gdstk.rectangle((0, 0), (1000, 500), layer=spec.gds_layer, datatype=spec.datatype))
    library.new_cell("TOP").add(gdstk.Reference(child, (3000, 0)))
    read = FETLayout.from_gdstk(library, task.layers)
    assert read.region("contacts").bbox() == kdb.Box(3000, 0, 4000, 500)
    library.new_cell("OTHER")
    with pytest.raises(TaskError, match="top cell"):
        FETLayout.from_gdstk(library, task.layers)
