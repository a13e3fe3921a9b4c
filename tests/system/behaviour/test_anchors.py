"""A record by which a log is known again: found where it was, missed in any other log.

What holds on both servers runs on both. Logs that are cut or expire need the embedded server's
switches.
"""

from __future__ import annotations

import pytest

from tests.system.behaviour.shells import Shell
from tests.system.behaviour.sites import SHARED, SINGLE, Site
from tests.system.behaviour.windows import Feeder, Ledger
from tubemq_client import Anchor, ClientSettings, OffsetRange, Partition
from tubemq_client.embedded import EmbeddedTubeMQ


@pytest.mark.parametrize("topic", [SHARED, SINGLE])
@pytest.mark.parametrize("filters", [(), ("alpha",)], ids=["unfiltered", "filtered"])
def test_the_last_record_of_a_range_is_met_again(
    shell: Shell,
    window_site: Site,
    ledger: Ledger,
    group: str,
    topic: str,
    filters: tuple[str, ...],
) -> None:
    Feeder(window_site.settings, topic, ledger, 1).produce(900)
    partition = window_site.partition(topic)
    low, end = ledger.first(partition), ledger.stable_end_of(partition)
    seen: dict[int, Anchor] = {}
    with shell.RangeReader(window_site.settings, group=group, filters=filters) as reader:
        for cut in range(low + 28 * 30, end, 28 * 97):
            for _ in reader.read(OffsetRange(partition, low, cut)):
                pass
            seen[cut] = reader.stats.last[partition.key]
        before = (reader.stats.records, reader.stats.fetches)
        for cut, anchor in seen.items():
            assert low <= anchor.offset < cut
            assert reader.holds(partition, anchor, cut) is True
            other = anchor._replace(message_id=anchor.message_id + 1)
            assert reader.holds(partition, other, cut) is False
            assert reader.holds(partition, anchor._replace(checksum=1), cut) is False
        assert (reader.stats.records, reader.stats.fetches) == before


def test_the_last_record_stands_where_its_receipt_says(
    shell: Shell, window_site: Site, ledger: Ledger, group: str
) -> None:
    Feeder(window_site.settings, SINGLE, ledger, 2).produce(300)
    partition = window_site.partition(SINGLE)
    low, end = ledger.first(partition), ledger.stable_end_of(partition)
    with shell.RangeReader(window_site.settings, group=group) as reader:
        for _ in reader.read(OffsetRange(partition, low, end)):
            pass
        assert reader.stats.last[partition.key].offset == end - 28
        first = reader.first_record(OffsetRange(partition, end - 28, end))
        assert first == reader.stats.last[partition.key]
        assert reader.first_record(OffsetRange(partition, end, end)) is None


def send(settings: ClientSettings, count: int, tag: str) -> Partition:
    """Send records to one partition, one after the other."""
    partition = Partition(1, SINGLE, 0)
    Site(settings, [1]).send(partition, *(f"{tag} {n}".encode() for n in range(count)))
    return partition


def test_a_log_that_was_cut_and_grew_again_is_another(
    shell: Shell, by_hand: EmbeddedTubeMQ, settings: ClientSettings, group: str
) -> None:
    """The offsets come back with other records; only what was cut is missed."""
    broker, partition = by_hand.broker(1), send(settings, 40, "kept")
    broker.flush()
    send(settings, 20, "lost")
    with shell.RangeReader(settings, group=group) as reader:
        kept = reader.first_record(OffsetRange(partition, 39 * 28, 40 * 28))
        lost = reader.first_record(OffsetRange(partition, 59 * 28, 60 * 28))
        broker.crash()
        broker.restart()
        assert reader.holds(partition, lost, 60 * 28) is False  # the log ends before it
        send(settings, 50, "other")
        assert reader.holds(partition, lost, 60 * 28) is False
        assert reader.holds(partition, kept, 40 * 28) is True


@pytest.mark.parametrize("expire", ["expire_to", "expire_data_to"])
@pytest.mark.parametrize("upto", [28, 40 * 28])
def test_what_retention_has_removed_proves_nothing(
    shell: Shell,
    by_hand: EmbeddedTubeMQ,
    settings: ClientSettings,
    group: str,
    expire: str,
    upto: int,
) -> None:
    partition = send(settings, 40, "old")
    with shell.RangeReader(settings, group=group) as reader:
        anchor = reader.first_record(OffsetRange(partition, 0, 28))
        getattr(by_hand.broker(1).store(SINGLE, 0), expire)(20 * 28)
        assert reader.holds(partition, anchor, upto) is None
        assert reader.readable_from(OffsetRange(partition, 0, 40 * 28)) == 20 * 28
        assert reader.readable_from(OffsetRange(partition, 25 * 28, 40 * 28)) == 25 * 28
