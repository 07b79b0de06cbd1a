"""JSON Schemas from elsewhere: refused when hostile, checked without network and in bounded time."""

import re
import time
from pathlib import Path
from typing import Annotated, Any

import pytest

from checkrein.errors import ConfigError, InvalidArguments
from checkrein.foreign import MAX_PATTERN_STEPS, pattern_cost
from checkrein.tools import SchemaTool, ToolContext, tool

CONTEXT = ToolContext(None, None, "c1.1.1", 1, Path())  # type: ignore[arg-type]


class Missing:
    """Stands for a hint that only type checkers know, beside that of the context."""


def make(schema: dict[str, Any]) -> SchemaTool:
    @tool(name="remote", parameters=schema)
    def remote(arguments: dict[str, Any]) -> dict[str, Any]:
        """A tool from elsewhere."""
        return arguments

    return remote


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_M8_foreign_arguments_are_checked_and_arrive_as_one_dict() -> None:
    made = make({**schema(a={"type": "integer"}), "required": ["a"]})
    assert made.description == "A tool from elsewhere."
    assert made.invoke(CONTEXT, made.decode('{"a":1,"more":[1]}')) == {"a": 1, "more": [1]}
    for text, word in [("{}", "'a' is a required property"), ('{"a":"x"}', "$.a"), ("[]", "an array")]:
        with pytest.raises(InvalidArguments) as info:
            made.decode(text)
        assert word in str(info.value) and "remote" in str(info.value)
    with pytest.raises(InvalidArguments):
        made.validate({"a": "x"})


def test_X8_foreign_tool_with_context() -> None:
    @tool(name="remote", parameters=schema())
    async def remote(context: ToolContext, arguments: dict[str, Any]) -> str:
        return context.call_id

    assert remote.is_async
    with pytest.raises(StopIteration) as info:
        remote.invoke(CONTEXT, {}).send(None)
    assert info.value.value == "c1.1.1"
    with pytest.raises(ConfigError, match="one dict"):
        tool(name="x", parameters=schema())(lambda a, b: None)


@pytest.mark.parametrize(
    "hint", [ToolContext, "ToolContext", ToolContext | None, Annotated[ToolContext, "it"], Missing]
)
def test_X8_a_foreign_tools_context_is_found_as_that_of_others(hint: Any) -> None:
    """An optional one was silently None; the others were refused, or taken for the dict."""

    def remote(context: Any, arguments: Any) -> Any:
        return context, arguments

    def optional(arguments: Any, context: Any = None) -> Any:
        return context, arguments

    for fn in (remote, optional):
        fn.__annotations__ = {"context": "ToolContext", "arguments": "Report"} if hint is Missing else {"context": hint}
        assert tool(parameters=schema())(fn).invoke(CONTEXT, {"a": 1}) == (CONTEXT, {"a": 1})


def test_case_M08_the_root_must_be_an_object() -> None:
    for bad in ({"type": "string"}, {"type": ["object", "null"]}, {"type": "object", "properties": []}):
        with pytest.raises(ConfigError, match="remote"):
            make(bad)
    assert make({}).parameters == {"type": "object", "properties": {}}
    assert make({"properties": {"a": {}}}).parameters["type"] == "object"


@pytest.mark.parametrize(
    "bad",
    [
        schema(a={"type": "intger"}),
        schema(a={"enum": 3}),
        schema(a={"minimum": "x"}),
        {"type": "object", "required": "a"},
        schema(a={"$ref": "#/$defs/missing"}),
        schema(a={"$ref": "http://127.0.0.1:9/x.json"}),
        schema(a={"$ref": "file:///etc/passwd"}),
        schema(a={"$ref": "other.json#/a"}),
        schema(a={"allOf": [{"$dynamicRef": "https://example.com"}]}),
        schema(a={"description": "x" * 300_000}),
        schema(a={"description": float("nan")}) | {"x": object()},
    ],
)
def test_case_M07_what_is_no_schema_is_refused_at_once(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="remote"):
        make(bad)


def test_nesting_is_bounded() -> None:
    deep: dict[str, Any] = {}
    for _ in range(20_000):
        deep = {"items": deep}
    with pytest.raises(ConfigError, match="deeper"):
        make(schema(a=deep))


def test_case_M09_references_are_inlined_for_the_model_and_kept_for_the_check() -> None:
    made = make({**schema(a={"$ref": "#/$defs/n", "description": "mine"}), "$defs": {"n": {"type": "integer"}}})
    assert made.parameters["properties"]["a"] == {"type": "integer", "description": "mine"}
    with pytest.raises(InvalidArguments):
        made.decode('{"a":"x"}')
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "v": {"type": "integer"}}}
    made = make({**schema(a={"$ref": "#/$defs/node"}), "$defs": {"node": node}})
    assert "$defs" in made.parameters
    assert made.decode('{"a":{"next":{"next":{"v":1}}}}')
    with pytest.raises(InvalidArguments):
        made.decode('{"a":{"next":{"next":{"v":"1"}}}}')


