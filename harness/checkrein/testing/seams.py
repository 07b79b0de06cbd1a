"""Ready-made parts with seams in them, for the scenarios of faults.py.

Each wraps something that works: a model, a tool, a store; or is a plugin that implements hooks and does
nothing. Names of seams are `model:open`, `tool:NAME`, `hook:NAME`, `store:append` and so on.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from checkrein.hookspecs import SPECS, hookimpl

from .faults import Seams

if TYPE_CHECKING:
    from checkrein.chunks import Chunk
    from checkrein.messages import Request
    from checkrein.providers import Provider
    from checkrein.store import SessionInfo, Store, StoredLog, Writer
    from checkrein.tools import Tool

__all__ = ["RUN_HOOKS", "SeamModel", "SeamStore", "seam_plugin", "seam_tool"]

_mark: Callable[[Callable[..., Any]], Callable[..., Any]] = hookimpl
RUN_HOOKS = tuple(hook for hook, info in SPECS.items() if info.kind not in ("collect", "lifespan"))


class SeamModel:
    """A provider with a seam before its stream, at its first and each later item, and when it is closed.

    Args:
        inner: the provider that answers, as a ScriptedModel.
        seams: where they are counted.
    """

    def __init__(self, inner: Provider, seams: Seams) -> None:
        self.name = inner.name
        self.inner = inner
        self.seams = seams

    def stream(self, request: Request) -> _SeamStream:
        """Stream the inner provider's answer."""
        self.seams.sync_point("model:stream")
        self.seams.opened += 1
        return _SeamStream(self.inner.stream(request), self.seams)

    def missing(self) -> str | None:
        """What the inner provider says."""
        return self.inner.missing()

    def default_model(self) -> str | None:
        """What the inner provider says."""
        return self.inner.default_model()

    def window_tokens(self, model: str) -> int | None:
        """What the inner provider says."""
        return self.inner.window_tokens(model)


class _SeamStream:
    """A stream that knows whether it was closed, also if it was never started."""

    def __init__(self, inner: AsyncIterator[Chunk], seams: Seams) -> None:
        self._inner = inner
        self._seams = seams
        self._place = "model:open"
        self._closed = False

    def __aiter__(self) -> _SeamStream:
        return self

    async def __anext__(self) -> Chunk:
        if self._closed:
            raise StopAsyncIteration
        place, self._place = self._place, "model:item"
        try:
            await self._seams.point(place)
            return await anext(self._inner)
        except BaseException:
            await self._close()  # as a generator ends when something is raised in it
            raise

    async def aclose(self) -> None:
        """Close the inner stream, behind the seam `model:close`."""
        if not self._closed:
            try:
                await self._seams.point("model:close")
            finally:
                await self._close()

    async def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._seams.closed += 1
            if (close := getattr(self._inner, "aclose", None)) is not None:
                await close()


def seam_tool(fn: Callable[..., Any], seams: Seams, *, name: str | None = None, **options: Any) -> Tool:
    """A tool with a seam before its body (`tool:NAME`) and one behind it (`tool:NAME:end`).

    Args:
        fn: the tool's function, sync or async.
        seams: where they are counted.
        name: the tool's name; the function's if not given.
        options: as for `checkrein.tool`.
    """
    from checkrein.tools import tool

    place = f"tool:{name or fn.__name__}"

    @functools.wraps(fn)
    async def body(*args: Any, **kwargs: Any) -> Any:
        await seams.point(place)
        value = await fn(*args, **kwargs)
        await seams.point(f"{place}:end")
        return value

    @functools.wraps(fn)
    def sync_body(*args: Any, **kwargs: Any) -> Any:
        seams.sync_point(place)
        value = fn(*args, **kwargs)
        seams.sync_point(f"{place}:end")
        return value

    wrapped: Callable[..., Any] = body if inspect.iscoroutinefunction(fn) else sync_body
    decorate: Any = tool(name=name, **options)
    made: Tool = decorate(wrapped)
    return made


