"""Positions of a group: registration, fetch flags, commit, retention, a shorter log."""

from __future__ import annotations

import pytest

from tubemq_client.embedded.positions import FetchMode, PositionKey, Positions
from tubemq_client.embedded.store import Ends

pytestmark = pytest.mark.timeout(60)

KEY = PositionKey("g", "t", 0)
ENDS = Ends(min=56, stable=280, file=280, memory=504)
AUTO, ON, AHEAD = FetchMode(), FetchMode(last_consumed=True), FetchMode(manual=True)


@pytest.mark.parametrize(
    ("known", "requested", "status", "start"),
    [
        (True, -1, 0, 112),
        (True, -1, 1, 112),
        (True, -1, 2, 504),
        (True, 84, 0, 84),
        (True, 84, 1, 84),
        (True, 84, 2, 504),
        (True, 0, 0, 56),
        (True, 999_999, 0, 504),
        (True, 85, 0, 84),
        (True, 503, 0, 476),
        (False, -1, 0, 56),
        (False, -1, 1, 504),
        (False, -1, 2, 504),
        (False, 84, 0, 84),
        (False, 84, 1, 84),
        (False, 0, 2, 504),
    ],
)
def test_start_of_a_registration(known: bool, requested: int, status: int, start: int) -> None:
    positions = Positions()
    if known:
        positions.set(KEY, 112)

    assert positions.open(KEY, ENDS, read_status=status, requested=requested) == start


def test_a_registration_makes_the_group_known() -> None:
    positions = Positions()
    positions.open(KEY, ENDS, read_status=0, requested=-1)

    assert positions.open(KEY, ENDS, read_status=1, requested=-1) == 56


def test_a_registration_forgets_what_was_in_flight() -> None:
    positions = Positions()
    positions.set(KEY, 56)
    positions.record_fetch(KEY, AUTO, 28, delivered=True)

    positions.open(KEY, ENDS, read_status=0, requested=-1)

    assert positions.commit(KEY, consumed=True) == 56


def test_a_batch_comes_again_until_it_is_confirmed() -> None:
    positions = Positions()
    positions.set(KEY, 56)
    assert positions.begin(KEY, AUTO, ENDS).offset == 56
    positions.record_fetch(KEY, AUTO, 84, delivered=True)

    assert positions.begin(KEY, AUTO, ENDS).offset == 56
    assert positions.begin(KEY, ON, ENDS).offset == 140


def test_reading_ahead_adds_up_and_rolls_back() -> None:
    positions = Positions()
    positions.set(KEY, 56)
    starts = []
    for _ in range(3):
        starts.append(positions.begin(KEY, AHEAD, ENDS).offset)
        positions.record_fetch(KEY, AHEAD, 28, delivered=True)

    assert starts == [56, 84, 112]
    assert positions.commit(KEY, consumed=False) == 56
    assert positions.begin(KEY, AHEAD, ENDS).offset == 56


def test_an_advance_without_records_is_confirmed_at_once() -> None:
    positions = Positions()
    positions.set(KEY, 56)

    positions.record_fetch(KEY, AUTO, 84, delivered=False)

    assert positions.begin(KEY, AUTO, ENDS).offset == 140


def test_retention_moves_the_reader_on_without_a_word() -> None:
    positions = Positions()
    positions.set(KEY, 0)

    assert positions.begin(KEY, AUTO, ENDS).offset == 56
    assert positions.commit(KEY, consumed=False) == 56


def test_the_end_is_a_refusal_that_changes_nothing() -> None:
    positions = Positions()
    positions.set(KEY, 504)

    found = positions.begin(KEY, AUTO, ENDS)

    assert (found.refusal, found.wait_ms) == ("The request offset reached maxOffset!", -1)
    assert positions.commit(KEY, consumed=True) == 504


def test_an_empty_store_answers_in_other_words() -> None:
    found = Positions().begin(KEY, AUTO, Ends(0, 0, 0, 0))

    assert (found.refusal, found.wait_ms) == ("Request offset reached cache maxOffset", 0)


@pytest.mark.parametrize(("reset", "after"), [(True, 504), (False, 1_008)])
def test_a_shorter_log_takes_the_position_back_to_its_end(reset: bool, after: int) -> None:
    positions = Positions(reset_beyond_max=reset)
    positions.set(KEY, 1_008)

    assert positions.begin(KEY, AUTO, ENDS).refusal == "The request offset reached maxOffset!"
    assert positions.commit(KEY, consumed=False) == after


def test_removed_groups_stay_booked_until_a_restart() -> None:
    positions = Positions()
    positions.set(KEY, 28)
    positions.remove(KEY)

    assert positions.groups() == ["g"]
    positions.drop_all_in_flight()
    assert positions.groups() == []


def test_positions_survive_as_plain_values() -> None:
    positions = Positions()
    positions.set(KEY, 28)
    positions.record_fetch(KEY, AUTO, 28, delivered=True)

    again = Positions()
    again.load(positions.dump())

    assert again.commit(KEY, consumed=True) == 28
