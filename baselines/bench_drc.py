"""Speed of the DRC family in one run: full checks, re-checks after edits, resets, the audit; KLayout beside it.

Times are CPU milliseconds of this process unless a name says wall.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import klayout.db as kdb
import numpy as np
from tqdm import tqdm

from edagym.baselines.bench import _cpu_name
from edagym.envs.core.trace import tool_versions
from edagym.envs.drc.edits import LayoutEditor
from edagym.errors import EditError, TaskError
from edagym.spaces.drc_edits import AddShape, ChangeShape, Delete, Move, MoveEdge, ShapeRef, box_points
from edagym.task_assets.drc.blocks import generate_block
from edagym.verifiers.drc import DRCLayout, MarkerStore, RuleTable, full_check, load_table
from edagym.verifiers.drc.connectivity import Reference
from edagym.verifiers.drc.incremental import IncrementalChecker
from edagym.verifiers.drc.stack import stack_of

_LONG_UM = 5.0


def bench_drc(
    layouts: Sequence[str | Path] = (),
    edits: int = 150,
    klayout_deck: str | Path | None = None,
    progress: bool = True,
    full: bool = True,
    workers: int = 2,
) -> dict[str, Any]:
    """Measure the DRC engine.

    Args:
        layouts: Layout files to measure beside the generated block.
        edits: Random edits per layout.
        klayout_deck: Rule deck to time the ``klayout`` binary with; None, or no binary: not timed.
        progress: Whether to show a progress bar.
        full: Whether to check the layout files in full too.
        workers: Processes of the full checks of layout files.

    Returns:
        A JSON-ready dict: ``full_check_ms`` of one shape, of a standard cell and of a generated block in this process;
        ``full_check_s`` per layout file, wall and CPU seconds in `workers` processes, and the most memory that one of
        them took; ``recheck_ms`` per layout, see `recheck_ms`; ``load_ms``; ``reset_ms``, the copies of a layout and of
        its markers that a new episode needs; ``audit_ms``; ``klayout_wall_ms`` of the binary, where there is one;
        ``machine``.
    """
    table = load_table()
    made = DRCLayout(generate_block(np.random.default_rng(0), rows=8, width_cpp=60).layout())
    cell = largest_cell(made)
    small = one_shape(table)
    files = {_name(p): DRCLayout.from_gds(p) for p in layouts}
    if len(files) < len(layouts):
        raise TaskError("layout files of one name", field="layouts", value=[str(p) for p in layouts])
    both = {"block": made, **files}
    steps: list[tuple[str, Callable[[], Any]]] = [
        (
            "full_check_ms",
            lambda: {
                "one shape": _spread(_times(lambda: full_check(small, table), 50)),
                f"cell {cell.top.name}, {cell.flat_shapes()} shapes": _spread(
                    _times(lambda: full_check(cell, table), 20)
                ),
                f"block, {made.flat_shapes()} shapes": _spread(_times(lambda: full_check(made, table), 1)),
            },
        ),
        ("recheck_ms", lambda: {name: recheck_ms(value, table, edits) for name, value in both.items()}),
        ("load_ms", lambda: {name: _spread(_times(partial(_reload, value), 3)) for name, value in both.items()}),
        ("reset_ms", lambda: {name: _spread(_times(_reset(value, table), 20)) for name, value in both.items()}),
        ("audit_ms", lambda: {name: audit_ms(value, table) for name, value in both.items()}),
    ]
    if full and files:
        # Before the others, so that the memory is that of the checks.
        steps.insert(0, ("full_check_s", lambda: {n: full_check_s(v, table, workers) for n, v in files.items()}))
    binary = shutil.which("klayout")
    if binary is not None and klayout_deck is not None:
        timed = {"one shape": small, f"cell {cell.top.name}": cell, **(files if full else {})}
        steps.append(
            (
                "klayout_wall_ms",
                lambda: {name: klayout_ms(binary, klayout_deck, value) for name, value in timed.items()},
            )
        )
    results: dict[str, Any] = {}
    for name, measure in tqdm(steps, desc="bench drc", disable=not progress):
        results[name] = measure()
    results["klayout_binary"] = binary
    results["machine"] = {"cpu": _cpu_name(), "cpus": os.cpu_count(), "load": os.getloadavg()[0], **tool_versions()}
    return results


def _name(path: str | Path) -> str:
    """Name a layout file: benchmark files are all called ``top_cell.gds``, so their folders count too."""
    return "/".join(Path(path).resolve().parts[-4:]).removesuffix(".gds").removesuffix("/top_cell")


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


def full_check_s(layout: DRCLayout, table: RuleTable, workers: int) -> dict[str, float]:
    """Check a layout once in full, in worker processes.

    Returns:
        Wall seconds; CPU seconds of all processes together; MB of the largest of them so far; markers; shapes.
    """
    before = [_cpu(resource.RUSAGE_SELF), _cpu(resource.RUSAGE_CHILDREN)]
    start = time.perf_counter()
    found = full_check(layout, table, workers=workers).markers
    wall = time.perf_counter() - start
    cpu = _cpu(resource.RUSAGE_SELF) - before[0] + _cpu(resource.RUSAGE_CHILDREN) - before[1]
    peaks = [resource.getrusage(who).ru_maxrss / 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "wall_s": round(wall, 2),
        "cpu_s": round(cpu, 2),
        "workers": workers,
        "peak_mb": round(max(peaks)),
        "markers": len(found),
        "shapes": layout.flat_shapes(),
    }


def _cpu(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def _reload(layout: DRCLayout) -> DRCLayout:
    return DRCLayout.from_bytes(layout.to_bytes())


def _reset(layout: DRCLayout, table: RuleTable) -> Callable[[], Any]:
    """Return what a new episode on a layout needs: its copy, and a checker with its markers."""
    markers = IncrementalChecker(layout, table, MarkerStore(table.rules, layout.dbu)).markers

    def reset() -> IncrementalChecker:
        return IncrementalChecker(layout.copy(), table, markers)

    return reset


def recheck_ms(layout: DRCLayout, table: RuleTable, n: int, seed: int = 0) -> dict[str, Any]:
    """Time re-checks after random edits of the top cell, each undone afterwards.

    A quarter of the edits add a rectangle of 18 to 200 nm anywhere, on any layer that has shapes, cells' layers
    included. The others take any of the top cell's own shapes, each as likely as any other, rails and straps over the
    whole width included, and move it, move one of its edges, or delete it.

    The marker store starts empty: a re-check depends on what lies near the edit, not on what is known elsewhere.

    Args:
        layout: The layout; not changed.
        table: The rules.
        n: Number of edits.
        seed: Seed of the edits.

    Returns:
        CPU milliseconds of applying (``edit``) and of the re-check (``recheck``), wall milliseconds of the re-check
        (``recheck_wall``); ``over 5 um``: CPU of re-checks where the edited shape is longer than that; ``layers``:
        number of edits per layer.
    """
    work = layout.copy()
    editor = LayoutEditor(work, table)
    checker = IncrementalChecker(work, table, MarkerStore(table.rules, work.dbu))
    rng = np.random.default_rng(seed)
    samples: dict[str, list[float]] = {"edit": [], "recheck": [], "recheck_wall": [], "over 5 um": []}
    layers: dict[str, int] = {}
    for edit, size in _random_edits(work, table, rng, n):
        start = time.process_time()
        try:
            applied = editor.apply(edit)
        except EditError:
            continue
        middle, wall = time.process_time(), time.perf_counter()
        checker.recheck(applied.boxes, applied.layers, applied.change)
        end = time.process_time()
        samples["edit"].append((middle - start) * 1e3)
        samples["recheck"].append((end - middle) * 1e3)
        samples["recheck_wall"].append((time.perf_counter() - wall) * 1e3)
        if size * work.dbu > _LONG_UM:
            samples["over 5 um"].append((end - middle) * 1e3)
        layers[edit.layer] = layers.get(edit.layer, 0) + 1
        checker.markers = MarkerStore(table.rules, work.dbu)
        editor.undo()
    return {**{name: _spread(values) for name, values in samples.items() if values}, "layers": layers}


def _random_edits(
    layout: DRCLayout, table: RuleTable, rng: np.random.Generator, n: int
) -> Iterator[tuple[AddShape | ChangeShape, int]]:
    """Yield edits and the length of the edited shape in database units; see `recheck_ms`."""
    area = layout.top.bbox()
    nm = 0.001 / layout.dbu
    own: list[tuple[str, kdb.Box]] = []
    used = []
    for name, entry in table.layers.items():
        index = layout.layer_index(entry.layer, entry.datatype)
        if index is None or layout.top.bbox(index).empty():
            continue
        used.append(name)
        own += [(name, s.bbox()) for s in layout.top.shapes(index).each() if s.is_box()]
    own.sort(key=lambda pair: (pair[0], str(pair[1])))
    for _ in range(n):
        kind = int(rng.integers(4))
        if kind == 0 or not own:
            w, h = (round(float(v) * nm) for v in rng.uniform(18, 200, 2))
            x = int(rng.integers(area.left, max(area.left + 1, area.right - w)))
            y = int(rng.integers(area.bottom, max(area.bottom + 1, area.top - h)))
            yield AddShape(used[int(rng.integers(len(used)))], box_points((x, y, x + w, y + h))), max(w, h)
            continue
        name, box = own[int(rng.integers(len(own)))]
        step = int(rng.choice((-1, 1))) * max(1, round(float(rng.uniform(1, 30)) * nm))
        move = Move(step, 0) if rng.integers(2) else Move(0, step)
        change = (move, MoveEdge(int(rng.integers(4)), step), Delete())[kind - 1]
        ref = ShapeRef(box=(box.left, box.bottom, box.right, box.top))
        yield ChangeShape(name, ref, change), max(box.width(), box.height())


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
