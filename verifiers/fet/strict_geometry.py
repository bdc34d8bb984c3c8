"""From shapes to conductors: pieces, crossings and nets of a layout, as the strict checks need them.

The paper's contract asks where gates cross flakes; this module asks what is connected to what. All lengths are in
database units (1 nm). Two readings of "connected" are kept apart, so that neither a short nor an open can hide in a
hairline:

* *touching*: any conduction at all counts (for shorts). A net is a set of conductors joined by touching.
* *solid*: only conduction of at least `SOLID` width and landings of at least `LANDING` count (for opens).

Definitions, per region (flake):

* The *gates* are those of all gate layers together, slits under 20 nm closed as in the paper's count.
* A *part* is a connected component of (region minus gates); a *body* is what remains of it when necks under `SOLID`
  are cut through.
* A *piece* is made of parts that would join around a gate's end if the region were `OVERHANG` larger all round. It is
  one conductor: a gate that does not overhang the edge by that much does not cut.
* A *crossing* is a connected component of (gates AND region). It borders the parts (and their pieces and bodies) that
  touch it, except those that it surrounds: a gate as a closed ring inside the flake overhangs nothing.
* A contact *touches* a part when they overlap or abut, up to rounding, and *lands* on a body when a square of side
  `LANDING` fits into the overlap. On edge-contacted devices, see `_RegionWork.land_on_edges`. A contact surrounded by
  one shape of a gate or contact lands nowhere unless the task has vias to lift it out: no lead can reach it.

Pieces, contacts, vias and pad covers conduct; vias join contacts to pad covers, and nothing else joins those two.
Where the substrate is the only gate (no gate layer) the region is all channel and does not conduct.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import klayout.db as kdb

from edagym.task_assets.fet.task import FETTask
from edagym.verifiers.fet.layout import FETLayout, region_polygon
from edagym.verifiers.fet.strict_shapes import Nets, Shapes, surrounds, touching_pairs, union
from edagym.verifiers.fet.transistors import close_slits

# Booleans snap to the 1 nm grid: overlaps and gaps thinner than this are rounding, not geometry. Limits below are
# relaxed by it, so that shapes exactly at a limit pass in every orientation.
SNAP = 2
# Gaps in a gate under this are seams between abutting shapes. The paper's contract closes wider ones, through which
# current would pass under no gate.
HAIRLINE = 2 * SNAP
# Least length by which a gate must pass the edge of the flake: of the order of the overlay error of lithography on
# such flakes. The paper states none.
OVERHANG = 100
# Side of the square of metal on flake that makes a source or drain contact.
LANDING = 100
# Least width of metal, or of flake, that is trusted to carry a required connection; pad covers closer than this are
# taken as shorted (no rule of the paper keeps them apart).
SOLID = 50
# Edge contacts: least length of flake edge under the contact, and farthest reach of the contact into the flake.
EDGE_LENGTH = 100
EDGE_DEPTH = 500
# The two gates of a dual-gated device must face each other over at least this length of channel.
FACING = 100

_BODY = SOLID // 2 - SNAP  # bodies are drawn shrunk by this


@dataclass(slots=True)
class Piece:
    """A part of a region that gates cut off: one conductor.

    Attributes:
        region: Index of the region.
        net: Conductor number in `Extraction.nets`.
        touched: Whether a contact touches it.
        facing: Number of the part of the region that it lies in when only the area under the gates of all layers is
            removed; equal for all pieces unless the device is dual-gated.
    """

    region: int
    net: int
    touched: bool = False
    facing: int = -1


@dataclass(slots=True)
class Body:
    """A part of a piece without necks.

    Attributes:
        piece: The piece.
        number: Conductor number in the nets of `solid_nets`.
        landed: Contacts that land on it.
    """

    piece: Piece
    number: int
    landed: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Crossing:
    """A connected component of (gates AND region).

    Attributes:
        region: Index of the region.
        polygon: Its outline (dbu).
        gates: For each gate layer, the indices of the gate shapes that it lies under.
        pieces: The pieces that it borders.
        bodies: The bodies that it borders.
        sides: Number of parts that it borders.
        stray: "contact" or "via" where one overlaps it, or "".
        uncovered: Whether a gate that needs a dielectric below it is not fully covered by it.
    """

    region: int
    polygon: kdb.Polygon
    gates: tuple[tuple[int, ...], ...]
    pieces: list[Piece]
    bodies: list[Body]
    sides: int
    stray: str = ""
    uncovered: bool = False

    def bodies_of(self, piece: Piece) -> list[Body]:
        """Return the bodies of a piece that this crossing borders."""
        return [body for body in self.bodies if body.piece is piece]


@dataclass(slots=True)
class Landing:
    """A place where a contact lands; `core` is the overlap shrunk by half of `LANDING` (None: along an edge)."""

    body: Body
    contact: int
    core: kdb.Polygon | None


@dataclass(slots=True)
class Extraction:
    """Conductors of a layout.

    Attributes:
        task: The task.
        contacts, vias: Merged shapes.
        pads: Pad covers, grown by half of `SOLID` and merged.
        gates: Merged shapes of each gate layer, slits closed.
        nets: Nets for shorts ("touching"). Conductors: contacts, vias, pad covers, then pieces.
        bodies: The bodies of each region.
        crossings: The crossings of each region.
        landings: All landings.
    """

    task: FETTask
    contacts: Shapes
    vias: Shapes
    pads: Shapes
    gates: list[Shapes]
    nets: Nets
    bodies: list[list[Body]] = field(default_factory=list)
    crossings: list[list[Crossing]] = field(default_factory=list)
    landings: list[Landing] = field(default_factory=list)

    def net(self, piece: Piece) -> int:
        """Return the net of a piece."""
        return self.nets.find(piece.net)


def role_region(task: FETTask, layout: FETLayout, role: str) -> kdb.Region:
    """Return the merged shapes of all layers of a role (dbu). Treat it as read-only."""
    return union([layout.region(spec.name) for spec in task.layers_of(role)])


def extract(task: FETTask, layout: FETLayout) -> Extraction:
    """Return the conductors of a layout.

    Args:
        task: The task; its flakes are taken from here, not from the layout.
        layout: The layout.
    """
    contacts, vias = (Shapes.of(role_region(task, layout, role)) for role in ("contact", "via"))
    pads = Shapes.of(role_region(task, layout, "pad cover").sized(SOLID // 2).merged())
    gates = [Shapes.of(close_slits(layout.region(spec.name), HAIRLINE)) for spec in task.layers_of("gate electrode")]
    first_via = len(contacts.polygons)
    first_pad = first_via + len(vias.polygons)
    nets = Nets(first_pad + len(pads.polygons))
    for via, contact in touching_pairs(vias, contacts):
        nets.join(first_via + via, contact)
    for via, pad in touching_pairs(vias, pads):
        nets.join(first_via + via, first_pad + pad)
    result = Extraction(task, contacts, vias, pads, gates, nets)
    dielectric = role_region(task, layout, "dielectric") if task.layers_of("dielectric") else None
    count = 0
    for index, region in enumerate(task.regions):
        work = _RegionWork(result, index, kdb.Region(region_polygon(region)), count)
        work.land()
        crossings = work.crossings()
        if dielectric is not None:
            for crossing in crossings:
                crossing.uncovered = _uncovered(result, crossing, dielectric)
        result.bodies.append(work.bodies)
        result.crossings.append(crossings)
        count += len(work.bodies)
    return result


class _RegionWork:
    """Extraction of one region into `result`."""

    def __init__(self, result: Extraction, index: int, region: kdb.Region, first_body: int) -> None:
        self.result, self.index, self.region = result, index, region
        box = region.bbox()
        self.contacts = result.contacts.near(box, SNAP)
        self.near_gates = [shapes.near(box, OVERHANG) for shapes in result.gates]
        layers = [shapes.region(i) for shapes, i in zip(result.gates, self.near_gates)]
        self.gates = union(layers)
        self.rest = region - self.gates
        # Shrunk by the rounding, so that a plain touching test of polygons is a test of real overlap.
        self.parts: Sequence[kdb.Polygon] = list(self.rest.sized(-SNAP).each())
        self.owner = self._pieces()
        if len(layers) > 1:
            self._set_facing(layers)
        self.body_shapes: Sequence[kdb.Polygon] = list(self.rest.sized(-_BODY).each())
        # The part of each body. A body keeps its distance from all other parts, so the first touch decides.
        self.home = [next(i for i, part in enumerate(self.parts) if part.touches(b)) for b in self.body_shapes]
        self.bodies = [Body(self.owner[part], first_body + i) for i, part in enumerate(self.home)]

    def _grown(self) -> kdb.Region:
        return self.region.sized(OVERHANG - SNAP)

    def _pieces(self) -> list[Piece]:
        """Return the piece of every part."""
        if len(self.parts) < 2:
            return [Piece(self.index, self.result.nets.add()) for _ in self.parts]
        grown = list((self._grown() - self.gates).each())
        home = [next((i for i, g in enumerate(grown) if g.touches(part)), -1) for part in self.parts]
        pieces = {i: Piece(self.index, self.result.nets.add()) for i in dict.fromkeys(home)}
        return [pieces[i] for i in home]

    def _set_facing(self, layers: Sequence[kdb.Region]) -> None:
        common = layers[0]
        for other in layers[1:]:
            common = common & other
        common = common.sized(-FACING // 2 + SNAP).sized(FACING // 2 - SNAP)
        for number, remainder in enumerate((self._grown() - common).each()):
            for piece, part in zip(self.owner, self.parts):
                if piece.facing < 0 and remainder.touches(part):
                    piece.facing = number

    # -- contacts ------------------------------------------------------------------------------------------------------

    def land(self) -> None:
        """Join contacts to the pieces that they touch, and record where they land."""
        if not self.contacts:
            return
        free = [i for i in self.contacts if not self._trapped(self.result.contacts.polygons[i])]
        if self.result.task.architecture == "edge_contacted":
            self.land_on_edges(set(free))
            return
        polygons = self.result.contacts.polygons
        for i in self.contacts:
            # Metal along the flake's edge conducts to it, whichever way rounding goes.
            reach = polygons[i].sized(2 * SNAP)
            for part, piece in zip(self.parts, self.owner):
                if reach.touches(part):
                    self._join(i, piece)
        for core in (self.result.contacts.region(free) & self.rest).sized(-LANDING // 2 + SNAP).each():
            contact = next(i for i in free if polygons[i].touches(core))
            body = next(b for b, shape in zip(self.bodies, self.body_shapes) if shape.touches(core))
            self._record(body, contact, core)

    def land_on_edges(self, free: set[int]) -> None:
        """Join and land the contacts of an edge-contacted device.

        A contact lands when at least `EDGE_LENGTH` of the flake's edge runs under or along it, it comes from outside
        (at least `SOLID` of metal beyond the edge) and it reaches less than `EDGE_DEPTH` into the flake.
        """
        deep = self.region.sized(-EDGE_DEPTH)
        edges = self.region.edges()
        for i in self.contacts:
            shape = kdb.Region(self.result.contacts.polygons[i])
            reach = shape.sized(2 * SNAP).merged()
            from_outside = not (shape - self.region).sized(-SOLID // 2 + SNAP).is_empty()
            shallow = (shape & deep).sized(-SNAP).is_empty()
            for index, part in enumerate(self.parts):
                if not any(polygon.touches(part) for polygon in reach.each()):
                    continue
                self._join(i, self.owner[index])
                along = edges.inside_part(reach & kdb.Region(part.sized(3 * SNAP)))
                # `reach` is longer than the contact by 2 * SNAP at either end.
                if i in free and from_outside and shallow and along.length() >= EDGE_LENGTH + 3 * SNAP:
                    wide = list(shape.sized(_BODY + 3 * SNAP).each())
                    for body, body_shape, home in zip(self.bodies, self.body_shapes, self.home):
                        if home == index and any(polygon.touches(body_shape) for polygon in wide):
                            self._record(body, i, None)

    def _record(self, body: Body, contact: int, core: kdb.Polygon | None) -> None:
        body.landed.add(contact)
        self.result.landings.append(Landing(body, contact, core))

    def _join(self, contact: int, piece: Piece) -> None:
        piece.touched = True
        if self.result.gates:
            self.result.nets.join(contact, piece.net)

    def _trapped(self, contact: kdb.Polygon) -> bool:
        """Whether a gate or another contact surrounds a contact, in tasks without vias."""
        if self.result.task.layers_of("via"):
            return False
        metal = (*self.result.gates, self.result.contacts)
        rings = (polygon for shapes in metal for polygon in shapes.polygons if polygon.holes() and polygon != contact)
        return any(surrounds(ring, contact) for ring in rings)

    # -- crossings -----------------------------------------------------------------------------------------------------

    def crossings(self) -> list[Crossing]:
        """Return the crossings, with the gates over them, what is beside them and what strays across them."""
        if self.gates.is_empty():
            return []
        return [self._crossing(polygon) for polygon in (self.region & self.gates).each()]

    def _crossing(self, polygon: kdb.Polygon) -> Crossing:
        reach = polygon.sized(3 * SNAP)
        beside = [i for i, part in enumerate(self.parts) if reach.touches(part)]
        if polygon.holes():
            beside = [i for i in beside if not surrounds(polygon, self.parts[i])]
        reach = polygon.sized(_BODY + 3 * SNAP)
        shapes_of_bodies = zip(self.bodies, self.body_shapes, self.home)
        return Crossing(
            region=self.index,
            polygon=polygon,
            gates=tuple(
                tuple(i for i in near if shapes.polygons[i].touches(polygon))
                for shapes, near in zip(self.result.gates, self.near_gates)
            ),
            pieces=list({self.owner[i].net: self.owner[i] for i in beside}.values()),
            bodies=[body for body, shape, home in shapes_of_bodies if home in beside and reach.touches(shape)],
            sides=len(beside),
            stray=self._stray(polygon),
        )

    def _stray(self, polygon: kdb.Polygon) -> str:
        vias = self.result.vias
        layers = (("contact", self.result.contacts, self.contacts), ("via", vias, vias.near(polygon.bbox())))
        for role, shapes, near in layers:
            hits = [shapes.polygons[i] for i in near if shapes.polygons[i].touches(polygon)]
            if hits and not (kdb.Region(hits) & kdb.Region(polygon)).sized(-SNAP).is_empty():
                return role
        return ""


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


@dataclass(slots=True)
class _SolidMetal:
    """Contacts, vias and pad covers without necks under `SOLID`, and their nets; see `solid_nets`."""

    contacts: Shapes
    first_contact: int
    nets: Nets
    usable_vias: list[int]

    @classmethod
    def of(cls, extraction: Extraction) -> _SolidMetal:
        def opened(shapes: Shapes, grown: int = 0) -> Shapes:
            d = SOLID // 2 - SNAP
            return Shapes.of(shapes.region(range(len(shapes.polygons))).sized(-d - grown).sized(d))

        contacts, vias = opened(extraction.contacts), opened(extraction.vias)
        pads = opened(extraction.pads, grown=SOLID // 2)
        first_contact = sum(len(bodies) for bodies in extraction.bodies)
        first_via = first_contact + len(contacts.polygons)
        first_pad = first_via + len(vias.polygons)
        nets = Nets(first_pad + len(pads.polygons))
        on_contact, on_pad = touching_pairs(vias, contacts), touching_pairs(vias, pads)
        for via, contact in on_contact:
            nets.join(first_via + via, first_contact + contact)
        for via, pad in on_pad:
            nets.join(first_via + via, first_pad + pad)
        usable = {via for via, _ in on_contact}
        if extraction.task.layers_of("pad cover"):
            usable &= {via for via, _ in on_pad}
        return cls(contacts, first_contact, nets, [first_via + via for via in usable])

    def reached(self) -> set[int]:
        """Return the nets that hold a usable via."""
        return {self.nets.find(via) for via in self.usable_vias}

    def under(self, landing: Landing, extraction: Extraction) -> list[int]:
        """Return the conductor numbers of the contact metal that makes a landing."""
        target = extraction.contacts.polygons[landing.contact] if landing.core is None else landing.core
        near = self.contacts.near(target.bbox())
        return [self.first_contact + i for i in near if self.contacts.polygons[i].touches(target)]


def solid_nets(extraction: Extraction) -> tuple[Nets, set[int]]:
    """Return the nets that are joined by solid conduction only (for opens).

    Returns:
        The nets, in which bodies come first (`Body.number`); and those nets that hold a usable via: one of at least
        `SOLID` width on a contact, and on a pad cover where the task has them.
    """
    metal = _SolidMetal.of(extraction)
    for landing in extraction.landings:
        for contact in metal.under(landing, extraction):
            metal.nets.join(contact, landing.body.number)
    return metal.nets, metal.reached()


def usable_landings(extraction: Extraction) -> list[Landing]:
    """Return the landings whose own metal solidly reaches a usable via; all of them in tasks without vias."""
    if not extraction.task.layers_of("via"):
        return extraction.landings
    metal = _SolidMetal.of(extraction)
    reached = metal.reached()
    return [
        landing
        for landing in extraction.landings
        if any(metal.nets.find(contact) in reached for contact in metal.under(landing, extraction))
    ]
