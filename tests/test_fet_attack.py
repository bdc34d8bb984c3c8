"""Faults that an attack on the FET verifier and its environment found, each held by a test."""

from __future__ import annotations

import klayout.db as kdb
import numpy as np
import pytest
from fet_cases import box
from fet_drawings import GATE, LEFT, RIGHT, Drawing, bar

from edagym.envs.fet.env import FETEnv
from edagym.errors import EditError, TaskError
from edagym.spaces import EditSpace
from edagym.task_assets.fet import FETTask
from edagym.verifiers.fet.layout import FETLayout
from edagym.verifiers.fet.verifier import verify

POSES = [(0.0, False), (90.0, False), (180.0, True), (17.3, False), (33.1, True), (71.9, False), (211.7, True)]

UNGATED = {"architecture": "global_back_gated", "demand": (None,)}


def outcomes(drawing: Drawing) -> set[tuple[bool, bool]]:
    """Return the (paper, strict) verdicts over all poses."""
    verdicts = [verify(layout, task) for task, layout in (drawing.posed(*pose).build() for pose in POSES)]
    return {(v.paper_success, v.strict_success) for v in verdicts}


def source_along_drain(gap: float) -> Drawing:
    """The source's metal passes the gate's end and runs along the drain's edge of the flake at a distance."""
    source = ((2, -5), (18, -5), (18, -gap), (13, -gap), (13, -3), (7, -3), (7, 5), (2, 5))
    return bar().with_shapes(contacts=[source, RIGHT])


@pytest.mark.parametrize("gap", [-0.002, -0.001, 0.0, 0.001])
def test_metal_that_abuts_the_other_side_shorts_in_every_pose(gap: float) -> None:
    assert outcomes(source_along_drain(gap)) == {(True, False)}


def test_metal_beside_the_other_side_does_not_short() -> None:
    assert outcomes(source_along_drain(0.02)) == {(True, True)}


def test_contact_inside_a_closed_ring_of_metal_needs_a_via() -> None:
    ring = [box(5, 1, 6, 5), box(14, 1, 15, 5), box(5, 1, 15, 1.5), box(5, 4.5, 15, 5)]
    contacts = [box(9, 2.5, 11, 3.5), *ring]
    assert outcomes(Drawing({"contacts": contacts}, task=UNGATED)) == {(True, False)}
    vias = [box(9.9, 2.9, 10.1, 3.1), box(5.4, 2.9, 5.6, 3.1)]
    wide = [box(9, 2, 11, 4), box(4, 1, 7, 5), box(14, 1, 15, 5), box(5, 1, 15, 1.5), box(5, 4.5, 15, 5)]
    lifted = Drawing({"contacts": wide, "via": vias}, task={**UNGATED, "via": True})
    assert outcomes(lifted) == {(True, True)}
    closed = [box(2, -4, 26, -3), box(2, 9, 26, 10), box(25, -4, 26, 10), box(2, -4, 3, 10)]
    assert outcomes(bar().with_shapes(contacts=[*closed, RIGHT])) == {(True, False)}


@pytest.mark.parametrize(
    ("drain", "via"),
    [
        ([((13, 1), (15, 1), (15, 3), (30, 3), (30, 0), (34, 0), (34, 6), (30, 6), (30, 3.01), (15, 3.01), (15, 5),
           (13, 5))], box(31, 2, 32, 3)),
        ([RIGHT], box(15, 2, 15.01, 3)),
    ],
    ids=["hairline of metal", "hairline of a via"],
)  # fmt: skip
@pytest.mark.parametrize("gated", [False, True])
def test_hairlines_do_not_reach_a_via(drain: list, via: tuple, gated: bool) -> None:
    shapes = {"contacts": [LEFT, *drain], "via": [box(4, 2, 5, 3), via]}
    task = {"via": True} if gated else {**UNGATED, "via": True}
    drawing = Drawing({**shapes, "gate": [GATE]} if gated else shapes, task=task)
    assert outcomes(drawing) == {(True, False)}


def test_arrays_that_are_no_action_are_refused_not_raised() -> None:
    env = FETEnv(tasks=["L1/case_1"])
    env.reset(seed=0)
    action = {"op": 0, "layer": 1, "points": np.array(3.0), "n_points": 4, "width": 1.0}
    for bad in (np.array([1, 2]), np.array(3), action, {**action, "points": np.float32(3)}):
        *_, info = env.step(bad)
        assert info["edit_error"]
    assert info["charged"] == 4


def test_nested_arrays_in_a_file_are_refused_not_expanded() -> None:
    task, layout = bar().build()
    file = layout.to_klayout()
    spec = task.layer("contacts")
    cell = file.create_cell("A")
    cell.shapes(file.layer(spec.gds_layer, spec.datatype)).insert(kdb.Box(0, 0, 10, 10))
    for name in "BC":
        outer = file.create_cell(name)
        step = kdb.Vector(1, 0), kdb.Vector(0, 1)
        outer.insert(kdb.CellInstArray(cell.cell_index(), kdb.Trans(), *step, 30_000, 30_000))
        cell = outer
    next(c for c in file.top_cells() if c.name == "TOP").insert(kdb.CellInstArray(cell.cell_index(), kdb.Trans()))
    options = kdb.SaveLayoutOptions()
    options.format = "GDS2"
    with pytest.raises(TaskError, match="too many vertices"):
        FETLayout.from_gds_bytes(bytes(file.write_bytes(options)), task.layers)


@pytest.mark.parametrize(
    "text", ["[" * 200_000, '{"op":' * 100_000, "[1" + "0" * 5000 + "]"], ids=["[[[", "{{{", "digits"]
)
def test_text_that_breaks_the_json_parser_is_refused(text: str) -> None:
    with pytest.raises(EditError):
        EditSpace().from_json(text, ("contacts",))
    with pytest.raises(TaskError):
        FETTask.from_json(text)


@pytest.mark.parametrize("number", [None, "1", 1.5, -1, 70_000, 10**30, float("inf")])
def test_layer_numbers_that_gdsii_cannot_hold_are_bad_tasks(number: object) -> None:
    data = bar().build()[0].to_dict()
    for key in ("gds_layer", "datatype"):
        layers = [dict(spec) for spec in data["agent_visible"]["environment"]["layers"]]
        layers[1][key] = number
        environment = {**data["agent_visible"]["environment"], "layers": layers}
        with pytest.raises(TaskError, match="number"):
            FETTask.from_dict({**data, "agent_visible": {**data["agent_visible"], "environment": environment}})


@pytest.mark.parametrize("count", ["x", 1.5, float("inf"), 0, -2])
def test_demands_that_are_no_counts_are_bad_tasks(count: object) -> None:
    data = bar().build()[0].to_dict()
    rules = [dict(rule) for rule in data["verification_only"]["structural"]]
    next(rule for rule in rules if rule["kind"] == "transistor_count")["min_count"] = count
    with pytest.raises(TaskError, match="min_count"):
        FETTask.from_dict({**data, "verification_only": {"structural": rules}})


@pytest.mark.parametrize("degrees", [51.37, 55.37, 57.37, 141.37, 145.37, 147.37])
def test_flush_shapes_that_overlap_have_no_sharp_corner_at_the_rounded_jog(degrees: float) -> None:
    drawing = bar().with_shapes(gate=[box(9, -1, 11, 4), box(9, 2, 11, 7)])
    for mirrored in (False, True):
        task, layout = drawing.posed(degrees, mirrored).build()
        assert verify(layout, task).strict_success
