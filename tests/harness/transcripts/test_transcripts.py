"""Transcripts of other agents: clean ones are clean, faults are named by line, copies are balanced (issue 4)."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checkrein.testing.strict_history import refusal
from checkrein.transcripts import TranscriptError, chat_messages, check, check_bytes, formats, register, repair
from checkrein.transcripts.document import parse

DATA = Path(__file__).parents[2] / "data" / "transcripts"
SAMPLES = {
    "openai-chat.json": "openai-chat",
    "openai-chat.jsonl": "openai-chat",
    "anthropic-messages.json": "anthropic-messages",
    "dsh.jsonl": "dsh",
    "ph.jsonl": "ph",
    "bub.jsonl": "bub",
}
LINES = ("openai-chat.jsonl", "dsh.jsonl", "ph.jsonl", "bub.jsonl")


def strict(path: Path) -> Any:
    """What a strict server says to the transcript's messages, put so that it is asked for an answer."""
    messages = [*chat_messages(path)]
    while messages and messages[0]["role"] == "assistant":
        messages.insert(0, {"role": "user", "content": "begin"})
    return refusal({"model": "m", "messages": [*messages, {"role": "user", "content": "go on"}]})


def repaired(path: Path, tmp_path: Path) -> Path:
    """Repair a file and check the copy in every way."""
    out = tmp_path / "out" / f"{len(list((tmp_path / 'out').glob('*')))}{path.suffix}"
    before = path.read_bytes()
    report = repair(path, out)
    assert path.read_bytes() == before, "the original was touched"
    again = check(out, format=report.format)
    assert again.ok, again.problems
    assert not strict(out), strict(out)
    if report.ok:
        assert not report.changes
    else:
        assert report.changes
    if report.ok and path.suffix == ".jsonl":
        assert out.read_bytes() == before
    return out


@pytest.fixture(autouse=True)
def _out(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()


# --- clean samples -------------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_clean_transcript_is_known_and_has_nothing_wrong(sample: str, tmp_path: Path) -> None:
    report = check(DATA / sample)
    assert report.format == SAMPLES[sample]
    assert report.ok, report.problems
    repaired(DATA / sample, tmp_path)


# --- one fault at a time -------------------------------------------------------------------------------


def rows(sample: str) -> list[dict[str, Any]]:
    return [row.value for row in parse((DATA / sample).read_bytes()).rows]


def written(tmp_path: Path, values: list[Any]) -> Path:
    path = tmp_path / "broken.jsonl"
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def without(values: list[Any], *lines: int) -> list[Any]:
    return [value for line, value in enumerate(values, 1) if line not in lines]


OPENAI: dict[str, tuple[Callable[[list[Any]], list[Any]], list[tuple[int, str]]]] = {
    "a call without its result": (lambda v: without(v, 5), [(3, "orphan call")]),
    "no results at all": (lambda v: without(v, 4, 5), [(3, "orphan call"), (3, "orphan call")]),
    "cut behind the calls": (lambda v: v[:8], [(8, "orphan call")]),
    "a result without its call": (lambda v: without(v, 8), [(8, "orphan result")]),
    "a result twice": (lambda v: [*v[:5], v[3], *v[5:]], [(6, "duplicate result")]),
    "a result behind the next message": (lambda v: [*v[:4], v[5], v[4], *v[6:]], [(6, "wrong order")]),
    "results in another order": (lambda v: [*v[:3], v[4], v[3], *v[5:]], [(4, "wrong order")]),
    "a user between call and result": (
        lambda v: [*v[:3], v[6], *v[3:6], *v[7:]],
        [(5, "wrong order"), (6, "wrong order")],
    ),
    "no id": (
        lambda v: _set(v, 7, "tool_calls", 0, "id", ""),
        [(8, "missing id"), (9, "orphan result"), (8, "orphan call")],
    ),
    "a result without id": (lambda v: _set(v, 8, "tool_call_id", None), [(9, "missing id")]),
    "an id twice": (
        lambda v: _set(_set(v, 7, "tool_calls", 0, "id", "call_a"), 8, "tool_call_id", "call_a"),
        [(8, "duplicate id")],
    ),
    "ids that are numbers": (
        lambda v: _set(_set(v, 7, "tool_calls", 0, "id", 7), 8, "tool_call_id", 7),
        [(8, "type"), (9, "type")],
    ),
    "arguments that are an object": (
        lambda v: _set(v, 7, "tool_calls", 0, "function", "arguments", {"city": "Oslo"}),
        [(8, "type")],
    ),
    "half arguments": (
        lambda v: _set(v, 7, "tool_calls", 0, "function", "arguments", '{"city": "Os'),
        [(8, "arguments")],
    ),
}


def _set(values: list[Any], index: int, *path: Any) -> list[Any]:
    copy: list[Any] = json.loads(json.dumps(values))
    place = copy[index]
    for name in path[:-2]:
        place = place[name]
    place[path[-2]] = path[-1]
    return copy


@pytest.mark.parametrize("fault", OPENAI)
def test_openai_faults_are_named_with_their_line_and_repaired(fault: str, tmp_path: Path) -> None:
    change, expected = OPENAI[fault]
    path = written(tmp_path, change(rows("openai-chat.jsonl")))
    report = check(path)
    assert sorted((problem.line, problem.kind) for problem in report.problems) == sorted(expected)
    repaired(path, tmp_path)


def test_lines_are_those_of_the_file_also_in_a_json_array(tmp_path: Path) -> None:
    messages = without(rows("openai-chat.json"), 5)
    path = tmp_path / "broken.json"
    path.write_text(json.dumps({"model": "m", "messages": messages, "note": {"messages": []}}, indent=4))
    (problem,) = check(path).problems
    assert path.read_text().split("\n")[problem.line - 1].strip() == "{"
    assert '"assistant"' in path.read_text().split("\n")[problem.line]
    out = repaired(path, tmp_path)
    assert json.loads(out.read_text())["note"] == {"messages": []}


def test_anthropic_results_go_into_the_users_message(tmp_path: Path) -> None:
    messages = rows("anthropic-messages.json")
    messages[2]["content"] = messages[2]["content"][1:]
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(messages))
    report = check(path)
    assert [(problem.kind, "toolu_1" in problem.message) for problem in report.problems] == [("orphan call", True)]
    out = json.loads(repaired(path, tmp_path).read_text())
    content = out[2]["content"]
    assert [block["type"] for block in content] == ["tool_result", "tool_result", "text"]
    assert [block.get("tool_use_id") for block in content[:2]] == ["toolu_1", "toolu_2"]
    assert out[1]["content"][0]["signature"] == "c2ln", "opaque data is not touched"


