"""Simulated comparison of two designs in the three ways that PostEDA-Bench's Appendix D.5 asks for.

Combinational designs are compared vector by vector, valid/ready designs transfer by transfer, pipelined ones cycle by
cycle under a latency offset. Every stimulus runs in three replicas that differ only in what is unknown (registers at
power-up, undefined nets): all 0, all 1, random. Where the replicas of the original disagree, its value is undefined and
asks nothing of the modified design; everywhere else all replicas of the modified design must have the original's value,
so that a design cannot lean on a register that nothing sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from edagym.task_assets.ppa.designs import Channel, Interface
from edagym.verifiers.ppa.miter import initial_name
from edagym.verifiers.ppa.rtl import Netlist
from edagym.verifiers.ppa.simulate import Lanes, Simulator, lane_value, pack
from edagym.verifiers.ppa.stimulus import random_planes

MAX_LATENCY = 16
"""Largest latency offset, cycles (Appendix D.5)."""
WARM_UP = 8
"""Cycles under reset before anything is compared (Appendix D.5)."""
DRAIN = 64
"""Cycles after the last transfer of the original in which no further one may come."""
REPLICAS = 3

Planes = Mapping[str, Sequence[Lanes]]


@dataclass(frozen=True)
class Counterexample:
    """The first difference that was found.

    Attributes:
        stimulus: Name of the stimulus.
        cycle: Cycle of the original (combinational: 0; valid/ready: number of the transfer in its channel).
        lane: Lane of the simulation.
        port: Output port.
        expected: The original's value, or None if it has none there.
        found: The modified design's value, or None if it has none there.
        inputs: Input values at that cycle (valid/ready: the data of the request of the same number).
    """

    stimulus: str
    cycle: int
    lane: int
    port: str
    expected: int | None
    found: int | None
    inputs: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        def show(value: int | None) -> str:
            return "nothing" if value is None else f"{value:#x}"

        given = ", ".join(f"{name}={value:#x}" for name, value in self.inputs.items())
        return (
            f"{self.stimulus}, cycle {self.cycle}, lane {self.lane}: {self.port} is {show(self.found)}, "
            f"expected {show(self.expected)}" + (f" with {given}" if given else "")
        )


@dataclass(frozen=True)
class Comparison:
    """Outcome of one simulated comparison: the difference if any, the latency offset, and compared events."""

    difference: Counterexample | None
    latency: int | None
    events: int


def replicate(value: Lanes, lanes: int) -> Lanes:
    """Return a value in all replicas."""
    return value | value << lanes | value << 2 * lanes


def _first_lane(mask: Lanes) -> int:
    return (mask & -mask).bit_length() - 1


def power_up(simulator: Simulator, lanes: int, rng: np.random.Generator) -> None:
    """Set what is unknown: 0 in the first replica, 1 in the second, random in the third."""
    ones = ((1 << lanes) - 1) << lanes
    simulator.power_up(lambda: ones | random_planes(1, lanes, rng)[0] << 2 * lanes)


class _Judge:
    """Compares planes of the original with planes of the modified design over the replicas."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.mask = (1 << lanes) - 1

    def differs(self, expected: Lanes, found: Lanes) -> Lanes:
        """Return the lanes in which a defined bit of the original differs in any replica of the modified design."""
        n, mask = self.lanes, self.mask
        first = expected & mask
        undefined = (first ^ (expected >> n)) | (first ^ (expected >> 2 * n))
        wrong = (first ^ found) | (first ^ (found >> n)) | (first ^ (found >> 2 * n))
        return wrong & ~undefined & mask

    def value(self, expected: Sequence[Lanes], found: Sequence[Lanes], lane: int) -> int:
        """Return the modified design's value in the replica of a lane that shows the difference."""
        for k in range(REPLICAS):
            shifted = [plane >> k * self.lanes for plane in found]
            for e, f in zip(expected, shifted):
                bits = {e >> lane + r * self.lanes & 1 for r in range(REPLICAS)}
                if len(bits) == 1 and f >> lane & 1 not in bits:
                    return lane_value(shifted, lane)
        return lane_value(found, lane)


