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
_SLACK = 4  # database units per leaf: touching counts as interacting, and slanted intersections snap to the grid


@dataclass(frozen=True, slots=True)
class Node:
    """One operation.

    Attributes:
        op: Operation name (see `edagym.verifiers.drc.expression`).
        args: Operand node numbers, all smaller than this node's.
        params: Parameters; lengths in database units, areas in square database units.
        kind: What the node yields.
        layers: Names of the layers it depends on.
        reach: Distance in database units within which the inputs decide the output at a place, for the part of the
            dependence that doesn't follow whole objects (see `edagym.verifiers.drc.window`).
    """

    op: str
    args: tuple[int, ...]
    params: tuple[Any, ...]
    kind: Kind
    layers: frozenset[str]
    reach: int


@dataclass(frozen=True, slots=True)
class Output:
    """One measurement of a rule: `node` yields violations of rule `rule`."""

    rule: str
    node: int


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

    def add(expr: Expr, rule: str) -> int:
        args = tuple(add(a, rule) for a in expr.args)
        params = tuple(_param(p, dbu, rule) for p in expr.params)
        key = (expr.op, args, params)
        if key not in index:
            layers = (
                frozenset(params[:1]) if expr.op == "layer" else frozenset().union(*(nodes[a].layers for a in args))
            )
            reach = max((nodes[a].reach for a in args), default=_SLACK) + _own_reach(expr.op, params)
            index[key] = len(nodes)
            nodes.append(Node(expr.op, args, params, expr.kind, layers, reach))
        return index[key]

    outputs = tuple(Output(r.id, add(m, r.id)) for r in table.rules.values() for m in r.measures)
    return Graph(table, dbu, tuple(nodes), outputs)


def _param(value: Any, dbu: float, rule: str) -> Any:
    if not isinstance(value, Quantity):
        return value
    number = value.in_dbu(dbu)
    if value.kind == "length" and abs(number) > MAX_LENGTH:
        raise TaskError("length of a rule too large for the database unit", field=rule, value=value, allowed=MAX_LENGTH)
    return number


def _own_reach(op: str, params: tuple[Any, ...]) -> int:
    if op in ("width", "space", "width_not", "separation", "enclosing"):
        return int(params[0]) + 1
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
