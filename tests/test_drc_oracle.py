"""The engine against the sign-off deck's own items on 230 small layouts (needs EDAGYM_REAL_DATA)."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import klayout.db as kdb
import pytest

from edagym.verifiers.drc import DRCLayout, Marker, full_check, load_table

pytestmark = pytest.mark.real

# On these the deck's hierarchical mode cuts overlapping raw shapes into other pieces; the covered area is the same.
OTHER_PIECES = {
    "AND4x2_ASAP7_75t_R__m112.gds": {"V0.S.2"},
    "AO33x2_ASAP7_75t_R__m176.gds": {"NSELECT.PSELECT.AUX.1"},
    "OR3x4_ASAP7_75t_R__m076.gds": {"ACTIVE.W.2"},
    "clip011_M2.gds": {"V2.S.2"},
    "clip055_M8.gds": {"V8.AUX.1"},
    "clip104_M4.gds": {"V4.AUX.1"},
}
_PARSERS = {"polygon": kdb.DPolygon, "edge": kdb.DEdge, "edge-pair": kdb.DEdgePair}


@pytest.fixture(scope="module")
def oracle() -> list[tuple[Path, dict]]:
    folder = Path(os.environ["EDAGYM_REAL_DATA"]) / "drc" / "oracle"
    return [(folder / "gds" / e["gds"], e) for e in json.loads((folder / "oracle.json").read_text())]


def merged(objects) -> tuple[kdb.Region, kdb.Edges]:
    region, edges = kdb.Region(), kdb.Edges()
    for o in objects:
        if isinstance(o, kdb.Edge):
            edges.insert(o)
        else:
            region.insert(o.polygon(0) if isinstance(o, kdb.EdgePair) else o)
    return region.merged(), edges.merged()


def same_geometry(found: list[Marker], expected: list[str], dbu: float) -> bool:
    mine = merged(m.to_klayout() for m in found)
    parsed = (text.split(": ", 1) for text in expected)
    theirs = merged(_PARSERS[kind].from_s(value).to_itype(dbu) for kind, value in parsed)
    # One database unit of rounding: what is left of the difference after shrinking it by that much.
    return (mine[0] ^ theirs[0]).sized(-1).is_empty() and (mine[1] ^ theirs[1]).is_empty()


def test_oracle(oracle):
    table = load_table("asap7")
    assert len(oracle) == 230
    counts_differ = {}
    categories = set()
    for path, entry in oracle:
        layout = DRCLayout.from_gds(path)
        report = full_check(layout, table)
        expected: dict[str, list[str]] = {}
        for rule, texts in entry["items"]:
            expected.setdefault(rule, []).extend(texts)
        found: dict[str, list[Marker]] = {}
        for m in report.flat:
            found.setdefault(m.rule, []).append(m)
        assert set(found) == set(expected), path.name
        for rule, texts in expected.items():
            assert same_geometry(found[rule], texts, layout.dbu), (path.name, rule)
        categories |= set(found)
        flat = dict(Counter(m.rule for m in report.flat))
        if flat != entry["counts"]:
            counts_differ[path.name] = {r for r in flat if flat[r] != entry["counts"][r]}
    assert counts_differ == OTHER_PIECES
    assert len(categories) == 136
