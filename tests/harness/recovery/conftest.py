"""Reference logs: small sessions of every shape, written by the real Session."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from checkrein import events as ev
from checkrein.eventtypes import Balance, EventType
from checkrein.messages import USER, CallBlock, Source, TextBlock, ThinkingBlock, Usage
from checkrein.session import Session

TYPES = {"lease/taken": EventType("lease/taken", balance=Balance("lease/taken", "lease/returned", "lease"))}


def begin(name: str) -> Session:
    session = Session(name, TYPES)
    session.append(ev.SessionCreated(format=ev.FORMAT, session=name, agent="main", cwd="/home/user/project"))
    return session


def open_turn(session: Session, turn: int, text: str) -> None:
    name = session.next_input()
    session.append(ev.InboxAccepted(id=name, kind="queued", content=[TextBlock(text)], source=USER))
    session.append(ev.TurnStart(turn=turn, trigger={"kind": "input", "ids": [name]}))
    session.append(ev.UserInput(turn=turn, id=name, content=[TextBlock(text)], source=USER))


def request(session: Session, turn: int, step: int, content: list[object], finish: str = "stop") -> None:
    session.append(ev.StepStart(turn=turn, step=step))
    session.append(ev.RequestStart(turn=turn, step=step, attempt=1, header=0, messages=1, digest="0" * 64))
    session.append(
        ev.RequestEnd(
            turn=turn,
            step=step,
            attempt=1,
            outcome="ok",
            finish_reason=finish,
            usage=Usage(input=10, output=3),
            duration_ms=5,
        )
    )
    session.append(ev.AssistantAnswer(turn=turn, step=step, content=content))


def calls(session: Session, turn: int, step: int, names: list[str]) -> None:
    ids = [f"c{turn}.{step}.{n}" for n in range(1, len(names) + 1)]
    blocks = [CallBlock(call, name, '{"path":"a"}') for call, name in zip(ids, names, strict=True)]
    request(session, turn, step, [TextBlock("let me look"), *blocks], "tool_calls")
    for call, name in zip(ids, names, strict=True):
        session.append(ev.ToolCalled(turn=turn, step=step, call_id=call, name=name))


def text_turns() -> Session:
    session = begin("text")
    for turn in (1, 2):
        open_turn(session, turn, 'grüße ☃ \\ " \n{}')
        request(session, turn, 1, [TextBlock("日本語 and \u2028 more")])
        session.append(ev.StepEnd(turn=turn, step=1))
        session.append(ev.TurnEnd(turn=turn, reason=ev.Reason("completed"), steps=1))
    return session


def tool_turn() -> Session:
    session = begin("tools")
    open_turn(session, 1, "look")
    calls(session, 1, 1, ["read", "write"])
    for n, effect in ((1, "read_only"), (2, "effectful")):
        session.append(ev.ToolStarted(turn=1, step=1, call_id=f"c1.1.{n}", attempt=1, effect=effect))
    end = session.append(ev.ToolEnded(turn=1, step=1, call_id="c1.1.2", content=[TextBlock("written")], is_error=False))
    session.append(ev.ToolResulted(turn=1, step=1, call_id="c1.1.1", content=[TextBlock("a")], is_error=False))
    session.append(ev.ToolResulted(turn=1, step=1, call_id="c1.1.2", end=end.seq, is_error=False))
    session.append(ev.StepEnd(turn=1, step=1))
    request(session, 1, 2, [ThinkingBlock(0), TextBlock("done")])
    session.append(ev.StepEnd(turn=1, step=2))
    session.append(ev.TurnEnd(turn=1, reason=ev.Reason("completed"), steps=2))
    return session


def killed_turn() -> Session:
    session = begin("killed")
    open_turn(session, 1, "pay")
    calls(session, 1, 1, ["pay", "pay"])
    session.append(ev.ToolStarted(turn=1, step=1, call_id="c1.1.1", attempt=1, effect="effectful"))
    return session


def plugin_turn() -> Session:
    session = begin("plugins")
    open_turn(session, 1, "with leases")
    session.append_free("lease/taken", {"lease": "l1", "value": {"a": 1, "crc": "12345678"}}, plugin="lease")
    session.append(ev.StepStart(turn=1, step=1))
    name = session.next_input()
    source = Source("plugin", name="lease")
    session.append(ev.InboxAccepted(id=name, kind="steering", content=[TextBlock("faster")], source=source))
    session.append(ev.SteeringInput(turn=1, step=1, id=name, content=[TextBlock("faster")], source=source))
    session.append(
        ev.PluginFaulted(plugin="lease", hook="session_event", error=ev.Fault("ValueError", "no"), action="contained")
    )
    session.append_free("lease/returned", {"lease": "l1"}, plugin="lease")
    session.append(ev.RequestStart(turn=1, step=1, attempt=1, header=0, messages=2, digest="1" * 64))
    return session


def long_session() -> Session:
    session = begin("long")
    for turn in range(1, 10):
        open_turn(session, turn, "once more, please" * 3)
        calls(session, turn, 1, ["read"])
        session.append(
            ev.ToolResulted(turn=turn, step=1, call_id=f"c{turn}.1.1", content=[TextBlock("row\n" * 8)], is_error=False)
        )
        session.append(ev.StepEnd(turn=turn, step=1))
        session.append(ev.TurnEnd(turn=turn, reason=ev.Reason("step_limit", max_steps=1), steps=1))
    return session


SHAPES: tuple[Callable[[], Session], ...] = (text_turns, tool_turn, killed_turn, plugin_turn, long_session)


@pytest.fixture(scope="session")
def types() -> dict[str, EventType]:
    return TYPES


@pytest.fixture(scope="session")
def reference_logs() -> dict[str, list[bytes]]:
    """The lines of five sessions, by name."""
    return {session.id: list(session.lines) for session in (shape() for shape in SHAPES)}
