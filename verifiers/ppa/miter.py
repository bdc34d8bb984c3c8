"""Miters: two netlists in one BLIF model with one output, `bad`, that is 1 where they differ.

Three forms. `combinational_miter` compares outputs of combinational designs. `register_miter` cuts both designs at
registers that carry the same names and compares outputs and next states: if it is never 1, the designs are the same
machine. `sequential_miter` is the product machine from the state that a reset leaves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from edagym.task_assets.ppa.designs import Interface
from edagym.verifiers.ppa.rtl import FlipFlop, Netlist

_TABLES = {
    "BUF": "1 1\n",
    "NOT": "0 1\n",
    "AND": "11 1\n",
    "NAND": "0- 1\n-0 1\n",
    "OR": "1- 1\n-1 1\n",
    "NOR": "00 1\n",
    "XOR": "01 1\n10 1\n",
    "XNOR": "00 1\n11 1\n",
    "ANDNOT": "10 1\n",
    "ORNOT": "1- 1\n-0 1\n",
    "MUX": "1-0 1\n-11 1\n",
}
_UNKNOWN = 2

Signal = str


def input_name(port: str, bit: int) -> str:
    """Return the name that an input bit has in every miter."""
    return f"in_{port}_{bit}"


def initial_name(flop: FlipFlop, prefix: str) -> str:
    """Return the name that a register's free initial value has; registers of the same name share it."""
    return f"init_{re.sub(r'[^A-Za-z0-9_.]', '_', flop.names[0]) if flop.names else f'{prefix}q{flop.q}'}"


class _Model:
    """A BLIF model under construction."""

    def __init__(self) -> None:
        self.inputs: dict[str, None] = {}
        self._lines: list[str] = []
        self._count = 0
        self.gate_into("zero", "BUF0", ())
        self.gate_into("one", "BUF1", ())

    def input(self, name: str) -> Signal:
        self.inputs[name] = None
        return name

    def gate_into(self, out: Signal, kind: str, ins: Sequence[Signal]) -> Signal:
        table = {"BUF0": "", "BUF1": "1\n"}.get(kind)
        self._lines.append(f".names {' '.join([*ins, out])}\n{_TABLES[kind] if table is None else table}")
        return out

    def gate(self, kind: str, *ins: Signal) -> Signal:
        self._count += 1
        return self.gate_into(f"t{self._count}", kind, ins)

    def latch(self, after: Signal, initial: int) -> Signal:
        self._count += 1
        out = f"r{self._count}"
        self.latch_into(out, after, initial)
        return out

    def latch_into(self, out: Signal, after: Signal, initial: int) -> None:
        self._lines.append(f".latch {after} {out} {initial}\n")

    def any(self, signals: Sequence[Signal]) -> Signal:
        level = list(signals) or ["zero"]
        while len(level) > 1:
            pairs = [self.gate("OR", a, b) for a, b in zip(level[::2], level[1::2])]
            level = pairs + (level[-1:] if len(level) % 2 else [])
        return level[0]

    def text(self, bad: Signal) -> str:
        self.gate_into("bad", "BUF", (bad,))
        return f".model miter\n.inputs {' '.join(self.inputs)}\n.outputs bad\n{''.join(self._lines)}.end\n"


def _place(
    model: _Model,
    netlist: Netlist,
    prefix: str,
    drive: Callable[[str, int], Signal],
    register: Callable[[FlipFlop], Signal],
) -> Callable[[int], Signal]:
    """Put the gates of a netlist into a model; return the signal of each net."""
    signals: dict[int, Signal] = {0: "zero", 1: "one"}
    for port in netlist.inputs:
        for bit, net in enumerate(port.nets):
            signals[net] = drive(port.name, bit)
    for flop in netlist.flops:
        signals[flop.q] = register(flop)
    for k, net in enumerate(netlist.undefined):
        signals[net] = model.input(f"{prefix}undefined{k}")
    for kind, out, ins in netlist.gates:
        signals[out] = model.gate_into(f"{prefix}n{out}", kind, [signals[n] for n in ins])
    return signals.__getitem__


def _outputs(netlist: Netlist) -> dict[tuple[str, int], int]:
    return {(p.name, bit): net for p in netlist.outputs for bit, net in enumerate(p.nets)}


