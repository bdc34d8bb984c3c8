"""`rescore`: every verdict of a run again, from the saved files alone, and compared with the records.

Nothing that the evaluation kept in memory takes part: the task is loaded by its id and held against the recorded hash,
the layout is read from its file, DRC layouts are checked in full (the environments re-check incrementally), and PPA
designs go through the flow and the functional check again. `edagym rescore` does this in a fresh process.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from edagym.baselines.policies import attempt_seed
from edagym.baselines.records import (
    RECORD_SCHEMA,
    Key,
    Record,
    attempt_folder,
    checksum,
    files_below,
    key_of,
    read_lines,
    read_run,
    task_hash,
)
from edagym.baselines.rollout import Env, make_env, suite_name
from edagym.envs.core.edit_env import MAX_BUDGET
from edagym.envs.core.trace import load_trace
from edagym.errors import EDAGymError, TaskError, ToolError
from edagym.task_assets.drc.task import DRCTask
from edagym.task_assets.fet.task import FETTask
from edagym.task_assets.ppa.design import DesignFiles
from edagym.task_assets.ppa.task import PPATask
from edagym.verifiers.ppa.verifier import NEVER_RUN
from edagym.verifiers.verdict import Verdict

KINDS = ("record", "file", "verdict", "replay", "task", "tool")
"""Kinds of findings: the record, a file, the verdict, the trace; an unknown task; a tool that failed now."""
_RUNS = ("run",)
_COMMANDS = ("verify", "check", "run", "submit", "declare_infeasible")
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Finding:
    """Something that does not fit.

    Attributes:
        kind: One of `KINDS`.
        attempt: Suite, task and number of the attempt, or the line of the records file.
        message: What is wrong.
    """

    kind: str
    attempt: str
    message: str


@dataclass
class Rescore:
    """What came out.

    Attributes:
        attempts: Records looked at.
        verdicts: Records with a verdict.
        agreed: Verdicts that came out as recorded, from files and records that nobody has touched.
        absent: Attempts of the run's plan without a record: the run is not finished.
        findings: What does not fit.
    """

    attempts: int = 0
    verdicts: int = 0
    agreed: int = 0
    absent: int = 0
    findings: list[Finding] = field(default_factory=list)

    def of(self, *kinds: str) -> list[Finding]:
        """Return the findings of some kinds."""
        return [f for f in self.findings if f.kind in kinds]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return {
            "attempts": self.attempts,
            "verdicts": self.verdicts,
            "agreed": self.agreed,
            "absent": self.absent,
            "findings": [vars(f) for f in self.findings],
        }


def rescore(
    run: str | Path, *, tasks: Sequence[str | Path] = (), replay: bool = False, progress: bool = True
) -> Rescore:
    """Recompute the verdicts of a run and compare them, the records and the files.

    Args:
        run: Folder of `edagym eval` or `edagym rollout`.
        tasks: Folders of tasks, for suites that are not where the run had them.
        replay: Whether to run the edits of FET and DRC traces too: they must end in the saved layout, byte for byte.
            (PPA traces are always gone through: they say which designs were run.)
        progress: Whether to show a progress bar.

    Raises:
        TaskError: If it is not a run.
    """
    folder = Path(run)
    settings = read_run(folder)
    out = Rescore()
    try:
        sources = {suite_name(str(s)): str(s) for s in (*settings.get("suites", ()), *tasks)}
        options = {**settings.get("policy_env_options", {}), **settings.get("env_options", {})}
        judge = _Judge(folder, sources, options, replay)
        records = _unique(folder, out)
        if settings:
            _check_plan(judge, settings, records, out)
    except (KeyError, TypeError, AttributeError) as e:
        raise TaskError(f"malformed settings of a run ({type(e).__name__}: {e})", field="run.json") from e
    for key, record in tqdm(records.items(), desc="rescore", unit="attempt", disable=not progress):
        name = f"{key[0]} {key[2]} attempt {key[3]}"
        out.attempts += 1
        out.verdicts += record["verdict"] is not None
        try:
            found = list(judge.look_at(record))
        except (KeyError, TypeError, AttributeError, ValueError) as e:  # entries that are not there, or of another type
            found = [("record", f"the record or its trace is malformed ({type(e).__name__}: {e})")]
        out.findings += [Finding(kind, name, message) for kind, message in found]
        out.agreed += not found and record["verdict"] is not None
    return out


def _unique(folder: Path, out: Rescore) -> dict[Key, Record]:
    """Return the records by attempt; lines that are none, or one too many, are findings."""
    records: dict[Key, Record] = {}
    for number, record, fault in read_lines(folder):
        if record is None:
            out.findings.append(Finding("record", f"line {number}", fault))
            continue
        earlier = records.get(key_of(record))
        if earlier is not None and earlier["error_type"] is None:
            out.findings.append(Finding("record", f"line {number}", "a second record of an attempt with a verdict"))
        records[key_of(record)] = record
    return records


def _check_plan(judge: _Judge, settings: Mapping[str, Any], records: Mapping[Key, Record], out: Rescore) -> None:
    """Compare the attempts of the records with those that the run's settings ask for."""
    for key, record in records.items():
        if record.get("schema_version") != RECORD_SCHEMA:  # older records, which say less, are of `edagym rollout`
            name = f"{key[0]} {key[2]} attempt {key[3]}"
            out.findings.append(Finding("record", name, f"not of schema {RECORD_SCHEMA}, as all of an evaluation"))
    planned: set[Key] = set()
    for suite in settings["suites"]:
        try:
            ids = judge.env(suite_name(suite)).task_ids
        except TaskError as e:
            out.findings.append(Finding("task", suite, str(e)))
            return
        chosen = [t for t in ids if settings["tasks"] is None or t in settings["tasks"]]
        name, policy = suite_name(suite), settings["policy_name"]
        planned |= {(name, policy, t, n, settings["seed"]) for t in chosen for n in range(settings["attempts"])}
    out.absent = len(planned - records.keys())
    for key in sorted(records.keys() - planned):
        out.findings.append(Finding("record", f"{key[0]} {key[2]} attempt {key[3]}", "not an attempt of this run"))


