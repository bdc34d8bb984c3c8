"""FET layouts drawn by hand in any pose, for the tests of strict checks (all coordinates in um)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fet_cases import Ring, box, make_task, rotate

from edagym.task_assets.fet import CircuitSpec, FETTask
from edagym.task_assets.fet.grid import ring_to_dbu, ring_to_um
from edagym.verifiers.fet.layout import FETLayout

Flake = tuple[Ring, Sequence[Ring]]

BAR: Flake = (box(0, 0, 20, 6), ())
GATE = box(9, -1, 11, 7)
LEFT, RIGHT = box(2, 1, 7, 5), box(13, 1, 18, 5)


@dataclass(frozen=True)
class Drawing:
    """Flakes and the shapes drawn on them.

    Attributes:
        shapes: Rings per layer.
        flakes: Hull and holes of each flake.
        task: Arguments of `fet_cases.make_task`.
    """

    shapes: Mapping[str, Sequence[Ring]]
    flakes: Sequence[Flake] = (BAR,)
    task: Mapping[str, Any] = field(default_factory=dict)

    def with_shapes(self, **shapes: Sequence[Ring]) -> Drawing:
        """Return the drawing with other shapes on the given layers."""
        return replace(self, shapes={**self.shapes, **shapes})

    def adding(self, **shapes: Sequence[Ring]) -> Drawing:
        """Return the drawing with further shapes on the given layers."""
        return self.with_shapes(**{k: (*self.shapes.get(k, ()), *v) for k, v in shapes.items()})

    def posed(self, degrees: float = 0.0, mirrored: bool = False) -> Drawing:
        """Return the drawing rotated, and mirrored before."""

        def move(ring: Ring) -> Ring:
            if mirrored:
                ring = tuple((-x, y) for x, y in reversed(ring))
            return rotate(ring, degrees, (3.0, 1.0))

        return Drawing(
            {layer: [move(ring) for ring in rings] for layer, rings in self.shapes.items()},
            [(move(hull), [move(hole) for hole in holes]) for hull, holes in self.flakes],
            self.task,
        )

    def build(self) -> tuple[FETTask, FETLayout]:
        """Return the task and the layout, snapped to the 1 nm grid."""
        flakes = [(_snap(hull), [_snap(hole) for hole in holes]) for hull, holes in self.flakes]
        task = make_task(flakes, **self.task)
        layout = FETLayout.from_task(task)
        for layer, rings in self.shapes.items():
            for ring in rings:
                layout.add(layer, ring_to_dbu(ring))
        return task, layout


def _snap(ring: Ring) -> Ring:
    return ring_to_um(ring_to_dbu(ring))


def bar(**task: Any) -> Drawing:
    """Return the plain transistor on a 20 x 6 um bar: contact, gate, contact."""
    return Drawing({"contacts": [LEFT, RIGHT], "gate": [GATE]}, task=task)


def bar_with_vias(pads: bool = False, **task: Any) -> Drawing:
    """Return the plain transistor with a via on each contact, and a pad cover on each via."""
    shapes: dict[str, list[Ring]] = {"contacts": [LEFT, RIGHT], "gate": [GATE]}
    shapes["via"] = [box(4, 2, 5, 3), box(15, 2, 16, 3)]
    if pads:
        shapes["pad_cover"] = [box(3.5, 1.5, 5.5, 3.5), box(14.5, 1.5, 16.5, 3.5)]
    return Drawing(shapes, task={"via": True, "pad_cover": pads, **task})


def row(n: int, dy: float = 0.0) -> tuple[Flake, list[Ring], list[Ring]]:
    """Return a bar with n gates and n + 1 contacts between them: flake, gates, contacts (pitch 4 um, from x = 0)."""
    flake = (box(0, dy, 4 * n + 3, dy + 6), ())
    gates = [box(4 * i + 2.95, dy - 1, 4 * i + 4.05, dy + 7) for i in range(n)]
    contacts = [box(4 * i + 0.5, dy + 1, 4 * i + 2.5, dy + 5) for i in range(n + 1)]
    return flake, gates, contacts


def active(template: str, instances: int = 1, drivers: int = 1) -> CircuitSpec:
    """Return a circuit with an active load, one flake each."""
    return CircuitSpec(template, "active", instances, drivers + 1, (drivers + 1,) * instances, 1)


def complementary(template: str, instances: int = 1, drivers: int = 1) -> CircuitSpec:
    """Return a complementary circuit, two flakes each."""
    return CircuitSpec(template, "complementary", instances, 2 * drivers, (drivers,) * 2 * instances, 2)


def inverter_active() -> Drawing:
    """VDD | LOAD | OUT | A | GND on one bar."""
    flake, gates, contacts = row(2)
    spec = active("inverter")
    return Drawing(
        {"contacts": contacts, "gate": gates}, [flake], {"demand": (2,), "circuit": spec, "materials": ["MoSe2"]}
    )


def nand2_active() -> Drawing:
    """VDD | LOAD | OUT | A | x1 | B | GND on one bar, no contact on x1."""
    flake, gates, contacts = row(3)
    spec = active("nand2", drivers=2)
    return Drawing(
        {"contacts": [contacts[0], contacts[1], contacts[3]], "gate": gates},
        [flake],
        {"demand": (3,), "circuit": spec, "materials": ["MoSe2"]},
    )


def strap(first: Ring, second: Ring, y: float, width: float = 0.5) -> list[Ring]:
    """Return a contact wire, one polygon, from one contact of a row (a rectangle) to another, past them at height y."""
    h = width / 2
    a, b = ((ring[0][0] + ring[1][0]) / 2 for ring in (first, second))
    y1, y2 = first[2][1] - 0.2, second[2][1] - 0.2
    top, below = y + h, y - h
    return [
        ((a - h, y1), (a + h, y1), (a + h, below), (b - h, below), (b - h, y2), (b + h, y2), (b + h, top), (a - h, top))
    ]


def nor2_active() -> Drawing:
    """VDD | LOAD | OUT | A | GND | B | OUT on one bar, the two OUT contacts joined by a wire above the gates."""
    flake, gates, contacts = row(3)
    spec = active("nor2", drivers=2)
    return Drawing(
        {"contacts": [*contacts, *strap(contacts[1], contacts[3], 8.5)], "gate": gates},
        [flake],
        {"demand": (3,), "circuit": spec, "materials": ["MoSe2"]},
    )


def nand2_complementary() -> Drawing:
    """n: GND | A | x1 | B | OUT, p (above): VDD | A | OUT | B | VDD, OUT joined by a wire on the right."""
    n_flake, n_gates, n_contacts = row(2)
    p_flake, p_gates, p_contacts = row(2, dy=12)
    # From the n flake's last contact to the right, up beside both flakes, and back above the p flake.
    out = (
        (9.5, 2),
        (12.5, 2),
        (12.5, 20),
        (5, 20),
        (5, 16.5),
        (5.5, 16.5),
        (5.5, 19.5),
        (12, 19.5),
        (12, 2.5),
        (9.5, 2.5),
    )
    spec = complementary("nand2", drivers=2)
    return Drawing(
        {"contacts": [n_contacts[0], n_contacts[2], *p_contacts, out], "gate": [*n_gates, *p_gates]},
        [n_flake, p_flake],
        {"demand": (2, 2), "circuit": spec, "materials": ["MoSe2", "WSe2"]},
    )
