"""Crash states: every state a power loss could leave behind a store, from a recording of its file operations.

The model is weaker than any real file system: an operation that no fsync has covered may be there or
not, whatever its neighbours do, and a write may be there in part. What a store survives here it
survives on ext4, XFS, btrfs and APFS. Operations that fail are file_faults.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

__all__ = ["RecordingOps", "CrashState", "crash_states"]

EXHAUSTIVE = 4  # up to so many unsynced operations, every subset of them is tried
TEAR_BYTES = 512  # a torn write is cut here, at its half, and one byte before its end


@dataclass(frozen=True, slots=True)
class _Step:
    """One change of the disk: bytes of a file (`data` at `offset`), a file's size, or a folder's entry."""

    node: int
    kind: str  # write, size, entry
    offset: int = 0
    data: bytes = b""
    entries: tuple[tuple[int, str, int | None], ...] = ()


@dataclass(frozen=True, slots=True)
class _Sync:
    """What is certain after so many steps: a node's changes are on the disk, or what the user noted (node -1)."""

    steps: int
    node: int
    note: Any = None


@dataclass(frozen=True, slots=True)
class CrashState:
    """A disk after a crash.

    Attributes:
        files: contents by path, relative to the root.
        folders: the folders there are.
        note: the last note given to `RecordingOps.mark` before the crash.
        told: how it came about.
    """

    files: dict[str, bytes]
    folders: frozenset[str]
    note: Any
    told: str

    def write_to(self, root: Path) -> None:
        """Make these files and folders under a root."""
        for name in sorted(self.folders):
            (root / name).mkdir(parents=True, exist_ok=True)
        for name, data in self.files.items():
            (root / name).write_bytes(data)


@dataclass(slots=True)
class _Disk:
    """Nodes by number, 0 the root folder; folders map names to nodes."""

    files: dict[int, bytearray] = field(default_factory=dict)
    folders: dict[int, dict[str, int]] = field(default_factory=lambda: {0: {}})

    def apply(self, step: _Step) -> None:
        if step.kind == "entry":
            for folder, name, node in step.entries:
                names = self.folders.setdefault(folder, {})
                if node is None:
                    names.pop(name, None)
                else:
                    names[name] = node
            return
        data = self.files.setdefault(step.node, bytearray())
        if step.kind == "size":
            del data[step.offset :]
            data.extend(bytes(step.offset - len(data)))
        else:
            data.extend(bytes(max(0, step.offset - len(data))))
            data[step.offset : step.offset + len(step.data)] = step.data

    def walk(self, is_folder: Callable[[int], bool]) -> tuple[dict[str, bytes], frozenset[str]]:
        files: dict[str, bytes] = {}
        folders: set[str] = set()
        todo = [("", 0)]
        while todo:
            prefix, folder = todo.pop()
            for name, node in self.folders.get(folder, {}).items():
                if is_folder(node):
                    folders.add(prefix + name)
                    todo.append((f"{prefix}{name}/", node))
                else:
                    files[prefix + name] = bytes(self.files.get(node, b""))
        return files, frozenset(folders)


