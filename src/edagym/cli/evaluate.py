"""`edagym eval`: a policy on suites, several attempts, in processes; success per level with intervals."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from typing import Any

from edagym.cli.common import (
    FAIL,
    PASS,
    TOOL_ERROR,
    add_executor_flags,
    add_json_flag,
    add_seed_flag,
    emit,
    ray_cluster,
)
from edagym.errors import TaskError

_MODEL = (
    ("--model", str, "NAME", "language-model policies: the model's name, as its server knows it"),
    ("--base-url", str, "URL", "OpenAI-compatible server, e.g. http://127.0.0.1:8000/v1"),
    ("--api-key-env", str, "NAME", "environment variable that holds the key; the key itself is never written"),
    ("--temperature", float, "T", "sampling temperature"),
    ("--max-tokens", int, "N", "longest reply"),
    ("--model-timeout", float, "S", "seconds per call"),
    ("--model-retries", int, "N", "retries per call, by the client"),
    ("--requests-per-minute", float, "N", "rate limit"),
)
_SPEC = {"model_timeout": "timeout_s", "model_retries": "retries"}
"""Flags that have another name in a model's settings (`ModelSpec`)."""


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "eval",
        help="evaluate a policy: tasks x attempts, in processes, resumable",
        description="Run a policy on every task of suites and print pass@1, pass@k and all-k per level under both "
        "criteria, with 95 %% intervals. Infrastructure errors are tried again and then reported as missing, never as "
        "failures. With --out, a run that was stopped or killed goes on with --resume. Exit codes: 0 every attempt has "
        "a verdict or ran out of its own time, 1 the policy crashed, 2 bad input, 3 attempts are missing.",
    )
    parser.add_argument(
        "--policy",
        required=True,
        metavar="NAME",
        help="random, reference, search, ppa-gp, fet-react-3, ..., rl:CHECKPOINT, or package.module:Class",
    )
    parser.add_argument(
        "--suite",
        "--env",
        dest="suites",
        action="append",
        required=True,
        metavar="SUITE",
        help="suite, environment id, or folder of DRC or PPA tasks (repeatable)",
    )
    parser.add_argument("--task", dest="tasks", action="append", metavar="TASK", help="only this task (repeatable)")
    parser.add_argument("--attempts", type=int, default=1, metavar="N", help="attempts per task (default: 1)")
    add_seed_flag(parser, 0, "seed of the run")
    parser.add_argument("--criterion", choices=("strict", "paper"), default="strict", help="what ends an episode")
    parser.add_argument("--out", metavar="DIR", help="folder of the run; without it nothing is kept")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out")
    parser.add_argument("--retry-missing", action="store_true", help="with --resume: try missing attempts again")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="processes; 0: none but this (default: 1)")
    add_executor_flags(parser)
    parser.add_argument(
        "--retries", type=int, default=2, metavar="N", help="tries after an infrastructure error (default: 2)"
    )
    parser.add_argument(
        "--give-up",
        type=int,
        metavar="N",
        help="stop after N tries in a row that ended with an infrastructure error; 0: never (default: 30)",
    )
    parser.add_argument("--attempt-timeout", type=float, metavar="S", help="wall time per attempt; more is missing")
    parser.add_argument(
        "--cpu-limit", type=float, metavar="S", help="CPU seconds of the policy per attempt; more is unfinished"
    )
    parser.add_argument("--allow-privileged", action="store_true", help="run policies that know hidden criteria")
    parser.add_argument("--pictures", action="store_true", help="with --out: draw every final layout")
    parser.add_argument(
        "--option", action="append", default=[], metavar="KEY=VALUE", help="option of the policy (repeatable)"
    )
    parser.add_argument("--policy-config", metavar="FILE", help="YAML or JSON file with options of the policy")
    parser.add_argument(
        "--env-option", action="append", default=[], metavar="KEY=VALUE", help="option of the environment (repeatable)"
    )
    for flag, kind, name, text in _MODEL:
        parser.add_argument(flag, type=kind, metavar=name, help=text)
    add_json_flag(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from edagym.baselines.evaluate import GIVE_UP, evaluate
    from edagym.baselines.registry import parse_options
    from edagym.baselines.tables import level_rows, level_text

    for flag in ("resume", "retry_missing", "pictures"):
        if getattr(args, flag) and args.out is None:
            raise TaskError("needs the folder of a run", field="--" + flag.replace("_", "-"), allowed="--out DIR")
    if args.retry_missing and not args.resume:
        raise TaskError("only for runs that are resumed", field="--retry-missing", allowed="--resume")
    if ":" in args.policy:
        # A policy of the user's own is most often a file in this folder. Last, so that it shadows nothing.
        sys.path.append(os.getcwd())
    options = parse_options([*args.option, *_model_options(args)], args.policy_config)
    records = evaluate(
        args.policy,
        args.suites,
        attempts=args.attempts,
        seed=args.seed,
        tasks=args.tasks,
        options=options,
        env_options=parse_options(args.env_option),
        criterion=args.criterion,
        cpu_limit_s=args.cpu_limit,
        out=args.out,
        resume=args.resume,
        retry_missing=args.retry_missing,
        workers=args.workers,
        executor=args.executor,
        cluster=ray_cluster(args),
        timeout_s=args.attempt_timeout,
        retries=args.retries,
        give_up=GIVE_UP if args.give_up is None else args.give_up or None,
        allow_privileged=args.allow_privileged,
        pictures=args.pictures,
    )
    rows = level_rows(records)
    errors = Counter(r["error_type"] for r in records if r["error_type"])
    privileged = any(r["privileged"] for r in records)
    data = {
        "policy": records[0]["policy"],
        "privileged": privileged,
        "suites": args.suites,
        "attempts": args.attempts,
        "seed": args.seed,
        "criterion": args.criterion,
        "out": args.out,
        "errors": dict(errors),
        "infra_retries": sum(r["infra_retries"] for r in records),
        "tokens": {kind: sum(r["tokens"][kind] for r in records) for kind in ("prompt", "completion")},
        "levels": rows,
    }
    emit(args, data, "\n".join(_lines(args, data, level_text(rows), records)))
    if rows[-1]["missing"]:
        return TOOL_ERROR
    return FAIL if rows[-1]["crashed"] else PASS


def _lines(args: argparse.Namespace, data: dict[str, Any], table: str, records: list[dict[str, Any]]) -> list[str]:
    title = f"{data['policy']} on {', '.join(args.suites)}, {args.attempts} attempts per task, seed {args.seed}"
    if data["privileged"]:
        title += "; PRIVILEGED: knows what agents may not know"
    lines = [title, "", table]
    if data["infra_retries"]:
        lines += ["", f"tries again after infrastructure errors: {data['infra_retries']}"]
    lost: dict[str, list[dict[str, Any]]] = {}
    for r in records:
        if r["error_type"]:
            lost.setdefault(r["error_type"], []).append(r)
    for kind, rows in sorted(lost.items()):
        first = rows[0]
        lines.append(f"{kind}: {len(rows)} attempts without verdict, e.g. {first['task_id']}: {first['error']}")
    if args.out:
        lines += ["", f"run: {args.out}"]
    return lines


def _model_options(args: argparse.Namespace) -> list[str]:
    """Return the model's flags as options ``model.key=value``."""
    import json

    found = []
    for flag, *_ in _MODEL:
        name = flag.removeprefix("--").replace("-", "_")
        value = getattr(args, name)
        if value is not None:
            found.append(f"model.{_SPEC.get(name, name)}={json.dumps(value)}")
    return found
