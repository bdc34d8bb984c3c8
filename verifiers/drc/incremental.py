"""Incremental re-check: after an edit, only the markers near it are computed again. Equal to a full check, always."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import klayout.db as kdb

from edagym.verifiers.drc.check import find_markers, groups, raw_shapes
from edagym.verifiers.drc.expression import Expr
from edagym.verifiers.drc.graph import Graph, compile_table
from edagym.verifiers.drc.layout import DRCLayout
from edagym.verifiers.drc.markers import Box, Marker, MarkerStore, touches
from edagym.verifiers.drc.presence import Presence, Slants, is_small, layer_extents
from edagym.verifiers.drc.rules import RuleTable
from edagym.verifiers.drc.zone import Dirty, LocalView, RulePlan, grown, plan_rules, union

_PAD_NM = 12
_NEAR_NM = 200
# Edits of a master with more placements than this are cheaper to check by evaluating the rules on the whole layout.
_MAX_CLUSTERS = 400


class IncrementalChecker:
    """Keeps the markers of a layout up to date while it is edited.

    Args:
        layout: The layout. Edit it in place, then call `recheck`.
        table: The rules.
        markers: All flat markers of the layout as it is, e.g. `CheckReport.markers`; computed if not given.

    Attributes:
        markers: The current markers.
    """

    def __init__(self, layout: DRCLayout, table: RuleTable, markers: MarkerStore | None = None) -> None:
        self.layout = layout
        self.table = table
        self.markers = markers.copy() if markers is not None else find_markers(layout, table)
        self._graph = compile_table(table, layout.dbu)
        self._plans = plan_rules(self._graph)
        self._supersets = _supersets(self._graph)
        self._pad = _dbu(_PAD_NM, layout.dbu)
        slants = self.markers.context[2] if self.markers.context else Slants()
        self._context = self.markers.context = (layer_extents(layout, self._graph), is_small(layout), slants)
        self._presence = Presence(self._graph, *self._context[:2])

    def recheck(self, dirty: Iterable[Box], layers: Iterable[str]) -> frozenset[str]:
        """Bring the markers up to date after an edit.

        Args:
            dirty: Boxes in database units of the top cell that together cover every shape that was added or removed
                (for an edit inside a master: at every placement).
            layers: Names of the layers that those shapes are on.

        Returns:
            The ids of the rules whose markers may have changed; those of all others have not.
        """
        names = frozenset(layers)
        plans = [p for p in self._plans.values() if p.layers & names]
        clusters = _clusters(dirty, _dbu(_NEAR_NM, self.layout.dbu))
        if not plans or not clusters:
            return frozenset()
        everywhere = self._look(plans, names, clusters)
        if len(clusters) > _MAX_CLUSTERS:
            everywhere |= {p.rule for p in plans}
        bounds = self._bounds()
        changed: set[str] = set()
        for group in groups([p for p in plans if p.rule not in everywhere and p.rule not in self._supersets]):
            for box in clusters:
                changed |= self._recheck_box(Dirty(box, names), group, bounds)
        if self._presence.small:
            # Rules that depend on what only the whole layout knows, where that can make a difference.
            everywhere |= {
                p.rule for p in plans if self._unknown(p) and (p.rule in changed or self.markers.has(p.rule))
            }
        affected = everywhere | {p.rule for p in plans if p.rule in self._supersets}
        changed |= self._replace_all([p for p in self._plans.values() if p.rule in affected])
        return frozenset(changed)

    def _unknown(self, plan: RulePlan) -> bool:
        return any(self._presence.acts(n) is None for n in plan.booleans)

    def _look(self, plans: Sequence[RulePlan], layers: frozenset[str], dirty: Sequence[Box]) -> set[str]:
        """Note what the edit did to the layers as a whole; return the rules that it affects everywhere."""
        old, was_small, slants = self._context = self.markers.context or self._context
        for name in layers:
            for box in dirty:
                slants.note(name, self._shapes(name, box))
        extents, small = old | layer_extents(self.layout, self._graph, layers), is_small(self.layout)
        before = Presence(self._graph, old, was_small)
        if extents == old and small == was_small:
            self._presence = before
            return set()
        self._context = self.markers.context = (extents, small, slants)
        self._presence = Presence(self._graph, extents, small)
        if small != was_small:
            return set(self._plans)
        return {p.rule for p in plans if any(self._presence.acts(n) != before.acts(n) for n in p.booleans)}

    def _bounds(self) -> Box:
        b = self.layout.top.bbox()
        return (0, 0, 0, 0) if b.empty() else (b.left, b.bottom, b.right, b.top)

    def _shapes(self, name: str, box: Box | None) -> kdb.Region | None:
        return raw_shapes(self.layout, self.table, name, box)

    def _slanted(self, name: str) -> bool:
        return bool(self._context[2].has(self.layout, self._graph, name))

    def _recorded(self, rule: str, box: Box) -> bool:
        return bool(self.markers.touching(rule, box))

    def _recheck_box(self, dirty: Dirty, group: Sequence[RulePlan], bounds: Box) -> set[str]:
        view = LocalView(
            self._graph,
            group,
            self._shapes,
            dirty.box,
            self._pad,
            bounds,
            self._presence,
            self._slanted,
            dirty,
            self._recorded,
        )
        changed = set()
        for plan in group:
            zone = view.zone(plan)
            if zone is not None and self._replace(plan.rule, zone, view.markers(plan, zone)):
                changed.add(plan.rule)
        return changed

    def _replace(self, rule: str, zone: Box, found: dict[Marker, int]) -> bool:
        """Put the zone's new markers of a rule in the place of the old ones; return whether anything changed."""
        store = self.markers
        changed = False
        for m in store.touching(rule, zone):
            if m not in found:
                store.remove(m)
                changed = True
        for m, n in found.items():
            if store.multiplicity(m) != n:
                store.put(m, n)
                changed = True
        return changed

    def _replace_all(self, plans: Sequence[RulePlan]) -> set[str]:
        """Evaluate rules on the whole layout, except those whose superset has no markers."""
        if not any(self.markers.has(p.rule) for p in plans) and all(p.rule in self._supersets for p in plans):
            plans = [p for p in plans if self.markers.has(self._supersets[p.rule])]
        if not plans:
            return set()
        empty = {p.rule for p in plans if p.rule in self._supersets and not self.markers.has(self._supersets[p.rule])}
        found = find_markers(self.layout, self.table, rules=[p.rule for p in plans if p.rule not in empty])
        changed = set()
        for plan in plans:
            old, new = self.markers.of(plan.rule), found.of(plan.rule)
            for m in old.keys() - new.keys():
                self.markers.remove(m)
            for m, n in new.items():
                self.markers.put(m, n)
            if old != new:
                changed.add(plan.rule)
        return changed


