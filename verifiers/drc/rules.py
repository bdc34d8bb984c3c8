"""Rule tables: layers, derived layers and design rules as data (JSON), and their validation."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from edagym.errors import TaskError
from edagym.verifiers.drc.expression import Expr, parse

FORMAT = "edagym-drc-rules-1"
TABLES = ("asap7", "tutorial")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}\Z")
_RULE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]{0,63}\Z")
_RESERVED = frozenset({"nm", "dbu", "nm2", "dbu2", "euclidian", "projection"})


@dataclass(frozen=True, slots=True)
class LayerDef:
    """A drawn layer: name, GDSII layer and datatype numbers, and what it is."""

    name: str
    layer: int
    datatype: int
    purpose: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """A design rule.

    Attributes:
        id: Category under which violations are reported.
        description: One sentence.
        texts: The measurements as written, one per output.
        measures: The same as trees; every object that one yields is a violation.
    """

    id: str
    description: str
    texts: tuple[str, ...]
    measures: tuple[Expr, ...]

    @property
    def layers(self) -> frozenset[str]:
        """Names of all layers that the rule reads."""
        return frozenset().union(*(m.layers() for m in self.measures))

    @property
    def primary_layer(self) -> str:
        """The left-most layer of the first measurement: the one whose polygons carry the violation."""
        return primary_layer(self.measures[0])


def primary_layer(expr: Expr) -> str:
    """Return the name of the left-most layer of a tree."""
    while expr.op != "layer":
        expr = expr.args[0]
    return str(expr.params[0])


@dataclass(frozen=True, eq=False)
class RuleTable:
    """A technology's rules. Compare and hash by identity; pickles as its JSON data.

    Attributes:
        name: Short name, e.g. ``"asap7"``.
        title: One line for people.
        source: Where the rule values come from.
        layers: Drawn layers by name, in stack order.
        rules: Rules by id, in reporting order.
    """

    name: str
    title: str
    source: str
    layers: Mapping[str, LayerDef]
    rules: Mapping[str, Rule]
    data: Mapping[str, Any] = field(repr=False)

    @classmethod
    def from_dict(cls, data: Any, *, source: str = "rule table") -> RuleTable:
        """Build a table from JSON data.

        Args:
            data: The decoded JSON document (`docs`: see `tables/tutorial.json` for the smallest example).
            source: Name for error messages.

        Raises:
            TaskError: If anything is malformed; the message names the field.
        """
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            found = data.get("format") if isinstance(data, dict) else type(data).__name__
            raise TaskError(f"{source}: not a rule table", field="format", value=found, allowed=FORMAT)
        layers = _layers(data.get("layers"), source)
        names: dict[str, Expr] = {n: Expr("layer", (), (n,)) for n in layers}
        for name, text in _mapping(data.get("derived", {}), source, "derived").items():
            _check_name(name, names, source, "derived")
            names[name] = parse(text, names, field=f"{source}: derived.{name}")
        rules = _rules(data.get("rules"), names, source)
        texts = {k: data.get(k, "") for k in ("name", "title", "source")}
        for k, v in texts.items():
            if not isinstance(v, str):
                raise TaskError(f"{source}: expected a text", field=k, value=v)
        if not _NAME.match(texts["name"]):
            raise TaskError(f"{source}: bad table name", field="name", value=texts["name"], allowed=_NAME.pattern)
        return cls(**texts, layers=layers, rules=rules, data=data)

    @classmethod
    def load(cls, path: str | Path) -> RuleTable:
        """Read a table from a JSON file.

        Raises:
            TaskError: If the file is not readable or not a rule table.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
            data = json.loads(text)
        except (OSError, ValueError, RecursionError) as e:
            raise TaskError(f"{path}: not a readable rule table ({e})") from None
        return cls.from_dict(data, source=str(path))

    def __reduce__(self) -> tuple[Any, ...]:
        return (RuleTable.from_dict, (self.data,))

    def rules_on(self, layers: frozenset[str] | set[str]) -> tuple[str, ...]:
        """Return the ids of all rules that read any of `layers`, in reporting order."""
        return tuple(r.id for r in self.rules.values() if r.layers & layers)


def _mapping(value: Any, source: str, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TaskError(f"{source}: expected an object", field=name, value=value)
    return value


def _check_name(name: str, taken: Mapping[str, Any], source: str, where: str) -> None:
    if not _NAME.match(name) or name in _RESERVED or name in taken:
        raise TaskError(f"{source}: bad or repeated name", field=where, value=name, allowed=_NAME.pattern)


def _layers(value: Any, source: str) -> dict[str, LayerDef]:
    layers: dict[str, LayerDef] = {}
    used: dict[tuple[int, int], str] = {}
    for name, entry in _mapping(value, source, "layers").items():
        _check_name(name, layers, source, "layers")
        where = f"layers.{name}"
        entry = _mapping(entry, source, where)
        gds = entry.get("gds")
        if not (
            isinstance(gds, list)
            and len(gds) == 2
            and all(isinstance(v, int) and not isinstance(v, bool) and 0 <= v <= 65535 for v in gds)
        ):
            raise TaskError(
                f"{source}: bad layer numbers", field=f"{where}.gds", value=gds, allowed="[0..65535, 0..65535]"
            )
        if (gds[0], gds[1]) in used:
            raise TaskError(f"{source}: layer numbers used twice", field=f"{where}.gds", value=gds)
        used[gds[0], gds[1]] = name
        layers[name] = LayerDef(name, gds[0], gds[1], str(entry.get("purpose", "")))
    if not layers:
        raise TaskError(f"{source}: no layers", field="layers", value=value)
    return layers


def _rules(value: Any, names: Mapping[str, Expr], source: str) -> dict[str, Rule]:
    if not isinstance(value, list) or not value:
        raise TaskError(f"{source}: expected a list of rules", field="rules", value=value)
    rules: dict[str, Rule] = {}
    for i, entry in enumerate(value):
        where = f"rules[{i}]"
        entry = _mapping(entry, source, where)
        rule_id = entry.get("id")
        if not isinstance(rule_id, str) or not _RULE_ID.match(rule_id) or rule_id in rules:
            raise TaskError(
                f"{source}: bad or repeated rule id", field=f"{where}.id", value=rule_id, allowed=_RULE_ID.pattern
            )
        texts = entry.get("measure")
        texts = [texts] if isinstance(texts, str) else texts
        if not isinstance(texts, list) or not texts:
            raise TaskError(f"{source}: no measurement", field=f"{where}.measure", value=texts)
        measures = tuple(parse(t, names, field=f"{source}: {rule_id}.measure") for t in texts)
        description = entry.get("description", "")
        if not isinstance(description, str):
            raise TaskError(f"{source}: expected a text", field=f"{where}.description", value=description)
        rules[rule_id] = Rule(rule_id, description, tuple(texts), measures)
    return rules


def load_table(name: str = "asap7") -> RuleTable:
    """Return a table by name (`TABLES`, read once), or read one from a JSON file's path.

    Raises:
        TaskError: If there is no such table or file, or it is malformed.
    """
    if name in TABLES:
        return _own_table(name)
    if not name.endswith(".json"):
        raise TaskError("unknown rule table", field="rules", value=name, allowed=", ".join((*TABLES, "a .json file")))
    return RuleTable.load(name)


@cache
def _own_table(name: str) -> RuleTable:
    text = files("edagym.verifiers.drc").joinpath("tables", f"{name}.json").read_text(encoding="utf-8")
    return RuleTable.from_dict(json.loads(text), source=f"table {name}")
