"""Netlist extraction and the connectivity audit on hand-drawn and generated circuits, and on real layouts."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import klayout.db as kdb
import networkx as nx
import numpy as np
import pytest
from drc_drawings import (
    DBU,
    HEIGHT,
    TABLE,
    box,
    contact_x,
    design,
    draw_inverter,
    draw_via,
    finish,
    inverter,
    label,
    nand,
)

from edagym.errors import TaskError
from edagym.task_assets.drc.blocks import generate_block
from edagym.verifiers.drc import DRCLayout, netlist
from edagym.verifiers.drc.connectivity import Reference, _same_graph, window_guard
from edagym.verifiers.drc.diff import compare_layouts
from edagym.verifiers.drc.netlist import Extraction, Netlist
from edagym.verifiers.drc.rules import RuleTable
from edagym.verifiers.drc.stack import derive, stack_of

STACK = stack_of(TABLE)

Edit = Callable[[DRCLayout], None]


def cell(layout: DRCLayout, name: str) -> kdb.Cell:
    return layout.layout.cell(name)


def shapes(layout: DRCLayout, name: str, of: str = "") -> kdb.Shapes:
    entry = TABLE.layers[name]
    return (cell(layout, of) if of else layout.top).shapes(layout.layout.layer(entry.layer, entry.datatype))


def nth(layout: DRCLayout, name: str, of: str = "", n: int = 0) -> kdb.Shape:
    found = sorted(shapes(layout, name, of).each(kdb.Shapes.SRegions), key=lambda s: (s.bbox().left, s.bbox().bottom))
    return found[n]


def instance(layout: DRCLayout, name: str, n: int = 0) -> kdb.Instance:
    found = [i for i in layout.top.each_inst() if layout.layout.cell(i.cell_index).name == name]
    return sorted(found, key=lambda i: (i.trans.disp.x, i.trans.disp.y))[n]


def add(name: str, *coords: int, of: str = "") -> Edit:
    return lambda layout: box(layout.layout, cell(layout, of) if of else layout.top, name, *coords)


def erase(name: str, of: str = "", n: int = 0) -> Edit:
    return lambda layout: shapes(layout, name, of).erase(nth(layout, name, of, n))


def enlarge(name: str, left: int, bottom: int, right: int, top: int, of: str = "", n: int = 0) -> Edit:
    def edit(layout: DRCLayout) -> None:
        shape = nth(layout, name, of, n)
        b = shape.bbox()
        shape.box = kdb.Box(b.left - left, b.bottom - bottom, b.right + right, b.top + top)

    return edit


def move(name: str, dx: int, dy: int, n: int = 0) -> Edit:
    def edit(layout: DRCLayout) -> None:
        found = instance(layout, name, n)
        found.trans = kdb.Trans(kdb.Vector(dx, dy)) * found.trans

    return edit


def remove(name: str, n: int = 0) -> Edit:
    return lambda layout: instance(layout, name, n).delete()


def audit(make: Callable[..., DRCLayout], edit: Edit, labels: bool = True) -> set[str]:
    golden = make(labels)
    layout = golden.copy()
    edit(layout)
    return {f.kind for f in Reference(golden, STACK).audit(layout)}


# -- extraction ----------------------------------------------------------------------------------------------------


def terminals(layout: DRCLayout) -> dict[str, set[tuple[str, str]]]:
    """Label -> the class and role of every transistor terminal on its net."""
    n = Extraction(layout.layout, layout.top.name, STACK).netlist
    found: dict[str, set[tuple[str, str]]] = {}
    for (text, *_), net in zip(n.labels, n.label_nets):
        rows, roles = np.nonzero(n.device_nets == net)
        kinds = {(netlist.CLASSES[n.device_class[i]], "gate" if r == 1 else "contact") for i, r in zip(rows, roles)}
        found[text] = kinds
    return found


def test_inverter():
    assert terminals(inverter()) == {
        "A": {("N", "gate"), ("P", "gate")},
        "Y": {("N", "contact"), ("P", "contact")},
        "VDD": {("P", "contact")},
        "VSS": {("N", "contact")},
    }
    n = Extraction(inverter().layout, "INV", STACK).netlist
    assert n.device_size == pytest.approx(np.array([[0.02, 0.081], [0.02, 0.081]]))


def test_nand():
    n = Extraction(nand().layout, "NAND", STACK).netlist
    net = {text: int(k) for (text, *_), k in zip(n.labels, n.label_nets)}
    n_type = [row.tolist() for row, c in zip(n.device_nets, n.device_class) if c == 0]
    p_type = [row.tolist() for row, c in zip(n.device_nets, n.device_class) if c == 1]
    assert sorted(row[1] for row in n_type) == sorted((net["A"], net["B"]))
    assert all({row[0], row[2]} == {net["Y"], net["VDD"]} for row in p_type)
    # In series: the inner net is on both n-type transistors and on nothing that is labelled.
    inner = set.intersection(*({row[0], row[2]} for row in n_type))
    assert len(inner) == 1
    assert inner.isdisjoint(net.values())
    assert set.union(*({row[0], row[2]} for row in n_type)) - inner == {net["Y"], net["VSS"]}


def test_hierarchical_and_flat_extraction_agree(monkeypatch):
    flat = Extraction(design().layout, "TOP", STACK).netlist
    monkeypatch.setattr(netlist, "FLAT_LIMIT", -1)
    deep = Extraction(design().layout, "TOP", STACK).netlist
    assert flat.device_xy.tolist() == deep.device_xy.tolist()
    assert flat.device_class.tolist() == deep.device_class.tolist()
    pairs = {*zip(flat.device_nets[:, 1].tolist(), deep.device_nets[:, 1].tolist())}
    pairs |= {*zip(flat.label_nets.tolist(), deep.label_nets.tolist())}
    assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs)
    assert flat.n_nets == deep.n_nets


def test_flattening_agrees_with_klayout(monkeypatch):
    """Turned, mirrored and nested instances and an array."""
    monkeypatch.setattr(netlist, "FLAT_LIMIT", -1)
    layout = design().layout
    pair, top = layout.cell("TOP"), layout.create_cell("ABOVE")
    for i, turn in enumerate(
        (kdb.Trans.R0, kdb.Trans.R90, kdb.Trans.R180, kdb.Trans.R270, kdb.Trans.M0, kdb.Trans.M45)
    ):
        top.insert(kdb.CellInstArray(pair.cell_index(), kdb.Trans(turn, 8000 * i, 30)))
    step = kdb.Trans(kdb.Trans.M90, 0, 9000), kdb.Vector(4000, 0), kdb.Vector(0, 3000), 3, 2
    top.insert(kdb.CellInstArray(layout.cell("INV").cell_index(), *step))
    box(layout, top, "M1", 300, 440, 8000 * 2 + 324, 500)
    found = Extraction(layout, "ABOVE", STACK)
    n = found.netlist
    flat = found.flat_circuits()
    circuit = flat.circuit_by_name("ABOVE")
    for i, net in enumerate(circuit.each_net()):
        net.name = str(i)
    expected = {}
    for device in circuit.each_device():
        at = device.trans.disp
        nets = tuple(int(device.net_for_terminal(t).name) for t in range(3))
        key = (device.device_class().name, round(at.x * 2 / DBU), round(at.y * 2 / DBU))
        expected[key] = nets
    keys = [(netlist.CLASSES[c], int(x), int(y)) for c, (x, y) in zip(n.device_class, n.device_xy)]
    assert len(keys) == len({*keys}) == 6 * 8 + 6 * 2
    assert {*keys} == {*expected}
    pairs = {(a, b) for key, row in zip(keys, n.device_nets.tolist()) for a, b in zip(row, expected[key])}
    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
    assert n.n_nets == sum(1 for _ in circuit.each_net())


@pytest.mark.parametrize("seed", range(4))
def test_extraction_finds_the_nets_that_the_generator_routed(seed):
    block = generate_block(np.random.default_rng(seed), rows=3, width_cpp=30)
    layout = DRCLayout.from_bytes(block.gds())
    found = Extraction(layout.layout, layout.top.name, STACK)
    instances = {i.name: i for i in block.instances}
    keys = {}
    for net in block.nets:
        pins = [instances[name].terminal(pin) for name, pin in net.pins]
        ends = {found.net_at("M1", 4 * t.x, 4 * t.tracks[0]) for t in pins}
        assert len(ends) == 1, net.name
        (keys[net.name],) = ends
    assert None not in keys.values()
    assert len({*keys.values()}) == len(block.nets) > 5
    rails = {
        found.net_at(wire.layer, 2 * (wire.box[0] + wire.box[2]), 2 * (wire.box[1] + wire.box[3]))
        for _, wire in block.rails
    }
    assert rails.isdisjoint(keys.values())


def brute_force(layout: DRCLayout) -> dict[tuple[str, int, int], int]:
    """Net of every labelled point and gate area, by pairwise tests of flat polygons; no netlist extraction involved."""
    drawn = {n: kdb.Region(layout.top.begin_shapes_rec(layout.layout.layer(*STACK.gds[n]))) for n in STACK.drawn}
    nodes, *channels = derive(drawn, STACK)
    pieces = [(name, p) for name, region in nodes.items() for p in region.merged().each()]
    graph = nx.Graph()
    graph.add_nodes_from(range(len(pieces)))
    joins = {frozenset(pair) for pair in STACK.joins}
    for i, (a, p) in enumerate(pieces):
        for j in range(i):
            b, q = pieces[j]
            if frozenset((a, b)) in joins and p.bbox().touches(q.bbox()) and p.touches(q):
                graph.add_edge(i, j)
    net = {i: k for k, part in enumerate(nx.connected_components(graph)) for i in part}
    anchors = {}
    for i, (name, p) in enumerate(pieces):
        for _, conductor, x, y in netlist.conductor_labels(layout.layout, layout.top.name, STACK):
            if name == conductor and p.touches(kdb.Box(x, y, x, y)):
                anchors["label", x, y] = net[i]
        if name == "poly":
            for channel in (c for region in channels for c in region.merged().each()):
                if p.touches(channel):
                    center = channel.bbox().center()
                    anchors["gate", 2 * center.x, 2 * center.y] = net[i]
    return anchors


def test_extraction_agrees_with_brute_force():
    """On random edits, also those that break the circuit: the same anchors share a net."""
    rng = np.random.default_rng(2)
    for _ in range(25):
        layout = design()
        for _ in range(3):
            random_edit(layout, rng)
        n = Extraction(layout.layout, "TOP", STACK).netlist
        found = {("label", x, y): int(k) for (_, _, x, y), k in zip(n.labels, n.label_nets) if k >= 0}
        found |= {("gate", int(x), int(y)): int(nets[1]) for (x, y), nets in zip(n.device_xy, n.device_nets)}
        expected = brute_force(layout)
        assert {k for k in found if k[0] == "label"} == {k for k in expected if k[0] == "label"}
        # Gates without two sides are no transistors, so that the extraction may know fewer.
        assert {k for k in found if k[0] == "gate"} <= {k for k in expected if k[0] == "gate"}
        pairs = {(net, expected[key]) for key, net in found.items()}
        assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


def test_port_labels_count_through_pin_shapes():
    """A label beyond the wire's end, on the pin shape only, belongs to the wire."""
    golden = inverter(labels=False)
    layout, top = golden.layout, golden.top
    box(layout, top, "M2", 2000, 0, 2072, 400)
    box(layout, top, "M2", 2000, 440, 2072, 900)
    pins = layout.layer(TABLE.layers["M2"].layer, 251)
    top.shapes(pins).insert(kdb.Box(2000, 380, 2072, 460))
    label(layout, top, "M2", "port", 2036, 420)
    found = Extraction(layout, "INV", STACK)
    assert found.net_at("M2", 2036, 100) == found.net_at("M2", 2036, 800) is not None
    assert found.netlist.label_nets.tolist() == [found.netlist.label_nets[0]]
    assert found.netlist.label_nets[0] >= 0


