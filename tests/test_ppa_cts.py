"""Clock trees: every flip-flop once, limits of fan-out, sizes of the tree by the clock's load."""

import numpy as np
import pytest

from edagym.envs.ppa.flow import cts
from edagym.envs.ppa.flow.floorplan import make_floorplan
from edagym.envs.ppa.flow.netlist import Netlist
from edagym.envs.ppa.flow.wires import Places
from edagym.task_assets.ppa.technology import load_technology


def registers(count, seed=0):
    """A shift register of `count` flip-flops at random places."""
    technology = load_technology()
    netlist = Netlist("shift", technology)
    clock, data = netlist.add_net("clk"), netlist.add_net("d")
    netlist.add_port("clk", clock, is_input=True)
    netlist.add_port("d", data, is_input=True)
    for i in range(count):
        flop = netlist.add_instance(f"ff{i}", technology["DFFHQNx1"].index)
        out = netlist.add_net(f"q{i}")
        for name, net in (("CLK", clock), ("D", data), ("QN", out)):
            netlist.move_pin(netlist.pin(flop, name), net)
        data = out
    netlist.add_port("q", data, is_input=False)
    places = Places(netlist, make_floorplan(netlist.area(), 40))
    rng = np.random.default_rng(seed)
    x1, y1, x2, y2 = places.plan.core
    for inst in netlist.instances():
        places.put(inst, float(rng.uniform(x1, x2)), float(rng.uniform(y1, y2)))
    return netlist, places


def leaves_and_depths(netlist):
    """Return sinks per clock buffer and the depth of every flip-flop."""
    counts, depths = {}, []
    work = [(netlist.pin_net[netlist.port_pin[0]], 0)]
    while work:
        net, depth = work.pop()
        for pin in netlist.net_sinks[net]:
            inst = netlist.pin_inst[pin]
            if netlist.master(inst).register:
                depths.append(depth)
                driver = netlist.pin_inst[netlist.net_driver[net]]
                counts[driver] = counts.get(driver, 0) + 1
            else:
                work.append((netlist.pin_net[netlist.output_pins(inst)[0]], depth + 1))
    return counts, depths


@pytest.mark.parametrize(("count", "buffers"), [(6, 1), (35, 5), (70, 9), (191, 17), (360, 26)])
def test_all_flip_flops_hang_on_a_balanced_tree(count, buffers):
    netlist, places = registers(count)
    made = cts.build_tree(netlist, places, "RVT")
    counts, depths = leaves_and_depths(netlist)
    assert len(depths) == count
    assert len(set(depths)) == 1
    assert max(counts.values()) <= 16
    assert len(made) == buffers
    assert all(netlist.net_clock[netlist.pin_net[netlist.output_pins(inst)[0]]] for inst in made)


@pytest.mark.parametrize("size", [1, 4, 9])
def test_cluster_size_limits_the_leaves(size):
    netlist, places = registers(35)
    made = cts.build_tree(netlist, places, "RVT", size)
    counts, depths = leaves_and_depths(netlist)
    assert len(depths) == 35
    assert max(counts.values()) <= size
    base, base_places = registers(35)
    assert len(made) >= len(cts.build_tree(base, base_places, "RVT"))


def test_more_load_gets_stronger_buffers():
    small, large = registers(6), registers(360)
    drives = []
    for netlist, places in (small, large):
        made = cts.build_tree(netlist, places, "SLVT")
        assert all(netlist.master(inst).vt == "SLVT" for inst in made)
        drives.append(max(netlist.master(inst).drive for inst in made))
    assert drives[0] < drives[1]


def test_a_design_without_clock_has_no_tree():
    netlist, places = registers(4)
    for inst in list(netlist.instances()):
        netlist.remove_instance(inst)
    assert cts.build_tree(netlist, places, "RVT") == []


@pytest.mark.parametrize("even", [False, True])
def test_split_keeps_every_point_once(even):
    points = [(float(i * 7 % 31), float(i * 3 % 17)) for i in range(101)]
    parts = cts.split(points, 8, even=even)
    assert sorted(k for part in parts for k in part) == list(range(101))
    assert max(map(len, parts)) <= 8
    if even:
        assert len(parts) == 13
