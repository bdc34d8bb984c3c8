"""Building blocks of the action spaces' JSON schemas, in the subset that strict structured output takes.

That subset wants closed objects whose fields are all required; an optional field is one that may be null.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Schema = dict[str, Any]


def closed_object(**fields: Schema) -> Schema:
    """Return the schema of an object with exactly these fields."""
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def fixed_list(item: Schema, n: int) -> Schema:
    """Return the schema of a list of exactly `n` items."""
    return {"type": "array", "items": item, "minItems": n, "maxItems": n}


def action_schema(forms: Iterable[tuple[str, dict[str, Schema]]]) -> Schema:
    """Return the schema of one action.

    Args:
        forms: Operation and its other fields; an operation may have several forms.
    """
    return {"anyOf": [closed_object(op={"const": op}, **fields) for op, fields in forms]}