class _Judge:
    """Looks at one record after the other; keeps environments, from which it has tasks and replays.

    Args:
        folder: The run.
        sources: Suite name in the records -> suite or folder of tasks.
        options: Options of the environments, for replays.
        replay: Whether to replay FET and DRC traces.
    """

    def __init__(self, folder: Path, sources: Mapping[str, str], options: Mapping[str, Any], replay: bool) -> None:
        self._folder, self._sources, self._options, self._replay = folder, sources, options, replay
        self._envs: dict[str, Env] = {}
        self._folders: set[Path] = set()

    def env(self, suite: str) -> Env:
        """Return the environment of a suite; its budget does not matter."""
        if suite not in self._envs:
            options = {
                k: v for k, v in self._options.items() if k not in ("budget", "budget_factor", "stop_on_success")
            }
            own = {"budget": MAX_BUDGET, "stop_on_success": False}
            self._envs[suite] = make_env(self._sources.get(suite, suite), **options, **own)
        return self._envs[suite]

    def look_at(self, record: Record) -> Iterator[tuple[str, str]]:
        """Yield kind and message of what does not fit."""
        if record["checksum"] is not None and record["checksum"] != checksum(record):
            yield "record", "the record was edited: its checksum differs"
        if record["schema_version"] != 1:
            yield from _gaps(record)
        faults = list(self._files(record))
        yield from faults
        if record["verdict"] is None:
            yield from self._hidden(record)
            return
        if record["error_type"] is not None:
            yield "record", f"error_type is {record['error_type']!r}, but there is a verdict"
        yield from _contradictions(record)
        if record["folder"] is None or any("missing" in message for _, message in faults):
            yield "file", "nothing to recompute the verdict from"
            return
        folder = self._folder / record["folder"]
        try:
            task = self._task(record, folder)
        except EDAGymError as e:
            yield "task", str(e)
            return
        try:
            trace = load_trace(folder / "trace.json")
            yield from _trace_differences(record, trace)
            verdict, replayed = self._verdict(record, task, folder, trace)
        except ToolError as e:
            yield "tool", str(e)
            return
        except EDAGymError as e:
            yield "file", str(e)
            return
        yield from (("verdict", message) for message in differences(Verdict.from_dict(record["verdict"]), verdict))
        if replayed:
            yield "replay", replayed

    def _files(self, record: Record) -> Iterator[tuple[str, str]]:
        if record["folder"] is None:
            return
        folder = self._folder / record["folder"]
        place = folder.resolve()
        if not place.is_relative_to(self._folder.resolve()):
            yield "file", "the folder lies outside the run's: its files are missing"
            return
        if place in self._folders:
            yield "file", "the folder is another attempt's"
        self._folders.add(place)
        present = set(files_below(folder)) if folder.is_dir() else set()
        for path, digest in record["artefacts"].items():
            if path not in present:
                yield "file", f"{path} is missing"
            elif hashlib.sha256((folder / path).read_bytes()).hexdigest() != digest:
                yield "file", f"{path} was edited: its hash differs"
        for path in sorted(present - record["artefacts"].keys()):
            if record["artefacts"]:  # records of schema 1 have no hashes
                yield "file", f"{path} is not of this attempt"

    def _hidden(self, record: Record) -> Iterator[tuple[str, str]]:
        """Yield a finding for an attempt without verdict whose trace, left out of the record or not, has one."""
        where = record["folder"] or attempt_folder(record["suite"], record["task_id"], record["attempt"])
        path = self._folder / where / "trace.json"
        if not path.is_file():
            return
        try:
            ended = load_trace(path)["ended"]
        except (EDAGymError, KeyError):
            return
        if ended not in ("", "tool_error"):
            yield "record", f"there is no verdict, but the trace ended with one: {ended!r}"

    def _task(self, record: Record, folder: Path) -> Any:
        own = folder / "task.json"
        env = self.env(record["suite"])
        # Only endless environments' tasks are in the run's folder: those of a suite are the suite's.
        task = env.find_task(record["task_id"]) if env.task_ids or not own.is_file() else FETTask.load(own)
        if record["task_hash"] is not None and task_hash(task) != record["task_hash"]:
            raise TaskError(
                "the task is another than the one that was run", field="task_hash", value=record["task_hash"]
            )
        return task

    def _verdict(self, record: Record, task: Any, folder: Path, trace: Mapping[str, Any]) -> tuple[Verdict, str]:
        """Return the verdict, and what the replay of the trace found."""
        env = self.env(record["suite"])
        if isinstance(task, PPATask):
            design = DesignFiles.from_folder(folder / "design")
            last, run = _replay(env, task, trace)
            fault = "" if last == design else "the trace ends in another design than the saved one"
            return _ppa_verdict(env, task, design, run), fault
        data = (folder / "layout.gds").read_bytes()
        verdict = _fet_verdict(task, data) if isinstance(task, FETTask) else _drc_verdict(task, data)
        if not self._replay:
            return verdict, ""
        last, _ = _replay(env, task, trace)
        same = (last.to_gds_bytes() if isinstance(task, FETTask) else last.to_bytes()) == data
        return verdict, "" if same else "the trace ends in another layout than the saved one"


