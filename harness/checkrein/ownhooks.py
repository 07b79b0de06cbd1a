"""Calling the hooks that plugins specify themselves, through the same dispatcher as ours (H1, H3).

    class Plugin:
        hookspecs = Specs                                        # its methods carry @hookspec
        hook_infos = {"acme_review": HookInfo("first", "contained", 10.0)}

    answer = await call(harness.hooks, "acme_review", agent.session, agent, text)

A contract not named in `hook_infos` is an observer's: contained, 10 s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import ConfigError
from .nearest import did_you_mean
from .owner import absorb, ours
from .wrapping import Wraps, wrapped

if TYPE_CHECKING:
    from .hooks import Chain, Hooks
    from .session import Session

__all__ = ["KINDS", "call"]

KINDS = ("observe", "first", "fold", "collect")


async def call(hooks: Hooks, hook: str, session: Session, *args: Any) -> Any:
    """Call a hook of a plugin's own, as its kind says.

    Args:
        hooks: the harness's.
        hook: a hook that a loaded plugin specifies.
        session: the log that faults are recorded in.
        args: all the hook's arguments, in order; for a fold the last one is the value.

    Returns:
        fold: the last value; first: the first answer or None; collect: the answers that are not None, in order;
        observe: None.

    Raises:
        ConfigError: nobody specifies this hook, or its kind cannot be called from here.
        PluginFault: an implementation of a fold failed; in the other kinds faults are contained.
    """
    kind = hooks.kind_of(hook)
    if hook not in hooks.own or kind not in KINDS:
        known = ", ".join(hooks.own) or "(none)"
        raise ConfigError(
            f"expected a hook that a plugin specifies ({known}) of a kind among {', '.join(KINDS)},"
            f" got {hook!r} of kind {kind}{did_you_mean(hook, hooks.own)}"
        )
    chain = hooks.own[hook]
    if chain is None:
        return {"fold": args[-1] if args else None, "collect": []}.get(kind)
    if kind == "fold":
        return (await hooks.fold(chain, session, args[:-1], args[-1], _any_answer))[0]
    if kind == "first":
        return (await hooks.first(chain, session, args, _any_answer))[0]
    if kind == "collect":
        return await _collect(hooks, chain, session, args)
    return await hooks.observe_async(chain, session, args)


async def _collect(hooks: Hooks, chain: Chain, session: Session, args: tuple[Any, ...]) -> list[Any]:
    async def core() -> list[Any]:
        answers: list[Any] = []
        for impl in chain.impls:
            try:
                answers.append(await hooks.value(impl, chain.deadline_s, args, session))
            except BaseException as exc:
                if ours(exc) or isinstance(exc, KeyboardInterrupt):
                    raise
                absorb()
                hooks.faults.record(impl, exc, session, "contained")
        return [answer for answer in answers if answer is not None]

    if not chain.wrappers:
        return await core()
    found: list[Any] = await wrapped(Wraps(hooks.contain(session), _is_list), chain, args, core)
    return found


def _any_answer(*values: Any) -> None:
    """What is asked for is between two plugins."""


def _is_list(value: Any) -> None:
    if not isinstance(value, list):
        raise TypeError(f"expected a list of answers, got {type(value).__name__}")
