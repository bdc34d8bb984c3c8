"""Timing repair: setup by better drives, buffers, pin order, copies and threshold voltages; hold by delay; power back.

Work goes in rounds. A round takes the endpoints that miss the slack margin, worst first and no more than the asked
share of them, collects the gates on their worst paths, asks `LocalTimer` for the best move at each, applies the best
ones that don't touch each other, and lets the timing engine judge: what makes the worst slack or, at equal worst slack,
the total negative slack better stays, anything else is undone and tried again with half the moves. All times are ps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from edagym.envs.ppa.flow.local import INF, LocalTimer
from edagym.envs.ppa.flow.netlist import Netlist
from edagym.envs.ppa.flow.sta import Timing
from edagym.envs.ppa.flow.wires import Places
from edagym.task_assets.ppa.technology import VTS

BUFFERS = ("BUFx2", "BUFx3", "BUFx4", "BUFx6f")
"""Buffers that repair inserts."""
HOLD_BUFFER = "BUFx2"
NEARLY = 5.0
"""Estimated loss up to which a buffer of another size might still gain, ps."""
MIN_GAIN = 0.15
"""Least estimated gain of a move that is tried, ps."""
ENDPOINTS = 120
"""Most endpoints whose paths a round follows."""
GATES = 160
"""Most gates whose moves a round estimates."""
KEEP = 4
"""Rounds for which the best move of a gate is remembered while nothing near it changes."""
WINDOW = 5
"""Rounds after which repair ends if they have gained little."""
FANOUT_SHOWN = 24
"""Sinks of a net that are considered one by one when a buffer splits it."""


@dataclass(frozen=True)
class RepairOptions:
    """What repair may do.

    Attributes:
        setup_margin: ``SETUP_SLACK_MARGIN``: slack that is aimed for, ps.
        hold_margin: ``HOLD_SLACK_MARGIN``: hold slack that is aimed for, ps.
        tns_percent: ``TNS_END_PERCENT``: share of the violating endpoints that is worked on, %; the worst always.
        pin_swap: Whether symmetric inputs may exchange their nets.
        cloning: Whether a gate may be copied to share its load.
        buffering: Whether buffers may be inserted for setup.
        buffer_removal: Whether buffers may be taken out.
        sizing: Whether gates may change their size.
        vt_swap: Whether gates may change their threshold voltage, where several are allowed.
        critical_vt_swap: Whether the gates of the worst path may change their threshold voltage at the end.
        last_gasp: Whether a last phase works on the worst path alone.
        vts: Threshold voltages that may be used; the first is the design's own.
        recover_power: ``RECOVER_POWER``: share of the gates with slack to spare that is made smaller or slower, %.
    """

    setup_margin: float = 0.0
    hold_margin: float = 0.0
    tns_percent: float = 100.0
    pin_swap: bool = True
    cloning: bool = True
    buffering: bool = True
    buffer_removal: bool = True
    sizing: bool = True
    vt_swap: bool = True
    critical_vt_swap: bool = True
    last_gasp: bool = True
    vts: tuple[str, ...] = ("RVT",)
    recover_power: float = 0.0


@dataclass(frozen=True)
class Move:
    """One edit that a round may make.

    Attributes:
        kind: ``size``, ``vt``, ``swap``, ``buffer``, ``clone`` or ``unbuffer``.
        inst: The gate.
        gain: Estimated gain of the worst slack around it, ps.
        master: New master (``size``, ``vt``) or the buffer's.
        pins: Pins concerned.
        net: Net concerned, -1 for none.
    """

    kind: str
    inst: int
    gain: float
    master: int = -1
    pins: tuple[int, ...] = ()
    net: int = -1

    @property
    def key(self) -> tuple[object, ...]:
        """What identifies the move when it has failed."""
        return self.kind, self.inst, self.master, self.pins


@dataclass
class Repair:
    """Repair of one placed netlist.

    Attributes:
        netlist: Edited in place.
        places: Places of the instances; new ones are placed where they are needed, rows follow later.
        timing: The engine that judges.
        options: What may be done.
        counts: Number of moves kept, by kind.
    """

    netlist: Netlist
    places: Places
    timing: Timing
    options: RepairOptions
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        technology = self.netlist.technology
        self._buffers = [technology.find(name, self.options.vts[0]) for name in BUFFERS]
        self._failed: set[tuple[object, ...]] = set()
        self._known: dict[int, Move | None] = {}
        self._masters = technology.masters

    # -- setup ---------------------------------------------------------------------------------------------------------

    def setup(self, rounds: int = 60) -> None:
        """Work on endpoints below the slack margin until they reach it or nothing helps any more."""
        self._failed.clear()
        self._known.clear()
        idle, share = 0, 1.0
        history = [self._cost()]
        for number in range(rounds):
            targets = self._targets()
            if not targets:
                return
            if number % KEEP == 0:
                self._known.clear()
            moves = self._moves(targets[: max(1, math.ceil(share * len(targets)))])
            if moves and self._try(moves):
                idle, share = 0, min(1.0, share * 2)
            else:
                # The batch failed: look at fewer, worse endpoints with a fresh eye, then give up.
                self._known.clear()
                idle, share = idle + 1, 0.0 if idle == 0 else 0.3
                if idle > 3:
                    break
            history.append(self._cost())
            if len(history) > WINDOW and _stalled(history[-WINDOW - 1], history[-1]):
                break
        if self.options.last_gasp:
            self._last_gasp()
        if self.options.critical_vt_swap and len(self.options.vts) > 1:
            self._critical_vt()

    def _last_gasp(self, tries: int = 40) -> None:
        """Try every move on the worst path one by one, also those that the estimate calls useless."""
        self._failed.clear()
        self._known.clear()
        done = 0
        while done < tries:
            targets = self._targets()[:1]
            if not targets:
                return
            self._known.clear()
            moves = self._moves(targets, least=-0.5)
            kept = False
            for move in moves:
                done += 1
                if self._try([move]):
                    kept = True
                    break
                if done >= tries:
                    return
            if not kept:
                return

    def _critical_vt(self, tries: int = 20) -> None:
        """Give the gates of the worst path the fastest threshold voltage, as long as that helps."""
        fastest = max(self.options.vts, key=VTS.index)
        self._failed.clear()
        for _ in range(tries):
            targets = self._targets()[:1]
            if not targets:
                return
            moves = []
            for inst in self._local().path(targets[0]):
                master = self.netlist.master(inst)
                index = master.variants.get(fastest, master.index)
                move = Move("vt", inst, 0.0, index)
                if index != master.index and not self._is_clock(inst) and move.key not in self._failed:
                    moves.append(move)
            if not moves or not self._try(moves):
                return

    def _slacks(self) -> list[tuple[float, int]]:
        """Return (slack, endpoint) of all endpoints, worst first."""
        return sorted(zip(self.timing.endpoint_slacks().tolist(), self.timing.endpoints, strict=True))

    def _targets(self) -> list[int]:
        """Return the endpoints to work on, worst first."""
        margin = self.options.setup_margin
        missing = [(slack, pin) for slack, pin in self._slacks() if slack < margin]
        count = max(1, math.ceil(self.options.tns_percent / 100 * len(missing)))
        return [pin for _, pin in missing[:count]]

    def _cost(self) -> tuple[float, float]:
        """Return worst slack and total negative slack against the margin, each at most 0."""
        miss = np.minimum(self.timing.endpoint_slacks() - self.options.setup_margin, 0.0)
        return float(miss.min(initial=0.0)), float(miss.sum())

    def _try(self, moves: Sequence[Move]) -> bool:
        """Apply moves, all or a part; returns whether some stayed."""
        before = self._cost()
        chosen = list(moves)
        while chosen:
            mark = self.timing.mark()
            for move in chosen:
                self._apply(move)
            self.timing.update()
            if _better(self._cost(), before):
                self._forget_near(chosen)
                for move in chosen:
                    self.counts[move.kind] = self.counts.get(move.kind, 0) + 1
                return True
            self.timing.undo(mark)
            if len(chosen) == 1:
                self._failed.add(chosen[0].key)
            chosen = chosen[: len(chosen) // 2]
        return False

    def _forget_near(self, moves: Sequence[Move]) -> None:
        """Forget the best moves of gates on the nets of edited gates, and of gates that drive those."""
        netlist = self.netlist
        for move in moves:
            self._known.pop(move.inst, None)
            if netlist.inst_master[move.inst] < 0:
                continue
            nets = {netlist.pin_net[pin] for pin in netlist.pins(move.inst)} | {move.net}
            for net in nets:
                if net < 0 or netlist.net_clock[net]:
                    continue
                for pin in (netlist.net_driver[net], *netlist.net_sinks[net]):
                    inst = netlist.pin_inst[pin] if pin >= 0 else -1
                    if inst >= 0:
                        self._known.pop(inst, None)

    def _local(self) -> LocalTimer:
        return LocalTimer(self.netlist, self.places, self.timing)

    def _moves(self, targets: Sequence[int], least: float = MIN_GAIN) -> list[Move]:
        """Return good moves on the worst paths of endpoints, best first, that don't touch the same nets."""
        local = self._local()
        weights: dict[int, int] = {}
        for pin in targets[:ENDPOINTS]:
            for inst in local.path(pin):
                weights[inst] = weights.get(inst, 0) + 1
        insts = sorted(weights, key=lambda i: (-weights[i], i))[:GATES]
        found = []
        for inst in insts:
            if inst in self._known:
                move = self._known[inst]
                if move is not None and move.key in self._failed:
                    move = self._known[inst] = self._best(local, inst, least)
            else:
                move = self._known[inst] = self._best(local, inst, least)
            if move is not None:
                found.append((move.gain * math.sqrt(weights[inst]), move))
        found.sort(key=lambda item: (-item[0], item[1].inst))
        taken: set[int] = set()
        chosen = []
        for _, move in found:
            nets = {self.netlist.pin_net[p] for p in self.netlist.pins(move.inst)}
            if taken & nets:
                continue
            taken |= nets
            chosen.append(move)
        return chosen[: max(1, (len(chosen) + 1) // 2)] if least > 0 else chosen

    def _best(self, local: LocalTimer, inst: int, least: float) -> Move | None:
        now = local.now(inst)
        if now == INF:
            return None
        best: Move | None = None
        for move in self._candidates(local, inst, now):
            if move.gain > (best.gain if best else least) and move.key not in self._failed:
                best = move
        return best

    def _candidates(self, local: LocalTimer, inst: int, now: float) -> Iterable[Move]:
        options, netlist = self.options, self.netlist
        master = netlist.master(inst)
        if options.sizing and not self._is_clock(inst):
            place = master.sizes.index(master.index) if master.index in master.sizes else -1
            for index in master.sizes[place + 1 : place + 4]:
                yield Move("size", inst, local.resized(inst, index) - now, index)
        if options.vt_swap and len(options.vts) > 1:
            for vt in options.vts:
                index = master.variants.get(vt, master.index)
                if index != master.index:
                    yield Move("vt", inst, local.resized(inst, index) - now, index)
        if options.pin_swap:
            yield from self._swaps(local, inst, now)
        if options.buffer_removal and master.kind == "buf" and not self._is_port_buffer(inst):
            before = min(now, local.net_slack(netlist.pin_net[netlist.inst_pin[inst]]))
            yield Move("unbuffer", inst, local.unbuffered(inst) - before)
        for pin in netlist.output_pins(inst):
            net = netlist.pin_net[pin]
            if net < 0 or netlist.net_clock[net] or not netlist.net_sinks[net]:
                continue
            sinks = sorted(netlist.net_sinks[net], key=lambda p: (min(local.pin_slack(p)), p))
            here = min(min(local.pin_slack(p)) for p in sinks)
            if options.buffering and not self._drives_port(net):
                yield from self._buffers_at(local, inst, net, sinks, here)
            if options.cloning and len(sinks) > 1 and self._can_clone(inst):
                near = sinks[: max(1, len(sinks) // 2)]
                far = sinks[len(near) :]
                yield Move("clone", inst, local.cloned(inst, net, far) - here, -1, tuple(far), net)

    def _buffers_at(self, local: LocalTimer, inst: int, net: int, sinks: Sequence[int], here: float) -> Iterable[Move]:
        count = len(sinks)
        starts = sorted({0, 1, 2, count // 2} if count > 2 else {0, 1} if count > 1 else {0})
        best: tuple[float, tuple[int, ...]] | None = None
        for start in starts:
            behind = tuple(sinks[start:])
            if not behind or len(behind) > 4 * FANOUT_SHOWN:
                continue
            gain = local.buffered(inst, net, behind, self._buffers[1]) - here
            if best is None or gain > best[0]:
                best = (gain, behind)
        if best is None:
            return
        yield Move("buffer", inst, best[0], self._buffers[1].index, best[1], net)
        # Which sinks go behind the buffer matters more than its size, so sizes are tried for the best split only.
        if best[0] > -NEARLY:
            for buffer in (self._buffers[0], *self._buffers[2:]):
                yield Move(
                    "buffer", inst, local.buffered(inst, net, best[1], buffer) - here, buffer.index, best[1], net
                )

    def _swaps(self, local: LocalTimer, inst: int, now: float) -> Iterable[Move]:
        first = self.netlist.inst_pin[inst]
        for group in self.netlist.master(inst).symmetric:
            slacks = [(min(local.pin_slack(first + i)), i) for i in group]
            critical = min(slacks)[1]
            for _, other in slacks:
                if other != critical and self.netlist.pin_net[first + other] != self.netlist.pin_net[first + critical]:
                    gain = local.pins_swapped(inst, critical, other) - now
                    yield Move("swap", inst, gain, -1, (first + critical, first + other))

    def _apply(self, move: Move) -> None:
        netlist, places = self.netlist, self.places
        if move.kind in ("size", "vt"):
            netlist.swap_master(move.inst, move.master)
        elif move.kind == "swap":
            nets = [netlist.pin_net[pin] for pin in move.pins]
            netlist.swap_pins(*move.pins)
            places.route(nets)
        elif move.kind == "buffer":
            made = netlist.insert_buffer(move.net, move.pins, move.master)
            places.put_between(made, move.pins)
            places.route([move.net, netlist.pin_net[netlist.output_pins(made)[0]]])
        elif move.kind == "clone":
            made = netlist.clone_gate(move.inst, move.pins)
            places.put(made, places.x[move.inst], places.y[move.inst])
            places.route(sorted({netlist.pin_net[pin] for pin in netlist.pins(made)} | {move.net}))
        else:
            net = netlist.pin_net[netlist.inst_pin[move.inst]]
            netlist.remove_buffer(move.inst)
            places.route([net])

    def _is_clock(self, inst: int) -> bool:
        return any(self.netlist.net_clock[self.netlist.pin_net[p]] for p in self.netlist.output_pins(inst))

    def _drives_port(self, net: int) -> bool:
        return any(self.netlist.pin_inst[p] < 0 for p in self.netlist.net_sinks[net])

    def _is_port_buffer(self, inst: int) -> bool:
        """Return whether a buffer stands between a port and the rest, where the flow wants one."""
        netlist = self.netlist
        driver = netlist.net_driver[netlist.pin_net[netlist.inst_pin[inst]]]
        return netlist.pin_inst[driver] < 0 or self._drives_port(netlist.pin_net[netlist.output_pins(inst)[0]])

    def _can_clone(self, inst: int) -> bool:
        master = self.netlist.master(inst)
        return master.kind in ("comb", "inv", "buf") and len(master.outputs) == 1 and not self._is_port_buffer_of(inst)

    def _is_port_buffer_of(self, inst: int) -> bool:
        return self.netlist.master(inst).kind == "buf" and self._is_port_buffer(inst)

    # -- power ---------------------------------------------------------------------------------------------------------

    def recover_power(self) -> None:
        """Make gates with slack to spare smaller or give them a higher threshold, as long as no endpoint gets worse."""
        share = self.options.recover_power / 100
        if share <= 0:
            return
        local = self._local()
        spare = []
        for inst in list(self.netlist.instances()):
            master = self.netlist.master(inst)
            if master.kind == "tie" or self._is_clock(inst) or not local.known(inst):
                continue
            slack = min((local.net_slack(self.netlist.pin_net[p]) for p in self.netlist.output_pins(inst)), default=INF)
            if slack > max(self.options.setup_margin, 0.0) + 1.0:
                spare.append((slack, inst))
        spare.sort(key=lambda item: (-item[0], item[1]))
        chosen = [inst for _, inst in spare[: math.ceil(share * len(spare))]]
        self._in_parts(chosen, self._weaken)

    def _weaken(self, inst: int) -> None:
        master = self.netlist.master(inst)
        vts = [vt for vt in reversed(VTS) if vt in self.options.vts]
        slower = vts[vts.index(master.vt) + 1 :] if master.vt in vts else []
        place = master.sizes.index(master.index) if master.index in master.sizes else 0
        if place > 0 and master.kind != "ff":
            self.netlist.swap_master(inst, master.sizes[place - 1])
        elif slower:
            self.netlist.swap_master(inst, master.variants[slower[-1]])

    def _in_parts(self, insts: Sequence[int], edit: Callable[[int], None]) -> None:
        """Edit instances, all at once, or in halves where that would make timing worse."""
        stack = [list(insts)]
        while stack:
            part = stack.pop()
            if not part:
                continue
            before = self._cost()
            mark = self.timing.mark()
            for inst in part:
                edit(inst)
            self.timing.update()
            worst, total = self._cost()
            if worst >= before[0] - 1e-9 and total >= before[1] - 1e-9:
                self.counts["recover"] = self.counts.get("recover", 0) + len(part)
                continue
            self.timing.undo(mark)
            if len(part) > 1:
                half = (len(part) + 1) // 2
                stack += [part[half:], part[:half]]

    # -- hold ----------------------------------------------------------------------------------------------------------

    def hold(self, passes: int = 6) -> int:
        """Put delay before endpoints below the hold margin, as long as their setup slack allows it."""
        buffer = self.netlist.technology.find(HOLD_BUFFER, self.options.vts[0])
        made = 0
        for _ in range(passes):
            setup = dict(zip(self.timing.endpoints, self.timing.endpoint_slacks().tolist(), strict=True))
            holds = zip(self.timing.hold_slacks().tolist(), self.timing.endpoints, strict=True)
            late = [(slack, pin) for slack, pin in holds if slack < self.options.hold_margin]
            added = 0
            for _slack, pin in late:
                inst = self.netlist.pin_inst[pin]
                if inst < 0 or setup.get(pin, INF) < 18.0:
                    continue
                net = self.netlist.pin_net[pin]
                new = self.netlist.insert_buffer(net, [pin], buffer.index, name=f"hold{made + added + 1}")
                self.places.put_between(new, [pin])
                self.places.route([net, self.netlist.pin_net[self.netlist.output_pins(new)[0]]])
                added += 1
            made += added
            if not added:
                break
            self.timing.update()
        if made:
            self.counts["hold"] = self.counts.get("hold", 0) + made
        return made


def _stalled(before: tuple[float, float], after: tuple[float, float]) -> bool:
    """Return whether worst slack (by 1 %) and total slack (by 4 %) have hardly improved."""
    return after[0] - before[0] < 0.01 * -before[0] and after[1] - before[1] < 0.04 * -before[1]


def _better(after: tuple[float, float], before: tuple[float, float]) -> bool:
    """Return whether worst and total slack are better: the worst decides, the total where the worst hardly moves."""
    worst, total = after[0] - before[0], after[1] - before[1]
    if worst > 0.02:
        return total > 0.02 * before[1]
    return worst > -0.02 and total > 0.05
