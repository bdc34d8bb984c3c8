"""`check_equivalence`: does a modified RTL design still do what the original does?

Two verdicts. `passed_paper` is PostEDA-Bench's contract (Appendix D.5): random simulation, event-matched for
combinational and valid/ready designs, a latency sweep of 0..16 cycles after 8 warm-up cycles for pipelined ones.
`passed_strict` adds directed vectors, reset in the middle, back-pressure and long idling, and a formal step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from edagym.errors import FlowError, ToolError
from edagym.task_assets.ppa.designs import Interface
from edagym.verifiers.ppa.formal import FormalResult, activate, prove
from edagym.verifiers.ppa.miter import feedback_bits
from edagym.verifiers.ppa.rtl import Netlist, Port, elaborate
from edagym.verifiers.ppa.simulate import Lanes, Simulator, pack
from edagym.verifiers.ppa.stimulus import directed_vectors, literals, random_value
from edagym.verifiers.ppa.traces import (
    MAX_LATENCY,
    WARM_UP,
    ClockedStimulus,
    Comparison,
    Counterexample,
    Traffic,
    Transfers,
    compare_combinational,
    compare_traces,
    compare_transfers,
    record,
    run_traffic,
)
from edagym.verifiers.verdict import CheckResult

RANDOM_VECTORS = 1024
DIRECTED_VECTORS = 12_000
TRAFFIC_CYCLES = 3000
"""Most cycles of a valid/ready simulation of the original; the modified design has `SLOWDOWN` times what that took."""
SLOWDOWN = 4
FORMAL_S = 60.0
ACTIVATIONS = 24
"""Most attempts to move nets that simulation left still, where there is no proof."""
MAX_UNPROVED_STATE = 8
"""Most register bits in feedback that a design may add without a proof: a larger counter outlasts every simulation."""


@dataclass(frozen=True)
class EquivalenceResult:
    """Verdict on a modified design.

    Attributes:
        passed_paper: Whether it passes the paper's simulation.
        passed_strict: Whether it passes every check.
        mode: Kind of the interface, which says how traces were matched.
        latency: Cycles by which the modified design is later (pipelined), or None.
        checks: ``function:simulation`` (paper), ``function:directed``, ``function:formal`` (strict); if refused,
            ``function:source`` or ``function:ports``.
        counterexample: The first difference that was found, or None.
        formal: ``"proved"``, ``"bounded k"`` (no difference within k cycles of the reset), ``"refuted"``, or
            ``"not attempted: why"``.
        masked: Outputs (``port[bit]``) of the original that are undefined or high-impedance and were not compared.
        notes: What a reader should know: outputs that the stimuli never moved, slowdowns.
    """

    passed_paper: bool
    passed_strict: bool
    mode: str
    latency: int | None
    checks: tuple[CheckResult, ...]
    counterexample: Counterexample | None
    formal: str
    masked: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def check_equivalence(
    original: Mapping[str, str],
    modified: Mapping[str, str],
    top: str,
    interface: Interface,
    *,
    formal: bool = True,
    formal_s: float = FORMAL_S,
    seed: int = 0,
) -> EquivalenceResult:
    """Compare a modified design with the original.

    The same arguments give the same result, unless a formal engine runs out of its time.

    Args:
        original: Path -> Verilog text of the original.
        modified: The same of the modified design.
        top: Top module of both.
        interface: How the ports talk.
        formal: Whether to attempt a proof.
        formal_s: Wall-clock limit of the formal step, seconds.
        seed: Seed of the stimuli; they also depend on the sources, so that they can't be written into a design.

    Raises:
        ToolError: If the original cannot be checked, or an engine fails (`ToolTimeout`: runs too long).
    """
    try:
        ours = _elaborate(tuple(sorted(original.items())), top, interface.clock)
    except FlowError as e:
        raise ToolError(f"the original design cannot be checked ({e})", field="equivalence", value=top) from e
    _check_interface(ours, interface)
    if dict(original) == dict(modified):
        same = CheckResult("function:simulation", "function", True, message="The sources are unchanged.")
        return EquivalenceResult(True, True, interface.kind, 0, (same,), None, "proved", ours.masked_outputs)
    try:
        theirs = _elaborate(tuple(sorted(modified.items())), top, interface.clock)
        if theirs.has_initial_values and not ours.has_initial_values:
            raise FlowError("a register has an initial value, which silicon does not have", field="equivalence")
        if added := set(theirs.async_controls) - set(ours.async_controls) - {interface.reset}:
            message = "flip-flops are set or cleared asynchronously by something else than the reset"
            raise FlowError(message, field="equivalence", value=sorted(added))
    except FlowError as e:
        return _refused(interface, ours, "function:source", str(e))
    if ours.signature != theirs.signature:
        changed = sorted(set(ours.signature) ^ set(theirs.signature))
        return _refused(interface, ours, "function:ports", f"The ports differ from the original's: {changed}.")
    return _Check(original, modified, ours, theirs, interface, seed).run(formal, formal_s)


@lru_cache(maxsize=16)
def _elaborate(sources: tuple[tuple[str, str], ...], top: str, clock: str | None) -> Netlist:
    return elaborate(dict(sources), top, clock)


def _check_interface(netlist: Netlist, interface: Interface) -> None:
    widths = {p.name: p.width for p in netlist.ports}
    named = [n for c in interface.requests + interface.responses for n in (c.valid, c.ready, *c.data)]
    named += [n for n in (interface.clock, interface.reset) if n is not None]
    if missing := [n for n in named if n not in widths]:
        raise ToolError("the design lacks ports of its interface", field="interface", value=missing)
    left = [p.name for p in netlist.ports if p.name not in named]
    if interface.kind == "valid_ready" and left:
        raise ToolError("ports outside all channels cannot be compared", field="interface", value=left)
    if interface.kind == "combinational" and netlist.flops:
        raise ToolError("a combinational design has flip-flops", field="interface", value=netlist.flops[0].names)


def _refused(interface: Interface, ours: Netlist, id_: str, message: str) -> EquivalenceResult:
    check = CheckResult(id_, "function", False, message=message)
    return EquivalenceResult(
        False, False, interface.kind, None, (check,), None, "not attempted: refused", ours.masked_outputs
    )


class _Check:
    """One comparison: the stimuli of an interface, run on both designs."""

    def __init__(
        self,
        original: Mapping[str, str],
        modified: Mapping[str, str],
        ours: Netlist,
        theirs: Netlist,
        interface: Interface,
        seed: int,
    ) -> None:
        self.ours, self.theirs, self.interface = ours, theirs, interface
        digest = hashlib.sha256(repr((seed, sorted(original.items()), sorted(modified.items()))).encode()).digest()
        self.seed = int.from_bytes(digest[:8], "little")
        self.rng = np.random.default_rng(self.seed)
        self.numbers = literals({**{f"original/{k}": v for k, v in original.items()}, **modified})
        self.notes: list[str] = []
        self.latency = 0

    def run(self, formal: bool, formal_s: float) -> EquivalenceResult:
        simulate = {
            "combinational": self._combinational,
            "pipelined": self._pipelined,
            "valid_ready": self._valid_ready,
        }[self.interface.kind]
        paper = simulate(False, None)
        latency = paper.latency
        checks = [_simulated("function:simulation", paper, strict=False)]
        difference = paper.difference
        if difference is None:
            directed = simulate(True, latency)
            difference, latency = directed.difference, directed.latency
            checks.append(_simulated("function:directed", directed, strict=True))
        status = "not attempted: simulation found a difference" if difference else "not attempted: switched off"
        if difference is None and formal:
            self.latency = latency or 0
            found = prove(self.ours, self.theirs, self.interface, latency or 0, timeout_s=formal_s)
            if found.stimulus is not None:
                found, difference = self._replay(found, latency or 0)
            status = found.status
            if difference is None and status != "proved":
                move = self._move_still_nets if self.interface.kind == "valid_ready" else self._move_still_nets_directly
                difference = move(formal_s / 6)
                if difference is not None:
                    status = "refuted"
                    found = replace(found, status=status, detail="inputs that move nets which simulation left still")
            passed = difference is None
            if passed and status != "proved":
                added = feedback_bits(self.theirs) - feedback_bits(self.ours)
                if added > MAX_UNPROVED_STATE:
                    passed = False
                    found = replace(
                        found, detail=f"{added} bits of state more than the original's feed back on themselves"
                    )
            message = f"Formal check: {found.status}" + (f" ({found.detail})." if found.detail else ".")
            checks.append(CheckResult("function:formal", "function", passed, message=message, strict=True))
        return EquivalenceResult(
            checks[0].passed,
            all(check.passed for check in checks),
            self.interface.kind,
            latency if self.interface.kind != "valid_ready" else None,
            tuple(checks),
            difference,
            status,
            self.ours.masked_outputs,
            tuple(self.notes),
        )

    def _replay(self, found: FormalResult, latency: int) -> tuple[FormalResult, Counterexample | None]:
        """Simulate what the formal engine calls a counterexample; only a difference that simulation sees counts."""
        assert found.stimulus is not None
        if self.interface.kind == "combinational":
            outcome = compare_combinational(self.ours, self.theirs, found.stimulus, "formal counterexample", self.seed)
        elif self.interface.kind == "pipelined":
            stimulus = _clocked_from(found.stimulus, self.ours, self.interface, latency)
            expected = record(self.ours, stimulus, self.seed, found.initial, "a_")
            late = record(self.theirs, stimulus, self.seed, found.initial, "b_")
            outcome = compare_traces(expected, late, stimulus, [latency])
        else:
            outcome = self._traffic(_traffic_from(found.stimulus, self.ours, self.interface))
        if outcome.difference is not None:
            return replace(found, status="refuted"), outcome.difference
        why = "not attempted: " + (
            "the cycle timing of the handshake differs"
            if self.interface.kind == "valid_ready"
            else "the engine's counterexample starts from register values that are not defined"
        )
        return replace(found, status=why), None

    def _move_still_nets(self, limit_s: float) -> Counterexample | None:
        """Look for requests that move nets which the stimuli left still, and compare the designs on these."""
        traffic = self._make_traffic(128, 6, "directed traffic", True)
        still = self._still(traffic)
        for _ in range(ACTIVATIONS):
            if not still:
                break
            stimulus = activate(self.theirs, self.interface, still, timeout_s=limit_s)
            if stimulus is None:
                break
            rare = _traffic_from(stimulus, self.theirs, self.interface)
            if (difference := self._traffic(rare).difference) is not None:
                return difference
            moved = self._still(replace(rare, name="moved"))
            left = {net: value for net, value in still.items() if moved.get(net) == value}
            if len(left) == len(still):
                break
            still = left
        return None

    def _move_still_nets_directly(self, limit_s: float) -> Counterexample | None:
        """The same for designs without handshakes."""
        simulator = self._watched()
        still = simulator.still()
        for _ in range(ACTIVATIONS):
            stimulus = activate(self.theirs, self.interface, still, timeout_s=limit_s) if still else None
            if stimulus is None:
                break
            found = FormalResult("", stimulus=stimulus)
            if (difference := self._replay(found, self.latency)[1]) is not None:
                return difference
            one = Simulator(self.theirs, 1, watch=True)
            for k, planes in enumerate(_clocked_from(stimulus, self.theirs, self.interface, self.latency).cycles):
                if k == WARM_UP:
                    one.watch_from_here()
                one.step(planes)
            moved = one.still()
            left = {net: value for net, value in still.items() if moved.get(net) == value}
            if len(left) == len(still):
                break
            still = left
        return None

    def _watched(self) -> Simulator:
        """Return the modified design after stimuli like those that it was compared on."""
        if self.interface.kind == "combinational":
            ports = [(p.name, p.width) for p in self.ours.inputs]
            vectors = directed_vectors(ports, self.numbers, self.rng, limit=DIRECTED_VECTORS)
            simulator = Simulator(self.theirs, len(vectors), watch=True)
            simulator.settle({n: pack([v[n] for v in vectors], w) for n, w in ports})
            return simulator
        stimulus = self._clocked(256, 96, "directed vectors", True)
        simulator = Simulator(self.theirs, stimulus.lanes, watch=True)
        for k, planes in enumerate(stimulus.cycles):
            if k == WARM_UP:
                simulator.watch_from_here()
            simulator.step(planes)
        return simulator

    def _still(self, traffic: Traffic) -> dict[int, int]:
        nets: dict[int, int] = {}
        run_traffic(self.theirs, self.interface, traffic, self.seed, 600, still=nets)
        return nets

    # -- combinational

    def _combinational(self, strict: bool, _: int | None) -> Comparison:
        ports = [(p.name, p.width) for p in self.ours.inputs]
        vectors = [{n: random_value(w, self.rng) for n, w in ports} for _ in range(RANDOM_VECTORS)]
        if strict:
            vectors += directed_vectors(ports, self.numbers, self.rng, limit=DIRECTED_VECTORS)
        name = "directed vectors" if strict else "random vectors"
        return compare_combinational(self.ours, self.theirs, vectors, name, self.seed)

    # -- pipelined

    def _pipelined(self, strict: bool, latency: int | None) -> Comparison:
        shapes = ((256, 96, "directed vectors"), (48, 640, "directed sequences")) if strict else ((32, 200, "random"),)
        stimuli = [self._clocked(lanes, cycles, name, strict) for lanes, cycles, name in shapes]
        ours = [record(self.ours, s, self.seed) for s in stimuli]
        theirs = [record(self.theirs, s, self.seed) for s in stimuli]
        # Constant outputs can agree at several offsets, so that the paper's offset is only where the search begins.
        offsets = range(MAX_LATENCY + 1) if latency is None else range(latency, MAX_LATENCY + 1)
        first: Comparison | None = None
        longest = -1
        for offset in offsets:
            results = [compare_traces(e, f, s, [offset]) for e, f, s in zip(ours, theirs, stimuli)]
            failed = next((r for r in results if r.difference is not None), None)
            if failed is None:
                if strict:
                    self._note_still(ours)
                return Comparison(None, offset, sum(r.events for r in results))
            assert failed.difference is not None
            if failed.difference.cycle > longest:
                first, longest = failed, failed.difference.cycle
        assert first is not None
        return first

    def _note_still(self, traces: Sequence[Sequence[Mapping[str, Sequence[Lanes]]]]) -> None:
        still = []
        for port in self.ours.outputs:
            for bit in range(port.width):
                values = {cycle[port.name][bit] for trace in traces for cycle in trace[WARM_UP:]}
                if len(values) == 1:
                    still.append(f"{port.name}[{bit}]")
        if still:
            self.notes.append(f"never moved by the stimuli: {', '.join(still)}")

    def _clocked(self, lanes: int, cycles: int, name: str, strict: bool) -> ClockedStimulus:
        ports = [p for p in self.ours.inputs if p.name != self.interface.reset]
        data = [(p.name, p.width) for p in ports if p.width > 1]
        controls = [p.name for p in ports if p.width == 1]
        vectors = directed_vectors(data, self.numbers, self.rng, limit=lanes * cycles // 2) if strict and data else []
        # Per lane: cycles for which inputs are held, and how often a control bit is set.
        holds = [(1, 1, 4, 24)[lane % 4] if strict else 1 for lane in range(lanes)]
        rates = np.array([(0.5, 1.0, 0.1, 0.9, 0.5)[lane % 5] if strict else 0.5 for lane in range(lanes)])
        resets = np.zeros((cycles, lanes), dtype=bool)
        resets[:WARM_UP] = True
        if strict:
            for lane in range(0, lanes, 3):
                start = int(self.rng.integers(WARM_UP + 4, cycles - 4))
                resets[start : start + 1 + lane % 3, lane] = True
            resets[:, 1::16] |= self.rng.random((cycles, len(range(1, lanes, 16)))) < 0.03
        values = {n: [0] * lanes for n, _ in data}
        flags = np.zeros((len(controls), lanes), dtype=bool)
        inputs = []
        taken = 0
        for t in range(cycles):
            for lane in range(lanes):
                if t % holds[lane]:
                    continue
                if taken < 2 * len(vectors) and self.rng.random() < 0.75:
                    vector = vectors[(taken * 7919) % len(vectors)]
                    taken += 1
                else:
                    vector = {n: random_value(w, self.rng) for n, w in data}
                for n, _ in data:
                    values[n][lane] = vector[n]
                flags[:, lane] = self.rng.random(len(controls)) < rates[lane]
            if strict:
                # Long idling, then work without a pause.
                flags[:, 2::8] = t > cycles // 2
            planes = {n: pack(values[n], w) for n, w in data}
            for row, n in zip(flags, controls):
                planes[n] = [_to_lanes(row)]
            if self.interface.reset is not None:
                planes[self.interface.reset] = [_to_lanes(resets[t] ^ self.interface.reset_active_low)]
            inputs.append(planes)
        in_reset = [_to_lanes(row) if self.interface.reset is not None else 0 for row in resets]
        return ClockedStimulus(name, lanes, inputs, in_reset)

    # -- valid/ready

    def _valid_ready(self, strict: bool, _: int | None) -> Comparison:
        if not strict:
            return self._traffic(self._make_traffic(64, 6, "random traffic", False))
        directed = self._traffic(self._make_traffic(384, 6, "directed traffic", True))
        if directed.difference is not None:
            return directed
        resets = self._traffic(replace(self._make_traffic(64, 4, "reset in the middle", False), before=41))
        if resets.difference is not None:
            return resets
        slow = self._make_traffic(32, 40, "slow receivers", False)
        slow = replace(slow, take=self._pattern(509, 32, (0.04, 0.3)), send=self._pattern(509, 32, (1.0, 0.6)))
        slowly = self._traffic(slow)
        if slowly.difference is not None:
            return slowly
        blocked = replace(self._make_traffic(8, 64, "receivers never ready", False), take=(0,), send=(0xFF,))
        kept = self._capacity(blocked)
        return (
            kept
            if kept.difference is not None
            else Comparison(None, None, directed.events + resets.events + slowly.events)
        )

    def _traffic(self, traffic: Traffic) -> Comparison:
        ours = run_traffic(self.ours, self.interface, traffic, self.seed, TRAFFIC_CYCLES)
        limit = SLOWDOWN * ours.cycles + 1024
        theirs = run_traffic(self.theirs, self.interface, traffic, self.seed, limit, goal=None if ours.idle else ours)
        if theirs.last != ours.last:
            self.notes.append(f"{traffic.name}: last transfer in cycle {theirs.last}, the original's in {ours.last}")
        return compare_transfers(ours, theirs, traffic, self.interface)

    def _capacity(self, traffic: Traffic) -> Comparison:
        """Compare how many requests the designs take while no response is taken: a buffer must not shrink."""
        ours, theirs = (
            _stored(run_traffic(n, self.interface, traffic, self.seed, 256)) for n in (self.ours, self.theirs)
        )
        for channel in self.interface.requests:
            expected, found = ours[channel.valid], theirs[channel.valid]
            if found < expected:
                shown = Counterexample(traffic.name, 0, 0, channel.ready, expected, found)
                return Comparison(shown, None, 0)
        return Comparison(None, None, 0)

    def _make_traffic(self, lanes: int, count: int, name: str, strict: bool) -> Traffic:
        widths = {p.name: p.width for p in self.ours.inputs}
        messages: dict[str, list[dict[str, list[Lanes]]]] = {}
        for channel in self.interface.requests:
            ports = [(n, widths[n]) for n in channel.data]
            vectors = directed_vectors(ports, self.numbers, self.rng, limit=lanes * count) if strict and ports else []
            order = [int(i) for i in self.rng.permutation(len(vectors))]
            messages[channel.valid] = []
            for k in range(count):
                chosen = []
                for lane in range(lanes):
                    at = k * lanes + lane
                    directed = strict and at < len(order)
                    chosen.append(vectors[order[at]] if directed else {n: random_value(w, self.rng) for n, w in ports})
                messages[channel.valid].append({n: pack([v[n] for v in chosen], w) for n, w in ports})
        period = 509
        send = self._pattern(period, lanes, (0.5, 1.0, 0.1, 0.9) if strict else (0.5,))
        take = self._pattern(period, lanes, (1.0, 0.5, 0.9, 0.08, 0.5) if strict else (0.5,))
        return Traffic(name, lanes, messages, send, take)

    def _pattern(self, cycles: int, lanes: int, rates: Sequence[float]) -> tuple[Lanes, ...]:
        chosen = np.array([rates[lane % len(rates)] for lane in range(lanes)])
        return tuple(_to_lanes(row) for row in self.rng.random((cycles, lanes)) < chosen)


def _stored(log: Transfers) -> dict[str, int]:
    return {name: sum(1 for mask in accepted if mask & 1) for name, accepted in log.accepted.items()}


def _to_lanes(row: np.ndarray) -> Lanes:
    return int.from_bytes(np.packbits(row, bitorder="little").tobytes(), "little")


def _clocked_from(
    vectors: Sequence[Mapping[str, int]], netlist: Netlist, interface: Interface, latency: int
) -> ClockedStimulus:
    """Return a stimulus of one lane: warm-up under reset, then the given cycles, then idle cycles for the latency."""
    idle = {p.name: 0 for p in netlist.inputs}
    off = 1 if interface.reset_active_low else 0
    if interface.reset is not None:
        idle[interface.reset] = 1 - off
    cycles = [idle] * WARM_UP + [{**idle, **v} for v in vectors]
    if interface.reset is not None:
        idle = {**idle, interface.reset: off}
    cycles += [idle] * (latency + 1)
    ports: Iterable[Port] = netlist.inputs
    planes = [{p.name: pack([cycle[p.name]], p.width) for p in ports} for cycle in cycles]
    in_reset = [0] * len(cycles)
    if interface.reset is not None:
        in_reset = [int(cycle[interface.reset] != off) for cycle in cycles]
    return ClockedStimulus("formal counterexample", 1, planes, in_reset)


def _traffic_from(vectors: Sequence[Mapping[str, int]], netlist: Netlist, interface: Interface) -> Traffic:
    """Return traffic of one lane that offers in order what the given cycles offer."""
    messages: dict[str, list[dict[str, list[Lanes]]]] = {}
    widths = {p.name: p.width for p in netlist.inputs}
    for channel in interface.requests:
        offered = [v for v in vectors if v[channel.valid]] or [vectors[0]]
        messages[channel.valid] = [{n: pack([v[n]], widths[n]) for n in channel.data} for v in offered]
    send = (*(max(v[c.valid] for c in interface.requests) for v in vectors), 1)
    take = (*(max(v[c.ready] for c in interface.responses) for v in vectors), 1)
    return Traffic("formal counterexample", 1, messages, send, take)


def _simulated(id_: str, outcome: Comparison, *, strict: bool) -> CheckResult:
    if outcome.difference is not None:
        return CheckResult(
            id_, "function", False, message=f"The function differs: {outcome.difference}.", strict=strict
        )
    late = f", {outcome.latency} cycles later than the original" if outcome.latency else ""
    return CheckResult(
        id_, "function", True, message=f"No difference in {outcome.events} compared events{late}.", strict=strict
    )