def _dbu(nm: float, dbu: float) -> int:
    return max(1, round(nm * 0.001 / dbu))


@lru_cache(maxsize=16)
def _supersets(graph: Graph) -> Mapping[str, str]:
    """Return, for rules that look for narrow notches, a rule that finds at least as much.

    Whether two edges form a notch depends on a connection that may run far away. But notches are spaces: where the same
    measurement with `space` is another rule that finds nothing, there are no notches either.
    """
    single = {
        r.measures[0]: r.id for r in graph.table.rules.values() if len(r.measures) == 1 and not _uses(r.measures[0])
    }
    supersets = {}
    for rule in graph.table.rules.values():
        if len(rule.measures) == 1 and _uses(rule.measures[0]):
            twin = single.get(_with_space(rule.measures[0]))
            if twin is not None and _monotone(rule.measures[0]):
                supersets[rule.id] = twin
    return supersets


def _uses(e: Expr) -> bool:
    return e.op == "notch" or any(_uses(a) for a in e.args)


def _with_space(e: Expr) -> Expr:
    op = "space" if e.op == "notch" else e.op
    return Expr(op, tuple(_with_space(a) for a in e.args), e.params, e.kind)


def _monotone(e: Expr) -> bool:
    """Return whether more pairs in the notch check can only mean more in the result."""
    if e.op == "notch":
        return True
    if e.op not in ("with_angle", "edges", "not", "and"):
        return False
    return _monotone(e.args[0]) and not any(_uses(a) for a in e.args[1:])


def _clusters(boxes: Iterable[Box], near: int) -> list[Box]:
    """Join boxes that are near one another, in any order of input to the same result."""
    joined = sorted({(min(b[0], b[2]), min(b[1], b[3]), max(b[0], b[2]), max(b[1], b[3])) for b in boxes})
    if len(joined) > _MAX_CLUSTERS:
        return joined
    merging = True
    while merging:
        merging = False
        result: list[Box] = []
        for b in joined:
            for k, other in enumerate(result):
                if touches(grown(b, near), other):
                    result[k] = union(b, other)
                    merging = True
                    break
            else:
                result.append(b)
        joined = sorted(result)
    return joined
