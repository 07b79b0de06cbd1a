"""Where compatible endpoints differ from each other: one table, by host and model (M11, docs/providers.md).

A row is data; request.py and decode.py read the resolved quirks and know no host. The config's
`quirks` table overrides single keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, get_type_hints

from msgspec import Struct
from msgspec.structs import replace

__all__ = ["Quirks", "QuirkChanges", "DEFAULTS", "TABLE", "quirks_for", "window_tokens"]


class Quirks(Struct, frozen=True, kw_only=True):
    """What a server wants or leaves out.

    Attributes:
        system_role: the role of the system prompt.
        max_tokens_field: the body's name for the setting `max_tokens`.
        stream_usage: whether `stream_options.include_usage` may be sent.
        parallel_calls: whether `parallel_tool_calls` may be sent.
        output_schema: how `output_schema` is sent: as a schema, as JSON mode and in words, or in words only.
        reasoning: what of former thinking goes back: `received` (in the field it came in), `always` (that,
            and an empty `reasoning_content` on answers without any), or `drop`.
        call_ids: `any` visible ASCII, or `alnum9`: exactly nine letters and digits.
        merge_roles: neighbours of one role are sent as one message.
        stub_tools: a stub schema is sent for each tool that only the history names.
        lenient_finish: the server is known to end streams without a finish reason.
        dsml: calls written as DSML markup in the answer's text are read as calls.
        echo: members of an answer that go back as they came, to the same model.
    """

    system_role: Literal["system", "developer"] = "system"
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    stream_usage: bool = True
    parallel_calls: bool = True
    output_schema: Literal["json_schema", "json_object", "words"] = "json_schema"
    reasoning: Literal["received", "always", "drop"] = "received"
    call_ids: Literal["any", "alnum9"] = "any"
    merge_roles: bool = True
    stub_tools: bool = False
    lenient_finish: bool = False
    dsml: bool = False
    echo: tuple[str, ...] = ("reasoning_details", "extra_content", "thinking_blocks")


if TYPE_CHECKING:
    QuirkChanges: TypeAlias = dict[str, Any]
else:
    # Some of the quirks, as a row of the table or a config names them: the same keys and types, none required.
    QuirkChanges = TypedDict("QuirkChanges", get_type_hints(Quirks), total=False)

DEFAULTS = Quirks()

# (end of the host name, a part of the model name, what is different there); later rows win.
TABLE: tuple[tuple[str, str, QuirkChanges], ...] = (
    ("", "deepseek", {"dsml": True}),
    ("api.openai.com", "", {"max_tokens_field": "max_completion_tokens"}),
    ("openai.azure.com", "", {"max_tokens_field": "max_completion_tokens"}),
    ("api.deepseek.com", "", {"reasoning": "always", "output_schema": "json_object", "parallel_calls": False}),
    ("api.mistral.ai", "", {"stream_usage": False, "call_ids": "alnum9"}),
    ("opencode.ai", "muse-spark", {"lenient_finish": True}),
)

# Context windows by the start of the model name, in tokens; the longest match wins.
_WINDOWS = {
    "gpt-3.5-turbo": 16_385,
    "gpt-4-turbo": 128_000,
    "gpt-4o": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-5": 400_000,
    "o1": 200_000,
    "o3": 200_000,
    "o4-mini": 200_000,
    "deepseek-chat": 131_072,
    "deepseek-reasoner": 131_072,
}


def quirks_for(host: str, model: str, own: QuirkChanges | None = None) -> Quirks:
    """Return all quirks of a model at a host: the defaults, the table's rows in order, then the config's own."""
    changes: QuirkChanges = {}
    for host_end, model_part, row in TABLE:
        if _is_host(host, host_end) and model_part in model.lower():
            changes = {**changes, **row}
    return replace(DEFAULTS, **{**changes, **(own or {})})


def _is_host(host: str, end: str) -> bool:
    return not end or host == end or host.endswith("." + end)


def window_tokens(model: str) -> int | None:
    """Return a model's context window in tokens, None if it is not known."""
    name = model.rpartition("/")[2]
    best = max((start for start in _WINDOWS if name.startswith(start)), key=len, default=None)
    return None if best is None else _WINDOWS[best]
