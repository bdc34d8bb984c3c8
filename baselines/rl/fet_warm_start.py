"""Warm start of the FET macro presets: imitate random macros that the verifier likes.

The teacher draws macro parameters at random around the rule minima and follows a plain order of work: flake by flake,
verify when a flake is done, redo a flake that a verify names, join, submit. What turned out well is kept: transistors
that formed without breaking a rule, and the curves that they were placed on. The network is fitted to that. Neither
the reference constructor nor any task of the fixed suite takes part.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import shapely
import torch

from edagym.baselines.rl.fet_stacks import Env, fet_macro
from edagym.baselines.rl.presets import Preset
from edagym.wrappers.fet_macro import (
    COMPONENTS,
    FOCUS,
    JOIN,
    PLACE,
    SELECT,
    SUBMIT,
    UNDO,
    UNWIRE,
    VALUES,
    VERIFY,
    Desk,
    TransistorMacro,
)
from edagym.wrappers.fet_training import DenseCredit, smooth, sound, walls

# Shares of the levels that the teacher draws from; all others alike.
_SHARES: dict[str, tuple[float, ...]] = {
    "share": (0, 1),
    "layers": (1, 0, 0),
    "advance": (1, 1, 1, 1, 1, 1, 1, 1, 0.5, 0.5, 0.3, 0.3, 0.2, 0.2, 0.1, 0.1),
    "gap_source": (4, 4, 4, 4, 2, 1, 0.5, 0.2, 0, 0),
    "gap_drain": (4, 4, 4, 4, 2, 1, 0.5, 0.2, 0, 0),
    "contact_share": (2, 2, 2, 2, 1, 0.5, 0.5),
    "lateral": (0.1, 0.2, 0.5, 8, 0.5, 0.2, 0.1),
    "tilt": (0.1, 0.5, 8, 0.5, 0.1),
    "bend_off": (1, 1, 1, 1, 1, 4, 1, 1, 1, 1, 1),
}


_WIRE = ("side_a", "side_b", "out_a", "out_b", "bend_at", "bend_off")
_CLEAR_UM, _WORTH = 0.5, 12.0  # room beside a wire, up to half a um, is worth 12 times as much length
_NO_BEND = VALUES["bend_off"].index(0)


def teacher(desk: Desk, rng: np.random.Generator, tries: int = 120) -> np.ndarray:
    """Return the teacher's action, one level per component.

    Args:
        desk: The notes.
        rng: The teacher's generator.
        tries: Wires that it draws up; it takes a short one with room beside it that is sound.
    """
    op = _operation(desk)
    wire = _short_wire(desk, rng, tries) if op == JOIN else {}
    action = []
    for name, n in COMPONENTS.items():
        levels = desk.levels(name)
        if name == "op":
            action.append(op)
        elif name in wire:
            action.append(wire[name])
        elif len(levels) == 1:
            action.append(levels[0])
        else:
            shares = np.asarray(_SHARES.get(name, (1.0,) * n))[levels]
            action.append(levels[int(rng.choice(len(levels), p=shares / shares.sum()))])
    return np.array(action)


def _short_wire(desk: Desk, rng: np.random.Generator, tries: int) -> dict[str, int]:
    """Return the levels of the best of some random wires that are sound; none: those of the last one."""
    pair = desk.join()
    assert pair is not None
    blocked = walls(desk, pair[0], frozenset(pair[1:]))
    best: dict[str, int] = {}
    least, levels = np.inf, {}
    for _ in range(tries):
        levels = {name: int(rng.integers(COMPONENTS[name])) for name in _WIRE}
        if rng.random() < 0.5:
            levels["bend_off"], levels["bend_at"] = _NO_BEND, 0
        named = {n: VALUES[n][v] if n in VALUES else v for n, v in levels.items()}
        wire = desk.wire_path(pair, named)
        line = shapely.LineString(wire.points)
        if line.length - _CLEAR_UM * _WORTH >= least:
            continue
        ribbon = line.buffer(wire.width / 2, cap_style="flat", join_style="mitre")
        if not blocked.intersects(ribbon) and smooth(desk, wire):
            # The parts on the flake, between gates, are as close to them as they must be; what counts is outside.
            middle = shapely.LineString(wire.points[1:-1]).buffer(wire.width / 2)
            price = line.length - _WORTH * min(float(middle.distance(blocked)), _CLEAR_UM)
            if price < least:
                best, least = levels, price
    return best or levels


def _operation(desk: Desk) -> int:
    allowed = desk.allowed()
    if UNDO in allowed and not desk.failing_rows:
        allowed = tuple(op for op in allowed if op != UNDO or not desk.wires)
    return next(op for op in (UNWIRE, UNDO, VERIFY, FOCUS, JOIN, SUBMIT, SELECT, PLACE) if op in allowed)


def collect(env: Env, steps: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Run the teacher and return what went well: ``observation``, ``action``, ``mask``.

    Args:
        env: `DenseCredit` around `TransistorMacro`.
        steps: Environment steps to run.
        rng: The teacher's generator.
    """
    macro = cast(TransistorMacro, env.env)  # type: ignore[attr-defined]
    kept: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    row: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    observation, _ = env.reset()
    for _ in range(steps):
        focus = macro.desk.focus
        action = teacher(macro.desk, rng)
        sample = (observation, action, macro.action_masks())
        observation, reward, terminated, truncated, _ = env.step(action)
        op = int(action[0])
        if op in (FOCUS, SELECT, PLACE):
            row.append(sample)
            if op == PLACE and macro.desk.focus is None:
                # A row is worth what was asked of it, less faults and the price of its edits.
                sound = focus is not None and float(reward) > macro.desk.rows[focus].want - 0.5
                kept += row if sound else row[:1]
                row = []
        elif op != JOIN or float(reward) > 0.5:
            kept.append(sample)
        if terminated or truncated:
            observation, _ = env.reset()
            row = []
    names = ("observation", "action", "mask")
    return {name: np.stack([sample[i] for sample in kept]) for i, name in enumerate(names)}


