"""Power: activity by hand and by simulation, energy terms, an independent tool."""

import re
import shutil

import numpy as np
import pytest
from ppa_netlists import ADDER, PIPELINE, chain, constraints_of, mapped
from test_ppa_sta import opensta

from edagym.envs.ppa.flow.constraints import Clock, Constraints
from edagym.envs.ppa.flow.power import INPUT_ACTIVITY, Activity, activity, power
from edagym.envs.ppa.flow.sta import Timing


def timing_of(netlist, period=200.0, **options):
    return Timing(netlist, constraints_of(netlist, period), **options)


def by_port(netlist, values, name):
    return values[netlist.pin_net[netlist.port_pin[netlist.port_name.index(name)]]]


@pytest.mark.parametrize(
    ("expression", "probability", "factor"),
    [
        ("a & b", 0.25, 1.0),
        ("a | b", 0.75, 1.0),
        ("a ^ b", 0.5, 2.0),
        ("~a & ~b & ~c", 0.125, 0.75),
        ("a & (b | c)", 0.375, 1.25),
    ],
)
def test_boolean_difference_of_gates(expression, probability, factor):
    """Density of an output over that of an input, worked out by hand."""
    netlist = mapped(f"module m (input a, b, c, output y); assign y = {expression}; endmodule", "m")
    # Mapped to one gate or a few without reconvergence, so that inputs are independent.
    found = activity(timing_of(netlist))
    assert by_port(netlist, found.probability, "y") == pytest.approx(probability)
    assert by_port(netlist, found.density, "y") == pytest.approx(factor * INPUT_ACTIVITY / 200.0)


def test_clock_makes_two_transitions_a_period_and_registers_at_most_their_samples():
    netlist = mapped(PIPELINE, "pipeline")
    found = activity(timing_of(netlist, 200.0))
    assert by_port(netlist, found.density, "clk") == pytest.approx(2 / 200.0)
    for inst in netlist.instances():
        if netlist.master(inst).register:
            net = netlist.pin_net[netlist.output_pins(inst)[0]]
            p = found.probability[net]
            assert found.density[net] * 200.0 <= 2 * p * (1 - p) + 1e-9


def test_slews_bound_the_density():
    """An XOR tree adds up densities; fast inputs end at what the slews allow."""
    xors = " ^ ".join(f"a[{i}]" for i in range(32))
    netlist = mapped(f"module m (input [31:0] a, output y); assign y = {xors}; endmodule", "m")
    slow = activity(timing_of(netlist, 1000.0))
    assert by_port(netlist, slow.density, "y") == pytest.approx(32 * INPUT_ACTIVITY / 1000.0)
    fast = timing_of(netlist, 10.0)
    net = netlist.pin_net[netlist.port_pin[netlist.port_name.index("y")]]
    bound = 1 / min(fast.slew(net, 0), fast.slew(net, 1))
    assert activity(fast).density[net] == pytest.approx(bound)
    assert bound < 32 * INPUT_ACTIVITY / 10.0


def test_density_matches_simulated_random_transitions():
    """Single input changes at random times: mean output transitions of a gate are the Boolean differences' sum."""
    netlist = mapped("module m (input a, b, c, d, output y); assign y = ~((a & b) | (c & d)); endmodule", "m")
    found = activity(timing_of(netlist))
    rng = np.random.default_rng(0)
    value = rng.integers(0, 2, size=(20000, 4))
    which = rng.integers(0, 4, size=20000)
    after = value.copy()
    after[np.arange(20000), which] ^= 1

    def output(v):
        return 1 - ((v[:, 0] & v[:, 1]) | (v[:, 2] & v[:, 3]))

    share = np.mean(output(value) != output(after))
    expected = share * 4 * INPUT_ACTIVITY / 200.0
    assert by_port(netlist, found.density, "y") == pytest.approx(expected, rel=0.05)


def test_terms_by_hand():
    netlist = chain("INVx1", "INVx2")
    tech = netlist.technology
    timing = timing_of(netlist, 100.0)
    report = power(timing)
    density = INPUT_ACTIVITY / 100.0
    load = max(tech["INVx2"].cap[0])
    assert report.switching == pytest.approx(0.5 * load * 0.77**2 * density * 1e-3)
    assert report.leakage == pytest.approx((tech["INVx1"].leakage + tech["INVx2"].leakage) * 1e-12)
    first = tech["INVx1"]
    (arc,) = [a for a in first.power if a.related >= 0]
    assert report.total == pytest.approx(report.internal + report.switching + report.leakage)
    assert report.per_instance.sum() == pytest.approx(report.total)
    given = Activity(np.zeros(3), np.full(3, 0.5), 1)
    assert power(timing, given).total == pytest.approx(report.leakage)
    assert arc.rise >= 0


