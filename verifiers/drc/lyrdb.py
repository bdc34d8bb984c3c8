"""KLayout report databases (`.lyrdb`): export of our reports, import of any.

KLayout opens exported files in its marker browser; the importer reads those of the sign-off deck and ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import klayout.db as kdb
import klayout.rdb as rdb

from edagym.errors import TaskError
from edagym.verifiers.drc.markers import Marker, from_klayout
from edagym.verifiers.drc.report import CheckReport

_MAX_BYTES = 500_000_000


@dataclass(frozen=True, slots=True)
class ImportedItem:
    """One item of a report database.

    Attributes:
        rule: Category name.
        description: Category description.
        cell: Cell name without variant.
        variant: Variant name, e.g. ``"m0"``, or empty.
        value: Geometry as KLayout writes it, in micrometres in the cell's frame, e.g. ``"edge: (0,0;0,0.1)"``.
        parent: Parent cell of the example placement, or empty.
        trans: The example placement, e.g. ``"r0 *1 8.64,2.7"``, or empty.
    """

    rule: str
    description: str
    cell: str
    variant: str
    value: str
    parent: str
    trans: str

    @property
    def qualified_cell(self) -> str:
        """The cell's name with its variant."""
        return f"{self.cell}:{self.variant}" if self.variant else self.cell

    def marker(self, dbu: float, *, unordered: bool = False) -> Marker:
        """Return the geometry in database units.

        Args:
            dbu: Database unit in micrometres.
            unordered: Whether the order of a pair's edges means nothing.

        Raises:
            TaskError: If the value is no polygon, edge or edge pair.
        """
        kind, _, text = self.value.partition(": ")
        parser: Any = {"polygon": kdb.DPolygon, "edge": kdb.DEdge, "edge-pair": kdb.DEdgePair}.get(kind)
        if parser is None:
            raise TaskError("item without geometry", field=self.rule, value=self.value)
        try:
            return from_klayout(self.rule, parser.from_s(text).to_itype(dbu), unordered)  # type: ignore[attr-defined]
        except RuntimeError as e:
            raise TaskError(f"item with unreadable geometry ({e})", field=self.rule, value=self.value) from None


@dataclass(frozen=True, slots=True)
class ImportedReport:
    """A report database: its head and its items in file order."""

    top_cell: str
    description: str
    generator: str
    items: tuple[ImportedItem, ...]

    def counts(self) -> dict[str, int]:
        """Return the number of items per category, empty ones left out."""
        counts: dict[str, int] = {}
        for item in self.items:
            counts[item.rule] = counts.get(item.rule, 0) + 1
        return counts


def check_target(path: str | Path) -> None:
    """Check that a report can be written there.

    Raises:
        TaskError: If the folder doesn't exist, or the path is a folder.
    """
    if Path(path).is_dir() or not Path(path).resolve().parent.is_dir():
        raise TaskError("no report can be written there", field="lyrdb", value=str(path), allowed="a file in a folder")


def write_lyrdb(report: CheckReport, path: str | Path) -> None:
    """Write a report as a KLayout report database, all rules as categories.

    Raises:
        TaskError: If the file can't be written.
    """
    check_target(path)
    database = rdb.ReportDatabase("")
    database.description = f"EDAGym DRC report, rules {report.table.name}"
    database.generator = "edagym drc"
    database.top_cell_name = report.layout.top.name
    categories = {}
    for rule in report.table.rules.values():
        category = database.create_category(rule.id)
        category.description = f"{rule.id} : {rule.description}"
        categories[rule.id] = category.rdb_id()
    top = database.create_cell(report.layout.top.name)
    cells: dict[tuple[str, str], Any] = {(report.layout.top.name, ""): top}
    dbu = report.layout.dbu
    for item in report.items:
        key = (item.cell, item.variant)
        if key not in cells:
            cell = database.create_cell(item.cell, item.variant) if item.variant else database.create_cell(item.cell)
            cell.add_reference(rdb.RdbReference(kdb.DCplxTrans.from_s(item.trans), top.rdb_id()))
            cells[key] = cell
        entry = database.create_item(cells[key].rdb_id(), categories[item.rule])
        entry.add_value(rdb.RdbItemValue(item.marker.to_klayout().to_dtype(dbu)))
    try:
        database.save(str(path))
    except RuntimeError as e:
        raise TaskError(f"{path}: cannot be written ({' '.join(str(e).split())})") from None


def read_lyrdb(path: str | Path) -> ImportedReport:
    """Read a KLayout report database.

    Raises:
        TaskError: If the file can't be read or is no report database.
    """
    try:
        if Path(path).stat().st_size > _MAX_BYTES:
            raise TaskError(f"{path}: report too large", field="size", allowed=f"up to {_MAX_BYTES} bytes")
        database = rdb.ReportDatabase("")
        database.load(str(path))
    except OSError as e:
        raise TaskError(f"{path}: cannot be read ({e.strerror})") from None
    except RuntimeError as e:
        raise TaskError(f"{path}: not a report database ({' '.join(str(e).split())})") from None
    items: list[ImportedItem] = []
    for item in database.each_item():
        category = database.category_by_id(item.category_id())
        cell = database.cell_by_id(item.cell_id())
        parent = trans = ""
        for reference in cell.each_reference():
            parent = database.cell_by_id(reference.parent_cell_id).name()
            trans = str(reference.trans.to_s())
            break
        for value in item.each_value():
            variant = cell.qname().removeprefix(cell.name()).removeprefix(":")
            text = str(value.to_s())
            items.append(ImportedItem(category.name(), category.description, cell.name(), variant, text, parent, trans))
    return ImportedReport(database.top_cell_name, database.description, database.generator, tuple(items))
