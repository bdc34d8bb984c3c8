"""Channels and transistors on one flake: where a gate crosses it with contacts on both sides.

The paper counts a transistor "where a gate shape crosses a flake and contact shapes touch the flake on both sides of
the crossing" (Section 3). Taken literally on the 1 nm grid that sentence fails on rotated shapes, so the rule here is
explicit; every length is in database units (1 nm):

* A *channel* is a connected component of (gates AND region) with at least two *arcs*; gates of one layer are merged
  and slits under `SLIT` are closed first.
* An *arc* is a maximal open chain, at least `MIN_ARC` long, of the component's boundary lying more than `INSIDE`
  inside the region. Chains less than `MIN_CUT` apart are one: a gate's side that brushes a notch of the flake stays
  one side, and a gate's tip that pokes out by a hair does not cross. Closed loops are not arcs.
* The *sides* of an arc are the pieces that it borders of region minus (this channel grown by `GROWTH`); pieces that
  vanish when shrunk by `OPENING` do not count. Other gates do not cut pieces.
* A contact *lands* on a piece where (contact minus gates) AND piece survives an opening by `OPENING`, or, on
  edge-contacted devices, where both share at least `EDGE_LENGTH` of boundary within `EDGE_REACH`.
* A channel is one *transistor* when two of its arcs have landed sides that are different pieces, or, where both
  border the same piece, two separate landings, one nearer to each arc. Two arcs can border one piece only around a
  hole: then no ring of the flake's outline is met both ways along the channel's outline from one arc to the other.

One wrap-around contact may serve both sides, and gates in a row between two contacts all count: the paper's contract
has no rule against either. `edagym.verifiers.fet.strict` has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import klayout.db as kdb
import shapely

INSIDE = 2
MIN_ARC = 20
MIN_CUT = 20
SLIT = 20
GROWTH = 3
OPENING = 10
EDGE_REACH = 2
EDGE_LENGTH = 100

# An arc's side starts GROWTH beyond it; sizing rounds to the grid and cuts corners, hence the margin.
_BORDER_REACH = GROWTH + 4

Point = tuple[int, int]


@dataclass(slots=True)
class Arc:
    """One side of a channel: an open chain of its boundary inside the region.

    Attributes:
        points: Vertices in order (dbu); the channel lies to the right.
        sides: Indices into `Channel.pieces` of the pieces that it borders.
    """

    points: tuple[Point, ...]
    sides: tuple[int, ...] = ()

    @property
    def length(self) -> float:
        """Length in dbu."""
        return sum(math.dist(a, b) for a, b in zip(self.points, self.points[1:]))


@dataclass(slots=True)
class Landing:
    """A place where a contact reaches the region.

    Attributes:
        contact: Index of the contact shape among the merged contacts given.
        polygon: The landing, shrunk by `OPENING`; None for a landing along the region's edge.
        edges: Contact boundary along the region's edge, for edge-contacted devices only.
    """

    contact: int
    polygon: kdb.Polygon | None
    edges: kdb.Edges | None = None

    @property
    def point(self) -> kdb.Point:
        """A point of the landing."""
        if self.polygon is not None:
            return next(self.polygon.each_point_hull())
        assert self.edges is not None
        return next(self.edges.each()).p1

    def is_on(self, piece: kdb.Polygon) -> bool:
        """Whether this landing is on a piece of the region that no gate cuts through the landing."""
        if self.polygon is not None:
            return piece.inside(self.point)
        assert self.edges is not None
        along = self.edges.inside_part(kdb.Region(piece).sized(EDGE_REACH + 1, 2))
        return along.length() >= EDGE_LENGTH

    def shape(self) -> shapely.Geometry:
        """Return the landing as a shapely geometry (dbu)."""
        if self.polygon is not None:
            return shapely.Polygon([(p.x, p.y) for p in self.polygon.each_point_hull()])
        assert self.edges is not None
        return shapely.MultiLineString([((e.p1.x, e.p1.y), (e.p2.x, e.p2.y)) for e in self.edges.each()])


@dataclass(slots=True)
class Channel:
    """A gate's crossing of a region.

    Attributes:
        region: Region name.
        gate_layer: Gate layer name.
        polygon: The crossing, gates AND region (dbu).
        gate: Index of the gate shape (merged, slits closed) that makes it.
        transistor: Whether contacts land on both sides.
        arcs: Its two or more sides.
        pieces: Pieces of region minus this channel (dbu); those without a landing only when `sides` were asked for.
        landings: For each piece, the landings on it.
    """

    region: str
    gate_layer: str
    polygon: kdb.Polygon
    gate: int
    transistor: bool
    arcs: tuple[Arc, ...]
    pieces: tuple[kdb.Polygon, ...] = ()
    landings: tuple[tuple[Landing, ...], ...] = ()

    @property
    def sides(self) -> tuple[tuple[int, ...], ...]:
        """For each arc, indices of the pieces that it borders."""
        return tuple(arc.sides for arc in self.arcs)


class Flake:
    """The parts of a region's geometry that do not depend on the layout.

    Args:
        region: The region, merged (dbu).
        name: Its name.
    """

    def __init__(self, region: kdb.Region, name: str = "") -> None:
        self.name = name
        self.region = region
        self.bbox = region.bbox()
        self.inner = region.sized(-INSIDE, 2)
        self.rings = [
            shapely.LinearRing([(p.x, p.y) for p in ring])
            for polygon in region.each()
            for ring in (polygon.each_point_hull(), *(polygon.each_point_hole(h) for h in range(polygon.holes())))
        ]
        self._rim: kdb.Region | None = None

    def ring_near(self, point: shapely.Point) -> int:
        """Index of the outline's ring nearest to a point."""
        return min(range(len(self.rings)), key=lambda k: self.rings[k].distance(point))

    @property
    def rim(self) -> kdb.Region:
        """Everything within `EDGE_REACH` of the region's boundary."""
        if self._rim is None:
            self._rim = self.region.sized(EDGE_REACH, 2) - self.region.sized(-EDGE_REACH, 2)
        return self._rim


