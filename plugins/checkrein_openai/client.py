"""The connection: one HTTP client per event loop, and one request's bytes, with every wait bounded.

No retries here (`request_error` decides those), and no meaning of bytes (decode.py).
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
from anyio.lowlevel import RunVar

from checkrein.errors import ProviderError

from .config import Resolved
from .errors import from_response, from_transport, timed_out

if TYPE_CHECKING:
    import ssl

    import httpx2

__all__ = ["Connection", "Reply"]

T = TypeVar("T")
ERROR_BODY_BYTES = 64 * 1024
ERROR_BODY_S = 5.0
CLOSE_S = 1.0
KEPT_CONNECTIONS = 20
_NUMBERS = count()


class Connection:
    """The HTTP clients of one endpoint, one per event loop, made at the first request of each.

    Args:
        at: the endpoint.
        transport: makes the transport instead of the network's, for tests.
    """

    def __init__(self, at: Resolved, transport: Callable[[], httpx2.AsyncBaseTransport] | None = None) -> None:
        self._at = at
        self._transport = transport
        self._client: RunVar[httpx2.AsyncClient | None] = RunVar(
            f"checkrein_openai client {next(_NUMBERS)} of {at.name}",  # anyio 4.9 knows them by name alone
            None,
        )

    def client(self) -> httpx2.AsyncClient:
        """Return this event loop's client."""
        client = self._client.get()
        if client is None:
            client = self._make()
            self._client.set(client)
        return client

    async def aclose(self) -> None:
        """Close this event loop's client, if there is one; the next request makes another."""
        client = self._client.get()
        if client is not None:
            self._client.set(None)
            with anyio.move_on_after(CLOSE_S, shield=True):
                await client.aclose()

    def _make(self) -> httpx2.AsyncClient:
        import httpx2  # on the first request: it is the heaviest import of the plugin

        at = self._at
        verify = _trusted() if at.url.startswith("https:") else False  # loading takes longer than a local request
        try:
            return httpx2.AsyncClient(
                timeout=httpx2.Timeout(at.endpoint.connect_timeout_s, read=None),  # reads are timed in Reply
                follow_redirects=False,  # a redirect would carry the key to another host
                trust_env=not at.local,  # a proxy cannot reach this machine's own servers
                verify=verify,
                limits=httpx2.Limits(max_connections=1_000, max_keepalive_connections=KEPT_CONNECTIONS - 1),
                transport=self._transport() if self._transport is not None else None,
            )
        except (ImportError, ValueError, httpx2.InvalidURL) as exc:
            raise ProviderError(
                f"a proxy of the environment cannot be used: {exc}; set HTTP_PROXY, HTTPS_PROXY and ALL_PROXY to"
                " http://host:port, or name the host in NO_PROXY",
                code="BAD_REQUEST",
            ) from exc