# ---- combinational -------------------------------------------------------------------------------------------------


def compare_combinational(
    original: Netlist, modified: Netlist, vectors: Sequence[Mapping[str, int]], stimulus: str, seed: int
) -> Comparison:
    """Compare two combinational designs on some input vectors."""
    lanes = len(vectors)
    inputs = {
        p.name: [replicate(plane, lanes) for plane in pack([v[p.name] for v in vectors], p.width)]
        for p in original.inputs
    }
    outputs = []
    for netlist in (original, modified):
        simulator = Simulator(netlist, REPLICAS * lanes)
        power_up(simulator, lanes, np.random.default_rng(seed))
        outputs.append(simulator.settle(inputs))
    judge = _Judge(lanes)
    for port in original.outputs:
        expected, found = outputs[0][port.name], outputs[1][port.name]
        wrong = 0
        for e, f in zip(expected, found):
            wrong |= judge.differs(e, f)
        if wrong:
            lane = _first_lane(wrong)
            shown = Counterexample(
                stimulus,
                0,
                lane,
                port.name,
                lane_value(expected, lane),
                judge.value(expected, found, lane),
                dict(vectors[lane]),
            )
            return Comparison(shown, 0, lanes)
    return Comparison(None, 0, lanes)


# ---- pipelined -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClockedStimulus:
    """Inputs of a clocked design, cycle by cycle.

    Attributes:
        name: Name for messages.
        lanes: Number of lanes.
        cycles: One mapping port -> bit planes a cycle; the clock is left out.
        in_reset: Lanes that are under reset, one a cycle.
    """

    name: str
    lanes: int
    cycles: Sequence[Planes]
    in_reset: Sequence[Lanes]


def record(
    netlist: Netlist,
    stimulus: ClockedStimulus,
    seed: int,
    initial: Mapping[str, int] | None = None,
    prefix: str = "",
) -> list[dict[str, list[Lanes]]]:
    """Return the outputs of each cycle, over all replicas.

    Args:
        netlist: The design.
        stimulus: Its inputs.
        seed: Seed of the random replica.
        initial: Values with which registers power up in all replicas instead (`miter.initial_name`).
        prefix: The design's prefix in these names.
    """
    simulator = Simulator(netlist, REPLICAS * stimulus.lanes)
    power_up(simulator, stimulus.lanes, np.random.default_rng(seed))
    if initial:
        named = [initial.get(initial_name(flop, prefix)) for flop in netlist.flops]
        simulator.set_registers({k: bit for k, bit in enumerate(named) if bit is not None})
    names = {p.name for p in netlist.inputs}
    return [
        simulator.step(
            {name: [replicate(v, stimulus.lanes) for v in planes] for name, planes in inputs.items() if name in names}
        )
        for inputs in stimulus.cycles
    ]


def compare_traces(
    expected: Sequence[Planes],
    found: Sequence[Planes],
    stimulus: ClockedStimulus,
    latencies: Iterable[int],
) -> Comparison:
    """Compare two traces: the modified design at cycle t + L with the original at cycle t, for some L.

    Cycles between t and t + L in which a lane is under reset void the comparison in that lane, because a reset also
    clears what the modified design still has on the way.

    Args:
        expected: The original's trace (`record`).
        found: The modified design's.
        stimulus: Their stimulus.
        latencies: Offsets to try.

    Returns:
        The first offset without a difference; if there is none, the difference of the offset that went on longest.
    """
    judge = _Judge(stimulus.lanes)
    best: Counterexample | None = None
    best_latency = 0
    for latency in latencies:
        difference = _first_difference(expected, found, stimulus, latency, judge)
        events = (len(expected) - latency - WARM_UP) * stimulus.lanes
        if difference is None:
            return Comparison(None, latency, events)
        if best is None or difference.cycle > best.cycle:
            best, best_latency = difference, latency
    return Comparison(best, best_latency, 0)


