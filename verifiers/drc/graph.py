"""Rule tables compiled for one database unit: a graph without repeated sub-expressions, with static reach per node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from edagym.errors import TaskError
from edagym.verifiers.drc.expression import Expr, Kind, Quantity
from edagym.verifiers.drc.rules import RuleTable

MAX_LENGTH = 2**30
NOTCH_LOCAL = 20_000  # database units; wider notches are looked for polygon by polygon
SLACK = 4  # database units per leaf: touching counts as interacting, and slanted intersections snap to the grid


@dataclass(frozen=True, slots=True)
class Node:
    """One operation.

    Attributes:
        op: Operation name (see `edagym.verifiers.drc.expression`).
        args: Operand node numbers, all smaller than this node's.
        params: Parameters; lengths in database units, areas in square database units.
        kind: What the node yields.
        layers: Names of the layers it depends on.
        own: Distance in database units within which the operands decide the value at a place, for the part of the
            dependence that doesn't follow whole objects (see `edagym.verifiers.drc.zone`).
        reach: The same for layers instead of operands.
    """

    op: str
    args: tuple[int, ...]
    params: tuple[Any, ...]
    kind: Kind
    layers: frozenset[str]
    own: int
    reach: int


@dataclass(frozen=True, slots=True)
class Output:
    """One measurement of a rule.

    Attributes:
        rule: Rule id.
        node: The node that yields the violations.
        unordered: Whether they are pairs of edges of one layer, whose order means nothing (and isn't stable).
    """

    rule: str
    node: int
    unordered: bool


@dataclass(frozen=True, eq=False)
class Graph:
    """A rule table compiled for a database unit.

    Attributes:
        table: The rule table.
        dbu: Database unit in micrometres.
        nodes: Operations in topological order.
        outputs: Measurements in reporting order.
    """

    table: RuleTable
    dbu: float
    nodes: tuple[Node, ...]
    outputs: tuple[Output, ...]

    def outputs_on(self, layers: Iterable[str]) -> tuple[int, ...]:
        """Return the indices of all outputs that depend on any of `layers`."""
        wanted = frozenset(layers)
        return tuple(i for i, o in enumerate(self.outputs) if self.nodes[o.node].layers & wanted)

    def needed(self, outputs: Iterable[int]) -> list[int]:
        """Return the node numbers that the given outputs need, in topological order."""
        seen: set[int] = set()
        stack = [self.outputs[i].node for i in outputs]
        while stack:
            n = stack.pop()
            if n not in seen:
                seen.add(n)
                stack.extend(self.nodes[n].args)
        return sorted(seen)


@lru_cache(maxsize=16)
def compile_table(table: RuleTable, dbu: float) -> Graph:
    """Compile a rule table for a database unit.

    Args:
        table: The rules.
        dbu: Database unit in micrometres.

    Raises:
        TaskError: If a length of the table doesn't fit into the coordinates of this database unit.
    """
    nodes: list[Node] = []
    index: dict[tuple[Any, ...], int] = {}

    def intern(op: str, args: tuple[int, ...], params: tuple[Any, ...], kind: Kind) -> int:
        key = (op, args, params)
        if key not in index:
            layers = frozenset(params[:1]) if op == "layer" else frozenset().union(*(nodes[a].layers for a in args))
            own = _own_reach(op, params)
            reach = max((nodes[a].reach for a in args), default=SLACK) + own
            index[key] = len(nodes)
            nodes.append(Node(op, args, params, kind, layers, own, reach))
        return index[key]

    def add(expr: Expr, rule: str) -> int:
        if _differ_in_filter(expr):
            first, second = (e.args[0] for e in expr.args)
            args = tuple(add(a, rule) for a in first.args)
            d, metric, left = (_param(p, dbu, rule) for p in first.params)
            return intern("enclosing_filtered", args, (d, metric, left, second.params[2]), "edges")
        params = tuple(_param(p, dbu, rule) for p in expr.params)
        return intern(expr.op, tuple(add(a, rule) for a in expr.args), params, expr.kind)

    outputs = tuple(
        Output(r.id, add(m, r.id), _unordered(m))
        for r in table.rules.values()
        for m in r.measures
        if not _always_empty(m)
    )
    return Graph(table, dbu, tuple(nodes), outputs)


def _unordered(expr: Expr) -> bool:
    while expr.kind == "edge_pairs" and expr.op in ("with_angle", "join"):
        expr = expr.args[0]
    return expr.op in ("width", "space", "notch")


def _always_empty(expr: Expr) -> bool:
    """Whether a measurement asks for objects that don't interact with themselves."""
    return expr.op == "not_interacting" and expr.args[0] == expr.args[1]


def _differ_in_filter(expr: Expr) -> bool:
    """Whether a tree subtracts an enclosing check's edges from the same check's with another rectangle filter."""
    if expr.op != "not" or any(a.op != "edges" or a.args[0].op != "enclosing" for a in expr.args):
        return False
    first, second = (a.args[0] for a in expr.args)
    rects = (first.params[2], second.params[2])
    return first.args == second.args and first.params[:2] == second.params[:2] and None not in rects


def _param(value: Any, dbu: float, rule: str) -> Any:
    if not isinstance(value, Quantity):
        return value
    number = value.in_dbu(dbu)
    if value.kind == "length" and abs(number) > MAX_LENGTH:
        raise TaskError("length of a rule too large for the database unit", field=rule, value=value, allowed=MAX_LENGTH)
    return number


def _own_reach(op: str, params: tuple[Any, ...]) -> int:
    if op in ("width", "space", "width_not", "separation", "enclosing", "enclosing_filtered"):
        return int(params[0]) + 1
    if op == "notch":
        return int(params[0]) + 1 if params[0] <= NOTCH_LOCAL else 0
    if op == "sized":
        return max(abs(params[0]), abs(params[1]))
    if op == "extended_out":
        return int(params[0])
    if op in ("with_length", "without_length"):
        # An edge cut at a window's border is at least this long in view; then its true length can't change the answer.
        return max((int(v) + 1 for v in params[1:] if v is not None), default=0)
    if op == "corners":
        return 1
    return 0
