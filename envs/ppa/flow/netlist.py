"""`Netlist`: a mapped design as integers, edited in place and undone by journal.

Instances, pins and nets are numbers; their attributes are lists indexed by them, so an edit is a few list operations
and nothing is rebuilt. Only an undo frees numbers: a removed instance keeps its number with master -1, a net without
pins is dead. Ports are pins too, with `pin_inst` below zero: a net is driven by one pin (of an instance or of an input
port) and drives the others, among them those of output ports.

Whoever keeps something that depends on the netlist (timing, placement) subscribes and finds the numbers of touched nets
and instances in its `Changes`. Undoing reports its touches like editing. Same edits give same names and same order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edagym.errors import FlowError, ToolError
from edagym.task_assets.ppa.technology import CLOCK_WIRE, SIGNAL_WIRE, Master, Technology

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*\Z")
_INDEXED = re.compile(r"(.*)\[(-?\d+)\]\Z")


@dataclass
class Changes:
    """Numbers of what edits have touched since the last `take`.

    Attributes:
        nets: Nets whose driver, sinks or wire changed.
        insts: Instances whose master or connections changed, new and removed ones included.
    """

    nets: set[int] = field(default_factory=set)
    insts: set[int] = field(default_factory=set)

    def take(self) -> tuple[list[int], list[int]]:
        """Return touched nets and instances, sorted, and forget them."""
        taken = sorted(self.nets), sorted(self.insts)
        self.nets.clear()
        self.insts.clear()
        return taken


class Netlist:
    """A mapped netlist over the cells of a technology.

    Attributes:
        name: Name of the top module.
        technology: Cells and wires.
        inst_name: Per instance: name.
        inst_master: Per instance: index into `technology.masters`; -1 once removed.
        inst_pin: Per instance: number of its first pin; its pins follow in the order of `Master.pins`.
        pin_net: Per pin: net; -1 if unconnected.
        pin_inst: Per pin: instance; ``~port`` (below zero) for the pin of a port.
        pin_path: Per pin: wire length from the net's driver, um; -1 for the net's whole length.
        net_name: Per net: name.
        net_driver: Per net: driving pin; -1 for none.
        net_sinks: Per net: driven pins, in the order of their connection.
        net_length: Per net: wire length, um.
        net_clock: Per net: True if its wire is a clock wire.
        port_name: Per port (one per bit): name, ``a[3]`` for a bit of a bus.
        port_input: Per port: True for an input.
        port_pin: Per port: its pin.
        buses: Name -> (first index, last index) of the declared buses, in the order of the module's header.
    """

    def __init__(self, name: str, technology: Technology) -> None:
        self.name = name
        self.technology = technology
        self.inst_name: list[str] = []
        self.inst_master: list[int] = []
        self.inst_pin: list[int] = []
        self.pin_net: list[int] = []
        self.pin_inst: list[int] = []
        self.pin_path: list[float] = []
        self.net_name: list[str] = []
        self.net_driver: list[int] = []
        self.net_sinks: list[list[int]] = []
        self.net_length: list[float] = []
        self.net_clock: list[bool] = []
        self.port_name: list[str] = []
        self.port_input: list[bool] = []
        self.port_pin: list[int] = []
        self.buses: dict[str, tuple[int, int]] = {}
        self._journal: list[tuple[Any, ...]] = []
        self._listeners: list[Changes] = []
        self._serial: Counter[str] = Counter()

    # Reading

    def master(self, inst: int) -> Master:
        """Return the cell of an instance."""
        return self.technology.masters[self.inst_master[inst]]

    def instances(self) -> Iterator[int]:
        """Yield the instances that exist, in increasing order."""
        return (inst for inst, master in enumerate(self.inst_master) if master >= 0)

    def nets(self) -> Iterator[int]:
        """Yield the nets that have a driver or sinks, in increasing order."""
        return (net for net, driver in enumerate(self.net_driver) if driver >= 0 or self.net_sinks[net])

    def pins(self, inst: int) -> range:
        """Return the pins of an instance: inputs, then outputs."""
        first = self.inst_pin[inst]
        return range(first, first + len(self.master(inst).pins))

    def input_pins(self, inst: int) -> range:
        """Return the input pins of an instance."""
        first = self.inst_pin[inst]
        return range(first, first + self.master(inst).n_inputs)

    def output_pins(self, inst: int) -> range:
        """Return the output pins of an instance."""
        return range(self.inst_pin[inst] + self.master(inst).n_inputs, self.pins(inst).stop)

    def pin(self, inst: int, name: str) -> int:
        """Return the pin of an instance by its name."""
        return self.inst_pin[inst] + self.master(inst).pins.index(name)

    def pin_name(self, pin: int) -> str:
        """Return ``instance/pin``, or the name of the port."""
        inst = self.pin_inst[pin]
        if inst < 0:
            return self.port_name[~inst]
        return f"{self.inst_name[inst]}/{self.master(inst).pins[pin - self.inst_pin[inst]]}"

    def fanout(self, inst: int) -> list[int]:
        """Return the sinks of all outputs of an instance."""
        return [
            sink
            for pin in self.output_pins(inst)
            if self.pin_net[pin] >= 0
            for sink in self.net_sinks[self.pin_net[pin]]
        ]

    def area(self) -> float:
        """Return the area of all instances, um2."""
        masters = self.technology.masters
        return sum(masters[m].area * count for m, count in sorted(Counter(self.inst_master).items()) if m >= 0)

    def counts(self) -> dict[str, int]:
        """Return the number of instances per cell name, sorted by name."""
        masters = self.technology.masters
        return dict(sorted((masters[m].name, count) for m, count in Counter(self.inst_master).items() if m >= 0))

    def wire(self, net: int) -> tuple[float, float]:
        """Return resistance (kohm) and capacitance (fF) of a net's whole wire."""
        wire = CLOCK_WIRE if self.net_clock[net] else SIGNAL_WIRE
        return wire.resistance * self.net_length[net], wire.capacitance * self.net_length[net]

    # Editing

    def subscribe(self) -> Changes:
        """Return a new collection in which later edits leave their touches."""
        changes = Changes()
        self._listeners.append(changes)
        return changes

    def unsubscribe(self, changes: Changes) -> None:
        """Stop reporting to a collection of `subscribe`."""
        self._listeners = [listener for listener in self._listeners if listener is not changes]

    def mark(self) -> int:
        """Return a mark that `undo` goes back to."""
        return len(self._journal)

    def undo(self, mark: int) -> None:
        """Take back all edits since a mark, the last one first; names given since are given again."""
        while len(self._journal) > mark:
            entry = self._journal.pop()
            getattr(self, "_undo_" + entry[0])(*entry[1:])

    def forget(self) -> None:
        """Drop the journal: what was done until now cannot be undone any more."""
        self._journal.clear()

    def swap_master(self, inst: int, master: int) -> None:
        """Give an instance another cell of the same family: another size or threshold voltage.

        Raises:
            ValueError: If the cell belongs to another family.
        """
        old, new = self.master(inst), self.technology.masters[master]
        if new.family != old.family:
            raise ValueError(f"{new.name} cannot replace {old.name}")
        self._set_master(inst, master)

    def insert_buffer(self, net: int, sinks: Sequence[int], master: int, name: str | None = None) -> int:
        """Put a buffer between a net and some of its sinks.

        Args:
            net: Net that drives the buffer.
            sinks: Pins of the net that the buffer shall drive; their order is kept.
            master: Cell with one input and one output.
            name: Name; by default ``buf_N``.

        Returns:
            The new instance; its net is ``pin_net[output_pins(inst)[0]]`` and has length 0 until `set_wire`.
        """
        if any(self.pin_net[sink] != net for sink in sinks):
            raise ValueError("a sink is not on the net")
        inst = self.add_instance(name or self._fresh("buf"), master)
        made = self.add_net(self.inst_name[inst] + "_net", clock=self.net_clock[net])
        for sink in list(sinks):
            self._connect(sink, made)
        self._connect(self.output_pins(inst)[0], made)
        self._connect(self.inst_pin[inst], net)
        return inst

    def remove_buffer(self, inst: int) -> None:
        """Remove an instance with one input and one output; its input's net takes over its sinks."""
        into, out = self.pin_net[self.inst_pin[inst]], self.pin_net[self.output_pins(inst)[0]]
        for sink in list(self.net_sinks[out]):
            self._connect(sink, into)
        self.remove_instance(inst)

    def clone_gate(self, inst: int, sinks: Sequence[int], name: str | None = None) -> int:
        """Copy a gate with one output and let the copy drive some of its sinks.

        Returns:
            The new instance, whose inputs are on the same nets.
        """
        (output,) = self.output_pins(inst)
        net = self.pin_net[output]
        if any(self.pin_net[sink] != net for sink in sinks):
            raise ValueError("a sink is not on the net")
        made = self.add_instance(name or self._fresh("clone"), self.inst_master[inst])
        out = self.add_net(self.inst_name[made] + "_net", clock=self.net_clock[net])
        for sink in list(sinks):
            self._connect(sink, out)
        self._connect(self.output_pins(made)[0], out)
        for old, new in zip(self.input_pins(inst), self.input_pins(made), strict=True):
            self._connect(new, self.pin_net[old])
        return made

    def swap_pins(self, first: int, second: int) -> None:
        """Exchange the nets of two input pins. Whether the function allows it, `Master.symmetric` says."""
        nets = self.pin_net[first], self.pin_net[second]
        self._connect(first, -1)
        self._connect(second, nets[0])
        self._connect(first, nets[1])

    def move_pin(self, pin: int, net: int) -> None:
        """Connect a pin to another net (-1: to none)."""
        self._connect(pin, net)

    def set_wire(self, net: int, length: float, paths: Mapping[int, float] | None = None) -> None:
        """Set the wire of a net.

        Args:
            net: The net.
            length: Whole length, um.
            paths: Sink pin -> length of wire from the driver, um; the whole length for pins that are not named.
        """
        before = self.net_length[net], [(pin, self.pin_path[pin]) for pin in self.net_sinks[net]]
        self._journal.append(("wire", net, *before))
        self.net_length[net] = length
        for pin in self.net_sinks[net]:
            self.pin_path[pin] = paths.get(pin, -1.0) if paths else -1.0
        self._touch_net(net)

    def set_clock(self, net: int, clock: bool = True) -> None:
        """Say whether a net's wire is a clock wire."""
        self._journal.append(("clock", net, self.net_clock[net]))
        self.net_clock[net] = clock
        self._touch_net(net)

    def add_instance(self, name: str, master: int) -> int:
        """Add an unconnected instance and return its number."""
        inst = len(self.inst_name)
        first = len(self.pin_net)
        count = len(self.technology.masters[master].pins)
        self.inst_name.append(name)
        self.inst_master.append(master)
        self.inst_pin.append(first)
        self.pin_net += [-1] * count
        self.pin_inst += [inst] * count
        self.pin_path += [-1.0] * count
        self._journal.append(("instance",))
        self._touch_inst(inst)
        return inst

    def remove_instance(self, inst: int) -> None:
        """Disconnect and remove an instance."""
        for pin in reversed(self.pins(inst)):
            self._connect(pin, -1)
        self._set_master(inst, -1)

    def add_net(self, name: str, *, clock: bool = False) -> int:
        """Add a net without pins and return its number."""
        self.net_name.append(name)
        self.net_driver.append(-1)
        self.net_sinks.append([])
        self.net_length.append(0.0)
        self.net_clock.append(clock)
        self._journal.append(("net",))
        return len(self.net_name) - 1

    def add_port(self, name: str, net: int, *, is_input: bool) -> int:
        """Add a one-bit port on a net and return its number; ports are not journalled."""
        port = len(self.port_name)
        pin = len(self.pin_net)
        self.port_name.append(name)
        self.port_input.append(is_input)
        self.port_pin.append(pin)
        self.pin_net.append(-1)
        self.pin_inst.append(~port)
        self.pin_path.append(-1.0)
        self._connect(pin, net)
        return port

    def copy(self) -> Netlist:
        """Return an independent copy without journal and subscribers."""
        made = Netlist(self.name, self.technology)
        for key, value in self.__dict__.items():
            if isinstance(value, list) and not key.startswith("_"):
                setattr(made, key, [list(item) for item in value] if key == "net_sinks" else list(value))
        made.buses = dict(self.buses)
        made._serial = Counter(self._serial)
        return made

    # Primitive edits and their reverse

    def _drives(self, pin: int) -> bool:
        inst = self.pin_inst[pin]
        if inst < 0:
            return self.port_input[~inst]
        return pin - self.inst_pin[inst] >= self.master(inst).n_inputs

    def _connect(self, pin: int, net: int) -> None:
        old = self.pin_net[pin]
        if old == net:
            return
        drives = self._drives(pin)
        if drives and net >= 0 and self.net_driver[net] >= 0:
            raise ValueError(f"net {self.net_name[net]} has two drivers")
        place = -1
        if old >= 0:
            if drives:
                self.net_driver[old] = -1
            else:
                place = self.net_sinks[old].index(pin)
                del self.net_sinks[old][place]
            self._touch_net(old)
        self._journal.append(("connect", pin, old, place, self.pin_path[pin], drives))
        self.pin_net[pin] = net
        self.pin_path[pin] = -1.0
        if net >= 0:
            if drives:
                self.net_driver[net] = pin
            else:
                self.net_sinks[net].append(pin)
            self._touch_net(net)
        if self.pin_inst[pin] >= 0:
            self._touch_inst(self.pin_inst[pin])

    def _undo_connect(self, pin: int, old: int, place: int, path: float, drives: bool) -> None:
        net = self.pin_net[pin]
        if net >= 0:
            if drives:
                self.net_driver[net] = -1
            else:
                # Edits are taken back in reverse order, so the pin is the net's latest sink again.
                self.net_sinks[net].pop()
            self._touch_net(net)
        self.pin_net[pin] = old
        self.pin_path[pin] = path
        if old >= 0:
            if drives:
                self.net_driver[old] = pin
            else:
                self.net_sinks[old].insert(place, pin)
            self._touch_net(old)
        if self.pin_inst[pin] >= 0:
            self._touch_inst(self.pin_inst[pin])

    def _set_master(self, inst: int, master: int) -> None:
        self._journal.append(("master", inst, self.inst_master[inst]))
        self._undo_master(inst, master)

    def _undo_master(self, inst: int, master: int) -> None:
        self.inst_master[inst] = master
        self._touch_inst(inst)
        if master >= 0:
            for pin in self.pins(inst):
                if self.pin_net[pin] >= 0:
                    self._touch_net(self.pin_net[pin])

    def _undo_wire(self, net: int, length: float, paths: list[tuple[int, float]]) -> None:
        self.net_length[net] = length
        for pin, path in paths:
            self.pin_path[pin] = path
        self._touch_net(net)

    def _undo_clock(self, net: int, clock: bool) -> None:
        self.net_clock[net] = clock
        self._touch_net(net)

    def _undo_serial(self, stem: str) -> None:
        self._serial[stem] -= 1

    def _undo_instance(self) -> None:
        first = self.inst_pin.pop()
        self.inst_name.pop()
        self.inst_master.pop()
        del self.pin_net[first:], self.pin_inst[first:], self.pin_path[first:]
        for listener in self._listeners:
            listener.insts.add(len(self.inst_name))

    def _undo_net(self) -> None:
        for values in (self.net_name, self.net_driver, self.net_sinks, self.net_length, self.net_clock):
            values.pop()  # type: ignore[attr-defined]
        for listener in self._listeners:
            listener.nets.add(len(self.net_name))

    def _touch_net(self, net: int) -> None:
        for listener in self._listeners:
            listener.nets.add(net)

    def _touch_inst(self, inst: int) -> None:
        for listener in self._listeners:
            listener.insts.add(inst)

    def _fresh(self, stem: str) -> str:
        self._journal.append(("serial", stem))
        self._serial[stem] += 1
        return f"{stem}_{self._serial[stem]}"

    # Reading and writing files

    @classmethod
    def from_yosys(cls, data: Mapping[str, Any], technology: Technology, top: str) -> Netlist:
        """Build a netlist from what Yosys' ``write_json`` wrote.

        Nets and cells get their public names; the others are numbered in the file's order.

        Raises:
            FlowError: If a port is bidirectional or a net has two drivers.
            ToolError: If the design is not flat or has an unmapped cell.
        """
        module = data["modules"].get(top)
        if module is None:
            raise ToolError("the synthesised design has no such module", field="synthesis", value=top)
        made = cls(top, technology)
        names: dict[int, str] = {}
        for hidden in (0, 1):
            for name, item in module["netnames"].items():
                if item["hide_name"] == hidden:
                    bits = item["bits"]
                    offset = item.get("offset", 0)
                    for i, bit in enumerate(bits):
                        if isinstance(bit, int) and bit not in names:
                            label = f"n{bit}" if hidden else name
                            names[bit] = label if hidden or len(bits) == 1 else f"{label}[{i + offset}]"
        nets: dict[int | str, int] = {}

        def net_of(bit: int | str) -> int:
            if bit not in nets:
                nets[bit] = made.add_net(names.get(bit, f"n{bit}") if isinstance(bit, int) else f"constant_{bit}")
                if isinstance(bit, str):
                    short = "TIEHIx1" if bit == "1" else "TIELOx1"
                    tie = made.add_instance(f"constant_{bit}_tie", technology[short].index)
                    made._connect(made.inst_pin[tie], nets[bit])
            return nets[bit]

        try:
            for name, item in module["ports"].items():
                bits = item["bits"]
                offset = item.get("offset", 0)
                if item["direction"] not in ("input", "output"):
                    raise FlowError("a port is bidirectional", field="synthesis", value=name)
                if len(bits) > 1 or "offset" in item:
                    last = offset + len(bits) - 1
                    made.buses[name] = (offset, last) if item.get("upto") else (last, offset)
                else:
                    made.buses[name] = (-1, -1)
                for i, bit in enumerate(bits):
                    label = name if made.buses[name] == (-1, -1) else f"{name}[{i + offset}]"
                    made.add_port(label, net_of(bit), is_input=item["direction"] == "input")
            for i, (name, item) in enumerate(module["cells"].items()):
                if item["type"] not in technology.index:
                    raise ToolError("synthesis left an unmapped cell", field="synthesis", value=item["type"])
                master = technology.masters[technology.index[item["type"]]]
                inst = made.add_instance(f"_{i:05d}_" if item["hide_name"] or "$" in name else name, master.index)
                for pin, bits in item["connections"].items():
                    if bits:
                        made._connect(made.inst_pin[inst] + master.pins.index(pin), net_of(bits[0]))
        except ValueError as e:
            raise FlowError(f"the netlist is not legal: {e}", field="synthesis") from e
        made.forget()
        return made

    def to_verilog(self) -> str:
        """Return the netlist as structural Verilog."""
        shown = {net: self._net_text(net) for net in self.nets()}
        lines = [f"module {_identifier(self.name)} ({', '.join(_identifier(name) for name in self.buses)});"]
        direction = {}
        for name, is_input in zip(self.port_name, self.port_input, strict=True):
            found = _INDEXED.match(name)
            direction[found[1] if found and found[1] in self.buses else name] = "input" if is_input else "output"
        for name, (first, last) in self.buses.items():
            span = "" if (first, last) == (-1, -1) else f"[{first}:{last}] "
            lines.append(f"  {direction[name]} {span}{_identifier(name)};")
        ports = {self.pin_net[pin] for pin in self.port_pin}
        lines += [f"  wire {shown[net]};" for net in shown if net not in ports]
        for inst in self.instances():
            master = self.master(inst)
            pins = [
                f".{name}({shown[self.pin_net[pin]]})"
                for name, pin in zip(master.pins, self.pins(inst), strict=True)
                if self.pin_net[pin] >= 0
            ]
            lines.append(f"  {master.name} {_identifier(self.inst_name[inst])} ({', '.join(pins)});")
        for port, pin in enumerate(self.port_pin):
            text = self._port_text(port)
            if shown[self.pin_net[pin]] != text:
                lines.append(f"  assign {text} = {shown[self.pin_net[pin]]};")
        return "\n".join([*lines, "endmodule", ""])

    def to_spef(self) -> str:
        """Return the wires as SPEF: one capacitance at the driver's end, one resistance to every sink.

        It has the same Elmore delays as the timing engine's model, where the sinks' own capacitances are added.
        """
        lines = [
            '*SPEF "IEEE 1481-1998"', f'*DESIGN "{self.name}"', '*DATE ""', '*VENDOR ""', '*PROGRAM "edagym"',
            '*VERSION "1"', '*DESIGN_FLOW ""', "*DIVIDER /", "*DELIMITER :", "*BUS_DELIMITER []",
            "*T_UNIT 1 PS", "*C_UNIT 1 FF", "*R_UNIT 1 KOHM", "*L_UNIT 1 HENRY",
        ]  # fmt: skip
        for net in self.nets():
            driver = self.net_driver[net]
            if driver < 0 or self.net_length[net] <= 0:
                continue
            resistance, capacitance = self.wire(net)
            lines += [f"*D_NET {self._net_spef(net)} {capacitance:.6g}", "*CONN"]
            for pin in (driver, *self.net_sinks[net]):
                way = "O" if pin == driver else "I"
                inst = self.pin_inst[pin]
                if inst < 0:
                    way = "I" if pin == driver else "O"
                lines.append(f"{'*P' if inst < 0 else '*I'} {self._pin_spef(pin)} {way}")
            lines.append("*CAP")
            sinks = self.net_sinks[net]
            lines.append(f"1 {self._pin_spef(driver)} {capacitance / 2:.6g}")
            for i, pin in enumerate(sinks):
                lines.append(f"{i + 2} {self._pin_spef(pin)} {capacitance / 2 / len(sinks):.6g}")
            lines.append("*RES")
            for i, pin in enumerate(sinks):
                share = self.pin_path[pin] / self.net_length[net] if self.pin_path[pin] >= 0 else 1.0
                ends = f"{self._pin_spef(driver)} {self._pin_spef(pin)}"
                lines.append(f"{i + 1} {ends} {max(resistance * share, 1e-6):.6g}")
            lines.append("*END")
        return "\n".join([*lines, ""])

    def _port_text(self, port: int) -> str:
        name = self.port_name[port]
        found = _INDEXED.match(name)
        return f"{_identifier(found[1])}[{found[2]}]" if found and found[1] in self.buses else _identifier(name)

    def _net_text(self, net: int) -> str:
        driver = self.net_driver[net]
        for pin in ([driver] if driver >= 0 else []) + self.net_sinks[net]:
            if self.pin_inst[pin] < 0:
                return self._port_text(~self.pin_inst[pin])
        return f"net_{net}_" + re.sub(r"\W", "_", self.net_name[net])

    def _net_spef(self, net: int) -> str:
        return re.sub(r"([^\w\[\]])", r"\\\1", self._net_text(net).strip().lstrip("\\"))

    def _pin_spef(self, pin: int) -> str:
        inst = self.pin_inst[pin]
        if inst < 0:
            return re.sub(r"([^\w\[\]])", r"\\\1", self.port_name[~inst])
        name = re.sub(r"(\W)", r"\\\1", self.inst_name[inst])
        return f"{name}:{self.master(inst).pins[pin - self.inst_pin[inst]]}"


def _identifier(name: str) -> str:
    return name if _PLAIN.match(name) else f"\\{name} "
