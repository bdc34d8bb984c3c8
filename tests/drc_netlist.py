"""Extraction of devices and nets from flat layouts, written apart from the package's own audit."""

from __future__ import annotations

from collections import Counter

import klayout.db as kdb
import networkx as nx
import shapely

from edagym.task_assets.drc.process import LABEL_DATATYPE, LAYERS, METALS, VIAS
from edagym.verifiers.drc import DRCLayout


def extract(drawn: kdb.Layout) -> kdb.LayoutToNetlist:
    """Extract MOS devices and nets over the conductor stack of the ASAP7 layers, flat."""
    layout = drawn.dup()
    layout.top_cell().flatten(True)
    l2n = kdb.LayoutToNetlist(kdb.RecursiveShapeIterator(layout, layout.top_cell(), []))
    base = {
        name: l2n.make_polygon_layer(layout.layer(*LAYERS[name]), name)
        for name in ("WELL", "GATE", "GCUT", "ACTIVE", "SDT", "LISD", "LIG", "V0", *METALS, *VIAS)
    }
    poly = base["GATE"] - base["GCUT"]
    diffusion, channel = base["ACTIVE"] - base["GATE"], poly & base["ACTIVE"]
    l2n.register(poly, "poly")
    sides: list[kdb.Region] = []
    for kind in ("n", "p"):
        side = diffusion - base["WELL"] if kind == "n" else diffusion & base["WELL"]
        gate = channel - base["WELL"] if kind == "n" else channel & base["WELL"]
        l2n.register(side, f"side_{kind}")
        l2n.register(gate, f"channel_{kind}")
        terminals = {"SD": side, "G": gate, "tS": side, "tD": side, "tG": poly}
        l2n.extract_devices(kdb.DeviceExtractorMOS3Transistor(kind), terminals)
        sides.append(side)
    conductors = [base[name] for name in ("SDT", "LISD", "LIG", "V0", *METALS, *VIAS)]
    for region in (*sides, poly, *conductors):
        l2n.connect(region)
    pairs = [("SDT", "LISD"), ("LISD", "V0"), ("LIG", "V0"), ("LIG", "LISD"), ("V0", "M1")]
    pairs += [pair for name, via in VIAS.items() for pair in ((via.lower, name), (name, via.upper))]
    for a, b in pairs:
        l2n.connect(base[a], base[b])
    for side in sides:
        l2n.connect(side, base["SDT"])
    l2n.connect(base["LIG"], poly)
    for name in METALS:
        texts = layout.find_layer(LAYERS[name][0], LABEL_DATATYPE)
        if texts is not None:
            l2n.connect(base[name], l2n.make_text_layer(texts, f"{name}_label"))
    l2n.extract_netlist()
    return l2n


def device_counts(l2n: kdb.LayoutToNetlist) -> tuple[int, int]:
    """Number of N and P devices."""
    classes = Counter(device.device_class().name for device in l2n.netlist().top_circuit().each_device())
    return classes["n"], classes["p"]


def labels(l2n: kdb.LayoutToNetlist) -> list[frozenset[str]]:
    """Names found on each named net."""
    circuit = l2n.netlist().top_circuit()
    return [frozenset(net.name.split(",")) for net in circuit.each_net() if net.name]


# -- a second model, on shapely polygons instead of the layout engine ----------------------------------------------

_MARKS = ("WELL", "NSELECT", "PSELECT", "SLVT", "LVT", "SRAMVT")
_JOINS = [("diff", "SDT"), ("SDT", "LISD"), ("LISD", "V0"), ("LIG", "poly"), ("LIG", "LISD"), ("LIG", "V0")]
_JOINS += [("V0", "M1"), *(pair for name, via in VIAS.items() for pair in ((via.lower, name), (name, via.upper)))]


