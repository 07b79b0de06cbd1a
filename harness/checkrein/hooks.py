"""The dispatcher: calls the plugins' hooks as their kind says, and contains what they do (H1-H5, H7).

pluggy decides registration, validation, order and blocking; this module calls. One chain per hook is
compiled when plugins come and go; inside a call the running chain is a snapshot; a hook nobody
implements is `None` in `chains` and costs an attribute look-up.

    fold       each implementation receives the running value           agent_request, step_result
    around     a chain of `proceed` (around.py)                          tools_execute
    vote       Deny > Ask > Allow > None, Stop > Continue > None          tools_guard, turn_continuation
    first      the first answer wins                                      request_error
    observe    all are called, each contained                             session_event, agent_status, ...
    gather     all are called and awaited, then the first failure counts  session_flush
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isawaitable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from .chains import Chain, Impl
from .errors import GateClosed, PluginFault
from .faults import Faults
from .hookcheck import taken_by
from .hookspecs import SPECS
from .owner import absorb, ours, within
from .wrapping import Wraps, wrapped

if TYPE_CHECKING:
    from .events import AnyEvent
    from .plugins import PluginManager
    from .session import Session
    from .wrapping import OnFault

__all__ = ["Hooks", "Impl", "Chain"]


class Hooks:
    """The compiled hooks of one harness.

    Args:
        plugins: where implementations come from.
        deadlines: seconds by hook name, instead of those in SPECS.

    Attributes:
        faults: records what plugins do wrong.
        one attribute per hook: its Chain, or None when nobody implements it.
        own: the same for the hooks that plugins specified (checkrein.ownhooks calls them).
    """

    agent_request: Chain | None
    stream_chunk: Chain | None
    request_error: Chain | None
    step_result: Chain | None
    tools_execute: Chain | None
    tools_guard: Chain | None
    turn_continuation: Chain | None
    session_event: Chain | None
    session_flush: Chain | None
    agent_status: Chain | None
    plugin_fault: Chain | None
    agent_created: Chain | None
    agent_disposed: Chain | None

    def __init__(self, plugins: PluginManager | None = None, deadlines: dict[str, float] | None = None) -> None:
        self._plugins = plugins
        self._deadlines = deadlines or {}
        self._impls: dict[tuple[str, str, int], Impl] = {}
        self.own: dict[str, Chain | None] = {}
        self.faults = Faults(self)
        self.rebuild()

    def rebuild(self, *_: object) -> None:
        """Compile every chain anew; calls that run keep theirs (H2)."""
        specs = SPECS if self._plugins is None else self._plugins.specs
        self.own = {}
        for hook, info in specs.items():
            chain = None
            if self._plugins is not None and (hook not in SPECS or info.kind not in ("collect", "lifespan")):
                names = self._plugins.arguments(hook)
                impls = [self._impl(hook, info.kind, each, names) for each in self._plugins.impls(hook)]
                wrappers = [self._impl(hook, info.kind, each, names) for each in self._plugins.wrappers(hook)]
                impls = [impl for impl in impls if not impl.off]
                wrappers = [impl for impl in wrappers if not impl.off]
                if impls or wrappers:
                    chain = Chain(impls, wrappers, self._deadlines.get(hook, info.deadline_s))
            if hook in SPECS:
                setattr(self, hook, chain)
            else:
                self.own[hook] = chain

    def _impl(self, hook: str, kind: str, each: Any, names: tuple[str, ...]) -> Impl:
        key = (each.plugin_name, hook, id(each.function))
        known = self._impls.get(key)
        if known is None:
            known = Impl(each.plugin_name, hook, kind, each.function, taken_by(each), names)
            self._impls[key] = known
        return known

    def forget(self, plugin: str) -> None:
        """Drop a plugin's accounts and chains: it was unregistered (H4)."""
        self._impls = {key: impl for key, impl in self._impls.items() if key[0] != plugin}
        self.rebuild()

    def kind_of(self, hook: str) -> str | None:
        """The kind of a hook, ours or a plugin's; None if nobody specifies it."""
        specs = SPECS if self._plugins is None else self._plugins.specs
        return specs[hook].kind if hook in specs else None

    def attach(self, plugins: PluginManager) -> None:
        """Compile the hooks of these plugins."""
        self._plugins = plugins
        self.rebuild()

    def observer_fault(self, session: Session, plugin: str | None, exc: BaseException, event: AnyEvent | None) -> None:
        """What a session calls when an observer outside the plugins, or a deferred append, failed."""
        self.faults.write(plugin or "observer", "session_event", exc, session, "contained")

    def accounts(self) -> list[Impl]:
        """Every implementation with its account of calls, time, changes and faults (H7)."""
        return list(self._impls.values())

    # --- fold -------------------------------------------------------------------------------------

    async def fold(
        self, chain: Chain, session: Session, args: tuple[Any, ...], value: Any, valid: Callable[[Any, Any], None]
    ) -> Any:
        """Hand `value` through the chain; None leaves it as it is. `valid(new, value)` raises for what must not count.

        Returns:
            The last value, and the plugins that changed it.

        Raises:
            PluginFault: an implementation raised, passed its deadline, or returned what is not valid.
        """
        changed: list[str] = []

        async def core() -> Any:
            current = value
            for impl in chain.impls:
                try:
                    out = await self.value(impl, chain.deadline_s, (*args, current), session)
                    if out is None or out is current:
                        continue
                    valid(out, value)
                except BaseException as exc:
                    raise self.classified(impl, exc, session) from exc
                impl.changes += 1
                changed.append(impl.plugin)
                current = out
            return current

        if not chain.wrappers:
            return await core(), changed
        wraps = Wraps(self._blamed(session, "turn_ended"), lambda out: valid(out, value))
        result = await wrapped(wraps, chain, (*args, value), core)
        return result, changed + wraps.changed

    # --- vote -------------------------------------------------------------------------------------

    async def vote(
        self,
        chain: Chain,
        session: Session,
        args: tuple[Any, ...],
        ranking: tuple[type, ...],
        valid: Callable[[Any], None],
        action: str = "turn_ended",
    ) -> tuple[Any, str | None]:
        """Ask everybody; the highest ranking vote wins, and the first of its rank.

        Args:
            ranking: vote types, the strongest first; the strongest ends the asking.
            valid: raises for a vote that must not count.

        Returns:
            The vote and its plugin, or (None, None).

        Raises:
            PluginFault: a voter raised, passed its deadline, or voted with another type.
        """
        author: str | None = None

        async def core() -> Any:
            nonlocal author
            best: Any = None
            rank = len(ranking)
            for impl in chain.impls:
                try:
                    out = await self.value(impl, chain.deadline_s, args, session)
                    if out is not None:
                        if type(out) not in ranking:
                            words = ", ".join(t.__name__ for t in ranking)
                            raise TypeError(f"expected {words} or None, got {type(out).__name__}")
                        valid(out)
                except BaseException as exc:
                    raise self.classified(impl, exc, session, action) from exc
                if out is None:
                    continue
                impl.changes += 1
                if ranking.index(type(out)) < rank:
                    rank, best, author = ranking.index(type(out)), out, impl.plugin
                    if rank == 0:
                        break
            return best

        if not chain.wrappers:
            return await core(), author

        def valid_vote(vote: Any) -> None:
            if not isinstance(vote, ranking):
                raise TypeError(f"a wrapper returned {type(vote).__name__}")
            valid(vote)

        wraps = Wraps(self._blamed(session, action), valid_vote)
        result = await wrapped(wraps, chain, args, core)
        return result, wraps.changed[-1] if wraps.changed else author

    # --- first ------------------------------------------------------------------------------------

    async def first(
        self, chain: Chain, session: Session, args: tuple[Any, ...], valid: Callable[[Any], None]
    ) -> tuple[Any, str | None]:
        """Return the first answer that is not None, and its plugin; faults are contained, and count as None.

        Args:
            valid: raises for an answer that must not count.
        """
        author: str | None = None

        async def core() -> Any:
            nonlocal author
            answer, author = await self._first(chain, session, args, valid)
            return answer

        if not chain.wrappers:
            return await core(), author
        wraps = Wraps(self.contain(session), valid)
        result = await wrapped(wraps, chain, args, core)
        return result, wraps.changed[-1] if wraps.changed else author

    async def _first(
        self, chain: Chain, session: Session, args: tuple[Any, ...], valid: Callable[[Any], None]
    ) -> tuple[Any, str | None]:
        for impl in chain.impls:
            try:
                out = await self.value(impl, chain.deadline_s, args, session)
                if out is not None:
                    valid(out)
            except BaseException as exc:
                if ours(exc) or isinstance(exc, KeyboardInterrupt):
                    raise
                absorb()
                self.faults.record(impl, exc, session, "contained")
                continue
            if out is not None:
                return out, impl.plugin
        return None, None

    # --- observe ----------------------------------------------------------------------------------

    def observe(self, chain: Chain, session: Session | None, args: tuple[Any, ...], author: str | None = None) -> None:
        """Call every observer, each contained; a KeyboardInterrupt is held until all were called (L4).

        Args:
            author: the plugin whose own fault this is about; it is not told (H2).
        """
        held: BaseException | None = None
        wraps = None
        if chain.wrappers:
            wraps = Wraps(self.contain(session), _ignored)
            wraps.enter(chain, args)
        for impl in chain.impls:
            if impl.plugin == author or impl.off:
                continue
            if session is not None:
                session.author = impl.plugin
            began = perf_counter()
            try:
                impl.call(*args)
            except KeyboardInterrupt as exc:
                held = exc
            except BaseException as exc:
                self.faults.record(impl, exc, session, "contained")
            impl.calls += 1
            impl.time_s += perf_counter() - began
        if session is not None:
            session.author = None
        if wraps is not None:
            wraps.leave(None)
            held = held or wraps.error
        if held is not None:
            raise held

    async def observe_async(self, chain: Chain, session: Session | None, args: tuple[Any, ...]) -> None:
        """Call and await every observer, each contained."""
        if chain.wrappers:
            unwrapped = Chain(chain.impls, [], chain.deadline_s)
            wraps = Wraps(self.contain(session), _ignored)
            await wrapped(wraps, chain, args, lambda: self.observe_async(unwrapped, session, args))
            return
        for impl in chain.impls:
            if impl.off:
                continue
            try:
                await self.value(impl, chain.deadline_s, args, session)
            except BaseException as exc:
                if ours(exc) or isinstance(exc, KeyboardInterrupt):
                    raise
                absorb()
                self.faults.record(impl, exc, session, "contained")

    # --- gather -----------------------------------------------------------------------------------

    async def gather(self, chain: Chain, session: Session, gate: str, contained: bool) -> bool:
        """Flush: call everybody, await what is to be awaited, then let the first failure count.

        Returns:
            Whether nobody failed.

        Raises:
            GateClosed: somebody did; not at turn end, where failures are contained (T9).
        """
        failed: tuple[Impl, BaseException] | None = None
        if chain.wrappers:
            unwrapped = Chain(chain.impls, [], chain.deadline_s)
            wraps = Wraps(self._closing(session, gate, contained), _ignored)
            args = (session, gate)
            done = await wrapped(wraps, chain, args, lambda: self.gather(unwrapped, *args, contained))
            return not contained or done is True  # a gate that is closed raises
        for impl in chain.impls:
            try:
                await self.value(impl, chain.deadline_s, (session, gate), session)
            except BaseException as exc:
                if ours(exc) or isinstance(exc, KeyboardInterrupt):
                    raise
                absorb()
                self.faults.record(impl, exc, session, "contained" if contained else "refused")
                failed = failed or (impl, exc)
        if failed is not None and not contained:
            raise GateClosed(gate, f"plugin {failed[0].plugin!r}: {failed[1]!r}") from failed[1]
        return failed is None

    # --- shared -----------------------------------------------------------------------------------

    async def value(self, impl: Impl, deadline_s: float | None, args: tuple[Any, ...], session: Session | None) -> Any:
        """Call one implementation and await what it returns, within its deadline."""
        impl.calls += 1
        if session is not None:
            session.author = impl.plugin
        began = perf_counter()
        try:
            out = impl.call(*args)
            if impl.is_async or (out is not None and isawaitable(out)):
                return await within(out, deadline_s)
            return out
        finally:
            impl.time_s += perf_counter() - began
            if session is not None:
                session.author = None

    def classified(self, impl: Impl, exc: BaseException, session: Session, action: str = "turn_ended") -> BaseException:
        """Classify what an implementation raised: ours and KeyboardInterrupt pass, all else is its fault."""
        if ours(exc) or isinstance(exc, (KeyboardInterrupt, PluginFault)):
            return exc
        absorb()
        return self.faults.record(impl, exc, session, action)

    # --- wrappers: whose fault it is, by the policy of the hook ---------------------------------------

    def _blamed(self, session: Session, action: str) -> OnFault:
        return lambda impl, exc: self.classified(impl, exc, session, action)

    def contain(self, session: Session | None) -> OnFault:
        """What records a wrapper's failure where failures are contained."""

        def contain(impl: Impl, exc: BaseException) -> BaseException | None:
            if isinstance(exc, KeyboardInterrupt):
                return exc
            self.faults.record(impl, exc, session, "contained")
            return None

        return contain

    def _closing(self, session: Session, gate: str, contained: bool) -> OnFault:
        if contained:
            return self.contain(session)

        def close(impl: Impl, exc: BaseException) -> BaseException:
            if isinstance(exc, KeyboardInterrupt):
                return exc
            self.faults.record(impl, exc, session, "refused")
            return GateClosed(gate, f"plugin {impl.plugin!r}: {exc!r}")

        return close


def _ignored(value: Any) -> None:
    """An observer's value is nobody's."""
