"""Misbehaving clients and brokers of a node: one answer for each request, bounded memory."""

from __future__ import annotations

import os
import random
import threading
import time

import pytest

from rocketmq_client import OutgoingMessage, Producer, errors
from rocketmq_client._wire.commands import ONE_WAY, Command, encode_command
from rocketmq_client._wire.records import parse_records
from tests.snode.raw import FIRST, PULL, Raw, answer_to, eventually, fill, heartbeat


def _clients(node):
    return list(node.node._shared.clients)


def test_garbage_closes_one_connection(rocketmq, start) -> None:
    node = start()
    with Raw(node.address) as good, Raw(node.address) as bad:
        bad._socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert bad._socket.recv(100) == b""
        assert good.ask(Command(206, 1, {})).code == 0


def test_fuzzed_frames_neither_hang_nor_grow(rocketmq, start) -> None:
    """`SNODE_FUZZ` frames; a hundred thousand by hand."""
    node, chance = start(), random.Random(3)
    sound = encode_command(Command(30, 1, {"topic": "orders", "queueId": "0", "bname": "broker-a"}))
    for _ in range(int(os.environ.get("SNODE_FUZZ", "900")) // 3):
        frame = bytearray(sound * 3)
        for _ in range(chance.randint(1, 6)):
            frame[chance.randrange(len(frame))] = chance.randrange(256)
        with Raw(node.address) as client:
            client._socket.sendall(frame)
    with Raw(node.address) as client:
        assert client.ask(Command(206, 1, {})).code == 0
    eventually(lambda: node.do(node.node.gauges)["clients"] == 0)
    assert node.do(node.node.gauges)["in_flight"] == 0


def test_limits_answer_busy(rocketmq, start) -> None:
    node = start(max_in_flight_per_client=3)
    fields = {
        "consumerGroup": "g",
        "topic": "orders",
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "1",
        "sysFlag": "6",
        "commitOffset": "0",
        "subscription": "*",
        "suspendTimeoutMillis": "20000",
        "subVersion": "0",
        "bname": "broker-a",
    }
    with Raw(node.address) as client:
        client.send(*(Command(11, number, fields) for number in range(5)))
        refused = [client.receive() for _ in range(2)]
        fill(rocketmq.settings, 1)
        served = [client.receive() for _ in range(3)]

    assert [answer.code for answer in refused] == [2, 2]
    assert sorted(answer.opaque for answer in refused + served) == [0, 1, 2, 3, 4]
    assert [answer.code for answer in served] == [0, 0, 0]


def test_a_client_that_does_not_read_is_not_read_from(rocketmq, start) -> None:
    node = start()
    fill(node.settings, 32)
    request = Command(206, 1, {})
    with Raw(node.address) as lazy, Raw(node.address) as good:
        lazy._socket.settimeout(0.5)
        many = encode_command(request) * 200_000
        with pytest.raises(TimeoutError):
            lazy._socket.sendall(many)
        assert good.ask(request).code == 0


def test_a_client_that_does_not_read_costs_bounded_memory(rocketmq, start) -> None:
    node = start(max_in_flight_per_client=16)
    with Producer(rocketmq.settings) as producer:
        for _ in range(30):
            messages = [OutgoingMessage(os.urandom(10_000)) for _ in range(10)]
            producer.send_batch("orders", messages, queue=FIRST)
    fields = {**PULL, "maxMsgNums": "32", "queueOffset": "0"}
    with Raw(node.address) as lazy, Raw(node.address) as good:
        lazy._socket.settimeout(0.5)
        many = encode_command(Command(11, 1, fields)) * 200_000
        with pytest.raises(TimeoutError):
            lazy._socket.sendall(many)
        clients = node.do(lambda: [c._transport.get_write_buffer_size() for c in _clients(node)])
        assert good.ask(Command(206, 1, {})).code == 0

    assert max(clients) < 16 * 300_000 + 2**20


def to_a_stuck_broker(rocketmq, flag: int) -> bytes:
    """Build a send of 1 MiB to the first broker, which no longer reads from its connections."""
    rocketmq.do(
        lambda _: [c._writer.transport.pause_reading() for c in rocketmq._channels["broker-a"]]
    )
    fields = {"b": "orders", "e": "0", "n": "broker-a"}
    return encode_command(Command(310, 1, fields, bytes(2**20), flag))


ASK_THE_FIRST = Command(30, 9, {"topic": "orders", "queueId": "0", "bname": "broker-a"})
ASK_THE_OTHER = Command(30, 99, {"topic": "orders", "queueId": "0", "bname": "broker-b"})
ONE_WAY_OR_NOT = pytest.mark.parametrize("flag", [0, ONE_WAY], ids=["requests", "one-way"])


@ONE_WAY_OR_NOT
def test_a_broker_that_does_not_read_costs_bounded_memory(rocketmq, start, flag) -> None:
    node = start(upstream_timeout_ms=60_000, pool_size=1, drain_ms=0)
    fill(node.settings, 1)
    sent = to_a_stuck_broker(rocketmq, flag)
    with Raw(node.address) as busy, Raw(node.address) as good:
        busy._socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            busy._socket.sendall(sent * 64)
        waiting = node.do(
            lambda: [line._transport.get_write_buffer_size() for line in node.node._upstream._lines]
        )
        other = good.ask(ASK_THE_OTHER)

    assert max(waiting) < 8 * 2**20
    assert other.code == 0


@ONE_WAY_OR_NOT
def test_clients_of_a_broker_that_does_not_read_are_served_by_others(rocketmq, start, flag) -> None:
    node = start(upstream_timeout_ms=500, pool_size=1, drain_ms=0)
    fill(node.settings, 1)
    stream = to_a_stuck_broker(rocketmq, flag) * 16 + encode_command(ASK_THE_OTHER)
    with Raw(node.address) as client:
        sending = threading.Thread(target=client._socket.sendall, args=(stream,))
        sending.start()
        codes = []
        while (answer := client.receive()).opaque != ASK_THE_OTHER.opaque:
            codes.append(answer.code)
        sending.join(30)

    assert answer.code == 0
    assert set(codes) <= {0, 1, 14}
    assert bool({1, 14} & set(codes)) == (flag == 0)


def test_an_idle_client_is_cut_off(rocketmq, start) -> None:
    node = start(idle_ms=1_000)
    with Raw(node.address) as client:
        assert client.ask(Command(206, 1, {})).code == 0
        assert client._socket.recv(10) == b""
    eventually(lambda: node.do(node.node.gauges)["clients"] == 0)


def test_lite_pulls_reach_brokers_that_do_not_know_them(rocketmq, start) -> None:
    node = start()
    fill(node.settings, 5)
    fields = {**PULL, "maxMsgNums": "32", "queueOffset": "0"}
    with Raw(node.address) as client:
        answers = [client.ask(Command(361, number, fields)) for number in (1, 2, 3)]

    assert [(a.code, a.opaque, len(parse_records(a.body))) for a in answers] == [
        (0, number, 5) for number in (1, 2, 3)
    ]


def test_every_request_gets_one_answer(rocketmq, start) -> None:
    node = start(upstream_timeout_ms=1_000)
    fields = {"topic": "orders", "queueId": "0"}
    with Raw(node.address) as client:
        unknown = client.ask(Command(30, 1, {**fields, "bname": "broker-z"}))
        several = client.ask(Command(30, 2, fields))
        for code in (25, 350, 355, 9_999):
            assert client.ask(Command(code, 3, {})).code == 3
        rocketmq.do(lambda broker: broker._handlers.__setitem__(30, lambda *_: time.sleep(2)))
        late = client.ask(Command(30, 4, {**fields, "bname": "broker-a"}))

    assert (unknown.code, unknown.opaque) == (14, 1)
    assert (several.code, "virtual ports" in str(several.remark)) == (1, True)
    assert late.code == 2
    assert all(str(a.remark).startswith("snode: ") for a in (unknown, several, late))


def frame_of(size: int) -> bytes:
    """Build a send of `size` bytes, in a frame with a number of one digit."""
    frame = encode_command(Command(310, 1, {"b": "orders", "e": "0", "n": "broker-a"}))
    body = bytes(size - len(frame))
    return (size - 4).to_bytes(4, "big") + frame[4:] + body


@pytest.mark.parametrize("too_many", [0, 4])
def test_a_frame_that_would_grow_too_large_is_refused(rocketmq, start, too_many) -> None:
    node = start(pool_size=1)
    fill(node.settings, 1)
    held = Command(11, 2, {**PULL, "queueOffset": "1", "maxMsgNums": "1", "sysFlag": "6"})
    held = held._replace(fields=held.fields | {"suspendTimeoutMillis": "20000"})
    with Raw(node.address) as other, Raw(node.address) as client:
        for _ in range(9):  # numbers of two digits on the shared connection
            assert other.ask(ASK_THE_FIRST).code == 0
        other.send(held)
        eventually(lambda: node.do(node.node.gauges)["held_pulls"] == 1)
        client._socket.sendall(frame_of(16 * 2**20 + too_many))
        answer = client.receive()
        assert node.do(node.node.gauges)["held_pulls"] == 1
        fill(rocketmq.settings, 1)
        assert other.receive().code == 0

    assert answer.code == 13
    assert str(answer.remark).startswith("snode: a frame of ")


def test_a_large_frame_is_forwarded(rocketmq, start) -> None:
    node = start()
    with Raw(node.address) as client:
        client._socket.sendall(frame_of(16 * 2**20 - 100))
        answer = client.receive()

    assert answer.code == 13
    assert str(answer.remark).startswith("message size")


def stored(rocketmq) -> int:
    return rocketmq.do(lambda broker: broker.storage.index("orders", 0).end)


def stores_and_does_not_answer(rocketmq, how: str) -> None:
    """Make the broker store the next send and answer late, or cut its connection."""

    def change(broker) -> None:
        def send(request, channel):
            broker._handlers[310] = broker._send
            answer = broker._send(request, channel)
            if how == "late":
                time.sleep(1.2)
            else:
                channel.abort()
            return answer

        broker._handlers[310] = send

    rocketmq.do(change)


@pytest.mark.parametrize("how", ["late", "cut"])
@pytest.mark.parametrize("over", ["a new line", "an open line", "a member's line"])
def test_a_send_without_an_answer_is_reported_as_possibly_stored(
    rocketmq, start, over, how
) -> None:
    node = start(upstream_timeout_ms=400)
    send = Command(310, 7, {"a": "p", "b": "orders", "e": "0", "n": "broker-a"}, b"x")
    with Raw(node.address) as client:
        if over == "an open line":
            assert client.ask(send).code == 0
        if over == "a member's line":
            assert answer_to(client, heartbeat("a")).code == 0
        before = stored(rocketmq)
        stores_and_does_not_answer(rocketmq, how)
        answer = answer_to(client, send)

    assert answer.code == 1
    assert "snode: it may have been stored" in str(answer.remark)
    assert stored(rocketmq) == before + 1


@pytest.mark.parametrize("how", ["late", "cut"])
def test_producers_do_not_resend_records_that_a_broker_may_have_stored(
    rocketmq, start, how
) -> None:
    node = start(upstream_timeout_ms=400)
    stores_and_does_not_answer(rocketmq, how)
    with Producer(node.settings) as producer:
        with pytest.raises(errors.BrokerFailure, match="snode: it may have been stored"):
            producer.send("orders", b"x", queue=FIRST)
        assert stored(rocketmq) == 1
        assert producer.send("orders", b"after", queue=FIRST).offset == 1


def test_an_unsent_request_is_answered_as_not_stored(rocketmq, start) -> None:
    node = start(discovery_period_ms=60_000)
    fields = {"a": "p", "b": "orders", "e": "0", "n": "broker-a"}
    eventually(lambda: node.do(node.node.gauges)["brokers"] == 2)
    rocketmq.kill_broker("broker-a")
    with Raw(node.address) as client:
        assert client.ask(Command(310, 7, fields, b"x")).code == 14
