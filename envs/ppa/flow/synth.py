"""Synthesis: RTL to a netlist of library cells, by Yosys and ABC with the steps of OpenROAD-flow-scripts.

Results are cached by content: the key covers sources, top module, options, engine and version, technology data and the
recipe. A cached result is the bytes that the engine's run left, so cached and fresh results cannot differ.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import os
import re
import tempfile
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edagym.envs.ppa.flow.netlist import Netlist
from edagym.errors import FlowError
from edagym.task_assets.ppa import liberty
from edagym.task_assets.ppa.technology import SUFFIXES, Technology, load_technology
from edagym.verifiers.ppa import yosys

RECIPE = 1
"""Version of the steps below; part of every cache key."""
MEMORY_ENTRIES = 64
DRIVER, LOAD_FF = "BUFx2", 3.898
"""What the mapper assumes at inputs and outputs (the platform's values in OpenROAD-flow-scripts)."""
_AREA_STEPS = (
    "strash",
    "dch",
    "map -B 0.9",
    "topo",
    "buffer -c",
    "topo",
    "stime -p",
    "upsize -c",
    "dnsize -c",
    "stime -p",
)
_SPEED_STEPS = (
    "&get -n",
    "&st",
    "&dch",
    "&nf",
    "&put",
    "buffer -c",
    "topo",
    "stime -p",
    "upsize -c",
    "dnsize -c",
    "stime -p",
)
_NAME = re.compile(r"[A-Za-z_]\w*\Z")


@dataclass(frozen=True)
class SynthOptions:
    """What the configuration may set about synthesis.

    Attributes:
        top: Name of the top module.
        vt: Threshold voltage of the cells.
        abc_area: Use the mapper's area recipe instead of its speed recipe (``ABC_AREA``).
        hierarchical: Map modules one by one and flatten afterwards (``SYNTH_HIERARCHICAL``).
        parameters: Parameter -> value, for the top module (``VERILOG_TOP_PARAMS``).
    """

    top: str
    vt: str = "RVT"
    abc_area: bool = False
    hierarchical: bool = False
    parameters: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class SynthResult:
    """A mapped design.

    Attributes:
        data: What Yosys' ``write_json`` wrote, reduced to ports, cells and net names.
        top: Name of the top module.
        area: Sum of the cells' areas, um2: "Chip area" in the flow's report.
        counts: Cell name -> number of instances, sorted.
        engine: Engine and version.
        warnings: What the engine warned about.
    """

    data: Mapping[str, Any]
    top: str
    area: float
    counts: Mapping[str, int]
    engine: str
    warnings: tuple[str, ...]

    def netlist(self, technology: Technology | None = None) -> Netlist:
        """Return a new netlist."""
        return Netlist.from_yosys(self.data, technology or load_technology(), self.top)


_memory: OrderedDict[str, bytes] = OrderedDict()


def cache_folder() -> Path:
    """Return the folder of the disk cache: ``$EDAGYM_CACHE``, or ``edagym`` in the user's cache folder."""
    if os.environ.get("EDAGYM_CACHE"):
        return Path(os.environ["EDAGYM_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edagym"


def synthesise(
    sources: Mapping[str, str],
    options: SynthOptions,
    *,
    technology: Technology | None = None,
    cache: bool = True,
    timeout_s: float = yosys.TIMEOUT_S,
    memory_mb: int = yosys.MEMORY_MB,
) -> SynthResult:
    """Return the mapped netlist of a design.

    Args:
        sources: Relative path -> Verilog text; read in sorted order.
        options: Top module and settings.
        technology: Cells; the shipped ones by default.
        cache: Look results up in memory and on disk, and keep them there.
        timeout_s: Limit of the engine's run, seconds.
        memory_mb: Limit of the engine's memory, MiB.

    Raises:
        FlowError: With `field` ``"synthesis"``, if the design is at fault.
        ToolError: If the engine is missing or fails; `ToolTimeout` if it ran too long.
    """
    technology = technology or load_technology()
    for name in (options.top, *(parameter for parameter, _ in options.parameters)):
        if not _NAME.match(name):
            raise FlowError("not a plain name", field="synthesis", value=name)
    for parameter, value in options.parameters:
        if not re.fullmatch(r"[\w']+", value):
            raise FlowError("not a parameter value", field="synthesis", value=f"{parameter}={value}")
    if options.vt not in SUFFIXES:
        raise FlowError("unknown threshold voltage", field="synthesis", value=options.vt, allowed=sorted(SUFFIXES))
    yosys.check_sources(sources)
    engine = yosys.engine()
    key = _key(sources, options, technology, engine)
    data = _look_up(key) if cache else None
    if data is None:
        data = _run(sources, options, technology, timeout_s, memory_mb)
        if cache:
            _keep(key, data)
    return _result(data, options.top, technology, engine)


def clear_memory() -> None:
    """Forget the results kept in memory; those on disk stay."""
    _memory.clear()


def _key(sources: Mapping[str, str], options: SynthOptions, technology: Technology, engine: str) -> str:
    total = hashlib.sha256()
    techmaps = [_techmap(name) for name in ("adders", "latches", "carry")]
    for part in (engine, technology.digest, RECIPE, repr(options), *techmaps, *_SPEED_STEPS, *_AREA_STEPS):
        total.update(str(part).encode() + b"\0")
    for path, text in sorted(sources.items()):
        for value in (path.encode(), text.encode()):
            total.update(len(value).to_bytes(8, "big") + value)
    return total.hexdigest()


def _path(key: str) -> Path:
    return cache_folder() / "synth" / key[:2] / f"{key}.json.gz"


def _look_up(key: str) -> bytes | None:
    if key in _memory:
        _memory.move_to_end(key)
        return _memory[key]
    try:
        data = gzip.decompress(_path(key).read_bytes())
        json.loads(data)
    except (OSError, EOFError, ValueError):
        return None
    _remember(key, data)
    return data


def _remember(key: str, data: bytes) -> None:
    _memory[key] = data
    while len(_memory) > MEMORY_ENTRIES:
        _memory.popitem(last=False)


def _keep(key: str, data: bytes) -> None:
    _remember(key, data)
    path = _path(key)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Written beside and renamed, so that no reader meets half a file.
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(gzip.compress(data, 6, mtime=0))
        os.replace(name, path)
    except OSError:
        # A cache that cannot be written costs time only.
        return


def _run(
    sources: Mapping[str, str], options: SynthOptions, technology: Technology, timeout_s: float, memory_mb: int
) -> bytes:
    suffix = SUFFIXES[options.vt]
    files: dict[str, str | bytes] = {
        "flow/cells.lib": _mapper_library(technology.corner, options.vt)
        if technology is load_technology(technology.corner)
        else liberty.write(technology, options.vt),
        "flow/abc.constr": f"set_driving_cell {DRIVER}_ASAP7_75t_{suffix}\nset_load {LOAD_FF}\n",
        "flow/abc.script": "\n".join(_AREA_STEPS if options.abc_area else _SPEED_STEPS) + "\n",
    }
    for name in ("adders", "latches", "carry"):
        files[f"flow/{name}.v"] = _techmap(name).replace("_ASAP7_75t_R", f"_ASAP7_75t_{suffix}")
    run = yosys.run_yosys(
        script(sorted(sources), options),
        sources=sources,
        files=files,
        outputs=["netlist.json"],
        timeout_s=timeout_s,
        memory_mb=memory_mb,
    )
    module = json.loads(run.outputs["netlist.json"])["modules"].get(options.top)
    if module is None or not module["cells"]:
        raise FlowError("nothing is left of the design after synthesis", field="synthesis", value=options.top)
    if left := sorted({cell["type"] for cell in module["cells"].values()} - set(technology.index)):
        message = "synthesis: the library has no cells for an operator of the sources"
        raise FlowError(message, field="synthesis", value=left[0])
    kept = {
        "ports": module["ports"],
        "cells": {
            name: {key: cell[key] for key in ("hide_name", "type", "connections")}
            for name, cell in module["cells"].items()
        },
        "netnames": {
            name: {key: net[key] for key in ("hide_name", "bits", "offset", "upto") if key in net}
            for name, net in module["netnames"].items()
        },
    }
    warnings = sorted(set(re.findall(r"^(?:\S+: )?Warning: (.*)$", run.log, re.MULTILINE)))
    return json.dumps({"modules": {options.top: kept}, "warnings": warnings[:50]}, separators=(",", ":")).encode()


def _result(data: bytes, top: str, technology: Technology, engine: str) -> SynthResult:
    content = json.loads(data)
    counts: dict[str, int] = {}
    for cell in content["modules"][top]["cells"].values():
        counts[cell["type"]] = counts.get(cell["type"], 0) + 1
    area = sum(technology[name].area * number for name, number in sorted(counts.items()))
    return SynthResult(content, top, area, dict(sorted(counts.items())), engine, tuple(content["warnings"]))


@functools.lru_cache(maxsize=8)
def _mapper_library(corner: str, vt: str) -> str:
    return liberty.write(load_technology(corner), vt)


@functools.cache
def _techmap(name: str) -> str:
    folder = Path(liberty.__file__).parent / "techmap"
    return (folder / f"{name}.v").read_text(encoding="utf-8")


def script(paths: list[str], options: SynthOptions) -> list[str]:
    """Return the Yosys commands.

    Args:
        paths: Verilog files; header files among them are left to the sources that include them.
        options: Top module and settings.
    """
    suffix = SUFFIXES[options.vt]
    library = "flow/cells.lib"
    no_choice = "-dont_use *x1p*_ASAP7* -dont_use *xp*_ASAP7* -dont_use SDF* -dont_use ICG*"
    read = [f"read_verilog -defer -sv {path}" for path in paths if not path.endswith((".vh", ".svh"))]
    parameters = " ".join(f"-chparam {name} {value}" for name, value in options.parameters)
    flatten = "" if options.hierarchical else "-flatten "
    commands = [
        f"read_liberty -overwrite -setattr liberty_cell -lib -ignore_miss_func {library}",
        *read,
        f"hierarchy -check -top {options.top} {parameters}",
        "opt_clean -purge",
        f"synth {flatten}-top {options.top} -run :fine -extra-map flow/carry.v",
        f"synth -top {options.top} -run fine: -extra-map flow/carry.v",
        "chformal -remove",
        "rename -wire",
        "opt -purge",
        "extract_fa",
        "techmap -map flow/adders.v",
        "techmap",
        "opt -fast -purge",
        "techmap -map flow/latches.v",
        f"dfflibmap -liberty {library} {no_choice}",
        "opt",
        "setundef -zero",
        f"abc -script flow/abc.script -liberty {library} {no_choice} -constr flow/abc.constr",
        "flatten" if options.hierarchical else "",
        "splitnets",
        "opt_clean -purge",
        f"hilomap -singleton -hicell TIEHIx1_ASAP7_75t_{suffix} H -locell TIELOx1_ASAP7_75t_{suffix} L",
        f"insbuf -buf BUFx2_ASAP7_75t_{suffix} A Y",
        "check -mapped -noinit",
        "write_json netlist.json",
    ]
    return [command for command in commands if command]
