"""Stimuli of the equivalence check: random values, and directed ones that random values never hit.

A random pair of 64-bit operands makes a carry run over more than 24 positions about once in a million, so a design
that cuts its carry chain passes random tests. The directed values drive every carry run from every position, walking
ones and zeros, the corners of signed, floating-point and packed numbers, and the constants that occur in the sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from edagym.verifiers.ppa.simulate import Lanes

MAX_LITERALS = 48
_LITERAL = re.compile(r"(?:\d+\s*)?'\s*s?([hbdo])\s*([0-9a-f_]+)|(?<![\w'])(\d[\d_]*)(?![\w'])", re.I)
_BASES = {"h": 16, "b": 2, "d": 10, "o": 8}
_FLOATS = {16: (5, 10), 32: (8, 23), 64: (11, 52)}


def literals(sources: Mapping[str, str]) -> tuple[int, ...]:
    """Return the distinct numbers that the sources name, largest first: a hidden trigger compares with one of them."""
    found: set[int] = set()
    for text in sources.values():
        for match in _LITERAL.finditer(text):
            base, digits, plain = match.groups()
            try:
                found.add(int(digits.replace("_", ""), _BASES[base.lower()]) if base else int(plain.replace("_", "")))
            except ValueError:
                continue  # a digit that the base does not have: Yosys reports it
    return tuple(sorted(found, reverse=True)[:MAX_LITERALS])


def corner_values(width: int, numbers: Iterable[int] = ()) -> list[int]:
    """Return values of one operand at which arithmetic units tend to be wrong, without repeats, in a fixed order.

    Args:
        width: Bits of the operand.
        numbers: Further numbers to try with their neighbours (`literals`).
    """
    full = (1 << width) - 1
    values = [0, full, 1, 1 << (width - 1), full >> 1, full // 3, full - full // 3, 2, 3]
    values += [n + d for n in numbers if n <= full for d in (0, 1, -1)]
    if width in _FLOATS:
        exponent_bits, mantissa_bits = _FLOATS[width]
        top, half = (1 << exponent_bits) - 1, 1 << (mantissa_bits - 1)
        bias = top >> 1
        exponents = (0, 1, 2, bias >> 1, bias - 1, bias, bias + 1, bias + mantissa_bits, top - 2, top - 1, top)
        mantissas = (0, 1, half, 2 * half - 1, half - 1)
        values += [(s << (width - 1)) | (e << mantissa_bits) | m for s in (0, 1) for e in exponents for m in mantissas]
    for bit in range(width):
        values += [1 << bit, full ^ (1 << bit), (1 << bit) - 1, full ^ ((1 << bit) - 1)]
    return list(dict.fromkeys(v & full for v in values))


def carry_runs(width: int, rng: np.random.Generator, *, step: int = 1) -> list[tuple[int, int]]:
    """Return operand pairs whose sum, and pairs whose difference, carries from every position over every length.

    Outside the run the bits are random, so that what lies around it does not give the same result by chance.
    """
    pairs = []
    full = (1 << width) - 1
    for start in range(0, width, step):
        for end in range(start + 1, width + 1, step):
            run = ((1 << end) - 1) ^ ((1 << start) - 1)
            a, b = random_value(width, rng), random_value(width, rng)
            add = (b & ~run) | (~a & run)
            at = 1 << start
            pairs.append(((a & ~at & full) | at, (add | at) & full))
            # A borrow: equal digits above a 0 - 1.
            pairs.append((a & ~at & full, (((b & ~run) | (a & run)) | at) & full))
    return pairs


def random_value(width: int, rng: np.random.Generator) -> int:
    """Return a uniform integer of some bits."""
    return int.from_bytes(rng.bytes((width + 7) // 8), "little") & ((1 << width) - 1)


def split_fields(ports: Sequence[tuple[str, int]]) -> list[tuple[str, int, int]]:
    """Return the operands (port, lowest bit, width) among data ports; a lone wide port is taken for two packed ones."""
    wide = [(name, width) for name, width in ports if width > 1]
    if len(wide) == 1 and wide[0][1] >= 8 and wide[0][1] % 2 == 0:
        name, width = wide[0]
        return [(name, 0, width // 2), (name, width // 2, width // 2)]
    return [(name, 0, width) for name, width in wide]


def directed_vectors(
    ports: Sequence[tuple[str, int]], numbers: Sequence[int], rng: np.random.Generator, *, limit: int
) -> list[dict[str, int]]:
    """Return values of all data ports: corners against corners, carry runs, corners of whole ports.

    Args:
        ports: (name, width) of the data ports.
        numbers: Numbers of the sources (`literals`).
        rng: Source of the bits that are not directed.
        limit: Most vectors that are returned; families are thinned evenly, never cut off.
    """
    fields = split_fields(ports)
    families: list[list[dict[str, int]]] = [[], [], []]

    def background() -> dict[str, int]:
        return {name: random_value(width, rng) for name, width in ports}

    def put(vector: dict[str, int], field: tuple[str, int, int], value: int) -> None:
        name, low, width = field
        mask = ((1 << width) - 1) << low
        vector[name] = (vector[name] & ~mask) | (value << low)

    for name, width in ports:
        for value in corner_values(width, numbers):
            families[0].append({**background(), name: value})
            families[0].append({**dict.fromkeys((n for n, _ in ports), 0), name: value})
    room = max(1, limit // 3)
    pairs = [(f, g) for i, f in enumerate(fields) for g in fields[i + 1 :]]
    for f, g in pairs:
        corners_f, corners_g = corner_values(f[2], numbers), corner_values(g[2], numbers)
        total = len(corners_f) * len(corners_g)
        step = max(1, total * len(pairs) // room)
        # A step that shares no factor with the row length, so that thinning does not drop whole columns.
        while np.gcd(step, len(corners_g)) != 1:
            step += 1
        for k in range(0, total, step):
            vector = background()
            put(vector, f, corners_f[k // len(corners_g)])
            put(vector, g, corners_g[k % len(corners_g)])
            families[1].append(vector)
        if f[2] == g[2] > 2:
            step = 1
            while (f[2] // step) ** 2 * len(pairs) > room:
                step += 1
            for a, b in carry_runs(f[2], rng, step=step):
                vector = background()
                put(vector, f, a)
                put(vector, g, b)
                families[2].append(vector)
    return [v for family in families for v in thin(family, room)]


def thin(items: list[dict[str, int]], limit: int) -> list[dict[str, int]]:
    """Return at most `limit` of the items, evenly spread."""
    if len(items) <= limit:
        return items
    return [items[k * len(items) // limit] for k in range(limit)]


def random_planes(width: int, lanes: int, rng: np.random.Generator, probability: float = 0.5) -> list[Lanes]:
    """Return random bits for one port in all lanes."""
    if probability == 0.5:
        mask = (1 << lanes) - 1
        return [int.from_bytes(rng.bytes((lanes + 7) // 8), "little") & mask for _ in range(width)]
    bits = rng.random((width, lanes)) < probability
    return [int.from_bytes(row.tobytes(), "little") for row in np.packbits(bits, axis=1, bitorder="little")]
