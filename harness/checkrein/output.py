"""What a tool returned, as a result the log can hold and a model can read (L9, X2, X5).

`to_outcome` takes any value, `failure` any exception, `cap` keeps results small. Nothing here knows the loop.
"""

from __future__ import annotations

import binascii
import inspect
from base64 import b64decode
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import PurePath
from typing import Any, TypeAlias, TypeVar

import msgspec

from .calls import Outcome, check_members, error_outcome
from .codec import plain
from .errors import NotPlainJSON, ToolError
from .events import ToolErrorInfo
from .messages import Block, CallBlock, Content, MediaBlock, OpaqueBlock, TextBlock, ThinkingBlock
from .text import clean, clean_json, describe, preview

__all__ = [
    "to_outcome",
    "checked_block",
    "failure",
    "cap",
    "capped",
    "looks_binary",
    "describe_bytes",
    "kind_of",
    "PutBlob",
    "READ_OUTPUT",
]

PutBlob: TypeAlias = Callable[[bytes], str]
B = TypeVar("B", bound=Block)

READ_OUTPUT = "read_output"  # the tool that pages through what was left out; checkrein_files brings it
MAX_BLOCKS = 64
MIN_SHARE_BYTES = 1_000
SAMPLE_CHARS = 8_192
_NOTHING = "(no output)"
_MAGIC = (
    *((b"\x89PNG\r\n\x1a\n", "PNG image"), (b"\xff\xd8\xff", "JPEG image"), (b"GIF8", "GIF image")),
    *((b"%PDF-", "PDF document"), (b"PK\x03\x04", "zip archive"), (b"\x1f\x8b", "gzip data")),
    *((b"\x7fELF", "ELF program"), (b"SQLite format 3\x00", "SQLite database"), (b"RIFF", "RIFF media")),
)


def to_outcome(value: Any) -> Outcome:
    """Return what a tool returned as an outcome.

    Args:
        value: None, text, a content block or a list of them and text, an Outcome, bytes, or anything that has a JSON
            form: plain JSON, dataclasses, Structs, Enums, dates, paths, pydantic models.

    Returns:
        Text and blocks as they are, cleaned; JSON as compact text with its `value`; binary data described, not
        dumped. What has no JSON form becomes an error outcome that says so.
    """
    if type(value) is str:
        text, count = clean(value)
        return Outcome([TextBlock(text)], cleaned=count or None)
    if value is None:
        return Outcome([TextBlock(_NOTHING)])
    if isinstance(value, Outcome):
        return _checked(value)
    if isinstance(value, str):  # a subclass
        return to_outcome(str.__str__(value))
    if isinstance(value, _ANY_BLOCK):
        return _checked(Outcome([value]))
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _from_bytes(bytes(value))
    if isinstance(value, (list, tuple)) and all(isinstance(item, (*_ANY_BLOCK, str)) for item in value):
        parts = [TextBlock(str.__str__(item)) if isinstance(item, str) else item for item in value]
        if any(part is item for part, item in zip(parts, value, strict=True)):  # text beside an image, say
            return _checked(Outcome(parts))
    return _from_json(value)


_BLOCKS = (TextBlock, MediaBlock, OpaqueBlock)
_ANY_BLOCK = (*_BLOCKS, CallBlock, ThinkingBlock)


def _from_bytes(data: bytes) -> Outcome:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return Outcome([TextBlock(describe_bytes(data))])
    return Outcome([TextBlock(describe_bytes(data) if looks_binary(text) else text)])


def _from_json(value: Any) -> Outcome:
    try:
        built, count = _built(value)
        text = msgspec.json.encode(built).decode()
    except NotPlainJSON as exc:
        return _no_json(value, str(exc))
    except Exception as exc:  # a value's own conversion may raise anything
        if inspect.iscoroutine(value):
            value.close()
        return _no_json(value, describe(exc))
    return Outcome([TextBlock(text)], value=built, cleaned=count or None)


def _builtin(value: Any) -> Any:
    """The JSON form of what msgspec does not know."""
    for kind in (str, float, int):  # a subclass, as soup.title.string or a float64; what it overrides is not JSON's
        if isinstance(value, kind):
            return getattr(kind, f"__{kind.__name__}__")(value)
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {describe(value)}"
    dump = getattr(value, "model_dump", None)  # pydantic and what imitates it
    if callable(dump) and not isinstance(value, type):
        return dump(mode="json")
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")


def _no_json(value: Any, why: str) -> Outcome:
    kind = clean(type(value).__name__)[0]
    return error_outcome(
        "TOOL_ERROR",
        f"The tool ran and returned a {kind}, which cannot be given as a result: {why}."
        " It should return text, JSON, a dataclass or content blocks.",
        name="UnencodableResult",
    )


