"""The plugin: what each gate writes and syncs, failing disks, and sessions through a real harness (R2, R4, T9)."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from checkrein import Agent, Harness, tool
from checkrein import events as ev
from checkrein.errors import ConfigError
from checkrein.flushing import ALL_GATES, Flusher
from checkrein.memory_store import MemoryStore
from checkrein.recovery import recover, reopen
from checkrein.session import Session
from checkrein.store import Store
from checkrein.testing import ScriptedModel, call
from checkrein.testing.store_kit import sample_lines
from checkrein_persistence import FileOps, JsonlStore, Plugin

BACKENDS = ("asyncio", "trio")
LINE = sample_lines(2)[1]


def flushing(store: Store) -> Session:
    session = Session("s")
    session.append(ev.SessionCreated(format=ev.FORMAT, session="s", agent="main"))
    session.writer = store.create("s", session.lines)
    return session


def grow(session: Session, count: int = 1) -> None:
    for _ in range(count):
        session.append_free("sample/row", {"text": f"row {len(session)} ☃", "n": [len(session), None]})


class CountingOps(FileOps):
    """Counts what reaches the disk; a sync can be made to wait or fail."""

    def __init__(self) -> None:
        self.writes = 0
        self.syncs = 0
        self.fail: OSError | None = None
        self.hold: threading.Event | None = None

    def write(self, fd: int, data: bytes) -> int:
        self.writes += 1
        if self.fail is not None:
            raise self.fail
        return super().write(fd, data)

    def fsync(self, fd: int) -> None:
        self.syncs += 1
        if self.hold is not None:
            self.hold.wait(10)
        super().fsync(fd)


# --- gates ---------------------------------------------------------------------------------------------


def test_R4_each_gate_is_one_write_and_only_two_gates_wait_for_the_disk(tmp_path: Path) -> None:
    ops = CountingOps()
    session = flushing(JsonlStore(tmp_path, ops=ops))
    plugin = Plugin()
    writes, syncs = ops.writes, ops.syncs
    for n, gate in enumerate(("input", "request", "call")):
        grow(session, 5)
        assert plugin.session_flush(session, gate) is None
        assert plugin.session_flush(session, gate) is None, "nothing new, nothing written"
        assert (ops.writes, ops.syncs) == (writes + n + 1, syncs)
    for n, gate in enumerate(("approval", "turn_end")):
        grow(session)
        waiting = plugin.session_flush(session, gate)
        assert waiting is not None
        anyio.run(_awaited, waiting)
        assert ops.syncs == syncs + n + 1
    assert JsonlStore(tmp_path).read("s").lines == session.lines
    assert session.writer is not None
    session.writer.close()


async def _awaited(waiting: Awaitable[None]) -> None:
    await waiting


def test_R4_sync_always_waits_at_every_gate(tmp_path: Path) -> None:
    session = flushing(JsonlStore(tmp_path))
    plugin = Plugin(Plugin.Config(sync="always"))
    for gate in sorted(ALL_GATES):
        waiting = plugin.session_flush(session, gate)
        assert waiting is not None
        anyio.run(_awaited, waiting)
    assert session.writer is not None
    session.writer.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_R4_those_who_wait_meanwhile_share_one_sync(tmp_path: Path, backend: str) -> None:
    ops = CountingOps()
    session = flushing(JsonlStore(tmp_path, ops=ops))
    plugin = Plugin()

    async def main() -> None:
        before = ops.syncs
        ops.hold = threading.Event()
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                grow(session)
                waiting = plugin.session_flush(session, "turn_end")
                assert waiting is not None
                tasks.start_soon(_awaited, waiting)
                await anyio.wait_all_tasks_blocked()  # the first one is in its thread now
            ops.hold.set()
        assert 1 <= ops.syncs - before <= 2  # one, if its thread began only after the last append
        assert not plugin._groups

    anyio.run(main, backend=backend)
    assert session.writer is not None
    session.writer.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_R4_a_sync_that_hangs_can_be_given_up_and_the_log_closed(tmp_path: Path, backend: str) -> None:
    ops = CountingOps()
    session = flushing(JsonlStore(tmp_path, ops=ops))
    plugin = Plugin()
    writer = session.writer
    assert writer is not None

    async def main() -> None:
        ops.hold = threading.Event()
        with anyio.move_on_after(0.01) as scope:
            waiting = plugin.session_flush(session, "turn_end")
            assert waiting is not None
            await waiting
        assert scope.cancelled_caught
        writer.close()  # the thread still syncs: the file is closed when it is done, not under it
        ops.hold.set()

    anyio.run(main, backend=backend)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:  # the thread lets go in its own time
        try:
            reopen(JsonlStore(tmp_path), "s")[1].close()
            break
        except Exception:
            threading.Event().wait(0.01)
    reopen(JsonlStore(tmp_path), "s")[1].close()


def test_case_D08_what_failed_is_written_at_the_next_gate(tmp_path: Path) -> None:
    ops = CountingOps()
    session = flushing(JsonlStore(tmp_path, ops=ops))
    plugin = Plugin()
    grow(session, 3)
    ops.fail = OSError(28, "No space left on device")
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            plugin.session_flush(session, "request")
    ops.fail = None
    grow(session, 2)
    plugin.session_flush(session, "call")
    assert JsonlStore(tmp_path).read("s").lines == session.lines
    assert session.writer is not None
    session.writer.close()


def test_R4_it_serves_any_store_and_a_session_without_one(tmp_path: Path) -> None:
    store = MemoryStore()
    session = flushing(store)
    grow(session, 8)
    assert Flusher().session_flush(session, "request") is None
    assert store.read("s").lines == session.lines
    session.writer = None
    assert Plugin().session_flush(session, "turn_end") is None


def test_a_sync_without_anything_new_touches_no_disk(tmp_path: Path) -> None:
    ops = CountingOps()
    session = flushing(JsonlStore(tmp_path, ops=ops))
    writer = session.writer
    assert writer is not None
    writer.sync()
    before = ops.syncs
    writer.sync()
    assert ops.syncs == before
    writer.append([LINE])
    writer.sync()
    assert ops.syncs == before + 1
    writer.close()


@pytest.mark.parametrize("fields", [{"sync": "sometimes"}, {"dir": ""}])
def test_a_config_that_cannot_work_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"plugins\.persistence"):
        Plugin(Plugin.Config(**fields))


def test_W5_a_gate_costs_little(tmp_path: Path) -> None:
    session = flushing(JsonlStore(tmp_path))
    plugin = Plugin()
    spent = []
    for _ in range(1_000):
        grow(session, 4)
        begin = time.perf_counter()
        plugin.session_flush(session, "request")
        spent.append(time.perf_counter() - begin)
    middle = sorted(spent)[500]
    print(f"a gate of 4 lines: {middle * 1e6:.1f} us")
    assert middle < 0.001
    assert session.writer is not None
    session.writer.close()


# --- through the harness -------------------------------------------------------------------------------


@tool
def note(text: str) -> str:
    """Note something."""
    return f"noted {text}"


def model() -> ScriptedModel:
    return ScriptedModel([call("note", {"text": "a"}), call("note", {"text": "b"})], "done", "again", "and again")


def in_harness(backend: str, folder: Path, act: Callable[[Harness], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        options.setdefault("plugins", [Plugin()])
        scripted = options.pop("model", None) or model()
        harness = Harness(
            tools=[note], providers=[scripted], workspace=folder, found=(), overrides={"model": "scripted:x"}, **options
        )
        async with harness:
            return await act(harness)

    return anyio.run(main, backend=backend)


def stored(folder: Path, session_id: str | None = None) -> tuple[JsonlStore, str]:
    store = JsonlStore(folder / ".checkrein")
    return store, session_id or next(iter(store.list())).id


@pytest.mark.parametrize("backend", BACKENDS)
def test_R5_a_session_is_stored_and_resumed(tmp_path: Path, backend: str) -> None:
    async def first(harness: Harness) -> str:
        (await harness.agents["main"].run("note it")).check()
        return harness.agents["main"].session.id

    session_id = in_harness(backend, tmp_path, first)
    store, _ = stored(tmp_path)
    before = recover(store.read(session_id))
    assert isinstance(before.events[-1], ev.TurnEnd) and not before.skipped_bytes

    async def second(harness: Harness) -> list[bytes]:
        agent = await harness.resume(session_id)
        result = (await agent.run("go on")).check()
        assert result.turn == 2
        return list(agent.session.lines)

    lines = in_harness(backend, tmp_path, second, model=ScriptedModel("continued"))
    after = recover(store.read(session_id))
    assert after.lines == lines and after.lines[: len(before.lines)] == before.lines


@pytest.mark.parametrize("backend", BACKENDS)
def test_R4_T9_a_full_disk_closes_the_gate_and_loses_nothing(tmp_path: Path, backend: str) -> None:
    """The turn ends error, kind store; with space again the same agent goes on, and the log is whole."""
    ops = CountingOps()
    store = JsonlStore(tmp_path / ".checkrein", ops=ops)

    class Fill:
        """Fills the disk after the first answer."""

        def __init__(self) -> None:
            self.armed = True

        def __call__(self, request: Any) -> Any:
            if self.armed:
                self.armed = False
                ops.fail = OSError(28, "No space left on device")
            return call("note", {"text": "a"})

    async def act(harness: Harness) -> None:
        agent = harness.agents["main"]
        result = await agent.run("first")
        assert (result.reason.kind, result.reason.error) == ("error", "store"), result.reason
        ops.fail = None
        (await agent.run("second")).check()
        assert store.read(agent.session.id).lines == agent.session.lines

    in_harness(backend, tmp_path, act, store=store, model=ScriptedModel(Fill(), "fine", "fine"))


def test_H04_a_plugin_that_fails_does_not_keep_the_log_from_the_disk(tmp_path: Path) -> None:
    """Case H04: every implementation of a notifying hook is called."""
    from checkrein import hookimpl

    class Broken:
        name = "broken"

        @hookimpl
        def session_event(self, session: Session, event: Any) -> None:
            raise ValueError("no")

        @hookimpl
        def session_flush(self, session: Session, gate: str) -> None:
            if gate == "turn_end":
                raise ValueError("no")

    async def act(harness: Harness) -> Sequence[bytes]:
        agent = harness.agents["main"]
        (await agent.run("go")).check()
        return list(agent.session.lines)

    for plugins in ([Broken(), Plugin()], [Plugin(), Broken()]):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        in_harness("asyncio", folder, act, plugins=plugins)
        store, session_id = stored(folder)
        found = recover(store.read(session_id))
        assert any(isinstance(event, ev.TurnEnd) for event in found.events)
        assert any(isinstance(event, ev.PluginFaulted) for event in found.events)


def test_agent_takes_the_plugin_by_name_and_a_store(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)

    async def main() -> str:
        async with Agent(ScriptedModel("hello"), plugins=[Plugin()], store=store, workspace=tmp_path) as agent:
            (await agent.run("hi")).check()
            return agent.session.id

    session_id = anyio.run(main)
    assert isinstance(recover(store.read(session_id)).events[-1], ev.TurnEnd)


def test_R1_a_newer_format_is_not_continued(tmp_path: Path) -> None:
    from checkrein.codec import encode, seal
    from checkrein.errors import StoreError

    store = JsonlStore(tmp_path)
    first = seal(encode(ev.FreeEvent("session/created", 0, 0, {"format": 99, "session": "s", "agent": "main"})))
    store.create("s", [first]).close()
    with pytest.raises(StoreError, match="newer"):
        reopen(store, "s")
    store.open("s")[1].close()  # the lock was released
    assert os.path.getsize(store.locate("s")) == len(first) + 1
