"""Pictures of layouts and the gallery."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from fet_cases import bar_fet, box, draw, make_task
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from edagym.envs.fet import gallery
from edagym.envs.fet.viewer import (
    Frame,
    layer_styles,
    nice_length,
    render_image,
    render_rgb,
    render_svg,
    render_text,
)
from edagym.verifiers.fet.layout import FETLayout
from edagym.verifiers.verdict import CheckResult, Verdict

SVG = "{http://www.w3.org/2000/svg}"
FULL = {"architecture": "dual_gated", "via": True, "pad_cover": True, "dielectric": True}
FAILED = CheckResult(
    "min_spacing:contacts",
    "min_spacing",
    False,
    0.2,
    0.15,
    "um",
    (7.0, 1.0, 7.15, 5.0),
    "spacing 0.15 um, expected 0.2",
)


def texts(svg: str) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_svg_shows_every_layer_a_scale_bar_and_the_task() -> None:
    task = make_task(**FULL)
    found = texts(render_svg(task.view(), bar_fet(task)))
    for spec in task.layers:
        assert any(t.startswith(spec.name) for t in found), spec.name
    assert any(t.endswith(" um") and float(t.split()[0]) > 0 for t in found)
    assert any(task.id in t for t in found)
    assert any(task.objective in t for t in found)
    assert any("flake_1 (1T)" in t for t in found)


def test_svg_is_well_formed_whatever_the_objective_says() -> None:
    task = replace(make_task(), objective='<b>&"x"</b>')
    assert any('<b>&"x"</b>' in t for t in texts(render_svg(task.view(), bar_fet(task))))


def test_violations_are_boxed_numbered_and_listed() -> None:
    task = make_task()
    layout = bar_fet(task)
    nowhere = CheckResult("layer_not_empty:gate", "layer_not_empty", False, message="gate is empty")
    passed = CheckResult("min_width:gate", "min_width", True, message="fine")
    verdict = Verdict(False, False, (passed, FAILED, nowhere))
    plain, marked = (render_svg(task.view(), layout, verdict=v) for v in (None, verdict))
    found = texts(marked)
    assert "1  min_spacing:contacts: spacing 0.15 um, expected 0.2" in found
    assert "2  layer_not_empty:gate: gate is empty" in found
    assert not any("fine" in t for t in found)
    assert "1" in found  # the number at the box; the second check has no place and so no box
    assert "2" not in found
    assert marked.count('stroke="#d55e00"') == 1
    assert plain.count('stroke="#d55e00"') == 0


def test_violation_box_surrounds_the_violation() -> None:
    task = make_task()
    layout = bar_fet(task)
    b = render_image(task.view(), layout, size=(600, 400), verdict=Verdict(False, False, (FAILED,))).astype(int)
    mark = np.abs(b - np.array([0xD5, 0x5E, 0x00])).sum(axis=2) < 30
    columns = np.flatnonzero(mark.any(axis=0))
    # The flake spans 0..20 um of the picture's width, the violation sits at 7.0..7.15 um.
    left, right = 14, 586
    scale = (right - left) / (20 + 2 * (0.04 * 20 + 0.5))
    expected = left + (7.075 + 1.3) * scale
    assert columns.min() - 3 <= expected <= columns.max() + 3


def test_long_lists_of_violations_are_cut() -> None:
    task = make_task()
    checks = tuple(replace(FAILED, id=f"check:{i}") for i in range(30))
    found = texts(render_svg(task.view(), bar_fet(task), verdict=Verdict(False, False, checks)))
    assert "and 23 more" in found
    assert sum(":" in t and t[0].isdigit() for t in found) == 7


@pytest.mark.parametrize("size", [(512, 512), (300, 120), (64, 64)])
def test_rgb_shape_and_determinism(size: tuple[int, int]) -> None:
    task = make_task(**FULL)
    first = render_rgb(task.view(), bar_fet(task), size=size)
    again = render_rgb(task.view(), bar_fet(task), size=size)
    assert first.dtype == np.uint8
    assert first.shape == (size[1], size[0], 3)
    assert first.flags.owndata
    assert first.flags.writeable
    assert np.array_equal(first, again)
    assert len(np.unique(first.reshape(-1, 3), axis=0)) > 5


def test_y_points_up() -> None:
    task = make_task([(box(0, 0, 20, 20), ())])
    blank = render_rgb(task.view(), FETLayout.from_task(task)).astype(int)
    upper = render_rgb(task.view(), draw(task, contacts=[box(2, 15, 18, 18)])).astype(int)
    rows = np.flatnonzero(np.abs(upper - blank).sum(axis=(1, 2)))
    assert rows.max() < 240


def test_holes_are_white_and_shapes_inside_holes_are_not() -> None:
    hole = box(8, 8, 12, 12)
    task = make_task([(box(0, 0, 20, 20), [hole])])
    blank = render_image(task.view(), FETLayout.from_task(task), size=(500, 600))
    ys, xs = np.nonzero((blank < 250).all(axis=2) & (np.arange(600)[:, None] > 60) & (np.arange(600)[:, None] < 530))
    y, x = (ys.min() + ys.max()) // 2, (xs.min() + xs.max()) // 2
    assert blank[y, x].tolist() == [255, 255, 255]
    filled = render_image(task.view(), draw(task, contacts=[box(9, 9, 11, 11)]), size=(500, 600))
    assert filled[y, x].tolist() != [255, 255, 255]


def test_ring_shapes_keep_their_hole_and_the_island_in_it() -> None:
    task = make_task([(box(0, 0, 20, 20), ())])
    ring = draw(task, contacts=[box(2, 2, 18, 6), box(2, 14, 18, 18), box(2, 2, 6, 18), box(14, 2, 18, 18)])
    island = ring.copy()
    island.add("contacts", ((9000, 9000), (11000, 9000), (11000, 11000), (9000, 11000)))
    a, b = (render_rgb(task.view(), layout).astype(int) for layout in (ring, island))
    changed = np.abs(a - b).sum(axis=2) > 0
    assert changed.any()
    ys, xs = np.nonzero(changed)
    assert np.ptp(xs) < 80
    assert np.ptp(ys) < 80


def test_shapes_far_away_stay_in_the_picture() -> None:
    task = make_task()
    near = render_rgb(task.view(), bar_fet(task))
    far_layout = bar_fet(task)
    far_layout.add("contacts", ((90000, 0), (95000, 0), (95000, 5000), (90000, 5000)))
    far = render_rgb(task.view(), far_layout)
    assert not np.array_equal(near, far)
    style = layer_styles(task.view())["contacts"]
    on_white = style.alpha * np.array([int(style.color[i : i + 2], 16) for i in (1, 3, 5)]) + (1 - style.alpha) * 255
    gold = (np.abs(far.astype(int) - on_white).sum(axis=2) < 40).any(axis=0)
    assert gold[400:].any()


@given(st.floats(1e-4, 1e5))
def test_nice_length(longest: float) -> None:
    length = nice_length(longest)
    assert longest / 2.5 * (1 - 1e-6) <= length <= longest * (1 + 1e-6)
    assert float(f"{length:.6e}".split("e")[0]) in (1.0, 2.0, 5.0)


def test_frame_keeps_the_aspect_ratio_and_flips_y() -> None:
    frame = Frame.fit((0, 0, 1000, 500), (10, 20, 200, 300))
    (x0, y0), (x1, y1) = frame.ring([(0, 0), (1000, 500)])
    assert (x0, x1) == (10, 210)
    assert y0 - y1 == pytest.approx(100)
    assert (y0 + y1) / 2 == pytest.approx(170)


# Machado et al. 2009, severity 1.0: linear RGB seen with each of the three deficiencies.
DEFICIENCIES = {
    "none": np.eye(3),
    "protan": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "deutan": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "tritan": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}


@pytest.mark.parametrize("name", DEFICIENCIES)
def test_layer_colors_differ_for_every_kind_of_sight(name: str) -> None:
    task = make_task(
        [(box(30 * i, 0, 30 * i + 20, 6), ()) for i in range(3)],
        [1, 1, 1],
        materials=["graphene", "MoSe2", "WSe2"],
        **FULL,
    )
    colors = {n: s.color for n, s in layer_styles(task.view()).items()}
    linear = {
        n: (np.array([int(c[i : i + 2], 16) for i in (1, 3, 5)]) / 255) ** 2.2 @ DEFICIENCIES[name].T
        for n, c in colors.items()
    }
    seen = {n: np.clip(v, 0, 1) ** (1 / 2.2) for n, v in linear.items()}
    for a, b in itertools.combinations(seen, 2):
        assert np.linalg.norm(seen[a] - seen[b]) > 0.1, (a, b)


def test_gates_below_and_above_the_flake_look_different() -> None:
    styles = layer_styles(make_task(**FULL).view())
    assert styles["back_gate"].color != styles["top_gate"].color
    assert list(styles) == ["back_gate", "graphene", "contacts", "dielectric", "top_gate", "via", "pad_cover"]


def test_text_summary() -> None:
    task = make_task()
    text = render_text(task.view(), bar_fet(task), Verdict(True, False, (replace(FAILED, strict=True),)))
    assert "region flake_1  graphene, 4 vertices, transistors asked: 1" in text
    assert "contacts 2/0  contact: 2 shapes, 40.00 um2" in text
    assert "verdict: paper pass, strict fail" in text
    assert "failed min_spacing:contacts" in text
    assert "verdict: none yet" in render_text(task.view(), FETLayout.from_task(task))


def panel_task(i: int):
    task = make_task(task_id=f"L2/case_{i}")
    return replace(task, metadata={"difficulty": "D2", "tier": "G1"})


def test_gallery_page(tmp_path: Path) -> None:
    tasks = [panel_task(i) for i in range(7)]
    files = gallery.write_page(tmp_path / "L2", "Level 2 (7 tasks)", tasks)
    assert [f.name for f in files] == ["L2.svg", "L2.png"]
    found = texts(files[0].read_text(encoding="utf-8"))
    for i in range(7):
        assert f"L2/case {i}" in found
    assert found.count("D2 · G1 · 1T") == 7
    assert found.count("5 um") == 7
    assert "graphene" in found
    assert "contact" not in found
    with Image.open(files[1]) as image:
        assert image.width > 1000
    first = files[0].read_bytes(), files[1].read_bytes()
    gallery.write_page(tmp_path / "L2", "Level 2 (7 tasks)", tasks)
    assert (files[0].read_bytes(), files[1].read_bytes()) == first


def test_gallery_page_with_layouts(tmp_path: Path) -> None:
    tasks = [panel_task(1)]
    (svg, _) = gallery.write_page(tmp_path / "x", "t", tasks, [bar_fet(tasks[0])])
    text = svg.read_text(encoding="utf-8")
    assert "contact" in texts(text)
    assert "#0072b2" in text


def test_numbers_of_coinciding_violations_stand_side_by_side() -> None:
    task = make_task()
    checks = tuple(replace(FAILED, id=f"check:{i}") for i in range(3))
    root = ElementTree.fromstring(render_svg(task.view(), bar_fet(task), verdict=Verdict(False, False, checks)))
    places = {node.text: (float(node.get("x")), float(node.get("y"))) for node in root.iter(f"{SVG}text")}  # type: ignore[arg-type]
    xs = sorted(places[str(i)][0] for i in (1, 2, 3))
    assert xs[1] - xs[0] >= 16
    assert xs[2] - xs[1] >= 16
