"""`characterise`: make the compact technology data from Liberty files.

Input is a folder with Liberty files of the ASAP7 cells, plain or gzip, split into cell groups as in a checkout of
OpenROAD-flow-scripts (``asap7sc7p5t_AO_RVT_FF_nldm_*.lib.gz``) or merged. Cells that the flow never places are dropped.
Where a library has several tables for one arc (one per side condition ``when``), the worst is kept, value by value; the
energies of the supply pins of one arc are added.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from edagym.errors import TaskError
from edagym.task_assets.ppa import liberty, technology
from edagym.task_assets.ppa.liberty import Group

SCALES = {"pairs": 1.0, "constraints": 1.0, "energies": 0.02, "input_energies": 0.02}
"""Scale of each kind of table for `technology.encode`: ps, ps, fJ, fJ."""
_CHECKS = {"setup": "setup", "hold": "hold", "recovery": "recovery", "removal": "removal"}


def characterise(folder: Path, out: Path, corners: Iterable[str] = ("FF",)) -> dict[str, Any]:
    """Write ``asap7_VT_CORNER.npz`` for every threshold voltage and corner.

    Args:
        folder: Folder with Liberty files, searched with its sub-folders.
        out: Folder that the data files are written to.
        corners: Corners to make.

    Returns:
        Per data file: bytes, cells, tables, and the largest error of the coded values against Liberty's.

    Raises:
        TaskError: If a library is missing or has another form.
    """
    report: dict[str, Any] = {}
    for corner in corners:
        for vt in technology.VTS:
            pattern = re.compile(rf"asap7\w*_{vt}_{corner}(?:_\w+)?\.lib(?:\.gz)?$")
            # A checkout has current-source models beside the table models; links repeat files under older names.
            files = sorted(
                path
                for path in folder.rglob("*")
                if pattern.match(path.name) and "ccs" not in path.name.lower() and not path.is_symlink()
            )
            if not files:
                raise TaskError("no Liberty file of this threshold and corner", field="liberty", value=f"{vt} {corner}")
            target = out / f"asap7_{vt}_{corner}.npz"
            report[target.name] = _write(files, target)
    return report


def _write(files: list[Path], target: Path) -> dict[str, Any]:
    tables = _Tables()
    cells: dict[str, dict[str, Any]] = {}
    voltage = 0.0
    for path in files:
        data = path.read_bytes()
        library = liberty.parse((gzip.decompress(data) if path.suffix == ".gz" else data).decode())
        voltage = library.number("nom_voltage")
        templates = {group.arguments[0]: group for group in library.groups if "template" in group.name}
        for group in library.inner("cell"):
            if technology.kept(group.arguments[0]):
                cells[group.arguments[0]] = _cell(group, tables, templates)
    arrays = tables.arrays()
    meta: dict[str, Any] = {"voltage": voltage, "codes": {}, "cells": [cells[name] for name in sorted(cells)]}
    coded: dict[str, np.ndarray] = {}
    errors = {}
    for name, values in arrays.items():
        codes, step = technology.encode(values, SCALES[name])
        meta["codes"][name] = {"scale": SCALES[name], "step": step}
        coded[name] = np.diff(codes, axis=-1, prepend=np.int16(0))
        decoded = technology.decode(codes, SCALES[name], step)
        errors[name] = float(np.max(np.abs(decoded - values) / (np.abs(values) + SCALES[name]), initial=0.0))
    text = json.dumps(meta, sort_keys=True, separators=(",", ":"))
    target.parent.mkdir(parents=True, exist_ok=True)
    arrays = {"meta": np.frombuffer(text.encode(), dtype=np.uint8), **coded}
    np.savez_compressed(target, allow_pickle=False, **arrays)  # type: ignore[arg-type]
    return {
        "bytes": target.stat().st_size,
        "cells": len(cells),
        "tables": {name: len(values) for name, values in arrays.items()},
        "max_error": errors,
    }


class _Tables:
    """Tables in order of appearance, equal ones once."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[bytes, tuple[int, np.ndarray]]] = {name: {} for name in SCALES}

    def add(self, kind: str, values: np.ndarray) -> int:
        rows = self._rows[kind]
        key = values.tobytes()
        if key not in rows:
            rows[key] = (len(rows), values)
        return rows[key][0]

    def arrays(self) -> dict[str, np.ndarray]:
        shapes = {"pairs": (0, 2, 7, 7), "constraints": (0, 7, 7), "energies": (0, 7, 7), "input_energies": (0, 7)}
        return {
            name: np.array([values for _, values in rows.values()]) if rows else np.zeros(shapes[name])
            for name, rows in self._rows.items()
        }


def _cell(group: Group, tables: _Tables, templates: dict[str, Group]) -> dict[str, Any]:
    name = group.arguments[0]
    cell: dict[str, Any] = {
        "name": name,
        "area": group.number("area"),
        "leakage": _leakage(group),
        "arcs": [],
        "checks": [],
        "power": [],
    }
    for kind in ("ff", "latch"):
        for state in group.inner(kind):
            latch = kind == "latch"
            cell["register"] = {
                "latch": latch,
                "names": list(state.arguments),
                "clock": _short(state.text("enable" if latch else "clocked_on")),
                "next": _short(state.text("data_in" if latch else "next_state")),
                "clear": _short(state.text("clear")),
                "preset": _short(state.text("preset")),
            }
    pins = []
    for pin in group.inner("pin"):
        direction = pin.text("direction")
        if direction not in ("input", "output"):
            continue
        made: dict[str, Any] = {"name": pin.arguments[0], "direction": direction}
        if direction == "output":
            made.update(function=_short(pin.text("function")), max_cap=pin.number("max_capacitance"))
        else:
            cap = pin.number("capacitance")
            made["cap"] = [pin.number("rise_capacitance", cap), pin.number("fall_capacitance", cap)]
            made["clock"] = pin.text("clock") == "true"
        pins.append(made)
        base = made.get("max_cap", 0.0) / 64
        reader = _Reader(name, base, templates)
        cell["arcs"] += _arcs(pin, reader, tables)
        cell["checks"] += _checks(pin, reader, tables)
        cell["power"] += _power(pin, reader, tables)
    cell["pins"] = sorted(pins, key=lambda pin: (pin["direction"] == "output", pin["name"]))
    return cell


