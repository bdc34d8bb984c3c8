"""Yosys and ABC in a child process: one place that starts them, limits them, and tells failures apart.

The engine is the pyosys package of one pinned version, because results move by up to 20 % between versions. Every run
has its own process group and its own scratch folder, and both are gone when the call returns. The sources of a design
come from an agent: what could reach a file or a program outside the scratch folder is refused before the engine sees
it (`check_sources`), and the child process has given up access to such files anyway (see ``yosys_child.py``).
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from edagym.errors import FlowError, ToolError, ToolTimeout

ENGINE_VERSION = "0.58"
"""The pyosys version that the flow and the shipped tasks are made with."""
TIMEOUT_S = 300.0
MEMORY_MB = 6144
MAX_LOG_BYTES = 16_000_000
MAX_OUTPUT_BYTES = 256_000_000
"""Largest output that is read back; a netlist takes about 800 bytes per cell."""

_CHILD = Path(__file__).with_name("yosys_child.py")
_ERROR = re.compile(r"^(?:\S+:\d+: )?ERROR: (.*)$", re.MULTILINE)
# Errors that the engine words like errors of the design, but that are the engine's or the machine's.
_ENGINE_ERRORS = re.compile(
    r"ABC: execution of|Can't open (?:ABC|output|input) |out of memory|No such command|Command syntax error|Assert `",
    re.I,
)
# An open comment runs to the end and an open string to its line's, so that every character is looked at once.
_TOKENS = re.compile(r'"(?:\\.|[^"\\\n])*+"?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_ARGUMENT = re.compile(r"\s*\(\s*([^,)]*)")
# Text of macros that grows together with what stands beside it could spell any name; a number's base may stand there.
_GLUED = re.compile(r"(?<!['][sS][bdhoBDHO])(?<!['][bdhoBDHO])(?<=[\w$\\])`\w+|`\w+\([^()`]*\)[\w$]")
_CALLS = re.compile(
    r"\$(system|readmemb|readmemh|fopen|fread|fgets|fscanf|fwrite\w*|fdisplay\w*|dumpfile|sdf_annotate|writemem[bh])\b"
)


@dataclass(frozen=True)
class ToolRun:
    """What a run left.

    Attributes:
        log: Everything that the tool printed.
        outputs: File name -> content, of the outputs that were asked for.
    """

    log: str
    outputs: Mapping[str, bytes]


def engine() -> str:
    """Return name and version of the engine, ``"pyosys 0.58"``.

    Raises:
        ToolError: If the engine is not installed or has another version than `ENGINE_VERSION`.
    """
    try:
        found = importlib.metadata.version("pyosys")
    except importlib.metadata.PackageNotFoundError:
        found = "none"
    if found != ENGINE_VERSION and not found.startswith(ENGINE_VERSION + "."):
        message = f"synthesis needs pyosys {ENGINE_VERSION}, found {found}; install it with `pip install edagym[ppa]`"
        raise ToolError(message, field="pyosys", value=found, allowed=ENGINE_VERSION)
    return f"pyosys {found}"


def check_sources(sources: Mapping[str, str]) -> None:
    """Refuse sources that reach outside themselves.

    Included and memory files must be among the sources, named by a plain string. Calls of the host (``$system``, file
    input and output, DPI imports) and the macro paste operator, which could spell any of these, are refused.

    Args:
        sources: Path -> text.

    Raises:
        FlowError: With `field` ``"synthesis"`` and the offending path and text.
    """
    known = {name for path in sources for name in (path, PurePosixPath(path).name)}
    for path, text in sources.items():
        if "\0" in text:
            raise FlowError("a source has a NUL character", field="synthesis", value=path)
        code, kept = _set_strings_aside(text)
        for found in re.finditer(r"`include\b([^\n]*)", code):
            _check_file(found.group(1).strip(), kept, known, path, "`include")
        for call in _CALLS.finditer(code):
            if not call.group(1).startswith("readmem"):
                raise FlowError("a source calls the host", field="synthesis", value=f"{path}: {call.group()}")
            argument = _ARGUMENT.match(code, call.end())
            _check_file(argument.group(1).strip() if argument else "", kept, known, path, call.group())
        if glued := _GLUED.search(code):
            raise FlowError("a macro joined to a name is not allowed", field="synthesis", value=f"{path}: {glued[0]}")
        if "``" in code:
            raise FlowError("the macro paste operator is not allowed", field="synthesis", value=path)
        if re.search(r"\bimport\s+\x00\d+\x00", code):
            raise FlowError("a source imports a foreign function", field="synthesis", value=path)


def _set_strings_aside(text: str) -> tuple[str, list[str]]:
    """Return the text without comments and with numbered marks for its strings, and the strings."""
    kept: list[str] = []

    def mark(found: re.Match[str]) -> str:
        if not found.group().startswith('"'):
            return " "
        kept.append(found.group()[1:-1])
        return f"\0{len(kept) - 1}\0"

    return _TOKENS.sub(mark, text), kept


def _check_file(argument: str, kept: Sequence[str], known: Iterable[str], path: str, what: str) -> None:
    found = re.fullmatch(r"\x00(\d+)\x00", argument)
    name = kept[int(found.group(1))] if found else argument
    if found is None or name not in known:
        raise FlowError(f"{what} of a file that is not a source", field="synthesis", value=f"{path}: {name}")


def run_yosys(
    commands: Sequence[str],
    *,
    sources: Mapping[str, str] | None = None,
    files: Mapping[str, str | bytes] | None = None,
    outputs: Sequence[str] = (),
    timeout_s: float = TIMEOUT_S,
    memory_mb: int = MEMORY_MB,
) -> ToolRun:
    """Run Yosys commands in a child process, in an empty scratch folder.

    Args:
        commands: The script, one command per item.
        sources: Untrusted Verilog, relative path -> text; checked by `check_sources` and written before the run.
        files: Trusted further files, relative path -> content (libraries, mapping files).
        outputs: Relative paths of files to read back.
        timeout_s: Wall-clock limit, seconds; the child and its children are killed when it is over.
        memory_mb: Limit of each process's address space, MiB.

    Raises:
        FlowError: With `field` ``"synthesis"``, if Yosys finds fault with the sources, they reach outside themselves,
            or an output is larger than `MAX_OUTPUT_BYTES`.
        ToolTimeout: If the limit is over.
        ToolError: If the engine is missing, has another version, has crashed, or has not written an output.
    """
    return _run("yosys", commands, sources or {}, files or {}, outputs, timeout_s, memory_mb)


def run_abc(
    commands: Sequence[str],
    *,
    files: Mapping[str, str | bytes],
    outputs: Sequence[str] = (),
    timeout_s: float = TIMEOUT_S,
    memory_mb: int = MEMORY_MB,
) -> ToolRun:
    """Run ABC commands (``"cec -n a.blif b.blif"``) like `run_yosys`; the verdict is in the log."""
    return _run("abc", commands, {}, files, outputs, timeout_s, memory_mb)


def _run(
    tool: str,
    commands: Sequence[str],
    sources: Mapping[str, str],
    files: Mapping[str, str | bytes],
    outputs: Sequence[str],
    timeout_s: float,
    memory_mb: int,
) -> ToolRun:
    engine()
    check_sources(sources)
    spec = importlib.util.find_spec("pyosys")
    if spec is None or spec.origin is None:
        raise ToolError("the engine's package cannot be found", field="pyosys")
    request = {
        "tool": tool,
        "commands": list(commands),
        "memory_mb": memory_mb,
        "cpu_s": int(timeout_s) + 60,
        "site": str(Path(spec.origin).parent.parent),
    }
    with tempfile.TemporaryDirectory(prefix="edagym-yosys-") as name:
        folder = Path(name).resolve()
        work = folder / "work"
        (work / "tmp").mkdir(parents=True)
        for path, content in {**files, **sources}.items():
            target = (work / path).resolve()
            if not target.is_relative_to(work):
                raise ToolError("a file lies outside the scratch folder", field="files", value=path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content if isinstance(content, bytes) else content.encode())
        code, log = _supervise(request, work, folder / "log", timeout_s)
        if code != 0:
            raise _failure(tool, code, log)
        found = {}
        for path in outputs:
            if not (work / path).is_file():
                raise ToolError(f"{tool} has not written a file", field=tool, value=path)
            if (size := (work / path).stat().st_size) > MAX_OUTPUT_BYTES:
                message = f"the design is too big: {tool} wrote {size} bytes to {path}"
                raise FlowError(message, field="synthesis", value=size, allowed=MAX_OUTPUT_BYTES)
            found[path] = (work / path).read_bytes()
    return ToolRun(log, found)


def _supervise(request: Mapping[str, object], work: Path, log_path: Path, timeout_s: float) -> tuple[int, str]:
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(work / "tmp"), "HOME": str(work), "LC_ALL": "C"}
    if "LD_LIBRARY_PATH" in os.environ:
        environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    with open(log_path, "wb") as log:
        child = subprocess.Popen(
            [sys.executable, "-I", "-B", str(_CHILD), json.dumps(request)],
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = child.wait(timeout_s)
        except subprocess.TimeoutExpired as e:
            raise ToolTimeout(f"{request['tool']} ran too long", field=str(request["tool"]), value=timeout_s) from e
        finally:
            # Also after a regular end: a grandchild must not outlive the call.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    with open(log_path, "rb") as log_file:
        return code, log_file.read(MAX_LOG_BYTES).decode("utf-8", "replace")


def _failure(tool: str, code: int, log: str) -> FlowError | ToolError:
    errors = _ERROR.findall(log)
    if tool == "yosys" and code == 1 and errors and not _ENGINE_ERRORS.search(errors[-1]):
        line = next(line for line in reversed(log.splitlines()) if "ERROR: " in line)
        return FlowError(f"synthesis: {line.strip()}", field="synthesis")
    tail = "\n".join(log.splitlines()[-12:])
    return ToolError(f"{tool} ended with code {code}:\n{tail}", field=tool, value=code)
