"""`FETLayout`: the layered geometry of one FET task, on the 1 nm grid, and its GDSII form.

Shapes are kept as plain integer rings, which pickle, copy and compare; KLayout regions are made from them on demand
and cached, because KLayout objects do not pickle. Holes are keyholed (`Polygon.resolved_holes`), as GDSII itself
stores them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import klayout.db as kdb

from edagym.errors import TaskError, ToolError
from edagym.task_assets.fet.grid import IntRing, ring_to_dbu, ring_to_um
from edagym.task_assets.fet.task import DBU_UM, FETTask, LayerSpec, Region

if TYPE_CHECKING:
    import gdstk

_COORD_LIMIT = 2**30
# Vertices in a file, hierarchy flattened: a few hundred bytes of nested arrays can stand for 10^12 shapes.
_MAX_FILE_POINTS = 1_000_000


class FETLayout:
    """Shapes per layer, in database units (1 nm).

    Args:
        layers: The layer table.
        shapes: Rings per layer name; missing layers are empty.
    """

    __slots__ = ("_cache", "_shapes", "layers")

    def __init__(self, layers: tuple[LayerSpec, ...], shapes: Mapping[str, Iterable[IntRing]] | None = None) -> None:
        self.layers = layers
        given = shapes or {}
        self._shapes: dict[str, tuple[IntRing, ...]] = {s.name: tuple(given.get(s.name, ())) for s in layers}
        self._cache: dict[str, kdb.Region] = {}

    # -- construction ----------------------------------------------------------------------------------------------

    @classmethod
    def from_task(cls, task: FETTask) -> FETLayout:
        """Return the task's initial layout: flakes on the read-only layers, nothing else."""
        shapes: dict[str, list[IntRing]] = {}
        for region in task.regions:
            shapes.setdefault(region.material, []).append(region_ring(region))
        return cls(task.layers, {k: tuple(v) for k, v in shapes.items()})

    def copy(self) -> FETLayout:
        """Return an independent copy; cached regions are shared until a layer changes."""
        other = FETLayout.__new__(FETLayout)
        other.layers = self.layers
        other._shapes = dict(self._shapes)
        other._cache = dict(self._cache)
        return other

    def __getstate__(self) -> tuple[Any, ...]:
        return (self.layers, self._shapes)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.layers, self._shapes = state
        self._cache = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FETLayout) and self._shapes == other._shapes

    __hash__ = None  # type: ignore[assignment]  # mutable

    # -- shapes ----------------------------------------------------------------------------------------------------

    def shapes(self, layer: str) -> tuple[IntRing, ...]:
        """Return the rings of a layer in drawing order (database units)."""
        return self._shapes[layer]

    def add(self, layer: str, ring: IntRing) -> None:
        """Append a ring to a layer. No validation: the interpreter does that."""
        self._shapes[layer] = (*self._shapes[layer], ring)
        self._cache.pop(layer, None)

    def replace(self, layer: str, rings: Iterable[IntRing]) -> None:
        """Replace all rings of a layer."""
        self._shapes[layer] = tuple(rings)
        self._cache.pop(layer, None)

    @property
    def n_shapes(self) -> int:
        """Number of shapes on editable layers."""
        return sum(len(self._shapes[s.name]) for s in self.layers if s.editable)

    def region(self, layer: str) -> kdb.Region:
        """Return the merged region of a layer. Treat it as read-only: it is cached."""
        region = self._cache.get(layer)
        if region is None:
            region = kdb.Region()
            for ring in self._shapes[layer]:
                # Not raw: merging passes a lone four-point ring through as it is, repeated points included.
                region.insert(kdb.Polygon(cast(Any, ring)))
            region.merge()
            self._cache[layer] = region
        return region

    # -- GDSII -----------------------------------------------------------------------------------------------------

    def to_klayout(self, cell_name: str = "TOP") -> kdb.Layout:
        """Return a new KLayout layout with one cell; shapes as drawn."""
        layout = kdb.Layout()
        layout.dbu = DBU_UM
        top = layout.create_cell(cell_name)
        for spec in self.layers:
            index = layout.layer(kdb.LayerInfo(spec.gds_layer, spec.datatype, spec.name))
            target = top.shapes(index)
            for ring in self._shapes[spec.name]:
                target.insert(kdb.SimplePolygon([kdb.Point(x, y) for x, y in ring], True))
        return layout

    def to_gds_bytes(self) -> bytes:
        """Return the GDSII stream: no timestamps, so equal layouts have equal bytes."""
        options = kdb.SaveLayoutOptions()
        options.format = "GDS2"
        options.gds2_write_timestamps = False
        options.gds2_max_vertex_count = 8000
        return bytes(self.to_klayout().write_bytes(options))

    def write_gds(self, path: str | Path) -> None:
        """Write a GDSII file (`to_gds_bytes`)."""
        Path(path).write_bytes(self.to_gds_bytes())

    @classmethod
    def from_gds_bytes(cls, data: bytes, layers: tuple[LayerSpec, ...], source: str = "GDS data") -> FETLayout:
        """Read a GDSII stream: all shapes of the (single) top cell, hierarchy flattened, paths and boxes as polygons.

        Layers that are not in the layer table are ignored.

        Args:
            data: The GDSII (or any KLayout-readable) stream.
            layers: The layer table.
            source: Name for error messages.

        Raises:
            TaskError: If the stream cannot be read, has no or several top cells, another database unit, coordinates
                beyond 2^30 nm, or too many vertices.
        """
        layout = kdb.Layout()
        try:
            layout.read_bytes(data, kdb.LoadLayoutOptions())
        except RuntimeError as e:
            raise TaskError(f"{source}: not a readable layout file ({e})") from e
        if abs(layout.dbu - DBU_UM) > 1e-9:
            raise TaskError(f"{source}: wrong database unit", field="dbu", value=layout.dbu, allowed=f"{DBU_UM} um")
        tops = layout.top_cells()
        if len(tops) != 1:
            raise TaskError(
                f"{source}: needs exactly one top cell", field="top cells", value=[c.name for c in tops], allowed=1
            )
        shapes: dict[str, tuple[IntRing, ...]] = {}
        points_left = _MAX_FILE_POINTS
        for spec in layers:
            index = layout.find_layer(spec.gds_layer, spec.datatype)
            if index is None:
                continue
            rings: list[IntRing] = []
            for polygon in kdb.Region(tops[0].begin_shapes_rec(index)).each():
                box = polygon.bbox()
                if max(abs(box.left), abs(box.right), abs(box.bottom), abs(box.top)) > _COORD_LIMIT:
                    raise TaskError(
                        f"{source}: coordinate out of range", field=spec.name, value=str(box), allowed="|x| <= 2^30 nm"
                    )
                rings.append(polygon_ring(polygon))
                points_left -= len(rings[-1])
                if points_left < 0:
                    raise TaskError(
                        f"{source}: too many vertices", field=spec.name, allowed=f"<= {_MAX_FILE_POINTS} in all"
                    )
            shapes[spec.name] = tuple(rings)
        return cls(layers, shapes)

    @classmethod
    def read_gds(cls, path: str | Path, layers: tuple[LayerSpec, ...]) -> FETLayout:
        """Read a GDSII file; raises `TaskError` naming the file and the fault."""
        try:
            data = Path(path).read_bytes()
        except OSError as e:
            raise TaskError(f"cannot read layout file {path}: {e}") from e
        return cls.from_gds_bytes(data, layers, str(path))

    # -- gdstk -----------------------------------------------------------------------------------------------------

    def to_gdstk(self, cell_name: str = "TOP") -> gdstk.Library:
        """Return the layout as a gdstk library with one cell; coordinates in um, precision 1 nm."""
        import gdstk

        library = gdstk.Library(unit=1e-6, precision=DBU_UM * 1e-6)
        cell = library.new_cell(cell_name)
        for spec in self.layers:
            for ring in self._shapes[spec.name]:
                cell.add(gdstk.Polygon(ring_to_um(ring), layer=spec.gds_layer, datatype=spec.datatype))
        return library

    @classmethod
    def from_gdstk(cls, library: gdstk.Library, layers: tuple[LayerSpec, ...]) -> FETLayout:
        """Build a layout from the (single) top cell of a gdstk library, references and paths as polygons.

        Raises:
            TaskError: If there is not exactly one top cell.
        """
        tops = library.top_level()
        if len(tops) != 1:
            raise TaskError(
                "a gdstk library needs exactly one top cell", field="top cells", value=[c.name for c in tops], allowed=1
            )
        scale = library.unit / 1e-6  # the library's user unit in um
        shapes: dict[str, list[IntRing]] = {}
        names = {(spec.gds_layer, spec.datatype): spec.name for spec in layers}
        for polygon in cast(Any, tops[0]).get_polygons():
            name = names.get((polygon.layer, polygon.datatype))
            if name is not None:
                shapes.setdefault(name, []).append(ring_to_dbu([(x * scale, y * scale) for x, y in polygon.points]))
        return cls(layers, shapes)

    def round_trip(self) -> FETLayout:
        """Return this layout written as GDSII and read back (paper, Section 3: fixed-input check)."""
        try:
            return FETLayout.from_gds_bytes(self.to_gds_bytes(), self.layers, "round trip")
        except TaskError as e:
            raise ToolError(f"GDSII round trip failed: {e}") from e


def polygon_ring(polygon: kdb.Polygon) -> IntRing:
    """Return a KLayout polygon as one ring, holes keyholed."""
    if polygon.holes():
        polygon = polygon.resolved_holes()
    return tuple((p.x, p.y) for p in polygon.each_point_hull())


def region_ring(region: Region) -> IntRing:
    """Return a flake as one ring in database units, holes keyholed."""
    return polygon_ring(region_polygon(region))


def region_polygon(region: Region) -> kdb.Polygon:
    """Return a flake as a KLayout polygon with true holes, in database units."""
    polygon = kdb.Polygon([kdb.Point(x, y) for x, y in ring_to_dbu(region.hull)])
    for hole in region.holes:
        polygon.insert_hole([kdb.Point(x, y) for x, y in ring_to_dbu(hole)])
    return polygon
