"""What the checker's messages teach: limits and demands that the prompt lacked, and which flakes to draw anew."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from .fet_prompt import Problem

_AT_LEAST = r"expected at least (\d+(?:\.\d+)?) um"
_LIMITS = {
    "width": re.compile(rf"width on (\w+): {_AT_LEAST}"),
    "spacing": re.compile(rf"spacing on (\w+): {_AT_LEAST}"),
    "separation": re.compile(rf"separation of (\w+) and \w+: {_AT_LEAST}"),
    "enclosure": re.compile(rf"enclosure of (\w+) by \w+: {_AT_LEAST}"),
}
_DEMAND = re.compile(r"(\w+): expected (?:at least|exactly) (\d+) (?:strict )?transistor")


def heed(problem: Problem, findings: Sequence[str]) -> tuple[Problem, dict[str, int]]:
    """Return the problem with what messages teach, and the variant to draw of each flake.

    Args:
        problem: The task as the prompt states it.
        findings: What was said after each earlier answer, in order. Texts without findings change nothing.

    Returns:
        The task, and the number of a variant by flake: one up for each answer whose faults on that flake taught nothing
        new. A fault that names no flake counts for all of them.
    """
    variants: dict[str, int] = {}
    for text in findings:
        if "expected" not in text:
            continue
        before, problem = problem, _learn(problem, text)
        if problem == before:
            names = [flake.name for flake in problem.flakes]
            named = [name for name in names if re.search(rf"\b{re.escape(name)}\b", text)]
            for name in named or names:
                variants[name] = variants.get(name, 0) + 1
    return problem, variants


def _learn(problem: Problem, text: str) -> Problem:
    for kind, pattern in _LIMITS.items():
        found = [float(limit) for layer, limit in pattern.findall(text) if (kind, layer) != ("width", problem.contact)]
        problem = replace(problem, **{kind: max([getattr(problem, kind), *found])})
    demands = {name: int(n) for name, n in _DEMAND.findall(text)}
    flakes = []
    for flake in problem.flakes:
        demand = max(flake.demand, demands.get(flake.name, 0))
        if demand != flake.demand:  # the order of nets belonged to the old demand
            flake = replace(flake, demand=demand, nets=(), gates=())
        flakes.append(flake)
    return replace(problem, flakes=tuple(flakes))
