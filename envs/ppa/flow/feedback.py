"""How the next state of a register depends on its present one: registers that hold or toggle.

Two independent samples of probability p differ with probability 2p(1 - p), but a register with an enable takes no new
sample while it holds. `Feedback` follows the few gates between a register's output and its own data input and gives the
probability that the next state equals the present one because of them (positive dependence), or is its opposite
(negative dependence, as in a counter).
"""

from __future__ import annotations

import numpy as np

from edagym.envs.ppa.flow.netlist import Netlist

DEPTH = 3
"""Most gates with several inputs on a path from a register's output to its input; buffers and inverters don't count."""
MAX_PATHS = 24
"""Most paths that are followed per register output."""


class Feedback:
    """Paths from registers' outputs to their own inputs.

    Args:
        netlist: The design as it is now.
    """

    def __init__(self, netlist: Netlist) -> None:
        self._netlist = netlist
        self._elements: dict[tuple[int, int], int] = {}
        rows: list[tuple[int, list[int]]] = []
        for inst in netlist.instances():
            register = netlist.master(inst).register
            if register is None:
                continue
            for pin in netlist.output_pins(inst):
                if netlist.pin_net[pin] >= 0:
                    for offset in range(netlist.master(inst).n_inputs):
                        if offset != register.clock:
                            last = self._element(pin, offset)
                            first = netlist.pin_net[netlist.inst_pin[inst] + offset]
                            paths = self._paths(first, netlist.pin_net[pin], DEPTH)
                            rows += [(netlist.pin_net[pin], [last, *path]) for path in paths[:MAX_PATHS]]
        self.nets = np.array([net for net, _ in rows], dtype=np.int64)
        width = max((len(path) for _, path in rows), default=0)
        # The element after the last one is the identity, which pads short paths.
        self._paths_of = np.array(
            [path + [len(self._elements)] * (width - len(path)) for _, path in rows], dtype=np.int64
        ).reshape(len(rows), width)
        self._prepare()

    def _element(self, pin: int, offset: int) -> int:
        return self._elements.setdefault((pin, offset), len(self._elements))

    def _paths(self, net: int, target: int, depth: int) -> list[list[int]]:
        """Return the paths that lead from a target net to a net, as elements from the end."""
        if net == target:
            return [[]]
        netlist = self._netlist
        driver = netlist.net_driver[net] if net >= 0 else -1
        inst = netlist.pin_inst[driver] if driver >= 0 else -1
        if inst < 0 or netlist.master(inst).register is not None:
            return []
        master = netlist.master(inst)
        left = depth - (master.n_inputs > 1)
        if left < 0:
            return []
        found: list[list[int]] = []
        for offset in range(master.n_inputs):
            for path in self._paths(netlist.pin_net[netlist.inst_pin[inst] + offset], target, left):
                found.append([self._element(driver, offset), *path])
                if len(found) >= MAX_PATHS:
                    return found
        return found

    def _prepare(self) -> None:
        """Tabulate the elements: where the function rises and falls with its input, by number of inputs."""
        netlist = self._netlist
        by_size: dict[int, list[tuple[int, list[int], np.ndarray]]] = {}
        for (pin, offset), number in self._elements.items():
            inst = netlist.pin_inst[pin]
            master = netlist.master(inst)
            n, first = master.n_inputs, netlist.inst_pin[inst]
            functions = master.register.function if master.register else master.functions
            function = functions[pin - first - n]
            table = np.array([function >> m & 1 for m in range(1 << n)], dtype=float)
            minterms = np.arange(1 << n)
            high, low = table[minterms | (1 << offset)], table[minterms & ~(1 << offset)]
            both = np.stack([high * (1 - low), low * (1 - high)], axis=1)
            by_size.setdefault(n, []).append((number, [netlist.pin_net[first + i] for i in range(n)], both))
        self._groups = [
            (
                np.array([number for number, _, _ in items], dtype=np.int64),
                np.array([inputs for _, inputs, _ in items], dtype=np.int64).T,
                np.stack([both for _, _, both in items], axis=2),
            )
            for _, items in sorted(by_size.items())
        ]

    def dependence(self, probability: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return positive and negative dependence per net, float64; 0 for nets that no register drives.

        Args:
            probability: Per net, and once more at the end for unconnected inputs: probability of being 1.
        """
        positive, negative = np.zeros(len(probability)), np.zeros(len(probability))
        if not len(self.nets):
            return positive, negative
        rises, falls = np.ones(len(self._elements) + 1), np.zeros(len(self._elements) + 1)
        for numbers, inputs, tables in self._groups:
            values = tables
            for i in range(len(inputs) - 1, -1, -1):
                p = probability[inputs[i]]
                half = 1 << i
                values = values[:half] * (1.0 - p) + values[half:] * p
            rises[numbers], falls[numbers] = values[0]
        same, opposite = np.ones(len(self.nets)), np.zeros(len(self.nets))
        for column in self._paths_of.T:
            up, down = rises[column], falls[column]
            same, opposite = same * up + opposite * down, same * down + opposite * up
        np.add.at(positive, self.nets, same)
        np.add.at(negative, self.nets, opposite)
        total = np.maximum(positive + negative, 1.0)
        return positive / total, negative / total
