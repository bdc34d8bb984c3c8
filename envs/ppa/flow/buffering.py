"""Edits before placement: constant cells, buffers of synthesis taken out, buffers at ports, and the fan-out limit."""

from __future__ import annotations

from collections.abc import Collection

from edagym.envs.ppa.flow.cts import split
from edagym.envs.ppa.flow.netlist import Netlist
from edagym.envs.ppa.flow.wires import Places

PORT_BUFFER = "BUFx2"
FANOUT_BUFFER = "BUFx3"
LOAD_BUFFER = "BUFx4"
LOAD_SHARE = 0.8
"""Share of a driver's largest load that a net may have."""
GROUP = 16
"""Sinks behind one buffer where a net has too much load."""


def one_tie_per_load(netlist: Netlist) -> int:
    """Give every pin that a constant drives a constant cell of its own; returns how many were added."""
    added = 0
    for inst in list(netlist.instances()):
        if netlist.master(inst).kind != "tie":
            continue
        (output,) = netlist.output_pins(inst)
        net = netlist.pin_net[output]
        for pin in netlist.net_sinks[net][1:] if net >= 0 else []:
            added += 1
            tie = netlist.add_instance(f"{netlist.inst_name[inst]}_{added}", netlist.inst_master[inst])
            own = netlist.add_net(f"{netlist.inst_name[tie]}_net")
            netlist.move_pin(pin, own)
            netlist.move_pin(netlist.output_pins(tie)[0], own)
    return added


def remove_buffers(netlist: Netlist) -> int:
    """Take out all buffers; returns how many."""
    removed = 0
    for inst in list(netlist.instances()):
        if netlist.master(inst).kind == "buf":
            netlist.remove_buffer(inst)
            removed += 1
    return removed


def buffer_ports(
    netlist: Netlist, vt: str, clock_ports: Collection[str], *, inputs: bool = True, outputs: bool = True
) -> list[int]:
    """Put a buffer behind every input port and before every output port; clock ports stay.

    Args:
        netlist: Changed in place.
        vt: Threshold voltage of the buffers.
        clock_ports: Ports that clocks enter by.
        inputs: Whether to buffer the inputs.
        outputs: Whether to buffer the outputs.

    Returns:
        The new instances.
    """
    master = netlist.technology.find(PORT_BUFFER, vt).index
    made: list[int] = []
    for port, is_input in enumerate(netlist.port_input):
        pin = netlist.port_pin[port]
        net = netlist.pin_net[pin]
        if is_input and inputs and netlist.port_name[port] not in clock_ports and netlist.net_sinks[net]:
            made.append(netlist.insert_buffer(net, list(netlist.net_sinks[net]), master, name=f"input{len(made) + 1}"))
    for port, is_input in enumerate(netlist.port_input):
        pin = netlist.port_pin[port]
        if not is_input and outputs and netlist.net_driver[netlist.pin_net[pin]] >= 0:
            made.append(netlist.insert_buffer(netlist.pin_net[pin], [pin], master, name=f"output{len(made) + 1}"))
    return made


def limit_fanout(netlist: Netlist, places: Places, limit: int, vt: str) -> list[int]:
    """Insert buffers until no net that is no clock net drives more than `limit` pins; returns the new instances.

    The sinks of a net that is over the limit are taken in groups of neighbours, so that each buffer has short wires.
    """
    limit = max(limit, 2)
    master = netlist.technology.find(FANOUT_BUFFER, vt).index
    made: list[int] = []
    for net in list(netlist.nets()):
        while len(netlist.net_sinks[net]) > limit and not netlist.net_clock[net]:
            sinks = list(netlist.net_sinks[net])
            groups = [g for g in split([places.at(pin) for pin in sinks], limit) if len(g) > 1]
            # Buffers count as sinks too: stop once each of the fullest groups has one.
            for group in sorted(groups, key=lambda g: (-len(g), g))[: max(len(sinks) - limit, 1)]:
                pins = [sinks[k] for k in group]
                buffer = netlist.insert_buffer(net, pins, master, name=f"fanout{net}_{len(made)}")
                places.put_between(buffer, pins)
                made.append(buffer)
                if len(netlist.net_sinks[net]) <= limit:
                    break
    return made


def limit_load(netlist: Netlist, places: Places, vt: str) -> list[int]:
    """Insert buffers until no driver has more load than it is characterised for; returns the new instances."""
    master = netlist.technology.find(LOAD_BUFFER, vt)
    made: list[int] = []
    work = [net for net in netlist.nets() if len(netlist.net_sinks[net]) > 1 and not netlist.net_clock[net]]
    while work:
        net = work.pop(0)
        driver = netlist.net_driver[net]
        if driver < 0 or netlist.pin_inst[driver] < 0 or len(netlist.net_sinks[net]) <= GROUP:
            continue
        inst = netlist.pin_inst[driver]
        most = netlist.master(inst).max_load(driver - netlist.inst_pin[inst])
        places.route([net])
        if netlist.master(inst).kind == "tie" or _load(netlist, net) <= LOAD_SHARE * most:
            continue
        sinks = list(netlist.net_sinks[net])
        for group in split([places.at(pin) for pin in sinks], GROUP):
            pins = [sinks[k] for k in group]
            buffer = netlist.insert_buffer(net, pins, master.index, name=f"load{net}_{len(made)}")
            places.put_between(buffer, pins)
            made.append(buffer)
        work.append(net)
    return made


def _load(netlist: Netlist, net: int) -> float:
    """Return the load of a net, fF."""
    load = netlist.wire(net)[1]
    for pin in netlist.net_sinks[net]:
        inst = netlist.pin_inst[pin]
        if inst >= 0:
            load += max(netlist.master(inst).cap[pin - netlist.inst_pin[inst]])
    return load
