"""Vectorless power: switching activity propagated through the logic, then energy per transition.

Activity. A net has a probability of being 1 and a density, its transitions per unit of time. Inputs take 0.1
transitions per period of the fastest clock with probability 0.5, clocks 2 per period. A gate's output density is the
sum over its inputs of the input's density times the probability that the output depends on it (Boolean difference;
Najm, IEEE Trans. CAD 12(2), 1993), with inputs taken as independent; truth tables are reduced input by input, so
results don't depend on summation order. In arithmetic arrays these sums grow with every row of adders beyond what a
gate can follow; no net makes more transitions than its own slews fit, so the faster of its two slews bounds its density
(OpenSTA has the same bound). A register takes over probability and density of its next state, but it samples once a
cycle: two independent samples of probability p differ with probability 2p(1 - p), which bounds its transitions per
cycle; it takes no new sample while its own output holds it, and always changes while it toggles (see `Feedback`). Loops
through registers are iterated.

Power, as OpenSTA defines it: switching = C V^2 / 2 per transition of a net; internal = energy tables of the cells
(mean of rise and fall) per transition of an output, shared among its inputs by their part in its density, plus those of
input pins alone; leakage from the cells. Dynamic power is that at the constraint's clock period.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edagym.envs.ppa.flow.feedback import Feedback
from edagym.envs.ppa.flow.netlist import Netlist
from edagym.envs.ppa.flow.sta import Timing
from edagym.task_assets.ppa.technology import FALL, RISE, Technology

INPUT_ACTIVITY = 0.1
"""Transitions of an input per period of the fastest clock."""
PASSES = 25
"""Most iterations through the registers."""
TOLERANCE = 1e-3
"""Change of a register's transitions per cycle below which the iteration ends."""


@dataclass(frozen=True)
class Activity:
    """Switching activity of every net.

    Attributes:
        density: float64 (nets,): transitions per ps.
        probability: float64 (nets,): probability of being 1.
        passes: Iterations through the registers.
    """

    density: np.ndarray
    probability: np.ndarray
    passes: int


@dataclass(frozen=True)
class PowerReport:
    """Power of a design, W.

    Attributes:
        internal: Inside the cells, per transition.
        switching: Charging of nets.
        leakage: Leakage.
        groups: Group (``sequential``, ``combinational``, ``clock``) -> (internal, switching, leakage).
        per_instance: float64 (instances,): total power of each instance.
    """

    internal: float
    switching: float
    leakage: float
    groups: dict[str, tuple[float, float, float]]
    per_instance: np.ndarray

    @property
    def total(self) -> float:
        """Sum of the three."""
        return self.internal + self.switching + self.leakage


class _Logic:
    """Gate outputs as arrays, grouped so that numpy evaluates many at once."""

    def __init__(self, netlist: Netlist, levels: np.ndarray) -> None:
        masters = netlist.technology.masters
        groups: dict[tuple[int, int], list[tuple[int, int, list[int]]]] = {}
        registers: dict[int, list[tuple[int, int, int, list[int]]]] = {}
        for inst in netlist.instances():
            master = masters[netlist.inst_master[inst]]
            first, n = netlist.inst_pin[inst], master.n_inputs
            inputs = [netlist.pin_net[pin] for pin in range(first, first + n)]
            functions = master.register.function if master.register else master.functions
            for k, function in enumerate(functions):
                net = netlist.pin_net[first + n + k]
                if net < 0:
                    continue
                if master.register:
                    registers.setdefault(n, []).append((function, net, inputs[master.register.clock], inputs))
                else:
                    groups.setdefault((int(levels[net]), n), []).append((function, net, inputs))
        self.groups = []
        for (_, n), rows in sorted(groups.items()):
            self.groups.append(_Group(n, [(f, out, -1, inputs) for f, out, inputs in rows]))
        self.registers = [_Group(n, rows) for n, rows in sorted(registers.items())]


