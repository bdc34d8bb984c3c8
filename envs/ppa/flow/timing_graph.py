"""Tables and arcs of a netlist in the forms that the timing engine computes with.

`Tables` holds a technology's tables for numpy and for plain Python; `Graph` holds a netlist's arcs as arrays, sorted by
level. Nodes are numbered ``2 * net + edge``. Units: ps, fF.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import numpy as np

from edagym.envs.ppa.flow.netlist import Netlist
from edagym.errors import FlowError
from edagym.task_assets.ppa.technology import Master, Technology

INF = math.inf
SLEW_OF_RC = math.log(9.0)
"""10-90 % transition of a step through an RC, in units of RC."""
# Inverse of the octaves that table intervals start at.
HALVES = [1.0, 0.5, 0.25, 0.125, 0.0625, 0.03125]
HALVES_ARRAY = np.array(HALVES)
PER_SLEW = 0.2
"""1 / first slew of the tables."""


class Tables:
    """Tables of a technology in the two layouts that numpy and plain Python want."""

    def __init__(self, technology: Technology) -> None:
        pairs = technology.pairs
        step = np.zeros_like(pairs)
        step[:, :, :-1] = pairs[:, :, 1:] - pairs[:, :, :-1]
        rows = np.concatenate([pairs, step], axis=-1).reshape(len(pairs), 49, 4)
        below = np.zeros_like(rows)
        below[:, :42] = rows[:, 7:]
        # Delay and slew at a corner, their steps to the next load, and both again for the next slew.
        self.corners = np.ascontiguousarray(np.concatenate([rows, below], axis=-1).reshape(-1, 8))
        self.delay = pairs[..., 0].reshape(-1).tolist()
        self.slew = pairs[..., 1].reshape(-1).tolist()
        self.constraint_array = technology.constraints.reshape(-1)
        self.constraint = self.constraint_array.tolist()
        self.arcs = [_arc_arrays(master) for master in technology.masters]
        self.cap = [np.array(master.cap).reshape(-1, 2) for master in technology.masters]
        self.cap_list = [master.cap for master in technology.masters]
        self.clock_pin = [master.register.clock if master.register else -1 for master in technology.masters]


_TABLES: dict[str, Tables] = {}


def tables_of(technology: Technology) -> Tables:
    """Return the tables of a technology, made once per data set."""
    if technology.digest not in _TABLES:
        _TABLES[technology.digest] = Tables(technology)
    return _TABLES[technology.digest]


def _arc_arrays(master: Master) -> np.ndarray:
    """Return int64 (arcs, 6): source pin, its edge, target pin, its edge, table, launch."""
    rows = [(a.source, a.source_edge, a.target, a.target_edge, a.table, int(a.launch)) for a in master.arcs]
    return np.array(rows, dtype=np.int64).reshape(-1, 6)


def octave(x: np.ndarray) -> np.ndarray:
    """Return the table interval of a value in units of the axis' first point."""
    return np.clip(np.frexp(x)[1] - 1, 0, 5)


def look_up(technology: Technology, table: int, slew: float, load: float, base: float) -> tuple[float, float]:
    """Return delay and output slew of one arc, ps.

    Args:
        technology: Source of the tables.
        table: Row of `Technology.pairs`.
        slew: Input slew, ps.
        load: Load, fF.
        base: The output's `Master.load_base`, fF.
    """
    tables = tables_of(technology)
    x = load / base
    j = min(max(math.frexp(x)[1] - 1, 0), 5)
    return bilinear(tables.delay, tables.slew, table * 49 + j, x * HALVES[j] - 1.0, slew)


def bilinear(delays: list[float], slews: list[float], o: int, t: float, slew: float) -> tuple[float, float]:
    """Return delay and slew at an input slew (ps), from flat tables.

    Args:
        delays: `Tables.delay`.
        slews: `Tables.slew`.
        o: Place of the lowest slew's entry in the load interval.
        t: Place within the load interval, 0 to 1 inside the table.
        slew: Input slew, ps.
    """
    x = slew * PER_SLEW
    i = math.frexp(x)[1] - 1
    if i < 0:
        i = 0
    elif i > 5:
        i = 5
    u = x * HALVES[i] - 1.0
    o += 7 * i
    d, s = delays[o], slews[o]
    low_d, low_s = d + (delays[o + 1] - d) * t, s + (slews[o + 1] - s) * t
    d, s = delays[o + 7], slews[o + 7]
    high_d, high_s = d + (delays[o + 8] - d) * t, s + (slews[o + 8] - s) * t
    return low_d + (high_d - low_d) * u, low_s + (high_s - low_s) * u


