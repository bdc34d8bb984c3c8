"""Repairs of design rule violations from text alone: the violation list, and the answers to queries.

Geometry is rectilinear, in database units of the cell that a violation is reported in. For each kind of rule a few
edits are tried in order, smallest change first: an edge is moved by the reported deficit, a bump is cut off, a via is
moved or resized onto its line, a line is made longer. Every edit replaces a known outline by another one, so that what
has been drawn is known without asking again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .posteda_step import Action, Step

Point = tuple[int, int]
Outline = tuple[Point, ...]
Edge = tuple[Point, Point]
Box = tuple[int, int, int, int]

_NUMBER = r"(\d+(?:\.\d+)?)"
_SHAPE = re.compile(
    r"^\[\d+\] (\S+) in (\S+), distance [\d.e+-]+: ([^;\n]*)"
    r"(?:; placed (\w+) \*1 (-?\d+),(-?\d+), in its own frame: [^\n]*)?$",
    re.MULTILINE,
)
_POINT = re.compile(r"\((-?\d+),(-?\d+)\)")


@dataclass(frozen=True)
class Violation:
    """One item of the report.

    Attributes:
        rule: Rule id.
        description: Its words.
        cell: Cell in whose frame the geometry is.
        kind: ``"edge_pair"``, ``"edge"`` or ``"polygon"``.
        points: Geometry, database units.
    """

    rule: str
    description: str
    cell: str
    kind: str
    points: Outline

    @property
    def box(self) -> Box:
        """Bounding box."""
        return bounds(self.points)

    def layers(self) -> list[str]:
        """Return the layers that the description names, in order, and that of the rule's name."""
        named = re.findall(r"\b(?:[MV]\d|[A-Z]{3,})\b", self.description)
        return list(dict.fromkeys([*named, self.rule.split(".")[0]]))

    def need(self, dbu: float) -> int:
        """Return the first length of the description, database units; 0 if there is none."""
        match = re.search(_NUMBER + r" nm\b", self.description)
        return round(float(match[1]) * 0.001 / dbu) if match else 0


@dataclass
class Shape:
    """A shape that a query has shown.

    Attributes:
        layer: Layer.
        frame: The cell that was asked about: `points` are in its frame.
        points: Outline.
        owner: The cell that holds the shape and in which it can be edited.
        turn: Orientation of the owner in the frame.
        at: Displacement of the owner in the frame.
        base: Outline after the last check that brought progress: what repairs start from.
        tried: Outlines that it was given since.
    """

    layer: str
    frame: str
    points: Outline
    owner: str
    turn: str = "r0"
    at: Point = (0, 0)
    base: Outline = ()
    tried: list[Outline] = field(default_factory=list)

    def same(self, other: Shape) -> bool:
        """Return whether this is another mention of a shape."""
        mine = (self.layer, self.frame, self.owner, self.points, self.at)
        return mine == (other.layer, other.frame, other.owner, other.points, other.at)

    def own(self, points: Outline) -> Outline:
        """Return points of the frame in the owner's frame."""
        back = _TURNS[{"r90": "r270", "r270": "r90"}.get(self.turn, self.turn)]
        return tuple(back(x - self.at[0], y - self.at[1]) for x, y in points)

    def framed(self, points: Outline) -> Outline:
        """Undo `own`."""
        return tuple((x + self.at[0], y + self.at[1]) for x, y in (_TURNS[self.turn](*p) for p in points))


_TURNS: dict[str, Callable[[int, int], Point]] = {
    "r0": lambda x, y: (x, y),
    "r90": lambda x, y: (-y, x),
    "r180": lambda x, y: (-x, -y),
    "r270": lambda x, y: (y, -x),
    "m0": lambda x, y: (x, -y),
    "m45": lambda x, y: (y, x),
    "m90": lambda x, y: (-x, y),
    "m135": lambda x, y: (-y, -x),
}
"""Orientations: what becomes of a point."""


