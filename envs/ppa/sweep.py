"""Sweeps of the flow over knobs and clock period: what `Sweep` tables, and with them tasks, are made of.

Runs are kept in a JSONL file by engine and digest of the design's files, so that a sweep that was stopped goes on where
it was. Periods are ps, powers W, areas um2.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from edagym.envs.ppa.flow.embedded import EmbeddedFlow
from edagym.envs.ppa.training import apply_settings
from edagym.errors import FlowError
from edagym.task_assets.ppa.config import parse_config
from edagym.task_assets.ppa.design import DesignFiles
from edagym.task_assets.ppa.designs import RtlDesign
from edagym.task_assets.ppa.knobs import knob_table, number_text
from edagym.task_assets.ppa.sdc import parse_sdc
from edagym.task_assets.ppa.sweep import Sweep, SweepPoint
from edagym.task_assets.ppa.task import METRICS

PERIOD = "clock_period"
"""Name of the axis that is no knob."""
BASE = {
    "ABC_AREA": "0",
    "ASAP7_USE_VT": "RVT",
    "CORE_UTILIZATION": "50",
    "PLACE_DENSITY": "0.6",
    "SETUP_SLACK_MARGIN": "0",
    "TNS_END_PERCENT": "100",
    "RECOVER_POWER": "0",
}
"""Knobs that every base configuration states, so that a file does not tell which of them a task has changed."""
IO_FRACTION = 0.2
"""Input and output delays of base designs, as in the public benchmark's constraints."""


@dataclass(frozen=True)
class Axis:
    """One dimension of a sweep.

    Attributes:
        name: A knob, or `PERIOD`.
        values: Texts of the knob, or periods in ps.
    """

    name: str
    values: tuple[str, ...]

    def edit(self, value: str) -> dict[str, Any]:
        """Return the edit, JSON form, that sets a value."""
        if self.name == PERIOD:
            return {"op": "set_period", "period": float(value), "clock": ""}
        return {"op": "set_knob", "name": self.name, "value": value}

    def base_value(self, design: DesignFiles) -> str:
        """Return the value that a design has."""
        if self.name == PERIOD:
            return number_text(parse_sdc(design.one(".sdc")[1]).period)
        return knob_table()[self.name].text(parse_config(design.one(".mk")[1]).value(self.name))


@dataclass(frozen=True)
class RunValues:
    """What a run gave.

    Attributes:
        values: Metric -> value, or None where the flow failed.
        failure: Why it failed, or ``""``.
    """

    values: Mapping[str, float] | None
    failure: str = ""


Pool = Callable[[Callable[[DesignFiles], RunValues], Mapping[str, DesignFiles], int], Iterable[tuple[str, RunValues]]]
"""Yields key and result of a function of every item, in any order; the number is the calls at a time."""


def base_design(rtl: RtlDesign, period: float | None = None) -> DesignFiles:
    """Return a design of ours in the public benchmark's form, with the knobs of `BASE`.

    Args:
        rtl: The design.
        period: Clock period (of a virtual clock where there is no clock port), ps; None: the design's own.
    """
    clock = rtl.interface.clock
    config = [
        "export PLATFORM = asap7",
        f"export DESIGN_NAME = {rtl.top}",
        f"export DESIGN_NICKNAME = {rtl.name}",
        f"export VERILOG_FILES = {' '.join(f'./designs/src/{rtl.name}/{Path(p).name}' for p in rtl.files.sources)}",
        f"export SDC_FILE = ./designs/asap7/{rtl.name}/constraint.sdc",
        "",
        *(f"export {name} = {value}" for name, value in BASE.items()),
    ]
    port = f" [get_ports {clock}]" if clock else ""
    constraints = [
        f"current_design {rtl.top}",
        "",
        "set clk_name core_clock",
        f"set clk_period {number_text(period or rtl.period_ps)}",
        f"set clk_io_pct {IO_FRACTION}",
        "",
        f"create_clock -name $clk_name -period $clk_period{port}",
        "set_input_delay [expr $clk_period * $clk_io_pct] -clock $clk_name [all_inputs -no_clocks]",
        "set_output_delay [expr $clk_period * $clk_io_pct] -clock $clk_name [all_outputs]",
    ]
    return DesignFiles(
        {
            **rtl.files.sources,
            "config/config.mk": "\n".join(config) + "\n",
            "config/constraint.sdc": "\n".join(constraints) + "\n",
        }
    )


def default_axes(design: DesignFiles, period_factors: Sequence[float] = (0.75, 1.0, 1.4)) -> tuple[Axis, ...]:
    """Return the axes of a full sweep of a design: the knobs with the largest effects, and the clock period."""
    period = parse_sdc(design.one(".sdc")[1]).period
    return (
        Axis("ABC_AREA", ("0", "1")),
        Axis("ASAP7_USE_VT", ("RVT", "LVT", "SLVT")),
        Axis("CORE_UTILIZATION", ("25", "50", "75")),
        Axis("PLACE_DENSITY", ("0.6", "0.85")),
        Axis("SETUP_SLACK_MARGIN", ("0", "40")),
        Axis("RECOVER_POWER", ("0", "100")),
        Axis(PERIOD, tuple(number_text(round(period * f, 3)) for f in period_factors)),
    )


