"""Warm start of the FET rectangle preset: imitate evenly spread rows of rectangles that the verifier likes.

The teacher lays one row of contacts and gates along a flake's axis, sizes at the rule minima plus a share of the room
that is left. Rows that come out well are kept, and the network is fitted to them.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import torch

from edagym.baselines.rl.fet_stacks import Env, fet_rectangle
from edagym.baselines.rl.presets import Preset
from edagym.envs.fet.construct.shapes import Rect
from edagym.wrappers.fet_macro import Desk
from edagym.wrappers.fet_rectangle import ANGLE, LENGTH_UM, RegionRectangle, Sheet, to_log, to_width
from edagym.wrappers.fet_training import DenseCredit

_VIA_WIDTH = to_width(0.06, 1.0)  # 12 % of the local width: well inside contacts of 75 %
_VIA_LENGTH_UM = 0.16
_PAD_INSET_UM = 0.05
_SPARE_UM = 0.12  # room about vias beyond the rule, across the flake
_SUBMIT = np.array([1, -1, -1, 0, 0, 0, 0, 0], np.float32)


def plan(sheet: Sheet, k: int) -> list[np.ndarray]:
    """Return the actions of one row on a flake, element by element along its axis."""
    view, rules = sheet.view, sheet.rules
    spine = sheet.spine(k)
    desk = Desk(view)
    desk.focus = k
    row = desk.rows[k]
    row.spine = spine
    slack = spine.length - row.want * rules.pitch - rules.least_contact
    # Room is shared out evenly: the wider the margins, the less an imitator's errors matter.
    each = max(slack / (row.want + 1), 0.0)
    extra, wider, gap = min(0.25 * each, 0.8), min(max(0.12 * each, 0.06), 0.5), min(max(0.15 * each, 0.03), 0.6)
    used = slack - (row.want + 1) * extra - row.want * (2 * gap + wider)
    start = max(0.5 * used, 0.1)
    wide = 1.3 if view.architecture == "edge_contacted" else 0.75
    numbers = {"layers": 0, "gate_extra": wider, "gap_source": gap, "gap_drain": gap, "contact_extra": extra}
    numbers |= {"contact_share": wide, "lateral": 0.0, "tilt": 0.0, "overhang": 0.7, "advance": start}
    actions: list[np.ndarray] = []
    for i in range(row.want):
        edits: list[Any] = desk.edits({"op": 2, "share": int(i > 0), **numbers})
        rects = [r for layer in edits for r in row.shapes[layer.layer] if _same(layer.points, r)]
        # Element by element: what belongs to one contact or gate follows each other.
        order = sorted(
            zip(edits, rects),
            key=lambda pair: (round(pair[1].cx, 6) != round(row.contacts[i].cx, 6), _at(spine, pair[1])),
        )
        for edit, rect in order:
            role = view.layer(edit.layer).role
            if role in ("contact", "pad cover") and rules.enclosure is not None:
                rect = rect.grown(0.0, _SPARE_UM)
            action = _action(sheet, spine, edit.layer, rect)
            if role == "via":
                action[5], action[6] = to_log(_VIA_LENGTH_UM, LENGTH_UM), _VIA_WIDTH
            elif role == "pad cover":
                action[6] = _action(sheet, spine, edit.layer, rect.grown(0.0, _PAD_INSET_UM))[6]
            actions.append(action)
    return actions


def _same(points: Any, rect: Rect) -> bool:
    return bool(np.allclose(points, np.round(rect.corners, 3), atol=2e-3))


def _at(spine: Any, rect: Rect) -> float:
    d = np.hypot(spine.points[:, 0] - rect.cx, spine.points[:, 1] - rect.cy)
    return float(spine.s[int(np.argmin(d))])


def _action(sheet: Sheet, spine: Any, layer: str, rect: Rect) -> np.ndarray:
    """Return the action that draws a rectangle whose direction is the axis's own at its place."""
    d = np.stack([rect.cx - spine.points[:, 0], rect.cy - spine.points[:, 1]], axis=1)
    heading = spine.heading
    # The place whose normal goes through the centre: its offset along the tangent is zero.
    along = d[:, 0] * np.cos(heading) + d[:, 1] * np.sin(heading)
    turn = np.abs(np.angle(np.exp(1j * (heading - math.atan2(rect.ty, rect.tx)))))
    i = int(np.argmin(np.abs(along) + 0.5 * turn + 0.05 * np.hypot(d[:, 0], d[:, 1])))
    s = float(spine.s[i]) + float(along[i])
    x, y, direction = spine.at(s)
    left, right = spine.span(x, y, direction, 0.0)
    off = -(rect.cx - x) * math.sin(direction) + (rect.cy - y) * math.cos(direction)
    local = max(left + right, 1e-6)
    angle = float(np.angle(np.exp(1j * (math.atan2(rect.ty, rect.tx) - direction))))
    names = [spec.name for spec in sheet.layers]
    return np.clip(
        np.array(
            [
                -1.0,
                -1.0,
                (names.index(layer) + 0.5) / len(names) * 2 - 1,
                2 * s / max(spine.length, 1e-6) - 1,
                (off - (left - right) / 2) * 2 / local,
                to_log(2 * rect.hx, LENGTH_UM),
                to_width(rect.hy, local),
                angle / ANGLE,
            ]
        ),
        -1.0,
        1.0,
    ).astype(np.float32)


