"""The block generator: legal, connected as planned, the same bytes every time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import product

import klayout.db as kdb
import numpy as np
import pytest
from drc_netlist import device_counts, extract

from edagym.errors import TaskError
from edagym.task_assets.drc.blocks import Block, Instance, generate_block
from edagym.task_assets.drc.cells import CELLS, Cell, cell_library
from edagym.task_assets.drc.process import ALL_METALS, CPP, METALS, NM, VIAS, WIRES
from edagym.verifiers.drc import DRCLayout, full_check, load_table

SIZES = [
    (1, 12, "M2"),
    (1, 20, "M3"),
    (2, 24, "M4"),
    (3, 40, "M5"),
    (5, 40, "M6"),
    (4, 60, "M7"),
    (8, 40, "M9"),
]


@cache
def block(seed: int, rows: int, width_cpp: int, top_metal: str) -> Block:
    return generate_block(np.random.default_rng(seed), rows=rows, width_cpp=width_cpp, top_metal=top_metal)


def counts(layout: kdb.Layout) -> dict[str, int]:
    report = full_check(DRCLayout(layout), load_table("asap7"))
    return {category: n for category, n in report.counts.items() if n}


def row_layout(cell: Cell) -> kdb.Layout:
    """A row of tap, cell, its mirror image, and tap."""
    names = ["TAPx1", "FILLx2", cell.name, cell.name, "FILLx2", "TAPx1"]
    instances, x = [], 0
    for index, name in enumerate(names):
        instances.append(Instance(f"u{index}", name, x, 0, "m90" if index == 3 else "r0"))
        x += cell_library()[name].width
    return Block(x, 270, tuple(instances), (), (), ()).layout()


@pytest.mark.parametrize("name", CELLS)
def test_every_cell_is_legal_beside_others_and_has_its_transistors(name: str) -> None:
    cell = cell_library()[name]
    layout = row_layout(cell)
    assert counts(layout) == {}
    assert device_counts(extract(layout)) == tuple(2 * n for n in cell.transistors)


def settle(l2n: kdb.LayoutToNetlist, inputs: dict[str, bool]) -> dict[str, bool]:
    """Switch-level simulation of an extracted cell: values of the named nets once nothing changes any more."""
    circuit = l2n.netlist().top_circuit()
    names = {net.cluster_id: net.expanded_name() for net in circuit.each_net()}
    values = {key: {**inputs, "VDD": True, "VSS": False}.get(name) for key, name in names.items()}
    devices = [
        (d.device_class().name == "p", *(d.net_for_terminal(t).cluster_id for t in ("S", "G", "D")))
        for d in circuit.each_device()
    ]
    for _ in range(4 * len(devices)):
        for is_p, source, gate, drain in devices:
            diode = values[gate] is None and gate in (source, drain)
            if diode or (values[gate] is not None and values[gate] != is_p):
                for a, b in ((source, drain), (drain, source)):
                    if values[a] is not None and names[b] not in ("VDD", "VSS"):
                        values[b] = values[a]
    return {names[key]: value for key, value in values.items() if value is not None}


@pytest.mark.parametrize(
    ("name", "output", "function"),
    [
        ("INVx1", "Y", lambda a: not a),
        ("INVx2", "Y", lambda a: not a),
        ("BUFx1", "Y", lambda a: a),
        ("NAND2x1", "Y", lambda a, b: not (a and b)),
        ("NOR2x1", "Y", lambda a, b: not (a or b)),
        ("NAND3x1", "Y", lambda a, b, c: not (a and b and c)),
        ("NOR3x1", "Y", lambda a, b, c: not (a or b or c)),
        ("AND2x1", "ZY", lambda a, b: a and b),
        ("OR2x1", "ZY", lambda a, b: a or b),
        ("TIEHIx1", "H", lambda: True),
        ("TIELOx1", "L", lambda: False),
    ],
)
def test_cells_compute_what_their_names_say(name: str, output: str, function: Callable[..., bool]) -> None:
    cell = cell_library()[name]
    instances = (Instance("u0", "TAPx1", 0, 0, "r0"), Instance("u1", name, 2 * CPP, 0, "r0"))
    layout = Block(2 * CPP + cell.width, 270, instances, (), (), ()).layout()
    l2n = extract(layout)
    inputs = [pin.name for pin in cell.pins.values() if not pin.output]
    for values in product((False, True), repeat=len(inputs)):
        settled = settle(l2n, dict(zip(inputs, values)))
        assert settled[output] == function(*values), values


def test_latches_store() -> None:
    for name, inputs, expected in (
        ("SRLATCHx1", {"SA": False, "RB": True}, {"SY": True, "RY": False}),
        ("SRLATCHx1", {"SA": True, "RB": False}, {"SY": False, "RY": True}),
        ("DLATCHx1", {"DA": True, "DB": True, "EB": True}, {"QY": True, "NY": False}),
        ("DLATCHx1", {"DA": False, "DB": True, "EB": True}, {"QY": False, "NY": True}),
    ):
        layout = Block(cell_library()[name].width, 270, (Instance("u", name, 0, 0, "r0"),), (), (), ()).layout()
        settled = settle(extract(layout), inputs)
        named = {part: value for net, value in settled.items() for part in net.split(",")}
        assert {key: named[key] for key in expected} == expected


@pytest.mark.parametrize(("rows", "width_cpp", "top_metal"), SIZES)
@pytest.mark.parametrize("seed", [1, 2])
def test_blocks_are_legal(seed: int, rows: int, width_cpp: int, top_metal: str) -> None:
    drawn = block(seed, rows, width_cpp, top_metal)
    layout = drawn.layout()
    assert counts(layout) == {}
    assert layout.top_cell().bbox().width() >= width_cpp * CPP * NM
    used = {METALS.index(wire.layer) for net in drawn.nets for wire in net.wires}
    assert all(level <= ALL_METALS.index(top_metal) for level in used)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 60))
def test_many_blocks_are_legal(seed: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = generate_block(
        rng,
        rows=int(rng.integers(1, 12)),
        width_cpp=int(rng.integers(12, 110)),
        top_metal=str(rng.choice(ALL_METALS[1:])),
    )
    assert counts(drawn.layout()) == {}


def test_bytes_are_reproduced_and_differ_between_seeds() -> None:
    make = [generate_block(np.random.default_rng(seed), rows=2, width_cpp=24) for seed in (5, 5, 6)]
    assert make[0].gds() == make[1].gds() != make[2].gds()
    read = kdb.Layout()
    read.read_bytes(make[0].gds(), kdb.LoadLayoutOptions())
    assert read.dbu == pytest.approx(0.00025)
    assert all(child.child_cells() == 0 for child in read.each_cell() if child.name != "block")


@pytest.mark.parametrize(("rows", "width_cpp", "top_metal"), [(3, 40, "M5"), (4, 60, "M7")])
def test_nets_join_exactly_their_pins(rows: int, width_cpp: int, top_metal: str) -> None:
    drawn = block(1, rows, width_cpp, top_metal)
    l2n = extract(drawn.layout())
    circuit = l2n.netlist().top_circuit()
    n, p = (sum(cell_library()[i.cell].transistors[side] for i in drawn.instances) for side in (0, 1))
    assert device_counts(l2n) == (n, p)
    labels = [set(net.name.split(",")) for net in circuit.each_net() if net.name]
    assert sum(1 for names in labels if "VDD" in names) == 1
    assert sum(1 for names in labels if "VSS" in names) == 1
    assert not any({"VDD", "VSS"} <= names for names in labels)
    for net in drawn.nets:
        mine = [names for names in labels if net.name in names]
        assert len(mine) == 1
        others = {other.name for other in drawn.nets} - {net.name}
        assert not mine[0] & (others | {"VDD", "VSS"})


def test_every_net_reaches_its_pins() -> None:
    drawn = block(1, 3, 40, "M5")
    where = {instance.name: instance for instance in drawn.instances}
    for net in drawn.nets:
        assert 2 <= len(net.pins) <= 4
        for instance, pin in net.pins:
            terminal = where[instance].terminal(pin)
            assert any(via.layer == "V1" and via.x == terminal.x and via.y in terminal.tracks for via in net.vias)
        for via in net.vias:
            for metal in (VIAS[via.layer].lower, VIAS[via.layer].upper):
                if metal != "M1":
                    pad = via.pad(lower=metal == VIAS[via.layer].lower)
                    assert any(
                        wire.layer == metal
                        and wire.box[0] <= pad[0]
                        and wire.box[1] <= pad[1]
                        and pad[2] <= wire.box[2]
                        and pad[3] <= wire.box[3]
                        for wire in net.wires
                    )
        for wire in net.wires:
            low, high = (0, 2) if WIRES[wire.layer].vertical else (1, 3)
            assert wire.box[high] - wire.box[low] == WIRES[wire.layer].width


def test_higher_metals_are_used_when_allowed() -> None:
    used = Counter(wire.layer for seed in (1, 2) for net in block(seed, 4, 60, "M7").nets for wire in net.wires)
    assert {"M2", "M3", "M4", "M5", "M6"} <= set(used)
    assert block(1, 4, 60, "M7").unrouted <= 3


def test_number_of_nets_can_be_limited() -> None:
    drawn = generate_block(np.random.default_rng(3), rows=3, width_cpp=40, n_nets=4)
    assert 1 <= len(drawn.nets) <= 4
    assert generate_block(np.random.default_rng(3), rows=1, width_cpp=12, n_nets=0).nets == ()


@pytest.mark.parametrize(
    "options", [{"rows": 0}, {"rows": 41}, {"width_cpp": 11}, {"width_cpp": 201}, {"top_metal": "M1"}, {"n_nets": -1}]
)
def test_bad_sizes_are_refused(options: dict) -> None:
    with pytest.raises(TaskError) as error:
        generate_block(np.random.default_rng(0), **options)
    assert error.value.field == next(iter(options))
