"""Property tests: distances against brute force, areas and containment against shapely, counts against counting."""

from __future__ import annotations

import math

import pytest
import shapely
from fet_cases import box, draw, make_task, rotate
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from edagym.task_assets.fet import FETTask
from edagym.task_assets.fet.template import RuleValues
from edagym.verifiers.fet import FETLayout, FETVerifier
from edagym.verifiers.fet.drc import TOLERANCE
from edagym.verifiers.verdict import CheckResult

Points = tuple[tuple[int, int], ...]

TASKS: dict[float, tuple[FETTask, FETVerifier]] = {}
LIMIT = 0.5


def verifier() -> tuple[FETTask, FETVerifier]:
    if LIMIT not in TASKS:
        values = RuleValues(LIMIT, LIMIT, LIMIT, LIMIT)
        task = make_task(values=values, via=True)
        TASKS[LIMIT] = (task, FETVerifier(task))
    return TASKS[LIMIT]


def check(id_: str, **shapes: list[Points]) -> CheckResult:
    task, fet = verifier()
    layout = FETLayout.from_task(task)
    for layer, rings in shapes.items():
        layout.replace(layer, rings)
    (result,) = (c for c in fet.verify(layout, strict=False).checks if c.id == id_)
    return result


@st.composite
def polygons(draw_, reach: int = 2500, size: int = 1500) -> Points:
    """Valid polygons on the grid: rectangles at any angle, needles, and stars around a centre."""
    cx, cy = draw_(st.integers(-reach, reach)), draw_(st.integers(-reach, reach))
    kind = draw_(st.sampled_from(["rectangle", "needle", "star"]))
    turn = math.radians(draw_(st.sampled_from([0, 90, 45]) | st.integers(0, 359)))
    if kind == "star":
        radii = draw_(st.lists(st.integers(30, size), min_size=3, max_size=9))
        points = [
            (r * math.cos(2 * math.pi * i / len(radii)), r * math.sin(2 * math.pi * i / len(radii)))
            for i, r in enumerate(radii)
        ]
    else:
        a = draw_(st.integers(50, size))
        b = draw_(st.integers(2, 20)) if kind == "needle" else draw_(st.integers(50, size))
        points = [(a, 0), (-a, b), (-a, -b)] if kind == "needle" else [(-a, -b), (a, -b), (a, b), (-a, b)]
    c, s = math.cos(turn), math.sin(turn)
    ring = tuple((round(cx + c * x - s * y), round(cy + s * x + c * y)) for x, y in points)
    assume(shapely.Polygon(ring).is_valid and shapely.Polygon(ring).area > 100)
    return ring


def segments(ring: Points) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    return list(zip(ring, (*ring[1:], ring[0])))


def brute_distance(a: Points, b: Points) -> float:
    """Least distance of two disjoint rings: some vertex of one to some edge of the other."""

    def point_to_segment(p, segment) -> float:
        (x1, y1), (x2, y2) = segment
        dx, dy = x2 - x1, y2 - y1
        t = max(0.0, min(1.0, ((p[0] - x1) * dx + (p[1] - y1) * dy) / (dx * dx + dy * dy)))
        return math.hypot(p[0] - x1 - t * dx, p[1] - y1 - t * dy)

    return min(
        min(point_to_segment(p, s) for p in a for s in segments(b)),
        min(point_to_segment(p, s) for p in b for s in segments(a)),
    )


def assert_distance(result: CheckResult, distance: float) -> None:
    limit = LIMIT * 1000 - TOLERANCE
    assume(abs(distance - limit) > 1e-3)
    assert result.passed == (distance > limit)
    if not result.passed:
        assert result.measured is not None
        assert result.measured * 1000 == pytest.approx(distance, abs=0.06)


@settings(max_examples=150, deadline=None)
@given(polygons(), polygons())
def test_separation_is_the_distance(contact: Points, gate: Points):
    apart = not shapely.Polygon(contact).intersects(shapely.Polygon(gate))
    distance = brute_distance(contact, gate) if apart else 0.0
    assert_distance(check("min_separation:contacts:gate", contacts=[contact], gate=[gate]), distance)


