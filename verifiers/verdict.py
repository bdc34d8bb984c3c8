"""`CheckResult` and `Verdict`: the one currency of all task families."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Criterion = Literal["paper", "strict"]

BBox = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Outcome of one check.

    Attributes:
        id: Unique within a verdict, stable across runs, e.g. ``"transistor_count:flake_2"``.
        kind: Check kind, e.g. ``"min_width"`` (paper, Table 1) or ``"strict_overhang"``.
        passed: Whether the check holds. A skipped check passes and says so in `message`.
        required: Required value in `unit`, or None where the check has no number.
        measured: Found value in `unit`, or None.
        unit: ``"um"``, ``"count"`` or ``""``.
        where: Bounding box (x1, y1, x2, y2) in micrometres of the (first) violation, or None.
        message: One sentence with expected and found values.
        hidden: True when the criterion is not part of what an agent may see before a charged verify.
        strict: True when the check counts for `strict_success` only.
    """

    id: str
    kind: str
    passed: bool
    required: float | None = None
    measured: float | None = None
    unit: str = ""
    where: BBox | None = None
    message: str = ""
    hidden: bool = False
    strict: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of verifying one layout against one task.

    Attributes:
        paper_success: The source paper's own contract.
        strict_success: `paper_success` and every guard of ours.
        checks: All check results, paper checks first, in a fixed order.
        metrics: Plain numbers, e.g. ``{"transistors": 2.0}``.
    """

    paper_success: bool
    strict_success: bool
    checks: tuple[CheckResult, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)

    def success(self, criterion: Criterion) -> bool:
        """Return the success flag of one criterion."""
        if criterion not in ("paper", "strict"):
            raise ValueError(f"criterion must be 'paper' or 'strict', got {criterion!r}")
        return self.paper_success if criterion == "paper" else self.strict_success

    def failed(self, criterion: Criterion = "strict") -> tuple[CheckResult, ...]:
        """Return the failed checks that count for `criterion`."""
        return tuple(c for c in self.checks if not c.passed and (criterion == "strict" or not c.strict))

    def share_passed(self, criterion: Criterion = "strict") -> float:
        """Return the share of passed checks in [0, 1] among those that count for `criterion`."""
        counted = [c for c in self.checks if criterion == "strict" or not c.strict]
        return sum(c.passed for c in counted) / len(counted) if counted else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return {
            "paper_success": self.paper_success,
            "strict_success": self.strict_success,
            "checks": [c.to_dict() for c in self.checks],
            "metrics": dict(self.metrics),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Verdict:
        """Return the verdict of `to_dict`'s output, also after a trip through JSON."""
        checks = tuple(CheckResult(**{**c, "where": tuple(c["where"]) if c["where"] else None}) for c in data["checks"])
        return cls(data["paper_success"], data["strict_success"], checks, dict(data["metrics"]))
