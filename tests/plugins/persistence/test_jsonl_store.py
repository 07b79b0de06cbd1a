"""The JSON Lines store on a real disk: permissions, owners, file systems without links, public cases."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from checkrein.errors import SessionLocked, StoreError
from checkrein.recovery import recover, reopen
from checkrein.testing.store_kit import sample_lines
from checkrein_persistence import FileOps, JsonlStore

posix = pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")


def child(code: str, *args: object) -> subprocess.Popen[str]:
    """A real process running this code."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


HOLD = """
import sys
from checkrein_persistence import JsonlStore
log, writer = JsonlStore(sys.argv[1], owner="night shift").open("s")
print("open", flush=True)
sys.stdin.readline()
"""


@posix
def test_P2_folders_are_private_and_git_ignores_them(tmp_path: Path) -> None:
    folder = tmp_path / ".checkrein"
    store = JsonlStore(folder)
    old = os.umask(0)
    try:
        store.create("s", sample_lines(2)).close()
        store.put_blob("s", b"x")
        store.put_accounts(b"{}")
        list(store.list())
        _, writer = reopen(store, "s")
        writer.append(sample_lines(3)[2:])
        writer.close()
    finally:
        os.umask(old)
    for path in (folder, *folder.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert (folder / ".gitignore").read_text() == "*\n"


def test_P2_somebody_elses_gitignore_stays(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("cache\n")
    JsonlStore(tmp_path).create("s", sample_lines(1)).close()
    assert (tmp_path / ".gitignore").read_text() == "cache\n"


def test_R3_another_process_is_named_and_its_lock_dies_with_it(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path / ".checkrein")
    store.create("s", sample_lines(2)).close()
    holder = child(HOLD, tmp_path / ".checkrein")
    assert holder.stdout is not None and holder.stdout.readline() == "open\n"
    with pytest.raises(SessionLocked) as caught:
        store.open("s")
    assert str(holder.pid) in str(caught.value) and "night shift" in str(caught.value)
    assert len(store.read("s").lines) == 2
    holder.kill()
    holder.communicate()
    log, writer = store.open("s")
    writer.close()
    assert len(log.lines) == 2


def test_R3_the_owner_record_is_not_needed(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    writer = store.create("s", sample_lines(1))
    (tmp_path / "sessions/s/owner.json").write_text("{")
    with pytest.raises(SessionLocked, match="unknown"):
        store.open("s")
    writer.close()


def test_R1_torn_tails_are_kept_one_after_the_other(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    lines = sample_lines(4)
    store.create("s", lines[:1]).close()
    log = Path(store.locate("s"))
    for n, torn in enumerate((lines[1][:10], lines[2][:-1])):
        with log.open("ab") as file:
            file.write(torn)
        found, writer = reopen(store, "s")
        assert found.set_aside == torn
        writer.append(lines[n + 1 : n + 2])
        writer.close()
    assert log.with_suffix(".torn").read_bytes() == lines[1][:10] + b"\n" + lines[2][:-1] + b"\n"
    assert recover(store.read("s")).lines == list(lines[:3])


@posix
def test_R1_a_log_that_may_only_be_read_is_read(tmp_path: Path) -> None:
    """Opening to write is refused in words, reading and listing go on (a read-only disk, somebody else's file)."""

    class ReadOnly(FileOps):
        def open(self, path: Path, flags: int) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR):
                raise OSError(30, "Read-only file system", str(path))
            return super().open(path, flags)

    JsonlStore(tmp_path).create("s", sample_lines(3)).close()
    store = JsonlStore(tmp_path, ops=ReadOnly())
    with pytest.raises(StoreError, match="Read-only"):
        store.open("s")
    with pytest.raises(StoreError, match="Read-only"):
        store.create("t", sample_lines(1))
    assert len(store.read("s").lines) == 3 and [info.id for info in store.list()] == ["s"]


def test_R1_a_damaged_blob_is_refused_and_can_be_put_again(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    store.create("s", sample_lines(1)).close()
    sha256 = store.put_blob("s", b"the whole output")
    (tmp_path / "sessions/s/blobs" / sha256).write_bytes(b"the hole output")
    with pytest.raises(StoreError, match="damaged"):
        store.get_blob("s", sha256)
    assert store.put_blob("s", b"the whole output") == sha256
    assert store.get_blob("s", sha256) == b"the whole output"


def test_create_works_where_there_are_no_links(tmp_path: Path) -> None:
    class NoLinks(FileOps):
        def link(self, source: Path, target: Path) -> bool:
            return False

    store = JsonlStore(tmp_path, ops=NoLinks())
    writer = store.create("s", sample_lines(2))
    with pytest.raises(StoreError, match="exists"):
        store.create("s", sample_lines(1))
    with pytest.raises(SessionLocked):
        store.open("s")
    writer.close()
    assert sorted(path.name for path in (tmp_path / "sessions/s").iterdir()) == ["log.jsonl", "owner.json"]


# --- the public cases ----------------------------------------------------------------------------------


def test_case_D07_D10_a_stale_holder_cannot_overwrite_a_newer_one(tmp_path: Path) -> None:
    """A second opener is refused while the first holds the session; nothing ever rewrites a log."""
    lines = sample_lines(4)
    store = JsonlStore(tmp_path)
    first = store.create("s", lines[:2])
    with pytest.raises(SessionLocked):
        JsonlStore(tmp_path).open("s")
    first.close()
    _, second = reopen(JsonlStore(tmp_path), "s")
    second.append(lines[2:])
    second.close()
    with pytest.raises(OSError):
        first.append(lines[2:3])
    assert tuple(store.read("s").lines) == lines


def test_case_D08_a_failed_append_is_told_and_taken_up_again(tmp_path: Path) -> None:
    class OneConflict(FileOps):
        armed = False

        def write(self, fd: int, data: bytes) -> int:
            if self.armed:
                self.armed = False
                raise OSError(28, "No space left on device")
            return super().write(fd, data)

    ops = OneConflict()
    lines = sample_lines(5)
    writer = JsonlStore(tmp_path, ops=ops).create("s", lines[:1])
    ops.armed = True
    with pytest.raises(OSError, match="No space"):
        writer.append(lines[1:3])
    assert writer.taken == 1
    writer.append(lines[1:5])
    writer.close()
    assert tuple(JsonlStore(tmp_path).read("s").lines) == lines


def test_case_D09_D14_simultaneous_creations_and_listings_do_not_disturb_each_other(tmp_path: Path) -> None:
    """Eight creators start at once on a store that is not there yet; one id has exactly one winner."""
    barrier = threading.Barrier(8)
    won: list[int] = []
    failed: list[BaseException] = []

    def creator(n: int) -> None:
        try:
            store = JsonlStore(tmp_path / "new/.checkrein")
            barrier.wait()
            store.create(f"own-{n}", sample_lines(2)).close()
            try:
                store.create("shared", sample_lines(2)).close()
                won.append(n)
            except StoreError:
                pass
            assert len(list(store.list())) >= 2
        except BaseException as exc:
            failed.append(exc)

    threads = [threading.Thread(target=creator, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and len(won) == 1
    store = JsonlStore(tmp_path / "new/.checkrein")
    assert len(list(store.list())) == 9
    assert not [path for path in (tmp_path / "new").rglob(".*") if path.name not in (".checkrein", ".gitignore")]


def test_case_D12_D13_two_processes_never_write_one_session_together(tmp_path: Path) -> None:
    """Two processes fight for a session, 100 appends each: every line is there once, none is torn."""
    code = """
import sys
from checkrein.codec import encode, seal
from checkrein.errors import SessionLocked
from checkrein.events import FreeEvent
from checkrein.recovery import reopen
from checkrein_persistence import JsonlStore
store = JsonlStore(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
done = 0
while done < 100:
    try:
        found, writer = reopen(store, "s")
    except SessionLocked:
        continue
    seq = found.events[-1].seq + 1
    for _ in range(10):
        writer.append([seal(encode(FreeEvent("test/row", seq, 0, {"by": sys.argv[2]})))])
        seq += 1
        done += 1
    writer.close()
"""
    store = JsonlStore(tmp_path)
    store.create("s", sample_lines(1)).close()
    both = [child(code, tmp_path, name) for name in ("a", "b")]
    for process in both:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in both:
        process.communicate("go\n", timeout=60)
    found = recover(store.read("s"))
    assert [event.seq for event in found.events] == list(range(201)) and not found.skipped_bytes
    assert sum(getattr(event, "fields", {}).get("by") == "a" for event in found.events) == 100


# --- accounts ---------------------------------------------------------------------------------------------


def test_accounts_that_cannot_be_written_leave_the_last_ones_and_nothing_else(tmp_path: Path) -> None:
    class Full(FileOps):
        """A disk that takes three bytes more."""

        def write(self, fd: int, data: bytes) -> int:
            if len(data) > 3:
                return super().write(fd, data[:3])
            raise OSError(28, "No space left on device")

    class NoRename(FileOps):
        def rename(self, source: Path, target: Path) -> None:
            raise OSError(13, "Permission denied", str(target))

    store = JsonlStore(tmp_path)
    store.create("s", sample_lines(1)).close()
    store.put_accounts(b"the last ones")
    before = sorted(tmp_path.rglob("*"))
    for ops in (Full(), NoRename()):
        with pytest.raises(OSError):
            JsonlStore(tmp_path, ops=ops).put_accounts(b"new ones")
    assert store.accounts(100) == b"the last ones" and sorted(tmp_path.rglob("*")) == before


def test_accounts_are_read_from_a_file_only_and_replace_what_has_their_name(tmp_path: Path) -> None:
    """What a stranger's folder holds in their place is not waited for, nor written through."""
    store = JsonlStore(tmp_path / "store")
    assert store.accounts(100) is None
    with pytest.raises(OSError):  # where no session is kept, no folder is made for accounts
        store.put_accounts(b"{}")
    store.create("s", sample_lines(1)).close()
    name = tmp_path / "store" / "hooks.json"
    name.mkdir()
    with pytest.raises(OSError, match="expected a file"):
        store.accounts(100)
    name.rmdir()
    if os.name != "nt":
        os.mkfifo(name)
        with pytest.raises(OSError, match="expected a file"):
            store.accounts(100)
        name.unlink()
        (tmp_path / "mine").write_text("mine")
        name.symlink_to(tmp_path / "mine")
        store.put_accounts(b"{}")
        assert (tmp_path / "mine").read_text() == "mine" and not name.is_symlink()
