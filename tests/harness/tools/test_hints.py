"""@tool: hints that msgspec does not know, what `Annotated` says, and hints that only a type checker can read."""

import dataclasses
import datetime
import functools
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pytest

from checkrein.errors import ConfigError, InvalidArguments
from checkrein.tools import Tool, ToolContext, tool

if TYPE_CHECKING:
    from nowhere import Report  # type: ignore[import-not-found]

CONTEXT = ToolContext(None, None, "c1.1.1", 1, Path())  # type: ignore[arg-type]


def call(made: Tool, text: str) -> Any:
    return made.invoke(CONTEXT, made.decode(text))


def test_what_a_function_returns_may_be_known_to_type_checkers_only() -> None:
    @tool
    def summed(a: int) -> "Report":
        return a + 1

    assert call(summed, '{"a": 1}') == 2
    with pytest.raises(ConfigError, match=r"Report.*importable"):

        @tool
        def told(report: "Report") -> None: ...


def test_paths() -> None:
    @tool
    def read(path: Path, others: list[PurePosixPath], into: Path | None = None) -> Any:
        return path, others, into

    assert read.parameters["properties"]["path"] == {"type": "string"}
    assert read.parameters["required"] == ["path", "others"]
    assert call(read, '{"path": "a/b", "others": ["c"]}') == (Path("a/b"), [PurePosixPath("c")], None)
    assert call(read, '{"path": "a", "others": [], "into": "d"}') == (Path("a"), [], Path("d"))
    with pytest.raises(InvalidArguments, match=r"Expected `str`, got `int` - at `\$\.others\[0\]`"):
        read.decode('{"path": "a", "others": [1]}')