def test_anthropic_cut_behind_a_call(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(rows("anthropic-messages.json")[:6]))
    assert [problem.kind for problem in check(path).problems] == ["orphan call"]
    assert json.loads(repaired(path, tmp_path).read_text())[-1]["content"][0]["is_error"] is True


@pytest.mark.parametrize("sample", ["dsh.jsonl", "ph.jsonl"])
def test_a_session_log_stopped_in_mid_tool(sample: str, tmp_path: Path) -> None:
    """Stopped by a signal while a tool ran: the call has no result, and every resume would be refused."""
    values = rows(sample)
    result = max(n for n, value in enumerate(values) if value["type"] == "tool/result")
    path = written(tmp_path, without(values, result + 1))
    report = check(path)
    assert {problem.kind for problem in report.problems} == {"orphan call", "numbering"}
    out = repaired(path, tmp_path)
    seqs = [value["seq"] for value in map(json.loads, out.read_text().splitlines()) if "seq" in value]
    assert seqs == list(range(len(seqs)))


@pytest.mark.parametrize("sample", ["dsh.jsonl", "ph.jsonl"])
def test_a_session_log_cut_in_a_turn_is_closed(sample: str, tmp_path: Path) -> None:
    values = rows(sample)
    cut = 1 + next(n for n, value in enumerate(values) if value["type"] == "tool/call")
    path = written(tmp_path, values[:cut])
    path.write_bytes(path.read_bytes() + b'{"type":"tool/res')
    assert {problem.kind for problem in check(path).problems} == {"orphan call", "open turn", "unreadable"}
    types = [json.loads(line)["type"] for line in repaired(path, tmp_path).read_text().splitlines()]
    assert types[-4:] == ["tool/result", "tool/result", "step/end", "turn/end"]


def test_case_D16_a_log_whose_numbers_step_back_is_numbered_again(tmp_path: Path) -> None:
    values = rows("ph.jsonl")
    for value in values[9:]:
        value["seq"] -= 4
    path = written(tmp_path, values)
    assert [(problem.line, problem.kind) for problem in check(path).problems] == [(10, "numbering")]
    repaired(path, tmp_path)


def test_bub_results_answer_by_place(tmp_path: Path) -> None:
    values = rows("bub.jsonl")
    values[5]["payload"]["results"] = ["a b"]
    path = written(tmp_path, values)
    assert [(problem.line, problem.kind) for problem in check(path).problems] == [(5, "orphan call")]
    out = [json.loads(line) for line in repaired(path, tmp_path).read_text().splitlines()]
    assert out[5]["payload"]["results"][0] == "a b" and len(out[5]["payload"]["results"]) == 2
    values[5]["payload"]["results"] = ["a b", "/home/user", "whose?"]
    assert [problem.kind for problem in check(written(tmp_path, values)).problems] == ["orphan result"]


def test_every_change_is_listed(tmp_path: Path) -> None:
    path = written(tmp_path, without(rows("openai-chat.jsonl"), 5))
    report = repair(path, tmp_path / "copy.jsonl")
    (change,) = report.changes
    assert change.line == 3 and "call_b" in change.message and report.out == tmp_path / "copy.jsonl"


