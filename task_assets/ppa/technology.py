"""`Technology`: the standard cells and wires of the embedded flow as numbers.

The shipped data (``tech/*.npz``) is a compact characterisation of the ASAP7 predictive 7 nm cells, made by
``edagym generate ppa-tech`` from Liberty files; ``tech/README.md`` is its data card. One file per threshold voltage
holds a description in JSON and four arrays of coded tables. All cells of all threshold voltages live in one
`Technology`, so that a swap of size or threshold is a change of one index.

Units: um, um2, ps, fF, kohm, V, fJ per transition, pW of leakage. Edges are numbered `RISE` = 0 and `FALL` = 1.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

from edagym.errors import TaskError
from edagym.task_assets.ppa.liberty import truth_table

RISE, FALL = 0, 1
VTS = ("RVT", "LVT", "SLVT")
"""Threshold voltages, slow and cool ones first."""
SUFFIXES = {"RVT": "R", "LVT": "L", "SLVT": "SL"}
"""Last letters of the cell names of each threshold voltage."""
DONT_USE = ("*x1p*_ASAP7*", "*xp*_ASAP7*", "SDF*", "ICG*")
"""Cells that OpenROAD-flow-scripts keeps from mapper and repair on this platform."""
KEPT = ("HAxp5_*",)
"""Cells of `DONT_USE` that the flow still places: the half adder is instantiated by the adder mapping."""
SLEW_AXIS = np.array([5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0])
"""Input transition times of every table, 10-90 %, ps."""
LOAD_STEPS = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
"""Loads of every table in multiples of the output pin's `load_base`."""
_NAME = re.compile(r"^(?P<base>\w+?)x(?P<drive>(?:p\d+|\d+(?:p\d+)?))(?P<tail>DC|f|)_ASAP7_75t_(?P<vt>R|L|SL)$")
_CODE_MAX = 32767


@dataclass(frozen=True)
class Wire:
    """Resistance and capacitance per um of an average wire.

    Attributes:
        resistance: kohm/um.
        capacitance: fF/um.
    """

    resistance: float
    capacitance: float


SIGNAL_WIRE = Wire(0.0265684, 0.16579)
CLOCK_WIRE = Wire(0.0214161, 0.145426)
"""Averages over the layers that the platform routes signals and clocks on (OpenROAD-flow-scripts' ``set_wire_rc``)."""
SITE_WIDTH, ROW_HEIGHT = 0.054, 0.27
"""um."""


@dataclass(frozen=True)
class Arc:
    """A timing arc of one edge: input pin and edge to output pin and edge.

    Attributes:
        source: Index of the input pin in `Master.pins`.
        source_edge: `RISE` or `FALL`.
        target: Index of the output pin.
        target_edge: `RISE` or `FALL`.
        table: Row of `Technology.pairs`.
        launch: True if the source is the active edge of a register's clock.
    """

    source: int
    source_edge: int
    target: int
    target_edge: int
    table: int
    launch: bool


@dataclass(frozen=True)
class Check:
    """A setup or hold check of one data edge against the active clock edge.

    Attributes:
        data: Index of the data pin.
        data_edge: `RISE` or `FALL`.
        clock: Index of the clock pin.
        clock_edge: `RISE` or `FALL`.
        table: Row of `Technology.constraints`; first axis the data slew, second the clock slew.
        hold: True for hold and removal, False for setup and recovery.
    """

    data: int
    data_edge: int
    clock: int
    clock_edge: int
    table: int
    hold: bool


@dataclass(frozen=True)
class PowerArc:
    """Internal energy per transition.

    Attributes:
        pin: Index of the pin that switches: an output (with `related`) or an input.
        related: Index of the input that causes it; -1 for the energy of an input pin alone.
        rise: Row of `Technology.energies` (or `input_energies` where `related` is -1); -1 for none.
        fall: Likewise for a falling transition.
    """

    pin: int
    related: int
    rise: int
    fall: int