def read_violations(text: str, dbu: float) -> list[Violation]:
    """Return the violations of a report in a text."""
    found = []
    for line in re.findall(r"^\[\d+\] (\{.*\})$", text, re.MULTILINE):
        item = ast.literal_eval(line)
        value = str(item["values"][0])
        numbers = [float(v) for v in re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", value.split(":", 1)[1])]
        points = tuple((round(x / dbu), round(y / dbu)) for x, y in zip(numbers[::2], numbers[1::2]))
        kind = value.split(":")[0].replace("-", "_")
        found.append(Violation(item["category"], item["description"], item["cell_name"], kind, points))
    return found


def read_points(text: str) -> Outline:
    """Return the points ``(x,y)`` of a text."""
    return tuple((int(x), int(y)) for x, y in _POINT.findall(text))


def bounds(points: Outline) -> Box:
    """Return the bounding box of points."""
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return (min(xs), min(ys), max(xs), max(ys))


def touches(a: Box, b: Box, near: int = 0) -> bool:
    """Return whether two boxes are at most `near` apart."""
    return max(a[0], b[0]) <= min(a[2], b[2]) + near and max(a[1], b[1]) <= min(a[3], b[3]) + near


class Repairer:
    """Knows what was reported, asked and done so far, and says what could be done next.

    Args:
        prompt: The task's prompt.
        steps: What has been done.
        avoid: Actions not to take.
    """

    def __init__(self, prompt: str, steps: list[Step], avoid: list[Action]) -> None:
        match = re.search(r"1 database unit is " + _NUMBER, prompt)
        self.dbu = float(match[1]) if match else 0.001
        top = re.search(r"^Top Cell: (\S+)$", prompt, re.MULTILINE)
        self.top = top[1] if top else ""
        self.violations = read_violations(prompt, self.dbu)
        self.latest = self.violations
        self.steps, self.avoid = steps, avoid
        self.shapes: list[Shape] = []
        self.asked: set[tuple[str, Outline]] = set()
        self.open_edits: list[tuple[str, Box]] = []
        for step in steps:
            self._follow(step)

    def _follow(self, step: Step) -> None:
        action = step.action
        if step.refused:
            return
        if action["op"] in ("query", "vision_query"):
            points = tuple((p[0], p[1]) for p in action["points"])
            if action["op"] == "query":
                self.asked.add((action.get("cell") or "", points))
            frame = action.get("cell") or self.top
            for layer, owner, outline, turn, x, y in _SHAPE.findall(step.outcome):
                at = (int(x), int(y)) if turn else (0, 0)
                shape = Shape(layer, frame, read_points(outline), owner, turn or "r0", at)
                shape.base = shape.points
                if shape.points and not any(shape.same(s) for s in self.shapes):
                    self.shapes.append(shape)
        elif action["op"] == "check":
            if "violations" in step.outcome.lower() or "Top Cell" in step.outcome:
                self.latest = read_violations(step.outcome, self.dbu)
                if len(self.latest) < len(self.violations):
                    self._go_on()
            self.open_edits.clear()
        elif action["op"] == "change_shape":
            owner = action.get("cell") or self.top
            old = tuple((p[0], p[1]) for p in action["shape"]["points"])
            new = tuple((p[0], p[1]) for p in action["points"])
            for shape in self.shapes:
                if (shape.layer, shape.owner) == (action["layer"], owner) and shape.own(shape.points) == old:
                    before, shape.points = shape.points, shape.framed(new)
                    shape.tried.append(shape.points)
                    self.open_edits.append((shape.frame, bounds((*before, *shape.points))))

    def _go_on(self) -> None:
        """Take what the last check found as what to repair, and the shapes as they are as what to start from."""
        self.violations = self.latest
        for shape in self.shapes:
            shape.base, shape.tried = shape.points, []

    @property
    def units(self) -> int:
        """Units left, as far as the answers say so; a large number before the first."""
        for step in reversed(self.steps):
            found = re.findall(r"Units left: (\d+)", step.outcome)
            if found:
                return int(found[-1])
        return 99

    def options(self) -> list[Action]:
        """Return what could be done next, best first; never empty."""
        out = self._changes()
        if not out and not self.open_edits and self.latest is not self.violations:
            self._go_on()
            out = self._changes()
        if self.open_edits:
            out.insert(0 if self.units <= 1 else len(out), {"op": "check"})
        return [*out, {"op": "submit"}]

    def _changes(self) -> list[Action]:
        """Return queries and edits for the violations about which nothing has been done since the last check."""
        out: list[Action] = []
        for v in self.violations:
            if any(frame == v.cell and touches(box, v.box, 40) for frame, box in self.open_edits):
                continue  # a check will tell
            if ("" if v.cell == self.top else v.cell, v.points) not in self.asked:
                out.append(self.query(v))
                continue
            out += [
                self._edit(shape, new)
                for shape, new in self.repairs(v)
                if self._sound(new) and new not in (shape.points, *shape.tried)
            ]
        return [a for a in out if a not in self.avoid]

    def query(self, v: Violation, op: str = "query") -> Action:
        """Return the query for the shapes at a violation."""
        return {
            "op": op,
            "level": "first",
            "kind": v.kind,
            "points": [list(p) for p in v.points],
            "cell": "" if v.cell == self.top else v.cell,
            "direct_layers": None,
            "context_layers": None,
            "start": 0,
            "stop": 60,
        }

    def _edit(self, shape: Shape, new: Outline) -> Action:
        return {
            "op": "change_shape",
            "layer": shape.layer,
            "shape": {"points": [list(p) for p in shape.own(shape.points)]},
            "change": "replace",
            "points": [list(p) for p in shape.own(new)],
            "cell": "" if shape.owner == self.top else shape.owner,
        }

    @staticmethod
    def _sound(outline: Outline) -> bool:
        x1, y1, x2, y2 = bounds(outline)
        return x2 > x1 and y2 > y1 and len(set(outline)) >= 4

    # -- repairs ---------------------------------------------------------------------------------------------------

    def repairs(self, v: Violation) -> Iterator[tuple[Shape, Outline]]:
        """Yield edits for a violation: a shape and its new outline."""
        text, need = v.description, v.need(self.dbu)
        layers = v.layers()
        own = [s for s in self.shapes if s.frame == v.cell and touches(bounds(s.base), v.box)]
        if " must lie in " in text:
            yield from self._inside(v, own, layers)
        elif " as wide as its " in text:
            yield from self._as_wide(own, layers)
        elif " must reach at least " in text and " beyond V" in text:
            yield from self._reach(v, own, layers, need)
        elif " area of at least " in text:
            yield from self._area(v, own, layers)
        elif " multiple of " in text:
            yield from self._multiple(own, layers, need)
        elif " long from " in text:
            yield from self._longer(own, layers, need, "left to right" in text)
        elif v.kind == "edge_pair" and " wide" in text:
            yield from self._wider(v, own, layers, need)
        elif " apart" in text or " gap" in text:
            yield from self._apart(v, layers, need)

    def _wider(self, v: Violation, own: list[Shape], layers: list[str], need: int) -> Iterator[tuple[Shape, Outline]]:
        a, b = (v.points[0], v.points[1]), (v.points[2], v.points[3])
        side = 0 if a[0][0] == a[1][0] else 1
        lack = need - abs(a[0][side] - b[0][side])
        found: list[tuple[int, Shape, Outline]] = []
        for shape in own:
            if shape.layer != layers[0]:
                continue
            for edge, other in ((a, b), (b, a)):
                i = edge_at(shape.base, edge)
                if i is None:
                    continue
                outward = 1 if edge[0][side] > other[0][side] else -1
                found.append((lack, shape, shifted(shape.base, i, outward * lack)))
                # A bump between the two edges is cut off where it is lower than the deficit.
                for cap in (i - 1, i + 1):
                    low = bump(shape.base, cap, i)
                    if low:
                        found.append((abs(low), shape, shifted(shape.base, cap, low)))
        # A via keeps its middle where it has one: the edge nearer to the origin of a master moves.
        found.sort(key=lambda f: (f[0], _off_centre(bounds(f[2]))))
        for _, shape, new in found:
            yield shape, new

    def _apart(self, v: Violation, layers: list[str], need: int) -> Iterator[tuple[Shape, Outline]]:
        edges: list[Edge]
        if v.kind == "edge_pair":
            edges = [(v.points[0], v.points[1]), (v.points[2], v.points[3])]
        elif v.kind == "edge":
            rest = [w for w in self.violations if w.rule == v.rule and w.cell == v.cell and w is not v]
            edges = [(v.points[0], v.points[1]), *((w.points[0], w.points[1]) for w in rest if w.kind == "edge")][:2]
        else:
            x1, y1, x2, y2 = v.box
            edges = [((x1, y1), (x1, y2)), ((x2, y1), (x2, y2))]
            if abs(need - (y2 - y1)) < abs(need - (x2 - x1)):
                edges = [((x1, y1), (x2, y1)), ((x1, y2), (x2, y2))]
        if len(edges) < 2:
            return
        a, b = edges
        side = 0 if a[0][0] == a[1][0] else 1
        lack = need - abs(a[0][side] - b[0][side])
        for edge, other in ((a, b), (b, a)):
            away = 1 if edge[0][side] > other[0][side] else -1
            for shape in self.shapes:
                i = edge_at(shape.base, edge) if shape.frame == v.cell and shape.layer in layers else None
                if i is not None:
                    yield shape, shifted(shape.base, i, away * lack)
                    by = (away * lack, 0) if side == 0 else (0, away * lack)
                    yield shape, tuple((x + by[0], y + by[1]) for x, y in shape.base)

    def _inside(self, v: Violation, own: list[Shape], layers: list[str]) -> Iterator[tuple[Shape, Outline]]:
        x1, y1, x2, y2 = v.box
        for via in own:
            if via.layer != layers[0] or not touches(bounds(via.base), v.box):
                continue
            left, bottom, right, top = bounds(via.base)
            if y2 - y1 == top - bottom and x2 - x1 < right - left:
                by = ((x2 - x1) if x1 == left else (x1 - x2), 0)
            elif x2 - x1 == right - left and y2 - y1 < top - bottom:
                by = (0, (y2 - y1) if y1 == bottom else (y1 - y2))
            else:
                continue
            yield via, tuple((x + by[0], y + by[1]) for x, y in via.base)
            cut = (
                max(left, left + by[0]),
                max(bottom, bottom + by[1]),
                min(right, right + by[0]),
                min(top, top + by[1]),
            )
            yield via, ring(cut)
            for metal in own:
                if metal.layer in layers[1:] and not contains(bounds(metal.base), v.box):
                    box = bounds(metal.base)
                    grown = (min(box[0], x1), min(box[1], y1), max(box[2], x2), max(box[3], y2))
                    if len(metal.base) == 4:
                        yield metal, ring(grown)

    def _as_wide(self, own: list[Shape], layers: list[str]) -> Iterator[tuple[Shape, Outline]]:
        for via in own:
            for line in own:
                if (
                    via.layer != layers[0]
                    or line.layer != layers[1]
                    or not touches(bounds(via.base), bounds(line.base))
                ):
                    continue
                x1, y1, x2, y2 = bounds(via.base)
                a1, b1, a2, b2 = bounds(line.base)
                new = (x1, b1, x2, b2) if a2 - a1 >= b2 - b1 else (a1, y1, a2, y2)
                if new != (x1, y1, x2, y2):
                    yield via, ring(new)

    def _reach(self, v: Violation, own: list[Shape], layers: list[str], need: int) -> Iterator[tuple[Shape, Outline]]:
        x1, y1, x2, y2 = v.box
        longest = max([need, *(round(float(n) * 0.001 / self.dbu) for n in re.findall(_NUMBER + " nm", v.description))])
        for line in own:
            if line.layer != layers[0] or len(line.base) != 4:
                continue
            a1, b1, a2, b2 = bounds(line.base)
            along = (a2 - a1) >= (b2 - b1)
            for reach in dict.fromkeys((need, longest)):
                wide = (min(a1, x1 - reach), b1, max(a2, x2 + reach), b2)
                tall = (a1, min(b1, y1 - reach), a2, max(b2, y2 + reach))
                for new in (wide, tall) if along else (tall, wide):
                    if new != (a1, b1, a2, b2):
                        yield line, ring(new)

    def _area(self, v: Violation, own: list[Shape], layers: list[str]) -> Iterator[tuple[Shape, Outline]]:
        match = re.search(r"area of at least " + _NUMBER, v.description)
        least = float(match[1]) * 1e-6 / self.dbu**2 if match else 0.0
        for shape in own:
            if shape.layer != layers[0] or len(shape.base) != 4:
                continue
            x1, y1, x2, y2 = bounds(shape.base)
            w, h = x2 - x1, y2 - y1
            step = max(round(0.001 / self.dbu), 1)
            lack = -(-(least - w * h) // min(w, h))
            lack = int(-(-lack // step) * step)
            if w >= h:
                yield shape, ring((x1, y1, x2 + lack, y2))
                yield shape, ring((x1 - lack, y1, x2, y2))
            else:
                yield shape, ring((x1, y1, x2, y2 + lack))
                yield shape, ring((x1, y1 - lack, x2, y2))

    def _multiple(self, own: list[Shape], layers: list[str], unit: int) -> Iterator[tuple[Shape, Outline]]:
        for shape in own:
            if shape.layer != layers[0] or len(shape.base) != 4 or not unit:
                continue
            x1, y1, x2, y2 = bounds(shape.base)
            over = (y2 - y1) % unit
            for change in sorted((-over, unit - over), key=abs):
                if over and y2 - y1 + change > 0:
                    yield shape, ring((x1, y1, x2, y2 + change))
                    yield shape, ring((x1, y1 - change, x2, y2))

    def _longer(self, own: list[Shape], layers: list[str], need: int, wide: bool) -> Iterator[tuple[Shape, Outline]]:
        for shape in own:
            if shape.layer != layers[0] or len(shape.base) != 4:
                continue
            x1, y1, x2, y2 = bounds(shape.base)
            lack = need - ((x2 - x1) if wide else (y2 - y1))
            if lack > 0 and wide:
                yield shape, ring((x1, y1, x2 + lack, y2))
                yield shape, ring((x1 - lack, y1, x2, y2))
            elif lack > 0:
                yield shape, ring((x1, y1, x2, y2 + lack))
                yield shape, ring((x1, y1 - lack, x2, y2))


def ring(box: Box) -> Outline:
    """Return a box's outline."""
    x1, y1, x2, y2 = box
    return ((x1, y1), (x1, y2), (x2, y2), (x2, y1))


def contains(outer: Box, inner: Box) -> bool:
    """Return whether a box lies in another one."""
    return outer[0] <= inner[0] and outer[1] <= inner[1] and outer[2] >= inner[2] and outer[3] >= inner[3]


def edge_at(outline: Outline, edge: Edge) -> int | None:
    """Return the index of the outline's axis-parallel edge that overlaps an edge on the same line, or None."""
    side = 0 if edge[0][0] == edge[1][0] else 1
    low, high = sorted((edge[0][1 - side], edge[1][1 - side]))
    for i, p in enumerate(outline):
        q = outline[(i + 1) % len(outline)]
        if p[side] == q[side] == edge[0][side] and p[1 - side] != q[1 - side]:
            a, b = sorted((p[1 - side], q[1 - side]))
            if max(a, low) < min(b, high):
                return i
    return None


def shifted(outline: Outline, i: int, by: int) -> Outline:
    """Return a rectilinear outline with edge `i` displaced by a number of units along x or y."""
    n = len(outline)
    i %= n
    side = 0 if outline[i][0] == outline[(i + 1) % n][0] else 1
    out = [list(p) for p in outline]
    for k in (i, (i + 1) % n):
        out[k][side] += by
    return tidy(tuple((x, y) for x, y in out))


def tidy(outline: Outline) -> Outline:
    """Return an outline without repeated points and points on a straight line."""
    points = list(outline)
    while True:
        n = len(points)
        for i in range(n):
            (ax, ay), (bx, by), (cx, cy) = points[i - 1], points[i], points[(i + 1) % n]
            if (bx - ax) * (cy - by) == (by - ay) * (cx - bx):
                del points[i]
                break
        else:
            return tuple(points)
        if len(points) < 3:
            return tuple(points)


def bump(outline: Outline, cap: int, edge: int) -> int:
    """Return by how much the edge `cap`, next to `edge`, has to move to cut off the bump that ends in it; 0: none."""
    n = len(outline)
    cap %= n
    side = 0 if outline[cap][0] == outline[(cap + 1) % n][0] else 1
    before, after = outline[cap - 1], outline[(cap + 2) % n]
    here = outline[cap][side]
    to = [p[side] - here for p in (before, after)]
    if n <= 4 or to[0] * to[1] <= 0:
        return 0
    return min(to, key=abs)


def _off_centre(box: Box) -> int:
    return abs(box[0] + box[2]) + abs(box[1] + box[3])
