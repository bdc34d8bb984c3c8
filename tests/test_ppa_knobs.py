"""The knob table: every row is sound, values survive a round trip, ranges hold; the reference page shows them all."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from edagym.spaces.knobs import MAX_KNOBS, KnobSpace, arrangements, knob_rows, normalise, number_at, position
from edagym.spaces.ppa_actions import MAX_CHOICES
from edagym.task_assets.ppa.config import parse_config
from edagym.task_assets.ppa.knobs import STRUCTURAL, TYPES, Knob, knob_table, number_text, reference_page
from edagym.task_assets.ppa.sdc import parse_sdc

TABLE = knob_table()
every_knob = pytest.mark.parametrize("name", TABLE)

MODELLED = {
    "ABC_AREA", "ASAP7_USE_VT", "CORE_ASPECT_RATIO", "CORE_AREA", "CORE_MARGIN", "CORE_UTILIZATION", "CORNER",
    "CTS_CLUSTER_SIZE", "DIE_AREA", "DONT_BUFFER_INPUTS", "DONT_BUFFER_OUTPUTS", "GPL_TIMING_DRIVEN", "PLACE_DENSITY",
    "HOLD_SLACK_MARGIN", "PLACE_DENSITY_LB_ADDON", "RECOVER_POWER", "SETUP_SLACK_MARGIN", "SKIP_BUFFERING",
    "SKIP_BUFFER_REMOVAL", "SKIP_CRIT_VT_SWAP", "SKIP_CTS_REPAIR_TIMING", "SKIP_GATE_CLONING", "SKIP_LAST_GASP",
    "SKIP_PIN_SWAP", "SKIP_VT_SWAP", "TNS_END_PERCENT",
}  # fmt: skip


TEXTS = {
    "ABC_DRIVER_CELL": "BUFx2_ASAP7_75t_R",
    "SYNTH_ARGS": "-booth -nofsm",
    "ROUTE_EFFORT": "high",
    "DETAILED_ROUTE_ARGS": "-droute_end_iter 5 -clean_patches -repair_pdn_vias M5",
    "REPAIR_PDN_VIA_LAYER": "M5",
    "REMOVE_CELLS_FOR_EQY": "TAPCELL* FILLER*",
}


def sample(knob: Knob) -> str:
    """A text that the knob takes, other than its default."""
    if knob.type == "bool":
        return str(int(not knob.default))
    if knob.type == "choice":
        return next(c for c in knob.choices if c != knob.default)
    if knob.type == "vts":
        return "SLVT RVT"
    if knob.type == "text":
        return TEXTS[knob.name]
    if knob.type == "box":
        return "0 0.5 16.2 20"
    if knob.type == "pair":
        return "2 3"
    low = 0 if knob.min is None else knob.min
    high = 1 if knob.max is None else knob.max
    return number_text(round(low + 0.25 * (high - low)) if knob.type == "int" else low + 0.25 * (high - low))


@every_knob
def test_row(name):
    knob = TABLE[name]
    assert knob.type in TYPES
    assert knob.meaning.endswith(".")
    assert bool(knob.choices) == (knob.type in ("choice", "vts"))
    assert bool(knob.pattern) == bool(knob.form) == (knob.type == "text")
    if knob.default is not None:
        assert knob.parse(knob.text(knob.default)) == knob.default
    assert knob.parse("  ") is None
    text = sample(knob)
    value = knob.parse(text)
    assert value != knob.default
    assert knob.parse(knob.text(value)) == value


def test_what_is_modelled():
    assert {n for n, k in TABLE.items() if k.modelled} == MODELLED
    assert not set(STRUCTURAL) & set(TABLE)
    assert len(TABLE) <= MAX_KNOBS


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("CORE_UTILIZATION", "101"),
        ("CORE_UTILIZATION", "0"),
        ("CORE_UTILIZATION", "nan"),
        ("CORE_UTILIZATION", "1_0"),
        ("CORE_UTILIZATION", "40 50"),
        ("CORE_UTILIZATION", "forty"),
        ("CORE_UTILIZATION", "٤٠"),
        ("PLACE_DENSITY", "-0.1"),
        ("PLACE_DENSITY", "inf"),
        ("TNS_END_PERCENT", "100.5"),
        ("ABC_AREA", "2"),
        ("ABC_AREA", "true"),
        ("CTS_CLUSTER_SIZE", "2.5"),
        ("ASAP7_USE_VT", "HVT"),
        ("ASAP7_USE_VT", "RVT RVT"),
        ("CORNER", "TT"),
        ("DIE_AREA", "0 0 10"),
        ("DIE_AREA", "10 0 0 10"),
        ("CORE_AREA", "0 0 10 x"),
    ],
)
def test_refused_values(name, text):
    with pytest.raises(ValueError, match=TABLE[name].allowed.split()[0]):
        TABLE[name].parse(text)


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize(
    "text",
    [
        "x; touch y",
        "[exec touch y]",
        "$(shell x)",
        "${X}",
        "`x`",
        "a | b",
        "a > b",
        "{x}",
        '"x"',
        "../x",
        "/x",
        "a\\b",
        "é",
    ],
)
def test_texts_are_of_a_form(name, text):
    for value in (text, f"{TEXTS[name]} {text}", f"{TEXTS[name]}{text}"):
        with pytest.raises(ValueError, match=TABLE[name].form[:5]):
            TABLE[name].parse(value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("SYNTH_ARGS", "-top other"),
        ("SYNTH_ARGS", "-run fine:"),
        ("SYNTH_ARGS", "-extra-map x.v"),
        ("SYNTH_ARGS", "-booth-nofsm"),
        ("DETAILED_ROUTE_ARGS", "-output_drc x"),
        ("DETAILED_ROUTE_ARGS", "-distributed -remote_host example.org"),
        ("DETAILED_ROUTE_ARGS", "-or_seed 1 x"),
        ("ROUTE_EFFORT", "high low"),
    ],
)
def test_options_that_name_files_or_leave_steps_out_are_refused(name, text):
    with pytest.raises(ValueError, match=TABLE[name].form[:5]):
        TABLE[name].parse(text)


def test_reference_page():
    page = reference_page()
    for name, knob in TABLE.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        assert knob.meaning in row
        assert ("no effect" in row) != knob.modelled
    assert all(name in page for name in STRUCTURAL)


@every_knob
def test_places_in_the_range(name):
    knob = TABLE[name]
    if knob.type not in ("float", "int") or knob.min is None or knob.max is None:
        return
    for place in (0.0, 0.3, 1.0):
        number = number_at(knob, place)
        assert knob.parse(number_text(number)) is not None
        if knob.type == "float":
            assert position(knob, number) == pytest.approx(place, abs=1e-3)


def test_space_round_trip():
    config = "export DESIGN_NAME = x\n" + "".join(f"export {n} = {sample(k)}\n" for n, k in TABLE.items())
    setting = parse_config(config)
    arrays = KnobSpace.encode(setting, parse_sdc("create_clock -name c -period 250\nset_max_fanout 9 [current_design]"))
    assert arrays in KnobSpace()
    again = KnobSpace.decode(arrays)
    for name, text in again.items():
        value, expected = TABLE[name].parse(text), setting.value(name)
        if isinstance(expected, float):
            assert value == pytest.approx(expected, rel=1e-3), name
        elif isinstance(expected, tuple) and isinstance(expected[0], float):
            assert value == pytest.approx(expected, rel=1e-3, abs=0.1), name
        elif TABLE[name].type != "int":
            assert value == expected, name
    assert set(again) == {n for n, k in TABLE.items() if k.type != "text"}
    assert arrays["clock_period"][0] == 250
    assert arrays["max_fanout"][0] == 9
    assert arrays["io_fraction"].tolist() == [-1, -1]


def test_arrangements():
    found = arrangements(TABLE["ASAP7_USE_VT"])
    assert len(found) == 15 <= MAX_CHOICES
    assert found[:4] == (("RVT",), ("LVT",), ("SLVT",), ("RVT", "LVT"))
    rows = {normalise(TABLE["ASAP7_USE_VT"], f) for f in found}
    assert len(rows) == 15


def test_defaults_are_observed():
    arrays = KnobSpace.encode(parse_config("export DESIGN_NAME = x\n"), parse_sdc("create_clock -name c -period 250"))
    rows = knob_rows()
    assert not arrays["knob_set"].any()
    assert arrays["knob_values"][rows["GPL_TIMING_DRIVEN"], 0] == 1
    assert arrays["knob_values"][rows["CORE_UTILIZATION"]].tolist() == [-1] * 4
    assert arrays["knob_values"][rows["ASAP7_USE_VT"], :3].tolist() == [1, 0, 0]
    assert (arrays["knob_values"][len(TABLE) :] == -1).all()
    assert np.isfinite(arrays["knob_values"]).all()


def test_normalise_stays_inside():
    knob = dataclasses.replace(TABLE["SETUP_SLACK_MARGIN"])
    assert normalise(knob, 1e9)[0] == 1
    assert normalise(knob, -1e9)[0] == 0
