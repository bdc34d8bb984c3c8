"""A run's folder: ``run.json``, ``records.jsonl`` and a folder per attempt, all safe against kills at any moment.

::

    RUN/run.json       settings of the run (`RunFolder.create`)
    RUN/records.jsonl  one line per finished attempt, appended and synced to disk
    RUN/attempts/<suite>/<task, / as __>/<attempt>/{trace.json, layout.gds | design/, notes.jsonl, ...}

An attempt counts once its line is in ``records.jsonl``. Its folder is put in place before, by renaming, so that every
line has its folder and no folder is ever half-written. One process writes: workers hand their files over as bytes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edagym.errors import TaskError
from edagym.task_assets.drc.task import DRCTask
from edagym.task_assets.ppa.task import PPATask

RECORD_SCHEMA = 2
RUN_SCHEMA = 1

Record = dict[str, Any]
Key = tuple[str, str, str, int, int]
"""What identifies an attempt: suite, policy, task id, attempt number, run seed."""

_SCHEMA_2: Record = {
    "task_hash": None,
    "error_type": None,
    "traceback": None,
    "infra_retries": 0,
    "retried": [],
    "tokens": {"prompt": 0, "completion": 0},
    "cost": None,
    "model_calls": 0,
    "model_retries": 0,
    "seconds": None,
    "memory": None,
    "recalled": 0,
    "settings": {},
    "verdict": None,
    "checksum": None,
}
"""Keys that records of schema 1 do not have, and what stands for them."""


# -- records -----------------------------------------------------------------------------------------------------------


def key_of(record: Mapping[str, Any]) -> Key:
    """Return what identifies a record's attempt."""
    return (record["suite"], record["policy"], record["task_id"], record["attempt"], record["run_seed"])


def untimed(record: Mapping[str, Any]) -> Record:
    """Return a record without its times: what equal attempts of equal runs have in common."""
    return {name: value for name, value in record.items() if name != "seconds"}


