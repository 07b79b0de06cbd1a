"""L1: at each rest of every recording, a snapshot carries what the fold gives, and folding goes on from it the same."""

from __future__ import annotations

from typing import Any

import pytest
from recordings import Recording, recordings

from checkrein.codec import decode_all
from checkrein.derive import History
from checkrein.rules import fold_all
from checkrein.session import projections
from checkrein.snapshot import encoded, restored
from checkrein.state import CallState, Pending, State

RECORDINGS = recordings()


def facts(value: Any) -> Any:
    """A value and all it is made of, private members too."""
    if isinstance(value, dict):
        return [(key, facts(item)) for key, item in value.items()]
    if isinstance(value, (State, History, CallState, Pending)):
        return [facts(getattr(value, name)) for name in value.__slots__ if name not in ("types", "closes")]
    return value


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.name)
def test_L1_a_snapshot_of_a_recording_is_its_fold(recording: Recording) -> None:
    events = decode_all(list(recording.lines))
    whole, state = projections({}), projections({})
    fold_all(whole, events)
    places = 0
    for count, event in enumerate(events, 1):
        fold_all(state, [event])
        data = encoded(state)
        if data is None:
            continue
        places += 1
        kept = restored(data, projections({}))
        assert kept is not None and facts(kept) == facts(state), count
        fold_all(kept, events[count:])
        assert facts(kept) == facts(whole), count
    assert places >= 2
