"""The rules of the oracle as data, and what breaks them.

The checks are in the folds; docs/oracle.md prints this table (a test keeps the two equal).
"""

from __future__ import annotations

from collections.abc import Hashable

from msgspec import Struct

__all__ = ["Rule", "RULES", "Violation", "Report", "MAX_VIOLATIONS"]

MAX_VIOLATIONS = 1_000


class Rule(Struct, frozen=True):
    """One rule.

    Attributes:
        id: `O1` to `O26`, as in docs/semantics.md.
        text: what must hold.
        severity: `error`, or `warning` where a log that breaks it is still right, only dearer.
        needs: `log` where the events are enough, `live` where the running agent must be watched,
            `deep` where history is derived (costs its length each time).
    """

    id: str
    text: str
    severity: str = "error"
    needs: str = "log"


def _table(*rules: Rule) -> dict[str, Rule]:
    return {rule.id: rule for rule in rules}


RULES: dict[str, Rule] = _table(
    Rule("O1", "seq is contiguous from 0; each jump is named once by a log/gap"),
    Rule("O2", "each turn/start has exactly one turn/end; turns never nest"),
    Rule("O3", "each step/start has exactly one step/end, inside its turn"),
    Rule("O4", "turns, steps and attempts are numbered consecutively from 1; turn/end counts its steps"),
    Rule("O5", "events of a turn or step lie inside it and name it"),
    Rule("O6", "a step keeps the order: input, attempts (request, thinking, end), answer, calls, results"),
    Rule("O7", "each call has exactly one result, in its step and the model's order, or one entry of session/repaired"),
    Rule("O8", "no start, end or result without an open call"),
    Rule("O9", "call ids are unique in the log"),
    Rule("O10", "the call blocks of an answer and its tool/call events are the same calls, in the same order"),
    Rule("O11", "a turn's reason is one of the six, carries what it must, and agrees with the turn"),
    Rule("O12", "each accepted input is pending, taken once, or discarded: nothing is lost, doubled or invented"),
    Rule("O13", "after disposal began there are only closing events", needs="live"),
    Rule("O14", "status goes idle, running, idle; disposed ends it; never idle in an open turn", needs="live"),
    Rule("O15", "the derived history is valid for OpenAI chat, OpenAI responses and Anthropic messages", needs="deep"),
    Rule("O16", "a request names its header and parts, and can be rebuilt from the log to its digest"),
    Rule("O17", "opaque data stays unchanged and with the provider it came from"),
    Rule("O18", "usage is never negative, reasoning is part of output, totals are the sum of the requests"),
    Rule("O19", "an effectful call is started at most once; what ran without error was started"),
    Rule("O20", "each approval asked, for an open call, is decided or closed once, before its turn ends"),
    Rule("O21", "a compaction never splits calls from results, makes progress, and is closed"),
    Rule("O22", "each registered balance rule: every open event has its close event"),
    Rule("O23", "an answer comes only from a stream that kept the chunk grammar to its finish", needs="live"),
    Rule("O24", "logged events are immutable: what was appended still encodes to the same bytes", needs="live"),
    Rule("O25", "each fault is recorded once, with its author; what ended or was refused by a fault has one"),
    Rule("O26", "each request extends the one before, except where an event says why", severity="warning"),
)


class Violation(Struct, frozen=True):
    """A rule that does not hold.

    Attributes:
        rule: the rule's id.
        seq: the event at which it showed.
        message: expected and got.
        events: the seqs of all events concerned.
    """

    rule: str
    seq: int
    message: str
    events: tuple[int, ...] = ()

    @property
    def severity(self) -> str:
        """`error` or `warning`."""
        return RULES[self.rule].severity

    def __str__(self) -> str:
        return f"{self.rule} at seq {self.seq}: {self.message}"


class Report:
    """Collects violations; some are held until the end of the log, because a later event may settle them.

    Attributes:
        seq: the event being looked at.
        count: how many violations there are so far.
        dropped: how many were not kept, beyond MAX_VIOLATIONS.
    """

    __slots__ = ("_found", "_held", "count", "dropped", "seq")

    def __init__(self) -> None:
        self.seq = -1
        self.count = self.dropped = 0
        self._found: list[Violation] = []
        self._held: dict[Hashable, Violation] = {}

    def add(self, rule: str, message: str, *events: int) -> None:
        """Record a violation at the current event; `events` are the other seqs concerned."""
        self.count += 1
        if len(self._found) >= MAX_VIOLATIONS:
            self.dropped += 1
            return
        self._found.append(Violation(rule, self.seq, message, (*events, self.seq)))

    def hold(self, key: Hashable, rule: str, message: str, *events: int) -> None:
        """Record a violation that `settle(key)` takes back."""
        if len(self._held) >= MAX_VIOLATIONS:
            self.count += 1
            self.dropped += 1
            return
        self.count += key not in self._held
        self._held[key] = Violation(rule, self.seq, message, (*events, self.seq))

    def settle(self, key: Hashable) -> bool:
        """Take a held violation back; False if there is none of this key."""
        if self._held.pop(key, None) is None:
            return False
        self.count -= 1
        return True

    @property
    def violations(self) -> list[Violation]:
        """All violations so far, in the order of the log."""
        found = dict.fromkeys((*self._found, *self._held.values()))  # asking twice finds nothing twice
        return sorted(found, key=lambda violation: violation.seq)
