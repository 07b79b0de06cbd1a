"""A real agent, killed with SIGKILL: at a file operation of its store, or from outside at any moment.

    python kill_worker.py FOLDER KILLS            KILLS: first:last:step, of the file operations
    python kill_worker.py FOLDER random N SEED

For each kill a child is forked: it runs two turns with an effectful tool, writing what it was told
(acknowledgements) and what it did (effects) to files that outlive it. It prints how many died.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

import anyio

from checkrein import Harness, tool
from checkrein.testing import ScriptedModel, call
from checkrein_persistence import FileOps, JsonlStore, Plugin

SESSION = "killed"


class KillOps(FileOps):
    """Dies at the given operation: before it, in the middle of a write, or behind it."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __getattribute__(self, name: str) -> Any:
        method = super().__getattribute__(name)
        if name.startswith("_") or name in ("left", "seek", "close"):
            return method

        def operation(*args: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                if name == "write":
                    method(args[0], args[1][: len(args[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            result = method(*args)
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return operation


def say(fd: int, line: str) -> None:
    os.write(fd, line.encode() + b"\n")


def live(folder: Path, ops: FileOps) -> None:
    """Two turns, each with two payments."""
    folder.mkdir()
    effects = os.open(folder / "effects", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    told = os.open(folder / "told", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    @tool
    async def pay(amount: int) -> str:
        """Pay somebody."""
        say(effects, str(amount))
        await anyio.sleep(0)
        return f"paid {amount}"

    async def main() -> None:
        model = ScriptedModel(
            [call("pay", {"amount": 1}), call("pay", {"amount": 2})],
            "paid both",
            [call("pay", {"amount": 3})],
            [call("pay", {"amount": 4})],
            "paid all",
        )
        harness = Harness(
            tools=[pay],
            providers=[model],
            plugins=[Plugin()],
            store=JsonlStore(folder / ".checkrein", ops=ops),
            workspace=folder,
            found=(),
            overrides={"model": "scripted:x", "agents": []},
        )
        async with harness:
            from checkrein import AgentSpec

            agent = harness.agents["main"] if "main" in harness.agents else await harness.create_agent(AgentSpec())
            say(told, f"session {agent.session.id}")
            for turn in (1, 2):
                receipt = agent.send(f"turn {turn}")
                await receipt.durable()
                say(told, f"input {receipt.id}")
                result = await receipt.result()
                result.check()
                say(told, f"done {result.turn}")

    anyio.run(main)


def run(folder: Path, ops: FileOps, delay_s: float | None) -> bool:
    """Fork a life; returns whether it was killed."""
    pid = os.fork()
    if pid == 0:
        try:
            live(folder, ops)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if delay_s is not None:
        select.select([], [], [], delay_s)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    status = os.waitpid(pid, 0)[1]
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit(f"the life in {folder} failed")
    return os.WIFSIGNALED(status)


def main() -> None:
    folder = Path(sys.argv[1])
    killed = total = 0
    if sys.argv[2] == "random":
        chance = random.Random(int(sys.argv[4]))
        begin = time.monotonic()
        run(folder / "whole", FileOps(), None)
        lasts_s = time.monotonic() - begin
        for n in range(int(sys.argv[3])):
            killed += run(folder / f"random-{n}", FileOps(), chance.uniform(lasts_s / 4, lasts_s))
            total += 1
    else:
        first, last, step = map(int, sys.argv[2].split(":"))
        for at in range(first, last, step):
            total += 1
            if not run(folder / f"at-{at}", KillOps(at), None):
                break
            killed += 1
    print(killed, total)


if __name__ == "__main__":
    main()
