"""One call on its way: the `tools_execute` chain, the guards, the approval, and the tool itself (X4-X7, C7)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from functools import partial
from hashlib import sha256
from inspect import isawaitable
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from msgspec import Struct

from checkrein import threads
from checkrein.agents import Approval, Approver
from checkrein.around import around, refused
from checkrein.calls import Call, Outcome, error_outcome
from checkrein.codec import copied
from checkrein.decisions import Allow, Ask, Deny
from checkrein.derive import WORDS
from checkrein.errors import AlreadyBegun, GateClosed, InvalidArguments, PluginFault, ToolError
from checkrein.events import ApprovalAsked, ApprovalDecided, Decision, ToolErrorInfo, ToolLate, ToolStarted
from checkrein.live import ToolProgress
from checkrein.output import failure, to_outcome
from checkrein.owner import absorb, ours, stray, unwrapped
from checkrein.text import clean, describe
from checkrein.tools import Tool, ToolContext

if TYPE_CHECKING:
    from .agent import LoopAgent
    from .nested import Children

__all__ = ["execute", "failed"]

_NOBODY = "the call needs an approval, and nobody is here to give it; it did not run"


def execute(agent: LoopAgent, call: Call, task: Any) -> Awaitable[Outcome]:
    """Take a call through the hooks to its outcome; raises only our cancellation and KeyboardInterrupt."""
    run = _Run(agent, call, task)
    chain = agent.hooks.tools_execute
    if chain is None:
        if agent.hooks.tools_guard is None and call.tool is not None:
            return run.run(call.tool, call, ())  # there is nobody to ask
        return run.guarded(call, ())
    return around(agent.hooks, chain, agent.session, agent, call, lambda: run.attempts > 0, run.guarded)


def failed(exc: BaseException) -> Outcome:
    """The outcome of a call around which something failed that no rule names."""
    return failure(exc, "effectful")


class _Run(Struct):
    """One call's way through guards and tool; counts how often the tool began."""

    agent: LoopAgent
    call: Call
    task: Any  # the asyncio task it runs in; None on trio
    attempts: int = 0
    children: Children | None = None

    async def guarded(self, call: Call, changed: tuple[str, ...]) -> Outcome:
        """The innermost `proceed`: check a rewritten call, ask the guards, run the tool."""
        tool = self.call.tool
        assert tool is not None
        if changed:
            try:
                arguments = tool.validate(call.arguments)
            except InvalidArguments as exc:  # the plugin's fault that rewrote it, not of the one that proceeds
                fault = self.agent.hooks.faults.write(changed[-1], "tools_execute", exc, self.agent.session, "refused")
                return refused(fault, self.attempts > 0)
            call = Call(call.call_id, call.name, arguments, call.turn, call.step, tool, parent=self.call.parent)
        vote: Any = None
        plugin: str | None = None
        chain = self.agent.hooks.tools_guard
        if chain is not None:
            try:
                vote, plugin = await self.agent.hooks.vote(
                    chain, self.agent.session, (self.agent, call), (Deny, Ask, Allow), _any_vote, action="refused"
                )
            except PluginFault as fault:
                return error_outcome("REFUSED_BY_FAULT", f"the call was refused, the tool did not run: {fault}")
            if isinstance(vote, Deny):
                return self.denied(vote.reason, plugin)
        if self.agent.cancelled:  # a plugin or guard that shields itself comes here all the same: nothing begins
            return not_started()
        decision = None if vote is None else "allow"
        if isinstance(vote, Ask):
            decision = "ask"
            refusal = await self.asked(call, vote, plugin)
            if refusal is not None:
                return refusal
            if self.agent.cancelled:  # an approver may shield itself too
                return not_started(decision)
        outcome = await self.run(tool, call, changed)
        if decision is not None and outcome.decision is None:
            outcome = msgspec.structs.replace(outcome, decision=decision)
        return outcome

    def denied(self, reason: str, plugin: str | None) -> Outcome:
        """A guard's Deny: logged with its author; the model reads the reason."""
        self.agent.session.append(
            Decision(
                turn=self.call.turn,
                step=self.call.step,
                hook="tools_guard",
                outcome="deny",
                reason=clean(reason)[0],
                plugin=plugin,
            )
        )
        return error_outcome("DENIED", f"denied: {clean(reason)[0]}", decision="deny")

    async def asked(self, call: Call, vote: Ask, plugin: str | None) -> Outcome | None:
        """Ask a person, behind the approval gate; return a refusal, or None when the call may run (R4)."""
        agent, session = self.agent, self.agent.session
        approval_id = f"a{session.state.approvals_asked + 1}"
        summary, rule = clean(vote.summary)[0], clean(vote.rule)[0] if vote.rule is not None else None
        session.append(
            ApprovalAsked(
                id=approval_id,
                call_id=call.call_id,
                summary=summary,
                rule=rule,
                arguments=sha256(msgspec.json.encode(call.arguments, order="sorted")).hexdigest(),
                plugin=plugin,
            )
        )
        services = agent.harness.services
        approver = services.service(Approver) if services.has(Approver) else None
        answer = "closed"
        try:
            await agent.flush("approval")
            if approver is not None:
                question = Approval(approval_id, call.call_id, call.name, call.arguments, summary, rule)
                answer = await approver.decide(agent, question)
        except GateClosed as exc:
            session.append(ApprovalDecided(id=approval_id, outcome="closed"))
            return error_outcome("NOT_STARTED", f"the tool was not started: {describe(exc)}", decision="ask")
        except BaseException as exc:
            if ours(exc) or isinstance(exc, KeyboardInterrupt):
                raise
            absorb()
            agent.hooks.faults.write("approver", "tools_guard", exc, session, "refused")
            answer = "denied"
        if answer not in ("allowed_once", "allowed_rule", "closed") or (answer == "allowed_rule" and rule is None):
            answer = "denied" if answer != "allowed_rule" else "allowed_once"
        if approval_id in session.state.approvals:
            kept = rule if answer == "allowed_rule" else None
            session.append(ApprovalDecided(id=approval_id, outcome=answer, rule=kept))
        if answer in ("allowed_once", "allowed_rule"):
            return None
        text = _NOBODY if answer == "closed" else "denied by the user; the tool did not run"
        return error_outcome("DENIED", text, decision="ask")

    async def run(self, tool: Tool, call: Call, changed: tuple[str, ...]) -> Outcome:
        """Log that the call begins, make that durable where it matters (X6), and run the tool."""
        agent = self.agent
        if self.attempts and tool.effect == "effectful":  # asked for twice at once
            raise AlreadyBegun(f"the effectful call {call.call_id} ({call.name}) has begun; it is never run twice")
        self.attempts += 1
        agent.session.append(
            ToolStarted(
                turn=call.turn,
                step=call.step,
                call_id=call.call_id,
                attempt=self.attempts,
                effect=tool.effect,
                arguments=call.arguments if changed or call.parent is not None else None,
                changed_by=list(changed) or None,
            )
        )
        if tool.effect != "read_only" and agent.hooks.session_flush is not None:
            try:
                await agent.flush("call")
            except GateClosed as exc:
                return error_outcome("NOT_STARTED", f"the tool was not started: {describe(exc)}")
            if agent.cancelled:  # a flush may shield itself as well
                return not_started()
        deadline = None if tool.timeout_s is None else monotonic() + tool.timeout_s
        context = ToolContext(
            agent, agent.session, call.call_id, self.attempts, agent.workspace, deadline, self.progress, self.nested
        )
        value: Any = None
        scope: anyio.CancelScope | None = None
        try:
            if tool.timeout_s is None:
                value = await self.invoke(tool, context, call.arguments)
            else:
                with anyio.CancelScope(deadline=anyio.current_time() + tool.timeout_s) as scope:
                    value = await self.invoke(tool, context, call.arguments)
                if scope.cancelled_caught:
                    return timed_out(tool)
            if self.task is not None and self.task.cancelling() and (left := await stray()) is not None:
                self.agent.hooks.faults.write(tool.name, "tool", left, self.agent.session, "contained")
            return to_outcome(value)
        except BaseException as exc:
            error = unwrapped(exc) if isinstance(exc, BaseExceptionGroup) else exc
            if error is not exc and isinstance(error, KeyboardInterrupt):
                raise error from None
            if ours(exc) or isinstance(exc, KeyboardInterrupt):
                raise
            absorb()
            if scope is not None and scope.cancel_called and raised_late(error):
                return timed_out(tool, error)
            return self.raised(error, tool)
        finally:
            context.give_up()
            if self.children is not None:
                self.children.close()
                self.children = None

    def invoke(self, tool: Tool, context: ToolContext, arguments: dict[str, Any]) -> Awaitable[Any]:
        """Call the tool: async in place, sync in a daemon thread (X3); the arguments it may change are its own."""
        arguments = copied(arguments)
        if tool.is_async:
            return _Watched(tool.invoke(context, arguments), self.blocked)
        return self.threaded(tool, context, arguments)

    async def threaded(self, tool: Tool, context: ToolContext, arguments: dict[str, Any]) -> Any:
        """Call a sync tool in a daemon thread (X3); what it returns may have to be awaited."""
        function = partial(tool.invoke, context, arguments)
        value = await self.agent.harness.threads.run(function, on_late=self.late)
        return await value if isawaitable(value) else value

    def raised(self, exc: BaseException, tool: Tool) -> Outcome:
        """An exception is an error result; a cancellation that nobody asked for is the tool's fault (C7, X2)."""
        if isinstance(exc, anyio.get_cancelled_exc_class()):
            self.agent.hooks.faults.write(tool.name, "tool", exc, self.agent.session, "contained")
            text = "the tool cancelled itself; its outcome is unknown, it may have run"
            return error_outcome("OUTCOME_UNKNOWN", text, name="CancelledError")
        if isinstance(exc, InvalidArguments):
            return error_outcome(exc.code, describe(exc), name=type(exc).__name__)
        return failure(exc, tool.effect)

    async def nested(self, name: str, arguments: dict[str, Any]) -> Outcome:
        """The tool calls another one (X7)."""
        from .nested import Children

        self.agent.check_thread()
        if self.children is None:
            self.children = Children(self.agent, self.call)
        return await self.children.call(name, arguments)

    def progress(self, text: str) -> None:
        """Show a line to whoever watches; may come from the tool's thread."""
        self.agent.harness.call_in_loop(self.agent.show, ToolProgress(self.call.call_id, clean(text)[0]))

    def blocked(self, seconds: float) -> None:
        """Report an async tool that held the event loop (X3)."""
        error = TimeoutError(f"the async tool held the event loop for {seconds * 1000:.0f} ms; make it sync or await")
        self.agent.hooks.faults.write(self.call.name, "tool", error, self.agent.session, "contained")

    def late(self, result: Any) -> None:
        """Note what a thread returned after its call was given up (C2)."""
        error = ToolErrorInfo(type(result).__name__, "TOOL_ERROR") if isinstance(result, BaseException) else None
        if self.agent.status != "disposed":
            call = self.call
            self.agent.session.append(ToolLate(turn=call.turn, step=call.step, call_id=call.call_id, error=error))


