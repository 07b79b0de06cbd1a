"""Implementations that do not fit their specification are refused, with the words to repair them (H3)."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from checkrein.config import PluginsConfig
from checkrein.errors import PluginError
from checkrein.hookspecs import SPECS, HookInfo, hookimpl, hookspec
from checkrein.plugins import PluginManager


def plugin_of(*functions: Callable[..., Any]) -> object:
    return type("Made", (), {function.__name__: hookimpl(function) for function in functions})()


def load(*plugins: object) -> PluginManager:
    manager = PluginManager(PluginsConfig(), found=[])
    for count, plugin in enumerate(plugins):
        manager.add(plugin, f"p{count}")
    manager.load()
    return manager


def tool_guard(self: Any, agent: Any, call: Any) -> None: ...


def agent_request(self: Any, agent: Any, requst: Any) -> None: ...


async def stream_chunk(self: Any, chunk: Any) -> None: ...


async def register_tools(self: Any, harness: Any) -> None: ...


def tools_execute(self: Any, agent: Any, call: Any, proceed: Any) -> None: ...


async def lifespan(self: Any, harness: Any) -> AsyncIterator[None]:
    yield


def tools_guard(self: Any, call: Any) -> Iterator[None]:
    yield


async def session_event(self: Any, event: Any) -> None: ...


async def async_lifespan(self: Any, harness: Any) -> None: ...


async_lifespan.__name__ = "lifespan"


def agent_status(self: Any, *, status: str = "") -> None: ...


def plugin_fault(self: Any, *, log: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (agent_status, "got 'status' behind a *, and arguments are given by position"),
        (plugin_fault, "got 'log' behind a *"),
        (tool_guard, "expected the name of a hook, got 'tool_guard'; did you mean 'tools_guard'?"),
        (agent_request, "got an unknown argument 'requst'; did you mean 'request'?"),
        (agent_request, "expected def agent_request(self, agent, turn, step, request)"),
        (stream_chunk, "got an async function for a sync hook"),
        (session_event, "expected def session_event(self, session, event)"),
        (register_tools, "got an async function for a sync hook"),
        (tools_execute, "not async, expected async def tools_execute(self, agent, call, proceed)"),
        (lifespan, "decorate it with @asynccontextmanager"),
        (async_lifespan, "return an async context manager instead"),
        (tools_guard, "got a generator that is not marked @hookimpl(wrapper=True)"),
    ],
)
def test_H3_an_implementation_that_does_not_fit_is_refused(function: Callable[..., Any], words: str) -> None:
    with pytest.raises(PluginError) as caught:
        load(plugin_of(function))
    assert caught.value.plugin == "p0"
    assert words in str(caught.value)
    assert function.__name__ in str(caught.value)


def test_case_H03_an_old_style_wrapper_is_refused() -> None:
    class Old:
        @hookimpl(hookwrapper=True)
        def tools_guard(self, call: Any) -> Iterator[None]:
            yield

    with pytest.raises(PluginError, match=r"old-style.*wrapper=True.*expected def tools_guard\(self, agent, call\)"):
        load(Old)


def test_H3_a_wrapper_has_to_be_a_generator() -> None:
    class Odd:
        @hookimpl(wrapper=True)
        def tools_guard(self, call: Any) -> None: ...

    with pytest.raises(PluginError, match="no generator function"):
        load(Odd)


def test_H3_a_method_named_as_a_hook_needs_the_mark() -> None:
    class Unmarked:
        def tools_guard(self, call: Any) -> None: ...

    with pytest.raises(PluginError, match=r"tools_guard is named as a hook and lacks @hookimpl"):
        load(Unmarked)


@pytest.mark.parametrize("guard", [functools.partial(print, "call"), type("Guard", (), {"__call__": print})(), print])
def test_H3_a_mark_on_what_is_no_function_is_refused(guard: Any) -> None:
    class Marked:
        def __init__(self) -> None:
            self.tools_guard = functools.partial(guard)
            hookimpl(self.tools_guard)

    with pytest.raises(PluginError, match="tools_guard is marked @hookimpl and is no function"):
        load(Marked)


def test_H3_other_parameters_are_left_alone() -> None:
    class Fits:
        @hookimpl
        def tools_guard(self, call: Any, *more: Any, log: Any = print, **others: Any) -> None: ...

        @hookimpl
        def agent_status(self, *ignored: Any) -> None: ...

    assert load(Fits).reports[0].hooks == ("agent_status", "tools_guard")


def test_H3_the_forgotten_mark_of_an_overriding_method_is_found() -> None:
    class Base:
        @hookimpl
        def agent_status(self, agent: Any, status: str) -> None: ...

    class Derived(Base):
        def agent_status(self, agent: Any, status: str) -> None: ...

    with pytest.raises(PluginError, match="lacks @hookimpl"):
        load(Derived)


def test_H2_every_form_that_fits_is_taken() -> None:
    def logged(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inner(*args: Any) -> Any:
            return function(*args)

        return inner

    class Fine:
        @hookimpl
        def tools_guard(self) -> None: ...

        @hookimpl
        async def agent_request(self, step: int, request: Any) -> None: ...

        @hookimpl
        @asynccontextmanager
        async def lifespan(self, harness: Any) -> AsyncIterator[None]:
            yield

        @hookimpl
        def register_tools(self) -> Iterator[str]:
            yield "tool"

        @hookimpl
        @logged
        async def tools_execute(self, agent: Any, call: Any, proceed: Any) -> Any: ...

        @hookimpl(wrapper=True)
        def step_result(self, message: Any) -> Iterator[None]:
            return (yield)

        @hookimpl(optionalhook=True)
        def of_another_version(self, whatever: Any) -> None: ...

        @hookimpl(specname="agent_status")
        def on_status(self, status: str) -> None: ...

        @staticmethod
        @hookimpl
        def agent_disposed(agent: Any) -> None: ...

    manager = load(Fine)
    assert set(manager.reports[0].hooks) == {
        *("agent_disposed", "agent_request", "agent_status", "lifespan", "register_tools"),
        *("step_result", "tools_execute", "tools_guard"),
    }


def test_H3_a_plugins_own_specifications_come_first() -> None:
    class Specs:
        @hookspec
        def file_written(self, path: str) -> None:
            """Observe a written file."""

        @hookspec
        def file_named(self, path: str) -> None:
            """Rename a file."""

    class Brings:
        hookspecs = Specs
        hook_infos = {"file_named": HookInfo("fold", "contained", colour="sync", value="path")}

    class Uses:
        @hookimpl
        def file_written(self, path: str) -> None: ...

    class Misuses:
        @hookimpl
        async def file_named(self, path: str) -> None: ...

    manager = load(Uses, Brings)
    assert [impl.plugin_name for impl in manager.impls("file_written")] == ["p0"]
    assert manager.specs["file_written"].kind == "observe"
    assert "file_written" not in SPECS
    with pytest.raises(PluginError, match="async function for a sync hook"):
        load(Misuses, Brings)
    with pytest.raises(PluginError, match="'file_named' exists already"):
        load(Brings(), type("Again", (), {"hookspecs": Specs}))


def test_H2_implementations_run_in_plugin_order_but_for_first_and_last() -> None:
    def made(**options: bool) -> type:
        class Made:
            @hookimpl(**options)
            def agent_status(self, status: str) -> None: ...

            @hookimpl(wrapper=True, **options)
            def tools_guard(self) -> Iterator[None]:
                return (yield)

        return Made

    manager = load(made(), made(trylast=True), made(tryfirst=True), made(), made(tryfirst=True), made(trylast=True))
    expected = ["p2", "p4", "p0", "p3", "p1", "p5"]
    assert [impl.plugin_name for impl in manager.impls("agent_status")] == expected
    assert [impl.plugin_name for impl in manager.wrappers("tools_guard")] == expected
    assert manager.wrappers("agent_status") == manager.impls("tools_guard") == []
    assert manager.signature("tools_guard") == "def tools_guard(self, agent, call)"
