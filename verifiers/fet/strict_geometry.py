"""From shapes to conductors: pieces, channels and nets of a layout, as the strict checks need them.

The paper's contract asks where gates cross flakes; this module asks what is connected to what. All lengths are in
database units (1 nm). Two readings of "connected" are kept apart, so that neither a short nor an open can hide in a
hairline:

* *touching*: any conduction at all counts (for shorts). A net is a set of conductors joined by touching.
* *solid*: only conduction of at least `SOLID` width, landings of at least `LANDING`, count (for opens).

Definitions, per region (flake):

* The *gates* are those of all gate layers together, slits under 20 nm closed as in the paper's count.
* A *piece* is what removing the gates leaves of the region. Pieces that would join around a gate's end if the region
  were `OVERHANG` larger all round are one piece: a gate that does not overhang the edge by that much does not cut.
* A *crossing* is a connected component of (gates AND region). It borders the pieces that touch it, except those that
  it surrounds: a gate as a closed ring inside the flake overhangs nothing.
* A contact *touches* a piece when they overlap by more than rounding, and *lands* on it when a square of side
  `LANDING` fits into the overlap. On edge-contacted devices, see `_edge_landings`. A contact surrounded by one gate
  shape lands nowhere unless the task has vias to lift it out: no lead can reach it.

Pieces, contacts, vias and pad covers conduct; vias join contacts to pad covers, and nothing else joins those two.
Where the substrate is the only gate (no gate layer) the region is all channel and does not conduct.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import klayout.db as kdb
import numpy as np

from edagym.task_assets.fet.task import FETTask
from edagym.verifiers.fet.layout import FETLayout, region_polygon
from edagym.verifiers.fet.transistors import close_slits

# Booleans snap to the 1 nm grid: overlaps and gaps thinner than this are rounding, not geometry.
SNAP = 2
# Least length by which a gate must pass the edge of the flake. Lithographic overlay of such devices is of that order;
# the paper states none. Exactly OVERHANG passes in every orientation, hence the allowance of SNAP below.
OVERHANG = 100
# Side of the square of metal on flake that makes a source or drain contact.
LANDING = 100
# Least width of metal that is trusted to carry a required connection.
SOLID = 50
# Edge contacts: least length of flake edge under the contact, and farthest reach of the contact into the flake.
EDGE_LENGTH = 100
EDGE_DEPTH = 500
# The two gates of a dual-gated device must face each other over at least this length of channel.
FACING = 100


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
    a, b = first.boxes[:, None, :], second.boxes[None, :, :]
    hit = (a[..., 0] <= b[..., 2]) & (b[..., 0] <= a[..., 2]) & (a[..., 1] <= b[..., 3]) & (b[..., 1] <= a[..., 3])
    return [(i, j) for i, j in np.argwhere(hit).tolist() if first.polygons[i].touches(second.polygons[j])]


@dataclass(slots=True)
class Piece:
    """A part of a region that no gate covers.

    Attributes:
        region: Index of the region.
        net: Conductor number in `Extraction.nets`.
        touched: Whether a contact touches it.
        landed: Contacts that land on it.
        facing: Number of the part of the region that it lies in when only the area under the gates of all layers is
            removed; equal for all pieces unless the device is dual-gated.
    """

    region: int
    net: int
    touched: bool = False
    landed: set[int] = field(default_factory=set)
    facing: int = -1


@dataclass(slots=True)
class Crossing:
    """A connected component of (gates AND region).

    Attributes:
        region: Index of the region.
        polygon: Its outline (dbu).
        gates: For each gate layer, the indices of the gate shapes that it lies under.
        pieces: The pieces that it borders.
        sides: Number of parts of the region that it borders when no overhang is asked for.
        stray: Layer of a contact or via that overlaps it, or "".
        uncovered: Whether a gate that needs a dielectric below it is not fully covered by it.
    """

    region: int
    polygon: kdb.Polygon
    gates: tuple[tuple[int, ...], ...]
    pieces: list[Piece]
    sides: int
    stray: str = ""
    uncovered: bool = False


@dataclass(slots=True)
class Landing:
    """A place where a contact lands on a piece; `core` is the overlap shrunk by half of `LANDING` (None: by edge)."""

    piece: Piece
    contact: int
    core: kdb.Polygon | None


@dataclass(slots=True)
class Extraction:
    """Conductors of a layout.

    Attributes:
        task: The task.
        contacts, vias, pads: Merged shapes.
        gates: Merged shapes of each gate layer, slits closed.
        pieces: The pieces of each region.
        crossings: The crossings of each region.
        landings: All landings.
        nets: Nets for shorts ("touching"). Conductors: contacts, vias, pad covers, then pieces.
    """

    task: FETTask
    contacts: Shapes
    vias: Shapes
    pads: Shapes
    gates: list[Shapes]
    pieces: list[list[Piece]]
    crossings: list[list[Crossing]]
    landings: list[Landing]
    nets: Nets

    def net(self, piece: Piece) -> int:
        """Return the net of a piece."""
        return self.nets.find(piece.net)

    def via_nets(self) -> set[int]:
        """Return the nets that hold a via (and a pad cover, where the task has them)."""
        first_via = len(self.contacts.polygons)
        first_pad = first_via + len(self.vias.polygons)
        found = {self.nets.find(i) for i in range(first_via, first_pad)}
        if self.task.layers_of("pad cover"):
            found &= {self.nets.find(first_pad + i) for i in range(len(self.pads.polygons))}
        return found


def extract(task: FETTask, layout: FETLayout) -> Extraction:
    """Return the conductors of a layout.

    Args:
        task: The task; its flakes are taken from here, not from the layout.
        layout: The layout.
    """

    def role(name: str) -> kdb.Region:
        regions = [layout.region(spec.name) for spec in task.layers_of(name)]
        return regions[0] if len(regions) == 1 else _union(regions)

    contacts, vias, pads = (Shapes.of(role(name)) for name in ("contact", "via", "pad cover"))
    gates = [Shapes.of(close_slits(layout.region(spec.name))) for spec in task.layers_of("gate electrode")]
    nets = Nets(len(contacts.polygons) + len(vias.polygons) + len(pads.polygons))
    first_via = len(contacts.polygons)
    first_pad = first_via + len(vias.polygons)
    for via, contact in touching_pairs(vias, contacts):
        nets.join(first_via + via, contact)
    for via, pad in touching_pairs(vias, pads):
        nets.join(first_via + via, first_pad + pad)
    result = Extraction(task, contacts, vias, pads, gates, [], [], [], nets)
    dielectric = role("dielectric") if task.layers_of("dielectric") else None
    for index, region in enumerate(task.regions):
        _extract_region(result, index, kdb.Region(region_polygon(region)), dielectric)
    return result


def _union(regions: Sequence[kdb.Region]) -> kdb.Region:
    """Return several regions merged into one."""
    total = kdb.Region()
    for region in regions:
        total.insert(region)
    return total.merged()


def _extract_region(result: Extraction, index: int, region: kdb.Region, dielectric: kdb.Region | None) -> None:
    """Add the pieces, crossings and landings of one region to `result`."""
    box = region.bbox()
    near = [shapes.near(box, OVERHANG) for shapes in result.gates]
    layers = [shapes.region(i) for shapes, i in zip(result.gates, near)]
    gates = layers[0] if len(layers) == 1 else _union(layers)
    contacts = result.contacts.near(box, SNAP)
    rest = region - gates
    # Shrunk by the rounding, so that plain touching tests of polygons are tests of real overlap.
    parts = list(rest.sized(-SNAP).each())
    pieces, owner = _pieces(result, index, region, gates, parts)
    if len(layers) > 1:
        _set_facing(pieces, owner, parts, region, layers)
    _land(result, region, rest, parts, owner, contacts)
    result.pieces.append(pieces)
    result.crossings.append(
        [_crossing(result, index, polygon, near, parts, owner, contacts) for polygon in (region & gates).each()]
        if not gates.is_empty()
        else []
    )
    if dielectric is not None:
        for crossing in result.crossings[-1]:
            crossing.uncovered = _uncovered(result, crossing, dielectric)


def _pieces(
    result: Extraction, index: int, region: kdb.Region, gates: kdb.Region, parts: Sequence[kdb.Polygon]
) -> tuple[list[Piece], list[Piece]]:
    """Return the pieces of a region, and for every part of (region minus gates) the piece that it belongs to."""
    if len(parts) < 2:
        pieces = [Piece(index, result.nets.add()) for _ in parts]
        return pieces, pieces
    grown = list((region.sized(OVERHANG - SNAP) - gates).each())
    home = [next((i for i, g in enumerate(grown) if g.touches(part)), -1) for part in parts]
    by_home = {i: Piece(index, result.nets.add()) for i in dict.fromkeys(home)}
    return list(by_home.values()), [by_home[i] for i in home]


def _set_facing(
    pieces: list[Piece],
    owner: list[Piece],
    parts: Sequence[kdb.Polygon],
    region: kdb.Region,
    layers: list[kdb.Region],
) -> None:
    """Number the parts of the region that are left when only the area under gates of all layers is removed."""
    common = layers[0]
    for other in layers[1:]:
        common = common & other
    common = common.sized(-FACING // 2 + SNAP).sized(FACING // 2 - SNAP)
    for number, remainder in enumerate((region.sized(OVERHANG - SNAP) - common).each()):
        for piece, part in zip(owner, parts):
            if piece.facing < 0 and remainder.touches(part):
                piece.facing = number


def _land(
    result: Extraction,
    region: kdb.Region,
    rest: kdb.Region,
    parts: Sequence[kdb.Polygon],
    owner: list[Piece],
    contacts: list[int],
) -> None:
    """Join contacts to the pieces that they touch, and record where they land."""
    if not contacts:
        return
    trapped = _trapped(result, contacts)
    if result.task.architecture == "edge_contacted":
        _edge_landings(result, region, parts, owner, contacts, trapped)
        return
    shapes = result.contacts
    for i in contacts:
        for part, piece in zip(parts, owner):
            if shapes.polygons[i].touches(part):
                _join(result, i, piece)
    free = [i for i in contacts if i not in trapped]
    for core in (shapes.region(free) & rest).sized(-LANDING // 2 + SNAP).each():
        contact = next(i for i in free if shapes.polygons[i].touches(core))
        for part, piece in zip(parts, owner):
            if part.touches(core):
                piece.landed.add(contact)
                result.landings.append(Landing(piece, contact, core))
                break


def _join(result: Extraction, contact: int, piece: Piece) -> None:
    piece.touched = True
    if result.gates:
        result.nets.join(contact, piece.net)


def _trapped(result: Extraction, contacts: list[int]) -> set[int]:
    """Return the contacts that a gate shape surrounds, in tasks without vias."""
    if result.task.layers_of("via"):
        return set()
    return {
        i
        for shapes in result.gates
        for polygon in shapes.polygons
        if polygon.holes()
        for i in contacts
        if _surrounds(polygon, result.contacts.polygons[i])
    }


def _surrounds(ring: kdb.Polygon, inner: kdb.Polygon) -> bool:
    """Whether `inner`, which does not overlap `ring`, lies in one of its holes."""
    point = next(inner.each_point_hull())
    return any(kdb.Polygon(list(ring.each_point_hole(i))).inside(point) for i in range(ring.holes()))


def _edge_landings(
    result: Extraction,
    region: kdb.Region,
    parts: Sequence[kdb.Polygon],
    owner: list[Piece],
    contacts: list[int],
    trapped: set[int],
) -> None:
    """Join and land contacts of an edge-contacted device.

    A contact lands when at least `EDGE_LENGTH` of the flake's edge runs under or along it, it comes from outside (at
    least `SOLID` of metal beyond the edge) and it reaches less than `EDGE_DEPTH` into the flake.
    """
    deep = region.sized(-EDGE_DEPTH)
    for i in contacts:
        shape = kdb.Region(result.contacts.polygons[i])
        reach = shape.sized(2 * SNAP)
        from_outside = not (shape - region).sized(-SOLID // 2 + SNAP).is_empty()
        shallow = (shape & deep).sized(-SNAP).is_empty()
        for part, piece in zip(parts, owner):
            if not all(polygon.touches(part) for polygon in reach.each()):
                continue
            _join(result, i, piece)
            along = region.edges().inside_part(reach & kdb.Region(part.sized(3 * SNAP)))
            if i not in trapped and from_outside and shallow and along.length() >= EDGE_LENGTH - SNAP:
                piece.landed.add(i)
                result.landings.append(Landing(piece, i, None))


def _crossing(
    result: Extraction,
    index: int,
    polygon: kdb.Polygon,
    near: list[list[int]],
    parts: Sequence[kdb.Polygon],
    owner: list[Piece],
    contacts: list[int],
) -> Crossing:
    """Return one crossing with the gates over it, the pieces beside it and what strays across it."""
    reach = polygon.sized(3 * SNAP)
    beside = [i for i, part in enumerate(parts) if reach.touches(part)]
    if polygon.holes():
        beside = [i for i in beside if not _surrounds(polygon, parts[i])]
    gates = tuple(
        tuple(i for i in indices if shapes.polygons[i].touches(polygon)) for shapes, indices in zip(result.gates, near)
    )
    stray = ""
    for role, shapes, indices in (
        ("contact", result.contacts, contacts),
        ("via", result.vias, result.vias.near(polygon.bbox())),
    ):
        hits = [shapes.polygons[i] for i in indices if shapes.polygons[i].touches(polygon)]
        if hits and not (kdb.Region(hits) & kdb.Region(polygon)).sized(-SNAP).is_empty():
            stray = role
    pieces = list({owner[i].net: owner[i] for i in beside}.values())
    return Crossing(index, polygon, gates, pieces, len(beside), stray)


def _uncovered(result: Extraction, crossing: Crossing, dielectric: kdb.Region) -> bool:
    """Whether a gate drawn above the flake lies on it without dielectric between."""
    order = result.task.design_order
    flakes = max(i for i, name in enumerate(order) if name.startswith("@"))
    channel = kdb.Region(crossing.polygon)
    for spec, shapes, indices in zip(result.task.layers_of("gate electrode"), result.gates, crossing.gates):
        above = spec.name in order and order.index(spec.name) > flakes
        if above and not ((shapes.region(indices) & channel) - dielectric).sized(-SNAP).is_empty():
            return True
    return False


def solid_nets(extraction: Extraction) -> tuple[Nets, dict[int, int], set[int]]:
    """Return the nets that are joined by solid conduction only (for opens).

    Returns:
        The nets; the conductor number in them of each piece, by its `Piece.net`; and the nets that hold a usable
        via: one of at least `SOLID` width on a contact, and on a pad cover where the task has them.
    """

    def opened(shapes: Shapes) -> Shapes:
        d = SOLID // 2 - SNAP
        return Shapes.of(shapes.region(range(len(shapes.polygons))).sized(-d).sized(d))

    contacts, vias, pads = (opened(s) for s in (extraction.contacts, extraction.vias, extraction.pads))
    first_via = len(contacts.polygons)
    first_pad = first_via + len(vias.polygons)
    nets = Nets(first_pad + len(pads.polygons))
    number = {piece.net: nets.add() for pieces in extraction.pieces for piece in pieces}
    on_contact, on_pad = touching_pairs(vias, contacts), touching_pairs(vias, pads)
    for via, contact in on_contact:
        nets.join(first_via + via, contact)
    for via, pad in on_pad:
        nets.join(first_via + via, first_pad + pad)
    for landing in extraction.landings:
        whole = extraction.contacts.polygons[landing.contact]
        target = whole if landing.core is None else landing.core
        for i in contacts.near(target.bbox()):
            if contacts.polygons[i].touches(target):
                nets.join(i, number[landing.piece.net])
    usable = {via for via, _ in on_contact}
    if extraction.task.layers_of("pad cover"):
        usable &= {via for via, _ in on_pad}
    return nets, number, {nets.find(first_via + via) for via in usable}