class GateShapes:
    """The gates of one layer: merged, slits closed.

    Args:
        gates: Merged region (dbu).
        layer: Layer name.
    """

    def __init__(self, gates: kdb.Region, layer: str = "") -> None:
        self.layer = layer
        self.region = close_slits(gates)
        self.closed = self.region is not gates
        self.polygons = list(self.region.each())
        self.boxes = [p.bbox() for p in self.polygons]

    def near(self, box: kdb.Box) -> list[int]:
        """Indices of the gate shapes whose bounding box meets `box`."""
        return [i for i, b in enumerate(self.boxes) if b.touches(box)]


class ContactShapes:
    """The contacts as far as gates do not cover them.

    Args:
        contacts: Merged region (dbu).
        gates: Gates to subtract; None when they are known not to overlap.
    """

    def __init__(self, contacts: kdb.Region, gates: kdb.Region | None = None) -> None:
        self.polygons = list(contacts.each())
        self.boxes = [p.bbox() for p in self.polygons]
        self.gates = None if gates is None or gates.is_empty() else gates

    def landings(self, flake: Flake, edge_contacted: bool) -> list[Landing]:
        """Return the landings on a region, in contact order."""
        reach = flake.bbox.enlarged(EDGE_REACH, EDGE_REACH)
        result: list[Landing] = []
        for i, box in enumerate(self.boxes):
            if not box.touches(reach):
                continue
            shape = kdb.Region(self.polygons[i])
            if self.gates is not None:
                shape -= self.gates
            # Eroded once here: a landing keeps OPENING of distance from every gate, so that it lies wholly in one
            # piece of region minus any channel, and one point tells which.
            eroded = (shape & flake.region).sized(-OPENING, 2)
            result.extend(Landing(i, polygon) for polygon in eroded.merged().each())
            if edge_contacted:
                edges = shape.edges().inside_part(flake.rim)
                if edges.length() >= EDGE_LENGTH:
                    result.append(Landing(i, None, edges))
        return result


def close_slits(gates: kdb.Region, slit: int = SLIT) -> kdb.Region:
    """Return `gates` with slits and gaps under `slit` (dbu) closed; the same object when there are none."""
    if gates.space_check(slit, False, kdb.Metrics.Euclidian, 90, None, None, False).is_empty():
        return gates
    half = slit // 2
    return (gates | gates.sized(half, 2).merged().sized(-half, 2)).merged()


def vanishes(piece: kdb.Polygon, by: int) -> bool:
    """Whether nothing is left of a polygon after shrinking it by `by` (dbu)."""
    # A polygon with inscribed radius r has at most the area r times its perimeter.
    return piece.area() <= by * piece.perimeter() and kdb.Region(piece).sized(-by, 2).is_empty()


def find_arcs(polygon: kdb.Polygon, inner: kdb.Region) -> list[Arc]:
    """Return the arcs of a component of (gates AND region).

    Args:
        polygon: The component.
        inner: The region shrunk by `INSIDE`.
    """
    edges = [
        ((e.x1, e.y1), (e.x2, e.y2)) for e in kdb.Edges(polygon).inside_part(inner).each() if not e.is_degenerate()
    ]
    arcs = [Arc(tuple(chain)) for chain in _bridged(_open_chains(edges))]
    return [arc for arc in arcs if arc.length >= MIN_ARC]