def _fet_verdict(task: FETTask, data: bytes) -> Verdict:
    from edagym.verifiers.fet import verify
    from edagym.verifiers.fet.layout import FETLayout

    return verify(FETLayout.from_gds_bytes(data, task.layers, "layout.gds"), task)


def _drc_verdict(task: DRCTask, data: bytes) -> Verdict:
    from edagym.envs.drc.state import PreparedTask
    from edagym.verifiers.drc import DRCLayout, full_check

    prepared = PreparedTask(task)
    report = full_check(DRCLayout.from_bytes(data, "layout.gds"), prepared.table, roi=task.roi)
    # As in the environment: guards cannot turn a layout with violations into a success.
    return prepared.verifier.verify(report, strict=report.clean)


def _ppa_verdict(env: Any, task: PPATask, design: DesignFiles, run: Sequence[DesignFiles]) -> Verdict:
    """Judge a design by its own run, if it was run, and by the last completed one for the score.

    Args:
        env: The task's environment, whose runner runs the flow again.
        task: The task.
        design: The final design.
        run: The designs that were run, oldest first.
    """
    from edagym.verifiers.ppa.verifier import verify

    last = next((o for d in reversed(run) if (o := env.runner.run(task, d)).result is not None), None)
    own = env.runner.run(task, design) if design in run else None
    return verify(
        task,
        design,
        None if own is None or own.result is None else own.result.report,
        None if own is None else own.function,
        failure=NEVER_RUN if own is None else own.failure,
        last=None if last is None else last.result.report,
        last_function=None if last is None else last.function,
    )


