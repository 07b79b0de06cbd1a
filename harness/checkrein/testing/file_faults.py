"""File operations that fail on purpose, and the sweep that lets each one fail in turn (R4, R1).

For any store that sends its file operations through one object ("seam"): `FaultyOps` wraps whatever
that object is and knows its methods only by name. Crash states are crash_states.py.
"""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkrein.errors import StoreError
from checkrein.recovery import recover
from checkrein.store import Snapshotting, Store, Writer

from .store_case import sample_lines

__all__ = ["FaultyOps", "Fault", "fault_sweep", "SweepResult", "ERRORS"]

ERRORS = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EMFILE)
NEVER_FAILING = frozenset({"close", "seek"})

_LINES = sample_lines(12)
_SESSION = "s"
_BLOB = b"\x00blob\xff" * 40


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong.

    Attributes:
        at: the operation it begins with, counted from 0.
        error: the errno raised.
        lasting: whether every later operation fails too, until `heal`.
        short: whether a write takes half of its data first, and the error strikes the operation behind it.
    """

    at: int
    error: int = errno.EIO
    lasting: bool = False
    short: bool = False


class FaultyOps:
    """Passes every operation on to `inner`, but for those the fault strikes.

    Args:
        inner: the store's own file operations.
        fault: what goes wrong; None only counts.

    Attributes:
        names: the operations so far that can fail, in order.
        struck: whether the fault has happened.
    """

    def __init__(self, inner: Any, fault: Fault | None = None) -> None:
        self._inner = inner
        self._fault = fault
        self.names: list[str] = []
        self.struck = False

    def heal(self) -> None:
        """Let nothing fail any more."""
        self._fault = None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name in NEVER_FAILING:
            return method

        def operation(*args: Any) -> Any:
            here = len(self.names)
            self.names.append(name)
            fault = self._fault
            if fault is None or here < fault.at:
                return method(*args)
            if fault.short and here == fault.at:
                return method(args[0], args[1][: len(args[1]) // 2]) if name == "write" else method(*args)
            begin = fault.at + fault.short
            if here == begin or (fault.lasting and here > begin):
                self.struck = True
                raise OSError(fault.error, f"injected into {name}")
            return method(*args)

        return operation


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What a sweep did: how many runs, over how many operations of one run, and the operations' names."""

    runs: int
    operations: int
    names: tuple[str, ...]


def fault_sweep(make: Callable[[Path, Any], Store], seam: Callable[[], Any]) -> SweepResult:
    """Let every operation of a session's life fail in every way, and check that nothing is lost.

    After each fault either the caller tries again and the log ends complete, each line once; or the
    process dies there and what was acknowledged is found by the next one.

    Args:
        make: a store over a folder, with these file operations.
        seam: the store's real file operations.

    Returns:
        The figures.

    Raises:
        AssertionError: naming the fault.
    """
    counting = FaultyOps(seam())
    with tempfile.TemporaryDirectory() as folder:
        _Life(make, Path(folder), counting, seam()).run()
    names = tuple(counting.names)
    runs = 0
    for fault in _faults(names):
        for dies in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                life = _Life(make, Path(folder), FaultyOps(seam(), fault), seam(), dies=dies)
                try:
                    life.run()
                except Exception as exc:
                    raise AssertionError(
                        f"{fault} at {names[fault.at]}, {'then dies' if dies else 'retried'}: {exc!r}"
                    ) from exc
            runs += 1
    return SweepResult(runs, len(names), names)


def _faults(names: tuple[str, ...]) -> Iterator[Fault]:
    for at, name in enumerate(names):
        for error in ERRORS:
            yield Fault(at, error)
        yield Fault(at, errno.EIO, lasting=True)
        if name == "write":
            yield Fault(at, errno.ENOSPC, short=True)
            yield Fault(at, errno.ENOSPC, short=True, lasting=True)


class _Died(Exception):
    """The process ended here."""


class _Life:
    """A session's life: created, appended to, synced, torn by a crash, opened again and continued."""

    def __init__(
        self, make: Callable[[Path, Any], Store], folder: Path, ops: FaultyOps, plain: Any, *, dies: bool = False
    ) -> None:
        self.ops = ops
        self.dies = dies
        self.store = make(folder, ops)
        self.judge = make(folder, plain)
        self.acknowledged = 0
        self.blob: str | None = None
        self.writer: Writer | None = None

    def run(self) -> None:
        """Live, and look at what is left."""
        try:
            self._live()
        except _Died:
            pass
        finally:
            if self.writer is not None:
                self.writer.close()
        self._judge()

    def _live(self) -> None:
        writer = self.writer = self._attempt(lambda: self.store.create(_SESSION, _LINES[:2]))
        self.acknowledged = 2
        self._append(writer, 5)
        self._attempt(writer.sync)
        self.blob = self._attempt(lambda: self.store.put_blob(_SESSION, _BLOB))
        self._append(writer, 6)
        self._attempt(writer.sync)
        if isinstance(writer, Snapshotting):
            self._attempt(lambda: writer.keep(b"a snapshot"))
        writer.close()
        self._attempt(lambda: self.store.read(_SESSION))
        log, writer = self._attempt(lambda: self.store.open(_SESSION))
        self.writer = writer
        lines = self._attempt(lambda: tuple(recover(log).lines))
        assert lines == _LINES[:6], "the lines found on open are not those that were written"
        writer.taken = 6
        self._append(writer, 9)
        self._append(writer, len(_LINES))
        self._attempt(writer.sync)

    def _append(self, writer: Writer, upto: int) -> None:
        self._attempt(lambda: writer.append(_LINES[writer.taken : upto]))
        self.acknowledged = upto

    def _attempt(self, act: Callable[[], Any]) -> Any:
        while True:
            struck = self.ops.struck
            try:
                return act()
            except (OSError, StoreError):
                assert self.ops.struck, "refused although nothing failed"
                if self.dies:
                    self.ops.heal()
                    raise _Died from None
                if struck:
                    self.ops.heal()

    def _judge(self) -> None:
        listed = list(self.judge.list())
        if self.acknowledged == 0:
            assert len(listed) <= 1
            return
        assert [info.id for info in listed] == [_SESSION], f"listed {listed}"
        log, writer = self.judge.open(_SESSION)
        found = recover(log)
        lines = found.lines
        assert lines[: self.acknowledged] == list(_LINES[: self.acknowledged]), "an acknowledged line is lost"
        assert lines == list(_LINES[: len(lines)]), "a line is doubled or out of place"
        assert found.skipped_bytes == 0 and not found.gaps, "whole lines are damaged"
        try:
            writer.taken = len(lines)
            writer.append(sample_lines(len(lines) + 1)[len(lines) :])
        finally:
            writer.close()
        again = recover(self.judge.read(_SESSION))
        assert len(again.lines) == len(lines) + 1 and not again.skipped_bytes, "the next line is lost"
        if self.blob is not None:
            assert self.judge.get_blob(_SESSION, self.blob) == _BLOB
