"""Attribute strings: both forms of UTF-8, pairs, and what a string cannot carry."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.tdmsg.raw import block, message
from tubemq_client import TDMsgBuilder, parse_tdmsg
from tubemq_client.tdmsg import format_attributes, parse_attributes

pytestmark = pytest.mark.timeout(60)

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="&="), max_size=8)
WORDS = TEXTS.filter(lambda text: text == text.strip())
PAIRS = st.dictionaries(WORDS.filter(bool), WORDS, max_size=4)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("a=1&b=", {"a": "1", "b": ""}),
        (" a = 1 &b=2&", {"a": "1", "b": "2"}),
        ("a=b=c&flag&=x", {"a": "b=c"}),
        ("a=1&a=2", {"a": "2"}),
    ],
)
def test_pairs_of_a_string(text: str, pairs: dict[str, str]):
    assert parse_attributes(text) == pairs


@settings(deadline=None)
@given(PAIRS)
def test_formatting_and_parsing_are_inverse(pairs: dict[str, str]):
    assert parse_attributes(format_attributes(pairs)) == pairs


@settings(deadline=None)
@given(st.text())
def test_parsing_a_string_never_fails(text: str):
    parse_attributes(text)


def test_what_would_not_come_back_is_refused_all_at_once():
    with pytest.raises(ValueError, match=r"'a&b' contains &; .*'1=2&' contains & and ="):
        format_attributes({"a&b": "1", "c": "1=2&"})
    with pytest.raises(ValueError, match="a key is blank"):
        format_attributes({" ": "1"})
    with pytest.raises(ValueError, match="white space at an end"):
        format_attributes({"a": "1 "})


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_texts_come_back_from_modified_utf8(text: str):
    builder = TDMsgBuilder(compress=False)
    builder.add(text, b"a")
    (record,) = parse_tdmsg(builder.build(0))
    assert record.attribute_text == text
    assert b"\0" not in record.raw_attributes
    assert all(byte < 0xF0 for byte in record.raw_attributes)


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_texts_come_back_from_ordinary_utf8(text: str):
    (record,) = parse_tdmsg(message(block(attributes=text.encode())))
    assert record.attribute_text == text


@settings(deadline=None)
@given(st.binary(max_size=12))
def test_no_bytes_of_attributes_stop_a_reader(raw: bytes):
    (record,) = parse_tdmsg(message(block(attributes=raw)))
    assert record.raw_attributes == raw
    record.attribute_text.encode()


def test_a_surrogate_without_its_pair_is_replaced_when_read_and_refused_when_written():
    (record,) = parse_tdmsg(message(block(attributes=b"k=\xed\xa0\xbd!")))
    assert record.attribute_text == "k=\ufffd\ufffd\ufffd!"
    with pytest.raises(ValueError, match="not valid Unicode"):
        TDMsgBuilder(compress=False).add("k=\ud83d", b"a")


def test_group_and_stream_are_found_under_new_and_old_names():
    builder = TDMsgBuilder(compress=False)
    for attributes in ("groupId=g&streamId=s", "bid=g&tid=s", "bid=g&iname=s", "m=0"):
        builder.add(attributes, b"a")
    named = [(record.group_id, record.stream_id) for record in parse_tdmsg(builder.build(0))]
    assert named == [("g", "s"), ("g", "s"), ("g", "s"), (None, None)]
