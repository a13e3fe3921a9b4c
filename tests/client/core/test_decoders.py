"""The compiled decoder returns the same as the Python code, bit for bit, for any reply."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tubemq_client
from tests.client.core import replies
from tests.client.core.decoding import (
    ALL,
    Reading,
    batch_of,
    compare,
    is_compiled,
    outcome,
    pure,
)
from tubemq_client import _pb, errors
from tubemq_client._core.attributes import AttributeCache, AttributeColumns
from tubemq_client._core.batch import DecodePolicy
from tubemq_client._wire import native
from tubemq_client._wire.fetching import MOST_RECORDS, FetchReply
from tubemq_client._wire.payload import checksum, parse_attributes

T = TypeVar("T")

compiled = pytest.mark.skipif(not is_compiled(), reason="no compiled decoder in this run")


class Drawn:
    """Choices that Hypothesis makes and shrinks."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        number: int = self._draw(st.integers(low, high))
        return number

    def choice(self, items: Sequence[T]) -> T:
        choice: T = self._draw(st.sampled_from(items))
        return choice

    def some_bytes(self, most: int) -> bytes:
        drawn: bytes = self._draw(st.binary(max_size=most))
        return drawn


@st.composite
def drawn_replies(draw: Any) -> bytes:
    return replies.reply(Drawn(draw))


@st.composite
def drawn_texts(draw: Any) -> bytes:
    return replies.attribute_text(Drawn(draw))


schemas = st.lists(st.sampled_from(ALL.names), min_size=1, max_size=4).map(
    lambda names: pa.schema([ALL.field(name) for name in names])
)
unusual = pa.schema(
    [
        pa.field("value", pa.large_binary()),
        pa.field("stream_id", pa.large_string()),
        pa.field("msg_time", pa.timestamp("s", "UTC")),
        pa.field("attributes", pa.map_(pa.large_string(), pa.string())),
        pa.field("offset", pa.int64(), metadata={"of": "the index"}),
        pa.field("message_id", pa.int64(), nullable=False),
    ],
    metadata={"made": "by hand"},
)
readings = st.builds(
    Reading,
    corrupt_records=st.sampled_from(["fail", "drop", "quarantine"]),
    filters=st.sampled_from([frozenset(), frozenset({"stream"}), frozenset({"stream", "other"})]),
    exact=st.booleans(),
    left_out=st.integers(0, 2),
    schema=st.just(ALL) | st.just(unusual) | schemas,
)


@compiled
@settings(max_examples=300, deadline=None)
@given(drawn_replies(), readings)
def test_both_decoders_give_equal_batches_errors_and_entries(data: bytes, reading: Reading) -> None:
    compare(data, reading)


@compiled
@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=64))
def test_garbage_is_left_to_protobuf(data: bytes) -> None:
    assert native.scan(data) is None or compare(data, Reading())
    compare(replies.DELIVERING + data, Reading())


@compiled
def test_every_byte_of_a_reply_may_be_any_other() -> None:
    chance = replies.RandomChoices(11)
    data = next(
        data for data in iter(lambda: replies.reply(chance), b"") if compare(data, Reading())
    )
    for at in range(len(data)):
        for value in (0, 1, 0x7F, 0x80, 0xFF, data[at] ^ 1, data[at] ^ 0x80):
            compare(data[:at] + bytes([value]) + data[at + 1 :], Reading())
        compare(data[:at], Reading())


@compiled
def test_many_random_replies_are_read_alike() -> None:
    chance = replies.RandomChoices(5)
    taken = sum(compare(replies.reply(chance), Reading()) for _ in range(1_200))
    assert taken > 600


@compiled
def test_replies_of_many_records_are_read_alike() -> None:
    chance = replies.RandomChoices(7)
    taken = sum(compare(replies.reply(chance, most=120), Reading()) for _ in range(60))
    assert taken < 60, "some had a record that is not sound, early or late"


@pytest.mark.parametrize("decoder", [pure, nullcontext])
def test_cached_parts_of_a_batch_do_not_change_later_batches(decoder: Any) -> None:
    """A few attribute texts are usually those of the batch before, in any order."""
    chance = replies.RandomChoices(3)
    texts = [b"", *replies.USUAL, b"id=5"]
    policy = DecodePolicy()
    with decoder():
        for _ in range(200):
            reply = _pb.GetMessageResponseB2C(success=True, errCode=200)
            few = [chance.choice(texts) for _ in range(chance.integer(1, 3))]
            for number in range(chance.integer(1, 12)):
                text, body = chance.choice(few), chance.some_bytes(4)
                data = len(text).to_bytes(4, "big") + text + body if text else body
                reply.messages.add(
                    messageId=number,
                    checkSum=checksum(data),
                    payLoadData=data,
                    flag=int(bool(text)),
                )
            data = reply.SerializeToString()
            for schema in (ALL, unusual):
                together, alone = (
                    batch_of(data, using).to_arrow(schema) for using in (policy, DecodePolicy())
                )
                together.validate(full=True)
                assert together.equals(alone)


minutes = st.builds(
    "{:04}{:02}{:02}{:02}{:02}".format,
    st.integers(0, 9999) | st.sampled_from([0, 1, 1900, 1970, 2000, 2024, 2100, 9999]),
    st.integers(0, 13),
    st.integers(0, 32) | st.just(29),
    st.integers(0, 24),
    st.integers(0, 60),
)


