"""One range read over several connections: what one connection delivers, in the same order."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.system.behaviour.shells import Shell
from tests.system.behaviour.sites import SHARED, SINGLE, Site
from tests.system.behaviour.windows import Feeder, Ledger
from tubemq_client import ClientSettings, OffsetRange, Partition, errors
from tubemq_client._core import parallel_read
from tubemq_client.embedded import EmbeddedTubeMQ


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shrink the sub-ranges, so that the few records of these tests fill several."""
    monkeypatch.setattr(parallel_read, "_FIRST", 50)
    monkeypatch.setattr(parallel_read, "_MOST", 300)
    monkeypatch.setattr(parallel_read, "_BATCHES", 3)


def whole(ledger: Ledger, partition: Partition) -> OffsetRange:
    return OffsetRange(partition, ledger.first(partition), ledger.stable_end_of(partition))


def read(reader: Any, range_: OffsetRange, **options: Any) -> list[Any]:
    return [message for batch in reader.read(range_, **options) for message in batch.messages()]


@pytest.mark.parametrize("filters", [(), ("alpha", "beta")])
@pytest.mark.parametrize("topic", [SHARED, SINGLE])
def test_several_connections_deliver_what_one_delivers(
    shell: Shell,
    window_site: Site,
    ledger: Ledger,
    group: str,
    topic: str,
    filters: tuple[str, ...],
) -> None:
    Feeder(window_site.settings, topic, ledger, 1).produce(1_200)
    range_ = whole(ledger, window_site.partition(topic))
    found, stats = [], []
    for parallel in (1, 2, 5):
        with shell.RangeReader(window_site.settings, group=group, filters=filters) as reader:
            found.append(read(reader, range_, parallel=parallel))
            stats.append(reader.stats)
    assert [message.body for message in found[0]] == ledger.expected(range_, filters)
    for messages, counted in zip(found, stats, strict=True):
        assert [m[:4] for m in messages] == [m[:4] for m in found[0]]
        assert (counted.records, counted.bytes) == (stats[0].records, stats[0].bytes)
        assert counted.last[range_.partition.key][1:] == stats[0].last[range_.partition.key][1:]


def test_a_read_that_stops_early_leaves_nothing_behind(
    shell: Shell, window_site: Site, ledger: Ledger, group: str
) -> None:
    Feeder(window_site.settings, SHARED, ledger, 2).produce(1_200)
    range_ = whole(ledger, window_site.partition(SHARED))
    with shell.RangeReader(window_site.settings, group=group, pool_size=3) as reader:
        for _ in range(3):  # each needs all names of the pool, so what is kept would be missed
            batches = reader.read(range_, parallel=3)
            assert len(next(batches))
            batches.close()
        assert len(read(reader, range_, parallel=3)) == len(ledger.expected(range_, ()))


def test_leaving_the_reader_ends_a_read_that_was_forgotten(
    shell: Shell, window_site: Site, ledger: Ledger, group: str
) -> None:
    Feeder(window_site.settings, SHARED, ledger, 3).produce(600)
    range_ = whole(ledger, window_site.partition(SHARED))
    with shell.RangeReader(window_site.settings, group=group, pool_size=2) as reader:
        forgotten: Iterator[Any] = reader.read(range_, parallel=2)
        next(forgotten)
    with shell.RangeReader(window_site.settings, group=group, pool_size=2) as reader:
        assert len(read(reader, range_, parallel=2)) == len(ledger.expected(range_, ()))


FORGETFUL = """
import sys
from tubemq_client import OffsetRange, Partition, RangeReader
from tubemq_client.config import ClientConfig

reader = RangeReader(ClientConfig.parse({"masters": sys.argv[1]}).settings(), group="forgetful")
batches = reader.read(OffsetRange(Partition(1, sys.argv[2], 1), 0, int(sys.argv[3])), parallel=3)
print(len(next(batches)), flush=True)
"""


def test_a_program_ends_in_the_middle_of_a_read(
    by_hand: EmbeddedTubeMQ, settings: ClientSettings, ledger: Ledger
) -> None:
    """Its threads stood still with locks that they held while the read was given back: that took
    ten seconds, or it never ended."""
    Feeder(settings, SHARED, ledger, 4).produce(1_200)
    by_hand.broker(1).flush()
    range_ = whole(ledger, Partition(1, SHARED, 1))
    program = [sys.executable, "-c", FORGETFUL, by_hand.masters, SHARED, str(range_.end)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert int(process.stdout.readline()) > 0
            at = time.monotonic()
            assert process.wait(30) == 0
            assert time.monotonic() - at < parallel_read.STOP_S
        finally:
            process.kill()


def test_the_error_of_a_piece_comes_when_it_is_its_turn(
    shell: Shell, by_hand: EmbeddedTubeMQ, settings: ClientSettings, ledger: Ledger, group: str
) -> None:
    Feeder(settings, SINGLE, ledger, 4).produce(1_000)
    by_hand.broker(1).flush()
    partition = Partition(1, SINGLE, 0)
    range_ = whole(ledger, partition)
    beyond = OffsetRange(partition, range_.start, range_.end + 28 * 100)
    got: list[bytes] = []

    def take_all(reader: Any) -> None:
        for batch in reader.read(beyond, parallel=3):
            got.extend(message.body for message in batch.messages())

    with shell.RangeReader(settings, group=group) as reader, pytest.raises(errors.LogTruncated):
        take_all(reader)
    expected = ledger.expected(range_, ())
    assert got == expected[: len(got)]


@pytest.mark.parametrize("parallel", [1, 3])
def test_corrupt_records_are_set_aside_in_order_whatever_reads_them(
    shell: Shell,
    by_hand: EmbeddedTubeMQ,
    settings: ClientSettings,
    ledger: Ledger,
    group: str,
    parallel: int,
) -> None:
    Feeder(settings, SINGLE, ledger, 5).produce(1_000)
    by_hand.broker(1).flush()
    partition = Partition(1, SINGLE, 0)
    range_ = whole(ledger, partition)
    by_hand.broker(1).corrupt_next(40)
    seen: list[tuple[int, int]] = []
    with shell.RangeReader(
        settings,
        group=group,
        corrupt_records="quarantine",
        quarantine=lambda entry: seen.append((entry.batch_offset, entry.position)),
    ) as reader:
        good = read(reader, range_, parallel=parallel)
        assert reader.stats.corrupt == len(seen) > 0
    assert seen == sorted(seen)
    assert len(good) + len(seen) == len(ledger.expected(range_, ()))


@pytest.mark.parametrize("parallel", [0, -1, 33])
def test_a_number_of_connections_that_cannot_work_is_refused(
    shell: Shell, by_hand: EmbeddedTubeMQ, settings: ClientSettings, group: str, parallel: int
) -> None:
    partition = Partition(1, SINGLE, 0)
    with (
        shell.RangeReader(settings, group=group) as reader,
        pytest.raises(errors.ConfigError, match="pool_size=32"),
    ):
        read(reader, OffsetRange(partition, 0, 28), parallel=parallel)