def _first_difference(
    expected: Sequence[Planes], found: Sequence[Planes], stimulus: ClockedStimulus, latency: int, judge: _Judge
) -> Counterexample | None:
    for t in range(WARM_UP, len(expected) - latency):
        void = 0
        for reset in stimulus.in_reset[t : t + latency + 1] if latency else ():
            void |= reset
        for port, planes in expected[t].items():
            late = found[t + latency][port]
            wrong = 0
            for e, f in zip(planes, late):
                wrong |= judge.differs(e, f)
            wrong &= ~void
            if wrong:
                lane = _first_lane(wrong)
                given = {name: lane_value(v, lane) for name, v in stimulus.cycles[t].items()}
                return Counterexample(
                    stimulus.name, t, lane, port, lane_value(planes, lane), judge.value(planes, late, lane), given
                )
    return None


# ---- valid/ready ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Traffic:
    """Stimulus of a valid/ready design.

    Attributes:
        name: Name for messages.
        lanes: Number of lanes.
        messages: Channel's valid port -> for each message in turn, data port -> bit planes.
        send: For each cycle, lanes in which a sender that has nothing on offer offers its next message.
        take: For each cycle, lanes in which the receivers are ready.
        before: Cycles of traffic before a second reset; what is transferred in them is not compared.
    """

    name: str
    lanes: int
    messages: Mapping[str, Sequence[Planes]]
    send: Sequence[Lanes]
    take: Sequence[Lanes]
    before: int = 0


@dataclass
class Transfers:
    """What went over the response channels.

    Attributes:
        data: Channel's valid port -> for each transfer in turn, data port -> bit planes over all replicas.
        counts: Channel's valid port -> for each transfer in turn, the lanes that have had it.
        accepted: Channel's valid port (requests) -> for each message in turn, the lanes in which it was accepted.
        unstable: Lanes in which an offered response was withdrawn or changed before it was taken.
        cycles: Cycles that were simulated.
        last: Cycle of the last transfer.
        idle: Whether everything was accepted and nothing came any more when the run ended.
    """

    data: dict[str, list[dict[str, list[Lanes]]]]
    counts: dict[str, list[Lanes]]
    accepted: dict[str, list[Lanes]]
    unstable: Lanes = 0
    cycles: int = 0
    last: int = 0
    idle: bool = False


def run_traffic(
    netlist: Netlist,
    interface: Interface,
    traffic: Traffic,
    seed: int,
    limit: int,
    goal: Transfers | None = None,
    still: dict[int, int] | None = None,
) -> Transfers:
    """Run a valid/ready design.

    The senders hold what they offer until it is taken. The run ends when all messages are accepted and nothing has come
    for `DRAIN` cycles, or at the limit.

    Args:
        netlist: The design.
        interface: Its channels.
        traffic: What is sent and when.
        seed: Seed of the unknown values.
        limit: Most cycles.
        goal: Transfers after which the run may end too, `DRAIN` cycles later.
        still: Filled with the nets that did not move and their values, if given.
    """
    simulator = Simulator(netlist, REPLICAS * traffic.lanes, watch=still is not None)
    power_up(simulator, traffic.lanes, np.random.default_rng(seed))
    if traffic.before:
        _phase(simulator, interface, traffic, traffic.before)
    log = _phase(simulator, interface, traffic, limit, goal)
    if still is not None:
        still.update(simulator.still())
    return log


