"""Report geometry as text (KLayout's notation) <-> numbers."""

from __future__ import annotations

import re
from typing import Literal

from edagym.errors import TaskError

Kind = Literal["polygon", "edge", "edge_pair"]
Points = tuple[tuple[float, float], ...]

_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
_POINT = re.compile(rf"({_NUMBER}),({_NUMBER})")
_VALUE = re.compile(r"(polygon|edge|edge-pair|box): ?\(.*\)")


def parse_value(text: str) -> tuple[Kind, tuple[Points, ...]]:
    """Parse one value of a report.

    Args:
        text: For example ``edge-pair: (0,0;0,0.125)|(0.06,0.125;0.06,0)``.

    Returns:
        Kind, and rings in the text's own units: hull and holes of a polygon, one edge, or two edges.

    Raises:
        TaskError: If it is no geometry.
    """
    match = _VALUE.fullmatch(text.strip())
    if match is None:
        raise TaskError(
            "not a report value", field="value", value=text, allowed="polygon: (...), edge: ..., edge-pair: "
        )
    body = text.partition(":")[2]
    pieces = re.split(r"[|]|\)/\(|/(?=\()" if match[1] == "edge-pair" else r"/", body)
    rings = tuple(tuple((float(x), float(y)) for x, y in _POINT.findall(piece)) for piece in pieces)
    if match[1] == "box" and len(rings[0]) == 2:
        (x1, y1), (x2, y2) = rings[0]
        return "polygon", (((x1, y1), (x1, y2), (x2, y2), (x2, y1)),)
    kind: Kind = "edge_pair" if match[1] == "edge-pair" else "edge" if match[1] == "edge" else "polygon"
    sizes = [len(r) for r in rings]
    fits = {"edge": sizes == [2], "edge_pair": sizes == [2, 2], "polygon": bool(sizes) and min(sizes) >= 3}
    if not fits[kind]:
        raise TaskError("not a report value", field="value", value=text, allowed=f"a {match[1]} with all its points")
    return kind, rings


def value_box(text: str) -> tuple[float, float, float, float]:
    """Return the bounding box (x1, y1, x2, y2) of a report value in its own units; raises `TaskError`."""
    points = [p for ring in parse_value(text)[1] for p in ring]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return (min(xs), min(ys), max(xs), max(ys))