def test_netlist_round_trip():
    n = Reference(design(), STACK).netlist
    data = n.to_bytes()
    again = Netlist.from_bytes(data)
    assert again.to_bytes() == data
    assert again.labels == n.labels
    assert np.array_equal(again.device_nets, n.device_nets)
    assert again.dbu == DBU


def test_references_pickle_and_still_audit():
    golden = pickle.loads(pickle.dumps(Reference(design(), STACK)))
    layout = design()
    assert golden.audit(layout) == []
    remove("VIA12")(layout)
    assert [f.kind for f in golden.audit(layout)] == ["open"]


# -- the audit -----------------------------------------------------------------------------------------------------

INV_Y = contact_x(1)

HARMLESS: dict[str, tuple[Callable[..., DRCLayout], Edit]] = {
    "nothing": (design, lambda layout: None),
    "a wider wire": (design, enlarge("M2", 4, 4, 4, 4)),
    "a longer gate": (design, enlarge("GATE", 0, 8, 0, 8, of="INV", n=1)),
    "one fin more": (design, enlarge("ACTIVE", 0, 0, 0, 12, of="NAND")),
    "a via moved by 3 nm": (design, move("VIA12", 12, 0)),
    "a transistor moved with its cell": (inverter, lambda layout: None),
    "a wire drawn as two boxes": (
        design,
        lambda layout: (
            erase("M2")(layout),
            add("M2", 396, 576, 1000, 648)(layout),
            add("M2", 900, 576, 1656, 648)(layout),
        ),
    ),
    "a second copy of a wire": (design, add("M2", 396, 576, 1656, 648)),
    "a lone wire more": (design, add("M5", 0, 3000, 500, 3100)),
    "a stub more": (design, add("M2", 1656, 576, 1800, 648)),
    "the redundant half of a contact less": (inverter, enlarge("LISD", 0, 0, 0, -40, of="INV", n=2)),
}

