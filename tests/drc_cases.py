"""Small DRC layouts, folders and tasks that the tests of the environment share."""

from __future__ import annotations

import json
from pathlib import Path

import klayout.db as kdb
import numpy as np

from edagym.envs.drc.posteda import plain_markers
from edagym.task_assets.drc.blocks import gds_bytes, generate_block
from edagym.task_assets.drc.task import DRCTask, Limits, Violation
from edagym.verifiers.drc import DRCLayout, full_check, load_table

M1 = (19, 0)
M3 = (30, 0)


def bars(gap: int = 30, width: int = 40) -> bytes:
    """Two parallel M1 bars in a master that is placed once, and an M3 bar at top; 1 nm units."""
    layout = kdb.Layout()
    layout.dbu = 0.001
    master, top = layout.create_cell("PAIR"), layout.create_cell("top_cell")
    m1, m3 = layout.layer(*M1), layout.layer(*M3)
    master.shapes(m1).insert(kdb.Box(0, 0, width, 200))
    master.shapes(m1).insert(kdb.Box(width + gap, 0, 2 * width + gap, 200))
    top.insert(kdb.CellInstArray(master.cell_index(), kdb.Trans(1000, 500)))
    top.shapes(m3).insert(kdb.Box(2000, 0, 2018, 300))
    return gds_bytes(layout)


def make_task(gds: bytes, task_id: str = "Essential-L1/q1", **fields) -> DRCTask:
    """A task from a layout: report, counts and markers as the engine finds them."""
    table = load_table()
    report = full_check(DRCLayout.from_bytes(gds), table, roi=fields.get("roi"))
    layout = report.layout
    items = tuple(
        Violation(m.rule, table.rules[m.rule].description, layout.top.name, (m.text(layout.dbu),)) for m in report.flat
    )
    defaults = {
        "suite": "essential",
        "level": "L1",
        "top": layout.top.name,
        "counts": report.counts,
        "violations": items,
        "limits": Limits({}, 2.0),
        "markers": plain_markers(report.markers),
    }
    return DRCTask(id=task_id, gds=gds, **{**defaults, **fields})


def block_task(seed: int = 3, task_id: str = "Essential-L2/q1", **fields) -> DRCTask:
    """A generated block with a short stray M1 sliver at top: two or more violations, repaired by deleting it."""
    block = generate_block(np.random.default_rng(seed), rows=2, width_cpp=16, top_metal="M3")
    layout = DRCLayout.from_bytes(block.gds())
    layout.top.shapes(layout.layout.layer(*M3)).insert(kdb.Box(-400, 0, -390, 30))
    fields = {"level": "L2", "golden": block.gds(), **fields}
    return make_task(layout.to_bytes(), task_id, **fields)


def write_report(path: Path, items: list[Violation]) -> None:
    """A sign-off report in the form of KLayout's report database."""
    rules = dict.fromkeys(v.rule for v in items)
    cells = {v.cell: v for v in items}
    lines = ["<?xml version='1.0' encoding='utf-8'?>", "<report-database>", "<categories>"]
    lines += [f"<category><name>{r}</name><description>{r} : text</description></category>" for r in rules]
    lines += ["</categories>", "<cells>"]
    for cell, v in cells.items():
        ref = f"<ref><parent>{v.parent}</parent><trans>{v.trans}</trans></ref>" if v.parent else ""
        variant = "r0" if v.parent else ""
        lines.append(f"<cell><name>{cell}</name><variant>{variant}</variant><references>{ref}</references></cell>")
    lines += ["</cells>", "<items>"]
    for v in items:
        name = f"{v.cell}:r0" if v.parent else v.cell
        values = "".join(f"<value>{x}</value>" for x in v.values)
        lines.append(f"<item><category>'{v.rule}'</category><cell>{name}</cell><values>{values}</values></item>")
    lines += ["</items>", "</report-database>"]
    path.write_text("\n".join(lines), encoding="utf-8")


def write_benchmark(root: Path) -> dict[str, list[Violation]]:
    """Two task folders as the public benchmark has them; returns the items per folder."""
    one = [Violation("M1.S.1", "M1.S.1 : text", "top_cell", ("edge-pair: (1.04,0.5;1.04,0.7)|(1.05,0.7;1.05,0.5)",))]
    two = [
        Violation(
            "M3.A.1", "M3.A.1 : text", "PAIR", ("polygon: (0,0;0,0.02;0.018,0.02;0.018,0)",), "top_cell", "m0 *1 1,2"
        ),
        Violation("M3.A.1", "M3.A.1 : text", "PAIR", ("edge: (0,0;0,0.02)",), "top_cell", "m0 *1 1,2"),
    ]
    found = {"drc_essential/L1/q3": one, "drc_reasoning/L3/q12": two}
    for name, items in found.items():
        folder = root / "drc_bench" / name
        folder.mkdir(parents=True)
        (folder / "top_cell.gds").write_bytes(bars(10))
        write_report(folder / "6_drc_count.rpt", items)
        counts: dict[str, int] = {}
        for v in items:
            counts[v.rule] = counts.get(v.rule, 0) + 1
        info = {"init_cell_name": "top_cell", "init_errors_num": len(items), "init_error_types": counts}
        info["num_iterations"] = 16 if "L3" in name else 8
        if "reasoning" in name:
            info["steps_by_human"] = 2
            deck = "layer = input(1, 0)\n  roi_box = box(0.5.um, -1.um, 3.25.um, 2.um)\n"
            (folder / "drc.lydrc").write_text(deck, encoding="utf-8")
        (folder / "info.json").write_text(json.dumps(info), encoding="utf-8")
        (folder / "prompt.txt").write_text("the input gds file is ./top_cell.gds\n", encoding="utf-8")
    return found
