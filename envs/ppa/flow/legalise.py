"""Legal places: cells in rows and on sites, moved as little as needed."""

from __future__ import annotations

import numpy as np

from edagym.envs.ppa.flow.floorplan import ROW, SITE, TAP_SITES, Floorplan
from edagym.errors import FlowError

NEAR_ROWS = 40
"""Rows above and below the wanted one that are looked at first."""


def legalise(widths: np.ndarray, xy: np.ndarray, plan: Floorplan) -> np.ndarray:
    """Put cells into rows without overlap.

    Rows are chosen cell by cell from the left, by least displacement among the rows with room; inside each row the
    summed square displacement is then least for the order found (isotonic regression).

    Args:
        widths: int64 (n,): widths in sites.
        xy: float64 (n, 2): wanted centres, nm.
        plan: Die and rows. Each row keeps its first and last sites for tap cells.

    Returns:
        int64 (n, 2): lower left corners, nm.

    Raises:
        FlowError: If the cells do not fit: the placement is infeasible.
    """
    margin = TAP_SITES if plan.tap_cells else 0
    room = plan.sites - 2 * margin
    total = int(widths.sum())
    if total > room * plan.rows or (len(widths) and int(widths.max()) > room):
        raise FlowError(
            f"placement infeasible: {total} sites of cells in {max(room, 0) * plan.rows} free sites",
            field="place",
            value=round(total / max(room * plan.rows, 1), 4),
            allowed="utilisation <= 1",
        )
    want = (xy[:, 0] - plan.core[0]) / SITE - widths / 2 - margin
    row_y = plan.core[1] + ROW * (np.arange(plan.rows) + 0.5)
    front = np.zeros(plan.rows)
    used = np.zeros(plan.rows, dtype=np.int64)
    members: dict[int, list[int]] = {}
    # Wide cells are hardest to fit when rows fill up: with little room left they go first.
    crowded = total > 0.9 * room * plan.rows
    order = np.lexsort((np.arange(len(widths)), want, -widths if crowded else np.zeros(len(widths))))
    for cell in order.tolist():
        width, x, y = int(widths[cell]), float(want[cell]), float(xy[cell, 1])
        near = int((y - plan.core[1]) // ROW)
        for window in (slice(max(near - NEAR_ROWS, 0), max(near + NEAR_ROWS + 1, 1)), slice(0, plan.rows)):
            start = np.maximum(front[window], x)
            over = np.maximum(start + width - room, 0.0)
            cost = np.abs(row_y[window] - y) + SITE * ((start - x) + over)
            cost[used[window] + width > room] = np.inf
            row = int(np.argmin(cost)) + window.start if len(cost) else 0
            if len(cost) and np.isfinite(cost[row - window.start]):
                break
        else:
            raise FlowError(
                "placement infeasible: no row has room for a cell",
                field="place",
                value=width,
                allowed=int((room - used).max()),
            )
        members.setdefault(row, []).append(cell)
        used[row] += width
        front[row] = min(max(front[row], x), room - width) + width if not crowded else used[row]
    corners = np.zeros((len(widths), 2), dtype=np.int64)
    for row, cells in members.items():
        index = np.array(sorted(cells, key=lambda c: (want[c], c)))
        sites = _row_places(want[index], widths[index], room)
        corners[index, 0] = plan.core[0] + (sites + margin) * SITE
        corners[index, 1] = plan.core[1] + row * ROW
    return corners


def _row_places(want: np.ndarray, widths: np.ndarray, room: int) -> np.ndarray:
    """Return first sites of one row's cells in their order, as near as possible to the wanted ones."""
    before = np.concatenate([[0], np.cumsum(widths)[:-1]])
    values = (want - before).tolist()
    means: list[float] = []
    counts: list[int] = []
    for value in values:
        mean, count = value, 1
        while means and means[-1] > mean:
            last, many = means.pop(), counts.pop()
            mean = (last * many + mean * count) / (many + count)
            count += many
        means.append(mean)
        counts.append(count)
    fitted = np.repeat(np.array(means), np.array(counts))
    slack = room - int(widths.sum())
    return np.clip(np.rint(fitted), 0, slack).astype(np.int64) + before