def _short(expression: str) -> str:
    return expression if " " not in expression else re.sub(r"\s*([*+()])\s*", r"\1", expression)


def _leakage(group: Group) -> float:
    """Return the leakage without a side condition, pW; the supply pins' entries are added."""
    found = [item for item in group.inner("leakage_power") if not item.text("when")]
    return sum(item.number("value") for item in found) if found else group.number("cell_leakage_power")


class _Reader:
    """Reads the tables of one pin and holds their axes against those that the compact form has."""

    def __init__(self, cell: str, base: float, templates: dict[str, Group]) -> None:
        self.cell, self.base, self.templates = cell, base, templates

    def axis(self, table: Group, name: str) -> np.ndarray:
        template = self.templates.get(table.arguments[0]) if table.arguments else None
        values = table.attributes.get(name) or (template.attributes.get(name) if template else None)
        return liberty.numbers(values) if isinstance(values, list) else np.zeros(0)

    def square(self, table: Group, second: np.ndarray) -> np.ndarray | None:
        values = liberty.numbers(table.attributes["values"])  # type: ignore[arg-type]
        if values.size < 49:
            return None
        if not (
            np.allclose(self.axis(table, "index_1"), technology.SLEW_AXIS)
            and np.allclose(self.axis(table, "index_2"), second)
        ):
            raise TaskError("a table has other axes than the compact form", field="liberty", value=self.cell)
        return values.reshape(7, 7)


def _worst(tables: list[np.ndarray]) -> np.ndarray:
    return np.max(np.array(tables), axis=0)


def _arcs(pin: Group, reader: _Reader, tables: _Tables) -> list[dict[str, Any]]:
    found: dict[tuple[str, str, str], dict[str, list[np.ndarray]]] = {}
    for timing in pin.inner("timing"):
        kind = timing.text("timing_type", "combinational")
        if kind.split("_")[0] in _CHECKS or not timing.inner("cell_rise") + timing.inner("cell_fall"):
            continue
        key = (timing.text("related_pin"), timing.text("timing_sense"), kind)
        group = found.setdefault(key, {})
        for table in timing.groups:
            values = reader.square(table, reader.base * technology.LOAD_STEPS)
            if values is not None:
                group.setdefault(table.name, []).append(values)
    made = []
    for (related, sense, kind), group in found.items():
        rows = []
        for edge in ("rise", "fall"):
            delay, slew = group.get(f"cell_{edge}"), group.get(f"{edge}_transition")
            rows.append(tables.add("pairs", np.stack([_worst(delay), _worst(slew)])) if delay and slew else -1)
        made.append({"pin": pin.arguments[0], "related": related, "sense": sense, "type": kind, "tables": rows})
    return made


def _checks(pin: Group, reader: _Reader, tables: _Tables) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, list[np.ndarray]]] = {}
    for timing in pin.inner("timing"):
        kind = timing.text("timing_type", "combinational")
        if kind.split("_")[0] not in _CHECKS:
            continue
        group = found.setdefault((timing.text("related_pin"), kind), {})
        for table in timing.groups:
            values = reader.square(table, technology.SLEW_AXIS)
            if values is not None:
                group.setdefault(table.name, []).append(values)
    return [
        {
            "pin": pin.arguments[0],
            "related": related,
            "type": kind,
            "tables": [
                tables.add("constraints", _worst(group[name])) if name in group else -1
                for name in ("rise_constraint", "fall_constraint")
            ],
        }
        for (related, kind), group in found.items()
    ]


def _power(pin: Group, reader: _Reader, tables: _Tables) -> list[dict[str, Any]]:
    # related pin -> table -> side condition -> sum over the supply pins
    found: dict[str, dict[str, dict[str, np.ndarray]]] = {}
    for power in pin.inner("internal_power"):
        related = power.text("related_pin")
        for table in power.groups:
            values = liberty.numbers(table.attributes["values"])  # type: ignore[arg-type]
            if related:
                square = reader.square(table, reader.base * technology.LOAD_STEPS)
                values = np.zeros((7, 7)) if square is None else square
            elif values.size == 7 and np.allclose(reader.axis(table, "index_1"), technology.SLEW_AXIS):
                values = values.reshape(7)
            elif values.size == 1:
                values = np.full(7, float(values.reshape(-1)[0]))
            else:
                raise TaskError("an energy table has other axes", field="liberty", value=reader.cell)
            conditions = found.setdefault(related, {}).setdefault(table.name, {})
            when = power.text("when")
            conditions[when] = conditions.get(when, 0.0) + values
    made = []
    for related, group in found.items():
        rows = []
        for name in ("rise_power", "fall_power"):
            values = _worst(list(group[name].values())) if name in group else np.zeros(1)
            kind = "energies" if related else "input_energies"
            rows.append(tables.add(kind, values) if np.any(values) else -1)
        made.append({"pin": pin.arguments[0], "related": related, "tables": rows})
    return made
