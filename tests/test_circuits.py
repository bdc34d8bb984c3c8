"""Circuit templates: the stacks are the textbook netlists."""

from __future__ import annotations

import itertools

import pytest

from edagym.task_assets.fet.circuits import (
    LOADS,
    TEMPLATES,
    CircuitSpec,
    is_input,
    is_load_gate,
    is_onchip,
    is_supply,
    stacks,
)


def spec(template: str, load: str, instances: int = 1, regions: int | None = None) -> CircuitSpec:
    fan_in = 1 if template == "inverter" else int(template[-1])
    per_flake = fan_in + 1 if load == "active" else fan_in
    flakes = 1 if load == "active" else 2
    n = regions or instances * flakes
    exact = (per_flake * (instances * flakes // n),) * n
    return CircuitSpec(template, load, instances, per_flake * flakes, exact, flakes)


def truth_table(template: str, load: str) -> dict[tuple[int, ...], bool | None]:
    """Switch-level simulation of one instance: the value of OUT for every input."""
    result = stacks(spec(template, load))
    devices = [(g, a, b, i) for i, s in enumerate(result) for g, a, b in s.transistors]
    inputs = sorted({g for g, *_ in devices if is_input(g)})
    table = {}
    for values in itertools.product((0, 1), repeat=len(inputs)):
        level = dict(zip(inputs, values))
        reach = {}
        for supply in ("GND", "VDD"):
            seen, todo = {supply}, [supply]
            while todo:
                net = todo.pop()
                for g, a, b, region in devices:
                    if is_load_gate(g):
                        continue
                    on = level[g] == 1 if (load == "active" or region == 0) else level[g] == 0
                    if on and net in (a, b):
                        other = b if net == a else a
                        if other not in seen and not is_supply(other):
                            seen.add(other)
                            todo.append(other)
            reach[supply] = "OUT#1" in seen
        if load == "active":
            table[values] = not reach["GND"]
        else:
            assert reach["GND"] != reach["VDD"], "complementary gates drive OUT from exactly one supply"
            table[values] = reach["VDD"]
    return table


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("template", TEMPLATES)
def test_truth_table(template: str, load: str) -> None:
    for values, out in truth_table(template, load).items():
        if template.startswith("nor"):
            assert out == (not any(values))
        else:
            assert out == (not all(values))


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize("instances", [1, 3])
def test_instances_have_their_own_nets(template: str, load: str, instances: int) -> None:
    result = stacks(spec(template, load, instances))
    owners: dict[str, set[int]] = {}
    flakes = 1 if load == "active" else 2
    for i, s in enumerate(result):
        for net in (*s.nets, *s.gates):
            if not is_supply(net):
                owners.setdefault(net, set()).add(i // flakes)
    assert all(len(v) == 1 for v in owners.values())
    assert sum(is_onchip(n) for n in owners) >= instances


def test_two_circuits_on_one_pair_share_a_supply_piece() -> None:
    n, p = stacks(spec("nand2", "complementary", instances=2, regions=2))
    assert n.nets == ("OUT#1", "x1#1", "GND", "x1#2", "OUT#2")
    assert p.nets == ("VDD", "OUT#1", "VDD", "OUT#2", "VDD")


@pytest.mark.parametrize(
    "bad",
    [
        CircuitSpec("xor2", "active", 1, 3, (3,), 1),
        CircuitSpec("nand2", "resistive", 1, 3, (3,), 1),
        CircuitSpec("nand2", "active", 1, 3, (2,), 1),
        CircuitSpec("nand2", "active", 3, 3, (3, 3), 1),
        CircuitSpec("nand2", "complementary", 1, 4, (2, 2, 2), 2),
    ],
)
def test_contradictions_are_refused(bad: CircuitSpec) -> None:
    with pytest.raises(ValueError, match="template|instances|meet"):
        stacks(bad)
