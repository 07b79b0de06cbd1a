"""The checks of what a store may do besides: reading back, accounts, snapshots. None of it has to be there."""

from __future__ import annotations

from pathlib import Path

from checkrein.log import Pages
from checkrein.recovery import reopen
from checkrein.store import Accounting, Rereading, Snapshot, Snapshotting

from .store_case import StoreCase, sample_lines

__all__ = ["reading_back", "accounting", "keeping_snapshots"]


def reading_back(case: StoreCase, folder: Path) -> None:
    """A writer that can read back gives exactly the lines it took last, or none; no writer must be able to."""
    lines = sample_lines(7)
    writer = case.make(folder).create("s", lines[:3])
    writer.append(lines[3:])
    if isinstance(writer, Rereading):
        for first in range(7):
            for count in range(1, 8 - first):
                pages = writer.reread(lines[first:], count)
                assert tuple(Pages(pages)) == lines[first : first + count], (first, count)
        for others in (lines[:6], lines[1:3], (*lines, *lines), sample_lines(7, agent="other")):
            assert not writer.reread(others, len(others)), "these are not the last lines it took"
    writer.close()


def accounting(case: StoreCase, folder: Path) -> None:
    """A store that keeps accounts gives back the last ones, and they are no session; no store must keep any."""
    store = case.make(folder)
    store.create("s", sample_lines(1)).close()
    if isinstance(store, Accounting):
        assert store.accounts(100) is None
        for data in (b"{}", b"\x00\n" * 3_000, b""):
            store.put_accounts(data)
            again = case.make(folder)
            assert isinstance(again, Accounting) and again.accounts(6_000) == data
            assert again.accounts(3) == data[:3]
    assert [info.id for info in case.make(folder).list()] == ["s"]


def keeping_snapshots(case: StoreCase, folder: Path) -> None:
    """A snapshot that a writer can keep is given back on opening, for exactly the lines it stands for."""
    lines = sample_lines(9)
    case.make(folder).create("s", lines[:1]).close()
    for upto in (3, 5, 8):
        found, writer = reopen(case.make(folder), "s")
        if not isinstance(writer, Snapshotting):
            return writer.close()
        writer.append(lines[len(found.lines) : upto])
        writer.keep(b"of %d" % upto)
        writer.append(lines[upto : upto + 1])
        writer.close()
        log, writer = case.make(folder).open("s")
        writer.close()
        assert tuple(log.lines) == lines[: upto + 1] and log.snapshot == Snapshot(upto, b"of %d" % upto), log
        assert isinstance(log.lines, Pages) and not log.lines.upto(upto).recent
    for wrong in (lines[:7], lines[1:], (*lines[:3], *lines[4:]), ()) if case.set_raw is not None else ():
        case.set_raw(case.make(folder), "s", b"\n".join(wrong) + b"\n")  # type: ignore[misc]
        log, writer = case.make(folder).open("s")
        writer.close()
        assert log.snapshot is None, "it was made of other lines"
    return None
