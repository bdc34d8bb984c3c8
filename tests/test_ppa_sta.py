"""Static timing: hand-computed delays, incremental equals full, clocks, loops, an independent tool."""

import math
import re
import shutil
import subprocess

import numpy as np
import pytest
from ppa_netlists import ADDER, PIPELINE, chain, constraints_of, mapped, random_edit

from edagym.envs.ppa.flow.constraints import Clock, Constraints, PortDelay, edge_distance
from edagym.envs.ppa.flow.netlist import Netlist
from edagym.envs.ppa.flow.sta import Timing
from edagym.envs.ppa.flow.timing_graph import look_up
from edagym.errors import FlowError
from edagym.task_assets.ppa import liberty
from edagym.task_assets.ppa.technology import FALL, RISE, SIGNAL_WIRE, load_technology


def times(timing):
    """Everything that the engine keeps, of what exists."""
    netlist = timing.netlist
    nodes = 2 * len(netlist.net_name)
    wires = [timing.wire_delay(pin) if net >= 0 else 0.0 for pin, net in enumerate(netlist.pin_net)]
    return (
        timing._load[:nodes], [values[:nodes] for values in timing._arrival], timing._slew[:nodes], wires,
        [list(values) for values in timing._row_slack],
    )  # fmt: skip


def test_table_points_and_slopes():
    tech = load_technology()
    master = tech["INVx1"]
    arc, base = master.arcs[0], master.load_base[master.arcs[0].target]
    table = tech.pairs[arc.table]
    assert look_up(tech, arc.table, 20.0, 4 * base, base) == pytest.approx(tuple(table[2, 2]))
    middle = look_up(tech, arc.table, 30.0, 6 * base, base)
    assert middle == pytest.approx(tuple(table[2:4, 2:4].mean(axis=(0, 1))))
    # Beyond the ends the outermost slopes go on.
    assert look_up(tech, arc.table, 0.0, base, base)[0] == pytest.approx(2 * table[0, 0, 0] - table[1, 0, 0])
    assert look_up(tech, arc.table, 5.0, 96 * base, base)[0] == pytest.approx(
        table[0, 6, 0] + (table[0, 6, 0] - table[0, 5, 0])
    )


def test_chain_by_hand():
    netlist = chain("INVx1", "INVx2")
    tech = netlist.technology
    length = 8.0
    net = netlist.pin_net[netlist.output_pins(0)[0]]
    netlist.set_wire(net, length)
    timing = Timing(netlist, constraints_of(netlist, 100.0))
    first, second = tech["INVx1"], tech["INVx2"]
    own = second.cap[0]
    wire = SIGNAL_WIRE.capacitance * length
    elmore = SIGNAL_WIRE.resistance * length * (max(own) + wire + max(own)) / 2
    for edge in (RISE, FALL):
        table = next(a.table for a in first.arcs if a.target_edge == edge)
        delay, slew = look_up(tech, table, 0.0, own[edge] + wire, first.load_base[1])
        assert timing.arrival(net, edge) == pytest.approx(20.0 + delay)
        assert timing.slew(net, edge) == pytest.approx(slew)
        table = next(a.table for a in second.arcs if a.source_edge == edge)
        wide = math.hypot(slew, math.log(9) * elmore)
        after, _ = look_up(tech, table, wide, 0.0, second.load_base[1])
        out = netlist.pin_net[netlist.output_pins(1)[0]]
        assert timing.arrival(out, 1 - edge) == pytest.approx(20.0 + delay + elmore + after)
    worst = max(timing.arrival(out, edge) for edge in (RISE, FALL))
    assert timing.worst_slack() == pytest.approx(80.0 - worst)
    assert timing.effective_period() == pytest.approx(20.0 + worst)
    path = timing.path()
    assert [stage.inst for stage in path.stages] == [-1, 0, 1, -1]
    assert path.slack == timing.worst_slack()
    assert sum(stage.wire + stage.delay for stage in path.stages[:-1]) == pytest.approx(worst - 20.0)
    assert len(timing.describe(path)) == 6


@pytest.mark.parametrize(("text", "top", "propagated"), [(PIPELINE, "pipeline", False), (PIPELINE, "pipeline", True),
                                                         (ADDER, "adder", False)])  # fmt: skip
