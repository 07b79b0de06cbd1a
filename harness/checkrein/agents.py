"""What an agent is to everybody else: the protocol a loop implements, and the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from .errors import ConfigError
from .messages import Block, Request, Source, Usage
from .results import InputStatus, TurnResult

if TYPE_CHECKING:
    from pathlib import Path

    from .events import Cause
    from .harness import Harness
    from .live import Buffer, TurnStream
    from .session import Session

__all__ = ["AgentSpec", "AgentLike", "Agents", "Approval", "Approver", "Receipt", "TurnView", "PendingInput"]


class AgentSpec(Struct, frozen=True, kw_only=True):
    """How an agent is made: the config's `[[agents]]`, or the arguments of `Agent(...)`.

    Attributes:
        id: its name, unique in the harness.
        model: `provider:model`, or `auto`.
        system_prompt: its own part of the system prompt, the last one.
        tools: names or patterns (`fs_*`) of the tools it may use; None means all.
        plugins: single keys of plugins' config, by plugin name, overriding for this agent (H6).
        max_steps: steps a turn may take; 0 = unlimited.
        max_parallel_tool_calls: at least 1.
        max_steering_extensions: times in a row steering may extend a final answer.
        inbox_max: pending inputs at most.
        queue_mode: "all" or "one" (T6).
        settings: provider-neutral request settings.
    """

    id: str = "main"
    model: str = "auto"
    system_prompt: str = ""
    tools: Sequence[str] | None = None
    plugins: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    max_steps: int = 100
    max_parallel_tool_calls: int = 4
    max_steering_extensions: int = 8
    inbox_max: int = 1_000
    queue_mode: str = "all"
    settings: dict[str, Any] = msgspec.field(default_factory=dict)


class TurnView(Struct, frozen=True):
    """The open turn as policy plugins see it; all zero between turns."""

    number: int = 0
    step: int = 0
    steps: int = 0
    calls: int = 0
    usage: Usage = msgspec.field(default_factory=Usage)


class PendingInput(Struct, frozen=True):
    """An accepted input that no turn has taken yet."""

    id: str
    kind: str
    content: Sequence[Block]
    source: Source


class Approval(Struct, frozen=True):
    """A question to a person: may this call run?

    Attributes:
        id: the approval's id in the log.
        call_id: the call it is bound to.
        tool: the tool's name.
        arguments: exactly what would run.
        summary: the guard's words.
        rule: what an `allowed_rule` answer would remember; None if that is not offered.
    """

    id: str
    call_id: str
    tool: str
    arguments: dict[str, Any]
    summary: str
    rule: str | None = None


class Approver(Protocol):
    """The service that asks a person: `harness.provide(Approver, ...)`. Without one, nobody can be asked."""

    async def decide(self, agent: AgentLike, approval: Approval) -> str:
        """Return `allowed_once`, `allowed_rule` or `denied`; anything else, or a raise, denies."""
        ...


class Receipt(Protocol):
    """The caller's hold on an accepted input (I4)."""

    @property
    def id(self) -> str:
        """The input's id, `i<n>`."""
        ...

    @property
    def status(self) -> InputStatus:
        """Where the input is now."""
        ...

    async def result(self) -> TurnResult:
        """Wait for the turn that took it, and return its result."""
        ...

    async def durable(self) -> str:
        """Wait until the acceptance is with the store; returns the store's name, or `memory`.

        Raises:
            GateClosed: the store did not take it.
        """
        ...


class AgentLike(Protocol):
    """An agent. The one in `checkrein_loop` implements it; another loop may.

    Attributes:
        id: its name.
        spec: how it was made.
        session: its log.
        harness: where it lives.
        workspace: the folder its tools work in.
    """

    id: str
    spec: AgentSpec
    session: Session
    harness: Harness
    workspace: Path

    @property
    def status(self) -> str:
        """`idle`, `running` or `disposed`."""
        ...

    @property
    def turn(self) -> TurnView:
        """The open turn, read-only."""
        ...

    @property
    def pending(self) -> list[PendingInput]:
        """Accepted input that no turn has taken, in order (I6)."""
        ...

    def send(
        self, content: str | Sequence[Block], *, source: Source = ..., key: str | None = None, **options: Any
    ) -> Receipt:
        """Queue an input and wake the agent (I1)."""
        ...

    def steer(self, content: str | Sequence[Block], *, source: Source = ..., key: str | None = None) -> Receipt:
        """Hand an input to the nearest step boundary of the running turn; on an idle agent, send it."""
        ...

    def inject(self, content: str | Sequence[Block], *, source: Source = ..., key: str | None = None) -> Receipt:
        """Add context for the next request; never wakes (I1)."""
        ...

    async def run(self, content: str | Sequence[Block], **options: Any) -> TurnResult:
        """Send an input as a turn of its own and wait for its result."""
        ...

    def stream(self, content: str | Sequence[Block], **options: Any) -> TurnStream:
        """As run, live: an async context manager that iterates over deltas and events."""
        ...

    def attach(self, buffer: Buffer) -> Callable[[], None]:
        """Feed a consumer's buffer with deltas, and wake it at each event; returns what ends it."""
        ...

    def cancel(self, cause: Cause | str = "user", *, discard_pending: bool = False) -> None:
        """Cancel the open turn; the first cause wins (C1, C4)."""
        ...

    def wake(self) -> None:
        """Take parked input now (C4)."""
        ...

    def replace(self, input_id: str, content: str | Sequence[Block]) -> None:
        """Replace a pending input's content (I6)."""
        ...

    def withdraw(self, input_id: str, reason: str = "withdrawn") -> None:
        """Withdraw a pending input (I6)."""
        ...

    def next_request(self) -> Request:
        """The request the agent would send now, without sending or logging (M1)."""
        ...

    async def idle(self) -> None:
        """Wait until nothing runs and nothing is owed."""
        ...

    async def dispose(self) -> None:
        """Stop, flush and unregister; idempotent, every caller awaits the same completion (C5)."""
        ...


class Agents:
    """The agents of a harness, by id."""

    def __init__(self) -> None:
        self._by_id: dict[str, AgentLike] = {}

    def add(self, agent: AgentLike) -> None:
        """Register an agent.

        Raises:
            ConfigError: its id is empty or taken.
        """
        if not agent.id:
            raise ConfigError("expected an agent id, got an empty one")
        if agent.id in self._by_id:
            raise ConfigError(f"an agent named {agent.id!r} exists already; give this one another id")
        self._by_id[agent.id] = agent

    def remove(self, agent: AgentLike) -> None:
        """Unregister an agent; nothing happens if it is not there."""
        if self._by_id.get(agent.id) is agent:
            del self._by_id[agent.id]

    def __getitem__(self, agent_id: str) -> AgentLike:
        from .nearest import did_you_mean

        try:
            return self._by_id[agent_id]
        except KeyError:
            known = ", ".join(self._by_id) or "(none)"
            raise ConfigError(
                f"expected one of the agents {known}, got {agent_id!r}{did_you_mean(agent_id, self._by_id)}"
            ) from None

    def __contains__(self, agent_id: object) -> bool:
        return agent_id in self._by_id

    def __iter__(self) -> Iterator[AgentLike]:
        return iter(list(self._by_id.values()))

    def __len__(self) -> int:
        return len(self._by_id)
