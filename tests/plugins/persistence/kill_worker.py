"""Lives of a real agent, a process each, killed with SIGKILL (R2-R4, X6); test_kill.py judges what they leave.

    python kill_worker.py FOLDER appends N        at N of the appends of a life, spread evenly
    python kill_worker.py FOLDER careless N GATE  the same, and what should be written at GATE is not
    python kill_worker.py FOLDER operations N     at N of its file operations: before, within or behind one
    python kill_worker.py FOLDER moments N SEED   from outside, at any moment; some of them again in their next life
    python kill_worker.py FOLDER lying WORD       with a disk that takes nothing more once WORD was written
    python kill_worker.py FOLDER once             one life in this fresh process, which says when it begins

A life's folder holds its store and three files that outlive it: `told` (each acknowledgement), `effects` (the id of
each call whose tool did its work) and `shown` (how many requests the model saw). All but `once` fork each life from
this warm process, which then has neither an event loop nor a second thread, and print how many lives were killed.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Iterable, Sequence
from pathlib import Path
from typing import Any

import anyio

from checkrein import Harness, ToolContext, hookimpl, tool
from checkrein import events as ev
from checkrein.chunks import Chunk
from checkrein.messages import Request
from checkrein.session import Session
from checkrein.store import Store
from checkrein.testing import ScriptedModel, call
from checkrein_persistence import FileOps, JsonlStore, Plugin

STUCK_S = 60  # a life that lasts longer is a failure, not a kill
RESULT_BYTES = 256
BIG = "0123456789" * RESULT_BYTES  # more than a result may hold: the whole of it goes to a blob

SCRIPT = (
    [call("pay", {"amount": 1}), call("pay", {"amount": 2})],
    "paid both",
    [call("ship", {"order": "o-1"}), call("look", {})],
    [call("pay", {"amount": 3})],
    "paid and shipped",
)


class Diary:
    """What a life says to the files that outlive it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._files = {name: os.open(folder / name, flags) for name in ("told", "effects", "shown")}

    def write(self, name: str, line: str) -> None:
        os.write(self._files[name], line.encode() + b"\n")

    def kept(self, events: Iterable[ev.Event], kind: type[ev.Event], **fields: Any) -> None:
        """Somebody was told of the newest such event: it and all before it must never be lost."""
        fitting = [e.seq for e in events if type(e) is kind and all(getattr(e, k) == v for k, v in fields.items())]
        self.write("told", str(fitting[-1]))


class Model(ScriptedModel):
    """A scripted model that says when it is shown a request: what stands before it is then with the disk (R4)."""

    def __init__(self, diary: Diary, *turns: Any) -> None:
        super().__init__(*turns, repeat=True)
        self._diary = diary

    def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        self._diary.write("shown", "")
        return super().stream(request)


def tools(diary: Diary) -> list[Any]:
    """Two tools with an effect, one of them in a thread, and one without."""

    @tool
    async def pay(amount: int, context: ToolContext) -> str:
        """Pay somebody."""
        diary.kept(context.session.events, ev.ToolStarted, call_id=context.call_id)
        diary.write("effects", context.call_id)
        await anyio.sleep(0)
        return f"paid {amount}"

    @tool
    def ship(order: str, context: ToolContext) -> str:
        """Ship an order."""
        diary.write("effects", context.call_id)
        return f"shipped {order}"

    @tool(read_only=True)
    async def look() -> str:
        """Look around."""
        return BIG

    return [pay, ship, look]


class Keeper(Plugin):
    """The plugin, with file operations of the test's, and maybe a gate that it forgets."""

    def __init__(self, ops: FileOps | None = None, forgets: str = "") -> None:
        super().__init__()
        self._ops = ops or FileOps()
        self._forgets = forgets

    @hookimpl
    def register_stores(self, harness: Harness) -> list[Store]:
        return [JsonlStore(harness.workspace / ".checkrein", ops=self._ops)]

    @hookimpl
    def session_flush(self, session: Session, gate: str) -> Awaitable[None] | None:
        return None if gate == self._forgets else super().session_flush(session, gate)


def harness_for(diary: Diary, *turns: Any, plugins: Sequence[Any]) -> Harness:
    """The harness of a life."""
    limits = {"output_max_bytes": RESULT_BYTES}
    return Harness(
        tools=tools(diary),
        providers=[Model(diary, *turns)],
        plugins=plugins,
        workspace=diary.folder,
        found=(),
        overrides={"model": "scripted:x", "limits": limits},
    )


async def live(folder: Path, keeper: Keeper, *plugins: Any) -> None:
    """Begin or resume the session, and play two inputs and a steering one, noting what is acknowledged."""
    diary = Diary(folder)
    known = [info.id for info in JsonlStore(folder / ".checkrein").list()]

    async def accepted(receipt: Any) -> Any:
        await receipt.durable()
        diary.kept(agent.session.events, ev.InboxAccepted, id=receipt.id)
        return receipt

    async def done(receipt: Any) -> None:
        result = await receipt.result()
        result.check()
        diary.kept(agent.session.events, ev.TurnEnd, turn=result.turn)

    async with harness_for(diary, *SCRIPT, plugins=[keeper, *plugins]) as harness:
        agent = await harness.resume(known[0]) if known else next(iter(harness.agents))
        paid = await accepted(agent.send("pay both"))
        await done(await accepted(agent.steer("in euros")))
        await done(paid)
        await done(await accepted(agent.send("ship it")))


