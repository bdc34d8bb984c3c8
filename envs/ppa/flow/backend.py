"""`FlowBackend`: the one interface of every RTL-to-report flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from edagym.task_assets.ppa.design import DesignFiles
from edagym.verifiers.ppa.report import PPAReport


@dataclass(frozen=True)
class Placement:
    """Placed cells for pictures and for a DEF file; lengths are um.

    Attributes:
        die: (x1, y1, x2, y2) of the die.
        core: (x1, y1, x2, y2) of the core.
        names: Instance names, length n.
        masters: Cell names, length n.
        boxes: float64 (n, 4): x1, y1, x2, y2 of each cell.
        slacks: float64 (n,): worst setup slack through each cell, ps; inf where no path runs.
    """

    die: tuple[float, float, float, float]
    core: tuple[float, float, float, float]
    names: tuple[str, ...]
    masters: tuple[str, ...]
    boxes: np.ndarray
    slacks: np.ndarray


@dataclass(frozen=True)
class FlowResult:
    """A completed run.

    Attributes:
        report: The numbers.
        critical_path: One text line per stage of the worst path (cell, pin, delay, arrival).
        endpoint_slacks: float64 (m,): setup slack per endpoint, ps, sorted.
        placement: Placed cells; None if the backend gives none.
    """

    report: PPAReport
    critical_path: tuple[str, ...] = ()
    endpoint_slacks: np.ndarray | None = None
    placement: Placement | None = None


class FlowBackend(Protocol):
    """Something that runs a design from RTL to report."""

    name: str

    @property
    def engine(self) -> str:
        """Versions that the numbers depend on."""
        ...

    def run(self, design: DesignFiles) -> FlowResult:
        """Run the whole flow.

        Args:
            design: Configuration, constraints and sources.

        Raises:
            FlowError: If this design cannot be implemented (bad configuration, synthesis error, core too small, timing
                loop): a real outcome that an agent sees.
            ToolError: If the engine is missing or has crashed; `ToolTimeout` if it ran too long.
        """
        ...
