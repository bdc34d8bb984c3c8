"""`Constraints`: clocks and port delays as the timing engine takes them (ps)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from edagym.errors import FlowError
from edagym.task_assets.ppa.technology import FALL, RISE


@dataclass(frozen=True)
class Clock:
    """A clock.

    Attributes:
        name: Name.
        period: ps.
        source: Name of the port that carries it; None for a virtual clock.
        rise: Time of the rising edge within the period, ps.
        fall: Time of the falling edge, ps; None for half a period after the rising one.
        setup_uncertainty: Taken off every setup requirement, ps.
        hold_uncertainty: Added to every hold requirement, ps.
        latency: Source latency, ps.
    """

    name: str
    period: float
    source: str | None = None
    rise: float = 0.0
    fall: float | None = None
    setup_uncertainty: float = 0.0
    hold_uncertainty: float = 0.0
    latency: float = 0.0

    def edge(self, edge: int) -> float:
        """Return the time of an edge within the first period, ps."""
        if edge == RISE:
            return self.rise
        return self.rise + self.period / 2 if self.fall is None else self.fall


@dataclass(frozen=True)
class PortDelay:
    """Delay outside the design at a port, against the rising edge of a clock.

    Attributes:
        port: Name of the port (of the bit of a bus: ``a[3]``).
        clock: Name of the clock.
        delay: ps.
    """

    port: str
    clock: str
    delay: float


@dataclass(frozen=True)
class Constraints:
    """What the timing engine checks a design against.

    Attributes:
        clocks: All clocks.
        input_delays: Arrival of inputs; a port without one launches no path.
        output_delays: Requirement of outputs; a port without one is no endpoint.
        exclusive: Pairs of clock names between which no path is checked (in either direction).
        max_fanout: Largest number of sinks per net; None for no limit.
    """

    clocks: tuple[Clock, ...]
    input_delays: tuple[PortDelay, ...] = ()
    output_delays: tuple[PortDelay, ...] = ()
    exclusive: frozenset[tuple[str, str]] = field(default_factory=frozenset)
    max_fanout: int | None = None

    def __post_init__(self) -> None:
        names = [clock.name for clock in self.clocks]
        if not names or len(set(names)) != len(names):
            raise FlowError("clocks must be there and have different names", field="constraints", value=names)
        for clock in self.clocks:
            if not (math.isfinite(clock.period) and clock.period > 0):
                raise FlowError("a clock period must be positive", field="constraints", value=clock.period)
        for delay in (*self.input_delays, *self.output_delays):
            if delay.clock not in names:
                raise FlowError("a port delay names no clock", field="constraints", value=delay.clock, allowed=names)

    def clock_number(self, name: str) -> int:
        """Return the position of a clock in `clocks`."""
        return next(i for i, clock in enumerate(self.clocks) if clock.name == name)

    def exclude(self, first: Clock, second: Clock) -> bool:
        """Return True if no path is checked between two clocks."""
        return (first.name, second.name) in self.exclusive or (second.name, first.name) in self.exclusive


def edge_distance(launch: Clock, launch_edge: int, capture: Clock, capture_edge: int) -> float:
    """Return the smallest positive time from a launching to a capturing edge over all periods, ps.

    Periods are taken to 1e-3 ps; where two clocks share no period within 1000 launches, the distance approaches 0 and
    the first 1000 launches decide.
    """
    unit = 1000
    start, every = round(launch.edge(launch_edge) * unit), max(1, round(launch.period * unit))
    first, step = round(capture.edge(capture_edge) * unit), max(1, round(capture.period * unit))
    best = step
    for i in range(min(1000, step // math.gcd(every, step))):
        # Python's modulo is never negative, so this is the distance to the next capture; 0 means a whole period.
        best = min(best, (first - start - i * every) % step or step)
    return best / unit


def simple(
    period: float, ports: tuple[tuple[str, bool], ...], clock_port: str | None, io_fraction: float = 0.2
) -> Constraints:
    """Return the constraints that most designs of the benchmark have.

    Args:
        period: Clock period, ps.
        ports: (name, is input) of every port.
        clock_port: Port of the clock; None for a virtual clock.
        io_fraction: Share of the period that lies outside the design at every other port.
    """
    clock = Clock("core_clock", period, clock_port)
    delay = io_fraction * period
    inputs = tuple(PortDelay(name, clock.name, delay) for name, is_input in ports if is_input and name != clock_port)
    outputs = tuple(PortDelay(name, clock.name, delay) for name, is_input in ports if not is_input)
    return Constraints((clock,), inputs, outputs)


__all__ = ["FALL", "RISE", "Clock", "Constraints", "PortDelay", "edge_distance", "simple"]
