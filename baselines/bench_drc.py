"""Speed of the DRC family in one run: full checks, re-checks after edits, resets, the audit; KLayout beside it.

Times are CPU milliseconds of this process unless a name says wall.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import klayout.db as kdb
import numpy as np
from tqdm import tqdm

from edagym.baselines.bench import _cpu_name
from edagym.envs.core.trace import tool_versions
from edagym.envs.drc.edits import LayoutEditor
from edagym.errors import EditError
from edagym.spaces.drc_edits import AddShape, ChangeShape, Delete, DRCEdit, Move, MoveEdge, ShapeRef, box_points
from edagym.task_assets.drc.blocks import generate_block
from edagym.verifiers.drc import DRCLayout, MarkerStore, RuleTable, full_check, load_table
from edagym.verifiers.drc.connectivity import Reference
from edagym.verifiers.drc.incremental import IncrementalChecker
from edagym.verifiers.drc.stack import stack_of

WINDOW_UM = 3.0
"""Edits are drawn within this distance of the layout's middle, um, so that a crowded place is measured."""


def bench_drc(
    layouts: Sequence[str | Path] = (), edits: int = 150, klayout_deck: str | Path | None = None, progress: bool = True
) -> dict[str, Any]:
    """Measure the DRC engine.

    Args:
        layouts: Layout files to measure beside the generated block. They are not checked in full here.
        edits: Random edits per layout.
        klayout_deck: Rule deck to time the ``klayout`` binary with; None, or no binary: not timed.
        progress: Whether to show a progress bar.

    Returns:
        A JSON-ready dict: ``full_check_ms`` of one shape, of a standard cell and of a generated block; ``recheck_ms``
        per layout; ``reset_ms``, the copy of a layout that a new episode needs; ``audit_ms``; ``klayout_wall_ms``;
        ``machine``.
    """
    table = load_table()
    made = DRCLayout(generate_block(np.random.default_rng(0), rows=8, width_cpp=60).layout())
    cell = largest_cell(made)
    small = one_shape(table)
    files = {Path(p).stem: DRCLayout.from_gds(p) for p in layouts}
    steps: list[tuple[str, Callable[[], Any]]] = [
        (
            "full_check_ms",
            lambda: {
                "one shape": _spread(_times(lambda: full_check(small, table), 50)),
                f"cell {cell.top.name}": _spread(_times(lambda: full_check(cell, table), 20)),
                f"block, {made.flat_shapes()} shapes": _spread(_times(lambda: full_check(made, table), 1)),
            },
        ),
        (
            "recheck_ms",
            lambda: {name: recheck_ms(value, table, edits) for name, value in {"block": made, **files}.items()},
        ),
        (
            "reset_ms",
            lambda: {name: _spread(_times(value.copy, 20)) for name, value in {"block": made, **files}.items()},
        ),
        (
            "audit_ms",
            lambda: {name: audit_ms(value, table) for name, value in {"block": made, **files}.items()},
        ),
    ]
    binary = shutil.which("klayout")
    if binary is not None and klayout_deck is not None:
        steps.append(("klayout_wall_ms", lambda: {"one shape": klayout_ms(binary, klayout_deck, small)}))
    results: dict[str, Any] = {}
    for name, measure in tqdm(steps, desc="bench drc", disable=not progress):
        results[name] = measure()
    results["machine"] = {"cpu": _cpu_name(), "cpus": os.cpu_count(), "load": os.getloadavg()[0], **tool_versions()}
    return results


# -- layouts -------------------------------------------------------------------------------------------------------


def one_shape(table: RuleTable) -> DRCLayout:
    """Return a layout of one rectangle on M2 that is too narrow."""
    layout = kdb.Layout()
    layout.dbu = 0.001
    entry = table.layers["M2"]
    layout.create_cell("top").shapes(layout.layer(entry.layer, entry.datatype)).insert(kdb.Box(0, 0, 400, 9))
    return DRCLayout(layout)


def largest_cell(layout: DRCLayout) -> DRCLayout:
    """Return the cell with the most shapes of those that the top cell places, as a layout of its own."""
    source = layout.layout
    indices = list(source.layer_indexes())

    def shapes(cell: kdb.Cell) -> int:
        return sum(cell.shapes(i).size() for i in indices)

    cells = [source.cell(i) for i in layout.top.each_child_cell()]
    best = max(cells, key=lambda c: (shapes(c), c.name))
    target = kdb.Layout()
    target.dbu = source.dbu
    target.create_cell(best.name).copy_tree(best)
    return DRCLayout(target)


# -- measurements --------------------------------------------------------------------------------------------------


