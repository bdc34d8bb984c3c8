"""The text of a DRC task for language models, made from `DRCView` alone: no ground truth.

The violation list follows the layout of the public benchmark's prompts: items grouped by rule and cell, at most ten a
group, coordinates in micrometres in the frame of the item's cell, with one example placement.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from edagym.task_assets.drc.task import MIN_AREA_KEPT, DRCView, Violation

ITEMS_PER_GROUP = 10
_LINE = "=" * 39

_ANSWER = """\
Answer with one action as a JSON object. Coordinates of actions are whole database units of the layout in the frame of
the cell that is edited; 1 database unit is {dbu:g} um. An edit of a placed master changes every placement of it.
{actions}
Every action but submit costs one of {budget} units. A check that finds the layout clean ends the task."""


def render_violations(violations: Iterable[Violation], top: str, title: str = "") -> str:
    """Return a report as text.

    Args:
        violations: The items.
        top: Name of the top cell.
        title: What was checked, for the second line.

    Returns:
        The text; groups are sorted by rule and cell, items keep their order.
    """
    items = sorted(violations, key=lambda v: (v.rule, v.cell))
    lines = [f"Description: {title}"] if title else []
    lines += [_LINE, f"Top Cell: {top}", _LINE]
    for (rule, cell), group in groupby(items, key=lambda v: (v.rule, v.cell)):
        shown = list(group)
        more = f"  |  first {ITEMS_PER_GROUP} of {len(shown)}" if len(shown) > ITEMS_PER_GROUP else ""
        lines.append(f"--- {rule}  |  cell: {cell}{more} ---")
        lines += [f"[{i}] {v.to_dict()}" for i, v in enumerate(shown[:ITEMS_PER_GROUP])]
        lines.append(_LINE)
    return "\n".join(lines) + "\n"


def render_prompt(view: DRCView, dbu: float, actions: str, budget: int | None = None) -> str:
    """Return the whole prompt of a task.

    Args:
        view: What an agent may know.
        dbu: Database unit of the layout in um.
        actions: Description of the actions, one a line (`edagym.spaces.drc_actions.DRCActionSpace.describe`).
        budget: Units of budget of the episode; None: the task's own.

    Returns:
        The text.
    """
    lines = [
        "Repair the design rule violations of a layout. Remove every violation listed below without causing new ones, "
        "keep the circuit as it is (nets, devices, pins and labels), and change as little as the repair needs.",
        f"Rules: {view.rules}. {sum(view.counts.values())} violations: "
        + ", ".join(f"{rule} {n}" for rule, n in view.counts.items())
        + ".",
    ]
    if view.roi is not None:
        x1, y1, x2, y2 = view.roi
        lines.append(f"Only violations inside ({x1:g}, {y1:g})-({x2:g}, {y2:g}) um count.")
    kept = "".join(f", of {layer} {share:.0%}" for layer, share in sorted(view.limits.min_area_kept.items()))
    lines.append(
        f"Of every shape that is cut, {MIN_AREA_KEPT:.0%} of the area must stay{kept}; moving a little is free."
    )
    if view.limits.max_edited_area is not None:
        lines.append(f"The edited area may be at most {view.limits.max_edited_area:g} um2.")
    lines += [
        render_violations(view.violations, view.top),
        _ANSWER.format(dbu=dbu, actions=actions, budget=view.budget if budget is None else budget),
    ]
    return "\n".join(lines) + "\n"
