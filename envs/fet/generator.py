"""Tasks of the FET family: the 128-task suite (`generate_suite`) and endless training tasks (`generate_task`).

Both draw contours and scenes at random and keep what the reference constructor solves in place, under the paper's and
the strict criterion (paper, Appendix F: capacity at draw time, then screening in situ).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from edagym.envs.fet.interpreter import apply_edit, drawing_window
from edagym.envs.fet.plan import Slot, plan_suite, room
from edagym.envs.fet.reference import ReferenceInfeasible, build_reference, capacity
from edagym.envs.fet.scene import Placed, place
from edagym.errors import TaskError, ToolError
from edagym.spaces.edits import Edit, edit_to_json
from edagym.spaces.layout import MAX_SHAPES
from edagym.task_assets.fet.circuits import CircuitSpec
from edagym.task_assets.fet.contours import TIERS, Contour, load_library, procedural_contour
from edagym.task_assets.fet.manifest import ManifestEntry, load_manifest
from edagym.task_assets.fet.objective import objective_text
from edagym.task_assets.fet.suite import LEVELS, load_task, task_ids
from edagym.task_assets.fet.task import ARCHITECTURES, FETTask, LayerSpec, Region
from edagym.task_assets.fet.template import RuleValues, build_task, layer_stack
from edagym.verifiers.fet import FETLayout, verify
from edagym.verifiers.fet.netlist import extract_netlist

MAX_CONTOUR_DRAWS = 150
MAX_SCENES = 40
SCENES_PER_CONTOUR = 8
"""Retry limits of Appendix F: contours until one has the capacity; scenes; scenes between two swaps of a contour."""

MAX_REGIONS = 10
MAX_DEMAND = 8
MAX_HOLES = 2
MAX_RECIPES = 8
SCENES_PER_RECIPE = 6


# -- the suite -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SuiteTask:
    """A generated suite task.

    Attributes:
        task: The task.
        edits: Its reference layout as edits.
        scenes: How many scenes were tried.
        swaps: How many contours were replaced because the constructor failed on them.
    """

    task: FETTask
    edits: tuple[Edit, ...]
    scenes: int
    swaps: int


def generate_suite(
    out_dir: str | Path, seed: int = 7, progress: bool = True, only: Sequence[str] | None = None
) -> dict[str, Any]:
    """Write task files and references of the suite.

    Tasks are independent of each other given the plan of contours: each has its own generator, seeded with the suite's
    seed and the task's id. Equal seeds give equal bytes.

    Args:
        out_dir: Folder that receives ``suite/L2/case_12.json`` and ``references/L2/case_12.json``.
        seed: Suite seed; 7 made the shipped files.
        progress: Whether to show a progress bar.
        only: Task ids to write; default: all.

    Returns:
        Counts for a report: tasks, placements by source, scenes tried, contours replaced.

    Raises:
        TaskError: If `only` names an unknown task.
        ToolError: If a task finds no scene that the constructor solves.
    """
    unknown = sorted(set(only or ()) - set(task_ids()))
    if unknown:
        raise TaskError("unknown task", field="only", value=unknown, allowed="ids as listed by `edagym list`")
    entries = load_manifest().entries
    plan = plan_suite(entries, load_library(), np.random.default_rng(seed))
    report = {"tasks": 0, "mask": 0, "micrograph": 0, "procedural": 0, "scenes": 0, "swaps": 0}
    for entry in tqdm([e for e in entries if only is None or e.id in only], disable=not progress, unit="task"):
        made = suite_task(entry, plan[entry.id], seed)
        _write(Path(out_dir) / "suite" / f"{entry.id}.json", made.task.to_json())
        edits = [edit_to_json(e) for e in made.edits]
        reference = {"task": entry.id, "edits": edits}
        _write(Path(out_dir) / "references" / f"{entry.id}.json", json.dumps(reference, separators=(",", ":")) + "\n")
        report["tasks"] += 1
        report["scenes"] += made.scenes
        report["swaps"] += made.swaps
        for contour in made.task.metadata["contours"]:
            report[contour["source"]] += 1
    return report


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


def suite_task(entry: ManifestEntry, slots: Sequence[Slot], seed: int) -> SuiteTask:
    """Draw contours and a scene for a manifest entry until the reference constructor solves it.

    Args:
        entry: The manifest row.
        slots: Its slots of the plan.
        seed: Suite seed.

    Raises:
        ToolError: If the retry limits are exhausted.
    """
    digest = hashlib.sha256(f"{seed}:{entry.id}".encode()).digest()
    rng = np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))
    contours, swaps = [], 0
    for slot, material in zip(slots, entry.materials):
        contour = slot.contour
        if contour is None or not (slot.locked or _able(entry, contour, material, slot.demand)):
            swaps += contour is not None
            contour = _able_contour(rng, entry, slot, material)
        contours.append(contour)
    pairs = entry.circuit_template is not None and entry.circuit_template.load == "complementary"
    failing: int | None = None
    for scene in range(1, MAX_SCENES + 1):
        placed = _placed(rng, contours, tight=entry.tight_window, pairs=pairs, width_um=entry.scene_width_um)
        if placed is not None:
            task = entry.task(_regions(placed, entry.materials), {"contours": [_provenance(c) for c in contours]})
            try:
                edits = build_reference(task)
                return SuiteTask(_with_reference(task, edits), edits, scene, swaps)
            except ReferenceInfeasible as e:
                failing = next((k for k, r in enumerate(task.regions) if r.name == e.value), None)
        if scene % SCENES_PER_CONTOUR == 0:
            k = failing if failing is not None and not slots[failing].locked else _open_slot(rng, slots)
            if k is not None:
                contours[k] = _able_contour(rng, entry, slots[k], entry.materials[k])
                swaps += 1
    raise ToolError("no scene that the reference constructor solves", field="task", value=entry.id)


def _open_slot(rng: np.random.Generator, slots: Sequence[Slot]) -> int | None:
    """Draw a slot whose contour may be replaced, more often one that is asked for more."""
    open_slots = [k for k, s in enumerate(slots) if not s.locked]
    if not open_slots:
        return None
    weights = np.array([1.0 + slots[k].demand for k in open_slots])
    return open_slots[int(rng.choice(len(open_slots), p=weights / weights.sum()))]


def _able(entry: ManifestEntry, contour: Contour, material: str, demand: int) -> bool:
    """Whether the constructor places the demand on a contour in library orientation."""
    found = capacity(
        Region("flake_1", material, contour.hull, contour.holes),
        entry.values,
        architecture=entry.architecture,
        via=entry.has("via"),
        pad_cover=entry.has("pad cover"),
        limit=demand,
    )
    return found >= demand


def _able_contour(rng: np.random.Generator, entry: ManifestEntry, slot: Slot, material: str) -> Contour:
    for _ in range(MAX_CONTOUR_DRAWS):
        contour = slot.draw(rng)
        if _able(entry, contour, material, slot.demand):
            return contour
    raise ToolError("no contour with the capacity", field="task", value=entry.id)


def _with_reference(task: FETTask, edits: Sequence[Edit]) -> FETTask:
    """Return the task with the size of its reference and, for circuits, the reference's netlist on record.

    The edits go through the interpreter and the verifier once more, as an agent's would.
    """
    layout = FETLayout.from_task(task)
    window = drawing_window(task.regions)
    for edit in edits:
        apply_edit(layout, edit, window=window)
    if not verify(layout, task).strict_success:
        raise ToolError("the interpreted reference fails", field="task", value=task.id)
    metadata = {**task.metadata, "reference_edits": len(edits)}
    if task.circuit is not None:
        metadata["netlist"] = extract_netlist(task, layout).to_dict()
    return replace(task, metadata=metadata)


# -- training tasks ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Recipe:
    """Everything of a training task but its geometry."""

    level: str
    tier: str
    architecture: str
    demand: tuple[int | None, ...]
    materials: tuple[str, ...]
    n_holes: int
    layers: tuple[LayerSpec, ...]
    design_order: tuple[str, ...]
    values: RuleValues
    circuit: CircuitSpec | None
    tight: float | None
    width_um: tuple[float, float] | None


def generate_task(
    rng: np.random.Generator,
    *,
    level: str | None = None,
    tier: str | None = None,
    architecture: str | None = None,
    n_regions: int | None = None,
    demand: int | Sequence[int] | None = None,
    holes: int | bool | None = None,
) -> FETTask:
    """Return a training task that the reference constructor solves under both criteria.

    Contours come from the flake model and none is one of the suite's, so that no training task equals a suite task.
    Whatever is left open follows the suite: a manifest row (of the level, if given) lends its number of flakes,
    demands, materials, rule values and layers, or its circuit where neither flakes nor demand are given.

    Args:
        rng: The only source of randomness.
        level: ``"L1"`` to ``"L4"``; default: any, by its share of the suite.
        tier: ``"G1"`` to ``"G3"``; default: 30/40/30 %, G1 where the architecture is not top-gated (Appendix F).
        architecture: One of `ARCHITECTURES`.
        n_regions: Flakes, 1 to 10.
        demand: Transistors of each flake, 1 to 8, or one number per flake.
        holes: Holes of each flake, 0 to 2; True for 1.

    Raises:
        TaskError: If an option is out of range.
        ToolError: If the retry limits find no task (very large demands on small tiers, say, or a solution of more than
            `MAX_SHAPES` shapes).
    """
    options = _Options(level, tier, architecture, n_regions, demand, holes)
    options.check()
    for _ in range(MAX_RECIPES):
        recipe = _recipe(rng, options)
        for _ in range(SCENES_PER_RECIPE):
            task = _train_task(rng, recipe)
            if task is None:
                continue
            try:
                edits = build_reference(task)
            except ReferenceInfeasible:
                continue
            if len(edits) > MAX_SHAPES:  # no observation could hold its solution
                continue
            return replace(task, metadata={**task.metadata, "reference_edits": len(edits)})
    raise ToolError("no training task within the retry limits", field="options", value=options, allowed="milder ones")


class _Options(NamedTuple):
    """What was asked of a training task; see `generate_task`."""

    level: str | None
    tier: str | None
    architecture: str | None
    n_regions: int | None
    demand: int | Sequence[int] | None
    holes: int | bool | None

    def check(self) -> None:
        for name, value, allowed in (
            ("level", self.level, LEVELS),
            ("tier", self.tier, TIERS),
            ("architecture", self.architecture, ARCHITECTURES),
        ):
            if value is not None and value not in allowed:
                raise TaskError("unknown option value", field=name, value=value, allowed=allowed)
        demand, n_regions = self.demand, self.n_regions
        counts = [] if demand is None else [demand] if isinstance(demand, int) else list(demand)
        for name, number, low, high in (
            ("n_regions", n_regions, 1, MAX_REGIONS),
            ("holes", self.holes, 0, MAX_HOLES),
            *(("demand", n, 1, MAX_DEMAND) for n in counts),
        ):
            if number is not None and not (isinstance(number, int) and low <= number <= high):
                raise TaskError("option out of range", field=name, value=number, allowed=f"{low} .. {high}")
        listed = demand is not None and not isinstance(demand, int)
        if listed and (not counts or len(counts) > MAX_REGIONS or n_regions not in (None, len(counts))):
            allowed_n = n_regions or f"1 .. {MAX_REGIONS} numbers"
            raise TaskError("one demand per flake", field="demand", value=demand, allowed=allowed_n)


def _recipe(rng: np.random.Generator, options: _Options) -> _Recipe:
    level, tier, architecture, n_regions, demand, holes = options
    rows = [e for e in load_manifest().entries if level in (None, e.level)]
    # Rows that are what is asked lend more than their numbers: layers and circuits.
    alike = [e for e in rows if architecture in (None, e.architecture) and holes in (None, int(e.holes))]
    row = alike[int(rng.integers(len(alike)))] if alike else rows[int(rng.integers(len(rows)))]
    kind = architecture or row.architecture
    n_holes = int(row.holes) if holes is None else int(holes)
    free = n_regions is None and demand is None
    circuit = row.circuit_template if free and kind == row.architecture and not n_holes else None
    if isinstance(demand, int):
        counts: tuple[int | None, ...] = (demand,) * (n_regions or row.n_flakes)
    elif demand is not None:
        counts = tuple(demand)
    elif n_regions in (None, row.n_flakes):
        counts = row.demand
    else:
        counts = tuple(row.demand[int(k)] for k in rng.integers(0, row.n_flakes, n_regions))
    if demand is None and (None in counts) != (kind == "global_back_gated"):
        # Without a patterned gate nothing can be counted, and with one everything is.
        counts = tuple(None if kind == "global_back_gated" else 1 for _ in counts)
    materials = tuple(row.materials[k % row.n_flakes] for k in range(len(counts)))
    values = row.values if row.values.min_gate_width else RuleValues(0.8, 0.2, 0.2, None)
    via = row.has("via")
    layers, order = layer_stack(
        kind,
        list(dict.fromkeys(materials)),
        via=via,
        pad_cover=row.has("pad cover"),
        dielectric=kind == "dual_gated" and row.has("dielectric"),
    )
    if tier is None:
        tier = str(rng.choice(TIERS, p=(0.3, 0.4, 0.3))) if kind == "top_gated" else "G1"
    same_scene = len(counts) == row.n_flakes
    return _Recipe(
        row.level,
        tier,
        kind,
        counts,
        materials,
        n_holes,
        layers,
        order,
        values,
        circuit,
        row.tight_window if same_scene else None,
        row.scene_width_um if same_scene else None,
    )


def _train_task(rng: np.random.Generator, recipe: _Recipe) -> FETTask | None:
    contours = [_train_contour(rng, recipe, n or 1) for n in recipe.demand]
    pairs = recipe.circuit is not None and recipe.circuit.load == "complementary"
    placed = _placed(rng, contours, tight=recipe.tight, pairs=pairs, width_um=recipe.width_um)
    if placed is None:
        return None
    objective = objective_text(
        recipe.architecture, recipe.layers, recipe.demand, recipe.materials, recipe.circuit, holes=recipe.n_holes > 0
    )
    metadata = {
        "level": recipe.level,
        "tier": recipe.tier,
        "transistors": sum(n or 0 for n in recipe.demand) or None,
        "circuit": recipe.circuit is not None,
        "holes": recipe.n_holes > 0,
        "tight_window": recipe.tight,
        "contours": [_provenance(c) for c in contours],
    }
    regions = _regions(placed, recipe.materials)

    def build(task_id: str) -> FETTask:
        return build_task(
            task_id,
            objective,
            recipe.architecture,
            recipe.layers,
            recipe.design_order,
            regions,
            recipe.values,
            recipe.demand,
            recipe.circuit,
            metadata=metadata,
        )

    digest = hashlib.sha256(build("train/").to_json().encode()).hexdigest()[:12]
    return build(f"train/{digest}")


def _train_contour(rng: np.random.Generator, recipe: _Recipe, demand: int) -> Contour:
    area = room(demand, recipe.n_holes > 0)
    while True:
        contour = procedural_contour(rng, tier=recipe.tier, n_holes=recipe.n_holes, area_um2=area)
        if contour.id not in _suite_contours():
            return contour


@cache
def _suite_contours() -> frozenset[str]:
    return frozenset(c["id"] for i in task_ids() for c in load_task(i).metadata["contours"])


# -- shared --------------------------------------------------------------------------------------------------------


def _placed(rng: np.random.Generator, contours: Sequence[Contour], **options: Any) -> tuple[Placed, ...] | None:
    try:
        return place(rng, contours, **options)
    except ToolError:
        return None


def _regions(placed: Sequence[Placed], materials: Sequence[str]) -> tuple[Region, ...]:
    return tuple(
        Region(f"flake_{k + 1}", material, hull, holes)
        for k, ((hull, holes), material) in enumerate(zip(placed, materials))
    )


def _provenance(contour: Contour) -> dict[str, Any]:
    about: dict[str, Any] = {"id": contour.id, "source": contour.source, "thick": bool(contour.provenance["thick"])}
    if "image" in contour.provenance:
        about["image"] = contour.provenance["image"]
    return about
