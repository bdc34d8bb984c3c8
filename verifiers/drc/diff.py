"""What differs between two versions of a layout, cell by cell, and where that is in the top cell's frame."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import klayout.db as kdb

from edagym.verifiers.drc.layout import DRCLayout

LayerKey = tuple[int, int]
"""Layer and datatype numbers."""

_MAX_PAIRS = 1_000_000

_FLAGS = (
    kdb.LayoutDiff.Verbose
    | kdb.LayoutDiff.NoProperties
    | kdb.LayoutDiff.PathsAsPolygons
    | kdb.LayoutDiff.BoxesAsPolygons
    | kdb.LayoutDiff.DontSummarizeMissingLayers
)


@dataclass(frozen=True, slots=True)
class Instance:
    """An instance in a cell; an array counts as one.

    Attributes:
        parent: Cell that holds the instance.
        child: Cell that is placed.
        orientation: KLayout's code of rotation and mirroring, 0-7, with an array's steps and counts appended.
        x: Displacement in database units.
        y: Displacement in database units.
    """

    parent: str
    child: str
    orientation: str
    x: int
    y: int


@dataclass(eq=False)
class LayoutChanges:
    """Differences of a layout (b) from its original (a). All geometry is in database units.

    Attributes:
        cells_lost: Cells that only the original has.
        cells_added: Cells that only the layout has.
        removed: Raw polygons by (cell, layer) that only the original has.
        added: Raw polygons by (cell, layer) that only the layout has.
        texts: (cell, layer, KLayout's notation of the text, whether it was added) of every text that differs.
        instances_lost: Instances that only the original has.
        instances_added: Instances that only the layout has.
    """

    cells_lost: list[str] = field(default_factory=list)
    cells_added: list[str] = field(default_factory=list)
    removed: dict[tuple[str, LayerKey], kdb.Region] = field(default_factory=dict)
    added: dict[tuple[str, LayerKey], kdb.Region] = field(default_factory=dict)
    texts: list[tuple[str, LayerKey, str, bool]] = field(default_factory=list)
    instances_lost: list[Instance] = field(default_factory=list)
    instances_added: list[Instance] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether there is no difference."""
        return not (
            self.cells_lost
            or self.cells_added
            or self.removed
            or self.added
            or self.texts
            or self.instances_lost
            or self.instances_added
        )

    @property
    def moves(self) -> list[tuple[Instance, Instance]]:
        """Instances that were displaced without being turned: (before, after), nearest first."""
        groups: dict[tuple[str, str, str], tuple[list[Instance], list[Instance]]] = {}
        for k, side in enumerate((self.instances_lost, self.instances_added)):
            for inst in side:
                groups.setdefault((inst.parent, inst.child, inst.orientation), ([], []))[k].append(inst)
        return [pair for before, after in groups.values() for pair in _nearest_pairs(before, after)]

    def sites(self, original: kdb.Layout, layout: kdb.Layout, grow: int = 0) -> list[Site]:
        """Return where geometry differs: boxes in the frames of the cells that were edited.

        Args:
            original: Layout a.
            layout: Layout b.
            grow: Boxes less than twice this apart are joined, database units.
        """
        boxes: dict[str, kdb.Region] = {}
        for table in (self.removed, self.added):
            for (cell, _), polygons in table.items():
                found = boxes.setdefault(cell, kdb.Region())
                for polygon in polygons.each():
                    found.insert(polygon.bbox())
        for source, moved in ((original, self.instances_lost), (layout, self.instances_added)):
            for inst in moved:
                found = boxes.setdefault(inst.parent, kdb.Region())
                found.insert(instance_box(source, inst))
        sites = []
        for cell in sorted(boxes):
            joined = boxes[cell].sized(grow).merged() if grow else boxes[cell].merged()
            sites += [Site(cell, p.bbox().enlarged(-grow, -grow)) for p in joined.each()]
        return sites


@dataclass(frozen=True, slots=True)
class Site:
    """A place where a cell was edited: a box in the cell's own frame, database units."""

    cell: str
    box: kdb.Box

    def in_top(self, layout: kdb.Layout, top: kdb.Cell, limit: int | None = None) -> list[kdb.Box]:
        """Return the box in the top cell's frame, once per flat instance of the cell.

        Args:
            layout: The layout whose instances count.
            top: Its top cell.
            limit: At most so many, evenly drawn from all.
        """
        if layout.cell(self.cell) is None:
            return []
        found = placements(layout, top, self.cell)
        if limit is not None and len(found) > limit:
            found = [found[i * len(found) // limit] for i in range(limit)]
        return [t * self.box for t in found]


def compare_layouts(original: kdb.Layout, layout: kdb.Layout) -> LayoutChanges:
    """Compare two layouts of equal database unit; cells are paired by name.

    Shapes that were split or joined appear as removed and added polygons of equal merged area. Duplicates count.
    """
    changes = LayoutChanges()
    state: dict[str, object] = {}
    unequal_instances: list[str] = []

    def begin_cell(a: kdb.Cell, b: kdb.Cell) -> None:
        state["cell"] = a.name

    def begin_layer(info: kdb.LayerInfo, index_a: int, index_b: int) -> None:
        state["layer"] = (info.layer, info.datatype)

    def put(table: dict[tuple[str, LayerKey], kdb.Region], polygon: kdb.Polygon) -> None:
        table.setdefault((state["cell"], state["layer"]), kdb.Region()).insert(polygon)  # type: ignore[arg-type]

    def text(value: kdb.Text, added: bool) -> None:
        # As a string: the object is the engine's own and lives no longer than this call.
        changes.texts.append((state["cell"], state["layer"], str(value), added))  # type: ignore[arg-type]

    diff = kdb.LayoutDiff()
    handlers: dict[str, Callable[..., None]] = {
        "on_begin_cell": begin_cell,
        "on_begin_layer": begin_layer,
        "on_cell_in_a_only": lambda cell: changes.cells_lost.append(cell.name),
        "on_cell_in_b_only": lambda cell: changes.cells_added.append(cell.name),
        "on_polygon_in_a_only": lambda polygon, _: put(changes.removed, polygon),
        "on_polygon_in_b_only": lambda polygon, _: put(changes.added, polygon),
        "on_text_in_a_only": lambda value, _: text(value, False),
        "on_text_in_b_only": lambda value, _: text(value, True),
        "on_begin_inst_differences": lambda: unequal_instances.append(str(state["cell"])),
    }
    for event, handler in handlers.items():
        setattr(diff, event, handler)
    diff.compare(original, layout, _FLAGS)
    for name in unequal_instances:
        before, after = Counter(instances(original, name)), Counter(instances(layout, name))
        changes.instances_lost += sorted((before - after).elements(), key=_order)
        changes.instances_added += sorted((after - before).elements(), key=_order)
    return changes


def _nearest_pairs(before: list[Instance], after: list[Instance]) -> list[tuple[Instance, Instance]]:
    if len(before) * len(after) > _MAX_PAIRS:  # nobody moves so many by hand: any pairing will do
        return list(zip(before, after))
    pairs = sorted((abs(a.x - b.x) + abs(a.y - b.y), i, j) for i, a in enumerate(before) for j, b in enumerate(after))
    left, right = set(range(len(before))), set(range(len(after)))
    found = []
    for _, i, j in pairs:
        if i in left and j in right:
            left.remove(i)
            right.remove(j)
            found.append((before[i], after[j]))
    return found


def _order(inst: Instance) -> tuple[str, int, int, str]:
    return (inst.child, inst.x, inst.y, inst.orientation)


def with_instances_moved(
    original: DRCLayout, changes: LayoutChanges, reach: int | None = None
) -> tuple[DRCLayout, list[tuple[Instance, Instance]]]:
    """Return the original with the instances displaced that a layout displaced, and which they are.

    Args:
        original: Layout a.
        changes: Its differences to layout b.
        reach: Longest displacement in x or y that is made, database units; None: any.

    Returns:
        A copy with all those moves made; the original itself where there are none.
    """
    steps = [(a, b) for a, b in changes.moves if reach is None or max(abs(b.x - a.x), abs(b.y - a.y)) <= reach]
    if not steps:
        return original, []
    moved = original.copy()
    for a, b in steps:
        parent = moved.layout.cell(a.parent)
        for inst in parent.each_inst():
            if inst.trans.disp == kdb.Vector(a.x, a.y) and moved.layout.cell(inst.cell_index).name == a.child:
                inst.trans = kdb.Trans(kdb.Vector(b.x - a.x, b.y - a.y)) * inst.trans
                break
    return moved, steps


def without_instances(original: DRCLayout, instances: Iterable[Instance]) -> DRCLayout:
    """Return a copy of a layout without some of its instances."""
    rest = original.copy()
    for gone in instances:
        at = kdb.Vector(gone.x, gone.y)
        found = (i for i in rest.layout.cell(gone.parent).each_inst() if i.trans.disp == at)
        for inst in [i for i in found if rest.layout.cell(i.cell_index).name == gone.child][:1]:
            inst.delete()
    return rest


def instances(layout: kdb.Layout, cell: str) -> list[Instance]:
    """Return the instances in a cell."""
    names = {c.cell_index(): c.name for c in layout.each_cell()}
    found = []
    for inst in layout.cell(cell).each_inst():
        trans = inst.trans
        orientation = str(trans.rot)
        if inst.is_complex():
            orientation += f" {inst.cplx_trans.mag:g} {inst.cplx_trans.angle:g}"
        if inst.is_regular_array():
            orientation += f" {inst.a} {inst.b} {inst.na} {inst.nb}"
        found.append(Instance(cell, names[inst.cell_index], orientation, trans.disp.x, trans.disp.y))
    return found


def instance_box(layout: kdb.Layout, inst: Instance) -> kdb.Box:
    """Return the bounding box of an instance (the whole of an array) in its parent's frame."""
    child = layout.cell(inst.child).cell_index()
    box = kdb.Box()
    for found in layout.cell(inst.parent).each_inst():
        at = found.trans.disp
        if found.cell_index == child and (at.x, at.y) == (inst.x, inst.y):
            box += found.bbox()
    return box


def placements(layout: kdb.Layout, top: kdb.Cell, cell: str) -> list[kdb.ICplxTrans]:
    """Return how a cell is placed in the top cell: one transformation per flat instance, the identity for the top."""
    target = layout.cell(cell)
    if target.cell_index() == top.cell_index():
        return [kdb.ICplxTrans()]
    it = kdb.RecursiveInstanceIterator(layout, top)
    it.targets = [target.cell_index()]
    found = []
    while not it.at_end():
        found.append(it.trans() * it.inst_trans())
        it.next()
    return found
