"""What a macro agent sees: one vector of fixed length, made from the task's view and the agent's own notes.

Parts, in order: state of the work, rules, last verify, table of flakes; the flake in focus: its curves (before one is
chosen) or a window along the chosen curve ahead of the last contact; the next pair of contacts to join.
Lengths are scaled so that most numbers lie within -1..1; everything is clipped to -5..5.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from edagym.envs.fet.construct.shapes import Array, Rect
from edagym.envs.fet.observation import CHECK_KINDS
from edagym.spaces.contours import MAX_REGIONS
from edagym.task_assets.fet.circuits import LOADS, TEMPLATES
from edagym.task_assets.fet.task import ARCHITECTURES
from edagym.wrappers.fet_spines import N_BRANCHES, NEAR_UM, Spine, edges_of, free_way, rect_ring

if TYPE_CHECKING:
    from edagym.wrappers.fet_macro import Desk

N_OPS = 8
WINDOW, WINDOW_STEP_UM, WINDOW_BACK = 36, 0.3, 3
_PER_STATION, _PER_BRANCH, _PER_ROW = 7, 11, 7
_RAYS, _SEE_UM = 12, 12.0
_N_STATE = 3 + N_OPS + 9
_N_RULES = 4 + 4 + len(ARCHITECTURES) + 1 + len(TEMPLATES) + len(LOADS)
_N_VERIFY = len(CHECK_KINDS) + 3
_N_FOCUS = 10
_N_JOIN = 6 + 2 * 4 * (3 + _RAYS)
SIZE = (
    _N_STATE
    + _N_RULES
    + _N_VERIFY
    + MAX_REGIONS * _PER_ROW
    + _N_FOCUS
    + N_BRANCHES * _PER_BRANCH
    + WINDOW * _PER_STATION
    + _N_JOIN
)
"""Length of the vector."""


def encode(desk: Desk, observation: dict[str, Any], budget: int) -> np.ndarray:
    """Return the vector, float32 of shape (`SIZE`,).

    Args:
        desk: The agent's notes.
        observation: The base observation.
        budget: Units of budget of the episode.
    """
    focus = desk.focus
    row = None if focus is None else desk.rows[focus]
    parts = [_state(desk, observation, budget), _rules(desk), _verify(observation), _table(desk)]
    parts.append(_focus(desk))
    choosing = row is not None and row.spine is None
    parts.append(_branches(desk) if choosing else np.zeros(N_BRANCHES * _PER_BRANCH))
    placing = row is not None and row.spine is not None
    parts.append(_window(desk) if placing else np.zeros(WINDOW * _PER_STATION))
    parts.append(_join(desk) if focus is None else np.zeros(_N_JOIN))
    return np.clip(np.concatenate(parts), -5.0, 5.0).astype(np.float32)


def _state(desk: Desk, observation: dict[str, Any], budget: int) -> Array:
    phase = np.zeros(3)
    phase[0 if desk.focus is None else 1 if desk.rows[desk.focus].spine is None else 2] = 1.0
    ops = np.zeros(N_OPS)
    ops[list(desk.allowed())] = 1.0
    left = float(observation["budget_left"][0])
    needed = desk.needed
    failing = desk.failing_rows
    redo = sum(desk.cost(k) + 4 for k in failing)
    rest = [
        left / 100,
        left / max(budget, 1),
        (left - needed) / 50,
        (left - needed - redo) / 50,
        len(failing) / 3,
        float(desk.dirty),
        len(desk.wires) / 4,
        float(desk.wire_suspect),
        len(desk.open_rows) / 5,
    ]
    return np.concatenate([phase, ops, rest])


def _rules(desk: Desk) -> Array:
    view, rules = desk.view, desk.rules
    kinds = [float(bool(view.layers_of(role))) for role in ("via", "pad cover", "dielectric")]
    gates = len(view.layers_of("gate electrode")) / 2
    circuit = view.circuit
    return np.array(
        [rules.gate_width, rules.spacing * 2, rules.separation * 2, rules.enclosure or 0.0, *kinds, gates]
        + [float(view.architecture == a) for a in ARCHITECTURES]
        + [float(circuit is not None)]
        + [float(circuit is not None and circuit.template == t) for t in TEMPLATES]
        + [float(circuit is not None and circuit.load == v) for v in LOADS]
    )


def _verify(observation: dict[str, Any]) -> Array:
    last = [observation["last_share"][0], observation["last_edit_error"][0], observation["inputs_changed"][0]]
    return np.concatenate([observation["last_checks"].astype(float), np.array(last, float)])


def _table(desk: Desk) -> Array:
    table = np.zeros((MAX_REGIONS, _PER_ROW))
    for k, row in enumerate(desk.rows[:MAX_REGIONS]):
        table[k] = (
            1.0,
            row.want / 4,
            row.drawn / row.want,
            row.status,
            row.tries / 3,
            float(desk.focus == k),
            float(row.suspect),
        )
    return table.ravel()


def _focus(desk: Desk) -> Array:
    out = np.zeros(_N_FOCUS)
    if desk.focus is None:
        return out
    row, rules = desk.rows[desk.focus], desk.rules
    out[:4] = row.want / 4, row.drawn / 4, (row.want - row.drawn) / 4, row.tries / 3
    if row.spine is not None:
        rest = row.spine.length - row.cursor
        need = (row.want - row.drawn) * rules.pitch + (0.0 if row.contacts else rules.least_contact)
        out[4:8] = rest / 10, need / 10, (rest - need) / 5, row.cursor / 10
    if row.contacts:
        out[8:] = row.contacts[-1].hx, row.contacts[-1].hy / 2
    return out


def _branches(desk: Desk) -> Array:
    assert desk.focus is not None
    out = np.zeros((N_BRANCHES, _PER_BRANCH))
    need = desk.rows[desk.focus].want * desk.rules.pitch + desk.rules.least_contact
    spines = [(k, s) for k, s in enumerate(desk.frames[desk.focus].spines) if s is not None]
    points = np.vstack([s.ends[0] for _, s in spines])
    normals = np.vstack([s.ends[1] for _, s in spines])
    free = free_way(points, normals, _obstacles(desk, desk.focus)).reshape(len(spines), 2, -1).min(axis=1)
    for (k, spine), end in zip(spines, free):
        out[k, :3] = 1.0, (spine.length - need) / 8, spine.length / need / 2
        out[k, 3:-1] = spine.summary
        out[k, -1] = (end > 0.9).mean()
    return out.ravel()


def _window(desk: Desk) -> Array:
    """Stations ahead: inside, distances to the contour, free way beyond it, heading against the cursor's, holes."""
    assert desk.focus is not None
    row = desk.rows[desk.focus]
    spine = row.spine
    assert spine is not None
    s = row.cursor + WINDOW_STEP_UM * (np.arange(WINDOW) - WINDOW_BACK)
    ok = (s >= 0) & (s <= spine.length)
    at = np.clip(np.rint(s / max(spine.length, 1e-6) * (len(spine.s) - 1)).astype(int), 0, len(spine.s) - 1)
    start = float(np.interp(row.cursor, spine.s, spine.heading))
    left, right = _free_ends(spine, at, _obstacles(desk, desk.focus))
    table = np.column_stack(
        [
            spine.inside[at],
            spine.left[at] / 4,
            spine.right[at] / 4,
            left / NEAR_UM,
            right / NEAR_UM,
            spine.heading[at] - start,
            spine.hollow[at],
        ]
    )
    return np.where(ok[:, None], table, 0.0).ravel()


