"""What an edit would do to the timing near it, estimated gate by gate without touching the netlist.

`LocalTimer` looks from the gates that drive a gate's inputs to the gates behind its sinks: it recomputes delay and slew
of that neighbourhood from the library's tables and compares the worst slack there before and after. All times are ps,
loads fF. The full timing engine has the last word on every edit; this only ranks them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from math import frexp
from typing import NamedTuple

from edagym.envs.ppa.flow.netlist import Netlist
from edagym.envs.ppa.flow.sta import Timing
from edagym.envs.ppa.flow.timing_graph import HALVES
from edagym.envs.ppa.flow.wires import TREE_FACTOR, Places
from edagym.task_assets.ppa.technology import SIGNAL_WIRE, SLEW_AXIS, Master, Technology

INF = math.inf
_FIRST_SLEW = float(SLEW_AXIS[0])
Pair = tuple[float, float]
"""A value per edge: rise, fall."""
FAR = 25.0
"""Sinks with this much more slack than the worst one are only shifted, not looked through, ps."""


class Tables:
    """The technology's delay tables as nested lists: a lookup of one point is faster there than in an array."""

    _cache: dict[str, Tables] = {}  # noqa: RUF012

    def __init__(self, technology: Technology) -> None:
        self.pairs: list[list[list[list[float]]]] = technology.pairs.tolist()
        self.arcs: list[dict[int, tuple[tuple[int, int, int, int, float], ...]]] = []
        self.through: list[dict[int, tuple[tuple[int, int, int, int, float], ...]]] = []
        for master in technology.masters:
            by_target: dict[int, list[tuple[int, int, int, int, float]]] = {}
            by_source: dict[int, list[tuple[int, int, int, int, float]]] = {}
            for a in master.arcs:
                base = master.load_base[a.target]
                by_target.setdefault(a.target, []).append((a.source, a.source_edge, a.target_edge, a.table, base))
                if not a.launch:
                    by_source.setdefault(a.source, []).append((a.source_edge, a.target, a.target_edge, a.table, base))
            self.arcs.append({k: tuple(v) for k, v in by_target.items()})
            self.through.append({k: tuple(v) for k, v in by_source.items()})

    @classmethod
    def of(cls, technology: Technology) -> Tables:
        """Return the tables of a technology, made once per process."""
        if technology.digest not in cls._cache:
            cls._cache[technology.digest] = cls(technology)
        return cls._cache[technology.digest]


def look(table: list[list[list[float]]], slew: float, ratio: float) -> tuple[float, float]:
    """Return delay and output slew at an input slew (ps) and a load in multiples of the table's first load.

    Bilinear between the points and beyond them, as the timing engine has it.
    """
    x = slew / _FIRST_SLEW
    # The innermost loop of repair: branches are much cheaper than min and max here.
    i = frexp(x)[1] - 1 if x > 0.0 else 0
    if i < 0:
        i = 0
    elif i > 5:
        i = 5
    j = frexp(ratio)[1] - 1 if ratio > 0.0 else 0
    if j < 0:
        j = 0
    elif j > 5:
        j = 5
    fx, fy = x * HALVES[i] - 1.0, ratio * HALVES[j] - 1.0
    low, high = table[i], table[i + 1]
    a, b, c, d = low[j], low[j + 1], high[j], high[j + 1]
    gx, gy = 1.0 - fx, 1.0 - fy
    p, q, r, s = gx * gy, gx * fy, fx * gy, fx * fy
    return p * a[0] + q * b[0] + r * c[0] + s * d[0], p * a[1] + q * b[1] + r * c[1] + s * d[1]


class Edges(NamedTuple):
    """Arrival and slew of both edges at one place."""

    rise: float
    fall: float
    rise_slew: float
    fall_slew: float


