"""Transistor macros: free numbers in a flake's own frame become contacts, gates, vias, pads and wires.

A macro maps parameters to shapes and nothing more. It does not search, it checks no rule, and what it draws may be
wrong in every way: off the flake, too close to a neighbour, along a bend where corners meet. Which flake, which curve
along it, where on the curve and with which sizes is the agent's choice; so is when to verify, what to undo and when to
submit. All of it becomes typed edits (`edagym.spaces.edits`) on the base environment, each at its usual charge.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import gymnasium as gym
import numpy as np
import shapely
from gymnasium.spaces import Box, MultiDiscrete

from edagym.envs.core.edit_env import StepResult
from edagym.envs.fet.construct.shapes import Rect, two_nearest
from edagym.spaces.actions import Command
from edagym.spaces.contours import MAX_REGIONS
from edagym.spaces.edits import AddPath, AddPolygon, Cut, Edit
from edagym.task_assets.fet.circuits import Stack, stacks
from edagym.task_assets.fet.task import TaskView
from edagym.wrappers.core import PlainWrapper
from edagym.wrappers.fet_features import SIZE, encode
from edagym.wrappers.fet_spines import N_BRANCHES, Spine, frame_of

EDGE_ENTRY_UM, EDGE_WIDTH_UM = 0.08, 0.8
"""How far edge contacts enter a flake at least, and their least size across the edge."""

MARGIN_UM = 0.02
"""Added to every rule minimum, so that rounding to the 1 nm grid costs nothing."""
LEAST_CONTACT_UM, LEAST_VIA_UM, MOST_VIA_UM = 0.4, 0.2, 0.6
PAD_INSET_UM, DIELECTRIC_UM, MOST_WIRE_UM, CHAMFER_UM = 0.05, 0.3, 0.4, 1.0
_UNWIRE_COST = 5  # a cut, two contacts and what else was run over
_JOIN_COST = _UNWIRE_COST + 3  # a wire, a verify, and taking it back
_GATE_UM, _SEPARATION_UM, _SPACING_UM = 1.0, 0.2, 0.2  # where a task states none

OPS = ("focus", "select", "place", "join", "verify", "undo", "unwire", "submit")
FOCUS, SELECT, PLACE, JOIN, VERIFY, UNDO, UNWIRE, SUBMIT = range(len(OPS))

VALUES: dict[str, tuple[float, ...]] = {
    "advance": (0, 0.15, 0.3, 0.5, 0.75, 1, 1.35, 1.75, 2.25, 2.8, 3.5, 4.3, 5.2, 6.2, 7.5, 9),
    "gate_extra": (0, 0.05, 0.1, 0.2, 0.4),
    "gap_source": (0, 0.04, 0.08, 0.15, 0.25, 0.4, 0.65, 1, 1.6, 2.5),
    "gap_drain": (0, 0.04, 0.08, 0.15, 0.25, 0.4, 0.65, 1, 1.6, 2.5),
    "contact_extra": (0, 0.1, 0.25, 0.4, 0.6, 0.9),
    "contact_share": (0, 0.3, 0.45, 0.6, 0.8, 1, 1.25),
    "lateral": (-0.5, -0.2, -0.1, 0, 0.1, 0.2, 0.5),
    "tilt": (-0.35, -0.15, 0, 0.15, 0.35),
    "overhang": (0.32, 0.45, 0.6, 0.8),
    "out_a": (0.4, 0.9, 1.3, 1.7, 2.3, 3.2, 4.5, 7),
    "out_b": (0.4, 0.9, 1.3, 1.7, 2.3, 3.2, 4.5, 7),
    "bend_at": (0.2, 0.5, 0.8),
    "bend_off": (-9, -6, -4, -2.5, -1.2, 0, 1.2, 2.5, 4, 6, 9),
}
"""Levels of the numeric parameters; um (out_a and out_b: beyond the flake's edge), but contact_share and lateral (share
of the local width), tilt (radians) and bend_at (share of the way). A Box action takes any value between the
first and the last."""

CHOICES: dict[str, int] = {
    "op": len(OPS),
    "region": MAX_REGIONS,
    "undo_region": MAX_REGIONS,
    "branch": N_BRANCHES,
    "reverse": 2,
    "share": 2,
    "layers": 3,
    "side_a": 4,
    "side_b": 4,
}
"""Parameters without order. layers: 0 all that the task has, 1 no pad cover, 2 contacts and gates only. Sides of a
contact: 0 and 1 are its ends along the flake, 2 and 3 those across it."""

COMPONENTS: dict[str, int] = CHOICES | {name: len(levels) for name, levels in VALUES.items()}
"""Action components in order, with their number of levels."""

_USED_BY: dict[int, tuple[str, ...]] = {
    FOCUS: ("region",),
    SELECT: ("branch", "reverse"),
    PLACE: ("share", "layers", "advance", "gate_extra", "gap_source", "gap_drain", "contact_extra", "contact_share",
            "lateral", "tilt", "overhang"),
    JOIN: ("side_a", "side_b", "out_a", "out_b", "bend_at", "bend_off"),
    UNDO: ("undo_region",),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rules:
    """Distance rules of a task, um; where it states none, a usual value. enclosure is None without vias."""

    gate_width: float
    spacing: float
    separation: float
    enclosure: float | None

    @classmethod
    def of(cls, view: TaskView) -> Rules:
        """Read a task's rules."""

        def largest(kind: str) -> float | None:
            return max((r.min_um for r in view.drc_rules if r.kind == kind and r.min_um is not None), default=None)

        via = bool(view.layers_of("via"))
        return cls(
            largest("min_width") or _GATE_UM,
            largest("min_spacing") or _SPACING_UM,
            largest("min_separation") or _SEPARATION_UM,
            (largest("min_enclosure") or 0.0) if via else None,
        )

    @property
    def least_contact(self) -> float:
        """Least contact size that holds a via, or stands for itself."""
        if self.enclosure is None:
            return LEAST_CONTACT_UM
        return max(LEAST_CONTACT_UM, 2 * (self.enclosure + MARGIN_UM) + LEAST_VIA_UM)

    @property
    def pitch(self) -> float:
        """Least length of one more transistor in a row."""
        return self.gate_width + self.least_contact + 2 * (self.separation + MARGIN_UM)


