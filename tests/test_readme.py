"""What the README shows is what the project makes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from PIL import Image

from edagym.cli import build_parser, main
from edagym.cli.listing import id_table, id_table_markdown
from edagym.envs.fet.gallery import reference_layout
from edagym.envs.fet.viewer import render_svg
from edagym.registry import ENVIRONMENTS
from edagym.task_assets.fet.suite import load_task
from edagym.verifiers.fet.layout import FETLayout

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CODE = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
SHELL = "\n".join(re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL))


def test_id_table_is_that_of_the_registry() -> None:
    shown = re.search(r"<!-- ids: .*?-->\n(.*?)<!-- /ids -->", README, flags=re.DOTALL)
    assert shown is not None
    assert shown.group(1) == id_table_markdown(id_table()), "run `make docs`"
    assert {row.id for row in id_table()} == set(ENVIRONMENTS)


@pytest.mark.parametrize("name", ["task", "reference"])
def test_pictures_are_up_to_date(name: str) -> None:
    task = load_task("L4/case_23")
    layout = reference_layout(task) if name == "reference" else FETLayout.from_task(task)
    shown = (ROOT / "docs" / "images" / f"l4-case-23-{name}.svg").read_text(encoding="utf-8")
    assert shown == render_svg(task.view(), layout), "run `make docs`"


@pytest.mark.parametrize("name", ["task", "reference"])
def test_drc_pictures_are_up_to_date(name: str, tmp_path: Path) -> None:
    made = tmp_path / "made.png"
    flags = ["--reference"] if name == "reference" else []
    assert main(["show", "Reasoning-L1/q7", *flags, "--png", str(made)]) == 0
    shown = ROOT / "docs" / "images" / f"drc-reasoning-l1-q7-{name}.png"
    assert Image.open(made).convert("RGB").tobytes() == Image.open(shown).convert("RGB").tobytes(), "run `make docs`"


def test_data_card_lists_every_column_with_its_status() -> None:
    card = (ROOT / "task_assets" / "fet" / "DATA_CARD.md").read_text(encoding="utf-8")
    manifest = json.loads((ROOT / "task_assets" / "fet" / "manifest.json").read_text(encoding="utf-8"))
    rows = [
        f"| `{name}` | {about['status']} | {about['meaning']} | {about['basis']} |"
        for name, about in manifest["columns"].items()
    ]
    assert "\n".join(rows) in card


def test_links_and_pictures_exist() -> None:
    links = [link for link in re.findall(r"\]\(([^)]+)\)", README) if not link.startswith("http")]
    assert len(links) >= 5
    for link in links:
        assert (ROOT / link).exists(), link


@pytest.mark.parametrize("number", range(len(CODE)))
def test_code_runs(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(CODE[number], f"README block {number}", "exec"), {})
    printed = capsys.readouterr().out
    if "DRC-" in CODE[number]:
        assert printed.endswith("True 0 1.0\n")
    elif "PPA-" in CODE[number]:
        assert "target at most" in printed
        assert "missed by" in printed
        assert 0.0 < float(printed.split()[-1]) < 1.0
    elif "run_team" in CODE[number]:
        assert printed.endswith("True\n")
    elif number:
        assert "Objective: " in printed
    else:
        assert CODE[number].count("\n") <= 13


def test_there_are_code_blocks() -> None:
    assert len(CODE) == 5


def test_commands_exist() -> None:
    commands = set(re.findall(r"`edagym ([\w-]+)", README)) | set(re.findall(r"bin/edagym ([\w-]+)", SHELL))
    known = next(a for a in build_parser()._actions if a.dest == "command").choices
    assert known is not None
    assert commands == set(known)
    targets = set(re.findall(r"^make (\S+)", SHELL, flags=re.MULTILINE))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets >= {"demo", "test"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
