"""Every hook of checkrein, in the order a run meets them. Implement any subset, with any subset of the arguments.

    from checkrein import hookimpl

    class Plugin:
        @hookimpl
        def tools_guard(self, agent, call): ...

Kind, failure policy, deadline and colour of each hook are the data in SPECS (H1); the dispatcher is
hooks.py. Implementations are async or sync alike where the colour says "any".
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import pluggy
from msgspec import Struct

if TYPE_CHECKING:
    from .agents import AgentLike
    from .calls import Call, Outcome, Proceed
    from .chunks import Chunk
    from .decisions import ContinuationVote, GuardVote, Retry
    from .errors import ProviderError
    from .events import AnyEvent, PluginFaulted
    from .eventtypes import EventType
    from .harness import Harness
    from .messages import AssistantMessage, Request
    from .owner import TaskStarter
    from .prompt import Section
    from .providers import Provider
    from .session import Session
    from .store import Store
    from .tools import Tool

__all__ = ["hookimpl", "hookspec", "HookInfo", "SPECS", "HookSpecs"]

PROJECT = "checkrein"  # the marks of pluggy carry it

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class HookInfo(Struct, frozen=True):
    """A hook's contract as data.

    Attributes:
        kind: fold, around, vote, first, observe, gather, lifespan or collect.
        on_fault: what happens when a plugin raises or passes its deadline.
        deadline_s: seconds an async implementation may take; None where it has no deadline.
        colour: "any" (sync or async) or "sync".
        value: the argument a fold hands on.
    """

    kind: str
    on_fault: str
    deadline_s: float | None = None
    colour: str = "any"
    value: str | None = None


SPECS: dict[str, HookInfo] = {
    # start-up
    "register_events": HookInfo("collect", "start fails, or the found plugin is skipped", colour="sync"),
    "register_stores": HookInfo("collect", "start fails, or the found plugin is skipped", colour="sync"),
    "register_providers": HookInfo("collect", "start fails, or the found plugin is skipped", colour="sync"),
    "register_tools": HookInfo("collect", "start fails, or the found plugin is skipped", colour="sync"),
    "prompt_sections": HookInfo("collect", "start fails, or the found plugin is skipped", colour="sync"),
    "lifespan": HookInfo("lifespan", "start: start fails, or the found plugin is skipped; stop: contained", 30.0),
    "agent_created": HookInfo("observe", "contained", 10.0),
    # a step
    "agent_request": HookInfo("fold", "the turn ends: error, kind plugin", 60.0, value="request"),
    "stream_chunk": HookInfo("observe", "contained", colour="sync"),
    "request_error": HookInfo("first", "as None, plus a fault", 30.0),
    "step_result": HookInfo("fold", "the turn ends: error, kind plugin", 60.0, value="message"),
    "tools_execute": HookInfo("around", "the call is refused, or its result withheld", 60.0),
    "tools_guard": HookInfo("vote", "the call is refused", 60.0),
    "turn_continuation": HookInfo("vote", "the turn ends: error, kind plugin", 60.0),
    # at any time
    "session_event": HookInfo("observe", "contained", colour="sync"),
    "session_flush": HookInfo("gather", "the gate is closed; at turn end: contained", 30.0),
    "agent_status": HookInfo("observe", "contained", colour="sync"),
    "plugin_fault": HookInfo("observe", "contained", colour="sync"),
    "agent_disposed": HookInfo("observe", "contained", 10.0),
}


class HookSpecs:
    """The signatures."""

    # --- start-up: each is called once, in plugin order -------------------------------------------

    @hookspec
    def register_events(self, harness: Harness) -> Iterable[EventType] | None:
        """Return the event types this plugin appends, with their balance rules (L6).

        Called when: all plugins are registered, before anything else.
        """

    @hookspec
    def register_stores(self, harness: Harness) -> Iterable[Store] | None:
        """Return stores by name; the one the config names keeps the sessions.

        Called when: after register_events.
        """

    @hookspec
    def register_providers(self, harness: Harness) -> Iterable[Provider] | None:
        """Return model providers.

        Called when: after register_stores.
        """

    @hookspec
    def register_tools(self, harness: Harness) -> Iterable[Tool] | None:
        """Return tools; a duplicate name fails the start naming both (H4).

        Called when: after register_providers.
        """

    @hookspec
    def prompt_sections(self, harness: Harness) -> Iterable[Section] | None:
        """Return sections of the system prompt, in ascending order; the agent's own prompt comes last (M1).

        Called when: after register_tools.
        A section's function is asked before each request; one that fails ends the turn: error, kind plugin.
        """

    @hookspec
    def lifespan(self, harness: Harness, tasks: TaskStarter) -> AbstractAsyncContextManager[Any] | None:
        """Return an async context manager that lives as long as the harness.

        Called when: after all collecting hooks, in plugin order; left in reverse order with a deadline.
        Owes: whatever is opened before its yield is closed after it.
        `tasks.start(fn, *args)` runs a supervised task.
        """

    @hookspec
    def agent_created(self, agent: AgentLike) -> None | Awaitable[None]:
        """Observe a new or resumed agent.

        Called when: the agent is registered, before its first turn. Pair: agent_disposed.
        """

    # --- a step, in order ---------------------------------------------------------------------------

    @hookspec
    def agent_request(
        self, agent: AgentLike, turn: int, step: int, request: Request
    ) -> Request | None | Awaitable[Request | None]:
        """Return the request to send instead, or None to leave it.

        Called when: before each model request; each implementation receives what the one before returned.
        """

    @hookspec
    def stream_chunk(self, agent: AgentLike, turn: int, step: int, chunk: Chunk) -> None:
        """Observe a chunk of the stream, live.

        Called when: each chunk arrives, before it is assembled. Sync only.
        """

    @hookspec
    def request_error(
        self, agent: AgentLike, turn: int, step: int, error: ProviderError, attempt: int
    ) -> Retry | None | Awaitable[Retry | None]:
        """Return Retry to send the request again, or None; the first answer wins.

        Called when: an attempt failed, was torn or timed out.
        """

    @hookspec
    def step_result(
        self, agent: AgentLike, turn: int, step: int, message: AssistantMessage
    ) -> AssistantMessage | None | Awaitable[AssistantMessage | None]:
        """Return the answer to log and act on instead, or None; the original is logged beside it.

        Called when: the stream ended properly, before the answer is logged and its calls run.
        """

    @hookspec
    def tools_execute(self, agent: AgentLike, call: Call, proceed: Proceed) -> Awaitable[Outcome]:
        """Wrap a call: rewrite it, answer instead, or `return await proceed(call)`.

        Called when: a known tool with valid arguments is about to run. Async only.
        """
        raise AssertionError  # a specification is never called

    @hookspec
    def tools_guard(self, agent: AgentLike, call: Call) -> GuardVote | Awaitable[GuardVote]:
        """Vote Deny, Ask, Allow or None on exactly the call that will run; Deny > Ask > Allow > None.

        Called when: inside the innermost `proceed`. A guard that fails, refuses.
        """

    @hookspec
    def turn_continuation(
        self, agent: AgentLike, turn: int, step: int, decision: str
    ) -> ContinuationVote | Awaitable[ContinuationVote]:
        """Vote Stop, Continue or None; Stop > Continue > None.

        Called when: a step ended well. `decision` is the default: "continue" (calls were made or
        steering waits) or "stop".
        """

    # --- at any time ----------------------------------------------------------------------------------

    @hookspec
    def session_event(self, session: Session, event: AnyEvent) -> None:
        """Observe an event, just committed. Sync only; an append from here is committed right after (L4)."""

    @hookspec
    def session_flush(self, session: Session, gate: str) -> None | Awaitable[None]:
        """Make the events so far durable (R4); `gate` is input, request, call, approval or turn_end."""

    @hookspec
    def agent_status(self, agent: AgentLike, status: str) -> None:
        """Observe a status: idle, running or disposed. Sync only."""

    @hookspec
    def plugin_fault(self, fault: PluginFaulted) -> None:
        """Observe another plugin's failure (H2: never one's own). Sync only."""

    @hookspec
    def agent_disposed(self, agent: AgentLike) -> None | Awaitable[None]:
        """Observe that an agent is gone; its log is flushed.

        Called when: after the last flush, before the agent is unregistered. Pair: agent_created.
        """
