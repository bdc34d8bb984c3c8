"""Global placement: quadratic wire length with spreading, after SimPL.

Each round minimises a quadratic model of the half-perimeter wire length (the bound-to-bound net model: every pin of a
net is tied to the net's two outermost pins with weights that make the quadratic equal the half perimeter), spreads the
cells until no bin is fuller than the target density, and ties each cell to its spread place with a growing force.
Lengths are nm as floats. Nothing is random, and sums run in a fixed order: equal inputs give equal bytes.

Source of the method: Kim, Lee and Markov, "SimPL: An Effective Placement Algorithm", ICCAD 2010; net model: Spindler,
Schlichtmann and Johannes, "Kraftwerk2", IEEE TCAD 27(8), 2008.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import csr_array

from edagym.envs.ppa.flow.floorplan import ROW, SITE, Floorplan

ROUNDS = 16
"""Rounds of solving and spreading."""
PORT_ROUNDS = 6
"""Rounds before which ports are moved along the boundary."""
MANY_PORTS = 1500
"""Number of ports above which they are matched to places by their order around the core."""
MAX_DENSITY = 0.97
"""Fullest bin that the legaliser can still handle."""
NEAR = 60.0
"""Distance below which two pins count as this far apart in the net model, nm."""


@dataclass(frozen=True)
class Hypergraph:
    """Cells, ports and the nets between them.

    Attributes:
        widths: int64 (n,): widths of the movable cells, sites.
        ports: Number of ports; they are the nodes n .. n + ports - 1.
        pins: int64 (p,): node of each pin, net by net; a node occurs once per net.
        starts: int64 (m + 1,): first pin of each net.
        weights: float64 (m,): weight of each net.
    """

    widths: np.ndarray
    ports: int
    pins: np.ndarray
    starts: np.ndarray
    weights: np.ndarray

    @property
    def cells(self) -> int:
        """Number of movable cells."""
        return len(self.widths)

    def half_perimeters(self, xy: np.ndarray) -> np.ndarray:
        """Return the half perimeter of each net, nm, for places (n + ports, 2) of all nodes."""
        at = xy[self.pins]
        return (np.maximum.reduceat(at, self.starts[:-1]) - np.minimum.reduceat(at, self.starts[:-1])).sum(axis=1)


def effective_density(graph: Hypergraph, plan: Floorplan, density: float) -> float:
    """Return the target density of bins: as asked, but no less than what the cells need (as the real placer does)."""
    free = plan.rows * (plan.sites - (2 * 2 if plan.tap_cells else 0))
    needed = graph.widths.sum() / max(free, 1)
    return float(min(max(density, 1.03 * needed, 0.05), MAX_DENSITY))


def place(graph: Hypergraph, plan: Floorplan, density: float, start: np.ndarray | None = None) -> np.ndarray:
    """Place cells and ports.

    Args:
        graph: What to place.
        plan: Die and rows.
        density: Target density of a bin (``PLACE_DENSITY``), 0..1.
        start: Earlier places (n + ports, 2), nm, of all nodes: ports stay, cells are improved in few rounds.

    Returns:
        Centres of all nodes (n + ports, 2), nm, cells first. Cells overlap little but are not in rows yet.
    """
    n = graph.cells
    target = effective_density(graph, plan, density)
    slots = _port_slots(plan, graph.ports)
    middle = np.array([(plan.core[0] + plan.core[2]) / 2, (plan.core[1] + plan.core[3]) / 2])
    if start is None:
        xy = np.tile(middle, (n + graph.ports, 1))
        xy[n:] = slots[:: max(len(slots) // max(graph.ports, 1), 1)][: graph.ports]
        first = 0
    else:
        xy = start.copy()
        first = ROUNDS - 5
    if n == 0 or len(graph.starts) < 2:
        return xy
    anchors = xy[:n].copy()
    for step in range(first, ROUNDS):
        force = 0.0 if step == 0 else 0.012 * (step if start is None else step - 1)
        for axis in (0, 1):
            for _ in range(3 if step == 0 else 1):
                xy[:n, axis] = _solve(graph, xy[:, axis], anchors[:, axis], force)
        box = np.array(plan.core, dtype=float)
        half = graph.widths * SITE / 2
        xy[:n, 0] = np.clip(xy[:n, 0], box[0] + half, np.maximum(box[2] - half, box[0] + half))
        xy[:n, 1] = np.clip(xy[:n, 1], box[1] + ROW / 2, box[3] - ROW / 2)
        if start is None and step < PORT_ROUNDS:
            _move_ports(graph, xy, slots)
        anchors = _spread(graph.widths, xy[:n], plan, target)
    xy[:n] = anchors
    return xy


def _solve(graph: Hypergraph, x: np.ndarray, anchors: np.ndarray, force: float) -> np.ndarray:
    """Return coordinates of the cells that minimise the quadratic model along one axis."""
    n, starts = graph.cells, graph.starts
    degrees = np.diff(starts)
    net_of = np.repeat(np.arange(len(degrees)), degrees)
    order = np.lexsort((graph.pins, x[graph.pins], net_of))
    pins = graph.pins[order]
    low, high = pins[starts[:-1]], pins[starts[1:] - 1]
    scale = graph.weights / np.maximum(degrees - 1, 1)
    inner = np.ones(len(pins), dtype=bool)
    inner[starts[:-1]] = False
    inner[starts[1:] - 1] = False
    net_in, pin_in = net_of[inner], pins[inner]
    a = np.concatenate([low, pin_in, pin_in])
    b = np.concatenate([high, low[net_in], high[net_in]])
    w = np.concatenate([scale, scale[net_in], scale[net_in]]) / np.maximum(np.abs(x[a] - x[b]), NEAR)
    keep = a != b
    a, b, w = a[keep], b[keep], w[keep]
    a_free, b_free = a < n, b < n
    both = a_free & b_free
    diagonal = np.bincount(a[a_free], w[a_free], n) + np.bincount(b[b_free], w[b_free], n)
    right = np.zeros(n)
    only_a, only_b = a_free & ~b_free, b_free & ~a_free
    right += np.bincount(a[only_a], w[only_a] * x[b[only_a]], n)
    right += np.bincount(b[only_b], w[only_b] * x[a[only_b]], n)
    if force:
        pull = force / np.maximum(np.abs(x[:n] - anchors), NEAR)
        diagonal += pull
        right += pull * anchors
    # A cell that hangs on nothing stays where it is.
    loose = diagonal < 1e-9
    diagonal[loose] = 1.0
    right[loose] = x[:n][loose]
    off = csr_array((w[both], (a[both], b[both])), shape=(n, n))
    return _conjugate_gradients(off + off.T, diagonal, right, x[:n])


def _conjugate_gradients(off: csr_array, diagonal: np.ndarray, right: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Solve (diag(diagonal) - off) x = right with Jacobi preconditioning."""
    x = start.copy()
    residual = right - diagonal * x + off @ x
    z = residual / diagonal
    direction = z.copy()
    rho = float(np.add.reduce(residual * z))
    limit = 1e-8 * max(float(np.add.reduce(right * right / diagonal)), 1e-30)
    for _ in range(120):
        if rho <= limit:
            break
        image = diagonal * direction - off @ direction
        curvature = float(np.add.reduce(direction * image))
        if curvature <= 0:
            break
        step = rho / curvature
        x += step * direction
        residual -= step * image
        z = residual / diagonal
        rho, old = float(np.add.reduce(residual * z)), rho
        direction = z + (rho / old) * direction
    return x


