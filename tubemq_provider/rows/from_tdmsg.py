"""InLong's packed bodies: a row for each record of a pack, plain or decoded further.

Whole packs are checked before any of their records is taken; a bad pack is bad as one, a bad record
inside a sound pack by itself. This module must not know the format of the records.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from tubemq_client.errors import ConfigError, UnreadableTDMsg
from tubemq_client.tdmsg import parse_tdmsg
from tubemq_provider.rows.bulk import Bad, Decoded
from tubemq_provider.rows.spec import SUBJECT

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from tubemq_provider.rows.bulk import BodyDecoder

__all__ = ["PackedBodies"]

_MOST_RECORDS: Final = 1 << 18
"""Of one pack. Empty records take four bytes, twenty times fewer when compressed: a small body must
not fill the memory."""

_OURS: Final = ("packed_index", "packed_time", "packed_attributes")


class PackedBodies:
    """`packed_index` counts the records of a pack from 0, `packed_time` is when it was packed (null
    in version 0), `packed_attributes` are the record's. `then` decodes the records, None gives them
    as ``value``. Raises `ConfigError` if `then` has columns of these names."""

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
        found = unpacked.found(records)
        if self._then is None:
            return Decoded(found.select(self.schema.names), *unpacked.account())
        inner = self._then.decode(found)
        return self._joined(found, inner, unpacked)

    def _joined(self, found: pa.RecordBatch, inner: Decoded, unpacked: _Unpacked) -> Decoded:
        import pyarrow as pa

        ours = found.select(list(_OURS)).take(pa.array(inner.origin, pa.int64()))
        rows = pa.RecordBatch.from_arrays([*ours.columns, *inner.rows.columns], schema=self.schema)
        origin, bad, empty = unpacked.account()
        bodies = found.column("value")
        for one in inner.bad:
            number = unpacked.indexes[one.index]
            reason = f"record {number} of the pack: {one.reason}"
            bad.append(Bad(origin[one.index], reason, one.data or bodies[one.index].as_py()))
        return Decoded(rows, [origin[i] for i in inner.origin], bad, empty)


class _Unpacked:
    """The records of a batch's packs, and what became of each pack."""

    def __init__(self) -> None:
        self.indexes: list[int] = []
        self._origin: list[int] = []
        self._times: list[datetime | None] = []
        self._attributes: list[Mapping[str, str]] = []
        self._bodies: list[bytes] = []
        self._bad: list[Bad] = []
        self._empty: list[int] = []

    def add(self, place: int, body: bytes) -> None:
        """Take one pack apart."""
        try:
            pack = parse_tdmsg(body)
            held = list(pack) if len(pack) <= _MOST_RECORDS else []
            made = pack.create_time_ms
            time = None if made is None or made < 0 else datetime.fromtimestamp(made / 1000, UTC)
        except (UnreadableTDMsg, ValueError, OverflowError, OSError) as error:
            self._bad.append(Bad(place, str(error).splitlines()[0]))
            return
        if len(pack) > _MOST_RECORDS:
            reason = f"a pack of {len(pack)} records; at most {_MOST_RECORDS} are read"
            self._bad.append(Bad(place, reason))
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
        """A row for each record, with the columns of the TubeMQ record it was in."""
        import pyarrow as pa

        taken = records.take(pa.array(self._origin, pa.int64()))
        own: dict[str, Any] = {
            "packed_index": pa.array(self.indexes, pa.int32()),
            "packed_time": pa.array(self._times, pa.timestamp("us", tz="UTC")),
            "packed_attributes": pa.array(
                [list(pairs.items()) for pairs in self._attributes],
                pa.map_(pa.string(), pa.string()),
            ),
            "value": pa.array(self._bodies, pa.binary()),
        }
        kept = dict(zip(taken.schema.names, taken.columns, strict=True))
        return pa.RecordBatch.from_pydict({**kept, **own})

    def account(self) -> tuple[list[int], list[Bad], list[int]]:
        """Where the rows come from, bad packs and empty ones."""
        return self._origin, list(self._bad), self._empty
