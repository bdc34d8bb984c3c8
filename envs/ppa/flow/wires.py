"""`Places`: where the instances of a netlist lie, and the wires that follow from it.

Lengths are nm inside; the netlist's wires are um. A net's wire is as long as the half perimeter of its pins' bounding
box, longer for many pins, where a tree needs more than that; a sink's path is its distance from the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from edagym.envs.ppa.flow.floorplan import SITE, Floorplan
from edagym.envs.ppa.flow.netlist import Netlist
from edagym.envs.ppa.flow.place import Hypergraph

TREE_FACTOR = 0.03
"""Extra wire per pin beyond three, as a share of the half perimeter."""


class Places:
    """Centres of instances and ports, kept beside a netlist.

    Attributes:
        netlist: The netlist.
        plan: Die and rows.
        x: Per instance: x of its centre, nm; stale for removed instances.
        y: Per instance: likewise y.
        port_x: Per port: x, nm.
        port_y: Per port: y, nm.
    """

    def __init__(self, netlist: Netlist, plan: Floorplan) -> None:
        self.netlist = netlist
        self.plan = plan
        middle = ((plan.core[0] + plan.core[2]) / 2, (plan.core[1] + plan.core[3]) / 2)
        self.x = [middle[0]] * len(netlist.inst_name)
        self.y = [middle[1]] * len(netlist.inst_name)
        self.port_x = [middle[0]] * len(netlist.port_name)
        self.port_y = [middle[1]] * len(netlist.port_name)

    def at(self, pin: int) -> tuple[float, float]:
        """Return the place of a pin: the centre of its instance, or its port's place."""
        inst = self.netlist.pin_inst[pin]
        return (self.x[inst], self.y[inst]) if inst >= 0 else (self.port_x[~inst], self.port_y[~inst])

    def put(self, inst: int, x: float, y: float) -> None:
        """Place an instance, also a new one, inside the core."""
        left, bottom, right, top = self.plan.core
        missing = inst + 1 - len(self.x)
        if missing > 0:
            self.x += [0.0] * missing
            self.y += [0.0] * missing
        self.x[inst] = min(max(x, left), right)
        self.y[inst] = min(max(y, bottom), top)

    def put_between(self, inst: int, pins: Sequence[int]) -> None:
        """Place an instance at the middle of some pins' bounding box."""
        points = [self.at(pin) for pin in pins]
        xs, ys = [p[0] for p in points], [p[1] for p in points]
        self.put(inst, (min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2)

    def route(self, nets: Iterable[int]) -> None:
        """Set the wires of nets from the places of their pins."""
        netlist, pin_inst = self.netlist, self.netlist.pin_inst
        x, y, port_x, port_y = self.x, self.y, self.port_x, self.port_y
        for net in nets:
            driver, sinks = netlist.net_driver[net], netlist.net_sinks[net]
            if driver < 0 or not sinks:
                continue
            inst = pin_inst[driver]
            x0, y0 = (x[inst], y[inst]) if inst >= 0 else (port_x[~inst], port_y[~inst])
            left = right = x0
            bottom = top = y0
            paths = {}
            for pin in sinks:
                inst = pin_inst[pin]
                px, py = (x[inst], y[inst]) if inst >= 0 else (port_x[~inst], port_y[~inst])
                paths[pin] = (abs(px - x0) + abs(py - y0)) / 1000
                if px < left:
                    left = px
                elif px > right:
                    right = px
                if py < bottom:
                    bottom = py
                elif py > top:
                    top = py
            length = (right - left + top - bottom) / 1000 * (1 + TREE_FACTOR * max(len(sinks) - 2, 0))
            netlist.set_wire(net, length, paths)

    def length(self) -> float:
        """Return the length of all wires, um."""
        return float(np.add.reduce([self.netlist.net_length[net] for net in self.netlist.nets()]))

    def widths(self, insts: Sequence[int]) -> np.ndarray:
        """Return the widths of instances in sites, int64."""
        widths = [round(self.netlist.master(i).width * 1000 / SITE) for i in insts]
        return np.array(widths, dtype=np.int64)

    def centres(self, insts: Sequence[int]) -> np.ndarray:
        """Return the centres of instances, float64 (n, 2), nm."""
        return np.array([(self.x[i], self.y[i]) for i in insts], dtype=float).reshape(-1, 2)

    def hypergraph(self, insts: Sequence[int], weights: Sequence[float] | None = None) -> Hypergraph:
        """Return what the placer places: instances, all ports, and the nets that are no clock nets.

        Args:
            insts: Instances in the order of the graph's cells.
            weights: Per net of the netlist: its weight; default 1.
        """
        netlist = self.netlist
        node = {inst: i for i, inst in enumerate(insts)}
        pins: list[int] = []
        starts = [0]
        chosen: list[float] = []
        for net in netlist.nets():
            if netlist.net_clock[net] or netlist.net_driver[net] < 0:
                continue
            nodes = []
            for pin in (netlist.net_driver[net], *netlist.net_sinks[net]):
                inst = netlist.pin_inst[pin]
                nodes.append(node[inst] if inst >= 0 else len(insts) + ~inst)
            unique = sorted(set(nodes))
            if len(unique) > 1:
                pins += unique
                starts.append(len(pins))
                chosen.append(1.0 if weights is None else weights[net])
        return Hypergraph(
            self.widths(insts),
            len(netlist.port_name),
            np.array(pins, dtype=np.int64),
            np.array(starts, dtype=np.int64),
            np.array(chosen, dtype=float),
        )
