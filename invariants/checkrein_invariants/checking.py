"""From the bytes of a stored log to what is wrong with it: the pure part of `checkrein check`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from checkrein.eventtypes import EventType
from checkrein.recovery import Recovered, recover, split_tail
from checkrein.store import StoredLog

from .deep import EVERY, Deep
from .oracle import Oracle
from .rules import Violation

__all__ = ["Checked", "Found", "check_bytes", "check_lines", "check_transcript", "to_json", "unreadable_json"]

SESSION_LOG = "session log"
_SHOWN = 4
_LINE_CHARS = 400


class Found(Struct, frozen=True):
    """A violation with its place in the file.

    Attributes:
        rule: the rule's id; in a transcript what kind of problem it is.
        severity: `error` or `warning`.
        seq: the event at which it showed, -1 in a transcript.
        line: its line in the file, from 1; 0 if it has none of its own.
        message: expected and got.
        shown: line numbers and texts of the events concerned.
    """

    rule: str
    severity: str
    seq: int
    line: int
    message: str
    shown: list[tuple[int, str]] = field(default_factory=list)


class Checked(Struct, frozen=True):
    """What was found in one file.

    Attributes:
        name: the file.
        kind: `session log`, or the name of another agent's format.
        events: how many events or messages it holds.
        found: what is wrong.
        notes: what the next open will put right: an interrupted turn, a torn tail, bytes that are no event.
    """

    name: str
    kind: str
    events: int
    found: list[Found]
    notes: list[str]

    def ok(self, strict: bool = False) -> bool:
        """Whether no rule is broken; `strict` allows no notes and no warnings either."""
        return not any(strict or found.severity == "error" for found in self.found) and not (strict and self.notes)

    @property
    def summary(self) -> str:
        """One line for a person."""
        unit = "events" if self.kind == SESSION_LOG else "messages"
        return f"{self.kind}, {self.events} {unit}, {len(self.found)} findings:"


def check_bytes(name: str, data: bytes, *, deep: bool = False) -> Checked | None:
    """Check a file's content.

    Args:
        name: what to call it.
        data: the whole file.
        deep: also derive and validate the history after every event, and rebuild each request.

    Returns:
        What was found; None if it holds no event of ours.
    """
    lines = data.split(b"\n")
    whole, torn = split_tail(lines.pop())
    if whole:
        lines.append(whole)
    return check_lines(name, lines, torn=torn, deep=deep)


def check_lines(
    name: str, lines: Sequence[bytes], *, torn: bytes = b"", deep: bool = False, types: Iterable[EventType] = ()
) -> Checked | None:
    """Check a log by its lines, as a store returns them.

    Args:
        name: what to call it.
        lines: without newline, damaged ones included.
        torn: what stands behind the last newline.
        deep: as check_bytes.
        types: event types that plugins registered, with their balance rules.

    Returns:
        What was found; None if no line is an event.
    """
    recovered = recover(StoredLog(lines, torn))
    if not recovered.events:
        return None
    by_name = {kind.name: kind for kind in types}
    oracle = Oracle(kind.balance for kind in by_name.values() if kind.balance is not None)
    derived = Deep(oracle.report, by_name, EVERY) if deep else None
    for event in recovered.events:
        oracle.feed(event)
        if derived is not None:
            derived.feed(event)
    violations = oracle.finish(open_ok=True)
    numbers = {line: number for number, line in enumerate(lines, 1)}
    stored = {event.seq: line for event, line in zip(recovered.events, recovered.lines, strict=True)}
    found = [_found(violation, stored, numbers) for violation in violations]
    if oracle.report.dropped:
        found.append(Found("", "error", -1, 0, f"{oracle.report.dropped} more findings are not shown"))
    return Checked(name, SESSION_LOG, len(recovered.events), found, _notes(recovered, oracle.open_turn))


def check_transcript(name: str, data: bytes) -> Checked | None:
    """Check the content of another agent's transcript.

    Args:
        name: what to call it.
        data: the whole file.

    Returns:
        What was found; None if no reader knows it.
    """
    from checkrein.transcripts import TranscriptError
    from checkrein.transcripts import check_bytes as read

    try:
        report = read(name, data)
    except TranscriptError:
        return None
    lines = data.splitlines()
    found = []
    for problem in report.problems:
        text = lines[problem.line - 1] if 0 < problem.line <= len(lines) else b""
        shown = [(problem.line, text[:_LINE_CHARS].decode("utf-8", "replace"))] if text else []
        found.append(Found(problem.kind, "error", -1, problem.line, problem.message, shown))
    return Checked(name, report.format, report.messages, found, [])


def _found(violation: Violation, stored: dict[int, bytes], numbers: dict[bytes, int]) -> Found:
    shown = []
    for seq in dict.fromkeys(violation.events[-_SHOWN:]):
        line = stored.get(seq)
        if line is not None:
            shown.append((numbers.get(line, 0), line[:_LINE_CHARS].decode("utf-8", "replace")))
    line_number = numbers.get(stored.get(violation.seq, b""), 0)
    return Found(violation.rule, violation.severity, violation.seq, line_number, violation.message, shown)


def _notes(recovered: Recovered, open_turn: int) -> list[str]:
    notes = []
    if open_turn:
        notes.append(f"interrupted in turn {open_turn}: it will be closed at the next open")
    if recovered.set_aside:
        notes.append(f"the last {len(recovered.set_aside)} bytes are torn: they will be set aside at the next open")
    if recovered.skipped_bytes:
        notes.append(f"{recovered.skipped_bytes} bytes are no events")
    if recovered.read_only:
        notes.append("a newer version wrote this log: it was checked as far as this one knows it")
    return notes


def to_json(checked: Checked, strict: bool = False) -> str:
    """One JSON object for programs."""
    value: dict[str, Any] = {
        "file": checked.name,
        "kind": checked.kind,
        "balanced": checked.ok(strict),
        "events": checked.events,
        "notes": checked.notes,
        "findings": [
            {
                "rule": found.rule,
                "severity": found.severity,
                "seq": found.seq,
                "line": found.line,
                "message": found.message,
                "events": [{"line": line, "text": text} for line, text in found.shown],
            }
            for found in checked.found
        ],
    }
    return msgspec.json.encode(value).decode()


def unreadable_json(name: str, problem: str) -> str:
    """The JSON object of a file that cannot be read."""
    return msgspec.json.encode({"file": name, "kind": "unreadable", "balanced": False, "problem": problem}).decode()
