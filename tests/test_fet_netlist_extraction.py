"""Extraction of netlists from drawn layouts."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from fet_cases import box
from fet_drawings import (
    GATE,
    LEFT,
    RIGHT,
    Drawing,
    active,
    bar,
    bar_with_vias,
    complementary,
    inverter_active,
    nand2_active,
    nand2_complementary,
    nor2_active,
    row,
    strap,
)

from edagym.envs.fet.interpreter import apply_edit
from edagym.spaces.edits import edit_from_json
from edagym.task_assets.fet.suite import load_reference, load_task, task_ids
from edagym.verifiers.fet.layout import FETLayout
from edagym.verifiers.fet.netlist import Mismatch, Netlist, assign_nets, extract_netlist, match_template
from edagym.verifiers.fet.strict import strict_checks

CIRCUITS: dict[str, Callable[[], Drawing]] = {
    "inverter": inverter_active,
    "nand2": nand2_active,
    "nor2": nor2_active,
    "nand2 complementary": nand2_complementary,
}


def netlist(drawing: Drawing) -> Netlist:
    return extract_netlist(*drawing.build())


def names(drawing: Drawing) -> list[tuple[str, str, str]]:
    """Return (gate, end, end) of every transistor by template names, ends sorted."""
    task, layout = drawing.build()
    assert task.stacks is not None
    found = extract_netlist(task, layout)
    assigned = assign_nets(found, task.stacks)
    assert isinstance(assigned, dict), assigned
    return [(assigned[t.gates[0]], *sorted((assigned[t.source.net], assigned[t.drain.net]))) for t in found.transistors]


def message(drawing: Drawing) -> str:
    task, layout = drawing.build()
    assert task.stacks is not None
    result = match_template(extract_netlist(task, layout), task.stacks)
    assert isinstance(result, Mismatch)
    return result.message


def test_nets_of_a_plain_row() -> None:
    flake, gates, contacts = row(3)
    found = netlist(Drawing({"contacts": contacts, "gate": gates}, [flake], {"demand": (3,)}))
    assert [(t.gates, t.source.net, t.drain.net) for t in found.transistors] == [
        (("gate.1",), "n1", "n2"),
        (("gate.2",), "n2", "n3"),
        (("gate.3",), "n3", "n4"),
    ]
    assert all(t.source.port and t.drain.port and t.region == 0 for t in found.transistors)
    assert [t.at for t in found.transistors] == [(3.5, 3.0), (7.5, 3.0), (11.5, 3.0)]


def test_nand2_has_its_inner_net_without_contact() -> None:
    assert names(nand2_active()) == [
        ("LOAD#1", "OUT#1", "VDD"),
        ("A#1", "OUT#1", "x1#1"),
        ("B#1", "GND", "x1#1"),
    ]
    inner = netlist(nand2_active()).transistors[1].drain
    assert not inner.port


def test_nor2_outputs_are_one_net_through_the_wire() -> None:
    assert names(nor2_active()) == [("LOAD#1", "OUT#1", "VDD"), ("A#1", "GND", "OUT#1"), ("B#1", "GND", "OUT#1")]


def test_complementary_nand2() -> None:
    ends = sorted(names(nand2_complementary()))
    assert ends[0] in {("A#1", "GND", "x1#1"), ("A#1", "OUT#1", "x1#1"), ("A#1", "OUT#1", "VDD")}
    assert sum(e[1:] == ("OUT#1", "VDD") for e in ends) == 2
    assert len(ends) == 4


@pytest.mark.parametrize("name", CIRCUITS)
def test_netlist_does_not_depend_on_the_pose(name: str) -> None:
    task, layout = CIRCUITS[name]().build()
    assert task.stacks is not None
    for degrees, mirrored in ((90.0, False), (37.0, True), (211.0, False)):
        task, layout = CIRCUITS[name]().posed(degrees, mirrored).build()
        assert task.stacks is not None
        assert match_template(extract_netlist(task, layout), task.stacks) is None


@pytest.mark.parametrize("name", CIRCUITS)
def test_dict_form_is_json_and_complete(name: str) -> None:
    task, layout = CIRCUITS[name]().build()
    assert task.stacks is not None
    found = extract_netlist(task, layout)
    data = json.loads(json.dumps(found.to_dict(assign_nets(found, task.stacks))))  # type: ignore[arg-type]
    assert len(data["transistors"]) == sum(len(s.gates) for s in task.stacks)
    assert set(data["nets"]) == {n for t in data["transistors"] for n in (*t["gates"], t["source"], t["drain"])}
    assert set(data["nets"].values()) == {n for s in task.stacks for n in (*s.nets, *s.gates)}
    assert data["faults"] == []
    assert json.loads(json.dumps(found.to_dict()))["nets"] == list(data["nets"])


def test_via_and_pad_cover_join_contacts() -> None:
    drawing = nor2_active()
    contacts = drawing.shapes["contacts"][:4]
    wired = Drawing(
        {
            "contacts": contacts,
            "gate": drawing.shapes["gate"],
            "via": [box(4 * k + 1, 2.5, 4 * k + 2, 3.5) for k in range(4)],
            # VDD and GND on pad covers of their own; OUT's two contacts on a common one that passes GND.
            "pad_cover": [
                box(0.8, 2, 2.2, 4),
                box(8.8, 2, 10.2, 4),
                ((4.8, 2), (6.2, 2), (6.2, 7), (12.8, 7), (12.8, 2), (14.2, 2), (14.2, 8), (4.8, 8)),
            ],
        },
        drawing.flakes,
        {**drawing.task, "via": True, "pad_cover": True},
    )
    assert names(wired) == names(nor2_active())
    apart = wired.with_shapes(pad_cover=[*wired.shapes["pad_cover"][:2], box(4.8, 2, 6.2, 4), box(12.8, 2, 14.2, 4)])
    assert "OUT#1 is open" in message(apart)
    # A pad cover joins contacts through vias only: without the via on GND, covering GND too does no harm to OUT,
    # but GND cannot be reached any more.
    lifted = wired.with_shapes(via=[v for k, v in enumerate(wired.shapes["via"]) if k != 2])
    assert "GND has no usable contact" in message(lifted)


def test_wire_over_bare_substrate_joins_two_flakes() -> None:
    drawing = nand2_complementary()
    found = netlist(drawing)
    out = {t.drain.net for t in found.transistors if t.region == 0} & {
        t.drain.net for t in found.transistors if t.region
    }
    assert out
    assert "OUT#1 is open" in message(drawing.with_shapes(contacts=drawing.shapes["contacts"][:5]))


def test_arms_of_one_transistor_are_merged() -> None:
    ring = (box(0, 0, 20, 14), (box(6, 5, 14, 9),))
    drawing = Drawing({"contacts": [box(1, 6, 5, 8), box(15, 6, 19, 8)], "gate": [box(9, -1, 11, 15)]}, [ring])
    assert len(netlist(drawing).transistors) == 1
    two = drawing.with_shapes(gate=[box(9, -1, 11, 6), box(9, 8, 11, 15)])
    assert len(netlist(two).transistors) == 2


def test_dead_ends_are_left_out_and_third_terminals_are_faults() -> None:
    spare = inverter_active().adding(gate=[box(10.6, -1, 11.8, 7)])  # cuts an end without a contact off
    assert len(netlist(spare).transistors) == 2
    y_shape = (((8, 0), (12, 0), (12, 10), (20, 10), (20, 14), (0, 14), (0, 10), (8, 10)), ())
    contacts = [box(1, 11, 5, 13), box(15, 11, 19, 13), box(9, 1, 11, 5)]
    junction = Drawing({"contacts": contacts, "gate": [box(7, 7, 13, 15)]}, [y_shape])
    found = netlist(junction)
    assert found.transistors == ()
    assert "3 terminals" in found.faults[0].message
    task, layout = Drawing(
        junction.shapes, junction.flakes, {"demand": (2,), "circuit": active("inverter"), "materials": ["MoSe2"]}
    ).build()
    failed = {c.kind for c in strict_checks(task, layout) if not c.passed}
    assert failed == {"strict_transistor_count", "strict_netlist"}


def test_hairlines_short_but_do_not_connect() -> None:
    flake, gates, contacts = row(2)
    joined = Drawing(
        {"contacts": [*contacts, *strap(contacts[0], contacts[2], 9, width=0.01)], "gate": gates},
        [flake],
        {"demand": (2,)},
    )
    first, second = netlist(joined).transistors
    assert first.source.net == second.drain.net
    assert first.source.solid != second.drain.solid


def test_circuit_ports_need_landed_contacts() -> None:
    contacts = inverter_active().shapes["contacts"]
    hairline = inverter_active().with_shapes(contacts=[*contacts[:2], box(8.5, 3, 10.5, 3.05)])
    assert "has no usable contact" in message(hairline)


def test_two_circuits_share_supplies_by_wire() -> None:
    lower, gates_1, contacts_1 = row(2)
    upper, gates_2, contacts_2 = row(2, dy=12)
    spec = active("inverter", instances=2)
    task = {"demand": (2, 2), "circuit": spec, "materials": ["MoSe2", "MoSe2"]}
    rails = [box(1, 4.8, 2, 13.2), box(9, 4.8, 10, 13.2)]
    both = Drawing({"contacts": [*contacts_1, *contacts_2, *rails], "gate": [*gates_1, *gates_2]}, [lower, upper], task)
    assert len(names(both)) == 4
    twisted = both.adding(contacts=[box(4.5, 4.8, 5, 13.2)])  # joins the two outputs
    assert "are one net" in message(twisted)


def test_complementary_inverter_in_two_flakes() -> None:
    n_flake, n_gates, n_contacts = row(1)
    p_flake, p_gates, p_contacts = row(1, dy=12)
    task = {"demand": (1, 1), "circuit": complementary("inverter"), "materials": ["MoSe2", "WSe2"]}
    drawing = Drawing(
        {"contacts": [*n_contacts, *p_contacts, box(5, 4.8, 6, 13.2)], "gate": [*n_gates, *p_gates]},
        [n_flake, p_flake],
        task,
    )
    assert sorted(names(drawing)) == [("A#1", "GND", "OUT#1"), ("A#1", "OUT#1", "VDD")]
    common_gate = drawing.with_shapes(gate=[box(2.95, -1, 4.05, 19)], contacts=drawing.shapes["contacts"])
    assert sorted(names(common_gate)) == sorted(names(drawing))


def test_plain_tasks_have_netlists_too() -> None:
    assert len(netlist(bar()).transistors) == 1
    assert len(netlist(bar_with_vias(pads=True)).transistors) == 1
    dual = Drawing(
        {"contacts": [LEFT, RIGHT], "top_gate": [GATE], "back_gate": [GATE]}, task={"architecture": "dual_gated"}
    )
    (transistor,) = netlist(dual).transistors
    assert sorted(transistor.gates) == ["back_gate.1", "top_gate.1"]
    assert netlist(dual).gate_layers == tuple(s.name for s in dual.build()[0].layers_of("gate electrode"))


@pytest.mark.parametrize("task_id", [i for i in task_ids("FET-All") if load_task(i).circuit is not None])
def test_reference_netlist_is_the_recorded_one(task_id: str) -> None:
    task = load_task(task_id)
    layout = FETLayout.from_task(task)
    for edit in load_reference(task_id)["edits"]:
        apply_edit(layout, edit_from_json(edit))
    assert task.stacks is not None
    found = extract_netlist(task, layout)
    assert isinstance(assign_nets(found, task.stacks), dict)
    assert json.loads(json.dumps(found.to_dict())) == task.metadata["netlist"]
