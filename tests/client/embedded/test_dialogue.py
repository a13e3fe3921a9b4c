"""The embedded server answers a long conversation to the letter like a genuine one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client.embedded.dialogue import Dialogue
from tests.client.embedded.transcript import recorded
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec
from tubemq_client.testing.clock import ManualClock

pytestmark = pytest.mark.timeout(120)

GENUINE = Path(__file__).with_name("genuine.txt").read_text()


def test_every_answer_is_the_genuine_one() -> None:
    clock = ManualClock()
    switches = Switches(
        flush_interval_ms=None,
        unflushed_records=None,
        lease_scan_ms=None,
        create_undeclared_stores=True,
    )
    topics = [TopicSpec("one", 1, 3), TopicSpec("two", 2, 3)]
    with EmbeddedTubeMQ(1, topics, switches=switches, clock=clock) as mq:
        broker = mq.broker(1)

        def wait_until_stable() -> None:
            broker.flush()
            clock.advance(45_000)
            mq.tick()

        answers = Dialogue(
            mq.masters, broker.address, mq.master_web, broker.web, wait_until_stable
        ).run()

    # One line at a time: a difference shows as the question and the two answers.
    for expected, answer in zip(recorded(GENUINE), answers, strict=True):
        assert answer == expected
