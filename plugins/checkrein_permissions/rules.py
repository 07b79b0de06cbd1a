"""The rule language: `tool`, `tool(pattern)`, `tool(argument=pattern)`, `effect:word`, `*`; parsing and matching.

A rule is read in two ways. One that allows is read narrowly: everything it speaks of must match
exactly. One that forbids or asks is read broadly. Where a rule cannot be judged the answer is None,
and the guard asks. The order of the tables is plugin.py's.
"""

from __future__ import annotations

import re
import shlex
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct

from checkrein.nearest import did_you_mean

from .commands import Command, allows, catches, exact_pattern, risky_prefix
from .paths import Canonical, path_matches, relative_pattern
from .subject import Leaf, Subject, kind_of

__all__ = ["EFFECTS", "Rule", "parse_rule", "exact_rule", "risk_of"]

EFFECTS = ("read_only", "idempotent", "effectful")
MAX_RULE_CHARS = 2_000
MAX_TEXT_CHARS = 100_000
MAX_PATH_CHARS = 4_096
_NAME = re.compile(r"[A-Za-z0-9_*?-]+")
_NAMED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


class Rule(Struct, frozen=True):
    """A parsed rule.

    Attributes:
        text: as it was written.
        tool: the pattern of the tool's name.
        effect: the effect it is about; None for any.
        argument: the argument the pattern is about; None for those that say what the call is about.
        pattern: what the argument must look like; None for anything.
        words: the pattern as words of a command; None if it has none.
    """

    text: str
    tool: str = "*"
    effect: str | None = None
    argument: str | None = None
    pattern: str | None = None
    words: tuple[str, ...] | None = None

    def matches(self, subject: Subject, *, broad: bool) -> bool | None:
        """Return whether the rule is about this call; None if that cannot be told.

        Args:
            subject: the call.
            broad: whether the rule forbids or asks.
        """
        call = subject.call
        if not fnmatchcase(call.name, self.tool) or (self.effect is not None and self.effect != call.effect):
            return False
        if self.pattern is None:
            return True
        about = self._about(subject, broad)
        results = [self._matches_one(subject, leaf, broad) for leaf in about]
        if broad:
            return True if True in results else None if None in results else False
        if not results or False in results:
            return False
        # A command's working folder, and any other path beside it, must not lead out of the workspace.
        beside = subject.of("path") if about[0].kind == "command" else []
        return None if None in results or not all(_is_inside(subject.path(leaf.value)) for leaf in beside) else True

    def _about(self, subject: Subject, broad: bool) -> list[Leaf]:
        """Pick what the pattern speaks of: commands, else paths, else every text; read broadly, both of the first."""
        if self.argument is not None:
            return [leaf for leaf in subject.leaves if leaf.argument == self.argument]
        commands, paths = subject.of("command"), subject.of("path")
        return (commands + paths if broad else commands or paths) or subject.of("text")

    def _matches_one(self, subject: Subject, leaf: Leaf, broad: bool) -> bool | None:
        assert self.pattern is not None
        if leaf.kind == "path":
            path = subject.path(leaf.value)
            return None if path is None else path_matches(path, self.pattern, broad=broad)
        if leaf.kind == "command":
            return self._matches_command(subject.command(leaf.value), broad)
        return self._matches_text(subject, leaf.value if isinstance(leaf.value, str) else str(leaf.value), broad)

    def _matches_text(self, subject: Subject, text: str, broad: bool) -> bool | None:
        """Match a text; a tool may call its path anything, so what could be a path is looked at as one too."""
        assert self.pattern is not None
        if len(text) > MAX_TEXT_CHARS:
            return None
        path = subject.path(text) if len(text) <= MAX_PATH_CHARS and text.isprintable() else None
        if broad:
            matched = fnmatchcase(text.casefold(), self.pattern.casefold())
            return matched or (path is not None and path_matches(path, self.pattern, broad=True))
        if not fnmatchcase(text, self.pattern):
            return False
        is_path = "/" in self.pattern and "://" not in self.pattern
        return True if not is_path or (path is not None and path_matches(path, self.pattern, broad=False)) else None

    def _matches_command(self, command: Command, broad: bool) -> bool | None:
        if not self.words:
            return None
        if not broad:
            return allows(command, self.words)
        return True if catches(command, self.words) else None if command.opaque else False


