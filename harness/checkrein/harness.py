"""Harness: config, plugins, services, owner task and agents, put together. `Agent` is one with a single agent.

The main path is `Harness.__aenter__`, top-down; closing is the same way back. Everything that decides
anything lives elsewhere.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from . import __version__
from . import events as ev
from .agents import AgentLike, Agents, AgentSpec
from .config.types import HarnessConfig, check_spec
from .discovery import Found, load_loop
from .errors import ConfigError, CredentialsError, WrongThread
from .feed import Feed
from .hooks import Hooks
from .owner import Owner, ours
from .plugins import PluginManager, PluginReport
from .prompt import Section
from .providers import Provider, Providers
from .registration import check_store, check_trust, collect, leave, listed
from .requests import Parts
from .services import Services
from .session import Session
from .supervision import Lifespans
from .threads import Post, ThreadPool, loop_post, through
from .tools import Tool, ToolRegistry
from .writers import LazyWriter

if TYPE_CHECKING:
    from .config import LoadedConfig
    from .eventtypes import EventType
    from .recovery import Recovered
    from .store import Store, Writer

__all__ = ["Harness"]

T = TypeVar("T")


class Harness:
    """A set of agents with their plugins; an async context manager.

    Args:
        path: a config file, or None to look for `checkrein.toml` in the workspace.
        tools: tools of the program's own.
        plugins: plugins of the program's own, classes or instances.
        providers: providers of the program's own.
        workspace: the folder tools work in; the current one if not given.
        overrides: config values by dotted path, over everything else.
        config: a ready config instead of files.
        store: a store instead of the configured one.
        found: plugins to choose from instead of the installed ones.

    Raises (on entering):
        ConfigError, PluginError: the configuration cannot work; nothing was started.
        CredentialsError: an agent's model lacks its credentials.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        tools: Sequence[Tool | Callable[..., Any]] = (),
        plugins: Sequence[object] = (),
        providers: Sequence[Provider] = (),
        workspace: str | os.PathLike[str] | None = None,
        overrides: Mapping[str, Any] | None = None,
        config: HarnessConfig | None = None,
        store: Store | None = None,
        found: Iterable[Found] | None = None,
    ) -> None:
        self.workspace = (Path() if workspace is None else Path(workspace)).absolute()
        self.loaded = loaded = None if config is not None else _load(path, overrides, self.workspace)
        self.config = loaded.config if loaded is not None else config or HarnessConfig()
        self.config_hash = loaded.hash if loaded is not None else ""
        self.config_files = list(loaded.files) if loaded is not None else []
        self._origins: Mapping[str, str] = loaded.origins if loaded is not None else {}
        self.specs: list[AgentSpec] = self.config.agent_specs()
        file = str(self.config_files[-1]) if self.config_files else None
        self.plugins = PluginManager(self.config.plugins, found=found, origins=self._origins, file=file)
        for plugin in listed("plugins", plugins):
            self.plugins.add(plugin)
        if store is not None:
            from .flushing import Flusher

            self.plugins.add(Flusher(), name="store")  # a store that is handed over is also written to
        self.hooks = Hooks(deadlines=self.config.limits.deadlines())
        self.services = Services(self.plugins)
        self.providers = Providers()
        self.tools = ToolRegistry()
        self.sections: list[Section] = []
        self.parts = Parts()
        self.event_types: dict[str, EventType] = {}
        self.stores: dict[str, Store] = {}
        self.brought: dict[tuple[str, str], str] = {}  # (kind, name) of what plugins registered, to its plugin
        self.agents = Agents()
        self.feeds: list[Feed] = []
        self.owner = Owner()
        self.threads = ThreadPool(self.config.limits.tool_threads)
        self.close_timeout_s = self.config.limits.close_timeout_s
        self.stream_idle_s = self.config.limits.stream_idle_s
        self.output_bytes = self.config.limits.output_max_bytes
        self._own_tools = listed("tools", tools)
        self._own_providers = listed("providers", providers)
        self._store = store
        self._lifespans = Lifespans(self)
        self._thread = threading.get_ident()
        self._post: Post | None = None
        self._opened = self._watching = False
        self._closing = anyio.Lock()
        self._loop: Callable[..., AgentLike]

    # --- opening and closing ----------------------------------------------------------------------

    async def __aenter__(self) -> Harness:
        if self._opened:
            raise ConfigError("a harness is opened once; make another one")
        self._opened = True
        self._thread = threading.get_ident()
        self._post = loop_post()
        try:
            self.load()
            self._loop = load_loop(self.config.loop)
            await self.owner.start()
            await self._lifespans.enter()
            self.check_models()
            for spec in self.specs:
                await self.create_agent(spec)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.aclose()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        with anyio.CancelScope(shield=True):
            await self.aclose()

    def load(self) -> list[PluginReport]:
        """Load plugins and collect what they bring; starts nothing, so it also serves `checkrein plugins`."""
        if not self.workspace.is_dir():
            raise ConfigError(f"expected a folder as workspace, got {str(self.workspace)!r}; make it, or name another")
        self.plugins.load(self.specs)
        check_trust(self)
        self.hooks.attach(self.plugins)
        self.plugins.on_change(self._plugin_changed)
        collect(self, self._own_tools, self._own_providers)
        check_store(self, named=self._store is not None)
        return self.plugins.reports

    def check_models(self, *, keys: bool = True) -> None:
        """Refuse an agent whose model cannot be used, before any starts; with `keys` one that lacks its key, too."""
        for index, spec in enumerate(self.specs):
            try:
                self.providers.resolve(spec.model)
            except CredentialsError:
                if keys:
                    raise
            except ConfigError as exc:
                at = f"agents[{index}].model"
                at = at if at in self._origins else "model"
                raise ConfigError(f"{exc}", path=at, file=self._origins.get(at)) from None

    async def aclose(self) -> None:
        """Dispose the agents, leave the plugins' lifespans in reverse order, end the owner task; idempotent."""
        async with self._closing:  # a second caller waits: ending the owner's tasks would strike a lifespan being left
            if self.owner.alive:
                for agent in self.agents:
                    await agent.dispose()
            await self._lifespans.leave()
            if not await self.owner.close(self.close_timeout_s):
                left = TimeoutError(f"something deaf to its cancellation still runs after {self.close_timeout_s:g} s")
                self.hooks.faults.write("checkrein", "close", left, None, "contained")
            self.threads.close()
            for feed in list(self.feeds):
                feed.close()

    @property
    def closed(self) -> bool:
        """Whether it was open and is no longer."""
        return self._opened and not self.owner.alive

    def _plugin_changed(self, name: str, present: bool) -> None:
        self.__dict__.pop("_facts", None)
        if not present:
            leave(self, name)
            self.services.withdraw(name)
            self.hooks.forget(name)
        else:
            self.hooks.rebuild()

    # --- agents -----------------------------------------------------------------------------------

    async def create_agent(self, spec: AgentSpec, *, session_id: str | None = None) -> AgentLike:
        """Create an agent with a new session.

        Args:
            spec: how; `AgentSpec(id="x", model="provider:model")`.
            session_id: the session's id; made of the time if not given.

        Raises:
            ConfigError: the id is taken, a member is not what a file's `[[agents]]` may hold, the harness is closed.
        """
        check_spec(spec)
        self._must_be_open()
        session = Session(session_id or new_session_id(), self.event_types)
        self._equip(session)
        session.append(
            ev.SessionCreated(
                format=ev.FORMAT, session=session.id, agent=spec.id, cwd=str(self.workspace), **self._facts
            )
        )
        return await self._admit(spec, session)

    async def resume(self, session_id: str, *, spec: AgentSpec | None = None) -> AgentLike:
        """Continue a stored session: repaired if it was interrupted, its pending input parked (R1, R2, C4).

        Args:
            session_id: which.
            spec: how its agent is made; the configured agent of the session's name (or the first) if not given.

        Raises:
            SessionNotFound, SessionLocked, StoreError; ConfigError as create_agent.
        """
        if spec is not None:
            check_spec(spec)
        self._must_be_open()
        from .recovery import reopen

        found, writer = reopen(self.store, session_id, self.event_types)
        try:
            return await self._continue(found, writer, session_id, spec)
        except BaseException:
            writer.close()  # nobody else knows of it: its lock must not outlive this call
            raise

    def _must_be_open(self) -> None:
        if not self.owner.alive:
            state = "closed" if self._opened else "not open yet: `async with Harness(...) as harness:`"
            raise ConfigError(f"expected an open harness, this one is {state}")

    async def _continue(self, found: Recovered, writer: Writer, session_id: str, spec: AgentSpec | None) -> AgentLike:
        from .reconcile import mend

        session = Session.load(session_id, found.events, found.lines, self.event_types, found.state)
        session.writer = writer
        self._equip(session)
        await mend(self, session, found)
        session.resumed = {**self._facts}
        if spec is None:
            spec = next((known for known in self.specs if known.id == session.state.agent), self.specs[0])
        if spec.id in self.agents:
            await self.agents[spec.id].dispose()
        return await self._admit(spec, session, len(found.events))

    async def _admit(self, spec: AgentSpec, session: Session, stored: int = 0) -> AgentLike:
        self.tools.warn_unmatched(spec.id, spec.tools or ())
        agent = self._loop(self, spec, session)
        self.agents.add(agent)
        for feed in self.feeds:
            feed.add(agent, stored)
        if (chain := self.hooks.agent_created) is not None:
            try:
                await self.hooks.observe_async(chain, session, (agent,))
            except BaseException:  # the caller was cancelled and never gets it: it must not keep the id and the lock
                with anyio.CancelScope(shield=True):
                    await agent.dispose()
                raise
        return agent

    def _equip(self, session: Session) -> None:
        session.hooks = self.hooks
        session.on_fault = self.hooks.observer_fault
        if (store := self._current_store()) is not None:
            if session.writer is None:
                session.writer = LazyWriter(store, session.id)
            session.put_blob = lambda data: store.put_blob(session.id, data)

    @cached_property
    def _facts(self) -> dict[str, Any]:  # one for all sessions: with ten plugins it is a fifth of an idle agent
        plugins = [{"name": r.name, "version": r.version} for r in self.plugins.reports if r.state == "loaded"]
        return {"version": __version__, "derivation": ev.DERIVATION, "plugins": plugins, "config": self.config_hash}

    def watch_idle(self, watch: Callable[[Harness], Coroutine[Any, Any, None]]) -> None:
        """Run the loop's watch over hanging streams, unless it runs; it ends when no agent runs."""
        if self._watching or not self.stream_idle_s:
            return
        self._watching = True

        async def run() -> None:
            try:
                await watch(self)
            finally:
                self._watching = False

        self.owner.spawn(run)

    def forget(self, agent: AgentLike) -> None:
        """Unregister a disposed agent and release its log; a store that fails here is recorded, and let go."""
        self.agents.remove(agent)
        for feed in self.feeds:
            feed.drop(agent)
        try:
            agent.session.release()
        except BaseException as exc:
            if isinstance(exc, KeyboardInterrupt) or ours(exc):
                raise
            self.hooks.faults.write(self.store_name, "session_flush", exc, None, "contained")

    def events(self, after: Mapping[str, int] | None = None, *, buffer: int = 4_096) -> Feed:
        """What all agents do, live: `async with harness.events() as feed: async for item in feed` (checkrein.feed).

        Args:
            after: by session id, the seq of the last event the consumer has; other sessions begin now.
            buffer: deltas kept an agent for a slow consumer before those of one block are joined.
        """
        return Feed(self, after, buffer=buffer)

    # --- stores -----------------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        """The store sessions are kept in; one in memory if none is configured."""
        store = self._current_store()
        if store is None:
            from .memory_store import MemoryStore

            store = self._store = MemoryStore()
        return store

    @property
    def store_name(self) -> str:
        """The store's name, `memory` without one."""
        return store.name if (store := self._current_store()) is not None else "memory"

    def _current_store(self) -> Store | None:
        return self._store if self._store is not None else self.stores.get(self.config.session.store)

    # --- services and threads ---------------------------------------------------------------------

    def provide(self, type_: type[Any], value: object, plugin: str | None = None) -> None:
        """Offer a service by type; see checkrein.services."""
        self.services.provide(type_, value, plugin)

    def service(self, type_: Callable[..., T]) -> T:
        """Return the service of a type.

        Raises:
            ConfigError: nobody provides it.
        """
        return self.services.service(type_)

    def check_thread(self) -> None:
        """Raise WrongThread outside the loop's thread (C12)."""
        if threading.get_ident() != self._thread:
            raise WrongThread("this object belongs to its event loop's thread; use harness.from_thread(fn, *args)")

    def call_in_loop(self, fn: Callable[..., object], *args: Any) -> None:
        """Run `fn(*args)` in the loop's thread, soon; at once if this is it. It must not raise."""
        if threading.get_ident() == self._thread:
            fn(*args)
        elif self._post is not None:
            self._post(lambda: fn(*args))

    def from_thread(self, fn: Callable[..., T], *args: Any, timeout_s: float = 60.0) -> T:
        """From another thread, run `fn(*args)` in the loop's thread and return what it returns (C12).

        Raises:
            WrongThread: this is the loop's thread already.
            TimeoutError: the loop did not get to it, and will not run it any more.
            RuntimeError: the harness is not open.
            TypeError: what came back has to be awaited.
        """
        if threading.get_ident() == self._thread:
            raise WrongThread("this is the loop's thread: call the function itself")
        return through(self._post, fn, args, timeout_s)


def new_session_id() -> str:
    """A session id that sorts by time and is not met twice."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.urandom(3).hex()}"


def _load(path: str | os.PathLike[str] | None, overrides: Mapping[str, Any] | None, workspace: Path) -> LoadedConfig:
    from .config import load_config

    return load_config(None if path is None else Path(path), overrides=overrides, environ=os.environ, cwd=workspace)
