"""`to_sse` and `frame`: names, fields and the seq a consumer resumes by, through a real turn."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from checkrein import (
    Agent,
    Retry,
    StepReset,
    TextDelta,
    ThinkingDelta,
    ToolCall,
    ToolProgress,
    ToolResult,
    hookimpl,
    to_sse,
    tool,
)
from checkrein.chunks import TextChunk
from checkrein.events import Cause, Reason, TurnEnd
from checkrein.live import TurnEnd as TurnEndItem
from checkrein.messages import content_text
from checkrein.sse import frame
from checkrein.testing import call, error, text, thinking, usage


@tool(read_only=True)
async def add(a: int, b: int) -> int:
    """Add."""
    if a < 0:
        raise ValueError("negative")
    return a + b


class Retries:
    name = "retries"

    @hookimpl
    def request_error(self) -> Retry:
        return Retry()


def turn_of(run: Any, model: Any, tools: Any = (add,)) -> list[Any]:
    """What a consumer of `harness.events()` sees of one turn."""

    async def main() -> list[Any]:
        async with Agent(model, tools=tools, plugins=[Retries()]) as agent, agent.harness.events() as feed:
            await agent.run("go")
            items = []
            async for item in feed:
                items.append(item)
                if isinstance(item.item, TurnEndItem):
                    break
            return items

    result: list[Any] = run(main)
    return result


def test_names_and_fields_are_the_seeds(run, scripted):
    """text, thinking, tool, tool_result, turn_end; every other logged event as `event`, whole."""
    model = scripted(
        [thinking("hm"), text("x"), error("SERVER")],
        [text("let me"), call("add", {"a": 1, "b": 2}), call("add", {"a": -1, "b": 2}), usage(input=1, output=1)],
        "3",
    )
    items = turn_of(run, model)
    frames = [(*to_sse(item.item, item.seq), item) for item in items]
    by_name: dict[str, list[dict[str, Any]]] = {}
    for name, payload, _ in frames:
        by_name.setdefault(name, []).append(payload)
    assert set(by_name) == {"event", "text", "thinking", "step_reset", "tool", "tool_result", "turn_end"}
    assert set(by_name["text"][0]) == {"seq", "turn", "step", "index", "delta"}
    assert by_name["thinking"][0]["delta"] == "hm"
    assert by_name["step_reset"][0]["attempt"] == 2
    asked, failing = by_name["tool"]
    assert (asked["id"], asked["name"], asked["args"]) == ("c1.1.1", "add", '{"a":1,"b":2}')
    good, bad = by_name["tool_result"]
    assert (good["ok"], good["value"], good["render"], good["error"], good["decision"]) == (True, 3, "3", None, None)
    assert (bad["id"], bad["ok"]) == (failing["id"], False)
    assert "ValueError" in bad["error"] and "negative" in bad["render"]
    assert {k: by_name["turn_end"][0][k] for k in ("turn", "outcome", "error", "steps")} == {
        "turn": 1,
        "outcome": "completed",
        "error": None,
        "steps": 2,
    }
    kinds = {payload["type"] for payload in by_name["event"]}
    assert {"turn/start", "step/start", "request/end", "assistant/message"} <= kinds


def test_every_frame_carries_a_seq_that_never_falls(run, scripted):
    """So that Last-Event-ID resumes: behind a delta, its event is still to come."""
    items = turn_of(run, scripted([thinking("a", pieces=2), text("b c", pieces=2)]))
    seqs = [to_sse(item.item, item.seq)[1]["seq"] for item in items]
    assert seqs == sorted(seqs)
    assert min(seqs) >= 0


def test_frame_is_the_wire_format(run, scripted):
    """id, event and data line, a blank line; the data is JSON in one line, whatever the text holds."""
    items = turn_of(run, scripted("line one\nline two\r\n\u2028 caf\u00e9"))
    for item in items:
        raw = frame(item.item, item.seq)
        assert raw.endswith(b"\n\n")
        lines = raw[:-2].split(b"\n")
        assert len(lines) == 3
        assert lines[0] == b"id: %d" % item.seq
        name, payload = to_sse(item.item, item.seq)
        assert lines[1] == b"event: " + name.encode()
        assert lines[2].startswith(b"data: ")
        assert json.loads(lines[2][6:]) == json.loads(json.dumps(payload))


@pytest.mark.parametrize(
    ("reason", "outcome", "message"),
    [
        (Reason("completed"), "completed", None),
        (Reason("cancelled", cause=Cause("user")), "cancelled", None),
        (Reason("error", error="generate", code="X", message="no"), "error", "generate: no"),
        (Reason("error", error="plugin"), "error", "plugin"),
        (Reason("step_limit", max_steps=3), "step_limit", None),
        (Reason("interrupted"), "interrupted", None),
        (Reason("disposed"), "disposed", None),
    ],
)
def test_T4_the_reason_is_the_outcome(reason, outcome, message):
    """The same word; an error as `kind: message`."""
    item = TurnEndItem(TurnEnd(9, 0, turn=2, reason=reason, steps=1))
    assert to_sse(item) == (
        "turn_end",
        {"seq": 9, "turn": 2, "outcome": outcome, "error": message, "steps": 1},
    )


def test_deltas_by_hand():
    """The pure function needs no agent."""
    assert to_sse(TextDelta(1, 2, 0, "x"), 7) == ("text", {"seq": 7, "turn": 1, "step": 2, "index": 0, "delta": "x"})
    assert to_sse(ThinkingDelta(1, 2, 3, "y"), 7)[1]["index"] == 3
    assert to_sse(ToolProgress("c1.1.1", "half"), 7) == ("tool_progress", {"seq": 7, "id": "c1.1.1", "text": "half"})
    assert to_sse(StepReset(1, 1, 2), 7) == ("step_reset", {"seq": 7, "turn": 1, "step": 1, "attempt": 2})


def test_a_nested_call_names_its_parent():
    """parent_id, only where there is one."""
    from checkrein.events import ToolCalled

    nested = ToolCall(ToolCalled(3, 0, turn=1, step=1, call_id="c1.1.1.1", name="add", parent="c1.1.1"))
    assert to_sse(nested)[1]["parent_id"] == "c1.1.1"
    plain = ToolCall(ToolCalled(3, 0, turn=1, step=1, call_id="c1.1.1", name="add"), "{}")
    assert "parent_id" not in to_sse(plain)[1]


def test_X1_the_result_of_a_call_that_ended_before_its_sibling_is_shown(run, scripted):
    """The log holds it in `tool/end`; a consumer reads it off the result, as any other."""

    @tool
    async def slow() -> str:
        """Be late."""
        await anyio.sleep(1)
        return "late"

    items = turn_of(run, scripted([call("slow"), call("add", {"a": 1, "b": 2})], "done"), [slow, add])
    late, early = [item.item for item in items if isinstance(item.item, ToolResult)]
    assert late.event.end is None and early.event.end is not None
    assert [(content_text(item.content), item.value) for item in (late, early)] == [("late", None), ("3", 3)]
    assert (to_sse(early)[1]["render"], to_sse(early)[1]["value"]) == ("3", 3)


def test_L9_no_delta_holds_half_a_character(run, scripted):
    items = turn_of(run, scripted([TextChunk(0, piece) for piece in ("a\u2028\n\ud83d", "\ude00", " \ud83d!")]))
    frames = [frame(item.item, item.seq) for item in items]
    assert all(made.count(b"\n") == 4 and b"\r" not in made for made in frames)
    data = [json.loads(made.split(b"\n")[2][6:]) for made in frames if made.split(b"\n")[1] == b"event: text"]
    assert [payload["delta"] for payload in data] == ["a\u2028\n", "\U0001f600", " \ufffd!"]
    assert [payload["turn"] for payload in data] == [1, 1, 1]
