"""Signals in the middle of things (C1, C8), and going on afterwards, through the openai plugin and a strict server."""

from __future__ import annotations

import signal

import pytest

from checkrein.testing import StrictChatServer

FREE = '[plugins.permissions]\nmode = "allow"\n'


def begun(process, tool):
    """Read standard error until a tool says that it has begun."""
    for line in process.stderr:
        if f"{tool} has begun" in line.decode():
            return
    raise AssertionError(f"{tool} never began")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_P21_T11_signal_in_mid_tool_then_continue(cli, signum):
    cli.config('model = "openai:gpt-test"\n' + FREE)
    with StrictChatServer({"text": "Let me.", "calls": [{"name": "slow"}]}, "It goes on.") as server:
        cli.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "test"}
        process = cli.start("run", "start")
        begun(process, "slow")
        process.send_signal(signum)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out) == (130, b"")
        assert "cancelled by signal" in err.decode()
        assert "oracle: balanced" in err.decode()
        done = cli.run("run", "--continue", "and now?")
        assert (done.code, done.out) == (0, "It goes on.\n"), done.err
    assert server.refusals == []
    roles = [message["role"] for message in server.requests[-1]["messages"]]
    assert roles == ["user", "assistant", "tool", "user"]
    assert "outcome is unknown" in server.requests[-1]["messages"][2]["content"]
    assert [event["turn"] for event in cli.events() if event["type"] == "turn/end"] == [1, 2]


def test_P04_cancel_while_a_call_streams_then_continue(cli):
    cli.config('model = "openai:gpt-test"\n' + FREE)
    half = {"text": "Once", "wait_file": str(cli.folder / "never"), "wait_at": "middle"}
    with StrictChatServer(half, "It goes on.") as server:
        cli.env |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "test"}
        process = cli.start("run", "--json", "tell me")
        next(line for line in process.stdout if b'"delta/text"' in line)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert process.returncode == 130
        done = cli.run("run", "--continue", "and now?")
        assert (done.code, done.out) == (0, "It goes on.\n"), done.err
    assert server.refusals == []
    assert [event["text"] for event in cli.events() if event["type"] == "assistant/partial"] == ["Once"]


def test_C1_thread_that_never_looks_up_does_not_hold_the_exit(cli):
    cli.script('{ calls = [{ name = "deaf" }] }', more=FREE)
    process = cli.start("run", "go")
    begun(process, "deaf")
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert [event["error"]["code"] for event in cli.events() if event["type"] == "tool/result"] == ["OUTCOME_UNKNOWN"]


STUCK = """
import sys, time
from checkrein import hookimpl

class Plugin:
    @hookimpl
    def step_result(self):
        sys.stderr.write("stuck has begun\\n")
        sys.stderr.flush()
        while True:
            time.sleep(0.01)
"""


def test_second_signal_ends_a_process_whose_loop_is_held(cli):
    cli.install("stuck", STUCK)
    cli.script('"never shown"')
    process = cli.start("run", "go")
    begun(process, "stuck")
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)  # two of one kind could arrive as one
    assert process.wait(30) == 130
    assert cli.events()[-1]["type"] == "request/start"  # what was flushed before the request is there
    (cli.site / "e2e_stuck.py").unlink()
    done = cli.run("run", "--no-plugin", "stuck", "--continue", "hi")
    assert (done.code, done.out) == (0, "never shown\n"), done.err
    assert [event["reason"]["kind"] for event in cli.events() if event["type"] == "turn/end"] == [
        "interrupted",
        "completed",
    ]


SLEEPY = """
from contextlib import asynccontextmanager
import sys
import anyio
from checkrein import hookimpl

class Plugin:
    @hookimpl
    @asynccontextmanager
    async def lifespan(self, harness):
        sys.stderr.write("lifespan has begun\\n")
        sys.stderr.flush()
        await anyio.sleep_forever()
        yield
"""


def test_C8_signal_while_it_starts_leaves_nothing_behind(cli):
    cli.install("sleepy", SLEEPY)
    cli.script('"never"')
    process = cli.start("run", "go")
    begun(process, "lifespan")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, b""), err
    assert b"Traceback" not in err
    assert cli.logs == []


def test_D10_R3_a_session_in_use_is_refused_not_shared(cli):
    cli.script('{ calls = [{ name = "slow" }] }', more=FREE)
    process = cli.start("run", "go")
    begun(process, "slow")
    done = cli.run("run", "--continue", "me too")
    assert (done.code, done.out) == (1, "")
    assert f"process {process.pid}" in done.err
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
