"""Every notebook runs from top to bottom and still prints what its committed outputs say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


def printed(notebook: Any) -> list[str]:
    """Return what each code cell printed; a kernel may deliver one text in several pieces."""
    return [
        "".join(o.text for o in cell.outputs if o.output_type == "stream" and o.name == "stdout")
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def pictures(notebook: Any) -> int:
    outputs = [o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs]
    return sum(not {"image/svg+xml", "image/png"}.isdisjoint(o.get("data", {})) for o in outputs)


NEEDS = {
    "llm_agent": ("openai",),
    "ppa_tradeoffs": ("pyosys", "matplotlib"),
    "reward_shaping": ("stable_baselines3", "matplotlib"),
    "train_ppo": ("sb3_contrib", "matplotlib"),
}
"""Packages beyond the notebook machinery, which are in extras."""


def test_the_notebooks_that_the_readme_names() -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    assert NOTEBOOKS
    assert [path.name for path in NOTEBOOKS if f"notebooks/{path.name}" not in readme] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="needs the docs extra")
    nbclient = pytest.importorskip("nbclient", reason="needs the docs extra")
    for package in NEEDS.get(path.stem, ()):
        pytest.importorskip(package)
    committed = nbformat.read(path, as_version=4)
    nbformat.validate(committed)
    fresh = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(fresh, timeout=180, kernel_name="python3").execute()
    assert printed(fresh) == printed(committed), "run `make docs` to refresh the committed outputs"
    assert pictures(fresh) == pictures(committed) > 0
