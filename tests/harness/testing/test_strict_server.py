"""The strict chat server, through real HTTP."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from checkrein.testing import Hold, StrictChatServer, hold, parse_script
from checkrein.testing.strict_history import refusal

USER = {"role": "user", "content": "hi"}


def calls(*ids, arguments="{}"):
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": call_id, "type": "function", "function": {"name": "add", "arguments": arguments}} for call_id in ids
        ],
    }


def result(call_id, content="3"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def post(port, messages=(USER,), *, stream=True, headers=None, path="/v1/chat/completions", body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    sent = json.dumps({"model": "m", "messages": list(messages), "stream": stream}) if body is None else body
    connection.request("POST", path, sent, headers or {})
    return connection, connection.getresponse()


def ask(server, *messages, **options):
    port = server if isinstance(server, int) else server.port
    connection, response = post(port, messages or (USER,), **options)
    try:
        return response.status, response.read()
    finally:
        connection.close()


def frames(data):
    lines = [line[6:] for line in data.decode().split("\n\n") if line]
    return [json.loads(line) if line != "[DONE]" else line for line in lines]


def deltas(data):
    return [f["choices"][0]["delta"] for f in frames(data) if f != "[DONE]" and f.get("choices")]


def test_an_answer_is_streamed_in_openais_frames():
    turn = {
        "thinking": "hm",
        "text": "sunny",
        "pieces": 2,
        "usage": {"input": 2, "cache_read": 3, "output": 4, "reasoning": 1},
    }
    with StrictChatServer(turn) as server:
        status, data = ask(server)
    *_, finish, usage, done = frames(data)

    assert status == 200
    assert deltas(data)[:4] == [
        {"reasoning_content": "h"},
        {"reasoning_content": "m"},
        {"content": "su"},
        {"content": "nny"},
    ]
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert usage["choices"] == []
    assert usage["usage"]["prompt_tokens"] == 5
    assert usage["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}
    assert usage["usage"]["completion_tokens_details"] == {"reasoning_tokens": 1}
    assert done == "[DONE]"
    assert server.requests[0]["messages"] == [USER]


def test_calls_are_streamed_and_their_results_taken():
    turn = {"calls": [{"name": "add", "arguments": {"a": 1}}, {"name": "add", "id": "mine"}], "pieces": 2}
    with StrictChatServer(turn, "done") as server:
        _, data = ask(server)
        status, _ = ask(server, USER, calls("call_1_1", "mine"), result("call_1_1"), result("mine"))
        exhausted = ask(server)
    made = [piece for delta in deltas(data) for piece in delta.get("tool_calls", ())]

    assert [(piece["index"], piece.get("id"), piece["function"]["arguments"]) for piece in made] == [
        (0, "call_1_1", '{"a'),
        (0, None, '":1}'),
        (1, "mine", "{"),
        (1, None, "}"),
    ]
    assert frames(data)[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert status == 200
    assert server.refusals == []
    assert exhausted[0] == 400
    assert b"script_exhausted" in exhausted[1]


def test_without_stream_the_answer_comes_whole():
    with StrictChatServer({"text": "a", "calls": [{"name": "add"}]}) as server:
        status, data = ask(server, stream=False)
    choice = json.loads(data)["choices"][0]

    assert status == 200
    assert choice["message"]["content"] == "a"
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "add", "arguments": "{}"}
    assert choice["finish_reason"] == "tool_calls"


GOOD = [
    [USER],
    [{"role": "system", "content": "s"}, USER],
    [USER, calls("a", "b"), result("a"), result("b", "")],
    [USER, calls("a"), result("a"), USER, calls("b"), result("b")],
    [USER, {**calls("a"), "content": ""}, result("a")],
    [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]}],
]
NO_RESPONSE = "must be followed by tool messages responding to each 'tool_call_id'"
NO_CALL = "must be a response to a preceeding message with 'tool_calls'"
BAD = [
    ([USER, calls("a")], f"{NO_RESPONSE}. The following tool_call_ids did not have response messages: a"),
    ([USER, calls("a", "b"), result("a")], "did not have response messages: b"),
    ([USER, calls("a"), USER, result("a")], NO_RESPONSE),
    ([USER, result("a")], NO_CALL),
    ([USER, calls("a"), result("a"), result("a")], NO_CALL),
    ([USER, calls("a", "b"), result("a"), result("a")], "Duplicate value for 'tool_call_id' of 'a'"),
    ([USER, calls("a"), result("a"), calls("a"), result("a")], "Duplicate value for 'tool_call_id' of 'a'"),
    ([USER, calls("a", "b"), result("b"), result("a")], "out of order"),
    ([USER, calls("a"), result("x")], NO_CALL),
    ([USER, calls("a", arguments="[1]"), result("a")], "expected a JSON object"),
    ([USER, calls("a", arguments='{"a":'), result("a")], "expected a JSON object"),
    ([USER, calls("a", arguments='{"a":' * 100_000), result("a")], "expected a JSON object"),
    ([USER, calls("a", arguments={"a": 1}), result("a")], "expected a string, but got an object"),
    ([USER, calls("x" * 41), result("x" * 41)], "maximum length 40"),
    ([USER, calls(""), result("")], "Missing required parameter: 'messages[1].tool_calls[0].id'"),
    ([{"role": "user", "content": ""}], "Invalid 'messages[0].content': empty string"),
    ([{"role": "user", "content": []}], "Invalid 'messages[0].content': empty array"),
    ([{"role": "user", "content": [{"type": "text", "text": ""}]}], "messages[0].content[0].text"),
    ([{"role": "user", "content": None}], "expected a string, got null"),
    ([USER, {"role": "assistant", "content": None}, USER], "expected a string, got null"),
    ([USER, {"role": "assistant", "content": "a", "tool_calls": []}, USER], "tool_calls': empty array"),
    ([USER, {"role": "tool", "content": "a"}], "Missing required parameter: 'messages[1].tool_call_id'"),
    ([USER, {"role": "robot", "content": "a"}], "Invalid value: 'robot'"),
    ([USER, {"role": "assistant", "content": "a"}], "Expected last role User or Tool"),
    ([{"role": "assistant", "content": "a"}, USER], "must have role 'user'"),
    ([], "Invalid 'messages': empty array"),
]


@pytest.mark.parametrize("messages", GOOD)
def test_a_balanced_history_is_taken(messages):
    assert refusal({"model": "m", "messages": messages}) is None


@pytest.mark.parametrize(("messages", "words"), BAD)
def test_an_unbalanced_history_is_refused_in_openais_words(messages, words):
    found = refusal({"model": "m", "messages": messages})
    assert found is not None
    assert words in found.message


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([], "could not parse"),
        ({"messages": [USER]}, "you must provide a model"),
        ({"model": "m"}, "Missing required parameter: 'messages'"),
        ({"model": "m", "messages": {}}, "expected an array of objects, but got an object"),
        ({"model": "m", "messages": [USER], "tools": []}, "Invalid 'tools': empty array"),
        (
            {"model": "m", "messages": [USER], "tools": [{"type": "function", "function": {"name": "a b"}}]},
            "does not match pattern",
        ),
        (
            {
                "model": "m",
                "messages": [USER],
                "tools": [{"type": "function", "function": {"name": "a", "parameters": {"type": "array"}}}],
            },
            "Invalid schema for function 'a'",
        ),
        ({"model": "m", "messages": [USER], "tools": [{"function": {"name": "a"}}] * 2}, "must be unique"),
    ],
)
def test_a_bad_body_is_refused(body, words):
    assert words in refusal(body).message


def test_a_refusal_is_status_400_and_plays_no_answer():
    with StrictChatServer("a") as server:
        status, data = ask(server, USER, calls("a"))
        error = json.loads(data)["error"]
        good, _ = ask(server)
        broken, _ = ask(server, body="{")
        deep, _ = ask(server, body='{"a":' * 100_000)
        lost, _ = ask(server, path="/v1/other")

    assert (status, good, broken, deep, lost) == (400, 200, 400, 400, 404)
    assert error["type"] == "invalid_request_error"
    assert error["param"] == "messages.[2].role"
    assert [found.message for found in server.refusals] == [error["message"]]


def test_a_wrong_key_is_refused():
    with StrictChatServer("a", api_key="k") as server:
        wrong, data = ask(server, headers={"Authorization": "Bearer x"})
        right, _ = ask(server, headers={"Authorization": "Bearer k"})
    assert (wrong, right) == (401, 200)
    assert b"invalid_api_key" in data


def test_failures_have_their_status_and_retry_after():
    turns = [{"error": {"code": "RATE_LIMIT", "retry_after_s": 2}}, {"error": "X"}, {"error": {"status": 503}}]
    with StrictChatServer(*turns) as server:
        connection, response = post(server.port)
        response.read()
        connection.close()
        assert (response.status, response.headers["Retry-After"]) == (429, "2")
        assert ask(server)[0] == 500
        assert ask(server, stream=False)[0] == 503


def test_a_failure_behind_the_first_chunk_comes_in_the_stream():
    with StrictChatServer({"text": "a", "error": "OVERLOADED"}) as server:
        status, data = ask(server)
    assert status == 200
    assert frames(data)[-1]["error"]["code"] == "OVERLOADED"


def test_a_torn_stream_has_no_terminal_frame_and_a_cut_one_no_end():
    with StrictChatServer({"text": "a", "torn": True}, {"text": "a", "disconnect": True}) as server:
        _, data = ask(server)
        assert deltas(data) == [{"content": "a"}]
        with pytest.raises(http.client.IncompleteRead):
            ask(server)


def test_a_stream_is_held_by_an_event():
    hold = Hold({"text": "abcd", "pieces": 2, "wait_at": "middle"})
    with StrictChatServer(hold) as server:
        connection, response = post(server.port)
        assert hold.reached.wait(20)
        head = response.readline()
        hold.release.set()
        rest = response.read()
        connection.close()
    assert json.loads(head[6:])["choices"][0]["delta"] == {"content": "ab"}
    assert b'"cd"' in rest


def test_a_stream_is_held_by_a_file(tmp_path):
    gate = tmp_path / "go"
    with StrictChatServer({"text": "a", "wait_file": str(gate)}) as server:
        got = []
        thread = threading.Thread(target=lambda: got.append(ask(server)))
        thread.start()
        until(lambda: (tmp_path / "go.waiting").exists())
        assert got == []
        gate.touch()
        thread.join(20)
    assert got[0][0] == 200


def until(done):
    """Wait for a real thread or process, at most 20 s."""
    end = time.monotonic() + 20
    while not done():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_client_that_leaves_is_noticed():
    with StrictChatServer({"text": "a", "hang": True}) as server:
        connection, response = post(server.port)
        response.readline()
        response.close()
        connection.close()
        until(lambda: server.disconnects)
    assert server.disconnects == 1


def test_closing_cuts_open_streams_and_leaves_no_thread():
    before = set(threading.enumerate())
    server = StrictChatServer({"text": "a", "hang": True})
    with server:
        connection, response = post(server.port)
        response.readline()
    with pytest.raises((http.client.HTTPException, OSError)):
        response.read()
    connection.close()
    server.close()
    until(lambda: set(threading.enumerate()) <= before)


def test_the_last_answer_may_repeat():
    with StrictChatServer("a", {"text": "b", "repeat": True}) as server:
        assert [deltas(ask(server)[1])[0]["content"] for _ in range(4)] == ["a", "b", "b", "b"]
    with StrictChatServer.of(parse_script({"turns": ["a", "b"], "repeat": True})) as server:
        assert [deltas(ask(server)[1])[0]["content"] for _ in range(4)] == ["a", "b", "a", "b"]


def test_it_runs_as_a_process_and_prints_its_port(tmp_path):
    script, record = tmp_path / "s.json", tmp_path / "requests.jsonl"
    script.write_text('["hello"]')
    command = [sys.executable, "-m", "checkrein.testing.strict_server", "--script", script, "--record", record]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        status, data = ask(int(process.stdout.readline()))
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        process.stdout.close()
    assert status == 200
    assert b"hello" in data
    assert json.loads(record.read_text())["messages"] == [USER]


def test_an_agent_keeps_a_strict_server_content(monkeypatch, run):
    from checkrein import Agent, tool

    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    turns = [
        {"thinking": "hm", "calls": [{"name": "add", "arguments": {"a": 1, "b": 2}}, {"name": "nope"}], "pieces": 2},
        {"calls": [{"name": "add", "raw": '{"a": 1'}]},
        {"text": "done", "usage": {"input": 5, "output": 1}},
    ]
    with StrictChatServer(*turns, api_key="k") as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "k")

        async def main():
            with hold():
                async with Agent("openai:m", tools=[add]) as agent:
                    return await agent.run("1 + 2?")

        result = run(main)
    assert result.check().text == "done"
    assert server.refusals == []
    assert server.remaining == 0
    sent = server.requests[1]["messages"]
    assert [message["role"] for message in sent[-3:]] == ["assistant", "tool", "tool"]
