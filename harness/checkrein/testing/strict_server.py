"""A strict OpenAI-compatible chat server on the loopback interface, for tests through real HTTP.

    with StrictChatServer({"calls": [{"name": "add", "arguments": {"a": 1}}]}, "done") as server:
        ... OPENAI_BASE_URL=server.url ...
    assert server.refusals == []

It refuses an unbalanced history with status 400 in OpenAI's words (strict_history.py), otherwise plays
the next answer of its script (script_data.py) as server-sent events. A turn can be held by a
threading.Event (`Hold`) or a file. In a process of its own, printing its port:

    python -m checkrein.testing.strict_server --port 0 --script FILE
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from .script_data import ScriptData, TurnData, load_script, parse_script
from .strict_history import Refusal, refusal
from .strict_wire import call, chunk, deltas, finish, usage

__all__ = ["Hold", "StrictChatServer", "main"]

POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Hold:
    """An answer that is held where its `wait_at` says.

    Args:
        turn: the answer, as in a script.
        release: the stream goes on when this is set.
        reached: set when the stream waits.
    """

    turn: TurnData | dict[str, Any] | str
    release: threading.Event = field(default_factory=threading.Event)
    reached: threading.Event = field(default_factory=threading.Event)


class _Gone(Exception):
    """The client left, or the server closes."""


class StrictChatServer:
    """The server; a context manager that starts and stops it.

    Args:
        answers: the script, one answer a good request: a str, the data of a turn, or a `Hold`.
        repeat: whether the script starts again at its end.
        port: the port, 0 for a free one.
        api_key: if given, other keys are refused with status 401.
        record: a file that each request body is appended to, one line each.

    Attributes:
        requests: the bodies of all requests to the chat endpoint, in order, refused ones included.
        refusals: why requests were refused.
        disconnects: how many clients left before the end of their answer.
    """

    def __init__(
        self,
        *answers: TurnData | dict[str, Any] | str | Hold,
        repeat: bool = False,
        port: int = 0,
        api_key: str | None = None,
        record: str | Path | None = None,
    ) -> None:
        self.requests: list[dict[str, Any]] = []
        self.refusals: list[Refusal] = []
        self.disconnects = 0
        self._holds = [answer if isinstance(answer, Hold) else None for answer in answers]
        turns = [answer.turn if isinstance(answer, Hold) else answer for answer in answers]
        self._answers = parse_script([_plain(turn) for turn in turns]).answers
        self._repeat = repeat
        self._api_key = api_key
        self._record = None if record is None else Path(record)
        self._lock = threading.Lock()
        self._played = 0
        self._closing = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
        self._http.daemon_threads = True
        self._http.block_on_close = False
        self._http.app = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), name="strict-chat", daemon=True)

    @classmethod
    def of(cls, script: ScriptData, **options: Any) -> StrictChatServer:
        """A server for a script that was parsed before."""
        return cls(*script.turns, **{"repeat": script.repeat, **options})

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        """The base URL a client is given, `http://127.0.0.1:PORT/v1`."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def remaining(self) -> int:
        """How many answers of the script were not played."""
        with self._lock:
            return max(0, len(self._answers) - self._played)

    def __enter__(self) -> StrictChatServer:
        self._thread.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop: open streams are cut, nothing is waited for but the listening thread. Idempotent."""
        if not self._closing.is_set():
            self._closing.set()
            if self._thread.ident is not None:
                self._http.shutdown()
                self._thread.join()
            self._http.server_close()

    # --- called by the handlers' threads ------------------------------------------------------------

    def judge(self, body: Any, key: str) -> tuple[int, Refusal] | None:
        """Record a request and return the status and words of its refusal, None if it is good."""
        with self._lock:
            self.requests.append(body)
            if self._record is not None:
                with self._record.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(body) + "\n")
            if self._api_key is not None and key != f"Bearer {self._api_key}":
                return 401, Refusal("Incorrect API key provided.", code="invalid_api_key")
            found = refusal(body)
            if found is None:
                return None
            self.refusals.append(found)
            return 400, found

    def next(self) -> tuple[int, TurnData, Hold | None] | None:
        """The number (from 1) and data of the next answer, None when the script is exhausted."""
        with self._lock:
            answers, place = self._answers, self._played
            if place >= len(answers) and answers and answers[-1].repeat:
                place = len(answers) - 1
            elif self._repeat and answers:
                place %= len(answers)
            if place >= len(answers):
                return None
            self._played += 1
            return self._played, answers[place], self._holds[place]

    def wait(self, turn: TurnData, hold: Hold | None, connection: socket.socket) -> None:
        """Pause an answer as its script says."""
        if turn.wait_s:
            until = time.monotonic() + turn.wait_s
            self._poll(lambda: time.monotonic() >= until, connection)
        if turn.wait_file is not None:
            Path(f"{turn.wait_file}.waiting").touch()
            self._poll(Path(turn.wait_file).exists, connection)
        if hold is not None:
            hold.reached.set()
            self._poll(hold.release.is_set, connection)

    def hang(self, connection: socket.socket) -> None:
        """Wait until the client leaves or the server closes."""
        self._poll(lambda: False, connection)

    def left(self) -> None:
        """Count a client that left."""
        with self._lock:
            self.disconnects += 1

    def _poll(self, done: Any, connection: socket.socket) -> None:
        while not done():
            if self._closing.wait(POLL_S) or _hung_up(connection):
                raise _Gone


def _plain(turn: TurnData | dict[str, Any] | str) -> dict[str, Any] | str:
    return dict(msgspec.to_builtins(turn)) if isinstance(turn, TurnData) else turn


def _hung_up(connection: socket.socket) -> bool:
    try:
        readable, _, _ = select.select([connection], [], [], 0)
        return bool(readable) and connection.recv(1, socket.MSG_PEEK) == b""
    except OSError:
        return True


# --- HTTP -----------------------------------------------------------------------------------------


class _Handler(BaseHTTPRequestHandler):
    """One connection, in a thread of its own."""

    protocol_version = "HTTP/1.1"
    server: Any
    streaming = False

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing on the error stream."""

    def do_POST(self) -> None:
        app: StrictChatServer = self.server.app
        length = int(self.headers.get("Content-Length") or 0)
        data = self.rfile.read(length)
        if len(data) < length:  # it was stopped while it sent its request
            app.left()
            self._cut()
            return
        try:
            body = json.loads(data)
        except (ValueError, RecursionError):
            self._error(400, Refusal("We could not parse the JSON body of your request."))
            return
        if not self.path.rstrip("/").endswith("/chat/completions"):
            self._error(404, Refusal(f"Invalid URL (POST {self.path})"))
        elif (refused := app.judge(body, self.headers.get("Authorization", ""))) is not None:
            self._error(*refused)
        elif (answer := app.next()) is None:
            self._error(400, Refusal("the script of this server is exhausted", code="script_exhausted"))
        else:
            self._answer(app, body, *answer)

    def do_GET(self) -> None:
        self._error(404, Refusal(f"Invalid URL (GET {self.path})"))

    def _answer(
        self, app: StrictChatServer, body: dict[str, Any], number: int, turn: TurnData, hold: Hold | None
    ) -> None:
        try:
            if body.get("stream") is True:
                self._stream(app, body, number, turn, hold)
            else:
                app.wait(turn, hold, self.connection)
                self._whole(body, number, turn)
        except (_Gone, OSError):
            app.left()
            self._cut()

    def _stream(
        self, app: StrictChatServer, body: dict[str, Any], number: int, turn: TurnData, hold: Hold | None
    ) -> None:
        pieces = list(deltas(turn, number))
        place = {"start": 0, "middle": 1, "end": len(pieces)}[turn.wait_at]
        if place == 0:
            app.wait(turn, hold, self.connection)
        if not pieces and turn.failure is not None:
            self._fail(turn)
            return
        self._begin()
        for i, delta in enumerate(pieces, 1):
            self._event(chunk(body, number, delta))
            if i == place:
                app.wait(turn, hold, self.connection)
        self._end(app, body, number, turn)

    def _end(self, app: StrictChatServer, body: dict[str, Any], number: int, turn: TurnData) -> None:
        if turn.disconnect:
            self._cut()
            return
        if turn.hang:
            app.hang(self.connection)
        if (failure := turn.failure) is not None:
            self._event({"error": {"message": failure.message or failure.code, "code": failure.code}})
        elif not turn.torn:
            self._event(chunk(body, number, {}, finish(turn)))
            if turn.usage is not None:
                self._event({**chunk(body, number, {}), "choices": [], "usage": usage(turn)})
            self._send(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _whole(self, body: dict[str, Any], number: int, turn: TurnData) -> None:
        if turn.failure is not None:
            self._fail(turn)
        elif turn.disconnect or turn.torn or turn.hang:
            self._cut()
        else:
            message: dict[str, Any] = {"role": "assistant", "content": turn.text}
            if turn.calls:
                message["tool_calls"] = [call(i, number, made, made.text) for i, made in enumerate(turn.calls)]
            choice = {"index": 0, "message": message, "finish_reason": finish(turn)}
            self._json(200, {**chunk(body, number, {}), "object": "chat.completion", "choices": [choice]})

    def _fail(self, turn: TurnData) -> None:
        failure = turn.failure
        assert failure is not None
        status = failure.status or (429 if failure.code == "RATE_LIMIT" else 500)
        after = {} if failure.retry_after_s is None else {"Retry-After": f"{failure.retry_after_s:g}"}
        self._error(status, Refusal(failure.message or failure.code, code=failure.code), after)

    def _error(self, status: int, why: Refusal, headers: dict[str, str] | None = None) -> None:
        kind = "invalid_request_error" if status < 429 else "server_error"
        error = {"message": why.message, "type": kind, "param": why.param, "code": why.code}
        self._json(status, {"error": error}, headers)

    def _json(self, status: int, data: Any, headers: dict[str, str] | None = None) -> None:
        text = json.dumps(data).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _begin(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _event(self, data: Any) -> None:
        self._send(b"data: " + json.dumps(data).encode() + b"\n\n")

    def _send(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _cut(self) -> None:
        """Drop the connection in the middle of the answer."""
        self.close_connection = True
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is gone already


def main(argv: list[str] | None = None) -> None:
    """Serve a script until the process is stopped; the first line of output is the port."""
    parser = argparse.ArgumentParser(prog="python -m checkrein.testing.strict_server", description=main.__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--script", required=True, help="a .toml or .json file, see checkrein.testing.script_data")
    parser.add_argument("--record", help="append each request body to this file")
    options = parser.parse_args(argv)
    with StrictChatServer.of(load_script(options.script), port=options.port, record=options.record) as server:
        sys.stdout.write(f"{server.port}\n")
        sys.stdout.flush()
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            pass  # the way to stop it


if __name__ == "__main__":
    main()
