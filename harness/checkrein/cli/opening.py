"""What `run` and `chat` share: their options, opening a harness with the agent that was asked for, and what they leave.

A session is chosen by `--resume` (its id, or the beginning of it) or `--continue` (the latest one of this
folder). Without a key and without any config file the demo model answers, and says so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec import Struct

from checkrein.errors import CredentialsError, SessionNotFound, StoreError
from checkrein.store import StoredLog
from checkrein.visible import visible

from .options import config_options, load

if TYPE_CHECKING:
    from checkrein.agents import AgentLike, AgentSpec
    from checkrein.harness import Harness
    from checkrein.store import SessionInfo, Store
    from checkrein.verdict import Judge

    from .approve import TerminalApprover
    from .streams import Streams

__all__ = ["Closing", "Opened", "Wanted", "agent_options", "find_session", "opened"]

F = TypeVar("F", bound=Callable[..., Any])
DEMO = "demo"


class Wanted(Struct, frozen=True, kw_only=True):
    """The options: which agent, with what, in which session."""

    config_path: str | None = None
    no_plugin: tuple[str, ...] = ()
    agent: str | None = None
    model: str | None = None
    latest: bool = False
    resume: str | None = None


class Opened(Struct, frozen=True):
    """A harness with the agent that was asked for.

    Attributes:
        start: how many events of its session are stored already.
    """

    harness: Harness
    agent: AgentLike
    start: int


def agent_options(command: F) -> F:
    """Add the options of Wanted to a command."""
    for option in (
        click.option("--resume", metavar="ID", help="Continue this session; the beginning of its id will do."),
        click.option("-c", "--continue", "latest", is_flag=True, help="Continue the latest session of this folder."),
        click.option("--model", metavar="ID", help="The model, as provider:model."),
        click.option("--agent", metavar="ID", help="Which agent of the config; the first one if not given."),
    ):
        command = option(command)
    return config_options(command)


@asynccontextmanager
async def opened(wanted: Wanted, streams: Streams, approver: TerminalApprover | None = None) -> AsyncIterator[Opened]:
    """Open a harness as the options and the config say, with the agent in its session.

    Where something was said and stored, what the hooks cost is kept behind it.

    Args:
        wanted: the options.
        streams: where a notice goes.
        approver: who is asked for approvals, closed in the end; None if nobody can be.

    Raises:
        ConfigError, PluginError, CredentialsError: it cannot work.
        SessionNotFound, SessionLocked, StoreError: the session cannot be continued.
        click.UsageError: there is no such agent.
    """
    async with AsyncExitStack() as stack:
        if approver is not None:
            stack.callback(approver.close)
        harness = _harness(wanted, approver)
        try:
            await stack.enter_async_context(harness)
        except CredentialsError:
            if harness.config_files or any(spec.model != "auto" for spec in harness.specs):
                raise
            streams.note(
                "no model key and no config file: the demo model answers, a set of rules without intelligence;"
                " set OPENAI_API_KEY for a real one"
            )
            harness = _harness(wanted, approver, model=DEMO)
            await stack.enter_async_context(harness)
        for report in harness.plugins.reports:
            if report.state == "skipped":
                origin = " ".join(part for part in (report.distribution, report.version) if part)
                streams.note(
                    visible(f"plugin {report.name!r} ({origin or 'not installed'}) is skipped: {report.problem}")
                )
        agent = harness.agents[_spec(harness.specs, wanted).id]
        start = 0
        if (session_id := _session(harness, wanted)) is not None:
            agent = await harness.resume(session_id, spec=_spec(harness.specs, wanted) if wanted.agent else None)
            start = agent.session.writer.taken if agent.session.writer is not None else 0
        yield Opened(harness, agent, start)
        writer = agent.session.writer
        stored = writer is not None and writer.taken > start
    if stored:
        from .accounts import keep_run

        keep_run(harness, agent.session.id)


def _harness(wanted: Wanted, approver: TerminalApprover | None, model: str | None = None) -> Harness:
    """Make a harness; `model` is for agents that name none, `wanted.model` for the chosen one."""
    from checkrein.agents import Approver
    from checkrein.harness import Harness

    overrides: dict[str, Any] = {"plugins": {"block": list(wanted.no_plugin)}} if wanted.no_plugin else {}
    if model is not None:
        overrides["model"] = model
    if wanted.model is not None:
        chosen = _spec(load(wanted.config_path).config.agent_specs(), wanted)
        overrides["agents"] = {chosen.id: {"model": wanted.model}}
    harness = Harness(wanted.config_path, overrides=overrides)
    if approver is not None:
        harness.provide(Approver, approver)  # protocols are what services are
    return harness


def _spec(specs: Sequence[AgentSpec], wanted: Wanted) -> AgentSpec:
    if wanted.agent is None:
        return specs[0]
    from checkrein.nearest import did_you_mean

    by_id = {spec.id: spec for spec in specs}
    if (spec := by_id.get(wanted.agent)) is None:
        raise click.UsageError(
            f"--agent: expected one of {', '.join(by_id)}; got {wanted.agent!r}{did_you_mean(wanted.agent, by_id)}"
        )
    return spec


# --- which session --------------------------------------------------------------------------------------


def _session(harness: Harness, wanted: Wanted) -> str | None:
    if wanted.resume is not None:
        if wanted.latest:
            raise click.UsageError("expected --continue or --resume, got both")
        return find_session(harness.store, wanted.resume)
    if not wanted.latest:
        return None
    for info in harness.store.list():
        if (wanted.agent is None or info.agent == wanted.agent) and _is_here(harness.store, info, harness.workspace):
            return info.id
    whose = f" of agent {wanted.agent!r}" if wanted.agent else ""
    raise SessionNotFound(f"there is no session{whose} to continue in {harness.workspace}; leave --continue out")


def _is_here(store: Store, info: SessionInfo, workspace: Path) -> bool:
    """Whether a session was begun in this folder; one whose beginning is lost is not chosen unasked."""
    from checkrein.events import SessionCreated
    from checkrein.recovery import recover

    try:
        events = recover(StoredLog(store.read(info.id).lines[:1])).events
    except StoreError:
        return False
    return bool(events) and type(events[0]) is SessionCreated and events[0].cwd == str(workspace)


def find_session(store: Store, wanted: str) -> str:
    """Return the id of the session that is meant.

    Args:
        store: where to look.
        wanted: its id, or the beginning of it.

    Raises:
        SessionNotFound: none has this id, or more than one begins so.
    """
    known = [info.id for info in store.list()]
    if wanted in known:
        return wanted
    found = [session_id for session_id in known if wanted and session_id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        raise SessionNotFound(
            f"expected the beginning of one session id, got {wanted!r} of {len(found)}: {', '.join(found[:5])}"
        )
    raise SessionNotFound(f"no session id begins with {wanted!r}; `checkrein sessions list` shows what there is")


# --- the last line -------------------------------------------------------------------------------------------


class Closing:
    """What is said of a session when its harness is closed: where its log is, and the oracle's verdict.

    Args:
        found: before its harness closes; what that provides is noted here.
    """

    def __init__(self, found: Opened) -> None:
        from checkrein.verdict import Judge

        services = found.harness.services
        self._judge: Judge | None = None
        if services.has(Judge):
            self._judge = services.service(Judge)
        self._store = found.harness.store if found.agent.session.writer is not None else None
        self._session = found.agent.session

    def tell(self, streams: Streams) -> bool:
        """Say it on standard error; return whether the log is balanced, as far as it can be told."""
        stored, place = StoredLog(self._session.lines), "in memory, gone now"
        if self._store is not None:
            stored, place = self._store.read(self._session.id), self._store.locate(self._session.id)
        lines, balanced = self._verdict(stored)
        streams.note(f"session {self._session.id}: {place}")
        for line in lines:
            streams.note(line)
        return balanced

    def _verdict(self, stored: StoredLog) -> tuple[list[str], bool]:
        if self._judge is None:
            return ["oracle: not loaded, the log was not checked"], True
        verdict = self._judge.judge(stored)
        word = "balanced" if verdict.balanced else "NOT balanced"
        return [f"oracle: {word}, {verdict.events} events", *map(visible, verdict.findings)], verdict.balanced
