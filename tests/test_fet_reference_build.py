"""The reference constructor on hand-drawn flakes: every architecture, every circuit template, holes, neighbours."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fet_cases import box, make_task, rotate

from edagym.envs.fet.interpreter import apply_edit
from edagym.envs.fet.reference import ReferenceInfeasible, build_reference, capacity, channel_hint
from edagym.spaces.edits import AddPolygon, Edit
from edagym.task_assets.fet import CircuitSpec, FETTask, Region
from edagym.task_assets.fet.circuits import TEMPLATES
from edagym.task_assets.fet.contours import load_library
from edagym.task_assets.fet.grid import ring_to_dbu, ring_to_um
from edagym.task_assets.fet.task import ARCHITECTURES
from edagym.task_assets.fet.template import RuleValues
from edagym.verifiers.fet import verify
from edagym.verifiers.fet.layout import FETLayout

shapely = pytest.importorskip("shapely")

POSES = (0.0, 31.7, 117.0)
BENT = ((0, 0), (24, 0), (24, 6), (6, 6), (6, 22), (0, 22))
U_SHAPE = ((0, 0), (22, 0), (22, 18), (16, 18), (16, 6), (6, 6), (6, 18), (0, 18))
RING = ((0, 0), (20, 0), (20, 14), (0, 14))
HOLE = ((8, 5), (12, 5), (12, 9), (8, 9))
TIGHT = RuleValues(min_gate_width=0.5, contact_spacing=0.1, contact_gate_separation=0.1)
# The published separation of neighbouring flakes.
GAP_UM = 0.5


def apply_all(task: FETTask, edits: tuple[Edit, ...]) -> FETLayout:
    layout = FETLayout.from_task(task)
    for edit in edits:
        apply_edit(layout, edit)
    return layout


def assert_solves(task: FETTask, edits: tuple[Edit, ...]) -> None:
    verdict = verify(apply_all(task, edits), task)
    assert verdict.paper_success, verdict.failed("paper")
    assert verdict.strict_success, verdict.failed("strict")


def turned(ring, degrees):
    """A ring turned and snapped to the grid, as task files hold it."""
    return ring_to_um(ring_to_dbu(rotate(ring, degrees)))


@pytest.mark.parametrize("degrees", POSES)
@pytest.mark.parametrize("via", [False, True])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture(architecture, via, degrees):
    task = make_task(
        [(turned(box(0, 0, 20, 6), degrees), ())],
        architecture=architecture,
        via=via,
        pad_cover=via,
        dielectric=architecture == "dual_gated",
    )
    assert_solves(task, build_reference(task))


@pytest.mark.parametrize("flake", [BENT, U_SHAPE], ids=["bent", "U"])
@pytest.mark.parametrize("degrees", POSES)
@pytest.mark.parametrize("demand", [1, 3, 5])
def test_bent_flakes(flake, degrees, demand):
    task = make_task([(turned(flake, degrees), ())], (demand,), via=True, pad_cover=True)
    assert_solves(task, build_reference(task))


def circuit(template: str, load: str, instances: int = 1, per_flake: int = 1) -> CircuitSpec:
    fan_in = 1 if template == "inverter" else int(template[-1])
    if load == "active":
        exact = (fan_in + 1,) * instances
        return CircuitSpec(template, load, instances, fan_in + 1, exact, 1)
    exact = (fan_in * per_flake, fan_in * per_flake) * (instances // per_flake)
    return CircuitSpec(template, load, instances, 2 * fan_in, exact, 2)


def circuit_task(spec: CircuitSpec, flakes, values: RuleValues, via: bool) -> FETTask:
    pair = ["MoSe2", "WSe2"] if spec.flakes_per_instance == 2 else ["MoSe2"]
    materials = pair * (len(flakes) // len(pair))
    return make_task(
        [(f, ()) for f in flakes], spec.exact_per_flake, "top_gated", materials, values, spec, via=via, pad_cover=via
    )


@pytest.mark.parametrize("degrees", POSES)
@pytest.mark.parametrize("via", [False, True])
@pytest.mark.parametrize("load", ["active", "complementary"])
@pytest.mark.parametrize("template", TEMPLATES)
def test_every_template(template, load, via, degrees):
    spec = circuit(template, load)
    flakes = [turned(box(0, 0, 24, 5), degrees)]
    if load == "complementary":
        flakes.append(turned(box(3, 9, 27, 15), degrees))
    task = circuit_task(spec, flakes, RuleValues(1.0, 0.2, 0.2, 0.5 if via else None), via)
    assert_solves(task, build_reference(task))


@pytest.mark.parametrize("load", ["active", "complementary"])
def test_several_instances(load):
    spec = circuit("nor2", load, 2)
    flakes = [box(x, y, x + 18, y + 5) for x, y in ((0, 0), (0, 7), (20, 0), (20, 7))[: len(spec.exact_per_flake)]]
    task = circuit_task(spec, flakes, TIGHT, via=False)
    assert_solves(task, build_reference(task))


@pytest.mark.parametrize("template", ["nand2", "nor2"])
def test_two_instances_on_one_pair_of_flakes(template):
    spec = circuit(template, "complementary", 2, per_flake=2)
    assert spec.exact_per_flake == (4, 4)
    task = circuit_task(spec, [box(0, 0, 20, 6), box(0, 6.5, 20, 12.5)], TIGHT, via=False)
    assert_solves(task, build_reference(task))


@pytest.mark.parametrize("degrees", POSES)
@pytest.mark.parametrize("demand", [1, 2, 3])
def test_holed_flake(demand, degrees):
    task = make_task([(turned(RING, degrees), [turned(HOLE, degrees)])], (demand,), values=TIGHT)
    assert_solves(task, build_reference(task))


def test_gates_cut_all_arms_of_a_thin_ring():
    """Wherever a gate crosses, it must cross both arms around the hole."""
    task = make_task([(RING, [box(2, 2, 18, 12)])], (1,), values=TIGHT)
    assert_solves(task, build_reference(task))


@pytest.mark.parametrize("via", [False, True])
def test_neighbours_at_the_least_gap(via):
    height = 4
    flakes = [(box(0, k * (height + GAP_UM), 24, k * (height + GAP_UM) + height), ()) for k in range(4)]
    task = make_task(flakes, (4, 3, 4, 2), via=via, pad_cover=via)
    assert_solves(task, build_reference(task))


@pytest.mark.parametrize("k", range(0, 180, 18))
def test_library_contours(k):
    contour = load_library()[k]
    for demand, via in ((1, True), (3, False), (4, True)):
        task = make_task([(contour.hull, contour.holes)], (demand,), via=via, pad_cover=via)
        assert_solves(task, build_reference(task))


@pytest.mark.parametrize("k", range(7, 184, 11))
def test_library_contours_with_edge_contacts(k):
    contour = load_library()[k]
    task = make_task([(contour.hull, contour.holes)], architecture="edge_contacted", via=True)
    assert_solves(task, build_reference(task))


def test_edge_contacts_do_not_reach_deep_where_the_edge_is_uneven():
    """A contact set against the ground of a slot would cover the flake beside it."""
    slots = [
        (0, 0),
        (20, 0),
        (20, 2.7),
        (18, 2.7),
        (18, 3.3),
        (20, 3.3),
        (20, 6),
        (0, 6),
        (0, 3.3),
        (2, 3.3),
        (2, 2.7),
        (0, 2.7),
    ]
    task = make_task([(slots, ())], architecture="edge_contacted", via=True)
    edits = build_reference(task)
    assert_solves(task, edits)
    inner = shapely.Polygon(slots).buffer(-0.5)
    assert all(not inner.intersects(shapely.Polygon(e.points)) for e in edits if e.layer == "contacts")


@pytest.mark.parametrize("k", range(3, 180, 36))
def test_library_pairs_carry_complementary_circuits(k):
    library = load_library()
    hulls = [library[k].hull, library[(k + 77) % len(library)].hull]
    right = max(x for x, _ in hulls[0]) + 3
    hulls[1] = tuple((round(x + right, 3), y) for x, y in hulls[1])
    task = circuit_task(circuit("nand3", "complementary"), hulls, TIGHT, via=False)
    assert_solves(task, build_reference(task))


# -- properties of the result --------------------------------------------------------------------------------------


def test_equal_tasks_give_equal_references():
    def build() -> tuple[Edit, ...]:
        return build_reference(make_task([(BENT, ()), (rotate(box(30, 0, 50, 6), 12), ())], (3, 2), via=True))

    assert build() == build()


def test_a_generator_varies_the_reference():
    task = make_task([(BENT, ())], (2,))
    variants = {build_reference(task, rng=np.random.default_rng(seed)) for seed in range(8)}
    assert len(variants) > 1
    for edits in variants:
        assert_solves(task, edits)
    same = [build_reference(task, rng=np.random.default_rng(5)) for _ in range(2)]
    assert same[0] == same[1]


def test_edits_are_small_polygons_on_editable_layers_in_design_order():
    spec = circuit("nor3", "complementary")
    task = circuit_task(spec, [box(0, 0, 24, 5), box(0, 9, 24, 15)], RuleValues(1.0, 0.2, 0.2, 0.5), via=True)
    edits = build_reference(task)
    order = [task.required_layers.index(edit.layer) for edit in edits]
    assert order == sorted(order)
    assert set(order) == set(range(len(task.required_layers)))
    for edit in edits:
        assert isinstance(edit, AddPolygon)
        assert 4 <= len(edit.points) <= 16
        assert edit.points == ring_to_um(ring_to_dbu(edit.points))


def test_circuits_have_no_surplus_channels():
    task = circuit_task(circuit("nand3", "active"), [box(0, 0, 24, 5)], TIGHT, via=False)
    verdict = verify(apply_all(task, build_reference(task)), task)
    assert verdict.metrics["transistors"] == 4


def test_infeasible_demand_names_the_region():
    task = make_task([(box(0, 0, 20, 6), ()), (box(0, 10, 3, 13), ())], (2, 6))
    with pytest.raises(ReferenceInfeasible, match="flake_2") as caught:
        build_reference(task)
    assert caught.value.value == "flake_2"


def test_two_edge_contacted_devices_on_one_flake_are_infeasible():
    with pytest.raises(ReferenceInfeasible):
        build_reference(make_task(demand=(2,), architecture="edge_contacted"))


# -- capacity ------------------------------------------------------------------------------------------------------


def region(hull, holes=()) -> Region:
    return Region("flake_1", "graphene", tuple(hull), tuple(holes))


@pytest.mark.parametrize("length", [4, 8, 12, 18])
def test_capacity_of_a_bar_is_what_its_length_allows(length):
    values = RuleValues(1.0, 0.2, 0.2)
    found = capacity(region(box(0, 0, length, 1.5)), values)
    # n gates and n - 1 inner contacts (at least a grid step long) with 0.2 um between, two end contacts on 0.2 um each.
    bound = math.floor((length - 0.2) / (1.0 + 2 * 0.2))
    assert max(1, bound // 2) <= found <= min(8, bound)


def test_capacity_falls_with_stricter_rules_and_limit():
    bar = region(box(0, 0, 16, 5))
    loose = capacity(bar, RuleValues(0.5, 0.1, 0.1))
    strict = capacity(bar, RuleValues(1.5, 0.5, 0.5))
    via = capacity(bar, RuleValues(1.0, 0.2, 0.2, 0.5), via=True)
    assert loose > strict > 0
    assert capacity(bar, RuleValues(1.0, 0.2, 0.2)) >= via > 0
    assert capacity(bar, RuleValues(0.5, 0.1, 0.1), limit=2) == 2
    assert capacity(bar, RuleValues(0.5, 0.1, 0.1), limit=0) == 0


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_capacity_of_single_device_architectures(architecture):
    found = capacity(region(box(0, 0, 20, 6)), RuleValues(), architecture=architecture)
    assert (found == 1) == (architecture in ("edge_contacted", "global_back_gated"))
    assert capacity(region(box(0, 0, 0.3, 0.3)), RuleValues(), architecture=architecture, via=True) == 0


@pytest.mark.parametrize("k", range(5, 180, 30))
def test_what_capacity_claims_can_be_built(k):
    contour = load_library()[k]
    values = RuleValues(1.0, 0.2, 0.2, 0.5)
    claim = capacity(region(contour.hull, contour.holes), values, via=True)
    task = make_task([(contour.hull, contour.holes)], (claim,), values=values, via=True)
    assert_solves(task, build_reference(task))


# -- hints ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", range(0, 184, 8))
def test_hints_lie_inside_the_flake_on_both_sides(k):
    contour = load_library()[k]
    hint = channel_hint(region(contour.hull, contour.holes))
    material = shapely.Polygon(contour.hull, contour.holes)
    assert material.contains(shapely.Point(hint.point))
    assert math.hypot(*hint.direction) == pytest.approx(1.0, abs=1e-5)
    for segment in (hint.source_segment, hint.drain_segment):
        assert material.contains(shapely.LineString(segment))
        assert math.dist(*segment) > 0.2
    assert shapely.LineString(hint.source_segment).distance(shapely.LineString(hint.drain_segment)) > 0.3


def test_hint_on_a_bar_points_along_it():
    hint = channel_hint(region(rotate(box(0, 0, 20, 4), 30)))
    x, y = hint.direction
    assert abs(x * math.cos(math.radians(30)) + y * math.sin(math.radians(30))) == pytest.approx(1.0, abs=1e-3)
    for segment, sign in ((hint.source_segment, -1), (hint.drain_segment, 1)):
        for px, py in segment:
            assert sign * ((px - hint.point[0]) * x + (py - hint.point[1]) * y) > 0.3


def test_no_hint_where_no_gate_fits():
    with pytest.raises(ReferenceInfeasible):
        channel_hint(region(box(0, 0, 0.3, 0.3)))
