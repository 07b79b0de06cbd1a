"""A sync that was given up goes on in its thread; what comes behind it must not count its work as its own (R4)."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from checkrein import events as ev
from checkrein.session import Session
from checkrein.store import flush
from checkrein_persistence import FileOps, JsonlStore


class HangingOps(FileOps):
    """A sync can be made to hang, or to fail."""

    def __init__(self) -> None:
        self.syncs = 0
        self.synced = 0  # the largest size at which a sync began that ended well
        self.hold: threading.Event | None = None
        self.fail_sync: OSError | None = None

    def fsync(self, fd: int) -> None:
        self.syncs += 1
        size = os.fstat(fd).st_size
        if self.hold is not None:
            self.hold.wait(10)
        if self.fail_sync is not None:
            raise self.fail_sync
        super().fsync(fd)
        self.synced = max(self.synced, size)


def begun(store: JsonlStore) -> Session:
    session = Session("s")
    session.append(ev.SessionCreated(format=ev.FORMAT, session="s", agent="main"))
    session.writer = store.create("s", session.lines)
    return session


def grow(session: Session, count: int = 1) -> None:
    for _ in range(count):
        session.append_free("sample/row", {"text": f"row {len(session)} ☃"})


def test_R4_a_sync_behind_one_that_was_given_up_vouches_only_for_what_it_saw_synced(tmp_path: Path) -> None:
    ops = HangingOps()
    session = begun(JsonlStore(tmp_path, ops=ops))
    writer = session.writer
    assert writer is not None
    writer.sync()
    ops.hold = hanging = threading.Event()
    syncs = ops.syncs
    grow(session)
    flush(writer, session.lines)
    given_up = threading.Thread(target=writer.sync)
    given_up.start()
    while ops.syncs == syncs:
        time.sleep(0)
    ops.hold = None
    grow(session, 3)
    flush(writer, session.lines)
    behind = threading.Thread(target=writer.sync)
    behind.start()
    behind.join(0.05)  # beside the first one it would be through by now
    grow(session)
    flush(writer, session.lines)
    hanging.set()
    given_up.join()
    behind.join()
    writer.sync()
    log = tmp_path / "sessions" / "s" / "log.jsonl"
    assert ops.synced == log.stat().st_size, "no sync that began behind the last event has ended"

    ops.fail_sync = OSError(5, "Input/output error")
    grow(session)
    flush(writer, session.lines)
    with pytest.raises(OSError, match="Input/output"):
        writer.sync()
    ops.fail_sync = None
    writer.sync()  # what the failed one should have covered is written again, at its own place
    assert log.read_bytes().splitlines() == session.lines
    writer.close()
