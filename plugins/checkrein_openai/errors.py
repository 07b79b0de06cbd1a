"""What went wrong, as a ProviderError with a stable code: from a status, an error frame, or an exception.

Pure. The table of codes is in docs/providers.md. Whether to try again is decided by whoever
implements `request_error`; here it is only said whether the same request may succeed later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import inf
from typing import Any

from checkrein.errors import ProviderError
from checkrein.text import clean, preview

from .wirejson import dumps, loads

__all__ = [
    "CODES",
    "from_response",
    "from_frame",
    "from_document",
    "malformed",
    "timed_out",
    "from_transport",
    "retry_after_s",
    "redact",
]

MESSAGE_CHARS = 1_000
TOLD_CHARS = 7  # so much of a secret's beginning tells nothing: `sk-proj`

# Every code this plugin raises; programs match on them, so they only ever become more.
CODES = (
    "INVALID_CREDENTIAL",
    "FORBIDDEN",
    "QUOTA",
    "RATE_LIMIT",
    "CONTEXT_WINDOW_EXCEEDED",
    "CONTENT_FILTER",
    "NOT_FOUND",
    "BAD_REQUEST",
    "SERVER",
    "TIMEOUT",
    "TRANSPORT",
    "MALFORMED_RESPONSE",
    "EMPTY_RESPONSE",
)

# What servers write, whatever its case. Not compiled here: most programs never meet an error.
_CONTEXT = (
    r"(?i)context.?(length|window|size)|maximum (context|prompt)|(prompt|input|request).{0,20}too long"
    r"|too many (input )?tokens|reduce the length|exceeds the (available|maximum).{0,20}(context|tokens)"
)
_QUOTA = (
    r"(?i)insufficient.?(quota|balance|funds|credits)|exceeded your current quota|billing|payment.?required"
    r"|credit balance|out of credits"
)
_FILTER = r"(?i)content.?(filter|policy|management)|ResponsibleAIPolicyViolation|data_inspection"
_KEY = r"(?i)(invalid|incorrect|missing).{0,10}api.?key|authentication|unauthori[sz]ed"
_RATE = r"(?i)rate.?limit|too many requests|throttl"
_BUSY = r"(?i)server.?error|internal.?error|overload|unavailable|insufficient_system_resource|capacity"
_NEVER = r"(?i)request too large"

# The code and whether to try again, by status; other 4xx are BAD_REQUEST, other 5xx SERVER.
_BY_STATUS = {
    401: ("INVALID_CREDENTIAL", False),
    402: ("QUOTA", False),
    403: ("FORBIDDEN", False),
    404: ("NOT_FOUND", False),
    408: ("TIMEOUT", True),
    409: ("SERVER", True),
    425: ("SERVER", True),
    429: ("RATE_LIMIT", True),
    501: ("BAD_REQUEST", False),
    505: ("BAD_REQUEST", False),
}


def from_response(
    status: int, headers: Mapping[str, str], body: bytes, *, host: str, key_env: str = "the key"
) -> ProviderError:
    """Return the error of a response whose status is not a success.

    Args:
        status: the HTTP status.
        headers: the response's headers, by lower-case name.
        body: its body, or the beginning of it.
        host: who answered, for the message.
        key_env: where the key stands, for the message.
    """
    try:
        document = loads(body)
    except ValueError:
        document = None
    words, message = _said(document)
    if not message:
        message = preview(clean(body.decode("utf-8", "replace").strip())[0], MESSAGE_CHARS) or "(no message)"
    code, retryable = _classify(status, words, message)
    if (told := headers.get("x-should-retry")) in ("true", "false"):
        retryable = told == "true"
    hint = {
        "INVALID_CREDENTIAL": f"; check {key_env}",
        "NOT_FOUND": "; check the model's name, and that base_url is the part before /chat/completions",
        "QUOTA": "; check the account's plan and balance",
        "CONTEXT_WINDOW_EXCEEDED": "; shorten the history or choose a model with a larger window",
    }.get(code, "")
    if 300 <= status < 400:
        hint = f"; it redirects to {headers.get('location', '(nowhere)')}: set base_url to the place itself"
    return ProviderError(
        f"{host} answered {status}: {message}{hint}",
        kind="timeout" if code == "TIMEOUT" else "refused" if code == "CONTENT_FILTER" else "generate",
        code=code,
        retryable=retryable,
        status=status,
        retry_after_s=retry_after_s(headers),
        request_id=headers.get("x-request-id"),
    )


def from_frame(error: Any, *, begun: bool, request_id: str | None = None) -> ProviderError:
    """Return the error that a stream brought in a frame, or a body under a successful status.

    Args:
        error: the frame's JSON, or its `error` member.
        begun: whether anything of the answer came before it.
        request_id: the provider's id of the request.
    """
    words, message = _said(error if isinstance(error, dict) and "error" in error else {"error": error})
    numbers = [int(word) for word in words.split() if word.isdecimal() and len(word) == 3]
    status = next((number for number in numbers if 400 <= number < 600), None)
    code, retryable = _classify(status, words, message)
    kind = (
        "timeout" if code == "TIMEOUT" else "refused" if code == "CONTENT_FILTER" else "stream" if begun else "generate"
    )
    return ProviderError(
        f"the provider sent an error: {message or words or '(no message)'}",
        kind=kind,
        code=code,
        retryable=retryable,
        status=status,
        request_id=request_id,
    )


def from_document(document: dict[str, Any], *, request_id: str | None = None) -> ProviderError:
    """Return the error of a whole JSON body under a successful status that has no answer in it.

    Args:
        document: the body.
        request_id: the provider's id of the request.
    """
    if _said(document)[1]:
        return from_frame({"error": document}, begun=False, request_id=request_id)
    said = preview(dumps(document), 300)
    return malformed(f"expected an answer with choices, got {said}", begun=False, request_id=request_id)


def malformed(
    what: str, *, begun: bool, request_id: str | None = None, code: str = "MALFORMED_RESPONSE"
) -> ProviderError:
    """Return the error of an answer that is not what the wire promises; it may be better the next time."""
    return ProviderError(what, kind="stream" if begun else "generate", code=code, retryable=True, request_id=request_id)


def timed_out(what: str, *, request_id: str | None = None) -> ProviderError:
    """Return the error of a server that kept us waiting too long."""
    return ProviderError(what, kind="timeout", code="TIMEOUT", retryable=True, request_id=request_id)


def from_transport(exc: Exception, *, host: str, begun: bool, request_id: str | None = None) -> ProviderError:
    """Return the error of a connection that could not be made, or broke.

    Args:
        exc: what the HTTP client raised.
        host: the other end.
        begun: whether anything of the answer came before it.
        request_id: the provider's id of the request.
    """
    import ssl

    import httpx2

    said = preview(clean(str(exc))[0], 300) or type(exc).__name__
    if isinstance(exc, httpx2.TimeoutException):
        return timed_out(f"{host} did not answer in time ({type(exc).__name__}): {said}", request_id=request_id)
    if isinstance(exc, httpx2.DecodingError):
        return malformed(f"the body from {host} cannot be decompressed: {said}", begun=begun, request_id=request_id)
    if isinstance(exc, (httpx2.UnsupportedProtocol, httpx2.InvalidURL, httpx2.LocalProtocolError)):
        return ProviderError(
            f"the request to {host} cannot be sent: {said}; check base_url and headers", code="BAD_REQUEST"
        )
    cause: BaseException | None = exc
    trusted = True
    for _ in range(10):  # the TLS error stands behind the client's own, a few links down
        if isinstance(cause, ssl.SSLCertVerificationError):
            trusted = False
        cause = None if cause is None else cause.__cause__ or cause.__context__
    return ProviderError(
        f"the connection to {host} failed: {said}"
        + ("" if trusted else "; its certificate is not trusted here: set SSL_CERT_FILE to its authority's"),
        kind="stream" if begun else "generate",
        code="TRANSPORT",
        retryable=trusted,
        request_id=request_id,
    )


def retry_after_s(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds a response asks to wait, None if it does not say so in a readable way."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit
        except (KeyError, ValueError):
            continue
        if 0 <= seconds < inf:  # NaN fails this, too
            return seconds
    try:
        when = parsedate_to_datetime(headers["retry-after"])
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        return max(0.0, (when - (now or datetime.now(UTC))).total_seconds())
    except (KeyError, ValueError, TypeError, OverflowError):
        return None


def redact(error: ProviderError, secrets: Sequence[str]) -> ProviderError:
    """Take secrets out of an error's message, in place: servers quote them, and a long message may end inside one."""
    said = str(error.args[0]) if error.args else ""
    for secret in secrets:
        said = said.replace(secret, "[key]")
        for shown in range(len(secret) - 1, TOLD_CHARS, -1):
            said = said.replace(f"{secret[:shown]}…", "[key]…")
    error.args = (said, *error.args[1:])
    return error


