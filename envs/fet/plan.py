"""Which contour goes where in the suite: real ones first, the flake model for the rest, published medians kept.

Small tasks come first, so that as many tasks as possible hold real contours only. The plan reads neither a constructor
nor a verifier; a contour that fails in its scene is replaced later by a flake-model draw in the same bands, which
leaves the suite's medians and its number of distinct contours as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from edagym.errors import ToolError
from edagym.task_assets.fet.contours import Contour, procedural_contour
from edagym.task_assets.fet.manifest import ManifestEntry

N_DISTINCT = 347
"""Distinct contours in the published suite (Section 4)."""

MEDIAN_AREA_UM2 = 150.6
MEDIAN_VERTICES = 13
MEDIAN_SOLIDITY = 0.86
AREA_UM2 = (26.6, 796.6)
SMALLEST_WITH_HOLE_UM2 = 60.0

# Room that a demand asks for, um2; extent, not area, sets capacity, so these are mild.
_AREA_FOR_DEMAND = {4: 100.0, 5: 200.0, 6: 300.0}
_MAX_BAND_DRAWS = 400

Band = tuple[float, float]
Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Slot:
    """One flake of a suite task.

    Attributes:
        tier: Shape tier.
        n_holes: Interior holes.
        demand: Transistors asked of it (0 without a number).
        contour: The real contour that it gets; None: one of the flake model, in the bands below.
        locked: Whether `contour` may not be replaced, because its repeated use is counted.
        area_um2: Band of the outer area.
        solidity: Band of the solidity.
        vertices: Band of the number of outer vertices.
    """

    tier: str
    n_holes: int
    demand: int
    contour: Contour | None = None
    locked: bool = False
    area_um2: Band = AREA_UM2
    solidity: Band = (0.31, 1.0)
    vertices: Band = (4, 51)

    def draw(self, rng: np.random.Generator) -> Contour:
        """Draw a flake-model contour in the slot's bands; raises `ToolError` if none is found."""
        for _ in range(_MAX_BAND_DRAWS):
            contour = procedural_contour(rng, tier=self.tier, n_holes=self.n_holes, area_um2=self.area_um2)
            if (
                self.solidity[0] <= contour.solidity <= self.solidity[1]
                and self.vertices[0] <= contour.n_vertices <= self.vertices[1]
            ):
                return contour
        raise ToolError("no flake in these bands", field="slot", value=self)


def plan_suite(
    entries: Sequence[ManifestEntry], library: Sequence[Contour], rng: np.random.Generator
) -> dict[str, tuple[Slot, ...]]:
    """Return the slots of every task.

    Args:
        entries: The manifest's rows.
        library: Real contours.
        rng: Source of randomness.
    """
    slots = {
        e.id: [Slot(e.tier, int(e.holes), n or 0, area_um2=room(n or 0, e.holes)) for n in e.demand] for e in entries
    }
    order = sorted(entries, key=lambda e: (e.n_flakes, max(n or 0 for n in e.demand)))
    _deal_real(slots, [e.id for e in order], library, rng)
    _repeat_real(slots, [e.id for e in order])
    _set_bands(slots, rng)
    return {task_id: tuple(s) for task_id, s in slots.items()}


def room(demand: int, holes: bool) -> Band:
    """Return the band of areas asked for a demand, um2."""
    low = _AREA_FOR_DEMAND.get(min(demand, 6), AREA_UM2[0])
    return (max(low, SMALLEST_WITH_HOLE_UM2) if holes else low), AREA_UM2[1]


def _fits(contour: Contour, slot: Slot) -> bool:
    return (
        contour.tier == slot.tier
        and len(contour.holes) == slot.n_holes
        and slot.area_um2[0] <= contour.outer_area_um2 <= slot.area_um2[1]
        and contour.n_vertices <= slot.vertices[1]
    )


def _deal_real(
    slots: dict[str, list[Slot]], order: Sequence[str], library: Sequence[Contour], rng: np.random.Generator
) -> None:
    """Give every real contour to one slot: whole tasks while they last, single slots after that."""
    queue = [library[i] for i in rng.permutation(len(library))]
    for whole in (True, False):
        for task_id in order:
            task = slots[task_id]
            if task[0].contour is not None:
                continue
            chosen: dict[int, Contour] = {}
            for k in sorted(range(len(task)), key=lambda k: -task[k].demand):
                contour = next((c for c in queue if c not in chosen.values() and _fits(c, task[k])), None)
                if contour is not None:
                    chosen[k] = contour
            if whole and len(chosen) < len(task):
                continue
            for k, contour in chosen.items():
                task[k] = replace(task[k], contour=contour)
                queue.remove(contour)


