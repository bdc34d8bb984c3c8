"""The full check: every rule on a whole layout."""

from __future__ import annotations

from collections.abc import Iterable

import klayout.db as kdb

from edagym.verifiers.drc.evaluate import evaluate
from edagym.verifiers.drc.graph import compile_table
from edagym.verifiers.drc.layout import DRCLayout
from edagym.verifiers.drc.markers import Box, MarkerStore, collection_markers
from edagym.verifiers.drc.presence import Presence, is_small, layer_boxes
from edagym.verifiers.drc.report import CheckReport, RoiUm
from edagym.verifiers.drc.rules import RuleTable


def full_check(
    layout: DRCLayout, table: RuleTable, *, roi: RoiUm | None = None, workers: int = 1, progress: bool = False
) -> CheckReport:
    """Check a whole layout against all rules.

    Args:
        layout: The layout.
        table: The rules.
        roi: Region of interest (x1, y1, x2, y2) in micrometres: only markers inside it are reported.
        workers: Number of processes; the result doesn't depend on it.
        progress: Show a progress bar.

    Returns:
        The report.
    """
    return CheckReport(layout, table, find_markers(layout, table), roi)


def find_markers(layout: DRCLayout, table: RuleTable, rules: Iterable[str] | None = None) -> MarkerStore:
    """Return all flat markers of a layout.

    Args:
        layout: The layout.
        table: The rules.
        rules: Ids of the rules to check; default all.
    """
    graph = compile_table(table, layout.dbu)
    wanted = None if rules is None else set(rules)
    outputs = [i for i, o in enumerate(graph.outputs) if wanted is None or o.rule in wanted]
    markers = MarkerStore(table.rules, layout.dbu)
    presence = Presence(graph, layer_boxes(layout, graph), is_small(layout))
    for i, found in evaluate(graph, lambda name: raw_shapes(layout, table, name), outputs, presence):
        for marker in collection_markers(graph.outputs[i].rule, found, graph.outputs[i].unordered):
            markers.add(marker)
    return markers


def raw_shapes(layout: DRCLayout, table: RuleTable, name: str, box: Box | None = None) -> kdb.Region | None:
    """Return a layer's raw shapes, flat and unmerged, those that touch a box if one is given; None if there are none.

    Shapes are not cut at the box: cutting would move slanted edges.
    """
    entry = table.layers[name]
    index = layout.layer_index(entry.layer, entry.datatype)
    if index is None:
        return None
    if box is None:
        region = kdb.Region(layout.top.begin_shapes_rec(index))
    else:
        region = kdb.Region(layout.top.begin_shapes_rec_touching(index, kdb.Box(*box)))
    if region.is_empty():
        return None
    region.flatten()
    return region
