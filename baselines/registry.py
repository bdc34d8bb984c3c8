"""Policies by name, imported only when asked for.

A name is one of `POLICIES`, ``rl:CHECKPOINT`` (a checkpoint's path, or the name of a shipped policy), or
``package.module:Class`` for a policy of your own.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from edagym.baselines.policies import Policy
from edagym.errors import TaskError

POLICIES: dict[str, str | type] = {
    "random": "edagym.baselines.policies:RandomPolicy",
    "reference": "edagym.baselines.policies:ReferencePolicy",
    "search": "edagym.baselines.search.drc_repair:DRCSearchPolicy",
    "ppa-random": "edagym.baselines.search.ppa_search:RandomPPAPolicy",
    "ppa-coordinate": "edagym.baselines.search.ppa_search:CoordinatePPAPolicy",
    "ppa-gp": "edagym.baselines.search.ppa_search:GaussianProcessPPAPolicy",
    "fet-plan-execute": "edagym.baselines.llm.fet.whole:PlanExecutePolicy",
    "fet-react-3": "edagym.baselines.llm.fet.whole:React3Policy",
    "fet-react-4": "edagym.baselines.llm.fet.layers:React4Policy",
    "fet-reflexion-4": "edagym.baselines.llm.fet.layers:Reflexion4Policy",
    "fet-expel-4": "edagym.baselines.llm.fet.layers:ExpeL4Policy",
    "posteda-react": "edagym.baselines.llm.posteda.react:ReActPolicy",
    "posteda-vision-react": "edagym.baselines.llm.posteda.react:VisionReActPolicy",
    "posteda-proposer-critic": "edagym.baselines.llm.posteda.critic:ProposerCriticPolicy",
    "posteda-reflexion": "edagym.baselines.llm.posteda.reflexion:ReflexionPolicy",
    "posteda-tree-of-thought": "edagym.baselines.llm.posteda.tree:TreeOfThoughtPolicy",
    "posteda-orfs-agent": "edagym.baselines.llm.posteda.orfs_agent:ORFSAgentPolicy",
}
"""Name -> ``module:Class``, or the class itself."""

_RL = "edagym.baselines.rl.policy:RLPolicy"
_SECRET = ("api_key", "apikey", "token", "password", "passwd", "secret", "authorization", "credential")
# Keys of well-known providers by their first letters: a long run of letters and digits after them.
_KEY_VALUE = re.compile(
    r"\b(?:sk|rk|gsk|hf|ghp|gho|ghs|xai|nvapi|glpat|xox[abp])[-_](?:\w+-)*(?=[A-Za-z]*\d)[A-Za-z0-9]{16,}"
    r"|\b(?:AKIA|AIza)[-\w]{16,}|(?i:\bbearer\s+\S{8,})"
)
_NO_SECRET = ("api_key_env", "max_tokens", "max_completion_tokens")


def make_policy(name: str, **options: Any) -> Policy:
    """Return a policy by name.

    Args:
        name: See the module.
        **options: Keyword arguments of its class. Those of language-model policies have ``model``: a `ModelSpec` or its
            JSON form.

    Raises:
        TaskError: If there is none of that name, its package is missing, or it does not take the options.
    """
    fixed: dict[str, Any] = {}
    if name.startswith("rl:"):
        target: str | type = _RL
        fixed["name"] = name.removeprefix("rl:")
    elif name in POLICIES:
        target = POLICIES[name]
    elif ":" in name:
        target = name
    else:
        allowed = [*POLICIES, "rl:CHECKPOINT", "package.module:Class"]
        raise TaskError("unknown policy", field="policy", value=name, allowed=allowed)
    kind = _load(name, target) if isinstance(target, str) else target
    _check_options(name, kind, {**fixed, **options})
    try:
        policy: Policy = kind(**fixed, **options)
    except (ValueError, TypeError) as e:
        raise TaskError(
            f"policy {name!r} does not take these options ({e})", field="options", value=sorted(options)
        ) from e
    return policy


def env_options(policy: Policy) -> dict[str, Any]:
    """Return the environment's options that a policy is evaluated under; none unless it says so."""
    return dict(getattr(policy, "env_options", {}))


