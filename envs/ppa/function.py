"""The functional check of the environment: the verifiers' equivalence check, asked with what a task knows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from edagym.errors import TaskError, ToolError
from edagym.task_assets.ppa.design import DesignFiles
from edagym.task_assets.ppa.designs import Interface
from edagym.task_assets.ppa.sdc import Constraints
from edagym.task_assets.ppa.task import PPATask
from edagym.verifiers.ppa.verifier import FunctionCheck

_RESETS = ("rst", "reset", "arst", "rst_i", "reset_i", "rst_n", "reset_n", "resetn", "rstn", "nreset", "aresetn")


def compare(task: PPATask, design: DesignFiles) -> FunctionCheck:
    """Compare a design with the task's original.

    Args:
        task: The task; ``task.function`` is the ``interface`` object of a ``design.json``.
        design: The changed design.

    Raises:
        ToolError: If the task does not say how the design's ports talk, the original cannot be checked, or an engine
            fails: no verdict on the agent.
    """
    from edagym.verifiers.ppa.equivalence import check_equivalence

    try:
        interface = Interface.from_dict(task.function)
    except TaskError as e:
        raise ToolError(f"the function of this design cannot be compared ({e})", field="function") from e
    found = check_equivalence(task.design.sources, design.sources, task.config().design_name, interface)
    failed = [c.message for c in found.checks if not c.passed]
    if failed:
        message = " ".join(failed)
    else:
        message = f"no difference found; formal: {found.formal}"
        if found.latency:
            message += f"; later by {found.latency} cycle{'s' if found.latency > 1 else ''}"
    return FunctionCheck(found.passed_paper, found.passed_strict, message)


def guess_interface(top: str, sources: Mapping[str, str], constraints: Constraints) -> dict[str, Any]:
    """Return a ``design.json`` interface for a design that comes without one.

    Designs without a clock port are combinational; all others are compared cycle by cycle up to a fixed latency, which
    is the public benchmark's mode for them. A reset is known by its name; one that ends in ``n`` acts at 0.

    Args:
        top: Top module.
        sources: Path -> Verilog text.
        constraints: The design's constraints.

    Raises:
        TaskError: If no source defines the top module, or there are several clocks.
    """
    text = next((t for t in sources.values() if re.search(rf"\bmodule\s+{re.escape(top)}\b", t)), None)
    if text is None:
        raise TaskError("no source defines the top module", field="DESIGN_NAME", value=top)
    ports = sorted(set(constraints.clock_ports))
    if not ports:
        return {"kind": "combinational"}
    if len(ports) > 1:
        raise TaskError("several clocks: the function cannot be compared", field="clocks", value=ports)
    header = text[text.index("module") :]
    header = header[: header.find("endmodule") % (len(header) + 1)]
    inputs = re.findall(r"\binput\b(?:\s+(?:wire|logic|reg|signed))*\s*(?:\[[^\]]*\])?\s*([\w\s,]+)", header)
    names = [w for group in inputs for w in re.findall(r"\w+", group)]
    reset = next((n for n in names if n.lower() in _RESETS), None)
    found: dict[str, Any] = {"kind": "pipelined", "clock": ports[0]}
    if reset is not None:
        found["reset"] = {"port": reset, "active": "low" if reset.lower().endswith("n") else "high"}
    return found
