"""Incremental re-check: after an edit, only the markers near it are computed again. Equal to a full check, always."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import klayout.db as kdb

from edagym.verifiers.drc.check import Checker, Task, find_markers, groups, raw_shapes
from edagym.verifiers.drc.expression import Expr
from edagym.verifiers.drc.graph import Graph, compile_table
from edagym.verifiers.drc.layout import DRCLayout
from edagym.verifiers.drc.markers import Box, Marker, MarkerStore, touches
from edagym.verifiers.drc.presence import Presence, Slants, is_small, layer_extents
from edagym.verifiers.drc.rules import RuleTable
from edagym.verifiers.drc.seams import seam_layers
from edagym.verifiers.drc.zone import Dirty, LocalView, RulePlan, box_of, grown, plan_rules, union

_PAD_NM = 12
_NEAR_NM = 200
# Edits of a master with more placements than this are cheaper to check by evaluating the rules on the whole layout.
_MAX_CLUSTERS = 400
# More pieces than this are not looked at one by one.
_MAX_PIECES = 60


@dataclass(frozen=True, slots=True)
class ShapeChange:
    """The shapes of one layer that an edit removed and added, in database units of the top cell.

    To be given only for the last edit, with all earlier ones checked: what other shapes cover is read off the layout as
    it is. With it, a re-check looks only where the edit made a difference: at the ends of a rail that was lengthened,
    or nowhere, where other shapes of the layer cover what was removed.
    """

    layer: str
    removed: tuple[kdb.Polygon, ...] = ()
    added: tuple[kdb.Polygon, ...] = ()


@dataclass(frozen=True, slots=True)
class _Edit:
    """Where an edit of some layers made a difference: to the outlines of shapes, and to the area that they cover.

    `seam` is the layer for whose rules the two are told apart, if they are.
    """

    layers: frozenset[str]
    outlines: list[Box]
    areas: list[Box]
    seam: str | None


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
        if self.markers.context is None:
            self.markers.context = (layer_extents(layout, self._graph), is_small(layout), Slants())
            if markers is not None:
                markers.context = self.markers.context  # for the next checker of this layout
        self._context = self.markers.context
        self._presence = Presence(self._graph, *self._context[:2])

    def recheck(self, dirty: Iterable[Box], layers: Iterable[str], change: ShapeChange | None = None) -> frozenset[str]:
        """Bring the markers up to date after an edit.

        Args:
            dirty: Boxes in database units of the top cell that together cover every shape that was added or removed
                (for an edit inside a master: at every placement).
            layers: Names of the layers that those shapes are on.
            change: All that was changed, if that is shapes of one layer. Not needed, but saves time.

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
        edit = self._edit(names, clusters, change)
        # A notch is a space: where there are none, there are no notches either, wherever the connection runs.
        later = [p for p in plans if p.rule in self._supersets and not self.markers.has(p.rule)]
        first = [p for p in plans if p not in later]
        changed = self._recheck_rules(first, everywhere, edit)
        later = [p for p in later if p.rule in everywhere or self.markers.has(self._supersets[p.rule])]
        changed |= self._recheck_rules(later, everywhere, edit)
        done = {p.rule for p in plans}
        changed |= self._replace_all([p for p in self._plans.values() if p.rule in everywhere and p.rule not in done])
        return frozenset(changed)

    def _recheck_rules(self, plans: Sequence[RulePlan], everywhere: set[str], edit: _Edit) -> set[str]:
        """Re-check rules, those in `everywhere` on the whole layout; return those whose markers changed."""
        bounds = self._bounds()
        changed: set[str] = set()
        local = [p for p in plans if p.rule not in everywhere]
        seams = [p for p in local if edit.seam is not None and edit.seam in self._seams(p)]
        for some, boxes in ((seams, edit.outlines), ([p for p in local if p not in seams], edit.areas)):
            for group in groups(some):
                for box in boxes:
                    changed |= self._recheck_box(Dirty(box, edit.layers), group, bounds)
        rest = [p for p in plans if p.rule in everywhere]
        if self._presence.small:
            # Rules that depend on what only the whole layout knows, where that can make a difference.
            rest += [p for p in local if self._unknown(p) and (p.rule in changed or self.markers.has(p.rule))]
        return changed | self._replace_all(rest)

    def _seams(self, plan: RulePlan) -> frozenset[str]:
        return seam_layers(self._graph, plan.outputs, self._presence)

    def _edit(self, layers: frozenset[str], clusters: list[Box], change: ShapeChange | None) -> _Edit:
        """Find out where the outlines of a layer's shapes differ, and where the area that they cover together does."""
        if change is None or layers != {change.layer} or self._slanted(change.layer):
            return _Edit(layers, clusters, clusters, None)
        near = _dbu(_NEAR_NM, self.layout.dbu)
        difference = kdb.Region(list(change.removed)) ^ kdb.Region(list(change.added))
        outlines = _clusters(_pieces(difference), near)
        areas: list[Box] = []
        for box in outlines:
            others = kdb.Region()
            added = [p for p in change.added if touches(box_of(p.bbox()), box)]
            for polygon in (self._shapes(change.layer, box) or kdb.Region()).each():
                if polygon in added:
                    added.remove(polygon)
                else:
                    others.insert(polygon)
            if any(p.touches(kdb.Box(*box)) for p in added):  # not the layout as this edit left it
                return _Edit(layers, clusters, clusters, None)
            areas += _pieces((difference & kdb.Region(kdb.Box(*box))) - others)
        return _Edit(layers, outlines, _clusters(areas, near), change.layer)

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
        """Evaluate rules on the whole layout."""
        if not plans:
            return set()
        checker = Checker(self.layout, self.table, self._presence)
        found = checker.run(Task(tuple(p.rule for p in plans), None)).found
        changed = set()
        for plan in plans:
            old, new = self.markers.of(plan.rule), found.get(plan.rule, {})
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


def _pieces(region: kdb.Region) -> list[Box]:
    """Return boxes that cover a region: one per rectangle that it consists of, if these are not many."""
    parts = region.decompose_trapezoids_to_region()
    if parts.count() > _MAX_PIECES:
        parts = kdb.Region(region.bbox())
    return [box_of(p.bbox()) for p in parts.each()]


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
