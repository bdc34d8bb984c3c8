"""Small FET tasks with layouts drawn by hand, shared by the tests (all coordinates in um)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edagym.task_assets.fet import CircuitSpec, FETTask, Region
from edagym.task_assets.fet.grid import ring_to_dbu
from edagym.task_assets.fet.template import RuleValues, build_task, layer_stack
from edagym.verifiers.fet.layout import FETLayout

Ring = Sequence[tuple[float, float]]


def box(x1: float, y1: float, x2: float, y2: float) -> tuple[tuple[float, float], ...]:
    """Return a counter-clockwise rectangle."""
    return ((x1, y1), (x2, y1), (x2, y2), (x1, y2))


def make_task(
    flakes: Sequence[tuple[Ring, Sequence[Ring]]] | None = None,
    demand: Sequence[int | None] = (1,),
    architecture: str = "top_gated",
    materials: Sequence[str] | None = None,
    values: RuleValues | None = None,
    circuit: CircuitSpec | None = None,
    via: bool = False,
    pad_cover: bool = False,
    dielectric: bool = False,
    task_id: str = "test/case_1",
) -> FETTask:
    """Return a task on the given flakes (hull, holes); default: one 20 x 6 um bar at the origin."""
    flakes = flakes if flakes is not None else [(box(0, 0, 20, 6), ())]
    materials = materials or ["graphene"] * len(flakes)
    labels = list(dict.fromkeys(materials))
    layers, order = layer_stack(architecture, labels, via=via, pad_cover=pad_cover, dielectric=dielectric)
    regions = tuple(
        Region(f"flake_{i + 1}", m, tuple(hull), tuple(tuple(h) for h in holes))
        for i, ((hull, holes), m) in enumerate(zip(flakes, materials))
    )
    return build_task(
        task_id,
        f"Create {list(demand)} transistors.",
        architecture,
        layers,
        order,
        regions,
        values or RuleValues(via_enclosure=0.5 if via else None),
        demand,
        circuit,
    )


def draw(task: FETTask, **shapes: Sequence[Ring]) -> FETLayout:
    """Return the task's initial layout plus rings (um) per layer name."""
    layout = FETLayout.from_task(task)
    for layer, rings in shapes.items():
        for ring in rings:
            layout.add(layer, ring_to_dbu(ring))
    return layout


def rotate(ring: Ring, degrees: float, about: tuple[float, float] = (0.0, 0.0)) -> tuple[tuple[float, float], ...]:
    """Rotate a ring counter-clockwise about a point (um)."""
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    ax, ay = about
    return tuple((ax + c * (x - ax) - s * (y - ay), ay + s * (x - ax) + c * (y - ay)) for x, y in ring)


def bar_fet(task: FETTask) -> FETLayout:
    """Return the plain transistor on the default bar: contact, gate, contact."""
    gates = {s.name: [box(9, -1, 11, 7)] for s in task.layers_of("gate electrode")}
    extra: dict[str, list[Ring]] = {}
    if task.layers_of("via"):
        extra["via"] = [box(4, 2, 5, 3), box(15, 2, 16, 3)]
    if task.layers_of("pad cover"):
        extra["pad_cover"] = [box(3.5, 1.5, 5.5, 3.5), box(14.5, 1.5, 16.5, 3.5)]
    if task.layers_of("dielectric"):
        extra["dielectric"] = [box(8, -1.5, 12, 7.5)]
    return draw(task, contacts=[box(2, 1, 7, 5), box(13, 1, 18, 5)], **gates, **extra)
