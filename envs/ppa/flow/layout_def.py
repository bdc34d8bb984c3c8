"""DEF text of a placement: die, rows and placed cells, for layout viewers and other tools."""

from __future__ import annotations

import re

from edagym.envs.ppa.flow.backend import Placement
from edagym.envs.ppa.flow.floorplan import ROW, SITE

_SPECIAL = re.compile(r"[^A-Za-z0-9_$/.\[\]]")


def def_text(design: str, placement: Placement) -> str:
    """Return a placement as DEF 5.8 text (lengths in database units of 1 nm).

    Args:
        design: Name of the design.
        placement: Placed cells.
    """
    lines = [
        "VERSION 5.8 ;",
        'DIVIDERCHAR "/" ;',
        'BUSBITCHARS "[]" ;',
        f"DESIGN {design} ;",
        "UNITS DISTANCE MICRONS 1000 ;",
        "DIEAREA ( {} {} ) ( {} {} ) ;".format(*(round(1000 * v) for v in placement.die)),
    ]
    x1, y1, x2, y2 = (round(1000 * v) for v in placement.core)
    for row in range((y2 - y1) // ROW):
        side = "FS" if row % 2 else "N"
        sites = (x2 - x1) // SITE
        lines.append(f"ROW ROW_{row} asap7sc7p5t {x1} {y1 + row * ROW} {side} DO {sites} BY 1 STEP {SITE} 0 ;")
    lines.append(f"COMPONENTS {len(placement.names)} ;")
    for name, master, box in zip(placement.names, placement.masters, placement.boxes, strict=True):
        x, y = round(1000 * float(box[0])), round(1000 * float(box[1]))
        side = "FS" if (y - y1) // ROW % 2 else "N"
        lines.append(f"- {_SPECIAL.sub(_escape, name)} {master} + PLACED ( {x} {y} ) {side} ;")
    lines += ["END COMPONENTS", "END DESIGN", ""]
    return "\n".join(lines)


def _escape(match: re.Match[str]) -> str:
    return "_" if match[0].isspace() else "\\" + match[0]