HARMFUL: dict[str, tuple[Callable[..., DRCLayout], Edit, set[str]]] = {
    "a via removed": (design, remove("VIA12"), {"open"}),
    "a via moved off its wire": (design, move("VIA12", 0, 200), {"open"}),
    "a wire deleted": (design, erase("M2"), {"open"}),
    "a wire cut": (
        design,
        lambda layout: (
            erase("M2")(layout),
            add("M2", 396, 576, 900, 648)(layout),
            add("M2", 940, 576, 1656, 648)(layout),
        ),
        {"open"},
    ),
    "a path deleted": (design, erase("M3"), {"open"}),
    "output and input joined": (design, add("M1", 300, 600, INV_Y, 640, of="INV"), {"short"}),
    "two nets covered with a blob": (design, add("M2", 396, 180, 1656, 648), {"short"}),
    "supplies joined": (inverter, add("M1", 600, 0, 640, HEIGHT), {"short"}),
    "a gate deleted": (design, erase("GATE", of="INV", n=1), {"short", "device_lost"}),
    "an active area deleted": (inverter, erase("ACTIVE", of="INV"), {"device_lost"}),
    "a gate more": (inverter, add("GATE", INV_Y - 20, 0, INV_Y + 20, 500), {"device_added"}),
    "a gate cut between its transistors": (design, add("GCUT", 280, 600, 368, 640, of="INV"), {"open"}),
    "a well moved away": (inverter, lambda layout: nth(layout, "WELL").delete(), {"device_changed"}),
    "a well over everything": (inverter, enlarge("WELL", 0, 540, 0, 0), {"device_changed"}),
    "an implant removed": (inverter, erase("NSELECT"), {"device_changed"}),
    "a threshold marked": (inverter, add("LVT", 200, 0, 500, 540), {"device_changed"}),
    "a third of an active area": (inverter, enlarge("ACTIVE", 0, 0, 0, -216), {"device_resized"}),
    "a gate contact removed": (nand, erase("LIG"), {"open"}),
    "a trench contact removed": (inverter, erase("SDT", n=0), {"open"}),
}


