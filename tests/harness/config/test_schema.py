"""The JSON Schema and the loader accept and refuse the same documents."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkrein.config import load_config, problems_in
from checkrein.config.schema import field_docs, json_schema


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Inner:
    size: int
    hint: str = ""


@dataclass(frozen=True)
class LimitConfig:
    """Limits calls.

    Attributes:
        max_calls: calls a turn
            may make.
    """

    max_calls: Annotated[int, msgspec.Meta(ge=1)] = 20
    words: tuple[str, ...] = ()
    root: Path = Path(".")
    colour: Colour = Colour.RED
    mode: Literal["fast", "slow"] | None = None
    inner: Inner | None = None
    by_name: dict[str, Inner] = field(default_factory=dict)


class NeedConfig(msgspec.Struct, frozen=True):
    key: str
    share: float = 0.5


PLUGINS = {"limit": LimitConfig, "need": NeedConfig, "bare": None}
SCHEMA = json_schema(PLUGINS)
# TOML tells 1 from 1.0, JSON does not
CHECKER = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine(
    "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
)
VALIDATOR = jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=CHECKER)(SCHEMA)

AGENT: dict[str, Any] = {"id": "a"}
GOOD: list[dict[str, Any]] = [
    {},
    {"model": "p:m", "loop": "other"},
    {"agents": [AGENT, {"id": "日本", "model": None, "tools": None, "settings": {"any": [1, None]}}]},
    {"agents": [{**AGENT, "tools": [], "plugins": {"limit": {"max_calls": 1}, "bare": {}}}]},
    {"plugins": {"block": ["x"], "autoload": False, "limit": {"inner": {"size": 1}}, "need": {"key": "k", "share": 1}}},
    {"plugins": {"need": {"key": "k"}}, "agents": [{**AGENT, "plugins": {"need": {"share": 0.1}}}]},
    {"session": {"store": "memory"}},
    {"limits": {"tool_threads": 1, "close_timeout_s": 1, "hook_deadlines_s": {"tools_guard": 0.5}}},
]
BAD: list[dict[str, Any]] = [
    {"modle": "x"},
    {"model": 1},
    {"model": ""},
    {"agents": {}},
    {"agents": [{}]},
    {"agents": [{"id": ""}]},
    {"agents": [{"id": "a b"}]},
    {"agents": [{"id": "a\n"}]},
    {"agents": [{"id": "a/b"}]},
    {"agents": [{**AGENT, "max_steps": -1}]},
    {"agents": [{**AGENT, "max_steps": 1.0}]},
    {"agents": [{**AGENT, "max_steps": True}]},
    {"agents": [{**AGENT, "max_parallel_tool_calls": 0}]},
    {"agents": [{**AGENT, "queue_mode": "any"}]},
    {"agents": [{**AGENT, "plugins": {"nix": {}}}]},
    {"agents": [{**AGENT, "plugins": {"bare": {"x": 1}}}]},
    {"agents": [{**AGENT, "plugins": {"limit": {"max_calls": 0}}}]},
    {"plugins": {"nix": {}}},
    {"plugins": {"tables": {}}},
    {"plugins": {"blok": []}},
    {"plugins": {"need": {}}},
    {"plugins": {"need": {"key": "k", "kez": 1}}},
    {"plugins": {"limit": {"colour": "green"}}},
    {"plugins": {"limit": {"inner": {"size": 1, "siz": 1}}}},
    {"plugins": {"limit": {"by_name": {"x": {}}}}},
    {"plugins": {"bare": {"x": 1}}},
    {"plugins": None},
    {"session": {"store": ""}},
    {"session": []},
    {"limits": {"tool_threads": 0}},
    {"limits": {"close_timeout_s": 0}},
    {"limits": {"hook_deadlines_s": {"session_event": 1}}},
    {"limits": {"hook_deadlines_s": {"tools_guard": -1}}},
]


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator.check_schema(json_schema({}))


@pytest.mark.parametrize("document", GOOD)
def test_what_both_accept(document: dict[str, Any]) -> None:
    assert [str(error) for error in VALIDATOR.iter_errors(document)] == []
    assert problems_in(document, PLUGINS) == []
    load_config(cwd=Path("/nowhere"), environ={}, overrides=document)


@pytest.mark.parametrize("document", BAD)
def test_what_both_refuse(document: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid(document)
    assert problems_in(document, PLUGINS)


def test_unique_ids_are_the_loaders_alone() -> None:
    document = {"agents": [AGENT, AGENT]}
    assert VALIDATOR.is_valid(document)
    assert problems_in(document, PLUGINS)


# --- any document ------------------------------------------------------------------------------------

WORDS = ("", "a", "a b", "all", "one", "turn", "always", "red", "fast", "p:m", "\n", "x/y")
ODD = st.sampled_from([None, True, False, -1, 0, 1, 2, 1.0, 0.5, 2**31, 2**31 + 1, 2**70, [], {}, *WORDS, ["a"], [1]])
ANY = st.recursive(ODD, lambda each: st.lists(each, max_size=2) | st.dictionaries(st.sampled_from(["a", "size"]), each))


NUMBERS = st.sampled_from([-1, 0, 1, 5, 2**31, 0.5])


def table(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A table with any of these members; now and then one is of another type, or has a key nobody knows."""
    right = st.fixed_dictionaries({}, optional=members)
    name = st.sampled_from([*members, "unknown"])
    one_wrong = st.builds(
        lambda table, name, odd: {**table, name: odd}, right, name, ANY | NUMBERS | st.sampled_from(WORDS)
    )
    return st.one_of(right, right, right, right, right, one_wrong)


