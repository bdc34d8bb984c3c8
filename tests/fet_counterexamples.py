"""Drawings on which naive readings of "a gate crosses a flake with contacts on both sides" go wrong.

Each case is one flake (hull, holes), gates and contacts in um, with the number of transistors that the paper's
contract counts and, where it is beyond doubt, whether strict checks should accept the drawing. `poses` turns a case
by random angles and snaps it to the 1 nm grid, because most naive readings only fail on rotated shapes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import klayout.db as kdb
import numpy as np
from fet_cases import Ring, box, make_task, rotate

from edagym.task_assets.fet import FETTask
from edagym.task_assets.fet.grid import ring_to_dbu
from edagym.verifiers.fet.layout import FETLayout

N_POSES = 25
_CENTRE = (11.0, 7.0)


@dataclass(frozen=True)
class Case:
    """One drawing.

    Attributes:
        name: What it shows.
        flake: Hull and holes, um.
        gates: Gate rings, um.
        contacts: Contact rings, um.
        truth: Transistors under the paper's contract.
        strict: Whether strict success may hold, None where the case does not settle it.
        edge_contacted: Whether contacts may abut the flake's edge.
        tolerance: True where the case lies within the rounding of the grid, so that rotated poses may also give
            one transistor less.
    """

    name: str
    flake: tuple[Ring, Sequence[Ring]]
    gates: Sequence[Ring]
    contacts: Sequence[Ring]
    truth: int
    strict: bool | None = None
    edge_contacted: bool = False
    tolerance: bool = False

    def turned(self, degrees: float) -> Case:
        """Return the case rotated about a point near its middle."""

        def turn(rings: Sequence[Ring]) -> list[Ring]:
            return [rotate(ring, degrees, _CENTRE) for ring in rings]

        return Case(
            self.name,
            (rotate(self.flake[0], degrees, _CENTRE), turn(self.flake[1])),
            turn(self.gates),
            turn(self.contacts),
            self.truth,
            self.strict,
            self.edge_contacted,
            self.tolerance,
        )

    def regions(self) -> tuple[kdb.Region, kdb.Region, kdb.Region]:
        """Return flake, gates and contacts on the 1 nm grid, merged."""
        hull, holes = self.flake
        flake = kdb.Polygon([kdb.Point(x, y) for x, y in ring_to_dbu(hull)])
        for hole in holes:
            flake.insert_hole([kdb.Point(x, y) for x, y in ring_to_dbu(hole)])
        return kdb.Region(flake).merged(), _region(self.gates), _region(self.contacts)

    def task_and_layout(self, demand: int = 1) -> tuple[FETTask, FETLayout]:
        """Return a task that demands `demand` transistors on the flake, and the drawing as its layout."""
        architecture = "edge_contacted" if self.edge_contacted else "top_gated"
        hull, holes = self.flake
        snapped = (_snap(hull), tuple(_snap(hole) for hole in holes))
        task = make_task([snapped], (demand,), architecture)
        layout = FETLayout.from_task(task)
        for layer, rings in (("gate", self.gates), ("contacts", self.contacts)):
            for ring in rings:
                layout.add(layer, ring_to_dbu(ring))
        return task, layout


def _snap(ring: Ring) -> Ring:
    return tuple((x / 1000, y / 1000) for x, y in ring_to_dbu(ring))


def _region(rings: Sequence[Ring]) -> kdb.Region:
    region = kdb.Region()
    for ring in rings:
        region.insert(kdb.Polygon([kdb.Point(x, y) for x, y in ring_to_dbu(ring)], True))
    return region.merged()


def poses(case: Case, n: int = N_POSES) -> Iterator[tuple[float, Case]]:
    """Yield the axis-aligned case and n - 1 random rotations of it (degrees, case)."""
    yield 0.0, case
    rng = np.random.default_rng(7)
    for angle in rng.uniform(0.0, 360.0, n - 1):
        yield float(angle), case.turned(float(angle))


def frame(outer: Ring, inner: Ring) -> Ring:
    """Return a rectangle with a rectangular hole as one ring with a keyhole (both rings counter-clockwise)."""
    return (*outer, outer[0], inner[0], *reversed(inner[1:]), inner[0])


BAR: tuple[Ring, Sequence[Ring]] = (box(0, 0, 20, 6), ())
SQUARE: tuple[Ring, Sequence[Ring]] = (box(0, 0, 20, 20), ())
RING: tuple[Ring, Sequence[Ring]] = (box(0, 0, 20, 14), (box(6, 5, 14, 9),))
U_SHAPE: tuple[Ring, Sequence[Ring]] = (
    ((0, 0), (20, 0), (20, 20), (14, 20), (14, 5), (6, 5), (6, 20), (0, 20)),
    (),
)
BENT: tuple[Ring, Sequence[Ring]] = (
    ((0, 0), (16, 0), (20, 5), (20, 10), (16, 15), (0, 15), (0, 11), (14, 11), (15.5, 9), (15.5, 6), (14, 4), (0, 4)),
    (),
)
Y_SHAPE: tuple[Ring, Sequence[Ring]] = (
    ((8, 0), (12, 0), (12, 10), (20, 10), (20, 14), (0, 14), (0, 10), (8, 10)),
    (),
)
GATE = box(9, -1, 11, 7)
LEFT, RIGHT = box(2, 1, 7, 5), box(13, 1, 18, 5)
RING_LEFT, RING_RIGHT = box(1, 6, 5, 8), box(15, 6, 19, 8)
TIPS = (box(1, 14, 5, 18), box(15, 14, 19, 18))
COMB_TEETH = (box(5, -1, 6, 8), box(9.5, -1, 10.5, 8), box(14, -1, 15, 8))
COMB = (
    (5, -1),
    (6, -1),
    (6, 7),
    (9.5, 7),
    (9.5, -1),
    (10.5, -1),
    (10.5, 7),
    (14, 7),
    (14, -1),
    (15, -1),
    (15, 8),
    (5, 8),
)
STRAP = ((7, -1), (8, -1), (8, 7), (12, 7), (12, -1), (13, -1), (13, 8), (7, 8))
OUTER = (box(1, 1, 4, 5), box(16, 1, 19, 5))
SLANTED: tuple[Ring, Sequence[Ring]] = (rotate(BAR[0], 13.0), ())
WRAP = ((2, 1), (7, 1), (7, 8), (13, 8), (13, 1), (18, 1), (18, 9), (2, 9))
POINTED = ((2, 1), (7, 1), (7, 5), (5, 5), (5, 9), (14, 9), (15, 6), (16, 9), (16, 10), (2, 10))

CASES: tuple[Case, ...] = (
    Case("plain bar", BAR, [GATE], [LEFT, RIGHT], 1, True),
    Case("gate flush with the flake edge", BAR, [box(9, 0, 11, 6)], [LEFT, RIGHT], 1, False),
    Case("gate 1 nm short on one side", BAR, [box(9, 0.001, 11, 7)], [LEFT, RIGHT], 1, False, tolerance=True),
    Case("ring, gate over one arm, two contacts", RING, [box(9, 8, 11, 15)], [RING_LEFT, RING_RIGHT], 1, False),
    Case("ring, gate over one arm, one contact", RING, [box(9, 8, 11, 15)], [RING_LEFT], 0, False),
    Case("ring, one gate over both arms", RING, [box(9, -1, 11, 15)], [RING_LEFT, RING_RIGHT], 2),
    Case(
        "ring, gate over one arm, both contacts on one side",
        RING,
        [box(9, 8, 11, 15)],
        [box(1, 2, 5, 5), box(1, 9, 5, 12)],
        0,
        False,
    ),
    Case(
        "ring, gate along the bottom arm clips the hole",
        RING,
        [box(-1, -1, 21, 5.5)],
        [RING_LEFT, RING_RIGHT],
        1,
        False,
    ),
    Case(
        "ring, gate over a corner of the hole, no cut",
        RING,
        [box(4, 3, 8, 7)],
        [box(1, 1, 3, 13), RING_RIGHT],
        0,
        False,
    ),
    Case("gate along the edge, 1 um in", BAR, [box(-1, -1, 21, 1)], [box(2, 2, 7, 5), box(13, 2, 18, 5)], 0, False),
    Case(
        "gate along the edge, inner side through a small hole",
        (BAR[0], (box(9, 0.5, 11, 1.5),)),
        [box(-1, -1, 21, 1)],
        [box(2, 2, 7, 5), box(13, 2, 18, 5)],
        1,
        False,
    ),
    Case(
        "gate along the edge through a hole, one contact",
        (BAR[0], (box(9, 0.5, 11, 1.5),)),
        [box(-1, -1, 21, 1)],
        [box(2, 2, 7, 5)],
        0,
        False,
    ),
    Case(
        "slanted gate, outer side on the flake's edge",
        SLANTED,
        [rotate(box(3, 0, 17, 1), 13.0)],
        [rotate(box(2, 2, 7, 5), 13.0), rotate(box(13, 2, 18, 5), 13.0)],
        0,
        False,
    ),
    Case(
        "slanted gate, outer side within 1 nm of the flake's edge",
        SLANTED,
        [rotate(((3, 0), (5, 0.001), (7, -0.001), (10, 0.001), (13, -0.001), (17, 0), (17, 1), (3, 1)), 13.0)],
        [rotate(box(2, 2, 7, 5), 13.0), rotate(box(13, 2, 18, 5), 13.0)],
        0,
        False,
    ),
    Case("U, gate over both prongs, all contacted", U_SHAPE, [box(-1, 10, 21, 12)], [*TIPS, box(5, 1, 15, 4)], 2),
    Case("U, gate over both prongs, tips contacted", U_SHAPE, [box(-1, 10, 21, 12)], TIPS, 2, False),
    Case("U, gate over both prongs, one tip and base", U_SHAPE, [box(-1, 10, 21, 12)], [TIPS[0], box(5, 1, 15, 4)], 1),
    Case("comb gate, contacts at the ends", BAR, [COMB], OUTER, 3, False),
    Case("comb gate, contacts everywhere", BAR, [COMB], [*OUTER, box(6.5, 1, 9, 5), box(11, 1, 13.5, 5)], 3),
    Case("two gates, no contact between", BAR, [box(7, -1, 8, 7), box(12, -1, 13, 7)], OUTER, 2, False),
    Case("two gates joined by a strap outside", BAR, [STRAP], OUTER, 2, False),
    Case(
        "two gates sharing a middle contact",
        BAR,
        [box(7, -1, 8, 7), box(12, -1, 13, 7)],
        [*OUTER, box(9, 1, 11, 5)],
        2,
        True,
    ),
    Case("contact abuts the flake's edge from outside", BAR, [GATE], [box(-4, 1, 0, 5), RIGHT], 0, False),
    Case("contact touches a corner only", BAR, [GATE], [box(-4, 6, 0, 9), RIGHT], 0, False),
    Case("contact overlaps the flake by 1 nm", BAR, [GATE], [box(-4, 1, 0.001, 5), RIGHT], 0, False),
    Case("contact covers the whole left piece", BAR, [GATE], [box(-1, -1, 8, 7), RIGHT], 1),
    Case("contact of one side touches the other piece at a point", BAR, [GATE], [POINTED], 0, False),
    Case("one wrap-around contact", BAR, [GATE], [WRAP], 1, False),
    Case("gate with a hole inside the flake", BAR, [frame(GATE, box(9.3, 2, 10.7, 4))], [LEFT, RIGHT], 1),
    Case(
        "wide gate with a hole, contacts in the hole and left",
        BAR,
        [frame(box(7, -1, 15, 7), box(9, 1.5, 13, 4.5))],
        [box(2, 1, 6, 5), box(10, 2, 12, 4)],
        0,
        False,
    ),
    Case(
        "ring gate inside the flake, contacts in and out",
        SQUARE,
        [frame(box(5, 5, 15, 15), box(7, 7, 13, 13))],
        [box(8, 8, 12, 12), box(1, 1, 4, 4)],
        0,
        False,
    ),
    Case("gate ends inside the flake", BAR, [box(9, 2, 11, 7)], [LEFT, RIGHT], 0, False),
    Case(
        "Y, gate over the junction, two arms contacted",
        Y_SHAPE,
        [box(7, 9, 13, 15)],
        [box(1, 11, 5, 13), box(15, 11, 19, 13)],
        1,
    ),
    Case(
        "gate cuts off a corner, corner contacted",
        SQUARE,
        [rotate(box(-8, 4.25, 8, 5.35), -45.0)],
        [box(0.5, 0.5, 2.5, 2.5), box(10, 10, 15, 15)],
        1,
        True,
    ),
    Case(
        "gate leaves a corner of 5 nm, contact on it",
        SQUARE,
        [((-2, 2.005), (2.005, -2), (4, -2), (-2, 4))],
        [box(-1, -1, 0.002, 0.002), box(10, 10, 15, 15)],
        0,
        False,
    ),
    Case(
        "bent arm crossed twice, ends contacted",
        BENT,
        [box(7, -1, 9, 16)],
        [box(1, 1, 5, 3), box(1, 12, 5, 14)],
        2,
        False,
    ),
    Case(
        "bent arm crossed twice, bend contacted too",
        BENT,
        [box(7, -1, 9, 16)],
        [box(1, 1, 5, 3), box(1, 12, 5, 14), box(16.5, 6, 19, 9)],
        2,
    ),
    Case("edge contacts abut the edges", BAR, [GATE], [box(-4, 1, 0, 5), box(20, 1, 24, 5)], 1, edge_contacted=True),
    Case("gate drawn as two abutting halves", BAR, [box(9, -1, 10, 7), box(10, -1, 11, 7)], [LEFT, RIGHT], 1, True),
    Case(
        "gate drawn as two halves with a 1 nm gap", BAR, [box(9, -1, 10, 7), box(10.001, -1, 11, 7)], [LEFT, RIGHT], 1
    ),
    Case(
        "gate slit lengthwise by 2 nm inside the flake",
        BAR,
        [frame(GATE, box(9.999, 1, 10.001, 5))],
        [LEFT, RIGHT],
        1,
    ),
    Case(
        "thin tooth of a gate dips 10 nm into the flake",
        BAR,
        [box(9, -3, 11, -1), box(10, -1.5, 10.01, 0.01)],
        [LEFT, RIGHT],
        0,
        False,
    ),
    Case("wide gate over a whole hole", (BAR[0], (box(9.5, 2, 10.5, 4),)), [GATE], [LEFT, RIGHT], 1),
    Case(
        "gate crosses a holed bar through the hole",
        (BAR[0], (box(8.5, 2, 11.5, 4),)),
        [box(9.5, -1, 10.5, 7)],
        [LEFT, RIGHT],
        2,
    ),
)