class Reply:
    """One request and its reply. `open` it, `read` it to its end, and `aclose` it whatever happens.

    Args:
        connection: where to.
        at: the endpoint, for its timeouts.
    """

    def __init__(self, connection: Connection, at: Resolved) -> None:
        self._connection = connection
        self._at = at
        self._response: httpx2.Response | None = None
        self._bytes: AsyncGenerator[bytes, None] | None = None
        self.request_id: str | None = None

    async def open(self, body: bytes) -> None:
        """Send the request and wait for the headers of a success.

        Raises:
            ProviderError: it cannot be sent, is not answered in time, or answered with an error.
        """
        at = self._at
        wait_s = at.endpoint.response_timeout_s
        self._response = response = await self._wait(
            self._send(body), wait_s, f"{at.host} sent no headers within {wait_s:g} s", begun=False
        )
        self.request_id = response.headers.get("x-request-id")
        self._bytes = response.aiter_bytes()
        if not 200 <= response.status_code < 300:
            raise await self._refused(response, self._bytes)

    async def read(self, *, begun: bool) -> bytes | None:
        """Return the next bytes of the body, None at its end.

        Args:
            begun: whether anything of the answer came, for the error's kind.

        Raises:
            ProviderError: the connection broke, or was silent too long.
        """
        assert self._bytes is not None  # open was called
        wait_s = self._at.endpoint.idle_timeout_s
        return await self._wait(
            _next(self._bytes), wait_s, f"{self._at.host} sent nothing for {wait_s:g} s", begun=begun
        )

    async def aclose(self) -> None:
        """Close the reply, however far it got; bounded and shielded from cancellation."""
        response, self._response = self._response, None
        body, self._bytes = self._bytes, None
        if response is None:
            return
        with anyio.move_on_after(CLOSE_S, shield=True):
            try:
                await response.aclose()
                # The HTTP client does not close its inner generators. Read on behind the closed response they
                # end by themselves, here, and not in the garbage collector's hands.
                while body is not None and await _next(body) is not None:
                    pass
            except Exception:  # what is read from a closed response is an error, as it should be
                pass

    async def _send(self, body: bytes) -> httpx2.Response:
        """Send the request, once more on another connection if a kept one turns out to be dead.

        Servers close kept connections whenever they like (llama.cpp at once, against its own headers). A
        request that met such a closing was not answered with a single byte; a new connection is always tried.
        """
        import httpx2

        client = self._connection.client()
        for _ in range(KEPT_CONNECTIONS):
            trace = _Trace()
            request = client.build_request(
                "POST", self._at.url, content=body, headers=self._headers(), extensions={"trace": trace}
            )
            try:
                return await client.send(request, stream=True)
            except (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError):
                if not trace.reused:
                    raise
        raise httpx2.ReadError(f"{KEPT_CONNECTIONS} kept connections were dead")

    async def _wait(self, waiting: Awaitable[T], seconds: float, silence: str, *, begun: bool) -> T:
        import httpx2

        try:
            with anyio.fail_after(seconds):
                return await waiting
        except TimeoutError:
            raise timed_out(silence, request_id=self.request_id) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError) as exc:
            raise from_transport(exc, host=self._at.host, begun=begun, request_id=self.request_id) from exc

    def _headers(self) -> dict[str, str]:
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream, application/json",
            "user-agent": "checkrein",
        }
        if (key := self._at.key()) is not None:
            headers["authorization"] = f"Bearer {key}"
        return headers | {name.lower(): value for name, value in self._at.endpoint.headers.items()}

    async def _refused(self, response: httpx2.Response, pieces: AsyncGenerator[bytes, None]) -> ProviderError:
        """Read what an error response says, as far as it comes in time."""
        body = b""
        with anyio.move_on_after(ERROR_BODY_S):
            try:
                while len(body) < ERROR_BODY_BYTES and (piece := await _next(pieces)) is not None:
                    body += piece
            except Exception:  # the status says enough
                pass
        headers = {name.lower(): value for name, value in response.headers.items()}
        return from_response(
            response.status_code,
            headers,
            body[:ERROR_BODY_BYTES],
            host=self._at.host,
            key_env=self._at.key_env,
        )


def _trusted() -> ssl.SSLContext:
    """The authorities whose certificates are trusted: the environment's, for this machine's servers too."""
    import httpx2

    try:
        return httpx2.create_ssl_context()
    except OSError as exc:
        named = [f" from {name}={path}" for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if (path := os.environ.get(name))]
        raise ProviderError(
            f"the certificates to trust cannot be read{named[0] if named else ''}: {exc};"
            " set SSL_CERT_FILE to a file of certificates (PEM)",
            code="TRANSPORT",
        ) from exc


class _Trace:
    """Watches one request's way through the HTTP client: did it take a connection that was kept?"""

    def __init__(self) -> None:
        self.reused = False
        self._connected = False

    async def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        if "connect_" in event or "start_tls" in event:
            self._connected = True
        elif event.endswith("send_request_headers.started"):
            self.reused = not self._connected


async def _next(chunks: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(chunks, None)
