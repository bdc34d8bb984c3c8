"""The `Contour` record and the shipped library of real contours.

Contours are flake outlines in their own frame: micrometres on the 0.001 um grid, bounding box at (0, 0), y up.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np
from scipy.spatial import ConvexHull

from edagym.errors import TaskError
from edagym.task_assets.fet.grid import IntRing, ring_to_dbu, ring_to_um
from edagym.task_assets.fet.task import Ring

SCHEMA_VERSION = 1
SOURCES = ("mask", "micrograph", "procedural")
TIERS = ("G1", "G2", "G3")
# Lower bounds of solidity (paper, Section 4): G1 >= 0.90 > G2 >= 0.75 > G3.
TIER_G1 = 0.90
TIER_G2 = 0.75


def ring_area(ring: Iterable[tuple[float, float]]) -> float:
    """Return the signed area of a ring (positive when counter-clockwise), in squared units of its points."""
    xy = np.asarray(tuple(ring), dtype=float)
    # Shifting to the first point keeps the products small, hence exact enough for rings far from the origin.
    x, y = (xy - xy[0]).T
    return 0.5 * float(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1)))


def tier_of(solidity: float) -> str:
    """Return the shape tier of a solidity: ``"G1"`` (>= 0.90), ``"G2"`` (>= 0.75) or ``"G3"``."""
    return "G1" if solidity >= TIER_G1 else "G2" if solidity >= TIER_G2 else "G3"


@dataclass(frozen=True, slots=True)
class Contour:
    """One flake outline.

    Attributes:
        id: ``"mask:GrapheneH/45ce9af7:3"``, ``"micrograph:WS2/056dc375:12"`` or ``"procedural:<geometry hash>"``.
        hull: Outer ring, um, counter-clockwise, not closed; its bounding box starts at (0, 0).
        holes: Interior rings, um, counter-clockwise, not closed.
        source: One of `SOURCES`.
        provenance: Where it comes from. Real contours: ``set``, ``file``, ``image`` (set and file: one image key),
            ``component``, ``method``, ``thick`` (the contrast says a thick crystal, not a thin flake), ``pixel_area``,
            ``origin_px`` (column and row of the bounding box's lower-left corner in the image), and for micrographs
            the measured contrasts. Procedural contours: ``method``, ``tier``.
    """

    id: str
    hull: Ring
    holes: tuple[Ring, ...]
    source: str
    provenance: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise TaskError(f"contour {self.id}", field="source", value=self.source, allowed=SOURCES)
        if min(len(r) for r in (self.hull, *self.holes)) < 3:
            raise TaskError(f"contour {self.id}: a ring needs three points", field="hull")

    @property
    def outer_area_um2(self) -> float:
        """Area inside the outer ring, um2, holes not subtracted."""
        return ring_area(self.hull)

    @property
    def area_um2(self) -> float:
        """Material area, um2: the outer ring's area less that of the holes."""
        return self.outer_area_um2 - sum(abs(ring_area(h)) for h in self.holes)

    @property
    def solidity(self) -> float:
        """Outer-contour area over convex-hull area, rounded to four decimals (paper, Section 4 and Appendix F)."""
        return round(self.outer_area_um2 / float(ConvexHull(np.asarray(self.hull)).volume), 4)

    @property
    def tier(self) -> str:
        """Shape tier by solidity: ``"G1"``, ``"G2"`` or ``"G3"``."""
        return tier_of(self.solidity)

    @property
    def n_vertices(self) -> int:
        """Vertices of the outer ring."""
        return len(self.hull)

    @property
    def size_um(self) -> tuple[float, float]:
        """Width and height of the bounding box, um."""
        return max(x for x, _ in self.hull), max(y for _, y in self.hull)

    def to_dict(self) -> dict[str, Any]:
        """Return the file form: rings as flat lists of integer nanometres ``[x0, y0, x1, y1, ...]``."""
        return {
            "id": self.id,
            "source": self.source,
            "hull": _flat(self.hull),
            "holes": [_flat(h) for h in self.holes],
            "provenance": dict(self.provenance),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Contour:
        """Build a contour from its file form.

        Raises:
            TaskError: If a field is missing or malformed.
        """
        try:
            return cls(
                id=str(data["id"]),
                hull=_rings(data["hull"]),
                holes=tuple(_rings(h) for h in data["holes"]),
                source=str(data["source"]),
                provenance=dict(data["provenance"]),
            )
        except (KeyError, TypeError, ValueError) as e:
            raise TaskError(f"malformed contour ({type(e).__name__}: {e})", field="contours") from e


def _flat(ring: Ring) -> list[int]:
    return [value for point in ring_to_dbu(ring) for value in point]


def _rings(flat: list[int]) -> Ring:
    if len(flat) % 2 or not all(isinstance(v, int) for v in flat):
        raise ValueError("a ring is a flat list of integer nanometres of even length")
    return ring_to_um(zip(flat[::2], flat[1::2]))


def normalized(hull: IntRing, holes: Iterable[IntRing]) -> tuple[Ring, tuple[Ring, ...]]:
    """Move rings of database units to the origin, orient them counter-clockwise, fix their start, return um.

    The start point is the lowest-left one, so that equal shapes have equal rings.
    """
    x0, y0 = min(x for x, _ in hull), min(y for _, y in hull)

    def canonical(ring: IntRing) -> Ring:
        points = [(x - x0, y - y0) for x, y in ring]
        if ring_area(points) < 0:
            points.reverse()
        k = points.index(min(points))
        return ring_to_um(points[k:] + points[:k])

    return canonical(hull), tuple(sorted(canonical(h) for h in holes))


def contours_to_json(contours: Iterable[Contour]) -> str:
    """Return the library file's text: one contour a line, so that equal libraries have equal bytes."""
    lines = (json.dumps(c.to_dict(), separators=(",", ":"), ensure_ascii=False) for c in contours)
    head = f'{{"schema_version":{SCHEMA_VERSION},"unit":"nm","y_axis":"up","contours":[\n'
    return head + ",\n".join(lines) + "\n]}\n"


def contours_from_json(text: str, source: str = "contours") -> tuple[Contour, ...]:
    """Parse a library file.

    Raises:
        TaskError: If the text is no library file of this schema.
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as e:
        raise TaskError(f"{source}: not JSON ({e})") from e
    if not isinstance(data, dict) or data.get("schema_version") != SCHEMA_VERSION:
        raise TaskError(f"{source}: unsupported schema", field="schema_version", allowed=SCHEMA_VERSION)
    return tuple(Contour.from_dict(entry) for entry in data["contours"])


@lru_cache(maxsize=1)
def load_library() -> tuple[Contour, ...]:
    """Return the shipped real contours (masks first, then micrographs), read once per process."""
    path = resources.files(__package__) / "data" / "contours.json"
    return contours_from_json(path.read_text(encoding="utf-8"), "contours.json")
