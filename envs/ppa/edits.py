"""Application of typed edits to a design's files. Every result can still be read; what cannot is refused."""

from __future__ import annotations

from edagym.errors import EditError, FlowError, TaskError
from edagym.spaces.ppa_edits import PPAEdit, ReplaceText, SetIOFraction, SetKnob, SetMaxFanout, SetPeriod
from edagym.task_assets.ppa import sdc
from edagym.task_assets.ppa.config import is_locked, locked_variables, parse_config, set_variable
from edagym.task_assets.ppa.design import DesignFiles
from edagym.task_assets.ppa.knobs import knob_table
from edagym.task_assets.ppa.task import PPATask
from edagym.verifiers.ppa.verifier import constraint_faults, knob_fault


def apply_edit(task: PPATask, design: DesignFiles, edit: PPAEdit) -> DesignFiles:
    """Return the design after an edit.

    Args:
        task: The task: its locked variables, bounds and exceptions hold.
        design: The design before.
        edit: The edit.

    Raises:
        EditError: If it is refused: a locked or unreadable variable, constraints outside the bounds, timing exceptions
            added or removed, a file that is not the design's, a passage that does not occur exactly once.
    """
    try:
        changed = change(design, edit)
        check_design(task, changed)
    except (FlowError, TaskError) as e:
        raise EditError(str(e), field=e.field) from None
    return changed


def change(design: DesignFiles, edit: PPAEdit) -> DesignFiles:
    """Return the design after an edit, without a task's rules; raises `EditError`, `FlowError` or `TaskError`."""
    if isinstance(edit, SetKnob):
        return _set_knob(design, edit)
    return _replace(design, edit) if isinstance(edit, ReplaceText) else _set_constraint(design, edit)


def check_design(task: PPATask, design: DesignFiles) -> None:
    """Raise `EditError` or `FlowError` if a design's configuration or constraints break the task's rules."""
    path, text = design.one(".mk")
    if fault := knob_fault(task, parse_config(text, path)):
        raise EditError(fault, field="knobs")
    before, after = locked_variables(task.design.one(".mk")[1]), locked_variables(text, path)
    for name in sorted(before.keys() | after.keys()):
        if before.get(name) != after.get(name):
            raise EditError("this variable is locked", field=name, value=after.get(name), allowed=before.get(name))
    path, text = design.one(".sdc")
    for field, message in constraint_faults(task, sdc.parse_sdc(text, path)).items():
        raise EditError(message, field=field.removeprefix("strict_"))


def _set_knob(design: DesignFiles, edit: SetKnob) -> DesignFiles:
    if is_locked(edit.name):
        raise EditError("this variable is locked", field=edit.name, value=edit.value)
    knob = knob_table().get(edit.name)
    if knob is None:
        raise EditError("unknown variable", field="name", value=edit.name, allowed="see FlowVariables.md")
    try:
        knob.parse(edit.value)
    except ValueError as e:
        raise EditError("not a value", field=edit.name, value=edit.value, allowed=str(e)) from None
    path, text = design.one(".mk")
    return design.replaced(path, set_variable(text, edit.name, " ".join(edit.value.split())))


def _set_constraint(design: DesignFiles, edit: SetPeriod | SetIOFraction | SetMaxFanout) -> DesignFiles:
    path, text = design.one(".sdc")
    if isinstance(edit, SetPeriod):
        return design.replaced(path, sdc.set_period(text, edit.period, edit.clock or None))
    if isinstance(edit, SetIOFraction):
        return design.replaced(path, sdc.set_io_fraction(text, edit.fraction, edit.direction or None))
    return design.replaced(path, sdc.set_max_fanout(text, edit.fanout or None))


def _replace(design: DesignFiles, edit: ReplaceText) -> DesignFiles:
    if edit.path not in design.files:
        raise EditError("not a file of the design", field="path", value=edit.path, allowed=[*design.files])
    text = design.files[edit.path]
    count = text.count(edit.old) if edit.old else 0
    if count != 1:
        where = "does not occur" if count == 0 else f"occurs {count} times"
        raise EditError(f"the passage {where} in the file", field="old", value=edit.old, allowed="exactly once")
    return design.replaced(edit.path, text.replace(edit.old, edit.new))
