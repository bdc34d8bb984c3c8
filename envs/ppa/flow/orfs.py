"""`OrfsFlow`: designs on the user's own OpenROAD-flow-scripts, which the environment variable OPENROAD_FLOW_DIR names.

Every run has a scratch folder of its own, outside the checkout, and a session of its own, which is killed as a whole
when the time is over. The configuration comes from agents and from other people's task folders, and make runs what it
says: so only plain values reach make, and of its functions only those that handle text and file names.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from edagym.envs.ppa.flow.backend import FlowResult
from edagym.envs.ppa.flow.orfs_reports import (
    FinishReport,
    SynthReport,
    parse_finish,
    parse_synth,
    read_metrics,
    read_text,
)
from edagym.envs.ppa.flow.synth import cache_folder
from edagym.errors import FlowError, ToolError, ToolTimeout
from edagym.task_assets.ppa.config import FlowConfig, assignments, is_locked, parse_config
from edagym.task_assets.ppa.design import DesignFiles
from edagym.task_assets.ppa.knobs import STRUCTURAL, knob_table
from edagym.task_assets.ppa.sdc import parse_sdc
from edagym.verifiers.ppa.report import PPAReport
from edagym.verifiers.ppa.yosys import check_sources

TIMEOUT_S = 1800.0
"""Wall-clock limit of one run, s (PostEDA-Bench, Section 4.2), unless EDAGYM_ORFS_TIMEOUT or the caller says else."""
TAIL_LINES = 15
"""Lines of the log that a `ToolError` quotes."""
MAX_LOG_BYTES = 16_000_000
"""How much of the end of the log is searched for messages, bytes."""

DESIGN_ERRORS = (
    (r"FLW-0024", "the density that placement would need is over 100 %"),
    (r"IFP-\d{4}", "the floorplan is impossible"),
    (r"TAP-\d{4}", "tap cells don't fit"),
    (r"PDN-\d{4}", "the power grid does not fit"),
    (r"MPL-\d{4}", "the macros don't fit"),
    (r"PPL-\d{4}", "the pins don't fit around the die"),
    (r"GPL-0301", "the utilisation is over 100 %"),
    (r"GPL-0302", "the target density is below what the cells need"),
    (r"GPL-030[3-7]", "global placement diverged"),
    (r"GPL-0119", "a cell is higher than the core"),
    (r"DPL-\d{4}", "detailed placement failed"),
    (r"GRT-011[69]|GRT-0118|GRT-0232", "the routing is congested"),
    (r"DRT-0255", "a net cannot be routed"),
)
"""Codes of OpenROAD's error messages that are a design's fault (regular expressions), and what they mean."""

_STAGES = {"1": "synthesis", "2": "floorplan", "3": "place", "4": "cts", "5": "route", "6": "finish"}
_RUNNING = re.compile(r"^Running \S+, stage (\S+)", re.MULTILINE)
_TARGET = re.compile(r"^make(?:\[\d+\])?: \*\*\* \[(?:\S+:\d+: )?(?:\S*/)?([^\]\s]+)\] ", re.MULTILINE)
_MESSAGE = re.compile(r"^\[ERROR ([A-Z]{3}-\d{4})\] (.*)$", re.MULTILINE)
_YOSYS = re.compile(r"^(?:\S+:\d+: )?ERROR: (.*)$", re.MULTILINE)
# Errors that yosys words like errors of the design, but that are the installation's or the machine's.
_YOSYS_OWN = re.compile(
    r"ABC: execution of|Can't open (?!include file)|Can't load|out of memory|No such command|Command syntax error"
    r"|Assert `|No such file",
    re.IGNORECASE,
)
_CONSTRAINTS = re.compile(r"^Error: (?:\S*/)?[^/\s]+\.sdc, \d+ .*$", re.MULTILINE)
_CRASH = re.compile(
    r"^(?:.*\b)?(?:Segmentation fault|std::bad_alloc|Killed|Signal \d+ received|Aborted)\b", re.MULTILINE
)
_PLAIN = re.compile(r"[\w .,:+*%-]*")
_NAME = re.compile(r"[\w.-]+")
_FILE = re.compile(r"[\w.+/-]+")
_PROGRAM = re.compile(r".*_(EXE|CMD|ARGS|FLAGS|OPTS|OPTIONS)|SHELL|MAKE.*|PATH|LD_.*|PYTHON.*|FLOW_VARIANT")
_REFERENCE = re.compile(
    r"\$[({](?:\w+[)}:]|(?:sort|wildcard|strip|addprefix|addsuffix|dir|notdir|basename|abspath|realpath|patsubst|subst"
    r"|filter|filter-out|firstword|lastword|word|wordlist|words) )"
)
# What would reach make or the flow's scripts beside the design's own configuration.
_NOT_INHERITED = {*STRUCTURAL, "DESIGN_CONFIG", "FLOW_VARIANT", "WORK_HOME", "FLOW_HOME"}
_NOT_INHERITED |= {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEFILES", "GNUMAKEFLAGS"}


class OrfsFlow:
    """OpenROAD-flow-scripts as a `FlowBackend`.

    All Verilog files under ``src/`` are compiled; the configuration's own lists of files are for the agent's eyes.

    Args:
        checkout: The checkout (the folder with ``flow/Makefile``); None: the variable OPENROAD_FLOW_DIR.
        timeout_s: Wall-clock limit of one run, s; None: the variable EDAGYM_ORFS_TIMEOUT, or `TIMEOUT_S`.
        keep: Folder under which each run's files, logs and reports are kept; None: the variable EDAGYM_ORFS_LOGS, or
            ``orfs`` in EDAGym's cache folder.

    Attributes:
        logs: Where logs and reports of the latest run are; None before any.

    Raises:
        ToolError: If the limit is no positive number.
    """

    name = "orfs"

    def __init__(
        self, checkout: str | Path | None = None, *, timeout_s: float | None = None, keep: str | Path | None = None
    ) -> None:
        self._checkout = checkout
        self.timeout_s = _timeout() if timeout_s is None else timeout_s
        self._keep = Path(keep or os.environ.get("EDAGYM_ORFS_LOGS") or cache_folder() / "orfs")
        self._engine: str | None = None
        self.logs: Path | None = None
        if not (math.isfinite(self.timeout_s) and self.timeout_s > 0):
            raise ToolError("not a time limit", field="timeout_s", value=self.timeout_s, allowed="> 0 s")

    @property
    def checkout(self) -> Path:
        """The checkout; raises `ToolError` if there is none."""
        named = self._checkout or os.environ.get("OPENROAD_FLOW_DIR")
        if not named:
            message = "set OPENROAD_FLOW_DIR to a checkout of OpenROAD-flow-scripts to run this backend"
            raise ToolError(message, field="OPENROAD_FLOW_DIR")
        root = Path(named).expanduser().resolve()
        if not (root / "flow" / "Makefile").is_file():
            message = "not a checkout of OpenROAD-flow-scripts"
            raise ToolError(message, field="OPENROAD_FLOW_DIR", value=str(root), allowed="a folder with flow/Makefile")
        return root

    @property
    def engine(self) -> str:
        """Version of the checkout as ``git describe`` states it; ``"unknown"`` without git."""
        if self._engine is None:
            self._engine = f"OpenROAD-flow-scripts {_describe(self.checkout)}"
        return self._engine

    def run(self, design: DesignFiles) -> FlowResult:
        """Run the whole flow; see `FlowBackend.run`.

        Raises:
            FlowError: If the flow finds fault with the design (see `DESIGN_ERRORS`), or its files say something that
                must not reach make; `field` names the stage.
            ToolError: If the checkout is missing, a tool crashed, or a log or report is missing or malformed: with the
                stage, the last lines of the log, and where the rest is. `ToolTimeout` if the limit is over.
        """
        flow = self.checkout / "flow"
        engine = self.engine
        make = shutil.which("make")
        if make is None:
            raise ToolError("make is not installed", field="make")
        config = check_design(design)
        self.logs = self._folder(f"{config.design_name}-{design.digest()[:12]}")
        with tempfile.TemporaryDirectory(prefix="edagym-orfs-") as name:
            work = Path(name).resolve()
            if not _FILE.fullmatch(str(work)):
                raise ToolError("make needs a plain path for temporary files", field="TMPDIR", value=str(work))
            design.write(work / "design")
            command = [make, "-C", str(flow), *_variables(design, config, flow, work)]
            try:
                code = self._supervise(command, self.logs / "make.log")
            finally:
                _save(work, self.logs)
        if code != 0:
            raise self._failure(code)
        return self._result(engine, config)

    def _folder(self, name: str) -> Path:
        """Make a new folder for a run; runs of the same design are numbered."""
        i = 1
        while True:
            folder = self._keep / f"{name}-{i}"
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                i += 1
            except OSError as e:
                raise ToolError(f"cannot keep logs ({e.strerror})", field="keep", value=str(folder)) from None
            else:
                return folder

    def _supervise(self, command: list[str], log_path: Path) -> int:
        knobs = knob_table()
        environment = {k: v for k, v in os.environ.items() if k not in knobs and k not in _NOT_INHERITED}
        with open(log_path, "wb") as log:
            try:
                child = subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as e:
                raise ToolError(f"make cannot be started ({e.strerror})", field="make", value=command[0]) from None
            try:
                return child.wait(self.timeout_s)
            except subprocess.TimeoutExpired:
                stage = _stage(_tail(log_path))
                message = f"OpenROAD-flow-scripts ran too long, in stage {stage or '?'}; logs: {log_path.parent}"
                raise ToolTimeout(message, field=stage or "flow", value=self.timeout_s) from None
            finally:
                # Also after a regular end: no tool must outlive the call.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()

    def _failure(self, code: int) -> FlowError | ToolError:
        assert self.logs is not None
        log = _tail(self.logs / "make.log")
        stage = _stage(log)
        reason = design_failure(log)
        if reason is not None:
            return FlowError(f"{stage or 'flow'}: {reason}", field=_STAGES.get(stage[:1], "flow"))
        tail = "\n".join(log.splitlines()[-TAIL_LINES:])
        message = f"OpenROAD-flow-scripts ended with code {code} in stage {stage or '?'}; logs: {self.logs}\n{tail}"
        return ToolError(message, field=stage or "flow", value=code)

    def _result(self, engine: str, config: FlowConfig) -> FlowResult:
        assert self.logs is not None
        logs, reports = self._find("6_report.json"), self._find("6_finish.rpt")
        metrics, properties = read_metrics(logs.parent)
        finish = parse_finish(read_text(reports), str(reports))
        synth_path = reports.parent / "synth_stat.txt"
        synth = parse_synth(read_text(synth_path), str(synth_path)) if synth_path.is_file() else None
        unit = properties.get("run__flow__platform__time_units", "1ps")
        if unit != "1ps":
            raise ToolError("the platform's times are not in ps", field="PLATFORM", value=unit, allowed="1ps")
        return FlowResult(make_report(engine, metrics, finish, synth, str(logs), config.warnings), finish.critical_path)

    def _find(self, name: str) -> Path:
        assert self.logs is not None
        found = sorted(self.logs.rglob(name))
        if len(found) != 1:
            message = f"the flow ended well but left {len(found)} files of this name; logs: {self.logs}"
            raise ToolError(message, field=name, value=len(found), allowed=1)
        return found[0]


def make_report(
    engine: str,
    metrics: Mapping[str, float],
    finish: FinishReport,
    synth: SynthReport | None = None,
    source: str = "6_report.json",
    warnings: tuple[str, ...] = (),
) -> PPAReport:
    """Put a run's numbers together.

    Args:
        engine: Versions that the numbers depend on.
        metrics: All stages' metrics (`read_metrics`).
        finish: The finish report.
        synth: The synthesis report.
        source: Name of the file with the last stage's metrics, for messages.
        warnings: What else there is to say.

    Raises:
        FlowError: If no path is constrained, so that there is no effective period.
        ToolError: If power or die area are missing, or metrics and finish report are not of the same run.
    """
    power, area = (metrics.get(key, 0.0) for key in ("finish__power__total", "finish__design__die__area"))
    for key, value in (("finish__power__total", power), ("finish__design__die__area", area)):
        if not value > 0:
            raise ToolError(f"{source}: missing or not positive", field=key, value=metrics.get(key))
    # The report prints three digits of powers and two decimals of times.
    if not math.isclose(power, finish.power["Total"][3], rel_tol=0.01):
        raise ToolError(
            f"{source} and 6_finish.rpt differ", field="finish__power__total", value=(power, finish.power["Total"][3])
        )
    slack = metrics.get("finish__timing__setup__ws", finish.worst_slack)
    if math.isfinite(finish.worst_slack) and not math.isclose(slack, finish.worst_slack, rel_tol=1e-4, abs_tol=0.02):
        raise ToolError(
            f"{source} and 6_finish.rpt differ", field="finish__timing__setup__ws", value=(slack, finish.worst_slack)
        )
    if not finish.effective_period > 0:
        raise FlowError("no timing path is constrained: there is no effective period", field="finish")
    extra = {"finish__timing__setup__wns": finish.wns}
    if synth is not None:
        extra["synth__design__instance__area"] = synth.area
        extra["synth__design__instance__count"] = float(synth.cells)
    notes = list(warnings)
    if len(finish.periods) > 1:
        extra.update({f"finish__timing__period_min__clock:{c}": p for c, p in finish.periods.items()})
        clock = max(finish.periods, key=lambda c: finish.periods[c])
        first = next(iter(finish.periods))
        notes.append(
            f"effective period: the largest over {len(finish.periods)} clocks, {finish.effective_period:.2f} ps of "
            f"{clock}; the public harness takes the first, {finish.first_period:.2f} ps of {first}"
        )
    broken = metrics.get("detailedroute__route__drc_errors", 0.0)
    if broken > 0:
        notes.append(f"detailed routing left {broken:.0f} design rule violations")
    return PPAReport("orfs", engine, finish.effective_period, power, area, {**metrics, **extra}, tuple(notes))


def check_design(design: DesignFiles) -> FlowConfig:
    """Return a design's configuration, if nothing in its files reaches beyond the flow.

    Raises:
        FlowError: If a file cannot be read, a variable that agents may set has more than plain text, or a source calls
            the host or names foreign files.
        ToolError: If a locked variable, which is the task's own, names a program or has make run something.
    """
    path, text = design.one(".mk")
    config = parse_config(text, path)
    for a in assignments(text, path):
        if not is_locked(a.name):
            if not _PLAIN.fullmatch(a.value):
                message = f"{path}, line {a.line}: only plain text may reach make"
                raise FlowError(message, field=a.name, value=a.value, allowed="letters, digits, blanks, . , : + * % -")
        elif _PROGRAM.fullmatch(a.name) or _REFERENCE.sub("", a.value).count("$") or "`" in a.value:
            message = f"{path}, line {a.line}: the task's configuration would run programs"
            raise ToolError(message, field=a.name, value=a.value)
    for name in ("PLATFORM", "DESIGN_NICKNAME"):
        if not _NAME.fullmatch(config.structural.get(name) or "x"):
            raise ToolError(f"{path}: not a name", field=name, value=config.structural[name])
    constraints_path, constraints = design.one(".sdc")
    parse_sdc(constraints, constraints_path)
    for file in design.files:
        if not _FILE.fullmatch(file):
            raise ToolError("make needs plain file names", field="files", value=file)
    check_sources(design.sources)
    return config


def design_failure(log: str) -> str | None:
    """Return why a stage found fault with the design, in the tool's own words; None if it was the tool's own fault.

    Args:
        log: Output of make; only what its last stage says counts.
    """
    starts = [m.start() for m in _RUNNING.finditer(log)]
    part = log[starts[-1] :] if starts else log
    if _CRASH.search(part):
        return None
    for code, words in reversed(_MESSAGE.findall(part)):
        for pattern, meaning in DESIGN_ERRORS:
            if re.fullmatch(pattern, code):
                return f"{meaning}: [{code}] {words.strip()}"
    refused = _CONSTRAINTS.findall(part)
    if refused:
        return f"the constraints are refused: {refused[-1].strip()}"
    found = list(_YOSYS.finditer(part))
    if found and not _YOSYS_OWN.search(found[-1][1]):
        return f"synthesis: {found[-1][0].strip()}"
    return None


def _variables(design: DesignFiles, config: FlowConfig, flow: Path, work: Path) -> list[str]:
    """Return make's command line: these values win over the configuration's own."""
    root = work / "design"
    sources = [str(root / p) for p in design.sources if p.endswith((".v", ".sv"))]
    headers = sorted({str((root / p).parent) for p in design.sources if p.endswith((".vh", ".svh"))})
    return [
        f"DESIGN_CONFIG={root / design.one('.mk')[0]}",
        f"WORK_HOME={work}",
        f"FLOW_HOME={flow}",
        "FLOW_VARIANT=base",
        f"VERILOG_FILES={' '.join(sources)}",
        f"SDC_FILE={root / design.one('.sdc')[0]}",
        *([f"VERILOG_INCLUDE_DIRS={' '.join(headers)}"] if headers else []),
        *([] if config.structural.get("PLATFORM") else ["PLATFORM=asap7"]),
    ]


def _save(work: Path, target: Path) -> None:
    """Copy what is worth keeping of a run's scratch folder."""
    for name in ("design", "logs", "reports"):
        if (work / name).is_dir():
            try:
                shutil.copytree(work / name, target / name, symlinks=True)
            except (OSError, shutil.Error) as e:
                raise ToolError(f"cannot keep logs ({e})", field="keep", value=str(target)) from None


def _tail(path: Path) -> str:
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - MAX_LOG_BYTES))
        return file.read().decode("utf-8", "replace")


def _stage(log: str) -> str:
    """Return the stage that ran last (``"3_3_place_gp"``), from the flow's or make's own words, or ``""``."""
    running = _RUNNING.findall(log)
    if running:
        return str(running[-1])
    target = _TARGET.findall(log)
    return Path(target[0]).stem if target else ""


def _describe(root: Path) -> str:
    command = ["git", f"--git-dir={root / '.git'}", f"--work-tree={root}", "describe", "--always", "--tags", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() or "unknown"


def _timeout() -> float:
    text = os.environ.get("EDAGYM_ORFS_TIMEOUT")
    try:
        return TIMEOUT_S if text is None else float(text)
    except ValueError:
        raise ToolError("not a time limit", field="EDAGYM_ORFS_TIMEOUT", value=text, allowed="> 0 s") from None