def _checked(outcome: Outcome) -> Outcome:
    """An outcome made by a tool or plugin, its text cleaned, refused where the log could not hold it."""
    try:
        check_members(outcome)
        content: list[Block] = []
        total = outcome.cleaned or 0
        for block in outcome.content:
            if not isinstance(block, _BLOCKS):
                return _no_json(outcome, f"it holds a {type(block).__name__}; only text, media and opaque blocks")
            checked, count = checked_block(block)
            content.append(checked)
            total += count
        value, count = _built(outcome.value)
        msgspec.json.encode((content, value))
        error = outcome.error
        if error is not None:
            error = ToolErrorInfo(clean(error.name)[0], clean(error.code)[0])
        elif outcome.is_error:
            error = ToolErrorInfo("TOOL_ERROR", "TOOL_ERROR")
    except Exception as exc:
        return _no_json(outcome, describe(exc))
    return msgspec.structs.replace(
        outcome, content=content or [TextBlock(_NOTHING)], value=value, error=error, cleaned=(total + count) or None
    )


def checked_block(block: B) -> tuple[B, int]:
    """A block as the log and every provider take it, and how many characters of it were replaced (L5, L9).

    Args:
        block: as somebody made it; constructors do not check their types. Bytes as data become base64.

    Raises:
        ValueError: a member has another type, or media has not exactly one of data in base64, url and blob: providers
            would refuse this request, and each one after it.
    """
    built, count = clean_json(msgspec.to_builtins(block, enc_hook=_builtin))
    checked = msgspec.convert(built, type(block))
    if isinstance(checked, MediaBlock):
        if sum(each is not None for each in (checked.data, checked.url, checked.blob)) != 1:
            raise ValueError("expected a media block with exactly one of data, url and blob")
        if checked.data is not None:
            checked = msgspec.structs.replace(checked, data=_base64(checked.data))
    return checked, count


