"""Registers that hold or toggle: dependence on the own state, and what it does to activity."""

import numpy as np
import pytest

from edagym.envs.ppa.flow.constraints import simple
from edagym.envs.ppa.flow.feedback import Feedback
from edagym.envs.ppa.flow.netlist import Netlist
from edagym.envs.ppa.flow.power import activity
from edagym.envs.ppa.flow.sta import Timing
from edagym.task_assets.ppa.technology import load_technology


def register(gate=None):
    """A flip-flop whose data input comes from an input ``d`` and its own output by a gate (None: from ``d`` alone)."""
    technology = load_technology()
    netlist = Netlist("top", technology)
    nets = {name: netlist.add_net(name) for name in ("clk", "d", "en", "next", "q", "qn")}
    for name in ("clk", "d", "en"):
        netlist.add_port(name, nets[name], is_input=True)

    def cell(name, master, **pins):
        inst = netlist.add_instance(name, technology[master].index)
        for pin, net in pins.items():
            netlist.move_pin(netlist.pin(inst, pin), nets[net])

    cell("flop", "DFFHQNx1", CLK="clk", D="next", QN="qn")
    cell("invert", "INVx1", A="qn", Y="q")
    if gate == "hold":
        nets["stay"] = netlist.add_net("stay")
        cell("not_enable", "INVx1", A="en", Y="stay")
        cell("select", "AO22x1", A1="en", A2="d", B1="stay", B2="q", Y="next")
    elif gate == "toggle":
        cell("again", "BUFx2", A="qn", Y="next")
    elif gate == "count":
        cell("add", "XOR2x2", A="en", B="q", Y="next")
    else:
        cell("pass", "BUFx2", A="d", Y="next")
    netlist.add_port("out", nets["q"], is_input=False)
    return netlist, nets


@pytest.mark.parametrize(
    ("gate", "positive", "negative"), [(None, 0, 0), ("hold", 0.375, 0), ("toggle", 0, 1), ("count", 0.5, 0.5)]
)
def test_dependence_on_the_own_state(gate, positive, negative):
    netlist, nets = register(gate)
    found = Feedback(netlist).dependence(np.full(len(netlist.net_name) + 1, 0.5))
    # The AO gate shows its lower pair only while the upper one is 0, and inputs are taken as independent.
    assert found[0][nets["qn"]] == pytest.approx(positive)
    assert found[1][nets["qn"]] == pytest.approx(negative)
    others = [net for name, net in nets.items() if name != "qn"]
    assert not found[0][others].any()


def test_a_holding_register_switches_less_and_a_toggling_one_every_cycle():
    rates = {}
    for gate in (None, "hold", "toggle"):
        netlist, nets = register(gate)
        ports = tuple(zip(netlist.port_name, netlist.port_input, strict=True))
        timing = Timing(netlist, simple(100.0, ports, "clk"))
        rates[gate] = activity(timing).density[nets["q"]] * 100.0
    assert rates["toggle"] <= 1.0 + 1e-9
    assert rates["hold"] <= (1 - 0.375) * 0.5 + 1e-9
    assert rates[None] == pytest.approx(0.1)