def _spread(widths: np.ndarray, xy: np.ndarray, plan: Floorplan, density: float) -> np.ndarray:
    """Return places with no bin fuller than the density: halve the core again and again, alternately across and along.

    Where both halves can hold their cells nothing moves; where one cannot, the cells next to the cut cross it.
    """
    places = xy.copy()
    n = len(widths)
    boxes = np.tile(np.array(plan.core, dtype=float), (n, 1))
    area = widths.astype(float) * SITE * ROW
    region = np.zeros(n, dtype=np.int64)
    for _ in range(40):
        sizes = boxes[:, 2:] - boxes[:, :2]
        across = sizes[:, 0] >= sizes[:, 1]
        if sizes.max() < 3 * ROW:
            break
        axis = 0 if across[0] else 1
        low, high = boxes[:, axis], boxes[:, axis + 2]
        cut = (low + high) / 2
        order = np.lexsort((xy[:, 1 - axis], xy[:, axis], region))
        groups = region[order]
        first = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
        total = np.add.reduceat(area[order], first)
        index = np.repeat(np.arange(len(first)), np.diff(np.r_[first, n]))
        running = np.cumsum(area[order])
        before = running - area[order] / 2 - (running[first] - area[order][first])[index]
        left_now = np.add.reduceat(np.where(places[order, axis] < cut[order], area[order], 0.0), first)
        box = boxes[order][first]
        capacity = density * (box[:, 2] - box[:, 0]) * (box[:, 3] - box[:, 1]) / 2
        least, most = total - capacity, capacity
        tight = least > most
        threshold = np.where(tight, total / 2, np.clip(left_now, least, most))
        left = np.empty(n, dtype=bool)
        left[order] = before <= threshold[index]
        boxes[left, axis + 2] = cut[left]
        boxes[~left, axis] = cut[~left]
        places[:, axis] = np.clip(places[:, axis], boxes[:, axis], boxes[:, axis + 2])
        region = 2 * region + ~left
        # Compact the numbers: 40 halvings would overflow.
        _, region = np.unique(region, return_inverse=True)
    return places


