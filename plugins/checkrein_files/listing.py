"""list_files: what a folder holds."""

from __future__ import annotations

from collections import deque

from checkrein.calls import Outcome
from checkrein.errors import ToolError

from .bounds import MAX_RESULT_BYTES, Clock
from .workspace import Entry, Parts, Workspace, shown

__all__ = ["list_files", "walk"]

MAX_ENTRIES = 50_000
MAX_DEPTH = 64
INSTALLED = frozenset(("node_modules", "__pycache__"))  # and every folder with a pyvenv.cfg
NAMED = 3


def walk(workspace: Workspace, parts: Parts, clock: Clock, *, recursive: bool = True) -> tuple[list[Entry], str]:
    """Return all entries below a folder, folder by folder, following no links.

    Folders of installed or generated files (virtual environments, node_modules, __pycache__) are named but not
    walked into: nobody who asks about a folder means them. Asked for by name they are listed like any other.

    Returns:
        The entries, and why there may be more than these; empty if there are not.

    Raises:
        ToolError: the folder itself cannot be listed; those below it that cannot are left out, and told.
    """
    entries, more = workspace.scan(parts, MAX_ENTRIES)
    todo = deque(entry for entry in entries if entry.kind == "folder") if recursive else deque[Entry]()
    missing = 0
    installed: list[str] = []
    while todo and not more:
        if clock.over():
            return entries, "the time was up"
        folder = todo.popleft()
        if len(folder.parts) - len(parts) >= MAX_DEPTH:
            missing += 1
            continue
        try:
            below, more = workspace.scan(folder.parts, max(MAX_ENTRIES - len(entries), 0))
        except ToolError:
            missing += 1
            continue
        if folder.parts[-1] in INSTALLED or any(entry.parts[-1] == "pyvenv.cfg" for entry in below):
            installed.append(folder.path)
            continue
        entries += below
        todo.extend(entry for entry in below if entry.kind == "folder")
    if more:
        return entries, f"there are more than {MAX_ENTRIES}"
    reasons = [f"{missing} folders could not be read"] if missing else []
    if installed:
        named = ", ".join(map(shown, installed[:NAMED])) + (" and others" if len(installed) > NAMED else "")
        reasons.append(f"installed or generated files in {named} were left out")
    return entries, "; ".join(reasons)


def list_files(workspace: Workspace, clock: Clock, path: str, recursive: bool, sort: str, limit: int) -> Outcome:
    """List a folder; see Plugin.list_files."""
    parts = workspace.locate(path)
    entries, missing = walk(workspace, parts, clock, recursive=recursive)
    files = [entry for entry in entries if entry.kind == "file"]
    folders = sum(entry.kind == "folder" for entry in entries)
    total = sum(entry.size for entry in files)
    if sort == "size":
        entries.sort(key=lambda entry: (entry.kind != "file", -entry.size, entry.parts))
    else:
        entries.sort(key=lambda entry: entry.parts)
    where = shown("/".join(parts) or ".")
    head = f"{where}: {_count(len(files), 'file')}, {_count(folders, 'folder')}, {total} bytes in files"
    lines = [head + (", sub-folders included" if recursive else "")]
    used = len(head)
    shown_entries = entries[:limit]
    for i, entry in enumerate(shown_entries):
        line = _line(entry, parts)
        used += len(line.encode()) + 1
        if used > MAX_RESULT_BYTES:
            shown_entries = shown_entries[:i]
            break
        lines.append(line)
    left = len(entries) - len(shown_entries)
    if left:
        lines.append(f"[{left} more entries are not shown; list a sub-folder, or sort by size]")
    if missing:
        lines.append(f"[not complete: {missing}]")
    if not entries and not missing:
        lines.append("(empty)")
    rows = [{"path": entry.path, "kind": entry.kind, "size": entry.size} for entry in shown_entries]
    value = {"path": "/".join(parts) or ".", "entries": rows, "complete": not (left or missing)}
    return Outcome.text("\n".join(lines), value=value)


def _count(n: int, word: str) -> str:
    return f"{n} {word}" if n == 1 else f"{n} {word}s"


def _line(entry: Entry, base: Parts) -> str:
    """`12345  name` for a file, `folder  name/` for a folder; the name is relative to the listed folder."""
    name = shown("/".join(entry.parts[len(base) :]) + ("/" if entry.kind == "folder" else ""))
    if entry.kind == "file":
        return f"{entry.size:>10}  {name}"
    note = "  (leads outside of the workspace)" if entry.outside else ""
    return f"{entry.kind:>10}  {name}{note}"
