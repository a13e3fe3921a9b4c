"""The log of a store: offsets, marks, retention, truncation."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tubemq_client.embedded.store import Ends, StoreLog

pytestmark = pytest.mark.timeout(60)


def filled(count: int) -> StoreLog:
    log = StoreLog()
    for number in range(count):
        log.append(0, b"m%d" % number, time_ms=number, checksum=7)
    return log


def test_offsets_count_28_per_record_of_any_partition() -> None:
    log = StoreLog()

    offsets = [log.append(n % 3, b"x", time_ms=n, checksum=1).offset for n in range(4)]

    assert offsets == [0, 28, 56, 84]
    assert log.end == 112
    assert log.data_end == 4 * 53


def test_marks_follow_swap_write_and_flush() -> None:
    log = filled(2)
    assert log.ends == Ends(0, 0, 0, 56)

    log.swap()
    log.append(0, b"x", time_ms=0, checksum=1)
    assert (log.file_end, log.backup_end, log.end) == (0, 56, 84)

    log.swap()
    assert (log.file_end, log.backup_end) == (56, 84)

    log.write()
    assert log.ends == Ends(0, 0, 84, 84)

    log.flush()
    assert log.ends == Ends(0, 84, 84, 84)


def test_retention_moves_min_and_keeps_offsets() -> None:
    log = filled(10)

    log.expire_to(100)

    assert log.min_offset == 84
    assert log.data_offset_at(84) == log.min_data_offset
    assert [record.payload for record in log.slice(84, 140)] == [b"m3", b"m4"]
    assert log.append(0, b"x", time_ms=0, checksum=1).offset == 280


def test_retention_stays_within_the_log() -> None:
    log = filled(3)

    log.expire_to(10**9)
    assert log.ends == Ends(84, 84, 84, 84)

    log.expire_to(0)
    assert log.min_offset == 84


def test_data_and_index_expire_each_by_itself() -> None:
    log = filled(10)

    log.expire_data_to(84)
    assert (log.min_offset, log.min_data_offset, log.data_end) == (0, 3 * 54, 540)

    log.expire_index_to(140)
    assert (log.min_offset, log.min_data_offset, log.data_end) == (140, 3 * 54, 540)

    log.expire_index_to(280)
    assert (log.min_offset, log.min_data_offset, log.data_end) == (280, 3 * 54, 540)
    assert log.append(0, b"m9", time_ms=0, checksum=1).offset == 280
    assert log.data_end == 594


def test_closed_segments_expire_by_their_own_age_and_size() -> None:
    log = filled(10)  # 54 bytes a record; the n-th was stored at time n
    log.flush()
    sizes = {"data_bytes": 100, "index_records": 4}

    assert not log.expire_segments(1, **sizes)
    assert log.expire_segments(4, **sizes)  # data: two of two records; index: one of four
    assert (log.min_data_offset, log.min_offset) == (4 * 54, 112)
    assert log.expire_segments(6, **sizes)  # the index segment has one of time 7
    assert (log.min_data_offset, log.min_offset) == (6 * 54, 112)
    assert log.expire_segments(100, **sizes)  # the last index segment is open
    assert (log.min_data_offset, log.min_offset) == (10 * 54, 224)


def test_what_is_not_in_the_file_closes_no_segment() -> None:
    log = filled(10)
    assert not log.expire_segments(100, data_bytes=100, index_records=4)


def test_truncation_gives_offsets_out_again_with_new_ids() -> None:
    log = filled(5)
    old_ids = {record.message_id for record in log.slice(0, log.end)}

    assert log.truncate_to(56, first_message_id=1_000) == 3
    again = log.append(0, b"new", time_ms=9, checksum=1)

    assert again.offset == 56
    assert again.message_id not in old_ids


def test_a_spoiled_record_keeps_everything_but_its_checksum() -> None:
    log = filled(2)
    before = log.slice(28, 56)[0]

    log.corrupt(28)

    after = log.slice(28, 56)[0]
    assert after.checksum != before.checksum
    assert after._replace(checksum=before.checksum) == before
    with pytest.raises(ValueError, match="no record at offset 56"):
        log.corrupt(56)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 2)),
        st.tuples(st.sampled_from(["swap", "write", "flush"]), st.just(0)),
        st.tuples(
            st.sampled_from(["expire_to", "expire_data_to", "expire_index_to", "truncate"]),
            st.integers(0, 2_000),
        ),
    ),
    max_size=60,
)


@given(STEPS)
@settings(max_examples=200, deadline=None)
def test_marks_stay_in_order_whatever_happens(steps: list[tuple[str, int]]) -> None:
    log = StoreLog()
    for action, value in steps:
        end = log.end
        if action == "append":
            assert log.append(value, b"abc", time_ms=0, checksum=1).offset == end
        elif action.startswith("expire"):
            data_end = log.data_end
            getattr(log, action)(value)
            assert (log.end, log.data_end) == (end, data_end)
        elif action == "truncate":
            log.truncate_to(value, first_message_id=1)
            assert log.end <= end
        else:
            getattr(log, action)()
        ends = log.ends
        assert ends.min <= ends.stable <= ends.file <= log.backup_end <= ends.memory
        assert log.min_data_offset <= log.data_end
        assert all(mark % 28 == 0 for mark in (*ends, log.backup_end))
        assert len(log) == (ends.memory - ends.min) // 28
