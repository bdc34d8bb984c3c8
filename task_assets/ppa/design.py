"""`DesignFiles`: one design as the flow and the agent see it, a handful of text files held in memory.

The folder form is the public benchmark's (PostEDA-Bench, Appendix D.2): ``config/*.mk``, ``config/*.sdc``, ``src/*.v``.
Held in memory, a design is a value: it is hashed, compared, put into snapshots and sent to workers without a folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from edagym.errors import TaskError

MAX_FILE_BYTES = 1_000_000
"""Largest file of a design that is read, bytes."""
MAX_FILES = 64
SUFFIXES = {"config": (".mk", ".sdc"), "src": (".v", ".sv", ".vh", ".svh")}
"""Allowed file name endings per folder of a design."""


@dataclass(frozen=True)
class DesignFiles:
    """The editable files of one design.

    Attributes:
        files: POSIX path relative to the design's folder (``config/config.mk``) -> text.

    Raises:
        TaskError: If a path leaves the design's folder or has a form not in `SUFFIXES`, or a file is too big.
    """

    files: Mapping[str, str]

    def __post_init__(self) -> None:
        if len(self.files) > MAX_FILES:
            raise TaskError("a design has too many files", field="files", value=len(self.files), allowed=MAX_FILES)
        for path, text in self.files.items():
            _check_path(path)
            size = len(text.encode())
            if size > MAX_FILE_BYTES:
                raise TaskError("a file of the design is too big", field=path, value=size, allowed=MAX_FILE_BYTES)
        object.__setattr__(self, "files", MappingProxyType(dict(sorted(self.files.items()))))

    def __reduce__(self) -> tuple[type[DesignFiles], tuple[dict[str, str]]]:
        # Mapping proxies don't pickle.
        return type(self), (dict(self.files),)

    def __hash__(self) -> int:
        return hash(tuple(self.files.items()))

    def replaced(self, path: str, text: str) -> DesignFiles:
        """Return a copy in which one file has another text."""
        return DesignFiles({**self.files, path: text})

    def one(self, suffix: str) -> tuple[str, str]:
        """Return path and text of the only file with an ending (``".mk"``, ``".sdc"``).

        Raises:
            TaskError: If there is none, or more than one.
        """
        found = [(path, text) for path, text in self.files.items() if path.endswith(suffix)]
        if len(found) != 1:
            raise TaskError(f"a design needs one *{suffix} file", field="files", value=[p for p, _ in found], allowed=1)
        return found[0]

    @property
    def sources(self) -> dict[str, str]:
        """Path -> text of the Verilog sources, sorted by path."""
        return {path: text for path, text in self.files.items() if path.startswith("src/")}

    def digest(self) -> str:
        """Return the SHA-256 of all paths and texts as a hexadecimal string."""
        total = hashlib.sha256()
        for path, text in self.files.items():
            for part in (path.encode(), text.encode()):
                total.update(len(part).to_bytes(8, "big") + part)
        return total.hexdigest()

    def write(self, folder: str | Path) -> None:
        """Write the files under a folder; existing ones of the same names are replaced."""
        for path, text in self.files.items():
            target = Path(folder) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", newline="")

    @classmethod
    def from_folder(cls, folder: str | Path) -> DesignFiles:
        """Read ``config/*.mk``, ``config/*.sdc`` and the Verilog files under ``src/`` of a folder.

        Raises:
            TaskError: If the folder or a file cannot be read, is a symbolic link, is not UTF-8, or is too big.
        """
        root = Path(folder)
        if not root.is_dir():
            raise TaskError("not a folder", field="design", value=str(root))
        files: dict[str, str] = {}
        for top, suffixes in SUFFIXES.items():
            for path in sorted((root / top).rglob("*")):
                if path.suffix not in suffixes or path.is_dir():
                    continue
                name = path.relative_to(root).as_posix()
                if path.is_symlink() or not path.resolve().is_relative_to(root.resolve()):
                    raise TaskError("a file of a design must not be a link", field=name, value=str(path))
                if path.stat().st_size > MAX_FILE_BYTES:
                    size = path.stat().st_size
                    raise TaskError("a file of the design is too big", field=name, value=size, allowed=MAX_FILE_BYTES)
                try:
                    files[name] = path.read_bytes().decode("utf-8")
                except (OSError, UnicodeDecodeError) as e:
                    raise TaskError(f"cannot read a file of the design ({e})", field=name, value=str(path)) from e
        return cls(files)


def _check_path(path: str) -> None:
    pure = PurePosixPath(path)
    allowed = SUFFIXES.get(pure.parts[0] if pure.parts else "", ())
    if pure.is_absolute() or ".." in pure.parts or "\\" in path or str(pure) != path or pure.suffix not in allowed:
        raise TaskError("not a file of a design", field="path", value=path, allowed=SUFFIXES)
