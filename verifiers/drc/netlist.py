"""Netlist extraction: from a layout to devices, labels and the nets that join them.

A `Netlist` is flat and keyed by place, not by name: a device is known by its class and centre, a label by its text,
conductor and position. So two layouts can be compared exactly whether or not anything is labelled, and swapped nets of
a symmetric circuit are seen, which a graph comparison alone cannot.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import klayout.db as kdb
import numpy as np

from edagym.errors import ToolError
from edagym.verifiers.drc.layout import flat_shapes
from edagym.verifiers.drc.stack import NDIFF, PDIFF, POLY, Stack, derive

CLASSES = ("N", "P")
"""Device classes: n- and p-type transistors."""

SOURCE, GATE, DRAIN = range(3)

FLAT_LIMIT = 5000
"""Up to so many flat shapes, layers are combined flat instead of hierarchically; the result is the same."""

Label = tuple[str, str, int, int]
"""Text, conductor, x and y in database units."""

WAY_OUT = "leaves on "
"""First words of the labels that mark where conductors leave a window."""

NetKey = tuple[object, ...]
"""Identity of a net within one `Extraction`."""


@dataclass(frozen=True, eq=False)
class Netlist:
    """Devices and labels of a layout with the nets that they are on.

    Attributes:
        dbu: Database unit, um.
        device_class: uint8 (n,), index into `CLASSES`.
        device_xy: int64 (n, 2), centres of the gate areas in half database units; the engine rounds them to whole
            ones in the frame of the cell that holds the device.
        device_nets: int32 (n, 3), net numbers of source, gate and drain.
        device_size: float32 (n, 2), gate length and width in um.
        labels: Labels of conductors, sorted.
        label_nets: int32 (m,), net numbers of the labels; -1 where no conductor lies under the label.
        n_nets: Number of nets.
    """

    dbu: float
    device_class: np.ndarray
    device_xy: np.ndarray
    device_nets: np.ndarray
    device_size: np.ndarray
    labels: tuple[Label, ...]
    label_nets: np.ndarray
    n_nets: int

    def to_bytes(self) -> bytes:
        """Return the netlist as an NPZ file; equal netlists have equal bytes."""
        out = io.BytesIO()
        texts = np.array([(t, c) for t, c, _, _ in self.labels], dtype=np.str_).reshape(-1, 2)
        places = np.array([(x, y) for _, _, x, y in self.labels], dtype=np.int64).reshape(-1, 2)
        np.savez_compressed(
            out,
            scalars=np.array([self.dbu, self.n_nets], dtype=np.float64),
            device_class=self.device_class,
            device_xy=self.device_xy,
            device_nets=self.device_nets,
            device_size=self.device_size,
            label_texts=texts,
            label_xy=places,
            label_nets=self.label_nets,
        )
        return out.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> Netlist:
        """Undo `to_bytes`."""
        with np.load(io.BytesIO(data), allow_pickle=False) as z:
            labels = tuple((str(t), str(c), int(x), int(y)) for (t, c), (x, y) in zip(z["label_texts"], z["label_xy"]))
            dbu, n_nets = z["scalars"]
            return cls(
                float(dbu),
                z["device_class"],
                z["device_xy"],
                z["device_nets"],
                z["device_size"],
                labels,
                z["label_nets"],
                int(n_nets),
            )


class Extraction:
    """An extracted layout: the flat `Netlist`, and which net lies at a point.

    Args:
        layout: The layout; it is not changed and may be edited or dropped afterwards.
        top: Name of the top cell.
        stack: The conductors.
        extra_labels: Further labels, e.g. of wires that leave a window.

    Raises:
        ToolError: If the extraction engine fails.
    """

    def __init__(self, layout: kdb.Layout, top: str, stack: Stack, extra_labels: Iterable[Label] = ()) -> None:
        self.stack = stack
        self.dbu = float(layout.dbu)
        self._top_name = top
        try:
            # The copy takes the labels' tokens, and keeps the netlist's hierarchy alive for `net_at`.
            self._layout = layout.dup()
            self.labels = sorted({*conductor_labels(self._layout, top, stack), *extra_labels})
            self._extract(self._layout.cell(top))
        except RuntimeError as e:
            raise ToolError(f"netlist extraction failed: {e}") from e
        self._anchor_counts: dict[NetKey, int] = {}
        self._flat: Netlist | None = None

    def _extract(self, top: kdb.Cell) -> None:
        layout, stack = self._layout, self.stack
        used = {conductor for _, conductor, _, _ in self.labels}
        tokens = {name: layout.insert_layer(kdb.LayerInfo(f"tokens of {name}")) for name in stack.nodes if name in used}
        for i, (_, conductor, x, y) in enumerate(self.labels):
            top.shapes(tokens[conductor]).insert(kdb.Text(str(i), x, y))
        engine = kdb.LayoutToNetlist(kdb.RecursiveShapeIterator(layout, top, []))
        engine.threads = 1
        # Without them `net_at` could not tell the unconnected conductors of two instances apart.
        engine.include_floating_subcircuits = True
        nodes, nchannel, pchannel = self._derive(engine, top)
        if stack.mos is not None:
            for name, diffusion, channel in ((CLASSES[0], NDIFF, nchannel), (CLASSES[1], PDIFF, pchannel)):
                if not channel.is_empty():
                    extractor = kdb.DeviceExtractorMOS3Transistor(name)
                    engine.extract_devices(extractor, {"SD": nodes[diffusion], "G": channel, "P": nodes[POLY]})
        marks = {n: engine.make_text_layer(i, f"tokens of {n}") for n, i in tokens.items()}
        for name, region in nodes.items():
            engine.connect(region)
            if name in marks:
                engine.connect(region, marks[name])
        for a, b in stack.joins:
            engine.connect(nodes[a], nodes[b])
        for name in stack.labelled:
            for index in pin_layers(layout, stack, name):
                pins = engine.make_polygon_layer(index, f"pins {index} of {name}")
                engine.connect(pins)
                engine.connect(pins, nodes[name])
                # Labels of ports often lie on the pin shape only, beyond the wire's end.
                if name in marks:
                    engine.connect(pins, marks[name])
        engine.extract_netlist()
        self._engine, self._nodes = engine, nodes

    def _derive(
        self, engine: kdb.LayoutToNetlist, top: kdb.Cell
    ) -> tuple[dict[str, kdb.Region], kdb.Region, kdb.Region]:
        """Return conductors and gate areas as regions of the engine.

        The engine joins what touches, so that a via that only abuts a wire would conduct: contacts lose their outermost
        database unit.
        """
        layout, stack = self._layout, self.stack
        indices = {n: _layer_index(layout, stack, n) for n in stack.drawn}
        if flat_shapes(layout, top) > FLAT_LIMIT:
            deep, nchannel, pchannel = derive({n: engine.make_layer(i, n) for n, i in indices.items()}, stack)
            return {n: _core(n, r, stack) for n, r in deep.items()}, nchannel, pchannel
        # A hierarchical boolean costs milliseconds however small the layout: compute flat and hand over the results.
        nodes, *channels = derive({n: kdb.Region(top.begin_shapes_rec(i)) for n, i in indices.items()}, stack)

        def hand_over(region: kdb.Region, name: str) -> kdb.Region:
            index = layout.insert_layer(kdb.LayerInfo(f"derived {name}"))
            top.shapes(index).insert(region)
            return engine.make_layer(index, name)

        nodes = {n: _core(n, r, stack) for n, r in nodes.items()}
        drawn = {n: i for n, i in indices.items() if n not in stack.contacts}
        done = {n: engine.make_layer(drawn[n], n) if n in drawn else hand_over(r, n) for n, r in nodes.items()}
        nchannel, pchannel = (hand_over(r, f"{c} channel") for r, c in zip(channels, CLASSES))
        return done, nchannel, pchannel

    @property
    def netlist(self) -> Netlist:
        """The flat netlist."""
        if self._flat is None:
            self._flat = self._flatten()
        return self._flat

    def _flatten(self) -> Netlist:
        circuit = self._engine.netlist().circuit_by_name(self._top_name)
        flat = _Flat(circuit, self.dbu)
        label_nets = np.full(len(self.labels), -1, dtype=np.int32)
        if circuit is not None:
            for net in circuit.each_net():
                if net.name:
                    label_nets[[int(token) for token in net.name.split(",")]] = flat.top_nets[net.cluster_id]
        kind, xy, nets, size = flat.devices()
        order = np.lexsort((kind, xy[:, 1], xy[:, 0]))
        return Netlist(
            self.dbu,
            kind[order],
            xy[order],
            nets[order],
            size[order],
            tuple(self.labels),
            label_nets,
            flat.n_nets,
        )

    def flat_circuits(self) -> kdb.Netlist:
        """Return a flattened copy of KLayout's netlist."""
        flat = self._engine.netlist().dup()
        flat.flatten()
        return flat

    def net_at(self, conductor: str, x: int, y: int) -> NetKey | None:
        """Return the identity of the net of a conductor at a point (database units), or None."""
        path: list[kdb.SubCircuit] = []
        net = self._engine.probe_net(self._nodes[conductor], kdb.Point(x, y), path)
        if net is None:
            return None
        key = (*(s.id() for s in path), net.circuit().name, net.cluster_id)
        if key not in self._anchor_counts:
            self._anchor_counts[key] = _anchors(net, 2)
        return key

    def anchors(self, key: NetKey) -> int:
        """Return the number of device terminals and labels on a net that `net_at` gave, counted up to 2."""
        return self._anchor_counts[key]


