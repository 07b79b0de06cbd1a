"""What tools return, as results the log can hold (L9, X2, X5)."""

import base64
import dataclasses
import datetime
import enum
import hashlib
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from checkrein.calls import Outcome, error_outcome
from checkrein.errors import InvalidArguments, ToolError
from checkrein.events import ToolErrorInfo
from checkrein.messages import CallBlock, MediaBlock, OpaqueBlock, TextBlock, content_text
from checkrein.output import cap, capped, failure, looks_binary, to_outcome


class Kind(enum.Enum):
    A = "a"


@dataclasses.dataclass
class Row:
    n: int
    where: Path
    kind: Kind = Kind.A


class Model:
    """What a pydantic model looks like from outside."""

    def model_dump(self, mode: str) -> dict[str, Any]:
        return {"mode": mode}


class Markup(str):
    """What template engines and HTML parsers return for text."""

    def __str__(self) -> str:
        raise TypeError("escape it first")


class Float64(float):
    """What numpy returns for a number."""


class Int(int):
    """As a count with a unit."""


class Hostile:
    def __str__(self) -> str:
        raise SystemExit(3)

    __repr__ = __str__


async def coroutine() -> None: ...


@pytest.mark.parametrize(
    ("value", "text", "structured"),
    [
        ("text", "text", None),
        ("", "", None),
        (None, "(no output)", None),
        (True, "true", True),
        (3, "3", 3),
        (10**30, str(10**30), 10**30),
        ([], "[]", []),
        ({"a": [1, None, "ü"]}, '{"a":[1,null,"ü"]}', {"a": [1, None, "ü"]}),
        ({1: "x"}, '{"1":"x"}', {"1": "x"}),
        ({datetime.date(2020, 2, 3): 1, Kind.A: 2}, '{"2020-02-03":1,"a":2}', {"2020-02-03": 1, "a": 2}),
        (Row(1, Path("a/b")), '{"n":1,"where":"a/b","kind":"a"}', {"n": 1, "where": "a/b", "kind": "a"}),
        ([Row(1, Path("x"))], '[{"n":1,"where":"x","kind":"a"}]', [{"n": 1, "where": "x", "kind": "a"}]),
        (Model(), '{"mode":"json"}', {"mode": "json"}),
        (datetime.date(2020, 2, 3), '"2020-02-03"', "2020-02-03"),
        (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"', "00000000-0000-0000-0000-000000000001"),
        (Decimal("1.50"), '"1.50"', "1.50"),
        ({"n": b"ab"}, '{"n":"YWI="}', {"n": "YWI="}),
        (b"plain text", "plain text", None),
        ((1, 2), "[1,2]", [1, 2]),
        ({"title": Markup("a")}, '{"title":"a"}', {"title": "a"}),
        ([Float64(1.5), Int(3)], "[1.5,3]", [1.5, 3]),
        (Float64(2.5), "2.5", 2.5),
    ],
)
def test_values(value: Any, text: str, structured: Any) -> None:
    outcome = to_outcome(value)
    assert (content_text(outcome.content), outcome.value, outcome.is_error) == (text, structured, False)


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        {"a": [float("inf")]},
        object(),
        Hostile(),
        {"h": Hostile()},
        {(1, 2): 3},
        {None: 1},
        lambda: 1,
        (i for i in range(3)),
        CallBlock("c", "n", "{}"),
        [TextBlock("a"), CallBlock("c", "n", "{}")],
        Outcome([CallBlock("c", "n", "{}")]),
        Outcome([TextBlock(3)]),  # type: ignore[arg-type]
        Outcome([TextBlock("a")], value=object()),
        Outcome("text"),  # type: ignore[arg-type]
    ],
)
def test_L9_what_cannot_be_encoded_becomes_an_error_result(value: Any) -> None:
    outcome = to_outcome(value)
    assert outcome.is_error and outcome.error == ToolErrorInfo("UnencodableResult", "TOOL_ERROR")
    assert "The tool ran" in content_text(outcome.content)
    msgspec.json.encode(outcome)


def test_L9_cycles_and_coroutines_become_error_results() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert to_outcome(loop).is_error
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]
    outcome = to_outcome(deep)  # how deep msgspec goes is Python's; the log goes 100 levels deep
    assert outcome.is_error or "[nested too deeply]" in content_text(outcome.content)
    assert to_outcome(coroutine()).is_error  # closed: no warning that it was never awaited


def test_L9_text_is_cleaned_and_counted() -> None:
    assert to_outcome("\ud83d\ude00").content == [TextBlock("\U0001f600")]
    assert to_outcome("a\ud800b").cleaned == 1 and to_outcome("fine").cleaned is None
    assert to_outcome({"k\ud800": ["\ud800", "\ud800"]}).cleaned == 3
    outcome = to_outcome(Outcome([TextBlock("\ud800"), OpaqueBlock("p", {"x": "\udfff"})], value="\ud800", cleaned=1))
    assert outcome.cleaned == 4 and outcome.content[0] == TextBlock("\ufffd")
    msgspec.json.encode(outcome)


