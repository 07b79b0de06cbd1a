"""Reading what list_files answered."""

from __future__ import annotations

import re

from msgspec import Struct, field

__all__ = ["File", "Listing", "parse_listing"]

_HEAD = re.compile(r".*: (\d+) files?, (\d+) folders?, (\d+) bytes in files")
_LINE = re.compile(r"\s*(\d+|folder|link|special)  (.+)")


class File(Struct, frozen=True):
    """A file with its path as it was listed, and its size in bytes."""

    path: str
    size: int


class Listing(Struct):
    """A listing: the counts of its first line are of everything, the names may be only the first of them."""

    file_count: int
    folder_count: int
    total: int
    files: list[File] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    cut: bool = False
    incomplete: str = ""


def parse_listing(text: str) -> Listing | None:
    """Return what a listing says, None if it is none."""
    head, _, rest = text.partition("\n")
    counts = _HEAD.match(head)
    if counts is None:
        return None
    listing = Listing(int(counts[1]), int(counts[2]), int(counts[3]))
    for line in rest.splitlines():
        if line.startswith("[not complete: "):
            listing.incomplete = line.removeprefix("[not complete: ").rstrip("]")
        elif line.startswith("["):
            listing.cut = True
        elif match := _LINE.fullmatch(line):
            kind, name = match.groups()
            if kind == "folder":
                listing.folders.append(name.rstrip("/"))
            elif kind in ("link", "special"):
                listing.others.append(f"{name} ({kind})")
            else:
                listing.files.append(File(name, int(kind)))
    return listing
