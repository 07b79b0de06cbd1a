"""Playing recorded bodies through the decoder and the one assembler; wirekit on the path."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from checkrein.chunks import Assembler, Chunk
from checkrein.errors import ProviderError
from checkrein_openai.decode import Decoder
from checkrein_openai.quirks import DEFAULTS, QuirkChanges

sys.path.insert(0, str(Path(__file__).parent))


@dataclass
class Played:
    """What a body came to: its chunks, and one of the three endings."""

    chunks: list[Chunk] = field(default_factory=list)
    assembler: Assembler = field(default_factory=Assembler)
    error: ProviderError | None = None

    @property
    def ending(self) -> str:
        if self.error is not None:
            return f"error {self.error.code} {self.error.kind}"
        return "torn" if self.assembler.finish is None else f"finish {self.assembler.finish.reason}"

    def parts(self, kind: str) -> list[Any]:
        return [part for part in self.assembler.parts.values() if part.kind == kind]

    @property
    def text(self) -> str:
        return "".join(part.text()[0] for part in self.parts("text"))

    @property
    def thinking(self) -> str:
        return "".join(part.text()[0] for part in self.parts("thinking"))

    @property
    def calls(self) -> list[tuple[str | None, str, str]]:
        return [(part.id, part.name, part.text()[0]) for part in self.parts("call")]

    def picture(self) -> dict[str, Any]:
        """All of it as plain data, to compare with what was written down."""
        blocks = [
            {
                key: value
                for key, value in {
                    "kind": part.kind,
                    "text": part.text()[0],
                    "id": part.id,
                    "name": part.name,
                    "metadata": part.metadata,
                    "data": part.data,
                }.items()
                if value not in (None, "")
            }
            for part in self.assembler.parts.values()
        ]
        usage = self.assembler.usage
        found = {
            "ending": self.ending,
            "blocks": blocks,
            "usage": None
            if usage is None
            else {k: v for k in usage.__struct_fields__ if (v := getattr(usage, k)) is not None},
            "metadata": self.assembler.metadata,
        }
        return {key: value for key, value in found.items() if value is not None}


def _play(
    pieces: bytes | Iterable[bytes], quirks: QuirkChanges | None = None, names: dict[str, str] | None = None
) -> Played:
    decoder = Decoder(replace(DEFAULTS, **(quirks or {})), names)
    played = Played()

    def take(chunks: list[Chunk]) -> None:
        for chunk in chunks:
            played.assembler.push(chunk)  # raises where a chunk breaks the grammar
            played.chunks.append(chunk)
        if decoder.error is not None:
            raise decoder.error

    try:
        for piece in [pieces] if isinstance(pieces, bytes) else pieces:
            take(decoder.feed(piece))
        take(decoder.end())
    except ProviderError as exc:
        played.error = exc
    return played


@pytest.fixture(scope="session")
def play() -> Callable[..., Played]:
    return _play