def _replay(env: Env, task: Any, trace: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    """Run the edits of a trace, without its checks and runs.

    Returns:
        The final layout or design, and the designs as they were at each run.
    """
    env.reset(options={"task": task})
    run: list[Any] = []
    for step in trace["steps"]:
        op = step["action"].get("op")
        if op in _RUNS:
            # A run that came when other branches had spent the budget was none.
            if NEVER_RUN not in step.get("verdict", {}).get("messages", ""):
                run.append(env.layout)
        elif op not in _COMMANDS and not env.ended:
            env.step_any(step["action"])
    return env.layout, run


# -- comparisons -------------------------------------------------------------------------------------------------------


def differences(recorded: Verdict, found: Verdict) -> Iterator[str]:
    """Yield what two verdicts do not agree on: outcomes, checks, figures (within rounding); texts and places aside."""
    for criterion in ("paper", "strict"):
        was, now = getattr(recorded, f"{criterion}_success"), getattr(found, f"{criterion}_success")
        if was is not now:
            yield f"{criterion}_success: {was} in the record, {now} now"
    before, after = ({c.id: c for c in v.checks} for v in (recorded, found))
    for name in dict.fromkeys((*before, *after)):
        if name not in before or name not in after:
            yield f"check {name}: only {'in the record' if name in before else 'now'}"
            continue
        for part in ("passed", "required", "measured", "strict"):
            was, now = getattr(before[name], part), getattr(after[name], part)
            if not _same(was, now):
                yield f"check {name}, {part}: {was} in the record, {now} now"
    for name in sorted({*recorded.metrics, *found.metrics}):
        was, now = recorded.metrics.get(name), found.metrics.get(name)
        if not _same(was, now):
            yield f"metric {name}: {was} in the record, {now} now"


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float | int) and isinstance(b, float | int) and not isinstance(a, bool):
        return math.isclose(a, b, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return bool(a == b)


def _gaps(record: Record) -> Iterator[tuple[str, str]]:
    """Yield what every record of schema 2 has and this one does not, and a seed that is not the attempt's."""
    for name in ("checksum", "task_hash"):
        if record[name] is None:
            yield "record", f"there is no {name}"
    if record["folder"] is not None and not record["artefacts"]:
        yield "record", "there is a folder, but no hashes of its files"
    seed = attempt_seed(record["suite"], record["task_id"], record["attempt"], record["run_seed"])
    if record["seed"] != seed:
        yield "record", f"seed is {record['seed']!r}, but that of the attempt is {seed}"


def _contradictions(record: Record) -> Iterator[tuple[str, str]]:
    """Yield where a record's own entries do not agree with its verdict."""
    verdict = Verdict.from_dict(record["verdict"])
    failed = [c.id for c in verdict.failed("strict")]
    expected = {
        "paper_success": verdict.paper_success,
        "strict_success": verdict.strict_success,
        "is_success": verdict.success(record["criterion"]),
        "failed": failed,
        "first_failed": failed[0] if failed else None,
        "metrics": verdict.metrics,
    }
    for name, value in expected.items():
        if record[name] != value:
            yield "record", f"{name} is {record[name]!r}, but the recorded verdict says {value!r}"


def _trace_differences(record: Record, trace: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("task_id", "criterion", "budget", "charged", "ended", "is_success"):
        if record[name] != trace.get(name):
            yield "record", f"{name} is {record[name]!r}, but {trace.get(name)!r} in the trace"
