"""What a PPA episode runs on: the design's files as they are now, and the runs so far."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from edagym.spaces.knobs import KnobSpace
from edagym.spaces.reports import BROKEN, COMPLETED, FLOW_FAILED, SUCCESS, ReportSpace, RunRow
from edagym.task_assets.ppa.config import FlowConfig, parse_config
from edagym.task_assets.ppa.design import DesignFiles
from edagym.task_assets.ppa.knobs import reference_page
from edagym.task_assets.ppa.sdc import Constraints, parse_sdc
from edagym.task_assets.ppa.task import METRICS, PPATask
from edagym.verifiers.ppa.report import PPAReport
from edagym.verifiers.ppa.verifier import FunctionCheck

REFERENCE_PAGE = "FlowVariables.md"
MAX_PATH_LINES = 60


@dataclass(frozen=True)
class Run:
    """One flow run of the episode.

    Attributes:
        digest: Digest of the files that were run.
        report: The report, or None.
        failure: Why there is none, or ``""``.
        function: The functional check, or None.
        critical_path: One line per stage of the worst path.
        nis: Improvement score after the run.
        success: Whether it met every target (paper, strict).
        setting: Clock period (ps), smallest delay fraction (-1: none), and the first number of each knob.
    """

    digest: str
    report: PPAReport | None
    failure: str
    function: FunctionCheck | None
    critical_path: tuple[str, ...]
    nis: float
    success: tuple[bool, bool]
    setting: tuple[float, ...]

    def row(self) -> RunRow:
        """Return the run as the observation's history shows it."""
        if self.report is None:
            status = FLOW_FAILED
        elif self.function is not None and not self.function.paper:
            status = BROKEN
        else:
            status = SUCCESS if self.success[0] else COMPLETED
        x = (0.0, 0.0, 0.0) if self.report is None else tuple(self.report.value(m) for m in METRICS)
        knobs = np.array(self.setting[2:], np.float32)
        return RunRow(status, x, self.nis, self.setting[0], self.setting[1], knobs)  # type: ignore[arg-type]

    def to_plain(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return {
            "digest": self.digest,
            "report": None if self.report is None else self.report.to_dict(),
            "failure": self.failure,
            "function": None if self.function is None else self.function.to_dict(),
            "critical_path": list(self.critical_path),
            "nis": self.nis,
            "success": list(self.success),
            "setting": list(self.setting),
        }

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Run:
        """Undo `to_plain`."""
        report, function = data["report"], data["function"]
        return cls(
            str(data["digest"]),
            None if report is None else PPAReport.from_dict(report),
            str(data["failure"]),
            None if function is None else FunctionCheck.from_dict(function),
            tuple(str(line) for line in data["critical_path"]),
            float(data["nis"]),
            (bool(data["success"][0]), bool(data["success"][1])),
            tuple(float(v) for v in data["setting"]),
        )


class PreparedTask:
    """What depends on a task only; shared by the environments of a process, so treat it as read-only.

    Args:
        task: The task.
    """

    def __init__(self, task: PPATask) -> None:
        self.task = task
        self.view = task.view()
        self.arrays = ReportSpace.encode_task(task.initial, task.targets)
        bounds = task.bounds
        share = (-1.0, -1.0) if bounds.io_fraction is None else bounds.io_fraction
        self.arrays["bounds"] = np.array((*bounds.period, *share), np.float32)
        self._plain: dict[str, Any] | None = None

    @property
    def plain(self) -> dict[str, Any]:
        """The whole task as plain data with a digest, made once: treat it as read-only."""
        if self._plain is None:
            task = self.task
            data: dict[str, Any] = {
                "task": task.to_dict(),
                "design": dict(task.design.files),
                "facts": dict(task.facts),
            }
            data["digest"] = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
            self._plain = data
        return self._plain


def task_from_plain(data: Any) -> PPATask:
    """Undo `PreparedTask.plain`; raises `TaskError`, `KeyError` or `TypeError`."""
    return PPATask.from_dict(data["task"], DesignFiles(dict(data["design"])), dict(data["facts"]), source="snapshot")


@dataclass(frozen=True)
class Setting:
    """A design's configuration and constraints, read, and as arrays; treat the arrays as read-only."""

    config: FlowConfig
    constraints: Constraints
    arrays: Mapping[str, np.ndarray]

    @property
    def plain(self) -> tuple[float, ...]:
        """Clock period, smallest delay fraction (-1: none), first number of each knob."""
        share = self.constraints.io_fraction
        first = self.arrays["knob_values"][:, 0]
        return (self.constraints.period, -1.0 if share is None else share, *(float(v) for v in first))


@lru_cache(maxsize=1024)
def read_setting(config: str, constraints: str) -> Setting:
    """Return what the two texts of a design say; raises `FlowError`."""
    read, limits = parse_config(config), parse_sdc(constraints)
    return Setting(read, limits, KnobSpace.encode(read, limits))


def setting_of(design: DesignFiles) -> Setting:
    """Return a design's setting; raises `FlowError` or `TaskError`."""
    return read_setting(design.one(".mk")[1], design.one(".sdc")[1])


def visible_files(task: PPATask, design: DesignFiles, runs: tuple[Run, ...]) -> dict[str, str]:
    """Return path -> text of all that an agent may read: design, logs, reports, runs, the page on the knobs."""
    start = {**task.initial, "metrics": dict(task.initial_metrics)}
    files = {**task.facts, **design.files, REFERENCE_PAGE: reference_page()}
    files["runs/0/ppa.json"] = json.dumps(start, indent=1) + "\n"
    for i, run in enumerate(runs, 1):
        if run.report is None:
            files[f"runs/{i}/error.txt"] = run.failure + "\n"
            continue
        files[f"runs/{i}/ppa.json"] = json.dumps(run.report.to_dict(), indent=1) + "\n"
        if run.critical_path:
            files[f"runs/{i}/critical_path.rpt"] = "\n".join(run.critical_path) + "\n"
    return dict(sorted(files.items()))
