"""Errors of responses: the table of statuses, and what servers ask to wait (docs/providers.md)."""

from __future__ import annotations

import json
import ssl
from datetime import UTC, datetime

import httpx2
import pytest

from checkrein_openai.errors import from_frame, from_response, from_transport, redact, retry_after_s

OPENAI_429 = {"error": {"message": "Rate limit reached for gpt", "type": "requests", "code": "rate_limit_exceeded"}}
QUOTA_429 = {
    "error": {"message": "You exceeded your current quota", "type": "insufficient_quota", "code": "insufficient_quota"}
}
TOO_LARGE = {
    "error": {
        "message": "Request too large for gpt-5 on tokens per min (TPM): Limit 1, Requested 2",
        "code": "rate_limit_exceeded",
    }
}
LLAMA_CPP = {
    "error": {
        "code": 400,
        "message": "the request exceeds the available context size.",
        "type": "exceed_context_size_error",
    }
}
VLLM = {
    "object": "error",
    "message": "This model's maximum context length is 4096 tokens.",
    "type": "BadRequestError",
    "code": 400,
}
AZURE = {
    "error": {
        "message": "The response was filtered",
        "code": "content_filter",
        "innererror": {"code": "ResponsibleAIPolicyViolation"},
    }
}
MISTRAL = {
    "object": "error",
    "message": {"detail": [{"type": "extra_forbidden", "msg": "Extra inputs are not permitted"}]},
}


@pytest.mark.parametrize(
    ("status", "body", "code", "retryable", "kind"),
    [
        (401, {"error": {"message": "Incorrect API key provided"}}, "INVALID_CREDENTIAL", False, "generate"),
        (402, {"error": {"message": "Insufficient Balance"}}, "QUOTA", False, "generate"),
        (403, {"error": {"message": "Country not supported"}}, "FORBIDDEN", False, "generate"),
        (
            404,
            {"error": {"message": "The model does not exist", "code": "model_not_found"}},
            "NOT_FOUND",
            False,
            "generate",
        ),
        (408, None, "TIMEOUT", True, "timeout"),
        (409, None, "SERVER", True, "generate"),
        (413, None, "CONTEXT_WINDOW_EXCEEDED", False, "generate"),
        (422, MISTRAL, "BAD_REQUEST", False, "generate"),
        (429, OPENAI_429, "RATE_LIMIT", True, "generate"),
        (429, QUOTA_429, "QUOTA", False, "generate"),
        (429, TOO_LARGE, "RATE_LIMIT", False, "generate"),
        (429, None, "RATE_LIMIT", True, "generate"),
        (400, LLAMA_CPP, "CONTEXT_WINDOW_EXCEEDED", False, "generate"),
        (400, VLLM, "CONTEXT_WINDOW_EXCEEDED", False, "generate"),
        (400, AZURE, "CONTENT_FILTER", False, "refused"),
        (400, {"error": "something"}, "BAD_REQUEST", False, "generate"),
        (302, None, "BAD_REQUEST", False, "generate"),
        (500, "oops", "SERVER", True, "generate"),
        (501, None, "BAD_REQUEST", False, "generate"),
        (529, {"error": {"type": "overloaded_error", "message": "Overloaded"}}, "SERVER", True, "generate"),
    ],
)
def test_the_table_of_statuses(status, body, code, retryable, kind):
    raw = b"" if body is None else json.dumps(body).encode()
    error = from_response(status, {"retry-after": "3", "x-request-id": "r1"}, raw, host="api.test")
    assert (error.code, error.retryable, error.kind, error.status) == (code, retryable, kind, status)
    assert (error.retry_after_s, error.request_id) == (3.0, "r1")
    assert str(error).startswith(f"api.test answered {status}: ")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1e10"}, 1e10),  # it says so, and nobody waits for it: it is not tried at once
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:10 GMT"}, 10.0),
        ({"retry-after": "Mon, 30 Nov 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:10 -0000"}, 10.0),
    ],
)
def test_retry_after_in_seconds_milliseconds_and_as_a_date(headers, seconds):
    assert retry_after_s(headers, datetime(2026, 11, 30, 12, tzinfo=UTC)) == seconds


