"""Import of the public PostEDA-Bench PPA tasks: folders with configuration, constraints, sources and flow results.

The initial values are those that ``info.json`` states and, for the metrics that it leaves out, those of the logs and
reports; so a task for the OpenROAD backend keeps the benchmark's numbers. For the embedded backend the design is run
once, and each target keeps its ratio to the initial value: the two flows' numbers are never mixed.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from edagym.envs.ppa.flow.backend import FlowBackend
from edagym.envs.ppa.flow.orfs_reports import clock_periods, read_metrics
from edagym.envs.ppa.function import guess_interface
from edagym.envs.ppa.runner import make_backend
from edagym.errors import FlowError, TaskError, ToolError
from edagym.task_assets.ppa.design import DesignFiles
from edagym.task_assets.ppa.sdc import Constraints, parse_sdc
from edagym.task_assets.ppa.task import BACKENDS, METRICS, PUBLIC_NAMES, PPATask, default_bounds, read_facts

_GROUPS = {"perf": "performance", "power": "power", "area": "area"}
_QUESTION = re.compile(r"q([0-9]{1,6})")


def import_ppa(folder: str | Path, *, backend: str | FlowBackend = "orfs", progress: bool = False) -> list[PPATask]:
    """Read the PPA tasks of a copy of the public benchmark.

    Args:
        folder: The benchmark's root, its ``ppa_bench`` folder, or one task's folder.
        backend: ``"orfs"``: tasks for OpenROAD-flow-scripts, with the benchmark's own numbers. ``"embedded"``, or a
            backend object of that name: tasks whose initial values this flow gives and whose targets are re-based.
        progress: Show a progress bar.

    Returns:
        The tasks, by group, level and number. Their ids are those of the benchmark, e.g. ``"posteda/Multi-L1/q3"``.
        Designs that the embedded flow cannot run are left out; their number is no error.

    Raises:
        TaskError: If the folder holds no PPA task or a file is missing or malformed; the message names it.
        ToolError: If an engine is missing or fails.
    """
    order = [*_GROUPS.values(), "multi"]
    found = sorted(set(_folders(Path(folder))), key=lambda f: (order.index(f[1]), f[2], f[3]))
    if not found:
        allowed = "one with ppa_bench/ppa_mono/area/L1/q1 ..."
        raise TaskError("no PPA tasks there", field="folder", value=str(folder), allowed=allowed)
    tasks = [_read(path, suite, level, number) for path, suite, level, number in found]
    if backend == "orfs":
        return tasks
    if isinstance(backend, str):
        if backend not in BACKENDS:
            raise TaskError("unknown backend", field="backend", value=backend, allowed=BACKENDS)
        backend = make_backend(backend)
    rebased = [rebase(task, backend) for task in tqdm(tasks, desc="tasks", disable=not progress)]
    return [task for task in rebased if task is not None]


def rebase(task: PPATask, backend: FlowBackend) -> PPATask | None:
    """Return a task with the initial values of a backend and targets at the same ratio; None if the flow fails."""
    try:
        report = backend.run(task.design).report
    except FlowError:
        return None
    values = {m: report.value(m) for m in METRICS}
    targets = {m: float(f"{values[m] * t / task.initial[m]:.6g}") for m, t in task.targets.items()}
    return dataclasses.replace(
        task,
        backend=backend.name,
        engine=backend.engine,
        initial=values,
        initial_metrics=dict(report.metrics),
        targets=targets,
        facts={},
        metadata={**task.metadata, "public_initial": dict(task.initial), "public_targets": dict(task.targets)},
    )


def _folders(root: Path) -> Iterator[tuple[Path, str, str, int]]:
    bases = (root, root / "ppa_bench")
    places = [p for base in bases for shape in ("ppa_mono/*/L*/q*", "ppa_multi/L*/q*") for p in base.glob(shape)]
    if (root / "info.json").is_file():
        places.append(root.resolve())
    for path in places:
        number, level, group = _QUESTION.fullmatch(path.name), path.parent.name, path.parent.parent.name
        if number is not None and re.fullmatch(r"L[123]", level):
            suite = "multi" if group == "ppa_multi" else _GROUPS.get(group)
            if suite is not None:
                yield path, suite, level, int(number[1])


def _read(path: Path, suite: str, level: str, number: int) -> PPATask:
    info = _json(path / "info.json")
    facts = read_facts(path)
    initial, metrics = reported_values(path)
    targets: dict[str, float] = {}
    for metric, name in PUBLIC_NAMES.items():
        target, value = info.get(f"target_{name}"), info.get(f"initial_{name}")
        if target is None:
            continue
        for what, given in (("target", target), ("initial", value)):
            if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given) or given <= 0:
                raise TaskError(f"{path}/info.json: malformed", field=f"{what}_{name}", value=given, allowed="> 0")
            (targets if what == "target" else initial)[metric] = float(given)
    if not targets:
        names = [f"target_{n}" for n in PUBLIC_NAMES.values()]
        raise TaskError(f"{path}/info.json: no targets", field="targets", allowed=names)
    missing = [m for m in METRICS if m not in initial]
    if missing:
        raise TaskError(f"{path}: no initial values in logs and reports", field="initial", value=missing)
    design = DesignFiles.from_folder(path)
    task = PPATask(
        id=f"posteda/{suite.capitalize()}-{level}/q{number}",
        suite=suite,
        level=level,
        backend="orfs",
        engine="",
        design=design,
        initial=initial,
        targets=targets,
        bounds=default_bounds(_first_constraints(path, design)),
        initial_metrics=metrics,
        facts=facts,
        metadata={
            "source": "PostEDA-Bench",
            "licence": "CC BY 4.0",
            "folder": "/".join(path.parts[-4:]),
            "knobs": _words(info.get("knob")),
            "values": _words(info.get("value")),
            "prompt": _text(path / "prompt.txt") if (path / "prompt.txt").is_file() else "",
        },
    )
    config, constraints = task.config(), task.constraints()
    try:
        function = guess_interface(config.design_name, design.sources, constraints)
    except TaskError as e:
        # Such a design can still be configured; only edits of its sources cannot be judged.
        function = {"kind": "", "why": str(e)}
    return dataclasses.replace(task, function=function)


def _first_constraints(path: Path, design: DesignFiles) -> Constraints:
    try:
        return parse_sdc(design.one(".sdc")[1], f"{path}/{design.one('.sdc')[0]}")
    except FlowError as e:
        raise TaskError(str(e), field="constraints") from None


def reported_values(path: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Return the scored metrics and the stage metrics that a task folder's logs and reports state.

    Effective period: the largest ``period_min`` over all clocks. (The public harness takes the first.)
    """
    try:
        stages, _ = read_metrics(path / "logs")
    except ToolError as e:
        raise TaskError(str(e)) from None
    found = {}
    for metric, key in (("total_power", "finish__power__total"), ("die_area", "finish__design__die__area")):
        if stages.get(key, 0.0) > 0:
            found[metric] = stages[key]
    report = path / "reports" / "6_finish.rpt"
    periods = clock_periods(_text(report)) if report.is_file() else {}
    if max(periods.values(), default=0.0) > 0:
        found["effective_period"] = max(periods.values())
    return found, stages


def _words(value: Any) -> list[str]:
    return [] if value is None else [str(v) for v in value] if isinstance(value, list) else [str(value)]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as e:
        raise TaskError(f"{path}: cannot be read ({e.strerror})") from None


def _json(path: Path) -> Mapping[str, Any]:
    try:
        data = json.loads(_text(path))
    except (ValueError, RecursionError) as e:
        raise TaskError(f"{path}: not JSON ({e})") from None
    if not isinstance(data, dict):
        raise TaskError(f"{path}: not a JSON object")
    return data
