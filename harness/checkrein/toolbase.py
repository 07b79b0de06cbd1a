"""What a tool is: its name, schema and checks, and how it is called. The decorator and the registry are in tools.py."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import asdict

from .errors import ConfigError, InvalidArguments, NotPlainJSON, ToolError
from .hints import is_context, read_hints
from .messages import ToolSchema
from .schema import MAX_DEPTH, Signature, depth_exceeds, describe_function, summary
from .text import decode_json, describe, preview

if TYPE_CHECKING:
    from pathlib import Path

    from .agents import AgentLike
    from .calls import Outcome
    from .foreign import ForeignSchema
    from .session import Session

__all__ = ["Tool", "FunctionTool", "SchemaTool", "ToolContext", "Reconcile"]

MAX_ARGUMENTS_CHARS = 1_000_000
_SHORT_CHARS = 2 * MAX_DEPTH  # a text this short cannot nest deeper than MAX_DEPTH: no walk is needed
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_decode = msgspec.json.Decoder().decode
_convert = msgspec.convert

P = ParamSpec("P")
R = TypeVar("R")
Reconcile: TypeAlias = "Callable[[dict[str, Any]], Outcome | Awaitable[Outcome | None] | None]"


class ToolContext(Struct, eq=False):
    """What a tool may know about its call: the value of a parameter annotated ToolContext (X8).

    Attributes:
        agent: the agent that calls.
        session: its log.
        call_id: the call, `c<turn>.<step>.<n>`.
        attempt: 1, then one more each time the tool is run again.
        workspace: the folder to work in.
        deadline: when the call times out, in seconds of `time.monotonic()`; None if never.
    """

    agent: AgentLike
    session: Session
    call_id: str
    attempt: int
    workspace: Path
    deadline: float | None = None
    _on_progress: Callable[[str], object] | None = None
    _on_call: Callable[[str, dict[str, Any]], Awaitable[Outcome]] | None = None
    _cancelled: bool = False

    def progress(self, text: str) -> None:
        """Show a line of progress; never logged, and nothing happens once the call was given up.

        Args:
            text: what to show; may be called from the tool's thread.
        """
        if self._on_progress is not None and not self._cancelled:
            self._on_progress(text)

    async def call(self, name: str, arguments: dict[str, Any]) -> Outcome:
        """Call another tool of the agent, through guards and `tools_execute` as the model's own calls (X7).

        The call is logged with this one as its parent; the model does not see it. Whatever becomes of it is an
        outcome: refused and failed calls are outcomes with `is_error`.

        Args:
            name: a tool this agent may use.
            arguments: plain JSON, checked against the tool's schema.

        Raises:
            ToolError: this call is over, calls nest too deeply, or what should be a name is none.
            WrongThread: a tool in a thread called; make it async.
        """
        if type(name) is not str:  # it could be logged as another type, and then not be read (L5)
            hint = f"; call {name.name!r}" if isinstance(name, Tool) else ""
            raise ToolError(f"expected the name of a tool, got {type(name).__name__}{hint}")
        if self._on_call is None or self._cancelled:
            raise ToolError(f"expected nested calls while the tool of {self.call_id} runs, got {name!r} outside of it")
        return await self._on_call(name, arguments)

    def cancelled(self) -> bool:
        """Whether the call was given up: a tool in a thread looks here now and then, and returns."""
        return self._cancelled

    def give_up(self) -> None:
        """Say that nobody waits for this call any more; the loop's to call."""
        self._cancelled = True


