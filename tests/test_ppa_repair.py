"""Timing repair and buffering: function kept, estimates that lead the right way, moves undone to the last bit."""

import random

import numpy as np
import pytest
from ppa_runs import design

from edagym.envs.ppa.flow import buffering, cts
from edagym.envs.ppa.flow.constraints import simple
from edagym.envs.ppa.flow.floorplan import make_floorplan
from edagym.envs.ppa.flow.local import LocalTimer
from edagym.envs.ppa.flow.place import place
from edagym.envs.ppa.flow.repair import Repair, RepairOptions
from edagym.envs.ppa.flow.sta import Timing
from edagym.envs.ppa.flow.synth import SynthOptions, synthesise
from edagym.envs.ppa.flow.wires import Places


def placed(name="gcd", period=240.0, vt="RVT", **knobs):
    """Return netlist, places and timing of a design after the clock tree."""
    files = design(name, period)
    netlist = synthesise(files.sources, SynthOptions(name, vt, **knobs)).netlist()
    clock = "clk" if "clk" in netlist.port_name else "CLK"
    buffering.one_tie_per_load(netlist)
    buffering.remove_buffers(netlist)
    buffering.buffer_ports(netlist, vt, (clock,))
    for net in cts.clock_nets(netlist):
        netlist.set_clock(net)
    places = Places(netlist, make_floorplan(netlist.area(), 35))
    insts = list(netlist.instances())
    centres = place(places.hypergraph(insts), places.plan, 0.6).tolist()
    for inst, (x, y) in zip(insts, centres, strict=False):
        places.put(inst, x, y)
    for port, (x, y) in enumerate(centres[len(insts) :]):
        places.port_x[port], places.port_y[port] = x, y
    cts.build_tree(netlist, places, vt)
    places.route(netlist.nets())
    ports = tuple(zip(netlist.port_name, netlist.port_input, strict=True))
    return netlist, places, Timing(netlist, simple(period, ports, clock), propagated=True)


def next_state(netlist, seed):
    """Return what outputs and registers take over from random inputs and states, 256 cases at once, by name."""
    rng = random.Random(seed)
    width, full = 256, (1 << 256) - 1
    values = {}
    for port in sorted(range(len(netlist.port_name)), key=netlist.port_name.__getitem__):
        if netlist.port_input[port]:
            values[netlist.pin_net[netlist.port_pin[port]]] = rng.getrandbits(width)
    registers = [i for i in netlist.instances() if netlist.master(i).register]
    for inst in sorted(registers, key=netlist.inst_name.__getitem__):
        for pin in netlist.output_pins(inst):
            values[netlist.pin_net[pin]] = rng.getrandbits(width)

    def value(net):
        if net not in values:
            driver = netlist.net_driver[net]
            inst = netlist.pin_inst[driver]
            master = netlist.master(inst)
            inputs = [value(netlist.pin_net[pin]) for pin in netlist.input_pins(inst)]
            function = master.functions[driver - netlist.inst_pin[inst] - master.n_inputs]
            result = 0
            for m in range(1 << master.n_inputs):
                if function >> m & 1:
                    term = full
                    for i, bits in enumerate(inputs):
                        term &= bits if m >> i & 1 else full & ~bits
                    result |= term
            values[net] = result
        return values[net]

    found = {
        name: value(netlist.pin_net[netlist.port_pin[port]])
        for port, name in enumerate(netlist.port_name)
        if not netlist.port_input[port]
    }
    for inst in registers:
        master = netlist.master(inst)
        for pin in netlist.input_pins(inst):
            if pin - netlist.inst_pin[inst] != master.register.clock:
                found[netlist.pin_name(pin)] = value(netlist.pin_net[pin])
    return found


@pytest.mark.parametrize(("name", "period"), [("gcd", 220.0), ("adder_pipe_64bit", 180.0)])
def test_repair_gains_and_keeps_the_function(name, period):
    netlist, places, timing = placed(name, period)
    before, state = timing.worst_slack(), next_state(netlist, 1)
    repair = Repair(netlist, places, timing, RepairOptions())
    repair.setup()
    repair.hold()
    assert timing.worst_slack() > before + 20
    assert next_state(netlist, 1) == state
    assert {"buffer", "size", "swap"} <= set(repair.counts)
    fresh = Timing(netlist, timing.constraints, propagated=True)
    np.testing.assert_array_equal(fresh.endpoint_slacks(), timing.endpoint_slacks())


def test_thresholds_and_power_recovery_keep_the_function():
    netlist, places, timing = placed(period=330.0, vt="SLVT")
    state, leakage = next_state(netlist, 2), sum(netlist.master(i).leakage for i in netlist.instances())
    worst = min(timing.worst_slack(), 0.0)
    repair = Repair(netlist, places, timing, RepairOptions(vts=("SLVT", "RVT"), recover_power=100.0))
    repair.recover_power()
    assert repair.counts["recover"] > 50
    assert next_state(netlist, 2) == state
    assert min(timing.worst_slack(), 0.0) >= worst - 1e-9
    assert sum(netlist.master(i).leakage for i in netlist.instances()) < leakage


