"""The errors of checkrein, one tree.

    CheckreinError
    ├── ConfigError             a configuration that cannot work (exit 3)
    │   └── PluginError         a plugin that cannot load, or breaks its contract
    ├── CredentialsError        no usable provider (exit 4)
    ├── RefusedAtAppend         an event that may not enter the log
    │   ├── InvariantViolation  it breaks a structural rule (oracle rule in `.rule`)
    │   └── NotPlainJSON        it holds something JSON cannot carry (`.path`)
    ├── PluginFault             a plugin failed where its failure policy ends the turn
    ├── AlreadyBegun            `proceed` was called again for a call that may have run
    ├── ProviderError           a model request failed (`.kind`, `.code`, `.retryable`)
    ├── ToolError               raised by a tool to choose its error's code
    │   └── InvalidArguments    the model's arguments do not fit the tool
    ├── StoreError              the store refused
    │   ├── SessionNotFound
    │   └── SessionLocked       another process writes this session
    ├── GateClosed              a flush failed: what depends on it is not done
    ├── AgentError              the caller's use of an agent
    │   ├── AgentDisposed
    │   ├── InboxFull
    │   ├── UnknownInput        no pending input has this id
    │   ├── WouldDeadlock       awaited from inside the agent's own turn
    │   └── WrongThread         use harness.from_thread
    └── TurnFailed              raised by `TurnResult.check()` (`.result`)

Every message says what was expected, what came, where, and what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .results import TurnResult

__all__ = [
    "CheckreinError",
    "ConfigError",
    "PluginError",
    "CredentialsError",
    "RefusedAtAppend",
    "InvariantViolation",
    "NotPlainJSON",
    "PluginFault",
    "AlreadyBegun",
    "ProviderError",
    "ToolError",
    "InvalidArguments",
    "StoreError",
    "SessionNotFound",
    "SessionLocked",
    "GateClosed",
    "AgentError",
    "AgentDisposed",
    "InboxFull",
    "UnknownInput",
    "WouldDeadlock",
    "WrongThread",
    "TurnFailed",
]


class CheckreinError(Exception):
    """Base of every error this package raises on purpose."""


class ConfigError(CheckreinError):
    """A configuration that cannot work; nothing was started.

    Args:
        message: expected, got and what to do.
        file: the file it stands in, if any.
        path: the place in the file, as `agents[0].id`.
    """

    def __init__(self, message: str, *, file: str | None = None, path: str | None = None) -> None:
        where = " in ".join(part for part in (f"at {path}" if path else "", file or "") if part)
        super().__init__(f"{message} ({where})" if where else message)
        self.file = file
        self.path = path


class PluginError(ConfigError):
    """A plugin that cannot be loaded, or whose hooks do not fit their specifications.

    Args:
        message: expected, got and what to do.
        plugin: the plugin's name.
    """

    def __init__(self, message: str, *, plugin: str, file: str | None = None, path: str | None = None) -> None:
        super().__init__(f"plugin {plugin!r}: {message}", file=file, path=path)
        self.plugin = plugin


class CredentialsError(CheckreinError):
    """No provider is usable: a key is missing."""


class RefusedAtAppend(CheckreinError):
    """An event that may not enter the log; the log is unchanged."""


class InvariantViolation(RefusedAtAppend):
    """An event that would break a structural rule of the log (L3).

    Args:
        rule: the oracle rule, as `O7`.
        message: what is wrong with which event.
    """

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"{rule}: {message}")
        self.rule = rule


class NotPlainJSON(RefusedAtAppend):
    """An event holds something JSON cannot carry without loss (L2).

    Args:
        path: where in the event, as `$.fields.when`.
        got: the type that was found there.
    """

    def __init__(self, path: str, got: str) -> None:
        super().__init__(
            f"expected null, bool, int, finite float, str, list or object with str keys, got {got} at {path}"
        )
        self.path = path


class PluginFault(CheckreinError):
    """A plugin failed in a hook whose failure policy ends the turn; chained to the plugin's own exception.

    Args:
        plugin: the plugin's name.
        hook: the hook it failed in.
        message: what it raised.
    """

    def __init__(self, plugin: str, hook: str, message: str) -> None:
        super().__init__(f"plugin {plugin!r} failed in {hook}: {message}")
        self.plugin = plugin
        self.hook = hook


class AlreadyBegun(CheckreinError):
    """`proceed` was called again for an effectful call that has begun: it may have run (X6)."""


class ProviderError(CheckreinError):
    """A model request failed.

    Args:
        message: what the provider said, or what happened to the connection.
        kind: `generate` before the stream began, `stream` during it, `timeout`, or `refused`.
        code: a stable word for programs, as `RATE_LIMIT`; see docs/providers.md.
        retryable: whether the same request may succeed later.
        status: the HTTP status, if any.
        retry_after_s: what the provider asked to wait, in seconds.
        request_id: the provider's id of the request.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str = "generate",
        code: str | None = None,
        retryable: bool = False,
        status: int | None = None,
        retry_after_s: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.code = code
        self.retryable = retryable
        self.status = status
        self.retry_after_s = retry_after_s
        self.request_id = request_id


class ToolError(CheckreinError):
    """Raised by a tool to give its error result a code of its own.

    Args:
        message: what the model reads.
        code: a stable word, `TOOL_ERROR` if not given.
    """

    def __init__(self, message: str, *, code: str = "TOOL_ERROR") -> None:
        super().__init__(message)
        self.code = code


class InvalidArguments(ToolError):
    """The model's arguments are not one JSON object that fits the tool (M8)."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="INVALID_ARGUMENTS")


class StoreError(CheckreinError):
    """A store refused or failed."""


class SessionNotFound(StoreError):
    """No session has this id."""


class SessionLocked(StoreError):
    """Another process writes this session (R3)."""


_NOT_TAKEN = "the store did not take"


class GateClosed(StoreError):
    """A flush failed or passed its deadline: what depends on it is not done (R4).

    Args:
        gate: which flush point, as `request`.
        message: what failed.
    """

    def __init__(self, gate: str, message: str) -> None:
        super().__init__(f"{_NOT_TAKEN} the events before {gate}: {message}")
        self.gate = gate

    @staticmethod
    def said(reason: str) -> bool:
        """Whether the reason of a discarded input is what this error said."""
        return reason.startswith(_NOT_TAKEN)


class AgentError(CheckreinError):
    """An agent was used in a way it cannot serve."""


class AgentDisposed(AgentError):
    """The agent is disposed; it takes no more input (I1)."""


class InboxFull(AgentError):
    """The inbox holds `inbox_max` pending inputs; it refuses, it never drops (I7)."""


class UnknownInput(AgentError):
    """No pending input has this id."""


class WouldDeadlock(AgentError):
    """A waiting call was made from inside the same agent's turn (C12)."""


class WrongThread(AgentError):
    """An object was used from a thread that is not its loop's (C12)."""


class TurnFailed(CheckreinError):
    """A turn did not complete, and the caller asked `check()`.

    Args:
        result: the turn's result, with its reason.
    """

    def __init__(self, result: TurnResult) -> None:
        reason = result.reason
        detail = reason.message or reason.cause_text
        super().__init__(f"turn {result.turn} ended {reason.kind}{f': {detail}' if detail else ''}")
        self.result = result