@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("case", HARMLESS)
def test_harmless_edits_keep_the_circuit(case, labels):
    make, edit = HARMLESS[case]
    assert audit(make, edit, labels) == set()


@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("case", HARMFUL)
def test_harmful_edits_are_found(case, labels):
    make, edit, kinds = HARMFUL[case]
    found = audit(make, edit, labels)
    assert kinds <= found, found
    # Nothing beyond what the edit did; an input that lost its driver has only one anchor left without labels.
    assert found <= kinds | {"open", "device_resized", "label_lost"}


def test_findings_say_what_and_where():
    golden, layout = design(), design()
    erase("M3")(layout)
    (finding,) = Reference(golden, STACK).audit(layout)
    assert finding.kind == "open"
    assert "is in 2 parts" in finding.message
    x1, y1, x2, y2 = finding.where
    assert 0 <= x1 <= x2 <= 0.6
    assert 0 <= y1 <= y2 <= 0.3
    layout = design()
    add("M1", 300, 600, INV_Y, 640, of="INV")(layout)
    messages = [f.message for f in Reference(golden, STACK).audit(layout)]
    assert len(messages) == 2
    (message,) = (m for m in messages if "in1" in m)
    assert message.startswith("short between")
    assert "net in1" in message
    assert "net mid" in message


