"""`prove`: the formal step of the equivalence check, done by ABC on the miters of `miter.py`.

In this order, until one settles it:

1. Combinational designs: SAT sweeping of the two circuits.
2. Registers that match by name: SAT sweeping of outputs and next states, with the registers as free inputs. Holds from
   every state, so it needs no reset.
3. Signal correspondence (induction over internal equivalences) on the product machine from the reset state, aligned by
   the latency that simulation found; this covers retiming, re-encoding and added stages.
4. Pipelines without feedback: SAT sweeping of both, unrolled over their depth from any state.
5. Bounded model checking of the product machine, which finds what is wrong within some cycles of the reset.
6. Property-directed reachability.

Where a valid/ready design stays unproved, `activate` finds requests that move nets which simulation left still, and the
caller compares the designs on them: a hidden trigger is such a net.

A counterexample is handed back as a stimulus: the caller simulates it, and only what simulation confirms counts. A
proof covers every input sequence after a reset. With a latency it assumes that the reset is not asserted again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edagym.errors import ToolTimeout
from edagym.task_assets.ppa.designs import Interface
from edagym.verifiers.ppa.miter import (
    activation_miter,
    combinational_miter,
    depth,
    match_registers,
    register_miter,
    sequential_miter,
    unrolled_miter,
)
from edagym.verifiers.ppa.rtl import Netlist
from edagym.verifiers.ppa.yosys import ToolRun, run_abc

MAX_FRAMES = 40
"""Most cycles that bounded model checking unrolls."""
ACTIVATION_FRAMES = 8
MAX_DEPTH = 24
"""Deepest pipeline that is unrolled, cycles."""
_CEX = re.compile(r"^in_(.+)_(\d+)@(\d+)=([01])$", re.MULTILINE)
_INITIAL = re.compile(r"^(init_.+)@0=([01])$", re.MULTILINE)
_FRAMES = re.compile(r"No output asserted in (\d+) frames")


@dataclass(frozen=True)
class FormalResult:
    """Outcome of the formal step.

    Attributes:
        status: ``"proved"``, ``"bounded k"``, ``"refuted"`` (set by the caller) or ``"not attempted: why"``.
        detail: Method.
        stimulus: Input values, cycle by cycle after the reset, of a counterexample to be simulated, or None.
        initial: Its initial values of registers that the reset does not set (`miter.initial_name`).
    """

    status: str
    detail: str = ""
    stimulus: Sequence[dict[str, int]] | None = None
    initial: Mapping[str, int] = field(default_factory=dict)


def prove(ours: Netlist, theirs: Netlist, interface: Interface, latency: int, *, timeout_s: float) -> FormalResult:
    """Try to prove that two netlists do the same.

    Args:
        ours: The original.
        theirs: The modified netlist; same ports.
        interface: How the ports talk.
        latency: Cycles by which the modified netlist is later.
        timeout_s: Wall-clock limit, seconds, shared by all methods.

    Raises:
        ToolError: If the engine fails; running out of time is a result, not an error.
    """
    if interface.kind == "combinational":
        return _combinational(combinational_miter(ours, theirs), ours, timeout_s)
    share = max(1, int(timeout_s / 6))
    pairs = match_registers(ours, theirs) if latency == 0 else None
    if pairs is not None and _swept(register_miter(ours, theirs, pairs), share):
        return FormalResult("proved", "registers matched by name, any state")
    for delay in ("inputs", "outputs") if latency else ("inputs",):
        text = sequential_miter(ours, theirs, interface, latency, delay=delay)
        if _corresponds(text, share):
            aligned = f", latency {latency}, no reset after the first" if latency else ""
            return FormalResult("proved", f"induction on the product machine after reset{aligned}")
    depths = (depth(ours), depth(theirs)) if interface.kind == "pipelined" else (None, None)
    deepest = None if None in depths else max(d for d in depths if d is not None)
    if (
        deepest is not None
        and deepest <= MAX_DEPTH
        and _swept(unrolled_miter(ours, theirs, interface, latency, deepest), share)
        and (latency == 0 or _bounded(ours, theirs, interface, latency, deepest + latency + 1, share))
    ):
        return FormalResult("proved", f"pipelines unrolled over {deepest} cycles, any state")
    text = sequential_miter(ours, theirs, interface, latency, delay="outputs")
    run = _abc(text, ["strash", f"bmc3 -F {MAX_FRAMES} -T {share}"], share)
    log = run.log if run else ""
    if "was asserted in frame" in log:
        run = _abc(
            text, ["strash", f"bmc3 -F {MAX_FRAMES} -T {2 * share}", "write_cex -n cex.txt"], 2 * share, "cex.txt"
        )
        if run:
            return FormalResult("refuted", "bounded model checking", _stimulus(run, ours), _initial(run))
        return FormalResult("not attempted: out of time while writing a counterexample")
    run = _abc(text, ["strash", "scorr", f"pdr -T {share}"], share)
    if run and "Property proved" in run.log:
        return FormalResult("proved", "property-directed reachability from reset")
    frames = _FRAMES.search(log)
    if frames and int(frames.group(1)) > 0:
        return FormalResult(f"bounded {frames.group(1)}", "no difference within that many cycles of the reset")
    return FormalResult("not attempted: out of time")


def activate(
    netlist: Netlist, interface: Interface, still: Mapping[int, int], *, timeout_s: float
) -> list[dict[str, int]] | None:
    """Return inputs, cycle by cycle after a reset, that move one of the nets that simulation left still; None if none.

    What waits for a rare input shows up as a net that random stimuli never move.
    """
    limit = max(1, int(timeout_s))
    commands = ["strash", f"bmc3 -F {ACTIVATION_FRAMES} -T {limit}", "write_cex -n cex.txt"]
    text = activation_miter(netlist, interface, still)
    run = _abc(text, commands[:2], limit)
    if run is None or "was asserted in frame" not in run.log:
        return None
    run = _abc(text, commands, limit, "cex.txt")
    if run is None:
        return None
    busy = {c.valid: 1 for c in interface.requests} | {c.ready: 1 for c in interface.responses}
    return [{**cycle, **busy} for cycle in _stimulus(run, netlist)]


def _bounded(ours: Netlist, theirs: Netlist, interface: Interface, latency: int, frames: int, limit: int) -> bool:
    """Whether nothing differs in the first cycles after the reset."""
    text = sequential_miter(ours, theirs, interface, latency, delay="outputs")
    run = _abc(text, ["strash", f"bmc3 -F {frames} -T {limit}"], limit)
    done = _FRAMES.search(run.log) if run else None
    return done is not None and int(done.group(1)) >= frames


def _combinational(text: str, ours: Netlist, timeout_s: float) -> FormalResult:
    limit = max(1, int(timeout_s * 0.8))
    run = _abc(text, ["strash", "&get", f"&cec -m -T {limit}"], timeout_s)
    if run and "Networks are equivalent" in run.log:
        return FormalResult("proved", "SAT sweeping")
    if run and "NOT EQUIVALENT" in run.log:
        run = _abc(text, ["strash", "iprove", "write_cex -n cex.txt"], timeout_s, "cex.txt")
        if run:
            return FormalResult("refuted", "SAT", _stimulus(run, ours))
    return FormalResult("not attempted: the circuits are too different for SAT within the time limit")


def _swept(text: str, limit: int) -> bool:
    run = _abc(text, ["strash", "&get", f"&cec -m -T {limit}"], limit)
    return run is not None and "Networks are equivalent" in run.log


def _corresponds(text: str, limit: int) -> bool:
    """Whether signal correspondence reduces the miter to constant 0."""
    run = _abc(text, ["strash", "scorr", "scorr -F 4", "write_blif left.blif"], limit, "left.blif")
    if run is None:
        return False
    left = run.outputs["left.blif"].decode().replace("\\\n", " ")
    body = [line for line in left.splitlines() if line and not line.startswith(("#", ".model", ".inputs", ".outputs"))]
    return [line.strip() for line in body] == [".names bad", "0", ".end"]


def _abc(text: str, commands: Sequence[str], limit: float, output: str | None = None) -> ToolRun | None:
    """Run ABC on a miter; None if it ran out of time."""
    try:
        return run_abc(
            ["read_blif miter.blif", *commands],
            files={"miter.blif": text},
            outputs=(output,) if output else (),
            timeout_s=limit + 15,
        )
    except ToolTimeout:
        return None


def _initial(run: ToolRun) -> dict[str, int]:
    return {name: int(value) for name, value in _INITIAL.findall(run.outputs["cex.txt"].decode())}


def _stimulus(run: ToolRun, ours: Netlist) -> list[dict[str, int]]:
    cycles: list[dict[str, int]] = []
    for port, bit, frame, value in _CEX.findall(run.outputs["cex.txt"].decode()):
        while len(cycles) <= int(frame):
            cycles.append({p.name: 0 for p in ours.inputs})
        cycles[int(frame)][port] = cycles[int(frame)].get(port, 0) | int(value) << int(bit)
    return cycles
