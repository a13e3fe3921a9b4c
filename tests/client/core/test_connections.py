"""Reconnecting and idle connections: time and random numbers are arguments."""

from __future__ import annotations

from tubemq_client._core.connections import ConnectionRules, NameRules

HERE = ("127.0.0.1", 8123)
THERE = ("127.0.0.1", 8124)


def test_the_first_attempt_waits_for_nothing() -> None:
    assert ConnectionRules(idle_ms=1_000).wait_ms(HERE, 5) == 0


def test_pauses_double_up_to_a_limit_and_end_with_a_success() -> None:
    rules = ConnectionRules(idle_ms=1_000, first_pause_ms=100, longest_pause_ms=500)
    pauses = []
    for _ in range(5):
        rules.failed(HERE, 1_000, chance=1.0)
        pauses.append(rules.wait_ms(HERE, 1_000))
    assert pauses == [100, 200, 400, 500, 500]
    rules.opened(HERE)
    assert rules.wait_ms(HERE, 1_000) == 0
    rules.failed(HERE, 2_000, chance=1.0)
    assert rules.wait_ms(HERE, 2_000) == 100


def test_chance_spreads_clients_over_half_the_pause() -> None:
    rules = ConnectionRules(idle_ms=1_000, first_pause_ms=100)
    rules.failed(HERE, 0, chance=0.0)
    rules.failed(THERE, 0, chance=0.999)
    assert (rules.wait_ms(HERE, 0), rules.wait_ms(THERE, 0)) == (50, 100)


def test_the_time_since_the_failure_counts_per_address() -> None:
    rules = ConnectionRules(idle_ms=1_000, first_pause_ms=100)
    rules.failed(HERE, 0, chance=1.0)
    assert [rules.wait_ms(HERE, now) for now in (40, 100, 5_000)] == [60, 0, 0]
    assert rules.wait_ms(THERE, 40) == 0


def test_a_peer_that_never_answers_does_not_overflow_the_pause() -> None:
    rules = ConnectionRules(idle_ms=1_000, longest_pause_ms=2_000)
    for _ in range(10_000):
        rules.failed(HERE, 0, chance=0.5)
    assert 1_000 <= rules.wait_ms(HERE, 0) <= 2_000


def test_a_connection_is_idle_after_its_time_unless_it_owes_a_reply() -> None:
    rules = ConnectionRules(idle_ms=1_000)
    assert not rules.is_idle(used_at=0, in_flight=0, now=999)
    assert rules.is_idle(used_at=0, in_flight=0, now=1_000)
    assert not rules.is_idle(used_at=0, in_flight=1, now=60_000)


def test_idle_connections_are_looked_for_four_times_per_period() -> None:
    rules = ConnectionRules(idle_ms=1_000)
    assert sum(rules.sweep_due(now) for now in range(5_000)) == 20


def test_a_connection_is_unresponsive_without_data_since_the_request() -> None:
    for received_at, mute in ((0, True), (999, True), (1_000, False), (1_500, False)):
        assert ConnectionRules.is_unresponsive(received_at, deadline=3_000, patience=2_000) == mute


def test_only_names_of_masters_are_looked_up_again_once_a_period() -> None:
    named, literal = ("master.test", 8715), ("::1", 8715)
    rules = NameRules(frozenset([named]), period_ms=1_000)
    assert sum(rules.due(named, now) for now in range(0, 5_000, 10)) == 4
    assert not any(rules.due(other, now) for other in (literal, THERE) for now in (0, 60_000))


def test_stand_by_answers_in_a_row_do_not_look_names_up_faster() -> None:
    rules = NameRules(frozenset(), period_ms=60_000)
    assert sum(rules.should_look_up(("master.test", 1), now) for now in range(0, 5_000, 10)) == 5
    assert not rules.should_look_up(("127.0.0.1", 1), 0)
