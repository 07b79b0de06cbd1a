"""The plugin's config, and what it comes to together with the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct, field

from checkrein.errors import ConfigError

from .quirks import QuirkChanges

__all__ = ["Endpoint", "OpenAIConfig", "Resolved", "leaving", "resolve", "OFFICIAL_URL"]

OFFICIAL_URL = "https://api.openai.com/v1"
SECRET_CHARS = 8  # a shorter word, as `Bearer`, is no secret
_SECRET = r"(?i)auth|key|token|secret|passw|credential|cookie|signature"
_OF_THE_MESSAGE = {"connection", "content-length", "expect", "te", "trailer", "transfer-encoding", "upgrade"}
_HEADER_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"


class Endpoint(Struct, frozen=True, kw_only=True):
    """One OpenAI-compatible endpoint.

    Attributes:
        base_url: the URL before `/chat/completions`, as `https://host/v1`.
        api_key_env: the environment variable that holds the key; None means NAME_API_KEY.
        default_model: the model of `auto`; empty keeps the endpoint out of `auto`.
        connect_timeout_s: seconds to connect, and to send each part of the request.
        response_timeout_s: seconds until the response's headers.
        idle_timeout_s: seconds of silence on the connection during the response.
        progress_timeout_s: seconds without anything of the answer, though the connection is alive; 0 = no limit.
        lenient_finish: accept a stream that ends without a finish reason; each use is logged (M11).
        quirks: single quirks that are otherwise than the table of quirks.py says.
        headers: further headers of each request.
        body: further members of each request's body, over all others.
        window_tokens: the models' context window in tokens; None means what is known of the model.
    """

    base_url: str | None = None
    api_key_env: str | None = None
    default_model: str = ""
    connect_timeout_s: float = 10.0
    response_timeout_s: float = 300.0
    idle_timeout_s: float = 120.0
    progress_timeout_s: float = 900.0
    lenient_finish: bool = False
    quirks: QuirkChanges = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict)
    window_tokens: int | None = None


class OpenAIConfig(Endpoint, frozen=True, kw_only=True):
    """`[plugins.openai]`: the endpoint of the provider `openai`, and further ones under their own names.

    `OPENAI_BASE_URL` and `OPENAI_MODEL` stand in for what the table leaves open.

    Attributes:
        endpoints: `[plugins.openai.endpoints.NAME]`, each a provider NAME.
    """

    api_key_env: str | None = "OPENAI_API_KEY"
    default_model: str = "gpt-5-mini"
    endpoints: dict[str, Endpoint] = field(default_factory=dict)


class Resolved(Struct, frozen=True, kw_only=True):
    """An endpoint with its environment.

    Attributes:
        name: the provider's name.
        url: the URL of its chat completions.
        host: the URL's host, lower case.
        local: whether the host is this machine.
        explicit: whether somebody named the URL (then, if local, a key may be absent).
        key_env: the variable of the key.
        endpoint: the config.
    """

    name: str
    url: str
    host: str
    local: bool
    explicit: bool
    key_env: str
    endpoint: Endpoint

    def key(self) -> str | None:
        """Return the key as the environment has it now, None if it is absent or empty."""
        return os.environ.get(self.key_env, "").strip() or None

    def secrets(self) -> list[str]:
        """Return what no message may show: the key, and the words of headers whose name says that they are secret."""
        key = self.key()
        words = [
            word
            for name, value in self.endpoint.headers.items()
            if re.search(_SECRET, name)
            for word in value.split()
            if len(word) >= SECRET_CHARS
        ]
        return [*([] if key is None else [key]), *words]

    def missing(self) -> str | None:
        """Say what must be set before a request can be sent; None if nothing is missing."""
        key = self.key()
        if key is None:
            if self.local and self.explicit:
                return None
            return f"set {self.key_env} to the key of {self.host}"
        if not (key.isascii() and key.isprintable()):
            return f"expected a key of visible ASCII characters in {self.key_env}, got others; set it again"
        return None

    def default_model(self) -> str | None:
        """Return the model of `auto` here."""
        named = os.environ.get("OPENAI_MODEL", "").strip() if self.name == "openai" else ""
        return named or self.endpoint.default_model or None


def resolve(name: str, endpoint: Endpoint) -> Resolved:
    """Return an endpoint with its environment.

    Args:
        name: the provider's name; `openai` reads OPENAI_BASE_URL and has the official URL as default.
        endpoint: its config.

    Raises:
        ConfigError: its URL is missing or cannot be one, a timeout or the window cannot be that,
            or a header cannot be sent.
    """
    url = endpoint.base_url
    if url is None and name == "openai":
        url = os.environ.get("OPENAI_BASE_URL", "").strip() or None
    explicit = url is not None
    if url is None:
        if name != "openai":
            raise ConfigError(f"expected a base_url for the endpoint {name!r}, got none", path=_path(name, "base_url"))
        url = OFFICIAL_URL
    for member in ("connect_timeout_s", "response_timeout_s", "idle_timeout_s"):
        if not getattr(endpoint, member) > 0:
            raise ConfigError(
                f"expected a positive number of seconds, got {getattr(endpoint, member)}", path=_path(name, member)
            )
    if not endpoint.progress_timeout_s >= 0:
        said = f"expected seconds, or 0 for no limit, got {endpoint.progress_timeout_s}"
        raise ConfigError(said, path=_path(name, "progress_timeout_s"))
    if endpoint.window_tokens is not None and endpoint.window_tokens < 1:
        said = f"expected at least 1 token, got {endpoint.window_tokens}"
        raise ConfigError(said, path=_path(name, "window_tokens"))
    for header, value in endpoint.headers.items():
        if not re.fullmatch(_HEADER_NAME, header):
            raise ConfigError("expected a header's name", path=_path(name, f"headers.{header!a}"))
        if header.lower() in _OF_THE_MESSAGE:
            said = "expected no header that says how the message itself is sent; leave it out"
            raise ConfigError(said, path=_path(name, f"headers.{header!a}"))
        if not (value.isascii() and value.isprintable() and value == value.strip()):
            raise ConfigError(  # the value is not quoted: it may be a key
                "expected visible ASCII characters without space around them", path=_path(name, f"headers.{header!a}")
            )
    host = _host_of(url)
    if not host:
        # The URL is not quoted: a key that was put in it by mistake would be shown.
        raise ConfigError("expected a base_url as https://host/v1, got something else", path=_path(name, "base_url"))
    url = urlsplit(url).geturl().rstrip("/")  # the scheme in lower case: who connects decides by it about certificates
    if not url.endswith("/chat/completions"):
        url += "/chat/completions"
    key_env = endpoint.api_key_env or f"{name.upper().replace('-', '_')}_API_KEY"
    return Resolved(
        name=name, url=url, host=host, local=_is_local(host), explicit=explicit, key_env=key_env, endpoint=endpoint
    )


def leaving(table: Mapping[str, Any]) -> list[str]:
    """Return the keys of a raw `[plugins.openai]` that decide who gets which key, unless that is this machine."""
    found = [key for key in ("base_url", "api_key_env", "headers") if key in table and not _stays(table)]
    if not all(_stays(endpoint) for endpoint in table.get("endpoints", {}).values()):
        found.append("endpoints")
    return found


def _stays(endpoint: Mapping[str, Any]) -> bool:
    return _is_local(_host_of(endpoint.get("base_url", OFFICIAL_URL)))


def _host_of(url: str) -> str:
    """The host of an HTTP URL that can be a base URL, lower case; empty if it cannot."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises where it is no number
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or parts.username or parts.query or parts.fragment:
        return ""
    host = (parts.hostname or "").lower()
    return host if host.isprintable() and " " not in host else ""


def _path(name: str, member: str) -> str:
    return f"plugins.openai.{member}" if name == "openai" else f"plugins.openai.endpoints.{name}.{member}"


def _is_local(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
