"""The registry: owners, duplicates, per-agent choice (H4, M1)."""

import pytest

from checkrein.errors import ConfigError, PluginError
from checkrein.tools import ToolRegistry, tool


def fn(a: int) -> int:
    return a


def named(name: str):  # type: ignore[no-untyped-def]
    return tool(name=name)(fn)


def registry(*names: str) -> ToolRegistry:
    made = ToolRegistry()
    for name in names:
        made.add(named(name), "files")
    return made


def test_H4_duplicate_names_fail_naming_both() -> None:
    tools = registry("read")
    with pytest.raises(PluginError) as info:
        tools.add(named("read"), "other")
    assert "'files'" in str(info.value) and "'other'" in str(info.value) and info.value.plugin == "other"
    with pytest.raises(ConfigError, match="the application") as plain:
        tools.add(named("read"))
    assert not isinstance(plain.value, PluginError)
    new = named("read")
    assert tools.add(new, "other", override=True) is tools.get("read") is new
    assert tools.owner("read") == "other" and len(tools) == 1


def test_H4_what_a_plugin_registered_leaves_with_it() -> None:
    tools = registry("a", "b")
    tools.add(named("c"))
    assert "a" in tools and [t.name for t in tools.for_agent()] == ["a", "b", "c"]
    tools.remove_plugin("files")
    assert tools.names() == ["c"] and [t.name for t in tools.for_agent()] == ["c"] and tools.get("a") is None
    tools.remove("c")
    tools.remove("c")
    assert len(tools) == 0 and tools.owner("c") is None


def test_a_plain_function_becomes_a_tool() -> None:
    tools = ToolRegistry()
    assert tools.add(fn).name == "fn"


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (None, ["fs_list", "fs_read", "web_get"]),
        ([], []),
        (["fs_*"], ["fs_list", "fs_read"]),
        (["web_get", "fs_read"], ["fs_read", "web_get"]),
        (["fs_*", "!fs_read"], ["fs_list"]),
        (["!web_*"], ["fs_list", "fs_read"]),
        (["*", "!*"], []),
        (["FS_*"], []),
        (["fs_[lx]*"], ["fs_list"]),
    ],
)
def test_for_agent(patterns: list[str] | None, expected: list[str]) -> None:
    tools = registry("web_get", "fs_read", "fs_list")
    assert [t.name for t in tools.for_agent(patterns)] == expected
    assert tools.for_agent(patterns) is tools.for_agent(patterns), "computed once"


def test_a_pattern_that_no_tool_matches_is_told_with_what_is_near() -> None:
    tools = registry("fs_read", "web_get")
    assert tools.unmatched(["fs_*", "fs_raed", "!web_gte", "zzz"]) == [
        "no tool matches 'fs_raed'; did you mean 'fs_read'?",
        "no tool matches '!web_gte'; did you mean 'web_get'?",
        "no tool matches 'zzz'",
    ]


def test_M1_order_does_not_depend_on_registration() -> None:
    assert [t.name for t in registry("b", "a").for_agent()] == [t.name for t in registry("a", "b").for_agent()]


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
def test_case_M12_a_name_is_never_changed_so_the_second_of_a_name_is_refused(order: tuple[str, str]) -> None:
    """A suffix told clashing tools apart, by the order servers connected in: rights went to another tool."""
    tools = ToolRegistry()
    first, second = order
    tools.add(named("a_b"), first)
    with pytest.raises(PluginError, match=rf"'a_b' of plugin '{second}'.*'{first}'"):
        tools.add(named("a_b"), second)
    assert (tools.names(), tools.owner("a_b")) == (["a_b"], first)


@pytest.mark.parametrize("name", ["a.b", "a b", "a/b", "ä", "x" * 65])
def test_case_M12_what_would_have_to_be_changed_is_no_name(name: str) -> None:
    """Names were made to fit, and then they clashed; at 64 characters the search for a free one never ended."""
    with pytest.raises(ConfigError, match=r"name"):
        named(name)
    long = registry("x" * 63 + "1", "x" * 63 + "2")
    assert len(long) == 2
