"""What the hooks of a run cost: kept beside its session when the run ends, for `checkrein plugins --hooks`.

Best effort both ways: what cannot be kept disturbs no run, and of what cannot be read a line says why.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct

from checkrein import __version__
from checkrein.store import Accounting

if TYPE_CHECKING:
    from checkrein.harness import Harness
    from checkrein.store import Store

__all__ = ["Account", "Run", "keep_run", "last_run"]

MOST_BYTES = 1 << 20
REPLACED = "it is left aside until the next run replaces it"

Count = Annotated[int, Meta(ge=0, le=1 << 53)]
Seconds = Annotated[float, Meta(ge=0, le=1e12)]


class Account(Struct, frozen=True):
    """What the dispatcher counted of one implementation (H7), as `checkrein.hooks.Impl` has it.

    Attributes:
        plugin: the plugin's name.
        hook: the hook's name.
        function: its function's name.
        calls: how often it was called.
        time_s: seconds spent in it.
        changes: how often it changed something.
        faults: how often it failed.
    """

    plugin: str
    hook: str
    function: str
    calls: Count
    time_s: Seconds
    changes: Count
    faults: Count


class Run(Struct, frozen=True):
    """The accounts of one run.

    Attributes:
        version: of the checkrein that ran.
        session: whose run it was.
        time: when it ended, in milliseconds since 1970.
        accounts: one an implementation.
    """

    version: str
    session: str
    time: Count
    accounts: list[Account]


def keep_run(harness: Harness, session_id: str) -> None:
    """Keep what the hooks of a harness cost, if its store keeps that and can.

    Args:
        harness: closed, so that nothing is counted any more.
        session_id: the session it ran.
    """
    store = harness.store
    if not isinstance(store, Accounting):
        return
    try:
        accounts = msgspec.convert(harness.hooks.accounts(), list[Account], from_attributes=True)
        data = msgspec.json.encode(Run(__version__, session_id, time.time_ns() // 1_000_000, accounts))
        if len(data) <= MOST_BYTES:
            store.put_accounts(data)
    except Exception:  # whatever a store raises: the run is over, and this is no part of how it went
        pass


def last_run(store: Store) -> tuple[Run | None, str]:
    """Return the last run that left accounts in a store.

    Args:
        store: where to look.

    Returns:
        The run and the line that says which it is; or None, and the line that says why.
    """
    from .show import brief, clock

    if not isinstance(store, Accounting):
        return None, f"no times and faults: the store {store.name!r} keeps none"
    try:
        data = store.accounts(MOST_BYTES + 1)
        if data is None:
            return None, "nothing has run here yet: no times and faults"
        if len(data) > MOST_BYTES:
            raise ValueError(f"expected at most {MOST_BYTES} bytes, got more")
        run = msgspec.json.decode(data, type=Run)
    except (OSError, ValueError, RecursionError) as error:
        return None, f"no times and faults: what the last run left is damaged ({brief(str(error))}); {REPLACED}"
    if run.version != __version__:
        words = f"what the last run left is of checkrein {brief(run.version)}, this is {__version__}"
        return None, f"no times and faults: {words}; {REPLACED}"
    return run, f"times and faults of the last run: session {brief(run.session)}, until {clock(run.time)}"
