"""Extraction of devices and nets from flat layouts, written apart from the package's own audit."""

from __future__ import annotations

from collections import Counter

import klayout.db as kdb

from edagym.task_assets.drc.process import LABEL_DATATYPE, LAYERS, METALS, VIAS


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
