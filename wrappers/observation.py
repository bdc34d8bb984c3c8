"""Observations for networks: normalised vectors and rasters, made from what an agent may know.

Both wrappers go around a base environment (typed actions); `Raster` also goes around an action wrapper and joins its
vector in a Dict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
from scipy.ndimage import distance_transform_edt

from edagym.envs.core.tasks import Prepared
from edagym.envs.fet.construct.shapes import Flake
from edagym.envs.fet.construct.spine import medial_paths, sweep
from edagym.spaces.drc_queries import KINDS
from edagym.task_assets.drc.process import METALS, VIAS
from edagym.task_assets.drc.task import DRCView
from edagym.task_assets.fet.grid import ring_to_um
from edagym.task_assets.fet.task import ARCHITECTURES, ROLES, Region, TaskView
from edagym.verifiers.drc import load_table
from edagym.wrappers.core import PlainWrapper, wrappers_of
from edagym.wrappers.scan import fill, union

FET_CHANNELS = (
    "material",
    "demand",
    "spine",
    "contact",
    "gate electrode 1",
    "gate electrode 2",
    "via",
    "pad cover",
    "dielectric",
)
"""Channels of the FET raster. ``spine`` is bright on the flakes' medial axes and dark at their edges."""
DRC_CHANNELS = ("marker", *METALS, *VIAS, "other")
"""Channels of the DRC raster."""
MARGIN_UM = 2.0
"""Width of the frame around the flakes in FET rasters and vectors, um."""
DRC_REACH_NM = 200.0
"""Half the width of the DRC raster, nm."""
_LIMIT = 5.0
N_REGIONS, N_OUTLINE, N_DRAWN, N_RULES = 6, 24, 32, 24
"""FET vector: flakes, points of each outline, drawn shapes, rules."""
N_VIOLATIONS, N_NEAR = 8, 16
"""DRC vector: violations and nearby shapes."""


def frame(view: TaskView) -> tuple[np.ndarray, float]:
    """Return centre (um) and half the width (um) of the square that FET rasters and vectors show."""
    points = np.concatenate([np.array(r.hull) for r in view.regions])
    low, high = points.min(axis=0) - MARGIN_UM, points.max(axis=0) + MARGIN_UM
    return (low + high) / 2, float((high - low).max()) / 2


def known(env: gym.Env[Any, Any], observation: Any) -> dict[str, Any]:
    """Return the base observation behind an observation of an environment."""
    for wrapper in wrappers_of(env):
        if isinstance(wrapper, PlainWrapper):
            return wrapper.known[0]
    found: dict[str, Any] = observation
    return found


