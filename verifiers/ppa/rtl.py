"""`elaborate`: Verilog sources -> `Netlist`, the gates and flip-flops that simulation and formal checks work on.

Yosys does the reading and lowering. It is kept from using its freedom: no pass that settles an undefined value runs
before the netlist is written, so that undefined constants, undriven nets and flip-flops without reset stay visible and
the checks can treat them as unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from edagym.errors import FlowError
from edagym.verifiers.ppa.yosys import ToolRun, run_yosys

TIMEOUT_S = 120.0
MAX_GATES = 250_000
"""Largest netlist that is simulated."""

_INPUTS = {
    "$_BUF_": "A",
    "$_NOT_": "A",
    "$_AND_": "AB",
    "$_NAND_": "AB",
    "$_OR_": "AB",
    "$_NOR_": "AB",
    "$_XOR_": "AB",
    "$_XNOR_": "AB",
    "$_ANDNOT_": "AB",
    "$_ORNOT_": "AB",
    "$_MUX_": "ABS",
}
_IGNORED = {"$assert", "$assume", "$cover", "$check", "$print", "$live", "$fair", "$scopeinfo"}
_FOREIGN_NAME = re.compile(r"\\\$\S+")
_LIBRARY_NAME = re.compile(r"\S*_ASAP7_75t_\S*")
_ASYNC_PINS = {
    "$adff": ("ARST",),
    "$adffe": ("ARST",),
    "$aldff": ("ALOAD",),
    "$aldffe": ("ALOAD",),
    "$dffsr": ("SET", "CLR"),
    "$dffsre": ("SET", "CLR"),
}
# A case that the source declares parallel has no defined value where two of its branches apply: synthesis may assume
# that this never happens, so the check must not take one of the branches for granted.
_PARALLEL_MAP = """\
(* techmap_celltype = "$pmux" *)
module _declared_parallel (A, B, S, Y);
  parameter WIDTH = 1;
  parameter S_WIDTH = 1;
  input [WIDTH-1:0] A;
  input [WIDTH*S_WIDTH-1:0] B;
  input [S_WIDTH-1:0] S;
  output [WIDTH-1:0] Y;
  wire [WIDTH*(S_WIDTH+1)-1:0] sum;
  assign sum[WIDTH-1:0] = (|S) ? {WIDTH{1'b0}} : A;
  genvar i;
  generate for (i = 0; i < S_WIDTH; i = i + 1) begin : branch
    assign sum[WIDTH*(i+1) +: WIDTH] = sum[WIDTH*i +: WIDTH] | (B[WIDTH*i +: WIDTH] & {WIDTH{S[i]}});
  end endgenerate
  assign Y = (|(S & (S - 1'b1))) ? {WIDTH{1'bx}} : sum[WIDTH*S_WIDTH +: WIDTH];
endmodule
"""


@dataclass(frozen=True, slots=True)
class Port:
    """A port of the top module: name, ``"input"`` or ``"output"``, and its nets, least significant first."""

    name: str
    direction: str
    nets: tuple[int, ...]

    @property
    def width(self) -> int:
        """Number of bits."""
        return len(self.nets)


@dataclass(frozen=True, slots=True)
class FlipFlop:
    """A rising-edge flip-flop of one bit: output net, input net, and the names that its output has in the source."""

    q: int
    d: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Netlist:
    """A flattened design of single-bit gates and flip-flops in one clock domain.

    Nets are integers; net 0 is constant 0 and net 1 constant 1.

    Attributes:
        ports: All ports in the order of the source.
        clock: Name of the clock port, or None.
        gates: (type without ``$_`` and ``_``, output net, input nets), in topological order.
        flops: Flip-flops, ordered by output net.
        undefined: Nets that have no defined value: undefined constants, undriven nets.
        masked_outputs: ``port[bit]`` of outputs that are an undefined or high-impedance constant.
        has_initial_values: Whether the source gives registers initial values (which silicon does not have).
        async_controls: Input ports that set or clear flip-flops asynchronously; ``"logic"`` stands for anything else
            that does. Timing analysis stops at such pins.
    """

    ports: tuple[Port, ...]
    clock: str | None
    gates: tuple[tuple[str, int, tuple[int, ...]], ...]
    flops: tuple[FlipFlop, ...]
    undefined: tuple[int, ...]
    masked_outputs: tuple[str, ...]
    has_initial_values: bool
    async_controls: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[Port, ...]:
        """Input ports without the clock."""
        return tuple(p for p in self.ports if p.direction == "input" and p.name != self.clock)

    @property
    def outputs(self) -> tuple[Port, ...]:
        """Output ports."""
        return tuple(p for p in self.ports if p.direction == "output")

    @property
    def signature(self) -> tuple[tuple[str, str, int], ...]:
        """(name, direction, width) of all ports, sorted: what a changed design must keep."""
        return tuple(sorted((p.name, p.direction, p.width) for p in self.ports))


def elaborate(sources: Mapping[str, str], top: str, clock: str | None, *, timeout_s: float = TIMEOUT_S) -> Netlist:
    """Read a design and lower it to single-bit gates.

    Args:
        sources: Path -> Verilog text.
        top: Top module.
        clock: Clock port; None for a combinational design.
        timeout_s: Wall-clock limit of the engine, seconds.

    Raises:
        FlowError: With `field` ``"equivalence"`` or ``"synthesis"`` and the reason, if the design cannot be read or has
            what the checks don't model: latches, combinational loops, black boxes, bidirectional ports, flip-flops on
            another clock than the clock port's rising edge, modules named like cells of the library, more than
            `MAX_GATES` gates.
        ToolTimeout: If the engine runs too long.
        ToolError: If the engine fails.
    """
    for path, text in sources.items():
        if found := _FOREIGN_NAME.search(text):
            raise FlowError("a name that is reserved for the engine", field="equivalence", value=f"{path}: {found[0]}")
    if not re.fullmatch(r"[A-Za-z_]\w*", top):
        raise FlowError("malformed name of the top module", field="equivalence", value=top)
    run = _lower(sources, top, timeout_s, parallel_map=False)
    if b"attribute \\parallel_case 1" in run.outputs["read.il"]:
        run = _lower(sources, top, timeout_s, parallel_map=True)
    if shadowed := _LIBRARY_NAME.findall(run.outputs["modules.txt"].decode()):
        # The flow would take the library's cell, not the module that is checked here.
        raise _refusal("a module named like a cell of the library", shadowed[0])
    if latches := run.outputs["latches.txt"].decode().split():
        raise _refusal("a latch", latches[0])
    module = json.loads(run.outputs["netlist.json"])["modules"][top]
    words = json.loads(run.outputs["words.json"])["modules"][top]
    return _read(module, clock, bool(run.outputs["initial.txt"].strip()), _async_controls(words))


def _lower(sources: Mapping[str, str], top: str, timeout_s: float, *, parallel_map: bool) -> ToolRun:
    readable = [path for path in sources if path.endswith((".v", ".sv"))]
    script = [
        *(f"read_verilog -sv {path}" for path in readable),
        "tee -q -o modules.txt ls",
        f"hierarchy -check -top {top}",
        "write_rtlil read.il",
        "proc",
        "flatten",
        "opt_clean",
        "write_json words.json",
        *(["techmap -map check/parallel.v"] if parallel_map else []),
        "tee -q -o initial.txt select -list a:init",
        "tee -q -o latches.txt select -list t:$dlatch t:$adlatch t:$dlatchsr t:$sr",
        "memory_collect",
        "memory_map",
        "setattr -unset init w:*",
        "async2sync",
        "techmap",
        "simplemap",
        "dfflegalize -cell $_DFF_P_ x",
        "simplemap",
        "opt_expr",
        "opt_merge",
        "opt_clean",
        "write_json netlist.json",
    ]
    return run_yosys(
        script,
        sources=sources,
        files={"check/parallel.v": _PARALLEL_MAP},
        outputs=("modules.txt", "read.il", "words.json", "initial.txt", "latches.txt", "netlist.json"),
        timeout_s=timeout_s,
    )


def _async_controls(module: Mapping[str, dict]) -> tuple[str, ...]:
    """Return the input ports that control flip-flops asynchronously, directly or inverted; ``"logic"``: others do."""
    inputs = {
        bit: name for name, port in module["ports"].items() if port["direction"] == "input" for bit in port["bits"]
    }
    drivers = {
        bit: inputs.get(cell["connections"]["A"][0], "logic")
        for cell in module["cells"].values()
        if cell["type"] in ("$not", "$logic_not") and len(cell["connections"]["A"]) == 1
        for bit in cell["connections"]["Y"][:1]
    }
    found: set[str] = set()
    for cell in module["cells"].values():
        for pin in _ASYNC_PINS.get(cell["type"], ()):
            bits = [bit for bit in cell["connections"][pin] if isinstance(bit, int)]
            found.update(inputs.get(bit) or drivers.get(bit, "logic") for bit in bits)
    return tuple(sorted(found))


def _read(
    module: Mapping[str, dict], clock: str | None, has_initial_values: bool, async_controls: tuple[str, ...]
) -> Netlist:
    if len(module["cells"]) > MAX_GATES:
        raise FlowError("too large for simulation", field="gates", value=len(module["cells"]), allowed=MAX_GATES)
    undefined: list[int] = []
    # Nets of the file start at 2; new ones are numbered after them.
    fresh = 2 + max(
        (b for n in module["netnames"].values() for b in n["bits"] if isinstance(b, int)),
        default=2,
    )

    def net(bit: int | str) -> int:
        nonlocal fresh
        if isinstance(bit, int):
            return bit
        if bit in "01":
            return int(bit)
        undefined.append(fresh)
        fresh += 1
        return undefined[-1]

    ports, masked = [], []
    for name, data in module["ports"].items():
        if data["direction"] == "inout":
            raise _refusal("a bidirectional port", name)
        if data["direction"] == "output":
            masked += [f"{name}[{i}]" for i, bit in enumerate(data["bits"]) if bit in ("x", "z")]
        ports.append(Port(name, data["direction"], tuple(net(bit) for bit in data["bits"])))
    clock_net = next((p.nets[0] for p in ports if p.name == clock and p.direction == "input" and p.width == 1), None)
    if clock is not None and clock_net is None:
        raise _refusal("no clock port of this name", clock)

    names: dict[int, list[str]] = {}
    for name, data in module["netnames"].items():
        if not data.get("hide_name"):
            for i, bit in enumerate(data["bits"]):
                if isinstance(bit, int):
                    names.setdefault(bit, []).append(f"{name}[{i}]")

    gates: dict[int, tuple[str, int, tuple[int, ...]]] = {}
    flops = []
    for cell_name, cell in module["cells"].items():
        kind, pins = cell["type"], cell["connections"]
        if kind in _INPUTS:
            out = pins["Y"][0]
            gates[out] = (kind[2:-1], out, tuple(net(pins[pin][0]) for pin in _INPUTS[kind]))
        elif kind == "$_DFF_P_":
            q = pins["Q"][0]
            if pins["C"][0] != clock_net:
                raise _refusal(
                    "a flip-flop that the clock port's rising edge does not clock directly", _known(q, names)
                )
            flops.append(FlipFlop(q, net(pins["D"][0]), tuple(sorted(names.get(q, ())))))
        elif kind == "$_DFF_N_":
            raise _refusal("a flip-flop on the falling edge, not the clock port's rising edge", cell_name)
        elif kind not in _IGNORED:
            raise _refusal("a cell that is not modelled", f"{cell_name}: {kind}")
    if clock_net is not None and any(clock_net in ins for _, _, ins in gates.values()):
        raise _refusal("the clock used as data", str(clock))
    flops = sorted(_named(flops, gates, names), key=lambda flop: flop.q)
    driven = {0, 1, *undefined, *gates, *(f.q for f in flops)}
    driven.update(n for p in ports if p.direction == "input" for n in p.nets)
    used = {n for _, _, ins in gates.values() for n in ins} | {f.d for f in flops}
    used.update(n for p in ports if p.direction == "output" for n in p.nets)
    floating = sorted(used - driven)
    masked += [
        f"{p.name}[{i}]" for p in ports if p.direction == "output" for i, n in enumerate(p.nets) if n in floating
    ]
    undefined += floating
    ordered = _sorted(gates, names)
    return Netlist(
        tuple(ports), clock, ordered, tuple(flops), tuple(undefined), tuple(masked), has_initial_values, async_controls
    )


def _refusal(what: str, value: str) -> FlowError:
    return FlowError(f"the equivalence check refuses {what}", field="equivalence", value=value)


def _known(net: int, names: Mapping[int, list[str]]) -> str:
    return min(names.get(net, ["unnamed"]))


def _named(
    flops: list[FlipFlop], gates: Mapping[int, tuple[str, int, tuple[int, ...]]], names: Mapping[int, list[str]]
) -> list[FlipFlop]:
    """Name flip-flops with an asynchronous reset after the gate that applies the reset to their output."""
    readers: dict[int, list[int]] = {}
    for _, out, ins in gates.values():
        for net in ins:
            readers.setdefault(net, []).append(out)
    named = []
    for flop in flops:
        found = flop.names or tuple(sorted(n for out in readers.get(flop.q, ()) for n in names.get(out, ())))
        named.append(FlipFlop(flop.q, flop.d, found))
    return named


def _sorted(
    gates: Mapping[int, tuple[str, int, tuple[int, ...]]], names: Mapping[int, list[str]]
) -> tuple[tuple[str, int, tuple[int, ...]], ...]:
    """Return the gates in topological order.

    Raises:
        FlowError: If there is a combinational loop.
    """
    order: list[tuple[str, int, tuple[int, ...]]] = []
    state: dict[int, int] = {}  # 1: on the path, 2: done
    for root in sorted(gates):
        stack = [root]
        while stack:
            net = stack[-1]
            if state.get(net) == 2:
                stack.pop()
                continue
            if state.get(net) == 1:
                state[net] = 2
                order.append(gates[net])
                stack.pop()
                continue
            state[net] = 1
            for source in gates[net][2]:
                if source in gates and state.get(source) != 2:
                    if state.get(source) == 1:
                        raise _refusal("a combinational loop", _known(source, names))
                    stack.append(source)
    return tuple(order)
