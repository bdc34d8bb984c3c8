"""`LayoutSpace`: the drawn shapes of a layout as padded arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict

from edagym.errors import EditError
from edagym.spaces.contours import MAX_LAYERS
from edagym.spaces.rings import MAX_COORD_UM, in_range, parse_ring, read_ring, ring_text, write_ring
from edagym.task_assets.fet.grid import IntRing, ring_to_dbu, ring_to_um

MAX_SHAPES = 256
MAX_SHAPE_POINTS = 64


class LayoutSpace(Dict):
    """Drawn shapes as arrays: layers in table order, drawing order within a layer; unused rows are zero (layer -1).

    Keys:
        shape_points: (256, 64, 2) float32, um: one ring per shape, holes keyholed.
        shape_n_points: (256,) int16: points of each ring; 0 for unused rows.
        shape_layer: (256,) int16: row of the layer table; -1 unused.

    Args:
        seed: Seed of the space's own sampler.
    """

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(
            {
                "shape_points": Box(-MAX_COORD_UM, MAX_COORD_UM, (MAX_SHAPES, MAX_SHAPE_POINTS, 2), np.float32),
                "shape_n_points": Box(0, MAX_SHAPE_POINTS, (MAX_SHAPES,), np.int16),
                "shape_layer": Box(-1, MAX_LAYERS - 1, (MAX_SHAPES,), np.int16),
            },
            seed=seed,
        )

    def from_shapes(self, shapes: Mapping[str, Sequence[IntRing]], layers: Sequence[str]) -> dict[str, Any]:
        """Return the arrays of some shapes.

        Args:
            shapes: Rings in database units per layer name.
            layers: Names of the layer table, in order.

        Raises:
            EditError: If a published maximum of this space is exceeded, or a layer is unknown.
        """
        out: dict[str, Any] = {
            "shape_points": np.zeros((MAX_SHAPES, MAX_SHAPE_POINTS, 2), np.float32),
            "shape_n_points": np.zeros(MAX_SHAPES, np.int16),
            "shape_layer": np.full(MAX_SHAPES, -1, np.int16),
        }
        unknown = sorted(set(shapes) - set(layers))
        if unknown:
            raise EditError("unknown layer", field="layer", value=unknown, allowed=list(layers))
        row = 0
        for index, name in enumerate(layers):
            for ring in shapes.get(name, ()):
                if row == MAX_SHAPES:
                    raise EditError("too many shapes", field="shapes", value=row + 1, allowed=f"<= {MAX_SHAPES}")
                if not 1 <= len(ring) <= MAX_SHAPE_POINTS:
                    raise EditError(
                        "wrong number of points", field=name, value=len(ring), allowed=f"1..{MAX_SHAPE_POINTS}"
                    )
                if not in_range(ring):
                    raise EditError("coordinate out of range", field=name, allowed=f"|x|, |y| <= {MAX_COORD_UM} um")
                write_ring(out["shape_points"][row], ring)
                out["shape_n_points"][row] = len(ring)
                out["shape_layer"][row] = index
                row += 1
        return out

    def to_shapes(self, sample: Mapping[str, Any], layers: Sequence[str]) -> dict[str, tuple[IntRing, ...]]:
        """Return rings in database units per layer name, for the layers that hold any."""
        shapes: dict[str, list[IntRing]] = {}
        for row in np.flatnonzero(np.asarray(sample["shape_n_points"])):
            ring = read_ring(sample["shape_points"][row], int(sample["shape_n_points"][row]))
            shapes.setdefault(layers[int(sample["shape_layer"][row])], []).append(ring)
        return {name: tuple(rings) for name, rings in shapes.items()}

    def to_json(self, sample: Mapping[str, Any], layers: Sequence[str]) -> str:
        """Return one sample as a JSON object: layer name -> list of rings, um."""
        return json.dumps(
            {name: [ring_to_um(r) for r in rings] for name, rings in self.to_shapes(sample, layers).items()}
        )

    def from_json(self, text: str, layers: Sequence[str]) -> dict[str, Any]:
        """Parse `to_json`; raises `EditError`."""
        try:
            shapes = {name: [ring_to_dbu(ring) for ring in rings] for name, rings in json.loads(text).items()}
        except (TypeError, ValueError, AttributeError, OverflowError, RecursionError) as e:
            raise EditError(f"layout: malformed JSON ({type(e).__name__}: {e})") from e
        return self.from_shapes(shapes, layers)

    def to_text(self, sample: Mapping[str, Any], layers: Sequence[str]) -> str:
        """Return one sample as text, one line per shape: ``contacts: x,y x,y ...``, um."""
        return "\n".join(
            f"{name}: {ring_text(ring_to_um(ring))}"
            for name, rings in self.to_shapes(sample, layers).items()
            for ring in rings
        )

    def from_text(self, text: str, layers: Sequence[str]) -> dict[str, Any]:
        """Parse `to_text`; raises `EditError`."""
        shapes: dict[str, list[IntRing]] = {}
        for line in text.splitlines():
            name, _, body = line.partition(":")
            try:
                shapes.setdefault(name.strip(), []).append(ring_to_dbu(parse_ring(body)))
            except ValueError as e:
                raise EditError(f"layout: malformed line ({e})", field="text", value=line) from e
        return self.from_shapes(shapes, layers)
