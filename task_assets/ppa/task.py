"""PPA task dataclasses and their folder form: the public benchmark's layout with a ``task.json`` beside it.

A task folder holds ``config/*.mk``, ``config/*.sdc`` and ``src/`` (the design as the agent finds it), ``info.json``
(initial values and targets, as the public harness reads them), ``prompt.txt``, ``logs/`` and ``reports/`` where there
are any, and ``task.json`` with all that the benchmark's form has no place for. Times are ps, powers W, areas um2.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edagym.errors import FlowError, TaskError
from edagym.task_assets.ppa.config import FlowConfig, parse_config
from edagym.task_assets.ppa.design import MAX_FILE_BYTES, DesignFiles
from edagym.task_assets.ppa.knobs import knob_table
from edagym.task_assets.ppa.sdc import Constraints, parse_sdc

SCHEMA_VERSION = 1
SUITES = ("performance", "power", "area", "multi", "train")
LEVELS = ("L1", "L2", "L3")
BACKENDS = ("embedded", "orfs")
METRICS = ("effective_period", "total_power", "die_area")
"""The scored metrics; smaller is better for each. The verifiers' reports use the same names."""
UNITS = {"effective_period": "ps", "total_power": "W", "die_area": "um2"}
PUBLIC_NAMES = {"effective_period": "effective_period", "total_power": "power", "die_area": "area"}
"""What the public benchmark calls them."""
BUDGET = 16
"""Agent actions of an episode (PostEDA-Bench, Section 4)."""
RUNS = 18
"""Flow runs of an episode for policies that are charged by the run (Appendix E.2)."""
MAX_BUDGET = 32_767
FREE_AREA = ("CORE_MARGIN",)
"""Knobs that take area off the die and nothing off the design: locked by default."""
FACTS = ("logs", "reports")
"""Folders with what the flow wrote for the initial design; read-only for agents."""
_FACT_SUFFIXES = (".json", ".rpt", ".txt", ".log")
_MAX_FACTS = 64


@dataclass(frozen=True)
class Bounds:
    """What the constraints may be changed to.

    Attributes:
        period: Smallest and largest period of the first clock, ps. Other clocks keep theirs.
        io_fraction: Smallest and largest input and output delay as a fraction of the period; None: none are there, and
            none need be.
        locked: Knobs that keep their value.
    """

    period: tuple[float, float]
    io_fraction: tuple[float, float] | None
    locked: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        unknown = [name for name in self.locked if name not in knob_table()]
        if unknown:
            raise TaskError("unknown knobs", field="bounds.locked", value=unknown)
        for name, pair in (("bounds.period", self.period), ("bounds.io_fraction", self.io_fraction)):
            if pair is not None and not (0 <= pair[0] <= pair[1] < math.inf):
                raise TaskError("not a range", field=name, value=pair, allowed="0 <= low <= high")


def default_bounds(constraints: Constraints, period_factors: tuple[float, float] = (0.5, 2.0)) -> Bounds:
    """Return bounds that let the first clock's period move by factors, and delays grow up to half the period.

    Delays may not shrink: on paths from and to pins they are most of what a period is made of, and giving them away
    would solve a task without changing the design. Likewise the margin around the core is locked: it is where the power
    ring goes, which no metric sees.
    """
    low, high = (round(constraints.period * f, 3) for f in period_factors)
    share = constraints.io_fraction
    return Bounds((low, high), None if share is None else (round(share, 9), max(0.5, round(share, 9))), FREE_AREA)


@dataclass(frozen=True)
class PPAView:
    """Everything an agent may know about a task before it acts; no ground truth.

    Attributes:
        id: Task id.
        suite: One of `SUITES`.
        level: One of `LEVELS`.
        backend: One of `BACKENDS`.
        engine: Versions that the numbers depend on.
        design: The design as the agent finds it.
        initial: Metric -> initial value.
        initial_metrics: Stage metrics of the initial report.
        targets: Metric -> largest allowed value; metrics without target are absent.
        bounds: Bounds on the constraints.
        budget: Agent actions of an episode.
        facts: Path -> text of the initial design's logs and reports.
    """

    id: str
    suite: str
    level: str
    backend: str
    engine: str
    design: DesignFiles
    initial: Mapping[str, float]
    initial_metrics: Mapping[str, float]
    targets: Mapping[str, float]
    bounds: Bounds
    budget: int
    facts: Mapping[str, str]


