"""What shaped rewards and a curriculum do for learning: `python -m edagym.baselines.rl.shaping_experiment`.

Three arms learn the same thing, two globally back-gated transistors on one flake by rectangles (``FET-Train-v0``, L2):

- ``sparse``: 1 for a passing layout, else 0.
- ``shaped``: the same, and the change of a potential, the share of checks passed and transistors formed
  (`edagym.wrappers.reward.Shaped`); the optimal policy is the same.
- ``curriculum``: sparse, but tasks that ask for one transistor first.

Arms differ in nothing else; tasks are pooled alike. Checkpoints are evaluated on fresh tasks of the full distribution,
the same for all, with the sparse reward's own success. Results are a CSV (one row per checkpoint) and a figure.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from tqdm import tqdm

from edagym.baselines.metrics import task_bootstrap
from edagym.baselines.rl.checkpoint import checkpoints, load_policy
from edagym.baselines.rl.compare import network_action, run_episodes
from edagym.baselines.rl.presets import Preset
from edagym.baselines.rl.trainer import make_env, segment_seed, train
from edagym.wrappers.curriculum import Curriculum
from edagym.wrappers.reward import Shaped

TARGET: dict[str, Any] = {"level": "L2", "architecture": "global_back_gated", "n_regions": 1, "demand": 2}
EASY: dict[str, Any] = {**TARGET, "demand": 1}
GAMMA = 0.98
ARMS: dict[str, dict[str, Any]] = {
    "sparse": {"stages": [TARGET]},
    "shaped": {"stages": [TARGET], "shaped": True},
    "curriculum": {"stages": [EASY, TARGET]},
}
FIELDS = ("arm", "seed", "steps", "episodes", "success", "low", "high")


def dress(
    env: gym.Env[Any, Any], stages: Sequence[Mapping[str, Any]], shaped: bool = False, pool: int = 64
) -> gym.Env[Any, Any]:
    """Put an arm's rewards and stages around a stack.

    Args:
        env: The stack.
        stages: Arguments of the training environment, easiest first.
        shaped: Whether to add `Shaped`.
        pool: Tasks kept per stage.
    """
    dressed: gym.Env[Any, Any] = Curriculum(env, stages=stages, threshold=0.4, window=30, revisit=0.1, pool=pool)
    return Shaped(dressed, gamma=GAMMA) if shaped else dressed


def preset(arm: str, seed: int, steps: int, every: int) -> Preset:
    """Return the training run of an arm."""
    return Preset(
        name=f"shaping-{arm}",
        family="fet",
        env="edagym.baselines.rl.fet_stacks:fet_rectangle",
        env_kwargs=TARGET,
        training="edagym.baselines.rl.shaping_experiment:dress",
        training_kwargs=ARMS[arm],
        n_envs=4,
        hyperparameters={
            "n_steps": 64,
            "batch_size": 64,
            "n_epochs": 10,
            "gamma": GAMMA,
            "gae_lambda": 0.9,
            "learning_rate": 0.001,
            "policy_kwargs": {"net_arch": [128, 128], "log_std_init": -0.5},
        },
        total_steps=steps,
        checkpoint_every=every,
        seed=seed,
    )


def run(
    out: str | Path,
    *,
    arms: Sequence[str] = tuple(ARMS),
    seeds: Sequence[int] = (0, 1, 2),
    steps: int = 4_096,
    every: int = 1_024,
    episodes: int = 60,
    progress: bool = True,
) -> list[dict[str, Any]]:
    """Train every arm with every seed, evaluate the checkpoints, and write ``results.csv`` and ``curves.png``.

    Runs that are complete in the folder are not run again, and others go on where they were.

    Args:
        out: Folder.
        arms: Names of `ARMS`.
        seeds: Seeds.
        steps: Steps of each run.
        every: Steps between evaluated checkpoints.
        episodes: Evaluation tasks, the same for all.
        progress: Whether to show a progress bar.

    Returns:
        The rows of the CSV; ``success`` with its 95 % bootstrap interval over tasks.
    """
    folder = Path(out)
    rows: list[dict[str, Any]] = []
    jobs = [(arm, seed) for seed in seeds for arm in arms]
    for arm, seed in tqdm(jobs, desc="shaping experiment", disable=not progress):
        chosen, place = preset(arm, seed, steps, every), folder / f"{arm}-{seed}"
        if not (place / "summary.json").exists():
            train(chosen, place, resume=(place / "preset.json").exists(), progress=False)
        rows += evaluate(chosen, place, episodes)
        write_csv(rows, folder / "results.csv")
    plot(rows, folder / "curves.png")
    return rows


def evaluate(chosen: Preset, place: Path, episodes: int) -> list[dict[str, Any]]:
    """Return one row per checkpoint of a run, the final policy included."""
    env = make_env(chosen, training=False)
    rng = np.random.default_rng(segment_seed(0, -2))
    seeds = [int(s) for s in rng.integers(2**31, size=episodes)]
    rows = []
    for path in [*checkpoints(place), place / "final"]:
        checkpoint = load_policy(path)
        network = checkpoint.build(env.observation_space, env.action_space)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(segment_seed(0, -3))
            passed = run_episodes(env, network_action(network, masked=False), seeds, "", progress=False)
        found = task_bootstrap(passed, rng)
        numbers = (checkpoint.metadata["steps"], episodes, found.estimate, found.low, found.high)
        arm = chosen.name.removeprefix("shaping-")
        rows.append(dict(zip(FIELDS, (arm, chosen.seed, *numbers), strict=True)))
    env.close()
    return rows


def write_csv(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write the rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as f:
        writer = csv.DictWriter(f, FIELDS)
        writer.writeheader()
        writer.writerows(rows)


def plot(rows: Sequence[Mapping[str, Any]], path: str | Path) -> None:
    """Draw learning curves as a PNG: a thin line per seed, a thick one for their mean."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    for number, arm in enumerate(dict.fromkeys(str(r["arm"]) for r in rows)):
        own = [r for r in rows if r["arm"] == arm]
        colour = f"C{number}"
        for seed in sorted({r["seed"] for r in own}):
            line = [(r["steps"], 100 * r["success"]) for r in own if r["seed"] == seed]
            axes.plot(*zip(*line), color=colour, linewidth=0.8, alpha=0.5)
        steps = sorted({r["steps"] for r in own})
        means = [100 * float(np.mean([r["success"] for r in own if r["steps"] == s])) for s in steps]
        axes.plot(steps, means, color=colour, linewidth=2.2, marker="o", label=arm)
    axes.set(xlabel="training steps", ylabel="success on fresh tasks (%)", ylim=(0, 100))
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the experiment from the command line."""
    parser = argparse.ArgumentParser(description="Compare sparse rewards, shaped rewards and a curriculum.")
    parser.add_argument("--out", default="runs/shaping", help="folder (default: %(default)s)")
    parser.add_argument("--arms", nargs="+", choices=tuple(ARMS), default=list(ARMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=4_096, help="steps of each run (default: %(default)s)")
    parser.add_argument("--every", type=int, default=1_024, help="steps between checkpoints (default: %(default)s)")
    parser.add_argument("--episodes", type=int, default=60, help="evaluation tasks (default: %(default)s)")
    args = parser.parse_args(argv)
    rows = run(args.out, arms=args.arms, seeds=args.seeds, steps=args.steps, every=args.every, episodes=args.episodes)
    for row in rows:
        print(f"{row['arm']:12} seed {row['seed']} {row['steps']:7} steps  {row['success']:.1%}")


if __name__ == "__main__":
    main()
