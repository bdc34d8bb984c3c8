"""`edagym train` and `edagym bench rl`; trained policies in the evaluation harness."""

from __future__ import annotations

import json

import pytest

from edagym.cli import main

pytest.importorskip("stable_baselines3")
pytest.importorskip("sb3_contrib")

PRESET = """
name: tiny
family: fet
env: rl_stacks:boxes
hyperparameters: {n_steps: 16, batch_size: 16, n_epochs: 1, policy_kwargs: {net_arch: [4]}}
n_envs: 2
total_steps: 64
checkpoint_every: 32
"""


@pytest.fixture
def preset(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(PRESET)
    return str(path)


def test_presets_are_listed(capsys):
    assert main(["train", "--json"]) == 0
    found = {p["name"] for p in json.loads(capsys.readouterr().out)}
    assert {"drc-edit", "ppa-knobs"} <= found
    assert main(["train"]) == 0
    assert "drc-edit" in capsys.readouterr().out


def test_train_evaluate_resume(preset, tmp_path, capsys):
    run = str(tmp_path / "run")
    assert main(["train", preset, "--out", run, "--seed", "3", "--eval-episodes", "2", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["steps"] == 64
    assert summary["evaluation"]["episodes"] == 2
    assert main(["train", preset, "--out", run]) == 2  # the folder holds a run
    capsys.readouterr()
    args = ["train", preset, "--out", run, "--seed", "3", "--steps", "96", "--resume", "--keep", "1"]
    assert main(args) == 0
    assert "96" in capsys.readouterr().out
    command = ["eval", "--policy", f"rl:{run}", "--suite", "FET-L1", "--task", "L1/case_1", "--attempts", "2", "--json"]
    assert main([*command, "--workers", "0"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert main([*command, "--workers", "0"]) == 0
    assert _untimed(json.loads(capsys.readouterr().out)) == _untimed(first)


def _untimed(value):
    if isinstance(value, dict):
        return {k: _untimed(v) for k, v in value.items() if "second" not in k and "cpu" not in k and "per_s" not in k}
    return [_untimed(v) for v in value] if isinstance(value, list) else value


def test_bad_input(preset, tmp_path, capsys):
    assert main(["train", "nothing"]) == 2
    assert main(["train", preset, "--set", "colour=red"]) == 2
    assert main(["train", preset, "--out", str(tmp_path / "x"), "--set", "hyperparameters.colour=red"]) == 2
    assert main(["train", preset, "--out", str(tmp_path / "y"), "--keep", "0"]) == 2
    capsys.readouterr()


@pytest.mark.slow
def test_bench_rl(capsys):
    assert main(["bench", "rl", "--only", "drc", "--seconds", "0.2", "--train-steps", "64", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result["steps_per_s"]) == {"preset drc-edit"}
    assert all(v > 0 for v in result["steps_per_s"]["preset drc-edit"].values())
    assert 0 < result["training"]["drc-edit"]["env_share"] < 1


@pytest.mark.slow
def test_the_shaping_experiment(tmp_path):
    pytest.importorskip("matplotlib")
    from edagym.baselines.rl.shaping_experiment import ARMS, run

    options = {"seeds": (0,), "steps": 256, "every": 256, "episodes": 3, "progress": False}
    rows = run(tmp_path, **options)
    assert [r["arm"] for r in rows] == list(ARMS)
    assert (tmp_path / "results.csv").read_text().count("\n") == 4
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert run(tmp_path, **options) == rows
