"""`ContourSpace`: the fixed flakes of a task, with their demand, as padded arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict

from edagym.errors import TaskError
from edagym.spaces.rings import MAX_COORD_UM, in_range, parse_ring, read_ring, ring_text, write_ring
from edagym.task_assets.fet.grid import IntRing, ring_to_dbu, ring_to_um
from edagym.task_assets.fet.task import Region

MAX_REGIONS = 20
MAX_RING_POINTS = 128
MAX_HOLES = 40
MAX_HOLE_POINTS = 160
MAX_LAYERS = 12
MAX_DEMAND = 1000


class ContourSpace(Dict):
    """Flakes as arrays; rows beyond the task's regions and holes are zero (indices -1).

    Keys:
        region_points: (20, 128, 2) float32, um: outer rings.
        region_n_points: (20,) int16: points of each ring; 0 for unused rows.
        region_material: (20,) int16: row of the material in the layer table; -1 unused.
        region_demand: (20,) int16: least transistors that the objective asks for; -1 none.
        region_mask: (20,) int8: 1 where a region exists.
        hole_points: (40, 160, 2) float32, um: interior rings of all regions.
        hole_n_points: (40,) int16: points of each hole ring; 0 for unused rows.
        hole_region: (40,) int16: region row of each hole; -1 unused.

    Args:
        seed: Seed of the space's own sampler.
    """

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(
            {
                "region_points": Box(-MAX_COORD_UM, MAX_COORD_UM, (MAX_REGIONS, MAX_RING_POINTS, 2), np.float32),
                "region_n_points": Box(0, MAX_RING_POINTS, (MAX_REGIONS,), np.int16),
                "region_material": Box(-1, MAX_LAYERS - 1, (MAX_REGIONS,), np.int16),
                "region_demand": Box(-1, MAX_DEMAND, (MAX_REGIONS,), np.int16),
                "region_mask": Box(0, 1, (MAX_REGIONS,), np.int8),
                "hole_points": Box(-MAX_COORD_UM, MAX_COORD_UM, (MAX_HOLES, MAX_HOLE_POINTS, 2), np.float32),
                "hole_n_points": Box(0, MAX_HOLE_POINTS, (MAX_HOLES,), np.int16),
                "hole_region": Box(-1, MAX_REGIONS - 1, (MAX_HOLES,), np.int16),
            },
            seed=seed,
        )

    def from_regions(
        self, regions: Sequence[Region], layers: Sequence[str], demand: Sequence[int | None] = ()
    ) -> dict[str, Any]:
        """Return the arrays of some flakes.

        Args:
            regions: The flakes (um).
            layers: Names of the layer table, in order.
            demand: Transistors asked for per region; missing entries count as None.

        Raises:
            TaskError: If a published maximum of this space is exceeded.
        """
        out: dict[str, Any] = {
            "region_points": np.zeros((MAX_REGIONS, MAX_RING_POINTS, 2), np.float32),
            "region_n_points": np.zeros(MAX_REGIONS, np.int16),
            "region_material": np.full(MAX_REGIONS, -1, np.int16),
            "region_demand": np.full(MAX_REGIONS, -1, np.int16),
            "region_mask": np.zeros(MAX_REGIONS, np.int8),
            "hole_points": np.zeros((MAX_HOLES, MAX_HOLE_POINTS, 2), np.float32),
            "hole_n_points": np.zeros(MAX_HOLES, np.int16),
            "hole_region": np.full(MAX_HOLES, -1, np.int16),
        }
        _limit("regions", len(regions), MAX_REGIONS)
        _limit("layers", len(layers), MAX_LAYERS)
        index = {name: i for i, name in enumerate(layers)}
        n_holes = 0
        for i, region in enumerate(regions):
            _write("region", out, i, region.hull, MAX_RING_POINTS, region.name)
            out["region_material"][i] = index[region.material]
            out["region_mask"][i] = 1
            if i < len(demand) and (asked := demand[i]) is not None:
                _limit(f"demand of {region.name}", asked, MAX_DEMAND)
                out["region_demand"][i] = asked
            for hole in region.holes:
                _limit("holes", n_holes + 1, MAX_HOLES)
                _write("hole", out, n_holes, hole, MAX_HOLE_POINTS, region.name)
                out["hole_region"][n_holes] = i
                n_holes += 1
        return out

    def to_regions(
        self, sample: Mapping[str, Any], layers: Sequence[str]
    ) -> tuple[tuple[Region, ...], tuple[int | None, ...]]:
        """Return flakes (um, on the 1 nm grid, named ``flake_1``, ...) and demand per flake.

        Args:
            sample: Arrays of this space.
            layers: Names of the layer table, in order.
        """
        regions: list[Region] = []
        demand: list[int | None] = []
        for i in range(int(np.sum(sample["region_mask"]))):
            holes = tuple(
                ring_to_um(read_ring(sample["hole_points"][j], int(sample["hole_n_points"][j])))
                for j in np.flatnonzero(np.asarray(sample["hole_region"]) == i)
            )
            hull = ring_to_um(read_ring(sample["region_points"][i], int(sample["region_n_points"][i])))
            regions.append(Region(f"flake_{i + 1}", layers[int(sample["region_material"][i])], hull, holes))
            asked = int(sample["region_demand"][i])
            demand.append(None if asked < 0 else asked)
        return tuple(regions), tuple(demand)

    def to_json(self, sample: Mapping[str, Any], layers: Sequence[str]) -> str:
        """Return one sample as a JSON list of ``{name, material, demand, hull, holes}``, um."""
        regions, demand = self.to_regions(sample, layers)
        return json.dumps(
            [
                {"name": r.name, "material": r.material, "demand": d, "hull": r.hull, "holes": r.holes}
                for r, d in zip(regions, demand)
            ]
        )

    def from_json(self, text: str, layers: Sequence[str]) -> dict[str, Any]:
        """Parse `to_json`; raises `TaskError`."""
        try:
            rows = json.loads(text)
            regions = [
                Region(
                    r["name"],
                    r["material"],
                    tuple((x, y) for x, y in r["hull"]),
                    tuple(tuple((x, y) for x, y in h) for h in r["holes"]),
                )
                for r in rows
            ]
            return self.from_regions(regions, layers, [r["demand"] for r in rows])
        except (LookupError, TypeError, ValueError, OverflowError, RecursionError) as e:
            raise TaskError(f"contours: malformed JSON ({type(e).__name__}: {e})") from e

    def to_text(self, sample: Mapping[str, Any], layers: Sequence[str]) -> str:
        """Return one sample as text, one line per ring: ``flake_1 graphene demand=2: x,y ...``, ``hole: x,y ...``."""
        lines = []
        for region, asked in zip(*self.to_regions(sample, layers)):
            wanted = "" if asked is None else f" demand={asked}"
            lines.append(f"{region.name} {region.material}{wanted}: {ring_text(region.hull)}")
            lines.extend(f"  hole: {ring_text(hole)}" for hole in region.holes)
        return "\n".join(lines)

    def from_text(self, text: str, layers: Sequence[str]) -> dict[str, Any]:
        """Parse `to_text`; raises `TaskError`."""
        regions: list[Region] = []
        demand: list[int | None] = []
        for line in text.splitlines():
            head, _, body = line.partition(":")
            try:
                ring = parse_ring(body)
                if head.strip() == "hole":
                    last = regions.pop()
                    regions.append(Region(last.name, last.material, last.hull, (*last.holes, ring)))
                    continue
                name, material, *rest = head.split()
                regions.append(Region(name, material, ring))
                demand.append(int(rest[0].removeprefix("demand=")) if rest else None)
            except (ValueError, IndexError) as e:
                raise TaskError(f"contours: malformed line ({e})", field="text", value=line) from e
        try:
            return self.from_regions(regions, layers, demand)
        except KeyError as e:
            raise TaskError("contours: unknown material", field="material", value=str(e), allowed=list(layers)) from e


def _write(
    prefix: str, out: dict[str, Any], row: int, ring: Sequence[tuple[float, float]], most: int, name: str
) -> None:
    _limit(f"points of a {prefix} ring of {name}", len(ring), most, least=1)
    points: IntRing = ring_to_dbu(ring)
    if not in_range(points):
        raise TaskError(f"{name} does not fit the observation", field=name, allowed=f"|x|, |y| <= {MAX_COORD_UM} um")
    write_ring(out[f"{prefix}_points"][row], points)
    out[f"{prefix}_n_points"][row] = len(points)


def _limit(name: str, value: int, most: int, least: int = 0) -> None:
    if not least <= value <= most:
        raise TaskError("task does not fit the observation space", field=name, value=value, allowed=f"{least}..{most}")
