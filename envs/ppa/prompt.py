"""The text of a PPA task for language models, made from `PPAView` alone: no ground truth."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from edagym.envs.ppa.state import REFERENCE_PAGE
from edagym.task_assets.ppa.task import METRICS, UNITS, PPAView

WORDS = {"effective_period": "effective period", "total_power": "power", "die_area": "area"}


def render_prompt(
    view: PPAView, actions: str, budget: int | None = None, charge: Literal["actions", "runs"] = "actions"
) -> str:
    """Return the whole prompt of a task.

    Args:
        view: What an agent may know.
        actions: Description of the actions, one a line (`edagym.spaces.ppa_actions.PPAActionSpace.describe`).
        budget: Units of budget of the episode; None: the task's own.
        charge: What costs a unit: every action but submit, or runs alone.

    Returns:
        The text.
    """
    to_improve = [m for m in METRICS if m in view.targets and view.initial[m] > view.targets[m]]
    to_keep = [m for m in METRICS if m in view.targets and m not in to_improve]
    verb = "is" if len(to_improve) == 1 else "are"
    head = "The design has been through the whole flow from RTL to the final report"
    lines = [f"{head}, but {_list([WORDS[m] for m in to_improve])} {verb} not met." if to_improve else f"{head}."]
    for m in to_improve:
        lines.append(f"- {WORDS[m]}: now {_value(view, m)}, target at most {view.targets[m]:.6g} {UNITS[m]}")
    if to_keep:
        lines.append("What is met already has to stay so:")
        lines += [f"- {WORDS[m]}: now {_value(view, m)}, at most {view.targets[m]:.6g} {UNITS[m]}" for m in to_keep]
    free = [m for m in METRICS if m not in view.targets]
    lines += [f"No bound: {WORDS[m]}, now {_value(view, m)}" for m in free]
    period = view.bounds.period
    lines += [
        "",
        "The effective period is the clock period less the worst slack, paths to and from pins included; power is "
        "stated at the clock period of the constraints.",
        f"You may edit the configuration ({_only(view, '.mk')}), the constraints ({_only(view, '.sdc')}) and the "
        f"Verilog sources ({', '.join(view.design.sources)}). The design has to keep its function; it may take a fixed "
        "number of cycles more or less.",
        f"`{REFERENCE_PAGE}` describes the variables of the configuration. Locked are those that name the design"
        + "".join(f", and {name}" for name in view.bounds.locked)
        + ".",
        f"The clock period may be {period[0]:g} to {period[1]:g} ps"
        + (
            f", input and output delays {view.bounds.io_fraction[0]:g} to {view.bounds.io_fraction[1]:g} of it"
            if view.bounds.io_fraction is not None
            else ""
        )
        + "; timing exceptions may not be added or removed.",
        "",
        "Answer with one action as a JSON object.",
        actions,
        f"Every {'run' if charge == 'runs' else 'action but submit'} costs one of "
        f"{view.budget if budget is None else budget} units. A run that meets all targets ends the task.",
    ]
    return "\n".join(lines) + "\n"


def render_report(
    values: Mapping[str, float],
    targets: Mapping[str, float],
    warnings: tuple[str, ...] = (),
    path: tuple[str, ...] = (),
) -> str:
    """Return a run's values with their gaps to the targets as text.

    Args:
        values: Metric -> value.
        targets: Metric -> largest allowed value.
        warnings: What the flow had to say.
        path: Lines of the worst path.
    """
    lines = []
    for m in METRICS:
        text = f"{WORDS[m]}: {values[m]:.6g} {UNITS[m]}"
        if m in targets:
            gap = values[m] - targets[m]
            met = "met" if gap <= 0 else f"missed by {gap:.6g} ({100 * gap / targets[m]:.2f} %)"
            text += f"; target at most {targets[m]:.6g}: {met}"
        lines.append(text)
    lines += [f"warning: {w}" for w in warnings]
    if path:
        lines += ["worst path:", *path]
    return "\n".join(lines) + "\n"


def _value(view: PPAView, metric: str) -> str:
    return f"{view.initial[metric]:.6g} {UNITS[metric]}"


def _only(view: PPAView, suffix: str) -> str:
    return f"`{view.design.one(suffix)[0]}`"


def _list(words: list[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]