def _repeat_real(slots: dict[str, list[Slot]], order: Sequence[str]) -> None:
    """Use some real contours twice, in different tasks, as often as the published suite repeats contours.

    Hole probes differ in little but their contour, so theirs are not repeated.
    """
    n_repeats = sum(len(task) for task in slots.values()) - N_DISTINCT
    modest = [(i, k, s) for i in order for k, s in enumerate(slots[i]) if s.demand <= 2 and not s.n_holes]
    free = [(i, k) for i, k, s in modest if s.contour is None]
    used = [(i, k) for i, k, s in modest if s.contour is not None]
    for task_id, k in free:
        if not n_repeats:
            break
        task = slots[task_id]
        present = {s.contour.id for s in task if s.contour is not None}
        for j, (donor_id, donor_k) in enumerate(used):
            donor = slots[donor_id][donor_k]
            if donor.contour is not None and donor.contour.id not in present and _fits(donor.contour, task[k]):
                task[k] = replace(task[k], contour=donor.contour, locked=True)
                slots[donor_id][donor_k] = replace(donor, locked=True)
                del used[j]
                n_repeats -= 1
                break
    if n_repeats:
        raise ToolError("too few real contours to repeat", field="library", value=len(used), allowed="more contours")


def _set_bands(slots: dict[str, list[Slot]], rng: np.random.Generator) -> None:
    """Give every slot bands, so that flake-model draws put the medians where the published ones are.

    Slots of real contours get the bands of their contour, for the case that it is replaced.
    """
    every = [(i, k) for i, task in slots.items() for k in range(len(task))]
    half = len(every) // 2
    # Small flakes go where little is asked, but not all of them.
    rank = {
        (i, k): slots[i][k].demand + 2.0 * float(rng.random()) + 4.0 * (slots[i][k].area_um2[0] > 90.0)
        for i, k in every
    }
    for (i, k), low in _split(slots, "outer_area_um2", MEDIAN_AREA_UM2, half, rank).items():
        slot = slots[i][k]
        least, most = slot.area_um2
        band = (least, MEDIAN_AREA_UM2 - 0.2) if low else (max(least, MEDIAN_AREA_UM2 + 0.2), most)
        slots[i][k] = replace(slot, area_um2=band)

    # All G3 flakes and no G1 flake lie below the median solidity: G2 decides.
    g3 = sum(slots[i][k].tier == "G3" for i, k in every)
    rank = {(i, k): float(rng.random()) for i, k in every if slots[i][k].tier == "G2"}
    for (i, k), low in _split(slots, "solidity", MEDIAN_SOLIDITY, half - g3, rank).items():
        slots[i][k] = replace(slots[i][k], solidity=(0.75, MEDIAN_SOLIDITY) if low else (MEDIAN_SOLIDITY, 0.8999))

    # Concave flakes have more corners.
    rank = {(i, k): int(slots[i][k].tier[1]) + 2.5 * float(rng.random()) for i, k in every}
    real = Counter(s.contour.n_vertices for task in slots.values() for s in task if s.contour is not None)
    n_low = half - real[MEDIAN_VERTICES] // 2
    for (i, k), low in _split(slots, "n_vertices", MEDIAN_VERTICES, n_low, rank).items():
        slots[i][k] = replace(slots[i][k], vertices=(4, MEDIAN_VERTICES) if low else (MEDIAN_VERTICES, 51))


def _split(
    slots: dict[str, list[Slot]], value: str, limit: float, n_low: int, rank: dict[Key, float]
) -> dict[Key, bool]:
    """Say for every slot of `rank` whether its value belongs below the limit, `n_low` slots in all.

    Real contours are where they are; the flake-model slots of lowest rank make up the number.
    """
    low: dict[Key, bool] = {}
    open_slots: list[Key] = []
    for i, k in rank:
        contour = slots[i][k].contour
        if contour is None:
            open_slots.append((i, k))
        else:
            low[i, k] = getattr(contour, value) < limit
    n_open = n_low - sum(low.values())
    low.update({key: n < n_open for n, key in enumerate(sorted(open_slots, key=lambda key: rank[key]))})
    return low
