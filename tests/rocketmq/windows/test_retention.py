"""Windows of records that retention removes: an error, a recorded gap, or not affected."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from itertools import pairwise

import pytest

from rocketmq_client import Producer
from tests.rocketmq.windows.topics import ALL
from tubemq_client.errors import DataLoss
from tubemq_provider.sources.rocketmq.space import SPACE

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def hours(rocketmq, topic) -> list[datetime]:
    """Return instants before, between and after three times ten records in each of two queues; the
    brokers' clocks are past all of them."""
    instants = [datetime.now(UTC)]
    for _ in range(3):
        time.sleep(0.02)
        topic.produce(40)
        time.sleep(0.02)
        instants.append(datetime.now(UTC))
    time.sleep(3.2)
    return instants


def _remove(rocketmq, offset: int, *queues: str) -> None:
    for key in queues:
        rocketmq.remove_until(SPACE.partition("orders", key), offset)


@pytest.mark.parametrize("removed", [7, 10, 17, 30])
def test_a_window_of_time_that_retention_has_reached_is_not_begun(
    removed, rocketmq, topic, hours
) -> None:
    """Retention removed some, all or more of the first hour's records, or all records."""
    _remove(rocketmq, removed, *ALL)
    with pytest.raises(DataLoss, match=rf"broker-a:0: what is left begins at {removed}"):
        topic.run(between=(hours[0], hours[1]))
    assert topic.rows() == {}
    assert not list((topic.root / "lake").glob("_boundaries/*")), "nothing was fixed"


def test_a_window_of_time_after_removed_records_is_whole(rocketmq, topic, hours) -> None:
    _remove(rocketmq, 7, *ALL)
    assert topic.run(between=(hours[1], hours[2])).total == 40
    with pytest.raises(DataLoss, match=r"somewhere in .0, 7."):
        topic.run(between=(hours[0], hours[1]))


def test_records_lost_to_retention_in_windows_of_time_are_a_gap_once(
    rocketmq, topic, hours
) -> None:
    """The first window may have lost all records from the queues' beginning; the others begin where
    it ended, and their lost records are reported exactly."""
    _remove(rocketmq, 17, *ALL)
    skip = {"gap_policy": "skip"}
    results = [topic.run(between=pair, policies=skip) for pair in pairwise(hours)]

    assert [result.gaps for result in results] == [{key: [[0, 17]] for key in ALL}, {}, {}]
    assert [result.total for result in results] == [0, 12, 40]


def test_losses_after_a_fixed_boundary_are_exact(rocketmq, topic, hours) -> None:
    topic.run(between=(hours[0], hours[1]))
    _remove(rocketmq, 13, *ALL)
    with pytest.raises(DataLoss, match=r"broker-b:1: offsets .10, 13. are gone"):
        topic.run(between=(hours[1], hours[2]))
    result = topic.run(between=(hours[1], hours[2]), policies={"gap_policy": "skip"})

    assert result.gaps == {key: [[10, 13]] for key in ALL}
    assert result.total == 28


def test_a_fixed_boundary_is_used_after_retention_has_reached_it(rocketmq, topic, hours) -> None:
    topic.run(between=(hours[0], hours[1]))
    _remove(rocketmq, 10, *ALL)
    assert topic.run(between=(hours[1], hours[2])).total == 40


def test_a_stored_plan_is_kept_after_retention_has_reached_it(rocketmq, topic, hours) -> None:
    topic.run_killed("first", between=(hours[0], hours[1]))
    _remove(rocketmq, 7, *ALL)
    with pytest.raises(DataLoss, match=r"offsets .0, 7. of queue"):
        topic.run("first", between=(hours[0], hours[1]))
    result = topic.run("first", between=(hours[0], hours[1]), policies={"gap_policy": "skip"})

    assert result.total == 12
    assert result.gaps == {key: [[0, 7]] for key in ALL}


def test_a_quiet_queue_with_expired_records_delays_nothing(rocketmq, topic, hours) -> None:
    """Its broker's log begins before the instant, and all removed records are older still."""
    _remove(rocketmq, 3, *ALL)
    for broker in ("broker-a", "broker-b"):
        rocketmq.do(lambda target: _empty(target.storage.index("orders", 0)), broker)
    assert topic.run(between=(hours[1], hours[2])).total == 20


def _empty(index) -> None:
    """Simulate a queue whose last record is older than those that retention has removed."""
    index.first = index.reported_first = index.end
    index.entries.clear()


def test_a_quiet_topic_that_expires_does_not_count_as_recreated(rocketmq, topic) -> None:
    """All records read are removed, and the brokers keep reporting the old minimum for a while."""
    topic.produce(20)
    topic.run()
    topic.produce(8)
    for key in ALL:
        rocketmq.remove_until(SPACE.partition("orders", key), 5, said=False)
    late = threading.Timer(1.0, _tell_minima, (rocketmq,))
    late.start()
    result = topic.run()
    late.join()

    assert (result.total, result.gaps) == (8, {})


def test_queues_emptied_on_a_4_x_broker_delay_nothing(rocketmq, topic) -> None:
    """Their minimum stays the same until the next record, read or not."""
    topic.produce(20)
    topic.run()
    with Producer(rocketmq.settings) as producer:
        for key in ALL[1:3]:
            for _ in range(2):
                producer.send("orders", b"x", queue=SPACE.partition("orders", key))
    for broker in rocketmq.broker_names:
        rocketmq.do(lambda target: setattr(target, "version", "V4_9_7"), broker)
    for key, gone in zip(ALL, (5, 7, 0, 5), strict=True):
        rocketmq.remove_until(SPACE.partition("orders", key), gone, said=False)
    with pytest.raises(DataLoss, match="broker-a:1"):
        topic.run()
    result = topic.run(policies={"gap_policy": "skip"})

    assert result.gaps == {"broker-a:1": [[5, 7]]}
    assert (result.total, result.absent) == (2, {})


def _tell_minima(rocketmq) -> None:
    for broker in rocketmq.broker_names:
        rocketmq.do(_tell_minimum, broker)


def _tell_minimum(broker) -> None:
    for index in broker.storage.queues.values():
        index.reported_first = index.first
