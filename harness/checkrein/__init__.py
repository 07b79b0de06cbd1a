"""checkrein: an event-sourced agent harness in which every turn is balanced, and an oracle proves it.

    async with Agent("demo", tools=[weather]) as agent:
        result = await agent.run("Weather in Paris?")

Names are imported on first use: `import checkrein` is start-up budget.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .agents import AgentLike, AgentSpec, Approval, Approver, PendingInput, Receipt, TurnView
    from .calls import Call, Outcome
    from .decisions import Allow, Ask, Continue, Deny, Retry, Stop
    from .embed import Agent
    from .errors import (
        AgentDisposed,
        AlreadyBegun,
        CheckreinError,
        ConfigError,
        CredentialsError,
        GateClosed,
        InboxFull,
        InvariantViolation,
        PluginError,
        ProviderError,
        ToolError,
        TurnFailed,
        WouldDeadlock,
        WrongThread,
    )
    from .events import Cause, Reason
    from .eventtypes import Balance, EventType
    from .feed import Feed, FeedItem
    from .harness import Harness
    from .hookspecs import hookimpl
    from .live import StepReset, TextDelta, ThinkingDelta, ToolCall, ToolProgress, ToolResult, TurnEnd, TurnStream
    from .messages import MediaBlock, Request, Source, TextBlock, Usage
    from .prompt import Section
    from .providers import Provider
    from .results import TurnResult
    from .session import Session
    from .sse import to_sse
    from .tools import Tool, ToolContext, tool
    from .usage import UsageTracker

_HOME = {
    ".agents": ("AgentLike", "AgentSpec", "Approval", "Approver", "PendingInput", "Receipt", "TurnView"),
    ".calls": ("Call", "Outcome"),
    ".decisions": ("Allow", "Ask", "Continue", "Deny", "Retry", "Stop"),
    ".embed": ("Agent",),
    ".errors": (
        "AgentDisposed",
        "AlreadyBegun",
        "CheckreinError",
        "ConfigError",
        "CredentialsError",
        "GateClosed",
        "InboxFull",
        "InvariantViolation",
        "PluginError",
        "ProviderError",
        "ToolError",
        "TurnFailed",
        "WouldDeadlock",
        "WrongThread",
    ),
    ".events": ("Cause", "Reason"),
    ".eventtypes": ("Balance", "EventType"),
    ".feed": ("Feed", "FeedItem"),
    ".harness": ("Harness",),
    ".hookspecs": ("hookimpl",),
    ".live": (
        "StepReset",
        "TextDelta",
        "ThinkingDelta",
        "ToolCall",
        "ToolProgress",
        "ToolResult",
        "TurnEnd",
        "TurnStream",
    ),
    ".messages": ("MediaBlock", "Request", "Source", "TextBlock", "Usage"),
    ".prompt": ("Section",),
    ".providers": ("Provider",),
    ".results": ("TurnResult",),
    ".session": ("Session",),
    ".sse": ("to_sse",),
    ".tools": ("Tool", "ToolContext", "tool"),
    ".usage": ("UsageTracker",),
}
_MODULES = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "Agent",
    "AgentDisposed",
    "AgentLike",
    "AgentSpec",
    "Allow",
    "AlreadyBegun",
    "Approval",
    "Approver",
    "Ask",
    "Balance",
    "Call",
    "Cause",
    "CheckreinError",
    "ConfigError",
    "Continue",
    "CredentialsError",
    "Deny",
    "EventType",
    "Feed",
    "FeedItem",
    "GateClosed",
    "Harness",
    "InboxFull",
    "InvariantViolation",
    "MediaBlock",
    "Outcome",
    "PendingInput",
    "PluginError",
    "Provider",
    "ProviderError",
    "Reason",
    "Receipt",
    "Request",
    "Retry",
    "Section",
    "Session",
    "Source",
    "StepReset",
    "Stop",
    "TextBlock",
    "TextDelta",
    "ThinkingDelta",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "ToolProgress",
    "ToolResult",
    "TurnEnd",
    "TurnFailed",
    "TurnResult",
    "TurnStream",
    "TurnView",
    "Usage",
    "UsageTracker",
    "WouldDeadlock",
    "WrongThread",
    "__version__",
    "hookimpl",
    "to_sse",
    "tool",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'checkrein' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(module, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
