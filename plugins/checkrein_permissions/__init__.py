"""checkrein's permissions: which tool calls run, which a person is asked for, which are refused."""

from __future__ import annotations

from .plugin import Plugin
from .rules import Rule, parse_rule

__all__ = ["Plugin", "Rule", "parse_rule"]
