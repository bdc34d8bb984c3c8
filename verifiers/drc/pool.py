"""A pool of worker processes for full checks.

Workers are fresh interpreters that talk over pipes. Nothing is forked or re-imported from the caller's main module, so
the pool works in notebooks, in scripts without a main guard and beside threads.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from queue import Queue
from typing import IO, TYPE_CHECKING

from edagym.errors import ToolError

if TYPE_CHECKING:
    from edagym.verifiers.drc.check import Checker, Result, Task

_COMMAND = "from edagym.verifiers.drc.pool import serve; serve()"


def run_tasks(checker: Checker, tasks: Sequence[Task], workers: int) -> Iterator[Result]:
    """Run the parts of a check; yield their results as they come.

    Args:
        checker: What evaluates them.
        tasks: The parts.
        workers: Number of processes; 1 runs in this one.

    Raises:
        ToolError: If a worker failed.
    """
    if workers <= 1:
        for task in tasks:
            yield checker.run(task)
        return
    pending = iter(tasks)
    lock = threading.Lock()
    results: Queue[Result | BaseException] = Queue()
    setup = pickle.dumps(checker)

    def drive(process: subprocess.Popen[bytes]) -> None:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            _send(process.stdin, setup)
            while True:
                with lock:
                    task = next(pending, None)
                if task is None:
                    break
                _send(process.stdin, pickle.dumps(task))
                results.put(pickle.loads(_receive(process.stdout)))
        except (OSError, EOFError, pickle.PickleError) as e:
            results.put(ToolError(f"a DRC worker process failed ({type(e).__name__}: {e})"))

    with ExitStack() as stack:
        for _ in range(min(workers, len(tasks))):
            process = subprocess.Popen([sys.executable, "-c", _COMMAND], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            stack.callback(_stop, process)
            threading.Thread(target=drive, args=(process,), daemon=True).start()
        for _ in tasks:
            result = results.get()
            if isinstance(result, BaseException):
                raise result
            yield result


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _send(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(len(data).to_bytes(8, "little") + data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes:
    size = pipe.read(8)
    if len(size) < 8:
        raise EOFError("no answer")
    data = pipe.read(int.from_bytes(size, "little"))
    if not data:
        raise EOFError("no answer")
    return data


def serve() -> None:
    """Run a worker: read the checker, then tasks, from standard input; write pickled results to standard output."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    checker: Checker = pickle.loads(_receive(source))
    while True:
        try:
            task = pickle.loads(_receive(source))
        except EOFError:
            return
        try:
            answer: object = checker.run(task)
        except Exception as e:
            answer = ToolError(f"a DRC worker process failed ({type(e).__name__}: {e})")
        _send(sink, pickle.dumps(answer))