def test_labels_are_anchors():
    golden = inverter()
    reference = Reference(golden, STACK)
    text_layer = golden.layout.layer(TABLE.layers["M1"].layer, 251)

    def relabel(edit: Callable[[kdb.Shape], object], text: str) -> set[str]:
        layout = golden.copy()
        edit(next(s for s in layout.top.shapes(text_layer).each() if s.text_string == text))
        return {f.kind for f in reference.audit(layout)}

    assert relabel(lambda s: s.delete(), "Y") == {"label_lost"}
    assert relabel(lambda s: setattr(s, "text_string", "Z"), "Y") == {"label_lost", "label_added"}
    assert relabel(lambda s: s.transform(kdb.Trans(kdb.Vector(0, 20))), "Y") == set()
    assert relabel(lambda s: s.transform(kdb.Trans(kdb.Vector(60, 0))), "Y") == {"label_lost"}
    layout = golden.copy()
    # The wire under the label goes away: the net is whole, but its port is not on it any more.
    erase("M1", n=2)(layout)
    assert "label_lost" in {f.kind for f in reference.audit(layout)}


def crossed(swap: bool) -> DRCLayout:
    """Inverters 3 and 4 drive wires that pass both inputs of inverters 1 and 2; `swap` exchanges who drives whom."""
    layout = kdb.Layout()
    layout.dbu = DBU
    inv, via = draw_inverter(layout), draw_via(layout, "VIA12", "M1", "V1", "M2")
    top = layout.create_cell("TOP")
    for i in range(4):
        top.insert(kdb.CellInstArray(inv.cell_index(), kdb.Trans(kdb.Vector(648 * i, 0))))
    for i, (y, driver) in enumerate(((470, 2), (610, 3))):
        receiver = 324 + 648 * ((1 - i) if swap else i)
        end = 648 * driver + contact_x(1)
        box(layout, top, "M2", 288, y - 36, end + 36, y + 36)
        for x in (receiver, end):
            top.insert(kdb.CellInstArray(via.cell_index(), kdb.Trans(kdb.Vector(x, y))))
    return finish(layout, labels=False)


def test_a_swap_in_a_symmetric_circuit_is_found_without_labels():
    golden, layout = crossed(False), crossed(True)
    assert _same_graph(*(Extraction(source.layout, "TOP", STACK) for source in (golden, layout)))
    assert {f.kind for f in Reference(golden, STACK).audit(layout)} == {"open", "short"}
    assert Reference(golden, STACK).audit(crossed(False)) == []


@pytest.mark.parametrize("labels", [True, False])
def test_a_cell_may_move_as_a_whole(labels):
    golden = finish_pair(labels)
    reference = Reference(golden, STACK)
    for step in (8, 100, 216, 5000):
        layout = golden.copy()
        move("INV", step, 40, n=1)(layout)
        assert reference.audit(layout) == [], step


def finish_pair(labels: bool = True) -> DRCLayout:
    layout = kdb.Layout()
    layout.dbu = DBU
    inv = draw_inverter(layout)
    top = layout.create_cell("TOP")
    for x in (0, 2000):
        top.insert(kdb.CellInstArray(inv.cell_index(), kdb.Trans(kdb.Vector(x, 0))))
    return finish(layout, labels)


def test_redrawing_a_circuit_elsewhere_keeps_it():
    """Every shape of a master moves so far that places say nothing: the graph comparison decides."""
    golden = finish_pair(labels=False)
    layout = golden.copy()
    for index in layout.layout.layer_indexes():
        for shape in list(cell(layout, "INV").shapes(index).each()):
            shape.transform(kdb.Trans(kdb.Vector(0, 3000)))
    assert Reference(golden, STACK).audit(layout) == []
    erase("V0", of="INV", n=-1)(layout)
    assert Reference(golden, STACK).audit(layout) != []


def test_a_flattened_layout_has_the_same_circuit():
    layout = design()
    layout.layout.flatten(layout.top.cell_index(), -1, True)
    assert Reference(design(), STACK).audit(layout) == []


# -- conductors without devices ------------------------------------------------------------------------------------


