"""`Simulator`: a two-state cycle simulator that runs many stimuli at once, one a bit of Python's big integers.

A net is an integer whose bit `l` is the net's value in lane `l`; a gate is one integer operation, and the whole design
is one straight-line Python function. Simulation is exact and deterministic. There is no X: what is unknown (registers
at power-up, undefined constants, undriven nets) is given by the caller, lane by lane, so that running the same stimulus
with different unknowns shows what depends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from edagym.verifiers.ppa.rtl import Netlist

Lanes = int
"""Values of one bit in all lanes."""

_TEMPLATES = {
    "BUF": "{0}",
    "NOT": "M ^ {0}",
    "AND": "{0} & {1}",
    "NAND": "M ^ ({0} & {1})",
    "OR": "{0} | {1}",
    "NOR": "M ^ ({0} | {1})",
    "XOR": "{0} ^ {1}",
    "XNOR": "M ^ {0} ^ {1}",
    "ANDNOT": "{0} & (M ^ {1})",
    "ORNOT": "{0} | (M ^ {1})",
    # y = s ? b : a
    "MUX": "{0} ^ (({0} ^ {1}) & {2})",
}


def _compile(netlist: Netlist, watched: Sequence[int]) -> Callable[..., tuple[list[Lanes], list[Lanes], list[Lanes]]]:
    def name(net: int) -> str:
        return ("0", "M")[net] if net < 2 else f"n{net}"

    def unpack(nets: Sequence[int], source: str) -> list[str]:
        return [f" {', '.join(name(n) for n in nets)}, = {source}"] if nets else []

    lines = ["def cycle(inputs, state, unknown, M):"]
    lines += unpack([n for p in netlist.inputs for n in p.nets], "inputs")
    lines += unpack([f.q for f in netlist.flops], "state")
    lines += unpack(netlist.undefined, "unknown")
    lines += [f" n{out} = {_TEMPLATES[kind].format(*map(name, ins))}" for kind, out, ins in netlist.gates]
    outs = ", ".join(name(n) for p in netlist.outputs for n in p.nets)
    after = ", ".join(name(f.d) for f in netlist.flops)
    lines.append(f" return [{outs}], [{after}], [{', '.join(map(name, watched))}]")
    scope: dict[str, Callable[..., tuple[list[Lanes], list[Lanes], list[Lanes]]]] = {}
    # The text is made of integers and fixed operators only; no name of the design gets into it.
    exec(compile("\n".join(lines), "<netlist>", "exec"), scope)
    return scope["cycle"]


class Simulator:
    """One design with its state in all lanes.

    Args:
        netlist: The design.
        lanes: Number of lanes.
        watch: Whether to keep track of nets that never move (`still`), which takes longer.
    """

    def __init__(self, netlist: Netlist, lanes: int, *, watch: bool = False) -> None:
        self.netlist = netlist
        self.lanes = lanes
        self.mask = (1 << lanes) - 1
        self._watched = [*(f.q for f in netlist.flops), *(out for _, out, _ in netlist.gates)] if watch else []
        self._still: dict[int, Lanes] | None = None
        self._cycle = _compile(netlist, self._watched)
        self._state: list[Lanes] = [0] * len(netlist.flops)
        self._unknown: list[Lanes] = [0] * len(netlist.undefined)
        self._inputs = [(p.name, p.width) for p in netlist.inputs]
        self._outputs: list[tuple[str, int, int]] = []
        start = 0
        for port in netlist.outputs:
            self._outputs.append((port.name, start, start + port.width))
            start += port.width

    def power_up(self, fill: Callable[[], Lanes]) -> None:
        """Set every register and every undefined net to what `fill` returns, in a fixed order."""
        self._state = [fill() & self.mask for _ in self._state]
        self._unknown = [fill() & self.mask for _ in self._unknown]

    def set_registers(self, values: Mapping[int, int]) -> None:
        """Give single registers (by index in the netlist) a value in all lanes."""
        for index, bit in values.items():
            self._state[index] = self.mask if bit else 0

    def watch_from_here(self) -> None:
        """Forget how nets moved so far."""
        self._still = None

    def still(self) -> dict[int, int]:
        """Return the nets that had one value in all lanes in all cycles so far, with it."""
        return {self._watched[k]: int(v != 0) for k, v in (self._still or {}).items()}

    def settle(self, inputs: Mapping[str, Sequence[Lanes]]) -> dict[str, list[Lanes]]:
        """Return the outputs under some inputs, without a clock edge.

        Args:
            inputs: Port -> values of its bits, least significant first; the clock is left out.
        """
        return self._run(inputs)[0]

    def step(self, inputs: Mapping[str, Sequence[Lanes]]) -> dict[str, list[Lanes]]:
        """Return the outputs under some inputs before the next clock edge, then apply the edge."""
        outputs, self._state = self._run(inputs)
        return outputs

    def _run(self, inputs: Mapping[str, Sequence[Lanes]]) -> tuple[dict[str, list[Lanes]], list[Lanes]]:
        flat: list[Lanes] = []
        for name, width in self._inputs:
            values = inputs[name]
            if len(values) != width:
                raise ValueError(f"{name} has {width} bits, got {len(values)}")
            flat += values
        outputs, state, watched = self._cycle(flat, self._state, self._unknown, self.mask)
        if self._still is None:
            self._still = {k: v for k, v in enumerate(watched) if v in (0, self.mask)}
        elif self._still:
            self._still = {k: v for k, v in self._still.items() if watched[k] == v}
        return {name: outputs[start:end] for name, start, end in self._outputs}, state


def pack(values: Sequence[int], width: int) -> list[Lanes]:
    """Return the bits of one port from its value in each lane."""
    size = (width + 7) // 8
    raw = np.frombuffer(b"".join(v.to_bytes(size, "little") for v in values), dtype=np.uint8)
    bits = np.unpackbits(raw.reshape(len(values), size), axis=1, count=width, bitorder="little")
    rows = np.packbits(bits.T, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in rows]


def unpack(planes: Sequence[Lanes], lanes: int) -> list[int]:
    """Undo `pack`: the port's value in each lane."""
    return [lane_value(planes, lane) for lane in range(lanes)]


def lane_value(planes: Sequence[Lanes], lane: int) -> int:
    """Return the value of one lane."""
    return sum((plane >> lane & 1) << bit for bit, plane in enumerate(planes))
