"""The guard: rule tables in, votes out. Deny, then ask, then allow, then the default by effect.

What a person answered before is read from the session's log (L1): rules allowed for always, and
denials of the open turn, so that a call that was refused is not asked for again and again.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct, field

from checkrein.calls import Call
from checkrein.decisions import Allow, Ask, Deny, GuardVote, Stop
from checkrein.events import ApprovalAsked, ApprovalDecided, TurnStart
from checkrein.hookspecs import hookimpl
from checkrein.log import Follower, place_of
from checkrein.visible import excerpt, visible

from .paths import is_web, path_matches, relative_pattern
from .rules import Rule, exact_rule, parse_rule, risk_of
from .subject import Subject, kind_of

if TYPE_CHECKING:
    from checkrein.agents import AgentLike
    from checkrein.session import Session

__all__ = ["NAME", "Plugin"]

NAME = "permissions"
MAX_ARGUMENTS_SHOWN = 20
MAX_VALUE_CHARS = 2_000
MAX_SUMMARY_CHARS = 8_000
_canonical_json = msgspec.json.Encoder(order="sorted").encode
_log = logging.getLogger("checkrein.permissions")

Word = Literal["allow", "ask", "deny"]


class Tables(Struct, frozen=True):
    """A config and its parsed tables."""

    config: Plugin.Config
    deny: tuple[Rule, ...]
    ask: tuple[Rule, ...]
    allow: tuple[Rule, ...]


class Memory(Follower, kw_only=True):
    """What people have answered: the rules for always, from the session's projections, and a fold of the open turn."""

    rules: list[Rule] = field(default_factory=list)
    learnt: int = 0  # how many of the session's rules are parsed
    asked: dict[str, str] = field(default_factory=dict)  # approval id -> call id, of the open turn
    keys: dict[str, str] = field(default_factory=dict)  # call id -> what was asked, of the open turn
    denied: set[str] = field(default_factory=set)
    repeats: int = 0

    def _turn_started(self, event: TurnStart) -> None:
        self.asked.clear()
        self.keys.clear()
        self.denied.clear()
        self.repeats = 0

    def _asked(self, event: ApprovalAsked) -> None:
        self.asked[event.id] = event.call_id

    def _decided(self, event: ApprovalDecided) -> None:
        key = self.keys.get(self.asked.pop(event.id, ""))
        if event.outcome in ("denied", "closed") and key is not None:  # closed: there was nobody to ask
            self.denied.add(key)

    def learn(self, session: Session) -> None:
        """Take up what was answered since."""
        self.catch_up(session.events)
        for text in session.state.allowed_rules[self.learnt :]:
            self.learnt += 1
            try:
                self.rules.append(parse_rule(text))
            except ValueError:  # another version's language: it allows nothing here
                _log.warning("session rule %r is not understood and ignored", text)

    READS: ClassVar = {TurnStart: _turn_started, ApprovalAsked: _asked, ApprovalDecided: _decided}


class Plugin:
    """Decides which calls run, which are asked for and which are refused."""

    required = True
    loosens = ("*",)  # a list replaces the one of a weaker layer, so even `deny` can loosen

    class Config(Struct, frozen=True):
        """`[plugins.permissions]`.

        Attributes:
            mode: what happens to a call that is not read-only and that no rule is about.
            read_only: what happens to a read-only call that no rule is about.
            deny: rules for calls that never run.
            ask: rules for calls that a person must allow each time, or for always.
            allow: rules for calls that run without a question.
            protected: path patterns that nothing but a person's yes, each time, lets a call write to.
            max_repeats: after so many repetitions of a call a person has denied, the turn ends; at least 1.
        """

        mode: Word = "ask"
        read_only: Word = "allow"
        deny: tuple[str, ...] = ()
        ask: tuple[str, ...] = ()
        allow: tuple[str, ...] = ()
        protected: tuple[str, ...] = ("checkrein.toml", ".checkrein/**", ".git/**")
        max_repeats: int = 3

        def __post_init__(self) -> None:
            for name in ("deny", "ask", "allow"):
                _parse(getattr(self, name), name)
            for index, pattern in enumerate(self.protected):
                if problem := "it is empty" if not pattern else relative_pattern(pattern):
                    raise ValueError(f"protected[{index}]: expected a path pattern, got {pattern!r}: {problem}")
            if self.max_repeats < 1:
                raise ValueError(f"max_repeats: expected at least 1, got {self.max_repeats}")

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or self.Config()
        self._tables: dict[Plugin.Config, Tables] = {}
        self._used = _parsed(self.config)
        self._memories: WeakKeyDictionary[Session, Memory] = WeakKeyDictionary()
        for rule in self._used.allow:
            if warning := risk_of(rule):
                _log.warning("%s", warning)

    @hookimpl
    def tools_guard(self, agent: AgentLike, call: Call) -> GuardVote:
        """Vote on a call by the rules, the answers so far, and its effect."""
        session = agent.session
        memory = self._memories.get(session)
        if memory is None:
            begin = place_of(session.events, session.state.starts.get(call.turn, 0))
            memory = self._memories[session] = Memory(position=begin)
        memory.learn(session)
        vote = _judge(Subject(call, agent.workspace), self._tables_for(agent), memory)
        if isinstance(vote, Ask):
            key = _key(call)
            if key in memory.denied:
                memory.repeats += 1
                return Deny(
                    "denied by the user a moment ago, this very call: do not repeat it, do or ask something else"
                )
            memory.keys[call.call_id] = key
        return vote

    @hookimpl
    def turn_continuation(self, agent: AgentLike) -> Stop | None:
        """End a turn in which the model keeps asking for what was denied."""
        memory = self._memories.get(agent.session)
        if memory is None or not memory.repeats:
            return None
        memory.catch_up(agent.session.events)  # they may be another turn's
        if memory.repeats < self._config(agent).max_repeats:
            return None
        return Stop(f"a call that was denied was asked for {memory.repeats} more times")

    def _tables_for(self, agent: AgentLike) -> Tables:
        config = self._config(agent)  # hashing one costs more than what most calls need of it
        if self._used.config is not config:
            if config not in self._tables:
                self._tables[config] = _parsed(config)
            self._used = self._tables[config]
        return self._used

    def _config(self, agent: AgentLike) -> Config:
        if not agent.spec.plugins.get(NAME):
            return self.config
        config: Plugin.Config = agent.harness.plugins.config_for(NAME, agent.spec)
        return config