def grid(axes: Sequence[Axis]) -> list[tuple[str, ...]]:
    """Return every combination of the axes' values, one tuple a setting, in a fixed order."""
    return list(itertools.product(*(axis.values for axis in axes)))


def latin_hypercube(axes: Sequence[Axis], n: int, rng: np.random.Generator) -> list[tuple[str, ...]]:
    """Return `n` settings in which each axis takes each of its values about equally often, in random combinations."""
    columns = []
    for axis in axes:
        places = (rng.permutation(n) + rng.random(n)) / max(n, 1)
        columns.append([axis.values[int(p * len(axis.values))] for p in places])
    return list(zip(*columns, strict=True))


def edits_of(design: DesignFiles, axes: Sequence[Axis], setting: Sequence[str]) -> tuple[dict[str, Any], ...]:
    """Return the edits, JSON form, that lead from a base design to a setting: one for each axis that differs."""
    pairs = zip(axes, setting, strict=True)
    return tuple(axis.edit(value) for axis, value in pairs if value != axis.base_value(design))


def run_sweep(
    name: str,
    design: DesignFiles,
    axes: Sequence[Axis],
    settings: Sequence[Sequence[str]],
    *,
    function: Mapping[str, Any] | None = None,
    record: Path | None = None,
    workers: int = 1,
    pool: Pool | None = None,
    progress: bool = True,
) -> Sweep:
    """Run the embedded flow on settings of a design.

    Args:
        name: Name of the table.
        design: The base design.
        axes: The axes.
        settings: One value per axis each.
        function: The design's interface, JSON, for the table.
        record: JSONL file of runs: those that it holds are not run again, new ones are appended.
        workers: Processes.
        pool: Runs the flow elsewhere than in local processes.
        progress: Whether to show a progress bar.

    Raises:
        FlowError: If the base design cannot be read.
        ToolError: If an engine is missing or fails.
    """
    edits = [edits_of(design, axes, setting) for setting in settings]
    designs = [apply_settings(design, e) for e in edits]
    found = run_designs(designs, label=name, record=record, workers=workers, pool=pool, progress=progress)
    points = tuple(SweepPoint(e, r.values) for e, r in zip(edits, found, strict=True))
    return Sweep(name, EmbeddedFlow.name, EmbeddedFlow().engine, design, points, dict(function or {}))


def run_designs(
    designs: Sequence[DesignFiles],
    *,
    label: str,
    record: Path | None = None,
    workers: int = 1,
    pool: Pool | None = None,
    progress: bool = True,
) -> list[RunValues]:
    """Run the embedded flow on designs, each once; see `run_sweep`."""
    engine = EmbeddedFlow().engine
    known = {} if record is None else _read(record, engine)
    todo = {d.digest(): d for d in designs if d.digest() not in known}
    bar = tqdm(total=len(designs), initial=len(designs) - len(todo), desc=label, disable=not progress)
    for digest, result in _run_all(todo, workers) if pool is None else pool(run_one, todo, workers):
        known[digest] = result
        bar.update()
        if record is not None:
            record.parent.mkdir(parents=True, exist_ok=True)
            row = {"engine": engine, "digest": digest, "values": result.values, "failure": result.failure}
            with record.open("a", encoding="utf-8") as f:
                f.write(json.dumps(row) + "\n")
    bar.close()
    return [known[d.digest()] for d in designs]


def _run_all(todo: Mapping[str, DesignFiles], workers: int) -> Iterator[tuple[str, RunValues]]:
    if workers <= 1 or len(todo) < 2:
        for digest, design in todo.items():
            yield digest, run_one(design)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(run_one, design): digest for digest, design in todo.items()}
        for future in as_completed(futures):
            yield futures[future], future.result()


def run_one(design: DesignFiles) -> RunValues:
    """Run the embedded flow on one design; a failure of the flow is a result."""
    try:
        report = EmbeddedFlow().run(design).report
    except FlowError as e:
        return RunValues(None, str(e))
    return RunValues({m: report.value(m) for m in METRICS})


def _read(record: Path, engine: str) -> dict[str, RunValues]:
    """Return the runs of a record by digest; a line that a kill cut short is skipped and sealed off."""
    if not record.exists():
        return {}
    text = record.read_text(encoding="utf-8")
    if text and not text.endswith("\n"):
        with record.open("a", encoding="utf-8") as f:
            f.write("\n")
    found = {}
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if row["engine"] == engine:
            found[row["digest"]] = RunValues(row["values"], row["failure"])
    return found