def _spread(samples: Sequence[float]) -> dict[str, float]:
    return {
        "median": round(float(np.median(samples)), 3),
        "p99": round(float(np.percentile(samples, 99)), 3),
        "max": round(float(np.max(samples)), 3),
        "n": len(samples),
    }


def _times(run: Callable[[], Any], n: int) -> list[float]:
    if n > 1:
        run()  # compiling the rules is not part of a check
    samples = []
    for _ in range(n):
        start = time.process_time()
        run()
        samples.append((time.process_time() - start) * 1e3)
    return samples


def recheck_ms(layout: DRCLayout, table: RuleTable, n: int, seed: int = 0) -> dict[str, Any]:
    """Time re-checks after random edits of the top cell's shapes, each undone afterwards.

    The marker store starts empty: a re-check depends on what lies near the edit, not on what is known elsewhere.

    Args:
        layout: The layout; not changed.
        table: The rules.
        n: Number of edits.
        seed: Seed of the edits.
    """
    work = layout.copy()
    editor = LayoutEditor(work, table)
    checker = IncrementalChecker(work, table, MarkerStore(table.rules, work.dbu))
    rng = np.random.default_rng(seed)
    checks: list[float] = []
    applies: list[float] = []
    for edit in _random_edits(work, table, rng, n):
        start = time.process_time()
        try:
            applied = editor.apply(edit)
        except EditError:
            continue
        middle = time.process_time()
        checker.recheck(applied.boxes, applied.layers)
        end = time.process_time()
        applies.append((middle - start) * 1e3)
        checks.append((end - middle) * 1e3)
        checker.markers = MarkerStore(table.rules, work.dbu)
        editor.undo()
    return {"edit": _spread(applies), "recheck": _spread(checks)}


def _random_edits(layout: DRCLayout, table: RuleTable, rng: np.random.Generator, n: int) -> Iterator[DRCEdit]:
    """Yield additions, moves, moved edges and deletions near the layout's middle, on all layers that have shapes."""
    center = layout.top.bbox().center()
    reach = round(WINDOW_UM / layout.dbu)
    area = kdb.Box(center.x - reach, center.y - reach, center.x + reach, center.y + reach)
    nm = 0.001 / layout.dbu
    own: list[tuple[str, kdb.Box]] = []
    used = []
    for name, entry in table.layers.items():
        index = layout.layer_index(entry.layer, entry.datatype)
        if index is None or layout.top.bbox(index).empty():
            continue
        used.append(name)
        own += [(name, s.bbox()) for s in layout.top.shapes(index).each_touching(area) if s.is_box()]
    own.sort(key=lambda pair: (pair[0], str(pair[1])))
    for _ in range(n):
        kind = int(rng.integers(4))
        if kind == 0 or not own:
            x, y = (int(rng.integers(-reach, reach)) + c for c in (center.x, center.y))
            w, h = (round(float(v) * nm) for v in rng.uniform(18, 200, 2))
            yield AddShape(used[int(rng.integers(len(used)))], box_points((x, y, x + w, y + h)))
            continue
        name, box = own[int(rng.integers(len(own)))]
        step = max(1, round(float(rng.uniform(1, 30)) * nm))
        change = (Move(step, 0), MoveEdge(int(rng.integers(4)), step), Delete())[kind - 1]
        yield ChangeShape(name, ShapeRef(box=(box.left, box.bottom, box.right, box.top)), change)


def audit_ms(layout: DRCLayout, table: RuleTable) -> dict[str, float]:
    """Time the extraction of the original and the audit of a copy with one wire added."""
    start = time.process_time()
    reference = Reference(layout, stack_of(table))
    reference.netlist  # noqa: B018  # extracts it
    middle = time.process_time()
    changed = layout.copy()
    entry = table.layers["M2"]
    box = changed.top.bbox()
    width = max(1, round(0.018 / changed.dbu))
    where = kdb.Box(box.left, box.bottom, box.left + 10 * width, box.bottom + width)
    changed.top.shapes(changed.layout.layer(entry.layer, entry.datatype)).insert(where)
    reference.audit(changed)
    end = time.process_time()
    return {"extract": round((middle - start) * 1e3, 1), "audit": round((end - middle) * 1e3, 1)}


def klayout_ms(binary: str, deck: str | Path, layout: DRCLayout) -> float:
    """Return the wall time of the ``klayout`` binary running a deck on a layout (``-rd in_gds= report_file=``)."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in.gds"
        layout.write_gds(source)
        report = Path(folder) / "out.lyrdb"
        command = [binary, "-zz", "-rd", f"in_gds={source}", "-rd", f"report_file={report}", "-r", str(deck)]
        start = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True, timeout=1800)
        return round((time.perf_counter() - start) * 1e3, 1)
