"""Single faults everywhere: run a scenario once for each place where something of others is called.

    async def scenario(seams):                      # a fresh world each time, made of seams.py's parts
        model = SeamModel(ScriptedModel(call("add"), "done"), seams)
        async with Agent(model, tools=[seam_tool(add, seams)], plugins=[seam_plugin(seams)]) as agent:
            return await agent.run("go")

    report = sweep(scenario)                        # 12 kinds of faults, asyncio and trio, virtual time
    report.check()

A seam is a call that can fail: a stream's next item, a tool's body, a hook, a store. `Seams` counts them;
the k-th one fails as the `FaultPlan` says, or does something of the scenario's own (`seams.actions`,
as cancelling the agent). The ready-made parts with seams in them are in seams.py.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, TypeAlias

import anyio

from .clock import BACKENDS, run_virtual
from .fault_plans import HANG, KINDS, FaultPlan, ForeignFault, drawn_pairs

__all__ = ["HANG", "KINDS", "FaultPlan", "ForeignFault", "Row", "Scenario", "Seams", "Seen", "SweepReport", "sweep"]

SHOWN_MAX = 20


class Seams:
    """Counts the seams of one run, and makes one of them fail.

    Args:
        plan: the fault; None only counts.

    Attributes:
        names: the seams in the order they were reached.
        hit: the seam (or `pass`) where the plan struck; None if it has not.
        again: the seam where the other fault struck, if the plan has one.
        error, later: what was raised there.
        passes: the scheduler's passes so far.
        actions: what a plan may do instead of a fault, by kind; the scenario fills it.
        opened, closed: streams of the seam models (C6).
        threaded: whether a seam was reached in another thread, so that their order may differ between runs.
    """

    def __init__(self, plan: FaultPlan | None = None) -> None:
        self.plan = plan
        self.names: list[str] = []
        self.hit: str | None = None
        self.again: str | None = None
        self.error: BaseException | None = None
        self.later: BaseException | None = None
        self.passes = 0
        self.actions: dict[str, Callable[[], object]] = {}
        self.opened = 0
        self.closed = 0
        self.threaded = False
        self._thread = threading.get_ident()

    async def point(self, name: str) -> None:
        """A seam in async code: may raise, hang, or act."""
        if (kind := self._due(name)) is not None:
            if kind == HANG:
                self._note(name)
                await anyio.sleep_forever()
            self._strike(name, kind)

    def sync_point(self, name: str) -> None:
        """A seam in sync code: may raise or act; it cannot hang."""
        if (kind := self._due(name)) is not None:
            self._strike(name, kind)

    def on_pass(self, number: int) -> None:
        """Called by the clock at each pass of the scheduler."""
        self.passes = number
        plan = self.plan
        if plan is not None and plan.at == "pass" and number == plan.k:
            try:
                self._strike("pass", plan.kind)
            except BaseException as exc:  # nobody is there to take it: the sweep reports it
                self.error = exc

    def _due(self, name: str) -> str | None:
        self.names.append(name)
        if threading.get_ident() != self._thread:
            self.threaded = True
        plan = self.plan
        if plan is None or plan.at != "seam":
            return None
        behind = len(self.names) - plan.k
        if self.hit is not None and plan.then is not None and behind == plan.then[0]:
            return plan.then[1]
        return plan.kind if not behind else None

    def _note(self, name: str, error: BaseException | None = None) -> None:
        if self.hit is None:
            self.hit, self.error = name, error
        else:
            self.again, self.later = name, error

    def _strike(self, name: str, kind: str) -> None:
        if (action := self.actions.get(kind)) is not None:
            self._note(name)
            action()
        elif (make := KINDS.get(kind)) is not None:
            error = make()
            self._note(name, error)
            raise error


@dataclass(frozen=True, slots=True)
class Seen:
    """What a scenario saw.

    Args:
        reason: how the turn ended, as `completed` or `error/plugin`.
        violations: what must not be, in words.
    """

    reason: str = ""
    violations: Sequence[str] = ()


Scenario: TypeAlias = Callable[[Seams], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Row:
    """One run of a sweep; `plan` and `backend` replay it."""

    backend: str
    plan: FaultPlan | None
    seam: str | None
    reason: str
    violations: tuple[str, ...] = ()

    def __str__(self) -> str:
        what = "without a fault" if self.plan is None else f"{self.plan} at {self.seam}"
        return f"{self.backend}, {what}: {self.reason or '(no reason)'}; {'; '.join(self.violations) or 'good'}"


@dataclass(slots=True)
class SweepReport:
    """What a sweep did.

    Attributes:
        rows: one for each run in which the fault struck, and the first one of each backend, without a fault.
        runs: how many runs there were.
        kinds: the kinds asked for.
        pairs: in how many runs two faults struck.
    """

    rows: list[Row] = field(default_factory=list)
    runs: int = 0
    kinds: tuple[str, ...] = ()
    pairs: int = 0

    @property
    def failures(self) -> list[Row]:
        """The rows with violations."""
        return [row for row in self.rows if row.violations]

    @property
    def seams(self) -> set[str]:
        """The seams that were struck."""
        return {row.seam for row in self.rows if row.seam is not None}

    def reasons(self, seam: str = "", kind: str | None = None) -> Counter[str]:
        """How the runs ended whose seam begins with `seam` and whose fault is `kind` (None: any)."""
        return Counter(
            row.reason
            for row in self.rows
            if row.seam is not None
            and row.seam.startswith(seam)
            and row.plan is not None
            and kind in (None, row.plan.kind)
        )

    def check(self) -> SweepReport:
        """Return this report.

        Raises:
            AssertionError: a run has a violation, or a kind never struck; the message says how to replay.
        """
        struck = {row.plan.kind for row in self.rows if row.plan is not None}
        if missed := [kind for kind in self.kinds if kind not in struck]:
            raise AssertionError(f"expected each kind to strike, got none of {', '.join(missed)}: no seam takes them")
        if failures := self.failures:
            shown = "\n".join(f"  {row}" for row in failures[:SHOWN_MAX])
            raise AssertionError(
                f"{len(failures)} of {self.runs} runs have violations; replay one with"
                f" sweep(scenario, plans=[FaultPlan(...)], backends=[...]):\n{shown}"
            )
        return self

    def __str__(self) -> str:
        lines = [f"{self.runs} runs, {len(self.rows)} rows, {len(self.failures)} with violations"]
        for seam in sorted(self.seams):
            ends = ", ".join(f"{reason or '-'} {n}" for reason, n in sorted(self.reasons(seam).items()))
            lines.append(f"  {seam}: {ends}")
        return "\n".join(lines)


def sweep(
    scenario: Scenario,
    *,
    kinds: Iterable[str] = tuple(KINDS),
    backends: Iterable[str] = BACKENDS,
    at: Literal["seam", "pass"] = "seam",
    limit: int | None = None,
    plans: Sequence[FaultPlan] | None = None,
    pairs: int = 0,
    may_raise: Sequence[str] = ("keyboard_interrupt",),
    seed: int = 0,
    stuck_s: float = 0.5,
) -> SweepReport:
    """Run a scenario with each single fault, under virtual time, and say what came of it.

    Args:
        scenario: an async function of the seams. It makes a fresh world and returns how the turn ended: a
            str, a TurnResult, or `Seen`. What it raises is a violation.
        kinds: kinds of faults, or names of the scenario's actions.
        backends: where to run.
        at: strike at seams, or (actions only) at each pass of the scheduler.
        limit: runs at most, spread evenly; None for all.
        plans: exactly these faults instead, as to replay one.
        pairs: so many pairs of faults on each backend instead, drawn by `seed`.
        may_raise: kinds whose exception may leave the scenario.
        seed: the order of ready tasks.
        stuck_s: real seconds without any timer, thread or socket after which a run is a deadlock.

    Returns:
        The report; `check()` raises if something is wrong.
    """
    one = _Sweep(scenario, tuple(may_raise), seed, stuck_s)
    names = tuple(kinds) if plans is None else tuple(dict.fromkeys(plan.kind for plan in plans))
    report = SweepReport(kinds=names)
    todo: list[tuple[str, FaultPlan, str | None]] = []
    for backend in backends:
        clean, row = one.run(backend, None)
        report.rows.append(row)
        report.runs += 1
        places = clean.names if at == "seam" else ["pass"] * clean.passes
        if pairs:
            wanted: Sequence[FaultPlan] = drawn_pairs(Random(f"{backend} {seed}"), pairs, len(places), names, may_raise)
        else:
            wanted = plans or [FaultPlan(k, kind, at) for kind in names for k in range(1, len(places) + 1)]
        known = 0 if clean.threaded else len(places)  # a thread comes when it comes
        todo += [(backend, plan, places[plan.k - 1] if plan.k <= known else None) for plan in wanted]
    count = len(todo) if limit is None else min(limit, len(todo))
    for i in range(count):
        backend, plan, expected = todo[i * len(todo) // count]
        seams, row = one.run(backend, plan, expected)
        report.runs += 1
        report.pairs += seams.again is not None
        if seams.hit is not None or row.violations:
            report.rows.append(row)
    return report


@dataclass(frozen=True, slots=True)
class _Sweep:
    scenario: Scenario
    may_raise: tuple[str, ...]
    seed: int
    stuck_s: float

    def run(self, backend: str, plan: FaultPlan | None, expected: str | None = None) -> tuple[Seams, Row]:
        seams = Seams(plan)
        violations: list[str] = []
        try:
            value = run_virtual(
                self.scenario, seams, backend=backend, seed=self.seed, stuck_s=self.stuck_s, on_pass=seams.on_pass
            )
        except BaseException as exc:
            reason = f"raised {type(exc).__name__}"
            if isinstance(exc, KeyboardInterrupt) and not any(
                isinstance(error, KeyboardInterrupt) for error in (seams.error, seams.later)
            ):
                raise  # somebody stops the sweep
            if not any(_holds(exc, error) for error in self._may_leave(plan, seams)):
                violations.append(f"the scenario raised {exc!r}")
        else:
            reason, found = _read(value)
            violations += found
        if seams.error is not None and plan is not None and plan.at == "pass":
            violations.append(f"the action {plan.kind!r} raised {seams.error!r}")
        if seams.opened != seams.closed:
            violations.append(f"{seams.opened} streams were opened, {seams.closed} closed (C6)")
        if seams.hit is not None and expected not in (None, seams.hit) and not seams.threaded:
            violations.append(f"not deterministic: place {plan.k if plan else 0} was {expected}, now {seams.hit}")
        return seams, Row(backend, plan, seams.hit, reason, tuple(violations))

    def _may_leave(self, plan: FaultPlan | None, seams: Seams) -> list[BaseException]:
        """What was injected and may leave the scenario."""
        if plan is None:
            return []
        struck = [(plan.kind, seams.error), (plan.then[1] if plan.then is not None else "", seams.later)]
        return [error for kind, error in struck if kind in self.may_raise and error is not None]


def _holds(exc: BaseException, error: BaseException) -> bool:
    """Whether an exception is the injected one, or a group of it, or another KeyboardInterrupt raised for it."""
    if isinstance(exc, BaseExceptionGroup):
        return any(_holds(each, error) for each in exc.exceptions)
    return exc is error or (isinstance(exc, KeyboardInterrupt) and isinstance(error, KeyboardInterrupt))


def _read(value: Any) -> tuple[str, list[str]]:
    """The reason and violations in what a scenario returned."""
    if isinstance(value, Seen):
        return value.reason, list(value.violations)
    if value is None or isinstance(value, str):
        return value or "", []
    reason = getattr(value, "reason", None)
    kind = getattr(reason, "kind", None)
    if kind is None:
        return "", [f"expected a reason, a TurnResult or Seen from the scenario, got {value!r}"]
    error = getattr(reason, "error", None)
    bad = ["the turn ended error, kind internal (T4)"] if error == "internal" else []
    return f"{kind}/{error}" if error else str(kind), bad
