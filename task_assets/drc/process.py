"""ASAP7 layers, wire and via dimensions that the block generator draws with.

Lengths are integer nanometres. Values follow the rule measurements of the ASAP7 KLayout deck (BSD 2-Clause, after
asap7_drm_201207a): a wire layer's width, side spacing and tip spacing are the smallest legal ones, the via sizes fit
the wires exactly (V*.AUX.2 wants a via as wide as the wire above it), and pads extend along the wire only.
"""

from __future__ import annotations

from dataclasses import dataclass

LAYERS: dict[str, tuple[int, int]] = {
    "WELL": (1, 0),
    "FIN": (2, 0),
    "GATE": (7, 0),
    "GCUT": (10, 0),
    "ACTIVE": (11, 0),
    "SDT": (88, 0),
    "NSELECT": (12, 0),
    "PSELECT": (13, 0),
    "LIG": (16, 0),
    "LISD": (17, 0),
    "V0": (18, 0),
    "M1": (19, 0),
    "V1": (21, 0),
    "M2": (20, 0),
    "V2": (25, 0),
    "M3": (30, 0),
    "V3": (35, 0),
    "M4": (40, 0),
    "V4": (45, 0),
    "M5": (50, 0),
    "V5": (55, 0),
    "M6": (60, 0),
    "V6": (65, 0),
    "M7": (70, 0),
    "V7": (75, 0),
    "M8": (80, 0),
    "V8": (85, 0),
    "M9": (90, 0),
    "V9": (95, 0),
    "PAD": (96, 0),
    "SLVT": (97, 0),
    "LVT": (98, 0),
    "SRAMDRC": (99, 0),
    "SRAMVT": (110, 0),
    "DUMMY": (8, 0),
}
"""GDS layer and datatype by rule-deck name."""

OUTLINE = (100, 0)
"""Layer of cell outlines; no rule reads it."""

LABEL_DATATYPE = 251
"""Datatype of pin and net names; they carry the layer number of the metal that they name."""

CPP = 54
"""Contacted gate pitch, nm."""

ROW_HEIGHT = 270
"""Height of a row of 7.5-track cells, nm: ten fins."""

DBU_UM = 0.00025
"""Database unit of generated layouts, um."""

NM = 4
"""Database units per nanometre."""


@dataclass(frozen=True, slots=True)
class WireLayer:
    """Wires of one metal.

    Attributes:
        name: Layer name.
        vertical: Preferred direction.
        width: Wire width, nm.
        pitch: Track pitch, nm.
        offset: Centre of track 0, nm.
        side: Smallest gap between parallel wires, nm.
        tip: Smallest gap between two ends on one track, nm.
        corner: Smallest Euclidean gap between corners, nm; 0 where the deck has none.
        reach: Side gap up to which two ends that face each other count as neighbours (M4 and up), nm; 0: none.
        run: Smallest common run of two wires less than 25 nm apart, nm; 0: none.
        length: Smallest wire length, nm.
    """

    name: str
    vertical: bool
    width: int
    pitch: int
    offset: int
    side: int
    tip: int
    corner: int
    reach: int
    run: int
    length: int


WIRES: dict[str, WireLayer] = {
    wire.name: wire
    for wire in (
        WireLayer("M1", True, 18, 54, 27, 18, 31, 20, 0, 0, 28),
        WireLayer("M2", False, 18, 36, 45, 18, 31, 20, 0, 0, 30),
        WireLayer("M3", True, 18, 36, 18, 18, 31, 20, 0, 0, 28),
        WireLayer("M4", False, 24, 48, 24, 24, 40, 0, 96, 44, 44),
        WireLayer("M5", True, 24, 48, 24, 24, 40, 0, 96, 44, 44),
        WireLayer("M6", False, 32, 64, 32, 32, 40, 0, 96, 0, 44),
        WireLayer("M7", True, 32, 64, 32, 32, 40, 0, 96, 0, 44),
    )
}
"""Routing layers. M2 tracks repeat in every row: six per row at 45, 81, ..., 225 nm above its lower edge."""

M2_TRACKS = (45, 81, 117, 153, 189, 225)
"""M2 track centres within a row, nm; symmetric, so that mirrored rows keep them."""


@dataclass(frozen=True, slots=True)
class ViaLayer:
    """Vias between two metals.

    Attributes:
        name: Layer name.
        lower: Metal below.
        upper: Metal above.
        width: Cut extent in x, nm.
        height: Cut extent in y, nm.
        lower_end: Extension of the lower metal beyond the cut along the wire, nm.
        upper_end: The same of the upper metal, nm.
        gap: Smallest gap between two cuts that is legal whatever surrounds them, nm.
    """

    name: str
    lower: str
    upper: str
    width: int
    height: int
    lower_end: int
    upper_end: int
    gap: int


VIAS: dict[str, ViaLayer] = {
    via.name: via
    for via in (
        ViaLayer("V1", "M1", "M2", 18, 18, 5, 6, 27),
        ViaLayer("V2", "M2", "M3", 18, 18, 6, 5, 27),
        ViaLayer("V3", "M3", "M4", 18, 24, 5, 11, 27),
        ViaLayer("V4", "M4", "M5", 24, 24, 11, 11, 33),
        ViaLayer("V5", "M5", "M6", 24, 32, 11, 11, 33),
        ViaLayer("V6", "M6", "M7", 32, 32, 11, 11, 45),
    )
}
"""Via layers with cuts as wide as the minimum wires that they join. M2 needs more than 5 nm beyond V1:
V1.M2.EN.2 shrinks the 5 nm collar by half its width before it looks for it."""

METALS = ("M1", "M2", "M3", "M4", "M5", "M6", "M7")
"""Metals that carry signals, lowest first."""

ALL_METALS = (*METALS, "M8", "M9")
"""All metals, lowest first."""

Box = tuple[int, int, int, int]
"""Left, bottom, right, top."""
