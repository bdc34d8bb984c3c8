"""Random edits near the listed violations of a DRC task: the floor that every other policy has to beat."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from edagym.baselines.search.drc_repair import item_boxes
from edagym.envs.drc.queries import shapes_near
from edagym.spaces.drc_edits import ChangeShape, DRCEdit, MoveEdge, ShapeRef
from edagym.task_assets.drc.task import DRCView
from edagym.verifiers.drc import DRCLayout, load_table
from edagym.verifiers.drc.zone import grown

NEAR_NM = 40.0
"""Shapes this near to a violation are edited, nm."""
STEP_NM = 100
"""Edges move by at most this much, nm."""


def random_edits(view: DRCView, layout: DRCLayout, rng: np.random.Generator, n: int) -> Iterator[DRCEdit]:
    """Yield `n` random edits: one edge of a random shape near a random violation, moved by a random whole number of nm.

    Edits are drawn on the layout as given, so that a later one may find its shape changed and be refused.

    Args:
        view: What an agent may know about the task.
        layout: The layout.
        rng: The generator.
        n: Number of edits; none where no shape lies near a violation.
    """
    nm = 0.001 / layout.dbu
    table = load_table(view.rules)
    boxes = item_boxes(view.violations, layout)
    for _ in range(n if boxes else 0):
        box = boxes[int(rng.integers(len(boxes)))]
        near = shapes_near(layout, table, grown(box, round(NEAR_NM * nm)), box, tuple(table.layers), limit=64)
        if not near:
            continue
        shape = near[int(rng.integers(len(near)))]
        points = shape.own
        edge = int(rng.integers(len(points)))
        distance = round(int(rng.integers(1, STEP_NM + 1)) * nm) * (1 if rng.random() < 0.5 else -1)
        cell = "" if shape.cell == layout.top.name else shape.cell
        yield ChangeShape(shape.layer, ShapeRef(points=points), MoveEdge(edge, distance), cell)
