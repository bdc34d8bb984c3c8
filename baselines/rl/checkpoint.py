"""Policies as files: weights as ``.npz`` without pickle, and a JSON file that says how to act with them.

The JSON names the algorithm, the network and the wrapper stack, so that the two files are all that acting takes. Runs
keep Stable-Baselines3's own archives beside them, to go on from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from edagym.baselines.rl.presets import ALGORITHMS, resolve
from edagym.errors import PolicyError, TaskError

SCHEMA_VERSION = 1
SHIPPED = Path(__file__).parent / "shipped"
_ACTOR_ONLY = ("SAC",)
"""Algorithms whose critics are left out of the files: acting needs the actor."""


def state_hash(state: Mapping[str, torch.Tensor]) -> str:
    """Return the SHA-256 of a network's weights: names, types, shapes and bytes, in the order of names."""
    digest = hashlib.sha256()
    for name in sorted(state):
        array = np.ascontiguousarray(state[name].detach().cpu().numpy())
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def algorithm(name: str) -> Any:
    """Return an algorithm's class; raises `TaskError` for an unknown one."""
    if name not in ALGORITHMS:
        raise TaskError("unknown algorithm", field="algo", value=name, allowed=ALGORITHMS)
    if name == "MaskablePPO":
        import sb3_contrib

        return sb3_contrib.MaskablePPO
    import stable_baselines3

    return getattr(stable_baselines3, name)


def resolved(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return keyword arguments with the names of functions and classes (``"module:attribute"``) replaced by them."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found[key] = resolved(value)
        elif isinstance(value, str) and ":" in value:
            found[key] = resolve(value)
        else:
            found[key] = value
    return found


def space_to_plain(space: gym.Space[Any]) -> Any:
    """Return what tells two spaces apart, JSON-ready: kinds, shapes, types; not the bounds."""
    if isinstance(space, gym.spaces.Dict):
        return {key: space_to_plain(inner) for key, inner in space.spaces.items()}
    sizes = [int(n) for n in space.nvec.flat] if isinstance(space, gym.spaces.MultiDiscrete) else None
    count = int(space.n) if isinstance(space, gym.spaces.Discrete) else None
    return {"kind": type(space).__name__, "shape": list(space.shape or ()), "sizes": sizes, "n": count}


@dataclass(frozen=True)
class Checkpoint:
    """A policy from files.

    Attributes:
        metadata: ``schema_version``, ``name``, ``family``, ``env``, ``env_kwargs``, ``eval_options``, ``algo``,
            ``policy``, ``policy_kwargs``, ``observation_space``, ``action_space``, ``steps``, ``seed``, ``hash``, and
            whatever else was recorded.
        weights: Name -> array.
    """

    metadata: dict[str, Any]
    weights: dict[str, np.ndarray]

    def build(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> Any:
        """Return the network with its weights, on the CPU and in evaluation mode.

        Raises:
            PolicyError: If the spaces or weights do not fit the network.
        """
        for key, space in (("observation_space", observation_space), ("action_space", action_space)):
            if space_to_plain(space) != self.metadata[key]:
                raise PolicyError(
                    "the checkpoint is of another wrapper stack",
                    field=key,
                    value=self.metadata[key],
                    allowed=space_to_plain(space),
                )
        kind = algorithm(self.metadata["algo"])
        network_class = kind.policy_aliases[self.metadata["policy"]]
        kwargs = resolved(self.metadata["policy_kwargs"])
        with torch.random.fork_rng(devices=[]):
            network = network_class(observation_space, action_space, lambda _: 0.0, **kwargs)
        state = {name: torch.from_numpy(array.copy()) for name, array in self.weights.items()}
        try:
            missing, unexpected = network.load_state_dict(state, strict=False)
        except RuntimeError as e:
            raise PolicyError(f"the weights do not fit the network ({e})", field="weights") from e
        if self.metadata["algo"] in _ACTOR_ONLY:
            missing = [name for name in missing if name.startswith("actor.")]
        if missing or unexpected:
            raise PolicyError("the weights do not fit the network", field="weights", value=[*missing, *unexpected][:5])
        network.set_training_mode(False)
        return network


def save_policy(stem: Path, state: Mapping[str, torch.Tensor], metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Write ``STEM.npz`` and ``STEM.json``.

    Args:
        stem: Path without suffix.
        state: The network's weights.
        metadata: See `Checkpoint`; version and hash are added.

    Returns:
        The metadata as written.
    """
    kept = {n: t for n, t in state.items() if metadata["algo"] not in _ACTOR_ONLY or n.startswith("actor.")}
    data = {"schema_version": SCHEMA_VERSION, **metadata, "hash": state_hash(state)}
    stem.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {name: tensor.detach().cpu().numpy() for name, tensor in kept.items()}
    np.savez_compressed(stem.with_suffix(".npz"), **arrays)
    stem.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return data


def load_policy(name: str | Path) -> Checkpoint:
    """Return a policy.

    Args:
        name: A shipped policy's name, a file's path (either file, with or without suffix), a checkpoint's folder, or a
            run's folder (its final policy, or else its last checkpoint).

    Raises:
        TaskError: If there is none, or its files are malformed.
    """
    stem = _find(Path(name))
    try:
        metadata = json.loads(stem.with_suffix(".json").read_text(encoding="utf-8"))
        with np.load(stem.with_suffix(".npz"), allow_pickle=False) as arrays:
            weights = {key: arrays[key] for key in arrays.files}
    except (OSError, ValueError, RecursionError) as e:
        raise TaskError(f"cannot read the policy {stem} ({e})", field="policy", value=str(name)) from e
    if not isinstance(metadata, dict) or metadata.get("schema_version") != SCHEMA_VERSION:
        raise TaskError(f"{stem}.json is no policy", field="schema_version", allowed=SCHEMA_VERSION)
    return Checkpoint(metadata, weights)


def shipped_names() -> list[str]:
    """Return the names of the shipped policies."""
    return sorted(path.stem for path in SHIPPED.glob("*.npz"))


def checkpoints(run: Path) -> list[Path]:
    """Return the complete checkpoints of a run's folder, oldest first."""
    found = [p for p in (run / "checkpoints").glob("step_*") if (p / "policy.json").exists()]
    return sorted(found, key=lambda p: int(p.name.removeprefix("step_")))


def _find(path: Path) -> Path:
    """Return the path without suffix of a policy's files."""
    if path.is_dir():
        stems = [path / "policy", path / "final" / "policy", *(p / "policy" for p in reversed(checkpoints(path)))]
    elif path.suffix in (".npz", ".json"):
        stems = [path.with_suffix("")]
    else:
        stems = [path, SHIPPED / path]
    for stem in stems:
        if Path(f"{stem}.json").exists() and Path(f"{stem}.npz").exists():
            return stem
    raise TaskError("no such policy", field="policy", value=str(path), allowed=[*shipped_names(), "a run's folder"])
