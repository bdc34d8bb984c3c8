"""Every reference layout: it passes, its mutants are killed, moving it changes nothing, gdstk reads the same areas."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable

import gdstk
import klayout.db as kdb
import numpy as np
import pytest
from fet_mutants import at_limit, mutants

from edagym.envs.fet.interpreter import apply_edit
from edagym.spaces.edits import edit_from_json
from edagym.task_assets.fet import FETTask
from edagym.task_assets.fet.suite import load_reference, load_task, task_ids
from edagym.verifiers.fet import verify
from edagym.verifiers.fet.layout import FETLayout
from edagym.verifiers.verdict import Verdict

IDS = task_ids("FET-All")
# The default run looks at every task for the cheap properties, and at a spread of them for the dear ones.
SPREAD = IDS[::6]


@functools.cache
def reference(task_id: str) -> FETLayout:
    layout = FETLayout.from_task(load_task(task_id))
    for edit in load_reference(task_id)["edits"]:
        apply_edit(layout, edit_from_json(edit))
    return layout


def _failures(verdict: Verdict) -> str:
    return "; ".join(f"{c.id}: {c.message}" for c in verdict.failed("strict"))


@pytest.mark.parametrize("task_id", IDS)
def test_reference_passes_both_criteria(task_id: str) -> None:
    verdict = verify(reference(task_id), load_task(task_id))
    assert verdict.paper_success, _failures(verdict)
    assert verdict.strict_success, _failures(verdict)


@pytest.mark.parametrize("task_id", IDS)
def test_every_mutant_is_killed_by_its_check(task_id: str) -> None:
    task = load_task(task_id)
    survivors, seen = [], set()
    for mutant in mutants(task, reference(task_id)):
        seen.add(mutant.name.split(" ")[-1])
        verdict = verify(mutant.layout, task)
        failed = {c.kind for c in verdict.checks if not c.passed}
        counted = verdict.paper_success if not any(k.startswith("strict") for k in mutant.kinds) else False
        if counted or verdict.strict_success or not failed & mutant.kinds:
            survivors.append((mutant.name, sorted(mutant.kinds), sorted(failed)))
    assert not survivors
    assert len(seen) >= 3


@pytest.mark.parametrize("task_id", IDS)
def test_layouts_exactly_at_a_limit_pass(task_id: str) -> None:
    task = load_task(task_id)
    for name, layout in at_limit(task, reference(task_id)):
        verdict = verify(layout, task)
        assert verdict.paper_success, f"{name}: {_failures(verdict)}"


def test_every_mutation_operator_is_used() -> None:
    names = set()
    for task_id in IDS[::4]:
        names |= {m.name for m in mutants(load_task(task_id), reference(task_id))}
    for word in (
        "removed",
        "moved off",
        "narrowed",
        "min_spacing",
        "min_separation",
        "min_enclosure",
        "stopped inside",
        "emptied",
        "contact on",
        "via on",
        "one gate",
        "slit",
        "shifted by 1 nm",
        "one vertex moved",
    ):
        assert any(word in n for n in names), word


# -- metamorphic relations ---------------------------------------------------------------------------------------------

Map = Callable[[float, float], tuple[float, float]]


def _moved(task: FETTask, layout: FETLayout, f: Map, *, flip: bool = False) -> tuple[FETTask, FETLayout]:
    """Apply a map (um in, um out) to the task's contours and to every shape, snapping to the grid."""

    def ring_um(ring):
        out = tuple(tuple(round(v, 3) for v in f(x, y)) for x, y in ring)
        return tuple(reversed(out)) if flip else out

    regions = tuple(
        type(r)(r.name, r.material, ring_um(r.hull), tuple(ring_um(h) for h in r.holes)) for r in task.regions
    )
    moved_task = task.with_regions(regions)
    moved = FETLayout.from_task(moved_task)
    for spec in task.layers:
        if spec.editable:
            rings = []
            for ring in layout.shapes(spec.name):
                points = (f(x / 1000, y / 1000) for x, y in ring)
                rings.append(tuple((round(x * 1000), round(y * 1000)) for x, y in points))
            moved.replace(spec.name, rings)
    return moved_task, moved


def _summary(verdict: Verdict) -> tuple[object, ...]:
    return (
        verdict.paper_success,
        verdict.strict_success,
        tuple((c.id, c.passed) for c in verdict.checks),
        verdict.metrics["transistors"],
    )


EXACT: dict[str, tuple[Map, bool]] = {
    "translate": (lambda x, y: (x + 123.457, y - 77.001), False),
    "rotate 90": (lambda x, y: (-y, x), False),
    "rotate 180": (lambda x, y: (-x, -y), False),
    "rotate 270": (lambda x, y: (y, -x), False),
    "mirror x": (lambda x, y: (-x, y), True),
    "mirror diagonal": (lambda x, y: (y, x), True),
}


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("task_id", SPREAD)
def test_exact_motions_change_no_verdict(task_id: str, name: str) -> None:
    task, layout = load_task(task_id), reference(task_id)
    f, flip = EXACT[name]
    assert _summary(verify(*reversed(_moved(task, layout, f, flip=flip)))) == _summary(verify(layout, task))


def _angles(task_id: str, n: int) -> list[float]:
    seed = int.from_bytes(hashlib.sha256(task_id.encode()).digest()[:8], "big")
    return [float(a) for a in np.random.default_rng(seed).uniform(0, 2 * math.pi, n)]


