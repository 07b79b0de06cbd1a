"""The end of a turn that completed: its structured answer, where an output schema was asked for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from checkrein.errors import CheckreinError, ConfigError
from checkrein.events import Reason
from checkrein.text import decode_json, describe

if TYPE_CHECKING:
    from checkrein.foreign import ForeignSchema

    from .agent import LoopAgent

__all__ = ["completed", "wrapped"]

KEPT_VALUES = 100


def completed(agent: LoopAgent, turn: int, options: dict[str, Any]) -> Reason:
    """Return `completed`, or error of kind output when the answer does not satisfy the `output_schema` asked for."""
    schema = agent.settings(options).get("output_schema")
    if schema is None:
        return Reason("completed")
    try:
        value = decode_json(_unfenced(agent.session.state.final_text))
        wrapped(schema).check({"answer": value})
    except (ValueError, CheckreinError, RecursionError) as exc:
        text = f"expected an answer that satisfies the output schema: {describe(exc)}"
        return Reason("error", error="output", code="INVALID_OUTPUT", message=text)
    agent.values[turn] = value
    if len(agent.values) > KEPT_VALUES:
        del agent.values[next(iter(agent.values))]
    return Reason("completed")


def wrapped(schema: dict[str, Any]) -> ForeignSchema:
    """A schema for any JSON value, as that of a property `answer`: tools' schemas are always of type object.

    Raises:
        ConfigError: it is no schema.
    """
    from checkrein.foreign import MAX_SCHEMA_DEPTH, ForeignSchema
    from checkrein.schema import depth_exceeds

    if not isinstance(schema, dict):  # a setting of the agent's: those are the provider's to check, but for this one
        raise ConfigError(f"output_schema: expected a JSON Schema as a table, got {type(schema).__name__}")
    if not depth_exceeds(schema, MAX_SCHEMA_DEPTH):  # else it is refused as it is
        schema = _moved(schema)
        schema.pop("$id", None)  # it would be the root of its references
    dialect = {"$schema": schema["$schema"]} if "$schema" in schema else {}
    whole: dict[str, Any] = {"type": "object", "properties": {"answer": schema}, "required": ["answer"], **dialect}
    return ForeignSchema(whole, name="output_schema")


def _moved(node: Any) -> Any:
    """A schema for its place in the whole: what its local references name is there, not at the whole's root."""
    if isinstance(node, list):
        return [_moved(item) for item in node]
    if not isinstance(node, dict):
        return node
    moved = {
        key: value if isinstance(value, list) and key in ("enum", "examples") else _moved(value)
        for key, value in node.items()
    }
    if isinstance(ref := node.get("$ref"), str) and (ref == "#" or ref.startswith("#/")):
        moved["$ref"] = f"#/properties/answer{ref[1:]}"
    return moved


def _unfenced(text: str) -> str:
    """The text, without the fence of a code block that many models put around all of it."""
    fenced = re.fullmatch(r"\s*```(?:json)?[ \t]*\n(.*)\n[ \t]*```\s*", text, re.DOTALL | re.IGNORECASE)
    return fenced[1] if fenced else text
