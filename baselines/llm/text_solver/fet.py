"""FET layouts from the prompt: read it, place devices by geometry, wire outputs, answer with edits."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import shapely

from .fet_chain import GATE_GAP, MARGIN, Blocked, Chain, chains
from .fet_feedback import heed
from .fet_prompt import MARK, Flake, Problem, read_prompt
from .fet_wires import Router, Terminal, terminals

# Kept from other flakes.
_FLAKE_GAP = 0.15
# How far around a flake obstacles matter.
_REACH = 6.0
_PAD = 0.1
# Layouts tried until all outputs can be wired.
_TRIES = 6
# Most vertices of a drawn wire, closing one included.
_MAX_POINTS = 60

Edit = dict[str, Any]


def matches(messages: list[dict[str, str]]) -> bool:
    """Whether a message holds a FET prompt."""
    return any(MARK in m["content"] for m in messages)


def reply(messages: list[dict[str, str]], schema: dict[str, Any] | None) -> str:
    """Return the answer to the last FET prompt; what the checker said after it is taken into account.

    Args:
        messages: Role and text of every message.
        schema: JSON schema of the answer, an object with texts and a list of edits; None: the form of the prompt.
    """
    at = max(i for i, m in enumerate(messages) if MARK in m["content"])
    problem = read_prompt(messages[at]["content"])
    edits: list[Edit] = []
    thought = "the prompt states no flakes or no contact layer"
    if problem is not None:
        findings = [m["content"] for m in messages[at + 1 :] if m["role"] == "user"]
        problem, variants = heed(problem, findings)
        edits = draw(problem, variants)
        n = sum(flake.demand for flake in problem.flakes)
        thought = f"{n} transistor(s) on {len(problem.flakes)} flake(s), variants {variants or 'none'}"
    fields = (schema or {}).get("properties", {"thought": {"type": "string"}, "edits": {"type": "array"}})
    filled = {name: thought for name, form in fields.items() if form.get("type") == "string"}
    return json.dumps(filled | {name: edits for name, form in fields.items() if form.get("type") == "array"})


def draw(problem: Problem, variants: dict[str, int]) -> list[Edit]:
    """Return the edits of a whole layout.

    Args:
        problem: The task.
        variants: Number of the variant to draw of each flake; 0 where missing.
    """
    variants = dict(variants)
    best: tuple[int, list[Edit]] | None = None
    for _ in range(_TRIES):
        done = _place(problem, variants)
        wires, open_flakes = _join(problem, done)
        if best is None or len(open_flakes) < best[0]:
            best = (len(open_flakes), _edits(problem, done, wires))
        if not open_flakes:
            break
        for name in open_flakes:
            variants[name] = variants.get(name, 0) + 1
    assert best is not None
    return best[1]


def _place(problem: Problem, variants: dict[str, int]) -> dict[str, Chain]:
    """Return the devices of every flake on which they fit."""
    done: dict[str, Chain] = {}
    for flake in problem.flakes:
        blocked = _blocked(problem, flake, done)
        chain = next(chains(problem, flake, blocked, variants.get(flake.name, 0)), None)
        if chain is not None:
            done[flake.name] = chain
    return done


def _join(problem: Problem, done: dict[str, Chain]) -> tuple[list[Any], list[str]]:
    """Return the wires of all outputs, and the names of the flakes whose outputs could not be joined."""
    outputs: dict[str, list[tuple[str, Terminal]]] = {}
    filled = {flake.name: shapely.Polygon(flake.hull) for flake in problem.flakes}
    for flake in problem.flakes:
        if flake.nets and flake.name in done:
            for net, ends in terminals(filled[flake.name], done[flake.name], flake.nets).items():
                outputs.setdefault(net, []).extend((flake.name, end) for end in ends)
    router = Router(problem, list(filled.values()), list(done.values()))
    stuck = [
        name for ends in outputs.values() if not router.join([end for _, end in ends]) for name in {n for n, _ in ends}
    ]
    return router.wires, sorted(set(stuck))


def _blocked(problem: Problem, flake: Flake, done: dict[str, Chain]) -> Blocked:
    """Return what is in the way of a flake's devices: other flakes, and what was drawn before."""
    here = shapely.Polygon(flake.hull).buffer(_REACH)
    flakes = [shapely.Polygon(f.hull) for f in problem.flakes if f is not flake]
    gates = [g for chain in done.values() for g in chain.gates]
    contacts = [c for chain in done.values() for c in chain.contacts if c is not None]
    near = [[s for s in shapes if s.intersects(here)] for shapes in (flakes, gates, contacts)]
    flakes, gates, contacts = near

    def grown(*groups: tuple[list[Any], float]) -> list[Any]:
        total = [s.buffer(d, join_style="mitre") for shapes, d in groups for s in shapes]
        if not total:
            return []
        union = shapely.union_all(total)
        shapely.prepare(union)
        return [union]

    separation, spacing = problem.separation + MARGIN, problem.spacing + MARGIN
    return Blocked(
        gates=grown((flakes, _FLAKE_GAP), (gates, GATE_GAP), (contacts, separation)),
        contacts=grown((flakes, _FLAKE_GAP), (gates, separation), (contacts, spacing)),
    )


def _edits(problem: Problem, done: dict[str, Chain], wires: list[Any]) -> list[Edit]:
    edits: list[Edit] = []
    layers = problem.layers
    gates = [g for chain in done.values() for g in chain.gates]
    contacts = [c for chain in done.values() for c in chain.contacts if c is not None]
    for name in layers.get("contact", ()):
        edits += [_polygon(name, c) for c in contacts]
        edits += [edit for wire in wires for edit in _wire(name, wire)]
    for name in layers.get("gate electrode", ()):
        edits += [_polygon(name, g) for g in gates]
    for name in layers.get("dielectric", ()):
        edits += [_polygon(name, g.buffer(0.2, join_style="mitre")) for g in gates]
    vias = [c.buffer(-(problem.enclosure + MARGIN), join_style="mitre") for c in contacts]
    vias = [v for v in vias if not v.is_empty]
    for name in layers.get("via", ()):
        edits += [_polygon(name, v) for v in vias]
    for name in layers.get("pad cover", ()):
        edits += [_polygon(name, v.buffer(_PAD, join_style="mitre")) for v in vias]
    return edits


def _wire(layer: str, wire: Any) -> list[Edit]:
    """Return a wire as polygons; one with many corners is cut up, with parts that overlap."""
    if shapely.get_num_coordinates(wire) <= _MAX_POINTS:
        return [_polygon(layer, wire)]
    x0, y0, x1, y1 = wire.bounds
    halves = []
    for box in (
        [(x0, y0, (x0 + x1) / 2 + 0.1, y1), ((x0 + x1) / 2 - 0.1, y0, x1, y1)]
        if x1 - x0 > y1 - y0
        else [(x0, y0, x1, (y0 + y1) / 2 + 0.1), (x0, (y0 + y1) / 2 - 0.1, x1, y1)]
    ):
        halves += [p for p in shapely.get_parts(wire.intersection(shapely.box(*box))) if p.geom_type == "Polygon"]
    return [edit for half in halves for edit in _wire(layer, half)]


def _polygon(layer: str, shape: Any) -> Edit:
    points = np.round(shapely.get_coordinates(shape.exterior)[:-1], 3)
    return {"op": "add_polygon", "layer": layer, "points": (points + 0.0).tolist()}
