"""DRC task dataclasses and their folder form: ``task.json`` beside ``layout.gds`` (and ``golden.gds``).

Micrometres in every field that people read; integer database units in baseline markers, which belong to the layout.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from edagym.errors import TaskError

SCHEMA_VERSION = 1
SUITES = ("essential", "reasoning", "train")
LEVELS = ("L1", "L2", "L3")
BUDGETS = {"L1": 8, "L2": 8, "L3": 16}
"""Agent actions per episode (PostEDA-Bench, Section 4)."""
MAX_BUDGET = 32_767
MIN_AREA_KEPT = 0.9
"""Default share of a layer's merged area around the violations that has to stay."""
MARKER_KINDS = ("polygon", "edge", "edge_pair")

RoiUm = tuple[float, float, float, float]
PlainMarker = tuple[str, str, tuple[tuple[int, ...], ...], bool, int]
"""Rule, kind, rings, symmetric, multiplicity: a flat marker of `edagym.verifiers.drc.markers` as plain data."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One item of a sign-off report, as an agent may read it.

    Attributes:
        rule: Rule id (the report's category).
        description: The rule in words.
        cell: Cell in whose frame the values are given, without KLayout's variant suffix.
        values: Geometry as report text in micrometres, e.g. ``edge-pair: (0,0;0,0.1)|(0.05,0.1;0.05,0)``.
        parent: Cell of one example placement, or None for the top cell.
        trans: That placement in KLayout's notation, e.g. ``m0 *1 7.776,12.96`` (um), or None.
    """

    rule: str
    description: str
    cell: str
    values: tuple[str, ...]
    parent: str | None = None
    trans: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the item under the keys of the public benchmark's prompt."""
        return {
            "category": self.rule,
            "description": self.description,
            "values": list(self.values),
            "cell_name": self.cell,
            "parent": self.parent,
            "trans": self.trans,
        }


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on how much a repair may take away or draw (design: bounded edits).

    Attributes:
        min_area_kept: Share of a layer's merged area around the violations that has to stay, by layer name; layers that
            are not named need `MIN_AREA_KEPT`.
        max_edited_area: Largest symmetric difference of all layers together, um2; None: no bound.
    """

    min_area_kept: Mapping[str, float] = field(default_factory=dict)
    max_edited_area: float | None = None

    def kept(self, layer: str) -> float:
        """Return the share that has to stay on a layer."""
        return self.min_area_kept.get(layer, MIN_AREA_KEPT)


@dataclass(frozen=True, slots=True)
class DRCView:
    """Everything an agent may know about a task before it acts; no ground truth.

    Attributes:
        id: Task id.
        suite: One of `SUITES`.
        level: One of `LEVELS`.
        top: Name of the top cell.
        rules: Name of the rule table.
        roi: Region of interest (x1, y1, x2, y2) in um, or None.
        budget: Agent actions of an episode.
        violations: The initial report.
        counts: Initial number of violations per rule.
        limits: Bounds on repairs.
    """

    id: str
    suite: str
    level: str
    top: str
    rules: str
    roi: RoiUm | None
    budget: int
    violations: tuple[Violation, ...]
    counts: Mapping[str, int]
    limits: Limits


class _Folder(Protocol):
    """What a task is read from: a `pathlib.Path` or a resource of a package."""

    def joinpath(self, *parts: str) -> Any: ...

    def is_file(self) -> bool: ...


@dataclass(frozen=True)
class DRCTask:
    """A DRC repair task: a layout with violations, what agents see of it, and what only the verifier sees.

    Attributes:
        id: ``"Essential-L1/q3"``.
        suite: One of `SUITES`.
        level: One of `LEVELS`.
        gds: The layout with violations, a GDSII stream.
        top: Name of its top cell.
        counts: Initial number of violations per rule, as the sign-off tool counts them.
        violations: The initial report.
        rules: Name of the rule table, or path of a table file.
        roi: Region of interest (x1, y1, x2, y2) in um: only markers inside it count. None: the whole layout.
        budget: Agent actions of an episode.
        limits: Bounds on repairs.
        markers: All flat markers of the layout in database units of the top cell, whatever the region of interest;
            None: not computed.
        golden: Hidden. The layout whose circuit has to be kept, GDSII; None: the layout itself.
        reference: Hidden. Edits (JSON form) that repair the layout; empty: unknown.
        steps: Hidden. Smallest number of edits of a repair as labelled; None: no label.
        metadata: Provenance and descriptive labels.
    """

    id: str
    suite: str
    level: str
    gds: bytes = field(repr=False)
    top: str
    counts: Mapping[str, int]
    violations: tuple[Violation, ...] = field(repr=False)
    rules: str = "asap7"
    roi: RoiUm | None = None
    budget: int = 8
    limits: Limits = field(default_factory=Limits)
    markers: tuple[PlainMarker, ...] | None = field(default=None, repr=False)
    golden: bytes | None = field(default=None, repr=False)
    reference: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    steps: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        _member(self.id, "suite", self.suite, SUITES)
        _member(self.id, "level", self.level, LEVELS)
        if not (isinstance(self.budget, int) and 2 <= self.budget <= MAX_BUDGET):
            raise TaskError(f"{self.id}: bad budget", field="budget", value=self.budget, allowed=f"2..{MAX_BUDGET}")
        if self.roi is not None and not (self.roi[0] < self.roi[2] and self.roi[1] < self.roi[3]):
            raise TaskError(f"{self.id}: empty region of interest", field="roi", value=self.roi, allowed="x1 < x2 ...")

    @property
    def total(self) -> int:
        """Initial number of violations."""
        return sum(self.counts.values())

    def view(self) -> DRCView:
        """Return what an agent may know."""
        return DRCView(
            self.id,
            self.suite,
            self.level,
            self.top,
            self.rules,
            self.roi,
            self.budget,
            self.violations,
            dict(self.counts),
            self.limits,
        )

    # -- JSON and folders ------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the layouts, JSON-ready."""
        return {
            "schema_version": SCHEMA_VERSION,
            "id": self.id,
            "suite": self.suite,
            "level": self.level,
            "top": self.top,
            "rules": self.rules,
            "roi": None if self.roi is None else list(self.roi),
            "budget": self.budget,
            "counts": dict(self.counts),
            "violations": [v.to_dict() for v in self.violations],
            "limits": {
                "min_area_kept": dict(self.limits.min_area_kept),
                "max_edited_area": self.limits.max_edited_area,
            },
            "verification_only": {
                "reference": [dict(e) for e in self.reference],
                "steps": self.steps,
                "has_golden": self.golden is not None,
                "markers": None
                if self.markers is None
                else [[r, k, [list(ring) for ring in rings], s, n] for r, k, rings, s, n in self.markers],
            },
            "metadata": dict(self.metadata),
        }

    @classmethod
    def from_dict(cls, data: Any, gds: bytes, golden: bytes | None = None, *, source: str = "task") -> DRCTask:
        """Build a task from `to_dict`'s output.

        Args:
            data: The decoded JSON document.
            gds: The layout.
            golden: The golden layout, or None.
            source: Name for error messages.

        Raises:
            TaskError: If anything is malformed; the message names source and field.
        """
        if not isinstance(data, Mapping) or data.get("schema_version") != SCHEMA_VERSION:
            found = data.get("schema_version") if isinstance(data, Mapping) else type(data).__name__
            raise TaskError(f"{source}: not a DRC task", field="schema_version", value=found, allowed=SCHEMA_VERSION)
        hidden = _get(data, "verification_only", Mapping, source)
        limits = _get(data, "limits", Mapping, source)
        if (golden is not None) != _get(hidden, "has_golden", bool, source):
            raise TaskError(f"{source}: the golden layout is missing or not wanted", field="has_golden")
        return cls(
            id=_get(data, "id", str, source),
            suite=_get(data, "suite", str, source),
            level=_get(data, "level", str, source),
            gds=gds,
            top=_get(data, "top", str, source),
            counts=_counts(_get(data, "counts", Mapping, source), source),
            violations=tuple(_violation(v, source) for v in _get(data, "violations", list, source)),
            rules=_get(data, "rules", str, source),
            roi=_roi(data.get("roi"), source),
            budget=_get(data, "budget", int, source),
            limits=Limits(
                {
                    str(k): _share(v, f"limits.min_area_kept.{k}", source)
                    for k, v in _get(limits, "min_area_kept", Mapping, source).items()
                },
                _area(limits.get("max_edited_area"), source),
            ),
            markers=_markers(hidden.get("markers"), source),
            golden=golden,
            reference=tuple(_reference(e, source) for e in _get(hidden, "reference", list, source)),
            steps=_optional_count(hidden.get("steps"), source),
            metadata=dict(_get(data, "metadata", Mapping, source)),
        )

    def save(self, folder: str | Path) -> None:
        """Write ``task.json``, ``layout.gds`` and, if there is one, ``golden.gds`` into a folder; makes the folder."""
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        path.joinpath("task.json").write_text(_dump(self.to_dict()), encoding="utf-8")
        path.joinpath("layout.gds").write_bytes(self.gds)
        if self.golden is not None:
            path.joinpath("golden.gds").write_bytes(self.golden)

    @classmethod
    def load(cls, folder: str | Path | _Folder) -> DRCTask:
        """Read a task folder.

        Raises:
            TaskError: If a file is missing, unreadable or malformed; the message names it.
        """
        path = Path(folder) if isinstance(folder, str) else folder
        try:
            data = json.loads(path.joinpath("task.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as e:
            raise TaskError(f"{path}/task.json: not a readable task file ({e})") from None
        try:
            gds = path.joinpath("layout.gds").read_bytes()
            golden_path = path.joinpath("golden.gds")
            golden = golden_path.read_bytes() if golden_path.is_file() else None
        except OSError as e:
            raise TaskError(f"{path}: a layout is missing ({e.strerror})") from None
        return cls.from_dict(data, gds, golden, source=f"{path}/task.json")


def _dump(data: Mapping[str, Any]) -> str:
    """One line per violation, marker and edit: diffs stay readable, files small."""
    text = json.dumps(data, indent=1, ensure_ascii=False)
    rows = {key: _rows(data[key]) for key in ("violations",)}
    hidden = data["verification_only"]
    rows |= {key: _rows(hidden[key]) for key in ("reference", "markers") if hidden[key]}
    blank = json.loads(text)
    for key in rows:
        (blank if key in blank else blank["verification_only"])[key] = f"@{key}@"
    text = json.dumps(blank, indent=1, ensure_ascii=False)
    for key, value in rows.items():
        text = text.replace(f'"@{key}@"', value)
    return text + "\n"


def _rows(items: Sequence[Any]) -> str:
    return "[\n  " + ",\n  ".join(json.dumps(i, ensure_ascii=False) for i in items) + "\n ]" if items else "[]"


# -- validation ----------------------------------------------------------------------------------------------------


def _member(task: str, name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise TaskError(f"{task}: unknown {name}", field=name, value=value, allowed=list(allowed))


def _get(data: Mapping[str, Any], name: str, kind: type, source: str) -> Any:
    value = data.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TaskError(f"{source}: missing or malformed", field=name, value=value, allowed=kind.__name__)
    return value


def _number(value: Any, name: str, source: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise TaskError(f"{source}: expected a finite number", field=name, value=value)
    return float(value)


def _counts(data: Mapping[str, Any], source: str) -> dict[str, int]:
    for rule, n in data.items():
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise TaskError(f"{source}: bad count", field=f"counts.{rule}", value=n, allowed=">= 1")
    return dict(data)


def _violation(data: Any, source: str) -> Violation:
    if not isinstance(data, Mapping):
        raise TaskError(f"{source}: malformed violation", field="violations", value=data)
    values = _get(data, "values", list, source)
    optional = {k: data.get(k) for k in ("parent", "trans")}
    if not all(isinstance(v, str) for v in values) or not all(
        v is None or isinstance(v, str) for v in optional.values()
    ):
        raise TaskError(f"{source}: malformed violation", field="violations", value=data)
    rule, description, cell = (_get(data, k, str, source) for k in ("category", "description", "cell_name"))
    return Violation(rule, description, cell, tuple(values), optional["parent"], optional["trans"])


def _roi(data: Any, source: str) -> RoiUm | None:
    if data is None:
        return None
    if not isinstance(data, list) or len(data) != 4:
        raise TaskError(f"{source}: malformed region of interest", field="roi", value=data, allowed="[x1, y1, x2, y2]")
    x1, y1, x2, y2 = (_number(v, "roi", source) for v in data)
    return (x1, y1, x2, y2)


def _share(value: Any, name: str, source: str) -> float:
    number = _number(value, name, source)
    if not 0 <= number <= 1:
        raise TaskError(f"{source}: not a share", field=name, value=value, allowed="0..1")
    return number


def _area(value: Any, source: str) -> float | None:
    if value is None:
        return None
    number = _number(value, "limits.max_edited_area", source)
    if number <= 0:
        raise TaskError(f"{source}: not an area", field="limits.max_edited_area", value=value, allowed="> 0 um2")
    return number


def _optional_count(value: Any, source: str) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise TaskError(f"{source}: bad step label", field="steps", value=value, allowed=">= 1 or null")
    return value


def _reference(edit: Any, source: str) -> dict[str, Any]:
    if not isinstance(edit, Mapping) or not isinstance(edit.get("op"), str):
        raise TaskError(f"{source}: malformed reference edit", field="reference", value=edit)
    return dict(edit)


def _markers(data: Any, source: str) -> tuple[PlainMarker, ...] | None:
    if data is None:
        return None
    try:
        return tuple(_marker(entry) for entry in data)
    except (TypeError, ValueError) as e:
        raise TaskError(f"{source}: malformed markers ({e})", field="markers") from None


def _marker(entry: Any) -> PlainMarker:
    rule, kind, rings, symmetric, count = entry
    if not isinstance(rule, str) or kind not in MARKER_KINDS or not isinstance(symmetric, bool):
        raise ValueError(f"bad marker {str(entry)[:80]}")
    if not isinstance(count, int) or count < 1 or not rings:
        raise ValueError(f"bad marker {str(entry)[:80]}")
    if not all(len(ring) >= 4 and len(ring) % 2 == 0 and all(type(v) is int for v in ring) for ring in rings):
        raise ValueError(f"bad ring in {str(entry)[:80]}")
    return (rule, kind, tuple(tuple(ring) for ring in rings), symmetric, count)
