"""`checkrein repair FILE OUT`: transcripts of others, made whole."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from checkrein.cli.repair import repair
from checkrein.transcripts import check

BROKEN = [
    {"role": "user", "content": "hi"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
    {"role": "user", "content": "and now?"},
]


def test_an_orphan_call_is_answered_in_the_copy(tmp_path: Path) -> None:
    """The copy passes the check, the original stays, and each change is told."""
    file, out = tmp_path / "chat.json", tmp_path / "whole.json"
    file.write_text(json.dumps(BROKEN))
    done = CliRunner().invoke(repair, [str(file), str(out)])
    assert done.exit_code == 0, done.output
    assert "1 change" in done.output
    assert not check(file).ok
    assert check(out).ok
    again = CliRunner().invoke(repair, [str(out), str(tmp_path / "third.json"), "--json"])
    assert json.loads(again.output)["changes"] == []


def test_what_is_no_transcript_or_would_be_overwritten_is_refused(tmp_path: Path) -> None:
    """Exit code 9, one line, nothing written."""
    file, out = tmp_path / "notes.txt", tmp_path / "out.json"
    file.write_text("not a transcript")
    done = CliRunner().invoke(repair, [str(file), str(out)])
    assert done.exit_code == 9
    assert not out.exists()
    file.write_text(json.dumps(BROKEN))
    out.write_text("mine")
    assert CliRunner().invoke(repair, [str(file), str(out)]).exit_code == 9
    assert out.read_text() == "mine"


def test_a_change_obeys_nothing_that_the_transcript_says(tmp_path: Path) -> None:
    """An id with a terminal's control sequence in it is written out."""
    file = tmp_path / "chat.json"
    file.write_text(json.dumps(BROKEN).replace("c1", r"\u001b[2J"))
    done = CliRunner().invoke(repair, [str(file), str(tmp_path / "out.json")], color=True)
    assert done.exit_code == 0 and "answered \\x1b[2J with" in done.output and "\x1b" not in done.output