class Tool:
    """A tool: a name, a schema, and something to call.

    Attributes:
        name: what the model calls it; `[a-zA-Z0-9_-]{1,64}`.
        description: what the model reads about it.
        parameters: JSON Schema of type object.
        effect: `read_only`, `idempotent` or `effectful` (X6).
        exclusive: whether it runs alone in its step (X1).
        timeout_s: seconds a call may take; None for no limit of its own (X4).
        is_async: whether `invoke` returns an awaitable; if not, it belongs in a thread (X3).
        reconcile: after a crash, says what became of a call with these arguments; None if nobody can (R2).
        schema: name, description and parameters as the model sees them.
    """

    __slots__ = (
        *("name", "description", "parameters", "effect", "exclusive", "timeout_s", "is_async", "reconcile"),
        *("fn", "schema", "_context"),
    )
    _check: Callable[[dict[str, Any]], Any]  # raises ValueError unless the arguments satisfy the schema

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        name: str,
        description: str,
        parameters: dict[str, Any],
        read_only: bool = False,
        idempotent: bool = False,
        exclusive: bool = False,
        timeout_s: float | None = None,
        reconcile: Reconcile | None = None,
        context: str | None = None,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"expected a tool name of 1 to 64 letters, digits, _ or -, got {preview(name, 80)!r}"
                f" for {describe_function(fn)}; pass name="
            )
        if timeout_s is not None and not timeout_s > 0:
            raise ConfigError(f"tool {name!r}: expected timeout_s above 0 or None, got {timeout_s!r}")
        if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
            raise ConfigError(f"tool {name!r}: {describe_function(fn)} is a generator; return the whole result instead")
        self.fn = fn
        self.name = name
        self.description = description
        self.parameters = parameters
        self.effect = "read_only" if read_only else "idempotent" if idempotent else "effectful"
        self.exclusive = exclusive
        self.timeout_s = timeout_s
        self.is_async = _is_async(fn)
        self.reconcile = reconcile
        self.schema = ToolSchema(name, description, parameters)
        self._context = context

    def __repr__(self) -> str:
        return f"<Tool {self.name} {self.effect}>"

    def invoke(self, context: ToolContext, arguments: dict[str, Any]) -> Any:
        """Call the function with checked arguments.

        Args:
            context: for a parameter annotated ToolContext.
            arguments: what `decode` or `validate` returned.

        Returns:
            The value; an awaitable of it if the tool is async.

        Raises:
            InvalidArguments: the arguments do not satisfy the schema.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how it is called")

    def decode(self, text: str) -> dict[str, Any]:
        """Return the arguments in a model's raw argument text (M8).

        Args:
            text: empty or blank means `{}`; else one complete JSON object, at most 1,000,000 characters and
                100 levels.

        Raises:
            InvalidArguments: it is something else; says what is wrong, for the model to correct itself.
        """
        if len(text) <= _SHORT_CHARS:
            try:
                arguments = _decode(text)
                if type(arguments) is dict:
                    self._check(arguments)
                    return arguments
            except Exception:  # noqa: S110 - a type's own check may raise anything
                pass  # the long way finds out what is wrong, or decodes leniently
        return self._decode_slowly(text)

    def _decode_slowly(self, text: str) -> dict[str, Any]:
        if len(text) > MAX_ARGUMENTS_CHARS:
            raise self._invalid(f"they are {len(text)} characters long, more than {MAX_ARGUMENTS_CHARS}", text)
        if not text.strip():
            text = "{}"
        try:
            arguments = decode_json(text)
        except ValueError as exc:
            raise self._invalid(f"they are not one complete JSON object ({exc})", text) from None
        if type(arguments) is not dict:
            kind = _JSON_WORDS.get(type(arguments), "a number")
            raise self._invalid(f"expected a JSON object, got {kind}", text)
        if depth_exceeds(arguments, MAX_DEPTH):
            raise self._invalid(f"they nest deeper than {MAX_DEPTH} levels", text)
        try:
            self._check(arguments)
        except Exception as exc:
            # To JSON 5.0 is an integer: many models write it for one.
            whole = _whole(arguments)
            try:
                self._check(whole)
            except Exception:
                raise self._invalid(_why(exc), text) from None
            return whole  # type: ignore[no-any-return]
        return arguments

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return rewritten arguments, checked and copied.

        Args:
            arguments: plain JSON with str keys.

        Raises:
            InvalidArguments: they do not satisfy the schema.
        """
        from .codec import plain

        if type(arguments) is not dict:
            raise InvalidArguments(f"expected the arguments of {self.name} as a dict, got {type(arguments).__name__}")
        try:
            arguments = plain(arguments)
            self._check(arguments)
        except Exception as exc:
            raise self._invalid(_why(exc), _shown(arguments)) from None
        return arguments

    def _invalid(self, what: str, got: str) -> InvalidArguments:
        return InvalidArguments(
            f"The arguments of {self.name} are not valid: {what}. Expected one JSON object"
            f" {summary(self.parameters)}; got: {preview(got, 200)}\nNothing was run. Correct them and call again."
        )


