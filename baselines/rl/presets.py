"""`Preset`: everything that a training run depends on, as data (YAML files in ``presets/``)."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edagym.errors import TaskError

FOLDER = Path(__file__).parent / "presets"
ALGORITHMS = ("PPO", "MaskablePPO", "SAC")
_CHOICES = {
    "family": ("fet", "drc", "ppa"),
    "vec": ("dummy", "subproc", "team"),
    "start_method": ("spawn", "forkserver"),
    "algo": ALGORITHMS,
    "policy": ("MlpPolicy", "MultiInputPolicy", "CnnPolicy"),
}
_POSITIVE = ("n_envs", "total_steps", "checkpoint_every", "threads")


@dataclass(frozen=True)
class Preset:
    """A training run.

    Functions and classes are named ``"module:attribute"``.

    Attributes:
        name: Name of the preset and of the policies that it trains.
        family: ``"fet"``, ``"drc"`` or ``"ppa"``.
        env: Factory of the wrapper stack, ``make(base=None, **env_kwargs)``: without a base it makes its own training
            environment, with one it puts the same wrappers around it.
        description: One sentence.
        env_kwargs: Keyword arguments of the factory.
        training: ``wrap(env, **training_kwargs)``: puts rewards and curricula around the stack in training only.
        training_kwargs: Keyword arguments of `training`.
        vec: ``"dummy"`` (one process), ``"subproc"``, or ``"team"`` (one process; agents with shared parameters, one
            slot per flake: `edagym.baselines.rl.multiagent`).
        start_method: How worker processes start, ``"spawn"`` or ``"forkserver"``.
        n_envs: Number of environments; of teams, with ``vec: team``.
        algo: One of `ALGORITHMS`.
        policy: Stable-Baselines3's name of the network.
        hyperparameters: Keyword arguments of the algorithm. A learning rate ``{start, end}`` falls linearly.
        total_steps: Environment steps, all environments together.
        seed: Seed of everything.
        checkpoint_every: Steps between checkpoints.
        warm_start: ``start(model, preset, seed) -> JSON summary``, run before learning, e.g. imitation.
        warm_start_kwargs: Further keyword arguments of `warm_start`.
        eval_options: Keyword arguments of the base environment that the policy is evaluated under.
        eval_episodes: Episodes of the comparison with random actions after training; 0: none.
        threads: Threads of the tensor library; results depend on it.
    """

    name: str
    family: str
    env: str
    description: str = ""
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    training: str | None = None
    training_kwargs: Mapping[str, Any] = field(default_factory=dict)
    vec: str = "dummy"
    start_method: str = "forkserver"
    n_envs: int = 8
    algo: str = "PPO"
    policy: str = "MlpPolicy"
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    total_steps: int = 100_000
    seed: int = 0
    checkpoint_every: int = 20_000
    warm_start: str | None = None
    warm_start_kwargs: Mapping[str, Any] = field(default_factory=dict)
    eval_options: Mapping[str, Any] = field(default_factory=dict)
    eval_episodes: int = 0
    threads: int = 1

    def __post_init__(self) -> None:
        for key, allowed in _CHOICES.items():
            if getattr(self, key) not in allowed:
                raise TaskError(f"preset {self.name}", field=key, value=getattr(self, key), allowed=allowed)
        for key in _POSITIVE:
            value = getattr(self, key)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise TaskError(f"preset {self.name}", field=key, value=value, allowed="a whole number from 1 up")
        for key, lowest in (("seed", 0), ("eval_episodes", 0)):
            value = getattr(self, key)
            if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
                raise TaskError(f"preset {self.name}", field=key, value=value, allowed="a whole number from 0 up")

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready object."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Any, source: str = "preset") -> Preset:
        """Undo `to_dict`; raises `TaskError` naming the field."""
        if not isinstance(data, Mapping):
            raise TaskError(f"{source}: a preset is a table of fields", field="preset", value=type(data).__name__)
        known = {f.name: f for f in dataclasses.fields(cls)}
        unknown = sorted(set(data) - set(known))
        if unknown:
            raise TaskError(f"{source}: unknown field", field=unknown[0], value=data[unknown[0]], allowed=list(known))
        missing = [name for name in ("name", "family", "env") if name not in data]
        if missing:
            raise TaskError(f"{source}: missing field", field=missing[0], allowed="a value")
        for name in ("env_kwargs", "training_kwargs", "hyperparameters", "warm_start_kwargs", "eval_options"):
            if not isinstance(data.get(name, {}), Mapping):
                raise TaskError(f"{source}: not a table", field=name, value=data[name], allowed="a table of values")
        return cls(**data)


def preset_names() -> list[str]:
    """Return the names of the shipped presets."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_preset(name: str, changes: Sequence[str] = ()) -> Preset:
    """Return a preset.

    Args:
        name: A shipped preset's name, or a path of a YAML or JSON file.
        changes: ``"key=value"`` each; keys may be dotted (``hyperparameters.gamma``), values are YAML.

    Raises:
        TaskError: If there is no such preset, or it or a change is malformed.
    """
    import yaml

    path = Path(name) if name.endswith((".yaml", ".yml", ".json")) else FOLDER / f"{name}.yaml"
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError:
        raise TaskError("unknown preset", field="preset", value=name, allowed=preset_names()) from None
    except yaml.YAMLError as e:
        raise TaskError(f"{path}: not YAML ({e})", field="preset", value=name) from None
    for change in changes:
        key, sign, text = change.partition("=")
        if not sign or not key:
            raise TaskError("not a change", field="--set", value=change, allowed="key=value")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            raise TaskError("the value is not YAML", field=key, value=text) from None
        _put(data, key.split("."), _number(value), change)
    return Preset.from_dict(data, str(path))


def _number(value: Any) -> Any:
    """Read ``3e-4``, a text in YAML, as the number that it is."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _put(data: dict[str, Any], keys: Sequence[str], value: Any, change: str) -> None:
    for key in keys[:-1]:
        inner = data.setdefault(key, {})
        if not isinstance(inner, dict):
            raise TaskError("no table under this key", field=key, value=change)
        data = inner
    data[keys[-1]] = value


def resolve(name: str) -> Any:
    """Return the object that ``"module:attribute"`` names; raises `TaskError`."""
    module, sign, attribute = name.partition(":")
    try:
        if not sign:
            raise AttributeError(f"no colon in {name!r}")
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as e:
        raise TaskError(f"cannot import ({e})", field="name", value=name, allowed="module:attribute") from e
