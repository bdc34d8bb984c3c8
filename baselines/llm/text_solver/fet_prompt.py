"""What a FET prompt says, as data. Everything is read from the text; what the text lacks gets a modest default.

Coordinates and lengths are micrometres.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MARK = "Flakes (fixed; boundary vertices in um):"
"""The line that every FET prompt has."""

Point = tuple[float, float]
Ring = tuple[Point, ...]

# What is assumed where the prompt states no rule, um.
DEFAULT_WIDTH = 0.3
DEFAULT_SPACING = 0.05
DEFAULT_ENCLOSURE = 0.1

_POINT = re.compile(r"\((-?\d+(?:\.\d+)?), (-?\d+(?:\.\d+)?)\)")
_FLAKE = re.compile(r"^(\w+)(?: \[([^\]]*)\])?: (\(.*)$")
_NUMBER = r"(\d+(?:\.\d+)?(?:e-?\d+)?) um"
_PAIR_RULES = {
    "spacing": re.compile(rf"^- (\w+): spacing at least {_NUMBER}$", re.M),
    "width": re.compile(rf"^- (\w+): width at least {_NUMBER}$", re.M),
    "separation": re.compile(rf"^- (\w+) and (\w+): separation at least {_NUMBER}$", re.M),
    "enclosure": re.compile(rf"^- (\w+) encloses (\w+) by at least {_NUMBER}$", re.M),
}


@dataclass(frozen=True)
class Flake:
    """One flake of the prompt.

    Attributes:
        name: Its name.
        hull: Outer ring.
        holes: Inner rings.
        demand: Transistors asked for (1 where the prompt says nothing).
        nets: Nets of the pieces along it, for circuits; one more than `gates`.
        gates: Nets of the gates along it, for circuits.
        guide: The suggested line along it: source zone, gate crossing, drain zone. Empty without a suggestion.
    """

    name: str
    hull: Ring
    holes: tuple[Ring, ...]
    demand: int
    nets: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    guide: Ring = ()


@dataclass(frozen=True)
class Problem:
    """A FET task as the prompt states it.

    Attributes:
        flakes: The flakes.
        layers: Names of the editable layers by role ("contact", "gate electrode", "via", "pad cover", "dielectric").
        edge_contacted: Whether contacts meet the flakes at their boundary.
        width: Least width of gates.
        spacing: Least spacing of contacts.
        separation: Least separation of contacts and gates, and of vias and gates.
        enclosure: Least enclosure of vias by contacts.
    """

    flakes: tuple[Flake, ...]
    layers: dict[str, tuple[str, ...]]
    edge_contacted: bool
    width: float
    spacing: float
    separation: float
    enclosure: float

    @property
    def contact(self) -> str:
        """Name of the contact layer."""
        return self.layers["contact"][0]


def read_prompt(text: str) -> Problem | None:
    """Return what a prompt states, or None if it is none or its flakes or contact layer cannot be read."""
    start = text.find(MARK)
    if start < 0:
        return None
    body = text[start + len(MARK) :]
    layers = _layers(body)
    raw = _flakes(body.split("\nLayers", 1)[0])
    if not raw or "contact" not in layers:
        return None
    stacks = {name: _stack(line) for name, line in _after(body, "Circuit order along each flake")}
    guides = {name: tuple(_points(line)) for name, line in _after(body, "Derived constraints")}
    flakes = []
    for name, label, hull, holes in raw:
        nets, gates = stacks.get(name, ((), ()))
        demand = _demand(label, name, text[:start], len(raw))
        if len(gates) != demand:  # a prompt without the demand, or without the circuit order
            nets, gates = (), ()
        flakes.append(Flake(name, hull, holes, demand, nets, gates, _guide(guides.get(name, ()))))
    return Problem(
        flakes=tuple(flakes),
        layers=layers,
        edge_contacted="Architecture: edge-contacted" in text,
        width=_limit(body, "width", layers["contact"][0], DEFAULT_WIDTH),
        spacing=_limit(body, "spacing", "", DEFAULT_SPACING),
        separation=_limit(body, "separation", "", DEFAULT_SPACING),
        enclosure=_limit(body, "enclosure", "", DEFAULT_ENCLOSURE),
    )


def _points(text: str) -> list[Point]:
    return [(float(x), float(y)) for x, y in _POINT.findall(text)]


def _flakes(text: str) -> list[tuple[str, str, Ring, tuple[Ring, ...]]]:
    found: list[tuple[str, str, Ring, list[Ring]]] = []
    for line in text.splitlines():
        if line.startswith("  hole:") and found:
            found[-1][3].append(tuple(_points(line)))
        elif match := _FLAKE.match(line):
            found.append((match[1], match[2] or "", tuple(_points(match[3])), []))
    return [(name, label, hull, tuple(holes)) for name, label, hull, holes in found]


def _layers(text: str) -> dict[str, tuple[str, ...]]:
    layers: dict[str, tuple[str, ...]] = {}
    for name, role, status in re.findall(r"^(\w+), \d+/\d+, ([\w ]+), ([\w-]+)$", text, re.M):
        if status == "editable":
            layers[role] = (*layers.get(role, ()), name)
    return layers


def _after(text: str, heading: str) -> list[tuple[str, str]]:
    """Return (name, rest) of the lines ``name: rest`` right after the line that starts with a heading."""
    match = re.search(rf"^{heading}.*\n((?:\w+: .*\n)*)", text, re.M)
    return [] if match is None else [tuple(line.split(": ", 1)) for line in match[1].splitlines()]  # type: ignore[misc]


def _stack(line: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    words = line.split()
    return tuple(words[::2]), tuple(word.strip("<>") for word in words[1::2])


def _guide(points: tuple[Point, ...]) -> Ring:
    """Order the points of a suggestion (crossing, source from-to, drain from-to, or without crossing) along it."""
    if len(points) == 5:
        crossing, *zones = points
        return (*zones[:2], crossing, *zones[2:])
    return points if len(points) == 4 else ()


def _demand(label: str, name: str, objective: str, n_flakes: int) -> int:
    if match := re.search(r"(?:exactly|at least) (\d+) transistor", label):
        return int(match[1])
    if match := re.search(rf"(\d+) on {name}\b", objective):
        return int(match[1])
    if match := re.search(r"(\d+) transistors? (?:per|on each|on the) flake", objective):
        return int(match[1])
    return 1


def _limit(text: str, kind: str, ignored_layer: str, default: float) -> float:
    """Return the largest limit of a kind, so that one value serves all layers."""
    found = [match for match in _PAIR_RULES[kind].findall(text) if match[0] != ignored_layer]
    return max((float(match[-1]) for match in found), default=default)
