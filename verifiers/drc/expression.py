"""The measurement language of rule tables: text to typed trees.

A measurement is written as KLayout users write it, in a subset of Python's expression grammar that is parsed and never
executed::

    (WELL - SRAMDRC).enclosing(GATE - GCUT, 7*nm, projection).with_angle(0)

Names are layers or derived layers; ``&`` ``-`` ``|`` are booleans, ``+`` joins without merging. Lengths are sums of
multiples of ``nm`` and ``dbu``, areas of ``nm2`` and ``dbu2``. ``nm`` scales with the layout's database unit, ``dbu``
does not. Filters take exact values (``with_height(27*nm, 54*nm)``) or a half-open range
(``with_length(min=36*nm, below=44*nm)``).
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from edagym.errors import TaskError

Kind = Literal["region", "edges", "edge_pairs"]

MAX_TEXT = 20_000
MAX_DEPTH = 100
_BOOLEANS = {ast.BitAnd: "and", ast.Sub: "not", ast.BitOr: "or", ast.Add: "join"}
_UNITS = {"nm": ("length", "nm"), "dbu": ("length", "dbu"), "nm2": ("area", "nm"), "dbu2": ("area", "dbu")}
METRICS = ("euclidian", "projection")
RECT_FILTERS = ("one_side", "two_connected", "two_opposite")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A length (or area) as `nm` nanometres (square nanometres) plus `dbu` database units (squared)."""

    kind: Literal["length", "area"]
    nm: float = 0.0
    dbu: float = 0.0

    def in_dbu(self, dbu_um: float) -> int:
        """Return the value in database units (squared for areas), rounded half up as the sign-off tool does it.

        The order of the floating-point operations matters: at 1 nm, ``-2.5*nm + 1*dbu`` lies on a rounding border.
        """
        if self.kind == "length":
            if self.nm == 0.0:
                return round(self.dbu)
            return math.floor(0.5 + (self.nm * 0.001 + self.dbu * dbu_um) / dbu_um)
        if self.nm == 0.0:
            return round(self.dbu)
        return math.floor(0.5 + (self.nm * 1e-6 + self.dbu * (dbu_um * dbu_um)) / (dbu_um * dbu_um))


Param = Quantity | float | int | str | None


@dataclass(frozen=True, slots=True)
class Expr:
    """One node of a measurement tree.

    Attributes:
        op: Operation name, or ``"layer"``.
        args: Operand trees.
        params: Parameters in a fixed order per operation (see `_OPS`).
        kind: What the operation yields.
        depth: Number of operations on the longest way to a layer, both counted.
    """

    op: str
    args: tuple[Expr, ...] = ()
    params: tuple[Any, ...] = ()
    kind: Kind = "region"
    depth: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", 1 + max((a.depth for a in self.args), default=0))

    def layers(self) -> frozenset[str]:
        """Return the names of all layers in the tree."""
        if self.op == "layer":
            return frozenset((self.params[0],))
        return frozenset().union(*(a.layers() for a in self.args))


class _Fault(Exception):
    """A fault in a measurement text; `parse` turns it into a TaskError that names the field."""


def parse(text: str, names: Mapping[str, Expr], *, field: str = "measure") -> Expr:
    """Parse one measurement.

    Args:
        text: The measurement.
        names: Trees of the names that may occur (layers and derived layers).
        field: Where the text stands, for error messages.

    Raises:
        TaskError: If the text is not a well-typed measurement.
    """
    if not isinstance(text, str) or not 0 < len(text) <= MAX_TEXT:
        raise TaskError(
            "a measurement is a non-empty text", field=field, value=text, allowed=f"1..{MAX_TEXT} characters"
        )
    try:
        expr = _expr(ast.parse(text.strip(), mode="eval").body, names)
        if expr.depth > MAX_DEPTH:
            raise _Fault(f"nested deeper than {MAX_DEPTH} operations")
        return expr
    except _Fault as e:
        raise TaskError(f"bad measurement: {e}", field=field, value=text) from None
    except (SyntaxError, ValueError, MemoryError, RecursionError) as e:
        raise TaskError(f"not a measurement ({type(e).__name__})", field=field, value=text) from None