def seam_plugin(
    seams: Seams, *, colour: str = "async", hooks: Iterable[str] = RUN_HOOKS, name: str | None = None
) -> object:
    """A plugin with a seam `hook:NAME` in each hook, which changes nothing.

    Args:
        seams: where they are counted.
        colour: `async` or `sync`, where a hook may be either.
        hooks: which hooks; by default all of a run, without those of the start.
        name: the plugin's name; `seam_<colour>` if not given.
    """
    members: dict[str, Any] = {"name": name or f"seam_{colour}"}
    for hook in hooks:
        members[hook] = _mark(_implementation(seams, hook, colour))
    return type("SeamPlugin", (), members)()


def _implementation(seams: Seams, hook: str, colour: str) -> Callable[..., Any]:
    info, place = SPECS[hook], f"hook:{hook}"

    async def asynchronous(self: Any) -> None:
        await seams.point(place)

    def synchronous(self: Any) -> None:
        seams.sync_point(place)

    async def around(self: Any, call: Any, proceed: Any) -> Any:
        await seams.point(place)
        outcome = await proceed(call)
        await seams.point(f"{place}:after")
        return outcome

    @asynccontextmanager
    async def lifespan(self: Any) -> AsyncIterator[None]:
        await seams.point(place)
        yield
        await seams.point(f"{place}:stop")

    if info.kind == "around":
        return around
    if info.kind == "lifespan":
        return lifespan
    return synchronous if info.colour == "sync" or colour == "sync" else asynchronous


class SeamStore:
    """A store with a seam before each of its calls and its writers' calls (`store:NAME`).

    Args:
        inner: the store that keeps the sessions, as a MemoryStore.
        seams: where they are counted.
    """

    def __init__(self, inner: Store, seams: Seams) -> None:
        self.name = inner.name
        self.inner = inner
        self.seams = seams

    def create(self, session_id: str, lines: Sequence[bytes]) -> _SeamWriter:
        """Create a session; see Store."""
        self.seams.sync_point("store:create")
        return _SeamWriter(self.inner.create(session_id, lines), self.seams)

    def open(self, session_id: str) -> tuple[StoredLog, _SeamWriter]:
        """Open a session; see Store."""
        self.seams.sync_point("store:open")
        log, writer = self.inner.open(session_id)
        return log, _SeamWriter(writer, self.seams)

    def read(self, session_id: str, start: int = 0) -> StoredLog:
        """Read a session; see Store."""
        self.seams.sync_point("store:read")
        return self.inner.read(session_id, start)

    def list(self) -> Iterator[SessionInfo]:
        """List the sessions; see Store."""
        self.seams.sync_point("store:list")
        return self.inner.list()

    def locate(self, session_id: str) -> str:
        """Say where a session is; see Store."""
        return self.inner.locate(session_id)

    def put_blob(self, session_id: str, data: bytes) -> str:
        """Keep bytes; see Store."""
        self.seams.sync_point("store:put_blob")
        return self.inner.put_blob(session_id, data)

    def get_blob(self, session_id: str, sha256: str) -> bytes:
        """Return bytes; see Store."""
        self.seams.sync_point("store:get_blob")
        return self.inner.get_blob(session_id, sha256)


class _SeamWriter:
    """A writer with a seam before each call."""

    def __init__(self, inner: Writer, seams: Seams) -> None:
        self._inner = inner
        self._seams = seams

    @property
    def taken(self) -> int:
        return self._inner.taken

    @taken.setter
    def taken(self, count: int) -> None:
        self._inner.taken = count

    def append(self, lines: Sequence[bytes]) -> None:
        self._seams.sync_point("store:append")
        self._inner.append(lines)

    def sync(self) -> None:
        self._seams.sync_point("store:sync")
        self._inner.sync()

    def close(self) -> None:
        try:
            self._seams.sync_point("store:close")
        finally:
            self._inner.close()