class Model:
    """Nets, transistors, taps and fins of a flat layout, by areas of overlap.

    Attributes:
        nodes: Polygons by conductor; "poly" are uncut gates, "diff" active areas beside them.
        net: Net number of every (conductor, index).
        devices: Per channel: place, length, width, fins, marks over it.
        diffusions: Per piece of diffusion: polygon and marks over it.
    """

    def __init__(self, layout: DRCLayout) -> None:
        area = {name: shapely.union_all(_polygons(layout, name)) for name in LAYERS}
        poly = area["GATE"].difference(area["GCUT"])
        drawn = ("SDT", "LISD", "LIG", "V0", "WELL", *METALS, *VIAS)
        self.nodes = {name: _parts(area[name]) for name in drawn}
        self.nodes |= {"poly": _parts(poly), "diff": _parts(area["ACTIVE"].difference(poly))}
        self._trees = {name: shapely.STRtree(parts) for name, parts in self.nodes.items()}

        def marks(piece: shapely.Polygon) -> tuple[tuple[str, int], ...]:
            """Marks over a piece: whole or in part."""
            shares = ((n, piece.intersection(area[n]).area / piece.area) for n in _MARKS)
            return tuple((n, 2 if share > 0.99 else 1) for n, share in shares if share > 0.01)

        graph = nx.Graph()
        graph.add_nodes_from((name, i) for name, parts in self.nodes.items() for i in range(len(parts)))
        for a, b in _JOINS:
            graph.add_edges_from(((a, i), (b, j)) for i, j in self._overlaps(self.nodes[a], b))
        self.diffusions = [(piece, marks(piece)) for piece in self.nodes["diff"]]
        for i, (piece, found) in enumerate(self.diffusions):
            if found == (("WELL", 2), ("NSELECT", 2)):  # a tap
                graph.add_edges_from((("diff", i), ("WELL", j)) for _, j in self._overlaps([piece], "WELL"))
        self.net = {node: k for k, part in enumerate(nx.connected_components(graph)) for node in part}
        fins = _parts(area["FIN"])
        tree = shapely.STRtree(fins)
        self.devices = {}
        for channel in _parts(area["ACTIVE"].intersection(poly)):
            x1, y1, x2, y2 = channel.bounds
            across = sum(_height(fins[j].intersection(channel)) == _height(fins[j]) for j in tree.query(channel))
            self.devices[(x1 + x2) / 2, (y1 + y2) / 2] = (x2 - x1, y2 - y1, across, marks(channel))

    def _overlaps(self, pieces: list[shapely.Polygon], name: str) -> list[tuple[int, int]]:
        others = self.nodes[name]
        return [
            (i, int(j))
            for i, piece in enumerate(pieces)
            for j in self._trees[name].query(piece)
            if piece.intersection(others[j]).area > 0
        ]

    def changes(self, other: Model) -> list[str]:
        """Say in words what a circuit that was this one lost or gained in another layout."""
        found = [f"transistor at {at}" for at in self.devices if self.devices[at] != other.devices.get(at)]
        found += [f"new transistor at {at}" for at in other.devices.keys() - self.devices.keys()]
        pairs = {
            (self.net[name, i], other.net[name, j])
            for name, pieces in self.nodes.items()
            for i, j in other._overlaps(pieces, name)
        }
        for side, word in ((0, "open"), (1, "short")):
            counts = Counter(pair[side] for pair in pairs)
            found += [f"{word} of net {net}" for net, n in counts.items() if n > 1]
        lost = Counter(self._layers().values()) - Counter(other._layers().values())
        kept = Counter(other._layers().values())
        found += [f"no net of {sorted(x)}" for x in lost if not any(x <= y for y in kept - Counter([x]))]
        for piece, marks in self.diffusions:
            for _, j in other._overlaps([piece], "diff"):
                if other.diffusions[j][1] != marks:
                    found.append(f"marks over diffusion {piece.bounds}")
        return found

    def _layers(self) -> dict[int, frozenset[str]]:
        """Conductors of every net."""
        layers: dict[int, set[str]] = {}
        for (name, _), net in self.net.items():
            layers.setdefault(net, set()).add(name)
        return {net: frozenset(names) for net, names in layers.items()}


def _height(shape: shapely.Geometry) -> float:
    return 0.0 if shape.is_empty else shape.bounds[3] - shape.bounds[1]


def _parts(shape: shapely.Geometry) -> list[shapely.Polygon]:
    return [p for p in shapely.get_parts(shape) if p.geom_type == "Polygon" and p.area > 0]


def _polygons(layout: DRCLayout, name: str) -> list[shapely.Polygon]:
    index = layout.layer_index(*LAYERS[name])
    if index is None:
        return []
    it = layout.top.begin_shapes_rec(index)
    it.shape_flags = kdb.Shapes.SRegions
    found = []
    while not it.at_end():
        polygon = it.shape().polygon.transformed(it.trans())
        found.append(shapely.Polygon([(p.x, p.y) for p in polygon.each_point_hull()]))
        it.next()
    return found
