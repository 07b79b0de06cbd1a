"""@tool: hints to schemas, arguments in, calls out (M8, X6, X8)."""

import dataclasses
import enum
import functools
import timeit
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import jsonschema
import msgspec
import pytest

from checkrein.errors import InvalidArguments
from checkrein.tools import FunctionTool, Tool, ToolContext, tool

CONTEXT = ToolContext(None, None, "c1.1.1", 1, Path())  # type: ignore[arg-type]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: float = 0.0


POINT = Point(1)


class Tree(msgspec.Struct):
    name: str
    children: list["Tree"] = []


class Options(TypedDict, total=False):
    depth: int


def call(made: Tool, text: str) -> Any:
    return made.invoke(CONTEXT, made.decode(text))


def test_bare_and_with_arguments() -> None:
    @tool
    def one(a: int) -> int:
        """One."""
        return a

    @tool(name="other", read_only=True, exclusive=True, timeout_s=2.5)
    def two(a: int) -> int:
        return a

    assert (one.name, one.effect, one.exclusive, one.timeout_s, one.is_async) == (
        "one",
        "effectful",
        False,
        None,
        False,
    )
    assert (two.name, two.effect, two.exclusive, two.timeout_s) == ("other", "read_only", True, 2.5)
    assert one(3) == 3, "a tool can still be called as the function it was"
    assert one.schema is one.schema and one.schema.name == "one" and one.schema.parameters is one.parameters


@pytest.mark.parametrize(
    ("read_only", "idempotent", "effect"),
    [(True, False, "read_only"), (True, True, "read_only"), (False, True, "idempotent"), (False, False, "effectful")],
)
def test_X6_effect(read_only: bool, idempotent: bool, effect: str) -> None:
    @tool(read_only=read_only, idempotent=idempotent)
    def fn() -> None: ...

    assert fn.effect == effect


def test_schema_of_many_types_is_what_jsonschema_accepts_and_what_arrives_is_typed() -> None:
    seen: dict[str, Any] = {}

    @tool
    def fn(
        point: Point,
        colour: Colour,
        word: Literal["a", "b"],
        count: Annotated[int, msgspec.Meta(ge=1, le=9)],
        options: Options,
        points: list[Point],
        table: dict[int, str],
        maybe: str | None = None,
        flag: bool = True,
        ratio: float = 0.5,
    ) -> str:
        seen.update(locals())
        return "ok"

    arguments = {
        "point": {"x": 1},
        "colour": "red",
        "word": "b",
        "count": 3,
        "options": {"depth": 2},
        "points": [{"x": 1, "y": 2}],
        "table": {"7": "seven"},
        "ratio": 1,
    }
    jsonschema.Draft202012Validator.check_schema(fn.parameters)
    jsonschema.validate(arguments, fn.parameters)
    assert "$ref" not in msgspec.json.encode(fn.parameters).decode(), "models see nothing behind a reference"
    assert fn.parameters["properties"]["ratio"]["default"] == 0.5
    assert fn.parameters["additionalProperties"] is False
    assert call(fn, msgspec.json.encode(arguments).decode()) == "ok"
    assert seen["point"] == Point(1) and seen["colour"] is Colour.RED and seen["points"] == [Point(1, 2.0)]
    assert seen["table"] == {7: "seven"} and seen["maybe"] is None and type(seen["ratio"]) is float


@pytest.mark.parametrize(
    ("field", "wrong"),
    [("colour", "green"), ("word", "c"), ("count", 0), ("count", "3"), ("point", {"x": "1"}), ("point", 3)],
)
def test_M8_what_jsonschema_refuses_the_tool_refuses(field: str, wrong: Any) -> None:
    @tool
    def fn(
        point: Point = POINT,
        colour: Colour = Colour.RED,
        word: Literal["a", "b"] = "a",
        count: Annotated[int, msgspec.Meta(ge=1)] = 1,
    ) -> None: ...

    arguments = {field: wrong}
    assert not jsonschema.Draft202012Validator(fn.parameters).is_valid(arguments)
    with pytest.raises(InvalidArguments, match=field):
        fn.decode(msgspec.json.encode(arguments).decode())
    with pytest.raises(InvalidArguments, match=field):
        fn.validate(arguments)
    with pytest.raises(InvalidArguments, match=field):
        fn.invoke(CONTEXT, arguments)