TEXT = st.sampled_from(["a", "p:m", "x y", "日本"])
COUNT = st.sampled_from([1, 5, 2**31])
SHARE = st.sampled_from([1, 0.5, 86_400])
INNER = table(hint=TEXT).map(lambda inner: {"size": 1, **inner}) | table(size=COUNT, hint=TEXT)
LIMIT = table(
    max_calls=COUNT,
    words=st.lists(TEXT, max_size=2),
    root=TEXT,
    colour=st.sampled_from(["red", "blue"]),
    mode=st.sampled_from(["fast", "slow", None]),
    inner=INNER,
    by_name=st.dictionaries(TEXT, INNER, max_size=2),
)
NEED = table(key=TEXT, share=SHARE)
AGENTS = st.lists(
    st.builds(
        lambda id_, agent: {**id_, **agent},
        st.sampled_from([{"id": "a"}, {"id": "b"}, {"id": "c"}, {"id": "日本"}, {"id": "a b"}, {}]),
        table(
            model=TEXT,
            system_prompt=TEXT,
            tools=st.lists(TEXT, max_size=2),
            plugins=table(limit=LIMIT, need=NEED, bare=table()),
            max_steps=COUNT,
            max_parallel_tool_calls=COUNT,
            inbox_max=COUNT,
            queue_mode=st.sampled_from(["all", "one"]),
            settings=st.dictionaries(TEXT, ANY, max_size=2),
        ),
    ),
    max_size=2,
)
DOCUMENT = table(
    model=TEXT,
    loop=TEXT,
    agents=AGENTS,
    plugins=table(
        block=st.lists(TEXT, max_size=2),
        autoload=st.booleans(),
        limit=LIMIT,
        need=NEED.map(lambda need: {"key": "k", **need} if isinstance(need, dict) else need),
        bare=table(),
    ),
    session=table(store=TEXT),
    limits=table(
        tool_threads=COUNT,
        close_timeout_s=SHARE,
        hook_deadlines_s=st.dictionaries(st.sampled_from(["tools_guard", "session_flush"]), SHARE),
    ),
)


def beyond_a_schema(document: dict[str, Any]) -> bool:
    """Two ids alike, or an agent's keys for a plugin that lacks its own."""
    agents = document.get("agents")
    agents = [each for each in agents if isinstance(each, dict)] if isinstance(agents, list) else []
    ids = [each["id"] for each in agents if isinstance(each.get("id"), str)]
    section = document.get("plugins")
    plain = isinstance(section, dict) and isinstance(section.get("need"), dict)
    needing = [each for each in agents if isinstance(each.get("plugins"), dict) and "need" in each["plugins"]]
    return len(ids) != len(set(ids)) or (bool(needing) and not plain)


@settings(max_examples=300)
@given(document=DOCUMENT)
def test_schema_and_loader_agree_on_any_document(document: Any) -> None:
    if isinstance(document, dict) and beyond_a_schema(document):
        return
    problems = problems_in(document, PLUGINS)
    errors = [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(document)]
    assert bool(problems) == bool(errors), (problems, errors)


def test_descriptions_come_from_the_docstrings() -> None:
    assert field_docs(LimitConfig) == ("Limits calls.", {"max_calls": "calls a turn may make."})
    assert field_docs(Inner) == ("", {})
    described = SCHEMA["$defs"]["PluginsConfig"]["properties"]["limit"]
    assert described["description"] == "Limits calls."
    assert described["properties"]["root"]["default"] == "."
    assert described["properties"]["max_calls"]["description"] == "calls a turn may make."
    assert "max_steps" in SCHEMA["$defs"]["AgentConfig"]["properties"]
