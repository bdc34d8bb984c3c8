"""`TableFlow`: recorded runs of the embedded flow, looked up instead of run again, for training.

The flow is deterministic, so that a recorded run is what a run would give. A table holds the three metrics only: stage
metrics, paths and pictures of looked-up runs are missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edagym.envs.ppa.flow.backend import FlowBackend, FlowResult
from edagym.envs.ppa.training import apply_settings
from edagym.errors import FlowError, ToolError
from edagym.task_assets.ppa.design import DesignFiles
from edagym.task_assets.ppa.sweep import Sweep, load_sweeps
from edagym.verifiers.ppa.report import METRICS, PPAReport

RECORDED = "looked up in a sweep table: no stage metrics"
"""Warning in the report of a looked-up run."""

_Values = Mapping[str, float] | None


class TableFlow:
    """A backend that answers from sweep tables and runs the flow for settings that they do not hold.

    Args:
        sweeps: The tables; None: the shipped ones.
        run_others: Whether settings outside the tables are run, else they raise `ToolError`.

    Raises:
        ToolError: If the tables are of different backends or engines.
    """

    def __init__(self, sweeps: Sequence[Sweep] | None = None, run_others: bool = True) -> None:
        self._sweeps = load_sweeps() if sweeps is None else tuple(sweeps)
        made_by = sorted({(s.backend, s.engine) for s in self._sweeps})
        if len(made_by) != 1:
            raise ToolError("sweep tables of one engine are needed", field="sweeps", value=made_by)
        ((self.name, self._engine),) = made_by
        self._run_others = run_others
        self._tables: dict[int, dict[str, _Values]] = {}
        self._flow: FlowBackend | None = None

    @property
    def engine(self) -> str:
        """Versions that the tables' numbers depend on."""
        return self._engine

    def run(self, design: DesignFiles) -> FlowResult:
        """Return the recorded metrics of a design, or those of a run; see `FlowBackend.run`."""
        for number, sweep in enumerate(self._sweeps):
            if sweep.design.sources == design.sources:
                if number not in self._tables:
                    points = sweep.points
                    self._tables[number] = {apply_settings(sweep.design, p.edits).digest(): p.values for p in points}
                found = self._tables[number]
                if (digest := design.digest()) in found:
                    return self._recorded(found[digest])
        if not self._run_others:
            raise ToolError("no sweep table holds this setting", field="design", value=design.digest()[:12])
        return self._embedded().run(design)

    def _recorded(self, values: _Values) -> FlowResult:
        if values is None:
            raise FlowError("the flow failed in the recorded run")
        named: dict[str, Any] = {m: values[m] for m in METRICS}
        return FlowResult(PPAReport(self.name, self._engine, **named, warnings=(RECORDED,)))

    def _embedded(self) -> FlowBackend:
        if self._flow is None:
            from edagym.envs.ppa.flow.embedded import EmbeddedFlow

            flow = EmbeddedFlow()
            if (flow.name, flow.engine) != (self.name, self._engine):
                raise ToolError(
                    "the tables are of another flow", field="engine", value=self._engine, allowed=flow.engine
                )
            self._flow = flow
        return self._flow