def _check_rotations(task_id: str, n: int) -> None:
    task, layout = load_task(task_id), reference(task_id)
    before = verify(layout, task)
    for angle in _angles(task_id, n):
        c, s = math.cos(angle), math.sin(angle)
        moved_task, moved = _moved(task, layout, lambda x, y, c=c, s=s: (c * x - s * y, s * x + c * y))
        after = verify(moved, moved_task)
        assert after.metrics["transistors"] == before.metrics["transistors"], f"{math.degrees(angle):.3f} deg"
        # References keep more than 2 nm of margin, so every rule's verdict has to stay as well.
        assert after.paper_success, f"{math.degrees(angle):.3f} deg: {_failures(after)}"
        assert after.strict_success, f"{math.degrees(angle):.3f} deg: {_failures(after)}"


@pytest.mark.parametrize("task_id", SPREAD)
def test_random_rotations_keep_counts_and_rules(task_id: str) -> None:
    _check_rotations(task_id, 24)


@pytest.mark.slow
@pytest.mark.parametrize("task_id", sorted(set(IDS) - set(SPREAD)))
def test_random_rotations_keep_counts_and_rules_everywhere(task_id: str) -> None:
    _check_rotations(task_id, 24)


Ring = tuple[tuple[int, int], ...]


def _cut_across(ring: Ring, share: float) -> list[Ring]:
    """Halves of a quadrangle cut between its long sides; both use the same grid points, so that they abut exactly."""
    if len(ring) != 4:
        return [ring]
    a, b, c, d = ring if math.dist(*ring[:2]) >= math.dist(*ring[1:3]) else (*ring[1:], ring[0])
    p, q = (tuple(round(u + (v - u) * share) for u, v in zip(s, e)) for s, e in ((a, b), (d, c)))
    return [(a, p, q, d), (p, b, c, q)]


def _cut_diagonally(ring: Ring, share: float) -> list[Ring]:
    return [ring[:3], (ring[0], *ring[2:])] if len(ring) == 4 else [ring]


@pytest.mark.parametrize(("cut", "share"), [(_cut_across, 0.5), (_cut_across, 0.37), (_cut_diagonally, 0.0)])
@pytest.mark.parametrize("task_id", IDS)
def test_splitting_shapes_changes_no_verdict(task_id: str, cut: Callable[..., list[Ring]], share: float) -> None:
    task, layout = load_task(task_id), reference(task_id)
    split = layout.copy()
    before = after = 0
    for spec in task.editable_layers:
        rings = layout.shapes(spec.name)
        parts = [part for ring in rings for part in cut(ring, share)]
        before, after = before + len(rings), after + len(parts)
        split.replace(spec.name, parts)
    # Only wires have more than four corners, so most shapes of every reference come apart.
    assert after > 1.5 * before
    assert _summary(verify(split, task)) == _summary(verify(layout, task))


@pytest.mark.parametrize("task_id", SPREAD)
def test_redundant_overlapping_shapes_change_no_verdict(task_id: str) -> None:
    task, layout = load_task(task_id), reference(task_id)
    repeated = layout.copy()
    for spec in task.editable_layers:
        extra = [r for ring in layout.shapes(spec.name) for r in (ring, ring[:3] if len(ring) == 4 else ring)]
        repeated.replace(spec.name, [*layout.shapes(spec.name), *extra])
    assert _summary(verify(repeated, task)) == _summary(verify(layout, task))


# -- an independent reader ---------------------------------------------------------------------------------------------


def _gdstk_areas(layout: FETLayout, path) -> dict[tuple[int, int], float]:
    layout.write_gds(path)
    library = gdstk.read_gds(str(path))
    (top,) = library.top_level()
    merged: dict[tuple[int, int], float] = {}
    by_layer: dict[tuple[int, int], list[gdstk.Polygon]] = {}
    for polygon in top.get_polygons():
        by_layer.setdefault((polygon.layer, polygon.datatype), []).append(polygon)
    for key, polygons in by_layer.items():
        merged[key] = sum(p.area() for p in gdstk.boolean(polygons, [], "or", precision=1e-4))
    return merged


def _snap_um2(region: kdb.Region) -> float:
    """Area that snapping intersection points to the 1 nm grid may move: half a nanometre along the outline."""
    return region.perimeter() * 0.5e-6 + 1e-9


@pytest.mark.parametrize("task_id", IDS)
def test_gdstk_reads_the_same_areas_and_booleans(task_id: str, tmp_path) -> None:
    task, layout = load_task(task_id), reference(task_id)
    path = tmp_path / "reference.gds"
    areas = _gdstk_areas(layout, path)
    library = gdstk.read_gds(str(path))
    (top,) = library.top_level()
    for spec in task.layers:
        region = layout.region(spec.name)
        theirs = areas.get((spec.gds_layer, spec.datatype), 0.0)
        assert theirs == pytest.approx(region.area() * 1e-6, abs=_snap_um2(region)), spec.name
    (contact,) = task.layers_of("contact")
    for other in (*task.layers_of("gate electrode"), *task.layers_of("channel material"), *task.layers_of("via")):
        both = layout.region(contact.name) & layout.region(other.name)
        polygons = [
            [p for p in top.get_polygons() if (p.layer, p.datatype) == (s.gds_layer, s.datatype)]
            for s in (contact, other)
        ]
        theirs = sum(p.area() for p in gdstk.boolean(*polygons, "and", precision=1e-4))
        assert theirs == pytest.approx(both.area() * 1e-6, abs=_snap_um2(both)), other.name
