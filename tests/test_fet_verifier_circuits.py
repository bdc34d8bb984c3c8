"""`circuit_spec`: passing and failing drawings of every template with both loads."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from fet_cases import Ring, box, draw, make_task, rotate

from edagym.task_assets.fet import CircuitSpec, FETTask, Stack, stacks
from edagym.verifiers.fet import FETLayout, verify
from edagym.verifiers.verdict import CheckResult

TEMPLATES = ("inverter", "nand2", "nand3", "nor2", "nor3")
PITCH, HEIGHT = 4.0, 6.0


def spec_of(template: str, load: str, instances: int = 1, per_flake: int = 1) -> CircuitSpec:
    """Return a circuit requirement; `per_flake` instances share one flake (or pair of flakes)."""
    fan_in = 1 if template == "inverter" else int(template[-1])
    groups = instances // per_flake
    if load == "active":
        return CircuitSpec(template, load, instances, fan_in + 1, ((fan_in + 1) * per_flake,) * groups, 1)
    return CircuitSpec(template, load, instances, 2 * fan_in, (fan_in * per_flake,) * (2 * groups), 2)


def bar(index: int, n_gates: int) -> Ring:
    """Return the flake of a chain: one bar per region, stacked in y."""
    y = 20.0 * index
    return box(0, y, PITCH * (n_gates + 1), y + HEIGHT)


def gate(index: int, k: int) -> Ring:
    """Return gate k of a chain."""
    x, y = PITCH * (k + 1), 20.0 * index
    return box(x - 0.5, y - 1, x + 0.5, y + HEIGHT + 1)


def contact(index: int, k: int, part: int | None = None) -> Ring:
    """Return the contact on piece k of a chain, or one of two halves of it."""
    x, y = PITCH * (k + 0.5), 20.0 * index
    low, high = {None: (1.0, 5.0), 0: (1.0, 2.5), 1: (3.5, 5.0)}[part]
    return box(x - 1, y + low, x + 1, y + high)


def task_of(spec: CircuitSpec) -> FETTask:
    flakes = [(bar(i, n), ()) for i, n in enumerate(spec.exact_per_flake)]
    materials = ["graphene"] * len(flakes) if spec.load == "active" else ["MoSe2", "WSe2"] * (len(flakes) // 2)
    return make_task(flakes, spec.exact_per_flake, materials=materials, circuit=spec)


def chain(spec: CircuitSpec, bare: Sequence[tuple[int, int]] = (), split: Sequence[tuple[int, int]] = ()) -> FETLayout:
    """Draw every stack; pieces in `bare` get no contact, pieces in `split` get two."""
    gates: list[Ring] = []
    contacts: list[Ring] = []
    for i, n in enumerate(spec.exact_per_flake):
        gates += [gate(i, k) for k in range(n)]
        for k in range(n + 1):
            if (i, k) in split:
                contacts += [contact(i, k, 0), contact(i, k, 1)]
            elif (i, k) not in bare:
                contacts.append(contact(i, k))
    return draw(task_of(spec), gate=gates, contacts=contacts)


def result(spec: CircuitSpec, layout: FETLayout, task: FETTask | None = None) -> CheckResult:
    verdict = verify(layout, task or task_of(spec), strict=False)
    (found,) = (c for c in verdict.checks if c.kind == "circuit_spec")
    others = [c.message for c in verdict.checks if not c.passed and c.kind not in ("circuit_spec", "transistor_count")]
    assert not others, "the drawing must be wrong in its circuit only"
    assert not found.hidden
    return found


def shared_pieces(spec: CircuitSpec) -> list[tuple[int, int]]:
    return [(i, k) for i, n in enumerate(spec.exact_per_flake) for k in range(1, n)]


def inner_pieces(spec: CircuitSpec) -> list[tuple[int, int]]:
    """Pieces that may stay bare: x1 and x2, and those between the inputs of one NOR."""

    def inner(stack: Stack, k: int) -> bool:
        (before, instance), (after, other) = (g.split("#") for g in stack.gates[k - 1 : k + 1])
        one_nor = spec.template.startswith("nor") and instance == other and "LOAD" not in (before, after)
        return stack.nets[k].startswith("x") or one_nor

    return [(i, k) for i, k in shared_pieces(spec) if inner(stacks(spec)[i], k)]


@pytest.mark.parametrize("load", ["active", "complementary"])
@pytest.mark.parametrize("template", TEMPLATES)
class TestTemplates:
    def test_every_piece_contacted_passes(self, template: str, load: str):
        spec = spec_of(template, load)
        verdict = verify(chain(spec), task_of(spec), strict=False)
        assert verdict.paper_success
        assert verdict.metrics["transistors"] == sum(spec.exact_per_flake)

    def test_series_stack_without_inner_contacts_passes(self, template: str, load: str):
        spec = spec_of(template, load)
        assert result(spec, chain(spec, bare=inner_pieces(spec))).passed

    def test_bare_output_or_supply_fails(self, template: str, load: str):
        spec = spec_of(template, load)
        for i, k in set(shared_pieces(spec)) - set(inner_pieces(spec)):
            # Inputs have no labels, so a stack may be read from either end: bare the mirrored piece too.
            found = result(spec, chain(spec, bare=[(i, k), (i, spec.exact_per_flake[i] - k)]))
            assert not found.passed, (i, k)
            assert "shared contact" in found.message

    def test_two_contacts_where_the_template_shares_one_fail(self, template: str, load: str):
        spec = spec_of(template, load)
        for piece in shared_pieces(spec):
            found = result(spec, chain(spec, split=[piece]))
            assert (found.passed, found.measured) == (False, 2), piece
            assert "expected one shared contact" in found.message
            assert found.where is not None

    def test_two_contacts_on_an_outer_piece_pass(self, template: str, load: str):
        spec = spec_of(template, load)
        ends = [(i, k) for i, n in enumerate(spec.exact_per_flake) for k in (0, n)]
        assert result(spec, chain(spec, split=ends)).passed

    def test_one_transistor_less_fails(self, template: str, load: str):
        spec = spec_of(template, load)
        for i, n in enumerate(spec.exact_per_flake):
            layout = chain(spec)
            keep = [
                r
                for r in layout.shapes("contacts")
                if r not in draw(task_of(spec), contacts=[contact(i, n)]).shapes("contacts")
            ]
            layout.replace("contacts", keep)
            found = result(spec, layout)
            assert not found.passed
            assert f"expected exactly {n} transistors, found {n - 1}" in found.message

    def test_one_transistor_more_fails(self, template: str, load: str):
        spec = spec_of(template, load)
        for i, n in enumerate(spec.exact_per_flake):
            x, y = PITCH * (n + 0.5), 20.0 * i
            task = task_of(spec)
            layout = draw(
                task,
                gate=[gate(j, k) for j, m in enumerate(spec.exact_per_flake) for k in range(m)]
                + [box(x - 0.5, y - 1, x + 0.5, y + 7)],
                contacts=[
                    contact(j, k) for j, m in enumerate(spec.exact_per_flake) for k in range(m + 1) if (j, k) != (i, n)
                ]
                + [box(x - 1.2, y + 1, x - 0.8, y + 5), box(x + 0.8, y + 1, x + 1.8, y + 5)],
            )
            found = result(spec, layout)
            assert not found.passed
            assert f"expected exactly {n} transistors, found {n + 1}" in found.message

    def test_rotated_chain_passes(self, template: str, load: str):
        spec = spec_of(template, load)
        for degrees in (33.3, 171.7):
            flat, task = chain(spec), task_of(spec)
            turned = make_task(
                [(_on_grid(rotate(r.hull, degrees)), ()) for r in task.regions],
                spec.exact_per_flake,
                materials=[r.material for r in task.regions],
                circuit=spec,
            )
            shapes = {
                layer: [rotate([(x / 1000, y / 1000) for x, y in ring], degrees) for ring in flat.shapes(layer)]
                for layer in ("gate", "contacts")
            }
            assert verify(draw(turned, **shapes), turned, strict=False).paper_success


def _on_grid(ring: Ring) -> Ring:
    return tuple((round(x, 3), round(y, 3)) for x, y in ring)


@pytest.mark.parametrize("template", ["inverter", "nand2", "nor2"])
@pytest.mark.parametrize("load", ["active", "complementary"])
def test_two_circuits_on_one_flake_share_the_supply_contact(template: str, load: str):
    spec = spec_of(template, load, instances=2, per_flake=2)
    assert result(spec, chain(spec)).passed
    assert result(spec, chain(spec, bare=inner_pieces(spec))).passed
    for piece in set(shared_pieces(spec)) - set(inner_pieces(spec)):
        assert not result(spec, chain(spec, bare=[piece])).passed


def test_circuits_on_flakes_of_their_own():
    spec = spec_of("nand2", "complementary", instances=2)
    assert spec.exact_per_flake == (2, 2, 2, 2)
    assert result(spec, chain(spec)).passed
    assert not result(spec, chain(spec, split=[(3, 1)])).passed
    assert result(spec, chain(spec, bare=[(0, 1), (2, 1)])).passed
    assert not result(spec, chain(spec, bare=[(1, 1)])).passed


RING = (box(0, 0, 20, 14), (box(6, 5, 14, 9),))


def test_gate_over_both_arms_of_a_ring_is_one_transistor_of_a_circuit():
    spec = CircuitSpec("inverter", "complementary", 1, 2, (1, 1), 2)
    task = make_task([RING, (box(0, 20, 20, 26), ())], (1, 1), materials=["MoSe2", "WSe2"], circuit=spec)
    layout = draw(
        task,
        gate=[box(9, -1, 11, 15), box(9, 19, 11, 27)],
        contacts=[box(1, 6, 5, 8), box(15, 6, 19, 8), box(2, 21, 7, 25), box(13, 21, 18, 25)],
    )
    verdict = verify(layout, task, strict=False)
    assert verdict.metrics["transistors:flake_1"] == 2
    assert verdict.paper_success


def test_star_of_three_transistors_is_no_chain():
    spec = CircuitSpec("nand2", "active", 1, 3, (3,), 1)
    y_shape = ((8, 0), (12, 0), (12, 10), (20, 10), (20, 14), (0, 14), (0, 10), (8, 10))
    task = make_task([(y_shape, ())], (3,), circuit=spec)
    layout = draw(
        task,
        gate=[box(5, 9, 6, 15), box(14, 9, 15, 15), box(7, 5, 13, 6)],
        contacts=[box(9, 11, 11, 13), box(1, 11, 4, 13), box(16, 11, 19, 13), box(9, 1, 11, 4)],
    )
    found = result(spec, layout, task)
    assert not found.passed
    assert "expected one chain" in found.message


def test_spur_cut_off_by_a_gate_is_no_terminal():
    """A gate that also cuts off a bare corner still joins two pieces."""
    spec = CircuitSpec("inverter", "active", 1, 2, (2,), 1)
    spurred = ((0, 0), (12, 0), (12, 6), (8.2, 6), (8.2, 9), (7.2, 9), (7.2, 6), (0, 6))
    task = make_task([(spurred, ())], (2,), circuit=spec)
    layout = draw(
        task,
        gate=[box(3.5, -1, 4.5, 7), box(7, -1, 8.5, 7)],
        contacts=[box(1, 1, 3, 5), box(5, 1, 6.5, 5), box(9, 1, 11, 5)],
    )
    assert result(spec, layout, task).passed


def test_wrap_around_contact_over_two_pieces_is_two_shared_ones():
    """The paper's contract counts contact shapes per piece; strict sees the short."""
    spec = spec_of("inverter", "active")
    layout = chain(spec)
    layout.add(
        "contacts",
        tuple(
            (round(x * 1000), round(y * 1000))
            for x, y in ((1, 3), (1, 9), (7, 9), (7, 3), (6, 3), (6, 8), (2, 8), (2, 3))
        ),
    )
    assert result(spec, layout).passed
