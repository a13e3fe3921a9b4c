"""A record's bytes: attributes, flag, checksum and hash as other clients read them."""

from __future__ import annotations

import subprocess
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubemq_client._wire.payload import (
    checksum,
    encode_payload,
    java_hash,
    parse_attributes,
    split_payload,
)

pytestmark = pytest.mark.timeout(60)

words = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=",="), min_size=1, max_size=20
).filter(lambda text: text.strip() and "$msgT" not in text)
minutes = st.datetimes().map(lambda moment: moment.strftime("%Y%m%d%H%M").rjust(12, "0"))


@given(
    st.binary(max_size=200),
    st.dictionaries(words, words, max_size=5),
    st.none() | words,
    st.none() | minutes,
)
def test_written_payloads_are_read_back(body, attributes, stream_id, msg_time):
    data, flag = encode_payload(body, attributes, stream_id=stream_id, msg_time=msg_time)
    raw, got = split_payload(data, flag)
    assert got == body
    assert flag == (raw is not None) == bool(attributes or stream_id or msg_time)
    assert parse_attributes(raw or b"") == (attributes, stream_id, msg_time)


def test_system_headers_come_first():
    data, flag = encode_payload(b"", {"k": "v"}, stream_id="f1", msg_time="202401011230")
    assert (data[4:], flag) == (b"$msgType$=f1,$msgTime$=202401011230,k=v", 1)


def test_no_attributes_means_no_flag_and_no_prefix():
    assert encode_payload(b"body", {}) == (b"body", 0)


def test_every_problem_is_named_at_once():
    with pytest.raises(ValueError, match="blank") as caught:
        encode_payload(
            b"",
            {" ": "a", "a,b": "x=y", "$msgType$": "t", "u": "\ud800"},
            stream_id="",
            msg_time="20240101123",
        )
    text = str(caught.value)
    for part in (
        "attribute key is blank",
        "attribute key 'a,b' contains ','",
        "value of 'a,b' 'x=y' contains '='",
        "attribute key '$msgType$' contains '$msgType$'",
        "value of 'u' '\\ud800' is not valid Unicode",
        "stream_id is blank",
        "msg_time '20240101123' is not 12 digits",
    ):
        assert part in text


@pytest.mark.parametrize(
    "msg_time",
    ["2024010112301", "202413011230", "202402301200", "20240101123\uff10", "+20240101123"],
)
def test_msg_time_must_be_a_minute(msg_time):
    with pytest.raises(ValueError, match="msg_time"):
        encode_payload(b"", msg_time=msg_time)


@pytest.mark.parametrize(
    "data", [b"", b"\0\0\0", b"\0\0\0\x02a", b"\xff\xff\xff\xffabc", b"\x7f\xff\xff\xffabc"]
)
def test_a_flag_without_its_prefix_is_malformed(data):
    with pytest.raises(ValueError, match="attribute"):
        split_payload(data, 1)


def test_only_bit_0_of_the_flag_counts():
    assert split_payload(b"body", 2) == (None, b"body")
    assert split_payload(b"\0\0\0\0body", 3) == (None, b"body")


@given(st.binary(max_size=60))
def test_foreign_attributes_never_fail(raw):
    parse_attributes(raw)


def test_foreign_attributes_are_read_as_upstream_does():
    parsed = parse_attributes(b"bare,,a=1,$msgType$=f=x, ,b=2=3,a=4,$msgTime$=,\xff=z")
    assert parsed.attributes == {"bare": "", "a": "4", "b": "2=3", "\ufffd": "z"}
    assert (parsed.stream_id, parsed.msg_time) == ("f", None)


def test_checksums():
    assert checksum(b"a") == 1756872259
    assert checksum(b"hello") == 907060870


@given(st.binary(max_size=3_000))
def test_checksums_do_not_depend_on_what_computes_them(data):
    assert checksum(data) == zlib.crc32(data) & 0x7FFFFFFF


@pytest.mark.parametrize(("missing", "module"), [("nothing", "isal.isal_zlib"), ("isal", "zlib")])
def test_without_isal_zlib_computes_them(missing, module):
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from tubemq_client._wire.payload import checksum, crc32\n"
        "print(crc32.__module__, checksum(b'hello'))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == [module, "907060870"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("f1", 3211),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("\U0001f600", 1772899),
        ("名前-é", 661261884),
    ],
)
def test_hashes_are_those_of_java(text, value):
    assert java_hash(text) == value


def test_different_texts_may_share_a_hash():
    assert java_hash("Aa") == java_hash("BB")