def combinational_miter(ours: Netlist, theirs: Netlist) -> str:
    """Return the miter of two combinational netlists."""
    model = _Model()

    def drive(port: str, bit: int) -> Signal:
        return model.input(input_name(port, bit))

    def no_register(flop: FlipFlop) -> Signal:
        raise ValueError(f"a flip-flop in a combinational design: {flop.names}")

    a = _place(model, ours, "a_", drive, no_register)
    b = _place(model, theirs, "b_", drive, no_register)
    other = _outputs(theirs)
    masked = set(ours.masked_outputs)
    pairs = [(a(n), b(other[key])) for key, n in _outputs(ours).items() if f"{key[0]}[{key[1]}]" not in masked]
    return model.text(model.any([model.gate("XOR", x, y) for x, y in pairs]))


def match_registers(ours: Netlist, theirs: Netlist) -> list[tuple[FlipFlop, FlipFlop]] | None:
    """Pair registers that share a name; None unless each register has exactly one partner."""
    by_name = {name: flop for flop in theirs.flops for name in flop.names}
    pairs = []
    for flop in ours.flops:
        partners = {by_name[name].q: by_name[name] for name in flop.names if name in by_name}
        if len(partners) != 1:
            return None
        pairs.append((flop, next(iter(partners.values()))))
    if len(ours.flops) != len(theirs.flops) or len({b.q for _, b in pairs}) != len(pairs):
        return None
    return pairs


def register_miter(ours: Netlist, theirs: Netlist, pairs: Sequence[tuple[FlipFlop, FlipFlop]]) -> str:
    """Return the miter of outputs and next states with the paired registers as common free inputs."""
    model = _Model()

    def drive(port: str, bit: int) -> Signal:
        return model.input(input_name(port, bit))

    state = {id(flop): f"state{k}" for k, pair in enumerate(pairs) for flop in pair}

    def register(flop: FlipFlop) -> Signal:
        return model.input(state[id(flop)])

    a = _place(model, ours, "a_", drive, register)
    b = _place(model, theirs, "b_", drive, register)
    other = _outputs(theirs)
    differs = [model.gate("XOR", a(n), b(other[key])) for key, n in _outputs(ours).items()]
    differs += [model.gate("XOR", a(x.d), b(y.d)) for x, y in pairs]
    return model.text(model.any(differs))


def _machine(
    model: _Model,
    netlist: Netlist,
    prefix: str,
    interface: Interface,
    drive: Callable[[str, int], Signal],
    first: Signal,
    started: Signal | None,
) -> Callable[[int], Signal]:
    """Put a design with its registers into a model, in the state after a reset; held there until `started`."""
    initial = after_reset(netlist, interface)
    outs = {}
    for flop, value in zip(netlist.flops, initial):
        out = f"{prefix}q{flop.q}"
        if value == _UNKNOWN:
            outs[flop.q] = model.gate("MUX", out, model.input(initial_name(flop, prefix)), first)
        else:
            outs[flop.q] = out
    find = _place(model, netlist, prefix, drive, lambda flop: outs[flop.q])
    for flop, value in zip(netlist.flops, initial):
        after = find(flop.d)
        if started is not None:
            after = model.gate("MUX", outs[flop.q], after, started)
        model.latch_into(f"{prefix}q{flop.q}", after, 0 if value == _UNKNOWN else value)
    return find


def activation_miter(netlist: Netlist, interface: Interface, still: Mapping[int, int]) -> str:
    """Return a design's machine after a reset, with `bad` where a net leaves the one value it is known to have had.

    All channels are busy in every cycle.
    """
    model = _Model()
    first = model.latch("zero", 1)
    inactive = "one" if interface.reset_active_low else "zero"

    # What is offered without being valid would be lost when the inputs are sent as messages.
    busy = {c.valid for c in interface.requests} | {c.ready for c in interface.responses}

    def drive(port: str, bit: int) -> Signal:
        if port in busy:
            return "one"
        return inactive if port == interface.reset else model.input(input_name(port, bit))

    find = _machine(model, netlist, "b_", interface, drive, first, None)
    moved = [model.gate("NOT", find(net)) if value else find(net) for net, value in still.items()]
    return model.text(model.any(moved))


