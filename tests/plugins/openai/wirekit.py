"""What the tests of the wire's body share: messages in short, and the body they become."""

from __future__ import annotations

import json

from msgspec.structs import replace

from checkrein.messages import AssistantMessage, CallBlock, Message, Request, TextBlock, ToolMessage, UserMessage
from checkrein_openai.quirks import DEFAULTS, QuirkChanges, Quirks
from checkrein_openai.request import build


def user(*texts: str) -> UserMessage:
    return UserMessage([TextBlock(text) for text in texts])


def answer(*blocks, provider="openai", model="m", metadata=None) -> AssistantMessage:
    return AssistantMessage(list(blocks), provider, model, metadata)


def call(call_id: str, name: str = "f", arguments: str = "{}", metadata: str | None = None) -> CallBlock:
    return CallBlock(call_id, name, arguments, metadata)


def result(call_id: str, theirs: str | None = None, *blocks) -> ToolMessage:
    return ToolMessage(call_id, "f", list(blocks) or [TextBlock("ok")], False, theirs)


def body(*messages: Message, quirks: QuirkChanges | Quirks | None = None, more=None, **request) -> dict:
    made = Request("m", list(messages), provider="openai", **request)
    return json.loads(
        build(made, replace(DEFAULTS, **quirks) if isinstance(quirks, dict) else quirks or DEFAULTS, more).body
    )


def wire(*messages: Message, quirks: QuirkChanges | Quirks | None = None) -> list[dict]:
    return body(*messages, quirks=quirks)["messages"]


def ids(messages: list[dict]) -> tuple[list[str], list[str]]:
    asked = [entry["id"] for message in messages for entry in message.get("tool_calls", ())]
    return asked, [message["tool_call_id"] for message in messages if message["role"] == "tool"]