def test_blocks_and_outcomes_pass() -> None:
    media = MediaBlock("image/png", data="AAAA")
    assert to_outcome(media).content == [media]
    assert to_outcome([TextBlock("a"), media]).content == [TextBlock("a"), media]
    mixed = to_outcome([Markup("a"), media, "b"])  # it was JSON, the image as base64 for the model to read
    assert (mixed.content, mixed.value) == ([TextBlock("a"), media, TextBlock("b")], None)
    assert to_outcome(["a", "b"]).value == ["a", "b"]
    assert to_outcome(Outcome([])).content == [TextBlock("(no output)")]
    assert to_outcome(Outcome.text("no", is_error=True)).error == ToolErrorInfo("TOOL_ERROR", "TOOL_ERROR")
    given = error_outcome("MINE", "why", by="plugin")
    assert to_outcome(given) == given


def test_X5_binary_is_described_not_dumped() -> None:
    png = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
    text = content_text(to_outcome(png).content)
    assert "PNG image" in text and "264 bytes" in text and hashlib.sha256(png).hexdigest() in text and len(text) < 200
    assert "binary data" in content_text(to_outcome(b"\xff\xfe\x00").content)
    assert "not shown" in content_text(to_outcome(b"ab\0cd").content)
    assert "not shown" in content_text(cap([TextBlock("ab\0cd")], 1_000))
    assert looks_binary("\x01" * 9 + "abc") and looks_binary("\ufffd" * 9 + "a")
    assert not looks_binary("\x1b[31mred\x1b[0m\n\ttext") and not looks_binary("")


# --- failure (X2) -----------------------------------------------------------------------------------


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)


@pytest.mark.parametrize(
    ("exc", "name", "code", "words"),
    [
        (ValueError("bad"), "ValueError", "TOOL_ERROR", "ValueError: bad"),
        (ToolError("no such row", code="NO_ROW"), "ToolError", "NO_ROW", "no such row"),
        (InvalidArguments("wrong"), "InvalidArguments", "INVALID_ARGUMENTS", "wrong"),
        (KeyError("k"), "KeyError", "TOOL_ERROR", "KeyError: 'k'"),
        (SystemExit(2), "SystemExit", "TOOL_ERROR", "SystemExit: 2"),
        (KeyboardInterrupt(), "KeyboardInterrupt", "TOOL_ERROR", "KeyboardInterrupt"),
        (Unprintable(), "Unprintable", "TOOL_ERROR", "Unprintable"),
        (ValueError("a\ud800"), "ValueError", "TOOL_ERROR", "a\ufffd"),
        (ExceptionGroup("g", [ExceptionGroup("h", [OSError("disk")])]), "OSError", "TOOL_ERROR", "disk"),
        (ExceptionGroup("g", [OSError("one"), ValueError("two")]), "ExceptionGroup", "TOOL_ERROR", "two"),
    ],
)
def test_case_X04_X2_any_exception_is_an_error_result_with_name_and_code(
    exc: BaseException, name: str, code: str, words: str
) -> None:
    outcome = failure(exc, "read_only")
    assert outcome.is_error and outcome.error == ToolErrorInfo(name, code)
    assert words in content_text(outcome.content)
    msgspec.json.encode(outcome)


def test_X2_an_effectful_tool_that_failed_may_have_done_part_of_its_work() -> None:
    def words(effect: str) -> str:
        return content_text(failure(ValueError("x"), effect).content)

    assert "part of its work" in words("effectful")
    assert "part of its work" not in words("read_only") + words("idempotent")
    assert len(content_text(failure(ValueError("x" * 10**6), "effectful").content)) < 3_000


# --- cap (X5) ---------------------------------------------------------------------------------------


class Blobs(dict[str, bytes]):
    def put(self, data: bytes) -> str:
        key = hashlib.sha256(data).hexdigest()
        self[key] = data
        return key


def test_X5_small_output_is_not_touched() -> None:
    content = [TextBlock("small"), MediaBlock("image/png", data="AAAA")]
    assert cap(content, 1_000, Blobs().put) is content
    outcome = Outcome(content, value={"a": 1})
    assert capped(outcome, 1_000) is outcome


