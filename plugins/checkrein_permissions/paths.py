"""Paths as the rules see them: canonical, inside or outside the workspace, or not to be told.

A rule never trusts the text of a path: links, `..` and the workspace itself are resolved first.
What cannot be resolved for certain is `None`, and the guard asks. Between this look and the tool's
own opening a path can change: the tool confines itself too, rules are the comfort on top.
"""

from __future__ import annotations

import os
import re
import unicodedata
from functools import lru_cache
from pathlib import Path

__all__ = ["Canonical", "canonical", "relative_pattern", "path_matches", "is_web"]


_EXPANDED = re.compile(r"[~$]|[A-Za-z][A-Za-z0-9+.-]+:/")


class Canonical(str):
    """A canonical path: relative to the workspace with `/` between its parts, or absolute if it lies outside."""

    __slots__ = ()


def canonical(text: str, workspace: Path) -> Canonical | None:
    """Return where a path argument really leads.

    Args:
        text: the argument, relative to the workspace or absolute.
        workspace: the agent's folder.

    Returns:
        The canonical path; None if it cannot be told: it holds NUL, begins with what a tool may expand
        (`~`, `$`, a blank, a URL's scheme), loops, is too long, leads through /proc, is a file with a
        second name (a hard link), or hides a Windows stream or device.
    """
    if not text.strip() or text != text.strip() or "\0" in text or _EXPANDED.match(text) or not _portable(text):
        return None
    try:
        root = os.path.realpath(workspace, strict=True)
        given = os.path.join(root, text)  # noqa: PTH118 - a guard runs before every call: pathlib doubles its cost
        path = os.path.realpath(given)
        if _is_magic(os.path.normpath(given)) or _is_magic(path) or _is_doubtful(path):
            return None
    except (OSError, ValueError, RuntimeError):
        return None
    if path == root:
        return Canonical(".")
    top = root.rstrip(os.sep) + os.sep
    inside = os.path.normcase(path).startswith(os.path.normcase(top))
    return Canonical((path[len(top) :] if inside else path).replace(os.sep, "/"))


def is_web(text: str) -> bool:
    """Whether what stands for a path is an address in the web, and no way to a file here."""
    return re.match(r"https?://", text) is not None and "/../" not in text


def relative_pattern(pattern: str) -> str | None:
    """Say what is wrong with a path pattern; None if nothing is."""
    parts = pattern.split("/")
    if ".." in parts:
        return "`..` never matches: paths are canonical; write the path it leads to"
    if pattern.startswith("~"):
        return "`~` is not expanded; write the absolute path"
    if "\0" in pattern:
        return "NUL is in no path"
    return None


def path_matches(path: Canonical, pattern: str, *, broad: bool) -> bool:
    """Return whether a canonical path matches a pattern.

    Args:
        path: from `canonical`.
        pattern: parts with `*`, `?` and `[...]`, none of which crosses a `/`, and `**` for any number of parts.
            A relative pattern matches inside the workspace only.
        broad: for rules that forbid or ask: letter case and Unicode form do not count, and what a matching
            folder holds matches too. A rule that allows matches exactly.
    """
    if pattern.startswith("./"):
        pattern = pattern[2:]
    text = str(path)
    if broad:
        text, pattern = _fold(text), _fold(pattern)
    return _compiled(pattern, broad).fullmatch(text) is not None


def _fold(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


@lru_cache(1_000)
def _compiled(pattern: str, broad: bool) -> re.Pattern[str]:
    absolute = pattern.startswith("/") or re.match(r"[A-Za-z]:", pattern) is not None
    expression = "" if absolute else r"(?!/|[A-Za-z]:/)"
    parts = pattern.rstrip("/").split("/")
    for index, part in enumerate(parts):
        last = index == len(parts) - 1
        if part == "**":
            expression += ".*" if last else "(?:[^/]+/)*"
        else:
            expression += _part(part) + ("" if last else "/")
    return re.compile(expression + ("(?:/.*)?" if broad else ""), re.DOTALL)


def _part(part: str) -> str:
    out, index = "", 0
    while index < len(part):
        char = part[index]
        index += 1
        if char == "*":
            out += "[^/]*"
        elif char == "?":
            out += "[^/]"
        elif char == "[" and (end := part.find("]", index + 1)) > 0:
            body = part[index:end].replace("\\", "\\\\").replace("[", "\\[")
            negated = body.startswith("!")
            out += f"[{'^/' if negated else ''}{re.escape(body[1:2]) + body[2:] if negated else _first(body)}]"
            index = end + 1
        else:
            out += re.escape(char)
    return out


def _first(body: str) -> str:
    return "\\^" + body[1:] if body.startswith("^") else body


def _is_magic(path: str) -> bool:
    """Links in /proc lead out of every namespace and are not what they seem."""
    return path == "/proc" or path.startswith("/proc/")


def _is_doubtful(path: str) -> bool:
    """A link that did not resolve (a loop), or a file that has another name a rule may know."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return False
    import stat

    return stat.S_ISLNK(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink > 1)


def _portable(text: str) -> bool:
    """On Windows `file:stream`, trailing dots and spaces and device names are other names of a file."""
    if os.name != "nt":
        return True
    parts = re.split(r"[\\/]", os.path.splitdrive(text)[1])
    devices = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?")
    return not any(":" in part or part != part.rstrip(". ") or devices.fullmatch(part) for part in parts if part != ".")
