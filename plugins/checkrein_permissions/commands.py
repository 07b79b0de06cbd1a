"""Shell commands as the rules see them: one parser for rules that allow and rules that forbid.

A rule that allows matches one plain command and nothing else. A rule that forbids or asks looks at
every command it can find in the text, behind wrappers, assignments and full paths. A command whose
meaning is decided only when it runs is opaque: no rule allows it and the guard asks. Forbidding by
name is best effort (a shell can always spell it another way): prefer allowing, and a sandbox.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

__all__ = ["Command", "parse", "allows", "catches", "exact_pattern", "risky_prefix"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MAX_COMMANDS = 200
MAX_CHARS = 20_000
_SEPARATORS = frozenset(";&|\n(){}")
_OPAQUE = frozenset("$`")
_UNPLAIN = frozenset(";&|\n\r<>(){}$`*?[]#!\\") | frozenset("%^" if os.name == "nt" else "")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=.*", re.DOTALL)
_KEYWORDS = _words("if then else elif fi for in do done while until case esac function select time coproc !")
# Programs that run the program named behind their own options.
_WRAPPERS = _words(
    "sudo doas env command builtin exec nohup nice ionice time timeout stdbuf setsid xargs parallel busybox watch"
)
# Their options that take the next word as their value.
_VALUED: dict[str, frozenset[str]] = {
    "sudo": _words("-C -D -R -T -U -g -h -p -r -t -u --user --group --host --prompt --chdir --chroot --role --type"),
    "doas": _words("-C -u"),
    "env": _words("-C -u --unset --chdir"),
    "exec": _words("-a"),
    "nice": _words("-n --adjustment"),
    "ionice": _words("-c -n --class --classdata"),
    "time": _words("-f -o --format --output"),
    "timeout": _words("-k -s --kill-after --signal"),
    "stdbuf": _words("-e -i -o --error --input --output"),
    "xargs": _words("-E -I -L -P -a -d -n -s --arg-file --delimiter --max-args --max-lines --max-procs --max-chars"),
    "parallel": _words("-I -P -a -d -j -n --jobs --arg-file"),
    "watch": _words("-n --interval"),
}
# Programs whose arguments are a program: an open-ended rule for one of them allows everything.
_INTERPRETERS = _words(
    "sh bash dash zsh ksh fish python python3 perl ruby node deno bun php lua awk gawk mawk sed eval source . "
    "ssh npm npx pnpm yarn uv uvx pipx make docker podman kubectl cmd powershell pwsh osascript tclsh R"
)
# Arguments that make a program run another one, or write where it only reads: short options, in a group with
# others too (a letter that takes a value ends a group), and long ones, however abbreviated.
_ESCAPES: dict[str, tuple[re.Pattern[str], frozenset[str]]] = {
    program: (re.compile(short, re.DOTALL), _words(long))
    for program, short, long in (
        (
            "git",
            r"-c|-[^ABCFGLSUem-]*[Ox].*",
            "--config-env --upload-pack --receive-pack --ext-diff --extcmd --output --open-files-in-pager --exec",
        ),
        ("find", r"-(exec|ok|fprint|fls|delete).*", ""),
        (
            "tar",
            r"-[^CHKLNTVXbfg-]*[FI].*",
            "--to-command --checkpoint-action --use-compress-program --rsh-command --rmt-command --info-script "
            "--new-volume-script",
        ),
        ("rg", r"(?!)", "--pre --hostname-bin"),
        ("sort", r"-[^STkt-]*o.*", "--output --compress-program"),
        ("rsync", r"-[^BMTf-]*e.*", "--rsh"),
        ("curl", r"-[^ACDEFHPQTUXYbcdehmrtuwxyz-]*[KOo].*", "--output --remote-name --config"),
        ("fd", r"-[^ESTcdejot-]*[Xx].*", "--exec"),
    )
}


class Command(Struct, frozen=True):
    """A parsed command text.

    Attributes:
        simple: the words of each simple command found in it.
        plain: whether it is one simple command, with nothing a shell would act on.
        opaque: whether what runs is decided only at run time, or inside an interpreter, or cannot be read.
    """

    simple: tuple[tuple[str, ...], ...]
    plain: bool
    opaque: bool


def parse(text: str) -> Command:
    """Parse a command text as a POSIX shell reads it; total."""
    if len(text) > MAX_CHARS or "\0" in text:
        return Command((), False, True)
    commands, plain, opaque = _split(text)
    if len(commands) > MAX_COMMANDS:  # too many to judge is a question, never a yes
        return Command((), False, True)
    plain = plain and not opaque and len(commands) == 1 and not _ASSIGNMENT.fullmatch(commands[0][0])
    found: list[tuple[str, ...]] = []
    for words in commands:
        inner = _unwrap(words)
        opaque = opaque or _is_opaque(inner)
        found += [tuple(each) for each in (words, inner) if each]
    return Command(tuple(dict.fromkeys(found)), plain, opaque)


def allows(command: Command, pattern: Sequence[str]) -> bool:
    """Return whether the command is exactly what the pattern spells; a last `*` stands for any further words."""
    if not command.plain:
        return False
    words = command.simple[0]
    open_end = len(pattern) > 1 and pattern[-1] == "*"
    fixed = pattern[:-1] if open_end else pattern
    if len(words) < len(fixed) or (len(words) > len(fixed) and not open_end):
        return False
    if not all(fnmatchcase(word, part) for word, part in zip(words, fixed, strict=False)):
        return False
    return not _escapes(words, len(fixed))


def _escapes(words: Sequence[str], begin: int) -> bool:
    """Whether a word from `begin` on makes its program run another one, or write where it only reads."""
    if (known := _ESCAPES.get(program := _program(words[0]))) is None:
        return False
    short, long = known
    if program == "tar" and begin <= 1 < len(words) and words[1][0:1] != "-" and set("FI") & set(words[1]):
        return True  # its first word may be options without a hyphen, their values behind it
    for word in words[begin:]:
        option = word.partition("=")[0]
        if word.startswith("--"):
            if len(option) > 2 and any(each.startswith(option) or option.startswith(each) for each in long):
                return True
        elif short.fullmatch(word):
            return True
    return False


def catches(command: Command, pattern: Sequence[str]) -> bool:
    """Return whether any command found in the text is what the pattern means, however it is spelt."""
    return any(_caught(words, pattern) for words in command.simple)


def exact_pattern(command: Command) -> str | None:
    """Return the pattern that allows this one command and no other; None if there is no such pattern."""
    if not command.plain:
        return None
    from glob import escape

    words = command.simple[0]
    pattern = " ".join(shlex.quote(escape(word)) for word in words)
    return pattern if tuple(shlex.split(pattern)) and allows(command, shlex.split(pattern)) else None


def risky_prefix(pattern: Sequence[str]) -> str | None:
    """Return the program, if an open-ended pattern for it would allow anything whatever."""
    program = pattern[0].rsplit("/", 1)[-1] if pattern else ""
    is_open = len(pattern) > 1 and pattern[-1] == "*"
    return program if is_open and (program in _INTERPRETERS or program in _WRAPPERS) else None


def _split(text: str) -> tuple[list[list[str]], bool, bool]:
    """Return the simple commands' words, whether the text is plain, and whether a part of it is opaque."""
    commands: list[list[str]] = [[]]
    word: str | None = None
    plain, opaque, target, quote, index = True, False, False, "", 0
    while index < len(text):
        char = text[index]
        index += 1
        if quote == "'":
            word, quote = ((word or "") + char, quote) if char != "'" else (word or "", "")
            continue
        if quote:
            plain = plain and char not in "$`\\"
        else:
            plain = plain and char not in _UNPLAIN and (char.isprintable() or char == "\t")
        opaque = opaque or char in _OPAQUE or (char == "{" and not quote and text[index : index + 1] not in (" ", "\n"))
        if char == "\\" and index < len(text):
            if text[index] != "\n":
                word = (word or "") + text[index]
            index += 1
        elif quote:
            word, quote = ((word or "") + char, quote) if char != '"' else (word or "", "")
        elif char in "'\"":
            word, quote = word or "", char
        elif char in _SEPARATORS or char in " \t\r<>`":
            if word is not None:
                if not target and not (char in "<>" and word.isdecimal()):  # a redirection is no part of the command
                    commands[-1].append(word)
                word, target = None, False
            if char in "<>":
                target = True
                opaque = opaque or (char == "<" and text[index : index + 1] == "<")
                index += text[index : index + 1] in ("&", "|")
            elif char in _SEPARATORS or char == "`":
                target = False
                commands.append([])
                opaque = opaque or (char == "&" and text[index : index + 1] == ">")  # two commands or one: which shell?
        else:
            word = (word or "") + char
    if word is not None and not target:
        commands[-1].append(word)
    found = [words for words in map(_without_keywords, commands) if words]
    plain = plain and not any(words[0] in _KEYWORDS for words in commands if words)  # a shell acts on those too
    return found, plain and not quote, opaque or bool(quote)