def test_estimates_point_the_right_way():
    """Moves that the estimate likes on the worst path make its endpoint better when the engine judges them."""
    netlist, places, timing = placed()
    repair = Repair(netlist, places, timing, RepairOptions())
    endpoint = timing.worst_endpoint()
    before = timing.worst_slack()
    local = LocalTimer(netlist, places, timing)
    path = local.path(endpoint)
    assert len(path) > 5
    estimates, truths = [], []
    for inst in path:
        for move in repair._candidates(local, inst, local.now(inst)):
            if not 1.0 < abs(move.gain) < 200:
                continue
            mark = timing.mark()
            repair._apply(move)
            timing.update()
            slacks = dict(zip(timing.endpoints, timing.endpoint_slacks().tolist(), strict=True))
            estimates.append(move.gain)
            truths.append(slacks[endpoint] - before)
            timing.undo(mark)
    assert timing.worst_slack() == before
    liked = np.array(truths)[np.array(estimates) > 1.0]
    assert len(liked) > 10
    assert (liked > 0).mean() > 0.85
    assert np.corrcoef(estimates, truths)[0, 1] > 0.5


def test_a_failed_batch_leaves_nothing_behind():
    netlist, places, timing = placed()
    repair = Repair(netlist, places, timing, RepairOptions())
    moves = repair._moves(repair._targets())
    worse = [m for m in moves if m.kind == "buffer"][:1]
    image = netlist.to_verilog(), timing.endpoint_slacks().tolist()
    mark = timing.mark()
    for move in worse:
        repair._apply(move)
    timing.update()
    assert netlist.to_verilog() != image[0]
    timing.undo(mark)
    assert (netlist.to_verilog(), timing.endpoint_slacks().tolist()) == image


def test_hold_repair_delays_early_inputs():
    netlist, places, timing = placed("adder_pipe_64bit", 200.0)
    assert timing.hold_slacks().min() < -10
    made = Repair(netlist, places, timing, RepairOptions()).hold()
    assert made > 20
    slacks = dict(zip(timing.endpoints, timing.endpoint_slacks().tolist(), strict=True))
    early = [pin for pin, hold in zip(timing.endpoints, timing.hold_slacks().tolist(), strict=True) if hold < 0]
    # What is left early has no setup slack to give.
    assert all(slacks[pin] < 18 for pin in early)


def test_nothing_happens_where_nothing_is_missing():
    netlist, places, timing = placed(period=900.0)
    image = netlist.to_verilog()
    repair = Repair(netlist, places, timing, RepairOptions())
    repair.setup()
    assert netlist.to_verilog() == image
    assert repair.counts == {}


def test_share_of_endpoints():
    netlist, places, timing = placed()
    every = Repair(netlist, places, timing, RepairOptions())._targets()
    third = Repair(netlist, places, timing, RepairOptions(tns_percent=33))._targets()
    none = Repair(netlist, places, timing, RepairOptions(tns_percent=0))._targets()
    assert every[: len(third)] == third
    assert len(third) == -(-len(every) * 33 // 100)
    assert none == [timing.worst_endpoint()]


def test_buffers_before_placement_keep_the_function():
    netlist = synthesise(design("gcd", 300).sources, SynthOptions("gcd", abc_area=True)).netlist()
    state = next_state(netlist, 3)
    assert buffering.remove_buffers(netlist) > 0
    assert not [i for i in netlist.instances() if netlist.master(i).kind == "buf"]
    assert next_state(netlist, 3) == state
    made = buffering.buffer_ports(netlist, "RVT", ("clk",))
    assert len(made) == len(netlist.port_name) - 1
    assert next_state(netlist, 3) == state


def test_every_constant_pin_has_a_cell_of_its_own():
    netlist = synthesise(design("adder_pipe_64bit", 300).sources, SynthOptions("adder_pipe_64bit")).netlist()
    state = next_state(netlist, 4)
    assert buffering.one_tie_per_load(netlist) > 100
    assert next_state(netlist, 4) == state
    assert all(len(netlist.fanout(i)) <= 1 for i in netlist.instances() if netlist.master(i).kind == "tie")


@pytest.mark.parametrize("limit", [4, 10])
def test_fan_out_limit(limit):
    netlist, places, _ = placed()
    state = next_state(netlist, 5)
    made = buffering.limit_fanout(netlist, places, limit, "RVT")
    assert made
    assert next_state(netlist, 5) == state
    assert max(len(netlist.net_sinks[n]) for n in netlist.nets() if not netlist.net_clock[n]) <= limit


def test_load_limit():
    netlist, places, _ = placed("adder_pipe_64bit")
    wide = max(len(netlist.net_sinks[n]) for n in netlist.nets() if not netlist.net_clock[n])
    assert wide > 100
    state = next_state(netlist, 6)
    assert buffering.limit_load(netlist, places, "RVT")
    assert next_state(netlist, 6) == state
    places.route(netlist.nets())
    for net in netlist.nets():
        driver = netlist.net_driver[net]
        inst = netlist.pin_inst[driver] if driver >= 0 else -1
        if inst >= 0 and not netlist.net_clock[net] and netlist.master(inst).kind != "tie":
            assert buffering._load(netlist, net) <= netlist.master(inst).max_load(driver - netlist.inst_pin[inst])
