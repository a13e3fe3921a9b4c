"""Records of one fetch: memory or file, bounds, skipped records, half reads."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tubemq_client._wire.payload import java_hash
from tubemq_client.embedded.options import ReadLimits
from tubemq_client.embedded.reading import ReadOutcome, ReadRequest, priority_level, read
from tubemq_client.embedded.store import StoreLog

pytestmark = pytest.mark.timeout(60)

LIMITS = ReadLimits()
WHOLE = ReadLimits(half_reads=False)


def log_of(*partitions: int, key: int = -1, size: int = 1) -> StoreLog:
    log = StoreLog()
    for partition in partitions:
        log.append(partition, bytes(size), time_ms=0, checksum=1, key_code=key)
    return log


def request(start: int = 0, partition: int = 0, **changed: object) -> ReadRequest:
    base = ReadRequest(start, partition, frozenset(), 3, 524_288, 1)
    return base._replace(**changed)


@pytest.mark.parametrize(
    ("priority", "filtered", "level"),
    [
        (300, False, 3),
        (300, True, 0),
        (303, True, 3),
        (301, True, 1),
        (1, False, 0),
        (1, True, 1),
        (101, False, 1),
        (202, False, 2),
        (999, True, 3),
    ],
)
def test_priority_levels(priority: int, filtered: bool, level: int) -> None:
    assert priority_level(priority, filtered=filtered) == level


def batches(log: StoreLog, limits: ReadLimits) -> list[int]:
    """Sizes of successive batches from 0 until the end."""
    sizes, start = [], 0
    while start < log.end and len(sizes) < 1_000:
        outcome = read(log, request(start), limits)
        sizes.append(len(outcome.records))
        start += outcome.advance
    return sizes


def test_entries_whose_data_is_gone_are_passed_over_without_a_word() -> None:
    """On a genuine broker batches are empty or short, and the lag is counted from -2."""
    log = log_of(*[0] * 8)
    log.expire_data_to(28 * 5)

    outcome = read(log, request(), LIMITS)
    assert (outcome.code, outcome.records, outcome.advance) == (200, [], 28 * 4)
    assert outcome.data_lag == log.data_end + 2
    outcome = read(log, request(28 * 4), LIMITS)
    assert (len(outcome.records), outcome.advance) == (1, 28 * 2)
    assert outcome.data_lag == 2 * 53


def test_files_are_read_by_halves() -> None:
    log = log_of(*[0] * 100)
    log.flush()

    assert batches(log, LIMITS) == [50, 25, 13, 6, 3, 2, 1]


def test_18_pending_records_come_as_9_5_2_1_1() -> None:
    log = log_of(*[0] * 18)
    log.flush()

    assert batches(log, LIMITS) == [9, 5, 2, 1, 1]


def test_memory_is_read_whole() -> None:
    assert batches(log_of(*[0] * 100), LIMITS) == [100]


def test_a_file_read_never_crosses_an_index_segment() -> None:
    log = log_of(*[0] * 25)
    log.flush()

    assert batches(log, ReadLimits(segment_records=10, half_reads=False)) == [10, 10, 5]


def test_the_record_that_reaches_the_byte_budget_is_included() -> None:
    log = log_of(*[0] * 10, size=48)
    log.flush()

    assert len(read(log, request(budget=100), WHOLE).records) == 1
    assert len(read(log, request(budget=101), WHOLE).records) == 2
    assert len(read(log, request(budget=1), WHOLE).records) == 1


def test_memory_reads_stop_at_the_transfer_size_whatever_the_budget() -> None:
    log = log_of(*[0] * 10, size=48)

    limits = ReadLimits(fetch_bytes=250)

    assert len(read(log, request(budget=1), limits).records) == 3


def test_no_fetch_goes_beyond_the_hard_cap() -> None:
    assert ReadLimits(fetch_bytes=10**9).transfer_bytes == 1024 * 1024


def test_other_partitions_records_are_skipped_and_count_as_read() -> None:
    log = log_of(0, 1, 2, 0, 1, 2)
    log.flush()

    outcome = read(log, request(partition=1, partitions=3), WHOLE)

    assert len(outcome.records) == 2
    assert outcome.advance == 6 * 28
    assert outcome.data_lag == 0


def test_an_empty_file_read_is_a_success_that_advances() -> None:
    log = log_of(1, 1, 1, 1)
    log.flush()

    outcome = read(log, request(), LIMITS)

    assert outcome == ReadOutcome(200, "OK!", [], 2 * 28, log.end, 2 * 53, require_slow=False)


def test_memory_without_a_match_is_a_404_that_advances_to_its_end() -> None:
    outcome = read(log_of(1, 1, 1), request(), LIMITS)

    assert (outcome.code, outcome.advance) == (404, 84)
    assert outcome.text == "Can't found Message by index!"


def test_the_backup_buffer_without_a_match_is_an_empty_success() -> None:
    log = log_of(1, 1, 1)
    log.swap()
    log.append(0, b"x", time_ms=0, checksum=1)

    outcome = read(log, request(), LIMITS)

    assert (outcome.code, len(outcome.records), outcome.advance) == (200, 0, 84)


def test_each_level_sees_its_part() -> None:
    log = log_of(0)
    log.flush()
    log.append(0, b"x", time_ms=0, checksum=1)
    log.swap()
    log.append(0, b"x", time_ms=0, checksum=1)

    def answer(start: int, level: int) -> tuple[int, str]:
        outcome = read(log, request(start, level=level), LIMITS)
        return outcome.code, outcome.text

    assert [answer(0, level)[0] for level in range(4)] == [200] * 4
    beyond_file = (404, "current offset is exceed max file offset")
    assert answer(28, 0) == answer(28, 1) == beyond_file
    assert [answer(28, level)[0] for level in (2, 3)] == [200, 200]
    assert answer(56, 2) == (404, "Can't found Message by index in cache")
    assert answer(56, 3)[0] == 200


def test_written_but_not_synced_records_are_hidden_from_low_levels() -> None:
    log = log_of(0, 0)
    log.flush()
    log.append(0, b"x", time_ms=0, checksum=1)
    log.write()

    assert read(log, request(56, level=1), LIMITS).code == 404
    assert read(log, request(56, level=2), LIMITS).code == 200
    assert read(log, request(0, level=1), LIMITS).max_offset == 56
    assert read(log, request(0, level=2), LIMITS).max_offset == 84


def test_filters_match_hashed_keys() -> None:
    log = StoreLog()
    for name in ("a", "b", "c", "a"):
        log.append(0, name.encode(), time_ms=0, checksum=1, key_code=java_hash(name))
    log.flush()

    wanted = frozenset({java_hash("a"), java_hash("c")})
    outcome = read(log, request(key_codes=wanted), WHOLE)

    assert [record.payload for record in outcome.records] == [b"a", b"c", b"a"]
    assert outcome.require_slow


def test_a_key_of_another_partition_gives_an_empty_success() -> None:
    log = log_of(1, key=java_hash("a"))

    outcome = read(log, request(key_codes=frozenset({java_hash("a")})), LIMITS)

    assert (outcome.code, len(outcome.records), outcome.advance) == (200, 0, 28)


@given(
    partitions=st.lists(st.integers(0, 2), max_size=80),
    flushed=st.integers(0, 80),
    budget=st.integers(1, 500),
    window=st.integers(1, 20),
    segment=st.integers(1, 30),
)
@settings(max_examples=200, deadline=None)
def test_reading_on_gives_every_record_of_the_partition_once(
    partitions: list[int], flushed: int, budget: int, window: int, segment: int
) -> None:
    log = StoreLog()
    for number, partition in enumerate(partitions):
        if number == flushed:
            log.flush()
        log.append(partition, b"%d" % number, time_ms=0, checksum=1)
    limits = ReadLimits(
        memory_scan=(window, window), file_scan=(window, window), segment_records=segment
    )
    got, start, turns = [], 0, 0
    while start < log.end and turns < 1_000:
        outcome = read(log, request(start, 1, budget=budget), limits)
        assert outcome.advance > 0
        got += [record.payload for record in outcome.records]
        start += outcome.advance
        turns += 1
    assert got == [b"%d" % n for n, partition in enumerate(partitions) if partition == 1]
    assert start == log.end


def test_memory_passes_over_what_is_larger_than_it_reads_and_files_do_not() -> None:
    log = log_of(0, 0, size=100)
    log.append(0, bytes(101), time_ms=0, checksum=1)
    outcome = read(log, request(largest=152), WHOLE)
    assert ([r.size for r in outcome.records], outcome.advance) == ([152, 152], 84)
    log.flush()
    outcome = read(log, request(largest=152), WHOLE)
    assert [r.size for r in outcome.records] == [152, 152, 153]
