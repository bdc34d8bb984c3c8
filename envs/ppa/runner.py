"""`FlowRunner`: flow runs and functional checks of an environment, each design evaluated once per process.

Backends are deterministic by contract: the same files under the same engine give the same report. So results are kept
by the digest of the files, and a state that a searching policy comes back to costs nothing but its charge.

Who is at fault where an engine runs out of time or memory, or crashes? With the task's own sources, the tool: a
`ToolError`, and no verdict. With changed sources it may be either, and an agent that could void an episode by a source
that synthesis never finishes would lose no bad episode. So the engine is put to the test: where it fails on the changed
sources (twice, unless it ran out of time) and at once thereafter still manages the task's own, without any cache, the
change is at fault, and the run is a failed one that the agent sees.
"""

from __future__ import annotations

import hashlib
import importlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from edagym.envs.ppa.flow.backend import FlowBackend, FlowResult
from edagym.errors import FlowError, ToolError, ToolTimeout
from edagym.task_assets.ppa.design import DesignFiles
from edagym.task_assets.ppa.task import PPATask
from edagym.verifiers.ppa.verifier import SAME_SOURCES, FunctionCheck, check_comparable

FunctionChecker = Callable[[PPATask, DesignFiles], FunctionCheck]
"""(task, changed design) -> whether the design still does what the task's original does; raises `ToolError`."""

BACKENDS = {
    "embedded": "edagym.envs.ppa.flow.embedded:EmbeddedFlow",
    "orfs": "edagym.envs.ppa.flow.orfs:OrfsFlow",
}
_MAX_RESULTS = 512
_STAGES = {"yosys": "synthesis", "abc": "synthesis"}
_T = TypeVar("_T")


@dataclass(frozen=True)
class Outcome:
    """What a run of one design gave.

    Attributes:
        result: The completed run, or None.
        failure: Why it did not complete, or ``""``.
        function: The functional check of a completed run.
    """

    result: FlowResult | None
    failure: str = ""
    function: FunctionCheck | None = None


def make_backend(name: str) -> FlowBackend:
    """Return a backend by name.

    Raises:
        ToolError: If it is not installed.
    """
    if name not in BACKENDS:
        raise ToolError("unknown backend", field="backend", value=name, allowed=[*BACKENDS])
    module, _, kind = BACKENDS[name].partition(":")
    try:
        made: FlowBackend = getattr(importlib.import_module(module), kind)()
    except ImportError as e:
        raise ToolError(f"this backend is not available ({e})", field="backend", value=name) from e
    return made


def check_function(task: PPATask, design: DesignFiles) -> FunctionCheck:
    """Compare a design's function with the task's original; the default `FunctionChecker`."""
    if task.design.sources == design.sources:
        return SAME_SOURCES
    from edagym.envs.ppa.function import compare  # needs the synthesis engine

    return compare(task, design)


class FlowRunner:
    """Runs designs and remembers what came out.

    Args:
        backend: A backend, or the name of one; it is made on first use.
        function: The functional check.
    """

    def __init__(self, backend: str | FlowBackend, function: FunctionChecker = check_function) -> None:
        self._backend, self._function = backend, function
        self._outcomes: OrderedDict[tuple[str, ...], Outcome] = OrderedDict()
        self._checks: OrderedDict[str, FunctionCheck] = OrderedDict()

    @property
    def backend(self) -> FlowBackend:
        """The backend; raises `ToolError` where it is missing."""
        if isinstance(self._backend, str):
            self._backend = make_backend(self._backend)
        return self._backend

    def run(self, task: PPATask, design: DesignFiles) -> Outcome:
        """Run a design and check its function.

        Args:
            task: The task.
            design: The design's files.

        Raises:
            ToolError: If an engine is missing or fails, or is another one than the task's.
        """
        backend = self.backend
        key = (backend.name, backend.engine, task.design.digest(), design.digest(), repr(sorted(task.function.items())))
        found = self._outcomes.get(key)
        if found is None:
            found = self._evaluate(backend, task, design)
            self._outcomes[key] = found
            if len(self._outcomes) > _MAX_RESULTS:
                self._outcomes.popitem(last=False)
        if found.result is not None:
            check_comparable(task, found.result.report)
        return found

    def _evaluate(self, backend: FlowBackend, task: PPATask, design: DesignFiles) -> Outcome:
        if backend.name != task.backend or (task.engine and backend.engine != task.engine):
            raise ToolError(
                "the task's numbers are of another flow",
                field="engine",
                value=f"{backend.name}: {backend.engine}",
                allowed=f"{task.backend}: {task.engine}",
            )
        try:
            result = self._attribute(task, design, lambda d: _run(backend, d))
        except FlowError as e:
            return Outcome(None, str(e))
        return Outcome(result, "", self.check(task, design))

    def check(self, task: PPATask, design: DesignFiles) -> FunctionCheck:
        """Return the functional check of a design, made once for the same sources; raises `ToolError`."""
        key = repr((task.design.one(".mk"), sorted(task.function.items()), task.design.sources, design.sources))
        digest = hashlib.sha256(key.encode()).hexdigest()
        found = self._checks.get(digest)
        if found is None:
            try:
                found = self._attribute(task, design, lambda d: self._function(task, d))
            except FlowError as e:
                found = FunctionCheck(False, False, f"the function cannot be checked: {e}")
            self._checks[digest] = found
            if len(self._checks) > _MAX_RESULTS:
                self._checks.popitem(last=False)
        return found

    def _attribute(self, task: PPATask, design: DesignFiles, evaluate: Callable[[DesignFiles], _T]) -> _T:
        """Return what an evaluation gives; raises `FlowError` instead of `ToolError` where the design is at fault."""
        try:
            return evaluate(design)
        except ToolError as e:
            if design.sources == task.design.sources:
                raise
            error = e
        if not isinstance(error, ToolTimeout):
            try:
                return evaluate(design)
            except ToolError as e:
                error = e
        evaluate(_control(task, design))  # raises where the engine itself has a fault
        stage = _STAGES.get(error.field or "flow", error.field)
        raise FlowError(f"{stage}: fails on the changed sources, not on the original ones ({error})", field=stage)

    def recall(self, digest: str) -> FlowResult | None:
        """Return the kept result of a design by its digest, or None: nothing is run."""
        for key, outcome in self._outcomes.items():
            if key[3] == digest and outcome.result is not None:
                return outcome.result
        return None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_outcomes": OrderedDict(), "_checks": OrderedDict()}


def _run(backend: FlowBackend, design: DesignFiles) -> FlowResult:
    try:
        return backend.run(design)
    except (FlowError, ToolError):
        raise
    except Exception as e:
        # The design comes from an agent: a fault of the flow that it uncovers must not end the program.
        raise ToolError(f"the flow broke ({type(e).__name__}: {e})", field="flow") from e


def _control(task: PPATask, design: DesignFiles) -> DesignFiles:
    """Return the task's design in files that no cache has seen: one source ends in a comment of its own."""
    path = next(iter(task.design.sources))
    return task.design.replaced(path, f"{task.design.sources[path]}\n// control of {design.digest()}\n")


@cache
def shared_runner(name: str) -> FlowRunner:
    """Return the runner of a backend that all environments of this process share."""
    return FlowRunner(name)
