"""Runs of the embedded flow that several tests look at, each made once per process."""

from functools import cache

from edagym.baselines.bench_ppa import bench_design
from edagym.envs.ppa.flow.embedded import EmbeddedFlow

BASE = {"CORE_UTILIZATION": "30", "PLACE_DENSITY": "0.5"}


def design(name, period, **knobs):
    return bench_design(name, {**BASE, **knobs}, period)


def run(name, period, **knobs):
    """Return the flow's result on one of the project's designs at a clock period (ps) under knobs."""
    return _run(name, period, tuple(sorted(knobs.items())))


@cache
def _run(name, period, knobs):
    return EmbeddedFlow().run(design(name, period, **dict(knobs)))


def report(name, period, **knobs):
    return run(name, period, **knobs).report


def moves(made, kind):
    """Return how many moves of a kind repair kept in a run."""
    return made.metrics.get(f"repair__{kind}__count", 0)
