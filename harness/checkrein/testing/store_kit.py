"""The conformance kit of stores: any store, also a third party's, is run against its contract (R1-R5, X5).

    from checkrein.testing import StoreCase, store_conformance

    def test_my_store(tmp_path):
        store_conformance(StoreCase(lambda folder: MyStore(folder)), tmp_path)

Each check is a plain function in CHECKS; the same contract as a Hypothesis state machine is
store_model.py. Failing file operations are file_faults.py, crash states crash_states.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checkrein.codec import encode, seal
from checkrein.errors import SessionLocked, SessionNotFound, StoreError
from checkrein.events import FreeEvent
from checkrein.recovery import recover, reopen
from checkrein.store import SessionInfo

from .store_case import START_MS, StoreCase, sample_lines
from .store_optional import accounting, keeping_snapshots, reading_back

__all__ = ["StoreCase", "store_conformance", "sample_lines", "CHECKS"]


def store_conformance(case: StoreCase, folder: Path) -> list[str]:
    """Run every check, each over a folder of its own.

    Args:
        case: how to get at the store.
        folder: an empty folder.

    Returns:
        The names of the checks that ran.

    Raises:
        AssertionError: naming the check that failed.
    """
    ran = []
    for name, check in CHECKS.items():
        if name in _NEED_RAW and (case.raw is None or case.set_raw is None):
            continue
        place = folder / name
        place.mkdir(parents=True)
        try:
            check(case, place)
        except Exception as exc:
            raise AssertionError(f"store check {name}: {check.__doc__} ({exc!r})") from exc
        ran.append(name)
    return ran


def _refused(kind: type[Exception] | tuple[type[Exception], ...], act: Callable[[], Any]) -> Exception:
    try:
        act()
    except kind as exc:
        return exc
    raise AssertionError(f"expected {kind}, but it was accepted")


# --- the checks --------------------------------------------------------------------------------------


def lines_come_back(case: StoreCase, folder: Path) -> None:
    """What was created and appended is read back byte for byte, in order, also by another process."""
    lines = sample_lines(8)
    store = case.make(folder)
    writer = store.create("s", lines[:2])
    assert writer.taken == 2
    writer.append(lines[2:5])
    writer.append(())
    writer.append(lines[5:])
    assert writer.taken == 8
    writer.sync()
    assert tuple(store.read("s").lines) == lines
    writer.close()
    assert tuple(case.make(folder).read("s").lines) == lines


def large_lines_come_back(case: StoreCase, folder: Path) -> None:
    """A line of a megabyte and a thousand lines at once are kept."""
    big = seal(encode(FreeEvent("sample/big", 1, START_MS, {"text": "x" * 1_000_000})))
    lines = (sample_lines(1)[0], big, *sample_lines(1_002)[2:])
    writer = case.make(folder).create("s", lines[:1])
    writer.append(lines[1:])
    writer.close()
    assert tuple(case.make(folder).read("s").lines) == lines


def reading_from_a_line(case: StoreCase, folder: Path) -> None:
    """`read(start)` leaves out the first lines, and gives none beyond the end."""
    lines = sample_lines(6)
    store = case.make(folder)
    store.create("s", lines).close()
    for start in range(8):
        assert tuple(store.read("s", start).lines) == lines[start:]


def reading_needs_no_lock(case: StoreCase, folder: Path) -> None:
    """Readers see a session that is being written, and do not stop its writer (R3)."""
    lines = sample_lines(4)
    writer = case.make(folder).create("s", lines[:3])
    assert tuple(case.make(folder).read("s").lines) == lines[:3]
    writer.append(lines[3:])
    writer.close()


def one_writer(case: StoreCase, folder: Path) -> None:
    """A session that is written cannot be opened again, nor created; the refusal says what to do (R3)."""
    lines = sample_lines(3)
    writer = case.make(folder).create("s", lines[:2])
    message = str(_refused(SessionLocked, lambda: case.make(folder).open("s")))
    assert "s" in message and len(message) > 20
    _refused(StoreError, lambda: case.make(folder).create("s", lines[:1]))
    writer.append(lines[2:])
    writer.close()
    log, again = case.make(folder).open("s")
    assert tuple(log.lines) == lines
    _refused(SessionLocked, lambda: case.make(folder).open("s"))
    again.close()


def closing(case: StoreCase, folder: Path) -> None:
    """close is idempotent, releases the lock, and later appends are refused as OSError."""
    lines = sample_lines(3)
    writer = case.make(folder).create("s", lines[:1])
    writer.close()
    writer.close()
    _refused(OSError, lambda: writer.append(lines[1:2]))
    _, again = reopen(case.make(folder), "s")
    writer.close()
    again.append(lines[1:])
    again.close()
    assert tuple(case.make(folder).read("s").lines) == lines


def continuing(case: StoreCase, folder: Path) -> None:
    """A session can be reopened and continued many times; opening alone adds nothing (R2)."""
    lines = sample_lines(10)
    case.make(folder).create("s", lines[:1]).close()
    for n in range(1, 10):
        for _ in range(2):
            found, writer = reopen(case.make(folder), "s")
            assert tuple(found.lines) == lines[:n] and writer.taken == n
            writer.close()
        _, writer = reopen(case.make(folder), "s")
        writer.append(lines[n : n + 1])
        writer.close()
    assert tuple(case.make(folder).read("s").lines) == lines


def bad_ids(case: StoreCase, folder: Path) -> None:
    """An id that is no plain name is refused, and reaches nothing outside."""
    store = case.make(folder)
    for bad in ("", ".", "..", "../x", "a/b", "a\\b", "/etc", "a\x00b", "a\n", ".hidden", "dot.", "x" * 200, "ü"):
        _refused(StoreError, lambda bad=bad: store.create(bad, sample_lines(1)))  # type: ignore[misc]
        _refused(StoreError, lambda bad=bad: store.read(bad))  # type: ignore[misc]
        _refused(StoreError, lambda bad=bad: store.open(bad))  # type: ignore[misc]
    assert list(store.list()) == []


def bad_lines(case: StoreCase, folder: Path) -> None:
    """A line with a newline, or an empty one, is refused whole: it would not come back as it is."""
    store = case.make(folder)
    for bad in (b"", b"a\nb", b"\n"):
        _refused(StoreError, lambda bad=bad: store.create("s", [bad]))  # type: ignore[misc]
    lines = sample_lines(3)
    writer = store.create("s", lines[:1])
    for bad in (b"", b"a\nb", b"\n"):
        _refused(StoreError, lambda bad=bad: writer.append([lines[1], bad]))  # type: ignore[misc]
    writer.append(lines[1:])
    writer.close()
    assert tuple(store.read("s").lines) == lines


def unknown_sessions(case: StoreCase, folder: Path) -> None:
    """What is not there is SessionNotFound, naming it, before and after there are any sessions."""
    store = case.make(folder)
    for _ in range(2):
        for act in (store.open, store.read, store.locate):
            assert "nobody" in str(_refused(SessionNotFound, lambda act=act: act("nobody")))  # type: ignore[misc]
        _refused(SessionNotFound, lambda: store.put_blob("nobody", b""))
        if not list(store.list()):
            store.create("somebody", sample_lines(1)).close()


def creating(case: StoreCase, folder: Path) -> None:
    """A session is created once; a second creation leaves the first as it is."""
    lines = sample_lines(3)
    store = case.make(folder)
    store.create("s", lines).close()
    _refused(StoreError, lambda: store.create("s", lines[:1]))
    _refused(StoreError, lambda: case.make(folder).create("s", lines[:1]))
    assert tuple(store.read("s").lines) == lines


def listing(case: StoreCase, folder: Path) -> None:
    """All sessions are listed, the newest first, with what a person needs to choose; also while written."""
    store = case.make(folder)
    assert list(store.list()) == []
    for n, name in enumerate(("b", "a", "c")):
        first = sample_lines(3 + n, agent=f"agent-{name}", begin_ms=START_MS + 1_000 * n)
        store.create(name, first).close()
    _, writer = reopen(store, "c")
    infos = list(store.list())
    assert [info.id for info in infos] == ["c", "a", "b"], infos
    newest = infos[0]
    assert (newest.agent, newest.events, newest.created_ms) == ("agent-c", 5, START_MS + 2_000), newest
    assert newest.updated_ms == START_MS + 2_004 and newest.size_bytes > 0 and newest.problem is None, newest
    assert newest.title.startswith("grüße"), newest
    writer.append(sample_lines(6, begin_ms=START_MS + 2_000)[5:])
    writer.close()
    assert next(iter(case.make(folder).list())).events == 6
    assert all(isinstance(info, SessionInfo) for info in infos)


def locating(case: StoreCase, folder: Path) -> None:
    """`locate` names the place for a person."""
    store = case.make(folder)
    store.create("where", sample_lines(1)).close()
    assert "where" in store.locate("where")


def blobs(case: StoreCase, folder: Path) -> None:
    """A blob comes back under its SHA-256, is kept once, by session, and lives beside an open writer (X5)."""
    store = case.make(folder)
    writer = store.create("s", sample_lines(1))
    store.create("t", sample_lines(1)).close()
    for data in (b"", b"\x00\xff\n", b"x" * 200_000):
        sha256 = store.put_blob("s", data)
        assert sha256 == hashlib.sha256(data).hexdigest() == store.put_blob("s", data)
        assert store.get_blob("s", sha256) == data
        _refused(StoreError, lambda sha256=sha256: store.get_blob("t", sha256))  # type: ignore[misc]
    writer.sync()
    writer.close()
    assert case.make(folder).get_blob("s", sha256) == data
    for bad in ("", "0" * 64, "../log.jsonl", "zz", sha256.upper()):
        _refused(StoreError, lambda bad=bad: store.get_blob("s", bad))  # type: ignore[misc]


def torn_tail(case: StoreCase, folder: Path) -> None:
    """A log cut at any byte opens with every whole line, and goes on behind it (R1, case D01)."""
    assert case.raw is not None and case.set_raw is not None
    lines = sample_lines(4)
    whole = b"".join([line + b"\n" for line in lines[:3]])
    case.make(folder).create("s", lines[:3]).close()
    ends = [len(b"".join([line + b"\n" for line in lines[:n]])) - 1 for n in (1, 2, 3)]
    for cut in range(len(whole)):
        store = case.make(folder)
        case.set_raw(store, "s", whole[:cut])
        before = case.raw(store, "s")
        kept = sum(cut >= end for end in ends)
        found, writer = reopen(store, "s")
        assert tuple(found.lines) == lines[:kept], f"cut at {cut}"
        assert case.raw(store, "s") == before, "opening alone changed the log"
        writer.append(lines[kept:])
        writer.close()
        again = recover(case.make(folder).read("s"))
        assert tuple(again.lines) == lines and again.skipped_bytes == 0 and not again.set_aside, f"cut at {cut}"


def damage_in_the_middle(case: StoreCase, folder: Path) -> None:
    """Damaged bytes stay as they are, the lines around them are found, the gap is known (R1)."""
    assert case.raw is not None and case.set_raw is not None
    lines = sample_lines(6)
    store = case.make(folder)
    store.create("s", lines[:5]).close()
    rotten = bytearray(case.raw(store, "s"))
    place = len(lines[0]) + len(lines[1]) + 10
    rotten[place : place + 8] = b"\xff\x00GARBAGE"[:8]
    case.set_raw(store, "s", bytes(rotten))
    found, writer = reopen(store, "s")
    assert tuple(found.lines) == (*lines[:2], *lines[3:5])
    assert [(gap.after, gap.before) for gap in found.gaps] == [(1, 3)]
    writer.append(lines[5:])
    writer.close()
    assert case.raw(store, "s") == bytes(rotten) + lines[5] + b"\n"
    assert [info.id for info in case.make(folder).list()] == ["s"]


def hopeless_sessions_are_listed(case: StoreCase, folder: Path) -> None:
    """Sessions of nothing, of zeros, of noise open, and never stop a listing (R1)."""
    assert case.set_raw is not None
    store = case.make(folder)
    store.create("good", sample_lines(3)).close()
    for n, data in enumerate((b"", b"\x00" * 5_000, b"\n\n\n", b"\xff\xfe{]", b"[1]\nnull\n{}\n")):
        store.create(f"bad{n}", sample_lines(1)).close()
        case.set_raw(store, f"bad{n}", data)
        found, writer = reopen(store, f"bad{n}")
        assert found.events == []
        writer.append(sample_lines(1))
        writer.close()
        assert len(recover(store.read(f"bad{n}")).events) == 1
    assert len(list(case.make(folder).list())) == 6


CHECKS: dict[str, Callable[[StoreCase, Path], None]] = {
    check.__name__: check
    for check in (
        lines_come_back,
        large_lines_come_back,
        reading_from_a_line,
        reading_needs_no_lock,
        one_writer,
        closing,
        reading_back,
        accounting,
        keeping_snapshots,
        continuing,
        bad_ids,
        bad_lines,
        unknown_sessions,
        creating,
        listing,
        locating,
        blobs,
        torn_tail,
        damage_in_the_middle,
        hopeless_sessions_are_listed,
    )
}
_NEED_RAW = frozenset({"torn_tail", "damage_in_the_middle", "hopeless_sessions_are_listed"})
