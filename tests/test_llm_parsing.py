"""What models write is read: fences, prose, broken JSON, several pieces; and nothing is made up."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edagym.baselines.llm.parsing import MAX_DEPTH, parse_actions, parse_objects, parse_values
from edagym.errors import EditError, PolicyError
from edagym.spaces.actions import OPERATIONS, EditSpace
from edagym.spaces.drc_actions import DRCActionSpace
from edagym.spaces.edits import edit_from_json
from edagym.spaces.ppa_actions import PPAActionSpace

CLEAR = {"op": "clear", "layer": "gate"}
BOX = {"op": "add_polygon", "layer": "contacts", "points": [[0, 0], [3.5, 0], [3.5, 2], [0, 2]]}


def read(text: str) -> list[dict[str, Any]]:
    return parse_actions(text, EditSpace.schema())


def plan(*edits: dict[str, Any]) -> str:
    return json.dumps({"thought": "t", "edits": list(edits)})


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([CLEAR, BOX]),
        plan(CLEAR, BOX),
        f"```json\n{json.dumps([CLEAR, BOX], indent=2)}\n```",
        f"Sure! Here is my plan [draft]:\n\n{plan(CLEAR, BOX)}\n\nLet me know {{if}} it helps.",
        f"{json.dumps(CLEAR)}\n{json.dumps(BOX)}",
        f"First {json.dumps(CLEAR)}, and then {json.dumps(BOX)}.",
        json.dumps([CLEAR, BOX])[:-1] + ",]",
        json.dumps([CLEAR, BOX])[:-1],
        json.dumps([CLEAR, BOX]).replace('"', "'"),
        "[{op: 'clear', layer: 'gate'}, " + json.dumps(BOX)[:-1] + ",},]",
        "// plan\n[ /* first */ " + json.dumps(CLEAR) + ", // second\n" + json.dumps(BOX) + "]",
        f"<think>maybe [{json.dumps({'op': 'cut'})}]?</think>{plan(CLEAR, BOX)}",
        '{"thought": "the "gate" crosses [here]", "edits": ' + json.dumps([CLEAR, BOX]) + "}",
        '{"thought": "one\ntwo\ttabs", "edits": ' + json.dumps([CLEAR, BOX]) + "}",
        json.dumps({"answer": {"edits": [CLEAR, BOX]}}),
        json.dumps({"gate": [CLEAR], "contacts": [BOX]}),
        f"```\n{json.dumps([CLEAR])}\n```\nand\n```\n{json.dumps([BOX])}\n```",
        json.dumps([CLEAR, BOX]) + "\n" + json.dumps([CLEAR, BOX]),
        plan({**BOX, "points": [[9, 9], [10, 9], [10, 10]]}, CLEAR) + " No, better: " + plan(CLEAR, BOX),
    ],
    ids=lambda text: text[:24],
)
def test_the_same_two_edits_are_read(text: str) -> None:
    assert read(text) == [CLEAR, BOX]


def test_a_cut_off_reply_keeps_what_is_whole() -> None:
    text = plan(CLEAR, BOX)
    for end in range(len(text)):
        try:
            found = read(text[:end])
        except PolicyError:
            found = []
        assert found in ([], [CLEAR], [CLEAR, BOX])
    assert read(text[: text.index('"points"')]) == [CLEAR]


def test_a_number_that_was_cut_off_is_no_number() -> None:
    assert parse_values('{"a": 1, "b": 12') == []
    assert parse_values("[1, 2, 12") == [[1, 2]]


def test_half_a_character_is_replaced() -> None:
    for text in (
        '{"a": "x\\ud800y", "\\ud800": 1,}',
        '{"a": "x\\ud800y", "\\ud800": 1}',
        '{"a": "x\ud800y", "\ud800": 1}',
    ):
        assert parse_objects(text) == [{"a": "x\ufffdy", "\ufffd": 1}]
    assert parse_objects('{"a": "\\ud83d\\ude00",}') == [{"a": "\U0001f600"}]


@pytest.mark.parametrize(
    ("written", "um"),
    [("1.5um", 1.5), ("1.5 µm", 1.5), ("800 nm", 0.8), ("0.002 mm", 2.0), ("-3", -3.0), ("2 microns", 2.0), (1.5, 1.5)],
)
def test_lengths_with_units_become_micrometres(written: Any, um: float) -> None:
    text = json.dumps(
        [{"op": "add_path", "layer": "gate", "points": [[written, 0], {"x": 1, "y": 2}], "width": written}]
    )
    edit = read(text)[0]
    assert edit["width"] == pytest.approx(um)
    assert edit["points"] == [[pytest.approx(um), 0], [1, 2]]


@pytest.mark.parametrize("written", ["1 inch", "wide", "1.5 um wide", "", "nan", True, None, [1]])
def test_what_is_no_length_is_left_for_the_environment_to_refuse(written: Any) -> None:
    edit = read(json.dumps([{"op": "add_path", "layer": "gate", "points": [[0, 0], [1, 1]], "width": written}]))[0]
    assert edit["width"] == written
    with pytest.raises(EditError, match="width"):
        edit_from_json(edit)


@pytest.mark.parametrize(
    "text", ["", "I cannot do that.", "[]", '{"edits": []}', "null", "[1, 2]", "{", "[[[[", '{"a": 1}']
)
def test_a_reply_without_actions_is_unreadable(text: str) -> None:
    with pytest.raises(PolicyError, match="add_polygon"):
        read(text)


def test_an_unknown_operation_is_left_for_the_environment_to_refuse() -> None:
    assert read('[{"op": "explode"}]') == [{"op": "explode"}]


def test_strings_keep_their_line_breaks_and_escapes() -> None:
    assert parse_objects('{"a": "x\ny", "b": "\\u00b5m \\"q\\" \\n", }') == [{"a": "x\ny", "b": 'µm "q" \n'}]


def test_nesting_has_a_limit() -> None:
    deep = "[" * (MAX_DEPTH + 5) + "]" * (MAX_DEPTH + 5)
    assert all(_depth(value) <= MAX_DEPTH for value in parse_values(deep))
    assert parse_values("[" * 100_000) == []


def _depth(value: Any) -> int:
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, members), default=0) if isinstance(value, list | dict) else 0


# -- fuzzing -----------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
CONTAINERS = st.lists(JSON, max_size=4) | st.dictionaries(st.text(max_size=8), JSON, max_size=4)
EDITS = st.lists(
    st.fixed_dictionaries(
        {"op": st.sampled_from(OPERATIONS), "layer": st.text(st.characters(codec="utf-8"), max_size=6)},
        optional={"points": st.lists(st.lists(st.floats(-100, 100), min_size=2, max_size=2), max_size=6)},
    ),
    min_size=1,
    max_size=5,
)
PROSE = st.text(st.characters(blacklist_characters="{}[]<"), max_size=30)


@settings(max_examples=150, deadline=None)
@given(CONTAINERS)
def test_valid_json_is_read_as_it_is(value: Any) -> None:
    assert parse_values(json.dumps(value)) == [value]


@settings(max_examples=150, deadline=None)
@given(EDITS, PROSE, PROSE, st.sampled_from(["", "json"]), st.booleans(), st.booleans())
def test_edits_survive_fences_prose_and_trailing_commas(
    edits: list[dict[str, Any]], before: str, after: str, fence: str, wrapped: bool, comma: bool
) -> None:
    text = json.dumps({"thought": "t", "edits": edits} if wrapped else edits)
    if comma:
        text = text[:-1] + ("," if wrapped else ",\n") + text[-1]
    assert read(f"{before}\n```{fence}\n{text}\n```\n{after}") == edits


@settings(max_examples=200, deadline=None)
@given(EDITS, st.data())
def test_a_cut_anywhere_gives_a_prefix(edits: list[dict[str, Any]], data: st.DataObject) -> None:
    text = plan(*edits)
    end = data.draw(st.integers(0, len(text)))
    try:
        found = read(text[:end])
    except PolicyError:
        found = []
    assert found == edits[: len(found)]


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200) | st.text(alphabet="{}[]\",:\\ \n'opedit1.-/*<think>", max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        found = read(text)
    except PolicyError:
        return
    assert found
    assert all(isinstance(action, dict) and "op" in action for action in found)


@settings(max_examples=200, deadline=None)
@given(EDITS, st.data())
def test_damage_never_breaks_the_reader(edits: list[dict[str, Any]], data: st.DataObject) -> None:
    text = plan(*edits)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.sampled_from(['"', "}", "[", ",", "\\", "\n", "", "'"])) + text[at + 1 :]
    with contextlib.suppress(PolicyError):
        assert read(text)


# -- the schema, the prose and the parser agree ------------------------------------------------------------------------


def valid(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value fits a schema, in the subset that action schemas use."""
    if "anyOf" in schema:
        return any(valid(value, one) for one in schema["anyOf"])
    if "const" in schema:
        return bool(value == schema["const"])
    if "enum" in schema:
        return value in schema["enum"]
    kinds = {"string": str, "array": list, "object": dict, "number": int | float, "integer": int, "null": type(None)}
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(isinstance(value, kinds[n]) for n in names) or isinstance(value, bool):
        return False
    if isinstance(value, list):
        most = schema.get("maxItems", len(value))
        return schema.get("minItems", 0) <= len(value) <= most and all(valid(v, schema["items"]) for v in value)
    if isinstance(value, dict):
        fields = schema["properties"]
        return set(value) == set(fields) and all(valid(v, fields[k]) for k, v in value.items())
    if isinstance(value, int | float):
        return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))
    return True


