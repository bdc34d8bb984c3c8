"""Kill -9 of an evaluation at random moments, then `--resume`: every attempt once, and nothing else than without."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from edagym.baselines.evaluate import evaluate
from edagym.baselines.records import files_below, key_of, read_records, untimed
from edagym.baselines.rescore import rescore

POLICY = "evaluate_policies:Dawdler"


def start(out: Path, attempts: int, workers: int) -> subprocess.Popen[bytes]:
    """Start or resume an evaluation in a process of its own."""
    argv = ["eval", "--policy", POLICY, "--suite", "FET-L1", "--attempts", str(attempts), "--out", str(out)]
    argv += ["--workers", str(workers), "--resume", "--json"]
    return subprocess.Popen(
        [sys.executable, "-m", "edagym", *argv],
        cwd=Path(__file__).parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def children(pid: int) -> list[int]:
    """Return the processes that a process has started (Linux)."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()


def kill_and_resume(tmp_path: Path, *, kills: int, attempts: int, workers: int) -> None:
    rng = np.random.default_rng(kills)
    out = tmp_path / "run"
    records = out / "records.jsonl"
    torn = 0
    for n in range(kills):
        before = size(records)
        process = start(out, attempts, workers)
        # One in five at any moment after the start, the others while attempts are being run.
        if n % 5:
            while size(records) == before and process.poll() is None:
                time.sleep(0.002)
        time.sleep(float(rng.uniform(0.0, 0.3)))
        mine = children(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert process.returncode == -signal.SIGKILL, "finished before it was killed: ask for more attempts"
        torn += size(records) > 0 and not records.read_bytes().endswith(b"\n")
        limit = time.monotonic() + 30
        while any(map(alive, mine)):
            assert time.monotonic() < limit, "workers outlive the evaluation"
            time.sleep(0.05)
        counts = Counter(key_of(r) for r in read_records(out)) if records.exists() else Counter()
        assert all(c == 1 for c in counts.values())
    process = start(out, attempts, workers)
    _, err = process.communicate()
    assert process.returncode == 0, err.decode()
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    assert len({key_of(r) for r in lines}) == len(lines) == 8 * attempts

    whole = evaluate(POLICY, ["FET-L1"], attempts=attempts, out=tmp_path / "whole", progress=False)
    found = {key_of(r): untimed(r) for r in lines}
    assert found == {key_of(r): untimed(r) for r in whole}
    kept = list(files_below(out / "attempts"))
    assert kept == list(files_below(tmp_path / "whole" / "attempts"))
    assert {
        p for p in kept if (out / "attempts" / p).read_bytes() != (tmp_path / "whole/attempts" / p).read_bytes()
    } == set()
    scored = rescore(out, progress=False)
    assert (scored.agreed, scored.absent, scored.findings) == (8 * attempts, 0, [])


def test_a_few_kills(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, kills=3, attempts=25, workers=0)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_twenty_kills(tmp_path: Path, workers: int) -> None:
    kill_and_resume(tmp_path, kills=20, attempts=200 if workers else 100, workers=workers)
