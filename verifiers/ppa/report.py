"""`PPAReport`: what a flow run says about a design, under OpenROAD-flow-scripts' names where it has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edagym.task_assets.ppa.task import METRICS, UNITS

__all__ = ["METRICS", "UNITS", "PPAReport"]


@dataclass(frozen=True)
class PPAReport:
    """Result of one completed flow run.

    Attributes:
        backend: ``"embedded"`` or ``"orfs"``; numbers of different backends are never compared.
        engine: Versions that the numbers depend on, e.g. ``"edagym-flow 1, pyosys 0.58"``.
        effective_period: Clock period less worst slack, the largest over all clocks, ps.
        total_power: Total power at the constraint's clock period, W.
        die_area: Area of the die, um2.
        metrics: Stage metrics, e.g. ``finish__timing__setup__wns`` (ps), ``synth__design__instance__area`` (um2).
        warnings: What the flow had to say, e.g. that a knob is not modelled.
    """

    backend: str
    engine: str
    effective_period: float
    total_power: float
    die_area: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def value(self, metric: str) -> float:
        """Return one of `METRICS`, in its unit of `UNITS`."""
        if metric not in METRICS:
            raise ValueError(f"metric must be one of {METRICS}, got {metric!r}")
        return float(getattr(self, metric))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return {
            "backend": self.backend,
            "engine": self.engine,
            **{name: self.value(name) for name in METRICS},
            "metrics": dict(self.metrics),
            "warnings": list(self.warnings),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PPAReport:
        """Undo `to_dict`."""
        return cls(**{**data, "metrics": dict(data["metrics"]), "warnings": tuple(data["warnings"])})
