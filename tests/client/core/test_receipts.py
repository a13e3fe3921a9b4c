"""Invalid receipts: each is judged separately."""

from __future__ import annotations

import itertools
from typing import Any

from tests.client.core.conftest import PARTITION, TOPIC, flat
from tubemq_client import Record, errors
from tubemq_client._core.identity import ClientIds
from tubemq_client._core.master import MasterSession
from tubemq_client._core.sending import ProducerSession
from tubemq_client.testing.memory import MemoryTubeMQ
from tubemq_client.testing.scripted import TracedRequest


def test_a_receipt_without_a_message_id_that_is_a_number_costs_the_others_nothing(
    memory: MemoryTubeMQ, session: MasterSession, ids: ClientIds
) -> None:
    producer = ProducerSession(session, ids.producer())
    producer.topics.add(TOPIC)
    driver = memory.driver()
    driver.run(producer.register())
    driver.run(producer.heartbeat())
    count = itertools.count()

    def garble(traced: TracedRequest, reply: Any) -> Any:
        if traced.method == "send message" and next(count) == 1:
            reply.ClearField("messageId")
            reply.errMsg = "OK!"
        return reply

    memory.tamper = garble
    records = [Record(b"%d" % n, partition=PARTITION) for n in range(3)]
    sending = producer.send_each(TOPIC, records, 0, 3)
    (first, _), (second, _), (third, _) = flat(driver.stream(sending))
    assert [first.offset, third.offset] == [0, 56]
    assert isinstance(second, errors.ProtocolViolation)
    assert "'OK!'" in str(second)
    assert "may be stored" in str(second)
