"""Comparison of netlists with templates: every template matches itself in any order, and no fault goes unseen."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from edagym.task_assets.fet.circuits import LOADS, TEMPLATES, CircuitSpec, Stack, is_onchip, stacks
from edagym.verifiers.fet.netlist import Mismatch, Netlist, Terminal, Transistor, _Search, assign_nets, match_template


def is_inner(net: str) -> bool:
    return is_onchip(net) and not net.startswith("OUT")


def circuit(template: str, load: str, instances: int = 1, groups: int | None = None) -> tuple[Stack, ...]:
    """Return the stacks of a template with `instances` circuits on `groups` (default: as many) sets of flakes."""
    drivers = 1 if template == "inverter" else int(template[-1])
    per_flake = drivers + 1 if load == "active" else drivers
    flakes = 1 if load == "active" else 2
    groups = groups or instances
    total = drivers + 1 if load == "active" else 2 * drivers
    exact = (per_flake * instances // groups,) * (flakes * groups)
    return stacks(CircuitSpec(template, load, instances, total, exact, flakes))


def drawn(stacks_: Sequence[Stack], rng: np.random.Generator | None = None, split: bool = False) -> Netlist:
    """Return the netlist of a layout that follows the template: in scrambled order, with scrambled names.

    Args:
        stacks_: The template.
        rng: Scrambles; None: as the template lists it.
        split: Give every supply piece and every gate a net of its own, as joined off-chip.
    """
    serial = itertools.count(1)

    def own(net: str, piece: object) -> str:
        return f"{net}/{piece}" if split and not is_onchip(net) else net

    transistors: list[Transistor] = []
    for region, stack in enumerate(stacks_):
        for i, (gate, first, second) in enumerate(stack.transistors):
            ends = [
                Terminal(own(net, (region, i + k)), own(net, (region, i + k)), not is_inner(net))
                for k, net in enumerate((first, second))
            ]
            if rng is not None and rng.random() < 0.5:
                ends.reverse()
            transistors.append(Transistor(region, (own(gate, next(serial)),), *ends))
    if rng is not None:
        nets = sorted({n for t in transistors for n in (*t.gates, t.source.net, t.drain.net)})
        new = dict(zip(nets, (f"n{k}" for k in rng.permutation(len(nets)))))
        transistors = [rename(t, new) for t in transistors]
        transistors = [transistors[i] for i in rng.permutation(len(transistors))]
    names = tuple(f"flake_{r + 1}" for r in range(len(stacks_)))
    return Netlist(names, ("gate",), tuple(transistors))


def rename(t: Transistor, new: dict[str, str]) -> Transistor:
    def end(terminal: Terminal) -> Terminal:
        return replace(terminal, net=new.get(terminal.net, terminal.net), solid=new.get(terminal.solid, terminal.solid))

    return replace(t, gates=tuple(new.get(g, g) for g in t.gates), source=end(t.source), drain=end(t.drain))


def renamed(netlist: Netlist, **new: str) -> Netlist:
    """Return the netlist with nets renamed (which joins them where the new name exists); `_` stands for `#`."""
    table = {k.replace("_", "#"): v.replace("_", "#") for k, v in new.items()}
    return replace(netlist, transistors=tuple(rename(t, table) for t in netlist.transistors))


def mismatch(netlist: Netlist, template: Sequence[Stack]) -> str:
    result = match_template(netlist, template)
    assert isinstance(result, Mismatch)
    assert result.message
    return result.message


ALL = [(t, load, n) for t in TEMPLATES for load in LOADS for n in (1, 2, 4)]


@pytest.mark.parametrize(("template", "load", "n"), ALL)
@pytest.mark.parametrize("split", [False, True])
def test_every_template_matches_itself_in_any_order(template: str, load: str, n: int, split: bool) -> None:
    target = circuit(template, load, n)
    assert match_template(drawn(target, split=split), target) is None
    for seed in range(5):
        netlist = drawn(target, np.random.default_rng(seed), split)
        names = assign_nets(netlist, target)
        assert isinstance(names, dict)
        assert set(names) == {x for t in netlist.transistors for x in (*t.gates, t.source.net, t.drain.net)}
        wanted = {net for stack in target for net in (*stack.nets, *stack.gates)}
        assert set(names.values()) == wanted


@pytest.mark.parametrize(("template", "load", "n"), [a for a in ALL if a[2] == 2])
def test_two_circuits_on_one_set_of_flakes(template: str, load: str, n: int) -> None:
    target = circuit(template, load, n, groups=1)
    for seed in range(3):
        assert match_template(drawn(target, np.random.default_rng(seed), split=True), target) is None


@pytest.mark.parametrize(("template", "load", "n"), [a for a in ALL if a[2] < 3])
def test_any_two_nets_joined_is_a_short_unless_both_are_loads(template: str, load: str, n: int) -> None:
    target = circuit(template, load, n)
    netlist = drawn(target, split=False)
    nets = sorted({x for t in netlist.transistors for x in (*t.gates, t.source.net, t.drain.net)})
    for a, b in itertools.combinations(nets, 2):
        joined = replace(netlist, transistors=tuple(rename(t, {a: b}) for t in netlist.transistors))
        kinds = {x.split("#")[0] for x in (a, b)}
        circuits = {x.partition("#")[2] for x in (a, b)} - {""}
        harmless = kinds == {"LOAD"} or kinds == {"LOAD", "VDD"} or (kinds == {"LOAD", "OUT"} and len(circuits) == 1)
        # An active inverter reads the same from either end: its load may be named its driver.
        symmetric = template == "inverter" and load == "active" and kinds in ({"A", "VDD"}, {"A", "GND"}, {"A"})
        symmetric = symmetric or (template == "inverter" and load == "active" and "A" in kinds and "OUT" in kinds)
        if not symmetric:
            assert (match_template(joined, target) is None) == harmless, (a, b)


@pytest.mark.parametrize(("template", "load", "n"), [a for a in ALL if a[2] < 3])
def test_any_on_chip_net_cut_in_two_is_open(template: str, load: str, n: int) -> None:
    target = circuit(template, load, n)
    netlist = drawn(target)
    uses = [
        (i, side)
        for i, t in enumerate(netlist.transistors)
        for side in ("source", "drain")
        if is_onchip(getattr(t, side).net)
    ]
    assert uses
    for i, side in uses:
        t = netlist.transistors[i]
        for field in ("net", "solid"):
            end = replace(getattr(t, side), net="cut", solid="cut") if field == "net" else None
            end = end or replace(getattr(t, side), solid="cut")
            others = [x for j, x in enumerate(netlist.transistors) if j != i]
            shared_elsewhere = any(getattr(t, side).net in (o.source.net, o.drain.net) for o in others)
            changed = replace(netlist, transistors=(*others, replace(t, **{side: end})))
            assert (match_template(changed, target) is None) == (not shared_elsewhere), (i, side, field)


def test_messages_name_the_fault() -> None:
    nand = circuit("nand2", "active")
    netlist = drawn(nand)
    assert "A#1 and B#1 are one net" in mismatch(renamed(netlist, A_1="B_1"), nand)
    assert "LOAD#1" in mismatch(renamed(netlist, LOAD_1="A_1"), nand)
    nor = circuit("nor2", "active")
    cut = drawn(nor)
    last = replace(cut.transistors[-1], drain=Terminal("n", "n"))
    assert "OUT#1 is open" in mismatch(replace(cut, transistors=(*cut.transistors[:-1], last)), nor)
    few = replace(netlist, transistors=netlist.transistors[:-1])
    assert mismatch(few, nand) == "flake_1: expected 3 transistors, found 2"
    shorted = replace(netlist.transistors[0], source=netlist.transistors[0].drain)
    assert "source and drain are one net" in mismatch(
        replace(netlist, transistors=(shorted, *netlist.transistors[1:])), nand
    )
    bare = replace(netlist.transistors[0], source=replace(netlist.transistors[0].source, port=False))
    assert "VDD has no usable contact" in mismatch(replace(netlist, transistors=(bare, *netlist.transistors[1:])), nand)


def test_series_is_not_parallel() -> None:
    nand, nor = circuit("nand2", "active"), circuit("nor2", "active")
    assert match_template(drawn(nand), nor) is not None
    assert match_template(drawn(nor), nand) is not None
    n, p = circuit("nand2", "complementary")
    assert match_template(drawn((p, n)), (n, p)) is not None


def test_load_gate_is_a_free_port() -> None:
    target = circuit("nand2", "active", 2)
    netlist = drawn(target)
    assert match_template(renamed(netlist, LOAD_1="VDD"), target) is None
    assert match_template(renamed(netlist, LOAD_1="OUT_1"), target) is None
    assert match_template(renamed(netlist, LOAD_1="LOAD_2"), target) is None
    assert match_template(renamed(netlist, LOAD_1="OUT_2"), target) is not None
    assert match_template(renamed(netlist, LOAD_1="GND"), target) is not None
    assert match_template(renamed(netlist, LOAD_1="x1_1"), target) is not None


def test_star_of_a_nor_matches_like_a_row() -> None:
    # OUT in the middle of a three-armed flake: the same netlist as the template's row, with one OUT piece.
    target = circuit("nor2", "active")
    ends = [("LOAD", "VDD"), ("A", "g1"), ("B", "g2")]
    star = tuple(Transistor(0, (gate,), Terminal("out", "out"), Terminal(net, net)) for gate, net in ends)
    assert match_template(Netlist(("flake_1",), ("gate",), star), target) is None


def test_dual_gates_must_agree() -> None:
    target = circuit("nand2", "active")
    one = drawn(target)
    both = replace(one, transistors=tuple(replace(t, gates=(t.gates[0], f"b{t.gates[0]}")) for t in one.transistors))
    assert match_template(both, target) is None
    crossed = replace(both, transistors=tuple(replace(t, gates=(t.gates[0], "b")) for t in both.transistors))
    assert match_template(crossed, target) is not None


def graph(transistors: Sequence[tuple[int, str, str, str]]) -> nx.Graph:
    """Return the bipartite graph of transistors and nets."""
    result = nx.Graph()
    for i, (region, gate, first, second) in enumerate(transistors):
        result.add_node(("t", i), kind=f"t{region}")
        for role, net in (("g", gate), ("sd", first), ("sd", second)):
            result.add_node(("n", net), kind="n")
            old = result.get_edge_data(("t", i), ("n", net), {"role": ""})["role"]
            result.add_edge(("t", i), ("n", net), role=old + role)
    return result


def test_agrees_with_graph_isomorphism_on_random_netlists() -> None:
    """With all nets joined on chip and no free ports, matching is graph isomorphism; networkx is the oracle."""
    rng = np.random.default_rng(3)
    equal = 0
    for template, load in (("nand2", "complementary"), ("nor2", "complementary"), ("nand3", "complementary")):
        target = circuit(template, load)
        for _ in range(150):
            netlist = drawn(target, rng)
            for _ in range(int(rng.integers(0, 3))):  # rewire a few ends
                i = int(rng.integers(len(netlist.transistors)))
                j = int(rng.integers(len(netlist.transistors)))
                side = ("source", "drain")[int(rng.integers(2))]
                new = replace(getattr(netlist.transistors[j], ("source", "drain")[int(rng.integers(2))]))
                changed = list(netlist.transistors)
                changed[i] = replace(changed[i], **{side: new})
                netlist = replace(netlist, transistors=tuple(changed))
            ports = tuple(
                replace(t, source=replace(t.source, port=True), drain=replace(t.drain, port=True))
                for t in netlist.transistors
            )
            netlist = replace(netlist, transistors=ports)
            mine = match_template(netlist, target) is None
            first = graph([(t.region, t.gates[0], t.source.net, t.drain.net) for t in netlist.transistors])
            second = graph([(r, *t) for r, stack in enumerate(target) for t in stack.transistors])
            theirs = nx.is_isomorphic(
                first, second, lambda a, b: a["kind"] == b["kind"], lambda a, b: a["role"] == b["role"]
            )
            equal += theirs
            assert mine == theirs
    assert 50 < equal < 400


@pytest.mark.parametrize("load", LOADS)
def test_work_grows_with_the_sum_of_the_circuits_not_with_the_product(load: str) -> None:
    tries = []
    for n in (2, 4, 8):
        target = circuit("nor3", load, n)
        netlist = drawn(target)  # all circuits on common supply rails
        t = netlist.transistors[-1]
        broken = replace(netlist, transistors=(*netlist.transistors[:-1], replace(t, gates=("A#1",))))
        assert match_template(broken, target) is not None
        search = _Search(broken, target, 0)
        assert not search.run()
        tries.append(search.tries)
    assert tries[2] < 6 * tries[0]
