"""Netlist: edits, journal, invariants, files."""

import numpy as np
import pytest
from ppa_netlists import ADDER, PIPELINE, chain, mapped, random_edit

from edagym.envs.ppa.flow.netlist import Netlist
from edagym.errors import FlowError, ToolError
from edagym.task_assets.ppa.technology import load_technology

FIELDS = (
    "inst_name", "inst_master", "inst_pin", "pin_net", "pin_inst", "pin_path", "net_name", "net_driver", "net_sinks",
    "net_length", "net_clock",
)  # fmt: skip


def state(netlist):
    made = netlist.copy()
    return {name: getattr(made, name) for name in FIELDS}


def check(netlist):
    """Drivers, sinks and pins tell the same story."""
    for net in range(len(netlist.net_name)):
        for pin in netlist.net_sinks[net]:
            assert netlist.pin_net[pin] == net
            assert not netlist._drives(pin)
        assert len(set(netlist.net_sinks[net])) == len(netlist.net_sinks[net])
        driver = netlist.net_driver[net]
        if driver >= 0:
            assert netlist.pin_net[driver] == net
            assert netlist._drives(driver)
    for inst in netlist.instances():
        for pin in netlist.pins(inst):
            net = netlist.pin_net[pin]
            assert netlist.pin_inst[pin] == inst
            if net >= 0:
                assert pin == netlist.net_driver[net] or pin in netlist.net_sinks[net]
    live = [netlist.inst_name[inst] for inst in netlist.instances()]
    assert len(set(live)) == len(live)


@pytest.mark.parametrize("seed", range(3))
def test_random_edits_keep_the_invariants_and_undo_exactly(seed):
    netlist = mapped(PIPELINE, "pipeline")
    rng = np.random.default_rng(seed)
    changes = netlist.subscribe()
    marks = []
    for _ in range(120):
        marks.append((netlist.mark(), state(netlist)))
        random_edit(netlist, rng)
        if rng.random() < 0.15:
            mark, before = marks[int(rng.integers(len(marks)))]
            del marks[marks.index((mark, before)) :]
            netlist.undo(mark)
            assert state(netlist) == before
        check(netlist)
    nets, insts = changes.take()
    assert nets
    assert insts == sorted(insts)
    assert changes.take() == ([], [])
    netlist.undo(0)
    assert state(netlist) == state(mapped(PIPELINE, "pipeline"))


def test_same_edits_give_same_names_also_after_undo():
    netlist = chain("INVx1", "INVx1")
    buffer = netlist.technology["BUFx2"].index
    net = netlist.pin_net[netlist.output_pins(0)[0]]
    mark = netlist.mark()
    first = netlist.inst_name[netlist.insert_buffer(net, netlist.net_sinks[net], buffer)]
    netlist.undo(mark)
    assert netlist.inst_name[netlist.insert_buffer(net, netlist.net_sinks[net], buffer)] == first


def test_buffers_and_clones_take_the_named_sinks():
    netlist = mapped(ADDER, "adder")
    net = max(netlist.nets(), key=lambda n: len(netlist.net_sinks[n]))
    sinks = list(netlist.net_sinks[net])
    buffer = netlist.insert_buffer(net, sinks[1:], netlist.technology["BUFx2"].index)
    assert netlist.net_sinks[net] == [sinks[0], netlist.inst_pin[buffer]]
    assert netlist.fanout(buffer) == sinks[1:]
    netlist.remove_buffer(buffer)
    assert netlist.net_sinks[net] == sinks
    assert netlist.inst_master[buffer] == -1
    with pytest.raises(ValueError, match="not on the net"):
        netlist.insert_buffer(net, [netlist.inst_pin[0] + 99], netlist.technology["BUFx2"].index)


def test_illegal_swaps_and_second_drivers_are_refused():
    netlist = chain("INVx1", "BUFx2")
    with pytest.raises(ValueError, match="cannot replace"):
        netlist.swap_master(0, netlist.technology["BUFx2"].index)
    with pytest.raises(ValueError, match="two drivers"):
        netlist.move_pin(netlist.output_pins(0)[0], netlist.pin_net[netlist.output_pins(1)[0]])


def test_area_counts_and_removed_instances():
    netlist = chain("INVx1", "BUFx2", "INVx1")
    tech = netlist.technology
    assert netlist.counts() == {"BUFx2_ASAP7_75t_R": 1, "INVx1_ASAP7_75t_R": 2}
    assert netlist.area() == pytest.approx(2 * tech["INVx1"].area + tech["BUFx2"].area)
    netlist.remove_buffer(1)
    assert netlist.counts() == {"INVx1_ASAP7_75t_R": 2}
    assert list(netlist.instances()) == [0, 2]


def test_copies_are_independent():
    netlist = mapped(ADDER, "adder")
    other = netlist.copy()
    before = state(netlist)
    other.remove_instance(next(other.instances()))
    assert state(netlist) == before


def test_verilog_has_buses_escapes_and_assigns():
    text = """module odd (input [1:0] \\a.b , input c, output [1:0] y, output z, w);
      assign y = {c, \\a.b [0]}; assign z = \\a.b [1] & c; assign w = z; endmodule"""
    verilog = mapped(text, "odd").to_verilog()
    assert "input [1:0] \\a.b ;" in verilog
    assert "output [1:0] y;" in verilog
    assert verilog == mapped(text, "odd").to_verilog()
    again = mapped(text, "odd")
    assert again.port_name == ["a.b[0]", "a.b[1]", "c", "y[0]", "y[1]", "z", "w"]


def test_unmapped_and_ambiguous_designs_are_refused():
    tech = load_technology()
    port = {"direction": "output", "bits": [2]}
    cell = {"hide_name": 0, "type": "INVx1_ASAP7_75t_R", "connections": {"Y": [2]}}
    module = {"ports": {"y": port}, "cells": {"u": cell, "v": dict(cell)}, "netnames": {}}
    with pytest.raises(FlowError):
        Netlist.from_yosys({"modules": {"m": module}}, tech, "m")
    with pytest.raises(ToolError):
        Netlist.from_yosys({"modules": {"m": {**module, "cells": {"u": {**cell, "type": "$and"}}}}}, tech, "m")
    with pytest.raises(ToolError):
        Netlist.from_yosys({"modules": {}}, tech, "m")


def test_constants_get_tie_cells():
    module = {
        "ports": {"y": {"direction": "output", "bits": ["1"]}},
        "cells": {},
        "netnames": {},
    }
    netlist = Netlist.from_yosys({"modules": {"m": module}}, load_technology(), "m")
    assert netlist.counts() == {"TIEHIx1_ASAP7_75t_R": 1}
