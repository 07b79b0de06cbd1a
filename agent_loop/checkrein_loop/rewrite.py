"""`step_result`: what plugins make of an answer before it is logged and acted on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from checkrein.messages import AssistantMessage, CallBlock, Content, content_text
from checkrein.text import clean_json

from .generate import keep_partial

if TYPE_CHECKING:
    from checkrein.hooks import Chain

    from .agent import LoopAgent
    from .generate import Generated

__all__ = ["rewritten"]


async def rewritten(
    agent: LoopAgent, chain: Chain, turn: int, step: int, generated: Generated
) -> tuple[Content, dict[str, Any] | None]:
    """Run the fold; when it fails, the answer that was paid for is kept as `assistant/partial` (H1).

    Returns:
        The answer's content as it is logged, and what the model had said if plugins replaced it.
    """
    message = generated.message
    try:
        out, plugins = await agent.hooks.fold(chain, agent.session, (agent, turn, step), message, _valid_answer)
    except BaseException:
        keep_partial(agent, turn, step, (content_text(message.content), generated.cleaned or 0))
        raise
    if out is message or out == message:
        return message.content, None
    original = msgspec.to_builtins(message.content)
    content = msgspec.convert(clean_json(msgspec.to_builtins(out.content))[0], Content)
    return numbered(content, message, turn, step), {"plugins": plugins, "content": original}


def _valid_answer(message: Any, original: AssistantMessage) -> None:
    if not isinstance(message, AssistantMessage):
        raise TypeError(f"expected AssistantMessage or None, got {type(message).__name__}")
    msgspec.convert(msgspec.to_builtins(message.content), Content)


def numbered(content: Content, original: AssistantMessage, turn: int, step: int) -> Content:
    """Give each call a plugin made an id of ours; the model's own calls keep theirs, once each (M7)."""
    known = {call.call_id for call in original.calls}
    n = len(known)
    used: set[str] = set()
    out: Content = []
    for block in content:
        if type(block) is CallBlock:
            call_id = block.call_id
            if call_id not in known or call_id in used:
                n += 1
                call_id = f"c{turn}.{step}.{n}"
            used.add(call_id)
            block = CallBlock(call_id, block.name, block.arguments, block.provider_metadata)
        out.append(block)
    return out