def test_incremental_equals_full_to_the_last_bit(text, top, propagated):
    netlist = mapped(text, top)
    rng = np.random.default_rng(4)
    for net in list(netlist.nets()):
        netlist.set_wire(net, float(rng.uniform(0, 6)))
    timing = Timing(netlist, constraints_of(netlist), propagated=propagated)
    for step in range(60):
        mark, before = timing.mark(), times(timing)
        for _ in range(int(rng.integers(1, 4))):
            random_edit(netlist, rng)
        timing.update()
        full = Timing(netlist, timing.constraints, propagated=propagated)
        assert times(timing) == times(full)
        assert timing.net_slacks().tolist() == full.net_slacks().tolist()
        full.close()
        if rng.random() < 0.4:
            timing.undo(mark)
            assert times(timing) == before, step


def test_undo_after_everything_was_computed_anew():
    netlist = mapped(ADDER, "adder")
    timing = Timing(netlist, constraints_of(netlist))
    before, mark = times(timing), timing.mark()
    random_edit(netlist, np.random.default_rng(1))
    timing.refresh()
    timing.undo(mark)
    assert times(timing) == before


def test_slack_of_the_worst_net_is_the_worst_slack():
    netlist = mapped(PIPELINE, "pipeline")
    timing = Timing(netlist, constraints_of(netlist))
    slacks = timing.net_slacks()
    assert slacks.min() == pytest.approx(timing.worst_slack())
    on_path = [netlist.pin_net[stage.pin_out] for stage in timing.path().stages[:-1]]
    assert slacks[on_path][1:] == pytest.approx(timing.worst_slack())
    assert timing.inst_slacks().min() == pytest.approx(timing.worst_slack())
    assert timing.endpoint_slacks().min() == timing.worst_slack()
    negative = [s for s in timing.endpoint_slacks().tolist() if s < 0]
    assert timing.total_negative_slack() == sum(negative)


def test_what_if_equals_doing_it():
    netlist = mapped(PIPELINE, "pipeline")
    timing = Timing(netlist, constraints_of(netlist))
    inst = next(s.inst for s in timing.path().stages if s.inst >= 0 and len(netlist.master(s.inst).sizes) > 1
                and not netlist.master(s.inst).register)  # fmt: skip
    bigger = netlist.master(inst).sizes[-1]
    guess = timing.evaluate(inst, bigger)
    # Doing it loads the drivers more; only with that kept out are the two equal.
    same = timing.evaluate(inst)
    for node, (arrival, slew) in same.items():
        assert arrival == pytest.approx(timing.arrival(node >> 1, node & 1))
        assert slew == pytest.approx(timing.slew(node >> 1, node & 1))
        assert guess[node][0] < arrival


def test_setup_period_and_port_delays():
    netlist = mapped(PIPELINE, "pipeline")
    loose, tight = (Timing(netlist, constraints_of(netlist, period)) for period in (400.0, 150.0))
    assert loose.worst_slack() > tight.worst_slack()
    # Register to register, the period does not enter the arrival; through ports it does, by the delays outside.
    closed = Timing(netlist, constraints_of(netlist, 150.0, 0.0))
    assert closed.effective_period() <= tight.effective_period() <= loose.effective_period()


def test_clock_latency_moves_both_ends():
    netlist = mapped(PIPELINE, "pipeline")
    constraints = constraints_of(netlist)
    ideal = Timing(netlist, constraints)
    clocks = [p for n in netlist.nets() for p in netlist.net_sinks[n] if netlist.pin_name(p).endswith("/CLK")]
    shifted = Timing(netlist, constraints, latency=dict.fromkeys(clocks, 30.0))
    registers = [i for i, pin in enumerate(ideal.endpoints) if netlist.pin_inst[pin] >= 0]
    ports = [i for i, pin in enumerate(ideal.endpoints) if netlist.pin_inst[pin] < 0]
    # From inputs, the capturing edge comes later; to outputs, the launching one.
    assert (shifted.endpoint_slacks()[registers] >= ideal.endpoint_slacks()[registers] - 1e-9).all()
    assert (shifted.endpoint_slacks()[ports] <= ideal.endpoint_slacks()[ports] + 1e-9).all()
    assert (shifted.hold_slacks()[registers] <= ideal.hold_slacks()[registers] + 1e-9).all()


