"""Structured answers: a turn's `output_schema` (T4, kind output)."""

from __future__ import annotations

from typing import Any

import pytest

from checkrein import Agent
from checkrein.testing import ScriptedModel, call

SCHEMA = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/name"}, "degrees": {"type": "integer"}},
    "required": ["city", "degrees"],
    "$defs": {"name": {"type": "string", "minLength": 1}},
}


def ask(run: Any, *turns: Any, schema: dict[str, Any] = SCHEMA) -> tuple[Any, Any]:
    """The result of one turn with a schema, and of the turn behind it."""

    async def main() -> tuple[Any, Any]:
        async with Agent(ScriptedModel(*turns, "on")) as agent:
            return await agent.run("Weather?", output_schema=schema), await agent.run("and?")

    return run(main)


def test_an_answer_that_satisfies_the_schema_is_the_value(run: Any) -> None:
    """The value is the decoded JSON, the text stays what the model said; the next turn has no schema."""
    result, after = ask(run, '{"city":"Paris","degrees":21}')
    assert result.ok
    assert result.value == {"city": "Paris", "degrees": 21}
    assert result.text == '{"city":"Paris","degrees":21}'
    assert after.ok and after.value is None


@pytest.mark.parametrize(
    "answer", ["sunny", '{"city":"Paris"}', '{"city":"","degrees":1}', '{"city":"P","degrees":"hot"}']
)
def test_T4_an_answer_that_does_not_is_an_error_of_kind_output(run: Any, answer: str) -> None:
    """The turn ends error, kind output; what was said is in the log, and the agent lives."""
    result, after = ask(run, answer)
    assert (result.reason.kind, result.reason.error, result.reason.code) == ("error", "output", "INVALID_OUTPUT")
    assert result.value is None
    assert after.ok


def test_the_schema_is_asked_of_the_provider(run: Any) -> None:
    """The request's settings carry it, also behind a tool call."""
    seen: list[Any] = []

    def first(request: Any) -> Any:
        seen.append(request.settings)
        return call("nope")

    def second(request: Any) -> Any:
        seen.append(request.settings)
        return "[1]"

    result, _ = ask(run, first, second, schema={"type": "array", "items": {"type": "integer"}})
    assert result.value == [1]
    assert [settings["output_schema"]["type"] for settings in seen] == ["array", "array"]
