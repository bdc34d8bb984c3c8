"""The configuration reader: what it takes and refuses, in-place editing, locked variables, the public files' values."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edagym.errors import FlowError
from edagym.task_assets.ppa.config import assignments, is_locked, locked_variables, parse_config, set_variable
from edagym.task_assets.ppa.knobs import knob_table

TEXT = """\
# Flow settings of gcd.
export DESIGN_NAME     = gcd
export DESIGN_NICKNAME = gcd
export PLATFORM        = asap7

export VERILOG_FILES = $(sort $(wildcard ./designs/src/$(DESIGN_NICKNAME)/*.v))
export SDC_FILE      = ./designs/asap7/gcd/constraint.sdc
export DIE_AREA  = 0 0 \\
                   16.2 16.2   # um
export CORE_AREA = 1.08 1.08 15.12 15.12
export PLACE_DENSITY ?= 0.35
ABC_AREA := 1
export ASAP7_USE_VT = LVT SLVT
export ENABLE_DPO = 0
export NEW_KNOB = 7
export TNS_END_PERCENT =
"""


def test_values_are_typed():
    config = parse_config(TEXT)
    assert config.design_name == "gcd"
    assert config.box("DIE_AREA") == (0, 0, 16.2, 16.2)
    assert config.box("CORE_AREA") == (1.08, 1.08, 15.12, 15.12)
    assert config.number("PLACE_DENSITY") == 0.35
    assert config.flag("ABC_AREA") is True
    assert config.names("ASAP7_USE_VT") == ("LVT", "SLVT")
    assert config.names("CORNER") == ("BC",)
    assert config.optional("CORE_UTILIZATION") is None
    assert config.number("TNS_END_PERCENT") == 100  # empty: the default
    assert "TNS_END_PERCENT" not in config.knobs
    assert config.structural["VERILOG_FILES"].startswith("$(sort")
    assert config.other == {"NEW_KNOB": "7"}
    with pytest.raises(KeyError):
        config.number("CORE_UTILIZATION")


def test_warnings():
    config = parse_config(TEXT)
    assert config.warnings == ("NEW_KNOB is not a known variable",)
    assert config.not_modelled == ("ENABLE_DPO",)
    assert config.embedded_warnings()[-1] == "ENABLE_DPO is not modelled by the embedded flow"
    # A knob at its default changes nothing in either flow.
    assert parse_config("export DESIGN_NAME = x\nexport ENABLE_DPO = 1\n").not_modelled == ()


@pytest.mark.parametrize(
    ("lines", "value"),
    [
        ("export PLACE_DENSITY = 0.2\nexport PLACE_DENSITY = 0.3", 0.3),
        ("export PLACE_DENSITY = 0.2\nexport PLACE_DENSITY ?= 0.3", 0.2),
        ("export PLACE_DENSITY ?= 0.2\nexport PLACE_DENSITY ?= 0.3", 0.2),
        ("export PLACE_DENSITY ?= 0.2\nexport PLACE_DENSITY = 0.3", 0.3),
        ("  export   PLACE_DENSITY=0.4", 0.4),
        ("\texport PLACE_DENSITY =\t0.4\t", 0.4),
        ("export PLACE_DENSITY = 0.4# close", 0.4),
        ("# export PLACE_DENSITY = 0.1", 0.6),
        ("# a comment that goes on \\\nexport PLACE_DENSITY = 0.1", 0.6),
    ],
)
def test_make_semantics(lines, value):
    assert parse_config(f"export DESIGN_NAME = x\n{lines}\n").number("PLACE_DENSITY") == value


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("ifeq (1,1)", "not an assignment"),
        ("include other.mk", "not an assignment"),
        ("$(shell touch /x)", "not an assignment"),
        ("all: ; rm -rf x", "not an assignment"),
        ("export A += 1", "not an assignment"),
        ("export A != date", "not an assignment"),
        ("define A", "not an assignment"),
        ("export A = $(shell date)", "references and functions"),
        ("export PLACE_DENSITY = $(X)", "references and functions"),
        ("export PLACE_DENSITY = `date`", "references and functions"),
        ("export A = \\#x", "no backslashes"),
        ("export CORE_UTILIZATION = 400", "not a value"),
        ("export ABC_AREA = yes", "not a value"),
    ],
)
def test_refused_lines_are_named(line, reason):
    with pytest.raises(FlowError, match=rf"line 3: .*{reason}"):
        parse_config(f"export DESIGN_NAME = x\n\n{line}\n")


@pytest.mark.parametrize("name", ["", "export DESIGN_NAME = a b\n", "export DESIGN_NAME = ../x\n"])
def test_a_design_needs_a_name(name):
    with pytest.raises(FlowError, match="no design name"):
        parse_config(name)


def test_other_line_ends_are_no_line_ends():
    text = "export DESIGN_NAME = x\nexport OTHER = a\x0bexport ABC_AREA = 1\n"
    assert parse_config(text).flag("ABC_AREA") is False
    assert parse_config("export DESIGN_NAME = x\r\nexport ABC_AREA = 1\r\n").flag("ABC_AREA") is True


def test_editing_keeps_everything_else():
    text = set_variable(TEXT, "PLACE_DENSITY", "0.7")
    assert text == TEXT.replace("0.35", "0.7")
    text = set_variable(TEXT, "DIE_AREA", "0 0 20 20")
    assert parse_config(text).box("DIE_AREA") == (0, 0, 20, 20)
    assert "# um" in text
    assert text.count("\n") == TEXT.count("\n") - 1
    added = set_variable(TEXT, "CORE_UTILIZATION", "50")
    assert added == TEXT + "export CORE_UTILIZATION = 50\n"
    gone = set_variable(added, "CORE_UTILIZATION", "")
    assert parse_config(gone).optional("CORE_UTILIZATION") is None
    assert set_variable(gone, "CORE_UTILIZATION", "50") == added
    assert set_variable("export A =   # why\n", "A", "q") == "export A = q   # why\n"


def test_the_assignment_that_counts_is_edited():
    text = "export DESIGN_NAME = x\nexport ABC_AREA = 0\nexport ABC_AREA ?= 1\n"
    assert set_variable(text, "ABC_AREA", "1").splitlines()[1:] == ["export ABC_AREA = 1", "export ABC_AREA ?= 1"]


@pytest.mark.parametrize("value", ["a # b", "$(shell x)", "a\nexport X = 1", "a \\", " a", "`x`"])
def test_no_value_can_break_out(value):
    with pytest.raises(FlowError, match="not a value"):
        set_variable(TEXT, "ROUTE_EFFORT", value)


@settings(max_examples=100)
@given(st.lists(st.sampled_from(sorted(k for k, v in knob_table().items() if v.type in ("bool", "float", "int")))))
def test_any_sequence_of_edits_reads_back(names):
    text, expected = TEXT, {}
    for i, name in enumerate(names):
        knob = knob_table()[name]
        value = str(i % 2) if knob.type == "bool" else knob.text(knob.min if i % 2 else knob.max)
        text = set_variable(text, name, value)
        expected[name] = knob.parse(value)
    config = parse_config(text)
    assert all(config.value(n) == (knob_table()[n].default if v is None else v) for n, v in expected.items())
    assert locked_variables(text) == locked_variables(TEXT)
    assert text.startswith("# Flow settings of gcd.\n")


def test_locked_variables():
    assert set(locked_variables(TEXT)) == {"DESIGN_NAME", "DESIGN_NICKNAME", "PLATFORM", "VERILOG_FILES", "SDC_FILE"}
    doubled = TEXT + "export DESIGN_NAME = gcd\n"
    assert locked_variables(doubled) != locked_variables(TEXT)
    for name in ("PRE_CTS_TCL", "YOSYS_EXE", "SHELL", "PATH", "VERILOG_TOP_PARAMS", "ADDITIONAL_LIBS", "FLOW_HOME"):
        assert is_locked(name), name
    assert not any(is_locked(name) for name in knob_table())


def test_lines_are_counted_over_continuations():
    assert [a.line for a in assignments("export A = 1 \\\n 2\nexport B = 3\n")] == [1, 3]


@pytest.mark.real
def test_public_values_parse():
    facts = json.loads((Path(os.environ["EDAGYM_REAL_DATA"]) / "posteda-dev" / "ppa_facts.json").read_text())
    for row in facts:
        text = "".join(f"export {name} = {value}\n" for name, value in row["knobs"].items())
        config = parse_config(text)
        assert set(config.knobs) == set(row["knobs"]) - {"DESIGN_NAME"}, row["task"]
        assert config.warnings == ()