def _without_keywords(words: list[str]) -> list[str]:
    start = 0
    while start < len(words) and words[start] in _KEYWORDS and words[start] != "time":  # a wrapper with options
        start += 1
    return words[start:]


def _unwrap(words: Sequence[str]) -> list[str]:
    """Return the command behind assignments and wrappers, its program without folders."""
    rest = list(words)
    while rest:
        program = _program(rest[0])
        if _ASSIGNMENT.fullmatch(rest[0]):
            rest = rest[1:]
        elif program in _WRAPPERS and len(rest) > 1:
            rest = rest[1:]
            while rest and (rest[0].startswith("-") or re.fullmatch(r"[\d.]+[smhd]?", rest[0])):
                rest = rest[2 if _takes_next(rest[0], _VALUED.get(program, frozenset())) else 1 :]
        else:
            return [program, *rest[1:]]
    return rest


def _takes_next(option: str, valued: frozenset[str]) -> bool:
    """Whether an option's value is the next word: the first letter of its group that takes one is the last."""
    if option.startswith("--"):
        return option in valued
    return next((at for at, letter in enumerate(option) if f"-{letter}" in valued), -1) == len(option) - 1


def _program(word: str) -> str:
    name = re.split(r"[\\/]", word)[-1].casefold()
    return name.removesuffix(".exe")