def sequential_miter(ours: Netlist, theirs: Netlist, interface: Interface, latency: int, *, delay: str) -> str:
    """Return the product machine from the state after a reset.

    With latency 0 the reset stays a free input; otherwise it is inactive for good, because a reset in between clears
    different cycles of the two pipelines. Registers that the reset does not set start with free values, the same for
    registers that share a name.

    Args:
        ours: The original.
        theirs: The modified netlist, `latency` cycles later.
        interface: Clock, reset and channels. On valid/ready interfaces data counts only while valid.
        latency: Cycles.
        delay: ``"inputs"``: the original starts `latency` cycles later on delayed inputs; ``"outputs"``: its outputs
            are delayed. Both say the same; which is easier to prove depends on where the modified design's stages are.
    """
    model = _Model()
    first = model.latch("zero", 1)
    age = ["one"]
    for _ in range(latency):
        age.append(model.latch(age[-1], 0))
    started = age[-1]
    inactive = "one" if interface.reset_active_low else "zero"

    def direct(port: str, bit: int) -> Signal:
        return inactive if port == interface.reset and latency else model.input(input_name(port, bit))

    def delayed(port: str, bit: int) -> Signal:
        signal = direct(port, bit)
        for _ in range(latency if delay == "inputs" and port != interface.reset else 0):
            signal = model.latch(signal, 0)
        return signal

    a = _machine(model, ours, "a_", interface, delayed, first, started if delay == "inputs" else None)
    b = _machine(model, theirs, "b_", interface, direct, first, None)
    theirs_at = _outputs(theirs)
    expected = {key: a(net) for key, net in _outputs(ours).items() if f"{key[0]}[{key[1]}]" not in ours.masked_outputs}
    if delay == "outputs":
        for key, signal in expected.items():
            for _ in range(latency):
                signal = model.latch(signal, 0)
            expected[key] = signal
    offered = {name: c.valid for c in interface.responses for name in c.data}
    differs = []
    for key, signal in expected.items():
        wrong = model.gate("XOR", signal, b(theirs_at[key]))
        if key[0] in offered:
            wrong = model.gate("AND", wrong, expected[offered[key[0]], 0])
        differs.append(wrong)
    return model.text(model.gate("AND", model.any(differs), started))


def depth(netlist: Netlist) -> int | None:
    """Return after how many cycles an input has left the design, or None if registers feed back on themselves."""
    sources = {out: ins for _, out, ins in netlist.gates}
    after = {flop.q: flop.d for flop in netlist.flops}
    flops_before: dict[int, frozenset[int]] = {}
    for _, out, ins in netlist.gates:
        flops_before[out] = frozenset().union(*(flops_before.get(n, {n} & after.keys()) for n in ins))

    def registers(net: int) -> frozenset[int]:
        return flops_before[net] if net in sources else frozenset({net} & after.keys())

    level: dict[int, int] = {}
    waiting = {q: registers(d) for q, d in after.items()}
    while waiting:
        ready = [q for q, before in waiting.items() if before <= level.keys()]
        if not ready:
            return None
        for q in ready:
            level[q] = 1 + max((level[n] for n in waiting[q]), default=0)
        for q in ready:
            del waiting[q]
    return max(level.values(), default=0)


def feedback_bits(netlist: Netlist) -> int:
    """Return how many registers depend on themselves, directly or through others, by more than holding their value."""
    after = {flop.q: flop.d for flop in netlist.flops}
    reached: dict[int, frozenset[int]] = {}
    for _, out, ins in netlist.gates:
        reached[out] = frozenset().union(*(reached.get(n, {n} & after.keys()) for n in ins))
    gates = {out: (kind, ins) for kind, out, ins in netlist.gates}

    def support(net: int) -> frozenset[int]:
        return reached.get(net, frozenset({net} & after.keys()))

    def holds(net: int, q: int) -> bool:
        """Whether a net is the register itself, or the register under an asynchronous reset."""
        if net == q:
            return True
        kind, ins = gates.get(net, ("", ()))
        kept = {"AND": ins, "OR": ins, "ANDNOT": ins[:1], "ORNOT": ins[:1], "MUX": ins[:2]}.get(kind, ())
        return q in kept and not any(support(n) for n in ins if n != q) and not (kind == "MUX" and ins[2] == q)

    reads: dict[int, frozenset[int]] = {}
    for q, d in after.items():
        found: set[int] = set()
        waiting = [d]
        while waiting:
            net = waiting.pop()
            kind, ins = gates.get(net, ("", ()))
            if holds(net, q):
                continue
            if kind == "MUX":
                waiting += ins[:2]
                found |= support(ins[2])
            else:
                found |= support(net)
        reads[q] = frozenset(found)
    # Registers that can be peeled off from either end of the graph are in no cycle.
    left = set(reads)
    while True:
        read = {n for q in left for n in reads[q]}
        kept = {q for q in left if q in read and reads[q] & left}
        if kept == left:
            return len(left)
        left = kept


