"""I1-I8, T4, T8, C4, R2: Hypothesis drives one agent by any sequence of acts, against a small model of its inbox.

Between two acts time may pass or not, so acts meet the turn anywhere. The oracle judges the log after each
act; the model knows what was accepted, what it says now, and what may have been discarded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
from figures import count
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from stage import conserved, judged, reason_of

from checkrein import Agent, AgentSpec, Ask, Deny, Outcome, Retry, hookimpl, tool
from checkrein.agents import Approver
from checkrein.errors import AgentDisposed
from checkrein.events import ContextInput, SteeringInput, TurnEnd, UserInput
from checkrein.memory_store import MemoryStore
from checkrein.messages import content_text
from checkrein.testing import ScriptedModel, VirtualLoop, call, error, finish, forever, text, thinking, torn, wait

SLOW, LOOK, FAIL = call("slow"), call("look"), call("fail")
TURNS: dict[str, Any] = {
    "answer": [thinking("hm"), text("yes", pieces=2)],
    "slow answer": [wait(1), text("yes"), wait(1), text("!")],
    "call": LOOK,
    "slow call": SLOW,
    "calls": [SLOW, LOOK, FAIL, SLOW],
    "tool raises": FAIL,
    "unknown": [call("nope"), call("look", raw="{")],
    "fails": error("SERVER"),
    "fails late": [text("half"), wait(1), error("SERVER")],
    "torn": [text("half"), SLOW, torn()],
    "cut": [text("cut"), SLOW, finish("max_tokens")],
}
HOOKS = ("agent_request", "step_result", "tools_guard", "tools_execute", "turn_continuation", "request_error")
ENDS = {
    *("completed", "cancelled/user", "cancelled/task", "error/generate", "error/stream", "error/max_tokens"),
    *("error/plugin", "interrupted", "disposed"),
}


class Meddles:
    """Does what the machine armed it with, once."""

    name = "meddles"

    def __init__(self) -> None:
        self.armed: dict[str, Any] = {}

    def _now(self, hook: str) -> Any:
        what = self.armed.pop(hook, None)
        if isinstance(what, Exception):
            raise what
        return what

    @hookimpl
    async def agent_request(self, request: Any) -> Any:
        return self._now("agent_request")

    @hookimpl
    def step_result(self, message: Any) -> Any:
        return self._now("step_result")

    @hookimpl
    async def tools_guard(self, call: Any) -> Any:
        return self._now("tools_guard")

    @hookimpl
    async def tools_execute(self, call: Any, proceed: Any) -> Any:
        return self._now("tools_execute") or await proceed(call)

    @hookimpl
    def turn_continuation(self) -> Any:
        return self._now("turn_continuation")

    @hookimpl
    async def request_error(self) -> Any:
        return self._now("request_error")


class Person:
    """Answers an approval when the machine says so."""

    def __init__(self) -> None:
        self.questions: deque[tuple[anyio.Event, list[str]]] = deque()
        self.answers_at_once = False

    async def decide(self, agent: Any, approval: Any) -> str:
        if self.answers_at_once:
            return "denied"
        event, box = anyio.Event(), list[str]()
        self.questions.append((event, box))
        await event.wait()
        return box[0]


@tool
async def slow() -> str:
    """Take two seconds, and change something."""
    await anyio.sleep(2)
    return "done"


@tool(read_only=True)
async def look() -> str:
    """Look."""
    return "seen"


@tool(idempotent=True)
async def fail() -> str:
    """Fail."""
    raise ValueError("no")


@dataclass
class Model:
    """What must be true of the inbox: the whole of what the machine compares with."""

    said: dict[str, str] = field(default_factory=dict)  # what each accepted input says now
    gone: set[str] = field(default_factory=set)  # withdrawn, or discarded by a cancel or a waiter that left
    may_go: set[str] = field(default_factory=set)  # of waiters that may be cancelled
    disposed: bool = False

    def differs(self, session: Any) -> list[str]:
        """Where the log says something else."""
        found = []
        state = session.state
        known = {*state.pending, *state.claimed, *state.discarded}
        if known != set(self.said):
            found.append(f"accepted are {sorted(self.said)}, the log knows {sorted(known)}")
        if not self.gone <= set(state.discarded) <= self.gone | self.may_go:
            found.append(f"discarded are {state.discarded}, expected {self.gone} and perhaps {self.may_go}")
        for entry in state.pending.values():
            if content_text(entry.content) != self.said.get(entry.id):
                found.append(f"{entry.id} says {content_text(entry.content)!r}, expected {self.said.get(entry.id)!r}")
        for event in session.events:
            if isinstance(event, UserInput | SteeringInput | ContextInput) and event.id is not None:
                if content_text(event.content) != self.said.get(event.id):
                    found.append(f"{event.id} was taken as {content_text(event.content)!r}")
        return found


class AgentMachine(RuleBasedStateMachine):
    """One agent, one store, any acts."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop(stuck_s=0.3)
        self.store = MemoryStore()
        self.meddles = Meddles()
        self.person = Person()
        self.turns: deque[Any] = deque()
        self.model = Model()
        self.waiters: list[Any] = []
        self.count = 0
        self.run(self.open)

    # --- plumbing ---------------------------------------------------------------------------------

    def run(self, fn: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Run a coroutine function on the machine's loop."""
        return self.loop.run_until_complete(fn(*args))

    def sync(self, fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a function of the agent inside the loop, without letting anything else run first."""

        async def inside() -> Any:
            return fn(*args, **options)

        return self.run(inside)

    async def open(self, resume: str | None = None) -> None:
        """Open a harness; with `resume`, its agent continues that session."""
        script = forever(lambda request: self.turns.popleft() if self.turns else "ok")
        self.scripted = ScriptedModel(script)
        self.maker = Agent(
            self.scripted,
            tools=[slow, look, fail],
            plugins=[self.meddles],
            store=self.store,
            max_steps=9,
        )
        self.agent = await self.maker.__aenter__()
        self.harness = self.maker._harness
        # Syncing takes a thread, which comes when it comes; a machine has to replay.
        self.harness.plugins.plugin("store")._synced = frozenset()
        self.harness.provide(Approver, self.person)
        if resume is not None:
            spec = self.agent.spec
            await self.agent.dispose()
            self.agent = await self.harness.resume(resume, spec=AgentSpec(id="again", model=spec.model, max_steps=9))

    async def settle(self) -> None:
        """Answer what is asked, take what is parked, and wait until nothing is owed."""
        self.person.answers_at_once = True
        while self.person.questions:
            self.answer_first("denied")
        if not self.model.disposed:
            self.agent.wake()
            await self.agent.idle()
        for waiter in self.waiters:
            try:
                await waiter
            except AgentDisposed:
                assert self.model.disposed
        self.waiters.clear()
        self.person.answers_at_once = False

    def answer_first(self, outcome: str) -> None:
        """Answer the first question."""
        event, box = self.person.questions.popleft()
        box.append(outcome)
        event.set()

    def words(self, what: str) -> str:
        """Something nobody said before."""
        self.count += 1
        return f"{what} {self.count}"

    # --- acts -------------------------------------------------------------------------------------

    @precondition(lambda self: not self.model.disposed)
    @rule(how=st.sampled_from(["send", "steer", "inject"]), key=st.sampled_from([None, None, None, "k1", "k2"]))
    def accept(self, how: str, key: str | None) -> None:
        said = self.words(how)
        receipt = self.sync(getattr(self.agent, how), said, key=key)
        self.model.said.setdefault(receipt.id, said)  # a known key is the first input again
        assert receipt.status.state in ("pending", "in turn", "discarded")

    @precondition(lambda self: not self.model.disposed and len(self.waiters) < 3)
    @rule(patience_s=st.sampled_from([1.0, 1_000.0]))
    def wait_for_a_turn(self, patience_s: float) -> None:
        said = self.words("run")

        async def wait_for() -> None:
            with anyio.move_on_after(patience_s):
                await self.agent.run(said)

        async def begin() -> str:
            self.waiters.append(self.loop.create_task(wait_for()))
            before = self.agent.session.state.inputs
            while self.agent.session.state.inputs == before:
                await anyio.lowlevel.checkpoint()
            return f"i{before + 1}"

        input_id = self.run(begin)
        self.model.said[input_id] = said
        self.model.may_go.add(input_id)

    @precondition(lambda self: not self.model.disposed)
    @rule(discard=st.booleans())
    def cancel(self, discard: bool) -> None:
        """A cancel discards what is pending and nobody waits for, if it acts at all (C4)."""
        waiting = {entry.id for entry in self.agent.pending} - self.model.may_go
        self.sync(self.agent.cancel, discard_pending=discard)
        discarded = waiting & set(self.agent.session.state.discarded)
        assert discarded in (set(), waiting if discard else set())
        self.model.gone |= discarded

    @precondition(lambda self: not self.model.disposed and self.agent.pending)
    @rule(which=st.integers(0, 9), withdraw=st.booleans())
    def change_pending(self, which: int, withdraw: bool) -> None:
        entry = self.agent.pending[which % len(self.agent.pending)]
        if withdraw:
            if entry.id in self.model.may_go:  # its waiter would be told with an error; races.py does it
                return
            self.sync(self.agent.withdraw, entry.id)
            self.model.gone.add(entry.id)
        else:
            said = self.words("replaced")
            self.sync(self.agent.replace, entry.id, said)
            self.model.said[entry.id] = said

    @rule(what=st.sampled_from(sorted(TURNS)))
    def the_model_will(self, what: str) -> None:
        self.turns.append(TURNS[what])

    @rule(hook=st.sampled_from(HOOKS))
    def a_plugin_will_raise(self, hook: str) -> None:
        self.meddles.armed[hook] = RuntimeError("armed")

    @rule(
        what=st.sampled_from(
            [("tools_guard", Ask("may it?")), ("tools_guard", Deny("no")), ("request_error", Retry(1.0))]
            + [("tools_execute", Outcome.text("instead"))]
        )
    )
    def a_plugin_will_answer(self, what: tuple[str, Any]) -> None:
        self.meddles.armed[what[0]] = what[1]

    @precondition(lambda self: self.person.questions)
    @rule(outcome=st.sampled_from(["allowed_once", "denied", "closed", "nonsense"]))
    def decide(self, outcome: str) -> None:
        self.sync(self.answer_first, outcome)

    @rule(seconds=st.sampled_from([0.0, 0.0, 1.0, 2.0]))
    def time_passes(self, seconds: float) -> None:
        self.run(anyio.sleep, seconds)

    @rule()
    def everything_settles(self) -> None:
        self.run(self.settle)
        if not self.model.disposed:
            assert {entry.kind for entry in self.agent.pending} <= {"context"}
            assert self.agent.status == "idle"

    @precondition(lambda self: not self.model.disposed)
    @rule()
    def dispose(self) -> None:
        self.model.disposed = True
        self.run(self.agent.dispose)
        self.run(self.settle)
        for act in (self.agent.send, self.agent.steer, self.agent.inject, self.agent.wake):
            try:
                self.sync(act, *(() if act == self.agent.wake else ("late",)))
            except AgentDisposed:
                continue
            raise AssertionError(f"{act} works after disposal (I1)")
        if self.model.said:
            assert bytes(self.store.raw(self.agent.session.id)).splitlines() == self.agent.session.lines

    @precondition(lambda self: self.model.disposed and self.model.said)
    @rule()
    def resume(self) -> None:
        """The session goes on in another harness; what was pending is parked, nothing else is different."""
        session = self.agent.session
        pending, lines = list(session.state.pending), list(session.lines)
        self.run(self.maker.__aexit__, None, None, None)
        self.run(self.open, session.id)
        self.model.disposed = False
        again = self.agent.session
        assert again.lines == lines  # opening adds nothing to a log that is balanced (R2)
        assert list(again.state.pending) == pending
        assert self.agent.status == "idle"

    @precondition(lambda self: not self.model.disposed and self.model.said)
    @rule()
    def the_process_dies(self) -> None:
        """What the store has at this moment is opened by another process (R2); the first one closes, unheard."""
        self.run(anyio.sleep, 0)
        session = self.agent.session
        if session.id not in {info.id for info in self.store.list()}:
            return
        left = MemoryStore()
        left.create(session.id, bytes(self.store.raw(session.id)).splitlines()).close()
        self.run(self.maker.__aexit__, None, None, None)
        self.model.disposed = True
        self.run(self.settle)
        self.store, self.person = left, Person()
        self.run(self.open, session.id)
        state = self.agent.session.state
        known = {*state.pending, *state.claimed, *state.discarded}
        # What was accepted in the last moment may not have reached the store; the rest is there, in order.
        assert known == set(list(self.model.said)[: len(known)])
        self.model = Model(
            {i: said for i, said in self.model.said.items() if i in known},
            self.model.gone & set(state.discarded),
            self.model.may_go,
        )
        self.model.said |= {entry.id: content_text(entry.content) for entry in state.pending.values()}

    # --- laws -------------------------------------------------------------------------------------

    @invariant()
    def the_log_is_right(self) -> None:
        session = self.agent.session
        count("state machine: acts")
        assert self.model.differs(session) == []
        assert conserved(session) == []
        assert judged(session, open_ok=session.state.turn_open) == []
        for event in session.events:
            if type(event) is TurnEnd:
                assert reason_of(event.reason) in ENDS, event.reason

    def teardown(self) -> None:
        if not hasattr(self, "maker"):
            return
        self.run(self.settle)
        self.run(self.maker.__aexit__, None, None, None)
        assert judged(self.agent.session) == []
        assert self.scripted.opened == self.scripted.closed
        count("state machine: programs of acts")
        count("state machine: turns they made", self.agent.session.state.turn)
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.close()


TestAgentMachine = AgentMachine.TestCase
TestAgentMachine.settings = settings(
    max_examples=100, stateful_step_count=30, derandomize=True, suppress_health_check=list(HealthCheck)
)