def _expr(node: ast.expr, names: Mapping[str, Expr]) -> Expr:
    if isinstance(node, ast.Name):
        if node.id not in names:
            raise _Fault(f"unknown layer {node.id!r}")
        return names[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _BOOLEANS:
        return _boolean(_BOOLEANS[type(node.op)], _expr(node.left, names), _expr(node.right, names))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        op = node.func.attr
        if op not in _OPS:
            raise _Fault(f"unknown operation {op!r}; known: {', '.join(sorted(_OPS))}")
        if any(k.arg is None for k in node.keywords):
            raise _Fault(f"{op}: no ** arguments")
        subject = _expr(node.func.value, names)
        return _OPS[op](op, subject, node.args, {str(k.arg): k.value for k in node.keywords}, names)
    raise _Fault(f"unexpected {type(node).__name__}")


def _boolean(op: str, a: Expr, b: Expr) -> Expr:
    if op in ("or", "join"):
        allowed = {"region"} if op == "or" else {"region", "edges", "edge_pairs"}
        if a.kind != b.kind or a.kind not in allowed:
            raise _Fault(f"operands of {op!r} must be alike, got {a.kind} and {b.kind}")
    elif a.kind == "edge_pairs" or b.kind == "edge_pairs" or (a.kind == "region" and b.kind == "edges"):
        raise _Fault(f"{op!r} of {a.kind} with {b.kind}")
    return Expr(op, (a, b), (), a.kind)


def _need(op: str, e: Expr, *kinds: Kind) -> None:
    if e.kind not in kinds:
        raise _Fault(f"{op} takes {' or '.join(kinds)}, got {e.kind}")


def _count(op: str, args: list[ast.expr], kwargs: Mapping[str, ast.expr], low: int, high: int) -> None:
    if kwargs or not low <= len(args) <= high:
        raise _Fault(f"{op} takes {low if low == high else f'{low} to {high}'} argument(s)")


def _word(op: str, node: ast.expr, allowed: tuple[str, ...]) -> str:
    if isinstance(node, ast.Name) and node.id in allowed:
        return node.id
    raise _Fault(f"{op}: expected one of {', '.join(allowed)}")


def _number(node: ast.expr) -> float:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_number(node.operand)
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e9:
        return float(value)
    raise _Fault("expected a number up to 1e9")


def _quantity(node: ast.expr, kind: str) -> Quantity:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        q = _quantity(node.operand, kind)
        return Quantity(q.kind, -q.nm, -q.dbu)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        a, b = _quantity(node.left, kind), _quantity(node.right, kind)
        s = 1 if isinstance(node.op, ast.Add) else -1
        return Quantity(a.kind, a.nm + s * b.nm, a.dbu + s * b.dbu)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.right, ast.Name):
        unit = _UNITS.get(node.right.id)
        if unit and unit[0] == kind:
            return Quantity(unit[0], **{unit[1]: _number(node.left)})  # type: ignore[arg-type]
    allowed = [u for u, (k, _) in _UNITS.items() if k == kind]
    raise _Fault(f"expected a {kind} such as 18*{allowed[0]} or 1*{allowed[1]}")


def _check(op: str, subject: Expr, args: list[ast.expr], kwargs: Any, names: Mapping[str, Expr]) -> Expr:
    """width, space, notch, width_not: (limit, metric)."""
    _count(op, args, kwargs, 2, 2)
    _need(op, subject, *(("region", "edges") if op == "space" else ("region",)))
    params = (_positive(op, args[0]), _word(op, args[1], METRICS))
    return Expr(op, (subject,), params, "edges" if op == "width_not" else "edge_pairs")


def _check2(op: str, subject: Expr, args: list[ast.expr], kwargs: Any, names: Mapping[str, Expr]) -> Expr:
    """separation, enclosing: (other, limit, metric[, rectangle filter])."""
    _count(op, args, kwargs, 3, 4)
    other = _expr(args[0], names)
    _need(op, subject, *(("region", "edges") if op == "separation" else ("region",)))
    _need(op, other, subject.kind)
    rect = _word(op, args[3], RECT_FILTERS) if len(args) == 4 else None
    if rect and subject.kind != "region":
        raise _Fault(f"{op}: rectangle filters need polygons")
    return Expr(op, (subject, other), (_positive(op, args[1]), _word(op, args[2], METRICS), rect), "edge_pairs")


