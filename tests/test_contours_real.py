"""The real flakes: the check table of their README, and the shipped library made anew. Needs EDAGYM_REAL_DATA."""

import os
from pathlib import Path

import pytest

from edagym.task_assets.fet.contours import ContourReport, generate_contours
from edagym.task_assets.fet.contours import library as library_module

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif("EDAGYM_REAL_DATA" not in os.environ, reason="EDAGYM_REAL_DATA is not set"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[ContourReport, Path]:
    out = tmp_path_factory.mktemp("contours")
    return generate_contours(Path(os.environ["EDAGYM_REAL_DATA"]), out, progress=False), out


def test_check_table(made: tuple[ContourReport, Path]) -> None:
    rows = []
    for line in (Path(os.environ["EDAGYM_REAL_DATA"]) / "flakes" / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if "/" in cells[0] and len(cells) >= 3 and cells[1].isdigit():
            areas = tuple(int(v) for v in cells[3].split(",")) if len(cells) > 3 and cells[3] else ()
            rows.append((cells[0], int(cells[1]), int(cells[2]), areas))
    assert len(rows) == 14
    report, _ = made
    assert [(r.image, r.components, len(r.kept_areas), r.kept_areas) for r in report.masks] == rows


def test_shipped_library_is_what_the_pipeline_makes(made: tuple[ContourReport, Path]) -> None:
    _, out = made
    shipped = Path(library_module.__file__).parent / "data" / "contours.json"
    assert (out / "contours.json").read_bytes() == shipped.read_bytes()


def test_colour_method_scores(made: tuple[ContourReport, Path]) -> None:
    score = made[0].score_kept
    assert score.flakes == 20
    assert score.recall >= 0.65
    assert score.median_iou >= 0.8
    assert score.mean_iou >= 0.8
    assert score.precision >= 0.5


def test_every_page_of_the_contact_sheet_is_written(made: tuple[ContourReport, Path]) -> None:
    report, out = made
    pages = [f for f in report.files if f.startswith("kept-")]
    assert len(pages) == -(-len(report.contours) // 48)
    assert all((out / page).stat().st_size > 10_000 for page in pages)
