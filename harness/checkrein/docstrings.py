"""What a docstring says about a function and its parameters: Google, NumPy and Sphinx styles.

Only what a model needs is read: the text before the first section, and one text per parameter.
"""

from __future__ import annotations

import inspect
import re

__all__ = ["parse_docstring"]

_PARAMETERS = ("args", "arguments", "parameters", "params")
_OTHERS = (
    *("returns", "return", "raises", "yields", "examples", "example", "notes", "note", "warnings", "warning"),
    *("attributes", "see also", "references", "other parameters", "keyword args", "keyword arguments", "todo"),
)
# Not compiled here: re does that at the first use and keeps it; most programs import this and meet one style.
_SPHINX = r":(?:param|parameter|arg|argument|key|keyword)\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)"
_GOOGLE = r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)"
_NUMPY = r"\*{0,2}(\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$"


def parse_docstring(doc: str | None) -> tuple[str, dict[str, str]]:
    """Return the description and the parameters' descriptions.

    Args:
        doc: a raw docstring, or None.

    Returns:
        The text before the first section, and a text for each parameter that has one.
    """
    lines = inspect.cleandoc(doc or "").splitlines()
    head: list[str] = []
    found: dict[str, list[str]] = {}
    i = 0
    while i < len(lines):
        line = lines[i]
        section = _section(lines, i)
        if section is not None:
            kind, body = section
            end = _section_end(lines, body)
            if kind in _PARAMETERS:
                numpy = body - i == 2
                (_numpy if numpy else _google)(lines[body:end], found)
            i = end
        elif line.startswith(":"):
            i = _sphinx(lines, i, found)
        else:
            # A title without a body, or prose: it belongs to the description until the first section.
            head.append(line)
            i += 1
    return "\n".join(head).strip(), {name: " ".join(text).strip() for name, text in found.items()}


def _section(lines: list[str], i: int) -> tuple[str, int] | None:
    """The section whose title stands at line i: its word and the first line of its body."""
    title = lines[i].strip()
    if lines[i][:1].isspace() or not title:
        return None
    word = title.rstrip(":").lower()
    if word not in _PARAMETERS and word not in _OTHERS:
        return None
    if title.endswith(":") and (i + 1 == len(lines) or not lines[i + 1].strip() or lines[i + 1][:1].isspace()):
        return word, i + 1
    if i + 1 < len(lines) and re.fullmatch(r"-{3,}", lines[i + 1].strip()):
        return word, i + 2
    return None


def _section_end(lines: list[str], body: int) -> int:
    for i in range(body, len(lines)):
        if lines[i].startswith(":") or _section(lines, i) is not None:
            return i
        # Google: prose at the margin ends the section. NumPy has its entries there, up to the next title.
        if not re.fullmatch(r"-{3,}", lines[body - 1].strip()) and lines[i].strip() and not lines[i][:1].isspace():
            return i
    return len(lines)


def _google(lines: list[str], found: dict[str, list[str]]) -> None:
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    current: list[str] | None = None
    for line in lines:
        text = line.strip()
        match = re.match(_GOOGLE, text) if line[:margin].isspace() and not line[margin : margin + 1].isspace() else None
        if match:
            current = found.setdefault(match[1], [])
            current.append(match[2])
        elif current is not None and text:
            current.append(text)


def _numpy(lines: list[str], found: dict[str, list[str]]) -> None:
    current: list[list[str]] = []
    for line in lines:
        text = line.strip()
        if text and not line[:1].isspace():
            match = re.match(_NUMPY, text)
            names = match[1].replace("*", "").split(",") if match else []
            current = [found.setdefault(name.strip(), []) for name in names]
        elif text:
            for entry in current:
                entry.append(text)


def _sphinx(lines: list[str], i: int, found: dict[str, list[str]]) -> int:
    match = re.match(_SPHINX, lines[i])
    text = [match[2]] if match else []
    i += 1
    while i < len(lines) and lines[i].strip() and lines[i][:1].isspace():
        text.append(lines[i].strip())
        i += 1
    if match:
        found.setdefault(match[1], []).extend(text)
    return i