class Raster(gym.ObservationWrapper[Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Pictures for convolutional networks: uint8 (channels, size, size), row 0 lowest.

    FET: the square around all flakes, `FET_CHANNELS`. DRC: the square around the selected violation, `DRC_CHANNELS`.
    Around a typed environment the picture is the observation; around an action wrapper it is ``raster`` beside
    ``vector``.

    Args:
        env: A FET or DRC environment.
        size: Width and height, pixels, 36 at least (the networks of Stable-Baselines3 want that).

    Raises:
        ValueError: If the size is too small, or the family has no raster.
    """

    def __init__(self, env: gym.Env[Any, Any], size: int = 64) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, size=size)
        super().__init__(env)
        if size < 36:
            raise ValueError(f"size must be at least 36, got {size}")
        self.size = size
        keys = set(env.unwrapped.observation_space.spaces)  # type: ignore[attr-defined]
        if not keys & {"region_points", "violation_rule"}:
            raise ValueError("only FET and DRC environments have rasters")
        channels = FET_CHANNELS if "region_points" in keys else DRC_CHANNELS
        picture = gym.spaces.Box(0, 255, (len(channels), size, size), np.uint8)
        self._plain = any(isinstance(w, PlainWrapper) for w in wrappers_of(env))
        self.observation_space = (
            gym.spaces.Dict({"raster": picture, "vector": env.observation_space}) if self._plain else picture
        )

    def observation(self, observation: Any) -> Any:
        """Return the picture, or picture and vector."""
        base: Any = self.env.unwrapped
        view = base.view
        if isinstance(view, DRCView):
            picture = _drc_picture(view, known(self.env, observation), self.size)
        else:
            picture = _fet_picture(view, base.layout, _fixed_channels(self.size)(view), self.size)
        return {"raster": picture, "vector": observation} if self._plain else picture


def _scaled(points: Any, centre: np.ndarray, half: float, size: int) -> np.ndarray:
    return (np.asarray(points, float) - centre + half) * (size / (2 * half))


@cache
def _fixed_channels(size: int) -> Prepared[np.ndarray]:
    """Return what makes `_flakes` of a view, and keeps it while the view is among the last ones."""
    return Prepared(lambda view: _flakes(view, size), 256)


def _flakes(view: TaskView, size: int) -> np.ndarray:
    """Return the channels that a task fixes: material, demand, spine; uint8 (3, size, size)."""
    centre, half = frame(view)
    out = np.zeros((3, size, size), np.uint8)
    for region, demand in zip(view.regions, view.demand):
        rings = [_scaled(ring, centre, half, size) for ring in (region.hull, *region.holes)]
        mask = fill(rings, size, size)
        out[0][mask] = 255
        out[1][mask] = min(32 * (demand or 0), 255)
        out[2] = np.maximum(out[2], _spine(region, mask, centre, half))
    return out


def _spine(region: Region, mask: np.ndarray, centre: np.ndarray, half: float) -> np.ndarray:
    """Return closeness to the flake's longest medial path, 255 on it, falling to 0 at the farthest pixel."""
    size = len(mask)
    flake = Flake(region)
    curve = next(medial_paths(flake), None) or sweep(flake, flake.principal_angle)
    at = np.floor(_scaled(curve.points, centre, half, size)).astype(int)
    at = at[((at >= 0) & (at < size)).all(axis=1)]
    free = np.ones((size, size), bool)
    free[at[:, 1], at[:, 0]] = False
    if not len(at) or not mask.any():
        return np.zeros((size, size), np.uint8)
    distance = distance_transform_edt(free)
    near = 1.0 - distance / max(float(distance[mask].max()), 1.0)
    return np.where(mask, np.round(255 * np.clip(near, 0.0, 1.0)), 0).astype(np.uint8)


def _fet_picture(view: TaskView, layout: Any, fixed: np.ndarray, size: int) -> np.ndarray:
    centre, half = frame(view)
    out = np.zeros((len(FET_CHANNELS), size, size), np.uint8)
    out[: len(fixed)] = fixed
    gates = [spec.name for spec in view.layers if spec.role == "gate electrode"]
    for spec in view.layers:
        rings = layout.shapes(spec.name) if spec.editable else ()
        if not rings:
            continue
        name = f"gate electrode {min(gates.index(spec.name), 1) + 1}" if spec.name in gates else spec.role
        mask = union((_scaled(ring_to_um(ring), centre, half, size) for ring in rings), size, size)
        out[FET_CHANNELS.index(name)][mask] = 255
    return out


def _drc_picture(view: DRCView, observation: dict[str, Any], size: int) -> np.ndarray:
    out = np.zeros((len(DRC_CHANNELS), size, size), np.uint8)
    selected = int(observation["selected"][0])
    if selected < 0:
        return out
    names = list(load_table(view.rules).layers)
    zero = np.zeros(2)
    grouped: dict[str, list[np.ndarray]] = {}
    for i in np.flatnonzero(observation["shape_layer"] >= 0):
        name = names[observation["shape_layer"][i]]
        n = _shown(observation["shape_n_points"][i], observation["shape_points"].shape[1])
        ring = _scaled(observation["shape_local"][i, :n], zero, DRC_REACH_NM, size)
        grouped.setdefault(name if name in DRC_CHANNELS else "other", []).append(ring)
    for name, rings in grouped.items():
        out[DRC_CHANNELS.index(name)][union(rings, size, size)] = 255
    box = observation["violation_box"][selected].astype(float) * float(observation["dbu_nm"][0])
    # At least a pixel, since edges have no area.
    half = np.maximum((box[2:] - box[:2]) / 2, DRC_REACH_NM / size)
    corners = np.array(((-1, -1), (1, -1), (1, 1), (-1, 1))) * half
    out[0][fill([_scaled(corners, zero, DRC_REACH_NM, size)], size, size)] = 255
    return out


def _shown(n: int, most: int) -> int:
    """Return how many points of an outline are in a row: beyond the most, the corners of its box are."""
    return int(n) if n <= most else 4


class FlatVector(gym.ObservationWrapper[Any, Any, Any], gym.utils.RecordConstructorArgs):
    """A normalised vector, float32 in [-5, 5], instead of a family's base observation.

    Lists are cut to the sizes at the top of this module, outlines are thinned to `N_OUTLINE` points, coordinates are
    relative to what the raster shows. For more, wrap for yourself: the base observation has everything.

    Args:
        env: A base environment.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        super().__init__(env)
        keys = set(env.observation_space.spaces)  # type: ignore[attr-defined]
        self._encode: Callable[[dict[str, Any]], np.ndarray] = (
            _fet_vector if "region_points" in keys else _drc_vector if "violation_rule" in keys else _ppa_vector
        )
        blank = {k: np.zeros(s.shape, s.dtype) for k, s in env.observation_space.spaces.items()}  # type: ignore[attr-defined]
        size = len(self._encode(blank))
        self.observation_space = gym.spaces.Box(-_LIMIT, _LIMIT, (size,), np.float32)

    def observation(self, observation: dict[str, Any]) -> np.ndarray:
        """Return the vector."""
        return self._encode(observation)


def _vector(parts: Sequence[Any]) -> np.ndarray:
    return np.clip(np.concatenate([np.ravel(p) for p in parts]), -_LIMIT, _LIMIT).astype(np.float32)


def _fet_vector(o: dict[str, Any]) -> np.ndarray:
    used = o["region_mask"] > 0
    low = np.full(2, np.inf)
    high = np.full(2, -np.inf)
    for ring, n in zip(o["region_points"][used], o["region_n_points"][used]):
        low, high = np.minimum(low, ring[:n].min(axis=0)), np.maximum(high, ring[:n].max(axis=0))
    if not used.any():
        low = high = np.zeros(2)
    centre, half = (low + high) / 2, float((high - low).max()) / 2 + MARGIN_UM
    regions = np.zeros((N_REGIONS, 3 + 2 * N_OUTLINE))
    holes = np.bincount(o["hole_region"][o["hole_region"] >= 0], minlength=N_REGIONS)
    for i in range(min(int(used.sum()), N_REGIONS)):
        n = int(o["region_n_points"][i])
        at = np.linspace(0, n, N_OUTLINE, endpoint=False).astype(int)
        regions[i, :3] = 1.0, o["region_demand"][i] / 4, holes[i] / 2
        regions[i, 3:] = ((o["region_points"][i][at] - centre) / half).ravel()
    drawn = np.zeros((N_DRAWN, 1 + len(ROLES) + 4))
    rows = np.flatnonzero((o["shape_layer"] >= 0) & (o["shape_n_points"] > 0))
    for k, i in enumerate(rows[:N_DRAWN]):
        points = (o["shape_points"][i][: o["shape_n_points"][i]] - centre) / half
        drawn[k, 0] = 1.0
        drawn[k, 1 + max(int(o["layer_role"][o["shape_layer"][i]]), 0)] = 1.0
        drawn[k, -4:] = *points.min(axis=0), *points.max(axis=0)
    return _vector(
        (
            o["architecture"][: len(ARCHITECTURES)],
            o["circuit"] / 5,
            o["rule_value"][:N_RULES],
            regions,
            drawn,
            (len(rows) / N_DRAWN, half / 20),
            o["last_checks"],
            o["last_transistors"][:N_REGIONS] / 4,
            o["last_share"],
            o["last_edit_error"],
            o["budget_left"] / 40,
        )
    )


def _drc_vector(o: dict[str, Any]) -> np.ndarray:
    violations = np.zeros((N_VIOLATIONS, 2 + len(KINDS) + 4))
    unit = float(o["dbu_nm"][0]) / 100
    selected = max(int(o["selected"][0]), 0)
    anchor = o["violation_box"][selected].astype(float)
    centre = (anchor[:2] + anchor[2:]) / 2
    for i in np.flatnonzero(o["violation_rule"][:N_VIOLATIONS] >= 0):
        violations[i, :2] = 1.0, o["violation_rule"][i] / 100
        violations[i, 2 + max(int(o["violation_kind"][i]), 0)] = 1.0
        violations[i, -4:] = (o["violation_box"][i].astype(float).reshape(2, 2) - centre).ravel() * unit
    near = np.zeros((N_NEAR, 4 + 4))
    for i in np.flatnonzero(o["shape_layer"][:N_NEAR] >= 0):
        n = _shown(o["shape_n_points"][i], o["shape_points"].shape[1])
        points = o["shape_local"][i, : max(n, 1)] / 100
        near[i, :4] = 1.0, o["shape_layer"][i] / 20, o["shape_distance"][i] / 100, n / 8
        near[i, 4:] = *points.min(axis=0), *points.max(axis=0)
    state = (o["n_violations"] / 5, o["selected"] / 8, o["budget_left"] / 8)
    return _vector((*state, violations, near, o["last_vrr"], o["last_success"], o["last_edit_error"]))


def _ppa_vector(o: dict[str, Any]) -> np.ndarray:
    def log(values: np.ndarray) -> np.ndarray:
        return np.log10(np.maximum(values.astype(float), 1e-9)) / 3

    return _vector(
        (
            o["knob_values"],
            o["knob_set"],
            log(o["clock_period"]),
            o["io_fraction"],
            o["max_fanout"] / 32,
            log(o["bounds"]),
            log(o["report"]),
            log(o["initial"]),
            log(o["target"]),
            o["has_target"],
            10 * o["gap"],
            np.sign(o["stage_metrics"]) * log(np.abs(o["stage_metrics"]) + 1),
            o["history_status"],
            o["history_nis"],
            o["n_runs"] / 8,
            o["design_changed"],
            o["sources_changed"],
            o["budget_left"] / 16,
            o["last_nis"],
            o["last_success"],
            o["last_function"],
            o["last_flow_error"],
            o["last_edit_error"],
        )
    )
