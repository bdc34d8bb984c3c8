"""`TaskSpace`: layer table, rules, architecture and circuit of a task as padded arrays (no geometry)."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict

from edagym.errors import TaskError
from edagym.spaces.contours import MAX_DEMAND, MAX_LAYERS, MAX_REGIONS
from edagym.task_assets.fet.circuits import LOADS, TEMPLATES
from edagym.task_assets.fet.task import ARCHITECTURES, DRC_KINDS, ROLES, TaskView

MAX_RULES = 64
_MAX_GDS = 32767


class TaskSpace(Dict):
    """Everything but geometry that `TaskView` states; unused rows are -1 (values 0).

    Keys:
        architecture: (5,) int8, one-hot in the order of `ARCHITECTURES`.
        layer_role: (12,) int16: index into `ROLES`; -1 unused.
        layer_editable: (12,) int8: 1 for layers that may be drawn on.
        layer_gds: (12, 2) int16: GDS layer and datatype; -1 unused.
        layer_order: (12,) int16: place in the design order; -1 absent.
        rule_kind: (64,) int16: index into `DRC_KINDS`; -1 unused.
        rule_layers: (64, 2) int16: rows of the layer table; -1 none.
        rule_region: (64,) int16: region row; -1 none.
        rule_value: (64,) float32, um: limit of distance rules; 0 none.
        circuit: (5,) int16: index into `TEMPLATES`, index into `LOADS`, instances, transistors per instance, flakes
            per instance; -1 without a circuit.
        circuit_exact: (20,) int16: exact transistors per region of a circuit task; -1 none.

    Args:
        seed: Seed of the space's own sampler.
    """

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(
            {
                "architecture": Box(0, 1, (len(ARCHITECTURES),), np.int8),
                "layer_role": Box(-1, len(ROLES) - 1, (MAX_LAYERS,), np.int16),
                "layer_editable": Box(0, 1, (MAX_LAYERS,), np.int8),
                "layer_gds": Box(-1, _MAX_GDS, (MAX_LAYERS, 2), np.int16),
                "layer_order": Box(-1, MAX_LAYERS - 1, (MAX_LAYERS,), np.int16),
                "rule_kind": Box(-1, len(DRC_KINDS) - 1, (MAX_RULES,), np.int16),
                "rule_layers": Box(-1, MAX_LAYERS - 1, (MAX_RULES, 2), np.int16),
                "rule_region": Box(-1, MAX_REGIONS - 1, (MAX_RULES,), np.int16),
                "rule_value": Box(0, 100, (MAX_RULES,), np.float32),
                "circuit": Box(-1, MAX_DEMAND, (5,), np.int16),
                "circuit_exact": Box(-1, MAX_DEMAND, (MAX_REGIONS,), np.int16),
            },
            seed=seed,
        )

    def from_view(self, view: TaskView) -> dict[str, Any]:
        """Return the arrays of a task.

        Raises:
            TaskError: If a published maximum of this space is exceeded.
        """
        names = [spec.name for spec in view.layers]
        regions = [r.name for r in view.regions]
        for field, value, most in (
            ("layers", len(names), MAX_LAYERS),
            ("drc_rules", len(view.drc_rules), MAX_RULES),
            ("regions", len(regions), MAX_REGIONS),
            ("gds_layer, datatype", max(max(s.gds_layer, s.datatype) for s in view.layers), _MAX_GDS),
        ):
            if value > most:
                raise TaskError(
                    "task does not fit the observation space", field=field, value=value, allowed=f"<= {most}"
                )
        out: dict[str, Any] = {
            "architecture": np.array([a == view.architecture for a in ARCHITECTURES], np.int8),
            "layer_role": np.full(MAX_LAYERS, -1, np.int16),
            "layer_editable": np.zeros(MAX_LAYERS, np.int8),
            "layer_gds": np.full((MAX_LAYERS, 2), -1, np.int16),
            "layer_order": np.full(MAX_LAYERS, -1, np.int16),
            "rule_kind": np.full(MAX_RULES, -1, np.int16),
            "rule_layers": np.full((MAX_RULES, 2), -1, np.int16),
            "rule_region": np.full(MAX_RULES, -1, np.int16),
            "rule_value": np.zeros(MAX_RULES, np.float32),
            "circuit": np.full(5, -1, np.int16),
            "circuit_exact": np.full(MAX_REGIONS, -1, np.int16),
        }
        for i, spec in enumerate(view.layers):
            out["layer_role"][i] = ROLES.index(spec.role)
            out["layer_editable"][i] = spec.editable
            out["layer_gds"][i] = (spec.gds_layer, spec.datatype)
        for place, entry in enumerate(view.design_order):
            out["layer_order"][names.index(entry.lstrip("@"))] = place
        for i, rule in enumerate(view.drc_rules):
            out["rule_kind"][i] = DRC_KINDS.index(rule.kind)
            for j, layer in enumerate(rule.layers):
                out["rule_layers"][i, j] = names.index(layer)
            if rule.region is not None:
                out["rule_region"][i] = regions.index(rule.region)
            if rule.min_um is not None:
                out["rule_value"][i] = rule.min_um
        if (circuit := view.circuit) is not None:
            out["circuit"][:] = (
                TEMPLATES.index(circuit.template),
                LOADS.index(circuit.load),
                circuit.instances,
                circuit.transistors_per_instance,
                circuit.flakes_per_instance,
            )
            out["circuit_exact"][: len(circuit.exact_per_flake)] = circuit.exact_per_flake
        return out