_JSON_WORDS = {list: "an array", str: "a string", type(None): "null", bool: "a boolean"}


def _whole(value: Any) -> Any:
    """The JSON value with floats that are whole numbers as integers."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    return value


def _why(exc: Exception) -> str:
    """What a check says: the schema refuses in words, a type's own code (`__post_init__`) raises anything."""
    if isinstance(exc, (NotPlainJSON, ValueError, RecursionError)):
        return describe(exc)
    return f"{type(exc).__name__}: {describe(exc)}"


def _shown(arguments: dict[str, Any]) -> str:
    try:
        return repr(arguments)
    except Exception:  # a value's own __repr__ may fail
        return "{...}"


class FunctionTool(Tool, Generic[P, R]):
    """A tool made from a function's hints; it can still be called as the function it was."""

    __slots__ = ("_check", "_verbatim", "signature")

    def __init__(self, fn: Callable[P, R], *, signature: Signature, **options: Any) -> None:
        super().__init__(fn, parameters=signature.parameters, context=signature.context, **options)
        self.signature = signature
        # str_keys costs a microsecond a call: only where a mapping has keys that are no str.
        self._check: Callable[[dict[str, Any]], Any] = partial(_convert, type=signature.model, **signature.conversion)
        self._verbatim = signature.verbatim

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, unchecked."""
        return self.fn(*args, **kwargs)  # type: ignore[no-any-return]

    def invoke(self, context: ToolContext, arguments: dict[str, Any]) -> Any:
        """Call the function; see Tool.invoke."""
        if self._verbatim:
            # All parameters are plain JSON types: what was checked is what the function takes.
            if self._context is None:
                return self.fn(**arguments)
            return self.fn(**arguments, **{self._context: context})
        try:
            given = {name: value for name, value in asdict(self._check(arguments)).items() if value is not UNSET}
        except Exception as exc:
            raise self._invalid(_why(exc), _shown(arguments)) from None
        if self._context is not None:
            given[self._context] = context
        return self.fn(**given)


class SchemaTool(Tool):
    """A tool with a JSON Schema from elsewhere; its function takes the arguments as one dict."""

    __slots__ = ("_check", "_dict_name")

    def __init__(self, fn: Callable[..., Any], *, schema: ForeignSchema, **options: Any) -> None:
        self._dict_name, context = _dict_parameter(fn)
        super().__init__(fn, parameters=schema.parameters, context=context, **options)
        self._check = schema.check

    def invoke(self, context: ToolContext, arguments: dict[str, Any]) -> Any:
        """Call the function with the dict of arguments; see Tool.invoke."""
        given: dict[str, Any] = {self._dict_name: arguments}
        if self._context is not None:
            given[self._context] = context
        return self.fn(**given)


def _dict_parameter(fn: Callable[..., Any]) -> tuple[str, str | None]:
    """The name of the parameter that takes the arguments, and of the one that takes the context."""
    where = describe_function(fn)
    try:
        names = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError) as exc:
        raise ConfigError(f"{where}: its signature cannot be read: {exc}") from None
    try:
        hints = read_hints(fn, where, ToolContext)
    except ConfigError:  # of a parameter that needs none
        hints = {p.name: ToolContext for p in names if p.annotation == "ToolContext"}
    contexts = [p.name for p in names if is_context(hints.get(p.name, p.annotation), ToolContext)]
    plain = [p for p in names if p.name not in contexts and p.default is p.empty]
    if len(plain) != 1 or plain[0].kind not in (plain[0].POSITIONAL_OR_KEYWORD, plain[0].KEYWORD_ONLY):
        raise ConfigError(
            f"{where}: with parameters= the function takes the arguments as one dict,"
            f" def fn(arguments) or def fn(context: ToolContext, arguments); got {inspect.signature(fn)}"
        )
    return plain[0].name, next(iter(contexts), None)


def _is_async(fn: Callable[..., Any]) -> bool:
    while (inner := getattr(fn, "func", None)) is not None:  # functools.partial
        fn = inner
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004
