"""The plugin `invariants`: the oracle beside every live agent.

    [plugins.invariants]
    report = "stderr"    # or "log": an event invariants/violation in the session's log
    deep = false         # derive and validate the history at each step

It observes only: whatever it finds, the loop goes on. Each violation is shown once.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from checkrein.chunks import Chunk
from checkrein.events import AnyEvent, PluginFaulted
from checkrein.eventtypes import EventType
from checkrein.hookspecs import hookimpl
from checkrein.store import StoredLog
from checkrein.verdict import Judge, Verdict

from .rules import RULES, Violation
from .watch import Watch

if TYPE_CHECKING:
    from checkrein.agents import AgentLike
    from checkrein.harness import Harness
    from checkrein.session import Session

__all__ = ["Plugin", "VIOLATION"]

VIOLATION = "invariants/violation"
_MAX_KEPT = 1_000
_Fault: TypeAlias = tuple[str, str, str, str, int | None, int | None]


class _Watches(dict["Session", Watch]):
    """The watch of each live session; the first to ask for one begins it."""

    def __init__(self, begin: Callable[[Session], Watch]) -> None:
        super().__init__()
        self._begin = begin

    def __missing__(self, session: Session) -> Watch:
        watch = self[session] = self._begin(session)
        return watch


class Plugin:
    """Watches every agent of a harness.

    Attributes:
        violations: what was found, by session id, also of agents that are gone (at most 1,000 sessions).
    """

    name = "invariants"
    provides = (Judge,)

    class Config(Struct, frozen=True):
        """How it reports.

        Attributes:
            report: `stderr`, or `log` for events in the session's log.
            deep: derive and validate the history at each step; costs its length each time.
        """

        report: Literal["stderr", "log"] = "stderr"
        deep: bool = False

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or self.Config()
        self.violations: dict[str, list[Violation]] = {}
        self._watches = _Watches(self._begin)
        self._shown: dict[Session, set[Violation]] = {}
        self._types: dict[str, EventType] = {}
        self._told: Counter[_Fault] = Counter()  # faults observers were told of
        self._logged: Counter[_Fault] = Counter()  # faults in the logs

    @hookimpl
    def register_events(self, harness: Harness) -> Iterable[EventType]:
        """The event that says what was found; and the service that judges stored logs is offered here."""
        self._types = harness.event_types
        harness.provide(Judge, self, self.name)
        return [EventType(VIOLATION)]

    def judge(self, stored: StoredLog) -> Verdict:
        """Check a stored log from its bytes; see checkrein.verdict.Judge."""
        from .checking import check_lines

        checked = check_lines("", stored.lines, torn=stored.torn, types=self._types.values())
        if checked is None:
            return Verdict(False, 0, ("the log holds no readable event",))
        findings = [f"{found.rule} {found.severity} at seq {found.seq}: {found.message}" for found in checked.found]
        return Verdict(checked.ok(), checked.events, (*findings, *checked.notes))

    @hookimpl
    def session_event(self, session: Session, event: AnyEvent) -> None:
        """Check each event as it comes."""
        watch = self._watches[session]
        before = watch.report.count
        watch(event)
        if type(event) is PluginFaulted:
            self._count(self._logged, event)
        if watch.report.count != before and event.type != VIOLATION:
            self._show(watch)

    @hookimpl
    def stream_chunk(self, agent: AgentLike, turn: int, step: int, chunk: Chunk) -> None:
        """Check the stream's grammar (O23)."""
        self._watches[agent.session].chunk(chunk)

    @hookimpl
    def agent_status(self, agent: AgentLike, status: str) -> None:
        """Check the status (O14)."""
        watch = self._watches[agent.session]
        before = watch.report.count
        watch.status(status)
        if watch.report.count != before:
            self._show(watch)

    @hookimpl
    def plugin_fault(self, fault: PluginFaulted) -> None:
        """Count what is told of, to find what is recorded more than once (O25)."""
        self._count(self._told, fault)

    def _count(self, counter: Counter[_Fault], fault: PluginFaulted) -> None:
        # One's own faults, and those of this very hook, are not told (H2); one without author is found by itself.
        if fault.plugin is None or fault.plugin == self.name or fault.hook == "plugin_fault":
            return
        key = (fault.plugin, fault.hook, fault.error.name, fault.error.message, fault.turn, fault.step)
        if key in counter or len(counter) < _MAX_KEPT:
            counter[key] += 1

    def _recorded_twice(self, watch: Watch) -> None:
        for key, count in self._logged.items():
            if count > (told := self._told[key]) and len(self._told) < _MAX_KEPT:
                watch.add("O25", f"a fault of {key[0]!r} in {key[1]} happened {told} times and is logged {count} times")
                self._told[key] = count

    @hookimpl(trylast=True)
    def agent_disposed(self, agent: AgentLike) -> None:
        """Check that everything is closed, and let go of the session."""
        watch = self._watches[agent.session]
        watch.disposed()
        watch.finish(whole=self.config.deep)
        self._recorded_twice(watch)
        self._show(watch)
        self._watches.pop(watch.session, None)
        self._shown.pop(watch.session, None)

    def _begin(self, session: Session) -> Watch:
        return Watch(session, deep=self.config.deep, stream=True)

    def _show(self, watch: Watch) -> None:
        session = watch.session
        shown = self._shown.setdefault(session, set())
        found = watch.violations
        if found and (session.id in self.violations or len(self.violations) < _MAX_KEPT):
            self.violations[session.id] = found
        for violation in found:
            if violation not in shown:
                shown.add(violation)
                self._tell(watch, violation)

    def _tell(self, watch: Watch, violation: Violation) -> None:
        if self.config.report == "log" and not watch.gone:
            fields = {
                "rule": violation.rule,
                "message": str(violation),
                "severity": violation.severity,
                "events": list(violation.events),
            }
            watch.session.append_free(VIOLATION, fields, plugin=self.name)
            return
        rule = RULES[violation.rule]
        sys.stderr.write(f"checkrein oracle: session {watch.session.id}: {violation}\n    ({rule.id}: {rule.text})\n")
