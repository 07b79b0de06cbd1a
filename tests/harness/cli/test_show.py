"""Events in words: what a terminal is shown, whoever wrote it."""

from __future__ import annotations

import pytest

from checkrein import events as ev
from checkrein.cli.show import Narrator, clock, reason_text, shown_text, usage_text
from checkrein.events import Cause, ErrorInfo, Fault, Reason, ToolErrorInfo
from checkrein.messages import CallBlock, MediaBlock, Source, TextBlock, Usage

EVIL = "\x1b]0;owned\x07\x1b[2J\u202eevil\u200b\U000e0041\ud800\r"


def at(kind, **fields):
    return kind(seq=1, time=0, **fields)


EVENTS = [
    at(ev.UserInput, turn=1, id="i1", content=[TextBlock(EVIL), MediaBlock(EVIL, name=EVIL)], source=Source("user")),
    at(ev.SteeringInput, turn=1, step=1, id="i2", content=[TextBlock(EVIL)], source=Source("plugin", name=EVIL)),
    at(ev.ContextInput, turn=1, content=[TextBlock(EVIL)], source=Source("agent", id=EVIL)),
    at(ev.AssistantThinking, turn=1, step=1, index=0, text=EVIL),
    at(ev.AssistantPartial, turn=1, step=1, text=EVIL),
    at(ev.AssistantAnswer, turn=1, step=1, content=[TextBlock(EVIL), CallBlock("c1", EVIL, EVIL)]),
    at(ev.ToolCalled, turn=1, step=1, call_id="c1", name=EVIL),
    at(ev.ToolResulted, turn=1, step=1, call_id="c1", content=[TextBlock(EVIL)], is_error=False),
    at(ev.ToolLate, turn=1, step=1, call_id="c1"),
    at(ev.RequestEnd, turn=1, step=1, attempt=1, outcome="error", error=ErrorInfo("stream", EVIL, "TORN")),
    at(ev.PluginFaulted, plugin=EVIL, hook="tools_guard", error=Fault("E", EVIL), action="refused"),
    at(ev.InboxDiscarded, id="i9", reason=EVIL),
    at(ev.RequestEnd, turn=1, step=1, attempt=1, outcome="error", error=ErrorInfo(EVIL, "m", EVIL)),
    at(ev.PluginFaulted, plugin="p", hook=EVIL, error=Fault("E", "m"), action=EVIL),
    at(ev.InboxDiscarded, id=EVIL, reason="r"),
    at(ev.ApprovalDecided, id="a1", outcome=EVIL),
    at(ev.CompactionEnd, id="k1", range=[1, 2], outcome=EVIL),
    at(ev.ToolResulted, turn=1, step=1, call_id="c9", is_error=True, error=ToolErrorInfo("E", EVIL)),
    at(ev.TurnEnd, turn=1, reason=Reason("error", error="plugin", message=EVIL, plugin=EVIL), steps=1),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.type)
@pytest.mark.parametrize("whole", [False, True])
def test_no_control_character_reaches_a_terminal(event, whole):
    narrate = Narrator(whole=whole)
    told = "".join(narrate(each) for each in EVENTS[:8]) + narrate(event)
    assert "evil" in told
    assert not set(told) & {"\x1b", "\x07", "\r", "\u202e", "\u200b", "\U000e0041", "\ud800"}


def test_text_keeps_what_emoji_and_typography_are_made_of():
    text = "⚠️ 👩\u200d💻 10\u202f000\xa0€\n\tnext"
    assert shown_text(text) == text


def test_a_result_is_told_once_when_it_ends_before_an_earlier_sibling_X1():
    narrate = Narrator()
    ended = at(ev.ToolEnded, turn=1, step=1, call_id="c2", content=[TextBlock("two")], is_error=False, duration_ms=3)
    resulted = at(ev.ToolResulted, turn=1, step=1, call_id="c2", end=1, is_error=False)
    narrate(at(ev.ToolCalled, turn=1, step=1, call_id="c2", name="count"))
    assert [narrate(ended), narrate(resulted)] == ["  result of count (3 ms): two", ""]


def test_an_error_result_says_its_code():
    error = ToolErrorInfo("ValueError", "TOOL_ERROR")
    event = at(ev.ToolResulted, turn=1, step=1, call_id="c1", content=[], is_error=True, error=error)
    assert Narrator()(event) == "  failed TOOL_ERROR of c1: (no output)"


def test_a_long_line_keeps_its_tail():
    event = at(ev.AssistantThinking, turn=1, step=1, index=0, text="head " * 1_000 + "the end")
    told = Narrator()(event)
    assert len(told) < 300 and told.endswith("the end") and "more characters" in told


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (Reason("completed"), "completed"),
        (Reason("cancelled", cause=Cause("hook", plugin="budget", reason="enough")), "cancelled by hook budget enough"),
        (Reason("step_limit", max_steps=3), "step_limit after 3 steps"),
        (Reason("error", error="generate", code="RATE_LIMIT", message="slow"), "error (generate, RATE_LIMIT): slow"),
        (Reason("error", error="plugin", message="no", plugin="guard"), "error (plugin) in plugin guard: no"),
    ],
)
def test_T4_reasons_in_words(reason, words):
    assert reason_text(reason) == words


def test_any_time_and_usage_of_a_log_can_be_shown():
    assert clock(10**25).endswith("ms")
    assert usage_text(Usage()) == ""
    assert usage_text(Usage(input=3, cache_read=4, output=5)) == "7 tokens in, 5 out"