@pytest.mark.parametrize("limit", [1_000, 4_096, 65_536])
@pytest.mark.parametrize("text", ["".join(f"line {i}\n" for i in range(40_000)), "x" * 300_000, "ü" * 200_000])
def test_X5_head_and_tail_are_kept_and_the_whole_is_in_a_blob(limit: int, text: str) -> None:
    blobs = Blobs()
    (block,) = cap([TextBlock(text)], limit, blobs.put)
    assert isinstance(block, TextBlock)
    head, rest = block.text.split("\n[... ")
    line, tail = rest.split(" ...]\n")
    assert len(block.text.encode()) <= limit and len(block.text.encode()) > limit * 0.5
    assert text.startswith(head) and text.endswith(tail) and len(head) > len(tail) > 0
    (key,) = blobs
    assert blobs[key] == text.encode() and f'read_output(output_id="{key}", offset={len(head.encode())})' in line
    assert f"{len(text.encode()) - len(head.encode()) - len(tail.encode())} of {len(text.encode())} bytes" in line


def test_X5_without_a_blob_or_with_a_store_that_fails_the_parts_are_kept() -> None:
    def broken(data: bytes) -> str:
        raise OSError("disk full")

    for put in (None, broken):
        text = content_text(cap([TextBlock("x" * 10_000)], 1_000, put))
        assert "left out" in text and "read_output" not in text and len(text) <= 1_000


def test_X5_small_blocks_stay_whole_beside_a_large_one() -> None:
    small = TextBlock("small")
    first, second, third = cap([small, TextBlock("x" * 100_000), small], 10_000)
    assert first == third == small and len(second.text) > 8_000  # type: ignore[union-attr]


def test_X5_thousands_of_blocks_are_bounded() -> None:
    content = cap([TextBlock("x" * 100)] * 10_000 + [MediaBlock("image/png", url="u")] * 500, 20_000)
    assert len(content) <= 65
    assert sum(len(msgspec.json.encode(block)) for block in content) < 30_000


def test_X5_large_media_goes_to_a_blob() -> None:
    data = bytes(range(256)) * 100
    media = MediaBlock("image/png", data=base64.b64encode(data).decode(), name="p.png")
    blobs = Blobs()
    (block,) = cap([media], 10_000, blobs.put)
    assert isinstance(block, MediaBlock)
    assert block.data is None and block.bytes == len(data) and blobs[block.blob or ""] == data
    assert "too large" in content_text(cap([media], 10_000))
    assert "damaged" in content_text(cap([MediaBlock("image/png", data="!" * 20_000)], 10_000, blobs.put))
    assert "too large" in content_text(cap([OpaqueBlock("p", "x" * 20_000)], 10_000))


@pytest.mark.parametrize("data", ["data:image/png;base64,AAAA", "a-_b", "A", "not base64!"])
def test_media_that_is_no_base64_is_an_error_result(data: str) -> None:
    """Providers refuse a request with it: each further one of the session failed."""
    for outcome in (to_outcome(image(data)), capped(Outcome([image(data)], by="plugin"), 5_000)):
        assert outcome.is_error and "base64" in content_text(outcome.content)
    wrapped = base64.encodebytes(b"x" * 100).decode()
    assert to_outcome(image(wrapped)).content == [image(wrapped.replace("\n", ""))]


def image(data: str) -> MediaBlock:
    return MediaBlock("image/png", data=data)


def test_X5_a_large_value_is_dropped_with_its_text() -> None:
    outcome = to_outcome(list(range(10_000)))
    short = capped(outcome, 5_000, Blobs().put)
    assert short.value is None and len(content_text(short.content)) <= 5_000
    assert len(short.content) == 1, "its text is in the blob"


def test_X5_a_large_value_beside_other_text_is_kept_too() -> None:
    """It was dropped without a trace: neither program nor model could tell that there had been one."""
    blobs = Blobs()
    outcome = Outcome.text("10,000 rows", value=list(range(10_000)))
    text, note = capped(outcome, 5_000, blobs.put).content
    assert text == TextBlock("10,000 rows") and isinstance(note, TextBlock)
    (key,) = blobs
    assert key in note.text and msgspec.json.decode(blobs[key]) == outcome.value
    assert "not kept" in content_text(capped(outcome, 5_000).content)
    both = capped(Outcome.text("x" * 9_000, value=outcome.value), 5_000, blobs.put)
    assert len(content_text(both.content)) <= 5_000 and key in content_text(both.content) and len(blobs) == 2


@pytest.mark.parametrize("by", [None, "plugin"])
def test_L9_what_a_plugin_answers_is_checked_before_it_is_logged(by: str | None) -> None:
    assert capped(Outcome.text("a\ud800", by=by), 1_000) == Outcome.text("a\ufffd", by=by, cleaned=1)
    assert content_text(capped(error_outcome("E\ud800", "no \udfff", by=by), 1_000).content) == "no \ufffd"
    assert capped(Outcome([], by=by), 1_000).content == [TextBlock("(no output)")]
    assert capped(Outcome.text("x", value=object(), by=by), 1_000).is_error
    assert capped(Outcome([CallBlock("c", "n", "{}")], by="plugin"), 1_000).is_error
    assert capped(Outcome([TextBlock(3)], by="plugin"), 1_000).is_error  # type: ignore[arg-type]
