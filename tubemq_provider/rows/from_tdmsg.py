"""InLong's packed bodies: a row for each record of a pack, plain or decoded further.

A pack is checked as a whole before any of its records is used; a bad pack is bad as one, a bad
record inside a valid pack is bad alone. This module does not depend on the format of the records.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from tubemq_client.errors import ConfigError, UnreadableTDMsg
from tubemq_client.tdmsg import TDMsgRecord, parse_attributes, parse_tdmsg
from tubemq_provider.files.arrays import int64s
from tubemq_provider.rows.bulk import BadBody, Decoded, merged, moved
from tubemq_provider.rows.compiled import compiled_unpack
from tubemq_provider.rows.from_function import FunctionBodies
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
        self._unpack = compiled_unpack()
        rest = [pa.field("value", pa.binary())] if then is None else list(then.schema)
        if clashes := [item.name for item in rest if item.name.lower() in _OURS]:
            raise ConfigError(
                f"then: column {clashes[0]!r} has the name of one of packs ({', '.join(_OURS)}); "
                "rename it, or decode with a function",
                subject=SUBJECT,
            )
        ours = [_packed_schema().field(name) for name in _OURS]
        self.schema = pa.schema([*ours, *(pa.field(item.name, item.type) for item in rest)])

    def decode(self, records: pa.RecordBatch) -> Decoded:
        """See `BodyDecoder`."""
        unpacked = self._unpacked(records.column("value"))
        if self._then is None:
            return unpacked
        inner = self._then.decode(self._with_records(unpacked, records))
        return self._joined(unpacked, inner)

    def _unpacked(self, bodies: pa.BinaryArray) -> Decoded:
        """Return a row for each packed record; packs that the compiled module leaves are unpacked
        by Python."""
        import pyarrow as pa

        found = None if self._unpack is None else self._unpack(bodies, _MOST_RECORDS)
        if found is None:
            return _unpacked(bodies)
        texts = [TDMsgRecord({}, b"", raw).attribute_text for raw in found.attributes]
        pairs = [list(parse_attributes(text).items()) for text in texts]
        rows = found.rows
        attributes = pa.array(pairs, pa.map_(pa.string(), pa.string())).take(rows["attributes"])
        columns = [rows["index"], rows["time"], attributes, rows["value"]]
        part = Decoded(
            pa.RecordBatch.from_arrays(columns, schema=_packed_schema()),
            rows["origin"].to_pylist(),
            [],
            found.empty,
        )
        if not found.left:
            return part
        rest = _unpacked(bodies.take(int64s(found.left)))
        return merged([part, moved(rest, found.left)], _packed_schema())

    def _with_records(self, unpacked: Decoded, records: pa.RecordBatch) -> pa.RecordBatch:
        """Return the packed records; for a user's function with the columns of their TubeMQ
        records."""
        import pyarrow as pa

        if not isinstance(self._then, FunctionBodies):
            return unpacked.rows
        taken = records.take(int64s(unpacked.origin))
        ours = dict(zip(unpacked.rows.schema.names, unpacked.rows.columns, strict=True))
        columns = dict(zip(taken.schema.names, taken.columns, strict=True))
        return pa.RecordBatch.from_pydict(columns | ours)

    def _joined(self, unpacked: Decoded, inner: Decoded) -> Decoded:
        import pyarrow as pa

        ours = unpacked.rows.select(list(_OURS))
        if len(inner.origin) != ours.num_rows or inner.bad or inner.empty:
            ours = ours.take(int64s(inner.origin))
        rows = pa.RecordBatch.from_arrays([*ours.columns, *inner.rows.columns], schema=self.schema)
        origin, bad = unpacked.origin, list(unpacked.bad)
        rowless = {*range(len(origin))} - {*inner.origin} - {one.index for one in inner.bad}
        without_rows = {origin[i] for i in rowless} - {origin[i] for i in inner.origin}
        numbers, bodies = unpacked.rows["packed_index"], unpacked.rows["value"]
        for one in inner.bad:
            reason = f"record {numbers[one.index]} of the pack: {one.reason}"
            data = one.data or bodies[one.index].as_py()
            bad.append(BadBody(origin[one.index], reason, data))
        return Decoded(
            rows,
            [origin[i] for i in inner.origin],
            bad,
            [*unpacked.empty, *sorted(without_rows)],
            inner.notices,
        )


def _packed_schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [
            ("packed_index", pa.int32()),
            ("packed_time", pa.timestamp("us", tz="UTC")),
            ("packed_attributes", pa.map_(pa.string(), pa.string())),
            ("value", pa.binary()),
        ]
    )


def _unpacked(bodies: pa.BinaryArray) -> Decoded:
    """Unpack by Python."""
    packs = _Packs()
    for place, body in enumerate(bodies.to_pylist()):
        packs.add(place, body)
    return packs.unpacked()


class _Packs:
    """Records of a batch's packs, and the outcome of each pack."""

    def __init__(self) -> None:
        self._indexes: list[int] = []
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
            self._indexes.append(index)
            self._origin.append(place)
            self._times.append(time)
            self._attributes.append(record.attributes)
            self._bodies.append(record.body)

    def unpacked(self) -> Decoded:
        """Return a row for each unpacked record."""
        import pyarrow as pa

        schema = _packed_schema()
        pairs = [list(attributes.items()) for attributes in self._attributes]
        cells = [self._indexes, self._times, pairs, self._bodies]
        columns = [pa.array(some, item.type) for some, item in zip(cells, schema, strict=True)]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        return Decoded(rows, self._origin, self._bad, self._empty)
