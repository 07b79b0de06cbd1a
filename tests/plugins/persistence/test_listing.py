"""The listing of the JSON Lines store: quick, whatever its index is, and stopped by no bad session (R1)."""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from pathlib import Path

import pytest

from checkrein.errors import StoreError
from checkrein.recovery import reopen
from checkrein.sessions import search
from checkrein.testing.store_kit import sample_lines
from checkrein_persistence import FileOps, JsonlStore


@pytest.mark.parametrize("count", [500, pytest.param(10_000, marks=pytest.mark.slow)])
def test_listing_many_sessions_is_quick(tmp_path: Path, count: int) -> None:
    lines = sample_lines(40)
    for n in range(count):
        folder = tmp_path / f"sessions/s{n}"
        folder.mkdir(parents=True)
        (folder / "log.jsonl").write_bytes(b"\n".join(lines[: 3 + n % 30]) + b"\n")
    store = JsonlStore(tmp_path)
    assert len(list(store.list())) == count
    best = 9.0
    for _ in range(3):
        begin = time.process_time()
        infos = list(store.list())
        best = min(best, time.process_time() - begin)
    assert len(infos) == count and infos[0].events == 32
    print(f"{count:,} sessions listed in {best * 1e3:.0f} ms")
    assert best < 1.0  # the figure is what counts (120 ms for 10,000); this bound only catches a collapse


def test_the_index_can_be_lost_damaged_or_out_of_date(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    for name in ("a", "b"):
        store.create(name, sample_lines(3)).close()
    index = tmp_path / "index.json"
    right = list(store.list())
    assert index.exists()
    for damage in (
        b"",
        b"{}",
        b"[[[",
        b"\xff" * 90,
        b'{"version":99,"entries":{}}',
        b'{"version":1,"entries":{"a":[1,2,3]}}',
    ):
        index.write_bytes(damage)
        assert list(store.list()) == right
    index.unlink()
    index.mkdir()
    assert list(store.list()) == right
    index.rmdir()
    list(store.list())
    _, writer = reopen(store, "a")
    writer.append(sample_lines(4)[3:])
    writer.close()
    assert {info.id: info.events for info in store.list()} == {"a": 4, "b": 3}
    entries = json.loads(index.read_bytes())["entries"]
    assert set(entries) == {"a", "b"}


class ReadOnlyOps(FileOps):
    """A disk mounted read-only: it refuses to remove even what is not there."""

    def open(self, path: Path, flags: int) -> int:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    def unlink(self, path: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))


def test_R1_sessions_of_a_read_only_disk_are_listed(tmp_path: Path) -> None:
    JsonlStore(tmp_path).create("s", sample_lines(3)).close()
    assert [info.events for info in JsonlStore(tmp_path, ops=ReadOnlyOps()).list()] == [3]
    assert {path.name for path in tmp_path.iterdir()} == {".gitignore", "sessions"}


def test_R1_sessions_that_cannot_be_read_are_listed_with_their_problem(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    store.create("good", sample_lines(3)).close()
    (tmp_path / "sessions/folder/log.jsonl").mkdir(parents=True)
    (tmp_path / "sessions/empty").mkdir()
    (tmp_path / "sessions/stray").write_text("no folder")
    problems = {info.id: info.problem for info in store.list()}
    assert problems.pop("good") is None
    assert set(problems) == {"folder"} and problems["folder"]
    with pytest.raises(StoreError):
        store.open("folder")


@pytest.mark.skipif(sys.platform == "win32", reason="there are no named pipes in its folders")
def test_R1_a_pipe_for_a_log_stops_no_listing(tmp_path: Path) -> None:
    """Nobody writes to it: to open it would wait for ever."""
    store = JsonlStore(tmp_path)
    store.create("good", sample_lines(3)).close()
    (tmp_path / "sessions/pipe").mkdir()
    os.mkfifo(tmp_path / "sessions/pipe/log.jsonl")
    problems = {info.id: info.problem for info in store.list()}
    assert problems.pop("good") is None
    assert "expected a file" in problems["pipe"]
    assert not list(search(store, "no such text"))
    for act in (store.open, store.read):
        with pytest.raises(StoreError, match="expected a file"):
            act("pipe")


@pytest.mark.skipif(sys.platform != "linux", reason="file systems elsewhere refuse names that are no UTF-8")
def test_R1_a_folder_whose_name_is_no_session_id_is_listed_with_its_problem(tmp_path: Path) -> None:
    store = JsonlStore(tmp_path)
    store.create("good", sample_lines(3)).close()
    names = {os.fsdecode(b"caf\xe9"), "\x1b[2J", "two words", ".hidden"}
    for name in names:
        (tmp_path / "sessions" / name).mkdir()
        (tmp_path / "sessions" / name / "log.jsonl").write_bytes(b"\n".join(sample_lines(3)) + b"\n")
    for _ in range(2):
        problems = {info.id: info.problem or "" for info in store.list()}
        assert problems.pop("good") == ""
        assert set(problems) == names and all("expected a session id" in problem for problem in problems.values())
    assert set(json.loads((tmp_path / "index.json").read_bytes())["entries"]) == {"good"}
    assert not list(search(store, "no such text")), "none of them stops a search"


def test_the_listing_reads_only_both_ends_of_a_large_log(tmp_path: Path) -> None:
    lines = list(sample_lines(3_000))
    store = JsonlStore(tmp_path)
    store.create("s", lines).close()
    (info,) = store.list()
    assert info.events == 3_000 and info.size_bytes > 200_000 and info.title.startswith("grüße")
    log = Path(store.locate("s"))
    with log.open("ab") as file:
        file.write(b'{"type":"torn')
    (info,) = store.list()
    assert info.events == 3_000 and info.problem is None