class LocalTimer:
    """Estimates around one gate, from the times that the timing engine found last.

    Args:
        netlist: The design; may be edited afterwards, as long as the gates asked for are not.
        places: Where its instances lie.
        timing: The engine, whose times at this moment are taken.

    Attributes:
        arrival: Per node (``2 * net + edge``): latest arrival, ps; ``-inf`` where nothing arrives.
        slew: Per node, ps.
        required: Per node, ps; ``inf`` where nothing is required.
        load: Per node, fF.
        wire: Per pin: wire delay to it, ps.
        endpoints: Endpoint pin -> required arrival there per edge, ps.
    """

    def __init__(self, netlist: Netlist, places: Places, timing: Timing) -> None:
        self.netlist = netlist
        self.places = places
        self.arrival, self.slew, self.required, self.load, self.wire = timing.node_times()
        self._tables = Tables.of(netlist.technology)
        self._masters = netlist.technology.masters
        self._slacks: dict[int, Pair] = {}
        self.endpoints: dict[int, Pair] = {}
        for pin, (rise, fall) in timing.endpoint_edge_slacks().items():
            at = self.input(pin)
            self.endpoints[pin] = (at.rise + rise if rise < INF else INF, at.fall + fall if fall < INF else INF)

    def known(self, inst: int) -> bool:
        """Return whether all nets of an instance have times."""
        return all(2 * self.netlist.pin_net[p] + 1 < len(self.arrival) for p in self.netlist.pins(inst))

    # -- what is now ---------------------------------------------------------------------------------------------------

    def input(self, pin: int) -> Edges:
        """Return arrival and slew at an input pin."""
        node, wire = 2 * self.netlist.pin_net[pin], self.wire[pin]
        if node < 0:
            return Edges(-INF, -INF, 0.0, 0.0)
        spread = (2.1972245773362196 * wire) ** 2
        rise, fall = self.slew[node], self.slew[node + 1]
        return Edges(
            self.arrival[node] + wire,
            self.arrival[node + 1] + wire,
            math.sqrt(rise * rise + spread),
            math.sqrt(fall * fall + spread),
        )

    def pin_slack(self, pin: int) -> Pair:
        """Return the slack at a sink pin per edge, looking one gate ahead."""
        found = self._slacks.get(pin)
        if found is None:
            found = self._slacks[pin] = self._ahead(pin, self.input(pin))
        return found

    def net_slack(self, net: int) -> float:
        """Return the worst slack of a net."""
        node = 2 * net
        return min(
            self.required[node] - self.arrival[node] if self.arrival[node] > -INF else INF,
            self.required[node + 1] - self.arrival[node + 1] if self.arrival[node + 1] > -INF else INF,
        )

    def _ahead(self, pin: int, at: Edges) -> Pair:
        ends = self.endpoints.get(pin)
        inst = self.netlist.pin_inst[pin]
        if ends is not None or inst < 0:
            ends = ends or (INF, INF)
            return ends[0] - at.rise, ends[1] - at.fall
        first = self.netlist.inst_pin[inst]
        rise = fall = INF
        pairs, pin_net, requireds, loads = self._tables.pairs, self.netlist.pin_net, self.required, self.load
        known = len(requireds)
        for edge, target, target_edge, table, base in self._tables.through[self.netlist.inst_master[inst]].get(
            pin - first, ()
        ):
            net = pin_net[first + target]
            node = 2 * net + target_edge
            if net < 0 or node >= known:
                continue
            required = requireds[node]
            arrival = at.fall if edge else at.rise
            if required == INF or arrival == -INF:
                continue
            delay, _ = look(pairs[table], at.fall_slew if edge else at.rise_slew, loads[node] / base)
            slack = required - (arrival + delay)
            if edge:
                if slack < fall:
                    fall = slack
            elif slack < rise:
                rise = slack
        return rise, fall

    def path(self, endpoint: int) -> list[int]:
        """Return the gates on the worst path to an endpoint, from the end, up to the register that launches it."""
        netlist = self.netlist
        at = self.input(endpoint)
        ends = self.endpoints.get(endpoint, (INF, INF))
        edge = 0 if ends[0] - at.rise <= ends[1] - at.fall else 1
        gates: list[int] = []
        pin = endpoint
        while netlist.pin_net[pin] >= 0:
            driver = netlist.net_driver[netlist.pin_net[pin]]
            inst = netlist.pin_inst[driver] if driver >= 0 else -1
            if inst < 0 or len(gates) > 500:
                break
            gates.append(inst)
            if netlist.master(inst).register is not None:
                break
            found = self._worst_input(inst, driver - netlist.inst_pin[inst], edge)
            if found is None:
                break
            pin, edge = found
        return gates

    def _worst_input(self, inst: int, offset: int, edge: int) -> tuple[int, int] | None:
        first = self.netlist.inst_pin[inst]
        node = 2 * self.netlist.pin_net[first + offset] + edge
        best: tuple[float, int, int] | None = None
        for source, source_edge, target_edge, table, base in self._tables.arcs[self.netlist.inst_master[inst]][offset]:
            if target_edge != edge:
                continue
            at = self.input(first + source)
            arrival = at.fall if source_edge else at.rise
            slew = at.fall_slew if source_edge else at.rise_slew
            if arrival == -INF:
                continue
            total = arrival + look(self._tables.pairs[table], slew, self.load[node] / base)[0]
            if best is None or total > best[0]:
                best = (total, first + source, source_edge)
        return None if best is None else best[1:]

    # -- what would be -------------------------------------------------------------------------------------------------

    def output(
        self,
        inst: int,
        offset: int,
        load: Pair,
        master: int | None = None,
        inputs: dict[int, Edges] | None = None,
    ) -> Edges:
        """Return arrival and slew at an output of a gate.

        Args:
            inst: The gate.
            offset: Its output pin's position in the master.
            load: Load per edge, fF.
            master: Another master in its place.
            inputs: Input position -> other arrival and slew there.
        """
        netlist = self.netlist
        first = netlist.inst_pin[inst]
        pairs = self._tables.pairs
        best, slews = [-INF, -INF], [0.0, 0.0]
        cache: dict[int, Edges] = dict(inputs) if inputs else {}
        arcs = self._tables.arcs[netlist.inst_master[inst] if master is None else master].get(offset, ())
        for source, edge, target_edge, table, base in arcs:
            at = cache.get(source)
            if at is None:
                at = cache[source] = self.input(first + source)
            arrival = at.fall if edge else at.rise
            if arrival == -INF:
                continue
            delay, slew = look(pairs[table], at.fall_slew if edge else at.rise_slew, load[target_edge] / base)
            if arrival + delay > best[target_edge]:
                best[target_edge] = arrival + delay
            if slew > slews[target_edge]:
                slews[target_edge] = slew
        return Edges(best[0], best[1], slews[0], slews[1])

    def through_buffer(self, master: Master, at: Edges, load: Pair) -> Edges:
        """Return arrival and slew behind a buffer of a given master."""
        best, slews = [-INF, -INF], [0.0, 0.0]
        for _, edge, target_edge, table, base in self._tables.arcs[master.index][1]:
            arrival = at.fall if edge else at.rise
            if arrival == -INF:
                continue
            delay, slew = look(
                self._tables.pairs[table], at.fall_slew if edge else at.rise_slew, load[target_edge] / base
            )
            best[target_edge] = max(best[target_edge], arrival + delay)
            slews[target_edge] = max(slews[target_edge], slew)
        return Edges(best[0], best[1], slews[0], slews[1])

    def caps(self, pins: Iterable[int]) -> Pair:
        """Return the summed capacitance of input pins per edge, fF."""
        rise = fall = 0.0
        netlist = self.netlist
        for pin in pins:
            inst = netlist.pin_inst[pin]
            if inst >= 0:
                cap = self._masters[netlist.inst_master[inst]].cap[pin - netlist.inst_pin[inst]]
                rise += cap[0]
                fall += cap[1]
        return rise, fall

    def wire_length(self, points: Sequence[tuple[float, float]]) -> float:
        """Return the wire length of a net with pins at points (nm), um."""
        xs, ys = [p[0] for p in points], [p[1] for p in points]
        return (max(xs) - min(xs) + max(ys) - min(ys)) / 1000 * (1 + TREE_FACTOR * max(len(points) - 3, 0))

    def sinks_slack(self, net: int, before: Edges, after: Edges, skip: Iterable[int] = ()) -> float:
        """Return the worst slack of a net's sinks if its driver's times changed."""
        sinks = self.netlist.net_sinks[net]
        left_out = set(skip)
        slacks = [(min(self.pin_slack(p)), p) for p in sinks if p not in left_out]
        if not slacks:
            return INF
        worst = min(slacks)[0]
        found = INF
        rise, fall = _change(before.rise, after.rise), _change(before.fall, after.fall)
        for slack, pin in slacks:
            if slack > worst + FAR:
                found = min(found, slack - max(rise, fall, 0.0))
                continue
            value = self._ahead(pin, self._at_sink(pin, after))
            found = min(found, value[0], value[1])
        return found

    def _at_sink(self, pin: int, at: Edges, wire: float | None = None) -> Edges:
        wire = self.wire[pin] if wire is None else wire
        spread = (2.1972245773362196 * wire) ** 2
        return Edges(
            at.rise + wire,
            at.fall + wire,
            math.sqrt(at.rise_slew * at.rise_slew + spread),
            math.sqrt(at.fall_slew * at.fall_slew + spread),
        )

    def net_edges(self, net: int) -> Edges:
        """Return arrival and slew at a net's driver."""
        node = 2 * net
        return Edges(self.arrival[node], self.arrival[node + 1], self.slew[node], self.slew[node + 1])

    def net_load(self, net: int) -> Pair:
        """Return the load of a net, fF."""
        return self.load[2 * net], self.load[2 * net + 1]

    def _behind(self, net: int, extra: Pair) -> Edges:
        """Return the times at a net's driver if the net had more (or less) load."""
        driver = self.netlist.net_driver[net]
        inst = self.netlist.pin_inst[driver]
        if inst < 0:
            return self.net_edges(net)
        load = self.load[2 * net] + extra[0], self.load[2 * net + 1] + extra[1]
        return self.output(inst, driver - self.netlist.inst_pin[inst], load)

    def _inputs_after(self, inst: int, extra: dict[int, Pair]) -> tuple[dict[int, Edges], float]:
        """Return the times at a gate's inputs if its pins loaded their nets differently, and the other sinks' slack.

        Args:
            inst: The gate.
            extra: Input position -> change of capacitance per edge, fF.
        """
        netlist = self.netlist
        first = netlist.inst_pin[inst]
        by_net: dict[int, list[int]] = {}
        for offset in extra:
            net = netlist.pin_net[first + offset]
            if net >= 0:
                by_net.setdefault(net, []).append(offset)
        inputs: dict[int, Edges] = {}
        side = INF
        for net, offsets in by_net.items():
            change = sum(extra[o][0] for o in offsets), sum(extra[o][1] for o in offsets)
            before = self.net_edges(net)
            if abs(change[0]) + abs(change[1]) < 1e-9 or netlist.net_clock[net]:
                continue
            after = self._behind(net, change)
            own = [first + o for o in offsets]
            for offset in offsets:
                inputs[offset] = self._at_sink(first + offset, after)
            if len(netlist.net_sinks[net]) > len(own):
                side = min(side, self.sinks_slack(net, before, after, own))
        return inputs, side

    def now(self, inst: int) -> float:
        """Return the worst slack around a gate as it is: behind its outputs, looking one gate ahead."""
        worst = INF
        for pin in self.netlist.output_pins(inst):
            net = self.netlist.pin_net[pin]
            if net >= 0:
                for sink in self.netlist.net_sinks[net]:
                    worst = min(worst, *self.pin_slack(sink))
        return worst

    def resized(self, inst: int, master: int) -> float:
        """Return the worst slack around a gate if it had another master of its family."""
        old, new = self._masters[self.netlist.inst_master[inst]], self._masters[master]
        extra = {i: (new.cap[i][0] - old.cap[i][0], new.cap[i][1] - old.cap[i][1]) for i in range(new.n_inputs)}
        inputs, worst = self._inputs_after(inst, extra)
        for pin in self.netlist.output_pins(inst):
            net = self.netlist.pin_net[pin]
            if net >= 0 and self.netlist.net_sinks[net]:
                offset = pin - self.netlist.inst_pin[inst]
                after = self.output(inst, offset, self.net_load(net), master, inputs)
                worst = min(worst, self.sinks_slack(net, self.net_edges(net), after))
        return worst

    def pins_swapped(self, inst: int, first: int, second: int) -> float:
        """Return the worst slack behind a gate if two of its inputs (positions) changed nets."""
        start = self.netlist.inst_pin[inst]
        inputs = {first: self.input(start + second), second: self.input(start + first)}
        worst = INF
        for pin in self.netlist.output_pins(inst):
            net = self.netlist.pin_net[pin]
            if net >= 0 and self.netlist.net_sinks[net]:
                after = self.output(inst, pin - start, self.net_load(net), None, inputs)
                worst = min(worst, self.sinks_slack(net, self.net_edges(net), after))
        return worst

    def buffered(self, inst: int, net: int, behind: Sequence[int], master: Master) -> float:
        """Return the worst slack of a net's sinks if a buffer stood between its driver and some of them.

        Args:
            inst: The gate that drives the net.
            net: The net.
            behind: Sinks to put behind the buffer, which stands at their middle.
            master: The buffer's cell.
        """
        netlist, places = self.netlist, self.places
        moved = set(behind)
        direct = [pin for pin in netlist.net_sinks[net] if pin not in moved]
        driver = netlist.net_driver[net]
        points = [places.at(pin) for pin in behind]
        middle = (
            (min(p[0] for p in points) + max(p[0] for p in points)) / 2,
            (min(p[1] for p in points) + max(p[1] for p in points)) / 2,
        )
        start = places.at(driver)
        first_wire = self.wire_length([start, middle, *(places.at(pin) for pin in direct)])
        second_wire = self.wire_length([middle, *points])
        rise, fall = self.caps(direct)
        wire = SIGNAL_WIRE.capacitance * first_wire
        load = rise + master.cap[0][0] + wire, fall + master.cap[0][1] + wire
        at = self.output(inst, driver - netlist.inst_pin[inst], load)
        worst = self._subset_slack(direct, at, load, start)
        rise, fall = self.caps(behind)
        wire = SIGNAL_WIRE.capacitance * second_wire
        far_load = rise + wire, fall + wire
        delay = self._elmore(start, middle, max(load), max(master.cap[0]))
        beyond = self.through_buffer(master, self._at_sink(-1, at, delay), far_load)
        return min(worst, self._subset_slack(behind, beyond, far_load, middle))

    def cloned(self, inst: int, net: int, behind: Sequence[int]) -> float:
        """Return the worst slack if a copy of a gate with one output drove some of its sinks."""
        netlist, places = self.netlist, self.places
        master = self._masters[netlist.inst_master[inst]]
        moved = set(behind)
        direct = [pin for pin in netlist.net_sinks[net] if pin not in moved]
        extra = {i: master.cap[i] for i in range(master.n_inputs)}
        inputs, worst = self._inputs_after(inst, extra)
        driver = netlist.net_driver[net]
        offset = driver - netlist.inst_pin[inst]
        start = places.at(driver)
        for pins in (direct, list(behind)):
            wire = SIGNAL_WIRE.capacitance * self.wire_length([start, *(places.at(pin) for pin in pins)])
            rise, fall = self.caps(pins)
            load = rise + wire, fall + wire
            at = self.output(inst, offset, load, None, inputs)
            worst = min(worst, self._subset_slack(pins, at, load, start))
        return worst

    def unbuffered(self, inst: int) -> float:
        """Return the worst slack if a buffer were taken out and its input's net drove its sinks."""
        netlist, places = self.netlist, self.places
        into = netlist.pin_net[netlist.inst_pin[inst]]
        out = netlist.pin_net[netlist.output_pins(inst)[0]]
        driver = netlist.net_driver[into]
        gate = netlist.pin_inst[driver]
        if gate < 0:
            return -INF
        pins = [p for p in netlist.net_sinks[into] if netlist.pin_inst[p] != inst] + list(netlist.net_sinks[out])
        start = places.at(driver)
        length = self.wire_length([start, *(places.at(pin) for pin in pins)])
        rise, fall = self.caps(pins)
        wire = SIGNAL_WIRE.capacitance * length
        load = rise + wire, fall + wire
        at = self.output(gate, driver - netlist.inst_pin[gate], load)
        return self._subset_slack(pins, at, load, start)

    def _subset_slack(self, pins: Sequence[int], at: Edges, load: Pair, start: tuple[float, float]) -> float:
        worst = INF
        if not pins:
            return worst
        slacks = [min(self.pin_slack(pin)) for pin in pins]
        limit = min(slacks) + 2 * FAR
        total = max(load)
        for slack, pin in zip(slacks, pins, strict=True):
            own = max(self.caps((pin,)))
            arrival = self._at_sink(pin, at, self._elmore(start, self.places.at(pin), total, own))
            if slack > limit:
                now = self.input(pin)
                change = max(_change(now.rise, arrival.rise), _change(now.fall, arrival.fall), 0.0)
                worst = min(worst, slack - change)
                continue
            value = self._ahead(pin, arrival)
            worst = min(worst, value[0], value[1])
        return worst

    @staticmethod
    def _elmore(start: tuple[float, float], end: tuple[float, float], total: float, own: float) -> float:
        run = (abs(start[0] - end[0]) + abs(start[1] - end[1])) / 1000
        return SIGNAL_WIRE.resistance * run * (total + own) * 0.5


def _change(before: float, after: float) -> float:
    return after - before if before > -INF and after > -INF else 0.0