@dataclass(frozen=True)
class Register:
    """What a flip-flop or latch does.

    Attributes:
        clock: Index of the clock or enable pin.
        active: Edge that loads a flip-flop, or the enable's edge that opens a latch.
        function: Truth table over `Master.inputs` of the value that an output takes over, one per output.
        latch: True for a latch.
        clear: Truth table over the inputs of the asynchronous condition that sets the first output low; 0 for none.
        preset: Likewise for high.
    """

    clock: int
    active: int
    function: tuple[int, ...]
    latch: bool
    clear: int = 0
    preset: int = 0


@dataclass(frozen=True)
class Master:
    """One cell of the library.

    Attributes:
        index: Position in `Technology.masters`.
        name: Library name, ``NAND2x1_ASAP7_75t_R``.
        family: Name without size and threshold, ``NAND2``; cells of a family are interchangeable.
        vt: Threshold voltage.
        drive: Size as the name states it.
        area: um2.
        leakage: pW.
        kind: ``comb``, ``buf``, ``inv``, ``ff``, ``latch`` or ``tie``.
        pins: Names, inputs before outputs, each sorted.
        n_inputs: Number of inputs.
        cap: float (pins, 2): capacitance per edge, fF; 0 for outputs.
        load_base: Per pin: first load of the tables of an output, fF; 0 for inputs.
        functions: Truth table per output over the inputs (see `liberty.truth_table`); empty for registers.
        register: What a register does; None otherwise.
        arcs: Timing arcs.
        checks: Setup and hold checks.
        power: Internal energies.
        symmetric: Groups of input indices that may be exchanged without a change of function.
        sizes: Masters of the same family and threshold by increasing drive (this one included).
        variants: Threshold voltage -> index of the master of the same family and size.
        dont_use: True if neither mapper nor repair may choose it.
        description: Functions and attributes as Liberty has them, for the writer.
        offsets: Row of each kind of table in `Technology` at which the tables of the description start.
    """

    index: int
    name: str
    family: str
    vt: str
    drive: float
    area: float
    leakage: float
    kind: str
    pins: tuple[str, ...]
    n_inputs: int
    cap: tuple[tuple[float, float], ...]
    load_base: tuple[float, ...]
    functions: tuple[int, ...]
    register: Register | None
    arcs: tuple[Arc, ...]
    checks: tuple[Check, ...]
    power: tuple[PowerArc, ...]
    symmetric: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    variants: dict[str, int]
    dont_use: bool
    description: dict[str, Any] = field(repr=False)
    offsets: dict[str, int] = field(repr=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the input pins."""
        return self.pins[: self.n_inputs]

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the output pins."""
        return self.pins[self.n_inputs :]

    @property
    def width(self) -> float:
        """Width in its row, um."""
        return round(self.area / ROW_HEIGHT / SITE_WIDTH) * SITE_WIDTH

    def max_load(self, pin: int) -> float:
        """Return the largest load that an output is characterised for, fF."""
        return self.load_base[pin] * float(LOAD_STEPS[-1])


@dataclass(frozen=True)
class Technology:
    """Cells, tables and wires.

    Attributes:
        name: ``asap7``.
        corner: Process corner, ``FF``.
        voltage: V.
        masters: All cells; thresholds in the order of `VTS`, names sorted within.
        index: Name -> index.
        pairs: float64 (n, 7, 7, 2): delay and output slew (ps) over input slew and load.
        constraints: float64 (n, 7, 7): setup and hold times (ps) over data slew and clock slew.
        energies: float64 (n, 7, 7): internal energy (fJ) over input slew and load.
        input_energies: float64 (n, 7): internal energy (fJ) over input slew.
        digest: SHA-256 of the data files.
    """

    name: str
    corner: str
    voltage: float
    masters: tuple[Master, ...]
    index: dict[str, int]
    pairs: np.ndarray
    constraints: np.ndarray
    energies: np.ndarray
    input_energies: np.ndarray
    digest: str
    signal_wire: Wire = SIGNAL_WIRE
    clock_wire: Wire = CLOCK_WIRE

    def __getitem__(self, name: str) -> Master:
        """Return a cell by its name, or by a short name and the first threshold voltage (``BUFx2``)."""
        if name in self.index:
            return self.masters[self.index[name]]
        short = f"{name}_ASAP7_75t_{SUFFIXES[self.masters[0].vt]}"
        if short in self.index:
            return self.masters[self.index[short]]
        raise TaskError("unknown cell", field="cell", value=name)

    def find(self, short: str, vt: str) -> Master:
        """Return a cell by its short name (``BUFx2``) and threshold voltage."""
        return self[f"{short}_ASAP7_75t_{SUFFIXES[vt]}"]

    def __reduce__(self) -> tuple[Any, ...]:
        # Workers load the shipped data themselves; it is larger than its files.
        return load_technology, (self.corner,)


def usable(name: str) -> bool:
    """Return True if mapper and repair may choose a cell."""
    return not any(fnmatchcase(name, pattern) for pattern in DONT_USE)


def kept(name: str) -> bool:
    """Return True if the compact characterisation keeps a cell."""
    return usable(name) or any(fnmatchcase(name, pattern) for pattern in KEPT)


def encode(tables: np.ndarray, scale: float) -> tuple[np.ndarray, float]:
    """Code tables as int16: proportional to asinh(value / scale), so signed values are kept to an equal relative error.

    Args:
        tables: Values, float64.
        scale: Value below which the error is absolute instead.

    Returns:
        The codes, and the step by which `decode` multiplies them.
    """
    coded = np.arcsinh(tables / scale)
    step = float(np.max(np.abs(coded), initial=1e-9)) / _CODE_MAX
    return np.rint(coded / step).astype(np.int16), step


def decode(codes: np.ndarray, scale: float, step: float) -> np.ndarray:
    """Undo `encode`. Rounding to 1e-6 keeps the last bit of a platform's sinh out of the results."""
    return np.round(np.sinh(codes.astype(float) * step) * scale, 6)


def split_name(name: str) -> tuple[str, float, str, str]:
    """Return family, drive, tail (``f``, ``DC``) and threshold voltage of a cell name.

    Raises:
        TaskError: If the name has another form.
    """
    found = _NAME.match(name)
    if found is None:
        raise TaskError("not a cell name of this library", field="cell", value=name)
    drive = found["drive"]
    size = float("0." + drive[1:]) if drive.startswith("p") else float(drive.replace("p", "."))
    return found["base"], size, found["tail"], {v: k for k, v in SUFFIXES.items()}[found["vt"]]


def read_archive(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return description and decoded tables of one ``.npz`` file of the characterisation.

    Raises:
        TaskError: If the file is missing or is no such file.
    """
    try:
        with np.load(path, allow_pickle=False) as data:
            meta = json.loads(bytes(data["meta"]).decode())
            coded = {name: data[name] for name in meta["codes"]}
    except (OSError, ValueError, KeyError) as e:
        raise TaskError(f"cannot read technology data ({e})", field="technology", value=path.name) from e
    tables = {}
    for name, codes in coded.items():
        code = meta["codes"][name]
        # Neighbouring loads have similar values; their differences compress better.
        tables[name] = decode(np.cumsum(codes, axis=-1, dtype=np.int16), code["scale"], code["step"])
    return meta, tables


def load_technology(corner: str = "FF") -> Technology:
    """Return the shipped technology at a process corner; the same object on every call.

    Raises:
        TaskError: If there is no data for the corner.
    """
    return _load(corner)


@functools.cache
def _load(corner: str) -> Technology:
    folder = Path(__file__).parent / "tech"
    return read_technology([folder / f"asap7_{vt}_{corner}.npz" for vt in VTS], corner)


def read_technology(paths: Sequence[Path], corner: str) -> Technology:
    """Return the technology of given data files, one per threshold voltage."""
    total = hashlib.sha256()
    parts: dict[str, list[np.ndarray]] = {"pairs": [], "constraints": [], "energies": [], "input_energies": []}
    masters: list[Master] = []
    voltage = 0.0
    for path in paths:
        meta, tables = read_archive(path)
        total.update(path.read_bytes())
        voltage = meta["voltage"]
        base = {name: sum(len(part) for part in parts[name]) for name in parts}
        for name in parts:
            parts[name].append(tables[name])
        for cell in meta["cells"]:
            masters.append(_master(cell, len(masters), base))
    index = {master.name: master.index for master in masters}
    masters = _relate(masters)
    arrays = {name: np.concatenate(part) for name, part in parts.items()}
    arrays["pairs"] = np.ascontiguousarray(np.moveaxis(arrays["pairs"], 1, -1))
    for array in arrays.values():
        array.setflags(write=False)
    return Technology(
        name="asap7",
        corner=corner,
        voltage=voltage,
        masters=tuple(masters),
        index=index,
        digest=total.hexdigest(),
        pairs=arrays["pairs"],
        constraints=arrays["constraints"],
        energies=arrays["energies"],
        input_energies=arrays["input_energies"],
    )


def _master(cell: dict[str, Any], index: int, base: dict[str, int]) -> Master:
    family, drive, tail, vt = split_name(cell["name"])
    pins = cell["pins"]
    names = tuple(pin["name"] for pin in pins)
    inputs = tuple(pin["name"] for pin in pins if pin["direction"] == "input")
    number = {name: i for i, name in enumerate(names)}
    outputs = pins[len(inputs) :]
    register = _register(cell, number, inputs, outputs)
    functions = () if register else tuple(truth_table(pin["function"], inputs) for pin in outputs)
    arcs: dict[Arc, None] = {}
    for arc in cell["arcs"]:
        for made in _edges(arc, number, base["pairs"], register):
            arcs[made] = None
    checks = []
    for check in cell["checks"]:
        kind, edge = check["type"].rsplit("_", 1)
        for data_edge in (RISE, FALL):
            table = check["tables"][data_edge]
            if table >= 0:
                checks.append(
                    Check(
                        number[check["pin"]],
                        data_edge,
                        number[check["related"]],
                        RISE if edge == "rising" else FALL,
                        base["constraints"] + table,
                        kind in ("hold", "removal"),
                    )
                )
    power = []
    for item in cell["power"]:
        related = number[item["related"]] if item["related"] else -1
        start = base["energies"] if item["related"] else base["input_energies"]
        rise, fall = (start + table if table >= 0 else -1 for table in item["tables"])
        power.append(PowerArc(number[item["pin"]], related, rise, fall))
    return Master(
        index=index,
        name=cell["name"],
        family=family + ("DC" if tail == "DC" else ""),
        vt=vt,
        drive=drive,
        area=cell["area"],
        leakage=cell["leakage"],
        kind=_kind(family, inputs, functions, register),
        pins=names,
        n_inputs=len(inputs),
        cap=tuple((pin["cap"][0], pin["cap"][1]) if pin["direction"] == "input" else (0.0, 0.0) for pin in pins),
        load_base=tuple(pin.get("max_cap", 0.0) / float(LOAD_STEPS[-1]) for pin in pins),
        functions=functions,
        register=register,
        arcs=tuple(arcs),
        checks=tuple(checks),
        power=tuple(power),
        symmetric=_symmetric(functions, len(inputs)),
        sizes=(),
        variants={},
        dont_use=not usable(cell["name"]),
        description=cell,
        offsets=base,
    )


def _register(
    cell: dict[str, Any], number: dict[str, int], inputs: tuple[str, ...], outputs: list[dict[str, Any]]
) -> Register | None:
    state = cell.get("register")
    if state is None:
        return None
    clock = state["clock"]
    low = clock.startswith("!")
    next_value = truth_table(state["next"], inputs)
    full = (1 << (1 << len(inputs))) - 1
    straight, inverted = state["names"]
    functions = []
    for pin in outputs:
        if pin["function"] not in (straight, inverted):
            raise TaskError("an output is not a state of its register", field=cell["name"], value=pin["function"])
        functions.append(next_value if pin["function"] == straight else full & ~next_value)
    conditions = [truth_table(state[name], inputs) if state.get(name) else 0 for name in ("clear", "preset")]
    if outputs[0]["function"] == inverted:
        conditions.reverse()
    return Register(
        number[clock.lstrip("!")], FALL if low else RISE, tuple(functions), state["latch"], conditions[0], conditions[1]
    )


def _edges(arc: dict[str, Any], number: dict[str, int], base: int, register: Register | None) -> list[Arc]:
    source, target = number[arc["related"]], number[arc["pin"]]
    kind = arc["type"]
    if kind in ("preset", "clear") or (register and kind == "combinational"):
        # Asynchronous pins and transparent latches launch no timed path (the former as OpenSTA by default).
        return []
    launch = kind in ("rising_edge", "falling_edge")
    made = []
    for target_edge in (RISE, FALL):
        if launch:
            edges = [RISE if kind == "rising_edge" else FALL]
        elif arc["sense"] == "positive_unate":
            edges = [target_edge]
        elif arc["sense"] == "negative_unate":
            edges = [1 - target_edge]
        else:
            edges = [RISE, FALL]
        table = arc["tables"][target_edge]
        made += [Arc(source, edge, target, target_edge, base + table, launch) for edge in edges if table >= 0]
    return made


def _kind(family: str, inputs: tuple[str, ...], functions: tuple[int, ...], register: Register | None) -> str:
    if register:
        return "latch" if register.latch else "ff"
    if not inputs:
        return "tie"
    if len(inputs) == 1:
        return "buf" if functions[0] == 0b10 else "inv"
    return "comb"


def _symmetric(functions: tuple[int, ...], n: int) -> tuple[tuple[int, ...], ...]:
    groups: list[list[int]] = []
    for i in range(n):
        for group in groups:
            if functions and all(_swapped(f, group[0], i, n) == f for f in functions):
                group.append(i)
                break
        else:
            groups.append([i])
    return tuple(tuple(group) for group in groups if len(group) > 1)


def _swapped(function: int, i: int, j: int, n: int) -> int:
    made = 0
    for m in range(1 << n):
        bits = (m >> i & 1, m >> j & 1)
        source = (m & ~(1 << i) & ~(1 << j)) | bits[1] << i | bits[0] << j
        made |= (function >> source & 1) << m
    return made


def _relate(masters: list[Master]) -> list[Master]:
    """Fill in sizes and variants, which relate cells to each other."""
    families: dict[tuple[str, str], list[Master]] = {}
    for master in masters:
        families.setdefault((master.family, master.vt), []).append(master)
    sizes = {}
    for group in families.values():
        first = group[0]
        if any(m.pins != first.pins or m.functions != first.functions for m in group):
            raise TaskError("cells of one family differ in function", field="family", value=first.family)
        # A dont_use cell is no size that repair may choose.
        order = sorted((m for m in group if not m.dont_use), key=lambda m: (m.drive, m.area, m.name))
        for master in group:
            sizes[master.index] = tuple(m.index for m in order) if not master.dont_use else (master.index,)
    short: dict[str, dict[str, int]] = {}
    for master in masters:
        short.setdefault(master.name.rsplit("_", 1)[0], {})[master.vt] = master.index
    made = []
    for master in masters:
        values = {name: getattr(master, name) for name in master.__dataclass_fields__}
        values.update(sizes=sizes[master.index], variants=short[master.name.rsplit("_", 1)[0]])
        made.append(Master(**values))
    return made