def _free_ends(spine: Spine, at: np.ndarray, edges: tuple[Array, Array]) -> tuple[Array, Array]:
    """Free way beyond the contour on both sides of some stations, um."""
    heading = spine.heading[at]
    normals = np.column_stack([-np.sin(heading), np.cos(heading)])
    points = spine.points[at]
    left = free_way(points + spine.left[at, None] * normals, normals, edges)
    right = free_way(points - spine.right[at, None] * normals, -normals, edges)
    return left, right


def _obstacles(desk: Desk, k: int) -> tuple[Array, Array]:
    """Edges of the flake itself, of its neighbours, and of what is drawn for them."""
    frame = desk.frames[k].flake
    x1, y1, x2, y2 = frame.box
    reach = NEAR_UM + 2.0
    rings = [frame.hull]
    for j, other in enumerate(desk.frames):
        if j == k:
            continue
        box = other.flake.box
        if box[0] < x2 + reach and box[2] > x1 - reach and box[1] < y2 + reach and box[3] > y1 - reach:
            rings.append(other.flake.hull)
            rings += [rect_ring(r) for r in (*desk.rows[j].gates, *desk.rows[j].contacts)]
    return edges_of(rings)


def _join(desk: Desk) -> Array:
    """The next pair to join: its distance, and for every side of both contacts what rays meet around the way out."""
    found = desk.join()
    if found is None:
        return np.zeros(_N_JOIN)
    _, a, b = found
    first, second = desk.contact(a), desk.contact(b)
    dx, dy = second.cx - first.cx, second.cy - first.cy
    out = [1.0, math.hypot(dx, dy) / 10, float(a[0] == b[0]), *_toward(first, dx, dy), 0.0]
    metal = [rect_ring(g) for row in desk.rows for g in row.gates]
    metal += [
        rect_ring(c) for k, row in enumerate(desk.rows) for i, c in enumerate(row.contacts) if (k, i) not in (a, b)
    ]
    flakes = [frame.flake.hull for frame in desk.frames]
    wires = [np.asarray(w.points) for w in desk.wires]
    metal_edges = edges_of(metal + wires)
    every = edges_of(metal + wires + flakes)
    for place, here, there in ((a, first, second), (b, second, first)):
        bearing = math.atan2(there.cy - here.cy, there.cx - here.cx)
        angles = bearing + np.arange(_RAYS) * 2 * math.pi / _RAYS
        rays = np.column_stack([np.cos(angles), np.sin(angles)])
        for side in range(4):
            origin, d, edge = desk.way_out(place, side)
            start, way = np.array([origin]), np.array([d])
            metal_free = float(free_way(start, way, metal_edges, _SEE_UM)[0])
            outside = start + (edge + 1.3) * way
            facing = d[0] * math.cos(bearing) + d[1] * math.sin(bearing)
            out += [metal_free / 4, edge / 4, facing]
            out += (free_way(np.tile(outside, (_RAYS, 1)), rays, every, _SEE_UM) / 6).tolist()
    return np.array(out)


def _toward(contact: Rect, dx: float, dy: float) -> tuple[float, float]:
    length = max(math.hypot(dx, dy), 1e-6)
    return (dx * contact.tx + dy * contact.ty) / length, (dy * contact.tx - dx * contact.ty) / length