@dataclass(frozen=True, slots=True)
class _Master:
    """A circuit's own devices and nets, in its frame; nets are numbered 0, 1, ... in it."""

    kind: np.ndarray
    xy: np.ndarray
    nets: np.ndarray
    size: np.ndarray
    numbers: dict[int, int]
    pins: tuple[tuple[int, int], ...]


class _Flat:
    """Flattens a hierarchical netlist, a whole instance at a time (KLayout's own flattening needs a copy: seconds).

    Args:
        circuit: The top circuit; None: no nets.
        dbu: Database unit, um.
    """

    def __init__(self, circuit: kdb.Circuit | None, dbu: float) -> None:
        self._half = 2.0 / dbu
        self._masters: dict[str, _Master] = {}
        self._parts: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
        self.n_nets = 0
        self.top_nets: dict[int, int] = {}
        if circuit is not None:
            master = self._master(circuit)
            self.top_nets = master.numbers
            self.n_nets = len(master.numbers)
            identity = np.array([[1, 0], [0, 1]], dtype=np.int64)
            self._expand(circuit, identity, np.zeros(2, dtype=np.int64), np.arange(self.n_nets, dtype=np.int32))

    def devices(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return class, place, nets and size of all devices."""
        empty = (
            np.zeros(0, np.uint8),
            np.zeros((0, 2), np.int64),
            np.zeros((0, 3), np.int32),
            np.zeros((0, 2), np.float32),
        )
        columns = zip(empty, *self._parts)
        kind, xy, nets, size = (np.concatenate(column) for column in columns)
        return kind, xy, nets, size

    def _master(self, circuit: kdb.Circuit) -> _Master:
        if circuit.name in self._masters:
            return self._masters[circuit.name]
        numbers = {net.cluster_id: i for i, net in enumerate(circuit.each_net())}
        kind, xy, nets, size = [], [], [], []
        for device in circuit.each_device():
            at = device.trans.disp
            kind.append(CLASSES.index(device.device_class().name))
            xy.append((round(at.x * self._half), round(at.y * self._half)))
            nets.append([numbers[device.net_for_terminal(t).cluster_id] for t in (SOURCE, GATE, DRAIN)])
            size.append((device.parameter("L"), device.parameter("W")))
        inner = ((pin.id(), circuit.net_for_pin(pin.id())) for pin in circuit.each_pin())
        master = _Master(
            np.array(kind, dtype=np.uint8),
            np.array(xy, dtype=np.int64).reshape(-1, 2),
            np.array(nets, dtype=np.int32).reshape(-1, 3),
            np.array(size, dtype=np.float32).reshape(-1, 2),
            numbers,
            tuple((pin, numbers[net.cluster_id]) for pin, net in inner if net is not None),
        )
        self._masters[circuit.name] = master
        return master

    def _expand(self, circuit: kdb.Circuit, turn: np.ndarray, shift: np.ndarray, flat: np.ndarray) -> None:
        """Add a circuit's devices; `flat` gives the flat number of each of its nets."""
        master = self._master(circuit)
        if len(master.kind):
            self._parts.append((master.kind, master.xy @ turn.T + shift, flat[master.nets], master.size))
        for sub in circuit.each_subcircuit():
            below = sub.circuit_ref()
            inner = self._master(below)
            numbers = np.full(len(inner.numbers), -1, dtype=np.int32)
            for pin, number in inner.pins:
                outer = sub.net_for_pin(pin)
                if outer is not None:
                    numbers[number] = flat[master.numbers[outer.cluster_id]]
            own = numbers < 0
            n_own = int(own.sum())
            numbers[own] = np.arange(self.n_nets, self.n_nets + n_own)
            self.n_nets += n_own
            if len(inner.kind) or n_own or any(True for _ in below.each_subcircuit()):
                trans = sub.trans
                step = np.array([round(trans.disp.x * self._half), round(trans.disp.y * self._half)], dtype=np.int64)
                self._expand(below, turn @ _matrix(trans), turn @ step + shift, numbers)


def _matrix(trans: kdb.DCplxTrans) -> np.ndarray:
    """Rotation by a multiple of 90 degrees and mirroring as a matrix."""
    x, y = (trans * kdb.DVector(*axis) for axis in ((1.0, 0.0), (0.0, 1.0)))
    return np.array([[round(x.x), round(y.x)], [round(x.y), round(y.y)]], dtype=np.int64)


def _anchors(net: kdb.Net, enough: int) -> int:
    """Count device terminals and labels on a net and below it, up to a number."""
    found = net.terminal_count() + (len(net.name.split(",")) if net.name else 0)
    for ref in net.each_subcircuit_pin():
        if found >= enough:
            break
        below = ref.subcircuit().circuit_ref().net_for_pin(ref.pin_id())
        if below is not None:
            found += _anchors(below, enough - found)
    return min(found, enough)


def _core(name: str, region: kdb.Region, stack: Stack) -> kdb.Region:
    """Return what of a conductor takes part in joins: of contacts all but the outermost database unit."""
    if name not in stack.contacts:
        return region
    if name in stack.cuts:
        # One by one: merging vias first takes a third of the whole extraction, and nobody draws them in pieces.
        region.merged_semantics = False
    return region.sized(-1)


def _layer_index(layout: kdb.Layout, stack: Stack, name: str) -> int:
    return layout.layer(*stack.gds[name])


def pin_layers(layout: kdb.Layout, stack: Stack, name: str) -> list[int]:
    """Return the indices of the layers that hold pin shapes of a conductor: same layer number, other datatype."""
    number, datatype = stack.gds[name]
    infos = ((i, layout.get_info(i)) for i in layout.layer_indexes())
    return [i for i, info in infos if info.layer == number and info.datatype != datatype]


def conductor_labels(layout: kdb.Layout, top: str, stack: Stack) -> list[Label]:
    """Return the labels of all conductors that take labels, from every instance of every cell."""
    labels: list[Label] = []
    for name in stack.labelled:
        number = stack.gds[name][0]
        for index in layout.layer_indexes():
            if layout.get_info(index).layer == number:
                labels += [(text, name, x, y) for text, x, y in flat_texts(layout, top, index)]
    return labels


def flat_texts(layout: kdb.Layout, top: str, index: int, box: kdb.Box | None = None) -> Sequence[tuple[str, int, int]]:
    """Return the texts of a layer with their places in the top cell's frame, optionally those in a box."""
    cell = layout.cell(top)
    it = cell.begin_shapes_rec(index) if box is None else cell.begin_shapes_rec_touching(index, box)
    it.shape_flags = kdb.Shapes.STexts
    texts = []
    while not it.at_end():
        text = it.shape().text
        at = it.trans() * kdb.Point(text.x, text.y)
        texts.append((text.string, at.x, at.y))
        it.next()
    return texts
