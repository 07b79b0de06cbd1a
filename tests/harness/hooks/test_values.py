"""H1: what hooks return: a value that cannot be logged is its plugin's fault, and words are cleaned."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

import pytest
from hookkit import hang, play, plugin, raising

from checkrein import Deny, Stop
from checkrein import events as ev
from checkrein.decisions import Ask
from checkrein.messages import AssistantMessage, CallBlock, TextBlock, UserMessage


def say(words: str) -> Any:
    return lambda message: AssistantMessage([TextBlock(words)])


def change(**members: Any) -> Any:
    return lambda request: request.replace(**members)


UNFIT = {
    "raises": raising(),
    "late": hang,
    "wrong": lambda request: "banana",
    "no messages": change(messages=None),
    "used up": change(messages=iter([UserMessage([TextBlock("hi")])])),
    "a text": change(messages=[UserMessage("hi")]),  # type: ignore[arg-type]
    "a half": change(messages=[UserMessage([TextBlock("\ud800")])]),
    "system": change(system=(5,)),
    "one system": change(system="Be brief."),
    "tools": change(tools=[5]),
    "settings": change(settings={"x": object()}),
    "half a setting": change(settings={"x": "\ud800"}),
    "keys": change(settings={5: 1}),
    "model": change(model=5),
}


@pytest.mark.parametrize("broken", UNFIT.values(), ids=list(UNFIT))
def test_hook_agent_request_fault(run, broken):
    played = play(run, plugin("bad", agent_request=broken))
    assert (played.result.reason.kind, played.result.reason.error) == ("error", "plugin")
    assert played.result.reason.plugin == "bad"
    assert played.faults == [("bad", "agent_request", "turn_ended")]
    assert not played.model.requests
    if broken is hang:
        assert played.took_s == pytest.approx(60, abs=0.1)


def test_hook_agent_request_to_a_provider_that_is_not_there_is_a_failed_request(run):
    played = play(run, plugin("away", agent_request=change(provider="nowhere")))
    assert (played.result.reason.error, played.result.reason.code) == ("generate", "ConfigError")


def test_L9_what_a_plugin_says_instead_is_cleaned(run):
    played = play(run, plugin("half", step_result=say("\ud800!")), turns=["said"])
    assert played.result.text == "\ufffd!"


ODD = {
    "raises": raising(),
    "late": hang,
    "wrong": lambda message: "banana",
    "a text": lambda message: AssistantMessage("replaced"),  # type: ignore[arg-type]
    "nothing": lambda message: AssistantMessage(None),  # type: ignore[arg-type]
    "number": lambda message: AssistantMessage([TextBlock(5)]),  # type: ignore[arg-type]
    "arguments": lambda message: AssistantMessage([CallBlock("", "act", {"n": 1})]),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("broken", ODD.values(), ids=list(ODD))
def test_hook_step_result_fault(run, broken):
    played = play(run, plugin("bad", step_result=broken), turns=["paid for"])
    assert (played.result.reason.error, played.result.reason.plugin) == ("plugin", "bad")
    if broken is ODD["wrong"]:
        assert "expected AssistantMessage or None, got str" in played.result.reason.message
    assert [e.text for e in played.of(ev.AssistantPartial)] == ["paid for"] and not played.of(ev.AssistantAnswer)
    assert played.faults == [("bad", "step_result", "turn_ended")]


def test_H2_an_argument_with_a_default_is_given_too(run):
    def guard(call: Any, agent: Any = None) -> Any:
        return Deny(f"{call.name} of {agent.id}")

    @asynccontextmanager
    async def lifespan(tasks: Any = None) -> Any:
        assert tasks is not None
        yield

    played = play(
        run, plugin("p", tools_guard=guard, lifespan=lifespan, register_tools=lambda harness=None: [harness][1:])
    )
    assert "denied: act of main" in played.of(ev.ToolResulted)[0].content[0].text


@pytest.mark.parametrize("vote", [(Deny, None), (Deny, 5), (Ask, None), (Ask, "may it?", 5)], ids=str)
def test_hook_tools_guard_fault_a_vote_that_cannot_be_logged(run, vote):
    kind, *members = vote
    played = play(run, plugin("guard", tools_guard=lambda: kind(*members)))
    assert played.outcomes == ["REFUSED_BY_FAULT"] and not played.of(ev.ToolStarted)
    assert played.faults == [("guard", "tools_guard", "refused")]


def test_L9_the_words_of_a_vote_are_cleaned(run):
    stop = plugin("stop", turn_continuation=lambda: Stop("no \ud800", "\ud800", 1, 1))
    cause = play(run, stop).result.reason.cause
    assert (cause.kind, cause.reason, cause.which) == ("budget", "no \ufffd", "\ufffd")
