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
    rows, bad = decoded_both_ways(spec, bodies)
    left_out = (
        set(RECORDS.names) - {"offset"} - ({"value"} if "value" in rows.schema.names else set())
    )
    names = [name for name in rows.schema.names if name not in left_out]
    return rows.select(names).to_pylist(), bad


def decoded_both_ways(spec: Any, bodies: list[bytes]) -> tuple[Any, list[BadRecord]]:
    """Return the rows and the corrupt records; by the compiled reader, where it is installed, and
    by the reference, which must say the same."""
    rows, bad = decoded(spec, bodies)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUBEMQ_NATIVE", "0")
        reference, reference_bad = decoded(spec, bodies)
    assert bad == reference_bad
    assert repr(plain_rows(rows)) == repr(plain_rows(reference))
    return rows, bad


def decoded(spec: Any, bodies: list[bytes]) -> tuple[Any, list[BadRecord]]:
    """Return the rows and the corrupt records of one decoder."""
    bad: list[BadRecord] = []
    decoder = RowDecoder(DecodeSpec.parse(spec), RECORDS)
    bad_records = BadRecords(CorruptRecords.QUARANTINE, bad.append)
    rows = decoder.rows(batch(bodies, decoder.read_schema), bad_records)
    assert rows.schema == decoder.schema
    rows.validate(full=True)
    assert bad_records.count == len(bad)
    return rows, bad


def plain_rows(rows: Any) -> list[Any]:
    """Return the columns as plain values, floats with their bits, times as numbers."""
    return [plain_cells(column) for column in rows.columns]


def plain_cells(column: Any) -> list[Any]:
    """Return cells that differ where a bit differs."""
    kind = column.type
    if pa.types.is_struct(kind):
        members = [plain_cells(member) for member in column.flatten()]
        return [cell.is_valid and tuple(m[i] for m in members) for i, cell in enumerate(column)]
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return [
            plain_cells(pa.array(cell.values, type=cell.values.type)) if cell.is_valid else None
            for cell in column
        ]
    if pa.types.is_floating(kind) or pa.types.is_temporal(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    found: list[Any] = column.to_pylist()
    return found
