"""Structured answers: a turn's `output_schema` (T4, kind output)."""

from __future__ import annotations

from typing import Any

import pytest

from checkrein import Agent, CheckreinError
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


def test_a_schema_in_the_agents_settings_holds_for_each_turn(run: Any) -> None:
    async def main(schema: Any) -> list[Any]:
        async with Agent(ScriptedModel("[1]", "one", "[2]"), settings={"output_schema": schema}) as agent:
            turns = [await agent.run("a"), await agent.run("b")]
            return [*turns, await agent.run("c", output_schema={"type": "array", "items": {"type": "string"}})]

    results = run(main, {"type": "array"})
    assert [result.value for result in results] == [[1], None, None]
    assert [result.reason.code for result in results] == [None, "INVALID_OUTPUT", "INVALID_OUTPUT"]
    assert "as a table, got bool" in (run(main, True)[0].reason.message or "")


@pytest.mark.parametrize("fence", ["```json\n{}\n```", "\n```\n{}\n```\n", "```JSON \n{}\n  ``` "])
def test_a_code_block_around_the_whole_answer_is_not_part_of_it(run: Any, fence: str) -> None:
    said = fence.replace("{}", '{"city":"Paris",\n"degrees":21}')
    result, _ = ask(run, said)
    assert result.value == {"city": "Paris", "degrees": 21} and result.text == said
    result, _ = ask(run, f"Here it is: {said}")
    assert result.reason.code == "INVALID_OUTPUT"


TREE = {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#"}}, "required": ["v"]}
PAIR = {"type": "object", "properties": {"title": {"type": "integer"}, "b": {"$ref": "#/properties/title"}}}
LIST = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "$id": "https://example.org/list",
    "type": "array",
    "items": [{"$ref": "#/definitions/n"}],
    "definitions": {"n": {"type": "integer"}},
}


@pytest.mark.parametrize(
    ("schema", "right", "wrong", "where"),
    [
        (TREE, '{"v":1,"next":{"v":2}}', '{"v":1,"next":{"v":"x"}}', "next.v"),
        (PAIR, '{"title":1,"b":2}', '{"title":1,"b":"x"}', "b"),
        (LIST, "[1]", '["x"]', "[0]"),
    ],
)
def test_references_and_dialect_of_a_schema_are_its_own(
    run: Any, schema: dict[str, Any], right: str, wrong: str, where: str
) -> None:
    """`#` named what it is wrapped in: a right answer failed the turn that had paid for it; others were refused."""
    assert ask(run, right, schema=schema)[0].check().text == right
    reason = ask(run, wrong, schema=schema)[0].reason
    assert (reason.error, reason.code) == ("output", "INVALID_OUTPUT") and where in reason.message


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"type": "nonsense"}, "'nonsense' is not valid"),
        ({"$ref": "#/$defs/none"}, "which is not in it"),
        ({"$ref": "https://example.org/x"}, "only references into itself"),
        (True, "got `bool`"),
        (int, "got type at \\$.output_schema"),
    ],
)
def test_what_is_no_schema_is_refused_before_anything_is_asked(run: Any, schema: Any, word: str) -> None:
    async def main() -> None:
        async with Agent(ScriptedModel("on")) as agent:
            with pytest.raises(CheckreinError if schema is int else ValueError, match=word):
                await agent.run("Weather?", output_schema=schema)
            assert (await agent.run("and?")).check().turn == 1

    run(main)


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


def test_values_of_the_last_hundred_turns_are_kept(run: Any) -> None:
    """A value is not in the log: the receipt of a turn long ago says its text only."""

    async def main() -> list[Any]:
        async with Agent(ScriptedModel(*map(str, range(101))), settings={"output_schema": {}}) as agent:
            receipts = []
            for _ in range(101):
                receipts.append(agent.send("next"))
                await agent.idle()
            return [await receipts[n].result() for n in (0, 1, 100)]

    assert [(result.text, result.value) for result in run(main)] == [("0", None), ("1", 1), ("100", 100)]