def _open_chains(edges: Sequence[tuple[Point, Point]]) -> list[list[Point]]:
    """Join directed edges end to start; return the chains that are not closed."""
    following: dict[Point, list[Point]] = {}
    ends: dict[Point, int] = {}
    for a, b in edges:
        following.setdefault(a, []).append(b)
        ends[b] = ends.get(b, 0) + 1
    chains: list[list[Point]] = []
    for a, successors in list(following.items()):
        for _ in range(len(successors) - ends.get(a, 0)):
            chain = [a]
            while following.get(chain[-1]):
                chain.append(following[chain[-1]].pop())
            chains.append(chain)
    return chains


def _bridged(chains: list[list[Point]]) -> list[list[Point]]:
    """Join chains whose end lies within `MIN_CUT` of a start; drop those that close."""
    done: list[list[Point]] = []
    open_ = list(chains)
    while open_:
        chain = open_.pop()
        end = chain[-1]
        near = [other for other in (chain, *open_) if math.dist(end, other[0]) < MIN_CUT]
        if not near:
            done.append(chain)
            continue
        following = min(near, key=lambda other: math.dist(end, other[0]))
        if following is not chain:
            open_ = [[*chain, *following] if other is following else other for other in open_]
    return done


def bordered(arc: Arc, pieces: Sequence[kdb.Polygon], touching: kdb.Region) -> tuple[int, ...]:
    """Return the indices of the pieces (of region minus the channel grown by `GROWTH`) that lie along `arc`.

    Args:
        arc: The arc.
        pieces: The pieces.
        touching: The same pieces as a region.
    """
    edges = kdb.Edges([kdb.Edge(*a, *b) for a, b in zip(arc.points, arc.points[1:])])
    strip = edges.extended(0, 0, _BORDER_REACH, 0, False)
    found = set(touching.interacting(strip).each())
    return tuple(i for i, piece in enumerate(pieces) if piece in found)


def _beside(arc: Arc, pieces: Sequence[kdb.Polygon]) -> tuple[int, ...]:
    """Return the pieces beside the middles of an arc's edges: all of `bordered` except in odd corners."""
    found: set[int] = set()
    for (ax, ay), (bx, by) in zip(arc.points, arc.points[1:]):
        length = math.hypot(bx - ax, by - ay)
        # The channel lies to the right of its edges: step to the left of the middle.
        x = (ax + bx) / 2 - (by - ay) / length * _BORDER_REACH
        y = (ay + by) / 2 + (bx - ax) / length * _BORDER_REACH
        point = kdb.Point(round(x), round(y))
        found.update(i for i, piece in enumerate(pieces) if i not in found and piece.inside(point))
    return tuple(sorted(found))


def _is_transistor(channel: Channel, flake: Flake) -> bool:
    landings = channel.landings
    for i, first in enumerate(channel.arcs):
        for second in channel.arcs[i + 1 :]:
            if any(p != q for p in first.sides for q in second.sides if landings[p] and landings[q]):
                return True
            for p in set(first.sides) & set(second.sides):
                if len(landings[p]) > 1 and _around_hole(channel, flake, first, second):
                    one, two = shapely.LineString(first.points), shapely.LineString(second.points)
                    nearer = [x.distance(one) - x.distance(two) for x in (item.shape() for item in landings[p])]
                    if min(nearer) < 0 < max(nearer):
                        return True
    return False


def _around_hole(channel: Channel, flake: Flake, first: Arc, second: Arc) -> bool:
    """Whether one piece can border both arcs: a loop through channel and piece parts the flake's rings in two."""
    if len(flake.rings) < 2:
        return False
    polygon = channel.polygon
    for points in (polygon.each_point_hull(), *(polygon.each_point_hole(h) for h in range(polygon.holes()))):
        loop = shapely.LinearRing([(p.x, p.y) for p in points])
        ends = {id(arc): (shapely.Point(arc.points[0]), shapely.Point(arc.points[-1])) for arc in channel.arcs}
        here = [arc for arc in channel.arcs if all(loop.distance(end) < 1 for end in ends[id(arc)])]
        if first not in here or second not in here:
            continue
        here.sort(key=lambda arc: loop.project(ends[id(arc)][0]))
        # From the end of each arc to the start of the next the loop follows the flake's outline.
        gaps = [
            {flake.ring_near(ends[id(arc)][1]), flake.ring_near(ends[id(following)][0])}
            for arc, following in zip(here, (*here[1:], here[0]))
        ]
        low, high = sorted((here.index(first), here.index(second)))
        between: set[int] = set().union(*gaps[low:high])
        return between.isdisjoint(set().union(*gaps[high:], *gaps[:low]))
    return False


