"""ORFS-Agent: one model call names the search space, a Gaussian process searches it (PostEDA-Bench, Appendix E.4)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edagym.baselines.llm.client import ModelSpec
from edagym.baselines.llm.posteda import prompts
from edagym.baselines.llm.posteda.agent import THOUGHT, PostEDAPolicy, Steps, read_object
from edagym.baselines.policies import Attempt, Bookmark
from edagym.baselines.search.ppa_search import Place, rank_candidates
from edagym.baselines.search.ppa_space import PERIOD, Dimension, misfit, start_place
from edagym.envs.ppa.state import REFERENCE_PAGE
from edagym.errors import PolicyError
from edagym.spaces.actions import Command
from edagym.spaces.json_schema import closed_object
from edagym.task_assets.ppa.config import is_locked
from edagym.task_assets.ppa.knobs import knob_table, reference_page
from edagym.task_assets.ppa.task import METRICS, RUNS, PPAView

ROUNDS, CANDIDATES = 6, 3
MAX_PARAMETERS = 16
_TRIES = 2
_POOL = 1500


class ORFSAgentPolicy(PostEDAPolicy):
    """Search-space discovery by one model call, then Latin hypercube and Gaussian-process UCB, 6 x 3 runs.

    The first round is a Latin hypercube around the defaults that the model named; the others take the candidates of the
    largest upper confidence bound of Matérn processes, far enough from each other. Every candidate is run from the
    task's original design. Targets come from the task, not from the model. The best design is handed in.

    An answer that cannot be read is asked for once more; without a search space nothing is run.

    Args:
        model: See `PostEDAPolicy`.
        kappa: Standard deviations of optimism.
        spread: Half-width of the first round around the defaults, in shares of the ranges.
        apart: Least distance between the candidates of a round, likewise, per root of the number of dimensions.
        **kwargs: See `PostEDAPolicy`.
    """

    name = "posteda-orfs-agent"
    families = ("ppa",)
    env_options: Mapping[str, Any] = {"charge": "runs", "budget": RUNS + 1}
    """One unit is left over, so that the last run need not be the answer; the scaffold makes 18 runs."""

    def __init__(
        self,
        model: ModelSpec | Mapping[str, Any] | str,
        *,
        kappa: float = 1.0,
        spread: float = 0.25,
        apart: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(model, **kwargs)
        self.kappa, self.spread, self.apart = kappa, spread, apart

    def bind(self, attempt: Attempt) -> None:
        """Begin an attempt; raises `PolicyError` for a DRC task."""
        super().bind(attempt)
        self._best: Bookmark | None = None

    @property
    def call_budget(self) -> int:
        """One call for the search space, and one more if the first answer cannot be read."""
        return _TRIES

    def settings(self) -> dict[str, Any]:
        """Return what a record states about the scaffold."""
        own = {"rounds": ROUNDS, "candidates": CANDIDATES, "kappa": self.kappa, "spread": self.spread}
        return {**super().settings(), **own, "apart": self.apart, "action_cap": ROUNDS * CANDIDATES}

    def episode(self) -> Steps:
        """Yield edits and runs of all candidates."""
        view = self._family.view
        assert isinstance(view, PPAView)
        dims, start = self.discover(view)
        self._best = self._attempt.snapshot()
        lowest = misfit(view.initial, view.targets)
        places: list[Place] = [start_place(view, dims)]
        seen: list[Mapping[str, float] | None] = [view.initial]
        for number in range(ROUNDS):
            batch = self.propose(view, dims, start, places, seen, first=number == 0)
            for place in batch:
                self._attempt.restart()
                for dim, u in zip(dims, place, strict=True):
                    yield dim.edit(u)
                yield Command.VERIFY
                info = self._info
                values = None if info["flow_error"] else {m: float(info[m]) for m in METRICS}
                places.append(place)
                seen.append(values)
                if values is not None and misfit(values, view.targets) < lowest:
                    lowest, self._best = misfit(values, view.targets), self._attempt.snapshot()

    def hand_in(self) -> None:
        """Return to the best design; the original one if none was better."""
        if self._best is not None:
            self._attempt.restore(self._best)

    def discover(self, view: PPAView) -> tuple[tuple[Dimension, ...], Place]:
        """Ask for the search space.

        Returns:
            The dimensions and the place of the defaults.

        Raises:
            CallsSpent: If no answer could be read.
        """
        design = view.design
        config, constraints = design.one(".mk"), design.one(".sdc")
        text = "\n".join(
            [
                *(f"{path}:\n{body}" for path, body in (config, constraints)),
                "Files under src/: " + ", ".join(design.sources) + "\n",
                f"{REFERENCE_PAGE}:\n{reference_page()}",
            ]
        )
        messages = [*self.opening(prompts.SEARCH_SPACE), {"role": "user", "content": text}]
        number, texts = {"type": ["number", "null"]}, {"type": ["array", "null"], "items": {"type": "string"}}
        row = closed_object(
            name={"type": "string"}, low=number, high=number, choices=texts, default={"type": ["string", "null"]}
        )
        schema = closed_object(
            thought=THOUGHT,
            parameters={"type": "array", "items": row, "minItems": 1, "maxItems": MAX_PARAMETERS},
        )
        while True:
            try:
                dims, start, dropped = self.ask("space", messages, schema, lambda reply: read_space(reply, view))
            except PolicyError as e:
                messages.append({"role": "user", "content": prompts.UNREADABLE.format(error=e)})
                continue
            self._attempt.note(
                "proposal",
                text="search space",
                dimensions=[{"name": d.name, "choices": list(d.choices), "low": d.low, "high": d.high} for d in dims],
                default=[d.value(u) for d, u in zip(dims, start, strict=True)],
                dropped=dropped,
            )
            return dims, start

    def propose(
        self,
        view: PPAView,
        dims: Sequence[Dimension],
        start: Place,
        places: Sequence[Place],
        seen: Sequence[Mapping[str, float] | None],
        *,
        first: bool,
    ) -> list[Place]:
        """Return the places of one round; all of them are chosen before any is run."""
        rng = self._attempt.rng
        if first:
            columns = [(rng.permutation(CANDIDATES) + rng.random(CANDIDATES)) / CANDIDATES for _ in dims]
            around = np.array(start) + self.spread * (2 * np.column_stack(columns) - 1)
            batch = [[float(u) for u in row] for row in np.clip(around, 0.0, 1.0)]
        else:
            at = min(range(len(places)), key=lambda i: math.inf if (v := seen[i]) is None else misfit(v, view.targets))
            # Half anywhere, half around the best so far.
            near = np.clip(np.array(places[at]) + rng.normal(0.0, 0.15, (_POOL // 2, len(dims))), 0.0, 1.0)
            pool = np.vstack([rng.random((_POOL - len(near), len(dims))), near])
            order = rank_candidates(dims, view.targets, places, seen, pool, self.kappa)
            batch = [[float(u) for u in row] for row in diverse(pool[order], CANDIDATES, self.apart)]
        self._attempt.note(
            "proposal",
            text="Latin hypercube around the defaults" if first else "upper confidence bound",
            method="lhs" if first else "gp-ucb",
            places=batch,
        )
        return batch


def diverse(ranked: np.ndarray, n: int, apart: float) -> np.ndarray:
    """Return the first `n` rows of a ranking that are far enough from each other; (n, dimensions).

    Args:
        ranked: Places in the unit cube, best first.
        n: How many.
        apart: Least distance over the root of the number of dimensions; where too few rows keep it, the best of the
            rest follow.
    """
    least = apart * math.sqrt(ranked.shape[1])
    chosen: list[int] = []
    for i in range(len(ranked)):
        if all(np.linalg.norm(ranked[i] - ranked[j]) >= least for j in chosen):
            chosen.append(i)
        if len(chosen) == n:
            break
    chosen += [i for i in range(len(ranked)) if i not in chosen][: n - len(chosen)]
    return ranked[chosen]


def read_space(text: str, view: PPAView) -> tuple[tuple[Dimension, ...], Place, list[str]]:
    """Return the search space of a reply.

    Ranges are cut to what the variable and the task allow.

    Args:
        text: The reply.
        view: What an agent may know about the task.

    Returns:
        Dimensions, the place of the defaults, and why entries were dropped, one text each.

    Raises:
        PolicyError: If nothing in it can be searched.
    """
    rows = read_object(text, "parameters")["parameters"]
    if not isinstance(rows, list):
        raise PolicyError("parameters must be a list", field="parameters", value=rows)
    found: dict[str, tuple[Dimension, float]] = {}
    dropped: list[str] = []
    for row in rows[:MAX_PARAMETERS]:
        try:
            if not isinstance(row, Mapping):
                raise ValueError("not an object")
            dim = _dimension(row, view)
            found.setdefault(dim.name, (dim, _default(row, dim)))
        except (ValueError, TypeError, OverflowError) as e:
            dropped.append(f"{row.get('name') if isinstance(row, Mapping) else row!r}: {e}"[:200])
    if not found:
        raise PolicyError("no parameter that can be varied", field="parameters", value=dropped)
    return tuple(dim for dim, _ in found.values()), [u for _, u in found.values()], dropped


def _dimension(row: Mapping[str, Any], view: PPAView) -> Dimension:
    name = str(row.get("name"))
    if name == PERIOD:
        low, high = _range(row, *view.bounds.period)
        return Dimension(PERIOD, low=low, high=high)
    knob = knob_table().get(name)
    if knob is None or is_locked(name) or name in view.bounds.locked:
        raise ValueError("no variable that may be changed")
    if knob.type in ("int", "float"):
        low, high = _range(row, -math.inf if knob.min is None else knob.min, math.inf if knob.max is None else knob.max)
        if knob.type == "int":
            low, high = _range({"low": math.ceil(low), "high": math.floor(high)}, low, high)
        return Dimension(name, low=low, high=high, whole=knob.type == "int")
    given = ["0", "1"] if knob.type == "bool" else row.get("choices")
    if not isinstance(given, list):
        raise ValueError("choices are needed")
    choices = [knob.text(knob.parse(str(c))) for c in given]
    choices = [c for c in dict.fromkeys(choices) if c]
    if len(choices) < 2:
        raise ValueError("at least two choices are needed")
    return Dimension(name, choices=tuple(choices))


def _range(row: Mapping[str, Any], least: float, most: float) -> tuple[float, float]:
    low, high = float(row.get("low", "none")), float(row.get("high", "none"))
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError("a range needs two finite numbers")
    low, high = max(min(low, high), least), min(max(low, high), most)
    if low >= high:
        raise ValueError(f"an empty range within {least:g}..{most:g}")
    return low, high


def _default(row: Mapping[str, Any], dim: Dimension) -> float:
    try:
        place = dim.place(str(row.get("default")))
    except ValueError:
        place = math.nan
    return place if math.isfinite(place) else 0.5
