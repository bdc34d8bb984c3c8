"""Real-contour pipeline on images that the tests draw themselves."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw
from shapely import Polygon

from edagym.errors import TaskError
from edagym.task_assets.fet.contours import generate_contours
from edagym.task_assets.fet.contours.library import contours_from_json
from edagym.task_assets.fet.contours.micrographs import background, doubt, micrograph_contour, segments
from edagym.task_assets.fet.contours.pipeline import components, contour_of, image_keys, placed, read_mask
from edagym.task_assets.fet.contours.smoothing import SCALE_UM, outline

HEIGHT, WIDTH = 480, 640
ROWS, COLS = np.mgrid[0:HEIGHT, 0:WIDTH]


def disc(row: float, col: float, radius: float) -> np.ndarray:
    return np.hypot(ROWS - row, COLS - col) <= radius


def polygon_mask(points: list[tuple[float, float]]) -> np.ndarray:
    image = Image.new("L", (WIDTH, HEIGHT))
    ImageDraw.Draw(image).polygon(points, fill=1)
    return np.asarray(image) > 0


def save_mask(folder: Path, mask: np.ndarray, stem: str = "aa11-x", name: str = "SetA") -> Path:
    path = folder / "masks" / name / f"{stem}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(mask.astype(np.uint8)).save(path)
    return path


def photo(rng: np.random.Generator, parts: list[tuple[np.ndarray, tuple[float, float, float]]]) -> np.ndarray:
    """A purple substrate with uneven light, blur and noise, and flakes of the given relative contrast on it."""
    light = 1.0 + 0.08 * (COLS / WIDTH - 0.5) - 0.06 * (ROWS / HEIGHT - 0.5) ** 2
    image = np.array([145.0, 130.0, 170.0]) * light[..., None]
    for where, contrast in parts:
        image = np.where(where[..., None], image * (1.0 + np.asarray(contrast)), image)
    padded = np.pad(image, ((1, 1), (1, 1), (0, 0)), mode="edge")
    image = sum(padded[1 + a : 1 + a + HEIGHT, 1 + b : 1 + b + WIDTH] for a in (-1, 0, 1) for b in (-1, 0, 1)) / 9.0
    return np.clip(image + rng.normal(0.0, 2.0, image.shape), 0, 255).astype(np.uint8)


def test_size_and_border_filter() -> None:
    mask = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
    mask[disc(100, 100, 35)] = 1  # kept: extent 71
    mask[disc(100, 300, 25)] = 2  # extent 51 only
    mask[(ROWS >= 200) & (ROWS < 203) & (COLS >= 50) & (COLS < 120)] = 3  # 210 pixels only
    mask[disc(300, 0, 40)] = 4  # touches the border
    mask[(ROWS >= 400) & (ROWS < 405) & (COLS >= 100) & (COLS < 160)] = 5  # exactly 300 pixels and 60 of extent: kept
    found = list(components(mask))
    assert len(found) == 5
    # Raster order of the first pixel: the two discs of the first rows, the small bar, the border disc, the limit bar.
    assert [c.kept for c in found].count(True) == 2
    assert {c.area for c in found if c.kept} == {int(disc(100, 100, 35).sum()), 300}
    assert [c.border for c in found].count(True) == 1


def test_eight_connected_labels_join_at_corners() -> None:
    mask = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
    mask[100:150, 100:150] = 1
    mask[150:200, 150:200] = 2
    assert len(list(components(mask))) == 1


def test_fragments_with_a_seam_are_one_outline() -> None:
    mask = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
    mask[100:160, 100:140] = 1
    mask[100:160, 141:180] = 2  # an unlabelled seam of one pixel ...
    mask[110, 140] = 1  # ... bridged at one place
    (component,) = components(mask)
    rings = outline(component.pixels)
    assert rings is not None
    assert Polygon(rings[0]).area == pytest.approx(80 * 60 * 293**2, rel=0.01)
    assert rings[1] == ()


def test_disc_keeps_area_within_the_smoothing_tolerance() -> None:
    (component,) = components(disc(200, 200, 40).astype(np.uint8))
    rings = outline(component.pixels)
    assert rings is not None
    area = Polygon(rings[0]).area / 1e6
    assert area == pytest.approx(component.area * SCALE_UM**2, rel=0.03)
    assert len(rings[0]) < 40


def test_ring_has_one_hole_and_pinholes_are_filled() -> None:
    shape = disc(200, 200, 50) & ~disc(200, 200, 12)
    shape[230, 200] = False  # one missing pixel
    (component,) = components(shape.astype(np.uint8))
    rings = outline(component.pixels)
    assert rings is not None
    assert len(rings[1]) == 1
    hole = Polygon(rings[1][0]).area / 1e6
    assert hole == pytest.approx(disc(200, 200, 12).sum() * SCALE_UM**2, rel=0.1)


def test_y_axis_points_up(tmp_path: Path) -> None:
    # An L whose foot is at the bottom right of the image must have its foot at the lower right of the contour.
    mask = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
    mask[100:200, 100:130] = 1
    mask[170:200, 100:180] = 1
    (component,) = components(mask)
    contour = contour_of(component, tmp_path / "SetA" / "f-1.png", "SetA/f", "mask", {"method": "mask", "thick": False})
    assert contour is not None
    shape = Polygon(contour.hull)
    assert shape.contains(Polygon([(20, 2), (22, 2), (22, 4), (20, 4)]))
    assert not shape.intersects(Polygon([(20, 20), (22, 20), (22, 22), (20, 22)]))
    assert contour.provenance["origin_px"] == [100.0, 200.0]
    assert placed(contour).bounds == pytest.approx((29.3, -58.6, 52.74, -29.3), abs=0.01)


def test_image_keys_stay_unique() -> None:
    paths = [
        Path("m/A/aa-1.png"),
        Path("m/A/aa-2.png"),
        Path("m/A/bb-1.png"),
        Path("p/A/bb-1.jpg"),
        Path("m/B/aa-1.png"),
    ]
    keys = image_keys(paths)
    assert keys == {("A", "aa-1"): "A/aa-1", ("A", "aa-2"): "A/aa-2", ("A", "bb-1"): "A/bb", ("B", "aa-1"): "B/aa"}


def test_unreadable_images_are_task_errors(tmp_path: Path) -> None:
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no image")
    with pytest.raises(TaskError, match="cannot read image"):
        read_mask(bad)
    Image.new("RGB", (4, 4)).save(bad)
    with pytest.raises(TaskError, match="one channel"):
        read_mask(bad)
    with pytest.raises(TaskError, match="no flake images"):
        generate_contours(tmp_path, tmp_path / "out", progress=False)


def test_background_follows_uneven_light() -> None:
    image = photo(np.random.default_rng(0), [(disc(200, 300, 60), (0.6, 0.8, 0.3))]).astype(np.float32)
    surface = background(image)
    clear = ~disc(200, 300, 66)
    assert np.abs((image - surface)[clear].mean(axis=0)).max() < 0.3
    left, right = surface[:, :20].mean(), surface[:, -20:].mean()
    assert right / left == pytest.approx(1.08, abs=0.01)


THIN = polygon_mask([(80, 80), (165, 95), (150, 150), (86, 140)])
THICK = polygon_mask([(330, 90), (420, 105), (400, 165), (345, 150)])
FAINT = polygon_mask([(100, 300), (185, 294), (195, 360), (112, 350)])


def test_colour_method_hugs_drawn_flakes(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    # Dirt: a speckled dark patch with ragged contrast.
    dirt = disc(340, 460, 45) & (rng.random((HEIGHT, WIDTH)) < 0.75)
    image = photo(
        rng,
        [
            (THIN, (-0.4, -0.3, -0.1)),
            (THICK, (0.6, 0.8, 0.3)),
            (FAINT, (-0.11, -0.08, -0.03)),
            (dirt, (-0.8, -0.75, -0.7)),
        ],
    )
    kept = []
    for segment in segments(image.astype(np.float32)):
        contour = micrograph_contour(segment, tmp_path / "SetA" / "f-1.jpg", "SetA/f")
        assert contour is not None
        if doubt(segment.quality, contour) is None:
            kept.append(contour)
    assert len(kept) == 3
    assert [c.provenance["thick"] for c in kept].count(True) == 1
    for truth, thick in ((THIN, False), (THICK, True), (FAINT, False)):
        (component,) = components(truth.astype(np.uint8))
        want = contour_of(component, tmp_path / "SetA" / "f-1.png", "SetA/f", "mask", {})
        assert want is not None
        shape = placed(want)
        best = max(kept, key=lambda c: placed(c).intersection(shape).area)
        other = placed(best)
        assert other.intersection(shape).area / other.union(shape).area > 0.9
        assert best.provenance["thick"] is thick


@pytest.mark.parametrize(("neck", "verdicts"), [(3, [None, None]), (5, ["cluster"]), (16, [None])])
def test_pieces_joined_by_a_neck(tmp_path: Path, neck: int, verdicts: list[str | None]) -> None:
    """Two discs: parted by the cut where they barely touch, dropped with a thin neck, one flake with a wide one."""
    bridge = (np.abs(ROWS - 200) <= neck // 2) & (COLS > 220) & (COLS < 250)
    pair = disc(200, 200, 32) | disc(200, 270, 32) | bridge
    image = photo(np.random.default_rng(2), [(pair, (-0.4, -0.3, -0.1))])
    found = []
    for segment in segments(image.astype(np.float32)):
        contour = micrograph_contour(segment, tmp_path / "SetA" / "f-1.jpg", "SetA/f")
        assert contour is not None
        found.append(doubt(segment.quality, contour))
    assert found == verdicts


@pytest.fixture
def small_dataset(tmp_path: Path) -> Path:
    """Two masks, one with its micrograph, whose thick crystal and faint flake the mask does not label."""
    data = tmp_path / "data"
    mask = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
    mask[THIN] = 7
    save_mask(data, mask, "aa11-x")
    save_mask(data, disc(200, 200, 40).astype(np.uint8), "bb22-x")
    image = photo(
        np.random.default_rng(3),
        [(THIN, (-0.4, -0.3, -0.1)), (THICK, (0.6, 0.8, 0.3)), (FAINT, (-0.11, -0.08, -0.03))],
    )
    path = data / "micrographs" / "SetA" / "aa11-x.png"
    path.parent.mkdir(parents=True)
    Image.fromarray(image).save(path)
    return data


def test_generate_contours(small_dataset: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = generate_contours(small_dataset, out, progress=False)
    assert [c.source for c in report.contours] == ["mask", "mask", "micrograph", "micrograph"]
    assert len({c.id for c in report.contours}) == 4
    assert [(r.image, r.components, len(r.kept_areas)) for r in report.masks] == [
        ("SetA/aa11", 1, 1),
        ("SetA/bb22", 1, 1),
    ]
    # The labelled flake is found, well matched, and kept once only.
    assert report.dropped == {"is a mask's": 1}
    assert (report.score_kept.flakes, report.score_kept.found, report.score_kept.recall) == (1, 1, 1.0)
    assert (report.score_kept.outlines, report.score_kept.precision, report.score_kept.thick_outlines) == (2, 0.5, 1)
    assert report.score_kept.median_iou > 0.9
    assert set(report.files) == {p.name for p in out.iterdir()}
    assert contours_from_json((out / "contours.json").read_text()) == report.contours
    assert json.loads((out / "report.json").read_text()) == json.loads(json.dumps(report.to_dict()))
    assert "recall 1.00" in report.text
    assert (out / "report.txt").read_text() == report.text


def test_building_twice_gives_the_same_bytes(small_dataset: Path, tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    generate_contours(small_dataset, a, progress=False)
    generate_contours(small_dataset, b, progress=False)
    for path in sorted(a.iterdir()):
        assert path.read_bytes() == (b / path.name).read_bytes(), path.name