def _positive(op: str, node: ast.expr) -> Quantity:
    q = _quantity(node, "length")
    if q.nm < 0 or q.dbu < 0 or q.nm + q.dbu <= 0:
        raise _Fault(f"{op}: the limit must be positive")
    return q


def _filter(op: str, subject: Expr, args: list[ast.expr], kwargs: Mapping[str, ast.expr], names: Any) -> Expr:
    """with_/without_ length, area, height, width: exact values, or a range from `min` (inclusive) to `below`."""
    measure = op.split("_")[1]
    _need(op, subject, "edges" if measure == "length" else "region")
    kind = "area" if measure == "area" else "length"
    if args and not kwargs:
        values: tuple[Param, ...] = tuple(_quantity(a, kind) for a in args)
        return Expr(op, (subject,), ("values", *values), subject.kind)
    if kwargs and not args and set(kwargs) <= {"min", "below"}:
        low = _quantity(kwargs["min"], kind) if "min" in kwargs else None
        high = _quantity(kwargs["below"], kind) if "below" in kwargs else None
        return Expr(op, (subject,), ("range", low, high), subject.kind)
    raise _Fault(f"{op} takes values, or min= and/or below=")


def _angle(op: str, subject: Expr, args: list[ast.expr], kwargs: Any, names: Any) -> Expr:
    _count(op, args, kwargs, 1, 1)
    _need(op, subject, "edges", "edge_pairs")
    return Expr(op, (subject,), (_number(args[0]),), subject.kind)


def _plain(op: str, subject: Expr, args: list[ast.expr], kwargs: Any, names: Any) -> Expr:
    """edges, polygons, holes: no arguments."""
    _count(op, args, kwargs, 0, 0)
    if op == "polygons":
        _need(op, subject, "edge_pairs")
        return Expr(op, (subject,), (), "region")
    _need(op, subject, *(("region", "edge_pairs") if op == "edges" else ("region",)))
    return Expr(op, (subject,), (), "edges" if op == "edges" else "region")


def _corners(op: str, subject: Expr, args: list[ast.expr], kwargs: Any, names: Any) -> Expr:
    _count(op, args, kwargs, 2, 2)
    _need(op, subject, "region")
    return Expr(op, (subject,), (_number(args[0]), _number(args[1])), "region")


def _sized(op: str, subject: Expr, args: list[ast.expr], kwargs: Any, names: Any) -> Expr:
    _count(op, args, kwargs, 2, 2)
    _need(op, subject, "region")
    return Expr(op, (subject,), (_quantity(args[0], "length"), _quantity(args[1], "length")), "region")


def _extended(op: str, subject: Expr, args: list[ast.expr], kwargs: Any, names: Any) -> Expr:
    _count(op, args, kwargs, 1, 1)
    _need(op, subject, "edges")
    return Expr(op, (subject,), (_positive(op, args[0]),), "region")


def _interacting(op: str, subject: Expr, args: list[ast.expr], kwargs: Any, names: Mapping[str, Expr]) -> Expr:
    _count(op, args, kwargs, 1, 1)
    other = _expr(args[0], names)
    _need(op, subject, "region", "edges")
    _need(op, other, "region", "edges")
    return Expr(op, (subject, other), (), subject.kind)


def _with_holes(op: str, subject: Expr, args: list[ast.expr], kwargs: Mapping[str, ast.expr], names: Any) -> Expr:
    if args or set(kwargs) != {"min"}:
        raise _Fault(f"{op} takes min=")
    _need(op, subject, "region")
    least = _number(kwargs["min"])
    if least < 1 or least != int(least):
        raise _Fault(f"{op}: min must be a positive whole number")
    return Expr(op, (subject,), (int(least),), "region")


_OPS: dict[str, Any] = {
    "width": _check,
    "space": _check,
    "notch": _check,
    "width_not": _check,
    "separation": _check2,
    "enclosing": _check2,
    "with_angle": _angle,
    **{f"{w}_{m}": _filter for w in ("with", "without") for m in ("length", "area", "height", "width")},
    "edges": _plain,
    "polygons": _plain,
    "holes": _plain,
    "corners": _corners,
    "sized": _sized,
    "extended_out": _extended,
    "interacting": _interacting,
    "not_interacting": _interacting,
    "with_holes": _with_holes,
}
