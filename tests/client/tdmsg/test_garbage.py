"""Arbitrary and damaged bytes: a message or `UnreadableTDMsg`, and never more than is there."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.tdmsg import published
from tubemq_client import TDMsg, parse_tdmsg
from tubemq_client.errors import UnreadableTDMsg

pytestmark = pytest.mark.timeout(60)

LIMIT = 100_000
SEEDS = [vector.message for vector in published.committed() if len(vector.message) < 400]
INNER = st.binary(max_size=80)
MARKED = st.builds(
    lambda version, inner: bytes((0x0F, version)) + inner + bytes((0x0F, version)),
    st.integers(0, 4),
    INNER,
)


def read(data: bytes, *, strict: bool) -> bool:
    """Return True if there is a message, after reading every record of it."""
    try:
        parsed = parse_tdmsg(data, strict=strict, max_bytes=LIMIT, keep_encrypted=True)
    except UnreadableTDMsg as refusal:
        offset = refusal.offset
    else:
        look_at(parsed)
        return True
    assert 0 <= offset <= len(data)
    return False


def look_at(parsed: TDMsg) -> None:
    records = list(parsed)
    assert len(records) == len(parsed)
    assert sum(len(group.bodies) for group in parsed.groups()) == len(records)
    assert sum(len(record.body) for record in records) <= LIMIT


@settings(deadline=None)
@given(st.binary(max_size=40) | MARKED, st.booleans())
def test_arbitrary_bytes(data: bytes, strict: bool):
    read(data, strict=strict)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(SEEDS), st.data(), st.booleans())
def test_a_damaged_message(seed: bytes, data: st.DataObject, strict: bool):
    damaged = bytearray(seed)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(seed) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([0, 0, 1, 7]))
    inner = bytes(damaged[2 : len(damaged) - 2 - cut])
    read(seed[:2] + inner + seed[:2], strict=strict)


@pytest.mark.parametrize("seed", SEEDS[::3], ids=range(len(SEEDS[::3])))
def test_every_truncation_is_refused(seed: bytes):
    for end in range(2, len(seed) - 2):
        assert not read(seed[:end] + seed[:2], strict=True)


def test_damage_costs_no_memory_beyond_the_limit():
    claims = (b"\x7f\xff\xff\xff", b"\x00\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00")
    tracemalloc.start()
    try:
        for seed in SEEDS:
            for position in range(2, len(seed) - 6):
                for claim in claims:
                    read(seed[:position] + claim + seed[position + 4 :], strict=False)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000
