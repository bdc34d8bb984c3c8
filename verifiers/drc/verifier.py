"""The DRC family's verifier: a check report and the strict guards, composed to a verdict.

`paper_success`: no violations, inside the region of interest if there is one (PostEDA-Bench, Section 3.1).
`strict_success`: that, the circuit preserved, and the bounds on edits kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from edagym.errors import EDAGymError, TaskError, ToolError
from edagym.task_assets.drc.task import Limits
from edagym.verifiers.drc.connectivity import Reference
from edagym.verifiers.drc.guards import strict_checks
from edagym.verifiers.drc.layout import DRCLayout
from edagym.verifiers.drc.report import CheckReport
from edagym.verifiers.drc.rules import RuleTable
from edagym.verifiers.drc.stack import stack_of
from edagym.verifiers.verdict import BBox, CheckResult, Verdict


class DRCVerifier:
    """Verifier of one task; keeps what depends on the task only.

    Args:
        initial: The task's layout with its violations; a copy is kept.
        table: The rules.
        counts: Initial number of violations per rule.
        limits: Bounds on repairs.
        golden: The layout whose circuit has to be kept; None: the initial one.
    """

    def __init__(
        self,
        initial: DRCLayout,
        table: RuleTable,
        counts: Mapping[str, int],
        limits: Limits | None = None,
        golden: DRCLayout | Reference | None = None,
    ) -> None:
        self.initial = initial.copy()
        self.table = table
        self.counts = dict(counts)
        self.limits = limits if limits is not None else Limits()
        if isinstance(golden, Reference):
            self.golden = golden
        else:
            self.golden = Reference(initial if golden is None else golden, stack_of(table))

    def verify(self, report: CheckReport, *, strict: bool = True) -> Verdict:
        """Return the verdict on a checked layout.

        Args:
            report: The check of the layout as it is now.
            strict: Whether to run the strict guards too. Without them `strict_success` is False.

        Raises:
            ToolError: If an engine fails; never a verdict.
        """
        try:
            checks = rule_checks(report, self.counts)
            paper = all(c.passed for c in checks)
            guards: list[CheckResult] = []
            if strict:
                guards = strict_checks(
                    self.initial, report.layout, self.table, self.limits, self.golden, rules=self.counts, roi=report.roi
                )
        except EDAGymError:
            raise
        except Exception as e:  # an engine failure must never look like a failed check
            raise ToolError(f"verifier failed on {self.initial.source}: {type(e).__name__}: {e}") from e
        initial, found = sum(self.counts.values()), report.total
        metrics = {
            "initial_violations": float(initial),
            "violations": float(found),
            "vrr": violation_reduction(initial, found),
        }
        success = strict and paper and all(c.passed for c in guards)
        return Verdict(paper, success, (*checks, *guards), metrics)


def verify_drc(
    initial: DRCLayout,
    report: CheckReport,
    counts: Mapping[str, int],
    limits: Limits | None = None,
    golden: DRCLayout | Reference | None = None,
    *,
    strict: bool = True,
) -> Verdict:
    """Verify one layout once; see `DRCVerifier`, which is cheaper for several."""
    return DRCVerifier(initial, report.table, counts, limits, golden).verify(report, strict=strict)


def rule_checks(report: CheckReport, initial: Iterable[str]) -> list[CheckResult]:
    """Return one result per rule that is violated now or was at first, in the rule table's order.

    Args:
        report: The check of the layout as it is now.
        initial: Rules that were violated at first.

    Raises:
        TaskError: If a rule is not in the table.
    """
    unknown = sorted({*initial} - report.table.rules.keys())
    if unknown:
        raise TaskError("unknown rules", field="counts", value=unknown)
    counts = report.counts
    where = _first_boxes(report)
    concerned = {*initial, *counts}
    results = []
    for rule in (r for r in report.table.rules.values() if r.id in concerned):
        n = counts.get(rule.id, 0)
        message = f"{rule.description or rule.id}: expected no violation, found {n}"
        results.append(
            CheckResult(f"drc:{rule.id}", "drc", n == 0, 0.0, float(n), "count", where.get(rule.id), message)
        )
    if not results:
        results.append(CheckResult("drc", "drc", True, 0.0, 0.0, "count", message="no rule is violated"))
    return results


def _first_boxes(report: CheckReport) -> dict[str, BBox]:
    dbu = report.layout.dbu
    boxes: dict[str, BBox] = {}
    for marker in report.flat:
        if marker.rule not in boxes:
            x1, y1, x2, y2 = marker.bbox
            boxes[marker.rule] = (x1 * dbu, y1 * dbu, x2 * dbu, y2 * dbu)
    return boxes


def violation_reduction(initial: int, final: int) -> float:
    """Return the violation reduction rate in [0, 1]: max(0, initial - final) / initial (PostEDA-Bench, Section 3.1.1).

    A task without initial violations counts as solved as long as none appear.
    """
    if initial <= 0:
        return 1.0 if final == 0 else 0.0
    return max(0, initial - final) / initial
