"""The budget of a turn: steps, calls, tokens, time, and going round in circles. Every limit is off unless set.

A limit that is passed refuses further calls and ends the turn at the next step boundary, naming the
limit and what was used; time also cancels what runs. What was done keeps its results, and the next
turn has a budget of its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct, field

from checkrein.calls import Call
from checkrein.decisions import Deny, Stop
from checkrein.events import Cause
from checkrein.hookspecs import hookimpl

from .repeats import Steps, find_circle

if TYPE_CHECKING:
    from checkrein.agents import AgentLike
    from checkrein.messages import Usage
    from checkrein.owner import TaskStarter

__all__ = ["NAME", "Plugin"]

NAME = "budget"


class _Turn(Struct):
    """The open turn: its steps; and what the log does not say: when it began, what was let through, its clock."""

    number: int
    began: float
    steps: Steps
    admitted: set[str] = field(default_factory=set)
    refused: int = 0
    watch: anyio.CancelScope | None = None


class Plugin:
    """Ends turns that use too much, or get nowhere."""

    required = True  # a limit that is not there must not go unnoticed (H5)

    class Config(Struct, frozen=True):
        """`[plugins.budget]`; 0 is no limit, all limits are for one turn.

        Attributes:
            max_steps: steps; unlike the agent's own max_steps the ending is a budget's.
            max_calls: tool calls that may run.
            max_tokens: tokens of all its requests: input, cached input and output.
            max_time_s: seconds from its first request.
            max_repeats: how often the same steps may come in a row with the same results; 0 or at least 2.
            max_period: how many steps such a block may have, at least 1.
            max_malformed: steps in a row whose calls name no tool or have unusable arguments.
            polling: patterns of tools that may be called again and again.
        """

        max_steps: int = 0
        max_calls: int = 0
        max_tokens: int = 0
        max_time_s: float = 0.0
        max_repeats: int = 5
        max_period: int = 4
        max_malformed: int = 5
        polling: tuple[str, ...] = ()

        def __post_init__(self) -> None:
            for name in ("max_steps", "max_calls", "max_tokens", "max_time_s", "max_malformed"):
                if not getattr(self, name) >= 0:  # neither is nan, a limit that nothing ever passes
                    raise ValueError(f"{name}: expected 0 (no limit) or more, got {getattr(self, name)}")
            if self.max_repeats < 0 or self.max_repeats == 1:
                raise ValueError(f"max_repeats: expected 0 (no limit) or at least 2, got {self.max_repeats}")
            if not 1 <= self.max_period <= 20:
                raise ValueError(f"max_period: expected 1 to 20 steps, got {self.max_period}")

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or self.Config()
        self._turns: dict[str, _Turn] = {}
        self._tasks: TaskStarter | None = None

    @hookimpl
    def lifespan(self, tasks: TaskStarter) -> AbstractAsyncContextManager[None]:
        """Take the tasks that watch the clock."""
        return self._with(tasks)

    @asynccontextmanager
    async def _with(self, tasks: TaskStarter) -> AsyncIterator[None]:
        self._tasks = tasks
        yield
        self._tasks = None

    @hookimpl
    def agent_request(self, agent: AgentLike, turn: int) -> None:
        """Note when the turn's first request goes out, and watch its clock."""
        if (known := self._turns.get(agent.id)) is not None and known.number == turn:
            return
        self._forget(agent)
        config = self._config(agent)
        steps = Steps(polling=config.polling, position=len(agent.session))
        self._turns[agent.id] = opened = _Turn(turn, anyio.current_time(), steps)
        if config.max_time_s and self._tasks is not None:
            self._tasks.start(self._watch, agent, opened, config.max_time_s)

    @hookimpl
    def agent_status(self, agent: AgentLike, status: str) -> None:
        """Stop watching when nothing runs."""
        if status != "running":
            self._forget(agent)

    @hookimpl
    def tools_guard(self, agent: AgentLike, call: Call) -> Deny | None:
        """Refuse calls beyond the budget."""
        config, turn = self._config(agent), self._turns.get(agent.id)
        if turn is None:
            return None
        if stop := _spent(agent, config, turn):
            return Deny(f"{stop.reason}: no further calls in this turn")
        if config.max_calls and call.call_id not in turn.admitted and len(turn.admitted) >= config.max_calls:
            turn.refused += 1
            return Deny(f"the budget of {config.max_calls} calls in one turn is used up")
        turn.admitted.add(call.call_id)
        return None

    @hookimpl
    def turn_continuation(self, agent: AgentLike) -> Stop | None:
        """End the turn when a limit is passed, or when it gets nowhere."""
        config, turn = self._config(agent), self._turns.get(agent.id)
        if turn is None:
            return None
        if stop := _spent(agent, config, turn):
            return stop
        if turn.refused:
            used = len(turn.admitted) + turn.refused
            return _stop("calls", config.max_calls, used)
        if config.max_steps and (steps := agent.turn.steps) >= config.max_steps:
            return _stop("steps", config.max_steps, steps)
        if not config.max_repeats and not config.max_malformed:
            return None
        turn.steps.catch_up(agent.session.events)
        return self._circling(turn.steps, config)

    def _circling(self, steps: Steps, config: Config) -> Stop | None:
        if config.max_malformed and steps.malformed >= config.max_malformed:
            reason = f"{steps.malformed} steps in a row made no call that any tool could take"
            return Stop(reason, "malformed", config.max_malformed, steps.malformed)
        if config.max_repeats and (circle := find_circle(steps.digests, config.max_period, config.max_repeats)):
            block = "the same step" if circle.period == 1 else f"the same {circle.period} steps"
            reason = f"{block} came {circle.times} times in a row with the same results"
            return Stop(reason, "repeats", config.max_repeats, circle.times)
        return None

    async def _watch(self, agent: AgentLike, turn: _Turn, limit_s: float) -> None:
        """Cancel the turn when its time is up, whatever it waits for."""
        with anyio.CancelScope() as turn.watch:
            await anyio.sleep(turn.began + limit_s - anyio.current_time())
            if agent.turn.number == turn.number:
                used = anyio.current_time() - turn.began
                reason = _words("time_s", limit_s, used)
                agent.cancel(Cause("budget", plugin=NAME, reason=reason, which="time_s", limit=limit_s, used=used))

    def _forget(self, agent: AgentLike) -> None:
        turn = self._turns.pop(agent.id, None)
        if turn is not None and turn.watch is not None:
            turn.watch.cancel()

    def _config(self, agent: AgentLike) -> Config:
        if not agent.spec.plugins.get(NAME):
            return self.config
        config: Plugin.Config = agent.harness.plugins.config_for(NAME, agent.spec)
        return config


def _spent(agent: AgentLike, config: Plugin.Config, turn: _Turn) -> Stop | None:
    """Return the stop for a budget that is gone whatever the model does next."""
    if config.max_time_s and (used := anyio.current_time() - turn.began) >= config.max_time_s:
        return _stop("time_s", config.max_time_s, used)
    if config.max_tokens and (used := _tokens(agent.turn.usage)) >= config.max_tokens:
        return _stop("tokens", config.max_tokens, used)
    return None


def _stop(budget: str, limit: float, used: float) -> Stop:
    return Stop(_words(budget, limit, used), budget, limit, used)


def _words(budget: str, limit: float, used: float) -> str:
    name, unit = ("time", " s") if budget == "time_s" else (budget, "")
    # All digits: a count in powers of ten says neither how much nor by how much.
    return f"the turn's budget of {name} is used up: {round(used, 3):.15g}{unit} of {limit:.15g}{unit}"


def _tokens(usage: Usage) -> int:
    return sum(count or 0 for count in (usage.input, usage.cache_read, usage.cache_write, usage.output))
