"""Decisions of a watcher: level-triggered, once per position, never silent for good."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tubemq_provider.triggers._firing import Backoff, LagWatch

AT_START = {"1:0": 0}
FURTHER = {"1:0": 28}


def watch(min_lag: int = 1, max_wait: float | None = None) -> LagWatch:
    return LagWatch(min_lag, max_wait, fire_again_after=300)


def test_fires_once_per_position_and_at_once_when_it_moves_and_lag_remains() -> None:
    found = watch()
    assert found.reason(0, 5, AT_START) == "lag"
    found.note_event(0, AT_START)
    assert found.reason(15, 50, AT_START) is None
    assert found.reason(30, 40, FURTHER) == "lag"


def test_fires_again_for_unclaimed_lag() -> None:
    found = watch()
    found.note_event(0, AT_START)
    assert found.reason(299, 5, AT_START) is None
    assert found.reason(300, 5, AT_START) == "again"


def test_never_fires_without_lag() -> None:
    found = watch(max_wait=0)
    found.note_event(0, AT_START)
    assert found.reason(10_000, 0, AT_START) is None
    assert found.reason(10_000, 0, FURTHER) is None


def test_a_small_lag_fires_when_it_is_old() -> None:
    found = watch(min_lag=100, max_wait=60)
    assert found.reason(0, 5, AT_START) is None
    assert found.reason(59, 99, AT_START) is None
    assert found.reason(60, 5, AT_START) == "age"


def test_age_counts_from_the_first_lag_after_quiet() -> None:
    found = watch(min_lag=100, max_wait=60)
    assert found.reason(0, 5, AT_START) is None
    assert found.reason(50, 0, FURTHER) is None
    assert found.reason(70, 5, FURTHER) is None
    assert found.reason(130, 5, FURTHER) == "age"


def test_claimed_windows_fire_only_again() -> None:
    found = watch()
    assert found.reason(0, 5, AT_START, untaken=5) == "lag"
    found.note_event(0, AT_START)
    assert found.reason(15, 5, FURTHER, untaken=0) is None
    assert found.reason(30, 8, FURTHER, untaken=3) == "lag"
    found.note_event(30, FURTHER)
    assert found.reason(330, 5, FURTHER, untaken=0) == "again"


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), max_size=60),
    st.integers(1, 3),
)
def test_no_backlog_is_stranded_by_lost_events(
    steps: list[tuple[int, bool, bool]], min_lag: int
) -> None:
    """Records arrive, events are lost or start a run, runs take all there is. When arrivals end and
    events get through again, the backlog is taken within one `fire_again_after`."""
    found = LagWatch(min_lag, max_wait=60, fire_again_after=300)
    now, end, position = 0.0, 0, 0

    def look(*, heard: bool) -> None:
        nonlocal position
        at = {"1:0": position}
        if found.reason(now, end - position, at):
            found.note_event(now, at)
            if heard:
                position = end

    for arrived, heard, long in steps:
        end += arrived
        now += 400 if long else 15
        look(heard=heard)
    for _ in range(30):
        now += 15
        look(heard=True)
    assert position == end


def test_pauses_double_up_to_a_minute_and_reset() -> None:
    backoff = Backoff()
    pauses = [backoff.failed() for _ in range(10)]
    assert 0.8 <= pauses[0] <= 1.2
    assert all(pause <= 72 for pause in pauses)
    assert pauses[-1] >= 48
    assert backoff.worked()
    assert not backoff.worked()
    assert backoff.failed() <= 1.2


def test_the_duration_of_lag_counts_over_events() -> None:
    watch = LagWatch(min_lag=1, max_wait=None, fire_again_after=300)
    assert watch.behind(0) == 0
    watch.reason(10, 5, {"1:0": 0})
    watch.note_event(10, {"1:0": 0})
    watch.reason(40, 3, {"1:0": 56})
    assert watch.behind(40) == 30
    watch.reason(50, 0, {"1:0": 140})
    assert watch.behind(50) == 0
