"""Dense credit for training on FET tasks; evaluation refuses it, because it looks at hidden verdicts at every step."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import shapely

from edagym.envs.core.edit_env import EditEnv
from edagym.verifiers.verdict import Verdict
from edagym.wrappers.fet_macro import Desk, TransistorMacro, WirePath

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


def sound(desk: Desk, wire: WirePath) -> bool:
    """Return whether a wire keeps its distances and touches no piece of a flake but those of its own contacts."""
    ribbon = shapely.LineString(wire.points).buffer(wire.width / 2, cap_style="flat", join_style="mitre")
    gates = [shapely.Polygon(g.corners) for row in desk.rows for g in row.gates]
    if any(ribbon.distance(g) < desk.rules.separation for g in gates):
        return False
    mine = {p for w in desk.wires if w.net == wire.net for p in (w.a, w.b)}
    own = [shapely.Polygon(desk.contact(p).corners) for p in mine]
    others = [
        shapely.Polygon(c.corners)
        for k, row in enumerate(desk.rows)
        for i, c in enumerate(row.contacts)
        if (k, i) not in mine
    ]
    others += [shapely.LineString(w.points).buffer(w.width / 2) for w in desk.wires if w.net != wire.net]
    if any(ribbon.distance(o) < desk.rules.spacing for o in others):
        return False
    metal = shapely.union_all(gates)
    for frame in desk.frames:
        if not frame.flake.filled.intersects(ribbon):
            continue
        for piece in shapely.get_parts(shapely.difference(frame.flake.polygon, metal)):
            if piece.intersects(ribbon) and not any(piece.intersects(c) for c in own):
                return False
    return True


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
