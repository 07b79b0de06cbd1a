"""The oracle of checkrein: what must hold of a session's log, checked independently of the harness.

    from checkrein_invariants import check_events
    assert not check_events(session.events)

Used three ways: the plugin `invariants` watches live agents, the pytest plugin every agent of a
test, and `checkrein check FILE` stored logs.
"""

from .convert import to_anthropic, to_openai_chat, to_openai_responses
from .oracle import Oracle, check_events
from .rules import RULES, Rule, Violation
from .validators import (
    validate_anthropic,
    validate_history,
    validate_messages,
    validate_openai_chat,
    validate_openai_responses,
)

__all__ = [
    "Oracle",
    "check_events",
    "RULES",
    "Rule",
    "Violation",
    "to_anthropic",
    "to_openai_chat",
    "to_openai_responses",
    "validate_anthropic",
    "validate_history",
    "validate_messages",
    "validate_openai_chat",
    "validate_openai_responses",
]