class _Group:
    """Gate outputs with equally many inputs."""

    def __init__(self, n: int, rows: list[tuple[int, int, int, list[int]]]) -> None:
        self.out = np.array([row[1] for row in rows], dtype=np.int64)
        self.clock = np.array([row[2] for row in rows], dtype=np.int64)
        self.inputs = np.array([row[3] for row in rows], dtype=np.int64).reshape(len(rows), n).T
        size = 1 << n
        minterms = np.arange(size)
        table = np.array([_bits(row[0], size) for row in rows]).T
        # Columns: the function, then its Boolean difference by each input.
        self.tables = np.stack(
            [table] + [(table != table[minterms ^ (1 << i)]).astype(float) for i in range(n)], axis=1
        )

    def evaluate(self, probability: np.ndarray, density: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return probability and density of the outputs, and (inputs, outputs) each input's part in the density."""
        values = self.tables
        n = len(self.inputs)
        for i in range(n - 1, -1, -1):
            p = probability[self.inputs[i]]
            half = 1 << i
            values = values[:half] * (1.0 - p) + values[half:] * p
        result = values[0]
        parts = result[1:] * density[self.inputs]
        total = np.zeros(parts.shape[1])
        for i in range(n):
            total = total + parts[i]
        return result[0], total, parts


def _bits(function: int, size: int) -> np.ndarray:
    raw = np.frombuffer(function.to_bytes(max(1, size // 8), "little"), dtype=np.uint8)
    return np.unpackbits(raw, bitorder="little")[:size].astype(float)


def activity(timing: Timing) -> Activity:
    """Return the switching activity of every net.

    Args:
        timing: Gives netlist, clocks and the order of evaluation.
    """
    netlist = timing.netlist
    return _propagate(timing, _Logic(netlist, timing.levels()))


def _propagate(timing: Timing, logic: _Logic) -> Activity:
    netlist, clocks = timing.netlist, timing.constraints.clocks
    n_nets = len(netlist.net_name)
    # One slot more, at -1, for unconnected inputs: constant 0.
    density, probability = np.zeros(n_nets + 1), np.zeros(n_nets + 1)
    fastest = min(clock.period for clock in clocks)
    for port, pin in enumerate(netlist.port_pin):
        if netlist.port_input[port]:
            density[netlist.pin_net[pin]] = INPUT_ACTIVITY / fastest
            probability[netlist.pin_net[pin]] = 0.5
    names = {name: netlist.pin_net[pin] for name, pin in zip(netlist.port_name, netlist.port_pin, strict=True)}
    for clock in clocks:
        if clock.source is not None:
            density[names[clock.source]] = 2.0 / clock.period
    for group in logic.registers:
        probability[group.out] = 0.5
    fastest_rate = _fastest_rates(timing)
    feedback = Feedback(netlist)
    passes, change = 0, 1.0
    while passes < PASSES and change >= TOLERANCE:
        passes += 1
        for group in logic.groups:
            probability[group.out], d, _ = group.evaluate(probability, density)
            density[group.out] = np.minimum(d, fastest_rate[group.out])
        change = 0.0
        positive, negative = feedback.dependence(probability)
        for group in logic.registers:
            p, d, _ = group.evaluate(probability, density)
            # A clock has two transitions per cycle.
            rate = np.where(group.clock >= 0, density[group.clock], 0.0) / 2.0
            hold, toggle = positive[group.out], negative[group.out]
            changes = toggle + np.maximum(1.0 - hold - toggle, 0.0) * 2.0 * p * (1.0 - p)
            d = np.minimum(d, changes * rate)
            moved = np.abs(d - density[group.out]) * fastest + np.abs(p - probability[group.out])
            change = max(change, float(np.max(moved, initial=0.0)))
            probability[group.out], density[group.out] = p, d
    return Activity(density[:n_nets], probability[:n_nets], passes)


def _fastest_rates(timing: Timing) -> np.ndarray:
    """Return per net the inverse of its faster slew, 1/ps; inf where no path runs."""
    slews = timing.slews()
    faster = np.where(slews > 0, slews, np.inf).min(axis=1)
    return np.where(np.isfinite(faster), 1.0 / faster, np.inf)


class _Energies:
    """Energy tables of a technology in flat form."""

    def __init__(self, technology: Technology) -> None:
        self.square = technology.energies.reshape(-1)
        self.line = technology.input_energies.reshape(-1)
        self.arcs = [
            np.array([(a.pin, a.related, a.rise, a.fall) for a in master.power], dtype=np.int64).reshape(-1, 4)
            for master in technology.masters
        ]

    def at(self, table: np.ndarray, slew: np.ndarray, load: np.ndarray, base: np.ndarray) -> np.ndarray:
        """Return energies of rows of `Technology.energies`, fJ; 0 for row -1."""
        i, u = _place(slew / 5.0)
        j, t = _place(load / base)
        o = np.maximum(table, 0) * 49 + 7 * i + j
        low = self.square[o] + (self.square[o + 1] - self.square[o]) * t
        high = self.square[o + 7] + (self.square[o + 8] - self.square[o + 7]) * t
        return np.where(table >= 0, low + (high - low) * u, 0.0)

    def at_input(self, table: np.ndarray, slew: np.ndarray) -> np.ndarray:
        """Return energies of rows of `Technology.input_energies`, fJ; 0 for row -1."""
        i, u = _place(slew / 5.0)
        o = np.maximum(table, 0) * 7 + i
        return np.where(table >= 0, self.line[o] + (self.line[o + 1] - self.line[o]) * u, 0.0)


def _place(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    i = np.clip(np.frexp(x)[1] - 1, 0, 5)
    return i, np.ldexp(x, -i) - 1.0


_ENERGIES: dict[str, _Energies] = {}


def power(timing: Timing, given: Activity | None = None) -> PowerReport:
    """Return the power of a design.

    Args:
        timing: Gives netlist, loads, slews and clocks.
        given: Activity; computed if None.
    """
    netlist = timing.netlist
    technology = netlist.technology
    if technology.digest not in _ENERGIES:
        _ENERGIES[technology.digest] = _Energies(technology)
    energies = _ENERGIES[technology.digest]
    found = given or activity(timing)
    density = np.append(found.density, 0.0)
    probability = np.append(found.probability, 0.0)
    loads, slews = timing.loads(), timing.slews()
    # Where only one edge carries a path (a clock's active edge), the other is taken to be alike.
    slews = np.where(slews > 0, slews, slews[:, ::-1])
    n_insts = len(netlist.inst_name)
    internal, switching, leakage = np.zeros(n_insts), np.zeros(n_insts), np.zeros(n_insts)
    pin_net = np.array(netlist.pin_net, dtype=np.int64)
    first = np.array(netlist.inst_pin, dtype=np.int64)
    masters = np.array(netlist.inst_master, dtype=np.int64)
    spread = timing.spreads()
    for index in np.unique(masters[masters >= 0]).tolist():
        insts = np.flatnonzero(masters == index)
        master = technology.masters[index]
        nets = pin_net[first[insts][:, None] + np.arange(len(master.pins))].T
        leakage[insts] = master.leakage * 1e-12
        for k in range(master.n_inputs, len(master.pins)):
            net = nets[k]
            charge = np.where(net >= 0, loads[net].max(axis=1), 0.0)
            switching[insts] += 0.5 * charge * technology.voltage**2 * density[net]
        parts = _parts(master.functions, master.n_inputs, nets, probability, density)
        for pin, related, rise, fall in energies.arcs[index].tolist():
            net = nets[pin]
            from_pin = pin if related < 0 else related
            from_net = nets[from_pin]
            wide = spread[first[insts] + from_pin]
            energy = np.zeros(len(insts))
            for edge, table in ((RISE, rise), (FALL, fall)):
                slew = np.where(from_net >= 0, slews[from_net, edge], 0.0)
                slew = np.sqrt(slew * slew + wide)
                rows = np.full(len(insts), table)
                if related < 0:
                    energy = energy + energies.at_input(rows, slew)
                else:
                    load = np.where(net >= 0, loads[net, edge], 0.0)
                    energy = energy + energies.at(rows, slew, load, np.full(len(insts), master.load_base[pin]))
            energy = energy * 0.5
            if related < 0:
                internal[insts] += energy * density[net]
            elif master.register is not None:
                # Several arcs (clock, set, reset) describe one output; the clock's is the one of a regular transition.
                if related == master.register.clock:
                    internal[insts] += energy * density[net]
            else:
                share = parts[pin - master.n_inputs]
                total = np.zeros(len(insts))
                for i in range(master.n_inputs):
                    total = total + share[i]
                weight = np.where(total > 0, share[related] / np.where(total > 0, total, 1.0), 0.0)
                internal[insts] += energy * weight * density[net]
    # fJ/ps is mW.
    internal *= 1e-3
    switching *= 1e-3
    groups = _groups(netlist, internal, switching, leakage)
    return PowerReport(
        internal=_total(internal),
        switching=_total(switching),
        leakage=_total(leakage),
        groups=groups,
        per_instance=internal + switching + leakage,
    )


def _parts(
    functions: tuple[int, ...], n: int, nets: np.ndarray, probability: np.ndarray, density: np.ndarray
) -> list[np.ndarray]:
    """Return per output (inputs, instances) each input's part in the output's density."""
    made = []
    for function in functions:
        group = _Group(n, [(function, 0, -1, nets[:n, i].tolist()) for i in range(nets.shape[1])])
        made.append(group.evaluate(probability, density)[2])
    return made


def _groups(
    netlist: Netlist, internal: np.ndarray, switching: np.ndarray, leakage: np.ndarray
) -> dict[str, tuple[float, float, float]]:
    clock = np.zeros(len(netlist.inst_name), dtype=bool)
    register = np.zeros(len(netlist.inst_name), dtype=bool)
    for inst in netlist.instances():
        register[inst] = netlist.master(inst).register is not None
        clock[inst] = not register[inst] and any(
            netlist.net_clock[netlist.pin_net[pin]] for pin in netlist.output_pins(inst) if netlist.pin_net[pin] >= 0
        )
    chosen = {"sequential": register, "combinational": ~register & ~clock, "clock": clock}
    return {
        name: (_total(internal[mask]), _total(switching[mask]), _total(leakage[mask])) for name, mask in chosen.items()
    }


def _total(values: np.ndarray) -> float:
    # Summed one by one: numpy's pairwise sum depends on the build's vector width.
    return float(sum(values.tolist()))
