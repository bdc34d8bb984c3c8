"""The text of FET tasks: complete, made from `TaskView` alone, and nothing of the hidden part in it."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from fet_cases import box, make_task

from edagym.envs.fet.prompt import SCAFFOLDS, answer_format, render_prompt, render_task_text
from edagym.envs.fet.viewer import architecture_name
from edagym.spaces.edits import OPS, edit_from_json
from edagym.task_assets.fet import CircuitSpec, FETTask
from edagym.task_assets.fet.circuits import LOADS, TEMPLATES, stacks
from edagym.task_assets.fet.suite import load_task, task_ids
from edagym.task_assets.fet.task import ARCHITECTURES, Rule

# Words and numbers that occur nowhere in a task's visible part.
WORD, NUMBER = "zyzzyva", 7351.25
SAMPLE = ("L1/case_1", "L2/case_6", "L2/case_30", "L2/case_42", "L3/case_28", "L3/case_39", "L4/case_36")


def planted(task: FETTask) -> FETTask:
    """Return the task with canaries in everything that agents must not see and the objective doesn't entail."""
    hidden = (
        Rule("must_overlap", (task.layers[0].name, task.layers[0].name)),
        *task.structural,
        Rule("transistor_count", (task.regions[0].material,), region=task.regions[0].name, min_count=735125),
    )
    meta = {"note": WORD, "reference": {WORD: [NUMBER, NUMBER]}, "score": NUMBER, **task.metadata, "id": WORD}
    return replace(task, name=WORD, structural=hidden, metadata=meta)


def visible(task: FETTask) -> FETTask:
    """Return the planted task without the extra demand, which `TaskView` shows on the objective's word."""
    planted_task = planted(task)
    return replace(planted_task, structural=planted_task.structural[:-1])


@pytest.mark.parametrize("task_id", SAMPLE)
@pytest.mark.parametrize("scaffold", SCAFFOLDS)
def test_no_canary_of_the_hidden_part_reaches_the_text(task_id: str, scaffold: str) -> None:
    task = load_task(task_id)
    text = render_prompt(visible(task).view(), scaffold)
    assert WORD not in text
    assert "7351" not in text
    assert text == render_prompt(task.view(), scaffold)


def test_the_canary_would_be_found() -> None:
    task = load_task("L1/case_1")
    assert "735125" in render_task_text(planted(task).view())
    assert WORD in render_task_text(replace(task, objective=f"Draw a {WORD}.").view())


def test_criteria_that_the_objective_does_not_entail_stay_out() -> None:
    text = render_prompt(make_task().view())
    assert "must_cross" not in text
    assert "must_overlap" not in text
    assert "transistor_count" not in text


@pytest.mark.parametrize("task_id", SAMPLE)
def test_the_text_states_all_that_is_needed(task_id: str) -> None:
    task = load_task(task_id)
    view = task.view()
    text = render_task_text(view)
    assert task.objective in text
    assert architecture_name(task.architecture) in text
    for region, demand in zip(view.regions, view.demand):
        line = next(
            ln for ln in text.splitlines() if ln.startswith(f"{region.name} ") or ln.startswith(f"{region.name}:")
        )
        assert len(re.findall(r"\(-?\d+\.\d\d, -?\d+\.\d\d\)", line)) == len(region.hull)
        if demand is not None:
            assert re.search(rf"(exactly|at least) {demand} transistor", line)
        if len({r.material for r in view.regions}) > 1:
            assert region.material in line
    assert text.count("  hole: ") == sum(len(r.holes) for r in view.regions)
    for spec in view.layers:
        assert f"{spec.name}, {spec.gds_layer}/{spec.datatype}, {spec.role}, {spec.status.replace('_', '-')}" in text
    assert ", ".join(view.design_order) in text
    for rule in view.drc_rules:
        if rule.min_um is not None:
            assert any(
                all(n in ln for n in rule.layers) and f"{rule.min_um:g} um" in ln
                for ln in text.splitlines()
                if ln.startswith("- ")
            ), rule


def test_vertices_have_two_decimals_and_no_negative_zero() -> None:
    task = make_task([([(-0.001, 0.0), (20.006, 0.0), (20.0, 6.0), (0.0, 6.1)], ())])
    line = next(ln for ln in render_task_text(task.view()).splitlines() if ln.startswith("flake_1"))
    assert "(0.00, 0.00), (20.01, 0.00), (20.00, 6.00), (0.00, 6.10)" in line


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_has_words(architecture: str) -> None:
    text = render_prompt(make_task(architecture=architecture).view(), "C2")
    assert architecture_name(architecture) in text
    assert "None" not in text


