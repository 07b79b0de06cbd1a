"""The buffer of a slow consumer: bounded, and whatever it joins, nothing is lost or in another place."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from checkrein.live import Buffer, Delta, StepReset, TextDelta, ThinkingDelta

BLOCKS = st.tuples(st.sampled_from([TextDelta, ThinkingDelta]), st.integers(1, 2), st.integers(0, 1))
SAID = st.lists(st.one_of(BLOCKS, st.none()), max_size=120)


def texts(deltas: list[Delta]) -> list[tuple[object, str]]:
    """What was said in each block, in the order of the blocks' pieces: neighbours of one block are one."""
    out: list[tuple[object, str]] = []
    for delta in deltas:
        block = delta if isinstance(delta, StepReset) else (type(delta), delta.step, delta.index)  # type: ignore[union-attr]
        text = getattr(delta, "text", "")
        if out and out[-1][0] == block and text:
            out[-1] = (block, out[-1][1] + text)
        else:
            out.append((block, text))
    return out


@given(said=SAID, limit=st.integers(1, 9))
def test_what_is_joined_stays_whole_and_in_its_place(said: list[tuple[type, int, int] | None], limit: int) -> None:
    """Deltas of a block are joined with their neighbours only; each keeps the place in the log it may not be before."""
    buffer, plain = Buffer(limit), list[Delta]()
    for n, block in enumerate(said):
        delta: Delta = StepReset(1, 1, n) if block is None else block[0](1, block[1], block[2], f"{n} ")
        plain.append(delta)
        buffer.push(n // 10, delta)
    assert texts([delta for _, delta in buffer.items]) == texts(plain)
    marks = [mark for mark, _ in buffer.items]
    assert marks == sorted(marks)
    assert len(buffer.items) <= max(limit, 2 * len(texts(plain)))
