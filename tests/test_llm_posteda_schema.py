"""JSON schemas of the DRC and PPA action spaces agree with their descriptions and their parsers."""

from __future__ import annotations

import json
import re

import pytest

from edagym.errors import EditError
from edagym.spaces import drc_actions, ppa_actions
from edagym.spaces.drc_actions import DRCActionSpace, drc_action_from_json, drc_action_to_json
from edagym.spaces.ppa_actions import PPAActionSpace, ppa_action_from_json, ppa_action_to_json

jsonschema = pytest.importorskip("jsonschema")

DRC = [
    {"op": "add_shape", "layer": "M2", "box": [0, 0, 8, 8], "cell": None},
    {"op": "add_shape", "layer": "M2", "points": [[0, 0], [0, 4], [4, 4]], "cell": "VIA"},
    {"op": "change_shape", "layer": "M2", "shape": {"index": 3}, "change": "delete", "cell": None},
    {"op": "change_shape", "layer": "M2", "shape": {"box": [0, 0, 8, 8]}, "change": "move", "by": [1, -1], "cell": ""},
    {
        "op": "change_shape",
        "layer": "M2",
        "shape": {"box": [0, 0, 8, 8]},
        "change": "move_edge",
        "edge": 2,
        "by": 4,
        "cell": None,
    },
    {
        "op": "change_shape",
        "layer": "M2",
        "shape": {"points": [[0, 0], [0, 4], [4, 4]]},
        "change": "resize",
        "by": [1, 2, 3, 4],
        "cell": None,
    },
    {"op": "move_cell", "cell": "VIA", "at": [0, 0], "by": [1, 1], "orientation": None, "parent": None},
    {
        "op": "query",
        "level": "first",
        "kind": "edge",
        "points": [[0, 0], [0, 4]],
        "cell": None,
        "direct_layers": None,
        "context_layers": ["V1"],
        "start": None,
        "stop": None,
    },
    {"op": "check"},
    {"op": "submit"},
]
PPA = [
    {"op": "read_file", "command": "ls"},
    {"op": "edit_file", "path": "src/a.v", "old": "a", "new": "b"},
    {"op": "set_knob", "name": "PLACE_DENSITY", "value": "0.5"},
    {"op": "set_period", "period": 300, "clock": None},
    {"op": "set_io_fraction", "fraction": 0.25, "direction": "input"},
    {"op": "set_max_fanout", "fanout": 12},
    {"op": "run"},
    {"op": "report"},
    {"op": "submit"},
]
FAMILIES = {
    "drc": (DRCActionSpace, drc_action_from_json, drc_action_to_json, drc_actions.OPERATIONS, DRC),
    "ppa": (PPAActionSpace, ppa_action_from_json, ppa_action_to_json, ppa_actions.OPERATIONS, PPA),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_what_the_schema_takes_can_be_read(family):
    space, parse, back, operations, examples = FAMILIES[family]
    schema = space.schema()
    json.dumps(schema)
    assert {e["op"] for e in examples} == set(operations)
    for example in examples:
        jsonschema.validate(example, schema)
        action = parse(example)
        assert parse(back(action)) == action


@pytest.mark.parametrize("family", FAMILIES)
def test_every_operation_is_described_and_in_the_schema(family):
    space, _, _, operations, _ = FAMILIES[family]
    described = set(re.findall(r'"op": "(\w+)"', space.describe()))
    in_schema = {form["properties"]["op"]["const"] for form in space.schema()["anyOf"]}
    assert described == in_schema == set(operations)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_the_schema_refuses_is_refused(family):
    space, parse, *_ = FAMILIES[family]
    for bad in ({"op": "rm"}, {"op": "submit", "cell": "x", "force": True}, {}, [], "check"):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(bad, space.schema())
    for bad in ({"op": "rm"}, {}, [], "check"):
        with pytest.raises(EditError):
            parse(bad)


def test_schemas_keep_to_the_strict_subset():
    def walk(node):
        if isinstance(node, dict):
            if node.get("type") == "object":
                assert node["additionalProperties"] is False
                assert sorted(node["required"]) == sorted(node["properties"])
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(DRCActionSpace.schema())
    walk(PPAActionSpace.schema())
