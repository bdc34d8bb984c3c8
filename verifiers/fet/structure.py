"""Structural criteria: overlaps, crossings, transistor counts, and required layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import klayout.db as kdb

from edagym.task_assets.fet.task import Rule
from edagym.verifiers.fet.drc import LayerShapes, Shapes, box_um
from edagym.verifiers.fet.transistors import Flake, Landing, RegionAnalysis, count_ungated
from edagym.verifiers.verdict import BBox, CheckResult


@dataclass(slots=True)
class RegionState:
    """What a layout makes of one region.

    Attributes:
        flake: The region.
        material: Its layer.
        demanded: Whether the criteria demand transistors here.
        landings: Contact landings.
        layers: Analysis per gate layer, in table order.
    """

    flake: Flake
    material: str
    demanded: bool
    landings: list[Landing]
    layers: list[RegionAnalysis]

    @property
    def transistors(self) -> int:
        """Transistor count: the least over the gate layers (all must gate, on dual-gated devices)."""
        if not self.layers:
            return count_ungated(self.landings)
        return min(a.transistors for a in self.layers)


def _regions_of(material: str, states: Sequence[RegionState]) -> list[RegionState]:
    """Regions of a material that the criteria give a demand; all of them when none has one."""
    mine = [s for s in states if s.material == material]
    return [s for s in mine if s.demanded] or mine


def must_overlap(rule: Rule, id_: str, shapes: Shapes, states: Sequence[RegionState]) -> CheckResult:
    """The first layer covers some area of the second; of every demanded region where that is a material."""
    a, b = rule.layers
    materials = {s.material for s in states}
    if a in materials:
        a, b = b, a
    missing: list[Flake] = []
    if b in materials:
        missing = [s.flake for s in _regions_of(b, states) if not _overlaps(shapes[a], s.flake)]
        where: BBox | None = box_um(missing[0].bbox) if missing else None
        failed = bool(missing)
    else:
        failed = (shapes[a].region & shapes[b].region).is_empty()
        where = None
    if not failed:
        return CheckResult(id_, rule.kind, True, message=f"{a} overlaps {b}", hidden=True)
    names = ", ".join(flake.name for flake in missing)
    at = f" on {names}" if names else ""
    message = f"expected {a} to overlap {b} on every region with a demand, found no overlap{at}"
    return CheckResult(id_, rule.kind, False, None, None, "", where, message, hidden=True)


def _overlaps(layer: LayerShapes, flake: Flake) -> bool:
    for polygon in layer.polygons:
        if polygon.bbox().overlaps(flake.bbox) and not (kdb.Region(polygon) & flake.region).is_empty():
            return True
    return False


def must_cross(rule: Rule, id_: str, states: Sequence[RegionState]) -> CheckResult:
    """Every demanded region of the material has at least one channel of the gate layer."""
    gate, material = rule.layers
    missing: list[Flake] = []
    for state in _regions_of(material, states):
        if not any(a.channels for a in state.layers if a.gates.layer == gate):
            missing.append(state.flake)
    if not missing:
        return CheckResult(id_, rule.kind, True, message=f"{gate} crosses {material}", hidden=True)
    names = ", ".join(flake.name for flake in missing)
    message = f"expected {gate} to cross every region of {material} with a demand, found no crossing on {names}"
    return CheckResult(id_, rule.kind, False, None, None, "", box_um(missing[0].bbox), message, hidden=True)


def transistor_count(rule: Rule, id_: str, state: RegionState) -> CheckResult:
    """The region has at least the demanded number of transistors."""
    required, found = int(rule.min_count or 0), state.transistors
    message = f"{state.flake.name}: expected at least {required} transistors, found {found}"
    where = None if found >= required else box_um(state.flake.bbox)
    return CheckResult(id_, rule.kind, found >= required, required, found, "count", where, message)


def layer_not_empty(rule: Rule, id_: str, shapes: Shapes) -> CheckResult:
    """A required layer holds area."""
    (layer,) = rule.layers
    passed = not shapes[layer].empty
    message = f"{layer} holds geometry" if passed else f"expected geometry on required layer {layer}, found none"
    return CheckResult(id_, rule.kind, passed, message=message)