def collect_wires(env: Env, samples: int, rng: np.random.Generator, repeats: int = 8) -> dict[str, np.ndarray]:
    """Draw rows without looking back on circuits that need wires, and return the teacher's sound wires.

    Args:
        env: `TransistorMacro` without `DenseCredit`.
        samples: Wires to collect.
        rng: The teacher's generator.
        repeats: Episodes per task.
    """
    macro = cast(TransistorMacro, env)
    kept: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    while len(kept) < samples:
        macro.reset()
        task = macro.base.task
        if not _needs_wires(macro.desk):
            continue
        for _ in range(repeats):
            observation, _ = macro.reset(options={"task": task})
            over = False
            while not over and (macro.desk.open_rows or macro.desk.join() is not None):
                # Rows are neither verified nor redone here, only wires matter.
                if macro.desk.open_rows:
                    macro.desk.left = 0
                for row in macro.desk.rows:
                    row.status, row.suspect = 1, False
                action = teacher(macro.desk, rng)
                sample = (observation, action, macro.action_masks())
                observation, _, terminated, truncated, _ = macro.step(action)
                over = terminated or truncated
                macro.desk.wire_suspect = False
                if action[0] == JOIN and not over and sound(macro.desk, macro.desk.wires[-1]):
                    kept.append(sample)
    names = ("observation", "action", "mask")
    return {name: np.stack([sample[i] for sample in kept]) for i, name in enumerate(names)}


def _needs_wires(desk: Desk) -> bool:
    nets = [net for stack in desk.stacks or () for net in stack.nets if net.startswith("OUT")]
    return len(nets) > len(set(nets))


def imitate(
    model: Any,
    preset: Preset,
    seed: int,
    *,
    steps: int = 10_000,
    wires: int = 2_000,
    epochs: int = 15,
    rate: float = 1e-3,
    batch: int = 256,
) -> dict[str, Any]:
    """Fit a model's policy to the teacher's good actions.

    Args:
        model: A MaskablePPO of the preset.
        preset: The preset.
        seed: Seed of tasks, teacher and order of samples.
        steps: Environment steps of the teacher.
        wires: Sound wires of the teacher's.
        epochs: Passes over the samples.
        rate: Learning rate.
        batch: Batch size.

    Returns:
        ``samples``, and ``loss`` (negative log-likelihood) of the first and last epoch.
    """
    rng = np.random.default_rng(seed)
    env = DenseCredit(fet_macro(**preset.env_kwargs), **preset.training_kwargs)
    env.reset(seed=seed + 1_000_003)
    data = collect(env, steps, rng)
    env.close()
    circuits = fet_macro()
    circuits.reset(seed=seed + 2_000_003)
    more = collect_wires(circuits, wires, rng)
    circuits.close()
    data = {name: np.concatenate([data[name], more[name]]) for name in data}
    policy = model.policy
    optimizer = torch.optim.Adam(policy.parameters(), lr=rate)
    n = len(data["action"])
    losses = []
    policy.set_training_mode(True)
    for _ in range(epochs):
        total = 0.0
        for index in np.array_split(rng.permutation(n), max(1, n // batch)):
            observations = torch.as_tensor(data["observation"][index])
            actions = torch.as_tensor(data["action"][index])
            _, log_prob, _ = policy.evaluate_actions(observations, actions, data["mask"][index])
            loss = -log_prob.mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
            total += float(loss.detach()) * len(index)
        losses.append(total / n)
    return {"samples": n, "loss": [round(losses[0], 4), round(losses[-1], 4)]}
