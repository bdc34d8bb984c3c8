"""The constraint reader: the usual file, what Tcl it takes and refuses, in-place editing, the public files' values."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ppa_cases import SDC

from edagym.errors import FlowError
from edagym.task_assets.ppa.sdc import FalsePath, Ports, parse_sdc, set_io_fraction, set_max_fanout, set_period
from edagym.task_assets.ppa.tcl import parse_tcl

INPUTS, OUTPUTS = ("clk", "a[0]", "a[1]", "b"), ("sum[0]", "sum[1]")


def test_the_usual_file():
    found = parse_sdc(SDC)
    (clock,) = found.clocks
    assert (clock.name, clock.period, clock.port) == ("core_clock", 300, "clk")
    assert found.period == 300
    assert found.io_fraction == pytest.approx(0.2)
    assert found.delays("input", INPUTS, OUTPUTS) == dict.fromkeys(INPUTS[1:], ("core_clock", 60.0))
    assert found.delays("output", INPUTS, OUTPUTS) == dict.fromkeys(OUTPUTS, ("core_clock", 60.0))
    assert found.max_fanout is None
    assert found.false_paths == found.other == ()


VARIANTS = {
    "virtual": "create_clock -name v -period 500\nset_input_delay 100 -clock v [all_inputs]",
    "braces": "set p 500\ncreate_clock -name v -period $p\nset_input_delay [expr {$p*0.2}] -clock v [all_inputs]",
    "quotes": 'set p 500\ncreate_clock -period "$p" -name "v"; set_input_delay [expr "0.2*${p}"] -clock v [all_inputs]',
    "clock set": "create_clock -name v -period 500\nset_input_delay -clock [get_clocks v] 100 [all_inputs -no_clocks]",
    "divided": "create_clock -name v -period [expr 1000 / 2]\nset_input_delay [expr (50+50)*1] -clock v [all_inputs]",
    "continued": "create_clock -name v \\\n  -period 500 ;# slow\nset_input_delay 100 \\\n -clock v [all_inputs]\n",
}


@pytest.mark.parametrize("name", VARIANTS)
def test_variants(name):
    found = parse_sdc(VARIANTS[name])
    assert found.period == 500
    assert found.io_fraction == pytest.approx(0.2)
    faster = parse_sdc(set_period(VARIANTS[name], 400))
    assert faster.period == 400
    wider = parse_sdc(set_io_fraction(VARIANTS[name], 0.35))
    assert wider.io_fraction == pytest.approx(0.35)
    assert wider.period == 500


def test_ports():
    text = SDC + (
        "set_input_delay 10 -clock core_clock [get_ports {a b}]\n"
        "set_output_delay 20 -min -clock core_clock [get_ports {sum[0]}]\n"
        "set_output_delay 30 -max -clock core_clock [get_ports sum*1*]\n"
    )
    found = parse_sdc(text)
    assert found.delays("input", INPUTS, OUTPUTS)["a[1]"] == ("core_clock", 10.0)
    assert found.delays("output", INPUTS, OUTPUTS) == {"sum[0]": ("core_clock", 60.0), "sum[1]": ("core_clock", 30.0)}
    assert Ports("ports", ("a",)).select(["a[0]", "ab", "a"], ["q"]) == ("a[0]", "a")
    assert Ports("inputs", no_clocks=True).select(INPUTS, OUTPUTS, ("clk",)) == INPUTS[1:]
    removed = "set_input_delay 1 -clock c [remove_from_collection [all_inputs] [get_ports clk]]"
    delays = parse_sdc(f"create_clock -name c -period 9 [get_ports clk]\n{removed}").delays("input", INPUTS, OUTPUTS)
    assert set(delays) == set(INPUTS[1:])


def test_what_is_recorded():
    text = SDC + "set_false_path -from [all_inputs] -to [all_outputs]\nset_load  3.9   [all_outputs]\n"
    found = parse_sdc(text)
    assert found.false_paths == (FalsePath(Ports("inputs"), Ports("outputs")),)
    assert found.other == ("set_load 3.9 [outputs]",)
    assert found.warnings() == ("set_load is not modelled by the embedded flow",)
    assert parse_sdc(SDC + "set_false_path -hold -from [all_inputs]\n").false_paths == ()


@pytest.mark.parametrize(
    ("expression", "value"),
    [("1000 / 3", 333), ("-7 / 2 + 10", 6), ("1000 / 3.0", 1000 / 3), ("(1 + 2) * 50", 150), ("1e2*2", 200)],
)
def test_arithmetic_is_that_of_tcl(expression, value):
    assert parse_sdc(f"create_clock -name c -period [expr {expression}]").period == pytest.approx(value)


TCL = """
proc get_ports {x} {return $x}
proc get_clocks {x} {return $x}
proc all_inputs {args} {return {clk a b}}
proc all_outputs {args} {return q}
proc current_design {args} {}
proc create_clock {args} {
  array set o {-name {} -period {}}
  array set o [lrange $args 0 3]
  puts "clock $o(-name) [expr double($o(-period))]"
}
proc delay {side args} {
  set at [lsearch $args -clock]
  set clock [lindex $args $at+1]
  set args [lreplace $args $at $at+1]
  puts "$side $clock [expr double([lindex $args 0])]"
}
proc set_input_delay {args} {delay input {*}$args}
proc set_output_delay {args} {delay output {*}$args}
"""


@pytest.mark.skipif(shutil.which("tclsh") is None, reason="no Tcl interpreter here")
@pytest.mark.parametrize("name", [*VARIANTS, "usual"])
def test_tcl_says_the_same(name, tmp_path):
    text = SDC if name == "usual" else VARIANTS[name]
    (tmp_path / "x.tcl").write_text(TCL + text)
    said = subprocess.run(["tclsh", str(tmp_path / "x.tcl")], capture_output=True, text=True, check=True).stdout
    found = parse_sdc(text)
    ours = [("clock", c.name, c.period) for c in found.clocks]
    ours += [(d.direction, d.clock, d.delay) for d in found.io_delays]
    theirs = [line.split() for line in said.splitlines()]
    assert [(a, b, pytest.approx(float(c))) for a, b, c in theirs] == ours


def test_several_clocks():
    text = "create_clock -name a -period 300 [get_ports c1]\ncreate_clock -name b -period 500 [get_ports c2]\n"
    assert [c.period for c in parse_sdc(set_period(text, 444, "b")).clocks] == [300, 444]
    assert [c.period for c in parse_sdc(set_period(text, 444)).clocks] == [444, 500]
    with pytest.raises(FlowError, match="no such clock"):
        set_period(text, 444, "c")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("exec rm -rf x", "not allowed"),
        ("source other.sdc", "not allowed"),
        ("proc f {} {}", "not allowed"),
        ("if {1} {set a 1}", "not allowed"),
        ("foreach x {1 2} {}", "not allowed"),
        ("set a [exec date]", "this command is not allowed"),
        ("set a [open |date]", "this command is not allowed"),
        ("set a $undefined", "unknown variable"),
        ("set a $::env(HOME)", "not a plain variable"),
        ("set a $x(1)", "not a plain variable|unknown variable"),
        ("set a [expr {[exec date]}]", "not plain arithmetic"),
        ("set a [expr 2**9]", "not plain arithmetic"),
        ("set a [expr 1/0]", "not plain arithmetic"),
        ("set a [expr pow(2,3)]", "not plain arithmetic"),
        ("set a [expr ]", "expr without"),
        ("set a [expr 010 * 2]", "leading zero"),
        ("set a {", "not closed"),
        ('set a "x', "not closed"),
        ("set a [all_inputs", "not closed"),
        ("set a b c", "set takes"),
        ("$clk_name x", "must be plain"),
        ("[all_inputs] x", "must be plain"),
        ("set a \\x41", "no backslashes"),
        ("create_clock -name d [get_ports clk]", "needs -period"),
        ("create_clock -name d -period -5", "not a number in range"),
        ("create_clock -name d -period nan", "not a number in range"),
        ("create_clock -name d -period 1e99", "not a number in range"),
        ("create_clock -name core_clock -period 5", "two clocks"),
        ("create_clock -period 5", "needs -name"),
        ("create_clock -name d -period 5 [all_inputs]", "needs one port"),
        ("set_input_delay 5 -clock other [all_inputs]", "unknown clock"),
        ("set_input_delay 5 [all_inputs]", "needs a delay"),
        ("set_input_delay 5 -clock core_clock -magic [all_inputs]", "unknown or repeated option"),
        ("set_max_fanout 0 [current_design]", "not a number in range"),
        ("set_max_fanout 2.5 [current_design]", "not a whole number"),
        ("set_max_fanout 5", "takes a number"),
        ("set_false_path", "takes -from"),
    ],
)
def test_refused_lines_are_named(line, reason):
    with pytest.raises(FlowError, match=rf"line {SDC.count(chr(10)) + 1}: .*({reason})"):
        parse_sdc(SDC + line + "\n")


def test_a_design_needs_a_clock():
    with pytest.raises(FlowError, match="no clock"):
        parse_sdc("set a 1\n")


def test_deep_nesting_is_refused():
    with pytest.raises(FlowError, match="too many nested"):
        parse_sdc("set a " + "[list " * 5000 + "]" * 5000)
    with pytest.raises(FlowError, match="not plain arithmetic"):
        parse_sdc("set a [expr " + "(" * 100_000 + "1" + ")" * 100_000 + "]\n")


def test_editing_keeps_everything_else():
    assert set_period(SDC, 250) == SDC.replace("clk_period 300", "clk_period 250")
    assert set_io_fraction(SDC, 0.25) == SDC.replace("clk_io_pct 0.2", "clk_io_pct 0.25")
    with_bound = set_max_fanout(SDC, 12)
    assert with_bound == SDC + "set_max_fanout 12 [current_design]\n"
    assert set_max_fanout(with_bound, 7) == with_bound.replace("12", "7")
    assert parse_sdc(set_max_fanout(with_bound, None)).max_fanout is None


def test_one_direction():
    text = SDC.replace(
        "[expr $clk_period * $clk_io_pct] -clock $clk_name [all", "[expr $clk_period*0.2] -clock $clk_name [all"
    )
    found = parse_sdc(set_io_fraction(text, 0.4, "output"))
    assert {(d.direction, round(d.fraction, 6)) for d in found.io_delays} == {("input", 0.2), ("output", 0.4)}
    with pytest.raises(FlowError, match="no delays"):
        set_io_fraction("create_clock -name c -period 5\n", 0.3)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["period", "io", "fanout"]), st.integers(1, 900)), max_size=8))
def test_any_sequence_of_edits_reads_back(edits):
    text, period, share, fanout = SDC, 300.0, 0.2, None
    for what, n in edits:
        if what == "period":
            period = n / 2 + 10
            text = set_period(text, period)
        elif what == "io":
            share = n / 1000
            text = set_io_fraction(text, share)
        else:
            fanout = n
            text = set_max_fanout(text, fanout)
    found = parse_sdc(text)
    assert (found.period, found.max_fanout) == (period, fanout)
    assert found.io_fraction == pytest.approx(share)
    assert [d.ports for d in found.io_delays] == [d.ports for d in parse_sdc(SDC).io_delays]


@settings(max_examples=200)
@given(st.text(alphabet='set $[]{}"#;\\\n ab1-', max_size=60))
def test_any_text_is_read_or_refused(text):
    try:
        parse_tcl(text)
        parse_sdc(text)
    except FlowError:
        pass


@pytest.mark.real
def test_public_values_parse():
    facts = json.loads((Path(os.environ["EDAGYM_REAL_DATA"]) / "posteda-dev" / "ppa_facts.json").read_text())
    for row in facts:
        given_values = row["sdc"]
        text = SDC.replace("clk_period 300", f"clk_period {given_values['clock_period_ps']}")
        if given_values["virtual_clock"]:
            text = text.replace("-period $clk_period $clk_port", "-period $clk_period")
        if given_values["io_delay_fraction"] is None:
            text = "\n".join(line for line in text.splitlines() if "put_delay" not in line)
        if given_values["false_path_io"]:
            text += "\nset_false_path -from [all_inputs]\nset_false_path -to [all_outputs]\n"
        if "max_fanout" in given_values:
            text += f"\nset_max_fanout {given_values['max_fanout']} [current_design]\n"
        found = parse_sdc(text)
        assert found.period == float(given_values["clock_period_ps"])
        assert (found.io_fraction is None) == (given_values["io_delay_fraction"] is None)
        assert bool(found.false_paths) == given_values["false_path_io"]
        assert found.max_fanout == (int(given_values["max_fanout"]) if "max_fanout" in given_values else None)
