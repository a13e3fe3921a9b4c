"""Errors while a range is read: each gives the right records, or one clear error."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from tests.kit.ports import reserved_port
from tests.system.behaviour.shells import Shell
from tests.system.behaviour.sites import SHARED
from tests.system.behaviour.windows import Feeder, Ledger, check_window, settings_for
from tubemq_client import ClientSettings, CorruptEntry, OffsetRange, Partition, errors
from tubemq_client.embedded import EmbeddedTubeMQ

PARTITION = Partition(1, SHARED, 1)


@pytest.fixture
def filled(by_hand: EmbeddedTubeMQ, settings: ClientSettings, ledger: Ledger) -> OffsetRange:
    """Return a range over everything of one partition, all of it stable."""
    Feeder(settings, SHARED, ledger, 1).produce(1_200)
    by_hand.broker(1).flush()
    return OffsetRange(PARTITION, 0, ledger.stable_end_of(PARTITION))


def bodies(reader: Any, range_: OffsetRange) -> list[bytes]:
    return [m.body for batch in reader.read(range_) for m in batch.messages()]


# -- breaks that are survived ---------------------------------------------------------------------


def after_two_batches(reader: Any, range_: OffsetRange, act: object) -> list[bytes]:
    got = []
    for number, batch in enumerate(reader.read(range_)):
        got += [m.body for m in batch.messages()]
        if number == 1:
            act()  # type: ignore[operator]
    return got


def held_group(server: EmbeddedTubeMQ) -> str:
    return next(g for g in server.broker(1).groups() if ".r" in g)


def test_a_revoked_lease_costs_nothing(
    shell: Shell,
    by_hand: EmbeddedTubeMQ,
    settings: ClientSettings,
    ledger: Ledger,
    filled: OffsetRange,
) -> None:
    broker = by_hand.broker(1)
    with shell.RangeReader(settings, group="revoked") as reader:
        got = after_two_batches(
            reader, filled, lambda: broker.revoke_lease(held_group(by_hand), SHARED, 1)
        )
        assert reader.stats.restarts >= 1
    assert got == ledger.expected(filled, ())


def test_a_stolen_lease_costs_nothing(
    shell: Shell,
    by_hand: EmbeddedTubeMQ,
    settings: ClientSettings,
    ledger: Ledger,
    filled: OffsetRange,
) -> None:
    broker = by_hand.broker(1)
    with shell.RangeReader(settings, group="stolen") as reader:
        got = after_two_batches(
            reader, filled, lambda: broker.steal_lease(held_group(by_hand), SHARED, 1)
        )
    assert got == ledger.expected(filled, ())


def test_a_broker_restart_in_the_middle_costs_nothing(
    shell: Shell,
    by_hand: EmbeddedTubeMQ,
    settings: ClientSettings,
    ledger: Ledger,
    filled: OffsetRange,
) -> None:
    with shell.RangeReader(settings, group="restart") as reader:
        got = after_two_batches(reader, filled, by_hand.broker(1).restart)
    assert got == ledger.expected(filled, ())


def test_a_crash_that_loses_records_behind_the_range_costs_nothing(
    shell: Shell,
    by_hand: EmbeddedTubeMQ,
    settings: ClientSettings,
    ledger: Ledger,
    filled: OffsetRange,
) -> None:
    """Stable ends: what was planned is on disk, so lost and reused offsets lie beyond it."""
    before = dict(ledger.rows)
    Feeder(settings, SHARED, Ledger(), 2).produce(300)
    broker = by_hand.broker(1)

    def crash() -> None:
        assert broker.crash() > 0
        broker.restart()
        Feeder(settings, SHARED, Ledger(), 3).produce(300)

    with shell.RangeReader(settings, group="crash") as reader:
        got = after_two_batches(reader, filled, crash)
    assert got == Ledger(before).expected(filled, ())


# -- losses that are named ------------------------------------------------------------------------


BOTH_EXPIRE = pytest.mark.parametrize("expire", ["expire_to", "expire_data_to"])
"""Retention takes data and index, or only data: a broker then passes over what it still lists."""


@BOTH_EXPIRE
def test_retention_past_the_start_names_topic_partition_range_and_option(
    shell: Shell,
    by_hand: EmbeddedTubeMQ,
    settings: ClientSettings,
    filled: OffsetRange,
    expire: str,
) -> None:
    getattr(by_hand.broker(1).store(SHARED), expire)(5_600)
    with (
        shell.RangeReader(settings, group="lost") as reader,
        pytest.raises(errors.DataLoss) as failure,
    ):
        bodies(reader, filled)
    text = str(failure.value)
    for word in (f"'{SHARED}'", "1:1", "[0, 5600)", "gap_policy"):
        assert word in text


@BOTH_EXPIRE
@pytest.mark.parametrize("filters", [(), ("alpha",)], ids=["unfiltered", "filtered"])
@pytest.mark.parametrize("parallel", [1, 2])
def test_gap_policy_skip_continues_and_records_the_gap(
    shell: Shell,
    by_hand: EmbeddedTubeMQ,
    settings: ClientSettings,
    ledger: Ledger,
    filled: OffsetRange,
    expire: str,
    filters: tuple[str, ...],
    parallel: int,
) -> None:
    getattr(by_hand.broker(1).store(SHARED), expire)(5_600)
    with shell.RangeReader(settings, group="skip", gap_policy="skip", filters=filters) as reader:
        got = [m.body for b in reader.read(filled, parallel=parallel) for m in b.messages()]
        assert [(g.partition, g.start, g.end) for g in reader.stats.gaps] == [("1:1", 0, 5_600)]
    rest = OffsetRange(PARTITION, 5_600, filled.end)
    assert got == ledger.expected(rest, filters)


@BOTH_EXPIRE
def test_retention_that_overtakes_a_running_read_is_noticed(
    shell: Shell,
    by_hand: EmbeddedTubeMQ,
    settings: ClientSettings,
    filled: OffsetRange,
    expire: str,
) -> None:
    end = filled.end - 280
    remove = getattr(by_hand.broker(1).store(SHARED), expire)
    with shell.RangeReader(settings, group="race") as reader, pytest.raises(errors.DataLoss):
        after_two_batches(reader, filled, lambda: remove(end))


def test_a_truncated_log_is_an_error_not_a_short_window(
    shell: Shell,
    by_hand: EmbeddedTubeMQ,
    settings: ClientSettings,
    ledger: Ledger,
    filled: OffsetRange,
) -> None:
    Feeder(settings, SHARED, ledger, 2).produce(100)
    unsafe = OffsetRange(PARTITION, 0, ledger.stable_end_of(PARTITION))
    broker = by_hand.broker(1)
    assert broker.crash() > 0
    broker.restart()
    with shell.RangeReader(settings, group="short") as reader, pytest.raises(errors.LogTruncated):
        bodies(reader, unsafe)


def test_stable_and_latest_ends_differ_by_what_a_crash_would_lose(
    shell: Shell,
    by_hand: EmbeddedTubeMQ,
    settings: ClientSettings,
    ledger: Ledger,
    filled: OffsetRange,
) -> None:
    Feeder(settings, SHARED, ledger, 2).produce(90, [PARTITION])
    with shell.Metadata(settings) as metadata:
        stable = metadata.ends(SHARED, "ends", [PARTITION])[PARTITION]
        latest = metadata.ends(SHARED, "ends", [PARTITION], stable=False)[PARTITION]
    assert (stable.stable, latest.stable) == (True, False)
    assert latest.max_offset - stable.max_offset == 90 * 28
    lost = by_hand.broker(1).crash()
    assert lost == 90


# -- corrupt records ------------------------------------------------------------------------------


def test_a_corrupt_checksum_fails_by_default_and_names_the_option(
    shell: Shell, by_hand: EmbeddedTubeMQ, settings: ClientSettings, filled: OffsetRange
) -> None:
    by_hand.broker(1).corrupt_next(1)
    with (
        shell.RangeReader(settings, group="bad") as reader,
        pytest.raises(errors.CorruptRecord, match="corrupt_records"),
    ):
        bodies(reader, filled)


def test_corrupt_records_can_be_dropped_and_counted_or_quarantined(
    shell: Shell,
    by_hand: EmbeddedTubeMQ,
    settings: ClientSettings,
    ledger: Ledger,
    filled: OffsetRange,
) -> None:
    by_hand.broker(1).corrupt_next(3)
    kept = []
    with shell.RangeReader(
        settings, group="bad", corrupt_records="quarantine", quarantine=kept.append
    ) as reader:
        got = bodies(reader, filled)
        assert reader.stats.corrupt == len(kept) == 3
    assert len(got) == len(ledger.expected(filled, ())) - 3
    assert all(entry.partition == PARTITION for entry in kept)


@pytest.mark.parametrize("parallel", [1, 2])
@pytest.mark.parametrize(
    "failure", [errors.RpcTimeout("no answer"), errors.ServiceUnavailable(503), OSError("full")]
)
def test_what_a_quarantine_raises_ends_the_read(
    shell: Shell,
    by_hand: EmbeddedTubeMQ,
    settings: ClientSettings,
    filled: OffsetRange,
    failure: Exception,
    parallel: int,
) -> None:
    """A callback for corrupt records raises the errors of a broken read, too."""

    def keep(entry: CorruptEntry) -> None:
        raise failure

    by_hand.broker(1).corrupt_next(1)
    with (
        shell.RangeReader(
            settings, group="bad", corrupt_records="quarantine", quarantine=keep
        ) as reader,
        pytest.raises(type(failure)) as raised,
    ):
        for _ in reader.read(filled, parallel=parallel):
            pass
    assert raised.value is failure


# -- endings --------------------------------------------------------------------------------------


def test_stopping_early_gives_the_partition_back(
    shell: Shell, by_hand: EmbeddedTubeMQ, settings: ClientSettings, filled: OffsetRange
) -> None:
    with (
        shell.RangeReader(settings, group="early", pool_size=1) as reader,
        closing(reader.read(filled)) as batches,
    ):
        next(batches)
    # With a pool of one group, a partition that was not given back would answer 410 for 30 s.
    with shell.RangeReader(settings, group="early", pool_size=1, deadline_ms=15_000) as reader:
        assert bodies(reader, filled)


def test_leaving_the_reader_gives_the_partition_of_an_open_iterator_back(
    shell: Shell, by_hand: EmbeddedTubeMQ, settings: ClientSettings, filled: OffsetRange
) -> None:
    with shell.RangeReader(settings, group="open", pool_size=1) as reader:
        batches = reader.read(filled)
        next(batches)
    with shell.RangeReader(settings, group="open", pool_size=1, deadline_ms=15_000) as reader:
        assert bodies(reader, filled)
    batches.close()


@pytest.mark.parametrize("parallel", [1, 2])
def test_an_iterator_that_outlives_its_reader_says_that_it_is_closed(
    shell: Shell,
    by_hand: EmbeddedTubeMQ,
    settings: ClientSettings,
    filled: OffsetRange,
    parallel: int,
) -> None:
    with shell.RangeReader(settings, group="late") as reader:
        batches = reader.read(filled, parallel=parallel)
        next(batches)
    with pytest.raises((errors.ClosedError, errors.ConnectionLost)):
        list(batches)


def test_a_reader_without_progress_gives_up_and_says_where(
    shell: Shell, by_hand: EmbeddedTubeMQ, settings: ClientSettings, filled: OffsetRange
) -> None:
    by_hand.broker(1).stop_reading()
    with (
        shell.RangeReader(settings, group="stalled", deadline_ms=1_000) as reader,
        pytest.raises(errors.RangeStalled) as failure,
    ):
        bodies(reader, filled)
    assert str(filled) in str(failure.value)
    assert "deadline_ms" in str(failure.value)


def test_an_empty_range_asks_no_broker(
    shell: Shell, settings: ClientSettings, by_hand: EmbeddedTubeMQ
) -> None:
    with shell.RangeReader(settings, group="empty") as reader:
        assert list(reader.read(OffsetRange(PARTITION, 56, 56))) == []
        assert reader.stats.fetches == 0


# -- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [(56, 28, "beyond end"), (1, 56, "multiple of 28"), (-28, 0, "multiple of 28")],
)
def test_impossible_ranges_are_refused_when_made(start: int, end: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        OffsetRange(PARTITION, start, end)


def test_an_unknown_topic_is_one_clear_error(
    shell: Shell, by_hand: EmbeddedTubeMQ, settings: ClientSettings
) -> None:
    with shell.Metadata(settings) as metadata, pytest.raises(errors.UnknownTopic, match="nowhere"):
        metadata.topic("nowhere")


def test_an_unknown_partition_lists_those_there_are(
    shell: Shell, by_hand: EmbeddedTubeMQ, settings: ClientSettings
) -> None:
    ghost = Partition(1, SHARED, 7)
    with (
        shell.Metadata(settings) as metadata,
        pytest.raises(errors.ConfigError, match="1:0, 1:1, 1:2"),
    ):
        metadata.ends(SHARED, "ghost", [ghost])


def test_a_range_of_an_unknown_partition_is_refused_before_any_broker_is_asked(
    shell: Shell, by_hand: EmbeddedTubeMQ, settings: ClientSettings
) -> None:
    with shell.RangeReader(settings, group="ghost") as reader:
        with pytest.raises(errors.ConfigError, match="no partition 1:7; it has 1:0, 1:1, 1:2"):
            bodies(reader, OffsetRange(Partition(1, SHARED, 7), 0, 56))
        assert reader.stats.fetches == reader.stats.restarts == 0


def test_a_wrong_master_address_names_the_address(shell: Shell, by_hand: EmbeddedTubeMQ) -> None:
    with (
        reserved_port() as port,
        shell.Metadata(settings_for(f"127.0.0.1:{port}")) as metadata,
        pytest.raises(errors.ConnectError, match=str(port)),
    ):
        metadata.topic(SHARED)


def test_a_dead_broker_is_an_error_within_the_deadline(
    shell: Shell, by_hand: EmbeddedTubeMQ, settings: ClientSettings, filled: OffsetRange
) -> None:
    by_hand.broker(1).stop()
    with (
        shell.RangeReader(settings, group="dead", deadline_ms=1_000) as reader,
        pytest.raises(errors.RangeStalled, match="cannot connect"),
    ):
        bodies(reader, filled)


def test_a_silent_master_is_an_error_that_names_the_option(
    shell: Shell, by_hand: EmbeddedTubeMQ
) -> None:
    by_hand.silence_master(20)
    settings = settings_for(by_hand.masters, rpc_timeout_ms=1_000)
    with (
        shell.Metadata(settings) as metadata,
        pytest.raises(errors.RpcTimeout, match="rpc_timeout_ms"),
    ):
        metadata.topic(SHARED)


@contextmanager
def impostor(reply: bytes) -> Iterator[str]:
    """Start a server that answers anything with `reply`."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as peer:
                peer.recv(65_536)
                peer.sendall(reply)
                peer.recv(65_536)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(30)


def test_a_peer_that_does_not_speak_tubemq_is_a_protocol_violation(shell: Shell) -> None:
    with (
        impostor(b"HTTP/1.1 400 Bad Request\r\n\r\n") as masters,
        shell.Metadata(settings_for(masters)) as metadata,
        pytest.raises(errors.ProtocolViolation, match=masters),
    ):
        metadata.topic(SHARED)


def test_filters_are_checked_again_by_the_client(
    shell: Shell, by_hand: EmbeddedTubeMQ, settings: ClientSettings, ledger: Ledger
) -> None:
    """Brokers filter by Java's string hash: "Aa" and "BB" collide and must not be mixed up."""
    from tubemq_client import Producer, Record

    with Producer(settings) as producer:
        records = [
            Record(b"%d" % n, None, stream, None, PARTITION)
            for n, stream in enumerate(("Aa", "BB") * 50)
        ]
        for record, receipt in zip(records, producer.send_many(SHARED, records), strict=True):
            ledger.add(PARTITION, receipt.offset, record.body, record.stream_id)
    ledger.wait_until_stable()
    range_ = OffsetRange(PARTITION, 0, ledger.stable_end_of(PARTITION))
    assert check_window(settings, "hash", ledger, range_, ("Aa",)) == 50