def _port_slots(plan: Floorplan, ports: int) -> np.ndarray:
    """Return places for ports along the core's edge, counter-clockwise from the lower left, (2 * ports, 2), nm."""
    x1, y1, x2, y2 = plan.core
    width, height = x2 - x1, y2 - y1
    count = max(2 * ports, 1)
    along = (np.arange(count) + 0.5) * 2 * (width + height) / count
    x = np.select(
        [along < width, along < width + height, along < 2 * width + height],
        [x1 + along, x2, x2 - (along - width - height)],
        x1,
    )
    y = np.select(
        [along < width, along < width + height, along < 2 * width + height],
        [y1, y1 + (along - width), y2],
        y2 - (along - 2 * width - height),
    )
    return np.column_stack([x, y]).astype(float)


def _move_ports(graph: Hypergraph, xy: np.ndarray, slots: np.ndarray) -> None:
    """Give every port the boundary slot that makes its net short, all ports at once."""
    n = graph.cells
    if not graph.ports:
        return
    degrees = np.diff(graph.starts)
    net_of = np.repeat(np.arange(len(degrees)), degrees)
    is_port = graph.pins >= n
    want = np.tile(np.array([slots[:, 0].mean(), slots[:, 1].mean()]), (graph.ports, 1))
    movable = ~is_port
    sums = np.column_stack([np.bincount(net_of[movable], xy[graph.pins[movable], k], len(degrees)) for k in (0, 1)])
    counts = np.bincount(net_of[movable], minlength=len(degrees))
    ported = is_port & (counts[net_of] > 0)
    want[graph.pins[ported] - n] = sums[net_of[ported]] / counts[net_of[ported]][:, None]
    if graph.ports > MANY_PORTS:
        # The matching grows with the cube of their number; their order around the middle is nearly as good.
        middle = slots.mean(axis=0)
        around = [np.arctan2(points[:, 1] - middle[1], points[:, 0] - middle[0]) for points in (want, slots)]
        chosen = np.argsort(around[1], kind="stable")[:: len(slots) // graph.ports][: graph.ports]
        xy[n + np.argsort(around[0], kind="stable")] = slots[chosen]
        return
    cost = np.abs(want[:, None, :] - slots[None, :, :]).sum(axis=2)
    rows, columns = linear_sum_assignment(np.round(cost))
    xy[n + rows] = slots[columns]