def test_case_M09_recursive_types_keep_their_definitions_all_others_are_inlined() -> None:
    @tool
    def fn(tree: Tree, point: Point) -> str:
        return tree.children[0].name

    assert fn.parameters["properties"]["point"]["type"] == "object"
    text = '{"tree":{"name":"a","children":[{"name":"b"}]},"point":{"x":1}}'
    jsonschema.validate(msgspec.json.decode(text), fn.parameters)
    assert call(fn, text) == "b"


def test_X8_the_context_is_filled_in_and_no_part_of_the_schema() -> None:
    @tool
    def fn(a: int, context: ToolContext, b: int = 2) -> tuple[int, int, str]:
        return a, b, context.call_id

    @tool
    def optional(a: str, context: ToolContext | None = None) -> bool:
        return context is CONTEXT

    assert list(fn.parameters["properties"]) == ["a", "b"]
    assert call(fn, '{"a":1}') == (1, 2, "c1.1.1")
    assert call(optional, '{"a":"x"}') is True
    with pytest.raises(InvalidArguments, match="context"):
        fn.decode('{"a":1,"context":{}}')


def test_X8_context_progress_and_cancelled() -> None:
    lines: list[str] = []
    context = ToolContext(None, None, "c1.1.1", 2, Path("/w"), 12.5, lines.append)  # type: ignore[arg-type]
    context.progress("half")
    assert (context.cancelled(), context.attempt, context.deadline) == (False, 2, 12.5)
    context.give_up()
    context.progress("too late")
    assert context.cancelled() and lines == ["half"]
    assert not hasattr(context, "__dict__")


def test_async_partial_method_and_callable_object() -> None:
    class Machine:
        def run(self, a: int) -> int:
            return a + 1

        async def arun(self, a: int) -> int:
            return a

        async def __call__(self, a: int) -> int:
            """Call it."""
            return a

    def add(a: int, b: int) -> int:
        """Add.

        Args:
            a: the first one
        """
        return a + b

    method = tool(Machine().run)
    assert not method.is_async and call(method, '{"a":1}') == 2 and list(method.parameters["properties"]) == ["a"]
    assert tool(Machine().arun).is_async
    made = tool(name="machine")(Machine())
    assert made.is_async and (made.name, made.description) == ("machine", "Call it.")
    partial = tool(name="inc")(functools.partial(add, b=1))
    assert call(partial, '{"a":1}') == 2
    assert partial.description == "Add." and partial.parameters["properties"]["a"]["description"] == "the first one"
    cached = tool(functools.lru_cache(add))
    assert cached.description == "Add." and call(cached, '{"a":1,"b":2}') == 3
    assert tool(name="x")(functools.partial(Machine().arun)).is_async


def test_what_is_called_says_itself_what_it_does() -> None:
    """The models read `Call self as a function.` and functools' words about partials."""

    class Weather:
        """The weather.

        Args:
            city: where
        """

        def __call__(self, city: str) -> str:
            return city

    def raw(arguments: dict[str, Any], unit: str) -> str:
        """As it is."""
        return unit

    made = tool(Weather())
    assert (made.name, made.description) == ("Weather", "The weather.")
    assert made.parameters["properties"]["city"]["description"] == "where"
    assert tool(parameters={})(functools.partial(raw, unit="m")).description == "As it is."


def test_what_a_partial_binds_by_name_is_no_parameter() -> None:
    """A key bound this way was sent to the provider as a default, and the model could put another in its place."""

    class Client:
        pass

    def fetch(path: str, client: Client, key: str = "none", times: int = 1) -> Any:
        return path, client, key, times

    client = Client()
    bound = tool(functools.partial(fetch, client=client, key="sk-secret"))
    assert list(bound.parameters["properties"]) == ["path", "times"]
    assert "sk-secret" not in msgspec.json.encode(bound.schema).decode()
    assert call(bound, '{"path": "a"}') == ("a", client, "sk-secret", 1)
    with pytest.raises(InvalidArguments, match="unknown field `key`"):
        bound.decode('{"path": "a", "key": "other"}')


# --- M8: raw argument text ----------------------------------------------------------------------------------


@tool
def keyed(key: str, n: int = 1) -> str:
    """Keyed."""
    return key * n


@tool
def nothing() -> str:
    return "done"


@tool
def anything(value: Any = None) -> Any:
    return value


