"""L9, L2: what tools return, what anybody raises and what plugins log: cleaned, refused with a path, or told."""

from __future__ import annotations

from typing import Any

import pytest
from hostile import BACKENDS, BIG, DEEP, LONE, STRINGS, Unspeakable, clean, of, played, replaced
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkrein import Deny, Outcome, hookimpl, tool
from checkrein.chunks import TextChunk
from checkrein.errors import RefusedAtAppend
from checkrein.events import PluginFaulted, ToolResulted
from checkrein.messages import content_text
from checkrein.testing import call, error, text

# --- what tools return and raise --------------------------------------------------------------------

OUTPUTS: dict[str, Any] = {
    **STRINGS,
    "big": BIG,
    "nan": float("nan"),
    "infinity": {"a": [float("inf")]},
    "deep": DEEP,
    "bytes": b"\xff\xfe\x00",
    "lone in a list": {LONE: [LONE, {"x": LONE}]},
    "int keys": {1: "a", None: "b"},
    "huge int": 10**5_000,
    "set": {1, 2},
    "object": object(),
    "type": Unspeakable,
    "generator": (n for n in range(3)),
    "none": None,
    "empty": "",
    "surrogate bytes": "\udcff".encode("utf-8", "surrogatepass"),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", sorted(OUTPUTS))
def test_L9_any_value_of_a_tool_becomes_a_result(name: str, backend: str) -> None:
    @tool
    async def give() -> Any:
        """Give something."""
        return OUTPUTS[name]

    session, result = played(lambda agent: agent.run("go"), call("give"), tools=[give], backend=backend)
    assert result.ok
    outcome = of(session, ToolResulted)[0]
    assert len(session.lines[outcome.seq]) < 200_000  # capped (X5)
    if name in STRINGS and replaced(STRINGS[name]):
        assert content_text(outcome.content) == clean(STRINGS[name])
        assert outcome.cleaned == replaced(STRINGS[name])


@pytest.mark.parametrize("name", sorted(STRINGS))
def test_L9_text_in_a_tools_own_outcome(name: str) -> None:
    """An Outcome is checked like any value; halves of a pair are joined in it too."""

    @tool
    async def give() -> Any:
        """Give something."""
        return Outcome.text(STRINGS[name])

    session, result = played(lambda agent: agent.run("go"), call("give"), tools=[give])
    assert result.ok
    outcome = of(session, ToolResulted)[0]
    assert not outcome.is_error
    if name not in ("nul", "controls"):  # those are described as binary (X5)
        assert content_text(outcome.content) == clean(STRINGS[name])
    assert outcome.cleaned == (replaced(STRINGS[name]) or None)


def cyclic() -> Any:
    """A list that holds itself."""
    out: list[Any] = []
    out.append(out)
    return out


def test_L9_a_value_that_holds_itself_is_an_error_result() -> None:
    @tool
    def give() -> Any:
        """Give something."""
        return cyclic()

    _, result = played(lambda agent: agent.run("go"), call("give"), tools=[give])
    assert result.ok


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("where", ["tool", "thread", "provider", "hook", "observer", "guard"])
@pytest.mark.parametrize("what", ["unspeakable", "lone", "big"])
def test_L9_exceptions_whose_text_cannot_be_had(where: str, what: str, backend: str) -> None:
    """str(exc) may raise, even SystemExit; it may hold surrogates, or ten megabytes."""

    def make() -> Exception:
        return {"unspeakable": Unspeakable, "lone": lambda: ValueError(LONE), "big": lambda: OSError(BIG)}[what]()

    @tool(name="fails")
    async def fails_async() -> str:
        """Raise."""
        raise make()

    @tool(name="fails")
    def fails_sync() -> str:
        """Raise."""
        raise make()

    class Plugin:
        name = "breaks"
        left = 1

        def fail(self, here: str) -> None:
            if where == here and self.left:
                self.left -= 1
                raise make()

        @hookimpl
        async def agent_request(self, request: Any) -> None:
            self.fail("hook")

        @hookimpl
        def session_event(self, event: Any) -> None:
            if event.type == "step/start":
                self.fail("observer")

        @hookimpl
        def tools_guard(self, call: Any) -> Any:
            self.fail("guard")
            return Deny(LONE) if where == "guard" else None

    first = [text("x"), error(make())] if where == "provider" else call("fails")
    tools = [fails_sync if where == "thread" else fails_async]
    session, result = played(lambda agent: agent.run("go"), first, tools=tools, plugins=[Plugin()], backend=backend)
    assert result.reason.error != "internal"
    assert max(map(len, session.lines)) < 200_000
    assert bool(of(session, PluginFaulted)) == (where in ("hook", "observer", "guard"))


# --- plugins' own events ----------------------------------------------------------------------------

FREE = {
    "nan": float("nan"),
    "infinity": float("inf"),
    "bytes": b"x",
    "set": {1},
    "object": object(),
    "int keys": {1: "a"},
    "tuple": (1, 2),
}


@pytest.mark.parametrize("name", sorted(FREE))
def test_L2_what_is_no_json_is_refused_with_its_path(name: str) -> None:
    async def act(agent: Any) -> Any:
        before = len(agent.session)
        try:
            agent.session.append_free("mine/thing", {"a": [{"b": FREE[name]}]})
        except RefusedAtAppend as exc:
            assert "a" in str(exc) and "b" in str(exc)  # noqa: PT018
            assert len(agent.session) == before
        else:
            assert name in ("int keys", "tuple")  # what JSON can carry is made plain
        return await agent.run("go")

    _, result = played(act)
    assert result.ok


@pytest.mark.parametrize("name", sorted(STRINGS))
def test_L9_plugins_events_are_cleaned_and_counted(name: str) -> None:
    value = STRINGS[name]

    async def act(agent: Any) -> Any:
        fields = {"a": value, "message": {"role": "user", "content": f"note {value}"}}
        agent.session.append_free("mine/thing", fields, plugin="mine")
        return await agent.run("go")

    session, result = played(act)
    assert result.ok
    event = next(event for event in session.events if event.type == "mine/thing")
    assert event.fields["a"] == clean(value)
    assert event.fields.get("cleaned") == (2 * replaced(value) or None)


def test_L2_deep_and_cyclic_plugin_events_are_refused_or_shortened() -> None:
    async def act(agent: Any) -> Any:
        for value in (DEEP, cyclic()):
            try:
                agent.session.append_free("mine/thing", {"a": value})
            except RefusedAtAppend:
                pass
        return await agent.run("go")

    _, result = played(act)
    assert result.ok


# --- anything ---------------------------------------------------------------------------------------

ANY_TEXT = st.text(st.characters(codec=None), max_size=30)


@settings(max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck))
@given(said=ANY_TEXT, pieces=st.lists(ANY_TEXT, max_size=4), given_=ANY_TEXT, raised=ANY_TEXT)
def test_L9_any_text_anywhere(said: str, pieces: list[str], given_: str, raised: str) -> None:
    """Any str at all, surrogates included, at every border at once."""

    @tool
    async def give() -> str:
        """Give something."""
        return given_

    @tool
    async def fails() -> str:
        """Raise."""
        raise ValueError(raised)

    turn = [*(TextChunk(0, piece) for piece in pieces), call("give"), call("fails"), call("give", raw=said)]
    _, result = played(lambda agent: agent.run("go " + said), turn, tools=[give, fails])
    assert result.ok
