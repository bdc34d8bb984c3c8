"""Corrupt and hostile layout files: refused with a TaskError that names file and fault, by command and by tasks."""

from __future__ import annotations

import struct
from pathlib import Path

import klayout.db as kdb
import pytest
from drc_cases import bars, make_task, write_benchmark

from edagym.cli import main
from edagym.envs.drc.posteda import import_posteda
from edagym.envs.drc.state import PreparedTask
from edagym.errors import TaskError
from edagym.task_assets.drc.task import DRCTask
from edagym.verifiers.drc import DRCLayout, full_check, load_table

M1 = (19, 0)


def record(kind: int, data: bytes = b"") -> bytes:
    return struct.pack(">HH", 4 + len(data), kind) + data


def name(kind: int, text: str) -> bytes:
    return record(kind, text.encode() + b"\0" * (len(text) % 2))


DATES = struct.pack(">12h", *[1] * 12)
NANOMETRES = bytes.fromhex("3e4189374bc6a7f03944b82fa09b5a54")


def stream(*cells: bytes, units: bytes = NANOMETRES) -> bytes:
    """A GDSII stream made by hand, for what no writer would write."""
    head = record(0x0002, struct.pack(">h", 600)) + record(0x0102, DATES) + name(0x0206, "LIB") + record(0x0305, units)
    return head + b"".join(cells) + record(0x0400)


def cell(cell_name: str, *elements: bytes) -> bytes:
    return record(0x0502, DATES) + name(0x0606, cell_name) + b"".join(elements) + record(0x0700)


def points(*values: int) -> bytes:
    return record(0x1003, struct.pack(f">{len(values)}i", *values))


def box(x1: int, y1: int, x2: int, y2: int) -> bytes:
    layer = record(0x0D02, struct.pack(">h", M1[0])) + record(0x0E02, struct.pack(">h", M1[1]))
    return record(0x0800) + layer + points(x1, y1, x1, y2, x2, y2, x2, y1, x1, y1) + record(0x1100)


def place(cell_name: str, x: int = 0, y: int = 0) -> bytes:
    return record(0x0A00) + name(0x1206, cell_name) + points(x, y) + record(0x1100)


def array(cell_name: str, columns: int, rows: int, pitch: int) -> bytes:
    size = record(0x1302, struct.pack(">2h", columns, rows))
    corners = points(0, 0, columns * pitch, 0, 0, rows * pitch)
    return record(0x0B00) + name(0x1206, cell_name) + size + corners + record(0x1100)


def piled(n: int) -> bytes:
    """Shapes on one spot, hardly two of them equal."""
    layout = kdb.Layout()
    layout.dbu = 0.001
    shapes = layout.create_cell("top_cell").shapes(layout.layer(*M1))
    for i in range(n):
        shapes.insert(kdb.Box(i % 50, i % 49, 100 + i % 47, 100 + i % 43))
    return bytes(layout.write_bytes(options()))


def options() -> kdb.SaveLayoutOptions:
    chosen = kdb.SaveLayoutOptions()
    chosen.format = "GDS2"
    return chosen