def collect(env: Env, steps: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Run the teacher for about `steps` steps.

    Returns:
        Observations and actions of the rows that went well, and the share of such rows.
    """
    wrapper = cast(RegionRectangle, env.env)  # type: ignore[attr-defined]
    kept: list[tuple[np.ndarray, np.ndarray]] = []
    rows = good = n = 0
    while n < steps:
        observation, _ = env.reset()
        over = False
        while not over:
            sheet = wrapper.sheet
            k = sheet.order[0]
            lacks = max(sheet.lacking(k).values()) > 0
            actions = plan(sheet, k) if lacks else [_SUBMIT]
            row: list[tuple[np.ndarray, np.ndarray]] = []
            gained = 0.0
            for action in actions:
                row.append((observation, action))
                observation, reward, terminated, truncated, _ = env.step(action)
                n += 1
                gained += float(reward)
                over = terminated or truncated
                if over:
                    break
            sound = gained > sheet.wanted[k] - 0.5
            rows, good = rows + lacks, good + (lacks and sound)
            if sound or not lacks:
                kept += row
    observations, actions_kept = (np.stack([pair[i] for pair in kept]) for i in (0, 1))
    return observations, actions_kept, good / max(rows, 1)


def imitate(
    model: Any,
    preset: Preset,
    seed: int,
    *,
    steps: int = 30_000,
    epochs: int = 50,
    rate: float = 1e-3,
    batch: int = 128,
) -> dict[str, Any]:
    """Fit a PPO's mean and spread to the teacher's good rows.

    Args:
        model: A PPO of the preset.
        preset: The preset.
        seed: Seed of tasks and order of samples.
        steps: Environment steps of the teacher.
        epochs: Passes over the samples.
        rate: First learning rate; it falls to a tenth.
        batch: Batch size.

    Returns:
        ``samples``, ``sound_rows`` (share), ``loss`` of the first and last epoch.
    """
    rng = np.random.default_rng(seed)
    env = DenseCredit(fet_rectangle(**preset.env_kwargs), **preset.training_kwargs)
    env.reset(seed=seed + 1_000_003)
    observations, actions, share = collect(env, steps)
    env.close()
    policy = model.policy
    optimizer = torch.optim.Adam(policy.parameters(), lr=rate)
    n, losses = len(actions), []
    policy.set_training_mode(True)
    for epoch in range(epochs):
        for group in optimizer.param_groups:
            group["lr"] = rate * 0.1 ** (epoch / max(epochs - 1, 1))
        total = 0.0
        for index in np.array_split(rng.permutation(n), max(1, n // batch)):
            target = torch.as_tensor(actions[index])
            # Robust regression of the mean first, so that rare rows do not widen the spread of all.
            mean = policy.get_distribution(torch.as_tensor(observations[index])).distribution.mean
            loss = torch.nn.functional.smooth_l1_loss(mean, target, beta=0.05)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
            total += float(loss.detach()) * len(index)
        losses.append(total / n)
    return {"samples": n, "sound_rows": round(share, 3), "loss": [round(losses[0], 5), round(losses[-1], 5)]}
