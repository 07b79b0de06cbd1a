"""The demo model's rules: a pure function from a request to what the model does next.

Nothing is remembered: what was asked and what the tools answered is read from the request's messages each time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from msgspec import Struct

from checkrein.messages import AssistantMessage, Request, ToolMessage, UserMessage, content_text
from checkrein.nearest import did_you_mean
from checkrein.text import decode_json

from .listing import File, Listing, parse_listing

__all__ = ["Move", "decide"]

SIGNATURE = "(I am checkrein's demo model: a few fixed rules, no understanding. What I say comes from the tools.)"
ABILITIES = (
    "I can do four things, all with tools:\n"
    "- say what is in a folder and which files are the largest: What is in this folder?\n"
    "- search: search for TODO\n"
    "- read a file: read README.md\n"
    "- count its lines: count the lines of README.md"
)
SHOWN_LINES = 40
LARGEST = 5

ToolCall: TypeAlias = tuple[str, dict[str, Any]]


class Move(Struct, frozen=True):
    """What the model does next: think, say something, call tools; without calls it is the final answer."""

    text: str = ""
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()


class Result(Struct, frozen=True):
    """What a tool answered to a call of this turn."""

    name: str
    arguments: dict[str, Any]
    text: str
    is_error: bool


class Turn(Struct, frozen=True):
    """What was asked last, what the tools answered since, and which tools there are (with their parameters)."""

    question: str
    results: list[Result]
    tools: dict[str, set[str]]

    def result(self, name: str, nth: int = 0) -> Result | None:
        """The nth result of a tool in this turn, None if it was not called so often."""
        found = [result for result in self.results if result.name == name]
        return found[nth] if nth < len(found) else None

    def ask(self, name: str, arguments: dict[str, Any], thinking: str) -> Move:
        """A call of a tool; or words, if there is no such tool."""
        if name not in self.tools:
            have = ", ".join(sorted(self.tools)) or "none"
            return answer(f"For that I need a tool named {name}, and I was not given one (my tools: {have}).")
        known = {key: value for key, value in arguments.items() if key in self.tools[name]}
        return Move(thinking=thinking, calls=((name, known),))


def decide(request: Request) -> Move:
    """Return the next move.

    Args:
        request: its messages are all the state there is.
    """
    turn = _turn(request)
    question = _plain(turn.question)
    for pattern, rule in RULES:
        if match := pattern.search(question):
            return rule(turn, match)
    return answer(f"I have no rule for that. {ABILITIES}")


def answer(text: str, thinking: str = "") -> Move:
    """A final answer, signed."""
    return Move(f"{text}\n\n{SIGNATURE}", thinking)


# --- the rules --------------------------------------------------------------------------------------


def _greet(turn: Turn, match: re.Match[str]) -> Move:
    return answer(f"Hello. {ABILITIES}")


def _help(turn: Turn, match: re.Match[str]) -> Move:
    return answer(ABILITIES)


def _search(turn: Turn, match: re.Match[str]) -> Move:
    text = _name(match["what"])
    result = turn.result("search_text")
    if result is None:
        return turn.ask("search_text", {"text": text}, f"They look for {text!r}; search_text can find it.")
    if result.is_error:
        return _failed(result)
    head, _, rest = result.text.partition("\n")
    counts = re.match(r"(\d+) matching lines in (\d+) files; (\d+) files searched", head)
    if counts is None:
        return _strange(result)
    lines, files, searched = (int(count) for count in counts.groups())
    if not lines:
        return answer(f"{text!r} does not occur in the {_count(searched, 'file')} I searched.{_notes(rest)}")
    found = [line for line in rest.splitlines() if not line.startswith("[")]
    more = f"\n(and {lines - SHOWN_LINES} more)" if lines > SHOWN_LINES else ""
    places = "\n".join(f"- {line}" for line in found[:SHOWN_LINES])
    where = f"{_count(lines, 'line')} of {_count(files, 'file')}"
    return answer(f"{text!r} occurs in {where} ({searched} searched):\n{places}{more}{_notes(rest)}")


def _read(turn: Turn, match: re.Match[str]) -> Move:
    path = _name(match["what"])
    result = turn.result("read_file")
    if result is None:
        return turn.ask("read_file", {"path": path, "limit": SHOWN_LINES}, f"They want to see {path}.")
    if result.is_error:
        return _not_found(turn, path, result)
    head, _, body = result.text.partition("\n")
    return answer(f"{head}\n\n{body}" if body else head)


def _count_lines(turn: Turn, match: re.Match[str]) -> Move:
    path = _name(match["what"])
    result = turn.result("read_file")
    if result is None:
        thinking = f"read_file says how many lines {path} has; one line of it is enough."
        return turn.ask("read_file", {"path": path, "limit": 1}, thinking)
    if result.is_error:
        return _not_found(turn, path, result)
    head = result.text.partition("\n")[0]
    if counted := re.search(r" of (at least )?(\d+) lines", head):
        return answer(f"{path} has {counted[1] or ''}{_count(int(counted[2]), 'line')}.")
    if re.match(r".*: empty", head):
        return answer(f"{path} is empty: 0 lines.")
    return answer(f"I cannot count lines there. {head}")


def _not_found(turn: Turn, path: str, result: Result) -> Move:
    """A file could not be read: look what there is, and name the nearest."""
    listed = turn.result("list_files")
    if listed is None and "list_files" in turn.tools:
        thinking = f"read_file could not read {path}; I look what there is."
        return turn.ask("list_files", {"path": ".", "recursive": True, "sort": "size"}, thinking)
    listing = None if listed is None or listed.is_error else parse_listing(listed.text)
    near = did_you_mean(path, [file.path for file in listing.files]) if listing is not None else ""
    return answer(f"{result.text.strip()}{near}")


def _folder(turn: Turn, match: re.Match[str]) -> Move:
    path = _folder_name(match.string)
    first = turn.result("list_files")
    if first is None:
        return turn.ask("list_files", {"path": path}, "To say what is in a folder I have to look: list_files.")
    if first.is_error:
        return _failed(first)
    here = parse_listing(first.text)
    if here is None:
        return _strange(first)
    everything, files = here, here.files
    if here.folders or here.cut:
        second = turn.result("list_files", 1)
        if second is None:
            thinking = "There are sub-folders: the largest files may be in one of them."
            return turn.ask("list_files", {"path": path, "recursive": True, "sort": "size"}, thinking)
        deep = None if second.is_error else parse_listing(second.text)
        if deep is None:
            here.incomplete = here.incomplete or "what is below it could not be listed"
        else:
            everything, files = deep, deep.files
    largest = sorted(files, key=lambda file: (-file.size, file.path))[:LARGEST]
    peek = turn.result("read_file")
    if (
        largest
        and largest[0].size
        and peek is None
        and "read_file" in turn.tools
        and not largest[0].path.startswith('"')
    ):
        top = largest[0].path if path == "." else f"{path.rstrip('/')}/{largest[0].path}"
        return turn.ask("read_file", {"path": top, "limit": 3}, f"The largest is {top}; how does it begin?")
    return answer(_describe(path, here, everything, largest, peek))


def _describe(path: str, here: Listing, everything: Listing, largest: list[File], peek: Result | None) -> str:
    where = "This folder" if path == "." else path
    if not (here.file_count or here.folder_count or here.others):
        return f"{where} is empty."
    lines = [f"{where} holds {_count(here.file_count, 'file')} and {_count(here.folder_count, 'folder')}:"]
    names = [f"{name}/" for name in here.folders] + [file.path for file in here.files] + here.others
    lines += [f"- {name}" for name in names[:SHOWN_LINES]]
    if len(names) > SHOWN_LINES or here.cut:
        lines.append("- and more")
    if everything is not here:
        below = f"{_count(everything.file_count, 'file')} in {_count(everything.folder_count, 'folder')}"
        lines.append(f"\nWith everything below it: {below}, {everything.total} bytes.")
    if largest:
        lines.append("\nThe largest files:")
        lines += [f"{n}. {file.path}, {file.size} bytes" for n, file in enumerate(largest, 1)]
    if everything.incomplete:
        lines.append(f"(I could not see all of it: {everything.incomplete}.)")
    if peek is not None and not peek.is_error and peek.text:
        head, _, body = peek.text.partition("\n")
        body = "\n".join(line[:200] for line in body.splitlines() if not line.startswith("[go on"))
        lines.append(f"\nThe largest begins:\n{body}" if body else f"\nAbout the largest: {head}")
    return "\n".join(lines)


def _failed(result: Result) -> Move:
    return answer(f"The tool {result.name} could not do it: {result.text.strip()}")


def _strange(result: Result) -> Move:
    return answer(f"I have no rule for what {result.name} answered: {result.text[:500]}")


_Rule: TypeAlias = Callable[[Turn, "re.Match[str]"], Move]
_POLITE = r"^(?:please |can you |could you |would you |now |then )*"


def _rule(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


_FILE = r"(?: the)?(?: file)? (?P<what>[^ ]*[./][^ ]*|[\"'`].+[\"'`]|[A-Z]+)$"

RULES: tuple[tuple[re.Pattern[str], _Rule], ...] = (
    (
        _rule(
            _POLITE + r"(?:count (?:the )?|how many )lines(?: (?:of|in|has|are in|does))?(?: the file)? (?P<what>.+)"
        ),
        _count_lines,
    ),
    (_rule(_POLITE + r"(?:search|grep|look)(?: for)?(?: the (?:word|text))? (?P<what>.+)"), _search),
    (_rule(_POLITE + r"where (?:is|does) (?P<what>.+?)(?: occur| mentioned| used)$"), _search),
    (_rule(_POLITE + r"(?:read|cat|open|print|show(?: me)?)" + _FILE), _read),
    (_rule(_POLITE + r"(?:read|cat)(?: the)?(?: file)? (?P<what>.+)"), _read),
    (_rule(r"\b(?:folders?|director(?:y|ies)|files|largest|biggest|ls|list|what(?: is|'s) here)\b"), _folder),
    (_rule(_POLITE + r"what(?: is|'s) in [^ ]+$"), _folder),
    (_rule(r"^(?:hi|hello|hey|good (?:morning|evening|day)|greetings|thanks|thank you)\b"), _greet),
    (_rule(r"\b(?:help|what can you do|who are you|what are you)\b"), _help),
)


# --- reading the request ----------------------------------------------------------------------------


def _turn(request: Request) -> Turn:
    tools = {schema.name: set(schema.parameters.get("properties", {})) for schema in request.tools}
    asked, question = 0, ""
    for i, message in enumerate(request.messages):
        if isinstance(message, UserMessage):
            text = content_text(message.content)
            # What plugins and agents bring stands under a prefix (I5); the question is a person's, if there is one.
            if not question or not text.startswith("[from "):
                asked, question = i, text
    return Turn(question, list(_results(request.messages[asked:])), tools)


def _results(messages: Any) -> Iterator[Result]:
    calls: dict[str, dict[str, Any]] = {}
    for message in messages:
        if isinstance(message, AssistantMessage):
            calls.update({call.call_id: _arguments(call.arguments) for call in message.calls})
        elif isinstance(message, ToolMessage):
            arguments = calls.get(message.call_id, {})
            yield Result(message.name, arguments, content_text(message.content), message.is_error)


def _arguments(text: str) -> dict[str, Any]:
    try:
        decoded = decode_json(text or "{}")
    except ValueError:
        return {}
    return decoded if isinstance(decoded, dict) else {}


def _plain(question: str) -> str:
    return re.sub(r"(?<=\w)\.$", "", " ".join(question.split()).rstrip("?! "))


def _name(text: str) -> str:
    """A file name or search text as it was meant: without quotes around it."""
    text = text.strip()
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] and text[0] in "\"'`" else text


def _folder_name(question: str) -> str:
    """The folder a question names; `.` if it names none."""
    match = re.search(
        r"\b(?:in|of|folder|directory|list|ls)\s+[\"'`]?([\w.-]*[/.][\w./-]*|\w[\w-]*/?)[\"'`]?", question
    )
    word = match[1] if match else "."
    return "." if word.lower() in _NO_FOLDERS else word


_FOLDER_NAME = re.compile(
    r"\b(?:in|of|folder|directory|list|ls)\s+[\"'`]?([\w.-]*[/.][\w./-]*|\w[\w-]*/?)[\"'`]?", re.IGNORECASE
)
_NO_FOLDERS = frozenset(
    ("this", "the", "here", "there", "it", "my", "a", "all", "current", "folder", "directory", "files", "and", "which")
)


def _count(n: int, word: str) -> str:
    return f"{n} {word}" if n == 1 else f"{n} {word}s"


def _notes(rest: str) -> str:
    notes = [line.strip("[]") for line in rest.splitlines() if line.startswith("[")]
    return "".join(f"\n({note})" for note in notes)