@dataclass(slots=True)
class RegionAnalysis:
    """What one gate layer makes of one region.

    Attributes:
        flake: The region.
        gates: The gate layer.
        components: All components of (gates AND region), channels or not (dbu).
        channels: The channels.
        landings: All landings on the region.
    """

    flake: Flake
    gates: GateShapes
    components: list[kdb.Polygon] = field(default_factory=list)
    channels: list[Channel] = field(default_factory=list)
    landings: list[Landing] = field(default_factory=list)

    @property
    def transistors(self) -> int:
        """Number of channels that are transistors."""
        return sum(c.transistor for c in self.channels)


def analyse(flake: Flake, gates: GateShapes, landings: list[Landing], *, all_sides: bool = False) -> RegionAnalysis:
    """Find the channels of one gate layer on one region.

    Args:
        flake: The region.
        gates: The gate layer.
        landings: Landings of the contacts on this region (`ContactShapes.landings`).
        all_sides: Also list pieces without a landing in `Channel.pieces`; the transistor decision needs only the
            landed ones.
    """
    result = RegionAnalysis(flake, gates, landings=landings)
    for index in gates.near(flake.bbox):
        crossing = kdb.Region(gates.polygons[index]) & flake.region
        crossing.min_coherence = True
        for polygon in crossing.merged().each():
            result.components.append(polygon)
            arcs = find_arcs(polygon, flake.inner)
            if len(arcs) >= 2:
                channel = Channel(flake.name, gates.layer, polygon, index, False, tuple(arcs))
                _find_sides(channel, flake, landings, all_sides)
                result.channels.append(channel)
    return result


def _find_sides(channel: Channel, flake: Flake, landings: list[Landing], all_sides: bool) -> None:
    """Fill in pieces, their landings, and the arcs' sides, and decide whether the channel is a transistor."""
    if not landings and not all_sides:
        return
    rest = flake.region - kdb.Region(channel.polygon.sized(GROWTH, 2))
    pieces: list[kdb.Polygon] = []
    landed: list[tuple[Landing, ...]] = []
    for piece in rest.each():
        on_it = tuple(item for item in landings if item.is_on(piece))
        if on_it or (all_sides and not vanishes(piece, OPENING)):
            pieces.append(piece)
            landed.append(on_it)
    channel.pieces, channel.landings = tuple(pieces), tuple(landed)
    if not all_sides:
        # What lies beside the middles of the edges is on that side for certain, and nearly always decides.
        for arc in channel.arcs:
            arc.sides = _beside(arc, pieces)
        channel.transistor = _is_transistor(channel, flake)
        if channel.transistor:
            return
    region = kdb.Region(pieces)
    region.merged_semantics = False
    for arc in channel.arcs:
        arc.sides = bordered(arc, pieces, region)
    channel.transistor = _is_transistor(channel, flake)


def find_channels(
    region: kdb.Region,
    gates: kdb.Region,
    contacts: kdb.Region,
    *,
    edge_contacted: bool = False,
    name: str = "",
    gate_layer: str = "",
) -> list[Channel]:
    """Find the channels of one gate layer on one region, with all their sides.

    Args:
        region: The flake (dbu).
        gates: All gates of one layer (dbu).
        contacts: All contacts (dbu).
        edge_contacted: Whether contacts may also land along the region's edge.
        name: Region name, for the result.
        gate_layer: Gate layer name, for the result.

    Returns:
        The channels; `Channel.transistor` tells which of them are transistors.
    """
    gate_shapes = GateShapes(gates.merged(), gate_layer)
    flake = Flake(region.merged(), name)
    landings = ContactShapes(contacts.merged(), gate_shapes.region).landings(flake, edge_contacted)
    return analyse(flake, gate_shapes, landings, all_sides=True).channels


def count_transistors(
    region: kdb.Region, gate_layers: Sequence[kdb.Region], contacts: kdb.Region, *, edge_contacted: bool = False
) -> int:
    """Count the transistors of one region: the least count over the gate layers.

    Without a gate layer (global back gate: the substrate gates everything) neighbouring contacts make transistors:
    one less than the landings.

    Args:
        region: The flake (dbu).
        gate_layers: The gates of each layer (dbu).
        contacts: All contacts (dbu).
        edge_contacted: Whether contacts may also land along the region's edge.
    """
    if not gate_layers:
        landings = ContactShapes(contacts.merged()).landings(Flake(region.merged()), edge_contacted)
        return count_ungated(landings)
    counts = (find_channels(region, gates, contacts, edge_contacted=edge_contacted) for gates in gate_layers)
    return min(sum(channel.transistor for channel in channels) for channels in counts)


def count_ungated(landings: Sequence[Landing]) -> int:
    """Transistors of a region without a gate layer: contacts that land on it, less one."""
    return max(0, len({landing.contact for landing in landings}) - 1)