def test_propagated_clock_goes_through_buffers():
    netlist = mapped(PIPELINE, "pipeline")
    net = netlist.pin_net[netlist.port_pin[netlist.port_name.index("clk")]]
    bare = Timing(netlist, constraints_of(netlist), propagated=True)
    late = [bare.path().stages[1].arrival]
    buffer = netlist.insert_buffer(net, list(netlist.net_sinks[net]), netlist.technology["BUFx4"].index)
    timing = Timing(netlist, constraints_of(netlist), propagated=True)
    out = netlist.pin_net[netlist.output_pins(buffer)[0]]
    assert timing.arrival(out, RISE) > 5
    register = next(i for i in netlist.instances() if netlist.master(i).register)
    data = netlist.pin_net[netlist.output_pins(register)[0]]
    assert timing.arrival(data, RISE) > timing.arrival(out, RISE) + 10
    assert late


def test_distance_of_clock_edges():
    a, b = Clock("a", 100.0), Clock("b", 150.0)
    assert edge_distance(a, RISE, a, RISE) == 100
    assert edge_distance(a, RISE, a, FALL) == 50
    assert edge_distance(a, FALL, a, RISE) == 50
    assert edge_distance(a, RISE, b, RISE) == 50
    assert edge_distance(b, RISE, a, RISE) == 50
    assert edge_distance(Clock("c", 100.0, rise=30.0), RISE, a, RISE) == 70


def test_two_clocks_and_exclusion():
    text = """module two (input c1, c2, input d, output reg q);
      reg r; always @(posedge c1) r <= ~d; always @(posedge c2) q <= ~r; endmodule"""
    netlist = mapped(text, "two")
    clocks = (Clock("one", 300.0, "c1"), Clock("two", 200.0, "c2"))
    inputs = (PortDelay("d", "one", 60.0),)
    crossing = Timing(netlist, Constraints(clocks, inputs))
    apart = Timing(netlist, Constraints(clocks, inputs, exclusive=frozenset({("two", "one")})))
    assert crossing.worst_slack("two") < 100
    assert apart.worst_slack("two") == math.inf
    assert crossing.effective_period() == pytest.approx(
        max(300 - crossing.worst_slack("one"), 200 - crossing.worst_slack("two"))
    )
    path = crossing.path(next(p for p in crossing.endpoints if crossing.endpoint_slacks()[crossing.endpoints.index(p)]
                              == crossing.worst_slack("two")))  # fmt: skip
    assert path.slack == crossing.worst_slack("two")
    plain = Timing(netlist, Constraints((Clock("one", 300.0, "c1"), Clock("two", 300.0, "c2")), inputs))
    assert plain.worst_slack("two") > crossing.worst_slack("two")


def test_falling_edge_registers_have_half_a_period():
    def design(edge):
        return f"""module m (input clk, d, output reg q); reg r;
          always @(posedge clk) r <= d; always @({edge} clk) q <= ~r; endmodule"""

    slack = {}
    for edge in ("posedge", "negedge"):
        netlist = mapped(design(edge), "m")
        timing = Timing(netlist, Constraints((Clock("c", 400.0, "clk"),)))
        slack[edge] = timing.worst_slack()
    assert slack["posedge"] - slack["negedge"] == pytest.approx(200, abs=15)


def test_loops_are_flow_errors():
    netlist = chain("INVx1", "INVx1", "INVx1")
    netlist.move_pin(netlist.inst_pin[0], netlist.pin_net[netlist.output_pins(2)[0]])
    with pytest.raises(FlowError) as caught:
        Timing(netlist, constraints_of(netlist))
    assert caught.value.field == "timing"
    text = "module m (input a, output y); wire x; assign x = ~(a & y); assign y = ~(a & x); endmodule"
    looped = mapped(text, "m")
    with pytest.raises(FlowError) as caught:
        Timing(looped, constraints_of(looped))
    assert caught.value.field == "timing"


def test_wrong_constraints_are_flow_errors():
    netlist = chain("INVx1")
    clock = Clock("c", 100.0)
    for wrong in (
        Constraints((clock,), (PortDelay("missing", "c", 1.0),)),
        Constraints((Clock("c", 100.0, "missing"),)),
    ):
        with pytest.raises(FlowError):
            Timing(netlist, wrong)
    with pytest.raises(FlowError):
        Constraints((clock,), (PortDelay("a", "other", 1.0),))
    with pytest.raises(FlowError):
        Constraints(())
    with pytest.raises(FlowError):
        Constraints((Clock("c", -1.0),))
    with pytest.raises(FlowError):
        Timing(netlist, Constraints((clock,))).effective_period()


