"""H1: the hooks of a running turn, each with its kind, colour, failure policy and deadline; under virtual time."""

from __future__ import annotations

from contextlib import asynccontextmanager
from math import inf, nan
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from hookkit import CALL, hang, play, plugin, raising

from checkrein import Continue, Deny, Retry, Stop, hookimpl
from checkrein import events as ev
from checkrein.calls import Outcome
from checkrein.chunks import TextChunk
from checkrein.decisions import Allow, Ask
from checkrein.errors import GateClosed
from checkrein.hookspecs import SPECS, HookSpecs
from checkrein.memory_store import MemoryStore
from checkrein.messages import AssistantMessage, Request, TextBlock
from checkrein.testing import call, error, text


def test_H1_every_specification_has_its_contract():
    assert set(SPECS) == {name for name in vars(HookSpecs) if not name.startswith("_")}
    for info in SPECS.values():
        assert info.kind in {"fold", "around", "vote", "first", "observe", "gather", "lifespan", "collect"}
        assert info.colour in {"any", "sync"} and info.on_fault
        if info.colour == "sync":
            assert info.deadline_s is None  # nothing can be awaited, so nothing can be late
        else:
            assert info.deadline_s


# --- folds --------------------------------------------------------------------------------------------------


def settings(word: str) -> Any:
    return lambda request: request.replace(settings={**request.settings, "order": [*_order(request), word]})


def _order(request: Request) -> list[str]:
    return request.settings.get("order", [])


def test_hook_agent_request(run):
    async def later(request: Request) -> Request:
        await anyio.sleep(1)
        return settings("later")(request)

    played = play(
        run,
        plugin("first", agent_request=settings("first")),
        plugin("quiet", agent_request=lambda request: None),
        plugin("later", agent_request=later),
    )
    assert played.result.ok
    assert [request.settings["order"] for request in played.model.requests] == [["first", "later"]] * 2
    assert (played.account("first", "agent_request").calls, played.account("first", "agent_request").changes) == (2, 2)
    assert played.account("quiet", "agent_request").changes == 0
    assert played.account("later", "agent_request").time_s >= 0


def say(words: str) -> Any:
    return lambda message: AssistantMessage([TextBlock(words)])


def test_hook_step_result(run):
    played = play(run, plugin("a", step_result=say("one")), plugin("b", step_result=say("two")), turns=["said"])
    answer = played.of(ev.AssistantAnswer)[0]
    assert (played.result.text, answer.replaced["plugins"]) == ("two", ["a", "b"])
    assert answer.replaced["content"] == [{"type": "text", "text": "said"}]


# --- calls --------------------------------------------------------------------------------------------------


def test_hook_tools_execute(run):
    order: list[str] = []

    def wrap(name: str) -> Any:
        async def tools_execute(call: Any, proceed: Any) -> Outcome:
            order.append(f"{name} in")
            outcome = await proceed(call)
            order.append(f"{name} out")
            return outcome

        return plugin(name, tools_execute=tools_execute)

    played = play(run, wrap("a"), wrap("b"))
    assert order == ["a in", "b in", "b out", "a out"] and played.outcomes == ["acted 1"]


