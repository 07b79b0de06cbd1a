"""Transcripts with anything in the place of what is expected are repaired, in linear time; no value is an exception."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkrein.transcripts import formats
from checkrein.transcripts.balance import balance
from checkrein.transcripts.document import Row, dump, parse
from checkrein.transcripts.model import Call, Item, Problem

DATA = Path(__file__).parents[2] / "data" / "transcripts"
FORMATS = {name: formats()[name] for name in ("openai-chat", "dsh", "ph", "bub")}
CALL = {"id": "c1", "function": {"name": "f", "arguments": "{}"}}
SOURCELESS = {"message": {"content": "x", "source": []}}
ASKED = {"message": {"content": [{"type": "tool-call"}]}}
WRONG: tuple[Any, ...] = (None, True, 7, "x", [], [1], {}, [{"type": "tool-call"}], {"function": "s"}, [{"id": "c1"}])


def sample(name: str) -> list[Any]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]


def left(values: list[Any], name: str) -> list[Problem]:
    """What is still wrong with the repaired copy of these rows."""
    data = "".join(json.dumps(value) + "\n" for value in values).encode()
    for _ in range(2):
        document = parse(data)
        items, problems = FORMATS[name].read(document)
        balanced = balance(items)
        rows, _ = FORMATS[name].write(document, balanced.items)
        data = dump(document, rows)
    return problems + balanced.problems


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each member of each object and each element of each list, with what holds it."""
    for name in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, name
        yield from places(value[name])


@pytest.mark.parametrize("name", FORMATS)
def test_whatever_stands_in_the_place_of_what_is_expected(name: str) -> None:
    whole = json.dumps(sample(name))
    for number in range(len([*places(json.loads(whole))])):
        values = json.loads(whole)
        holder, member = [*places(values)][number]
        holder[member] = WRONG[number % len(WRONG)]
        assert not left(values, name), values


@pytest.mark.parametrize("calls", [[CALL, 7], ["f", CALL], [{**CALL, "id": "", "function": "f"}]])
def test_a_tape_with_what_is_no_call(calls: list[Any]) -> None:
    values = sample("bub")
    values[4] = {**values[4], "kind": "tool_call", "payload": {"calls": calls}}
    assert not left(values, "bub")


def test_a_tape_with_what_is_no_row_is_numbered_again() -> None:
    values = sample("bub")
    values[3] = [7]
    assert not left(values, "bub")


@pytest.mark.parametrize("data", [None, 7, "x", [1], {"message": {}}, SOURCELESS, ASKED])
def test_a_session_log_with_a_result_that_does_not_say_whose_it_is(data: Any) -> None:
    values = sample("dsh")
    next(value for value in values if value["type"] == "tool/result")["data"] = data
    assert not left(values, "dsh")


def test_a_session_log_whose_open_turn_says_nothing() -> None:
    values = [value for value in sample("dsh") if value["type"] != "turn/end"]
    for value in values:
        if value["type"] == "turn/start":
            value["data"] = [1]
    assert not left(values, "dsh")


@pytest.mark.parametrize("ids", ["none", "one", "strangers"])
def test_calls_and_results_without_ids_of_their_own_cost_linear_time(ids: str) -> None:
    def lines_executed(calls: int) -> int:
        items: list[Item] = []
        for number in range(calls):
            call_id, of = {"none": ("", ""), "one": ("c", "c"), "strangers": (f"a{number}", f"b{number}")}[ids]
            items.append(Item("assistant", Row(number, {}), calls=[Call(call_id, "f", "{}")]))
            items.append(Item("result", Row(number, {}), call_id=of))
        lines = 0

        def count(*_: Any) -> Any:
            nonlocal lines
            lines += 1
            return count

        before = sys.gettrace()
        sys.settrace(count)
        try:
            balance(items)
        finally:
            sys.settrace(before)
        return lines

    assert lines_executed(200) < 2.5 * lines_executed(100)