def test_unconstrained_and_constant_logic_has_no_timing():
    netlist = chain("INVx1", "INVx1")
    timing = Timing(netlist, Constraints((Clock("c", 100.0),), (), (PortDelay("y", "c", 10.0),)))
    assert timing.worst_slack() == math.inf
    assert timing.arrival(netlist.pin_net[netlist.output_pins(1)[0]], RISE) == -math.inf


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("sta") is None, reason="no OpenSTA on PATH (Debian package opensta)")
@pytest.mark.parametrize(
    ("text", "top", "vt"),
    [(PIPELINE, "pipeline", "RVT"), (PIPELINE, "pipeline", "SLVT"), (ADDER, "adder", "LVT")],
)
def test_against_opensta(text, top, vt, tmp_path):
    """Worst setup path, total negative slack and worst hold slack of an independent timer, without wires."""
    netlist = mapped(text, top, vt=vt)
    period = 150.0
    timing = Timing(netlist, constraints_of(netlist, period), propagated=True)
    log = opensta(netlist, vt, period, tmp_path)
    slacks = [float(value) for value in re.findall(r"(-?[\d.]+)\s+slack", log)]
    arrivals = [float(value) for value in re.findall(r"^\s+([\d.]+)\s+data arrival time", log, re.MULTILINE)]
    path = timing.path()
    assert path.arrival == pytest.approx(arrivals[0], rel=0.005)
    assert path.arrival == pytest.approx(arrivals[0], abs=0.01)
    assert timing.worst_slack() == pytest.approx(slacks[0], abs=0.01)
    assert timing.total_negative_slack() == pytest.approx(float(re.search(r"tns (-?[\d.]+)", log)[1]), abs=0.02)
    assert timing.hold_slacks().min() == pytest.approx(slacks[1], abs=0.01)


def opensta(netlist, vt, period, folder, more=""):
    """Run OpenSTA on a netlist; return what it prints."""
    (folder / "cells.lib").write_text(with_voltage(liberty.write(netlist.technology, vt, power=True)))
    (folder / "netlist.v").write_text(netlist.to_verilog())
    inputs = [n for n, i in zip(netlist.port_name, netlist.port_input, strict=True) if i and n != "clk"]
    outputs = [n for n, i in zip(netlist.port_name, netlist.port_input, strict=True) if not i]
    clock = "[get_ports clk]" if "clk" in netlist.port_name else ""
    lines = [
        "read_liberty cells.lib", "read_verilog netlist.v", f"link_design {netlist.name}",
        f"create_clock -name c -period {period} {clock}", "set_propagated_clock [get_clocks c]" if clock else "",
        f"set_input_delay {0.2 * period} -clock c [get_ports {{{' '.join(inputs)}}}]",
        f"set_output_delay {0.2 * period} -clock c [get_ports {{{' '.join(outputs)}}}]",
        more, "report_checks -path_delay max -format full_clock_expanded -digits 4", "report_tns",
        "report_checks -path_delay min -digits 4", "exit",
    ]  # fmt: skip
    (folder / "run.tcl").write_text("\n".join(lines))
    done = subprocess.run(["sta", "-exit", "run.tcl"], cwd=folder, capture_output=True, text=True, timeout=300)
    return done.stdout + done.stderr


def with_voltage(text):
    """Add the operating condition that this OpenSTA takes the voltage from."""
    condition = (
        "operating_conditions (c) { process : 1; temperature : 0; voltage : 0.77; }\ndefault_operating_conditions : c;"
    )
    return text.replace("{\n", "{\n" + condition + "\n", 1)


def test_spef_covers_every_wire():
    netlist: Netlist = mapped(ADDER, "adder")
    for net in list(netlist.nets()):
        netlist.set_wire(net, 3.0)
    text = netlist.to_spef()
    driven = [net for net in netlist.nets() if netlist.net_driver[net] >= 0]
    assert text.count("*D_NET") == len(driven)
    assert text.count("*END") == len(driven)