def wires(labels: bool = True) -> DRCLayout:
    """Two M1 bars and, over the second, an M2 bar on a via; nothing is labelled and nothing switches."""
    layout = kdb.Layout()
    layout.dbu = 0.001
    top = layout.create_cell("TOP")
    for name, coords in (
        ("M1", (0, 0, 100, 20)),
        ("M1", (0, 60, 100, 80)),
        ("V1", (40, 60, 58, 78)),
        ("M2", (40, 0, 58, 300)),
    ):
        box(layout, top, name, *coords)
    return finish(layout, labels)


@pytest.mark.parametrize(
    ("edit", "kinds"),
    [
        (enlarge("M1", 5, 5, 5, 5), set()),
        (move_first := enlarge("M1", 0, 10, 0, -10), set()),
        (add("M1", 200, 0, 300, 20), set()),
        (add("M1", 0, 10, 100, 70), {"short"}),
        (enlarge("M1", 0, 0, 0, 40), {"short"}),
        (erase("V1"), {"open"}),
        (
            lambda layout: (erase("M1")(layout), add("M1", 0, 0, 40, 20)(layout), add("M1", 60, 0, 100, 20)(layout)),
            {"open"},
        ),
        (lambda layout: (erase("M1")(layout), add("M1", 0, 40, 100, 60)(layout)), {"conductor_lost"}),
    ],
    ids=["grow", "shift", "add", "blob", "touch", "no via", "cut", "move until it touches"],
)
def test_wires_without_devices(edit, kinds):
    golden = wires()
    layout = golden.copy()
    edit(layout)
    assert {f.kind for f in Reference(golden, STACK).audit(layout)} == kinds


def test_a_technology_without_transistors():
    table = RuleTable.from_dict(
        {
            "format": "edagym-drc-rules-1",
            "name": "tutorial",
            "layers": {n: {"gds": [k, 0]} for k, n in enumerate(("M1", "V1", "M2"), start=1)},
            "rules": [{"id": "M1.W", "measure": "M1.width(50*nm, projection)"}],
        }
    )
    stack = stack_of(table)
    layout = kdb.Layout()
    layout.dbu = 0.001
    top = layout.create_cell("TOP")
    at = {n: layout.layer(table.layers[n].layer, table.layers[n].datatype) for n in ("M1", "V1", "M2")}
    top.shapes(at["M1"]).insert(kdb.Box(0, 0, 1000, 200))
    top.shapes(at["V1"]).insert(kdb.Box(50, 50, 150, 150))
    top.shapes(at["M2"]).insert(kdb.Box(0, 0, 200, 1000))
    golden = DRCLayout(layout)
    reference = Reference(golden, stack)
    assert reference.netlist.device_class.size == 0
    broken = golden.copy()
    broken.top.shapes(at["V1"]).clear()
    assert reference.audit(golden.copy()) == []
    assert [f.kind for f in reference.audit(broken)] == ["open"]


# -- what cannot be compared ---------------------------------------------------------------------------------------


def test_another_database_unit_or_top_cell_is_refused():
    reference = Reference(inverter(), STACK)
    other = inverter()
    other.layout.dbu = 0.001
    with pytest.raises(TaskError, match="another database unit"):
        reference.audit(other)
    other = inverter()
    other.top.name = "OTHER"
    with pytest.raises(TaskError, match="another top cell"):
        reference.audit(other)


def test_the_audited_layouts_are_not_changed():
    golden, layout = design(), design()
    erase("M3")(layout)
    before = golden.to_bytes(), layout.to_bytes()
    Reference(golden, STACK).audit(layout)
    assert (golden.to_bytes(), layout.to_bytes()) == before


# -- the guard of single steps -------------------------------------------------------------------------------------


def guarded(golden: DRCLayout, layout: DRCLayout) -> set[str]:
    """Kinds that the guard finds in any place where two layouts differ."""
    changes = compare_layouts(golden.layout, layout.layout)
    found: set[str] = set()
    for site in changes.sites(golden.layout, layout.layout):
        for place in site.in_top(golden.layout, golden.top):
            found |= {f.kind for f in window_guard(golden, layout, place, STACK)}
    return found


@pytest.mark.parametrize("case", HARMLESS)
def test_the_guard_is_silent_on_harmless_edits(case):
    make, edit = HARMLESS[case]
    golden = make()
    layout = golden.copy()
    edit(layout)
    assert guarded(golden, layout) == set()