def not_started(decision: str | None = None) -> Outcome:
    """The result of a call that had not begun when its turn was cancelled (C2)."""
    return error_outcome("NOT_STARTED", WORDS["NOT_STARTED"], decision=decision)


def raised_late(error: BaseException) -> bool:
    """Whether being stopped may have led to an error: a ToolError is the tool's own answer, also then."""
    return isinstance(error, Exception) and not isinstance(error, ToolError)


def timed_out(tool: Tool, error: BaseException | None = None) -> Outcome:
    """The result of a call that passed its tool's timeout (X4), and of what it raised when it was stopped."""
    text = f"the tool took longer than {tool.timeout_s:g} s and was stopped"
    if tool.effect != "read_only":
        text += "; it may have run, at least in part"
    if error is not None:
        text += f"; then it raised {type(error).__name__}: {describe(error)}"
    return error_outcome("TIMEOUT", text)


def _any_vote(vote: Any) -> None:
    """Every Deny, Ask and Allow counts."""


class _Watched(Struct, eq=False):
    """Awaits a coroutine and reports each step of it that holds the event loop longer than `threads.BLOCKED_S`."""

    inner: Awaitable[Any]
    report: Callable[[float], None]

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self.inner.__await__()
        send = getattr(steps, "send", None) or (lambda _: next(steps))
        sent: Any = None
        error: BaseException | None = None
        while True:
            began = perf_counter()
            try:
                if error is not None:
                    failure_, error = error, None
                    out = steps.throw(failure_)
                else:
                    out = send(sent)
            except StopIteration as stop:
                return stop.value
            finally:
                if (held := perf_counter() - began) > threads.BLOCKED_S:
                    self.report(held)
            try:
                sent = yield out
            except BaseException as exc:
                error = exc
