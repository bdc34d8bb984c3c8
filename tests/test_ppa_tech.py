"""Technology data: coding, relations between cells, Liberty parser and writer."""

import json
import math
import os
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest

from edagym.cli import main
from edagym.envs.ppa.flow.characterise import characterise
from edagym.errors import TaskError
from edagym.task_assets.ppa import liberty, technology
from edagym.task_assets.ppa.technology import VTS, load_technology


@pytest.fixture(scope="module")
def tech():
    return load_technology()


def test_codes_keep_signed_values_to_the_stated_error():
    values = np.concatenate([-np.geomspace(1e-3, 900, 400), [0.0], np.geomspace(1e-3, 900, 400)]).reshape(-1, 3)
    codes, step = technology.encode(values, 1.0)
    back = technology.decode(codes, 1.0, step)
    assert codes.dtype == np.int16
    assert np.max(np.abs(back - values) / (np.abs(values) + 1.0)) < 1.5e-4


def test_every_threshold_has_the_same_cells(tech):
    names = {vt: {m.name.rsplit("_", 1)[0] for m in tech.masters if m.vt == vt} for vt in VTS}
    assert names["RVT"] == names["LVT"] == names["SLVT"]
    assert len(names["RVT"]) == 122
    assert tech.voltage == 0.77
    for master in tech.masters:
        assert {tech.masters[i].vt for i in master.variants.values()} == set(VTS)
        for other in master.variants.values():
            assert tech.masters[other].area == master.area
            assert tech.masters[other].pins == master.pins


def test_lower_thresholds_are_faster_and_leak_more(tech):
    mean = []
    for vt in VTS:
        cells = [m for m in tech.masters if m.vt == vt and m.arcs]
        tables = sorted({arc.table for m in cells for arc in m.arcs})
        mean.append((tech.pairs[tables, :, :, 0].mean(), np.mean([m.leakage for m in cells])))
    assert mean[0][0] > mean[1][0] > mean[2][0]
    assert mean[0][1] < mean[1][1] < mean[2][1]


def test_functions_symmetric_pins_and_sizes(tech):
    nand, aoi, full = tech["NAND2x1"], tech["AOI22x1"], tech["FAx1"]
    assert nand.functions == (0b0111,)
    assert nand.symmetric == ((0, 1),)
    assert aoi.symmetric == ((0, 1), (2, 3))
    assert full.outputs == ("CON", "SN")
    assert full.functions[1] == sum(1 << m for m in range(8) if bin(m).count("1") % 2 == 0)
    assert tech["BUFx2"].kind == "buf"
    assert tech["INVx1"].kind == "inv"
    drives = [tech.masters[i].drive for i in tech["INVx1"].sizes]
    assert drives == sorted(drives)
    assert tech["HAxp5"].dont_use
    assert not any(tech.masters[i].dont_use for i in tech["NAND2x1"].sizes)


def test_registers_take_over_their_data(tech):
    plain, reset = tech["DFFHQNx1"], tech["DFFASRHQNx1"]
    assert plain.kind == "ff"
    assert plain.register.active == technology.RISE
    assert plain.register.function == (0b0011,)
    assert tech["DFFLQNx1"].register.active == technology.FALL
    assert reset.register.clear
    assert reset.register.preset
    assert tech["DHLx1"].kind == "latch"
    kinds = {(check.hold, check.data_edge) for check in plain.checks}
    assert kinds == {(False, 0), (False, 1), (True, 0), (True, 1)}


def test_area_is_a_whole_number_of_sites(tech):
    for master in tech.masters:
        assert math.isclose(master.width * technology.ROW_HEIGHT, master.area, rel_tol=1e-9)


def test_expressions():
    assert liberty.truth_table("(A * B) + !C", ["A", "B", "C"]) == sum(
        1 << m for m in range(8) if (m & 1 and m & 2) or not m & 4
    )
    assert liberty.truth_table("A ^ B'", ["A", "B"]) == 0b1001
    assert liberty.truth_table("A B", ["A", "B"]) == 0b1000
    assert liberty.truth_table("!(A | B) & 1", ["A", "B"]) == 0b0001
    for wrong in ("A +", "(A", "Q", "A)"):
        with pytest.raises(TaskError):
            liberty.truth_table(wrong, ["A", "B"])


def test_parser_reads_continuations_comments_and_lists():
    text = """/* c */ library (x) { // line
      time_unit : "1ps"; capacitive_load_unit (1, ff);
      cell (A) { area : 1.5; pin (Y) { direction : output; timing () { cell_rise (t) { values ("1, 2", \\
        "3, 4"); } } } } }"""
    library = liberty.parse(text)
    (cell,) = library.inner("cell")
    assert cell.number("area") == 1.5
    table = cell.inner("pin")[0].inner("timing")[0].inner("cell_rise")[0]
    assert liberty.numbers(table.attributes["values"]).tolist() == [[1, 2], [3, 4]]
    assert library.attributes["capacitive_load_unit"] == ["1", "ff"]
    with pytest.raises(TaskError):
        liberty.parse("library (x) { cell (A) {")
    with pytest.raises(TaskError):
        liberty.parse("cell (A) { }")