@pytest.mark.parametrize("case", HARMFUL)
def test_the_guard_sees_what_the_audit_sees(case):
    make, edit, _ = HARMFUL[case]
    golden = make()
    layout = golden.copy()
    edit(layout)
    assert guarded(golden, layout)


def random_edit(layout: DRCLayout, rng: np.random.Generator) -> str:
    """Delete, resize, move or add a shape of a random conductor or transistor layer, at top or in a master."""
    names = [n for n in STACK.drawn if layout.layer_index(*STACK.gds[n]) is not None]
    for _ in range(100):
        name = names[rng.integers(len(names))]
        cells = sorted(c.name for c in layout.layout.each_cell())
        of = cells[rng.integers(len(cells))]
        found = sorted(shapes(layout, name, of).each(kdb.Shapes.SRegions), key=str)
        if found:
            break
    shape = found[rng.integers(len(found))]
    b = shape.bbox()
    what = int(rng.integers(4))
    step = [int(v) for v in rng.integers(-60, 61, size=4)]
    if what == 0:
        shape.delete()
    elif what == 1:
        shape.transform(kdb.Trans(kdb.Vector(step[0], step[1])))
    elif what == 2:
        box(layout.layout, cell(layout, of), name, b.left + step[0], b.bottom + step[1], b.right + abs(step[2]), b.top)
    else:
        shape.box = kdb.Box(b.left - abs(step[0]), b.bottom, b.right + abs(step[1]), b.top + abs(step[2]))
    return f"{('delete', 'move', 'add', 'grow')[what]} {name} in {of}"


def test_a_silent_guard_means_an_unchanged_circuit():
    """On random edits of a generated block, whatever the audit finds, the guard has found."""
    rng = np.random.default_rng(11)
    golden = DRCLayout.from_bytes(generate_block(rng, rows=2, width_cpp=14, top_metal="M4").gds())
    reference = Reference(golden, STACK)
    outcomes = []
    for _ in range(60):
        layout = golden.copy()
        what = random_edit(layout, rng)
        full, local = reference.audit(layout), guarded(golden, layout)
        assert local or not full, (what, full)
        outcomes.append((bool(full), bool(local)))
    assert (True, True) in outcomes
    assert (False, False) in outcomes


# -- real layouts --------------------------------------------------------------------------------------------------


def real(*parts: str) -> Path:
    return Path(os.environ["EDAGYM_REAL_DATA"]).joinpath(*parts)


@pytest.mark.real
def test_gcd():
    golden = DRCLayout.from_gds(real("posteda-dev", "drc_bench", "drc_essential", "L2", "q1", "top_cell.gds"))
    reference = Reference(golden, STACK)
    n = reference.netlist
    assert (len(n.device_class), n.n_nets) == (12_449, 8_640)
    assert (n.label_nets >= 0).all()
    layout = golden.copy()
    # The repair: the narrowed M3 wire at its full width. And the paper's 3 nm move of a via (Appendix C.7).
    shape = next(s for s in shapes(layout, "M3").each() if s.is_path() and s.path_width == 36)
    shape.path_width = 72
    move("VIA_VIA12", 12, 0)(layout)
    assert reference.audit(layout) == []
    remove("VIA_VIA23", n=100)(layout)
    assert {f.kind for f in reference.audit(layout)} == {"open"}


@pytest.mark.real
def test_oracle_cells():
    """Every cell has one transistor per gate area; each mutant is audited against its clean original."""
    folder = real("drc", "oracle", "gds")
    cleans = {p.name.split("__")[0]: p for p in folder.glob("*__clean.gds")}
    audited = 0
    for path in sorted(folder.glob("*__*.gds")):
        layout = DRCLayout.from_gds(path)
        found = Extraction(layout.layout, layout.top.name, STACK)
        if path.name.endswith("__clean.gds"):
            gate, cut, active = (kdb.Region(shapes(layout, n)) for n in ("GATE", "GCUT", "ACTIVE"))
            assert len(found.netlist.device_class) == ((gate - cut) & active).merged().count()
        clean = cleans.get(path.name.split("__")[0])
        if clean is None:
            continue
        golden = DRCLayout.from_gds(clean)
        findings = Reference(golden, STACK).audit(layout)
        assert findings == [] or path != clean
        audited += 1
    assert audited > 50
