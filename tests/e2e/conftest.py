"""The command line as a user has it: in a process of its own, in a folder of its own, with or without a terminal."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from checkrein.errors import ConfigError

sys.path.insert(0, str(Path(__file__).parent))

TIMEOUT_S = 60.0

TOOLS = '''
import threading
from checkrein import ToolContext, hookimpl, tool

@tool(read_only=True)
async def slow(context: ToolContext) -> str:
    """Never ends by itself."""
    import anyio
    context.progress("slow has begun")
    await anyio.sleep_forever()

@tool
def deaf(context: ToolContext) -> str:
    """Begins, and never looks up."""
    context.progress("deaf has begun")
    threading.Event().wait()

@tool
def write_note(text: str, context: ToolContext) -> str:
    """Write a note."""
    (context.workspace / "note.txt").write_text(text)
    return "written"

@tool(read_only=True)
def dirty() -> str:
    """Returns what no JSON can carry."""
    return "half a pair: \\ud83d."

class Plugin:
    @hookimpl
    def register_tools(self):
        return [slow, deaf, write_note, dirty]
'''


@dataclass(frozen=True)
class Done:
    """What a process left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Standard output as JSON Lines."""
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass
class Cli:
    """Runs `checkrein` in a folder, without a terminal, with a clean environment."""

    folder: Path
    site: Path
    home: Path
    command: tuple[str, ...] = (sys.executable, "-m", "checkrein")
    env: dict[str, str] = field(default_factory=dict)
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    terminals: list[int] = field(default_factory=list)

    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT") if name in os.environ}
        paths = os.pathsep.join([str(self.site), *filter(None, [os.environ.get("PYTHONPATH")])])
        return {**kept, "HOME": str(self.home), "PYTHONPATH": paths, "TERM": "dumb", "NO_COLOR": "1", **self.env}

    def start(
        self, *args: str | bytes, command: tuple[str, ...] | None = None, **options: Any
    ) -> subprocess.Popen[bytes]:
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        process = subprocess.Popen(
            [*(command or self.command), *args],
            cwd=self.folder,
            env=self.environment(),
            start_new_session=True,
            **options,
        )
        self.running.append(process)
        return process

    def run(self, *args: str | bytes, stdin: bytes | None = None) -> Done:
        options = {} if stdin is None else {"stdin": subprocess.PIPE}
        process = self.start(*args, **options)
        out, err = process.communicate(stdin, timeout=TIMEOUT_S)
        return Done(process.returncode, out.decode(), err.decode())

    def config(self, text: str, *, trusted: bool = True) -> None:
        """Write the project's file; it is the user's own unless it is not to be `trusted`."""
        from checkrein.config import load_config
        from checkrein.config.trust import trust

        file = self.folder / "checkrein.toml"
        file.write_text(text, encoding="utf-8")
        with suppress(ConfigError):  # the command itself is to say what is wrong
            if trusted:
                trust(load_config(file, environ={}), self.environment())

    def script(self, *turns: str, more: str = "") -> None:
        """A config whose model plays these turns, TOML each."""
        joined = ",\n".join(turns)
        self.config(f'model = "scripted:script"\n{more}\n[plugins.scripted]\nturns = [\n{joined}\n]\n')

    def install(self, name: str, source: str, module: str | None = None) -> None:
        """Make a plugin distribution of one module that the command finds by its metadata."""
        module = module or f"e2e_{name}"
        (self.site / f"{module}.py").write_text(source, encoding="utf-8")
        info = self.site / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module.replace('_', '-')}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[checkrein.plugins]\n{name} = {module}:Plugin\n")

    @property
    def logs(self) -> list[Path]:
        """The logs of all sessions, oldest first."""
        return sorted(
            (self.folder / ".checkrein" / "sessions").glob("*/log.jsonl"), key=lambda log: log.stat().st_mtime
        )

    def events(self) -> list[dict[str, Any]]:
        """The events of the only session."""
        (log,) = self.logs
        return [json.loads(line) for line in log.read_bytes().splitlines()]

    def pty(self, *args: str) -> Pty:
        """Start the command at a pseudo-terminal of its own."""
        import fcntl
        import pty
        import termios

        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [*self.command, *args],
            cwd=self.folder,
            env=self.environment(),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self.running.append(process)
        self.terminals.append(ours)
        return Pty(ours, process)

    def screen(self, fd: int, process: subprocess.Popen[bytes]) -> Pty:
        """Watch any output of a process as if it were a terminal."""
        return Pty(fd, process)


@dataclass
class Pty:
    """The person at the terminal."""

    fd: int
    process: subprocess.Popen[bytes]
    seen: str = ""

    def expect(self, text: str) -> str:
        """Wait until the screen shows a text; what came before it is taken off."""
        assert self.sees(text), f"expected {text!r} on the screen, got {self.seen!r}"
        before, _, self.seen = self.seen.partition(text)
        return before

    def sees(self, text: str) -> bool:
        """Wait until the screen shows a text; False if the process ends without it."""
        until = time.monotonic() + TIMEOUT_S
        while text not in self.seen:
            if not self._read(until - time.monotonic()):
                return False
        return True

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def end(self) -> int:
        """Wait for the end of the process, reading on; return its exit code."""
        until = time.monotonic() + TIMEOUT_S
        while self._read(until - time.monotonic()):
            pass
        return self.process.wait(TIMEOUT_S)

    def _read(self, left_s: float) -> bool:
        if left_s <= 0 or not select.select([self.fd], [], [], left_s)[0]:
            return False
        try:
            data = os.read(self.fd, 65_536)
        except OSError:  # the other side is closed
            return False
        self.seen += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(data)


@contextmanager
def cli_in(folder: Path) -> Iterator[Cli]:
    """The command line in an empty folder below this one, with the tools slow, deaf, write_note and dirty installed."""
    folders = [folder / name for name in ("work", "site", "home")]
    for folder in folders:
        folder.mkdir()
    made = Cli(*folders)
    made.install("e2e_tools", TOOLS)
    yield made
    for process in made.running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    for fd in made.terminals:
        os.close(fd)


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    """The command line in an empty folder of the test's own."""
    with cli_in(tmp_path) as made:
        yield made


@pytest.fixture(scope="session")
def new_cli() -> Callable[[Path], AbstractContextManager[Cli]]:
    """Make command lines, each in a folder of its own."""
    return cli_in
