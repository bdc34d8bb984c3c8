"""Scan conversion: outlines to masks of pixels, by the even-odd rule at pixel centres."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


def fill(rings: Iterable[np.ndarray], height: int, width: int) -> np.ndarray:
    """Return which pixel centres lie inside some rings together, by the even-odd rule: holes are rings of their own.

    Every edge toggles the pixels to the right of where it crosses a row's centre line; all edges are done at once.

    Args:
        rings: Outlines, (n, 2) each, in pixels: pixel (row r, column c) has its centre at (c + 0.5, r + 0.5).
        height: Rows.
        width: Columns.

    Returns:
        bool (height, width); row 0 is the lowest y.
    """
    starts, ends = [], []
    for ring in rings:
        if len(ring) >= 3:
            starts.append(np.asarray(ring, float))
            ends.append(np.roll(starts[-1], -1, axis=0))
    toggles = np.zeros((height, width + 1), np.int64)
    if starts:
        a, b = np.concatenate(starts), np.concatenate(ends)
        up = a[:, 1] <= b[:, 1]
        low, high = np.where(up[:, None], a, b), np.where(up[:, None], b, a)
        first = np.clip(np.ceil(low[:, 1] - 0.5), 0, height).astype(np.int64)
        last = np.clip(np.ceil(high[:, 1] - 0.5), 0, height).astype(np.int64)
        count = last - first
        edge = np.repeat(np.arange(len(a)), count)
        row = np.arange(len(edge)) - np.repeat(np.cumsum(count) - count, count) + first[edge]
        slope = (high[edge, 0] - low[edge, 0]) / (high[edge, 1] - low[edge, 1])
        x = low[edge, 0] + (row + 0.5 - low[edge, 1]) * slope
        column = np.clip(np.ceil(x - 0.5), 0, width).astype(np.int64)
        np.add.at(toggles, (row, column), 1)
    return np.cumsum(toggles, axis=1)[:, :width] % 2 == 1


def union(shapes: Iterable[np.ndarray], height: int, width: int) -> np.ndarray:
    """Return which pixel centres lie inside any of some shapes, bool (height, width); see `fill`."""
    out = np.zeros((height, width), bool)
    for ring in shapes:
        low = np.floor(ring.min(axis=0)).astype(int)
        high = np.ceil(ring.max(axis=0)).astype(int)
        (x1, y1), (x2, y2) = np.maximum(low, 0), np.minimum(high, (width, height))
        if x1 < x2 and y1 < y2:
            # Only the shape's own box is converted: shapes are small beside the picture.
            out[y1:y2, x1:x2] |= fill([ring - (x1, y1)], y2 - y1, x2 - x1)
    return out
