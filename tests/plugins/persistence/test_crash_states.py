"""Power loss at any moment: every crash state of a recorded session opens, and what was synced is there (R1, R4)."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from checkrein.recovery import recover, reopen
from checkrein.testing.crash_states import CrashState, RecordingOps, crash_states
from checkrein.testing.store_kit import sample_lines
from checkrein_persistence import FileOps, JsonlStore

LINES = sample_lines(14)
BLOB = b"blob " * 200


class Hasty(FileOps):
    """Syncs nothing: what a crash would do is the recording's business, so the real disk need not wait."""

    def fsync(self, fd: int) -> None: ...

    def fsync_dir(self, path: Path) -> None: ...


class NoLinks(Hasty):
    """A file system without links."""

    def link(self, source: Path, target: Path) -> bool:
        return False


class BadSync(Hasty):
    """A disk on which one sync of a file fails and forgets what it should have written, as Linux does."""

    def __init__(self, which: int) -> None:
        self.left = which

    def fsync(self, fd: int) -> None:
        self.left -= 1
        if self.left == 0:
            raise OSError(5, "lost")
        super().fsync(fd)


DISKS = {"plain": Hasty, "no links": NoLinks} | {f"sync {n} fails": partial(BadSync, n) for n in range(2, 8)}
DEFAULT = ("plain", "no links", "sync 3 fails", "sync 5 fails")


def record(root: Path, inner: FileOps) -> RecordingOps:
    """A session's life, noting after each sync how many lines must survive."""
    ops = RecordingOps(inner, root)
    store = JsonlStore(root / ".checkrein", ops=ops)  # type: ignore[arg-type]

    def twice(act: Any, *args: Any) -> None:
        try:
            act(*args)
        except OSError:
            act(*args)

    def sync(writer: Any) -> None:
        twice(writer.sync)
        ops.mark((writer.taken, blob))

    blob = ""
    writer = store.create("s", LINES[:2])
    writer.append(LINES[2:4])
    sync(writer)
    writer.append(LINES[4:5])
    writer.append(LINES[5:7])
    blob = store.put_blob("s", BLOB)
    sync(writer)
    writer.append(LINES[7:9])
    writer.close()
    log = Path(store.locate("s"))
    with log.open("ab") as file:  # what a kill in mid write leaves
        file.write(LINES[9][:30])
    ops._step(type(ops.steps[0])(_log_node(ops), "write", len(log.read_bytes()) - 30, LINES[9][:30]))
    _, again = reopen(store, "s")
    twice(again.append, LINES[9:11])
    sync(again)
    again.append(LINES[11:])
    sync(again)
    again.close()
    return ops


def _log_node(ops: RecordingOps) -> int:
    folders = ops._disk.folders
    return folders[folders[folders[folders[0][".checkrein"]]["sessions"]]["s"]]["log.jsonl"]


def judge(state: CrashState, root: Path) -> None:
    state.write_to(root)
    store = JsonlStore(root / ".checkrein", ops=Hasty())
    list(store.list())
    durable, blob = state.note or (0, "")
    if not (root / ".checkrein/sessions/s/log.jsonl").exists():
        assert durable == 0, "a synced session is gone"
        return
    found, writer = reopen(store, "s")
    assert set(found.lines) <= set(LINES), "a line nobody wrote"
    assert found.lines[:durable] == list(LINES[:durable]), f"a synced line is lost: {len(found.lines)} of {durable}"
    if blob:
        assert store.get_blob("s", blob) == BLOB
    more = sample_lines(40)[30:32]
    writer.append(more)
    writer.sync()
    writer.close()
    again = recover(store.read("s"))
    assert again.lines == [*found.lines, *more], "what was appended after the crash is lost"


@pytest.mark.parametrize(
    "disk", [name if name in DEFAULT else pytest.param(name, marks=pytest.mark.slow) for name in DISKS]
)
def test_R1_R4_every_crash_state_opens_and_keeps_what_was_synced(disk: str, tmp_path: Path) -> None:
    (tmp_path / "recorded").mkdir()
    ops = record(tmp_path / "recorded", DISKS[disk]())
    count = 0
    for state in crash_states(ops):
        root = tmp_path / "state"
        root.mkdir()
        try:
            judge(state, root)
        except Exception as exc:
            raise AssertionError(f"{state.told}: {exc!r}; files {sorted(state.files)}") from exc
        shutil.rmtree(root)
        count += 1
    print(f"{disk}: {count} crash states from {len(ops.steps)} steps and {len(ops.syncs)} syncs")
    assert count > 300


def test_a_store_that_does_not_sync_is_found_out(tmp_path: Path) -> None:
    class Recorder(RecordingOps):
        def fsync(self, fd: int) -> None:
            pass

    (tmp_path / "recorded").mkdir()
    ops = Recorder(Hasty(), tmp_path / "recorded")
    store = JsonlStore(tmp_path / "recorded/.checkrein", ops=ops)  # type: ignore[arg-type]
    writer = store.create("s", LINES[:2])
    writer.sync()
    ops.mark((2, ""))
    writer.close()
    with pytest.raises(AssertionError):
        for n, state in enumerate(crash_states(ops)):
            judge(state, tmp_path / str(n))
