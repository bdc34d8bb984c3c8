"""The code critic of the layer-wise scaffolds: which failed checks count while layers are still to be drawn.

A check that refers to a layer not yet drawn is deferred (2D-FET-Bench V2, Appendices B and C): it is neither shown nor
held against the current layer. So a contact may be locked before it is known whether a via fits into it.
"""

from __future__ import annotations

from collections.abc import Iterable

from edagym.task_assets.fet.task import TaskView
from edagym.verifiers.verdict import CheckResult, Criterion, Verdict

# Checks whose id names no layer. Devices need gates and contacts; the strict ones also vias and pad covers.
_DEVICES = ("transistor_count", "circuit_spec", "strict_stray")
_ALL_LAYERS = ("strict_transistor_count", "strict_contacts", "strict_netlist")


def layers_of(check: CheckResult, view: TaskView) -> frozenset[str]:
    """Return the editable layers that a check refers to."""
    editable = frozenset(spec.name for spec in view.editable_layers)

    def of_roles(*roles: str) -> frozenset[str]:
        return frozenset(spec.name for role in roles for spec in view.layers_of(role)) & editable

    if check.kind in _DEVICES:
        return of_roles("contact", "gate electrode")
    if check.kind in _ALL_LAYERS:
        return editable
    if check.kind == "strict_via":
        return of_roles("contact", "via", "pad cover")
    named = check.id.partition("#")[0].split(":")[1:]
    if check.kind == "must_touch_boundary":
        named = [name for rule in view.drc_rules if rule.kind == check.kind for name in rule.layers]
    return frozenset(named) & editable


def review(
    verdict: Verdict, view: TaskView, drawn: Iterable[str], criterion: Criterion
) -> tuple[list[CheckResult], list[CheckResult]]:
    """Return the failed checks that count now, and all checks that are deferred.

    Args:
        verdict: Of the layout as it is.
        view: The task.
        drawn: Layers drawn so far, the current one included.
        criterion: Which failed checks count at all.
    """
    known = frozenset(drawn)
    failed = [c for c in verdict.failed(criterion) if layers_of(c, view) <= known]
    counted = [c for c in verdict.checks if criterion == "strict" or not c.strict]
    return failed, [c for c in counted if not layers_of(c, view) <= known]
