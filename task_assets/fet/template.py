"""From a device specification to a `FETTask`: the rule scheme that reproduces the paper's Table 1.

The scheme (which rules a task carries, given its architecture, layers, regions and circuit) is the one under which
all eleven rows of Table 1 close exactly: one min_width, min_separation and must_not_overlap per gate layer; one
min_spacing on the contacts; one min_enclosure with vias; must_touch_boundary per region for edge contacts;
must_overlap and must_cross per material; one transistor_count per region; one circuit_spec; layer_not_empty per
editable layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edagym.task_assets.fet.circuits import CircuitSpec
from edagym.task_assets.fet.task import FETTask, LayerSpec, Region, Rule


@dataclass(frozen=True, slots=True)
class RuleValues:
    """Numeric design rules, um. None: the task has no such rule.

    Attributes:
        min_gate_width: Least width of gates.
        contact_spacing: Least spacing of contacts.
        contact_gate_separation: Least distance of contacts and gates (and of vias and gates).
        via_enclosure: Least margin by which contacts enclose vias.
    """

    min_gate_width: float | None = 1.0
    contact_spacing: float = 0.2
    contact_gate_separation: float | None = 0.2
    via_enclosure: float | None = None


def build_task(
    task_id: str,
    objective: str,
    architecture: str,
    layers: Sequence[LayerSpec],
    design_order: Sequence[str],
    regions: Sequence[Region],
    values: RuleValues,
    demand: Sequence[int | None],
    circuit: CircuitSpec | None = None,
    name: str = "",
    metadata: Mapping[str, Any] | None = None,
) -> FETTask:
    """Return the task of a specification, with the rule scheme of the module docstring.

    Args:
        task_id: Task id.
        objective: Objective text; it must state everything in `demand` and `circuit`.
        architecture: One of `task.ARCHITECTURES`.
        layers: Layer table.
        design_order: Drawing order.
        regions: Fixed flakes (um).
        values: Numeric rules.
        demand: Least transistor count per region; None for no criterion.
        circuit: Circuit requirement, if any.
        name: Human-readable name; default from id and architecture.
        metadata: Labels and provenance.

    Raises:
        TaskError: If the specification contradicts itself.
    """

    def of(role: str) -> list[str]:
        return [spec.name for spec in layers if spec.role == role]

    gates, vias = of("gate electrode"), of("via")
    (contacts,) = of("contact")
    used = {r.material for r in regions}
    materials = [name for name in of("channel material") if name in used]
    drc: list[Rule] = []
    structural: list[Rule] = []
    for gate in gates:
        drc.append(Rule("min_width", (gate,), min_um=values.min_gate_width))
    drc.append(Rule("min_spacing", (contacts,), min_um=values.contact_spacing))
    for gate in gates:
        drc.append(Rule("min_separation", (contacts, gate), min_um=values.contact_gate_separation))
    for via in vias:
        drc.append(Rule("min_enclosure", (contacts, via), min_um=values.via_enclosure))
    for gate in gates:
        drc.append(Rule("must_not_overlap", (contacts, gate)))
    if architecture == "edge_contacted":
        drc.extend(Rule("must_touch_boundary", (contacts,), region=r.name) for r in regions)
    else:
        structural.extend(Rule("must_overlap", (contacts, m)) for m in materials)
    structural.extend(Rule("must_overlap", (gate, m)) for gate in gates for m in materials)
    structural.extend(Rule("must_cross", (gate, m)) for gate in gates for m in materials)
    structural.extend(
        Rule("transistor_count", (r.material,), region=r.name, min_count=n) for r, n in zip(regions, demand) if n
    )
    if circuit is not None:
        structural.append(Rule("circuit_spec", circuit=circuit))
    return FETTask(
        id=task_id,
        name=name or f"{task_id} ({architecture.replace('_', '-')})",
        objective=objective,
        architecture=architecture,
        layers=tuple(layers),
        design_order=tuple(design_order),
        regions=tuple(regions),
        drc_rules=tuple(drc),
        structural=tuple(structural),
        metadata=dict(metadata or {}),
    )


def layer_stack(
    architecture: str,
    materials: Sequence[str],
    *,
    via: bool = False,
    pad_cover: bool = False,
    dielectric: bool = False,
    gate_name: str = "gate",
    first_layer: int = 1,
) -> tuple[tuple[LayerSpec, ...], tuple[str, ...]]:
    """Return a layer table and design order for an architecture.

    Args:
        architecture: One of `task.ARCHITECTURES`.
        materials: Material labels, each a read-only layer.
        via: Whether there is a via layer.
        pad_cover: Whether there is a pad-cover layer.
        dielectric: Whether there is a dielectric layer (dual-gated only).
        gate_name: Name of the top gate layer.
        first_layer: GDS number of the first material.
    """
    flakes = [f"@{m}" for m in materials]
    tail = (["via"] if via else []) + (["pad_cover"] if pad_cover else [])
    order = {
        "top_gated": [*flakes, "contacts", gate_name, *tail],
        "edge_contacted": [*flakes, "contacts", gate_name, *tail],
        "local_back_gated": ["back_gate", *flakes, "contacts", *tail],
        "global_back_gated": [*flakes, "contacts", *tail],
        "dual_gated": [
            "back_gate",
            *flakes,
            "contacts",
            *(["dielectric"] if dielectric else []),
            "top_gate",
            *tail,
        ],
    }[architecture]
    roles = {"contacts": "contact", "via": "via", "pad_cover": "pad cover", "dielectric": "dielectric"}
    names = [*materials, *(n for n in order if not n.startswith("@"))]
    layers = tuple(
        LayerSpec(
            name=n,
            gds_layer=first_layer + i,
            datatype=0,
            role="channel material" if n in materials else roles.get(n, "gate electrode"),
            status="read_only" if n in materials else "editable",
        )
        for i, n in enumerate(names)
    )
    return layers, tuple(order)
