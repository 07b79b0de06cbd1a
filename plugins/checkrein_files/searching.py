"""search_text: where a text occurs, literally. No regular expressions: one can hold a thread for ever."""

from __future__ import annotations

from fnmatch import fnmatch

from checkrein.calls import Outcome
from checkrein.errors import ToolError

from .bounds import MAX_RESULT_BYTES, Clock
from .listing import walk
from .reading import HEAD_BYTES, is_binary
from .workspace import Entry, Workspace, shown

__all__ = ["search_text"]

MAX_FILE_BYTES = 5_000_000
MAX_MATCHES_PER_FILE = 50
AROUND_CHARS = 120


class _Search:
    """One search, and what it found so far."""

    def __init__(self, text: str, ignore_case: bool, limit: int) -> None:
        self.ignore_case = ignore_case
        self.text = text.lower() if ignore_case else text
        self.needle = self.text.encode()
        self.limit = limit
        self.lines: list[str] = []
        self.used = 0
        self.matches = 0
        self.files = 0
        self.searched = 0
        self.skipped: dict[str, int] = {}

    @property
    def full(self) -> bool:
        return len(self.lines) >= self.limit or self.used > MAX_RESULT_BYTES

    def skip(self, why: str) -> None:
        self.skipped[why] = self.skipped.get(why, 0) + 1

    def file(self, workspace: Workspace, entry: Entry) -> None:
        try:
            with workspace.open(entry.parts) as opened:
                data = opened.read(MAX_FILE_BYTES + 1)
        except ToolError:
            return self.skip("could not be read")
        if len(data) > MAX_FILE_BYTES:
            return self.skip(f"are larger than {MAX_FILE_BYTES} bytes")
        if is_binary(data[:HEAD_BYTES]):
            return self.skip("are no text")
        self.searched += 1
        if not self.ignore_case and self.needle not in data:
            return None
        found = 0
        for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
            where = (line.lower() if self.ignore_case else line).find(self.text)
            if where < 0:
                continue
            found += 1
            if found <= MAX_MATCHES_PER_FILE and not self.full:
                shown_line = f"{shown(entry.path)}:{number}: {_around(line.rstrip(), where, len(self.text))}"
                self.used += len(shown_line.encode()) + 1
                self.lines.append(shown_line)
        self.matches += found
        self.files += found > 0
        return None


def search_text(
    workspace: Workspace, clock: Clock, text: str, path: str, ignore_case: bool, glob: str, limit: int
) -> Outcome:
    """Search; see Plugin.search_text."""
    if "\n" in text:
        raise ToolError("the text to search for holds a line break, and lines are searched one by one", code="BAD_TEXT")
    search = _Search(text, ignore_case, limit)
    parts = workspace.locate(path)
    patterns = {glob, glob.replace("**/", "")}  # **/ is any number of folders, none among them
    missing = ""
    try:
        entries, missing = walk(workspace, parts, clock)
    except ToolError as exc:
        if exc.code != "NOT_A_FOLDER":
            raise
        entries = [Entry(parts, "file")]
    for entry in entries:
        names = (entry.parts[-1], entry.path)
        if entry.kind != "file" or not any(fnmatch(name, pattern) for name in names for pattern in patterns):
            continue
        if clock.over() or search.full:
            missing = missing or ("the time was up" if not search.full else "there may be more matches")
            break
        search.file(workspace, entry)
    return _result(search, missing)


def _result(search: _Search, missing: str) -> Outcome:
    head = f"{search.matches} matching lines in {search.files} files; {search.searched} files searched"
    lines = [head, *search.lines]
    if (left := search.matches - len(search.lines)) > 0:
        lines.append(f"[{left} more matching lines are not shown; narrow the search by path or glob]")
    for why, count in sorted(search.skipped.items()):
        lines.append(f"[not searched: {count} files that {why}]")
    if missing:
        lines.append(f"[not complete: {missing}]")
    value = {
        "matches": search.matches,
        "files": search.files,
        "searched": search.searched,
        "complete": not missing and left <= 0,
    }
    return Outcome.text("\n".join(lines), value=value)


def _around(line: str, where: int, length: int) -> str:
    """The part of a line around a match."""
    start, end = max(where - AROUND_CHARS, 0), where + length + AROUND_CHARS
    if start < 20:
        start = 0
    return ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")