def test_pydantic_models() -> None:
    pydantic = pytest.importorskip("pydantic")

    class Street(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        name: str
        number: int = pydantic.Field(ge=1, description="as on the door")

    class Address(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        street: Street
        city: str = "Ulm"

    class Tree(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        children: list["Tree"]

    Tree.model_rebuild(_types_namespace={"Tree": Tree})

    @tool
    def send(to: Address, copies: list[Street], note: Address | None = None) -> Any:
        return to, copies, note

    shown = send.parameters["properties"]
    assert shown["to"]["properties"]["street"]["properties"]["number"]["description"] == "as on the door"
    assert "$ref" not in msgspec.json.encode(send.parameters).decode(), "what is behind a $ref many models do not see"
    to, copies, note = call(send, '{"to": {"street": {"name": "a", "number": 1}}, "copies": [{"name":"b","number":2}]}')
    assert (to, copies, note) == (Address(street=Street(name="a", number=1)), [Street(name="b", number=2)], None)
    with pytest.raises(InvalidArguments, match=r"(?s)number.*greater than or equal to 1.*at `\$\.to`"):
        send.decode('{"to": {"street": {"name": "a", "number": 0}}, "copies": []}')
    with pytest.raises(ConfigError, match=r"'tree' .* Tree refers to itself; pass parameters="):

        @tool
        def grow(tree: Tree) -> None: ...


class Doc:
    """What `typing_extensions.Doc` looks like from outside."""

    documentation = "in metres"


def test_annotated_says_what_a_parameter_is() -> None:
    @tool
    def dig(
        deep: Annotated[int, "how deep", msgspec.Meta(ge=1)],
        wide: Annotated[int, Doc()] = 2,
        long: Annotated[int, msgspec.Meta(description="of msgspec")] = 3,
        both: Annotated[int, "of the hint"] = 4,
        other: Annotated[int, object()] = 5,
    ) -> int:
        """Dig.

        Args:
            both: of the docstring
        """
        return deep * wide

    said = {name: shown.get("description") for name, shown in dig.parameters["properties"].items()}
    assert said == {
        "deep": "how deep",
        "wide": "in metres",
        "long": "of msgspec",
        "both": "of the docstring",
        "other": None,
    }
    assert call(dig, '{"deep": 3}') == 6
    with pytest.raises(InvalidArguments, match=">= 1"):
        dig.decode('{"deep": 0}')


class Place(msgspec.Struct):
    """A place on the map."""

    x: int


HOME = Place(0)


def test_a_parameter_of_a_type_with_a_docstring_keeps_its_own() -> None:
    """Both places of a journey were `A place on the map.`, whatever the function said of them."""

    @tool
    def go(start: Place, end: Annotated[Place, "where it leads"], via: Place | None = None, home: Place = HOME) -> int:
        """Go.

        Args:
            start: where it begins
            via: a detour
        """
        return end.x - start.x

    said = {name: shown["description"] for name, shown in go.parameters["properties"].items()}
    assert said == {
        "start": "where it begins",
        "end": "where it leads",
        "via": "a detour",
        "home": "A place on the map.",
    }


def test_a_default_that_json_does_not_know_is_not_shown() -> None:
    """It was null, which the same schema does not allow: a model that sent it was refused."""

    @tool
    def wait(seconds: float = float("inf"), steps: tuple[float, ...] = (1.0, float("nan")), first: int = 1) -> float:
        return seconds

    shown = wait.parameters["properties"]
    assert "default" not in shown["seconds"] and "default" not in shown["steps"] and shown["first"]["default"] == 1


@dataclasses.dataclass
class Search:
    where: Path = Path()


@dataclasses.dataclass
class Searched:
    where: Path = dataclasses.field(default_factory=Path)


def test_a_default_within_a_type_that_is_no_json_is_said_with_what_to_write() -> None:
    """The error named the default's type as unsupported, and advised to use paths."""

    def find(search: Search) -> None: ...

    def found(search: Searched) -> Any:
        return search.where

    with pytest.raises(ConfigError, match="a default in it is no JSON: write default_factory"):
        tool(find)
    assert call(tool(found), '{"search": {}}') == Path()


class Retried:
    """What a decorator that is a class makes."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn
        functools.update_wrapper(self, fn)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.fn(*args, **options)


class Booking:
    def __init__(self, place: "Place", context: "ToolContext") -> None:
        self.place = place


@pytest.mark.parametrize("make", [Retried, staticmethod, functools.cache, lambda fn: functools.partial(Retried(fn))])
def test_hints_that_are_text_are_read_behind_what_wraps_a_function(make: Any) -> None:
    """`from __future__ import annotations` makes all of them text: "Type ''Place'' is not supported"."""

    def go(start: "Place | None", context: "ToolContext", via: "Path | None" = None) -> Any:
        """Go."""
        return start, context, via

    made = tool(make(go))
    assert (made.description, list(made.parameters["properties"])) == ("Go.", ["start", "via"])
    assert made.invoke(CONTEXT, {"start": None, "via": "a"}) == (None, CONTEXT, Path("a"))
    assert call(tool(Booking), '{"place": {"x": 3}}').place == Place(3)


def test_what_has_no_json_form_is_said_in_few_words() -> None:
    with pytest.raises(ConfigError) as info:

        @tool
        def spin(over: range) -> None: ...

    assert "parameter 'over' cannot become a JSON Schema: range has no JSON form; use JSON types" in str(info.value)
    assert "schema_hook" not in str(info.value)


def test_a_strict_model_takes_what_its_own_schema_asks_for() -> None:
    """It was checked as Python, where no text is a date: no model could call the tool."""
    pydantic = pytest.importorskip("pydantic")

    class Stay(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        model_config = pydantic.ConfigDict(strict=True)
        nights: tuple[datetime.date, ...]
        beds: int = 1

    @tool
    def book(stay: Stay) -> Any:
        return stay.nights

    assert call(book, '{"stay": {"nights": ["2020-02-03"]}}') == (datetime.date(2020, 2, 3),)
    with pytest.raises(InvalidArguments, match=r"(?s)beds.*valid integer.*at `\$\.stay`"):
        book.decode('{"stay": {"nights": [], "beds": "2"}}')


def test_M8_a_validator_may_raise_anything_also_when_a_plugin_rewrote_the_arguments() -> None:
    pydantic = pytest.importorskip("pydantic")
    codes = {"de": 49}

    class Phone(pydantic.BaseModel):  # type: ignore[misc, name-defined]
        country: str

        @pydantic.field_validator("country")
        @classmethod
        def known(cls, value: str) -> str:
            return str(codes[value])  # a KeyError is none of those that pydantic takes for a refusal

    @tool
    def dial(phone: Phone) -> Any:
        return phone.country

    assert call(dial, '{"phone": {"country": "de"}}') == "49"
    with pytest.raises(InvalidArguments, match="KeyError: 'xx'"):
        dial.decode('{"phone": {"country": "xx"}}')
    with pytest.raises(InvalidArguments, match="KeyError: 'xx'"):
        dial.validate({"phone": {"country": "xx"}})
    checked = dial.decode('{"phone": {"country": "de"}}')
    codes.clear()
    with pytest.raises(InvalidArguments, match="KeyError: 'de'"):
        dial.invoke(CONTEXT, checked)  # what it depends on may change until then


class Ge:
    """As annotated_types have them, which need not be installed."""

    def __init__(self, ge: Any) -> None:
        self.ge = ge


def test_limits_of_others_are_shown_and_checked() -> None:
    """A parameter that was said to be at least 1 came as 0: only msgspec's own Meta counted."""

    @tool
    def book(nights: Annotated[int, Ge(1)], beds: Annotated[int | None, "how many", Ge(2)] = None) -> Any:
        return nights, beds

    properties = book.schema.parameters["properties"]
    assert properties["nights"] == {"type": "integer", "minimum": 1}
    assert properties["beds"]["description"] == "how many"
    assert call(book, '{"nights": 1, "beds": null}') == (1, None) and call(book, '{"nights": 3}') == (3, None)
    for wrong in ('{"nights": 0}', '{"nights": 1, "beds": 1}'):
        with pytest.raises(InvalidArguments, match="Expected `int` >= "):
            book.decode(wrong)
    with pytest.raises(ConfigError, match="numeric"):

        @tool
        def odd(name: Annotated[str, Ge(1)]) -> None:
            """A limit that its type cannot have."""


def test_limits_of_a_pydantic_field() -> None:
    pydantic = pytest.importorskip("pydantic")
    Field = pydantic.Field  # noqa: N806

    @tool
    def find(
        code: Annotated[str, Field(pattern="^[a-z]+$", max_length=3, description="its code")],
        tags: Annotated[list[str], Field(min_length=1)],
        score: Annotated[float, Field(gt=0, le=1)] = 0.5,
    ) -> Any:
        return code, tags, score

    properties = find.schema.parameters["properties"]
    assert properties["code"] == {"type": "string", "pattern": "^[a-z]+$", "maxLength": 3, "description": "its code"}
    assert properties["score"] == {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "default": 0.5}
    assert call(find, '{"code": "ab", "tags": ["x"]}') == ("ab", ["x"], 0.5)
    for wrong in ('{"code": "A", "tags": ["x"]}', '{"code": "abcd", "tags": ["x"]}', '{"code": "a", "tags": []}'):
        with pytest.raises(InvalidArguments):
            find.decode(wrong)
    with pytest.raises(ConfigError, match=r"'n' has a Field as its default; write n: Annotated"):

        @tool
        def given(n: int = Field(5, ge=1)) -> None:
            """The function would get the Field itself."""


def test_a_type_of_the_function_around_is_meant_before_one_of_the_module() -> None:
    """Also where the hint is text, as everywhere with `from __future__ import annotations`; there is a Place above."""

    @dataclasses.dataclass
    class Place:
        name: str

    @tool
    def go(place: "Place", steps: "Annotated[int, 'how many', msgspec.Meta(ge=1)]") -> Any:
        return later(Place(place.name)), steps

    def later(value: Any) -> Any:
        return value

    assert call(go, '{"place": {"name": "x"}, "steps": 1}') == (Place("x"), 1)
    assert go.schema.parameters["properties"]["steps"] == {"type": "integer", "minimum": 1, "description": "how many"}
    with pytest.raises(InvalidArguments, match=">= 1"):
        go.decode('{"place": {"name": "x"}, "steps": 0}')
