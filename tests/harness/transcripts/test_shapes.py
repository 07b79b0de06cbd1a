"""Transcripts whose rows, ids and blocks have another shape than their format says: found, listed, mended."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkrein.transcripts import check, repair
from checkrein_invariants import validate_anthropic, validate_openai_chat

DATA = Path(__file__).parents[2] / "data" / "transcripts"
FORMATS = {
    "custom.json": "openai-chat",
    "bub.jsonl": "bub",
    "dsh.jsonl": "dsh",
    "anthropic-messages.json": "anthropic-messages",
}


def rows(sample: str) -> list[Any]:
    text = (DATA / sample).read_text()
    return list(json.loads(text)) if sample.endswith(".json") else [json.loads(line) for line in text.splitlines()]


def mended(sample: str, values: list[Any], tmp_path: Path) -> tuple[list[str], list[Any]]:
    """The kinds of problems of a file with these rows, and the rows of its copy, in which nothing is wrong."""
    path, out = tmp_path / "broken", tmp_path / "copy"
    is_array = sample.endswith(".json")
    path.write_text(json.dumps(values) if is_array else "".join(json.dumps(value) + "\n" for value in values))
    report = repair(path, out, format=FORMATS[sample])
    assert bool(report.changes) == bool(report.problems)
    assert check(out, format=FORMATS[sample]).ok
    assert not repair(out, tmp_path / "again", format=FORMATS[sample]).changes
    text = out.read_text()
    copy = json.loads(text) if is_array else [json.loads(line) for line in text.splitlines()]
    return [problem.kind for problem in report.problems], copy


def bub_call(value: Any) -> list[Any]:
    values = rows("bub.jsonl")
    values[4]["payload"]["calls"][0] = value
    return values


def dsh(line: int, value: Any) -> list[Any]:
    values = rows("dsh.jsonl")
    values[line - 1] = value
    return values


ODD: dict[str, tuple[str, Callable[[], list[Any]]]] = {
    "a call that is no object": ("bub.jsonl", lambda: bub_call(None)),
    "a function that is no object": ("bub.jsonl", lambda: bub_call({"id": "call_1", "function": "ls"})),
    "a row that is no object, a number missing": (
        "bub.jsonl",
        lambda: [*rows("bub.jsonl")[:3], "x", *rows("bub.jsonl")[4:]],
    ),
    "a result without data": ("dsh.jsonl", lambda: dsh(6, {"type": "tool/result", "seq": 5})),
    "an open turn that says nothing": ("dsh.jsonl", lambda: dsh(1, {"type": "turn/start", "seq": 0, "data": "x"})[:4]),
}


@pytest.mark.parametrize("case", ODD)
def test_rows_of_any_shape_are_repaired(case: str, tmp_path: Path) -> None:
    sample, make = ODD[case]
    problems, copy = mended(sample, make(), tmp_path)
    assert problems and len(copy) >= len(make())


@pytest.mark.parametrize("sample", ["dsh.jsonl", "anthropic-messages.json"])
def test_what_nests_deeply_is_copied_whole(sample: str, tmp_path: Path) -> None:
    deep: Any = "here"
    for _ in range(150):
        deep = [deep]
    values = rows(sample)
    values[3]["data" if sample == "dsh.jsonl" else "note"] = {**values[3].get("data", {}), "deep": deep}
    del values[1 if sample == "dsh.jsonl" else 5]  # so that the row, or the file, is written anew
    _, copy = mended(sample, values, tmp_path)
    assert '["here"]' in json.dumps(copy)


def test_lines_are_those_of_the_messages_not_of_another_member_of_that_name(tmp_path: Path) -> None:
    messages = [message for n, message in enumerate(rows("anthropic-messages.json")) if n != 2]
    path = tmp_path / "broken.json"
    path.write_text(json.dumps({"inputs": {"messages": messages[:1]}, "messages": messages}, indent=1))
    lines = path.read_text().split("\n")
    calls = next(n for n, line in enumerate(lines, 1) if '"assistant"' in line)
    assert {problem.line for problem in check(path).problems} == {calls - 1}


def test_a_session_logs_id_that_is_a_number_is_written_as_text(tmp_path: Path) -> None:
    values = json.loads(json.dumps(rows("dsh.jsonl")).replace('"c1"', "7"))
    problems, copy = mended("dsh.jsonl", values, tmp_path)
    assert problems == ["type", "type"]
    assert (copy[3]["data"]["content"][0]["id"], copy[5]["data"]["callId"]) == ("7", "7")


def test_anthropic_input_that_is_text_is_written_as_the_object_it_holds(tmp_path: Path) -> None:
    messages = rows("anthropic-messages.json")
    call = messages[5]["content"][-1]
    held, call["input"] = call["input"], json.dumps(call["input"])
    problems, copy = mended("anthropic-messages.json", messages, tmp_path)
    assert (problems, copy[5]["content"][-1]["input"]) == (["type"], held)


@pytest.mark.parametrize("fault", ["behind the text", "in two messages"])
def test_anthropic_results_stand_first_and_in_one_message(fault: str, tmp_path: Path) -> None:
    """The server refuses the one, and the copy has the other otherwise: both are said; what else is there is kept."""
    messages = rows("anthropic-messages.json")
    first, second, *rest = messages[2]["content"]
    assert rest, "the sample has a text behind its results"
    if fault == "behind the text":
        messages[2]["content"] = [*rest, first, second]
    else:
        messages[2:3] = [
            {"role": "user", "content": [first]},
            {"role": "user", "content": [second, *rest], "uuid": "u"},
        ]
    problems, copy = mended("anthropic-messages.json", messages, tmp_path)
    assert (problems, copy[2]["content"]) == (["wrong order"], [first, second, *rest])
    assert copy[2].get("uuid") == ("u" if fault == "in two messages" else None)
    assert not validate_anthropic([*copy, {"role": "user", "content": "go on"}])


def test_openai_custom_calls_are_calls_and_stay_what_they_are(tmp_path: Path) -> None:
    """Their input is free text: no arguments are missed in it, and a copy keeps it."""

    def custom(call_id: str, code: str) -> dict[str, Any]:
        call = {"id": call_id, "type": "custom", "custom": {"name": "run_code", "input": code}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    result = {"role": "tool", "tool_call_id": "call_1", "content": "1"}
    whole = [{"role": "user", "content": "go"}, custom("call_1", "print(1)"), result]
    path = tmp_path / "whole.json"
    path.write_text(json.dumps(whole))
    assert check(path).ok
    problems, copy = mended(
        "custom.json", [*whole, custom("call_1", "print(2)"), {"role": "user", "content": "on"}], tmp_path
    )
    assert problems == ["duplicate id", "orphan call"]
    assert copy[3] == custom("call_1_2", "print(2)") and copy[4]["tool_call_id"] == "call_1_2"
    assert validate_openai_chat(copy) == []
    copy[3]["tool_calls"][0]["custom"] = {"name": "no name", "input": None}
    assert len(validate_openai_chat(copy)) == 2
