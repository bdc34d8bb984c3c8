"""`RtlDesign`: the project's own Verilog designs and what a checker must know about their ports.

One folder a design, ``designs/<name>/``: ``design.json`` and ``src/*.v``. All are written for this project in plain
Verilog-2001 from public knowledge of the algorithms.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, Literal, get_args

from edagym.errors import TaskError
from edagym.task_assets.ppa.design import DesignFiles

InterfaceKind = Literal["combinational", "pipelined", "valid_ready"]
KINDS: tuple[str, ...] = get_args(InterfaceKind)


@dataclass(frozen=True, slots=True)
class Channel:
    """A valid/ready channel: `data` is transferred at every clock edge at which both flags are set.

    Attributes:
        valid: Port of the sender's flag.
        ready: Port of the receiver's flag.
        data: Ports that are transferred, in a fixed order.
    """

    valid: str
    ready: str
    data: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Interface:
    """How a design's ports talk.

    Attributes:
        kind: ``"combinational"``: no clock. ``"pipelined"``: outputs are compared at every cycle, up to a fixed number
            of cycles of latency. ``"valid_ready"``: only the sequence of transfers on each channel is compared.
        clock: Clock port (rising edge), or None if combinational.
        reset: Reset port, or None.
        reset_active_low: Whether the reset acts at 0.
        requests: Channels into the design (``valid_ready`` only).
        responses: Channels out of the design (``valid_ready`` only).
    """

    kind: InterfaceKind
    clock: str | None = None
    reset: str | None = None
    reset_active_low: bool = False
    requests: tuple[Channel, ...] = ()
    responses: tuple[Channel, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise TaskError("unknown kind of interface", field="kind", value=self.kind, allowed=KINDS)
        if (self.clock is None) != (self.kind == "combinational"):
            raise TaskError("a clock port goes with sequential designs only", field="clock", value=self.clock)
        if bool(self.requests and self.responses) != (self.kind == "valid_ready"):
            raise TaskError("channels go with kind 'valid_ready' only", field="requests", value=self.requests)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Interface:
        """Read the ``interface`` object of a ``design.json``.

        Raises:
            TaskError: If a field is unknown, missing, or does not fit the kind.
        """

        def channels(name: str) -> tuple[Channel, ...]:
            return tuple(Channel(c["valid"], c["ready"], tuple(c["data"])) for c in data.get(name, ()))

        reset = data.get("reset")
        try:
            return cls(
                data["kind"],
                data.get("clock"),
                reset["port"] if reset else None,
                reset["active"] == "low" if reset else False,
                channels("requests"),
                channels("responses"),
            )
        except (KeyError, TypeError) as e:
            raise TaskError(f"malformed interface ({e!r})", field="interface", value=dict(data)) from e


@dataclass(frozen=True)
class RtlDesign:
    """One design of ours.

    Attributes:
        name: Name of its folder.
        top: Top module.
        description: What it does, for prompts.
        interface: How its ports talk.
        period_ps: Default clock period, ps (of a virtual clock if combinational).
        latency: Cycles from input to output where fixed, else None.
        files: Its Verilog sources, ``src/*.v``.
    """

    name: str
    top: str
    description: str
    interface: Interface
    period_ps: float
    latency: int | None
    files: DesignFiles


def design_names() -> tuple[str, ...]:
    """Return the names of all designs, sorted."""
    folder = resources.files("edagym.task_assets.ppa") / "designs"
    return tuple(sorted(entry.name for entry in folder.iterdir() if (entry / "design.json").is_file()))


@lru_cache(maxsize=64)
def load_design(name: str) -> RtlDesign:
    """Load one of `design_names`.

    Raises:
        TaskError: If there is no such design or its ``design.json`` is malformed.
    """
    if name not in design_names():
        raise TaskError("unknown design", field="design", value=name, allowed=design_names())
    folder = resources.files("edagym.task_assets.ppa") / "designs" / name
    data = json.loads((folder / "design.json").read_text(encoding="utf-8"))
    sources = {f"src/{f.name}": f.read_text(encoding="utf-8") for f in (folder / "src").iterdir() if f.is_file()}
    try:
        return RtlDesign(
            name,
            data["top"],
            data["description"],
            Interface.from_dict(data["interface"]),
            float(data["period_ps"]),
            data["latency"],
            DesignFiles(sources),
        )
    except KeyError as e:
        raise TaskError("a field is missing", field=e.args[0], value=name) from e