ONE = box(0, 0, 100, 100)
BOMB = [cell("C0", ONE), *(cell(f"C{i}", array(f"C{i - 1}", 100, 100, 200 * 100 ** (i - 1))) for i in (1, 2))]
HOSTILE = {
    "empty": (b"", "not a readable layout"),
    "text": (b"(1, 2, 3)\n" * 50, "not a readable layout"),
    "zeros": (bytes(4096), "not a readable layout"),
    "cut short": (bars(10)[:-40], "not a readable layout"),
    "cut in the middle": (bars(10)[: len(bars(10)) // 2], "not a readable layout"),
    "only a head": (bars(10)[:30], "not a readable layout"),
    "no cell": (stream(), "exactly one top cell, found 0"),
    "two top cells": (stream(cell("A", ONE), cell("B", ONE)), "exactly one top cell, found 2"),
    "contains itself": (stream(cell("A", ONE, place("A"))), "contain themselves"),
    "contain one another": (stream(cell("T", place("A")), cell("A", place("B")), cell("B", place("A"))), "themselves"),
    "far away": (stream(cell("A", box(0, 0, 2**31 - 1, 100))), "coordinates too large"),
    "placed far away": (
        stream(cell("C0", ONE), *(cell(f"C{i}", place(f"C{i - 1}", 2**30)) for i in range(1, 5))),
        "coordinates too large",
    ),
    "huge array": (stream(cell("A", ONE), cell("T", array("A", 30000, 30000, 60000))), "coordinates too large"),
    "no unit": (stream(cell("A", ONE), units=bytes(16)), "unit"),
    "vast unit": (stream(cell("A", ONE), units=NANOMETRES[:8] + bytes.fromhex("4f10000000000000")), "unit"),
    "a hundred million shapes": (stream(*BOMB), "too many shapes"),
    "a thousand placements on one spot": (stream(cell("A", ONE), cell("T", *[place("A")] * 1000)), "on one spot"),
    "a million shapes in one row": (stream(cell("A", ONE), cell("T", array("A", 30000, 30, 1))), "on one spot"),
    "a thousand equal shapes": (stream(cell("A", *[ONE] * 1000)), "on one spot"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_command(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, fault = HOSTILE[case]
    path = tmp_path / "bad.gds"
    path.write_bytes(data)
    assert main(["drc", str(path), "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert str(path) in err
    assert fault in err


@pytest.mark.parametrize("case", HOSTILE)
def test_task(case: str, tmp_path: Path) -> None:
    data, fault = HOSTILE[case]
    make_task(bars(10)).save(tmp_path)
    (tmp_path / "layout.gds").write_bytes(data)
    with pytest.raises(TaskError) as caught:
        PreparedTask(DRCTask.load(tmp_path))
    assert fault in str(caught.value)
    assert "layout of Essential-L1/q1" in str(caught.value)


@pytest.mark.parametrize("case", HOSTILE)
def test_import(case: str, tmp_path: Path) -> None:
    data, fault = HOSTILE[case]
    write_benchmark(tmp_path)
    path = sorted(tmp_path.rglob("top_cell.gds"))[0]
    path.write_bytes(data)
    with pytest.raises(TaskError) as caught:
        import_posteda(tmp_path)
    assert fault in str(caught.value)
    assert str(path) in str(caught.value)


def test_many_different_shapes_on_one_spot(tmp_path: Path) -> None:
    path = tmp_path / "pile.gds"
    path.write_bytes(piled(300_000))
    with pytest.raises(TaskError, match=r"pile\.gds.*on one spot"):
        DRCLayout.from_gds(path)


def test_missing_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path / "none.gds", tmp_path, tmp_path / "none" / "a.gds"):
        assert main(["drc", str(path)]) == 2
        assert str(path) in capsys.readouterr().err
    with pytest.raises(TaskError, match="none"):
        DRCTask.load(tmp_path / "none")
    with pytest.raises(TaskError, match="none"):
        import_posteda(tmp_path / "none")


def test_ten_gigabytes(tmp_path: Path) -> None:
    """Not read at all."""
    path = tmp_path / "large.gds"
    with path.open("wb") as f:
        f.truncate(10_000_000_000)
    with pytest.raises(TaskError, match=r"large\.gds.*too large"):
        DRCLayout.from_gds(path)


def test_the_handmade_stream_is_good() -> None:
    """Otherwise the cases above would be refused for another reason."""
    layout = DRCLayout.from_bytes(stream(cell("A", ONE), cell("T", place("A", 500), array("A", 3, 2, 1000))))
    assert layout.dbu == pytest.approx(0.001)
    assert layout.flat_shapes() == 7
    assert full_check(layout, load_table()).clean
    assert DRCLayout.from_bytes(stream(cell("A", *[ONE] * 50))).flat_shapes() == 50
