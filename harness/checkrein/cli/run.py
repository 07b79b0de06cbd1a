"""`checkrein run`: one turn. The answer on standard output, what happens on standard error, how it went as exit code.

The main path is `_run`; what is shown is streams.py, which session it is opening.py.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from .opening import Wanted, agent_options

if TYPE_CHECKING:
    from checkrein.agents import AgentLike
    from checkrein.results import TurnResult

    from .follow import Follower
    from .opening import Opened
    from .streams import JsonLines, Progress, Streams

__all__ = ["NEEDED_APPROVAL", "run", "turn_code"]

MAX_PROMPT_BYTES = 64 << 20
NEEDED_APPROVAL = 6
VIOLATED = 8


@click.command()
@click.argument("prompt", required=False)
@agent_options
@click.option("--max-steps", type=click.IntRange(min=0), metavar="N", help="Steps the turn may take; 0 = no limit.")
@click.option("--json", "as_json", is_flag=True, help="Print every event and delta as JSON Lines.")
def run(prompt: str | None, max_steps: int | None, as_json: bool, **options: Any) -> None:
    """Run one turn and print the answer.

    PROMPT is the input; without it, or as -, it is read from standard input.
    """
    import anyio

    text = _stdin() if prompt in (None, "-") else prompt
    if not text or not text.strip():
        raise click.UsageError("expected a prompt, got nothing; give it as an argument or on standard input")
    sys.exit(anyio.run(_run, text, max_steps, as_json, Wanted(**options)))


async def _run(text: str, max_steps: int | None, as_json: bool, wanted: Wanted) -> int:
    import anyio

    from .approve import terminal_approver
    from .opening import Closing, opened
    from .options import aside
    from .signals import EXIT_SIGNAL, Signals
    from .streams import Streams

    streams = Streams()
    turn = _Turn(streams, as_json)
    approver = terminal_approver()
    with anyio.CancelScope() as starting:

        def on_signal(signum: int) -> None:
            turn.cancel() if turn.agent is not None else starting.cancel()

        with Signals(on_signal, turn.save), aside():
            async with opened(wanted, streams, approver) as found:
                closing = Closing(found)
                result = await turn.run(found, text, max_steps)
            balanced = closing.tell(streams)
            code = turn_code(result)
            if not balanced:
                return VIOLATED
            return 1 if streams.gone and code == 0 else code
    return EXIT_SIGNAL  # the signal came before there was a turn


class _Turn:
    """The one turn: started, shown, and cancelled by a signal or when nobody reads any more."""

    def __init__(self, streams: Streams, as_json: bool) -> None:
        self.agent: AgentLike | None = None
        self._streams = streams
        self._as_json = as_json

    async def run(self, found: Opened, text: str, max_steps: int | None) -> TurnResult:
        """Run the turn and show it."""
        import anyio

        from .follow import Follower

        agent = self.agent = found.agent
        options = {} if max_steps is None else {"max_steps": max_steps}
        follower = Follower(agent, found.start)
        screen = self._screen(found)
        result: TurnResult | None = None
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._follow, follower, screen)
                result = await agent.run(text, **options)
                group.cancel_scope.cancel()
        finally:
            follower.close()
            self._show(follower, screen)
        assert result is not None
        self._answer(result)
        return result

    def cancel(self) -> None:
        """A signal came, or our output cannot be written any more."""
        from checkrein.events import Cause

        if self.agent is not None:
            left = Cause("user", reason="nobody takes the output")
            self.agent.cancel(left if self._streams.gone else Cause("signal"))

    def save(self) -> None:
        """The process is about to be left: close the turn and save it."""
        from .signals import save

        save(self.agent)

    def _screen(self, found: Opened) -> JsonLines | Progress:
        from .streams import JsonLines, Progress

        if self._as_json:
            return JsonLines(self._streams, found.agent.session, found.start)
        return Progress(self._streams)

    async def _follow(self, follower: Follower, screen: JsonLines | Progress) -> None:
        while True:
            self._show(follower, screen)
            await follower.wait()

    def _show(self, follower: Follower, screen: JsonLines | Progress) -> None:
        for item in follower.ready():
            screen.show(item)
        if self._streams.gone:
            self.cancel()

    def _answer(self, result: TurnResult) -> None:
        """The answer alone, whole; a terminal has seen it come, and what is cut off is no answer (M6)."""
        if self._as_json or self._streams.terminal or not result.ok:
            return
        self._streams.out(result.text if result.text.endswith("\n") else f"{result.text}\n")


def turn_code(result: TurnResult) -> int:
    """Return the exit code of a turn: its reason's, or 6 if it lacked an approval that nobody could give.

    Args:
        result: the turn's result.
    """
    from checkrein.events import ApprovalDecided
    from checkrein.results import exit_code

    reason = result.reason
    by_policy = reason.cause is not None and reason.cause.kind in ("hook", "budget")
    ended_by_itself = reason.kind in ("completed", "step_limit") or by_policy
    closed = any(type(event) is ApprovalDecided and event.outcome == "closed" for event in result.events)
    return NEEDED_APPROVAL if ended_by_itself and closed else exit_code(result)


def _stdin() -> str:
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    data = sys.stdin.buffer.read(MAX_PROMPT_BYTES + 1)
    if len(data) > MAX_PROMPT_BYTES:
        raise click.UsageError(f"expected a prompt of at most {MAX_PROMPT_BYTES >> 20} MiB on standard input, got more")
    return data.decode("utf-8", "replace")
