"""Documents of many partitions: few values, and those of earlier versions stay readable."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime

import pytest

from tubemq_client.model import Anchor
from tubemq_provider.offsets.chunking import PIECE_BYTES, join, read_whole, split
from tubemq_provider.windows.canonical import canonical_json, sha256_hex
from tubemq_provider.windows.cursor import Cursor, Position
from tubemq_provider.windows.errors import DocumentError
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.protocols import Document

SCOPE = WindowScope("c1", "orders", "g1", "s3://bucket/lake")
LONG: Document = {"next": {f"{n % 7}:{n}": 28 * n for n in range(5_000)}}


def test_cursor_and_plan_of_ten_thousand_partitions_are_64_kb() -> None:
    """Ten brokers with a hundred stores of ten partitions, and an anchor for each store."""
    rng = random.Random(1)
    ranges, anchors = {}, {}
    for store in range(1_000):
        broker, number = 1 + store // 100, store % 100
        start = 28 * rng.randrange(10**8)
        end = start + 28 * rng.randrange(100_000)
        ranges |= {f"{broker}:{number * 10_000 + n}": (start, end) for n in range(10)}
        message_id = 1_700_000_000_000 + rng.randrange(10**6)
        anchors[f"{broker}:{number * 10_000}"] = Anchor(end - 28, message_id, rng.getrandbits(31))
    plan = WindowPlan.cursor(SCOPE, 1_000, ranges).to_document()
    ends = {key: end for key, (_, end) in ranges.items()}
    cursor = Cursor(Position(1_000, ends, anchors), 7, "dag|run|task|-1", ())
    size = 0
    for document in (plan, cursor.to_document(SCOPE, datetime(2026, 11, 28, tzinfo=UTC))):
        head, chunks = split(document)
        values = [head, *chunks.values()]
        assert len(values) == 2
        size += sum(len(json.dumps(value)) for value in values)
        assert join(head, list(chunks.values()), "here") == document
    assert size <= 64_000


def test_chunks_of_plain_text_stay_readable() -> None:
    text = canonical_json(LONG)
    step = 30_000
    chunks = [{"text": text[at : at + step]} for at in range(0, len(text), step)]
    digest = sha256_hex(text)
    stored = {f"cursor~{digest[:16]}/{n}": chunk for n, chunk in enumerate(chunks)}
    head = {"tubemq_pieces": {"count": len(chunks), "sha256": digest}}
    assert read_whole(stored.get, "cursor", head) == LONG


def test_values_that_cannot_be_compressed_are_cut() -> None:
    noise = random.Random(1).randbytes(100_000).hex()
    head, chunks = split({"noise": noise})
    assert len(chunks) > 1
    assert all(len(json.dumps(chunk)) <= PIECE_BYTES for chunk in chunks.values())
    assert join(head, list(chunks.values()), "here") == {"noise": noise}


@pytest.mark.parametrize("text", ["", "not base 85: \u00e4", "00000"])
def test_a_piece_that_was_edited_is_an_error(text: str) -> None:
    head, _ = split(LONG)
    with pytest.raises(DocumentError, match=r"(?s)cursor.*pieces"):
        join(head, [{"text": text}], "cursor")
