"""Task dataclasses: JSON round trip, validation, what the view may hold."""

from __future__ import annotations

import dataclasses
import json
import pickle

import pytest
from fet_cases import box, make_task

from edagym.errors import EDAGymError, TaskError, ToolTimeout
from edagym.task_assets.fet import CircuitSpec, FETTask, Region
from edagym.task_assets.fet.grid import ring_to_dbu, ring_to_um, to_dbu, to_um

INVERTER = CircuitSpec("inverter", "active", 1, 2, (2,), 1)


@pytest.mark.parametrize(
    "task",
    [
        make_task(),
        make_task(via=True, pad_cover=True),
        make_task(architecture="dual_gated", dielectric=True, via=True),
        make_task(architecture="edge_contacted"),
        make_task(demand=(2,), circuit=INVERTER, materials=["MoSe2"]),
        make_task(flakes=[(box(0, 0, 9, 9), [box(3, 3, 5, 5)])]),
    ],
    ids=["plain", "via", "dual", "edge", "circuit", "holed"],
)
def test_json_round_trip_is_exact(task: FETTask) -> None:
    text = task.to_json()
    again = FETTask.from_json(text)
    assert again == task
    assert again.to_json() == text
    assert pickle.loads(pickle.dumps(task)) == task


def test_rule_scheme_counts_like_table_1() -> None:
    task = make_task(architecture="dual_gated", via=True)
    kinds = [r.kind for r in (*task.drc_rules, *task.structural, *task.completeness)]
    assert {k: kinds.count(k) for k in kinds} == {
        "min_width": 2,
        "min_spacing": 1,
        "min_separation": 2,
        "min_enclosure": 1,
        "must_not_overlap": 2,
        "must_overlap": 3,
        "must_cross": 2,
        "transistor_count": 1,
        "layer_not_empty": 4,
    }
    assert [r.layers for r in task.derived_rules if r.kind == "min_separation"] == [
        ("via", "back_gate"),
        ("via", "top_gate"),
    ]


def test_view_leaves_hidden_criteria_out() -> None:
    task = make_task(demand=(3,))
    view = task.view()
    assert not hasattr(view, "structural")
    assert not hasattr(view, "metadata")
    assert view.demand == (3,)
    assert {r.kind for r in view.drc_rules} == {"min_width", "min_spacing", "min_separation", "must_not_overlap"}


def _broken(**changes: object) -> dict[str, object]:
    data = make_task().to_dict()
    for path, value in changes.items():
        node = data
        *parents, last = path.split("__")
        for key in parents:
            node = node[int(key)] if isinstance(node, list) else node[key]
        if isinstance(node, list):
            node[int(last)] = value
        else:
            node[last] = value
    return data


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"schema_version": 99}, "schema_version"),
        ({"agent_visible__environment__architecture": "finfet"}, "architecture"),
        ({"agent_visible__environment__layers__1__role": "wire"}, "layers.contacts.role"),
        ({"agent_visible__environment__layers__1__status": "open"}, "layers.contacts.status"),
        ({"agent_visible__environment__layers__1__status": "read_only"}, "layers.contacts.status"),
        ({"agent_visible__environment__layers__1__name": "gate"}, "layers"),
        ({"agent_visible__environment__layers__1__gds_layer": 1}, "layers"),
        ({"agent_visible__environment__design_order": ["@graphene", "contacts", "metal"]}, "design_order"),
        ({"agent_visible__environment__design_order": ["graphene", "contacts", "gate"]}, "design_order"),
        ({"agent_visible__environment__regions": []}, "regions"),
        ({"agent_visible__environment__regions__0__material": "gate"}, "regions.flake_1.material"),
        ({"agent_visible__environment__regions__0__hull": [[0, 0], [1, 1]]}, "regions.flake_1"),
        ({"agent_visible__environment__regions__0__hull": [[0, 0], [1e9, 1], [0, 1]]}, "regions.flake_1"),
        ({"agent_visible__environment__regions__0__hull": [[0, 0], [float("nan"), 1], [0, 1]]}, "regions.flake_1"),
        ({"agent_visible__drc_rules__0__kind": "must_cross"}, "drc_rules.kind"),
        ({"agent_visible__drc_rules__0__min_um": -1}, "drc_rules.min_um"),
        ({"agent_visible__drc_rules__0__layers": ["nowhere"]}, "drc_rules.layers"),
        ({"verification_only__structural__3__region": "flake_9"}, "structural.region"),
        ({"verification_only__structural__3__min_count": 0}, "structural"),
    ],
)
def test_bad_task_names_the_field(changes: dict[str, object], field: str) -> None:
    with pytest.raises(TaskError) as e:
        FETTask.from_dict(_broken(**changes))
    assert e.value.field == field


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema_version": 1}', "null"])
def test_bad_json_is_a_task_error(text: str, tmp_path) -> None:
    with pytest.raises(TaskError):
        FETTask.from_json(text)
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(TaskError, match="broken.json"):
        FETTask.load(path)


def test_missing_file_is_a_task_error(tmp_path) -> None:
    with pytest.raises(TaskError, match="missing.json"):
        FETTask.load(tmp_path / "missing.json")


def test_duplicate_region_names_are_refused() -> None:
    task = make_task()
    with pytest.raises(TaskError):
        task.with_regions((*task.regions, *task.regions))


def test_unknown_lookups_list_what_is_allowed() -> None:
    task = make_task()
    with pytest.raises(TaskError, match="contacts"):
        task.layer("metal1")
    with pytest.raises(TaskError, match="flake_1"):
        task.region("flake_2")


def test_errors_pickle_with_their_fields() -> None:
    e = pickle.loads(pickle.dumps(ToolTimeout("engine stopped", field="limit_s", value=3, allowed="<= 2")))
    assert isinstance(e, EDAGymError)
    assert (e.field, e.value, e.allowed) == ("limit_s", 3, "<= 2")
    assert "engine stopped" in str(e)


def test_region_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Region("flake_1", "graphene", box(0, 0, 1, 1)).name = "x"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("um", "dbu"), [(0.0, 0), (1.0, 1000), (0.0005, 1), (-0.0005, 0), (-1.2345, -1234), (0.1, 100)]
)
def test_one_rounding(um: float, dbu: int) -> None:
    assert to_dbu(um) == dbu


def test_grid_round_trip() -> None:
    ring = tuple((i, -i) for i in range(-3000, 3000, 7))
    assert ring_to_dbu(ring_to_um(ring)) == ring
    assert to_um(1234) == 1.234


def test_task_file_structure_is_the_papers() -> None:
    data = json.loads(make_task().to_json())
    assert set(data) >= {"id", "name", "objective", "agent_visible", "verification_only", "metadata"}
    assert set(data["agent_visible"]["environment"]) == {"architecture", "layers", "design_order", "regions"}
