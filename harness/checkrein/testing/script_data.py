"""Scripts as plain data: for configuration files, subprocess tests and the strict server.

    repeat = false
    turns = [
        { thinking = "let me see", calls = [{ name = "weather", arguments = { city = "Paris" } }] },
        { text = "It is sunny.", pieces = 3, usage = { input = 12, output = 4 } },
        "a str is a turn of text",
    ]

Members of a turn, played in this order: `thinking`, `text`, `calls` (each `name`, `arguments` or `raw`,
`id`), `usage`, then one end: `error`, `torn`, `disconnect` (the strict server cuts the connection),
`hang`, or the terminal frame (`finish` overrides its reason). `pieces` cuts texts and arguments into
chunks; `repeat` plays the last turn for ever. `wait_s` and `wait_file` pause the stream `wait_at`
"start" (the default), "middle" (behind the first piece) or "end"; a wait for a file writes an empty
FILE.waiting beside it, and ends when the file exists.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import anyio
import msgspec
from msgspec import Struct

from checkrein.errors import ConfigError

from . import script
from .script import Item, Turn

__all__ = ["CallData", "ErrorData", "ScriptData", "TurnData", "UsageData", "load_script", "parse_script", "turns_of"]

POLL_S = 0.01
ENDS = ("finish", "error", "torn", "disconnect", "hang")


class CallData(Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call; `raw` is the argument text exactly as it comes, instead of `arguments`."""

    name: str
    arguments: dict[str, Any] | None = None
    raw: str | None = None
    id: str | None = None

    def __post_init__(self) -> None:
        if self.arguments is not None and self.raw is not None:
            raise ValueError("expected arguments or raw, got both")

    @property
    def text(self) -> str:
        """The argument text."""
        return self.raw if self.raw is not None else msgspec.json.encode(self.arguments or {}).decode()


class ErrorData(Struct, frozen=True, forbid_unknown_fields=True):
    """A failure: a ProviderError of the scripted model, a status of the strict server."""

    code: str = "SERVER_ERROR"
    message: str | None = None
    status: int | None = None
    retryable: bool | None = None
    retry_after_s: float | None = None


class UsageData(Struct, frozen=True, forbid_unknown_fields=True):
    """Disjoint token counts (M10)."""

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None


class TurnData(Struct, frozen=True, forbid_unknown_fields=True):
    """One answer; the module's text says what its members do."""

    text: str | None = None
    thinking: str | None = None
    calls: tuple[CallData, ...] = ()
    usage: UsageData | None = None
    finish: str | None = None
    error: ErrorData | str | None = None
    torn: bool = False
    disconnect: bool = False
    hang: bool = False
    wait_s: float = 0.0
    wait_file: str | None = None
    wait_at: Literal["start", "middle", "end"] = "start"
    pieces: int = 1
    repeat: bool = False

    def __post_init__(self) -> None:
        ends = [word for word in ENDS if getattr(self, word)]
        if len(ends) > 1:
            raise ValueError(f"expected one end of the turn, got {' and '.join(ends)}")
        if self.wait_s < 0 or self.pieces < 1:
            raise ValueError(f"expected wait_s >= 0 and pieces >= 1, got {self.wait_s} and {self.pieces}")

    @property
    def failure(self) -> ErrorData | None:
        """The error, a bare code made whole."""
        return ErrorData(self.error) if isinstance(self.error, str) else self.error


class ScriptData(Struct, frozen=True, forbid_unknown_fields=True):
    """A script; a file may hold this, or only the list of turns."""

    turns: tuple[TurnData | str, ...]
    repeat: bool = False

    @property
    def answers(self) -> tuple[TurnData, ...]:
        """The turns, a bare str made whole."""
        return tuple(TurnData(text=turn) if isinstance(turn, str) else turn for turn in self.turns)


def parse_script(data: Any, *, file: str | None = None, path: str = "") -> ScriptData:
    """Check plain data and return it as a script.

    Args:
        data: a list of turns, or an object of `turns` and `repeat`.
        file: where it comes from, for messages.
        path: where in the file, as `plugins.scripted`.

    Raises:
        ConfigError: it is no script; the message names the place.
    """
    try:
        found = msgspec.convert({"turns": data} if isinstance(data, (list, tuple)) else data, ScriptData)
    except msgspec.ValidationError as exc:
        message, _, place = str(exc).partition(" - at `$")
        where = f"{path}{place.rstrip('`')}".lstrip(".")
        raise ConfigError(f"expected a script of turns: {message}", file=file, path=where or None) from None
    for number, turn in enumerate(found.answers[:-1]):
        if turn.repeat:
            raise ConfigError(
                "expected repeat only on the last turn: nothing behind it is ever played",
                file=file,
                path=f"{path}.turns[{number}].repeat".lstrip("."),
            )
    return found


def load_script(path: str | Path) -> ScriptData:
    """Read a script from a .toml or .json file.

    Raises:
        ConfigError: the file cannot be read, or holds no script.
    """
    file = Path(path)
    try:
        text = file.read_bytes()
        data = msgspec.toml.decode(text) if file.suffix == ".toml" else msgspec.json.decode(text)
    except OSError as exc:
        raise ConfigError(f"expected a readable script file, got {exc.strerror or exc}", file=str(file)) from exc
    except msgspec.DecodeError as exc:
        raise ConfigError(f"expected {file.suffix or '.json'} text, got: {exc}", file=str(file)) from exc
    return parse_script(data, file=str(file))


def turns_of(data: ScriptData) -> list[Turn]:
    """The same script in the vocabulary of script.py."""
    return [script.forever(_items(turn)) if turn.repeat else _items(turn) for turn in data.answers]


def _items(turn: TurnData) -> list[Item]:
    items: list[Item] = []
    if turn.thinking is not None:
        items.append(script.thinking(turn.thinking, pieces=turn.pieces))
    if turn.text is not None:
        items.append(script.text(turn.text, pieces=turn.pieces))
    items += [script.call(call.name, raw=call.text, id=call.id, pieces=turn.pieces) for call in turn.calls]
    if turn.usage is not None:
        items.append(script.usage(**msgspec.structs.asdict(turn.usage)))
    if turn.wait_at == "middle" and items and isinstance(first := items[0], script.Say):
        items[:1] = script.split(first)
    place = {"start": 0, "middle": 1, "end": len(items)}[turn.wait_at]
    items[place:place] = _waits(turn)
    return items + _end(turn)


def _waits(turn: TurnData) -> list[Item]:
    waits: list[Item] = [script.wait(turn.wait_s)] if turn.wait_s else []
    if (path := turn.wait_file) is not None:
        waits.append(script.wait(lambda: _exists(path)))
    return waits


def _end(turn: TurnData) -> list[Item]:
    failure = ErrorData("CONNECTION", "the script cuts the connection") if turn.disconnect else turn.failure
    if failure is not None:
        members = msgspec.structs.asdict(failure)
        return [script.error(members.pop("code"), members.pop("message"), **members)]
    if turn.torn:
        return [script.torn()]
    if turn.hang:
        return [script.hang()]
    return [script.finish(turn.finish)] if turn.finish else []


async def _exists(path: str) -> None:
    """Wait until a file is there: how a test in another process lets a turn go on."""
    await anyio.Path(f"{path}.waiting").touch()
    while not await anyio.Path(path).exists():  # noqa: ASYNC110 - nothing tells us
        await anyio.sleep(POLL_S)
