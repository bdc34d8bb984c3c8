"""Layouts with the violations that a careless flow leaves (PostEDA-Bench, Section 3.1.3), checked piece by piece."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import klayout.db as kdb
import numpy as np

from edagym.errors import TaskError
from edagym.task_assets.drc.blocks import Block, generate_block
from edagym.task_assets.drc.residuals import KINDS, Residual, roughen
from edagym.verifiers.drc import DRCLayout, RuleTable, full_check, load_table

MAX_ITEMS = 8
"""Most violations that one careless piece may cause: more would not be a residual but a failure."""


@dataclass(frozen=True, slots=True)
class ResidualRecord:
    """How a layout with residual violations came about.

    Attributes:
        pieces: The careless pieces of work, each of which causes at least one violation.
        counts: Violations per rule, as the sign-off tool counts them.
    """

    pieces: tuple[Residual, ...]
    counts: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON values; extents in nm."""
        return {
            "pieces": [{"kind": p.kind, "owner": p.owner, "where_nm": list(p.where)} for p in self.pieces],
            "counts": dict(self.counts),
        }


def generate_residual(
    rng: np.random.Generator,
    *,
    n: int = 1,
    kinds: Sequence[str] = tuple(KINDS),
    base: Block | None = None,
    rows: int = 3,
    width_cpp: int = 40,
    top_metal: str = "M7",
    tries: int = 60,
    table: RuleTable | None = None,
) -> tuple[kdb.Layout, ResidualRecord]:
    """Draw a block and do `n` pieces of it carelessly, so that each one violates some rule.

    Args:
        rng: Source of every choice.
        n: Number of careless pieces.
        kinds: Kinds to draw from, names of `edagym.task_assets.drc.residuals.KINDS`.
        base: A legal block to start from; None: draw one with some nets left out, so that pins are free.
        rows: Rows of a drawn block.
        width_cpp: Width of a drawn block, gate pitches.
        top_metal: Highest metal of a drawn block.
        tries: Largest number of attempts.
        table: The rules; None: the ASAP7 table.

    Returns:
        The layout and its record. Nets connect what they connected in the block.

    Raises:
        TaskError: A kind is unknown, or fewer than `n` pieces were found.
    """
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds:
        raise TaskError("no such kind of residual", field="kinds", value=unknown, allowed=sorted(KINDS))
    table = table or load_table("asap7")
    block = base
    if block is None:
        cells = rows * width_cpp // 6
        block = generate_block(
            rng, rows=rows, width_cpp=width_cpp, top_metal=top_metal, n_fill=3, n_nets=max(2, cells * 4 // 5)
        )
    pieces: list[Residual] = []
    before: Counter[str] = Counter()
    for _ in range(tries):
        if len(pieces) == n:
            break
        owners = frozenset(piece.owner for piece in pieces)
        rougher, done = roughen(rng, block, kinds, 1, tries=4, taken=owners)
        if not done:
            continue
        after = Counter(full_check(DRCLayout(rougher.layout()), table).counts)
        if not before <= after or not 0 < after.total() - before.total() <= MAX_ITEMS:
            continue
        block, before = rougher, after
        pieces += done
    if len(pieces) < n:
        raise TaskError("too few residuals were found", field="n", value=n, allowed=f"up to {len(pieces)} here")
    return block.layout(), ResidualRecord(tuple(pieces), dict(before))
