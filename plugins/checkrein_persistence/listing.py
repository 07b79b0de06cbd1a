"""The listing of sessions: quick through an index that is only ever a copy of what the logs say.

An entry counts as long as its log has the size and time it had when the entry was made; the index
can be deleted, damaged or out of date without any loss.
"""

from __future__ import annotations

import os
from pathlib import Path
from stat import S_ISREG

import msgspec
from msgspec.structs import replace

from checkrein.errors import StoreError
from checkrein.recovery import summary
from checkrein.store import SessionInfo, check_session_id

from .files import NO_FILE, FileOps
from .files import replace as replace_file

__all__ = ["list_sessions"]

VERSION = 1

_HEAD_BYTES = 16_384
_TAIL_BYTES = 8_192
_LINE_BYTES_MAX = 4_194_304  # a longer last line is not read for a listing


class _Entry(msgspec.Struct, array_like=True):
    size: int
    mtime_ns: int
    info: SessionInfo


class _Index(msgspec.Struct):
    version: int
    entries: dict[str, _Entry]


_decoder = msgspec.json.Decoder(_Index)


def list_sessions(ops: FileOps, sessions: Path, index: Path) -> list[SessionInfo]:
    """Return all sessions of a folder, newest first.

    Args:
        ops: the file operations, to write the index with.
        sessions: the folder that holds a folder for each.
        index: the index file, read and brought up to date where that is possible.

    Returns:
        One info a session; what cannot be read is in its `problem`, it never raises for one session.
    """
    known = _load(index)
    entries: dict[str, _Entry] = {}
    bad: list[SessionInfo] = []
    changed = False
    try:
        names = os.listdir(sessions)  # noqa: PTH208 - ten thousand Path objects would cost more than all the rest
    except OSError:
        names = []
    for name in names:
        entry = known.get(name)
        path = f"{sessions}/{name}/log.jsonl"
        try:
            stat = os.stat(path)  # noqa: PTH116 - as above
            if not S_ISREG(stat.st_mode):
                raise OSError(NO_FILE)
        except (FileNotFoundError, NotADirectoryError):
            continue  # no session: a creation that did not come to its end
        except OSError as exc:
            bad.append(SessionInfo(name, problem=f"cannot be read: {exc}"))
            continue
        try:
            check_session_id(name)  # no store opens another one, and the index cannot hold every folder's name
        except StoreError as exc:
            bad.append(SessionInfo(name, size_bytes=stat.st_size, problem=str(exc)))
            continue
        if entry is None or entry.size != stat.st_size or entry.mtime_ns != stat.st_mtime_ns:
            entry = _Entry(stat.st_size, stat.st_mtime_ns, _describe(name, Path(path), stat.st_size))
            changed = True
        entries[name] = entry
    if changed or len(entries) != len(known):
        _save(ops, index, entries)
    return sorted([*bad, *(entry.info for entry in entries.values())], key=_age, reverse=True)


def _age(info: SessionInfo) -> tuple[int, str]:
    return (info.updated_ms, info.id)


def _describe(session_id: str, path: Path, size: int) -> SessionInfo:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
            if len(head) >= size:
                return summary(session_id, _whole(head), size_bytes=size)
            tail = b""
            want = _TAIL_BYTES
            while tail.count(b"\n") < 2 and want <= _LINE_BYTES_MAX * 2 and len(tail) < size:
                file.seek(max(0, size - want))
                tail = file.read(want)
                want *= 8
    except OSError as exc:
        return SessionInfo(session_id, size_bytes=size, problem=f"cannot be read: {exc}")
    first, last = head.rpartition(b"\n")[0].split(b"\n"), tail.split(b"\n")[1:]
    return replace(summary(session_id, first, _ended(last)), size_bytes=size)


def _whole(data: bytes) -> list[bytes]:
    return _ended(data.split(b"\n"))


def _ended(lines: list[bytes]) -> list[bytes]:
    """Leave out what is behind the last newline: a writer may be at it."""
    return lines[:-1]


def _load(index: Path) -> dict[str, _Entry]:
    try:
        found = _decoder.decode(index.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return found.entries if found.version == VERSION else {}


def _save(ops: FileOps, index: Path, entries: dict[str, _Entry]) -> None:
    """Write the index in one piece; where that fails, the next listing reads the logs again."""
    try:
        replace_file(ops, index, msgspec.json.encode(_Index(VERSION, entries)))
    except OSError:
        pass