# --- ways to die --------------------------------------------------------------------------------------------


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class DyingOps(FileOps):
    """Dies at the given point: before an operation, in the middle of a write, or behind one."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.points = 0

    def point(self) -> bool:
        self.points += 1
        return self.points == self.at

    def __getattribute__(self, name: str) -> Any:
        method = super().__getattribute__(name)
        if name.startswith("_") or name in ("at", "points", "point", "seek", "close"):
            return method

        def operation(*args: Any) -> Any:
            if self.point():
                if name == "write":
                    method(args[0], args[1][: len(args[1]) // 2])
                die()
            result = method(*args)
            if self.point():
                die()
            return result

        return operation


class DyingObserver:
    """Dies right behind the given append."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.points = 0

    @hookimpl(trylast=True)
    def session_event(self) -> None:
        self.points += 1
        if self.points == self.at:
            die()


class LyingOps(FileOps):
    """A disk that says it took everything, and takes nothing more from a write of `word` on."""

    def __init__(self, word: str) -> None:
        self._word = word.encode()
        self._lies = False

    def write(self, fd: int, data: bytes) -> int:
        self._lies = self._lies or self._word in data
        return len(data) if self._lies else super().write(fd, data)


def fork(folder: Path, keeper: Keeper, *plugins: Any, delay_s: float | None = None) -> bool:
    """Live a life in a child of this process; returns whether it was killed."""
    for thread in threading.enumerate():
        if thread is not threading.main_thread():
            thread.join(STUCK_S)  # a tool's thread that is just leaving: a child would inherit its locks
    assert threading.active_count() == 1
    pid = os.fork()
    if pid == 0:
        try:
            signal.alarm(STUCK_S)
            anyio.run(live, folder, keeper, *plugins)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if delay_s is not None:
        select.select([], [], [], delay_s)
        os.kill(pid, signal.SIGKILL)  # until it is waited for, the id is its own
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code not in (0, -signal.SIGKILL):
        raise SystemExit(f"the life in {folder} failed: {code}")
    return code != 0


# --- the sweeps ---------------------------------------------------------------------------------------------


def spread(total: int, count: int) -> list[int]:
    """`count` of the numbers from 1 to total, evenly, the last among them; all if there are fewer."""
    count = min(total, count)
    return [total * (n + 1) // count for n in range(count)]


def at_appends(folder: Path, count: int, forgotten: str = "") -> int:
    """Kill behind appends of a life, as many as a whole life makes."""
    observer = DyingObserver(0)
    anyio.run(live, folder / "whole", Keeper(), observer)
    points = spread(observer.points, count)
    return sum(fork(folder / f"at-{at:03}", Keeper(forgets=forgotten), DyingObserver(at)) for at in points)


def at_operations(folder: Path, count: int) -> int:
    """Kill at file operations of a life, as many as a whole life needs."""
    ops = DyingOps(0)
    anyio.run(live, folder / "whole", Keeper(ops))
    points = spread(ops.points, count)
    return sum(fork(folder / f"at-{at:03}", Keeper(DyingOps(at))) for at in points)


def at_moments(folder: Path, count: int, seed: int) -> int:
    """Kill from outside until `count` lives were killed; every third is killed once more after it was resumed."""
    chance = random.Random(seed)
    begin = time.perf_counter()
    fork(folder / "whole", Keeper())
    lasts_s = time.perf_counter() - begin
    killed = n = 0
    while killed < count:
        n += 1
        for _ in range(1 + (n % 3 == 0)):
            killed += fork(folder / f"life-{n:05}", Keeper(), delay_s=chance.uniform(0, lasts_s))
    return killed


def lying(folder: Path, word: str) -> int:
    """Kill a life at its end whose disk has lied."""
    observer = DyingObserver(0)
    anyio.run(live, folder / "whole", Keeper(), observer)
    return fork(folder / "lying", Keeper(LyingOps(word)), DyingObserver(observer.points))


def main(folder: Path, way: str, *rest: str) -> None:
    if way == "once":
        print("begins", flush=True)
        anyio.run(live, folder, Keeper())
        return
    anyio.run(live, folder / "warm", Keeper())  # whatever is imported on first use is there when lives are forked
    if way in ("appends", "careless"):
        print(at_appends(folder, int(rest[0]), *rest[1:]))
    elif way == "operations":
        print(at_operations(folder, int(rest[0])))
    elif way == "moments":
        print(at_moments(folder, int(rest[0]), int(rest[1])))
    else:
        print(int(lying(folder, rest[0])))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
