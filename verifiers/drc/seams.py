"""Where rules see the seams between the shapes of a layer.

The sign-off tool doesn't merge layers first. Its checks look at one raw shape after the other, so what they find, and
what shields what, depends on where shapes meet; edges are cut there by booleans, and KLayout's short cuts pass raw
shapes on. Other operations merge what they are given: for rules made of these, a shape that others cover makes no
difference.
"""

from __future__ import annotations

from collections.abc import Iterable

from edagym.verifiers.drc.graph import Graph, Node
from edagym.verifiers.drc.presence import Presence

# Operations that merge all polygons that they are given.
_MERGE = frozenset(
    {
        *(f"{w}_{m}" for w in ("with", "without") for m in ("area", "height", "width")),
        *("edges", "holes", "corners", "sized", "or", "enclosing_filtered"),
    }
)
# Operations whose value covers the same area or length, whatever the cuts in their operands.
_KEEP = frozenset({"layer", "join", "polygons", "edges", "with_angle", "extended_out", "and", "not"})
# How a value depends on seams: not at all; it is cut elsewhere; it is another.
_NONE, _CUTS, _OTHER = range(3)


def _merges(graph: Graph, node: Node, k: int, acts: bool) -> bool:
    """Return whether an operation doesn't see the cuts in its operand number `k`."""
    if node.op in ("interacting", "not_interacting") and k == 1:
        return True  # what touches an object doesn't depend on how it is cut
    if graph.nodes[node.args[k]].kind != "region":
        return False
    if node.op in ("and", "not"):
        return acts and node.kind == "region"
    if node.op == "not_interacting":
        return acts
    return node.op in _MERGE or node.op == "interacting" or (node.op == "enclosing" and k == 0 and _filtered(node))


def _filtered(node: Node) -> bool:
    return node.params[2] is not None


def seam_layers(graph: Graph, outputs: Iterable[int], presence: Presence) -> frozenset[str]:
    """Return the names of the layers whose seams may show in the values of some outputs (rectilinear shapes).

    Args:
        graph: The compiled rules.
        outputs: Indices into `Graph.outputs`.
        presence: Which booleans take no short cut.
    """
    wanted = list(outputs)
    levels: dict[int, dict[str, int]] = {}
    for n in graph.needed(wanted):
        node = graph.nodes[n]
        levels[n] = dict.fromkeys(node.layers, _CUTS) if node.op == "layer" else {}
        for k, a in enumerate(node.args):
            merges = _merges(graph, node, k, presence.acts(n) is True if len(node.args) == 2 else True)
            for name, level in levels[a].items():
                if level == _CUTS:
                    level = _NONE if merges else _CUTS if node.op in _KEEP else _OTHER
                levels[n][name] = max(level, levels[n].get(name, _NONE))
    found = (levels[graph.outputs[i].node] for i in wanted)
    return frozenset(name for seen in found for name, level in seen.items() if level != _NONE)
