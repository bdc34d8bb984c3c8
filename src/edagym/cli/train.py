"""`edagym train`: train a policy from a preset."""

from __future__ import annotations

import argparse
from typing import Any

from edagym.cli.common import PASS, add_json_flag, emit, table
from edagym.errors import TaskError, ToolError


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "train",
        help="train a policy from a preset",
        description=(
            "Train a policy with Stable-Baselines3. Logs (progress.csv, tb/), checkpoints and the final policy go to "
            "the output folder; `--policy rl:FOLDER` evaluates it. Without a preset: list the shipped ones."
        ),
    )
    parser.add_argument("preset", metavar="PRESET", nargs="?", help="name of a shipped preset, or a YAML file")
    parser.add_argument("--steps", type=int, metavar="N", help="environment steps (default: the preset's)")
    parser.add_argument("--seed", type=int, metavar="N", help="seed (default: the preset's)")
    parser.add_argument("--out", metavar="DIR", help="output folder (default: runs/PRESET-seedN)")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in the output folder")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a field of the preset, e.g. hyperparameters.gamma=0.9; repeatable",
    )
    parser.add_argument("--keep", type=int, metavar="N", help="checkpoints to keep (default: all)")
    parser.add_argument("--eval-episodes", type=int, metavar="N", help="tasks to compare with random actions on")
    add_json_flag(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    try:
        from edagym.baselines.rl import presets
    except ImportError as e:
        raise _missing(e) from e

    if args.preset is None:
        found = [presets.load_preset(name) for name in presets.preset_names()]
        rows = [(p.name, p.algo, p.total_steps, p.description) for p in found]
        emit(args, [p.to_dict() for p in found], table(rows, ("preset", "algorithm", "steps", "what")))
        return PASS
    changes = list(args.set)
    for key, value in (("total_steps", args.steps), ("seed", args.seed), ("eval_episodes", args.eval_episodes)):
        if value is not None:
            changes.append(f"{key}={value}")
    if args.keep is not None and args.keep < 1:
        raise TaskError("must be positive", field="--keep", value=args.keep, allowed="> 0")
    try:
        preset = presets.load_preset(args.preset, changes)
        from edagym.baselines.rl.trainer import train
    except ImportError as e:
        raise _missing(e) from e
    out = args.out or f"runs/{preset.name}-seed{preset.seed}"
    result = train(preset, out, resume=args.resume, progress=not args.json, keep=args.keep)
    emit(args, result, _text(result))
    return PASS


def _missing(error: ImportError) -> ToolError:
    return ToolError(f"training needs the extra `rl` ({error})", field="extra", value="rl")


def _text(result: dict[str, Any]) -> str:
    rows = [(k, v) for k, v in result.items() if k != "evaluation" and v is not None]
    lines = [table(rows, ("figure", "value"))]
    if "evaluation" in result:
        shown = result["evaluation"]
        shares = [
            (k, f"{shown[k]['rate']:.1%}", f"{shown[k]['low']:.1%} to {shown[k]['high']:.1%}")
            for k in ("policy", "random", "difference")
        ]
        title = f"{shown['episodes']} fresh tasks of the training distribution, {shown['actions']} actions"
        lines += ["", title, table(shares, ("success", "rate", "95 % interval"))]
    return "\n".join(lines)
