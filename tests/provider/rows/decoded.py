"""Bodies through a decoder, as engines call it."""

from __future__ import annotations

from typing import Any

import pytest

from tubemq_client.model import CorruptRecords
from tubemq_provider.rows.decoding import BadRecord, BadRecords, RowDecoder
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.sources.tubemq.columns import RECORDS

pa = pytest.importorskip("pyarrow")


def batch(bodies: list[bytes], schema: Any) -> Any:
    """Return records 0, 1, … of partition 1:0 with these bodies."""
    count = len(bodies)
    columns = {
        "topic": ["demo"] * count,
        "partition": ["1:0"] * count,
        "offset": [28 * i for i in range(count)],
        "batch_offset": [0] * count,
        "message_id": list(range(100, 100 + count)),
        "msg_time": [None] * count,
        "stream_id": ["s"] * count,
        "attributes": [[("n", str(i))] for i in range(count)],
        "value": bodies,
    }
    return pa.RecordBatch.from_pydict(columns, RECORDS.arrow_schema()).select(schema.names)


def decode(spec: Any, bodies: list[bytes]) -> tuple[list[dict[str, Any]], list[BadRecord]]:
    """Return rows with their offset and decoded columns, and the corrupt records."""
    bad: list[BadRecord] = []
    parsed = DecodeSpec.parse(spec)
    decoder = RowDecoder(parsed, RECORDS)
    bad_records = BadRecords(CorruptRecords.QUARANTINE, bad.append)
    rows = decoder.rows(batch(bodies, decoder.read_schema), bad_records)
    assert rows.schema == decoder.schema
    rows.validate(full=True)
    assert bad_records.count == len(bad)
    left_out = (
        set(RECORDS.names) - {"offset"} - ({"value"} if "value" in rows.schema.names else set())
    )
    names = [name for name in rows.schema.names if name not in left_out]
    return rows.select(names).to_pylist(), bad
