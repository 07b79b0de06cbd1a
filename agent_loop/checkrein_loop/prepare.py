"""Preparing a request: prompt, tools, settings and history, the `agent_request` fold, header and digest (M1, L7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, convert, json, to_builtins

from checkrein.errors import CheckreinError
from checkrein.events import PromptPart, Reason, RequestHeader
from checkrein.messages import Message, Request, ToolMessage, ToolSchema, UserMessage
from checkrein.prompt import SectionFailed, assemble
from checkrein.requests import cut_of, edits_of, header_bytes
from checkrein.text import clean, describe

from .ends import StepFailed

if TYPE_CHECKING:
    from checkrein.derive import History
    from checkrein.providers import Provider

    from .agent import LoopAgent

__all__ = ["Prepared", "prepare", "base_request"]


class Prepared(Struct):
    """A request ready to be sent, and what its `request/start` says of it."""

    provider: Provider
    request: Request
    header: int
    messages: int
    digest: str
    edits: dict[str, Any] | None


def base_request(agent: LoopAgent, options: dict[str, Any]) -> tuple[Provider, Request]:
    """The request before plugins see it.

    Raises:
        ConfigError, CredentialsError: the model cannot be used.
    """
    prompt, history = agent.prompt, agent.session.state.history
    if options is not prompt.options:
        prompt.begin(agent, options)
    provider = prompt.provider
    assert provider is not None
    return provider, Request(
        model=prompt.model,
        messages=history.view(),
        system=prompt.system(agent),
        tools=prompt.tools(agent),
        settings=prompt.settings,
        provider=provider.name,
        seqs=history.seqs,
    )


async def prepare(agent: LoopAgent, turn: int, step: int, options: dict[str, Any]) -> Prepared:
    """Build the request, hand it through `agent_request`, log what changed of it.

    Raises:
        StepFailed: the model cannot be used, or plugins left nothing to send.
        PluginFault: an implementation failed.
    """
    try:
        provider, base = base_request(agent, options)
    except SectionFailed as exc:
        author = agent.harness.brought.get(("prompt section", exc.section), "prompt")
        error = exc.__cause__ or exc
        raise agent.hooks.faults.write(author, "prompt_sections", error, agent.session, "turn_ended") from exc
    except CheckreinError as exc:
        raise _unusable(exc) from exc
    request, plugins = base, []
    history = agent.session.state.history
    epoch, length = history.epoch, len(history.messages)
    chain = agent.hooks.agent_request
    if chain is not None:
        request, plugins = await agent.hooks.fold(chain, agent.session, (agent, turn, step), base, _valid_request)
        if request.provider != base.provider:
            try:
                provider, _ = agent.resolve(f"{request.provider}:{request.model}")
            except CheckreinError as exc:
                raise _unusable(exc) from exc
    changed = request.messages is not base.messages  # the history itself ends well (History.view), if there is any
    if not request.messages or (changed and not isinstance(request.messages[-1], (UserMessage, ToolMessage))):
        text = "expected a history that ends with user or tool, got one with nothing to answer"
        raise StepFailed(Reason("error", error="generate", code="EMPTY_REQUEST", message=text))
    header, head = agent.prompt.header(agent, request, turn, step)
    history = agent.session.state.history
    if history.epoch != epoch or len(history.messages) != length:
        request, base = caught_up(request, base, history, epoch)
    edits = edits_of(request, base.messages, plugins)
    digest = agent.digester.digest(
        head,
        request.messages,
        history.epoch,
        None if edits is None else (edits.get("marker"), *edits.get("drop", ())),
        incremental=edits is None or "drop" in edits,
    )
    return Prepared(provider, request, header, len(request.messages), digest, edits)


def caught_up(request: Request, base: Request, history: History, epoch: int) -> tuple[Request, Request]:
    """Take in what was logged while the request was made: plugins and observers may append what a model reads (L7).

    Args:
        request: what the plugins made.
        base: what they made it of.
        history: as it is now.
        epoch: the history's when `base` was made.

    Returns:
        Both as of now. A request that plugins wrote themselves stays theirs.
    """
    now = base.replace(messages=history.view(), seqs=history.seqs)
    if request.messages is base.messages:
        request = request.replace(messages=now.messages, seqs=now.seqs)
    elif history.epoch == epoch and (edit := cut_of(request, base.messages, base.seqs)) is not None:
        request = request.replace(messages=edit.apply(now.messages, now.seqs), seqs=now.seqs, edit=edit)
    return request, now


def _unusable(exc: CheckreinError) -> StepFailed:
    return StepFailed(Reason("error", error="generate", code=type(exc).__name__, message=describe(exc)))


_MEMBERS = {
    "provider": str,
    "model": str,
    "system": tuple[str, ...],
    "tools": tuple[ToolSchema, ...],
    "settings": dict[str, Any],
    "messages": list[Message],
}


def _valid_request(request: Any, base: Request) -> None:
    """Check what a plugin changed of a request: it is logged, and the log must be readable (L5, L7)."""
    if not isinstance(request, Request):
        raise TypeError(f"expected Request or None, got {type(request).__name__}")
    for name, kind in _MEMBERS.items():
        value = getattr(request, name)
        if value is getattr(base, name):
            continue
        if name == "messages":
            if request.edit is not None:
                continue  # a cut keeps messages of the log
            if not isinstance(value, Sequence):
                raise TypeError(f"expected a sequence of messages, got {type(value).__name__}")
            known = set(map(id, base.messages))
            value = [message for message in value if id(message) not in known]
        plain = to_builtins(value)
        json.encode(plain)
        convert(plain, kind)


class Prompt:
    """What an agent's requests have in common, computed again only when it changes.

    Attributes:
        options: the options of the turn that `provider`, `model` and `settings` are of.
    """

    __slots__ = ("options", "provider", "model", "settings", "_system", "_tools", "_tool_key", "_last", "_head")

    def __init__(self) -> None:
        self.options: dict[str, Any] | None = None
        self.provider: Provider | None = None
        self.model = ""
        self.settings: dict[str, Any] = {}
        self._system: tuple[str, ...] | None = None
        self._tools: tuple[ToolSchema, ...] = ()
        self._tool_key: Any = None
        self._last: tuple[Any, ...] | None = None
        self._head = b""

    def begin(self, agent: LoopAgent, options: dict[str, Any]) -> None:
        """Take up a turn's options.

        Raises:
            ConfigError, CredentialsError: the model cannot be used.
        """
        self.provider, self.model = agent.resolve(options.get("model"))
        self.settings = agent.settings(options)
        self.options = options

    def system(self, agent: LoopAgent) -> tuple[str, ...]:
        """The prompt's parts now; the same tuple as before while nothing changed."""
        sections = agent.harness.sections
        if sections or self._system is None:
            parts = assemble(sections, agent, agent.spec.system_prompt)
            if parts != self._system:
                self._system = tuple(clean(part)[0] for part in parts)
        return self._system or ()

    def tools(self, agent: LoopAgent) -> tuple[ToolSchema, ...]:
        """The schemas of the agent's tools; the same tuple as before while nothing changed."""
        chosen = agent.harness.tools.for_agent(agent.spec.tools)
        if chosen is not self._tool_key:
            self._tool_key = chosen
            self._tools = tuple(tool.schema for tool in chosen)
        return self._tools

    def header(self, agent: LoopAgent, request: Request, turn: int, step: int) -> tuple[int, bytes]:
        """Log parts and header if they changed; return the header's seq and canonical bytes."""
        known = agent.session.state.header
        now = (request.provider, request.model, request.system, request.tools, request.settings)
        if known is None or now != self._last:
            parts = agent.harness.parts
            system = [parts.of(part).id for part in request.system]
            tools = [parts.of(schema).id for schema in request.tools]
            fields = (request.provider, request.model, request.settings, system, tools)
            self._log_parts(agent, request, system, tools)  # a header may be in the log whose parts are lost (L7)
            if known is None or (known.provider, known.model, known.settings, known.system, known.tools) != fields:
                known = self._log(agent, request, turn, step, fields)
            self._head = header_bytes(request, system, tools)
            self._last = now
        return known.seq, self._head

    def _log_parts(self, agent: LoopAgent, request: Request, system: list[str], tools: list[str]) -> None:
        session = agent.session
        written = session.state.parts
        kinds: list[tuple[str, list[str], Any]] = [("system", system, request.system), ("tool", tools, request.tools)]
        for kind, ids, parts in kinds:
            for part, content in zip(ids, parts, strict=True):
                if part not in written:
                    session.append(PromptPart(id=part, kind=kind, content=agent.harness.parts.of(content).plain))

    def _log(self, agent: LoopAgent, request: Request, turn: int, step: int, fields: Any) -> RequestHeader:
        session = agent.session
        provider, model, settings, system, tools = fields
        reason = "initial" if session.state.header is None else "resume" if self._last is None else "change"
        return session.append(
            RequestHeader(
                turn=turn,
                step=step,
                reason=reason,
                provider=provider,
                model=model,
                settings=settings,
                system=system,
                tools=tools,
            )
        )
