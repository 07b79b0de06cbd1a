"""`checkrein chat`: a conversation in the terminal, line by line. Not a full-screen program.

While a turn runs, a line steers it, and a line behind `>` waits for a turn of its own; Ctrl-C cancels the
turn and not the program. Lines are read in a daemon thread, so that typing never holds the event loop.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from .approve import Terminal, TerminalApprover
from .modes import hands_over_lines, is_terminal, modes, restore
from .opening import Wanted, agent_options

if TYPE_CHECKING:
    import anyio
    from anyio.abc import TaskGroup

    from checkrein.agents import AgentLike, Receipt

    from .follow import Follower
    from .opening import Opened
    from .streams import Streams

__all__ = ["Lines", "chat"]

PROMPT = "> "
VIOLATED = 8
HELP = """\
Enter          send; while a turn runs, steer it
> TEXT, /queue TEXT   while a turn runs: keep TEXT for a turn of its own
Ctrl-C         cancel the turn; once more while it does not stop: leave at once
/status        session, model, what is pending, what was used
/model         which model answers
/hooks         each hook, its plugins, and what they cost so far
/help          this
/quit, Ctrl-D  end"""


@click.command()
@agent_options
def chat(**options: Any) -> None:
    """Talk to an agent in the terminal."""
    import anyio

    sys.exit(anyio.run(_chat, Wanted(**options)))


async def _chat(wanted: Wanted) -> int:
    import anyio

    from .opening import Closing, opened
    from .signals import EXIT_SIGNAL, Signals
    from .streams import Streams

    streams = Streams()
    if sys.stdin is None:
        raise click.UsageError("expected a terminal or lines on standard input, it is closed")
    lines = Lines(sys.stdin.isatty())
    talk = Chat(streams, lines)
    # A question that nobody sees is not asked: the next line would answer it.
    approver = TerminalApprover(lines) if lines.terminal and is_terminal(sys.stderr) else None
    ended = False
    with lines, anyio.CancelScope() as program:

        def on_signal(signum: int) -> None:
            if not talk.interrupted(signum):
                program.cancel()

        with Signals(on_signal, talk.save) as signals:
            talk.calm = signals.heard
            async with opened(wanted, streams, approver) as found:
                closing = Closing(found)
                await talk.run(found)
                ended = True
            if found.agent.session.state.inputs and not closing.tell(streams):
                return VIOLATED
    if not ended or talk.terminated:
        return EXIT_SIGNAL
    return 1 if streams.gone else 0


class Lines(Terminal):
    """Lines of standard input, read in a daemon thread; also the terminal that approvals are answered at.

    A line is read only when `more()` asked for it: at the end no read is left that would keep the terminal. A
    line that is begun while an approval waits is its answer.

    Attributes:
        terminal: whether standard input is one.
        prompt: what the next line is asked for with.
    """

    def __init__(self, terminal: bool) -> None:
        super().__init__(sys.stdin.fileno() if terminal else -1)
        self.terminal = terminal
        self.prompt = ""
        self._ended = False
        self._listener = _Mailbox()
        self._approval = _Mailbox()
        self._wanted = threading.Semaphore(0)
        self._post: Callable[[Callable[[], object]], bool] | None = None
        self._modes: Any = None
        self._asked = 0  # how many questions were shown
        self._editing = False  # readline holds a line that is begun
        self._half_typed = ""  # what that line was when the last question was shown
        self._stale = False  # it was whole by then, and not handed over yet

    def __enter__(self) -> Lines:
        from checkrein.threads import loop_post

        if self.terminal:
            self._modes = modes()
            try:
                import readline  # input() edits lines with it
            except ImportError:
                pass
            else:
                readline.set_startup_hook(self._begun)
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")  # one bad byte is not the end of the input
        self._post = loop_post()
        threading.Thread(target=self._read, name="checkrein-lines", daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        restore(self._modes)

    def more(self) -> None:
        """Ask for one more line."""
        self._wanted.release()

    async def next(self) -> str | None:
        """Wait for a line of the conversation; None at the end of input."""
        return None if self._ended else await self._listener.take()

    async def read_line(self) -> str | None:
        """Wait for an approval's answer; None at the end of input."""
        return None if self._ended else await self._approval.take()

    def forget_input(self) -> None:
        """Drop what nobody has read; what is read or half typed already will steer the turn."""
        super().forget_input()
        if self._editing:
            import readline

            self._half_typed = readline.get_line_buffer()
            # Readline ends without Python's lock: it may have put the terminal back and wait to hand its line over.
            self._stale = hands_over_lines(self._fd)
        self._asked += 1

    def _begun(self) -> None:
        self._editing = True  # only now is readline's buffer empty

    def _read(self) -> None:
        assert self._post is not None
        line: str | None = ""
        editing = self.terminal and sys.stdout is not None and sys.stderr is not None  # input() needs all three
        while line is not None:
            self._wanted.acquire()
            try:
                line = input(self.prompt) if editing else sys.stdin.readline() or None
            except (EOFError, OSError, ValueError):
                line = None
            asked = self._asked  # before the end of editing is told: a question in between looks at the line
            self._editing = False
            if not self._post(partial(self._deliver, line, asked)):
                return

    def _deliver(self, line: str | None, asked: int) -> None:
        begun = self._stale or (self._half_typed and line is not None and line.startswith(self._half_typed))
        self._half_typed, self._stale = "", False
        if line is None:
            self._ended = True
            self._approval.put(None)
            self._listener.put(None)
        elif self._approval.awaited and asked == self._asked and not begun:
            self._approval.put(line)
            self.more()  # this one was asked for by the conversation
        else:
            self._listener.put(line)