def _load(name: str, target: str) -> Any:
    module, _, kind = target.partition(":")
    try:
        found = getattr(importlib.import_module(module), kind)
    except (ImportError, AttributeError) as e:
        raise TaskError(f"policy {name!r} is not available ({e})", field="policy", value=target) from e
    return found


def _check_options(name: str, kind: Any, options: Mapping[str, Any]) -> None:
    parameters = inspect.signature(kind).parameters.values()
    named = [p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p.name for p in parameters if p.name in named and p.default is p.empty]
    free = any(p.kind is p.VAR_KEYWORD for p in parameters)
    unknown = [] if free else sorted(set(options) - set(named))
    if unknown:
        raise TaskError(f"policy {name!r} has no such option", field="options", value=unknown, allowed=named)
    missing = [n for n in needed if n not in options]
    if missing:
        hint = " (edagym eval --model NAME --base-url URL)" if "model" in missing else ""
        raise TaskError(f"policy {name!r} needs options{hint}", field="options", value=missing)


# -- options as people write them --------------------------------------------------------------------------------------


def parse_options(pairs: Sequence[str], config: str | Path | None = None) -> dict[str, Any]:
    """Return options from a file and from ``key=value`` texts, which win.

    Args:
        pairs: ``key=value``; the value is JSON where it can be read as such, else a text. A dot in the key reaches into
            an object: ``model.temperature=0.2``.
        config: YAML or JSON file with an object, or None.

    Raises:
        TaskError: If one cannot be read.
    """
    options: dict[str, Any] = {} if config is None else _read_config(Path(config))
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not all(key.split(".")):
            raise TaskError("not an option", field="--option", value=pair, allowed="key=value")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        place = options
        *parents, last = key.split(".")
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise TaskError("not an object", field=parent, value=place)
        place[last] = value
    return options


def _read_config(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as e:
        raise TaskError(f"cannot read {path}: {e.strerror}", field="--policy-config") from e
    try:
        if path.suffix in (".yaml", ".yml"):
            import yaml

            data = yaml.safe_load(text)
        else:
            data = json.loads(text)
    except ImportError as e:
        raise TaskError("YAML files need PyYAML: use JSON", field="--policy-config", value=str(path)) from e
    except Exception as e:
        raise TaskError(f"{path}: cannot be read ({e})", field="--policy-config") from e
    if not isinstance(data, dict):
        raise TaskError(f"{path}: options are an object", field="--policy-config", value=type(data).__name__)
    return data


def refuse_credentials(options: Mapping[str, Any], where: str = "options") -> None:
    """Raise `TaskError` if options, which are written into a run's files, seem to hold a credential.

    Keys are named by the environment variable that holds them (``api_key_env``).
    """
    for key, value in options.items():
        name = f"{where}.{key}"
        if key not in _NO_SECRET and any(word in key.lower().replace("-", "_") for word in _SECRET):
            raise TaskError(
                "credentials are not options: name the environment variable that holds them",
                field=name,
                allowed="--api-key-env NAME",
            )
        _refuse_value(name, value)


def _refuse_value(name: str, value: Any) -> None:
    if isinstance(value, Mapping):
        refuse_credentials(value, name)
    elif isinstance(value, list | tuple):
        for i, member in enumerate(value):
            _refuse_value(f"{name}[{i}]", member)
    elif isinstance(value, str):
        if _KEY_VALUE.search(value):
            raise TaskError("this looks like a credential", field=name, allowed="--api-key-env NAME")
        if "://" in value:
            _refuse_in_url(name, value)


def _refuse_in_url(name: str, url: str) -> None:
    parts = urlsplit(url)
    queried = [k for k, _ in parse_qsl(parts.query, keep_blank_values=True)]
    if "@" in parts.netloc or any(word in k.lower() for k in queried for word in (*_SECRET, "key", "sig")):
        raise TaskError("an address must not hold a credential", field=name, allowed="--api-key-env NAME")
