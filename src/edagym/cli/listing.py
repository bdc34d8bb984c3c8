"""`edagym list`: environment ids, tasks, and the suite's statistics against the published ones."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edagym.cli.common import FAIL, PASS, add_json_flag, emit, table
from edagym.errors import TaskError

FAMILIES = ("FET", "DRC", "PPA")
_ABOUT = {
    "L1": "template level L1: one flake, one transistor",
    "L2": "template level L2",
    "L3": "template level L3",
    "L4": "template level L4",
    "Holes": "the tasks whose flakes have interior holes",
    "All": "the whole fixed suite",
    "Train": "endless procedural tasks, none of them in the suite",
    "Essential-L1": "one design rule violation, alone",
    "Essential-L2": "one violation in its context",
    "Essential-L3": "five or more violations close to one another",
    "Reasoning-L1": "a fault of a careless router or library that takes one edit",
    "Reasoning-L2": "faults that take several edits",
    "Reasoning-L3": "several faults",
    "Performance-L1": "effective period, one knob away from the reference",
    "Performance-L2": "effective period, several knobs away",
    "Performance-L3": "effective period that takes a change of the sources or constraints",
    "Power-L1": "power, one knob away from the reference",
    "Power-L2": "power, several knobs away",
    "Area-L1": "die area, one knob away from the reference",
    "Area-L2": "die area, several knobs away",
    "Multi-L1": "a trade-off of two of period, power and area",
    "Multi-L2": "a trade-off of all three",
}


@dataclass(frozen=True, slots=True)
class IdRow:
    """One environment id.

    Attributes:
        id: Gymnasium id.
        tasks: Number of tasks; None: endless.
        about: What they are.
    """

    id: str
    tasks: int | None
    about: str


def id_table(family: str | None = None) -> list[IdRow]:
    """Return every registered id of a family (default: of all), in registration order.

    Raises:
        TaskError: If the family is unknown.
    """
    import gymnasium

    from edagym.task_assets.drc import suite as drc
    from edagym.task_assets.fet import suite as fet
    from edagym.task_assets.ppa import suite as ppa

    if family is not None and family not in FAMILIES:
        raise TaskError("unknown family", field="family", value=family, allowed=FAMILIES)
    rows = []
    for env_id, spec in gymnasium.registry.items():
        head, _, rest = env_id.partition("-")
        if not str(spec.entry_point).startswith("edagym.") or head not in ((family,) if family else FAMILIES):
            continue
        name = rest.rsplit("-", 1)[0]
        suite = f"{head}-{name}"
        module: Any = {"FET": fet, "DRC": drc, "PPA": ppa}[head]
        rows.append(IdRow(env_id, len(module.task_ids(suite)) if suite in module.SUITES else None, _ABOUT[name]))
    return rows


def id_table_markdown(rows: Sequence[IdRow]) -> str:
    """Return the id table as the README shows it."""
    lines = ["| id | tasks | what |", "|---|---|---|"]
    lines += [f"| `{r.id}` | {r.tasks if r.tasks is not None else 'endless'} | {r.about} |" for r in rows]
    return "\n".join(lines) + "\n"


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "list",
        help="list environment ids, tasks, or suite statistics",
        description="List environment ids; with --tasks the tasks of the suite; with --stats every published statistic "
        "of the suite with target, achieved value and status (exit code 1 when a gated one is missed).",
    )
    parser.add_argument("family", metavar="FAMILY", nargs="?", help=f"one of {', '.join(FAMILIES)} (default: all)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--tasks", action="store_true", help="list the tasks of the fixed suite")
    what.add_argument("--stats", action="store_true", help="compare the suite with the published statistics")
    what.add_argument("--markdown", action="store_true", help="print the id table as Markdown")
    add_json_flag(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    rows = id_table(args.family)
    if args.stats:
        if args.family not in (None, "FET"):
            raise TaskError("only FET has published statistics", field="family", value=args.family, allowed="FET")
        return _stats(args)
    if args.tasks:
        return {"DRC": _drc_tasks, "PPA": _ppa_tasks}.get(args.family, _tasks)(args)
    if args.markdown and not args.json:
        print(id_table_markdown(rows), end="")
        return PASS
    data = [{"id": r.id, "tasks": r.tasks, "about": r.about} for r in rows]
    shown = [(r.id, r.tasks if r.tasks is not None else "endless", r.about) for r in rows]
    emit(args, data, table(shown, ("id", "tasks", "what")))
    return PASS


def _tasks(args: argparse.Namespace) -> int:
    from edagym.task_assets.fet.suite import load_task, task_ids

    data = []
    for task in map(load_task, task_ids()):
        data.append(
            {
                "id": task.id,
                "difficulty": task.metadata.get("difficulty"),
                "tier": task.metadata.get("tier"),
                "transistors": sum(n or 0 for n in task.demand),
                "regions": len(task.regions),
                "architecture": task.architecture,
                "circuit": task.circuit.template if task.circuit else None,
                "holes": any(r.holes for r in task.regions),
                "objective": task.objective,
            }
        )
    shown = [
        (
            d["id"],
            d["difficulty"],
            d["tier"],
            d["transistors"],
            d["regions"],
            d["architecture"],
            d["circuit"] or "",
            "yes" if d["holes"] else "",
        )
        for d in data
    ]
    header = ("task", "D", "G", "T", "flakes", "architecture", "circuit", "holes")
    emit(args, data, table(shown, header))
    return PASS


def _drc_tasks(args: argparse.Namespace) -> int:
    from edagym.task_assets.drc.suite import load_task, task_ids

    tasks = [load_task(task_id) for task_id in task_ids()]
    data = [
        {"id": t.id, "violations": t.total, "rules": sorted(t.counts), "budget": t.budget, "bytes": len(t.gds)}
        for t in tasks
    ]
    shown = [(t.id, t.total, t.budget, len(t.gds), " ".join(sorted(t.counts))) for t in tasks]
    emit(args, data, table(shown, ("task", "violations", "budget", "bytes", "rules")))
    return PASS


def _ppa_tasks(args: argparse.Namespace) -> int:
    from edagym.task_assets.ppa.suite import load_task, task_ids

    tasks = [load_task(task_id) for task_id in task_ids()]
    data = [
        {
            "id": t.id,
            "design": t.config().design_name,
            "backend": t.backend,
            "initial": dict(t.initial),
            "targets": dict(t.targets),
            "to_improve": list(t.to_improve),
        }
        for t in tasks
    ]
    shown = [(d["id"], d["design"], d["backend"], " ".join(d["to_improve"])) for d in data]
    emit(args, data, table(shown, ("task", "design", "backend", "to improve")))
    return PASS


def _stats(args: argparse.Namespace) -> int:
    from edagym.envs.fet.prompt import render_task_text
    from edagym.task_assets.fet.statistics import TOKENIZER, gate_missed, suite_statistics

    lines = suite_statistics(render_task_text)
    missed = gate_missed(lines)
    gated = sum(line.gated for line in lines)
    shown = [
        (line.name, line.source, _short(line.target), _short(line.achieved), line.status, _met(line.met), line.rule)
        for line in lines
    ]
    text = table(shown, ("statistic", "source", "target", "achieved", "status", "met", "rule"))
    text += f"\n\ntokenizer: {TOKENIZER}\n{gated - len(missed)} of {gated} gated statistics met"
    text += "".join(f"\nmissed: {line.name}: target {line.target}, achieved {line.achieved}" for line in missed)
    data = {
        "tokenizer": TOKENIZER,
        "gated": gated,
        "missed": [line.name for line in missed],
        "statistics": [line.to_dict() for line in lines],
    }
    emit(args, data, text)
    return FAIL if missed else PASS


def _met(met: bool | None) -> str:
    return "" if met is None else "yes" if met else "NO"


def _short(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return " ".join(f"{k}:{_short(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return " ".join(_short(v) for v in value)
    return str(value)