# --- anything at all -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sample", SAMPLES)
def test_any_shuffle_of_a_transcript_is_repaired(sample: str, tmp_path: Path) -> None:
    chance = random.Random(sample)
    whole = rows(sample)
    for _ in range(60):
        values = json.loads(json.dumps(whole))
        for _ in range(chance.randint(1, 4)):
            what = chance.choice(("cut", "drop", "double", "swap", "ids"))
            n = chance.randrange(len(values))
            if what == "cut":
                values = values[: max(3, n)]
            elif what == "drop" and len(values) > 3:
                del values[n]
            elif what == "double":
                values.insert(chance.randrange(len(values)), json.loads(json.dumps(values[n])))
            elif what == "swap":
                other = chance.randrange(len(values))
                values[n], values[other] = values[other], values[n]
            else:
                old, new = chance.choice((("call_1", "call_2"), ("call_b", "call_a"), ("toolu_3", ""), ("c2", "c1")))
                values = json.loads(json.dumps(values).replace(old, new))
        path = tmp_path / f"broken{Path(sample).suffix}"
        if sample.endswith(".jsonl"):
            written(tmp_path, values)
        else:
            path.write_text(json.dumps(values))
        report = check(path, format=SAMPLES[sample])
        out = tmp_path / "out" / "copy"
        repair(path, out, format=SAMPLES[sample])
        again = check(out, format=SAMPLES[sample])
        assert again.ok, (report.problems, again.problems)
        assert not strict_or_empty(out, SAMPLES[sample]), (values, strict_or_empty(out, SAMPLES[sample]))
        out.unlink()


def strict_or_empty(path: Path, name: str) -> Any:
    messages = [{"role": "user", "content": "begin"}, *chat_messages(path, format=name)]
    return refusal({"model": "m", "messages": [*messages, {"role": "user", "content": "go on"}]})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "tool", "assistant", "c1", "tool_use", "{}"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "role",
                    "content",
                    "tool_calls",
                    "tool_call_id",
                    "id",
                    "function",
                    "name",
                    "arguments",
                    "type",
                    "input",
                    "data",
                    "message",
                    "seq",
                    "kind",
                    "payload",
                    "calls",
                    "results",
                    "callId",
                    "source",
                    "batch",
                    "sourceEventSeqs",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@given(st.lists(JSON, max_size=6), st.sampled_from(sorted(set(SAMPLES.values()))))
def test_no_json_is_an_exception(values: list[Any], name: str) -> None:
    known = formats()[name]
    data = b"".join(json.dumps(value).encode() + b"\n" for value in values)
    check_bytes("x", data, format=name)
    from checkrein.transcripts.balance import balance

    document = parse(data)
    assert all(0 <= each.fits(document) <= 1 for each in formats().values())
    items, _ = known.read(document)
    known.write(document, balance(items).items)


@given(st.binary(max_size=80))
def test_no_bytes_are_an_exception(data: bytes) -> None:
    try:
        check_bytes("x", data)
    except TranscriptError:
        pass


# --- the edges -----------------------------------------------------------------------------------------


def test_what_is_no_transcript_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello\n")
    with pytest.raises(TranscriptError, match="openai-chat"):
        check(path)
    with pytest.raises(TranscriptError, match="expected one of the formats"):
        check(path, format="telepathy")


def test_a_repair_overwrites_nothing(tmp_path: Path) -> None:
    sample = DATA / "bub.jsonl"
    for out in (sample, tmp_path / "taken"):
        (tmp_path / "taken").write_text("mine")
        with pytest.raises(TranscriptError, match="exists"):
            repair(sample, out)
    assert (tmp_path / "taken").read_text() == "mine"
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(TranscriptError, match="exists"):
        repair(sample, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()


def test_a_repair_removes_nobody_elses_file(tmp_path: Path) -> None:
    other = tmp_path / f".copy.{os.getpid()}"  # as of a repair in another thread
    other.write_text("mine")
    with pytest.raises(FileExistsError):
        repair(DATA / "bub.jsonl", tmp_path / "copy")
    assert other.read_text() == "mine" and not (tmp_path / "copy").exists()


def test_a_plugin_can_add_a_format(tmp_path: Path) -> None:
    from checkrein.transcripts import _FORMATS
    from checkrein.transcripts.openai_chat import OpenAIChat

    class Wrapped(OpenAIChat):
        name = "wrapped"

        def fits(self, document: Any) -> float:
            return 1.0

    register(Wrapped())
    try:
        assert check(DATA / "openai-chat.jsonl").format == "wrapped"
    finally:
        del _FORMATS["wrapped"]


def test_lone_surrogates_and_other_newlines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    lines = [json.dumps(value) for value in without(rows("openai-chat.jsonl"), 5)]
    lines[1] = '{"role":"user","content":"half \\ud83d emoji"}'
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n\r\n".join(lines).encode())
    (problem,) = check(path).problems
    assert (problem.kind, problem.line) == ("orphan call", 5)
    repaired(path, tmp_path)