class _Mailbox:
    """Holds one line for whoever waits."""

    def __init__(self) -> None:
        self._line: str | None = None
        self._arrived: anyio.Event | None = None

    @property
    def awaited(self) -> bool:
        return self._arrived is not None

    async def take(self) -> str | None:
        import anyio

        arrived = self._arrived = anyio.Event()
        try:
            await arrived.wait()
        finally:
            self._arrived = None
        return self._line

    def put(self, line: str | None) -> None:
        self._line = line
        if self._arrived is not None:
            self._arrived.set()
            self._arrived = None  # the next line is another's


class Chat:
    """The conversation: lines in, the agent's doings out.

    Attributes:
        terminated: whether a SIGTERM ended it.
        calm: told when what a signal asked for is done.
    """

    def __init__(self, streams: Streams, lines: Lines) -> None:
        self.terminated = False
        self.calm: Callable[[], None] = lambda: None
        self._streams = streams
        self._lines = lines
        self._agent: AgentLike | None = None
        self._spoken: set[str] = set()
        self._tasks: TaskGroup | None = None

    async def run(self, found: Opened) -> None:
        """Talk until the user ends it."""
        import anyio

        from .follow import Follower

        agent = self._agent = found.agent
        if self._lines.terminal:
            turns = agent.session.state.turn
            so_far = f", {turns} turns so far" if turns else ""
            self._streams.note(f"agent {agent.id}, session {agent.session.id}{so_far}; /help shows the commands")
        follower = Follower(agent, len(agent.session.events))
        try:
            async with anyio.create_task_group() as group:
                self._tasks = group
                group.start_soon(self._follow, follower)
                await self._listen(agent)
                group.cancel_scope.cancel()
        finally:
            follower.close()

    def interrupted(self, signum: int) -> bool:
        """Act on a first signal; return False if there is no conversation yet."""
        import signal

        from checkrein.events import Cause

        agent = self._agent
        if agent is None or self._tasks is None:
            return False
        if signum == signal.SIGTERM:
            self.terminated = True
            agent.cancel(Cause("signal"))
            self._tasks.cancel_scope.cancel()
        elif agent.session.state.turn_open:
            agent.cancel(Cause("user"))
            if waiting := len(agent.pending):
                self._streams.note(f"{waiting} inputs wait; they go with your next line")
        else:
            self._streams.note("nothing runs; Ctrl-D or /quit ends the chat")
            self.calm()
        return True

    def save(self) -> None:
        """The process is about to be left: close the turn and save it."""
        from .signals import save

        save(self._agent)

    async def _follow(self, follower: Follower) -> None:
        from checkrein import events as ev

        from .streams import Progress

        progress = Progress(self._streams, self._spoken, answers=True)
        while True:
            for item in follower.ready():
                progress.show(item)
                if type(item) is ev.TurnEnd:
                    self.calm()
                    if self._lines.terminal:  # the line is being read already, without a prompt
                        self._streams.out(PROMPT)
            await follower.wait()

    # --- lines ------------------------------------------------------------------------------------

    async def _listen(self, agent: AgentLike) -> None:
        """Take lines until the end; from a terminal also while a turn runs, from a pipe one turn after the other."""
        from checkrein.events import Cause

        while True:
            self._lines.prompt = PROMPT if agent.status != "running" else ""
            self._lines.more()
            line = await self._lines.next()
            if line is None or (text := line.strip()) in ("/quit", "/exit"):
                agent.cancel(Cause("user", reason="the chat ended"))  # nothing happens if no turn runs
                await agent.idle()
                return
            if text:
                self._say(agent, text)
            if not self._lines.terminal:
                await agent.idle()

    def _say(self, agent: AgentLike, text: str) -> None:
        from checkrein.errors import AgentError

        from .show import brief

        running = agent.status == "running"
        command, _, rest = text.partition(" ")
        tell = {"/help": lambda _: HELP, "/status": _status, "/model": _model, "/hooks": _hooks}.get(command)
        if tell is not None:
            self._streams.note(tell(agent))
            return
        queued = command == "/queue" or (running and text.startswith(">"))
        if queued:
            text = (rest if command == "/queue" else text[1:]).strip()
        elif text.startswith("/"):
            self._streams.note(f"expected one of /help, /status, /model, /hooks, /queue, /quit; got {brief(command)}")
            return
        try:
            receipt = agent.send(text) if queued else agent.steer(text)
        except (AgentError, ValueError) as error:
            self._streams.note(str(error))
            return
        self._spoken.add(receipt.id)
        if running and self._tasks is not None:
            self._tasks.start_soon(self._acknowledge, receipt, "queued for a turn of its own" if queued else "steering")

    async def _acknowledge(self, receipt: Receipt, words: str) -> None:
        """Say what becomes of an input, once it is kept (I4)."""
        from checkrein.errors import GateClosed

        try:
            await receipt.durable()
        except GateClosed as error:
            words = str(error)
        self._streams.note(words)


def _status(agent: AgentLike) -> str:
    from .show import brief, content_words, usage_text

    lines = [f"agent {agent.id} ({agent.status}), session {agent.session.id}, {_model(agent)}"]
    lines += [f"pending {entry.id} ({entry.kind}): {brief(content_words(entry.content))}" for entry in agent.pending]
    if usage := usage_text(agent.session.state.usage):
        lines.append(usage)
    return "\n".join(lines)


def _model(agent: AgentLike) -> str:
    provider, model = agent.harness.providers.resolve(agent.spec.model)
    return f"model {provider.name}:{model}"


def _hooks(agent: AgentLike) -> str:
    from .plugins import hook_rows, hook_table

    harness = agent.harness
    deadlines = harness.config.limits.deadlines()
    return hook_table(hook_rows(harness.plugins, accounts=harness.hooks.accounts(), deadlines=deadlines))
