"""Sync and asyncio API offer the same names; every public name loads; settings can be pickled."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import replace

import pytest

import rocketmq_client
from rocketmq_client import Credentials, QueueRange, aio, errors, sync
from rocketmq_client.embedded import EmbeddedRocketMQ
from rocketmq_client.model import ClientSettings, Queue

CLASSES = sorted(sync.__all__)


def public(kind: type) -> dict[str, list[str]]:
    return {
        name: list(inspect.signature(member).parameters)
        for name, member in inspect.getmembers(kind, callable)
        if not name.startswith("_")
    }


@pytest.mark.parametrize("name", CLASSES)
def test_sync_and_asyncio_api_offer_the_same(name) -> None:
    assert public(getattr(sync, name)) == public(getattr(aio, name))
    assert sorted(aio.__all__) == CLASSES


def test_every_public_name_can_be_loaded() -> None:
    for name in rocketmq_client.__all__:
        assert getattr(rocketmq_client, name) is not None
    assert set(rocketmq_client.__all__) <= set(dir(rocketmq_client))
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = rocketmq_client.nope


def test_a_session_is_its_settings_in_another_process() -> None:
    settings = ClientSettings((("127.0.0.1", 9876),), auth=Credentials("key", "hidden"))
    with sync.Session(settings) as session:
        copy = pickle.loads(pickle.dumps(session))

    assert copy == settings
    assert type(copy) is ClientSettings
    assert "hidden" not in repr(copy)


async def _read_side_by_side(settings: ClientSettings) -> list[int]:
    import asyncio

    async with aio.Session(settings) as session, aio.Producer(session) as producer:
        await producer.send_batch(
            "orders", [rocketmq_client.OutgoingMessage(b"x") for _ in range(200)]
        )
        queue = (await producer.send("orders", b"y")).queue
        async with aio.RangeReader(session, group="g") as reader:

            async def count(end: int) -> int:
                return sum([len(batch) async for batch in reader.read(QueueRange(queue, 0, end))])

            return list(await asyncio.gather(*(count(end) for end in (50, 120, 201))))


def test_ranges_are_read_concurrently_on_one_session() -> None:
    import asyncio

    with EmbeddedRocketMQ(topics={"orders": 1}) as mq:
        assert asyncio.run(_read_side_by_side(mq.settings)) == [50, 120, 201]


def test_queues_and_ranges() -> None:
    queue = Queue.from_key("orders", "a:b:3")

    assert (queue.broker, queue.queue_id, queue.key, str(queue)) == (
        "a:b",
        3,
        "a:b:3",
        "orders@a:b:3",
    )
    for wrong in ("3", ":3", "a:", "a:x", "a:-1", "a:²"):
        with pytest.raises(ValueError, match="queue key"):
            Queue.from_key("orders", wrong)
    assert QueueRange(queue, 2, 7).entries == 5
    with pytest.raises(ValueError, match="beyond"):
        QueueRange(queue, 7, 2)
    with pytest.raises(ValueError, match="negative"):
        QueueRange(queue, -1, 2)


@pytest.mark.parametrize(
    ("code", "remark", "kind"),
    [
        (1, "org.apache.rocketmq.acl.common.AclException: no", errors.NoPermission),
        (16, "check signature failed.", errors.NoPermission),
        (16, "the topic[a] pulling message is forbidden", errors.TopicForbids),
        (16, "the broker[a] sending message is forbidden", errors.TopicForbids),
        (16, "the broker[a] sending transaction message is forbidden", errors.NoPermission),
        (1, "queueId[9] is illegal, topic:[t]", errors.UnknownTopic),
        (29, "queueId[9] is illegal, topic:[t]", errors.UnknownTopic),
        (29, "topic too long", errors.IllegalRequest),
        (1, "java.lang.NullPointerException", errors.BrokerFailure),
        (14, "", errors.Busy),
        (777, "", errors.ServerError),
    ],
)
def test_codes_become_errors_that_say_what_to_do(code, remark, kind) -> None:
    error = errors.for_code(code, remark, where="PULL at b:1")

    assert type(error) is kind
    assert isinstance(error, errors.RocketMQError)
    assert (error.code, "PULL at b:1" in str(error)) == (code, True)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.code) == (kind, str(error), code)


def test_name_servers_are_tried_in_turn() -> None:
    with EmbeddedRocketMQ(topics={"orders": 1}) as mq:
        settings = replace(mq.settings, name_servers=(("127.0.0.1", 1), mq.name_server))
        with sync.Metadata(settings) as metadata:
            assert metadata.topic("orders").readable()
        nowhere = replace(mq.settings, name_servers=(("127.0.0.1", 1),))
        with sync.Metadata(nowhere) as metadata, pytest.raises(errors.ConnectError):
            metadata.topic("orders")
