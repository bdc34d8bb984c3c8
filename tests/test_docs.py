"""The reference pages of the ids: complete, and the committed ones are what the code says."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import pytest

import edagym
from edagym.cli import main
from edagym.cli.env_pages import _family, keys, prose, section, write_pages

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.parametrize("env_id", ["FET-Train-v0", "DRC-Train-v0", "PPA-Train-v0"])
def test_every_key_has_a_meaning_and_every_meaning_a_key(env_id):
    edagym.register_all()
    env = gym.make(env_id, disable_env_checker=True).unwrapped
    for space, sources in zip((env.action_space, env.observation_space), _family(env_id[:3])):
        described = keys(sources)
        assert set(described) == set(space.spaces)
        assert all(len(text) > 8 for text in described.values())


def test_the_committed_pages_are_up_to_date(tmp_path):
    written = write_pages(tmp_path, DOCS / "results.json")
    assert len(written) == len(edagym.ENVIRONMENTS) + 1
    for path in written:
        committed = DOCS / "environments" / path.name
        assert committed.is_file(), "run `make docs`"
        assert committed.read_text(encoding="utf-8") == path.read_text(encoding="utf-8"), "run `make docs`"
    assert {p.name for p in (DOCS / "environments").iterdir()} == {p.name for p in written}


def test_a_page_has_every_part():
    text = (DOCS / "environments" / "FET-L2-v0.md").read_text(encoding="utf-8")
    for part in ("Description", "Arguments", "Actions", "Observations", "Reward", "End of an episode", "Results"):
        assert f"## {part}\n" in text
    assert "| `region_points` | float32 (20, 128, 2) in [-4096, 4096] | um: outer rings. |" in text
    assert "- `OPERATIONS`: add_polygon, add_path, cut, clear, verify, submit, declare_infeasible" in text


DOCSTRING = """Do a thing.

    More text.

    Keys beside those of `Other`:
        a, b: (1,) int8: first line
            and second.
        c: Discrete(2).

    Args:
        x: A number: with a colon.
        **kwargs: Others.
    """


def test_docstrings_are_read():
    assert prose(DOCSTRING) == "Do a thing.\n\nMore text."
    assert section(DOCSTRING, "Keys") == {"a, b": "(1,) int8: first line and second.", "c": "Discrete(2)."}
    assert section(DOCSTRING, "Args") == {"x": "A number: with a colon.", "**kwargs": "Others."}
    assert section(DOCSTRING, "Raises") == {}


def test_command(tmp_path, capsys):
    assert main(["generate", "docs", "--out", str(tmp_path), "--results", str(tmp_path / "none.json")]) == 2
    assert "no such file" in capsys.readouterr().err
    assert main(["generate", "docs", "--out", str(tmp_path), "--json"]) == 0
    assert '"README.md"' in capsys.readouterr().out
