"""Sets of merged shapes and nets of conductors, for the strict checks. Lengths are database units (1 nm)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import klayout.db as kdb
import numpy as np

_ROWS = 256


class Nets:
    """Union-find over conductors, which are numbered as they are added.

    Args:
        count: Number of conductors to begin with.
    """

    def __init__(self, count: int = 0) -> None:
        self._parent: list[int] = list(range(count))

    def add(self) -> int:
        """Add a conductor and return its number."""
        self._parent.append(len(self._parent))
        return len(self._parent) - 1

    def find(self, i: int) -> int:
        """Return the net of conductor `i` (the number of one of its conductors)."""
        parent = self._parent
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    def join(self, i: int, j: int) -> None:
        """Join the nets of two conductors; the lower number names the net."""
        a, b = sorted((self.find(i), self.find(j)))
        self._parent[b] = a


@dataclass(slots=True)
class Shapes:
    """Merged shapes of one layer with their bounding boxes (dbu)."""

    polygons: list[kdb.Polygon]
    boxes: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        corners = [(b.left, b.bottom, b.right, b.top) for b in (p.bbox() for p in self.polygons)]
        self.boxes = np.array(corners, dtype=np.int64).reshape(-1, 4)

    @classmethod
    def of(cls, region: kdb.Region) -> Shapes:
        """Return the polygons of a merged region."""
        return cls(list(region.each()))

    def near(self, box: kdb.Box, margin: int = 0) -> list[int]:
        """Return the indices of shapes whose bounding box meets `box` grown by `margin`."""
        b = self.boxes
        hit = (
            (b[:, 0] <= box.right + margin)
            & (b[:, 2] >= box.left - margin)
            & (b[:, 1] <= box.top + margin)
            & (b[:, 3] >= box.bottom - margin)
        )
        return np.flatnonzero(hit).tolist()

    def region(self, indices: Sequence[int]) -> kdb.Region:
        """Return the given shapes as a region."""
        return kdb.Region([self.polygons[i] for i in indices])


def touching_pairs(first: Shapes, second: Shapes) -> list[tuple[int, int]]:
    """Return the index pairs of shapes that touch or overlap."""
    pairs: list[tuple[int, int]] = []
    b = second.boxes
    for start in range(0, len(first.polygons), _ROWS):  # in blocks, so that files with many shapes fit into memory
        a = first.boxes[start : start + _ROWS, None, :]
        hit = (a[..., 0] <= b[:, 2]) & (b[:, 0] <= a[..., 2]) & (a[..., 1] <= b[:, 3]) & (b[:, 1] <= a[..., 3])
        for i, j in np.argwhere(hit).tolist():
            if first.polygons[start + i].touches(second.polygons[j]):
                pairs.append((start + i, j))
    return pairs


def union(regions: Sequence[kdb.Region]) -> kdb.Region:
    """Return several regions merged into one."""
    if len(regions) == 1:
        return regions[0]
    total = kdb.Region()
    for region in regions:
        total.insert(region)
    return total.merged()


def surrounds(ring: kdb.Polygon, inner: kdb.Polygon) -> bool:
    """Whether `inner`, which does not overlap `ring`, lies in one of its holes."""
    point = next(inner.each_point_hull())
    return any(kdb.Polygon(list(ring.each_point_hole(i))).inside(point) for i in range(ring.holes()))