@dataclass
class Row:
    """What was drawn for one flake.

    Attributes:
        want: Transistors asked for.
        spine: The chosen curve; None before that.
        contacts: Contacts in drawing order.
        gates: Gates in drawing order.
        drawn: Macros drawn.
        cursor: Arc length where the last contact ends.
        shapes: Layer -> rectangles.
        tries: How often the flake was begun.
        status: Last verify: 1 nothing wrong was said of it, 0 something was, -1 not verified.
        suspect: A rule began to fail when this row was new.
    """

    want: int
    spine: Spine | None = None
    contacts: list[Rect] = field(default_factory=list)
    gates: list[Rect] = field(default_factory=list)
    drawn: int = 0
    cursor: float = 0.0
    shapes: dict[str, list[Rect]] = field(default_factory=dict)
    tries: int = 0
    status: int = -1
    suspect: bool = False
    fresh: bool = False

    @property
    def complete(self) -> bool:
        """Whether as many macros were drawn as transistors are asked for."""
        return self.drawn >= self.want


Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class WirePath:
    """A drawn wire: its net, what it joins, centre line and width (um)."""

    net: str
    a: Place
    b: Place
    points: tuple[tuple[float, float], ...]
    width: float


class Desk:
    """An agent's notes during one episode: the frames of the task and what was drawn for which flake."""

    def __init__(self, view: TaskView) -> None:
        self.view = view
        self.rules = Rules.of(view)
        self.frames = [frame_of(r) for r in view.regions]
        circuit = view.circuit
        wanted = circuit.exact_per_flake if circuit else tuple(n or 1 for n in view.demand)
        self.rows = [Row(int(n)) for n in wanted]
        self.stacks: tuple[Stack, ...] | None = stacks(circuit) if circuit else None
        self.focus: int | None = None
        self.wires: list[WirePath] = []
        self.left = 0  # units of budget left
        self.dirty = False  # something was drawn since the last verify
        self.quiet: frozenset[str] = frozenset()  # rules that failed in the last verify
        self.quiet_before: frozenset[str] = frozenset()  # and in the one before
        self.shorted = False  # the last verify spoke of nets that are one
        self.wire_fresh = False  # a wire was drawn since the last verify
        self.wire_suspect = False  # something began to fail with the last wire

    # -- what is open ----------------------------------------------------------------------------------------------

    @property
    def open_rows(self) -> list[int]:
        """Flakes with fewer macros than transistors asked for."""
        return [k for k, row in enumerate(self.rows) if not row.complete]

    @property
    def drawn_rows(self) -> list[int]:
        """Flakes with shapes."""
        return [k for k, row in enumerate(self.rows) if row.drawn]

    @property
    def failing_rows(self) -> list[int]:
        """Flakes that the last verify named, or with which a rule began to fail."""
        return [k for k in self.drawn_rows if self.rows[k].status == 0 or self.rows[k].suspect]

    def cost(self, k: int) -> int:
        """Return the edits of a complete row with shared contacts."""
        view, n = self.view, self.rows[k].want
        per_contact = sum(len(view.layers_of(role)) for role in ("contact", "via", "pad cover"))
        return (n + 1) * per_contact + n * sum(len(view.layers_of(role)) for role in ("gate electrode", "dielectric"))

    @property
    def needed(self) -> int:
        """Edits of the rows that are not drawn yet."""
        return sum(self.cost(k) for k in self.open_rows)

    @property
    def undoable(self) -> list[int]:
        """Flakes whose row may be redone: that the last verify speaks against, and within the budget.

        When all is drawn and verified and no flake is named, it may be any.
        """
        if self.dirty or self.wire_suspect:
            return []
        finished = not self.open_rows and self.join() is None
        rows = self.failing_rows or (self.drawn_rows if finished else [])
        return [k for k in rows if self.left > self.needed + self.cost(k) + len(self.rows[k].shapes) + 1]

    def join(self) -> tuple[str, Place, Place] | None:
        """Return the next pair of contacts of one output net that is not joined, or None."""
        if self.stacks is None or self.open_rows:
            return None
        places: dict[str, list[Place]] = {}
        for k, stack in enumerate(self.stacks):
            for i, net in enumerate(stack.nets):
                if net.startswith("OUT") and i < len(self.rows[k].contacts):
                    places.setdefault(net, []).append((k, i))
        for net, spots in places.items():
            joined = {spots[0]}
            mine = [w for w in self.wires if w.net == net]
            for _ in mine:
                joined |= {p for w in mine for p in (w.a, w.b) if w.a in joined or w.b in joined}
            rest = [p for p in spots if p not in joined]
            if rest:
                a, b = min(((p, q) for p in sorted(joined) for q in rest), key=lambda pq: self._distance(*pq))
                return net, a, b
        return None

    def contact(self, place: Place) -> Rect:
        """Return a drawn contact."""
        return self.rows[place[0]].contacts[place[1]]

    def _distance(self, p: Place, q: Place) -> float:
        a, b = self.contact(p), self.contact(q)
        return math.hypot(a.cx - b.cx, a.cy - b.cy)

    def allowed(self) -> tuple[int, ...]:
        """Return the operations that mean something now, at least one.

        A wire is verified before the next one; what the budget cannot pay for is left out.
        """
        if self.focus is not None:
            return (SELECT,) if self.rows[self.focus].spine is None else (PLACE,)
        ops = []
        if self.open_rows:
            ops.append(FOCUS)
        if self.dirty and (self.left > self.needed or not self.open_rows):
            ops.append(VERIFY)
        if not self.wire_fresh and not self.wire_suspect and self.left > _JOIN_COST and self.join() is not None:
            ops.append(JOIN)
        if self.undoable:
            ops.append(UNDO)
        finished = not self.open_rows and self.join() is None
        if self.wires and not self.dirty and (self.wire_suspect or finished) and self.left > 3:
            ops.append(UNWIRE)
        if not self.open_rows:
            ops.append(SUBMIT)
        return tuple(ops)

    def levels(self, name: str) -> list[int]:
        """Return the levels of a component that mean something now."""
        if name == "op":
            return list(self.allowed())
        if not any(name in _USED_BY.get(op, ()) for op in self.allowed()):
            return [0]
        if name == "region":
            return self.open_rows
        if name == "undo_region":
            return self.undoable
        if name == "branch":
            assert self.focus is not None
            return [i for i, s in enumerate(self.frames[self.focus].spines) if s is not None]
        if name in ("share", "advance"):
            assert self.focus is not None
            first = not self.rows[self.focus].contacts
            return [0] if name == "share" and first else list(range(COMPONENTS[name]))
        return list(range(COMPONENTS[name]))

    # -- macros ----------------------------------------------------------------------------------------------------

    def edits(self, action: Mapping[str, Any]) -> list[Edit | Command]:
        """Carry an action out on paper and return its edits.

        Args:
            action: Component -> level of `CHOICES`, or value of `VALUES`.
        """
        op = action["op"]
        if op == FOCUS:
            self.focus = action["region"]
            self.rows[self.focus].tries += 1
            return []
        if op == SELECT:
            assert self.focus is not None
            spine = self.frames[self.focus].spines[action["branch"]]
            assert spine is not None
            self.rows[self.focus].spine = spine.reversed if action["reverse"] else spine
            return []
        if op == VERIFY:
            return [Command.VERIFY]
        if op == SUBMIT:
            return [Command.SUBMIT]
        if op in (UNDO, UNWIRE):
            # What fails is taken to be gone with what was removed; the next verify will tell.
            self.quiet = self.quiet & self.quiet_before
        else:
            self.dirty = True
        if op == PLACE:
            return self._place(action)
        if op == JOIN:
            return self._wire(action)
        if op == UNWIRE:
            self.wire_suspect = self.shorted = False
            self._forget_names()
            return self._unwire(self.wires.pop())
        return self._undo(action["undo_region"])

    def _place(self, action: Mapping[str, Any]) -> list[Edit | Command]:
        assert self.focus is not None
        row, rules = self.rows[self.focus], self.rules
        spine = row.spine
        assert spine is not None
        new: dict[str, list[Rect]] = {}
        length = rules.least_contact + action["contact_extra"]
        s = row.cursor
        if not action["share"]:
            s += action["advance"] + (rules.spacing + MARGIN_UM if row.contacts else 0.0)
            source = self._contact(spine, s + length / 2, length, action)
            row.contacts.append(source)
            self._add_contact(new, source, action["layers"])
            s += length
        gap = rules.separation + MARGIN_UM
        width = rules.gate_width + MARGIN_UM + action["gate_extra"]
        s += gap + action["gap_source"]
        gate = self._gate(spine, s + width / 2, width, action)
        row.gates.append(gate)
        for spec in self.view.layers_of("gate electrode"):
            new.setdefault(spec.name, []).append(gate)
        if action["layers"] < 2:
            for spec in self.view.layers_of("dielectric"):
                new.setdefault(spec.name, []).append(gate.grown(DIELECTRIC_UM))
        s += width + gap + action["gap_drain"]
        drain = self._contact(spine, s + length / 2, length, action)
        row.contacts.append(drain)
        self._add_contact(new, drain, action["layers"])
        row.cursor = s + length
        row.drawn += 1
        row.fresh = True
        if row.complete:
            self.focus = None
        for layer, rects in new.items():
            row.shapes.setdefault(layer, []).extend(rects)
        order = [n for n in self.view.design_order if n in new]
        return [AddPolygon(layer, _rounded(r.corners)) for layer in order for r in new[layer]]

    def _contact(self, spine: Spine, s: float, length: float, action: Mapping[str, Any]) -> Rect:
        x, y, heading = spine.at(s)
        angle = heading + action["tilt"]
        left, right = spine.span(x, y, angle, 0.0)
        local = left + right
        if self.view.architecture == "edge_contacted":
            return self._edge_contact((x, y, angle), (left, right), length, action)
        shift = (left - right) / 2 + action["lateral"] * local
        half = max(self.rules.least_contact, action["contact_share"] * local) / 2
        tx, ty = math.cos(angle), math.sin(angle)
        return Rect(x - shift * ty, y + shift * tx, tx, ty, length / 2, half)

    def _edge_contact(
        self, frame: tuple[float, float, float], reach: tuple[float, float], length: float, action: Mapping[str, Any]
    ) -> Rect:
        """A contact across the flake's edge: on the left where lateral is 0 or more, else on the right.

        It enters the flake by `EDGE_ENTRY_UM` and half of lateral (um), and sticks out by its width.
        """
        x, y, angle = frame
        half = (max(self.rules.least_contact, EDGE_WIDTH_UM) + 0.4 * action["contact_share"]) / 2
        out = half - EDGE_ENTRY_UM - 0.5 * abs(action["lateral"])
        shift = reach[0] + out if action["lateral"] >= 0 else -reach[1] - out
        tx, ty = math.cos(angle), math.sin(angle)
        return Rect(x - shift * ty, y + shift * tx, tx, ty, length / 2, half)

    def _gate(self, spine: Spine, s: float, width: float, action: Mapping[str, Any]) -> Rect:
        x, y, heading = spine.at(s)
        angle = heading + action["tilt"]
        left, right = spine.span(x, y, angle, width / 2)
        tx, ty = math.cos(angle), math.sin(angle)
        shift = (left - right) / 2
        return Rect(x - shift * ty, y + shift * tx, tx, ty, width / 2, (left + right) / 2 + action["overhang"])

    def _add_contact(self, new: dict[str, list[Rect]], contact: Rect, layers: int) -> None:
        (spec,) = self.view.layers_of("contact")
        new.setdefault(spec.name, []).append(contact)
        if layers == 2:
            return
        for spec in self.view.layers_of("via"):
            room = min(contact.hx, contact.hy) - (self.rules.enclosure or 0.0) - MARGIN_UM
            half = max(min(MOST_VIA_UM / 2, room), 0.02)
            new.setdefault(spec.name, []).append(contact.resized(half, half))
        if layers == 0:
            for spec in self.view.layers_of("pad cover"):
                new.setdefault(spec.name, []).append(contact.grown(-PAD_INSET_UM))

    def _wire(self, action: Mapping[str, Any]) -> list[Edit | Command]:
        found = self.join()
        assert found is not None
        wire = self.wire_path(found, action)
        self.wires.append(wire)
        self.wire_fresh = True
        (spec,) = self.view.layers_of("contact")
        return [AddPath(spec.name, wire.points, wire.width)]

    def wire_path(self, pair: tuple[str, Place, Place], action: Mapping[str, Any]) -> WirePath:
        """Return the wire of an action's numbers between two contacts of a net: out, at most one bend, in."""
        net, a, b = pair
        first, second = self.contact(a), self.contact(b)
        width = max(min(MOST_WIRE_UM, 2 * min(first.hx, first.hy, second.hx, second.hy) - 0.16), 0.05)
        start = self._exit(a, action["side_a"], action["out_a"])
        end = self._exit(b, action["side_b"], action["out_b"])
        middle: tuple[tuple[float, float], ...] = ()
        if abs(action["bend_off"]) > 0.05:
            (x1, y1), (x2, y2) = start[1], end[1]
            length = max(math.hypot(x2 - x1, y2 - y1), 1e-6)
            at, off = action["bend_at"], action["bend_off"] / length
            middle = ((x1 + at * (x2 - x1) - off * (y2 - y1), y1 + at * (y2 - y1) + off * (x2 - x1)),)
        points = _rounded(chamfered((*start, *middle, end[1], end[0])))
        return WirePath(net, a, b, points, round(width, 3))

    def way_out(self, place: Place, side: int) -> tuple[tuple[float, float], tuple[float, float], float]:
        """Return the middle of a contact's side, the direction out of it, and how far the flake's edge is there, um."""
        contact = self.contact(place)
        sign = 1.0 if side % 2 else -1.0
        half = contact.hx if side < 2 else contact.hy
        x, y = contact.at(sign * half, 0.0) if side < 2 else contact.at(0.0, sign * half)
        d = (sign * contact.tx, sign * contact.ty) if side < 2 else (-sign * contact.ty, sign * contact.tx)
        hits, _, inside = two_nearest(self.frames[place[0]].flake.rays(np.array([[x, y]]), np.array([d])))
        return (x, y), d, float(hits[0]) if inside[0] else 0.0

    def _exit(self, place: Place, side: int, out: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return a point inside a contact and one straight out of one of its sides, beyond the flake's edge."""
        contact = self.contact(place)
        (x, y), (dx, dy), edge = self.way_out(place, side)
        back = min(0.15, contact.hx if side < 2 else contact.hy)
        return (x - back * dx, y - back * dy), (x + (edge + out) * dx, y + (edge + out) * dy)

    def _unwire(self, wire: WirePath) -> list[Edit | Command]:
        """Cut a wire and draw again what else was cut: its two contacts, and others that it ran over."""
        (spec,) = self.view.layers_of("contact")
        cut = self._cut_wire(spec.name, wire)
        return [cut, *self._redrawn(spec.name, shapely.Polygon(cut.points), -1)]

    def _redrawn(self, layer: str, hole: Any, skip: int) -> list[Edit | Command]:
        """Contacts of all rows but one, and wires, that meet a cut."""
        contacts = [c for k, row in enumerate(self.rows) if k != skip for c in row.contacts]
        again: list[Edit | Command] = [
            AddPolygon(layer, _rounded(c.corners)) for c in contacts if hole.intersects(shapely.Polygon(c.corners))
        ]
        crossed = [w for w in self.wires if hole.intersects(shapely.LineString(w.points).buffer(w.width / 2))]
        return [*again, *(AddPath(layer, w.points, w.width) for w in crossed)]

    @staticmethod
    def _cut_wire(layer: str, wire: WirePath) -> Cut:
        line = shapely.LineString(wire.points).buffer(wire.width / 2 + 0.02, cap_style="flat", join_style="mitre")
        return Cut(layer, _rounded(tuple(line.exterior.coords)[:-1]))

    def _forget_names(self) -> None:
        """What a verify said with a bad wire in place says nothing about rows."""
        for row in self.rows:
            if row.status == 0:
                row.status = 1

    def _undo(self, k: int) -> list[Edit | Command]:
        """Remove a flake's row and the wires that begin or end there."""
        (spec,) = self.view.layers_of("contact")
        edits: list[Edit | Command] = []
        for wire in [w for w in self.wires if k in (w.a[0], w.b[0])]:
            self.wires.remove(wire)
            cut = self._cut_wire(spec.name, wire)
            edits += [cut, *self._redrawn(spec.name, shapely.Polygon(cut.points), k)]
        row = self.rows[k]
        for layer, rects in row.shapes.items():
            hull = shapely.MultiPoint([c for r in rects for c in r.grown(0.02).corners]).convex_hull
            others = [
                shapely.Polygon(r.corners) for j, o in enumerate(self.rows) if j != k for r in o.shapes.get(layer, ())
            ]
            if layer == spec.name:
                others += [shapely.LineString(w.points).buffer(w.width / 2) for w in self.wires]
            if any(hull.intersects(o) for o in others):
                edits += [Cut(layer, _rounded(r.grown(0.02).corners)) for r in rects]
            else:
                edits.append(Cut(layer, _rounded(tuple(hull.exterior.coords)[:-1])))
        self.rows[k] = Row(row.want, tries=row.tries)
        return edits

    # -- what verifies say -----------------------------------------------------------------------------------------

    def heard(self, info: Mapping[str, Any]) -> None:
        """Take note of a verify's messages: which flakes they name, which rules fail that did not before."""
        self.dirty = False
        verdict = info["verdict"]
        ids, lines = str(verdict["failed"]).split(", "), str(verdict["messages"]).split("\n")
        said = dict(zip(ids, lines))
        netlist = said.pop("strict_netlist", "")
        words = {word for line in said.values() for word in line.replace(":", " ").replace(",", " ").split()}
        rules = frozenset(i for i in said if i.startswith(("min_", "must_not", "strict_via", "strict_stray")))
        worse = bool(rules - self.quiet)
        shorted = "are one net" in netlist
        self.wire_suspect = self.wire_fresh and bool(self.wires) and (worse or (shorted and not self.shorted))
        for k, row in enumerate(self.rows):
            if row.drawn and row.complete:
                row.status = int(self.view.regions[k].name not in words)
                if row.fresh:
                    row.suspect = worse
            row.fresh = False
        self.quiet_before, self.quiet = self.quiet, rules
        self.shorted, self.wire_fresh = shorted, False


def _rounded(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    return tuple((round(float(x), 3), round(float(y), 3)) for x, y in points)


def chamfered(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Return a centre line with bends of over 45 degrees taken in two turns, `CHAMFER_UM` before and after."""
    xy = np.asarray(points, float)
    line = [tuple(xy[0])]
    for a, b, c in zip(xy, xy[1:], xy[2:]):
        back, on = a - b, c - b
        lengths = math.hypot(*back), math.hypot(*on)
        if min(lengths) < 1e-3:
            continue
        if -float(back @ on) / (lengths[0] * lengths[1]) > math.cos(math.radians(45)):
            line.append(tuple(b))
            continue
        cut = min(CHAMFER_UM, 0.45 * min(lengths))
        line += [tuple(b + back * cut / lengths[0]), tuple(b + on * cut / lengths[1])]
    return (*((float(x), float(y)) for x, y in line), (float(xy[-1, 0]), float(xy[-1, 1])))


class TransistorMacro(PlainWrapper):
    """Transistor macros as actions, local frames as observations.

    An episode goes flake by flake: *focus* a flake, *select* a curve along it, *place* transistors along the curve,
    each from free numbers; *join* contacts of a circuit's output by a wire; *verify*, *undo* a flake, *unwire* the last
    wire, *submit*. Focus and select draw nothing and are free; the rest costs what its edits cost.

    Args:
        env: A FET environment.
        actions: ``"discrete"``: MultiDiscrete over `COMPONENTS`, with `action_masks`. ``"box"``: one number in -1..1
            per component; choices are scaled onto what is allowed, so that no mask is needed.
    """

    privileged = False
    free_steps = True

    def __init__(self, env: gym.Env[Any, Any], actions: Literal["discrete", "box"] = "discrete") -> None:
        gym.utils.RecordConstructorArgs.__init__(self, actions=actions)
        gym.Wrapper.__init__(self, env)
        if actions not in ("discrete", "box"):
            raise ValueError(f"actions must be 'discrete' or 'box', got {actions!r}")
        self._box = actions == "box"
        n = len(COMPONENTS)
        self.action_space = Box(-1.0, 1.0, (n,), np.float32) if self._box else MultiDiscrete(list(COMPONENTS.values()))
        self.observation_space = Box(-5.0, 5.0, (SIZE,), np.float32)
        self._desk: Desk | None = None

    @property
    def desk(self) -> Desk:
        """The episode's notes."""
        assert self._desk is not None, "there are no notes before reset()"
        return self._desk

    def begin(self) -> None:
        """Start with an empty desk."""
        self._desk = Desk(self.base.view)
        self._desk.left = self.base.budget_left

    def encode(self, observation: dict[str, Any], info: dict[str, Any]) -> np.ndarray:
        """Return the vector of `edagym.wrappers.fet_features`."""
        return encode(self.desk, observation, self.base.budget)

    def to_edits(self, action: Any) -> list[Edit | Command]:
        """Return the edits of a macro; empty for focus and select."""
        return self.desk.edits(self._named(action))

    def after(self, edits: Sequence[Any], results: Sequence[StepResult]) -> None:
        """Read what a verify said, and what is left."""
        self.desk.left = self.base.budget_left
        if edits and edits[-1] is Command.VERIFY and len(results) == len(edits):
            self.desk.heard(results[-1][4])

    def action_masks(self) -> np.ndarray:
        """Return for every level of every component whether it means something now; never all-false."""
        masks = []
        for name, n in COMPONENTS.items():
            mask = np.zeros(n, bool)
            mask[self.desk.levels(name)] = True
            masks.append(mask)
        return np.concatenate(masks)

    def _named(self, action: Any) -> dict[str, Any]:
        numbers = np.asarray(action, float).reshape(-1)
        named: dict[str, Any] = {}
        for (name, n), number in zip(COMPONENTS.items(), numbers.tolist()):
            if name in VALUES:
                where = (number + 1) / 2 * (n - 1) if self._box else number
                named[name] = float(np.interp(where, np.arange(n), VALUES[name]))
                continue
            levels = self.desk.levels(name)
            if self._box:
                named[name] = levels[min(int((min(max(number, -1.0), 1.0) + 1) / 2 * len(levels)), len(levels) - 1)]
            else:
                # A level that means nothing now stands for the first that does, as in a policy without masks.
                named[name] = int(number) if int(number) in levels else levels[0]
        return named
