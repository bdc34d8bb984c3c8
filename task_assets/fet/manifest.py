"""The manifest of the 128-task suite: what every task asks, before any contour is chosen.

`manifest.json` says for each column whether the paper prints it or whether it is reconstructed. A reconstructed value
fits every published total, but need not be the original one. Published columns never change; reconstructed ones may be
exchanged between tasks as long as the totals of `statistics` hold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from edagym.errors import TaskError
from edagym.task_assets.fet.circuits import CircuitSpec
from edagym.task_assets.fet.objective import objective_text
from edagym.task_assets.fet.task import FETTask, LayerSpec, Region
from edagym.task_assets.fet.template import RuleValues, build_task

SCHEMA_VERSION = 1
STATUSES = ("published", "reconstructed")

_SCALE_BARS_UM = (1, 2, 5, 10, 20, 50, 100, 200, 500)
# The preview panels carry the largest round bar of at most this share of the panel's width (an assumption).
_BAR_SHARE = 0.45


@dataclass(frozen=True, slots=True)
class Column:
    """What a manifest column is.

    Attributes:
        status: ``"published"`` or ``"reconstructed"``.
        meaning: What it holds.
        basis: Where its values come from.
    """

    status: str
    meaning: str
    basis: str


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One row of the manifest; the columns are described in the file itself (`Manifest.columns`)."""

    id: str
    difficulty: str
    tier: str
    transistors: int | None
    circuit: bool
    scale_bar_um: int
    group: str
    probe_kind: str | None
    architecture: str
    demand: tuple[int | None, ...]
    materials: tuple[str, ...]
    holes: bool
    design_order: tuple[str, ...]
    layers: tuple[LayerSpec, ...]
    circuit_template: CircuitSpec | None
    tight_window: float | None
    values: RuleValues
    spec_group: int
    lineage: str
    control: bool

    @property
    def level(self) -> str:
        """Template level, ``"L1"`` to ``"L4"``."""
        return self.id.split("/")[0]

    @property
    def case(self) -> int:
        """Case number within the level."""
        return int(self.id.split("_")[1])

    @property
    def n_flakes(self) -> int:
        """Number of fixed flakes."""
        return len(self.materials)

    def has(self, role: str) -> bool:
        """Whether the layer table holds a layer of this role."""
        return any(spec.role == role for spec in self.layers)

    @property
    def scene_width_um(self) -> tuple[float, float]:
        """Range of the preview's width that its scale bar suggests, um; a hint, never a criterion."""
        following = _SCALE_BARS_UM[_SCALE_BARS_UM.index(self.scale_bar_um) + 1]
        return self.scale_bar_um / _BAR_SHARE, following / _BAR_SHARE

    def task(self, regions: Sequence[Region], metadata: Mapping[str, Any] | None = None) -> FETTask:
        """Return the task on given flakes.

        Args:
            regions: One `Region` per flake, with the entry's materials in order.
            metadata: Joins the labels that the entry itself supplies.

        Raises:
            TaskError: If the regions do not fit the entry.
        """
        if tuple(r.material for r in regions) != self.materials:
            raise TaskError(
                f"task {self.id}: regions do not fit the manifest",
                field="regions.material",
                value=[r.material for r in regions],
                allowed=self.materials,
            )
        labels = {
            "level": self.level,
            "case": self.case,
            "difficulty": self.difficulty,
            "tier": self.tier,
            "transistors": self.transistors,
            "circuit": self.circuit,
            "group": self.group,
            "probe_kind": self.probe_kind,
            "holes": self.holes,
            "scale_bar_um": self.scale_bar_um,
            "tight_window": self.tight_window,
            "spec_group": self.spec_group,
            "lineage": self.lineage,
            "control": self.control,
        }
        return build_task(
            self.id,
            objective_text(
                self.architecture,
                self.layers,
                self.demand,
                self.materials,
                self.circuit_template,
                holes=self.holes,
            ),
            self.architecture,
            self.layers,
            self.design_order,
            regions,
            self.values,
            self.demand,
            self.circuit_template,
            metadata={**labels, **(metadata or {})},
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """The parsed manifest.

    Attributes:
        columns: Description of every column, by name.
        entries: The 128 rows, in level and case order.
    """

    columns: Mapping[str, Column]
    entries: tuple[ManifestEntry, ...]


def _entry(row: Mapping[str, Any]) -> ManifestEntry:
    circuit = row["circuit_template"]
    return ManifestEntry(
        **{
            **row,
            "demand": tuple(row["demand"]),
            "materials": tuple(row["materials"]),
            "design_order": tuple(row["design_order"]),
            "layers": tuple(LayerSpec(*spec) for spec in row["layers"]),
            "circuit_template": CircuitSpec(**{**circuit, "exact_per_flake": tuple(circuit["exact_per_flake"])})
            if circuit
            else None,
            "values": RuleValues(*row["values"]),
        }
    )


def manifest_from_json(text: str, source: str = "manifest") -> Manifest:
    """Parse a manifest file.

    Args:
        text: The file's text.
        source: Name for error messages.

    Raises:
        TaskError: If the text is no manifest of this schema.
    """
    try:
        data = json.loads(text)
        if data["schema_version"] != SCHEMA_VERSION:
            raise TaskError(
                f"{source}: unsupported schema",
                field="schema_version",
                value=data["schema_version"],
                allowed=SCHEMA_VERSION,
            )
        columns = {name: Column(**about) for name, about in data["columns"].items()}
        for name, column in columns.items():
            if column.status not in STATUSES:
                raise TaskError(f"{source}: column {name}", field="status", value=column.status, allowed=STATUSES)
        entries = tuple(_entry(row) for row in data["tasks"])
    except (json.JSONDecodeError, KeyError, TypeError, ValueError) as e:
        raise TaskError(f"{source}: malformed manifest ({type(e).__name__}: {e})") from e
    ids = [e.id for e in entries]
    if len(set(ids)) != len(ids):
        raise TaskError(f"{source}: task ids repeat", field="id", value=sorted({i for i in ids if ids.count(i) > 1}))
    return Manifest(columns, entries)


@lru_cache(maxsize=1)
def load_manifest() -> Manifest:
    """Return the shipped manifest, read once per process."""
    path = resources.files("edagym.task_assets.fet") / "manifest.json"
    return manifest_from_json(path.read_text(encoding="utf-8"), "manifest.json")
