"""The end of a turn that completed: its structured answer, where an output schema was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from checkrein.errors import CheckreinError
from checkrein.events import Reason
from checkrein.text import decode_json, describe

if TYPE_CHECKING:
    from .agent import LoopAgent

__all__ = ["completed"]

KEPT_VALUES = 100


def completed(agent: LoopAgent, turn: int, options: dict[str, Any]) -> Reason:
    """Return `completed`, or error of kind output when the answer does not satisfy the turn's `output_schema`."""
    schema = options.get("output_schema")
    if schema is None:
        return Reason("completed")
    try:
        value = decode_json(agent.session.state.final_text)
        _check(schema, value)
    except (ValueError, CheckreinError, RecursionError) as exc:
        text = f"expected an answer that satisfies the output schema: {describe(exc)}"
        return Reason("error", error="output", code="INVALID_OUTPUT", message=text)
    agent.values[turn] = value
    if len(agent.values) > KEPT_VALUES:
        del agent.values[next(iter(agent.values))]
    return Reason("completed")


def _check(schema: dict[str, Any], value: Any) -> None:
    """Check any JSON value: the schema stands as a property, since tools' schemas are always of type object."""
    from checkrein.foreign import ForeignSchema

    wrapped: dict[str, Any] = {"type": "object", "properties": {"answer": schema}, "required": ["answer"]}
    for word in ("$defs", "definitions"):  # local references count from the root
        if isinstance(schema.get(word), dict):
            wrapped[word] = schema[word]
    ForeignSchema(wrapped, name="output_schema").check({"answer": value})