@dataclass(frozen=True)
class PPATask:
    """A PPA task: a design, what it reaches, what it is to reach, and what only the verifier sees.

    Attributes:
        id: ``"Multi-L1/q3"``.
        suite: One of `SUITES`.
        level: One of `LEVELS`.
        backend: One of `BACKENDS`: whose numbers these are.
        engine: Versions that the numbers depend on, as the backend states them; ``""``: any.
        design: The design as the agent finds it.
        initial: Metric -> value that the flow reaches with it.
        targets: Metric -> largest allowed value. The metrics that miss theirs initially are to be improved, the others
            to be kept (sets A and B of PostEDA-Bench, Equation 3); metrics without target are free.
        bounds: Bounds on the constraints.
        initial_metrics: Stage metrics of the initial report.
        function: What the functional check has to know about the design's interface, JSON.
        budget: Agent actions of an episode.
        facts: Path -> text of the initial design's logs and reports.
        reference: Hidden. Edits (JSON form) that reach every target; empty: unknown.
        reference_values: Hidden. Metric -> value that they reach; empty: unknown.
        metadata: Hidden. Provenance and descriptive labels.
    """

    id: str
    suite: str
    level: str
    backend: str
    engine: str
    design: DesignFiles = field(repr=False)
    initial: Mapping[str, float]
    targets: Mapping[str, float]
    bounds: Bounds
    initial_metrics: Mapping[str, float] = field(default_factory=dict, repr=False)
    function: Mapping[str, Any] = field(default_factory=dict, repr=False)
    budget: int = BUDGET
    facts: Mapping[str, str] = field(default_factory=dict, repr=False)
    reference: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    reference_values: Mapping[str, float] = field(default_factory=dict, repr=False)
    metadata: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        kinds = (("suite", self.suite, SUITES), ("level", self.level, LEVELS), ("backend", self.backend, BACKENDS))
        for name, kind, allowed in kinds:
            if kind not in allowed:
                raise TaskError(f"{self.id}: unknown {name}", field=name, value=kind, allowed=allowed)
        if not (isinstance(self.budget, int) and 2 <= self.budget <= MAX_BUDGET):
            raise TaskError(f"{self.id}: bad budget", field="budget", value=self.budget, allowed=f"2..{MAX_BUDGET}")
        if not self.targets:
            raise TaskError(f"{self.id}: no targets", field="targets", value={}, allowed=METRICS)
        for name, values in (("initial", self.initial), ("targets", self.targets)):
            for metric, value in values.items():
                if metric not in METRICS or not (math.isfinite(value) and value > 0):
                    raise TaskError(f"{self.id}: bad value", field=f"{name}.{metric}", value=value, allowed="> 0")
        if set(self.initial) != set(METRICS):
            raise TaskError(f"{self.id}: initial values", field="initial", value=list(self.initial), allowed=METRICS)
        for path, text in self.facts.items():
            _check_fact(path, text)

    @property
    def to_improve(self) -> tuple[str, ...]:
        """Metrics that miss their target initially (set A)."""
        return tuple(m for m in METRICS if m in self.targets and self.initial[m] > self.targets[m])

    @property
    def to_keep(self) -> tuple[str, ...]:
        """Metrics that meet their target initially (set B)."""
        return tuple(m for m in METRICS if m in self.targets and self.initial[m] <= self.targets[m])

    def config(self) -> FlowConfig:
        """Return the initial configuration; raises `TaskError` if it cannot be read."""
        path, text = self.design.one(".mk")
        try:
            return parse_config(text, path)
        except FlowError as e:
            raise TaskError(f"{self.id}: {e}") from None

    def constraints(self) -> Constraints:
        """Return the initial constraints; raises `TaskError` if they cannot be read."""
        path, text = self.design.one(".sdc")
        try:
            return parse_sdc(text, path)
        except FlowError as e:
            raise TaskError(f"{self.id}: {e}") from None

    def view(self) -> PPAView:
        """Return what an agent may know."""
        return PPAView(
            self.id,
            self.suite,
            self.level,
            self.backend,
            self.engine,
            self.design,
            dict(self.initial),
            dict(self.initial_metrics),
            dict(self.targets),
            self.bounds,
            self.budget,
            dict(self.facts),
        )

    # -- JSON and folders ------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the files, JSON-ready."""
        bounds = self.bounds
        return {
            "schema_version": SCHEMA_VERSION,
            "id": self.id,
            "suite": self.suite,
            "level": self.level,
            "backend": self.backend,
            "engine": self.engine,
            "initial": dict(self.initial),
            "initial_metrics": dict(self.initial_metrics),
            "targets": dict(self.targets),
            "bounds": {
                "period": list(bounds.period),
                "io_fraction": None if bounds.io_fraction is None else list(bounds.io_fraction),
                "locked": list(bounds.locked),
            },
            "function": dict(self.function),
            "budget": self.budget,
            "verification_only": {
                "reference": [dict(e) for e in self.reference],
                "reference_values": dict(self.reference_values),
                "metadata": dict(self.metadata),
            },
        }

    @classmethod
    def from_dict(
        cls, data: Any, design: DesignFiles, facts: Mapping[str, str] | None = None, *, source: str = "task"
    ) -> PPATask:
        """Build a task from `to_dict`'s output.

        Args:
            data: The decoded JSON document.
            design: The design.
            facts: Path -> text of logs and reports.
            source: Name for error messages.

        Raises:
            TaskError: If anything is malformed; the message names source and field.
        """
        if not isinstance(data, Mapping) or data.get("schema_version") != SCHEMA_VERSION:
            found = data.get("schema_version") if isinstance(data, Mapping) else type(data).__name__
            raise TaskError(f"{source}: not a PPA task", field="schema_version", value=found, allowed=SCHEMA_VERSION)
        hidden = _get(data, "verification_only", Mapping, source)
        bounds = _get(data, "bounds", Mapping, source)
        share = bounds.get("io_fraction")
        reference = _get(hidden, "reference", list, source)
        if not all(isinstance(e, Mapping) and isinstance(e.get("op"), str) for e in reference):
            raise TaskError(f"{source}: malformed reference", field="reference", value=reference)
        return cls(
            id=_get(data, "id", str, source),
            suite=_get(data, "suite", str, source),
            level=_get(data, "level", str, source),
            backend=_get(data, "backend", str, source),
            engine=_get(data, "engine", str, source),
            design=design,
            initial=_numbers(data, "initial", source),
            targets=_numbers(data, "targets", source),
            bounds=Bounds(
                _pair(bounds.get("period"), "bounds.period", source),
                None if share is None else _pair(share, "bounds.io_fraction", source),
                tuple(str(name) for name in _get(bounds, "locked", list, source)),
            ),
            initial_metrics=_numbers(data, "initial_metrics", source),
            function=dict(_get(data, "function", Mapping, source)),
            budget=_get(data, "budget", int, source),
            facts=dict(facts or {}),
            reference=tuple(dict(e) for e in reference),
            reference_values=_numbers(hidden, "reference_values", source),
            metadata=dict(_get(hidden, "metadata", Mapping, source)),
        )

    def info(self) -> dict[str, Any]:
        """Return ``info.json`` in the public benchmark's form: initial values and targets."""
        out: dict[str, Any] = {}
        for metric, target in self.targets.items():
            out[f"target_{PUBLIC_NAMES[metric]}"] = target
            out[f"initial_{PUBLIC_NAMES[metric]}"] = self.initial[metric]
        return out

    def save(self, folder: str | Path, prompt: str = "") -> None:
        """Write the task's folder; makes it.

        Args:
            folder: Where.
            prompt: Text of ``prompt.txt``; ``""``: none is written.
        """
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        self.design.write(path)
        for name, text in self.facts.items():
            path.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
            path.joinpath(name).write_text(text, encoding="utf-8", newline="")
        path.joinpath("info.json").write_text(json.dumps(self.info(), indent=4) + "\n", encoding="utf-8")
        path.joinpath("task.json").write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")
        if prompt:
            path.joinpath("prompt.txt").write_text(prompt, encoding="utf-8", newline="")

    @classmethod
    def load(cls, folder: str | Path) -> PPATask:
        """Read a task folder.

        Raises:
            TaskError: If a file is missing, unreadable or malformed; the message names it.
        """
        path = Path(folder)
        source = f"{path}/task.json"
        try:
            data = json.loads(path.joinpath("task.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as e:
            raise TaskError(f"{source}: not a readable task file ({e})") from None
        task = cls.from_dict(data, DesignFiles.from_folder(path), read_facts(path), source=source)
        task.config()
        task.constraints()
        return task


def read_facts(folder: str | Path) -> dict[str, str]:
    """Return path -> text of the logs and reports of a task folder, large ones and links left out."""
    root = Path(folder)
    found: dict[str, str] = {}
    for path in sorted(p for top in FACTS for p in (root / top).glob("**/*") if p.suffix in _FACT_SUFFIXES):
        if path.is_symlink() or not path.resolve().is_relative_to(root.resolve()) or not path.is_file():
            continue
        if path.stat().st_size <= MAX_FILE_BYTES and len(found) < _MAX_FACTS:
            found[path.relative_to(root).as_posix()] = path.read_text(encoding="utf-8", errors="replace")
    return found


def _check_fact(path: str, text: str) -> None:
    parts = path.split("/")
    if parts[0] not in FACTS or ".." in parts or "" in parts or "\\" in path or not path.endswith(_FACT_SUFFIXES):
        raise TaskError("not a log or report", field="facts", value=path, allowed=FACTS)
    if len(text.encode()) > 4 * MAX_FILE_BYTES:
        raise TaskError("a log or report is too big", field=path, value=len(text))


def _get(data: Mapping[str, Any], name: str, kind: type, source: str) -> Any:
    value = data.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TaskError(f"{source}: missing or malformed", field=name, value=value, allowed=kind.__name__)
    return value


def _number(value: Any, name: str, source: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise TaskError(f"{source}: expected a finite number", field=name, value=value)
    return float(value)


def _numbers(data: Mapping[str, Any], name: str, source: str) -> dict[str, float]:
    return {str(k): _number(v, f"{name}.{k}", source) for k, v in _get(data, name, Mapping, source).items()}


def _pair(value: Any, name: str, source: str) -> tuple[float, float]:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise TaskError(f"{source}: expected two numbers", field=name, value=value)
    return (_number(value[0], name, source), _number(value[1], name, source))