def unrolled_miter(ours: Netlist, theirs: Netlist, interface: Interface, latency: int, cycles: int) -> str:
    """Return the combinational miter of two pipelines without feedback, over the last `cycles` cycles of inputs.

    Both start from any state; after as many cycles as they are deep, only the inputs count. With latency 0 the reset is
    free in every cycle, otherwise it is inactive.
    """
    model = _Model()
    inactive = "one" if interface.reset_active_low else "zero"
    found: list[Callable[[int], Signal]] = []
    for netlist, prefix, length in ((ours, "a", cycles), (theirs, "b", cycles + latency)):
        state = {flop.q: model.input(f"{prefix}_any{flop.q}") for flop in netlist.flops}
        find: Callable[[int], Signal] | None = None
        for t in range(length + 1):

            def drive(port: str, bit: int, t: int = t) -> Signal:
                if port == interface.reset and latency:
                    return inactive
                return model.input(f"{input_name(port, bit)}_t{t}")

            now = dict(state)
            find = _place(model, netlist, f"{prefix}{t}_", drive, lambda flop, now=now: now[flop.q])  # type: ignore[misc]
            state = {flop.q: find(flop.d) for flop in netlist.flops}
        assert find is not None
        found.append(find)
    theirs_at = _outputs(theirs)
    masked = set(ours.masked_outputs)
    pairs = [
        (found[0](net), found[1](theirs_at[port, bit]))
        for (port, bit), net in _outputs(ours).items()
        if f"{port}[{bit}]" not in masked
    ]
    return model.text(model.any([model.gate("XOR", x, y) for x, y in pairs]))


def after_reset(netlist: Netlist, interface: Interface, cycles: int = 8) -> list[int]:
    """Return each register's value after some cycles under reset with unknown inputs: 0, 1, or 2 for unknown."""
    values: dict[int, int] = {0: 0, 1: 1}
    values.update(dict.fromkeys(netlist.undefined, _UNKNOWN))
    for port in netlist.inputs:
        active = int(not interface.reset_active_low) if port.name == interface.reset else _UNKNOWN
        values.update(dict.fromkeys(port.nets, active))
    state = [_UNKNOWN] * len(netlist.flops)
    for _ in range(cycles if interface.reset is not None else 0):
        values.update(zip((f.q for f in netlist.flops), state))
        for kind, out, ins in netlist.gates:
            values[out] = _ternary(kind, [values[n] for n in ins])
        following = [values[f.d] for f in netlist.flops]
        if following == state:
            break
        state = following
    return state


def _ternary(kind: str, ins: Sequence[int]) -> int:
    if kind == "MUX":
        a, b, s = ins
        if s != _UNKNOWN:
            return b if s else a
        return a if a == b else _UNKNOWN
    first = ins[0]
    if kind == "BUF":
        return first
    if kind == "NOT":
        return _not(first)
    second = _not(ins[1]) if kind in ("ANDNOT", "ORNOT") else ins[1]
    if kind in ("XOR", "XNOR"):
        value = _UNKNOWN if _UNKNOWN in (first, second) else first ^ second
    elif kind in ("AND", "NAND", "ANDNOT"):
        value = 0 if 0 in (first, second) else min(2, first * second)
    else:
        value = 1 if 1 in (first, second) else max(first, second)
    return _not(value) if kind in ("NAND", "NOR", "XNOR") else value


def _not(value: int) -> int:
    return _UNKNOWN if value == _UNKNOWN else 1 - value
