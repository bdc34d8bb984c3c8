"""`edagym drc FILE.gds`: check a layout against a rule table."""

from __future__ import annotations

import argparse
import math
from typing import Any

from edagym.cli.common import FAIL, PASS, add_json_flag, emit, table

ITEMS_SHOWN = 20


def add_parser(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "drc",
        help="check design rules of a layout file",
        description="Check a layout file (GDSII, OASIS) against a rule table and list the violations as the sign-off "
        "tool counts them. Exit codes: 0 clean, 1 violations, 2 bad input, 3 tool error.",
    )
    parser.add_argument("layout", metavar="FILE.gds", help="layout file with one top cell")
    parser.add_argument(
        "--rules", metavar="TABLE", default="asap7", help="rule table: asap7, tutorial or a .json file (default: asap7)"
    )
    parser.add_argument("--roi", metavar="X1,Y1,X2,Y2", type=_roi, help="count only violations inside this box (um)")
    parser.add_argument("--lyrdb", metavar="OUT", help="write the violations as a KLayout report database too")
    parser.add_argument("--workers", metavar="N", type=_workers, default=1, help="processes (default: 1)")
    add_json_flag(parser)
    parser.set_defaults(run=_run)


def _roi(text: str) -> tuple[float, float, float, float]:
    try:
        x1, y1, x2, y2 = (float(v) for v in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not X1,Y1,X2,Y2") from None
    if not all(map(math.isfinite, (x1, y1, x2, y2))) or x1 >= x2 or y1 >= y2:
        raise argparse.ArgumentTypeError(f"{text!r} is no box: X1 < X2 and Y1 < Y2, in um")
    return (x1, y1, x2, y2)


def _workers(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 64:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes in 1..64")
    return int(text)


def _run(args: argparse.Namespace) -> int:
    from edagym.envs.drc.reporting import report_items
    from edagym.verifiers.drc import DRCLayout, full_check, load_table
    from edagym.verifiers.drc.lyrdb import check_target, write_lyrdb

    if args.lyrdb is not None:
        check_target(args.lyrdb)  # before the minutes that a check may take
    rules = load_table(args.rules)
    layout = DRCLayout.from_gds(args.layout)
    report = full_check(layout, rules, roi=args.roi, workers=args.workers, progress=not args.json)
    if args.lyrdb is not None:
        write_lyrdb(report, args.lyrdb)
    items = report_items(report)
    counts = report.counts
    data = {
        "layout": args.layout,
        "rules": rules.name,
        "top": layout.top.name,
        "dbu_um": layout.dbu,
        "roi_um": args.roi,
        "lyrdb": args.lyrdb,
        "clean": report.clean,
        "total": report.total,
        "counts": counts,
        "items": [item.to_dict() for item in items],
    }
    lines = [f"{args.layout}: top cell {layout.top.name}, rules {rules.name}: {report.total} violations"]
    if counts:
        rows = [[rule, n, rules.rules[rule].description] for rule, n in counts.items()]
        lines += ["", table(rows, ["rule", "count", "description"]), ""]
        lines += [f"{i.rule} in {i.cell}: {'; '.join(i.values)}" for i in items[:ITEMS_SHOWN]]
        if len(items) > ITEMS_SHOWN:
            lines.append(f"... and {len(items) - ITEMS_SHOWN} more (--json lists all)")
    emit(args, data, "\n".join(lines))
    return PASS if report.clean else FAIL