def _phase(
    simulator: Simulator, interface: Interface, traffic: Traffic, limit: int, goal: Transfers | None = None
) -> Transfers:
    full, lanes = simulator.mask, traffic.lanes
    zero: dict[str, list[Lanes]] = {p.name: [0] * p.width for p in simulator.netlist.inputs}
    if interface.reset is not None:
        for _ in range(WARM_UP):
            simulator.step({**zero, interface.reset: [0 if interface.reset_active_low else full]})
    idle = {**zero}
    if interface.reset is not None:
        idle[interface.reset] = [full if interface.reset_active_low else 0]
    log = Transfers(
        {c.valid: [] for c in interface.responses},
        {c.valid: [] for c in interface.responses},
        {c.valid: [0] * len(traffic.messages[c.valid]) for c in interface.requests},
    )
    senders = [_Sender(c, traffic.messages[c.valid], lanes, full) for c in interface.requests]
    # Lanes whose next response has number k.
    turn: dict[str, dict[int, Lanes]] = {c.valid: {0: full} for c in interface.responses}
    offered: dict[str, tuple[Lanes, dict[str, list[Lanes]]]] = {}
    sends = [replicate(v, lanes) for v in traffic.send]
    takes = [replicate(v, lanes) for v in traffic.take]
    simulator.watch_from_here()
    reached = False
    for t in range(limit):
        inputs = dict(idle)
        for sender in senders:
            sender.offer(sends[t % len(sends)], inputs)
        for channel in interface.responses:
            inputs[channel.ready] = [takes[t % len(takes)]]
        outputs = simulator.step(inputs)
        for sender in senders:
            if sender.accept(outputs[sender.channel.ready][0], log.accepted[sender.channel.valid]):
                log.last = t
        for channel in interface.responses:
            valid, ready = outputs[channel.valid][0], inputs[channel.ready][0]
            if channel.valid in offered:
                before, data = offered[channel.valid]
                log.unstable |= before & ~valid
                for name, planes in data.items():
                    for old, new in zip(planes, outputs[name]):
                        log.unstable |= (old ^ new) & before & valid
            offered[channel.valid] = (valid & ~ready, {name: outputs[name] for name in channel.data})
            if taken := valid & ready:
                log.last = t
                _note(channel, taken, outputs, turn[channel.valid], log)
        log.cycles = t + 1
        if t - log.last > DRAIN and all(sender.finished for sender in senders):
            log.idle = True
            break
        if goal is not None and t % DRAIN == 0:
            if reached:
                break
            reached = _contains(log, goal)
    return log


def _contains(log: Transfers, goal: Transfers) -> bool:
    """Whether a run has had every transfer of another."""
    for name, wanted in goal.counts.items():
        had = log.counts[name]
        if len(had) < len(wanted) or any(want & ~have for want, have in zip(wanted, had)):
            return False
    return True


def _note(
    channel: Channel, taken: Lanes, outputs: Mapping[str, list[Lanes]], turn: dict[int, Lanes], log: Transfers
) -> None:
    data, counts = log.data[channel.valid], log.counts[channel.valid]
    for k in sorted(turn, reverse=True):
        moved = turn[k] & taken
        if not moved:
            continue
        if k == len(data):
            data.append({name: [0] * len(outputs[name]) for name in channel.data})
            counts.append(0)
        for name in channel.data:
            data[k][name] = [plane | (bit & moved) for plane, bit in zip(data[k][name], outputs[name])]
        counts[k] |= moved
        turn[k] &= ~moved
        turn[k + 1] = turn.get(k + 1, 0) | moved
        if not turn[k]:
            del turn[k]


class _Sender:
    """The sender of one request channel in all lanes."""

    def __init__(self, channel: Channel, messages: Sequence[Planes], lanes: int, full: Lanes) -> None:
        self.channel = channel
        self._messages = [{n: [replicate(v, lanes) for v in m[n]] for n in channel.data} for m in messages]
        self._turn: dict[int, Lanes] = {0: full}
        self._pending = 0
        self._now = {n: list(planes) for n, planes in self._messages[0].items()}

    @property
    def finished(self) -> bool:
        """Whether every message is accepted in every lane."""
        return set(self._turn) == {len(self._messages)}

    def offer(self, start: Lanes, inputs: dict[str, list[Lanes]]) -> None:
        """Put what is on offer in a cycle into the inputs."""
        self._pending |= start & ~self._turn.get(len(self._messages), 0)
        inputs[self.channel.valid] = [self._pending]
        inputs.update(self._now)

    def accept(self, ready: Lanes, accepted: list[Lanes]) -> Lanes:
        """Go on to the next message where the receiver was ready."""
        taken = self._pending & ready
        if not taken:
            return 0
        self._pending &= ~taken
        for k in sorted(self._turn, reverse=True):
            moved = self._turn[k] & taken
            if not moved:
                continue
            accepted[k] |= moved
            self._turn[k] &= ~moved
            self._turn[k + 1] = self._turn.get(k + 1, 0) | moved
            if not self._turn[k]:
                del self._turn[k]
            if k + 1 < len(self._messages):
                for name, planes in self._messages[k + 1].items():
                    self._now[name] = [(a & ~moved) | (b & moved) for a, b in zip(self._now[name], planes)]
        return taken


