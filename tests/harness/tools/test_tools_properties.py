"""Properties: whatever a model writes, a tool returns or a schema says, there is an answer and no surprise."""

from typing import Any

import jsonschema
import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from checkrein.calls import Outcome
from checkrein.docstrings import parse_docstring
from checkrein.errors import InvalidArguments
from checkrein.messages import TextBlock
from checkrein.output import cap, failure, to_outcome
from checkrein.schema import inline_refs
from checkrein.tools import tool

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
any_text = st.text(st.characters(exclude_categories=[]), max_size=60)


@tool
def typed(key: str, n: int = 0, tags: list[str] | None = None, ratio: float = 1.0) -> dict[str, Any]:
    return {"key": key, "n": n, "tags": tags, "ratio": ratio}


@tool(name="foreign", parameters=typed.parameters)
def foreign(arguments: dict[str, Any]) -> dict[str, Any]:
    return arguments


@given(any_text | st.binary(max_size=60).map(lambda data: data.decode("latin-1")))
def test_M8_any_text_gives_arguments_or_words_for_the_model(text: str) -> None:
    for made in (typed, foreign):
        try:
            arguments = made.decode(text)
        except InvalidArguments as exc:
            str(exc).encode("utf-8", "surrogatepass")
        else:
            assert made.validate(arguments) == arguments


@given(
    st.fixed_dictionaries(
        {}, optional={"key": json_values, "n": json_values, "tags": json_values, "ratio": json_values}
    )
)
def test_M8_typed_and_foreign_checks_agree_with_json_schema(arguments: dict[str, Any]) -> None:
    text = msgspec.json.encode(arguments).decode()
    wanted = jsonschema.Draft202012Validator(typed.parameters).is_valid(msgspec.json.decode(text))
    for made in (typed, foreign):
        try:
            made.decode(text)
        except InvalidArguments:
            assert not wanted
        else:
            assert wanted


class Odd:
    pass


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | any_text
    | st.binary(max_size=30)
    | st.builds(Odd)
    | st.dates()
    | st.decimals()
    | st.uuids()
    | st.complex_numbers(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(any_text | st.integers() | st.none() | st.tuples(st.integers()), inner, max_size=4)
        | st.sets(st.integers() | any_text, max_size=3)
        | st.tuples(inner)
    ),
    max_leaves=10,
)


@given(values)
def test_L9_any_value_becomes_an_outcome_the_log_takes(value: Any) -> None:
    outcome = to_outcome(value)
    assert outcome.content and msgspec.json.decode(msgspec.json.encode(outcome), type=dict)
    assert outcome.is_error == (outcome.error is not None)
    again = to_outcome(outcome)
    assert (again.content, again.value) == (outcome.content, outcome.value)


@given(st.text(max_size=5_000) | st.text("ab\n", max_size=5_000), st.integers(1_000, 3_000))
@settings(max_examples=60)
def test_X5_cap_keeps_the_limit(text: str, limit: int) -> None:
    text = text.replace("\0", "")
    kept: list[bytes] = []
    content = cap(to_outcome(text).content, limit, lambda data: (kept.append(data), "a" * 64)[1])
    assert sum(len(block.text.encode()) for block in content if isinstance(block, TextBlock)) <= limit


@given(any_text, st.sampled_from(["read_only", "idempotent", "effectful"]))
def test_X2_any_exception_becomes_an_outcome(text: str, effect: str) -> None:
    assert isinstance(failure(ValueError(text), effect), Outcome)
    msgspec.json.encode(failure(ExceptionGroup("g" + text, [KeyError(text), OSError(3, text)]), effect))


@given(
    st.lists(
        st.sampled_from(["Args:", "  a: b", "Parameters", "---", ":param x: y", "", "    x", "Returns:", "words", ":"])
    )
)
def test_docstrings_of_any_shape(lines: list[str]) -> None:
    description, found = parse_docstring("\n".join(lines))
    assert isinstance(description, str) and all(isinstance(text, str) for text in found.values())


refs = st.sampled_from(["#", "#/$defs/a", "#/$defs/b", "#/$defs/c", "#/properties/p", "#x", "http://example.com"])
nodes = st.recursive(
    st.just({"type": "string"}) | refs.map(lambda ref: {"$ref": ref}),
    lambda inner: (
        st.builds(lambda p, q: {"properties": {"p": p, "q": q}}, inner, inner)
        | st.lists(inner, max_size=3).map(lambda a: {"anyOf": a})
    ),
    max_leaves=6,
)


@given(
    st.fixed_dictionaries(
        {"properties": st.dictionaries(st.just("p"), nodes), "$defs": st.dictionaries(st.sampled_from("abc"), nodes)}
    )
)
def test_case_M09_inlining_any_references_ends(schema: dict[str, Any]) -> None:
    before = msgspec.json.encode(schema)
    msgspec.json.encode(inline_refs(schema))
    assert msgspec.json.encode(schema) == before