def test_a_schema_that_refers_only_to_itself_ends() -> None:
    made = make({**schema(a={"$ref": "#/$defs/a"}), "$defs": {"a": {"$ref": "#/$defs/a"}}})
    with pytest.raises(InvalidArguments):
        made.decode('{"a":1}')


def test_chains_of_references_that_double_are_bounded() -> None:
    defs: dict[str, Any] = {"a0": {"type": "integer"}}
    for i in range(1, 40):
        defs[f"a{i}"] = {"allOf": [{"$ref": f"#/$defs/a{i - 1}"}, {"$ref": f"#/$defs/a{i - 1}"}]}
    began = time.monotonic()
    made = make({**schema(a={"$ref": "#/$defs/a39"}), "$defs": defs})
    with pytest.raises(InvalidArguments, match="too long"):
        made.decode('{"a":1}')
    assert time.monotonic() - began < 5


EVIL = ["^(a+)+$", "(a|a)*c", "(a|aa)+$", "a*a*a*a*c", "(.*a){20}", "a?" * 30 + "a" * 30, r"(a+)\1+$", "(?:a*b?)*c"]


@pytest.mark.parametrize("pattern", EVIL)
def test_hostile_patterns_cost_nothing(pattern: str) -> None:
    made = make(schema(a={"type": "string", "pattern": pattern}))
    began = time.monotonic()
    text = '{"a":"' + "a" * 5_000 + '!"}'
    try:
        made.decode(text)
    except InvalidArguments:
        pass
    assert time.monotonic() - began < 0.5


@pytest.mark.parametrize("pattern", EVIL)
def test_hostile_patterns_of_names_cost_nothing(pattern: str) -> None:
    made = make({"type": "object", "patternProperties": {pattern: {"type": "integer"}}, "additionalProperties": False})
    began = time.monotonic()
    assert made.decode('{"' + "a" * 28 + '!":"x"}')
    assert time.monotonic() - began < 0.5


def test_names_are_bounded_where_patterns_look_at_them() -> None:
    made = make({"type": "object", "additionalProperties": False, "patternProperties": {"^a+$": {"type": "integer"}}})
    assert made.decode('{"aa":1}')
    for text in ('{"b":1}', '{"aa":"x"}', '{"' + "a" * 100_000 + '":1}'):
        with pytest.raises(InvalidArguments):
            made.decode(text)


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("^[a-z]+$", "abc", "ABC"),
        (r"^\d{4}-\d{2}-\d{2}$", "2020-01-01", "yesterday"),
        (r"^[a-z0-9._%+-]+@[a-z0-9-]+\.[a-z]{2,6}$", "me@example.org", "me at example"),
        ("^(?:ab)+$", "abab", "aba"),
        ("^(yes|no)$", "yes", "maybe"),
    ],
)
def test_ordinary_patterns_are_checked(pattern: str, good: str, bad: str) -> None:
    made = make(schema(a={"type": "string", "pattern": pattern}))
    assert made.decode(f'{{"a":"{good}"}}')
    with pytest.raises(InvalidArguments, match="pattern"):
        made.decode(f'{{"a":"{bad}"}}')


def test_a_pattern_of_another_dialect_is_left_to_its_server() -> None:
    assert make(schema(a={"type": "string", "pattern": r"^\p{L}+$"})).decode('{"a":"1"}')


def test_properties_named_like_keywords_are_properties() -> None:
    made = make(schema(pattern={"type": "integer"}, default={"$ref": "#/$defs/n"}) | {"$defs": {"n": {"type": "null"}}})
    assert made.decode('{"pattern":1,"default":null}')
    with pytest.raises(InvalidArguments):
        made.decode('{"pattern":1,"default":2}')


def test_unique_items_is_linear() -> None:
    made = make(schema(a={"type": "array", "uniqueItems": True}))
    items = ",".join(f'{{"n":{i}}}' for i in range(20_000))
    began = time.monotonic()
    assert made.decode(f'{{"a":[{items}]}}')
    assert time.monotonic() - began < 2
    with pytest.raises(InvalidArguments, match="unique"):
        made.decode('{"a":[{"x":1,"y":2},{"y":2,"x":1}]}')


def test_pattern_cost_bounds_the_real_cost() -> None:
    """Whatever is within the bound is fast on the text that is worst for it."""
    for pattern in ["a*", "a*b", "a*a*", "a+a+b", "(?:ab)*c", "[ab]*[bc]*d", "a?a?a?aaa", ".*x.*y", "a{1,9}b", *EVIL]:
        for size in (10, 100, 1_000, 5_000):
            if pattern_cost(pattern, size) <= MAX_PATTERN_STEPS:
                began = time.perf_counter()
                re.search(pattern, "a" * (size - 1) + "!")
                assert time.perf_counter() - began < 0.5, (pattern, size)