def _is_opaque(words: Sequence[str]) -> bool:
    """Whether the words hand a program to an interpreter, where it is not looked into."""
    if not words:
        return False
    if words[0] in ("eval", "source", ".") or any(char in words[0] for char in "*?[ "):
        return True
    if words[0] in _INTERPRETERS:
        return any(re.match(r"-{1,2}[A-Za-z]*[cers]|-$", word) for word in words[1:]) or len(words) == 1
    return words[0] == "find" and any(word.startswith(("-exec", "-ok")) for word in words)


def _caught(words: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether the words begin as the pattern does: its program, its options anywhere, its words in order."""
    if not words or not fnmatchcase(_program(words[0]), _program(pattern[0]) or "*"):
        return False
    wanted, given = _Options(pattern[1:]), _Options(words[1:])
    if not (wanted.letters <= given.letters and all(given.has(option) for option in wanted.long)):
        return False
    fixed = [word for word, _ in wanted.rest]
    while fixed and fixed[-1] == "*":
        fixed.pop()
    for word, may_be_value in given.rest:
        if not fixed:
            break
        if fnmatchcase(word, fixed[0]):
            del fixed[0]
        elif not may_be_value:
            return False
    return not fixed


class _Options:
    """The words behind a program: option letters in any order and grouping, long options, and the rest.

    A word right behind an option may be that option's value; the rest says so.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self.letters: set[str] = set()
        self.long: list[str] = []
        self.rest: list[tuple[str, bool]] = []
        behind = False
        for word in words:
            is_option = word.startswith("-") and len(word) > 1 and "*" not in word
            if not is_option:
                self.rest.append((word, behind))
            elif word.startswith("--"):
                self.long.append(word)
            else:
                self.letters |= set(word[1:])
            behind = is_option

    def has(self, pattern: str) -> bool:
        return any(fnmatchcase(option, pattern) for option in self.long)
