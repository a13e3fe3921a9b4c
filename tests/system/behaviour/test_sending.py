"""Sending in the background, in bulk and over a bad network: what a receipt promises."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from tests.system.behaviour.conftest import embedded
from tests.system.behaviour.shells import Shell
from tests.system.behaviour.sites import SHARED, SINGLE, Site, bodies, eventually, new_group
from tests.system.behaviour.windows import settings_for
from tubemq_client import (
    BrokerNode,
    ClientSettings,
    Metadata,
    Partition,
    Producer,
    ProducerSettings,
    Record,
    SendReceipt,
    SendSummary,
    errors,
)
from tubemq_client._core.sending import ProducerSession
from tubemq_client.embedded import EmbeddedTubeMQ, Switches
from tubemq_client.testing.proxy import FaultProxy

PARTITION = Partition(1, SHARED, 0)
WAIT_S = 30


def outcome(shell: Shell, future: Any) -> SendReceipt | BaseException:
    """Return the result or error of a future of either API."""
    if shell.name == "sync":
        return future.exception(WAIT_S) or future.result()

    async def settled() -> SendReceipt | BaseException:
        try:
            return await future
        except errors.TubeMQError as error:
            return error

    return shell.wait(settled())  # type: ignore[attr-defined]


def read_back(
    shell: Shell, site: Site, partition: Partition, start: int, count: int
) -> list[bytes]:
    """Read the next `count` records of a partition."""
    found: list[bytes] = []
    with shell.AssignedConsumer(site.settings, new_group(), {partition.topic: ()}) as consumer:
        consumer.assign(partition, start)

        def more() -> bool | None:
            batch = consumer.pull(partition, timeout_ms=200)
            if batch is not None:
                found.extend(bodies(batch))
                consumer.confirm(batch)
            return True if len(found) >= count else None

        eventually(more)
    return found


# -- on every server ------------------------------------------------------------------------------


def test_futures_get_the_receipts_of_their_own_records(shell: Shell, site: Site) -> None:
    partition = site.partition(SINGLE)
    start = site.end(partition)
    with shell.Producer(site.settings) as producer:
        futures = [producer.send_async(SINGLE, Record(b"%d" % n)) for n in range(300)]
        producer.flush()
        receipts = [outcome(shell, future) for future in futures]
    assert all(isinstance(receipt, SendReceipt) for receipt in receipts)
    offsets = {r.offset: n for n, r in enumerate(receipts) if isinstance(r, SendReceipt)}
    assert sorted(offsets) == [start + 28 * n for n in range(300)]
    stored = read_back(shell, site, partition, start, 300)
    assert stored == [b"%d" % offsets[start + 28 * n] for n in range(300)]


def test_a_batch_is_summed_up_and_shows_its_progress(shell: Shell, site: Site) -> None:
    shown: list[SendSummary] = []
    records = [Record(b"%03d" % n, partition=site.partition()) for n in range(120)]
    start = site.end(site.partition())
    with shell.Producer(site.settings) as producer:
        summary = producer.send_all(SHARED, records, progress=shown.append)
        stats = producer.stats
    assert (summary.stored, summary.bytes, summary.failures) == (120, 360, ())
    assert summary.first.offset == start
    assert summary.last.offset == start + 119 * 28
    assert [s.stored for s in shown] == [50, 100, 120]
    assert (stats.stored, stats.failed, stats.in_flight) == (120, 0, 0)


def test_attributes_and_system_headers_arrive(shell: Shell, site: Site) -> None:
    partition = site.partition(SINGLE)
    start = site.end(partition)
    with shell.Producer(site.settings) as producer:
        producer.send(
            SINGLE,
            "grüße".encode(),
            attributes={"k": "ü", "n": "1"},
            stream_id="f1",
            msg_time="202401011230",
        )
    with shell.AssignedConsumer(site.settings, new_group(), {SINGLE: ()}) as consumer:
        consumer.assign(partition, start)
        batch = eventually(lambda: consumer.pull(partition))
        (message,) = batch.messages()
    assert message.body == "grüße".encode()
    assert message.attributes == {"k": "ü", "n": "1"}
    assert (message.stream_id, message.msg_time) == ("f1", "202401011230")


def test_records_that_no_broker_would_take_are_listed_and_the_others_stored(
    shell: Shell, site: Site
) -> None:
    text: Any = "text"
    records = [Record(b"a"), Record(b""), Record(bytes(2 * 2**20)), Record(text), Record(b"b")]
    with shell.Producer(site.settings) as producer:
        summary = producer.send_all(SHARED, records, max_failures=3)
        assert summary.stored == 2
        assert [type(error) for error in summary.failures] == [errors.ConfigError] * 3
        with pytest.raises(errors.ConfigError, match="body is empty"):
            producer.send_all(SHARED, records)


def test_a_text_among_records_is_its_caller_s_mistake_alone(shell: Shell, site: Site) -> None:
    text: Any = "a text instead of bytes"
    with shell.Producer(site.settings) as producer:
        futures = [producer.send_async(SHARED, Record(b"x" * 4_000)) for _ in range(200)]
        with pytest.raises(errors.ConfigError, match="not bytes"):
            producer.send_async(SHARED, Record(text))
        producer.flush()
        assert {type(outcome(shell, future)) for future in futures} == {SendReceipt}


def test_a_body_alone_is_sent_in_the_background(shell: Shell, site: Site) -> None:
    partition = site.partition(SINGLE)
    start = site.end(partition)
    with shell.Producer(site.settings) as producer:
        futures = [
            producer.send_async(SINGLE, b"plain"),
            producer.send_async(SINGLE, b"with more", attributes={"a": "1"}, stream_id="s"),
        ]
        producer.flush()
        assert all(isinstance(outcome(shell, future), SendReceipt) for future in futures)
        with pytest.raises(errors.ConfigError, match="stream_id: set in the Record"):
            producer.send_async(SINGLE, Record(b"x"), stream_id="s")
    assert read_back(shell, site, partition, start, 2) == [b"plain", b"with more"]


def test_a_body_is_taken_as_it_is_when_it_is_sent(shell: Shell, site: Site) -> None:
    partition = site.partition(SINGLE)
    start, body = site.end(partition), bytearray(b"before")
    with shell.Producer(site.settings) as producer:
        future = producer.send_async(SINGLE, Record(body))
        body[:] = b"later, longer"
        producer.flush()
        assert outcome(shell, future)
    assert read_back(shell, site, partition, start, 1) == [b"before"]


def test_topics_may_be_added_while_records_are_under_way(shell: Shell, site: Site) -> None:
    with shell.Producer(site.settings) as producer:
        futures = [producer.send_async(SHARED, Record(b"x")) for _ in range(50)]
        assert producer.publish(SINGLE) == [site.partition(SINGLE)]
        futures += [producer.send_async(SINGLE, Record(b"x")) for _ in range(50)]
        producer.flush()
        assert {type(outcome(shell, future)) for future in futures} == {SendReceipt}


# -- with faults ----------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[EmbeddedTubeMQ]:
    with embedded(Switches(), brokers=2) as server:
        yield server


@pytest.fixture
def options(server: EmbeddedTubeMQ) -> ClientSettings:
    return settings_for(server.masters, rpc_timeout_ms=2_000)


@pytest.fixture
def proxy(server: EmbeddedTubeMQ) -> Iterator[FaultProxy]:
    host, port = server.broker(1).address.split(":")
    with FaultProxy((host, int(port))) as proxy:
        yield proxy


def through(proxy: FaultProxy, producer: Any, topic: str = SHARED) -> None:
    """Route the producer to broker 1 through the proxy, as if the master had announced it."""
    producer.publish(topic)
    producer._producer.brokers[1] = BrokerNode(1, *proxy.address)


def stored_bodies(shell: Shell, options: ClientSettings, partition: Partition) -> Counter[bytes]:
    site = Site(options, [1, 2])
    count = site.end(partition) // 28
    return Counter(read_back(shell, site, partition, 0, count)) if count else Counter()


@pytest.mark.parametrize("way", ["many", "async"])
def test_no_receipt_is_given_for_a_record_that_is_not_stored(
    shell: Shell, options: ClientSettings, proxy: FaultProxy, way: str
) -> None:
    """Connections are cut after every few replies. What has a receipt is stored exactly once at
    its offset; what is unknown is stored at most once."""
    partition = Partition(1, SINGLE, 0)
    proxy.faults.cut_after = 2_000
    receipts: dict[bytes, SendReceipt] = {}
    with shell.Producer(options) as producer:
        through(proxy, producer, SINGLE)
        for start in range(0, 400, 40):
            records = [Record(b"%d" % n, partition=partition) for n in range(start, start + 40)]
            if way == "async":
                futures = [producer.send_async(SINGLE, record) for record in records]
                found = [outcome(shell, future) for future in futures]
            else:
                found = []
                with contextlib.suppress(errors.NetworkError):
                    found.extend(producer.send_many(SINGLE, records, in_flight=16))
            for record, answer in zip(records, found, strict=False):
                if isinstance(answer, SendReceipt):
                    receipts[record.body] = answer
    stored = stored_bodies(shell, options, partition)
    assert proxy.cuts > 2
    assert receipts.keys() <= stored.keys()
    assert set(stored.values()) == {1}


def test_a_late_receipt_belongs_to_no_record(
    shell: Shell, server: EmbeddedTubeMQ, options: ClientSettings, proxy: FaultProxy
) -> None:
    with shell.Producer(options) as producer:
        through(proxy, producer)
        proxy.faults.stall = True
        with pytest.raises(errors.RpcTimeout, match="may be stored"):
            producer.send(SHARED, b"late", partition=PARTITION)
        proxy.faults.stall = False
        receipt = producer.send(SHARED, b"next", partition=PARTITION)
    assert receipt.offset == 28, "the first record was stored, and its reply is not mistaken"


def test_records_refused_for_overflow_are_stored_once(
    shell: Shell, server: EmbeddedTubeMQ, options: ClientSettings
) -> None:
    for broker in (1, 2):
        server.broker(broker).overflow_every(7)
    with shell.Producer(options) as producer:
        futures = [producer.send_async(SINGLE, Record(b"%d" % n)) for n in range(60)]
        producer.flush()
        assert {type(outcome(shell, future)) for future in futures} == {SendReceipt}
    stored: Counter[bytes] = Counter()
    for broker in (1, 2):
        stored += stored_bodies(shell, options, Partition(broker, SINGLE, 0))
    assert stored == Counter({b"%d" % n: 1 for n in range(60)})


def test_a_closed_broker_is_left_out(
    shell: Shell, server: EmbeddedTubeMQ, options: ClientSettings
) -> None:
    with shell.Producer(options) as producer:
        producer.publish(SHARED)
        server.broker(1).stop_writing()
        used = {producer.send(SHARED, b"x").partition.broker_id for _ in range(6)}
        assert used == {2}
        assert producer.stats.brokers_left_out == 1
        assert producer.stats.errors_by_code == {503: 1}


def test_too_many_under_way_wait_and_then_say_so(
    shell: Shell, options: ClientSettings, proxy: FaultProxy
) -> None:
    few = ProducerSettings(max_in_flight=3)
    with shell.Producer(options, producer=few) as producer:
        through(proxy, producer)
        proxy.faults.stall = True
        futures = [producer.send_async(SHARED, Record(b"x", partition=PARTITION)) for _ in range(3)]
        with pytest.raises(errors.TooManyInFlight, match="max_in_flight"):
            producer.send_async(SHARED, Record(b"x", partition=PARTITION), timeout_ms=50)
        with pytest.raises(errors.TooManyInFlight):
            producer.flush(timeout_ms=50)
        proxy.faults.stall = False
        producer.flush()
        assert {type(outcome(shell, future)) for future in futures} == {SendReceipt}
        assert producer.send_async(SHARED, Record(b"x"))


def test_closing_waits_for_what_is_under_way(shell: Shell, options: ClientSettings) -> None:
    with shell.Producer(options) as producer:
        futures = [producer.send_async(SHARED, Record(b"%d" % n)) for n in range(200)]
    assert {type(outcome(shell, future)) for future in futures} == {SendReceipt}
    assert not [t.name for t in threading.enumerate() if t.name.startswith("tubemq-producer")]


def test_a_record_of_a_slow_generator_does_not_wait_for_the_next(
    shell: Shell, server: EmbeddedTubeMQ, options: ClientSettings
) -> None:
    """For any number of simultaneous sends before."""
    waited_for: list[int] = []

    def slow() -> Iterator[Record]:
        for count in (1, 37):
            for _ in range(count):
                yield Record(b"x", partition=PARTITION)
            with Metadata(options) as metadata:

                def stored() -> int | None:
                    end = metadata.ends(SHARED, "slow", [PARTITION])[PARTITION].max_offset
                    return end if end == 28 * (len(waited_for) * 37 + 1) else None

                waited_for.append(eventually(stored))

    with shell.Producer(options) as producer:
        assert len(list(producer.send_many(SHARED, slow(), in_flight=400))) == 38
    assert waited_for == [28, 28 * 38]


@pytest.mark.parametrize("call", ["flush", "close"])
def test_a_callback_that_would_wait_for_itself_raises(
    server: EmbeddedTubeMQ, options: ClientSettings, call: str
) -> None:
    """The blocking shell only: on an event loop a callback cannot wait."""
    told: list[BaseException | None] = []

    def callback(future: Future[SendReceipt]) -> None:
        try:
            getattr(producer, call)()
        except errors.LocalError as error:
            told.append(error)

    with Producer(options) as producer:
        producer.send_async(SHARED, Record(b"x")).add_done_callback(callback)
        producer.flush(timeout_ms=WAIT_S * 1000)
        assert producer.send(SHARED, b"y")
    assert [f"{call}() was called in a callback" in str(error) for error in told] == [True]


def test_a_callback_that_would_end_the_thread_costs_other_records_nothing(
    server: EmbeddedTubeMQ, options: ClientSettings, caplog: pytest.LogCaptureFixture
) -> None:
    """The blocking shell only: a loop ends with `sys.exit`."""

    def leave(_: Future[SendReceipt]) -> None:
        sys.exit("of a callback")

    with Producer(options) as producer:
        for _ in range(3):
            producer.send_async(SHARED, Record(b"x")).add_done_callback(leave)
            producer.flush(timeout_ms=WAIT_S * 1000)
        assert producer.send_async(SHARED, Record(b"y")).result(WAIT_S)
    assert "a callback of send_async failed" in caplog.text


def test_a_router_that_fails_on_the_way_costs_its_record_only(
    shell: Shell, server: EmbeddedTubeMQ, options: ClientSettings
) -> None:
    def router(topic: str, record: Record, partitions: Sequence[Partition]) -> Partition:
        places = [p for p in partitions if p.broker_id == int(record.body)]
        return places[0]  # fails when the record has to go elsewhere

    with shell.Producer(options, router=router) as producer:
        producer.publish(SHARED)
        server.broker(1).crash()
        futures = [producer.send_async(SHARED, Record(body)) for body in (b"1", b"2", b"2")]
        producer.flush(timeout_ms=10_000)
        found = [outcome(shell, future) for future in futures]
    assert [type(each) for each in found] == [errors.ConfigError, SendReceipt, SendReceipt]
    assert "router" in str(found[0])


def test_an_unexpected_error_affects_its_records_only(
    server: EmbeddedTubeMQ, options: ClientSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync API only: its thread would end, and a caller would wait forever."""
    with Producer(options) as producer:
        producer.publish(SHARED)
        with monkeypatch.context() as patch:
            patch.setattr(ProducerSession, "post_all", lambda *_: 1 / 0)
            broken = producer.send_async(SHARED, Record(b"x"))
            assert isinstance(broken.exception(WAIT_S), errors.LocalError)
        assert producer.send_async(SHARED, Record(b"y")).result(WAIT_S)
        producer.flush(timeout_ms=WAIT_S * 1000)