def compare_transfers(original: Transfers, modified: Transfers, traffic: Traffic, interface: Interface) -> Comparison:
    """Compare what two designs sent under the same traffic, transfer by transfer in every lane.

    In lanes in which the original has answered less than it was asked when its run ended, only what it did counts.
    """
    judge = _Judge(traffic.lanes)
    events = 0
    for channel in interface.responses:
        ours, theirs = original.counts[channel.valid], modified.counts[channel.valid]
        complete = judge.mask if original.idle else _answered(original, ours)
        for k in range(max(len(ours), len(theirs))):
            expected = ours[k] if k < len(ours) else 0
            found = theirs[k] if k < len(theirs) else 0
            had = expected & (expected >> traffic.lanes) & (expected >> 2 * traffic.lanes) & judge.mask
            none = ~(expected | expected >> traffic.lanes | expected >> 2 * traffic.lanes) & judge.mask
            events += had.bit_count()
            all_found = found & (found >> traffic.lanes) & (found >> 2 * traffic.lanes)
            any_found = found | (found >> traffic.lanes) | (found >> 2 * traffic.lanes)
            missing = had & ~all_found
            surplus = none & any_found & complete
            if missing or surplus:
                lane = _first_lane(missing or surplus)
                values = original.data[channel.valid][k] if missing else modified.data[channel.valid][k]
                port = channel.data[0] if channel.data else channel.valid
                value = lane_value(values[port], lane) if channel.data else 1
                shown = Counterexample(
                    traffic.name,
                    k,
                    lane,
                    port,
                    value if missing else None,
                    None if missing else value,
                    _request(traffic, interface, k, lane),
                )
                return Comparison(shown, None, events)
            for name in channel.data if k < min(len(ours), len(theirs)) else ():
                e_planes, f_planes = original.data[channel.valid][k][name], modified.data[channel.valid][k][name]
                wrong = 0
                for e, f in zip(e_planes, f_planes):
                    wrong |= judge.differs(e, f)
                if wrong := wrong & had:
                    lane = _first_lane(wrong)
                    shown = Counterexample(
                        traffic.name,
                        k,
                        lane,
                        name,
                        lane_value(e_planes, lane),
                        judge.value(e_planes, f_planes, lane),
                        _request(traffic, interface, k, lane),
                    )
                    return Comparison(shown, None, events)
    if (new := modified.unstable & ~original.unstable) and not original.unstable:
        lane = _first_lane(new) % traffic.lanes
        shown = Counterexample(traffic.name, 0, lane, interface.responses[0].valid, None, None)
        return Comparison(shown, None, events)
    return Comparison(None, None, events)


def _answered(log: Transfers, counts: Sequence[Lanes]) -> Lanes:
    """Return the lanes in which every request has had its one response, where that is how the design works."""
    sizes = {len(accepted) for accepted in log.accepted.values()}
    return counts[-1] if sizes == {len(counts)} else 0


def capacity(log: Transfers) -> dict[str, list[int]]:
    """Return for each request channel how many lanes accepted at least one, two, ... messages."""
    return {name: [mask.bit_count() for mask in accepted] for name, accepted in log.accepted.items()}


def _request(traffic: Traffic, interface: Interface, k: int, lane: int) -> dict[str, int]:
    given: dict[str, int] = {}
    for channel in interface.requests:
        messages = traffic.messages[channel.valid]
        if k < len(messages):
            given.update({name: lane_value(messages[k][name], lane) for name in channel.data})
    return given
