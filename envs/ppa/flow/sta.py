"""`Timing`: static timing of a netlist with table lookups (NLDM), whole or only where an edit reaches.

Model. Every arc's delay and output slew are bilinear in input slew and load (linear beyond the table's ends). A net
loads its driver with its pins' and its wire's capacitance; a wire delays each sink by Elmore's formula, where the load
along the path falls linearly from the whole net's to the sink's own, and widens its slew as a step through an RC would
be. Arrival and slew are the worst over all arcs, per edge, as in graph-based analysis; arrivals are kept per launching
clock edge. Registers launch from their active clock edge and are checked by their setup and hold tables. A latch
launches from its opening edge and is checked at its closing edge; time borrowing and asynchronous arcs are left out.
Ideal clocks reach registers after a given latency with slew 0, propagated ones through the netlist's buffers.

`Timing.refresh` computes everything with numpy, level by level. `Timing.update` recomputes only what the netlist's
edits reach, in plain Python; both use the same operations in the same order, so results are equal to the last bit.

A *node* is a net's edge at its driver, numbered ``2 * net + edge``. Units: ps, fF, kohm, um.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edagym.envs.ppa.flow.constraints import Constraints, edge_distance
from edagym.envs.ppa.flow.netlist import Netlist
from edagym.envs.ppa.flow.timing_graph import (
    HALVES,
    HALVES_ARRAY,
    INF,
    PER_SLEW,
    SLEW_OF_RC,
    Graph,
    bilinear,
    look_up,
    octave,
    tables_of,
)
from edagym.errors import FlowError
from edagym.task_assets.ppa.technology import CLOCK_WIRE, FALL, RISE, SIGNAL_WIRE


@dataclass(frozen=True)
class Stage:
    """One gate of a path.

    Attributes:
        inst: Instance; -1 for the input port that starts a path.
        pin_in: Its input pin on the path; -1 for a start.
        edge_in: Edge at that pin.
        pin_out: Its output pin (the port's pin for a start at a port; the endpoint's pin, with `inst` -1 or the
            capturing register, at the end).
        edge_out: Edge at that pin.
        wire: Wire delay to `pin_in`, ps.
        delay: Delay from `pin_in` to `pin_out`, ps.
        arrival: Arrival at `pin_out`, ps.
        slew: Slew at `pin_out`, ps.
        load: Load of `pin_out`, fF.
    """

    inst: int
    pin_in: int
    edge_in: int
    pin_out: int
    edge_out: int
    wire: float
    delay: float
    arrival: float
    slew: float
    load: float


@dataclass(frozen=True)
class Path:
    """The worst path to an endpoint.

    Attributes:
        endpoint: Data pin of a register, or pin of an output port.
        slack: ps.
        arrival: At the endpoint, ps.
        required: ps.
        stages: From the start (an input or clock port) to the endpoint.
    """

    endpoint: int
    slack: float
    arrival: float
    required: float
    stages: tuple[Stage, ...]


class Timing:
    """Arrival times, slews and slacks of a netlist.

    Args:
        netlist: Design; the engine subscribes to its edits.
        constraints: Clocks and port delays.
        propagated: Time the clock through the netlist instead of assuming it ideal.
        latency: For ideal clocks: clock pin -> latency, ps.

    Raises:
        FlowError: With `field` ``"timing"`` for a combinational loop; ``"constraints"`` for a port that is not there.
    """

    def __init__(
        self,
        netlist: Netlist,
        constraints: Constraints,
        *,
        propagated: bool = False,
        latency: Mapping[int, float] | None = None,
    ) -> None:
        self.netlist = netlist
        self.constraints = constraints
        self.propagated = propagated
        self.latency = dict(latency or {})
        self._tables = tables_of(netlist.technology)
        self._changes = netlist.subscribe()
        self._journal: list[tuple[list[Any], int, Any]] = []
        self._epoch = 0
        self._fresh = False
        self._prepare_ports()
        self.refresh()

    def close(self) -> None:
        """Stop following the netlist's edits."""
        self.netlist.unsubscribe(self._changes)

    # Whole computation

    def refresh(self) -> None:
        """Compute everything anew."""
        self._changes.take()
        self._trace_clocks()
        graph = Graph(self.netlist, self._starts)
        self._graph = graph
        netlist = self.netlist
        load, wire = self._loads(graph)
        arrival, slew, delay = self._forward(graph, load, wire, early=False)
        self._arrays = (load, wire, arrival, slew, delay)
        self._journal.clear()
        self._epoch += 1
        self._load = load.tolist()
        self._wire = wire.tolist()
        self._wide = self._spread(graph, wire).tolist()
        self._arrival = arrival.tolist()
        self._slew = slew.tolist()
        self._inst_arcs: list[Any] = [None] * len(netlist.inst_name)
        levels = graph.level.tolist()
        self._level = [0] * len(netlist.inst_name)
        for inst in netlist.instances():
            outputs = [levels[netlist.pin_net[p]] for p in netlist.output_pins(inst) if netlist.pin_net[p] >= 0]
            self._level[inst] = max(outputs, default=0)
        self._make_rows()
        self._row_slack = self._all_row_slacks(arrival, slew, wire, hold=False).tolist()
        self._fresh = True

    def set_constraints(self, constraints: Constraints) -> None:
        """Take other constraints and compute everything anew."""
        self.constraints = constraints
        self._prepare_ports()
        self.refresh()

    def set_propagated(self, propagated: bool = True, latency: Mapping[int, float] | None = None) -> None:
        """Time the clock through the netlist, or ideal with given latencies, and compute everything anew."""
        self.propagated = propagated
        self.latency = dict(latency or {})
        self.refresh()

    def _prepare_ports(self) -> None:
        netlist, constraints = self.netlist, self.constraints
        pins = {name: netlist.port_pin[i] for i, name in enumerate(netlist.port_name)}
        for delay in (*constraints.input_delays, *constraints.output_delays):
            if delay.port not in pins:
                raise FlowError("a constraint names no port", field="constraints", value=delay.port)
        self._clock_pins = []
        for clock in constraints.clocks:
            if clock.source is not None and clock.source not in pins:
                raise FlowError("a clock's port is not there", field="constraints", value=clock.source)
            self._clock_pins.append(-1 if clock.source is None else pins[clock.source])

    def _trace_clocks(self) -> None:
        """Find the clock network, the launching edges in use, and the starts."""
        netlist, masters = self.netlist, self.netlist.technology.masters
        self._ideal: set[int] = set()
        used = {(c, RISE) for c in range(len(self.constraints.clocks))}
        for number, pin in enumerate(self._clock_pins):
            if pin < 0:
                continue
            start = netlist.pin_net[pin]
            seen = {(start, RISE, RISE), (start, FALL, FALL)}
            work = sorted(seen)
            while work:
                net, edge, origin = work.pop()
                for sink in netlist.net_sinks[net]:
                    inst = netlist.pin_inst[sink]
                    if inst < 0:
                        continue
                    offset = sink - netlist.inst_pin[inst]
                    for arc in masters[netlist.inst_master[inst]].arcs:
                        if arc.source != offset or arc.source_edge != edge:
                            continue
                        if arc.launch:
                            used.add((number, origin))
                            continue
                        target = netlist.pin_net[netlist.inst_pin[inst] + arc.target]
                        state = (target, arc.target_edge, origin)
                        if target >= 0 and state not in seen:
                            seen.add(state)
                            work.append(state)
            if not self.propagated:
                self._ideal |= {net for net, _, _ in seen}
        self._tags = sorted(used)
        clocks = self.constraints.clocks
        self._shift = [
            [
                None
                if self.constraints.exclude(clocks[a], clocks[b])
                else (edge_distance(clocks[a], ea, clocks[b], eb) + clocks[a].edge(ea) - clocks[b].edge(eb))
                for b, eb in self._tags
            ]
            for a, ea in self._tags
        ]
        # Node -> (tag, arrival) of everything that starts a path.
        self._starts: dict[int, list[tuple[int, float]]] = {}
        for number, pin in enumerate(self._clock_pins):
            if pin >= 0:
                for edge in (RISE, FALL):
                    if (number, edge) in used:
                        time = clocks[number].edge(edge) + clocks[number].latency
                        node = 2 * netlist.pin_net[pin] + edge
                        self._starts.setdefault(node, []).append((self._tags.index((number, edge)), time))
        ports = {name: netlist.port_pin[i] for i, name in enumerate(netlist.port_name)}
        for item in self.constraints.input_delays:
            number = self.constraints.clock_number(item.clock)
            time = clocks[number].edge(RISE) + clocks[number].latency + item.delay
            for edge in (RISE, FALL):
                node = 2 * netlist.pin_net[ports[item.port]] + edge
                self._starts.setdefault(node, []).append((self._tags.index((number, RISE)), time))

    def _loads(self, graph: Graph) -> tuple[np.ndarray, np.ndarray]:
        """Return loads per node and wire delays per pin."""
        netlist = self.netlist
        n_nets = len(netlist.net_name)
        nets = graph.pin_net
        driver = np.array(netlist.net_driver, dtype=np.int64)
        is_sink = nets >= 0
        is_sink[driver[driver >= 0]] = False
        sinks = np.flatnonzero(is_sink)
        length = np.array(netlist.net_length)
        clock = np.array(netlist.net_clock, dtype=bool)
        wire_cap = np.where(clock, CLOCK_WIRE.capacitance, SIGNAL_WIRE.capacitance) * length
        load = np.zeros(2 * n_nets)
        for edge in (RISE, FALL):
            load[edge::2] = np.bincount(nets[sinks], weights=graph.cap[sinks, edge], minlength=n_nets) + wire_cap
        path = np.array(netlist.pin_path)
        wire = np.zeros(len(nets))
        net = nets[sinks]
        run = np.where(path[sinks] >= 0, path[sinks], length[net])
        unit = np.where(clock[net], CLOCK_WIRE.resistance, SIGNAL_WIRE.resistance)
        total = np.maximum(load[2 * net], load[2 * net + 1])
        own = np.maximum(graph.cap[sinks, 0], graph.cap[sinks, 1])
        wire[sinks] = unit * run * (total + own) * 0.5
        if self._ideal:
            for ideal in sorted(self._ideal):
                for pin in netlist.net_sinks[ideal]:
                    wire[pin] = self.latency.get(pin, 0.0)
        return load, wire

    def _forward(
        self, graph: Graph, load: np.ndarray, wire: np.ndarray, *, early: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return arrivals (tags, nodes), slews (nodes) and arc delays, the latest or the earliest."""
        n_nodes = len(load)
        none = INF if early else -INF
        merge = np.minimum if early else np.maximum
        arrival = np.full((len(self._tags), n_nodes), none)
        slew = np.full(n_nodes, INF) if early else np.zeros(n_nodes)
        for node, times in self._starts.items():
            slew[node] = 0.0
            for tag, time in times:
                arrival[tag, node] = merge(arrival[tag, node], time)
        corners = self._tables.corners
        x = load[graph.target] / graph.base[graph.target_pin]
        j = octave(x)
        t = (x * HALVES_ARRAY[j] - 1.0)[:, None]
        cell = graph.table + j
        ideal = self._ideal_nodes(n_nodes)
        arc_wire = wire[graph.pin]
        spread = self._spread(graph, wire)[graph.pin]
        is_ideal = ideal[graph.source] & ~graph.launch if ideal is not None else None
        delay = np.zeros(len(graph.pin))
        for start, end, begin, nodes in graph.slices:
            source = graph.source[start:end]
            s = slew[source]
            x = np.sqrt(s * s + spread[start:end]) * PER_SLEW
            i = np.clip(np.frexp(x)[1] - 1, 0, 5)
            u = (x * HALVES_ARRAY[i] - 1.0)[:, None]
            c = corners.take(cell[start:end] + 7 * i, axis=0)
            part = t[start:end]
            low = c[:, 0:2] + c[:, 2:4] * part
            high = c[:, 4:6] + c[:, 6:8] * part
            both = low + (high - low) * u
            if is_ideal is not None:
                both[is_ideal[start:end]] = 0.0
            d = np.ascontiguousarray(both[:, 0])
            delay[start:end] = d
            times = (arrival[:, source] + arc_wire[start:end]) + d
            arrival[:, nodes] = merge(arrival[:, nodes], merge.reduceat(times, begin, axis=1))
            slew[nodes] = merge(slew[nodes], merge.reduceat(np.ascontiguousarray(both[:, 1]), begin))
        return arrival, slew, delay

    def _ideal_nodes(self, n_nodes: int) -> np.ndarray | None:
        if not self._ideal:
            return None
        mask = np.zeros(n_nodes, dtype=bool)
        for net in self._ideal:
            mask[2 * net : 2 * net + 2] = True
        return mask

    def _spread(self, graph: Graph, wire: np.ndarray) -> np.ndarray:
        """Return what a wire adds to the square of the slew, per pin."""
        spread = SLEW_OF_RC * wire
        spread = spread * spread
        if self._ideal:
            ideal = np.zeros(len(self.netlist.net_name) + 1, dtype=bool)
            ideal[sorted(self._ideal)] = True
            spread[ideal[graph.pin_net]] = 0.0
        return spread

    # Checks

    def _make_rows(self) -> None:
        """List the checks: one row per endpoint, data edge and check."""
        netlist = self.netlist
        self._row_pin: list[int] = []
        self._row_edge: list[int] = []
        self._row_clock: list[int] = []
        self._row_clock_edge: list[int] = []
        self._row_table: list[int] = []
        self._row_hold: list[int] = []
        self._row_time: list[tuple[int, float]] = []
        self._pin_rows: dict[int, list[int]] = {}
        self._inst_rows: dict[int, list[int]] = {}
        for inst in netlist.instances():
            if netlist.master(inst).register:
                self._add_register_rows(inst)
        ports = {name: netlist.port_pin[i] for i, name in enumerate(netlist.port_name)}
        for item in self.constraints.output_delays:
            for edge in (RISE, FALL):
                self._add_row(
                    ports[item.port], edge, -1, 0, -1, -1, (self.constraints.clock_number(item.clock), item.delay)
                )

    def _add_register_rows(self, inst: int) -> None:
        first = self.netlist.inst_pin[inst]
        checks = self.netlist.master(inst).checks
        holds = {(c.data, c.data_edge, c.clock_edge): c.table for c in checks if c.hold}
        for check in checks:
            if not check.hold:
                hold = holds.get((check.data, check.data_edge, check.clock_edge), -1)
                self._add_row(
                    first + check.data,
                    check.data_edge,
                    first + check.clock,
                    check.clock_edge,
                    check.table,
                    hold,
                    (-1, 0.0),
                )

    def _add_row(
        self, pin: int, edge: int, clock: int, clock_edge: int, table: int, hold: int, time: tuple[int, float]
    ) -> None:
        row = len(self._row_pin)
        self._row_pin.append(pin)
        self._row_edge.append(edge)
        self._row_clock.append(clock)
        self._row_clock_edge.append(clock_edge)
        self._row_table.append(table)
        self._row_hold.append(hold)
        self._row_time.append(time)
        self._pin_rows.setdefault(pin, []).append(row)
        if clock >= 0:
            self._pin_rows.setdefault(clock, []).append(row)
            self._inst_rows.setdefault(self.netlist.pin_inst[pin], []).append(row)

    def _all_row_slacks(self, arrival: np.ndarray, slew: np.ndarray, wire: np.ndarray, *, hold: bool) -> np.ndarray:
        """Return slacks (clocks, rows): setup with late arrivals, hold with early ones against late clocks."""
        clocks = self.constraints.clocks
        slack = np.full((len(clocks), len(self._row_pin)), INF)
        if not self._row_pin:
            return slack
        graph = self._graph
        spread = self._spread(graph, wire)
        late, late_slew = (self._arrays[2], self._arrays[3]) if hold else (arrival, slew)
        pin = np.array(self._row_pin)
        table = np.array(self._row_hold if hold else self._row_table)
        net = graph.pin_net[pin]
        node = np.where(net >= 0, 2 * net + np.array(self._row_edge), 0)
        data = np.where(net >= 0, arrival[:, node] + wire[pin], INF if hold else -INF)
        data_slew = np.sqrt(slew[node] * slew[node] + spread[pin])
        is_port = np.array(self._row_clock) < 0
        clock_pin = np.where(is_port, 0, self._row_clock)
        clock_net = graph.pin_net[clock_pin]
        clock_node = np.where(clock_net >= 0, 2 * clock_net + np.array(self._row_clock_edge), 0)
        clocked = ~is_port & (clock_net >= 0)
        clock_slew = np.sqrt(late_slew[clock_node] * late_slew[clock_node] + spread[clock_pin])
        margin = self._constraint_array(np.where(table >= 0, table, 0), data_slew, clock_slew)
        valid = clocked & (table >= 0)
        for tag_b, (b, eb) in enumerate(self._tags):
            at_pin = late[tag_b, clock_node] + wire[clock_pin]
            here = valid & (at_pin > -INF)
            edge = np.where(here, at_pin, 0.0)
            time = np.array([item[1] if item[0] == b else 0.0 for item in self._row_time])
            port = np.array([item[0] == b and eb == RISE for item in self._row_time])
            edge = np.where(port, clocks[b].edge(RISE) + clocks[b].latency, edge)
            taken = np.where(port, -time if hold else time, margin)
            for tag_a in range(len(self._tags)):
                shift = self._shift[tag_a][tag_b]
                if shift is None:
                    continue
                with np.errstate(invalid="ignore"):
                    if hold:
                        value = data[tag_a] - (
                            (edge + (shift - clocks[b].period)) + (taken + clocks[b].hold_uncertainty)
                        )
                    else:
                        value = ((edge + shift) - (taken + clocks[b].setup_uncertainty)) - data[tag_a]
                value = np.where(here | port, value, INF)
                slack[b] = np.minimum(slack[b], value)
        return slack

    def _constraint_array(self, table: np.ndarray, data_slew: np.ndarray, clock_slew: np.ndarray) -> np.ndarray:
        values = self._tables.constraint_array
        x, y = data_slew * PER_SLEW, clock_slew * PER_SLEW
        finite = np.isfinite(x) & np.isfinite(y)
        x, y = np.where(finite, x, 1.0), np.where(finite, y, 1.0)
        i, j = octave(x), octave(y)
        u, t = x * HALVES_ARRAY[i] - 1.0, y * HALVES_ARRAY[j] - 1.0
        o = table * 49 + 7 * i + j
        low = values[o] + (values[o + 1] - values[o]) * t
        high = values[o + 7] + (values[o + 8] - values[o + 7]) * t
        return low + (high - low) * u

    # Incremental computation

    def update(self) -> None:
        """Recompute what the netlist's edits since the last call reach. Does nothing if there were none."""
        if not self._changes.nets and not self._changes.insts:
            return
        if not self._is_local():
            self.refresh()
            return
        nets, insts = self._changes.take()
        netlist = self.netlist
        self._fresh = False
        n_nets, n_insts = len(netlist.net_name), len(netlist.inst_name)
        self._grow(n_nets, n_insts, len(netlist.pin_net))
        dirty: set[int] = set()
        rows: set[int] = set()
        for inst in insts:
            self._put(self._inst_arcs, inst, None)
            if inst < n_insts and netlist.inst_master[inst] >= 0:
                dirty.add(inst)
                self._raise_level(inst)
                if netlist.master(inst).register:
                    self._update_register(inst, rows)
        for net in nets:
            if net >= n_nets or netlist.net_driver[net] < 0:
                self._clear_net(net)
            if net < n_nets:
                self._update_net(net, dirty, rows)
        self._propagate(dirty, rows)
        for row in sorted(rows):
            self._update_row(row)

    def mark(self) -> tuple[int, int, int]:
        """Return a mark of netlist and timing that `undo` goes back to."""
        self.update()
        return self.netlist.mark(), self._epoch, len(self._journal)

    def undo(self, mark: tuple[int, int, int]) -> None:
        """Take back the netlist's edits since a mark, and the times that followed from them.

        That costs no computation, unless everything was computed anew since the mark.
        """
        self.netlist.undo(mark[0])
        if mark[1] != self._epoch:
            self.update()
            return
        self._changes.take()
        while len(self._journal) > mark[2]:
            values, index, old = self._journal.pop()
            values[index] = old
        self._fresh = False

    def forget(self) -> None:
        """Drop the journals of netlist and timing: what was done until now cannot be undone any more."""
        self.update()
        self.netlist.forget()
        self._journal.clear()
        self._epoch += 1

    def _is_local(self) -> bool:
        """Return True if the waiting edits are few, and leave registers and an ideal clock network in place."""
        netlist = self.netlist
        n_insts = len(netlist.inst_name)
        size = len(netlist.net_name) + n_insts
        if len(self._changes.nets) + len(self._changes.insts) > 64 + size // 8:
            return False
        for inst in self._changes.insts:
            gone = inst >= n_insts or netlist.inst_master[inst] < 0
            if gone or not netlist.master(inst).register:
                if inst in self._inst_rows:
                    return False
                if not gone and any(netlist.pin_net[pin] in self._ideal for pin in netlist.input_pins(inst)):
                    return False
            elif inst not in self._inst_rows:
                return False
        return True

    def _put(self, values: list[Any], index: int, value: Any) -> None:
        self._journal.append((values, index, values[index]))
        values[index] = value

    def _grow(self, n_nets: int, n_insts: int, n_pins: int) -> None:
        nodes = 2 * n_nets - len(self._load)
        if nodes > 0:
            self._load += [0.0] * nodes
            self._slew += [0.0] * nodes
            for values in self._arrival:
                values += [-INF] * nodes
        pins = n_pins - len(self._wire)
        if pins > 0:
            self._wire += [0.0] * pins
            self._wide += [0.0] * pins
        insts = n_insts - len(self._inst_arcs)
        if insts > 0:
            self._inst_arcs += [None] * insts
            self._level += [0] * insts

    def _raise_level(self, inst: int) -> None:
        netlist = self.netlist
        level = 0
        for pin in netlist.input_pins(inst):
            net = netlist.pin_net[pin]
            driver = netlist.net_driver[net] if net >= 0 else -1
            if driver >= 0 and netlist.pin_inst[driver] >= 0:
                level = max(level, self._level[netlist.pin_inst[driver]] + 1)
        self._level[inst] = max(self._level[inst], level)

    def _clear_net(self, net: int) -> None:
        for node in (2 * net, 2 * net + 1):
            if node < len(self._slew):
                self._put(self._slew, node, 0.0)
                for values in self._arrival:
                    self._put(values, node, -INF)

    def _update_register(self, inst: int, rows: set[int]) -> None:
        """Take the tables of a register's new size."""
        first = self.netlist.inst_pin[inst]
        checks = {(c.data, c.data_edge, c.clock_edge, c.hold): c.table for c in self.netlist.master(inst).checks}
        for row in self._inst_rows[inst]:
            key = self._row_pin[row] - first, self._row_edge[row], self._row_clock_edge[row]
            self._put(self._row_table, row, checks[(*key, False)])
            self._put(self._row_hold, row, checks.get((*key, True), -1))
            rows.add(row)

    def _update_net(self, net: int, dirty: set[int], rows: set[int]) -> None:
        """Recompute load and wire delays of a net."""
        netlist = self.netlist
        caps = self._tables.cap_list
        wire = CLOCK_WIRE if netlist.net_clock[net] else SIGNAL_WIRE
        length = netlist.net_length[net]
        rise = fall = 0.0
        own = {}
        for pin in sorted(netlist.net_sinks[net]):
            inst = netlist.pin_inst[pin]
            cap = caps[netlist.inst_master[inst]][pin - netlist.inst_pin[inst]] if inst >= 0 else (0.0, 0.0)
            own[pin] = max(cap)
            rise += cap[RISE]
            fall += cap[FALL]
        rise += wire.capacitance * length
        fall += wire.capacitance * length
        if self._load[2 * net] != rise or self._load[2 * net + 1] != fall:
            self._put(self._load, 2 * net, rise)
            self._put(self._load, 2 * net + 1, fall)
            driver = netlist.net_driver[net]
            if driver >= 0 and netlist.pin_inst[driver] >= 0:
                dirty.add(netlist.pin_inst[driver])
        total = max(rise, fall)
        ideal = net in self._ideal
        for pin, cap_of_pin in own.items():
            if ideal:
                delay, wide = self.latency.get(pin, 0.0), 0.0
            else:
                path = netlist.pin_path[pin]
                delay = wire.resistance * (path if path >= 0 else length) * (total + cap_of_pin) * 0.5
                wide = SLEW_OF_RC * delay
                wide *= wide
            if self._wire[pin] != delay or self._wide[pin] != wide:
                self._put(self._wire, pin, delay)
                self._put(self._wide, pin, wide)
                self._reach(pin, dirty, rows)

    def _reach(self, pin: int, dirty: set[int], rows: set[int]) -> None:
        """Note what depends on the times at a sink."""
        found = self._pin_rows.get(pin)
        if found:
            rows.update(found)
        inst = self.netlist.pin_inst[pin]
        if inst >= 0:
            clock = self._tables.clock_pin[self.netlist.inst_master[inst]]
            if clock < 0 or pin - self.netlist.inst_pin[inst] == clock:
                dirty.add(inst)

    def _arcs_of(self, inst: int) -> list[tuple[int, float, list[tuple[int, int, int]]]]:
        """Return per output node: the node, its load base, and its arcs as (source node, source pin, table offset)."""
        netlist = self.netlist
        master = netlist.master(inst)
        first = netlist.inst_pin[inst]
        found: dict[int, tuple[int, float, list[tuple[int, int, int]]]] = {}
        for arc in master.arcs:
            into, out = netlist.pin_net[first + arc.source], netlist.pin_net[first + arc.target]
            if into < 0 or out < 0:
                continue
            node = 2 * out + arc.target_edge
            if node not in found:
                found[node] = (node, master.load_base[arc.target], [])
            table = -1 if into in self._ideal and not arc.launch else arc.table * 49
            found[node][2].append((2 * into + arc.source_edge, first + arc.source, table))
        return list(found.values())

    def _propagate(self, dirty: set[int], rows: set[int]) -> None:
        netlist, level = self.netlist, self._level
        sinks, pin_inst, inst_pin, inst_master = (
            netlist.net_sinks, netlist.pin_inst, netlist.inst_pin, netlist.inst_master
        )  # fmt: skip
        clock_pin, pin_rows = self._tables.clock_pin, self._pin_rows
        heap = [(level[inst], inst) for inst in dirty]
        heapq.heapify(heap)
        limit = len(netlist.inst_name) + 1
        while heap:
            here, inst = heapq.heappop(heap)
            if inst not in dirty or level[inst] != here:
                continue
            dirty.discard(inst)
            for net in self._evaluate(inst):
                for pin in sinks[net]:
                    found = pin_rows.get(pin)
                    if found:
                        rows.update(found)
                    other = pin_inst[pin]
                    if other < 0:
                        continue
                    clock = clock_pin[inst_master[other]]
                    if clock >= 0 and pin - inst_pin[other] != clock:
                        continue
                    if level[other] <= here:
                        level[other] = here + 1
                        if here > limit:
                            name = netlist.inst_name[other]
                            raise FlowError("the design has a combinational loop", field="timing", value=name)
                        dirty.discard(other)
                    if other not in dirty:
                        dirty.add(other)
                        heapq.heappush(heap, (level[other], other))

    def _evaluate(self, inst: int) -> list[int]:
        """Recompute the outputs of an instance; return the nets whose times changed."""
        arcs = self._inst_arcs[inst]
        if arcs is None:
            arcs = self._inst_arcs[inst] = self._arcs_of(inst)
        changed: list[int] = []
        arrival, slew, wire, wide, load = self._arrival, self._slew, self._wire, self._wide, self._load
        delays, slews = self._tables.delay, self._tables.slew
        first = arrival[0]
        single = len(arrival) == 1
        for node, base, sources in arcs:
            x = load[node] / base
            j = math.frexp(x)[1] - 1
            if j < 0:
                j = 0
            elif j > 5:
                j = 5
            t = x * HALVES[j] - 1.0
            best = [-INF] * len(arrival)
            latest, widest = -INF, 0.0
            for source, pin, table in sources:
                if single:
                    start = first[source]
                    if start == -INF:
                        continue
                elif all(values[source] == -INF for values in arrival):
                    continue
                if table < 0:
                    delay = out = 0.0
                else:
                    s = slew[source]
                    delay, out = bilinear(delays, slews, table + j, t, math.sqrt(s * s + wide[pin]))
                if single:
                    time = (start + wire[pin]) + delay
                    if time > latest:
                        latest = time
                else:
                    for k, values in enumerate(arrival):
                        time = (values[source] + wire[pin]) + delay
                        if time > best[k]:
                            best[k] = time
                if out > widest:
                    widest = out
            if single:
                if slew[node] == widest and first[node] == latest:
                    continue
                best[0] = latest
            if slew[node] != widest or any(values[node] != time for values, time in zip(arrival, best, strict=True)):
                self._put(slew, node, widest)
                for values, time in zip(arrival, best, strict=True):
                    self._put(values, node, time)
                if not changed or changed[-1] != node >> 1:
                    changed.append(node >> 1)
        return changed

    def _update_row(self, row: int) -> None:
        clocks = self.constraints.clocks
        pin, clock_pin = self._row_pin[row], self._row_clock[row]
        net = self.netlist.pin_net[pin]
        node = 2 * net + self._row_edge[row]
        number, time = self._row_time[row]
        best = [INF] * len(clocks)
        margin = 0.0
        clock_net = self.netlist.pin_net[clock_pin] if clock_pin >= 0 else -1
        clock_node = 2 * clock_net + self._row_clock_edge[row]
        if clock_net >= 0 and net >= 0:
            s, c = self._slew[node], self._slew[clock_node]
            margin = self._margin(
                self._row_table[row], math.sqrt(s * s + self._wide[pin]), math.sqrt(c * c + self._wide[clock_pin])
            )
        for tag_b, (b, eb) in enumerate(self._tags):
            if clock_pin < 0:
                if number != b or eb != RISE:
                    continue
                edge, taken = clocks[b].edge(RISE) + clocks[b].latency, time
            else:
                if clock_net < 0 or self._arrival[tag_b][clock_node] == -INF:
                    continue
                edge, taken = self._arrival[tag_b][clock_node] + self._wire[clock_pin], margin
            for tag_a, values in enumerate(self._arrival):
                shift = self._shift[tag_a][tag_b]
                if shift is None or net < 0:
                    continue
                data = values[node] + self._wire[pin]
                value = ((edge + shift) - (taken + clocks[b].setup_uncertainty)) - data
                if value < best[b]:
                    best[b] = value
        for b, value in enumerate(best):
            self._put(self._row_slack[b], row, value)

    def _margin(self, table: int, data_slew: float, clock_slew: float) -> float:
        values = self._tables.constraint
        x, y = data_slew * PER_SLEW, clock_slew * PER_SLEW
        i = min(max(math.frexp(x)[1] - 1, 0), 5)
        j = min(max(math.frexp(y)[1] - 1, 0), 5)
        u, t = x * HALVES[i] - 1.0, y * HALVES[j] - 1.0
        o = table * 49 + 7 * i + j
        low = values[o] + (values[o + 1] - values[o]) * t
        high = values[o + 7] + (values[o + 8] - values[o + 7]) * t
        return low + (high - low) * u

    # Results

    def worst_slack(self, clock: str | None = None) -> float:
        """Return the worst setup slack, ps: over all endpoints, or those that a clock captures; inf without any."""
        self.update()
        if clock is not None:
            return min(self._row_slack[self.constraints.clock_number(clock)], default=INF)
        return min((min(values, default=INF) for values in self._row_slack), default=INF)

    def effective_period(self) -> float:
        """Return the largest (period - worst slack) over the clocks, ps.

        Raises:
            FlowError: With `field` ``"timing"``, if no endpoint is checked against any clock.
        """
        clocks = self.constraints.clocks
        found = [c.period - slack for c in clocks if (slack := self.worst_slack(c.name)) < INF]
        if not found:
            raise FlowError("no path of the design is checked against a clock", field="timing")
        return max(found)

    @property
    def endpoints(self) -> list[int]:
        """Pins of all endpoints: data pins of registers in the order of instances, then output ports."""
        return list(dict.fromkeys(self._row_pin))

    def endpoint_slacks(self) -> np.ndarray:
        """Return the setup slack per endpoint of `endpoints`, ps; inf where no path is checked."""
        self.update()
        return self._per_endpoint(np.array(self._row_slack))

    def hold_slacks(self) -> np.ndarray:
        """Return the hold slack per endpoint of `endpoints`, ps; inf where no path is checked."""
        graph, load, wire = self._analysis()
        arrival, slew, _ = self._forward(graph, load, wire, early=True)
        return self._per_endpoint(self._all_row_slacks(arrival, slew, wire, hold=True))

    def _per_endpoint(self, rows: np.ndarray) -> np.ndarray:
        number = {pin: i for i, pin in enumerate(self.endpoints)}
        slack = np.full(len(number), INF)
        if len(number):
            np.minimum.at(slack, [number[pin] for pin in self._row_pin], rows.min(axis=0))
        return slack

    def total_negative_slack(self) -> float:
        """Return the sum of the negative endpoint slacks, ps (zero or below)."""
        return sum((slack for slack in self.endpoint_slacks().tolist() if slack < 0), 0.0)

    def arrival(self, net: int, edge: int) -> float:
        """Return the latest arrival at a net's driver over all launching clocks, ps; -inf if none."""
        self.update()
        return max(values[2 * net + edge] for values in self._arrival)

    def slew(self, net: int, edge: int) -> float:
        """Return the slew at a net's driver, ps."""
        self.update()
        return self._slew[2 * net + edge]

    def load(self, net: int, edge: int = RISE) -> float:
        """Return the load of a net's driver, fF."""
        self.update()
        return self._load[2 * net + edge]

    def loads(self) -> np.ndarray:
        """Return float64 (nets, 2): loads per edge, fF."""
        self.update()
        return np.array(self._load[: 2 * len(self.netlist.net_name)]).reshape(-1, 2)

    def slews(self) -> np.ndarray:
        """Return float64 (nets, 2): slews at the drivers per edge, ps; 0 where no path runs."""
        self.update()
        return np.array(self._slew[: 2 * len(self.netlist.net_name)]).reshape(-1, 2)

    def wire_delay(self, pin: int) -> float:
        """Return the wire delay to a sink, ps."""
        self.update()
        return self._wire[pin]

    def required(self) -> np.ndarray:
        """Return the latest allowed arrivals at the nets' drivers, float64 (launching edges, nodes), ps; inf: none."""
        graph, _, wire = self._analysis()
        arrival, slew, delay = self._arrays[2:]
        required = np.full(arrival.shape, INF)
        clocks = self.constraints.clocks
        spread = self._spread(graph, wire)
        for row, (pin, clock_pin) in enumerate(zip(self._row_pin, self._row_clock, strict=True)):
            net = int(graph.pin_net[pin])
            if net < 0:
                continue
            node = 2 * net + self._row_edge[row]
            number, time = self._row_time[row]
            clock_net = int(graph.pin_net[clock_pin]) if clock_pin >= 0 else -1
            clock_node = 2 * clock_net + self._row_clock_edge[row]
            if clock_net >= 0:
                s, c = float(slew[node]), float(slew[clock_node])
                time = self._margin(
                    self._row_table[row], math.sqrt(s * s + spread[pin]), math.sqrt(c * c + spread[clock_pin])
                )
            for tag_b, (b, eb) in enumerate(self._tags):
                if clock_pin < 0:
                    if number != b or eb != RISE:
                        continue
                    edge = clocks[b].edge(RISE) + clocks[b].latency
                elif clock_net < 0 or arrival[tag_b, clock_node] == -INF:
                    continue
                else:
                    edge = arrival[tag_b, clock_node] + wire[clock_pin]
                for tag_a in range(len(self._tags)):
                    shift = self._shift[tag_a][tag_b]
                    if shift is not None:
                        limit = edge + shift - (time + clocks[b].setup_uncertainty) - wire[pin]
                        required[tag_a, node] = min(required[tag_a, node], limit)
        for order, begin, nodes in reversed(graph.back):
            value = required[:, graph.target[order]] - (delay[order] + wire[graph.pin[order]])
            required[:, nodes] = np.minimum(required[:, nodes], np.minimum.reduceat(value, begin, axis=1))
        return required

    def node_times(self) -> tuple[list[float], list[float], list[float], list[float], list[float]]:
        """Return arrival, slew, required time and load per node and the wire delay per pin, ps and fF.

        Arrival and required time of a node are those of the launching edge that leaves it the least slack.
        """
        required = self.required()
        load, wire, arrival, slew, _ = self._arrays
        if len(arrival) == 1:
            return arrival[0].tolist(), slew.tolist(), required[0].tolist(), load.tolist(), wire.tolist()
        with np.errstate(invalid="ignore"):
            slack = np.where((arrival > -INF) & (required < INF), required - arrival, INF)
        tag = slack.argmin(axis=0)
        nodes = np.arange(arrival.shape[1])
        late = np.where(np.isfinite(slack.min(axis=0)), arrival[tag, nodes], arrival.max(axis=0))
        return late.tolist(), slew.tolist(), required[tag, nodes].tolist(), load.tolist(), wire.tolist()

    def endpoint_edge_slacks(self) -> dict[int, tuple[float, float]]:
        """Return per endpoint the slack of its rising and falling data edge, ps; inf where none is checked."""
        self.update()
        found: dict[int, tuple[float, float]] = {}
        for row, pin in enumerate(self._row_pin):
            slack = min(values[row] for values in self._row_slack)
            rise, fall = found.get(pin, (INF, INF))
            found[pin] = (min(rise, slack), fall) if self._row_edge[row] == RISE else (rise, min(fall, slack))
        return found

    def spreads(self) -> np.ndarray:
        """Return float64 (pins,): what the wire to each sink adds to the square of the slew, ps^2."""
        self.update()
        return np.array(self._wide[: len(self.netlist.pin_net)])

    def levels(self) -> np.ndarray:
        """Return int64 (nets,): each net's longest distance from a port or a constant, in gates."""
        return self._analysis()[0].level

    def net_slacks(self) -> np.ndarray:
        """Return the worst setup slack of the paths through each net, ps; inf where none runs."""
        required = self.required()
        arrival = self._arrays[2]
        slack = np.where((arrival > -INF) & (required < INF), required - np.where(arrival > -INF, arrival, 0.0), INF)
        return slack.min(axis=0).reshape(-1, 2).min(axis=1)

    def inst_slacks(self) -> np.ndarray:
        """Return per instance the worst setup slack through its outputs, ps; inf where no path runs."""
        nets = self.net_slacks().tolist()
        netlist = self.netlist
        slack = np.full(len(netlist.inst_name), INF)
        for inst in netlist.instances():
            driven = [netlist.pin_net[pin] for pin in netlist.output_pins(inst)]
            slack[inst] = min((nets[net] for net in driven if net >= 0), default=INF)
        return slack

    def _analysis(self) -> tuple[Graph, np.ndarray, np.ndarray]:
        """Return graph, loads and wire delays of the netlist as it is; the journal stays."""
        self.update()
        if not self._fresh:
            self._graph = Graph(self.netlist, self._starts)
            load, wire = self._loads(self._graph)
            self._arrays = (load, wire, *self._forward(self._graph, load, wire, early=False))
            self._fresh = True
        return self._graph, self._arrays[0], self._arrays[1]

    def worst_endpoint(self) -> int:
        """Return the endpoint with the worst setup slack (the first of equal ones).

        Raises:
            FlowError: If there is no endpoint.
        """
        slacks = self.endpoint_slacks()
        if not len(slacks) or not np.isfinite(slacks.min()):
            raise FlowError("no path of the design is checked against a clock", field="timing")
        return self.endpoints[int(np.argmin(slacks))]

    def path(self, endpoint: int | None = None) -> Path:
        """Return the worst path to an endpoint (the worst endpoint by default)."""
        self.update()
        if endpoint is None:
            endpoint = self.worst_endpoint()
        clocks = self.constraints.clocks
        best: tuple[float, int, int, float] | None = None
        for row in self._pin_rows.get(endpoint, ()):
            if self._row_pin[row] != endpoint:
                continue
            node = 2 * self.netlist.pin_net[endpoint] + self._row_edge[row]
            slack = min(values[row] for values in self._row_slack)
            if slack < INF and (best is None or slack < best[0]):
                tag = self._worst_tag(row, node, slack)
                best = (slack, node, tag, self._arrival[tag][node] + self._wire[endpoint])
        if best is None or not clocks:
            raise FlowError("no path to the endpoint is checked", field="timing", value=self.netlist.pin_name(endpoint))
        slack, node, tag, arrival = best
        inst = max(self.netlist.pin_inst[endpoint], -1)
        edge = node & 1
        end = Stage(inst, endpoint, edge, endpoint, edge, self._wire[endpoint], 0.0, arrival, self._slew[node], 0.0)
        return Path(endpoint, slack, arrival, arrival + slack, (*self._trace(node, tag), end))

    def _worst_tag(self, row: int, node: int, slack: float) -> int:
        """Return the launching edge whose arrival makes a row's slack."""
        clocks = self.constraints.clocks
        if len(self._tags) == 1:
            return 0
        saved = self._arrival
        fallback = 0
        for tag in range(len(self._tags)):
            if saved[tag][node] == -INF:
                continue
            fallback = tag
            for tag_b, (b, eb) in enumerate(self._tags):
                shift = self._shift[tag][tag_b]
                number, time = self._row_time[row]
                clock_pin = self._row_clock[row]
                if shift is None:
                    continue
                if clock_pin < 0:
                    if number != b or eb != RISE:
                        continue
                    edge = clocks[b].edge(RISE) + clocks[b].latency
                else:
                    clock_node = 2 * self.netlist.pin_net[clock_pin] + self._row_clock_edge[row]
                    if saved[tag_b][clock_node] == -INF:
                        continue
                    edge = saved[tag_b][clock_node] + self._wire[clock_pin]
                    s, c = self._slew[node], self._slew[clock_node]
                    pin = self._row_pin[row]
                    time = self._margin(
                        self._row_table[row],
                        math.sqrt(s * s + self._wide[pin]),
                        math.sqrt(c * c + self._wide[clock_pin]),
                    )
                data = saved[tag][node] + self._wire[self._row_pin[row]]
                if ((edge + shift) - (time + clocks[b].setup_uncertainty)) - data == slack:
                    return tag
        return fallback

    def _trace(self, node: int, tag: int) -> list[Stage]:
        """Return the stages of the latest path to a node."""
        netlist = self.netlist
        arrival = self._arrival[tag]
        stages: list[Stage] = []
        while True:
            net = node >> 1
            driver = netlist.net_driver[net]
            inst = netlist.pin_inst[driver]
            here = arrival[node], self._slew[node], self._load[node]
            if inst < 0:
                stages.append(Stage(-1, -1, -1, driver, node & 1, 0.0, 0.0, *here))
                break
            arcs = self._inst_arcs[inst]
            if arcs is None:
                arcs = self._inst_arcs[inst] = self._arcs_of(inst)
            base, sources = next((base, sources) for target, base, sources in arcs if target == node)
            found = None
            for source, pin, table in sources:
                if arrival[source] == -INF:
                    continue
                delay = 0.0
                if table >= 0:
                    x = self._load[node] / base
                    j = min(max(math.frexp(x)[1] - 1, 0), 5)
                    s = self._slew[source]
                    delay, _ = bilinear(
                        self._tables.delay, self._tables.slew, table + j, x * HALVES[j] - 1.0,
                        math.sqrt(s * s + self._wide[pin]),
                    )  # fmt: skip
                time = (arrival[source] + self._wire[pin]) + delay
                if found is None or time > found[0]:
                    found = (time, source, pin, delay)
            if found is None:
                break
            _, source, pin, delay = found
            stages.append(Stage(inst, pin, source & 1, driver, node & 1, self._wire[pin], delay, *here))
            node = source
        return stages[::-1]

    def evaluate(
        self, inst: int, master: int | None = None, load_change: float = 0.0
    ) -> dict[int, tuple[float, float]]:
        """Return what an instance's outputs would be with another size or load, its inputs as they are.

        Args:
            inst: The instance.
            master: Another cell of its family; None for its own.
            load_change: Added to the load of every output, fF.

        Returns:
            Node -> (latest arrival over all launching clocks, slew), ps.
        """
        self.update()
        netlist = self.netlist
        cell = netlist.technology.masters[netlist.inst_master[inst] if master is None else master]
        first = netlist.inst_pin[inst]
        found: dict[int, tuple[float, float]] = {}
        for arc in cell.arcs:
            into, out = netlist.pin_net[first + arc.source], netlist.pin_net[first + arc.target]
            if into < 0 or out < 0:
                continue
            source, node, pin = 2 * into + arc.source_edge, 2 * out + arc.target_edge, first + arc.source
            start = max(values[source] for values in self._arrival)
            if start == -INF:
                continue
            s = self._slew[source]
            delay, slew = look_up(
                netlist.technology, arc.table, math.sqrt(s * s + self._wide[pin]), self._load[node] + load_change,
                cell.load_base[arc.target],
            )  # fmt: skip
            time, wide = found.get(node, (-INF, 0.0))
            found[node] = (max(time, start + self._wire[pin] + delay), max(wide, slew))
        return found

    def describe(self, path: Path) -> list[str]:
        """Return a path as text lines: arrival, delay, slew, load, pin and cell of every stage."""
        netlist = self.netlist
        lines = [f"{'arrival':>9} {'delay':>8} {'slew':>8} {'load':>7}  pin"]
        for stage in path.stages:
            mark = "v^"[stage.edge_out == RISE]
            cell = f" ({netlist.master(stage.inst).name})" if stage.inst >= 0 else ""
            step = stage.wire + stage.delay
            lines.append(
                f"{stage.arrival:9.2f} {step:8.2f} {stage.slew:8.2f} {stage.load:7.3f}"
                f"  {mark} {netlist.pin_name(stage.pin_out)}{cell}"
            )
        return [*lines, f"required {path.required:.2f}, slack {path.slack:.2f}"]
