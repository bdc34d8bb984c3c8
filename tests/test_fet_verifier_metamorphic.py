"""Changes to task and layout that must not change a verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import shapely
from fet_cases import bar_fet, box, draw, make_task
from fet_counterexamples import CASES
from test_fet_verifier_circuits import chain, inner_pieces, spec_of, task_of

from edagym.task_assets.fet import FETTask
from edagym.task_assets.fet.grid import IntRing, ring_to_um
from edagym.verifiers.fet import FETLayout, verify
from edagym.verifiers.fet.drc import to_shapely
from edagym.verifiers.verdict import Verdict

PointMap = Callable[[tuple[int, int]], tuple[int, int]]

RIGID: dict[str, PointMap] = {
    "translated": lambda p: (p[0] + 123_457, p[1] - 98_765),
    "far": lambda p: (p[0] - 40_000_000, p[1] + 70_000_001),
    "quarter turn": lambda p: (-p[1], p[0]),
    "half turn": lambda p: (-p[0], -p[1]),
    "three quarters": lambda p: (p[1], -p[0]),
    "mirrored": lambda p: (-p[0], p[1]),
    "mirrored diagonally": lambda p: (p[1], p[0]),
}


def drawings() -> Iterator[tuple[str, FETTask, FETLayout]]:
    """Yield named tasks with passing and failing layouts."""
    for case in CASES:
        yield (case.name, *case.task_and_layout(max(case.truth, 1)))
        task, layout = case.turned(37.21).task_and_layout(max(case.truth, 1))
        yield (f"{case.name}, turned", task, layout)
    for architecture in ("top_gated", "dual_gated", "edge_contacted", "global_back_gated"):
        task = make_task(architecture=architecture, via=True, pad_cover=True)
        yield architecture, task, bar_fet(task)
    for template in ("inverter", "nand3", "nor2"):
        for load in ("active", "complementary"):
            spec = spec_of(template, load)
            yield f"{template} {load}", task_of(spec), chain(spec, bare=inner_pieces(spec))
            if spec.exact_per_flake[0] > 1:
                yield f"{template} {load}, wrong", task_of(spec), chain(spec, split=[(0, 1)])
    task = make_task(via=True)
    for name, contacts, gate, via in (
        ("narrow", box(13, 1, 18, 5), box(9, -1, 9.998, 7), box(15, 2, 16, 3)),
        ("close", box(11.198, 1, 18, 5), box(9, -1, 11, 7), box(15, 2, 16, 3)),
        ("at every limit", box(11.2, 1, 18, 5), box(10, -1, 11, 7), box(11.7, 2, 16, 3)),
        ("short enclosure", box(13, 1, 18, 5), box(9, -1, 11, 7), box(13.498, 2, 16, 3)),
        ("via outside", box(13, 1, 18, 5), box(9, -1, 11, 7), box(30, 2, 31, 3)),
    ):
        yield name, task, draw(task, contacts=[box(2, 1, 7, 5), contacts], gate=[gate], via=[via])


DRAWINGS = {name: (task, layout) for name, task, layout in drawings()}


def summary(verdict: Verdict) -> tuple[object, ...]:
    """Return what must not change: verdicts, counts, and distances to a hundredth of a nanometre."""
    checks = tuple(
        (c.id, c.passed, c.required, None if c.measured is None else round(c.measured, 4)) for c in verdict.checks
    )
    return verdict.paper_success, checks, verdict.metrics


def moved(task: FETTask, layout: FETLayout, move: PointMap) -> tuple[FETTask, FETLayout]:
    """Apply a map of grid points to a task and its layout."""

    def ring(points) -> tuple[tuple[float, float], ...]:
        return ring_to_um(move((round(x * 1000), round(y * 1000))) for x, y in points)

    regions = tuple(replace(r, hull=ring(r.hull), holes=tuple(ring(h) for h in r.holes)) for r in task.regions)
    other = task.with_regions(regions)
    result = FETLayout.from_task(other)
    for spec in task.editable_layers:
        result.replace(spec.name, [tuple(move(p) for p in points) for points in layout.shapes(spec.name)])
    return other, result


def test_drawings_pass_and_fail():
    passing = [name for name, (task, layout) in DRAWINGS.items() if verify(layout, task, strict=False).paper_success]
    assert 40 < len(passing) < len(DRAWINGS) - 30


@pytest.mark.parametrize("name", RIGID)
def test_rigid_motions(name: str):
    for drawing, (task, layout) in DRAWINGS.items():
        expected = summary(verify(layout, task, strict=False))
        other, result = moved(task, layout, RIGID[name])
        assert summary(verify(result, other, strict=False)) == expected, drawing


def _redrawn(layout: FETLayout, redraw: Callable[[FETLayout, str], list[IntRing]]) -> FETLayout:
    result = layout.copy()
    for spec in layout.layers:
        if spec.editable:
            result.replace(spec.name, redraw(layout, spec.name))
    return result


def _triangles(layout: FETLayout, layer: str) -> list[IntRing]:
    """Cut a layer into triangles between its own vertices: abutting pieces with exact edges."""
    result: list[IntRing] = []
    for polygon in to_shapely(list(layout.region(layer).each())):
        for piece in shapely.constrained_delaunay_triangles(polygon).geoms:
            result.append(tuple((round(x), round(y)) for x, y in piece.exterior.coords[:-1]))
    return result


def _with_redundant(layout: FETLayout, layer: str) -> list[IntRing]:
    """Draw every shape twice, and a triangle of it on top."""
    shapes = list(layout.shapes(layer))
    return shapes + [ring[::-1] for ring in shapes] + _triangles(layout, layer)[::2]


def _shuffled(layout: FETLayout, layer: str) -> list[IntRing]:
    """Draw the same shapes in another order, starting at other vertices."""
    return [(*ring[1:], ring[0]) for ring in reversed(layout.shapes(layer))]


@pytest.mark.parametrize("redraw", [_triangles, _with_redundant, _shuffled], ids=["split", "redundant", "shuffled"])
def test_ways_of_drawing(redraw: Callable[[FETLayout, str], list[IntRing]]):
    for drawing, (task, layout) in DRAWINGS.items():
        expected = summary(verify(layout, task, strict=False))
        assert summary(verify(_redrawn(layout, redraw), task, strict=False)) == expected, drawing


def test_order_of_regions_does_not_matter():
    spec = spec_of("nor2", "active", instances=2)
    task, layout = task_of(spec), chain(spec)
    flipped = task.with_regions(task.regions[::-1])
    verdict, other = (verify(layout, t, strict=False) for t in (task, flipped))
    assert verdict.paper_success
    assert other.paper_success
    assert verdict.metrics == other.metrics


def test_random_rotations_keep_counts_and_clear_rule_verdicts():
    """24 random angles, 3 nm above or below every limit: snapping moves an edge by less than 1 nm."""
    rng = np.random.default_rng(24)
    angles = rng.uniform(0.0, 2 * np.pi, 24)
    for slack in (3, -5):
        task, layout = _at_limits(slack)
        expected = {c.id: c.passed for c in verify(layout, task, strict=False).checks}
        assert all(expected.values()) == (slack > 0)
        for angle in angles:
            c, s = np.cos(angle), np.sin(angle)
            other, result = moved(
                task, layout, lambda p, c=c, s=s: (round(c * p[0] - s * p[1]), round(s * p[0] + c * p[1]))
            )
            verdict = verify(result, other, strict=False)
            assert {c.id: c.passed for c in verdict.checks} == expected, float(angle)
            assert verdict.metrics["transistors"] == 2


def _at_limits(slack_nm: int) -> tuple[FETTask, FETLayout]:
    """Two transistors with every distance `slack_nm` above its limit."""
    task = make_task(demand=(2,), via=True)
    d = slack_nm / 1000
    contacts = [
        box(1, 1, 6.8 - d, 5),
        box(8.2 + 2 * d, 1, 12.8 - d, 5),
        box(14.2 + 2 * d, 1, 19, 5),
        box(14.2 + 2 * d, 5.2 + d, 19, 8),
    ]
    gate = [box(7, -1, 8 + d, 7), box(13, -1, 14 + d, 7)]
    return task, draw(task, contacts=contacts, gate=gate, via=[box(1.5 + d, 2, 3, 3), box(16, 2, 17, 3)])