def checksum(record: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a record without its times: equal attempts of equal runs have equal checksums."""
    plain = {name: value for name, value in untimed(record).items() if name != "checksum"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def upgraded(record: Mapping[str, Any]) -> Record:
    """Return a record of any schema with the keys of schema 2; its ``schema_version`` stays."""
    if record.get("schema_version") != 1:
        return dict(record)
    paths = record.get("artefacts", {})
    failed = record.get("failed", [])
    filled = {
        **_SCHEMA_2,
        "attempt": record["episode"],
        "folder": str(Path(paths["trace"]).parent) if "trace" in paths else None,
        "first_failed": failed[0] if failed else None,
    }
    kind = "ToolError" if record.get("error") else None
    return {**filled, **record, "error_type": kind, "artefacts": {}}


def read_lines(path: str | Path) -> Iterator[tuple[int, Record | None, str]]:
    """Yield line number, record and fault of each line of a records file: None and a text, or a record and ``""``.

    Args:
        path: A run's folder or a records file. A last line without its end, such as a running evaluation or a kill
            leaves, is passed over.

    Raises:
        TaskError: If there is no such file.
    """
    file = Path(path) / "records.jsonl" if Path(path).is_dir() else Path(path)
    try:
        lines = file.read_bytes().split(b"\n")[:-1]
    except OSError as e:
        raise TaskError(f"cannot read records: {e.strerror}", field="records", value=str(file)) from e
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = upgraded(json.loads(line))
            hash(key_of(record))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
            yield number, None, f"{file}: line {number} is no record ({type(e).__name__}: {e})"
        else:
            yield number, record, ""


def read_records(path: str | Path) -> list[Record]:
    """Return the records of a run, one per attempt, in the order in which they came.

    Of two lines for one attempt the later one counts (`edagym eval --retry-missing`).

    Args:
        path: A run's folder or a records file; see `read_lines`.

    Raises:
        TaskError: If there is no such file, or a line is no record.
    """
    found: dict[Key, Record] = {}
    for _, record, fault in read_lines(path):
        if record is None:
            raise TaskError(fault, field="records")
        found[key_of(record)] = record
    return list(found.values())


def read_run(folder: str | Path) -> dict[str, Any]:
    """Return a run's settings; empty for folders of `edagym rollout`, which have none.

    Raises:
        TaskError: If the file is malformed or of another schema.
    """
    path = Path(folder) / "run.json"
    if not path.is_file():
        return {}
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as e:
        raise TaskError(f"cannot read {path}: {e}", field="run.json") from e
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != RUN_SCHEMA:
        raise TaskError("not the settings of a run", field="schema_version", value=version, allowed=RUN_SCHEMA)
    return dict(data)


def task_hash(task: Any) -> str:
    """Return the SHA-256 of all that a task holds: its document, its layouts, its files."""
    total = hashlib.sha256()

    def add(data: bytes) -> None:
        total.update(len(data).to_bytes(8, "big") + data)

    add(json.dumps(task.to_dict(), sort_keys=True).encode())
    if isinstance(task, DRCTask):
        add(task.gds)
        add(task.golden or b"")
    elif isinstance(task, PPATask):
        for files in (task.design.files, task.facts):
            for path, text in sorted(files.items()):
                add(path.encode())
                add(text.encode())
    return total.hexdigest()


def attempt_folder(suite: str, task_id: str, attempt: int) -> str:
    """Return where an attempt's files lie, relative to the run's folder."""
    return f"attempts/{_name(suite)}/{_name(task_id)}/{attempt:03d}"


def _name(text: str) -> str:
    """Return a text as the name of a folder; different texts give different names."""
    plain = text.replace("/", "__")
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", plain)
    if safe == plain and plain.replace("__", "/") == text and not safe.startswith("."):
        return safe
    return f"{safe.lstrip('.')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


# -- the folder --------------------------------------------------------------------------------------------------------


class RunFolder:
    """The folder of a run, open for writing; only one process at a time can hold it open.

    Args:
        path: The folder; it is made.

    Raises:
        TaskError: If it cannot be made, or another process holds it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / ".lock").open("a")
        except OSError as e:
            raise TaskError(f"cannot make folder {self.path}: {e.strerror}", field="out") from e
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise TaskError("another process writes to this run", field="out", value=str(self.path)) from None
        self._scratch = self.path / ".scratch"
        shutil.rmtree(self._scratch, ignore_errors=True)  # what a killed run left behind
        self._seal()

    @property
    def records_path(self) -> Path:
        """The records file."""
        return self.path / "records.jsonl"

    def _seal(self) -> None:
        """Take a last line off that a kill has cut short: that attempt has not finished."""
        if not self.records_path.exists():
            return
        with self.records_path.open("r+b") as f:
            data = f.read()
            end = data.rfind(b"\n") + 1
            if end < len(data):
                f.truncate(end)
                os.fsync(f.fileno())

    def write_run(self, settings: Mapping[str, Any]) -> None:
        """Write ``run.json``, whole or not at all."""
        text = json.dumps({"schema_version": RUN_SCHEMA, **settings}, indent=1) + "\n"
        self._scratch.mkdir(exist_ok=True)
        fresh = self._scratch / "run.json"
        _write(fresh, text.encode())
        fresh.replace(self.path / "run.json")
        _sync_folder(self.path)

    def commit(self, record: Mapping[str, Any], files: Mapping[str, bytes], folder: str | None = None) -> Record:
        """Put an attempt's files in place, then append its record.

        Args:
            record: The record, without the entries that this adds.
            files: Relative POSIX path -> content; replaces whatever an attempt that was cut short has left.
            folder: Where, relative to the run's folder; None: `attempt_folder`.

        Returns:
            The record as it was written: with ``folder``, ``artefacts`` (path -> SHA-256) and ``checksum``.
        """
        where = folder or attempt_folder(record["suite"], record["task_id"], record["attempt"])
        if files:
            self._place(self.path / where, files)
        hashes = {path: hashlib.sha256(data).hexdigest() for path, data in sorted(files.items())}
        whole = {**record, "folder": where if files else None, "artefacts": hashes}
        whole["checksum"] = checksum(whole)
        line = json.dumps(whole) + "\n"
        new = not self.records_path.exists()
        with self.records_path.open("ab") as f:
            f.write(line.encode())
            f.flush()
            os.fsync(f.fileno())
        if new:
            _sync_folder(self.path)
        # As a reader will see it: tuples have become lists.
        return dict(json.loads(line))

    def _place(self, target: Path, files: Mapping[str, bytes]) -> None:
        self._scratch.mkdir(exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=self._scratch))
        fresh.chmod(0o755)
        for path, data in files.items():
            (fresh / path).parent.mkdir(parents=True, exist_ok=True)
            _write(fresh / path, data)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            target.rename(Path(tempfile.mkdtemp(dir=self._scratch)) / "old")
        fresh.rename(target)
        _sync_folder(target.parent)

    def close(self) -> None:
        """Let go of the folder."""
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._lock.close()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def files_below(folder: Path) -> Iterator[str]:
    """Yield the relative POSIX paths of the files below a folder, sorted."""
    yield from sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
