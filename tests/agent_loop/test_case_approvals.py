"""Public bug reports of other harnesses about open approvals, acted out: who leaves, who speaks, what dies meanwhile.

Each test is named by the report's id; its docstring says what went wrong there. docs/cases.md lists them all.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import anyio
import pytest
from loopkit import Latch, nap, of, plugin, reasons, results, said

from checkrein import Agent
from checkrein.agents import Approver
from checkrein.decisions import Ask
from checkrein.events import ApprovalAsked
from checkrein.testing import call, forever

ASKS = plugin(tools_guard=lambda call: Ask("sure?"))


class Desk:
    """A page's side of approvals: questions wait under their id until somebody answers, the first answer counts."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.left: list[str] = []
        self._answers: dict[str, str] = {}
        self._latches: dict[str, Latch] = {}

    async def decide(self, agent: Any, approval: Any) -> str:
        self.asked.append(approval.id)
        latch = self._latches[approval.id] = Latch()
        try:
            await latch.wait()
        finally:
            self.left.append(approval.id)
        return self._answers[approval.id]

    def answer(self, approval_id: str, outcome: str) -> None:
        self._answers.setdefault(approval_id, outcome)
        self._latches[approval_id].open()


async def asked_by(desk: Desk) -> None:
    while not desk.asked:
        await anyio.sleep(0.01)


def test_case_A10_a_client_that_drops_denies_nothing_and_may_answer_when_it_is_back(run, scripted):
    """The page's connection dropped for 20 s: the question was denied, the late yes refused, the prompt lost."""
    model, desk = scripted(call("nap", {"seconds": 0}), "done"), Desk()

    async def main() -> Any:
        async with Agent(model, tools=[nap], plugins=[ASKS]) as agent:
            agent.harness.provide(Approver, desk)
            async with agent.stream("go") as turn:
                async for item in turn:
                    if isinstance(item, ApprovalAsked):
                        break
                turn.detach()
            await anyio.sleep(20)
            assert (agent.status, of(agent, "approval/decided")) == ("running", [])
            async with agent.harness.events({agent.session.id: -1}) as feed:
                async for again in feed:
                    if isinstance(again.item, ApprovalAsked):
                        desk.answer(again.item.id, "allowed_once")
                        desk.answer(again.item.id, "denied")  # a second click
                        break
            result = await turn.result()
            assert result.ok and desk.asked == ["a1"]
            return agent

    agent = run(main)
    assert [event.outcome for event in of(agent, "approval/decided")] == ["allowed_once"]
    assert results(agent) == [("c1.1.1", "ok")]


@pytest.mark.parametrize("kind", ["send", "steer", "inject"])
def test_case_A11_what_is_said_meanwhile_neither_answers_nor_forgets_the_question(run, scripted, kind):
    """Any message cleared what was pending: the call stayed without a result, and a later yes did nothing."""
    model, desk = scripted(call("nap", {"seconds": 0}), forever("ok")), Desk()

    async def main() -> Any:
        async with Agent(model, tools=[nap], plugins=[ASKS]) as agent:
            agent.harness.provide(Approver, desk)
            receipt = agent.send("go")
            await asked_by(desk)
            getattr(agent, kind)("something else")
            await anyio.sleep(20)
            assert of(agent, "approval/decided") == []
            desk.answer("a1", "allowed_once")
            assert (await receipt.result()).ok
            await agent.idle()
            return agent

    agent = run(main)
    assert desk.asked == ["a1"]
    assert [event.outcome for event in of(agent, "approval/decided")] == ["allowed_once"]
    assert results(agent) == [("c1.1.1", "ok")]
    event = {"send": "user/message", "steer": "steering/message", "inject": "context/message"}[kind]
    assert said(agent, event)[-1] == "something else"


@pytest.mark.parametrize("way", ["dispose", "cancel", "task"])
def test_case_A12_a_question_does_not_outlive_what_asked_it(run, scripted, way):
    """The session died with a question open: nothing ever resolved it, and its buttons failed."""
    model, desk = scripted(call("nap", {"seconds": 0}), "ok"), Desk()

    async def main() -> Any:
        async with Agent(model, tools=[nap], plugins=[ASKS]) as agent:
            agent.harness.provide(Approver, desk)
            async with anyio.create_task_group() as group:
                group.start_soon(agent.run, "go")
                await asked_by(desk)
                if way == "dispose":
                    await agent.dispose()
                elif way == "cancel":
                    agent.cancel()
                else:
                    group.cancel_scope.cancel()
            with suppress(KeyError):
                desk.answer("a1", "allowed_once")  # too late, and harmless
            if way != "dispose":
                await agent.idle()
            return agent

    agent = run(main)
    assert desk.left == ["a1"]  # whoever waits for the answer is told by cancellation
    assert [event.outcome for event in of(agent, "approval/decided")] == ["closed"]
    assert results(agent) == [("c1.1.1", "NOT_STARTED")]
    assert reasons(agent) == ["disposed" if way == "dispose" else "cancelled"]