class RecordingOps:
    """Passes file operations on to a store's own, and records what they change.

    Args:
        inner: the store's file operations: mkdir, open, close, write, seek, truncate, fsync, fsync_dir,
            link, rename, unlink; any other method changes nothing.
        root: the folder under which the store lies, empty at the start.
    """

    def __init__(self, inner: Any, root: Path) -> None:
        self._inner = inner
        self._root = root
        self._disk = _Disk()
        self._open: dict[int, list[Any]] = {}  # fd -> [node, place, appends]
        self._nodes = 0
        self.steps: list[_Step] = []
        self.syncs: list[_Sync] = []
        self.lost: set[int] = set()  # steps whose sync failed: the kernel forgets them, no later sync covers them

    def mark(self, note: Any) -> None:
        """Note what the user knows now, as which lines are durable."""
        self.syncs.append(_Sync(len(self.steps), -1, note))

    def is_folder(self, node: int) -> bool:
        """Whether a node is a folder."""
        return node in self._disk.folders

    # --- the operations ---------------------------------------------------------------------------------

    def mkdir(self, path: Path) -> None:
        """Record the folders that are new."""
        missing = [p for p in (path, *path.parents) if p.is_relative_to(self._root) and not p.is_dir()]
        self._inner.mkdir(path)
        for folder in reversed(missing):
            node = self._new()
            self._disk.folders[node] = {}
            self._entry((self._folder(folder.parent), folder.name, node))

    def open(self, path: Path, flags: int) -> int:
        """Record a creation."""
        fd: int = self._inner.open(path, flags)
        folder = self._folder(path.parent)
        node = self._disk.folders[folder].get(path.name)
        if node is None:
            node = self._new()
            self._disk.files[node] = bytearray()
            self._entry((folder, path.name, node))
        elif flags & os.O_TRUNC:
            self._step(_Step(node, "size", 0))
        self._open[fd] = [node, 0, bool(flags & os.O_APPEND)]
        return fd

    def close(self, fd: int) -> None:
        """Forget the file."""
        self._open.pop(fd, None)
        self._inner.close(fd)

    def write(self, fd: int, data: bytes) -> int:
        """Record the bytes."""
        count: int = self._inner.write(fd, data)
        file = self._open[fd]
        node, place, appends = file
        if appends:
            place = len(self._disk.files[node])
        self._step(_Step(node, "write", place, bytes(data[:count])))
        file[1] = place + count
        return count

    def seek(self, fd: int, offset: int) -> None:
        """Follow the place."""
        self._inner.seek(fd, offset)
        self._open[fd][1] = offset

    def truncate(self, fd: int, size: int) -> None:
        """Record the size."""
        self._inner.truncate(fd, size)
        self._step(_Step(self._open[fd][0], "size", size))

    def fsync(self, fd: int) -> None:
        """Record that the file's bytes are on the disk, or that they may never be."""
        node = self._open[fd][0]
        try:
            self._inner.fsync(fd)
        except OSError:
            covered = _durable(self, self.syncs)
            self.lost.update(i for i, step in enumerate(self.steps) if _touches(step, node) and i not in covered)
            raise
        self.syncs.append(_Sync(len(self.steps), node))

    def fsync_dir(self, path: Path) -> None:
        """Record that the folder's entries are on the disk."""
        self._inner.fsync_dir(path)
        if path.absolute().is_relative_to(self._root):
            self.syncs.append(_Sync(len(self.steps), self._folder(path)))

    def link(self, source: Path, target: Path) -> bool:
        """Record the new name."""
        done: bool = self._inner.link(source, target)
        if done:
            node = self._disk.folders[self._folder(source.parent)][source.name]
            self._entry((self._folder(target.parent), target.name, node))
        return done

    def rename(self, source: Path, target: Path) -> None:
        """Record both names as one change."""
        self._inner.rename(source, target)
        folder = self._folder(source.parent)
        node = self._disk.folders[folder][source.name]
        self._entry((self._folder(target.parent), target.name, node), (folder, source.name, None))

    def unlink(self, path: Path) -> None:
        """Record the name's end."""
        self._inner.unlink(path)
        folder = self._folder(path.parent)
        if path.name in self._disk.folders[folder]:
            self._entry((folder, path.name, None))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    # --- the record -------------------------------------------------------------------------------------

    def _new(self) -> int:
        self._nodes += 1
        return self._nodes

    def _folder(self, path: Path) -> int:
        node = 0
        for name in path.absolute().relative_to(self._root).parts:
            node = self._disk.folders[node][name]
        return node

    def _entry(self, *entries: tuple[int, str, int | None]) -> None:
        self._step(_Step(entries[0][0], "entry", entries=entries))

    def _step(self, step: _Step) -> None:
        self.steps.append(step)
        self._disk.apply(step)


def crash_states(recording: RecordingOps) -> Iterator[CrashState]:
    """Yield every different state a crash could leave, at any moment of the recording.

    For each moment: all unsynced steps there, none there, each one missing, each one alone, every subset
    where they are few, and each unsynced write torn. States that are the same, with the same note, come once.
    """
    seen: set[Any] = set()
    for count, upto in _moments(recording):
        syncs = recording.syncs[:upto]
        durable = _durable(recording, syncs)
        loose = [index for index in range(count) if index not in durable]
        note = next((sync.note for sync in reversed(syncs) if sync.node == -1), None)
        for kept in _choices(loose):
            for torn in (None, *[index for index in kept if recording.steps[index].kind == "write"]):
                for cut in (0,) if torn is None else _cuts(len(recording.steps[torn].data)):
                    state = _state(recording, durable | kept, count, torn, cut, note)
                    key = (frozenset(state.files.items()), state.folders, repr(note))
                    if key not in seen:
                        seen.add(key)
                        yield state


def _moments(recording: RecordingOps) -> Iterator[tuple[int, int]]:
    """How many steps and syncs had been made, at each moment."""
    done = 0
    for count in range(len(recording.steps) + 1):
        yield count, done
        while done < len(recording.syncs) and recording.syncs[done].steps == count:
            done += 1
            yield count, done


def _durable(recording: RecordingOps, syncs: Sequence[_Sync]) -> frozenset[int]:
    covered = (index for sync in syncs for index in range(sync.steps) if _touches(recording.steps[index], sync.node))
    return frozenset(covered) - recording.lost


def _touches(step: _Step, node: int) -> bool:
    if step.kind == "entry":
        return all(folder == node for folder, _, _ in step.entries)
    return step.node == node


def _choices(loose: list[int]) -> Iterator[frozenset[int]]:
    if len(loose) <= EXHAUSTIVE:
        for size in range(len(loose) + 1):
            yield from map(frozenset, combinations(loose, size))
        return
    everything = frozenset(loose)
    yield everything
    yield frozenset()
    for index in loose:
        yield everything - {index}
        yield frozenset({index})
        yield frozenset(other for other in loose if other < index)


def _cuts(size: int) -> Iterator[int]:
    yield from sorted({cut for cut in (TEAR_BYTES, size // 2, size - 1) if 0 < cut < size})


def _state(
    recording: RecordingOps, kept: frozenset[int], count: int, torn: int | None, cut: int, note: Any
) -> CrashState:
    disk = _Disk()
    for index in sorted(kept):
        step = recording.steps[index]
        disk.apply(_Step(step.node, "write", step.offset, step.data[:cut]) if index == torn else step)
    files, folders = disk.walk(recording.is_folder)
    missing = sorted(set(range(count)) - kept)
    told = f"after {count} steps, without {missing}" + ("" if torn is None else f", step {torn} cut at {cut}")
    return CrashState(files, folders, note, told)