@pytest.mark.parametrize("text", ["", " ", "\n\t", "{}"])
def test_M8_empty_means_no_arguments(text: str) -> None:
    assert nothing.decode(text) == {} and call(nothing, text) == "done"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('{"key":', "complete JSON object"),
        ('{"key":"a"} {"key":"b"}', "complete JSON object"),
        ('{"key":"a"}x', "complete JSON object"),
        ("key=a", "complete JSON object"),
        ('{"key": NaN}', "NaN"),
        ('{"key":"a","n":1e999}', "range"),
        ('["a"]', "an array"),
        ("null", "null"),
        ("1", "a number"),
        ("true", "a boolean"),
        ('"{\\"key\\":\\"a\\"}"', "a string"),
        ("{}", "key"),
        ('{"key":1}', "$.key"),
        ('{"key":null}', "$.key"),
        ('{"key":"a","n":1.5}', "$.n"),
        ('{"key":"a","extra":1}', "extra"),
        ("[" * 100_000, "nest"),
    ],
)
def test_case_S40_S17_M8_wrong_arguments_say_what_is_wrong(text: str, word: str) -> None:
    with pytest.raises(InvalidArguments) as info:
        keyed.decode(text)
    message = str(info.value)
    assert info.value.code == "INVALID_ARGUMENTS"
    assert word in message and "keyed" in message and '{"key": string, "n"?: integer}' in message
    assert "Nothing was run" in message and len(message) < 1_500


def test_M8_bounds_of_size_and_depth() -> None:
    with pytest.raises(InvalidArguments, match="1000000"):
        keyed.decode('{"key":"' + "a" * 1_000_000 + '"}')
    assert anything.decode('{"value":' + "[" * 98 + "]" * 98 + "}")["value"]
    with pytest.raises(InvalidArguments, match="levels"):
        anything.decode('{"value":' + "[" * 300 + "]" * 300 + "}")
    with pytest.raises(InvalidArguments):
        anything.decode('{"value":' + "[" * 50_000 + "]" * 50_000 + "}")


def test_M8_whole_floats_are_integers_as_in_json_schema() -> None:
    assert keyed.decode('{"key":"a","n":2.0}') == {"key": "a", "n": 2}


def test_case_S34_L9_surrogates() -> None:
    assert keyed.decode('{"key":"\\ud83c\\udf78"}') == {"key": "\U0001f378"}
    assert keyed.decode('{"key":"\\ud83c"}') == {"key": "\ufffd"}
    assert keyed.decode('{"key":"\ud83c"}') == {"key": "\ufffd"}


def test_case_S42_nothing_is_guessed_for_a_tool_whose_arguments_are_all_optional() -> None:
    with pytest.raises(InvalidArguments):
        anything.decode('{"value": tru')


def test_validate_copies_and_refuses_what_is_no_plain_json() -> None:
    inner = [1]
    checked = anything.validate({"value": inner})
    inner.append(2)
    assert checked == {"value": [1]}
    for bad in ({"value": float("nan")}, {"value": {1: 2}}, {"value": object()}, {"value": "\ud800"}):
        with pytest.raises(InvalidArguments, match="anything"):
            anything.validate(bad)
    with pytest.raises(InvalidArguments, match="dict"):
        anything.validate([])  # type: ignore[arg-type]
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidArguments):
        anything.validate({"value": loop})


def test_python_keeps_its_own_defaults() -> None:
    marker = object()

    @tool
    def fn(a: int = 1, b: Any = marker, c: Point | None = None) -> bool:
        return b is marker and c is None

    assert call(fn, "{}") is True
    assert "default" not in fn.parameters["properties"]["b"]
    assert fn.parameters["properties"]["a"]["default"] == 1


def test_budget_small_typed_tools_are_cheap() -> None:
    """The measured figures are about 0.5 and 0.2 us; the bound leaves room for a busy machine."""

    @tool
    def small(key: str) -> str:
        return key

    assert isinstance(small, FunctionTool)
    arguments = small.decode('{"key":"k"}')
    decode = min(timeit.repeat(lambda: small.decode('{"key":"k"}'), number=2_000, repeat=7)) / 2_000
    invoke = min(timeit.repeat(lambda: small.invoke(CONTEXT, arguments), number=2_000, repeat=7)) / 2_000
    assert decode < 6e-6 and invoke < 4e-6
