"""The oracle of checkrein: what must hold of a session's log, checked independently of the harness.

    from checkrein_invariants import check_events
    assert not check_events(session.events)

Used three ways: the plugin `invariants` watches live agents, the pytest plugin every agent of a
test, and `checkrein check FILE` stored logs. Names are imported on first use, so that the pytest
plugin costs a test run without checkrein nothing (P3).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .builder import LogBuilder
    from .convert import to_anthropic, to_openai_chat, to_openai_responses
    from .oracle import Oracle, check_events
    from .plugin import Plugin
    from .rules import RULES, Rule, Violation
    from .validators import validate_history, validate_messages
    from .watch import Watch
    from .wires import validate_anthropic, validate_openai_chat, validate_openai_responses

__all__ = [
    "LogBuilder",
    "Oracle",
    "Plugin",
    "RULES",
    "Rule",
    "Violation",
    "Watch",
    "check_events",
    "to_anthropic",
    "to_openai_chat",
    "to_openai_responses",
    "validate_anthropic",
    "validate_history",
    "validate_messages",
    "validate_openai_chat",
    "validate_openai_responses",
]

_MODULES = {
    "LogBuilder": "builder",
    "Oracle": "oracle",
    "Plugin": "plugin",
    "RULES": "rules",
    "Rule": "rules",
    "Violation": "rules",
    "Watch": "watch",
    "check_events": "oracle",
    "to_anthropic": "convert",
    "to_openai_chat": "convert",
    "to_openai_responses": "convert",
    "validate_anthropic": "wires",
    "validate_history": "validators",
    "validate_messages": "validators",
    "validate_openai_chat": "wires",
    "validate_openai_responses": "wires",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{module}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
