"""Verdict on a PPA attempt: a pure function of task, design files, report and functional check.

`paper_success` is PostEDA-Bench's contract: a completed run meets every target, the functional check by simulation
passes, and the locked variables are the task's. `strict_success` adds the directed and formal parts of the functional
check and the guards on the constraints: they are edited by the agent, and a target met by declaring paths false or by
giving the input and output delays away is met on paper only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edagym.errors import FlowError, TaskError, ToolError
from edagym.task_assets.ppa.config import FlowConfig, locked_variables, parse_config
from edagym.task_assets.ppa.design import DesignFiles
from edagym.task_assets.ppa.sdc import Constraints, parse_sdc
from edagym.task_assets.ppa.task import METRICS, UNITS, PPATask
from edagym.verifiers.ppa.report import PPAReport
from edagym.verifiers.ppa.score import score
from edagym.verifiers.verdict import CheckResult, Verdict

NEVER_RUN = "the flow has not been run on the design as it is"


@dataclass(frozen=True)
class FunctionCheck:
    """Outcome of the comparison of a design's function with the original's.

    Attributes:
        paper: Whether simulation found no difference.
        strict: Whether directed vectors and the formal step found none either.
        message: What was done and found, one sentence.
    """

    paper: bool
    strict: bool
    message: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return {"paper": self.paper, "strict": self.strict, "message": self.message}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FunctionCheck:
        """Undo `to_dict`."""
        return cls(bool(data["paper"]), bool(data["strict"]), str(data["message"]))


SAME_SOURCES = FunctionCheck(True, True, "the sources are unchanged")


def verify(
    task: PPATask,
    design: DesignFiles,
    report: PPAReport | None,
    function: FunctionCheck | None,
    *,
    failure: str = NEVER_RUN,
    last: PPAReport | None = None,
    last_function: FunctionCheck | None = None,
) -> Verdict:
    """Judge a design.

    Args:
        task: The task.
        design: The design's files as they are now.
        report: Report of the run of these files; None: the run failed, or there was none.
        function: Result of the functional check of these files; None where there is no report.
        failure: Why there is no report.
        last: The last report of an earlier run in the attempt: the improvement score goes by it where `report` is
            None; None: by the initial values.
        last_function: The functional check of that run.

    Returns:
        Checks ``flow``, ``target:<metric>``, ``function``, ``locked``, ``files``; strict: ``strict_function``,
        ``strict_knobs``, ``strict_clocks``, ``strict_io_delays``, ``strict_exceptions``. Metrics: the values scored,
        ``nis``, ``nis_nothing`` (its value for a design left alone), ``score:<metric>``, ``completed``, and
        ``nis_flagged``: 1 where the function of the design that is scored broke, so that the score says nothing.

    Raises:
        ToolError: If the report is of another backend or engine than the task's numbers.
        ValueError: If there is a report but no functional check.
    """
    for given in (report, last):
        if given is not None:
            check_comparable(task, given)
    if report is not None and function is None:
        raise ValueError("a report needs a functional check beside it")
    final = report or last
    values = None if final is None else {m: final.value(m) for m in METRICS}
    scored = score(task.initial, task.targets, values)
    checks = [
        CheckResult("flow", "flow", report is not None, message="the flow completed" if report is not None else failure)
    ]
    checks += [_target(task, m, report) for m in METRICS if m in task.targets]
    checks.append(_function(function, strict=False))
    checks += _config_checks(task, design)
    checks.append(_function(function, strict=True))
    checks.append(_knob_check(task, design))
    checks += _constraint_checks(task, design)
    metrics = dict(values or task.initial)
    metrics |= {"nis": scored.nis, "nis_nothing": scored.nothing}
    metrics |= {f"score:{m}": s for m, s in scored.parts.items()}
    metrics["completed"] = float(report is not None)
    scored_function = last_function if report is None else function
    metrics["nis_flagged"] = float(scored_function is not None and not scored_function.paper)
    paper = all(c.passed for c in checks if not c.strict)
    return Verdict(paper, paper and all(c.passed for c in checks), tuple(checks), metrics)


def check_comparable(task: PPATask, report: PPAReport) -> None:
    """Raise `ToolError` if a report's numbers cannot be compared with the task's."""
    if report.backend != task.backend:
        raise ToolError("scores of two backends don't mix", field="backend", value=report.backend, allowed=task.backend)
    if task.engine and report.engine != task.engine:
        raise ToolError(
            "the task's numbers are of another engine version", field="engine", value=report.engine, allowed=task.engine
        )


def _target(task: PPATask, metric: str, report: PPAReport | None) -> CheckResult:
    target = task.targets[metric]
    value = None if report is None else report.value(metric)
    passed = value is not None and value <= target
    found = "no run" if value is None else f"{value:.6g}"
    message = f"{metric} at most {target:.6g} {UNITS[metric]}, found {found}"
    return CheckResult(f"target:{metric}", "target", passed, target, value, UNITS[metric], message=message)


def _function(function: FunctionCheck | None, *, strict: bool) -> CheckResult:
    name = "strict_function" if strict else "function"
    if function is None:
        return CheckResult(name, name, True, message="skipped: no completed run", strict=strict)
    passed = function.strict if strict else function.paper
    return CheckResult(name, name, passed, message=function.message, strict=strict)


def _config_checks(task: PPATask, design: DesignFiles) -> list[CheckResult]:
    missing = sorted(set(task.design.files) ^ set(design.files))
    files = CheckResult(
        "files", "files", not missing, message=f"files added or removed: {missing}" if missing else "the same files"
    )
    try:
        path, text = design.one(".mk")
        parse_config(text, path)
        before, after = locked_variables(task.design.one(".mk")[1]), locked_variables(text)
        changed = sorted(n for n in before.keys() | after.keys() if before.get(n) != after.get(n))
        message = f"locked variables changed: {', '.join(changed)}" if changed else "locked variables are unchanged"
    except (FlowError, TaskError) as e:
        changed, message = ["?"], str(e)
    return [CheckResult("locked", "locked", not changed, message=message), files]


def _knob_check(task: PPATask, design: DesignFiles) -> CheckResult:
    try:
        path, text = design.one(".mk")
        fault = knob_fault(task, parse_config(text, path))
    except (FlowError, TaskError) as e:
        fault = str(e)
    return CheckResult("strict_knobs", "strict_knobs", not fault, message=fault or "within bounds", strict=True)


def knob_fault(task: PPATask, now: FlowConfig) -> str:
    """Return which knobs that the task locks have another value, or ``""``.

    A locked ``CORE_MARGIN`` also bounds the room that explicit boxes leave around the core. For the real flow,
    variables that the knob table does not know are locked too: some of them take parts of the design out of the flow.
    """
    before = task.config()
    changed = [name for name in task.bounds.locked if before.value(name) != now.value(name)]
    if task.backend == "orfs":
        changed += [n for n in {**before.other, **now.other} if before.other.get(n) != now.other.get(n)]
    if changed:
        return f"knobs that this task locks were changed: {', '.join(changed)}"
    if "CORE_MARGIN" in task.bounds.locked:
        least, found = _margins(before), _margins(now)
        if any(f < n - 1e-9 for f, n in zip(found, least)):
            return f"the core must stay {min(least):g} um off the die's edge, as CORE_MARGIN is locked: {min(found):g}"
    return ""


def _margins(config: FlowConfig) -> tuple[float, ...]:
    """Return the distances from core to die, um: left, bottom, right, top."""
    die, core = config.box("DIE_AREA"), config.box("CORE_AREA")
    if "CORE_UTILIZATION" in config.knobs or die is None or core is None:
        return (config.number("CORE_MARGIN"),) * 4
    return (core[0] - die[0], core[1] - die[1], die[2] - core[2], die[3] - core[3])


def _constraint_checks(task: PPATask, design: DesignFiles) -> list[CheckResult]:
    kinds = ("strict_clocks", "strict_io_delays", "strict_exceptions")
    try:
        path, text = design.one(".sdc")
        faults = constraint_faults(task, parse_sdc(text, path))
    except (FlowError, TaskError) as e:
        faults = dict.fromkeys(kinds, str(e))
    return [
        CheckResult(kind, kind, not faults.get(kind), message=faults.get(kind) or "within bounds", strict=True)
        for kind in kinds
    ]


def constraint_faults(task: PPATask, now: Constraints) -> dict[str, str]:
    """Return check id -> what is wrong with constraints, for the checks that fail.

    Args:
        task: The task.
        now: The constraints as they are now.
    """
    before, faults = task.constraints(), {}
    low, high = task.bounds.period
    same = [(c.name, c.port, c.waveform) for c in before.clocks] == [(c.name, c.port, c.waveform) for c in now.clocks]
    if not same:
        faults["strict_clocks"] = "clocks were added, removed or moved"
    elif not low <= now.period <= high:
        faults["strict_clocks"] = f"the clock period must be {low:g} to {high:g} ps, found {now.period:g}"
    elif [c.period for c in before.clocks[1:]] != [c.period for c in now.clocks[1:]]:
        faults["strict_clocks"] = "only the first clock's period may change"
    ends = [[(d.direction, d.clock, d.ports, d.options) for d in c.io_delays] for c in (before, now)]
    if ends[0] != ends[1]:
        faults["strict_io_delays"] = "input or output delays were added, removed or moved"
    elif task.bounds.io_fraction is not None:
        low, high = task.bounds.io_fraction
        # Rounding of the delay in the file, not of the task.
        bad = [d for d in now.io_delays if not low - 1e-6 <= d.fraction <= high + 1e-6]
        for old, new in zip(before.io_delays, now.io_delays):
            if new in bad and math.isclose(old.fraction, new.fraction, abs_tol=1e-6):
                bad.remove(new)
        if bad:
            d = bad[0]
            message = f"{d.direction} delays must be {low:g} to {high:g} of the period, found {d.fraction:g}"
            faults["strict_io_delays"] = message
    if before.false_paths != now.false_paths:
        faults["strict_exceptions"] = "false paths were added or removed"
    elif before.other != now.other:
        faults["strict_exceptions"] = "timing statements were added, removed or changed"
    return faults
