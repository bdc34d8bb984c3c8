"""Dense credit for training on FET tasks; evaluation refuses it, because it looks at hidden verdicts at every step."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import shapely

from edagym.envs.core.edit_env import EditEnv
from edagym.verifiers.verdict import Verdict
from edagym.wrappers.fet_macro import Desk, Place, TransistorMacro, WirePath
from edagym.wrappers.fet_rectangle import RegionRectangle

_COUNTS = ("strict_transistor_count", "strict_contacts")
_FAULTS = ("min_", "must_not_overlap", "must_touch_boundary", "strict_via", "strict_stray", "strict_window")


def progress(verdict: Verdict, fault: float = 1.0, netlist: float = 1.0) -> float:
    """Return strict transistors formed, at most those asked for, less what rules are broken.

    Args:
        verdict: A verdict with the strict checks.
        fault: Price of each failed rule.
        netlist: Worth of a circuit's netlist.
    """
    total = 0.0
    for check in verdict.checks:
        if check.kind in _COUNTS:
            unit = 1.0 if check.kind == _COUNTS[0] else 0.5
            total += unit * min(float(check.measured or 0), float(check.required or 0))
        elif check.kind == "strict_netlist":
            total += netlist * check.passed
        elif not check.passed and check.kind.startswith(_FAULTS) and check.kind != "must_touch_boundary":
            total -= fault
    return total


def walls(desk: Desk, net: str, extra: frozenset[Place] = frozenset()) -> Any:
    """Return what the wires of a net must not touch, grown by the rules: a prepared Shapely geometry.

    Gates and other nets' metal at their distances, and those pieces of flakes that hold no contact of the net.

    Args:
        desk: The agent's notes.
        net: The net.
        extra: Contacts of the net beside those that its wires join already.
    """
    mine = {p for w in desk.wires if w.net == net for p in (w.a, w.b)} | extra
    own = [shapely.Polygon(desk.contact(p).corners) for p in mine]
    gates = [shapely.Polygon(g.corners) for row in desk.rows for g in row.gates]
    others = [
        shapely.Polygon(c.corners)
        for k, row in enumerate(desk.rows)
        for i, c in enumerate(row.contacts)
        if (k, i) not in mine
    ]
    others += [shapely.LineString(w.points).buffer(w.width / 2) for w in desk.wires if w.net != net]
    metal = shapely.union_all(gates)
    pieces = [
        piece
        for frame in desk.frames
        for piece in shapely.get_parts(shapely.difference(frame.flake.polygon, metal))
        if not any(piece.intersects(c) for c in own)
    ]
    grown = [g.buffer(desk.rules.separation + 0.005) for g in gates]
    grown += [o.buffer(desk.rules.spacing + 0.005) for o in others]
    union = shapely.union_all([*grown, *pieces])
    shapely.prepare(union)
    return union


def smooth(desk: Desk, wire: WirePath) -> bool:
    """Return whether a wire leaves no notch narrower than the spacing, with itself or its two contacts."""
    xy = np.asarray(wire.points)
    d = np.diff(xy, axis=0)
    length = np.hypot(*d.T)
    d = d[length > 0] / length[length > 0, None]
    if float((d[:-1] * d[1:]).sum(axis=1).min(initial=1.0)) < 0.1:
        return False
    ribbon = shapely.LineString(wire.points).buffer(wire.width / 2, cap_style="flat", join_style="mitre")
    drawn = shapely.union_all([ribbon, *(shapely.Polygon(desk.contact(p).corners) for p in (wire.a, wire.b))])
    r = desk.rules.spacing / 2
    closed = drawn.buffer(r, quad_segs=4).buffer(-r, quad_segs=4)
    # Closing rounds right angles off too; a real notch takes more than all of these together.
    return bool(closed.area - drawn.area < 12 * 0.25 * r * r + 0.002)


def sound(desk: Desk, wire: WirePath) -> bool:
    """Return whether a drawn wire keeps its distances and touches no piece of a flake but those of its own net."""
    ribbon = shapely.LineString(wire.points).buffer(wire.width / 2, cap_style="flat", join_style="mitre")
    return not walls(desk, wire.net).intersects(ribbon) and smooth(desk, wire)


class DenseCredit(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Pays the change of `progress` in every step, a sum for success at the end, and charges for the budget spent.

    Args:
        env: The environment, action wrappers included.
        fault: See `progress`.
        success: Pay for a passing layout at the end of the episode.
        cost: Price of a unit of budget.
        wire: Pay for each `sound` wire.
    """

    privileged = True

    def __init__(
        self,
        env: gym.Env[Any, Any],
        fault: float = 1.0,
        success: float = 2.0,
        cost: float = 0.01,
        wire: float = 0.7,
        privileged: bool = True,
    ) -> None:
        # `privileged` is an argument so that the spec names it; it cannot be turned off.
        gym.utils.RecordConstructorArgs.__init__(
            self, fault=fault, success=success, cost=cost, wire=wire, privileged=privileged
        )
        gym.Wrapper.__init__(self, env)
        self.fault, self.success, self.cost, self.wire = fault, success, cost, wire
        self._before, self._charged = 0.0, 0

    def _progress(self) -> float:
        base = self.env.unwrapped
        assert isinstance(base, EditEnv)
        total = progress(base.peek(), self.fault)
        wrapper = self.env
        if self.wire and isinstance(wrapper, TransistorMacro):
            total += self.wire * sum(sound(wrapper.desk, w) for w in wrapper.desk.wires)
        return total

    def _amid_row(self) -> bool:
        wrapper = self.env
        if isinstance(wrapper, RegionRectangle):
            sheet = wrapper.sheet
            return any(drawn and max(sheet.lacking(k).values()) > 0 for k, drawn in enumerate(sheet.drawn))
        return isinstance(wrapper, TransistorMacro) and wrapper.desk.focus is not None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the environment."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._before, self._charged = 0.0, 0  # nothing is drawn, nothing is wrong
        return observation, info

    def step(self, action: Any) -> Any:
        """Run a step."""
        observation, _, terminated, truncated, info = self.env.step(action)
        reward = -self.cost * (info["charged"] - self._charged)
        # A row is judged when it is complete: that halves the verifier's work.
        if info["n_edits"] and not info["error"] and (terminated or truncated or not self._amid_row()):
            now = self._progress()
            reward += now - self._before
            self._before = now
        self._charged = info["charged"]
        if terminated or truncated:
            reward += self.success * bool(info["is_success"])
        return observation, float(reward), terminated, truncated, info


def dense(env: gym.Env[Any, Any], **kwargs: Any) -> gym.Env[Any, Any]:
    """Put `DenseCredit` around an environment (the form that presets name)."""
    return DenseCredit(env, **kwargs)