def _base64(data: str) -> str:
    data = "".join(data.split())  # encodebytes breaks lines
    try:
        b64decode(data, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise ValueError(f"expected a media block's data as base64, got {preview(data, 40)!r}: {exc}") from None
    return data


def _built(value: Any) -> tuple[Any, int]:
    """A value as plain JSON, and how many characters were replaced in it."""
    if value is None:
        return None, 0
    built, count = clean_json(msgspec.to_builtins(value, str_keys=True, enc_hook=_builtin))
    return plain(built), count


def failure(exc: BaseException, effect: str) -> Outcome:
    """Return any exception of a tool as an error outcome with a name and a code (X2).

    Args:
        exc: what was raised; a group with one exception in it counts as that one.
        effect: the tool's; what is neither read_only nor idempotent may have done part of its work, and says so.
    """
    while isinstance(exc, BaseExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]
    name = clean(type(exc).__name__)[0]
    if isinstance(exc, ToolError):
        return error_outcome(clean(str(exc.code))[0], describe(exc), name=name)
    text = describe(exc)
    if isinstance(exc, BaseExceptionGroup):
        text += "".join(f"\n- {type(one).__name__}: {describe(one)}" for one in exc.exceptions[:5])
    text = text if text == name else f"{name}: {text}"
    if effect == "effectful":
        text += "\nThe tool failed while it ran: part of its work may be done. Look before you call it again."
    return error_outcome("TOOL_ERROR", text, name=name)


def looks_binary(text: str) -> bool:
    """Whether a text is binary data that was decoded: a NUL, or more than 3 in 10 control or replacement characters."""
    sample = text[:SAMPLE_CHARS]
    if "\0" in sample:
        return True
    if sample.isprintable() and "\ufffd" not in sample:
        return False
    odd = sum(1 for char in sample if (char < " " and char not in "\t\n\r\f\x1b\b") or char == "\ufffd")
    return odd > 8 and odd * 10 > len(sample) * 3


def kind_of(head: bytes) -> str:
    """Return what binary data seems to be, by its first bytes: `PNG image`, or `binary data`."""
    return next((name for magic, name in _MAGIC if head.startswith(magic)), "binary data")


def describe_bytes(data: bytes) -> str:
    """Return one line about binary data: its size, what it seems to be, and its SHA-256."""
    return f"[{kind_of(data)}, {len(data)} bytes, not shown; SHA-256 {sha256(data).hexdigest()}]"


def capped(outcome: Outcome, limit_bytes: int, put_blob: PutBlob | None = None) -> Outcome:
    """Return an outcome as the log takes it: checked if a plugin made it (L9), and within a limit (X5); see cap."""
    content = outcome.content
    if outcome.by is None and outcome.value is None and len(content) == 1 and type(content[0]) is TextBlock:
        text = content[0].text
        # The common result, one short plain text, needs no more than this look.
        if len(text) <= SAMPLE_CHARS <= limit_bytes and text.isascii() and text.isprintable():
            return outcome
    try:
        if outcome.by is not None or not outcome.content:
            raise ValueError  # constructors check nothing, and a plugin's answer went through nothing else
        msgspec.json.encode((outcome.content, outcome.value, outcome.error))
    except Exception:
        outcome = _checked(outcome)
    content, value = outcome.content, outcome.value
    if value is not None and len(data := msgspec.json.encode(value)) > limit_bytes:
        value = None  # programs find it whole in the blob: that of the text, where this is the value's JSON
        if content != [TextBlock(data.decode())]:
            content = [*content, _left_out(data, put_blob)]
    content = cap(content, limit_bytes, put_blob)
    if content is outcome.content and value is outcome.value:
        return outcome
    return msgspec.structs.replace(outcome, content=content, value=value)


def _left_out(data: bytes, put_blob: PutBlob | None) -> TextBlock:
    """What stands for a value beside other text."""
    kept = _keep(data, put_blob)
    how = f'it is kept: {READ_OUTPUT}(output_id="{kept}") shows it' if kept is not None else "it is not kept"
    return TextBlock(f"[the result's value, {len(data)} bytes of JSON, is left out here; {how}]")


def cap(content: Sequence[Block], limit_bytes: int, put_blob: PutBlob | None = None) -> Content:
    """Return content within a limit: head and tail are kept, and a line says what was left out and how to see it.

    Args:
        content: a result's blocks.
        limit_bytes: how many bytes of UTF-8 all text together may take, at least 1,000 to be of use.
        put_blob: keeps the whole of what is cut and returns its SHA-256; without it only the parts are kept.

    Returns:
        The same list if nothing had to change.
    """
    blocks = list(content)
    binary = any(type(block) is TextBlock and looks_binary(block.text) for block in blocks)
    if not binary and len(blocks) <= MAX_BLOCKS and sum(_size(block) for block in blocks) <= limit_bytes:
        return content if isinstance(content, list) else blocks
    if len(blocks) > MAX_BLOCKS or limit_bytes // len(blocks) < MIN_SHARE_BYTES:
        blocks = _merged(blocks)
    sizes = [_size(block) for block in blocks]
    # Small blocks keep what they are; the large ones share what is left.
    share, left = limit_bytes // len(blocks), limit_bytes
    large = [size for size in sizes if size > share]
    if large:
        left -= sum(size for size in sizes if size <= share)
        share = left // len(large)
    return [_cut(block, share, put_blob) for block in blocks]


def _size(block: Block) -> int:
    if type(block) is TextBlock:
        return len(block.text) if block.text.isascii() else len(block.text.encode())
    if type(block) is MediaBlock:
        return len(block.data or "")
    return len(msgspec.json.encode(block))


def _merged(blocks: list[Block]) -> list[Block]:
    """All text in one block, and the first of the others."""
    text = "\n".join(block.text for block in blocks if type(block) is TextBlock)
    others = [block for block in blocks if type(block) is not TextBlock]
    note = f"\n[{len(others) - MAX_BLOCKS} more parts are not shown]" if len(others) > MAX_BLOCKS else ""
    return [TextBlock(text + note), *others[:MAX_BLOCKS]]


def _cut(block: Block, share: int, put_blob: PutBlob | None) -> Block:
    if type(block) is TextBlock:
        if looks_binary(block.text):
            data = block.text.encode()
            kept = _keep(data, put_blob)
            return TextBlock(describe_bytes(data) + (f" [kept as blob {kept}]" if kept else ""))
        return block if _size(block) <= share else TextBlock(_cut_text(block.text, share, put_blob))
    if _size(block) <= share:
        return block
    if type(block) is MediaBlock:
        try:
            data = b64decode(block.data or "", validate=True)
        except (binascii.Error, ValueError):
            return TextBlock(f"[{block.media_type} whose base64 data is damaged, not shown]")
        kept = _keep(data, put_blob)
        if kept is not None:
            return MediaBlock(block.media_type, blob=kept, bytes=len(data), name=block.name)
        return TextBlock(f"[{block.media_type}, {len(data)} bytes, too large to show]")
    return TextBlock(f"[a part of {_size(block)} bytes, too large to show]")


def _cut_text(text: str, share: int, put_blob: PutBlob | None) -> str:
    data = text.encode()
    kept = _keep(data, put_blob)
    room = max(share - 250, 0)  # the line between them takes the rest
    head = _whole_lines(data[: room * 2 // 3].decode(errors="ignore"), from_end=False)
    tail = _whole_lines(data[len(data) - room // 3 :].decode(errors="ignore"), from_end=True)
    shown = len(head.encode())
    left_out = len(data) - shown - len(tail.encode())
    how = (
        f'the whole is kept: {READ_OUTPUT}(output_id="{kept}", offset={shown}) shows what follows'
        if kept is not None
        else "ask for less at a time"
    )
    return f"{head}\n[... {left_out} of {len(data)} bytes are left out here; {how} ...]\n{tail}"


def _whole_lines(text: str, *, from_end: bool) -> str:
    """Drop the torn line at the cut, unless that would drop more than half."""
    if from_end:
        at = text.find("\n")
        return text[at + 1 :] if 0 <= at < len(text) // 2 else text
    at = text.rfind("\n")
    return text[: at + 1] if at > len(text) // 2 else text


def _keep(data: bytes, put_blob: PutBlob | None) -> str | None:
    if put_blob is None:
        return None
    try:
        return put_blob(data)
    except Exception:  # a store that fails must not take the result with it; its next flush tells
        return None
