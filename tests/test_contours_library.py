"""The shipped library of real contours."""

import pickle
from collections import Counter

import pytest
from shapely import Polygon

from edagym.errors import TaskError
from edagym.task_assets.fet.contours import TIERS, Contour, load_library, tier_of
from edagym.task_assets.fet.contours.library import contours_from_json, contours_to_json, normalized
from edagym.task_assets.fet.grid import ring_to_dbu, ring_to_um

SQUARE = ((0.0, 0.0), (2.0, 0.0), (2.0, 2.0), (0.0, 2.0))


def test_every_contour_is_a_sound_polygon() -> None:
    for c in load_library():
        shape = Polygon(c.hull, c.holes)
        assert shape.is_valid, c.id
        assert Polygon(c.hull).exterior.is_ccw, c.id
        assert shape.bounds[:2] == (0.0, 0.0), c.id
        assert 4 <= c.n_vertices <= 51, c.id
        assert len(set(c.hull)) == c.n_vertices, c.id
        for ring in (c.hull, *c.holes):
            assert ring_to_um(ring_to_dbu(ring)) == ring, c.id
        assert c.area_um2 == pytest.approx(shape.area)
        assert c.outer_area_um2 == pytest.approx(Polygon(c.hull).area)
        assert 26.5 <= c.outer_area_um2 <= 800.0, c.id
        assert max(c.size_um) > 16.0, c.id
        hull = Polygon(c.hull).convex_hull.area
        assert c.solidity == pytest.approx(c.outer_area_um2 / hull, abs=1e-4)
        assert c.tier == tier_of(c.solidity)


def test_provenance_is_complete_and_ids_are_unique() -> None:
    library = load_library()
    assert len({c.id for c in library}) == len(library)
    # No outline twice: masks win over micrographs, and duplicates of the dataset are not copied.
    assert len({(c.hull, c.holes) for c in library}) == len(library)
    for c in library:
        p = c.provenance
        assert c.id == f"{c.source}:{p['set']}/{p['file'].split('-')[0]}:{p['component']}"
        assert p["image"] == f"{p['set']}/{p['file']}"
        assert p["method"] == {"mask": "mask", "micrograph": "colour contrast"}[c.source]
        assert isinstance(p["thick"], bool)
        assert not (c.source == "mask" and p["thick"])
        assert len(p["origin_px"]) == 2
        assert p["pixel_area"] >= 300
        if c.source == "micrograph":
            assert p["thick"] == (p["contrast_rgb"][0] + p["contrast_rgb"][1] > 0)


def test_library_is_as_large_as_its_data_card_says() -> None:
    library = load_library()
    assert Counter((c.source, c.tier) for c in library) == {
        ("mask", "G1"): 8,
        ("mask", "G2"): 7,
        ("mask", "G3"): 3,
        ("micrograph", "G1"): 77,
        ("micrograph", "G2"): 68,
        ("micrograph", "G3"): 21,
    }
    assert sum(c.provenance["thick"] for c in library) == 152
    assert sum(bool(c.holes) for c in library) == 7


def test_loading_is_cached_and_contours_travel_to_workers() -> None:
    assert load_library() is load_library()
    c = load_library()[0]
    assert pickle.loads(pickle.dumps(c)) == c
    assert hash(c) == hash(pickle.loads(pickle.dumps(c)))


def test_json_round_trip() -> None:
    library = load_library()
    assert contours_from_json(contours_to_json(library)) == library


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[]",
        '{"schema_version": 99, "contours": []}',
        '{"schema_version": 1, "contours": [{"id": "x"}]}',
        '{"schema_version": 1, "contours": [{"id":"x","source":"mask","hull":[0,0,1],"holes":[],"provenance":{}}]}',
        '{"schema_version": 1, "contours": [{"id":"x","source":"mask","hull":[0,0,1,1],"holes":[],"provenance":{}}]}',
        '{"schema_version": 1, "contours": [{"id":"x","source":"?","hull":[0,0,1,0,1,1],"holes":[],"provenance":{}}]}',
    ],
)
def test_malformed_library_is_a_task_error(text: str) -> None:
    with pytest.raises(TaskError):
        contours_from_json(text)


def test_figures_of_a_square_with_a_hole() -> None:
    hole = ((0.5, 0.5), (1.0, 0.5), (1.0, 1.0), (0.5, 1.0))
    c = Contour("procedural:x", SQUARE, (hole,), "procedural")
    assert (c.outer_area_um2, c.area_um2, c.solidity, c.tier, c.n_vertices) == (4.0, 3.75, 1.0, "G1", 4)
    assert c.size_um == (2.0, 2.0)


def test_tier_limits() -> None:
    assert [tier_of(s) for s in (1.0, 0.9, 0.8999, 0.75, 0.7499, 0.1)] == ["G1", "G1", "G2", "G2", "G3", "G3"]
    assert set(TIERS) == {"G1", "G2", "G3"}


def test_normalized_moves_orients_and_fixes_the_start() -> None:
    ring = ((10, 30), (30, 30), (30, 10), (10, 10))  # clockwise
    for k in range(4):
        hull, holes = normalized(ring[k:] + ring[:k], [])
        assert hull == ((0.0, 0.0), (0.02, 0.0), (0.02, 0.02), (0.0, 0.02))
        assert holes == ()