def test_characterisation_of_the_written_library_gives_the_same_numbers(tech, tmp_path, capsys):
    """Write Liberty, characterise it, compare: the way of a user with a checkout of the real flow."""
    for vt in VTS:
        text = liberty.write(tech, vt, power=True)
        assert text == liberty.write(tech, vt, power=True)
        (tmp_path / f"asap7_{vt}_FF.lib").write_text(text)
    assert main(["generate", "ppa-tech", "--liberty", str(tmp_path), "--out", str(tmp_path / "out"), "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["files"]) == {f"asap7_{vt}_FF.npz" for vt in VTS}
    again = technology.read_technology([tmp_path / "out" / f"asap7_{vt}_FF.npz" for vt in VTS], "FF")
    assert again.index == tech.index
    # Coded values survive the way through Liberty's six digits, so the files are the shipped ones, byte by byte.
    assert again.digest == tech.digest


def test_characterisation_needs_all_thresholds(tmp_path):
    with pytest.raises(TaskError):
        characterise(tmp_path, tmp_path / "out")


def test_worst_of_side_conditions_and_sum_of_supplies(tmp_path, tech):
    """Two tables under `when` keep the larger value, the energies of two supply pins are added."""
    lines = []
    for vt in VTS:
        suffix = technology.SUFFIXES[vt]
        square = ", ".join('"' + ", ".join(["{v}"] * 7) + '"' for _ in range(7))
        timing = (
            'timing () {{ related_pin : "A"; timing_sense : negative_unate; when : "{w}";'
            " cell_rise (d) {{ values (" + square + "); }} rise_transition (d) {{ values (" + square + "); }} }}"
        )
        energy = (
            'internal_power () {{ related_pin : "A"; related_pg_pin : "{pg}"; rise_power (d) {{ values ('
            + square
            + "); }} }}"
        )
        lines = [
            "library (x) { nom_voltage : 0.77;",
            'lu_table_template (d) { index_1 ("5,10,20,40,80,160,320");',
            'index_2 ("0.72,1.44,2.88,5.76,11.52,23.04,46.08"); }',
            f"cell (INVx1_ASAP7_75t_{suffix}) {{ area : 0.04374; leakage_power () {{ value : 3; }}",
            'leakage_power () { value : 9; when : "A"; }',
            'pin (Y) { direction : output; function : "!A"; max_capacitance : 46.08;',
            timing.format(w="B", v=10.0),
            timing.format(w="!B", v=12.0),
            energy.format(pg="VDD", v=0.5),
            energy.format(pg="VSS", v=0.25),
            "} pin (A) { direction : input; capacitance : 0.6; } } }",
        ]
        (tmp_path / f"asap7sc7p5t_INVBUF_{vt}_FF_nldm_220122.lib").write_text("\n".join(lines))
    characterise(tmp_path, tmp_path)
    made = technology.read_technology([tmp_path / f"asap7_{vt}_FF.npz" for vt in VTS], "FF")
    master = made["INVx1"]
    assert master.leakage == 3
    assert {arc.target_edge for arc in master.arcs} == {technology.RISE}
    assert made.pairs[master.arcs[0].table] == pytest.approx(np.full((7, 7, 2), 12.0), rel=2e-4)
    assert made.energies[master.power[0].rise] == pytest.approx(np.full((7, 7), 0.75), rel=2e-4)


def test_technology_pickles_as_a_reference(tech):
    data = pickle.dumps(tech)
    assert len(data) < 500
    assert pickle.loads(data) is tech


def test_unknown_corner_and_broken_file(tmp_path):
    with pytest.raises(TaskError):
        load_technology("XX")
    (tmp_path / "a.npz").write_bytes(b"nothing")
    with pytest.raises(TaskError):
        technology.read_archive(tmp_path / "a.npz")


@pytest.mark.real
def test_coding_error_of_the_shipped_data():
    """The bounds of the data card hold, and the shipped files are what the command makes."""
    source = Path(os.environ["EDAGYM_REAL_DATA"]) / "ppa" / "liberty"
    if not source.is_dir():
        pytest.skip("no Liberty files")
    shipped = Path(technology.__file__).parent / "tech"
    with tempfile.TemporaryDirectory() as out:
        report = characterise(source, Path(out))
        bounds = {"pairs": 1.3e-4, "constraints": 7.3e-5, "energies": 1.4e-4, "input_energies": 1.1e-4}
        for name, item in report.items():
            assert (Path(out) / name).read_bytes() == (shipped / name).read_bytes()
            assert item["bytes"] < 210_000
            for kind, bound in bounds.items():
                assert item["max_error"][kind] <= bound
