"""M7: under which ids calls and results go back, to their own provider and model or to another."""

from __future__ import annotations

import pytest
from wirekit import answer, call, ids, result, user, wire

from checkrein.messages import Message


def test_M7_provider_ids_go_back_to_their_provider():
    messages = user("x"), answer(call("c1.1.1"), call("c1.1.2")), result("c1.1.1", "call_A"), result("c1.1.2", "call_B")
    assert ids(wire(*messages)) == (["call_A", "call_B"],) * 2
    foreign = user("x"), answer(call("c1.1.1"), provider="other"), result("c1.1.1", "call_A")
    assert ids(wire(*foreign)) == (["c1_1_1"], ["c1_1_1"])


@pytest.mark.parametrize("theirs", ["", "with space", "ümlaut", "x" * 300, None])
def test_M7_an_id_that_is_not_valid_is_replaced_by_ours(theirs):
    assert ids(wire(user("x"), answer(call("c1.1.1")), result("c1.1.1", theirs))) == (["c1_1_1"], ["c1_1_1"])


def test_M7_a_long_id_goes_back_to_its_own_model_only():
    """OpenAI takes 40 characters; behind one endpoint stand the models of many makers."""
    for theirs, model, sent in [("x" * 60, "m", "x" * 60), ("x" * 60, "n", "c1_1_1"), ("x" * 40, "n", "x" * 40)]:
        got = wire(user("x"), answer(call("c1.1.1"), model=model), result("c1.1.1", theirs))
        assert ids(got) == ([sent], [sent])


def test_M7_long_ids_of_ours_are_cut_and_stay_apart():
    ours = ["c" * 80 + end for end in "ab"]
    asked, answered = ids(wire(user("x"), answer(*map(call, ours)), *map(result, ours)))
    assert asked == answered and len(set(asked)) == 2
    assert all(len(id_) <= 40 for id_ in asked)


def test_case_S22_S24_a_repeated_id_stays_with_its_first_call():
    messages: list[Message] = [user("x")]
    for turn in (1, 2, 3):
        messages += [answer(call(f"c{turn}.1.1")), result(f"c{turn}.1.1", "run:0")]
        asked, answered = ids(wire(*messages))
        assert asked == answered == ["run:0", "c2_1_1", "c3_1_1"][:turn]  # O26: what was sent stays as it was


def test_case_S23_twins_of_one_answer_are_paired_by_position():
    got = wire(user("x"), answer(call("c1.1.1"), call("c1.1.2")), result("c1.1.1", "dup"), result("c1.1.2", "dup"))
    assert ids(got) == (["dup", "c1_1_2"], ["dup", "c1_1_2"])


def test_M7_a_provider_that_uses_ids_like_ours_is_not_mixed_up():
    got = wire(user("x"), answer(call("c1.1.1"), call("c1.1.2")), result("c1.1.1", "c1_1_2"), result("c1.1.2", ""))
    assert ids(got) == (["c1_1_2", "c1_1_2_1"], ["c1_1_2", "c1_1_2_1"])


def test_ids_of_nine_letters_and_digits_by_quirk():
    messages = (
        user("x"),
        answer(call("c1.1.1"), call("c1.1.2")),
        result("c1.1.1", "AbCdEfGh1"),
        result("c1.1.2", "long_id_1"),
    )
    asked, answered = ids(wire(*messages, quirks={"call_ids": "alnum9"}))
    assert asked == answered
    assert asked[0] == "AbCdEfGh1"
    assert len(asked[1]) == 9
    assert asked[1].isalnum()