def test_dynamic_power_goes_with_the_clock_leakage_does_not():
    netlist = mapped(PIPELINE, "pipeline")
    # Slow enough that no slew bounds a density.
    slow, fast = power(timing_of(netlist, 2000.0)), power(timing_of(netlist, 1000.0))
    assert fast.switching == pytest.approx(2 * slow.switching, rel=1e-6)
    assert fast.internal == pytest.approx(2 * slow.internal, rel=1e-6)
    assert fast.leakage == slow.leakage


def test_low_thresholds_take_more_power():
    totals = [power(timing_of(mapped(PIPELINE, "pipeline", vt=vt))) for vt in ("RVT", "SLVT")]
    assert totals[1].leakage > 5 * totals[0].leakage


def test_wires_and_clock_groups():
    netlist = mapped(PIPELINE, "pipeline")
    before = power(timing_of(netlist, propagated=True))
    for net in list(netlist.nets()):
        netlist.set_wire(net, 10.0)
    clock = netlist.pin_net[netlist.port_pin[netlist.port_name.index("clk")]]
    netlist.set_clock(clock)
    netlist.insert_buffer(clock, list(netlist.net_sinks[clock]), netlist.technology["BUFx8"].index)
    after = power(timing_of(netlist, propagated=True))
    assert after.switching > before.switching
    assert sum(before.groups["clock"]) == 0
    assert sum(after.groups["clock"]) > 0
    for k, total in enumerate((after.internal, after.switching, after.leakage)):
        assert sum(values[k] for values in after.groups.values()) == pytest.approx(total)


def test_same_input_same_bytes():
    reports = [power(timing_of(mapped(PIPELINE, "pipeline"))) for _ in range(2)]
    assert reports[0].total == reports[1].total
    assert reports[0].per_instance.tobytes() == reports[1].per_instance.tobytes()


def test_virtual_clock():
    netlist = mapped(ADDER, "adder")
    report = power(Timing(netlist, Constraints((Clock("v", 500.0),))))
    assert report.groups["sequential"] == (0.0, 0.0, 0.0)
    assert report.switching > 0


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("sta") is None, reason="no OpenSTA on PATH (Debian package opensta)")
def test_against_opensta(tmp_path):
    """Our energies on OpenSTA's activity against OpenSTA's power.

    Debian's OpenSTA (2.0.17 of 2019) propagates activity through the terms of a cell's expression as if they were
    independent (an XOR of two inputs passes on 0.75 of their density, not all), so its activity is taken over. It adds
    the energies of rise and fall where later versions take the mean: its internal power is twice ours. That of gates
    it does not normalise over the inputs, so only registers are compared.
    """
    netlist = mapped(PIPELINE, "pipeline")
    period = 150.0
    timing = timing_of(netlist, period, propagated=True)
    report = "sta::set_debug power_activity 3\nreport_power -digits 6\nsta::set_debug power_activity 0"
    log = opensta(netlist, "RVT", period, tmp_path, report)
    found = activity(timing)
    numbers = {name: inst for inst, name in enumerate(netlist.inst_name)}
    taken = 0
    for inst, pin, density, duty in re.findall(r"power_activity: set (\S+)/(\S+) (\S+) (\S+)", log):
        net = netlist.pin_net[netlist.pin(numbers[inst], pin)]
        if net >= 0:
            found.density[net], found.probability[net] = float(density) / period, float(duty)
            taken += 1
    assert taken > 100
    ours = power(timing, found)
    theirs = {
        name.lower(): [float(value) for value in row.split()[:3]]
        for name, row in re.findall(r"^(Sequential|Combinational)\s+(.*)$", log, re.MULTILINE)
    }
    for group in ("sequential", "combinational"):
        _, switching, leakage = ours.groups[group]
        assert switching == pytest.approx(theirs[group][1], rel=0.01)
        assert leakage == pytest.approx(theirs[group][2], rel=0.001)
    assert 2 * ours.groups["sequential"][0] == pytest.approx(theirs["sequential"][0], rel=0.10)
