"""InLong's packed bodies: a row for each record of a pack, plain or decoded further.

A pack is checked as a whole before any of its records is used; a bad pack is bad as one, a bad
record inside a valid pack is bad alone. This module does not depend on the format of the records.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError, UnreadableTDMsg
from tubemq_client.tdmsg import parse_tdmsg
from tubemq_provider.rows.bulk import BadBody, Decoded
from tubemq_provider.rows.spec import SUBJECT

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from tubemq_provider.rows.bulk import BodyDecoder

__all__ = ["PackedBodies"]

_MOST_RECORDS: Final = 1 << 18
"""Maximal records of one pack. Empty records take four bytes, twenty times fewer when compressed: a
small body must not fill the memory."""

_OURS: Final = ("packed_index", "packed_time", "packed_attributes")


class PackedBodies:
    """Decoder of packs. `packed_index` counts the records of a pack from 0, `packed_time` is when
    it was packed (null in version 0), `packed_attributes` are the record's. `then` decodes the
    records, None returns them as ``value``. Raises `ConfigError` if `then` has columns of these
    names."""

    def __init__(self, then: BodyDecoder | None) -> None:
        import pyarrow as pa

        self._then = then
        rest = [pa.field("value", pa.binary())] if then is None else list(then.schema)
        if clashes := [item.name for item in rest if item.name.lower() in _OURS]:
            raise ConfigError(
                f"then: column {clashes[0]!r} has the name of one of packs ({', '.join(_OURS)}); "
                "rename it, or decode with a function",
                subject=SUBJECT,
            )
        self.schema = pa.schema(
            [
                ("packed_index", pa.int32()),
                ("packed_time", pa.timestamp("us", tz="UTC")),
                ("packed_attributes", pa.map_(pa.string(), pa.string())),
                *((item.name, item.type) for item in rest),
            ]
        )

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """See `BodyDecoder`."""
        unpacked = _Unpacked()
        for place, body in enumerate(records.column("value").to_pylist()):
            unpacked.add(place, body)
        unpacked_rows = unpacked.found(records)
        if self._then is None:
            return Decoded(unpacked_rows.select(self.schema.names), *unpacked.account())
        inner = self._then.decode(unpacked_rows)
        return self._joined(unpacked_rows, inner, unpacked)

    def _joined(
        self, unpacked_rows: pa.RecordBatch, inner: Decoded, unpacked: _Unpacked
    ) -> Decoded:
        import pyarrow as pa

        ours = unpacked_rows.select(list(_OURS)).take(pa.array(inner.origin, pa.int64()))
        rows = pa.RecordBatch.from_arrays([*ours.columns, *inner.rows.columns], schema=self.schema)
        origin, bad, empty = unpacked.account()
        rowless = {*range(len(origin))} - {*inner.origin} - {one.index for one in inner.bad}
        empty += sorted({origin[i] for i in rowless} - {origin[i] for i in inner.origin})
        bodies = unpacked_rows.column("value")
        for one in inner.bad:
            number = unpacked.indexes[one.index]
            reason = f"record {number} of the pack: {one.reason}"
            bad.append(BadBody(origin[one.index], reason, one.data or bodies[one.index].as_py()))
        return Decoded(rows, [origin[i] for i in inner.origin], bad, empty, inner.notices)


class _Unpacked:
    """Records of a batch's packs, and the outcome of each pack."""

    def __init__(self) -> None:
        self.indexes: list[int] = []
        self._origin: list[int] = []
        self._times: list[datetime | None] = []
        self._attributes: list[Mapping[str, str]] = []
        self._bodies: list[bytes] = []
        self._bad: list[BadBody] = []
        self._empty: list[int] = []

    def add(self, place: int, body: bytes) -> None:
        """Unpack one body."""
        try:
            pack = parse_tdmsg(body)
            held = list(pack) if len(pack) <= _MOST_RECORDS else []
            created_ms = pack.create_time_ms
            time = (
                None
                if created_ms is None or created_ms < 0
                else datetime.fromtimestamp(created_ms / 1000, UTC)
            )
        except (UnreadableTDMsg, ValueError, OverflowError, OSError) as error:
            self._bad.append(BadBody(place, str(error).splitlines()[0]))
            return
        if len(pack) > _MOST_RECORDS:
            reason = f"a pack of {len(pack)} records; at most {_MOST_RECORDS} are read"
            self._bad.append(BadBody(place, reason))
            return
        if not held:
            self._empty.append(place)
        for index, record in enumerate(held):
            self.indexes.append(index)
            self._origin.append(place)
            self._times.append(time)
            self._attributes.append(record.attributes)
            self._bodies.append(record.body)

    def found(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return a row for each unpacked record, with the columns of its TubeMQ record."""
        import pyarrow as pa

        taken = records.take(pa.array(self._origin, pa.int64()))
        pack_columns: dict[str, Any] = {
            "packed_index": pa.array(self.indexes, pa.int32()),
            "packed_time": pa.array(self._times, pa.timestamp("us", tz="UTC")),
            "packed_attributes": pa.array(
                [list(pairs.items()) for pairs in self._attributes],
                pa.map_(pa.string(), pa.string()),
            ),
            "value": pa.array(self._bodies, pa.binary()),
        }
        record_columns = dict(zip(taken.schema.names, taken.columns, strict=True))
        return pa.RecordBatch.from_pydict({**record_columns, **pack_columns})

    def account(self) -> tuple[list[int], list[BadBody], list[int]]:
        """Return the origin of each row, the bad packs and the empty ones."""
        return self._origin, list(self._bad), list(self._empty)
