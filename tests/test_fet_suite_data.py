"""The shipped suite: loading, published statistics, recorded references, and that the generator rewrites it."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edagym.envs.fet import generator
from edagym.envs.fet.generator import generate_suite
from edagym.envs.fet.interpreter import apply_edit, drawing_window
from edagym.envs.fet.plan import Slot
from edagym.envs.fet.prompt import render_task_text
from edagym.envs.fet.reference import ReferenceInfeasible
from edagym.errors import TaskError, ToolError
from edagym.spaces.edits import Edit, edit_from_json
from edagym.task_assets.fet import FETTask, suite
from edagym.task_assets.fet.contours import Contour, load_library
from edagym.task_assets.fet.manifest import load_manifest, manifest_from_json
from edagym.task_assets.fet.objective import objective_text
from edagym.task_assets.fet.statistics import count_tokens, gate_missed, suite_statistics
from edagym.verifiers.fet import FETLayout, verify

TASKS = [suite.load_task(i) for i in suite.task_ids()]
SHIPPED = Path(suite.__file__).parent


def test_suites_hold_the_published_numbers_of_tasks() -> None:
    sizes = {name: len(suite.task_ids(name)) for name in suite.SUITES}
    assert sizes == {"FET-L1": 8, "FET-L2": 39, "FET-L3": 41, "FET-L4": 40, "FET-Holes": 15, "FET-All": 128}
    assert all(any(r.holes for r in suite.load_task(i).regions) for i in suite.task_ids("FET-Holes"))


def test_unknown_tasks_and_suites_are_named_with_close_matches() -> None:
    with pytest.raises(TaskError, match="L2/case_12") as e:
        suite.load_task("L2/case_122")
    assert e.value.field == "task"
    with pytest.raises(TaskError, match="FET-Holes"):
        suite.task_ids("FET-L5")
    with pytest.raises(TaskError):
        suite.load_reference("../manifest")


def test_every_gated_statistic_is_met() -> None:
    lines = suite_statistics(render_task_text)
    assert [(m.name, m.target, m.achieved) for m in gate_missed(lines)] == []
    assert sum(m.gated for m in lines) > 150
    assert {m.status for m in lines} == {"gated", "reported"}


@pytest.mark.parametrize(
    ("change", "missed"),
    [
        ({"tier": "G3"}, "tier G1"),
        ({"group": "probes"}, "probes: tasks"),
        ({"transistors": 2}, "tasks with 2 to 4 transistors"),
        ({"tight_window": 0.3}, "tight windows at 0.30"),
        ({"lineage": "restructured"}, "lineage restructured"),
    ],
)
def test_a_changed_label_misses_a_gate(change: dict[str, object], missed: str) -> None:
    tasks = [replace(t, metadata={**t.metadata, **change}) if t.id == "L1/case_4" else t for t in TASKS]
    assert missed in {m.name for m in gate_missed(suite_statistics(render_task_text, tasks))}


def test_changed_rules_and_geometry_miss_gates() -> None:
    def names(tasks: list[FETTask]) -> set[str]:
        return {m.name for m in gate_missed(suite_statistics(render_task_text, tasks))}

    fewer = [replace(t, structural=t.structural[:-1]) if t.id == "L4/case_3" else t for t in TASKS]
    assert "transistor_count: rules" in names(fewer)
    grown = [
        t.with_regions(tuple(replace(r, hull=tuple((1.2 * x, 1.2 * y) for x, y in r.hull)) for r in t.regions))
        for t in TASKS
    ]
    assert {"flake area, um2: median", "flake area, um2: range"} <= names(grown)
    assert "task text tokens: median" in {
        m.name for m in gate_missed(suite_statistics(lambda view: view.objective, TASKS))
    }


def test_token_count_of_a_known_text() -> None:
    # Objective | : |  Create |  2 |  transistors | . | \n | ( | 12 | . | 345 | , |   | 6 | )
    assert count_tokens("Objective: Create 2 transistors.\n(12.345, 6)") == 15
    assert count_tokens("") == 0


def test_recorded_references_pass_both_criteria() -> None:
    for task in TASKS:
        layout, window = FETLayout.from_task(task), drawing_window(task.regions)
        edits = [edit_from_json(e) for e in suite.load_reference(task.id)["edits"]]
        assert task.metadata["reference_edits"] == len(edits)
        for edit in edits:
            apply_edit(layout, edit, window=window)
        verdict = verify(layout, task)
        assert verdict.paper_success, (task.id, verdict.failed())
        assert verdict.strict_success, (task.id, verdict.failed())


def test_every_circuit_task_records_its_netlist() -> None:
    for task in TASKS:
        assert ("netlist" in task.metadata) == (task.circuit is not None)
        if task.circuit is not None:
            assert len(task.metadata["netlist"]["transistors"]) == sum(task.circuit.exact_per_flake)


def test_contours_are_recorded_and_real_ones_are_those_of_the_library() -> None:
    library = {c.id: c for c in load_library()}
    used: dict[str, int] = {}
    for task in TASKS:
        about = task.metadata["contours"]
        assert len(about) == len(task.regions)
        assert len({c["id"] for c in about}) == len(about), task.id
        for c, region in zip(about, task.regions):
            used[c["id"]] = used.get(c["id"], 0) + 1
            if c["source"] == "procedural":
                assert "image" not in c
                continue
            real = library[c["id"]]
            assert c["thick"] == real.provenance["thick"]
            assert (c["source"], c["image"]) == (real.source, real.provenance["image"])
            assert len(region.hull) == real.n_vertices
            assert len(region.holes) == len(real.holes)
            sides = np.sort(np.hypot(*np.diff([*region.hull, region.hull[0]], axis=0).T))
            known = np.sort(np.hypot(*np.diff([*real.hull, real.hull[0]], axis=0).T))
            assert np.abs(sides - known).max() < 0.003
    holed = [suite.load_task(i).metadata["contours"][0]["id"] for i in suite.task_ids("FET-Holes")]
    assert len(set(holed)) == 15
    assert len(used) == 347
    assert sum(n - 1 for n in used.values()) == 23
    assert sum(not i.startswith("procedural") for i in used) >= 130


def test_objectives_state_the_demand_and_the_circuit() -> None:
    for task in TASKS:
        text = task.objective
        if task.circuit is not None:
            assert {"inverter": "inverter", "nand2": "NAND2", "nand3": "NAND3", "nor2": "NOR2", "nor3": "NOR3"}[
                task.circuit.template
            ] in text
            assert "active load" in text or "complementary" in text
            assert all(str(n) in text for n in task.circuit.exact_per_flake)
        elif None in task.demand:
            assert "source and drain" in text
        else:
            assert all(str(n) in text for n in task.demand)
            assert len(task.regions) == 1 or str(len(task.regions)) in text
        assert ("vias" in text) == bool(task.layers_of("via"))
        assert ("pads" in text) == bool(task.layers_of("pad cover"))
        assert ("dielectric" in text) == bool(task.layers_of("dielectric"))


def test_uneven_demands_are_listed_by_flake() -> None:
    task = suite.load_task("L2/case_6")
    assert "2 on flake_1, 2 on flake_2, 2 on flake_3, 1 on flake_4" in task.objective
    text = objective_text("top_gated", task.layers, (3, 1), ("graphene", "MoSe2"))
    assert text.startswith("Create 4 transistors across 2 flakes: 3 on flake_1, 1 on flake_2.")


def test_manifest_says_what_is_published() -> None:
    manifest = load_manifest()
    published = {name for name, c in manifest.columns.items() if c.status == "published"}
    assert published == {"id", "difficulty", "tier", "transistors", "circuit", "scale_bar_um"}
    for entry, task in zip(manifest.entries, TASKS):
        assert task.id == entry.id
        assert task.metadata["tier"] == entry.tier
        assert entry.transistors is None or sum(n or 0 for n in entry.demand) == entry.transistors
        assert (entry.circuit_template is not None) == entry.circuit


@pytest.mark.parametrize("text", ["", "[]", '{"schema_version": 2}', '{"schema_version": 1, "columns": {}}'])
def test_malformed_manifests_raise_task_errors(text: str) -> None:
    with pytest.raises(TaskError):
        manifest_from_json(text)


def test_regions_must_fit_the_manifest() -> None:
    entry = load_manifest().entries[0]
    with pytest.raises(TaskError, match="regions"):
        entry.task(suite.load_task("L2/case_1").regions)


def test_rebuilding_the_suite_gives_the_shipped_bytes(tmp_path: Path) -> None:
    report = generate_suite(tmp_path, seed=7, progress=False)
    assert report["tasks"] == 128
    for kind in ("suite", "references"):
        for task_id in suite.task_ids():
            made = (tmp_path / kind / f"{task_id}.json").read_bytes()
            assert made == (SHIPPED / kind / f"{task_id}.json").read_bytes(), (kind, task_id)


def test_another_seed_gives_another_suite(tmp_path: Path) -> None:
    generate_suite(tmp_path, seed=8, progress=False, only=["L2/case_42"])
    made = FETTask.load(tmp_path / "suite/L2/case_42.json")
    assert made.regions != suite.load_task("L2/case_42").regions


def test_unknown_task_in_only(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="L9/case_1"):
        generate_suite(tmp_path, progress=False, only=["L9/case_1"])


def test_a_real_contour_without_the_capacity_is_replaced() -> None:
    entry = next(e for e in load_manifest().entries if e.id == "L3/case_7")
    small = Contour("mask:small", ((0, 0), (5, 0), (0, 5)), (), "mask", {"thick": False, "image": "small"})
    slot = Slot("G3", 0, 8, contour=small)
    made = generator.suite_task(replace(entry, demand=(8,)), [slot], 7)
    assert made.swaps >= 1
    assert made.task.metadata["contours"][0]["source"] == "procedural"
    assert made.task.demand == (8,)


def test_a_contour_that_keeps_failing_in_place_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = next(e for e in load_manifest().entries if e.id == "L3/case_1")
    contours = [c for c in load_library() if c.tier == "G2" and not c.holes][:3]
    slots = [Slot("G2", 0, 1, contour=c, locked=k == 0) for k, c in enumerate(contours)]
    real_build, bad = generator.build_reference, contours[1].id

    def build(task: FETTask) -> tuple[Edit, ...]:
        if any(c["id"] == bad for c in task.metadata["contours"]):
            raise ReferenceInfeasible("no room", field="region", value="flake_2")
        return real_build(task)

    monkeypatch.setattr(generator, "build_reference", build)
    made = generator.suite_task(entry, slots, 7)
    assert (made.scenes, made.swaps) == (generator.SCENES_PER_CONTOUR + 1, 1)
    ids = [c["id"] for c in made.task.metadata["contours"]]
    assert (ids[0], ids[2]) == (contours[0].id, contours[2].id)
    with pytest.raises(ToolError, match="L3/case_1"):
        generator.suite_task(entry, [replace(s, locked=True) for s in slots], 7)


@pytest.mark.real
def test_published_columns_equal_the_captions_of_the_paper() -> None:
    text = (Path(os.environ["EDAGYM_REAL_DATA"]) / "seeds" / "2d-fet-bench-v2.txt").read_text(encoding="utf-8")
    pattern = r"(L\d)/case (\d+) (D\d) · (G\d)(?: · (\d+)T)?( · circuit)?"
    captions = {f"{m[0]}/case_{m[1]}": m[2:] for m in re.findall(pattern, text[text.index("M V2 task previews") :])}
    assert len(captions) == 128
    for task in TASKS:
        difficulty, tier, transistors, circuit = captions[task.id]
        meta = task.metadata
        assert (meta["difficulty"], meta["tier"], meta["circuit"]) == (difficulty, tier, bool(circuit)), task.id
        assert meta["transistors"] == (int(transistors) if transistors else None), task.id
