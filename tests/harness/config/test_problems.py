"""What is wrong in a document is told with place, expected, got and what to do, before anything starts."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest

from checkrein.agents import AgentSpec
from checkrein.config import AgentConfig, HarnessConfig, LimitsConfig, PluginsConfig, SessionConfig, load_config
from checkrein.config.check import problems_in
from checkrein.config.convert import convert, problems_of
from checkrein.config.schema import field_docs
from checkrein.config.types import DeadlineHook
from checkrein.errors import ConfigError
from checkrein.hookspecs import SPECS

AGENT: dict[str, Any] = {"id": "a"}


@pytest.mark.parametrize(
    ("document", "path", "words"),
    [
        ({"modle": "x"}, "modle", "unknown key 'modle'; did you mean 'model'?"),
        ({"xyz": 1}, "xyz", "known are agents, limits, loop, model, plugins, session"),
        ({"a b": 1}, "'a b'", "unknown key"),
        ({"model": 1}, "model", "expected str, got int"),
        ({"model": ""}, "model", "expected str of length >= 1, got an empty str"),
        ({"agents": 1}, "agents", "expected array, got int"),
        ({"agents": [1]}, "agents[0]", "expected object, got int"),
        ({"agents": [{}]}, "agents[0]", "missing key 'id'; add it"),
        ({"agents": [{"id": ""}]}, "agents[0].id", "expected str of length >= 1"),
        ({"agents": [{"id": "a b"}]}, "agents[0].id", "without blanks, slashes and control characters"),
        ({"agents": [{"id": "a\n"}]}, "agents[0].id", "without blanks"),
        ({"agents": [AGENT, {"id": "b"}, AGENT]}, "agents[2].id", "got 'a' as agents[0] has; give one another id"),
        ({"agents": [{**AGENT, "max_step": 3}]}, "agents[0].max_step", "did you mean 'max_steps'?"),
        ({"agents": [{**AGENT, "max_steps": "3"}]}, "agents[0].max_steps", "expected int, got str"),
        ({"agents": [{**AGENT, "max_steps": -1}]}, "agents[0].max_steps", "expected int >= 0, got -1"),
        ({"agents": [{**AGENT, "max_steps": True}]}, "agents[0].max_steps", "expected int, got bool"),
        ({"agents": [{**AGENT, "max_parallel_tool_calls": 0}]}, "agents[0].max_parallel_tool_calls", ">= 1, got 0"),
        ({"agents": [{**AGENT, "inbox_max": 0}]}, "agents[0].inbox_max", ">= 1, got 0"),
        (
            {"agents": [{**AGENT, "queue_mode": "al"}]},
            "agents[0].queue_mode",
            "one of all, one, got 'al'; did you mean",
        ),
        ({"agents": [{**AGENT, "tools": "x"}]}, "agents[0].tools", "got str"),
        ({"agents": [{**AGENT, "tools": ["x", 1]}]}, "agents[0].tools[1]", "expected str, got int"),
        ({"agents": [{**AGENT, "plugins": {"x": 1}}]}, "agents[0].plugins.x", "expected object, got int"),
        ({"plugins": {"block": "x"}}, "plugins.block", "expected array, got str"),
        (
            {"plugins": {"blok": ["x"]}},
            "plugins.blok",
            "or a plugin's table [plugins.blok], got a value; did you mean 'block'?",
        ),
        ({"plugins": 1}, "plugins", "expected object, got int"),
        ({"session": {"stor": "memory"}}, "session.stor", "did you mean 'store'?"),
        ({"limits": {"tool_threads": 0}}, "limits.tool_threads", ">= 1, got 0"),
        ({"limits": {"close_timeout_s": -1}}, "limits.close_timeout_s", "> 0.0, got -1"),
        ({"limits": {"close_timeout_s": float("inf")}}, "limits.close_timeout_s", "expected a finite number, got inf"),
        ({"limits": {"close_timeout_s": float("nan")}}, "limits.close_timeout_s", "expected a finite number, got nan"),
        (
            {"limits": {"hook_deadlines_s": {"tools_gard": 1}}},
            "limits.hook_deadlines_s.tools_gard",
            "did you mean 'tools_guard'",
        ),
        ({"limits": {"hook_deadlines_s": {"tools_guard": 0}}}, "limits.hook_deadlines_s.tools_guard", "> 0.0, got 0"),
    ],
)
def test_a_problem_names_its_place(document: dict[str, Any], path: str, words: str) -> None:
    (problem,) = problems_in(document)
    assert problem.path == path
    assert words in problem.message
    with pytest.raises(ConfigError) as caught:
        load_config(cwd=Path("/nowhere"), environ={}, overrides=document)
    assert (caught.value.path, caught.value.file) == (path, "the command line")


def test_all_problems_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "checkrein.toml").write_text(
        'modle = "x"\n[[agents]]\nid = "a"\nmax_steps = "3"\nfoo = 1\n[[agents]]\n[session]\nstore = 2020-01-01\n'
    )
    with pytest.raises(ConfigError) as caught:
        load_config(cwd=tmp_path, environ={})
    text = str(caught.value)
    for words in ("modle", "agents[0].max_steps", "agents[0].foo", "agents[1]: missing key 'id'", "put it in quotes"):
        assert words in text


def test_problems_are_bounded() -> None:
    assert len(problems_in({f"k{count}": 1 for count in range(1_000)})) == 20


def test_a_text_that_may_be_a_secret_is_not_shown() -> None:
    class Config(msgspec.Struct):
        key: Annotated[str, msgspec.Meta(max_length=3)]

    (problem,) = problems_of({"key": "s3cret"}, Config)
    assert problem.message == "expected str of length <= 3, got str"


# --- the types plugins may use -----------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Circle(msgspec.Struct, tag="circle", frozen=True):
    radius: float


class Square(msgspec.Struct, tag="square", frozen=True):
    side: int


@dataclass(frozen=True)
class Inner:
    size: int
    hint: str = ""


class Typed(TypedDict, total=False):
    limit: int


@dataclass(frozen=True)
class Wide:
    inner: Inner
    inners: list[Inner] = field(default_factory=list)
    by_name: dict[str, Inner] = field(default_factory=dict)
    pair: tuple[int, str] = (1, "a")
    colour: Colour = Colour.RED
    mode: Literal["fast", "slow"] | None = None
    shape: Circle | Square | None = None
    typed: Typed = field(default_factory=lambda: Typed())
    either: int | str = 1
    root: Path = Path(".")
    inside: PurePosixPath | None = None
    over: range | None = None
    words: frozenset[str] = frozenset()
    free: Any = None


@pytest.mark.parametrize(
    ("table", "problems"),
    [
        ({"inner": {"size": 1}}, {}),
        ({"inner": {"size": 1, "siz": 2}}, {"inner.siz": "did you mean 'size'"}),
        (
            {"inner": {}, "inners": [{"size": 1}, {"size": "x"}]},
            {"inner": "missing key 'size'", "inners[1].size": "got str"},
        ),
        ({"inner": {"size": 1}, "by_name": {"x": {"size": 1, "y": 2}}}, {"by_name.x.y": "unknown key 'y'"}),
        ({"inner": {"size": 1}, "pair": ["x", "y"]}, {"pair[0]": "expected int, got str"}),
        ({"inner": {"size": 1}, "pair": [1]}, {"pair": "expected array of length 2, got 1"}),
        ({"inner": {"size": 1}, "colour": "rot"}, {"colour": "expected one of red, blue, got 'rot'"}),
        ({"inner": {"size": 1}, "mode": "fst"}, {"mode": "did you mean 'fast'"}),
        ({"inner": {"size": 1}, "shape": {"type": "circle", "radius": 1}}, {}),
        (
            {"inner": {"size": 1}, "shape": {"type": "circle", "side": 1}},
            {"shape.side": "unknown key", "shape": "missing"},
        ),
        ({"inner": {"size": 1}, "shape": {"type": "oval"}}, {"shape": "nvalid value 'oval'"}),
        ({"inner": {"size": 1}, "typed": {"limt": 1}}, {"typed.limt": "did you mean 'limit'"}),
        ({"inner": {"size": 1}, "either": []}, {"either": "expected int | str, got array"}),
        ({"inner": {"size": 1}, "root": 1, "words": ["a"]}, {"root": "expected str, got int"}),
        ({"inner": {"size": 1}, "root": "a", "inside": "b"}, {}),
        ({"inner": {"size": 1}, "inside": [1]}, {"inside": "expected str, got array"}),
        ({"inner": {"size": 1}, "over": 3}, {"over": "expected range, which no config file can hold"}),
        ({"inner": {"size": 1}, "free": {"x": [float("nan")]}}, {"free.x[0]": "finite"}),
    ],
)
def test_H6_every_type_of_a_plugins_config_is_checked_to_the_bottom(
    table: dict[str, Any], problems: dict[str, str]
) -> None:
    found = {problem.path: problem.message for problem in problems_of(table, Wide)}
    assert found.keys() == problems.keys()
    for path, words in problems.items():
        assert words in found[path]
    if not problems:
        assert isinstance(convert(table, Wide), Wide)


# --- the types keep together -------------------------------------------------------------------------


def test_an_agents_table_has_the_members_of_its_specification() -> None:
    assert AgentConfig.__struct_fields__ == tuple(AgentSpec.__struct_fields__)
    defaults = AgentSpec(id="a")
    (spec,) = HarnessConfig(agents=(AgentConfig(id="a"),)).agent_specs()
    assert spec == defaults


def test_deadlines_can_be_set_for_the_hooks_that_have_one() -> None:
    assert set(DeadlineHook.__args__) == {hook for hook, info in SPECS.items() if info.deadline_s is not None}  # type: ignore[attr-defined]
    assert LimitsConfig(hook_deadlines_s={"tools_guard": 1.5}).deadlines() == {"tools_guard": 1.5}


@pytest.mark.parametrize("type_", [HarnessConfig, AgentConfig, PluginsConfig, SessionConfig, LimitsConfig])
def test_every_key_has_a_line_of_documentation(type_: type[msgspec.Struct]) -> None:
    head, docs = field_docs(type_)
    assert head
    assert set(docs) == set(type_.__struct_fields__)
