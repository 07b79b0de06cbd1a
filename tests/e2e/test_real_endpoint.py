"""`checkrein run` through checkrein_openai against a server nobody here wrote (PyPI `llmock`), on loopback."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("llmock", reason="the dev extra's llmock is not installed")


def test_one_turn_with_a_tool_call_streamed(cli, llmock):
    (cli.folder / "notes.txt").write_text("the treasure is under the oak\n")
    llmock.call_tool("read_file", {"path": "notes.txt"}).reply("It is under the oak.")
    cli.config('model = "openai:gpt-5-mini"\n')
    cli.env |= {name: os.environ[name] for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY")}
    done = cli.run("run", "Where is the treasure?")
    assert (done.code, done.out) == (0, "It is under the oak.\n"), done.err
    assert "result of read_file" in done.err and "the treasure is under the oak" in done.err
    assert "oracle: balanced" in done.err
    sent = llmock.last_request.body
    assert sent["stream"] is True
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "tool"]