class Graph:
    """The netlist's arcs as arrays, sorted by level; valid until the next change of structure."""

    def __init__(self, netlist: Netlist, starts: Iterable[int]) -> None:
        tables = tables_of(netlist.technology)
        masters = np.array(netlist.inst_master, dtype=np.int64)
        first = np.array(netlist.inst_pin, dtype=np.int64)
        self.pin_net = np.array(netlist.pin_net, dtype=np.int64)
        n_pins, n_nets = len(self.pin_net), len(netlist.net_name)
        self.cap = np.zeros((n_pins, 2))
        self.base = np.zeros(n_pins)
        parts = []
        for index in np.unique(masters[masters >= 0]).tolist():
            insts = np.flatnonzero(masters == index)
            template = tables.arcs[index]
            master = netlist.technology.masters[index]
            pins = first[insts][:, None] + np.arange(len(master.pins))
            self.cap[pins] = tables.cap[index]
            self.base[pins] = master.load_base
            if len(template):
                source = first[insts][:, None] + template[:, 0]
                target = first[insts][:, None] + template[:, 2]
                ones = np.ones(len(insts), dtype=np.int64)[:, None]
                parts.append(
                    np.stack(
                        [
                            source,
                            ones * template[:, 1],
                            target,
                            ones * template[:, 3],
                            ones * template[:, 4],
                            ones * template[:, 5],
                            np.broadcast_to(insts[:, None], source.shape),
                        ],
                        axis=-1,
                    ).reshape(-1, 7)
                )
        arcs = np.concatenate(parts) if parts else np.zeros((0, 7), dtype=np.int64)
        arcs = arcs[(self.pin_net[arcs[:, 0]] >= 0) & (self.pin_net[arcs[:, 2]] >= 0)]
        self.level = _levels(self.pin_net[arcs[:, 0]], self.pin_net[arcs[:, 2]], n_nets, netlist)
        target_node = 2 * self.pin_net[arcs[:, 2]] + arcs[:, 3]
        arcs = arcs[np.lexsort((target_node, self.level[self.pin_net[arcs[:, 2]]]))]
        arcs = self._reached(arcs, starts, n_nets)
        self.pin = arcs[:, 0]
        self.source = 2 * self.pin_net[arcs[:, 0]] + arcs[:, 1]
        self.target_pin = arcs[:, 2]
        self.target = 2 * self.pin_net[arcs[:, 2]] + arcs[:, 3]
        self.table = arcs[:, 4] * 49
        self.launch = arcs[:, 5] == 1
        self.inst = arcs[:, 6]
        self.slices = _slices(self.level[self.target >> 1], self.target)
        # For the backward pass: the arcs of each level sorted by source.
        self.back = []
        for start, end, _, _ in self.slices:
            order = start + np.argsort(self.source[start:end], kind="stable")
            order = order[~self.launch[order]]
            if len(order):
                nodes = self.source[order]
                begin = np.flatnonzero(np.concatenate([[True], nodes[1:] != nodes[:-1]]))
                self.back.append((order, begin, nodes[begin]))

    def _reached(self, arcs: np.ndarray, starts: Iterable[int], n_nets: int) -> np.ndarray:
        """Return the arcs that a start reaches; others (behind constants, unconstrained inputs) have no timing."""
        reach = np.zeros(2 * n_nets, dtype=bool)
        for node in starts:
            reach[node] = True
        source = 2 * self.pin_net[arcs[:, 0]] + arcs[:, 1]
        target = 2 * self.pin_net[arcs[:, 2]] + arcs[:, 3]
        for start, end, begin, nodes in _slices(self.level[target >> 1], target):
            reach[nodes] |= np.logical_or.reduceat(reach[source[start:end]], begin)
        return arcs[reach[source]]


def _slices(levels: np.ndarray, nodes: np.ndarray) -> list[tuple[int, int, np.ndarray, np.ndarray]]:
    """Return per level: first and last arc, starts of equal targets within, and these targets."""
    if not len(levels):
        return []
    bounds = np.concatenate([[0], np.flatnonzero(levels[1:] != levels[:-1]) + 1, [len(levels)]]).tolist()
    made = []
    for start, end in itertools.pairwise(bounds):
        part = nodes[start:end]
        begin = np.flatnonzero(np.concatenate([[True], part[1:] != part[:-1]]))
        made.append((start, end, begin, part[begin]))
    return made


def _levels(source: np.ndarray, target: np.ndarray, n_nets: int, netlist: Netlist) -> np.ndarray:
    """Return each net's longest distance from a start, in gates."""
    edges = np.unique(source * n_nets + target)
    source, target = edges // n_nets, edges % n_nets
    waiting = np.bincount(target, minlength=n_nets)
    offset = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=n_nets))])
    level = np.zeros(n_nets, dtype=np.int64)
    ready = np.flatnonzero(waiting == 0)
    seen, depth = len(ready), 0
    while len(ready):
        depth += 1
        counts = offset[ready + 1] - offset[ready]
        total = int(counts.sum())
        if not total:
            break
        shift = np.repeat(offset[ready] - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
        reached = target[np.arange(total) + shift]
        nets, times = np.unique(reached, return_counts=True)
        waiting[nets] -= times
        ready = nets[waiting[nets] == 0]
        level[ready] = depth
        seen += len(ready)
    if seen < n_nets:
        names = [netlist.net_name[net] for net in np.flatnonzero(waiting > 0).tolist()]
        message = "the design has a combinational loop, or gates behind one"
        raise FlowError(message, field="timing", value=names[:8])
    return level
