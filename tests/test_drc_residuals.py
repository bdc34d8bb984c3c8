"""Residual violations of careless work: every piece violates something, nets stay as they are."""

from __future__ import annotations

import numpy as np
import pytest
from drc_netlist import device_counts, extract, labels

from edagym.envs.drc.residual import generate_residual
from edagym.errors import TaskError
from edagym.task_assets.drc.blocks import gds_bytes, generate_block
from edagym.task_assets.drc.cells import cell_library, get_cell
from edagym.task_assets.drc.residuals import KINDS, WIDENABLE, roughen
from edagym.verifiers.drc import DRCLayout, full_check, load_table

EXPECTED = {
    "tip-to-tip": {"M4.S.2", "M4.S.3", "M4.S.4", "M5.S.2", "M5.S.3", "M5.S.4", "M6.S.2", "M6.S.3", "M6.S.4"},
    "corner-to-corner": {"M2.S.6", "M3.S.6", "M4.S.3", "M4.S.4", "M5.S.3", "M5.S.4", "M6.S.3", "M6.S.4"},
    "parallel-run": {"M4.S.5", "M5.S.5"},
    "via-on-wide-wire": {"V3.M4.AUX.2", "V4.M5.AUX.2", "V6.M7.AUX.2"},
    "stub": {"M2.A.1"},
    "abutment": {"M1.S.1"},
}


@pytest.mark.parametrize("kind", sorted(EXPECTED))
@pytest.mark.parametrize("seed", [1, 2])
def test_kinds_violate_what_they_are_named_after(kind: str, seed: int) -> None:
    layout, record = generate_residual(np.random.default_rng(seed), kinds=[kind])
    counts = full_check(DRCLayout(layout), load_table("asap7")).counts
    assert counts == record.counts
    assert set(counts) <= EXPECTED[kind]
    assert [piece.kind for piece in record.pieces] == [kind]


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - EXPECTED.keys()))
def test_other_kinds_violate_something(kind: str) -> None:
    _, record = generate_residual(np.random.default_rng(1), kinds=[kind])
    assert 1 <= sum(record.counts.values()) <= 8


def test_several_pieces_keep_nets_and_devices() -> None:
    rng = np.random.default_rng(4)
    base = generate_block(rng, rows=3, width_cpp=40, top_metal="M7", n_fill=3, n_nets=16)
    layout, record = generate_residual(rng, base=base, n=5)
    assert len(record.pieces) == 5
    assert len({piece.owner for piece in record.pieces}) == 5
    assert len(record.to_dict()["pieces"]) == 5
    golden, found = extract(base.layout()), extract(layout)
    assert device_counts(found) == device_counts(golden)
    assert sorted(map(sorted, labels(found))) == sorted(map(sorted, labels(golden)))


def test_equal_seeds_give_equal_bytes() -> None:
    first, second = (generate_residual(np.random.default_rng(9), n=2, width_cpp=24)[0] for _ in range(2))
    assert gds_bytes(first) == gds_bytes(second)


def test_rough_work_can_find_nothing() -> None:
    block = generate_block(np.random.default_rng(1), rows=1, width_cpp=12, n_nets=0)
    same, done = roughen(np.random.default_rng(1), block, ["tip-to-tip", "patch"], 2)
    assert done == ()
    assert same.gds() == block.gds()
    with pytest.raises(TaskError):
        generate_residual(np.random.default_rng(1), base=block, kinds=["patch"], tries=3)
    with pytest.raises(TaskError):
        generate_residual(np.random.default_rng(1), kinds=["earthquake"])


def test_widened_cells_differ_in_one_box() -> None:
    for name in WIDENABLE:
        wide, plain = get_cell(f"{name}_w10"), cell_library()[name]
        assert {layer: boxes for layer, boxes in wide.boxes.items() if layer != "M1"} == {
            layer: boxes for layer, boxes in plain.boxes.items() if layer != "M1"
        }
        assert len(wide.boxes["M1"]) == len(plain.boxes["M1"]) + 1
        assert max(box[2] for box in wide.boxes["M1"]) <= plain.width