def test_the_example_fits_schema_and_parser() -> None:
    example = EditSpace.example("contacts", "gate")
    schema = EditSpace.reply_schema(["contacts", "gate"])
    assert valid({"thought": "", "edits": example}, schema)
    assert not valid({"thought": "", "edits": [{**example[0], "layer": "graphene"}]}, schema)
    assert not valid({"thought": "", "edits": []}, schema)
    assert read(plan(*example)) == example
    for edit in example:
        edit_from_json(edit)


def test_every_form_of_the_schema_is_described_and_read() -> None:
    forms = EditSpace.schema(["gate"])["anyOf"]
    assert [form["properties"]["op"]["const"] for form in forms] == list(OPERATIONS)
    samples = {"layer": "gate", "points": [[0, 0], [4, 0], [4, 4]], "width": 1.0}
    space = EditSpace()
    for form in forms:
        names = list(form["properties"])
        action = {"op": form["properties"]["op"]["const"], **{n: samples[n] for n in names[1:]}}
        assert valid(action, form)
        assert read(json.dumps([action])) == [action]
        line = next(ln for ln in EditSpace.describe(OPERATIONS).splitlines() if f'"op": "{action["op"]}"' in ln)
        assert all(f'"{name}"' in line for name in names)
        assert json.loads(space.to_json(space.from_json(json.dumps(action), ["gate"]), ["gate"])) == action


@pytest.mark.parametrize("space", [EditSpace, DRCActionSpace, PPAActionSpace])
def test_schemas_stay_inside_the_strict_subset(space: Any) -> None:
    def check(schema: dict[str, Any]) -> None:
        if schema.get("type") == "object":
            assert schema["additionalProperties"] is False
            assert schema["required"] == list(schema["properties"])
        for inner in (*schema.get("anyOf", ()), *schema.get("properties", {}).values()):
            check(inner)
        if "items" in schema:
            check(schema["items"])

    check(space.schema())
    json.dumps(space.schema())
