"""Strict counts on random drawings: an independent oracle, motions, redundant shapes, and the paper's count."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import shapely
from fet_cases import Ring, box, rotate
from fet_drawings import Drawing, Flake

from edagym.task_assets.fet.grid import IntRing
from edagym.task_assets.fet.task import FETTask
from edagym.verifiers.fet.layout import FETLayout
from edagym.verifiers.fet.strict import strict_checks
from edagym.verifiers.fet.strict_geometry import LANDING, OVERHANG, SNAP, SOLID
from edagym.verifiers.fet.verifier import verify

FLAKES: list[Flake] = [
    (box(0, 0, 20, 6), ()),
    (box(0, 0, 20, 14), (box(6, 5, 14, 9),)),
    (((0, 0), (20, 0), (20, 20), (14, 20), (14, 5), (6, 5), (6, 20), (0, 20)), ()),
    (
        (
            (0, 0),
            (16, 0),
            (20, 5),
            (20, 10),
            (16, 15),
            (0, 15),
            (0, 11),
            (14, 11),
            (15.5, 9),
            (15.5, 6),
            (14, 4),
            (0, 4),
        ),
        (),
    ),
]


def random_drawing(rng: np.random.Generator) -> Drawing:
    """Return a few gates and contacts strewn over a flake; about every tenth holds a strict transistor."""

    def bar(x: float, y: float, length: float, width: float, degrees: float) -> Ring:
        return rotate(box(x - width / 2, y - length / 2, x + width / 2, y + length / 2), degrees, (x, y))

    flake = FLAKES[int(rng.integers(len(FLAKES)))]
    top = max(y for _, y in flake[0])
    gates = [
        bar(
            rng.uniform(1, 19),
            rng.uniform(0, top),
            rng.uniform(3, 26),
            rng.uniform(0.5, 2),
            rng.choice([0, 90, rng.uniform(0, 180)]),
        )
        for _ in range(int(rng.integers(1, 4)))
    ]
    contacts = [
        bar(
            rng.uniform(0, 20),
            rng.uniform(0, top),
            rng.uniform(0.3, 8),
            rng.uniform(0.3, 4),
            rng.choice([0, rng.uniform(0, 180)]),
        )
        for _ in range(int(rng.integers(2, 8)))
    ]
    return Drawing({"gate": gates, "contacts": contacts}, [flake])


def strict_count(task: FETTask, layout: FETLayout) -> int:
    (count,) = (c.measured for c in strict_checks(task, layout) if c.kind == "strict_transistor_count")
    assert count is not None
    return int(count)


def oracle(task: FETTask, layout: FETLayout) -> int:
    """Count strict transistors of a one-flake top-gated task with shapely in place of KLayout."""
    region = shapely.Polygon(task.regions[0].hull, task.regions[0].holes)

    def shapes(layer: str) -> list[shapely.Polygon]:
        rings = [shapely.Polygon(np.array(r) / 1000) for r in layout.shapes(layer)]
        return list(shapely.get_parts(shapely.union_all(rings)))

    gates, contacts = shapes("gate"), shapes("contacts")
    all_gates = shapely.union_all(gates)
    grown = region.buffer((OVERHANG - SNAP) / 1000, join_style="mitre", mitre_limit=1.5)
    pieces = list(shapely.get_parts(grown.difference(all_gates)))
    rest = region.difference(all_gates)
    bodies = list(shapely.get_parts(rest.buffer(-(SOLID / 2 - SNAP) / 1000, join_style="mitre")))
    nets = nx.Graph()
    for i, contact in enumerate(contacts):
        nets.add_node(("c", i))
        for j, piece in enumerate(pieces):
            if contact.intersection(piece).intersection(region).buffer(-SNAP / 1000).area > 0:
                nets.add_edge(("c", i), ("p", j))
    net = {node: k for k, nodes in enumerate(nx.connected_components(nets)) for node in nodes}
    found = set()
    for g, gate in enumerate(gates):
        for crossing in shapely.get_parts(gate.intersection(region)):
            stray = (c.intersection(crossing).buffer(-SNAP / 1000).area > 0 for c in contacts)
            if crossing.area < 1e-9 or any(stray):
                continue
            landed = set()
            for body in bodies:
                if crossing.distance(body) > (SOLID / 2 + SNAP) / 1000:
                    continue
                holes = [shapely.Polygon(hole) for hole in crossing.interiors]
                if any(hole.contains(body) for hole in holes):
                    continue
                for contact in contacts:
                    trapped = any(shapely.Polygon(hole).contains(contact) for hole in gate.interiors)
                    overlap = contact.intersection(body.buffer((SOLID / 2 - SNAP) / 1000, join_style="mitre"))
                    core = overlap.intersection(rest).buffer(-(LANDING / 2 - SNAP) / 1000, join_style="mitre")
                    if core.area > 0 and not trapped:
                        landed.add(next(j for j, p in enumerate(pieces) if p.intersects(body)))
            ends = {net[("p", j)] for j in landed}
            if len(ends) > 1:
                found.add((g, *sorted(ends)[:2]))
    return len(found)


def test_agrees_with_shapely_on_random_drawings() -> None:
    rng = np.random.default_rng(11)
    counts = []
    for _ in range(400):
        task, layout = random_drawing(rng).build()
        counts.append(strict_count(task, layout))
        assert counts[-1] == oracle(task, layout), layout.shapes("gate") + layout.shapes("contacts")
    assert sum(c > 0 for c in counts) > 30
    assert max(counts) > 1


def test_strict_never_counts_more_than_the_paper() -> None:
    rng = np.random.default_rng(12)
    some = 0
    for _ in range(400):
        task, layout = random_drawing(rng).build()
        paper = verify(layout, task, strict=False).metrics["transistors"]
        strict = strict_count(task, layout)
        assert strict <= paper
        some += 0 < strict < paper
    assert some > 5


def moved(layout: FETLayout, task: FETTask, matrix: tuple[int, int, int, int], shift: tuple[int, int]) -> FETLayout:
    a, b, c, d = matrix
    result = FETLayout(task.layers)
    for spec in task.layers:
        rings = [[(a * x + b * y + shift[0], c * x + d * y + shift[1]) for x, y in r] for r in layout.shapes(spec.name)]
        result.replace(spec.name, [tuple(r) for r in rings])
    return result


@pytest.mark.parametrize("matrix", [(1, 0, 0, 1), (0, -1, 1, 0), (-1, 0, 0, -1), (-1, 0, 0, 1), (0, 1, 1, 0)])
def test_exact_motions_change_no_result(matrix: tuple[int, int, int, int]) -> None:
    rng = np.random.default_rng(13)
    a, b, c, d = matrix
    shift = (12_345, -6_789)
    for _ in range(40):
        drawing = random_drawing(rng)
        task, layout = drawing.build()
        hull, holes = drawing.flakes[0]

        def move(ring: Ring) -> Ring:
            return tuple((a * x + b * y + shift[0] / 1000, c * x + d * y + shift[1] / 1000) for x, y in ring)

        other, _ = Drawing({}, [(move(hull), [move(hole) for hole in holes])]).build()
        before = [(k.id, k.passed, k.measured) for k in strict_checks(task, layout)]
        after = [(k.id, k.passed, k.measured) for k in strict_checks(other, moved(layout, task, matrix, shift))]
        assert before == after


def halves(ring: IntRing) -> list[IntRing]:
    """Cut a convex ring along a diagonal."""
    return [ring[:3], (ring[2], *ring[3:], ring[0])]


def test_splitting_and_redundant_shapes_change_no_result() -> None:
    rng = np.random.default_rng(14)
    for _ in range(80):
        task, layout = random_drawing(rng).build()
        before = strict_checks(task, layout)
        split, doubled, reordered = layout.copy(), layout.copy(), layout.copy()
        for name in ("gate", "contacts"):
            rings = layout.shapes(name)
            split.replace(name, [part for ring in rings for part in halves(ring)])
            doubled.replace(name, [*rings, *rings[::-1], *(halves(ring)[0] for ring in rings)])
            reordered.replace(name, rings[::-1])
        for other in (split, doubled, reordered):
            assert [(c.id, c.passed, c.measured) for c in strict_checks(task, other)] == [
                (c.id, c.passed, c.measured) for c in before
            ]


def test_file_round_trip_changes_no_result() -> None:
    rng = np.random.default_rng(15)
    for _ in range(30):
        task, layout = random_drawing(rng).build()
        assert strict_checks(task, layout) == strict_checks(task, layout.round_trip())
