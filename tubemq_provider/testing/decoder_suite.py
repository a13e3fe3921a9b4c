"""Contract of every decoder: bodies in, typed rows out, each record accounted for.

    class TestMyDecoder(DecoderSuite):
        decode = {"format": "mine"}
        bodies, rows = (b"apple 1",), ({"fruit": "apple"},)

`decode` is what users write: a word, a mapping, or the function in ``staticmethod(…)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

from tubemq_client.errors import CorruptRecord
from tubemq_client.model import CorruptRecords
from tubemq_provider.rows.decoding import BadRecord, BadRecords, RowDecoder
from tubemq_provider.rows.spec import DecodeSpec, function_spec
from tubemq_provider.testing.memory_source import MemoryBatch, MemorySource

__all__ = ["DecoderSuite"]

Rows = list[dict[str, Any]]


class DecoderSuite:
    """Behaviour shared by all decoders. Subclasses define `decode`, `bodies` and `rows`."""

    decode: ClassVar[Any]
    """The decoder, as in a Dag."""
    bodies: ClassVar[Sequence[bytes]]
    """Bodies that decode."""
    rows: ClassVar[Sequence[Mapping[str, Any]]]
    """Rows of `bodies`: the decoded columns."""
    corrupt: ClassVar[bytes | None] = None
    """Body that does not decode, if there is one."""

    def spec(self) -> DecodeSpec:
        """Return the decoder as a task has it."""
        decode = self.decode
        return DecodeSpec.parse(function_spec(decode) if callable(decode) else decode)

    def decoded(
        self, bodies: Sequence[bytes], policy: CorruptRecords = CorruptRecords.FAIL
    ) -> tuple[Rows, list[BadRecord]]:
        """Return rows with their partition and offset, and the corrupt records."""
        decoder = RowDecoder(self.spec(), MemorySource.columns)
        step, bad = MemorySource.space.step, list[BadRecord]()
        batch = MemoryBatch("1:0", [step * number for number in range(len(bodies))], bodies)
        rows = decoder.rows(batch.to_arrow(decoder.read_schema), BadRecords(policy, bad.append))
        assert rows.schema == decoder.schema
        rows.validate(full=True)
        return rows.to_pylist(), bad

    def own(self, rows: Rows) -> Rows:
        """Return the decoded columns of rows."""
        return [{name: row[name] for name in self.rows[0]} for row in rows]

    def test_bodies_become_the_rows(self) -> None:
        rows, bad = self.decoded(self.bodies)
        assert self.own(rows) == [*self.rows]
        assert bad == []

    def test_no_bodies_become_no_rows(self) -> None:
        assert self.decoded(()) == ([], [])

    def test_bodies_decode_alike_alone_and_together(self) -> None:
        alone = [row for body in self.bodies for row in self.own(self.decoded([body])[0])]
        assert alone == self.own(self.decoded(self.bodies)[0])
        twice = self.own(self.decoded([*self.bodies, *self.bodies])[0])
        assert twice == [*self.rows, *self.rows]

    def test_a_decoder_travels_to_executors(self) -> None:
        spec = self.spec()
        assert DecodeSpec.parse(spec.document()) == spec

    def test_a_corrupt_body_costs_no_other(self) -> None:
        if self.corrupt is None:
            pytest.skip("any body decodes")
        with pytest.raises(CorruptRecord, match="does not decode"):
            self.decoded([*self.bodies, self.corrupt])
        mixed = [self.corrupt, *self.bodies, self.corrupt]
        rows, bad = self.decoded(mixed, CorruptRecords.QUARANTINE)
        assert self.own(rows) == [*self.rows]
        assert [each.data for each in bad] == [self.corrupt, self.corrupt]
