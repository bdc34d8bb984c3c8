"""The full check: every rule on a whole layout."""

from __future__ import annotations

import klayout.db as kdb

from edagym.verifiers.drc.evaluate import evaluate
from edagym.verifiers.drc.graph import compile_table
from edagym.verifiers.drc.layout import DRCLayout
from edagym.verifiers.drc.markers import Box, MarkerStore, collection_markers
from edagym.verifiers.drc.report import CheckReport
from edagym.verifiers.drc.rules import RuleTable

RoiUm = tuple[float, float, float, float]


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
    graph = compile_table(table, layout.dbu)

    def leaf(name: str) -> kdb.Region | None:
        return raw_shapes(layout, table, name)

    markers = MarkerStore(table.rules, layout.dbu)
    for i, found in evaluate(graph, leaf, range(len(graph.outputs))):
        for marker in collection_markers(graph.outputs[i].rule, found):
            markers.add(marker)
    return CheckReport(layout, table, markers, roi)


def raw_shapes(layout: DRCLayout, table: RuleTable, name: str, box: Box | None = None) -> kdb.Region | None:
    """Return a layer's raw shapes, flat and unmerged, cut to a box (database units) if one is given; None if empty."""
    entry = table.layers[name]
    index = layout.layer_index(entry.layer, entry.datatype)
    if index is None:
        return None
    if box is None:
        region = kdb.Region(layout.top.begin_shapes_rec(index))
        region.flatten()
    else:
        window = kdb.Box(*box)
        region = kdb.Region(layout.top.begin_shapes_rec_touching(index, window)) & kdb.Region(window)
    return None if region.is_empty() else region