def _classify(status: int | None, words: str, message: str) -> tuple[str, bool]:
    text = f"{words} {message}"
    if status not in (401, 402, 404, 408):
        if re.search(_QUOTA, text):
            return "QUOTA", False
        if re.search(_FILTER, words) or (status in (400, 403) and re.search(_FILTER, message)):
            return "CONTENT_FILTER", False
        if status != 429 and not re.search(_RATE, words) and re.search(_CONTEXT, text):
            return "CONTEXT_WINDOW_EXCEEDED", False
    if status == 413:
        return "CONTEXT_WINDOW_EXCEEDED", False
    if status is not None:
        code, retryable = _BY_STATUS.get(status, ("SERVER", True) if status >= 500 else ("BAD_REQUEST", False))
        return code, retryable and not (code == "RATE_LIMIT" and re.search(_NEVER, message) is not None)
    if re.search(_RATE, text):
        return "RATE_LIMIT", re.search(_NEVER, message) is None
    if re.search(_KEY, text):
        return "INVALID_CREDENTIAL", False
    if re.search(r"invalid.?request|bad.?request|not.?found", words, re.IGNORECASE):
        return "BAD_REQUEST", False
    if re.search(r"time.?out|timed out", text, re.IGNORECASE) and not re.search(_BUSY, words):
        return "TIMEOUT", True
    return "SERVER", True  # a server that breaks off without saying why may be better the next time