@settings(max_examples=100, deadline=None)
@given(polygons(), polygons())
def test_spacing_is_the_distance_of_disjoint_shapes(one: Points, two: Points):
    assume(not shapely.Polygon(one).intersects(shapely.Polygon(two)))
    alone = [check("min_spacing:contacts", contacts=[ring]) for ring in (one, two)]
    assume(all(result.passed for result in alone))  # stars have notches of their own
    assert_distance(check("min_spacing:contacts", contacts=[one, two]), brute_distance(one, two))


@settings(max_examples=150, deadline=None)
@given(polygons(reach=300, size=4000), polygons(reach=600, size=700))
def test_enclosure_is_containment_with_a_margin(contact: Points, via: Points):
    result = check("min_enclosure:contacts:via", contacts=[contact], via=[via])
    outer, inner = shapely.Polygon(contact), shapely.Polygon(via)
    if inner.within(outer):
        assert_distance(result, brute_distance(contact, via))
    else:
        assert not result.passed


@settings(max_examples=150, deadline=None)
@given(polygons(), polygons())
def test_overlap_is_common_area(contact: Points, gate: Points):
    area = shapely.Polygon(contact).intersection(shapely.Polygon(gate)).area
    assume(area == 0 or area > 3000)  # slivers thinner than the grid are nobody's overlap
    assert check("must_not_overlap:contacts:gate", contacts=[contact], gate=[gate]).passed == (area == 0)


@settings(max_examples=100, deadline=None)
@given(st.integers(100, 900), st.integers(100, 3000), st.integers(0, 359))
def test_width_of_a_turned_rectangle(width: int, length: int, degrees: int):
    corners = rotate(box(0, 0, length, width), degrees)
    ring = tuple((round(x), round(y)) for x, y in corners)
    sides = [math.dist(p, q) for p, q in segments(ring)]
    narrow = min(sides)
    assume(abs(narrow - (LIMIT * 1000 - TOLERANCE)) > 2)  # snapping turns the rectangle into a near-rectangle
    assert check("min_width:gate", gate=[ring]).passed == (narrow > LIMIT * 1000 - TOLERANCE)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.booleans(), min_size=2, max_size=6),
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.integers(0, 359),
    st.booleans(),
)
def test_count_of_a_chain_with_contacts_left_out(
    contacted: list[bool], crossing: list[bool], degrees: int, holed: bool
):
    """A crossing gate counts when a contact lies somewhere on each side of it."""
    n = len(contacted) - 1
    about = (5.0, 3.0)
    hull = tuple((round(x, 3), round(y, 3)) for x, y in rotate(box(0, 0, 4 * (n + 1), 6), degrees, about))
    # A small hole under the first gate's middle, where it changes nothing.
    hole = tuple((round(x, 3), round(y, 3)) for x, y in rotate(box(3.8, 2.8, 4.2, 3.2), degrees, about))
    task = make_task([(hull, (hole,) if holed else ())], (1,))
    gates = [box(4 * k + 3.5, -1, 4 * k + 4.5, 7 if crossing[k] else 5) for k in range(n)]
    contacts = [box(4 * k + 1, 1, 4 * k + 3, 5) for k, there in enumerate(contacted) if there]
    layout = draw(
        task, gate=[rotate(r, degrees, about) for r in gates], contacts=[rotate(r, degrees, about) for r in contacts]
    )
    expected = sum(crossing[k] and any(contacted[: k + 1]) and any(contacted[k + 1 :]) for k in range(n))
    if holed and not crossing[0]:
        return  # a gate that ends at a hole is another matter
    verdict = FETVerifier(task).verify(layout, strict=False)
    assert verdict.metrics["transistors"] == expected
    assert verdict.metrics["channels"] == sum(crossing[:n])