@pytest.mark.parametrize(("told", "retryable"), [("true", True), ("false", False)])
def test_a_server_that_says_whether_to_retry_is_believed(told, retryable):
    assert from_response(500, {"x-should-retry": told}, b"", host="h").retryable is retryable


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        ({"code": "rate_limit_exceeded", "message": "x"}, "RATE_LIMIT", True),
        ({"code": "rate_limit_exceeded", "message": "Request too large"}, "RATE_LIMIT", False),
        ({"code": "insufficient_quota", "message": "x"}, "QUOTA", False),
        ({"code": "invalid_api_key", "message": "Incorrect API key"}, "INVALID_CREDENTIAL", False),
        ({"type": "invalid_request_error", "message": "bad"}, "BAD_REQUEST", False),
        ({"type": "timeout", "message": "Request timed out"}, "TIMEOUT", True),
        ({"code": 502, "message": "Provider returned error"}, "SERVER", True),
        ({"code": "content_filter", "message": "x"}, "CONTENT_FILTER", False),
        ({"message": "This model's maximum context length is 8192 tokens"}, "CONTEXT_WINDOW_EXCEEDED", False),
        ("overloaded", "SERVER", True),
        (["a", {"message": "b"}], "SERVER", True),
        ({}, "SERVER", True),
        (7, "SERVER", True),
    ],
)
def test_the_table_of_error_frames(error, code, retryable):
    for begun in (False, True):
        got = from_frame(error, begun=begun)
        assert (got.code, got.retryable) == (code, retryable)
        special = {"TIMEOUT": "timeout", "CONTENT_FILTER": "refused"}
        assert got.kind == special.get(code, "stream" if begun else "generate")


def _untrusted() -> Exception:
    error = httpx2.ConnectError("certificate verify failed")
    error.__cause__ = ssl.SSLCertVerificationError("self-signed")
    return error


@pytest.mark.parametrize(
    ("exc", "code", "retryable"),
    [
        (httpx2.ConnectTimeout("slow"), "TIMEOUT", True),
        (httpx2.PoolTimeout(""), "TIMEOUT", True),
        (httpx2.ConnectError("refused"), "TRANSPORT", True),
        (_untrusted(), "TRANSPORT", False),
        (httpx2.ReadError(""), "TRANSPORT", True),
        (httpx2.DecodingError("bad gzip"), "MALFORMED_RESPONSE", True),
        (httpx2.UnsupportedProtocol("x"), "BAD_REQUEST", False),
        (OSError("no route"), "TRANSPORT", True),
    ],
)
def test_the_table_of_connection_errors(exc, code, retryable):
    error = from_transport(exc, host="h", begun=False)
    assert (error.code, error.retryable) == (code, retryable)
    assert "h" in str(error)


def test_a_router_says_what_its_source_said():
    error = {"code": 502, "message": "Provider returned error", "metadata": {"raw": "upstream is overloaded"}}
    assert "upstream is overloaded" in str(from_frame(error, begun=True))


def test_a_key_is_redacted_in_place():
    error = from_response(401, {}, b'{"error":{"message":"bad key sk-1"}}', host="h")
    assert "sk-1" not in str(redact(error, ["sk-1"]))
    assert str(redact(error, [])) == str(error)


@pytest.mark.parametrize("padding", range(960, 1_000, 3))
def test_a_key_is_redacted_where_a_long_message_was_cut_in_it(padding):
    said = b'{"error":{"message":"%s sk-secret-0123456789 is wrong"}}' % (b"x" * padding)
    error = redact(from_response(400, {}, said, host="h"), ["sk-secret-0123456789"])
    assert "sk-secret-0" not in str(error)
