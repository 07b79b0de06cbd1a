"""`checkrein check`: exit codes, what it shows, and the golden logs in tests/data/logs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from checkrein.codec import encode, seal
from checkrein.events import AnyEvent, LogGap, StepEnd
from checkrein_invariants.builder import LogBuilder
from checkrein_invariants.cli import check
from checkrein_invariants.samples import SAMPLES, everything, interrupted, one_turn

GOLDEN = Path(__file__).parents[1] / "data" / "logs"


def stored(events: list[AnyEvent]) -> bytes:
    return b"".join(seal(encode(event)) + b"\n" for event in events)


def run(*arguments: str | Path, data: bytes | None = None) -> Result:
    return CliRunner().invoke(check, [str(argument) for argument in arguments], input=data)


def write(folder: Path, data: bytes, name: str = "log.jsonl") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", SAMPLES)
def test_L5_golden_logs_are_what_the_codec_writes(name: str) -> None:
    """A changed byte here is a changed format: then the samples are written anew (`python tests/invariants/...`)."""
    assert (GOLDEN / f"{name}.jsonl").read_bytes() == stored(SAMPLES[name]().events)


@pytest.mark.parametrize("name", SAMPLES)
def test_golden_logs_are_balanced(name: str) -> None:
    result = run("--deep", GOLDEN / f"{name}.jsonl")
    assert result.exit_code == 0, result.output


def test_a_balanced_log_is_0() -> None:
    result = run(GOLDEN / "everything.jsonl")
    assert result.exit_code == 0
    assert result.output.endswith("session log, 68 events, 0 findings: balanced\n")


def test_a_session_folder_and_standard_input(tmp_path: Path) -> None:
    write(tmp_path, stored(one_turn().events))
    assert run(tmp_path).exit_code == 0
    assert run("-", data=stored(one_turn().events)).exit_code == 0


def test_a_broken_log_is_8_and_shows_event_line_and_rule(tmp_path: Path) -> None:
    log = one_turn()
    (seq,) = (event.seq for event in log.events if isinstance(event, StepEnd))
    log.change(seq, step=4)
    result = run(write(tmp_path, stored(log.events)))
    assert result.exit_code == 8
    assert f"log.jsonl:{seq + 1}: O5 error: step/end names step 4 inside step 1" in result.output
    assert "rule: events of a turn or step lie inside it and name it" in result.output
    assert f'line {seq + 1}: {{"type":"step/end","seq":{seq}' in result.output
    assert "NOT balanced" in result.output


def test_json_says_the_same(tmp_path: Path) -> None:
    log = one_turn()
    log.change(len(log.events) - 1, steps=9)
    result = run("--json", write(tmp_path, stored(log.events)), GOLDEN / "one_turn.jsonl", tmp_path / "none")
    broken, good, none = (json.loads(line) for line in result.output.splitlines())
    assert result.exit_code == 9
    assert broken["balanced"] is False and broken["findings"][0]["rule"] == "O4"
    assert broken["findings"][0]["line"] == len(log.events)
    assert good["balanced"] is True and good["findings"] == []
    assert none["kind"] == "unreadable" and "No such file" in none["problem"]


def test_R2_an_interrupted_log_is_0_and_says_so(tmp_path: Path) -> None:
    path = write(tmp_path, stored(interrupted().events))
    result = run(path)
    assert result.exit_code == 0
    assert "interrupted in turn 1: it will be closed at the next open" in result.output
    assert run("--strict", path).exit_code == 8


def test_R1_a_torn_tail_is_0_and_says_so(tmp_path: Path) -> None:
    path = write(tmp_path, stored(one_turn().events) + b'{"type":"turn/st')
    result = run(path)
    assert result.exit_code == 0
    assert "the last 16 bytes are torn" in result.output
    assert run("--strict", path).exit_code == 8


def test_R1_a_last_event_without_newline_is_whole(tmp_path: Path) -> None:
    assert run("--strict", write(tmp_path, stored(one_turn().events)[:-1])).exit_code == 0


def test_R1_a_changed_byte_is_8_until_a_gap_names_it(tmp_path: Path) -> None:
    log = one_turn().simple_turn()
    lines = stored(log.events).splitlines(keepends=True)
    lines[3] = lines[3].replace(b"hello", b"jello")
    result = run(write(tmp_path, b"".join(lines)))
    assert result.exit_code == 8
    assert "O1 error: expected seq 3, got 4, and no log/gap names it" in result.output
    log.add(LogGap, after=2, before=4, skipped_bytes=len(lines[3]))
    lines += [stored(log.events[-1:])]
    result = run(write(tmp_path, b"".join(lines)))
    assert result.exit_code == 0, result.output
    assert run("--deep", tmp_path).exit_code == 0


@pytest.mark.parametrize("data", [b"", b"\x00\xff" * 50, b"not a log\n", b'{"type":"x","seq":0,"time":0}\n'])
def test_what_holds_no_event_is_9(tmp_path: Path, data: bytes) -> None:
    result = run(write(tmp_path, data))
    assert result.exit_code == 9
    assert "unreadable" in result.output


def test_a_folder_that_is_no_sessions_is_9_and_says_what_to_name(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.exit_code == 9 and "a folder without a log.jsonl; name a session's folder" in result.output


def test_O16_deep_rebuilds_each_request(tmp_path: Path) -> None:
    log = one_turn()
    (seq,) = (event.seq for event in log.events if event.type == "request/start")
    log.change(seq, digest="0" * 64)
    path = write(tmp_path, stored(log.events))
    assert run(path).exit_code == 0
    result = run("--deep", path)
    assert result.exit_code == 8
    assert "O16 error: the log gives a request of digest" in result.output


def test_warnings_are_shown_and_only_strict_counts_them(tmp_path: Path) -> None:
    log = everything()
    seq = [event.seq for event in log.events if event.type == "request/start"][2]
    log.change(seq, messages=1)
    path = write(tmp_path, stored(log.events))
    result = run(path)
    assert result.exit_code == 0
    assert "O26 warning" in result.output
    assert run("--strict", path).exit_code == 8


def test_what_a_log_says_cannot_drive_the_terminal(tmp_path: Path) -> None:
    log = LogBuilder()
    log.discard("i9\x1b[2J\u202e")
    result = run(write(tmp_path, stored(log.events)))
    assert result.exit_code == 8
    assert "\x1b" not in result.output and "\u202e" not in result.output
    assert "\\x1b[2J" in result.output
    named = tmp_path / "evil\x1b[2J.jsonl"
    for data in (stored(log.events), b""):
        named.write_bytes(data)
        result = run(named)
        assert "evil\\x1b[2J" in result.output and "\x1b" not in result.output


CHAT = [
    {"role": "user", "content": "hi"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "a", "content": "text"},
    {"role": "assistant", "content": "done"},
]


def test_transcripts_of_other_agents_are_checked_by_line(tmp_path: Path) -> None:
    rows = [json.dumps(row) for row in CHAT]
    good = write(tmp_path, "\n".join(rows).encode(), "good.jsonl")
    result = run(good)
    assert result.exit_code == 0, result.output
    assert "openai-chat, 4 messages, 0 findings: balanced" in result.output
    broken = write(tmp_path, "\n".join([*rows[:2], rows[3]]).encode(), "broken.jsonl")
    result = run(broken)
    assert result.exit_code == 8
    assert "broken.jsonl:2: orphan call error:" in result.output
    assert '    line 2: {"role": "assistant"' in result.output
    said = json.loads(run("--json", broken).output)
    assert (said["kind"], said["findings"][0]["line"]) == ("openai-chat", 2)


def test_findings_are_bounded(tmp_path: Path) -> None:
    log = LogBuilder()
    for _ in range(1_200):
        log.partial()
    result = run(write(tmp_path, stored(log.events)))
    assert result.exit_code == 8
    assert "200 more findings are not shown" in result.output


def test_the_installed_command_finds_it(tmp_path: Path) -> None:
    path = write(tmp_path, stored(one_turn().events)[:-60])
    code = "import sys; from checkrein.cli import main; sys.argv = ['checkrein', *sys.argv[1:]]; main()"
    for arguments, expected in (([], 0), (["--strict"], 8)):
        command = [sys.executable, "-c", code, "check", *arguments, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (expected, ""), done.stdout


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for name, make in SAMPLES.items():
        (GOLDEN / f"{name}.jsonl").write_bytes(stored(make().events))