CIRCUITS = [
    CircuitSpec(template, load, 1, n if load == "active" else 2 * (n - 1), counts, len(counts))
    for template, n in (("inverter", 2), ("nand2", 3), ("nand3", 4), ("nor2", 3), ("nor3", 4))
    for load, counts in (("active", (n,)), ("complementary", (n - 1, n - 1)))
]


@pytest.mark.parametrize("circuit", CIRCUITS, ids=lambda c: f"{c.template}-{c.load}")
def test_every_circuit_is_said_in_words_and_as_a_sequence(circuit: CircuitSpec) -> None:
    n = len(circuit.exact_per_flake)
    materials = ["MoSe2", "WSe2"][:n]
    flakes = [(box(0, 10 * i, 30, 10 * i + 6), ()) for i in range(n)]
    task = make_task(flakes, circuit.exact_per_flake, materials=materials, circuit=circuit)
    text = render_prompt(task.view())
    sentence = next(ln for ln in text.splitlines() if ln.startswith("Circuit: "))
    assert circuit.template in sentence
    assert circuit.load in sentence
    assert "exactly" in text
    for region, stack in zip(task.regions, stacks(circuit)):
        line = next(ln for ln in text.splitlines() if ln.startswith(f"{region.name}: ") and "<" in ln)
        assert re.findall(r"<([^>]+)>", line) == list(stack.gates)
        assert re.sub(r"<[^>]+>", " ", line).split()[1:] == list(stack.nets)
    # What the sentence calls series and parallel is what the stack is.
    inner = [any(net.startswith("x") for net in stack.nets) for stack in stacks(circuit)]
    if circuit.template != "inverter":
        assert ("series" in sentence) == any(inner)
        assert ("parallel" in sentence) == (len(inner) == 2 or not inner[0])


def test_the_circuit_cases_cover_all_templates() -> None:
    assert {(c.template, c.load) for c in CIRCUITS} == {(t, load) for t in TEMPLATES for load in LOADS}


def test_scaffolds_add_their_own_guidance() -> None:
    view = load_task("L3/case_8").view()
    c0, c1, c2 = (render_prompt(view, s) for s in ("C0", "C1", "C2"))
    for text in (c0, c1, c2):
        assert render_task_text(view) in text
        for region in view.regions:
            assert re.search(rf"{region.name}: gate crossing at \(.*source zone .*drain zone", text)
    assert "direction" not in c0
    assert len(re.findall(r"flake_\d: point \(.*\), direction \(", c1)) == len(view.regions)
    assert "two separate contact rectangles" not in c0
    assert "two separate contact rectangles" in c2
    assert "1 + 2 x 0.2 = 1.4 um" in c2
    with pytest.raises(ValueError, match="C0"):
        render_prompt(view, "C3")  # type: ignore[arg-type]


def test_hints_lie_on_the_flake() -> None:
    import shapely

    from edagym.envs.fet.reference import channel_hint

    for region in load_task("L3/case_8").regions:
        flake = shapely.Polygon(region.hull, region.holes)
        hint = channel_hint(region)
        text = render_prompt(load_task("L3/case_8").view())
        assert "({:.2f}, {:.2f})".format(*hint.point) in text
        for point in (hint.point, *hint.source_segment, *hint.drain_segment):
            assert flake.contains(shapely.Point(point))


def test_a_flake_without_a_crossing_gets_no_suggestion() -> None:
    task = make_task([(box(0, 0, 0.2, 0.2), ())])
    assert "flake_1: no suggestion" in render_prompt(task.view(), "C1")


def test_the_answer_format_is_what_the_parser_reads() -> None:
    text = answer_format(make_task().view())
    for op in OPS:
        assert f'{{"op": "{op}"' in text
    example = json.loads(text[text.index("[{") : text.rindex("]") + 1])
    assert [edit_from_json(e).layer for e in example] == ["contacts", "gate"]


@pytest.mark.parametrize("scaffold", SCAFFOLDS)
def test_every_suite_prompt_renders(scaffold: str) -> None:
    for task_id in task_ids()[:: 1 if scaffold == "C0" else 8]:
        text = render_prompt(load_task(task_id).view(), scaffold)
        assert "None" not in text
        assert "no suggestion" not in text, task_id