@pytest.mark.parametrize("ran", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("how", ["raises", "late", "wrong"])
def test_hook_tools_execute_fault(run, how, ran):
    async def tools_execute(call: Any, proceed: Any) -> Any:
        if ran:
            await proceed(call)
        if how == "late":
            await anyio.sleep(61)
        if how == "raises":
            raise ValueError("broken")
        return "banana"

    played = play(run, plugin("bad", tools_execute=tools_execute))
    assert played.result.ok
    assert played.outcomes == ["WITHHELD_BY_FAULT" if ran else "REFUSED_BY_FAULT"]
    assert len(played.of(ev.ToolStarted)) == int(ran)
    assert played.faults == [("bad", "tools_execute", "refused")]
    text_of = played.of(ev.ToolResulted)[0].content[0].text
    assert "'bad'" in text_of and ("has run" in text_of) is ran


def test_hook_tools_guard(run):
    def votes(**answers: Any) -> Any:
        return plugin("votes", tools_guard=lambda call: answers.get(call.name))

    async def slowly(call: Any) -> Any:
        await anyio.sleep(1)
        return Allow()

    played = play(
        run,
        votes(act=Deny("not now")),
        plugin("slow", tools_guard=slowly),
        turns=[[CALL, call("look")], "done"],
    )
    assert played.outcomes == ["DENIED", "saw 1"]
    assert [(e.plugin, e.outcome, e.reason) for e in played.of(ev.Decision)] == [("votes", "deny", "not now")]
    assert played.of(ev.ToolResulted)[1].decision == "allow"


@pytest.mark.parametrize("broken", [raising(), hang, lambda: "banana"], ids=["raises", "late", "banana"])
def test_hook_tools_guard_fault_case_H09(run, broken):
    """A guard that crashes, is late or answers nonsense refuses: the tool does not run, and the model reads who."""
    played = play(run, plugin("guard", tools_guard=broken), plugin("yes", tools_guard=lambda: Allow()))
    assert played.result.ok
    assert played.outcomes == ["REFUSED_BY_FAULT"] and not played.of(ev.ToolStarted)
    assert "'guard'" in played.of(ev.ToolResulted)[0].content[0].text
    assert played.faults == [("guard", "tools_guard", "refused")]


def test_ask_has_no_deadline(run):
    """A person may take longer than any guard (H1)."""
    from checkrein.agents import Approver

    class Slow:
        async def decide(self, agent: Any, approval: Any) -> str:
            await anyio.sleep(3600)
            return "allowed_once"

    @asynccontextmanager
    async def lifespan(harness: Any) -> Any:
        harness.provide(Approver, Slow(), "asks")
        yield

    played = play(run, plugin("asks", tools_guard=lambda: Ask("really?"), lifespan=lifespan))
    assert played.outcomes == ["acted 1"] and played.took_s == pytest.approx(3600, abs=1)


# --- continuation -------------------------------------------------------------------------------------------


def test_hook_turn_continuation(run):
    asked: list[tuple[int, str]] = []

    async def more(step: int, decision: str) -> Any:
        asked.append((step, decision))
        return Continue("not done", "go on") if step == 2 else None

    played = play(run, plugin("more", turn_continuation=more), turns=[CALL, "one", "two"])
    assert played.result.text == "two" and asked == [(1, "continue"), (2, "stop"), (3, "stop")]
    assert [(e.plugin, e.outcome, e.reason) for e in played.of(ev.Decision)] == [("more", "continue", "not done")]
    context = played.of(ev.ContextInput)[0]
    assert (context.plugin, context.source.kind, context.content[0].text) == ("more", "plugin", "go on")


@pytest.mark.parametrize(
    "broken",
    [
        *(raising(), hang, lambda: "banana", lambda: Continue("empty", "")),
        *(lambda: Continue(5, "go on"), lambda: Stop(None), lambda: Stop("x", 7, 1, 1), lambda: Stop("x", "y", nan, 1)),
    ],
    ids=["raises", "late", "wrong", "empty", "reason", "no reason", "budget", "nan"],
)
def test_hook_turn_continuation_fault(run, broken):
    played = play(run, plugin("bad", turn_continuation=broken), turns=["answer"])
    assert (played.result.reason.kind, played.result.reason.error) == ("error", "plugin")
    assert played.faults == [("bad", "turn_continuation", "turn_ended")]


def test_T5_stop_after_calls_is_a_cancel_by_its_author(run):
    played = play(run, plugin("budget", turn_continuation=lambda: Stop("enough")))
    assert (played.result.reason.kind, played.result.reason.cause.plugin) == ("cancelled", "budget")


# --- first --------------------------------------------------------------------------------------------------


def test_hook_request_error_case_H08(run):
    """Asked one after another in plugin order, async or not; the first answer ends the asking."""
    asked: list[str] = []

    def answering(name: str, answer: Any) -> Any:
        async def request_error(attempt: int) -> Any:
            asked.append(name)
            await anyio.sleep(0)
            return answer

        return plugin(name, request_error=request_error)

    played = play(
        run,
        answering("none", None),
        answering("retries", Retry(5)),
        answering("never", Retry(1)),
        turns=[error("SERVER"), "ok"],
    )
    assert played.result.ok and asked == ["none", "retries"] and played.took_s == pytest.approx(5, abs=0.1)
    assert played.account("retries", "request_error").calls == 1


@pytest.mark.parametrize(
    "broken",
    [raising(), hang, lambda: "banana", lambda: Retry("1"), lambda: Retry(None), lambda: Retry(inf)],
    ids=["raises", "late", "wrong", "text", "none", "for ever"],
)
def test_hook_request_error_fault_counts_as_none(run, broken):
    good = plugin("good", request_error=lambda: Retry())
    played = play(run, plugin("bad", request_error=broken), good, turns=[error("SERVER"), "ok"])
    assert played.result.ok and played.faults == [("bad", "request_error", "contained")]


# --- observers ----------------------------------------------------------------------------------------------


def test_hook_session_event(run):
    seen: list[str] = []
    played = play(run, plugin("sees", session_event=lambda event: seen.append(event.type)))
    assert seen == [event.type for event in played.events][: len(seen)] and "turn/end" in seen


def test_hook_session_event_fault_case_H04(run):
    """A raising observer before the others: each of them is still told everything."""
    seen: list[int] = []
    played = play(
        run, plugin("bad", session_event=raising()), plugin("keeps", session_event=lambda event: seen.append(event.seq))
    )
    assert played.result.ok and seen == list(range(len(seen)))
    assert played.faults == [
        ("bad", "session_event", "contained"),
        ("bad", "session_event", "contained"),
        ("bad", "session_event", "switched_off"),
    ]


def test_hook_stream_chunk(run):
    seen: list[tuple[int, int, str]] = []

    def stream_chunk(turn: int, step: int, chunk: Any) -> None:
        if isinstance(chunk, TextChunk):
            seen.append((turn, step, chunk.text))

    played = play(
        run,
        plugin("bad", stream_chunk=raising()),
        plugin("sees", stream_chunk=stream_chunk),
        turns=[text("abc", pieces=3)],
    )
    assert played.result.text == "abc" and seen == [(1, 1, "a"), (1, 1, "b"), (1, 1, "c")]
    assert [action for _, _, action in played.faults] == ["contained", "contained", "switched_off"]


def test_hook_agent_status(run):
    seen: list[str] = []
    played = play(
        run,
        plugin("bad", agent_status=raising(SystemExit(1))),
        plugin("sees", agent_status=lambda status: seen.append(status)),
    )
    assert played.result.ok and seen == ["running", "idle", "disposed"]
    assert played.faults[0] == ("bad", "agent_status", "contained")


@pytest.mark.parametrize("hook", ["agent_created", "agent_disposed"])
@pytest.mark.parametrize("broken", [raising(), hang], ids=["raises", "late"])
def test_hook_agent_created_and_disposed(run, hook, broken):
    seen: list[str] = []

    async def sees(agent: Any) -> None:
        await anyio.sleep(1)
        seen.append(agent.id)

    played = play(run, plugin("bad", **{hook: broken}), plugin("sees", **{hook: sees}))
    assert played.result.ok and seen == ["main"]
    assert [(f.plugin, f.hook, f.action) for f in played.harness.hooks.faults.recent] == [("bad", hook, "contained")]


def test_hook_plugin_fault(run):
    """Faults are told to the others, never to the culprit; a fault of this very hook is not told again."""
    told: dict[str, list[str]] = {"bad": [], "other": [], "worse": []}

    def tells(name: str) -> Any:
        return lambda fault: told[name].append(fault.plugin)

    def worse(fault: Any) -> None:
        told["worse"].append(fault.plugin)
        raise ValueError("again")

    bad = plugin("bad", agent_request=raising(), plugin_fault=tells("bad"))
    played = play(run, bad, plugin("worse", plugin_fault=worse), plugin("other", plugin_fault=tells("other")))
    assert told == {"bad": [], "worse": ["bad"], "other": ["bad"]}
    assert played.faults == [("bad", "agent_request", "turn_ended"), ("worse", "plugin_fault", "contained")]


# --- gather -------------------------------------------------------------------------------------------------


def test_hook_session_flush(run):
    gates: list[str] = []

    async def slow(session: Any, gate: str) -> None:
        await anyio.sleep(1)
        gates.append(gate)

    played = play(run, plugin("slow", session_flush=slow), store=MemoryStore())
    assert played.result.ok
    assert gates == ["input", "request", "call", "request", "turn_end", "turn_end"]


@pytest.mark.parametrize("gate", ["input", "request", "call", "turn_end"])
@pytest.mark.parametrize("how", ["raises", "late"])
def test_hook_session_flush_fault_closes_its_gate(run, gate, how):
    kept: list[str] = []

    async def fails(gate_: str) -> None:
        if how == "late":
            await anyio.sleep_forever()
        raise OSError("disk full")

    bad = SimpleNamespace(name="bad")

    async def session_flush(session: Any, gate: str) -> None:
        if gate == where:
            await fails(gate)

    where = gate
    bad.session_flush = hookimpl(session_flush)
    refused: list[BaseException] = []

    async def act_on(agent: Any) -> Any:
        try:
            return await agent.run("go")
        except GateClosed as exc:
            refused.append(exc)
            return None

    other = plugin("other", session_flush=lambda gate: kept.append(gate))
    played = play(run, bad, other, act_on=act_on)
    assert gate in kept, "everybody is asked, also behind a failure"
    assert {fault[:2] for fault in played.faults} == {("bad", "session_flush")}
    if gate == "input":
        assert refused and not played.of(ev.TurnStart)
    elif gate == "request":
        assert (played.result.reason.error, len(played.model.requests)) == ("store", 0)
    elif gate == "call":
        assert played.result.ok and played.outcomes == ["NOT_STARTED"]
    else:
        assert played.result.ok and played.faults[0][2] == "contained"
