"""Due times of heartbeats: time is an argument, so these tests need no clock."""

from __future__ import annotations

from tubemq_client._core.heartbeat_schedule import HeartbeatSchedule


def test_the_first_heartbeat_is_due_at_once_and_then_every_period() -> None:
    schedule = HeartbeatSchedule(10_000)
    assert schedule.due(5)
    schedule.succeeded(5)
    assert not schedule.due(10_004)
    assert schedule.due(10_005)
    assert schedule.wait_ms(5) == 10_000


def test_heartbeats_slow_down_after_failures_and_recover() -> None:
    schedule = HeartbeatSchedule(10_000, period_after_failures_ms=60_000, max_failures=2)
    for expected in (10_000, 10_000, 60_000):
        schedule.failed(0)
        assert schedule.wait_ms(0) == expected
    schedule.succeeded(0)
    schedule.failed(0)
    assert schedule.wait_ms(0) == 10_000


def test_a_heartbeat_late_by_a_period_is_reported() -> None:
    schedule = HeartbeatSchedule(10_000)
    assert schedule.late_ms(1_000_000) == 0  # the first one has no due time
    schedule.succeeded(5)
    assert (schedule.late_ms(10_005), schedule.late_ms(20_005)) == (0, 0)
    assert schedule.late_ms(40_005) == 30_000
    schedule.make_due()
    assert schedule.late_ms(90_000) == 0
