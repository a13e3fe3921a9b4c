"""Sends to a scripted broker: retries, and final errors."""

from __future__ import annotations

import json

import pytest

from rocketmq_client import ClientSettings, OutgoingMessage, ProducerSettings, Queue, errors
from rocketmq_client._core import trace
from rocketmq_client._core.cluster import Cluster
from rocketmq_client._core.sending import Sending
from rocketmq_client._core.sending_limits import Room, SlowBrokers
from rocketmq_client._wire import codes
from rocketmq_client._wire.commands import Command
from rocketmq_client._wire.compression import MAX_BODY_BYTES
from tests.rocketmq.core.script import ADDRESS, play

NAME_SERVER = ("127.0.0.1", 9876)
A, B = Queue("broker-a", "orders", 0), Queue("broker-b", "orders", 0)
GONE = errors.UnknownTopic(17, "No topic route info in name server for the topic: orders")
REFUSED = errors.ConnectError("refused")


def route(*brokers: str, perm: int = 6) -> Command:
    host, port = ADDRESS
    data = {
        "brokerDatas": [
            {"brokerName": name, "cluster": "c", "brokerAddrs": {"0": f"{host}:{port}"}}
            for name in brokers
        ],
        "queueDatas": [
            {"brokerName": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": perm}
            for name in brokers
        ],
    }
    return Command(0, 0, {}, json.dumps(data).encode(), 1)


def stored(queue_id: int = 0) -> Command:
    return Command(0, 0, {"queueOffset": "7", "queueId": str(queue_id), "msgId": "X"}, b"", 1)


class World:
    """Name server and brokers with scripted answers; the last of each is repeated."""

    def __init__(self, routes, sends) -> None:
        self.routes, self.sends = list(routes), list(sends)
        self.tried: list[str] = []

    def __call__(self, method, request) -> Command:
        looks = method is codes.GET_ROUTEINFO_BY_TOPIC
        queue = self.routes if looks else self.sends
        if not looks:
            self.tried.append(request.fields["n"])
        item = queue.pop(0) if len(queue) > 1 else queue[0]
        if isinstance(item, Exception):
            raise item
        return item


def sending(*, route_period_ms: int = 30_000, **settings) -> Sending:
    cluster = Cluster(ClientSettings((NAME_SERVER,), route_period_ms=route_period_ms))
    return Sending(cluster, ProducerSettings(**settings), "g", lambda: "ID")


def send(made: Sending, world: World, queue: Queue | None = None):
    return play(made.send("orders", OutgoingMessage(b"x"), queue), world)


@pytest.mark.parametrize("queue", [None, A])
@pytest.mark.parametrize(
    "away", [GONE, route("broker-b", perm=4), route("broker-a", perm=4), REFUSED]
)
def test_a_look_up_without_a_queue_counts_as_a_failed_try(away, queue) -> None:
    world = World([route("broker-a"), away, away, route("broker-a")], [REFUSED, stored()])

    receipt = send(sending(retries=3), world, queue)

    assert (receipt.offset, world.tried) == (7, ["broker-a", "broker-a"])


def test_a_queue_whose_broker_left_the_route_is_waited_for() -> None:
    only_a, both = route("broker-a"), route("broker-a", "broker-b")
    world = World([both, only_a, only_a, both], [REFUSED, stored()])

    assert send(sending(retries=3), world, B).queue == B
    assert world.tried == ["broker-b", "broker-b"]


@pytest.mark.parametrize("away", [GONE, route(), REFUSED])
def test_exhausted_retries_raise_the_reason_of_the_failure(away) -> None:
    world = World([route("broker-a"), away], [REFUSED])

    with pytest.raises(errors.ConnectError, match="refused") as caught:
        send(sending(retries=3), world)
    assert caught.value.retriable
    assert world.tried == ["broker-a"]


def test_a_known_topic_is_retried_from_the_first_look_up_on() -> None:
    sends = sending(route_period_ms=-10_000, retries=2)  # the clock of each play begins at 0
    world = World([route("broker-a"), GONE, route("broker-a"), GONE], [stored()])
    send(sends, world)

    assert send(sends, world).offset == 7
    with pytest.raises(errors.ConnectError, match="no broker of topic 'orders'") as caught:
        send(sends, world)
    assert world.tried == ["broker-a", "broker-a"]
    assert isinstance(caught.value.__cause__, errors.UnknownTopic)


def test_an_unknown_topic_or_queue_is_raised_at_once() -> None:
    world = World([GONE], [stored()])
    with pytest.raises(errors.UnknownTopic):
        send(sending(retries=3), world)
    with pytest.raises(errors.ConfigError, match="not writable now"):
        send(sending(retries=3), World([route("broker-a")], [stored()]), B)
    with pytest.raises(errors.ConnectError):
        send(sending(retries=3), World([REFUSED, route("broker-a")], [stored()]))
    assert world.tried == []


def test_a_body_that_no_reader_would_unpack_is_not_sent() -> None:
    world = World([route("broker-a")], [stored()])
    body = bytes(MAX_BODY_BYTES)
    sends = sending(max_message_bytes=2**20)

    assert play(sends.send("orders", OutgoingMessage(body), None), world).offset == 7
    with pytest.raises(errors.ConfigError, match=r"67108865 bytes .* readers unpack no more"):
        play(sends.send("orders", OutgoingMessage(body + b"0"), None), world)
    assert len(world.tried) == 1


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (OutgoingMessage("text"), "body: a str"),
        (OutgoingMessage(b"x", properties={"n": 1}), "property 'n': 1 is not text"),
        (OutgoingMessage(b"x", properties={1: "n"}), "name of a property: 1"),
        (OutgoingMessage(b"x", properties={"n": "\ud800"}), "property 'n'"),
        (OutgoingMessage(b"x", properties={"n": "a\x01"}), "separator"),
        (OutgoingMessage(b"x", properties={"n": ""}), "property 'n': '' is left out by brokers"),
        (OutgoingMessage(b"x", properties={"": "n"}), "property '': 'n' is left out by brokers"),
        (OutgoingMessage(b"x", properties={"KEYS": "n"}), "KEYS have separate arguments"),
        (OutgoingMessage(b"x", properties={"n": "y" * 32_768}), "a record can have 32767"),
        (OutgoingMessage(b"x", properties={"n": "\u00e9" * 16_384}), "a record can have 32767"),
        (OutgoingMessage(b"x", tags=7), "tags: 7"),
        (OutgoingMessage(b"x", keys=(7,)), "keys 7: a key is a text"),
        (OutgoingMessage(b"x", flag=2**31), "flag: 2147483648"),
        (OutgoingMessage(b"x", flag="1"), "flag: '1'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_record_that_cannot_be_sent_is_refused_before_it_is(message, problem) -> None:
    world = World([route("broker-a")], [stored()])
    sends = sending()

    for conversation in (
        sends.send("orders", message, None),
        sends.send_batch("orders", [OutgoingMessage(b"fine"), message], None),
        sends.send_one_way("orders", message, None),
    ):
        with pytest.raises(errors.ConfigError) as caught:
            play(conversation, world)
        assert problem in str(caught.value)
    assert world.tried == []


def test_a_batch_leaves_room_for_what_4_x_brokers_append_to_each_of_its_records() -> None:
    world = World([route("broker-a")], [stored()])
    sends = sending()
    other_bytes = len("n\x01\x02UNIQ_KEY\x01ID\x02WAIT\x01true\x02")
    full, over = (
        OutgoingMessage(b"x", properties={"n": "y" * (count - other_bytes)})
        for count in (31_743, 31_744)
    )

    assert play(sends.send_batch("orders", [full], None), world)[0].offset == 7
    with pytest.raises(errors.ConfigError, match=r"31744 bytes; .* in a batch 31743"):
        play(sends.send_batch("orders", [full, over], None), world)
    assert play(sends.send("orders", over, None), world).offset == 7


@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TRAN_MSG"])
def test_delays_are_refused_in_a_batch(name: str) -> None:
    world = World([route("broker-a")], [stored()])
    message = OutgoingMessage(b"x", properties={name: "3"})

    for body in (b"x", b""):
        alone = message._replace(body=body)
        assert play(sending().send("orders", alone, None), world).offset == 7
    with pytest.raises(errors.ConfigError, match=f"{name} have no effect in a batch"):
        play(sending().send_batch("orders", [message], None), world)


def test_all_problems_of_a_record_are_reported_together() -> None:
    message = OutgoingMessage("text", tags=7, keys=("a b",), properties={"n": 1}, flag="1")
    with pytest.raises(errors.ConfigError) as caught:
        play(sending().send("orders", message, None), World([route("broker-a")], [stored()]))
    assert len(caught.value.problems) == 5


def test_a_record_that_may_be_stored_is_sent_again_only_with_retry_unknown() -> None:
    lost = errors.ConnectionLost("cut")
    world = World([route("broker-a")], [lost, stored()])
    with pytest.raises(errors.ConnectionLost):
        send(sending(retries=3), world)
    assert world.tried == ["broker-a"]

    world = World([route("broker-a"), GONE, route("broker-a")], [lost, stored()])
    assert send(sending(retries=3, retry_unknown=True), world).offset == 7


@pytest.mark.parametrize(
    "refusal",
    [
        errors.UnknownTopic(29, "queueId[1] is illegal, topic:[orders]"),
        errors.TopicForbids(16, "the broker[a] sending message is forbidden"),
    ],
    ids=["a queue that was taken away", "a broker that is not written to any more"],
)
def test_a_changed_route_replaces_the_cached_one(refusal) -> None:
    both = route("broker-a", "broker-b")
    world = World([both, route("broker-b")], [refusal, stored()])

    assert send(sending(), world).queue == B
    assert world.tried == ["broker-a", "broker-b"]

    for unchanged in (both, GONE, REFUSED):
        world = World([both, unchanged], [refusal, stored()])
        with pytest.raises(type(refusal)):
            send(sending(), world)
        assert world.tried == ["broker-a"]


def test_a_broker_that_failed_or_was_slow_is_avoided_until_it_has_paid() -> None:
    world = World([route("broker-a", "broker-b")], [REFUSED, stored()])
    made = sending(avoid_slow=True)
    send(made, world)
    for _ in range(4):
        send(made, world)
    assert world.tried == ["broker-a", *["broker-b"] * 5], "a fails, its record goes to b"

    made._slow.answered("broker-b", 600, 0)
    send(made, world)
    assert world.tried[-1] in {"broker-a", "broker-b"}, "both are avoided: any is better than none"
    send(made, world, A)
    assert world.tried[-1] == "broker-a", "a given queue is not left out"


@pytest.mark.parametrize(
    ("took_ms", "pause_ms"),
    [(549, 0), (550, 2_000), (1_800, 5_000), (4_999, 6_000), (60_000, 30_000)],
)
def test_a_slow_broker_is_avoided_the_longer_the_slower_it_was(took_ms, pause_ms) -> None:
    slow = SlowBrokers()
    slow.answered("broker-a", took_ms, 1_000)

    assert slow.open([A, B], 1_000 + pause_ms - 1) == ([B] if pause_ms else [A, B])
    assert slow.open([A, B], 1_000 + pause_ms) == [A, B]


def test_room_is_bounded_by_records_and_bytes_and_takes_one_of_any_size() -> None:
    room = Room(ProducerSettings(max_in_flight=2, max_in_flight_bytes=10))
    assert room.has(50)
    room.take(5)
    assert (room.has(5), room.has(6)) == (True, False)
    room.take(5)
    assert not room.has(0)
    room.give(5)
    assert room.has(5)


def test_a_trace_has_the_layout_of_javas_tools() -> None:
    message = OutgoingMessage(b"body", "red", ("k1", "k\x012"), {"DELAY": "3"})
    said = trace.sent(
        *("g", "orders", message, "ID", "OFFSETID", ("10.0.0.1", 10911)),
        began_ms=1_700_000_000_000,
        took_ms=12,
        delayed=True,
    )

    assert said.body == (
        b"Pub\x011700000000000\x01DefaultRegion\x01g\x01orders\x01ID\x01red\x01k1 k 2\x01"
        b"10.0.0.1:10911\x014\x0112\x013\x01OFFSETID\x01true\x02"
    )
    assert said.keys == ("ID", "k1", "k\x012")


def test_a_trace_that_cannot_be_sent_changes_no_send() -> None:
    answers = [stored(), REFUSED]

    def broker(method, request) -> Command:
        if method is codes.GET_ROUTEINFO_BY_TOPIC:
            if request.fields["topic"] == trace.TRACE_TOPIC:
                raise GONE
            return route("broker-a")
        item = answers.pop(0)
        if isinstance(item, Exception):
            raise item
        return item

    made = sending(trace=True, retries=0)
    assert send(made, broker).offset == 7
    with pytest.raises(errors.ConnectError):
        send(made, broker)
