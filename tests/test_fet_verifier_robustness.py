"""No layout crashes the verifier: degenerate, self-crossing, enormous, and far-away shapes."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from fet_cases import bar_fet, box, make_task
from hypothesis import given, settings
from hypothesis import strategies as st

from edagym.errors import ToolError
from edagym.verifiers.fet import FETLayout, FETVerifier, drc, verify
from edagym.verifiers.fet.verifier import MAX_COORDINATE
from edagym.verifiers.verdict import Verdict

FAR = MAX_COORDINATE
ARCHITECTURES = ("top_gated", "global_back_gated", "dual_gated", "edge_contacted")
VERIFIERS = {
    name: FETVerifier(make_task(architecture=name, via=True, pad_cover=True, dielectric=name == "dual_gated"))
    for name in ARCHITECTURES
}

coordinate = st.integers(-3000, 25_000) | st.sampled_from([0, 6000, 20_000, FAR, -FAR, 2**30, -(2**30), 9000, 11_000])
ring = st.lists(st.tuples(coordinate, coordinate), min_size=1, max_size=12).map(tuple)


def assert_sound(verdict: Verdict) -> None:
    json.dumps(verdict.to_dict(), allow_nan=False)
    assert verdict.paper_success == all(c.passed for c in verdict.checks if not c.strict)
    for c in verdict.checks:
        assert c.message
        for value in (c.required, c.measured, *(c.where or ())):
            assert value is None or math.isfinite(value)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(ARCHITECTURES), st.data())
def test_any_rings_give_a_verdict(architecture: str, data):
    fet = VERIFIERS[architecture]
    layout = bar_fet(fet.task)
    for spec in fet.task.layers:
        if data.draw(st.booleans()):
            layout.replace(spec.name, data.draw(st.lists(ring, max_size=4)))
    assert_sound(fet.verify(layout, strict=False))


@pytest.mark.parametrize("n", [2000, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("layer", ["gate", "contacts", "via"])
def test_many_vertices(layer: str, n: int):
    task = make_task(via=True)
    rng = np.random.default_rng(0)
    angles = np.linspace(0.0, 2 * np.pi, n, endpoint=False)
    radii = rng.uniform(2000, 6000, n)
    star = tuple((round(10_000 + r * math.cos(a)), round(3000 + r * math.sin(a))) for r, a in zip(radii, angles))
    tangle = tuple((int(x), int(y)) for x, y in rng.integers(0, 20_000, (n // 40, 2)))
    smooth = tuple((round(10_000 + 900 * math.cos(a)), round(3000 + 9000 * math.sin(a))) for a in angles)
    for shape in (star, tangle, smooth):
        layout = bar_fet(task)
        layout.replace(layer, [shape])
        assert_sound(verify(layout, task, strict=False))


def test_smooth_gate_of_ten_thousand_vertices_is_a_transistor():
    task = make_task()
    angles = np.linspace(0.0, 2 * np.pi, 10_000, endpoint=False)
    layout = bar_fet(task)
    layout.replace(
        "gate", [tuple((round(10_000 + 1000 * math.cos(a)), round(3000 + 9000 * math.sin(a))) for a in angles)]
    )
    assert verify(layout, task, strict=False).metrics["transistors"] == 1


def test_ten_thousand_shapes():
    task = make_task()
    layout = bar_fet(task)
    dots = [
        tuple((x + i * 700, y - 5_000_000) for x, y in ((0, 0), (300, 0), (300, 300), (0, 300))) for i in range(10_000)
    ]
    layout.replace("contacts", [*layout.shapes("contacts"), *dots])
    assert verify(layout, task, strict=False).paper_success


@pytest.mark.parametrize("layer", ["gate", "contacts", "via", "pad_cover", "graphene"])
def test_a_shape_over_everything(layer: str):
    task = make_task(via=True, pad_cover=True)
    layout = bar_fet(task)
    layout.replace(layer, [((-FAR, -FAR), (FAR, -FAR), (FAR, FAR), (-FAR, FAR))])
    verdict = verify(layout, task, strict=False)
    assert_sound(verdict)
    assert verdict.paper_success == (layer == "pad_cover")


def test_a_far_shape_does_not_disturb_a_good_layout():
    task = make_task(via=True)
    layout = bar_fet(task)
    for layer, at in (("gate", FAR - 20_000), ("contacts", -FAR + 20_000)):
        layout.add(layer, tuple((round(x * 1000) + at, round(y * 1000) + at) for x, y in box(0, 0, 5, 5)))
    assert verify(layout, task, strict=False).paper_success


@pytest.mark.parametrize("layer", ["gate", "contacts", "graphene"])
@pytest.mark.parametrize("at", [FAR + 1, 2**30, 2**31, 2**40])
def test_a_shape_out_of_range_fails_and_the_rest_is_judged(layer: str, at: int):
    task = make_task()
    layout = bar_fet(task)
    layout.add(layer, ((0, 0), (at, 0), (at, -at)))
    verdict = verify(layout, task, strict=False)
    assert [c.id for c in verdict.checks if not c.passed] == ["coordinates_in_range"]
    assert not verdict.paper_success
    assert verdict.metrics["transistors"] == 1


def test_self_touching_shapes():
    task = make_task()
    eight = ((9000, -1000), (11000, -1000), (11000, 3000), (9000, 7000), (11000, 7000), (9000, 3000))
    spike = ((9000, -1000), (11000, -1000), (11000, 7000), (10000, 7000), (10000, 9000), (10000, 7000), (9000, 7000))
    for shape, passes in ((eight, False), (spike, True)):
        layout = bar_fet(task)
        layout.replace("gate", [shape])
        verdict = verify(layout, task, strict=False)
        assert_sound(verdict)
        assert verdict.paper_success == passes


def test_an_engine_failure_is_a_tool_error(monkeypatch: pytest.MonkeyPatch):
    def broken(*_args, **_kwargs):
        raise RuntimeError("engine out of order")

    monkeypatch.setitem(drc.PAIR_CHECKS, "min_width", broken)
    task = make_task()
    with pytest.raises(ToolError, match="engine out of order"):
        verify(FETLayout.from_task(task), task, strict=False)
