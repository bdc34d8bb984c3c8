"""Die, core and rows: OpenROAD's floorplan arithmetic on the 1 nm grid, exact to the printed digit.

All integer lengths are database units of 1 nm. Recovered from the reported values of the public benchmark: a core of a
given utilisation has the area of the mapped netlist (Yosys' "Chip area", before any buffer is added) over the
utilisation, its width rounded down and its height to the nearest nanometre; rows and sites of the ASAP7 7.5-track
library (54 nm by 270 nm) fill it from the first grid point inside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from edagym.errors import FlowError

SITE = 54
"""Width of a placement site, nm."""
ROW = 270
"""Height of a row, nm."""
DEFAULT_MARGIN = 1.0
"""``CORE_MARGIN`` where none is given, um."""
TAP_SITES = 2
"""Width of a tap cell in sites; a row carries one at each end."""


@dataclass(frozen=True)
class Floorplan:
    """Die and rows.

    Attributes:
        die: (x1, y1, x2, y2), nm.
        core: (x1, y1, x2, y2) of the rows, snapped to sites, nm.
        rows: Number of rows.
        sites: Number of sites per row.
    """

    die: tuple[int, int, int, int]
    core: tuple[int, int, int, int]
    rows: int
    sites: int

    @property
    def die_area(self) -> float:
        """Area of the die, um2."""
        return (self.die[2] - self.die[0]) * (self.die[3] - self.die[1]) / 1e6

    @property
    def core_area(self) -> float:
        """Area of all sites, um2."""
        return self.rows * ROW * self.sites * SITE / 1e6

    @property
    def tap_cells(self) -> int:
        """Number of tap cells: two per row that has room for them."""
        return 2 * self.rows if self.sites > 2 * TAP_SITES else 0


def make_floorplan(
    synth_area: float,
    utilization: float | None = None,
    aspect_ratio: float = 1.0,
    margin: float = DEFAULT_MARGIN,
    die_area: tuple[float, float, float, float] | None = None,
    core_area: tuple[float, float, float, float] | None = None,
) -> Floorplan:
    """Return die and rows, by utilisation or by given boxes.

    Args:
        synth_area: Area of the mapped netlist, um2.
        utilization: ``CORE_UTILIZATION``, per cent; where it is given, boxes do not count.
        aspect_ratio: ``CORE_ASPECT_RATIO``, height over width.
        margin: ``CORE_MARGIN``: distance from core to die on each side, um.
        die_area: ``DIE_AREA``, (x1, y1, x2, y2), um.
        core_area: ``CORE_AREA``, (x1, y1, x2, y2), um.

    Raises:
        FlowError: If the boxes are no boxes, the core leaves the die or holds no row, or nothing says how large it is.
    """
    if utilization is not None:
        if not (0 < utilization <= 100 and aspect_ratio > 0 and margin >= 0 and synth_area > 0):
            raise _error("utilisation, aspect ratio or margin out of range", value=(utilization, aspect_ratio, margin))
        space = round(margin * 1000)
        width = math.floor(1000 * math.sqrt(synth_area / (utilization / 100) / aspect_ratio))
        height = round(width * aspect_ratio)
        die = (0, 0, width + 2 * space, height + 2 * space)
        core = (space, space, space + width, space + height)
    elif die_area is not None and core_area is not None:
        die, core = _dbu(die_area), _dbu(core_area)
        for name, box in (("DIE_AREA", die), ("CORE_AREA", core)):
            if box[0] >= box[2] or box[1] >= box[3]:
                raise _error(f"{name} is empty", value=box)
        if core[0] < die[0] or core[1] < die[1] or core[2] > die[2] or core[3] > die[3]:
            raise _error("CORE_AREA leaves DIE_AREA", value=core, allowed=die)
    else:
        raise _error("neither CORE_UTILIZATION nor DIE_AREA with CORE_AREA is given")
    left, bottom = -(-core[0] // SITE) * SITE, -(-core[1] // ROW) * ROW
    rows, sites = (core[3] - bottom) // ROW, (core[2] - left) // SITE
    if rows < 1 or sites < 1:
        raise _error("the core is too small for one row", value=core)
    return Floorplan(die, (left, bottom, left + sites * SITE, bottom + rows * ROW), rows, sites)


def _dbu(box: tuple[float, float, float, float]) -> tuple[int, int, int, int]:
    x1, y1, x2, y2 = (round(v * 1000) for v in box)
    return x1, y1, x2, y2


def _error(message: str, value: object = None, allowed: object = None) -> FlowError:
    return FlowError(message, field="floorplan", value=value, allowed=allowed)