def _judge(subject: Subject, tables: Tables, memory: Memory) -> GuardVote:
    config, effect = tables.config, subject.call.effect
    for rule in tables.deny:
        matched = rule.matches(subject, broad=True)
        if matched:
            return Deny(f"denied by the permission rule {rule.text!r}")
        if matched is None:
            return Ask(_summary(subject, f"it cannot be told whether the rule {rule.text!r} forbids it"))
    if effect != "read_only" and (why := _protected(subject, config.protected)):
        return Ask(_summary(subject, why))
    for rule in memory.rules:
        if rule.matches(subject, broad=False):
            return Allow(f"allowed before: {rule.text}")
    for rule in tables.ask:
        if rule.matches(subject, broad=True) is not False:
            return Ask(_summary(subject, f"by the rule {rule.text!r}"), exact_rule(subject))
    doubt: Rule | None = None
    for rule in tables.allow:
        matched = rule.matches(subject, broad=False)
        if matched:
            return Allow(f"by the rule {rule.text!r}")
        doubt = rule if matched is None else doubt
    word = config.read_only if effect == "read_only" else config.mode
    if word == "deny":
        return Deny("denied: no permission rule allows it")
    if doubt is not None:
        why = f"it cannot be told whether the rule {doubt.text!r} allows it"
        return Ask(_summary(subject, why), exact_rule(subject))
    return Ask(_summary(subject, "no rule is about it"), exact_rule(subject)) if word == "ask" else None


def _parsed(config: Plugin.Config) -> Tables:
    return Tables(config, *(_parse(getattr(config, name), name) for name in ("deny", "ask", "allow")))


def _parse(texts: Iterable[str], name: str) -> tuple[Rule, ...]:
    rules: list[Rule] = []
    for index, text in enumerate(texts):
        try:
            rules.append(parse_rule(text))
        except ValueError as problem:
            raise ValueError(f"{name}[{index}]: {problem}") from None
    return tuple(rules)


def _key(call: Call) -> str:
    return hashlib.sha256(_canonical_json([call.name, call.arguments])).hexdigest()


def _protected(subject: Subject, patterns: tuple[str, ...]) -> str | None:
    """Say why a call is, or may be, about a protected path; None if it is about none."""
    named = subject.of("path") if patterns else []
    for leaf in named or ([] if subject.of("command") else subject.of("text")):
        path = subject.path(leaf.value)
        if path is not None and any(path_matches(path, pattern, broad=True) for pattern in patterns):
            return f"{path} is protected"
    for leaf in named:
        text = leaf.value
        if isinstance(text, str) and text and subject.path(text) is None and not is_web(text):
            return "it cannot be told whether its path is protected"
    return None


def _summary(subject: Subject, why: str) -> str:
    """Say what would run, for a person: every character visible, bounded, and where paths really lead."""
    call = subject.call
    lines = [f"{call.name} ({call.effect}), {why}"]
    items = list(call.arguments.items())
    for name, value in items[:MAX_ARGUMENTS_SHOWN]:
        text = value if isinstance(value, str) else _canonical_json(value).decode()
        lines.append(f"{name}: {excerpt(text, MAX_VALUE_CHARS)}{_leads(subject, name, value)}")
    if (left := len(items) - MAX_ARGUMENTS_SHOWN) > 0:
        lines.append(f"and {left} more arguments")
    return excerpt("\n".join(map(visible, lines)), MAX_SUMMARY_CHARS)


def _leads(subject: Subject, name: str, value: Any) -> str:
    if not isinstance(value, str) or kind_of(name) != "path":
        return ""
    path = subject.path(value)
    if path is None:
        return " (where it leads cannot be told)"
    return "" if str(path) == value.removeprefix("./") else f" (leads to {path})"