def _said(document: Any) -> tuple[str, str]:
    """The words (codes and types) and the message of an error document of any of the known shapes."""
    if isinstance(document, list) and document:
        document = document[0]
    if not isinstance(document, dict):
        return "", _text(document)
    inner = document.get("error") or document
    if isinstance(inner, str):
        inner = {**document, "message": inner}
    if not isinstance(inner, dict):
        return "", _text(inner)
    names = ("code", "type", "status", "param") if inner.get("code") != "" else ("type", "status")
    more = inner.get("innererror")
    words = [str(inner[name]) for name in names if isinstance(inner.get(name), (str, int))]
    if isinstance(more, dict):
        words.append(str(more.get("code", "")))
    message = next((said for name in ("message", "detail", "errors", "msg") if (said := _text(inner.get(name)))), "")
    metadata = inner.get("metadata")
    if isinstance(metadata, dict) and (raw := _text(metadata.get("raw"))):
        message = f"{message}: {raw}" if message else raw  # a router's own words say little; the source's say why
    return clean(" ".join(words))[0], preview(clean(message)[0], MESSAGE_CHARS)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, (list, tuple)):
        return "; ".join(filter(None, map(_text, value[:5])))
    if isinstance(value, dict):
        return _text(value.get("message") or value.get("msg") or value.get("detail"))
    return "" if value is None else str(value)