@compiled
@settings(max_examples=200, deadline=None)
@given(st.lists(minutes, min_size=1, max_size=40))
@example([f"{year}0229{minute:04}" for year in (1900, 2000, 2100) for minute in (0, 2359)])
def test_both_decoders_have_the_same_calendar(texts: list[str]) -> None:
    reply = _pb.GetMessageResponseB2C(success=True, errCode=200)
    for text in texts:
        data = b"\0\0\0\x16$msgTime$=" + text.encode()
        reply.messages.add(messageId=1, checkSum=checksum(data), payLoadData=data, flag=1)
    assert compare(reply.SerializeToString(), Reading())


@settings(max_examples=400, deadline=None)
@given(st.lists(drawn_texts() | st.none(), max_size=6))
def test_texts_parsed_together_equal_texts_parsed_alone(texts: list[bytes | None]) -> None:
    cache = AttributeCache()
    for _ in range(2):  # with an empty cache, and with a full one
        columns = AttributeColumns()
        columns.fill(texts, cache)
        alone = [parse_attributes(raw or b"") for raw in texts]
        rows = zip(columns.ends, columns.ends[1:], strict=False)
        assert columns.stream_ids == [parsed.stream_id for parsed in alone]
        assert columns.msg_times == [parsed.msg_time for parsed in alone]
        assert [
            list(zip(columns.keys[start:end], columns.values[start:end], strict=True))
            for start, end in rows
        ] == [list(parsed.attributes.items()) for parsed in alone]


@compiled
@pytest.mark.parametrize("size", [1, 1 << 20, (1 << 31) - 1, (1 << 32) - 1, (1 << 63) - 1])
def test_a_wrong_length_costs_no_memory(size: int) -> None:
    lying = replies.DELIVERING + b"\x22" + replies.varint(size)
    assert native.scan(lying) is None
    assert native.scan(replies.DELIVERING + b"\x22\x10\x1a" + replies.varint(size)) is None


@compiled
def test_nested_groups_are_left_to_protobuf() -> None:
    depth = 100_000
    assert native.scan(replies.DELIVERING + b"\x5b" * depth + b"\x5c" * depth) is None


def test_fields_of_a_newer_broker_change_nothing() -> None:
    record = _pb.TransferedMessage(messageId=1, checkSum=0, payLoadData=b"", flag=0)
    newer = replies.piece(40, b"new") + replies.varint(41 << 3) + b"\x07"
    serialized = record.SerializeToString()
    plain = replies.DELIVERING + replies.piece(4, serialized)
    assert outcome(plain, Reading()) == outcome(
        replies.DELIVERING + newer + replies.piece(4, serialized + newer), Reading()
    )


@pytest.mark.parametrize(
    ("value", "expected"), [("0", "pure Python, the compiled one is TUBEMQ_NATIVE=0"), (None, "")]
)
def test_the_environment_chooses_the_decoder(value: str | None, expected: str) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "TUBEMQ_NATIVE"}
    if value is not None:
        environment["TUBEMQ_NATIVE"] = value
    code = "from tubemq_client._wire import native; print(native.describe())"
    answer = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert expected in answer.stdout


IN_A_ZIP = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in repr(finder)]
sys.path[:] = [sys.argv[1], *(place for place in sys.path if place != sys.argv[2])]
from tubemq_client._wire import native
from tubemq_client._wire.fetching import MOST_RECORDS, FetchReply
print(native.__file__, native.describe())
"""


def test_packages_in_a_zip_decode_in_python(tmp_path: Path) -> None:
    package = Path(tubemq_client.__file__).parent
    zipped = shutil.make_archive(str(tmp_path / "client"), "zip", package.parent, package.name)
    answer = subprocess.run(
        [sys.executable, "-c", IN_A_ZIP, zipped, str(package.parent)],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "TUBEMQ_NATIVE"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.startswith(zipped)
    assert "pure Python, the compiled one is not installed here" in answer.stdout


HIDE = """
import sys
sys.modules["tubemq_client._native"] = None
from tubemq_client._wire import native
from tubemq_client._wire.fetching import MOST_RECORDS, FetchReply
print(native.describe())
"""


@pytest.mark.parametrize(("value", "code", "said"), [("", 0, "not installed here"), ("1", 1, "")])
def test_without_the_module_python_decodes_unless_required_otherwise(
    value: str, code: int, said: str
) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", HIDE],
        env=os.environ | {"TUBEMQ_NATIVE": value},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == code
    assert said in answer.stdout


@pytest.mark.parametrize("decoder", [nullcontext, pure])
@pytest.mark.parametrize("tag", [b"\x22", b"\xa2\x00"], ids=["tag", "long tag"])
def test_a_reply_of_more_records_than_any_broker_sends_is_refused_unparsed(decoder, tag) -> None:
    fields = b"\x08\x01\x10\x00\x1a\x00\x20\x00"
    one = tag + bytes([len(fields)]) + fields

    with decoder():
        reply = FetchReply(replies.DELIVERING + one * MOST_RECORDS).parse()
        assert len(reply.messages) == MOST_RECORDS
        for more in (one * (MOST_RECORDS + 1), b"\x5b\x5c" + one * (MOST_RECORDS + 1)):
            with pytest.raises(errors.ProtocolViolation, match="more than 65536 records"):
                FetchReply(replies.DELIVERING + more).parse()


@pytest.mark.parametrize("decoder", [nullcontext, pure])
def test_a_body_that_looks_like_many_records_is_one(decoder) -> None:
    body = b'"' * (2 * MOST_RECORDS)
    record = _pb.TransferedMessage(messageId=1, checkSum=0, payLoadData=body, flag=0)

    with decoder():
        reply = FetchReply(replies.DELIVERING + replies.piece(4, record.SerializeToString()))
        assert [bytes(one.payLoadData) for one in reply.parse().messages] == [body]
