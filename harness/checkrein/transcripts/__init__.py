"""Transcripts of other agents: what is wrong with them, and a balanced copy.

    report = check("session.jsonl")            # .format, .problems with line numbers
    report = repair("session.jsonl", "repaired.jsonl")   # .changes lists everything the copy has otherwise

OpenAI chat messages, Anthropic messages, dsh and pH session logs and Bub tapes are known. Another
format is one module with a Format in it: `register(MyFormat())`, or an entry point of the group
`checkrein.transcripts` that names the class. The original is never touched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from .anthropic_messages import AnthropicMessages
from .balance import Balanced, balance
from .bub import BubTape
from .document import Document, dump, parse
from .dsh import DshLog, PhLog
from .model import Call, Change, Format, Item, Problem, Report, TranscriptError
from .openai_chat import OpenAIChat

__all__ = [
    "check",
    "check_bytes",
    "repair",
    "register",
    "formats",
    "chat_messages",
    "Report",
    "Problem",
    "Change",
    "Format",
    "Item",
    "Call",
    "TranscriptError",
]

GROUP = "checkrein.transcripts"
MAX_BYTES = 1_000_000_000

_FORMATS: dict[str, Format] = {
    known.name: known for known in (OpenAIChat(), AnthropicMessages(), DshLog(), PhLog(), BubTape())
}


def register(new: Format) -> None:
    """Add a format; one of the same name is replaced."""
    _FORMATS[new.name] = new


def formats() -> dict[str, Format]:
    """All formats by name: ours, those registered, and those of installed distributions."""
    for point in metadata.entry_points(group=GROUP):
        if point.name not in _FORMATS:
            try:
                register(point.load()())
            except Exception as exc:  # somebody else's module: it must not keep the others from working
                raise TranscriptError(f"the transcript format {point.name!r} cannot be loaded: {exc!r}") from exc
    return dict(_FORMATS)


def check(path: str | os.PathLike[str], *, format: str | None = None) -> Report:  # noqa: A002 - the public word
    """Check a transcript.

    Args:
        path: the file.
        format: the format's name; found out if not given.

    Returns:
        What was found.

    Raises:
        TranscriptError: it is in no known format.
        OSError: it cannot be read.
    """
    return check_bytes(str(path), _read(Path(path)), format=format)


def check_bytes(name: str, data: bytes, *, format: str | None = None) -> Report:  # noqa: A002
    """Check a transcript's content; see `check`."""
    document = parse(data)
    known = _format_of(name, document, format)
    balanced, problems = _balance(known, document)
    return Report(name, known.name, _count(balanced), _sorted(problems + balanced.problems))


def repair(path: str | os.PathLike[str], out: str | os.PathLike[str], *, format: str | None = None) -> Report:  # noqa: A002
    """Write a balanced copy of a transcript.

    Args:
        path: the file; it stays as it is.
        out: the copy, which must not exist yet.
        format: the format's name; found out if not given.

    Returns:
        What was found, and every change.

    Raises:
        TranscriptError: it is in no known format, or `out` exists.
        OSError: a file cannot be read or written.
    """
    document = parse(_read(Path(path)))
    known = _format_of(str(path), document, format)
    balanced, problems = _balance(known, document)
    rows, further = known.write(document, balanced.items)
    dropped = [Change(line, "left out a line that is no JSON") for line, _ in document.unreadable]
    changes = tuple(sorted([*dropped, *balanced.changes, *further], key=lambda change: change.line or 1 << 60))
    target = Path(out)
    _write(target, dump(document, rows))
    return Report(str(path), known.name, _count(balanced), _sorted(problems + balanced.problems), changes, target)


def chat_messages(path: str | os.PathLike[str], *, format: str | None = None) -> list[dict[str, Any]]:  # noqa: A002
    """A transcript's messages as OpenAI chat messages, whatever its format; for validators and viewers."""
    document = parse(_read(Path(path)))
    items, _ = _format_of(str(path), document, format).read(document)
    return list(_as_chat(items))


def _as_chat(items: list[Item]) -> Iterator[dict[str, Any]]:
    for item in items:
        if item.kind == "assistant":
            calls = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in item.calls
            ]
            message: dict[str, Any] = {"role": "assistant", "content": item.text or None}
            yield {**message, "tool_calls": calls} if calls else message
        elif item.kind == "result":
            yield {"role": "tool", "tool_call_id": item.call_id, "content": item.text}
        elif item.kind in ("user", "system") and item.text:
            yield {"role": item.kind, "content": item.text}


def _format_of(name: str, document: Document, wanted: str | None) -> Format:
    known = formats()
    if wanted is not None:
        if wanted not in known:
            raise TranscriptError(f"expected one of the formats {', '.join(sorted(known))}, got {wanted!r}")
        return known[wanted]
    best = max(known.values(), key=lambda each: each.fits(document))
    if best.fits(document) <= 0:
        raise TranscriptError(
            f"expected a transcript in one of the formats {', '.join(sorted(known))}, got {name} with "
            f"{len(document.rows)} rows that fit none; name its format if you know it"
        )
    return best


def _balance(known: Format, document: Document) -> tuple[Balanced, list[Problem]]:
    items, problems = known.read(document)
    problems += [Problem(line, "unreadable", f"no JSON: {raw[:60]!r}") for line, raw in document.unreadable]
    return balance(items), problems


def _count(balanced: Balanced) -> int:
    return sum(item.kind in ("user", "assistant", "system", "result") for item in balanced.items)


def _sorted(problems: list[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(problems, key=lambda problem: problem.line))


def _read(path: Path) -> bytes:
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise TranscriptError(f"expected at most {MAX_BYTES} bytes, got {size} in {path}; split it")
    return path.read_bytes()


def _write(target: Path, data: bytes) -> None:
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    if os.path.lexists(target):  # also a link that leads nowhere
        raise TranscriptError(f"{target} exists already; a repair overwrites nothing, name another file")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
