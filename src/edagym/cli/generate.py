"""`edagym generate`: rebuild the project's own data from its sources."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from edagym.cli.common import PASS, add_json_flag, add_seed_flag, emit, out_dir
from edagym.errors import TaskError


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser("generate", help="rebuild contours, the task suites or technology data")
    what = parser.add_subparsers(dest="what", required=True, metavar="WHAT")

    contours = what.add_parser(
        "contours",
        help="extract flake contours from masks and micrographs",
        description="Extract flake contours from a folder with masks/SET/*.png and micrographs/SET/*.jpg; writes "
        "contours.json, contact sheets and a report.",
    )
    contours.add_argument("data", metavar="DATA_DIR", help="folder with the images")
    contours.add_argument("--out", metavar="DIR", default="out/contours", help="output folder (default: out/contours)")
    add_json_flag(contours)
    contours.set_defaults(run=_contours)

    suite = what.add_parser(
        "fet-suite",
        help="build the 128-task FET suite with its references",
        description="Build the FET suite from its manifest: task files and reference layouts. Equal seeds give equal "
        "bytes.",
    )
    add_seed_flag(suite, 7, "generation seed; 7 made the shipped suite")
    suite.add_argument("--out", metavar="DIR", default="out/fet-suite", help="output folder (default: out/fet-suite)")
    suite.add_argument("--only", metavar="TASK", action="append", help="only this task (repeatable)")
    add_json_flag(suite)
    suite.set_defaults(run=_suite)

    drc = what.add_parser(
        "drc-suite",
        help="build the 70-task DRC suite with its references",
        description="Build the DRC suite: task folders with layouts, reports, markers and reference repairs. Reasoning "
        "tasks take their repairs from the search policy: the shipped suite's are recorded and verified again, "
        "for other seeds they are searched. Equal seeds give equal bytes.",
    )
    add_seed_flag(drc, 7, "generation seed; 7 made the shipped suite")
    drc.add_argument("--out", metavar="DIR", default="out/drc-suite", help="output folder (default: out/drc-suite)")
    drc.add_argument(
        "--only",
        metavar="GROUP",
        action="append",
        help="only this group or task, e.g. Essential-L1 or Essential-L1/q3 (repeatable)",
    )
    drc.add_argument("--search", action="store_true", help="search for repairs even where they are recorded")
    add_json_flag(drc)
    drc.set_defaults(run=_drc_suite)

    ppa = what.add_parser(
        "ppa-suite",
        help="build the 75-task PPA suite with its sweeps",
        description="Sweep the embedded flow over knobs and clock period, and build the PPA suite from the tables: "
        "task folders with reports, prompts and references. Goes on where it was stopped. Equal seeds give equal "
        "bytes.",
    )
    add_seed_flag(ppa, 7, "generation seed; 7 made the shipped suite")
    ppa.add_argument("--out", metavar="DIR", default="out/ppa-suite", help="output folder (default: out/ppa-suite)")
    ppa.add_argument("--only", metavar="GROUP", action="append", help="only this group, e.g. Multi-L1 (repeatable)")
    ppa.add_argument("--shipped-sweeps", action="store_true", help="build from the shipped tables instead of sweeping")
    ppa.add_argument("--workers", type=int, default=1, metavar="N", help="processes (default: %(default)s)")
    add_json_flag(ppa)
    ppa.set_defaults(run=_ppa_suite)

    tech = what.add_parser(
        "ppa-tech",
        help="make the flow's technology data from Liberty files",
        description="Reduce the ASAP7 Liberty files of a folder (e.g. a checkout of OpenROAD-flow-scripts) to the "
        "compact tables of the embedded flow; prints sizes and coding errors. Equal libraries give equal bytes.",
    )
    tech.add_argument("--liberty", metavar="DIR", required=True, help="folder with the Liberty files, plain or gzip")
    tech.add_argument("--out", metavar="DIR", default="out/ppa-tech", help="output folder (default: out/ppa-tech)")
    add_json_flag(tech)
    tech.set_defaults(run=_ppa_tech)

    pages = what.add_parser(
        "docs",
        help="write the reference page of every environment id",
        description="Write a Markdown page per environment id, made from docstrings, spaces and recorded results, and "
        "an index.",
    )
    pages.add_argument("--out", metavar="DIR", default="out/environments", help="folder (default: out/environments)")
    pages.add_argument("--results", metavar="FILE", help="JSON file of recorded results, as docs/results.json")
    add_json_flag(pages)
    pages.set_defaults(run=_docs)


def _contours(args: argparse.Namespace) -> int:
    from edagym.task_assets.fet.contours import generate_contours

    data = Path(args.data)
    if not data.is_dir():
        raise TaskError("no such folder", field="DATA_DIR", value=args.data, allowed="one with masks/ or micrographs/")
    report = generate_contours(data, out_dir(args.out))
    emit(args, report.to_dict(), report.text)
    return PASS


def _suite(args: argparse.Namespace) -> int:
    from edagym.envs.fet.generator import generate_suite

    folder = out_dir(args.out)
    report = generate_suite(folder, args.seed, only=args.only)
    text = "\n".join(f"{name}: {value}" for name, value in report.items())
    emit(args, {"out": str(folder), "seed": args.seed, **report}, f"{text}\nwrote {folder}")
    return PASS


def _drc_suite(args: argparse.Namespace) -> int:
    from edagym.baselines.search.solver import solve
    from edagym.envs.drc.generator import generate_suite

    folder = out_dir(args.out)
    report = generate_suite(folder, args.seed, solver=solve, only=args.only, search=args.search)
    text = "\n".join(f"{name}: {value}" for name, value in report.items())
    emit(args, {"out": str(folder), "seed": args.seed, **report}, f"{text}\nwrote {folder}")
    return PASS


def _ppa_suite(args: argparse.Namespace) -> int:
    from edagym.envs.ppa.generator import generate_suite
    from edagym.task_assets.ppa.sweep import load_sweeps

    folder = out_dir(args.out)
    sweeps = load_sweeps() if args.shipped_sweeps else None
    report = generate_suite(folder, args.seed, sweeps=sweeps, only=args.only, workers=args.workers)
    text = "\n".join(f"{name}: {value}" for name, value in report.items())
    emit(args, {"out": str(folder), "seed": args.seed, **report}, f"{text}\nwrote {folder}")
    return PASS


def _ppa_tech(args: argparse.Namespace) -> int:
    from edagym.envs.ppa.flow.characterise import characterise

    data = Path(args.liberty)
    if not data.is_dir():
        raise TaskError("no such folder", field="--liberty", value=args.liberty, allowed="one with Liberty files")
    folder = out_dir(args.out)
    report = characterise(data, folder)
    lines = []
    for name, item in report.items():
        error = max(item["max_error"].values())
        lines.append(f"{name}: {item['cells']} cells, {item['bytes']} bytes, largest coding error {error:.1e}")
    emit(args, {"out": str(folder), "files": report}, "\n".join([*lines, f"wrote {folder}"]))
    return PASS


def _docs(args: argparse.Namespace) -> int:
    from tqdm import tqdm

    from edagym.cli.env_pages import write_pages

    results = None if args.results is None else Path(args.results)
    if results is not None and not results.is_file():
        raise TaskError("no such file", field="--results", value=args.results)
    folder = out_dir(args.out)
    files = write_pages(folder, results, lambda rows: tqdm(rows, desc="pages"))
    emit(args, {"files": [p.name for p in files]}, f"wrote {len(files)} pages to {folder}")
    return PASS