def parse_rule(text: str) -> Rule:
    """Parse one rule.

    Raises:
        ValueError: it is none; says what was expected, what came, and at which position (from 1).
    """
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"expected a rule as 'tool', 'tool(pattern)' or 'effect:read_only', got {text!r}")
    if len(text) > MAX_RULE_CHARS:
        raise _wrong(text[:40], MAX_RULE_CHARS, f"a rule of at most {MAX_RULE_CHARS} characters", "a longer one")
    word, colon, rest = text.partition(":")
    if colon and word.isidentifier():
        return _effect_rule(text, word, rest)
    match = _NAME.match(text)
    end = match.end() if match else 0
    if end == len(text):
        return Rule(text, text)
    if not match or text[end] != "(":
        raise _wrong(text, end, "letters, digits, _, -, * or ? of a tool's name", repr(text[end]))
    if not text.endswith(")"):
        raise _wrong(text, len(text), "a closing )", "the end")
    inner = text[end + 1 : -1]
    if not inner.strip():
        raise _wrong(
            text, end + 1, f"a pattern between the brackets, or {text[:end]!r} alone for any arguments", "nothing"
        )
    return _argument_rule(text, text[:end], inner, end + 1)


def _effect_rule(text: str, word: str, rest: str) -> Rule:
    if word != "effect":
        raise _wrong(text, 0, "the word effect before a colon", repr(word) + did_you_mean(word, ["effect"]))
    if rest not in EFFECTS:
        raise _wrong(text, 7, f"one of {', '.join(EFFECTS)}", repr(rest) + did_you_mean(rest, EFFECTS))
    return Rule(text, effect=rest)


def _argument_rule(text: str, tool: str, inner: str, at: int) -> Rule:
    argument = None
    if named := _NAMED.fullmatch(inner):
        argument, inner = named[1], named[2]
        at += len(argument) + 1
        if not inner:
            raise _wrong(text, at, "a pattern", "nothing")
    if argument is None and inner == "*":
        return Rule(text, tool)
    if not (argument and kind_of(argument) != "path") and "://" not in inner and (problem := relative_pattern(inner)):
        raise _wrong(text, at, "a pattern for canonical paths", f"{inner!r}: {problem}")
    try:
        words = tuple(shlex.split(inner))
    except ValueError:
        words = ()
    return Rule(text, tool, None, argument, inner, words or None)


def _wrong(text: str, position: int, expected: str, got: str) -> ValueError:
    return ValueError(f"rule {text!r}: expected {expected}, got {got} at position {position + 1}")


def exact_rule(subject: Subject) -> str | None:
    """Return the rule that would allow this call again, as narrow as the language can say; None if it cannot.

    A command becomes its very words, a path the place it leads to; a tool about neither is named whole.
    """
    name = subject.call.name
    about = [leaf for leaf in subject.leaves if leaf.kind != "text"]
    if not about:
        return name
    if len(about) > 1:
        return None
    leaf = about[0]
    if leaf.kind == "command":
        pattern = exact_pattern(subject.command(leaf.value))
    else:
        path = subject.path(leaf.value)
        pattern = None if path is None else re.sub(r"([*?\[])", r"[\1]", path)
    rule = f"{name}({leaf.argument}={pattern})"
    try:
        narrow = pattern is not None and parse_rule(rule).matches(subject, broad=False)
    except ValueError:
        return None
    return rule if narrow else None


def risk_of(rule: Rule) -> str | None:
    """Return a warning for a rule that allows much more than it seems to, None for the others."""
    program = risky_prefix(rule.words or ())
    if program is None or (rule.argument is not None and kind_of(rule.argument) != "command"):
        return None
    return f"rule {rule.text!r} allows everything: {program} runs any program it is given; allow exact commands instead"


def _is_inside(path: Canonical | None) -> bool:
    return path is not None and not Path(path).is_absolute()
