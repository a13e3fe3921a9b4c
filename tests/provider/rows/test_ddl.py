"""Schemas in Spark's notation, to Arrow and back."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tubemq_client.errors import ConfigError
from tubemq_provider.rows.ddl import ddl_of, parse_ddl

pa = pytest.importorskip("pyarrow")

SIMPLE = st.sampled_from(
    [
        *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string"),
        *("binary", "date", "timestamp", "timestamp_ntz", "decimal(38,10)"),
    ]
)
NAMES = st.text("abcé `<>,:1 ", min_size=1, max_size=5)


def nested(inner: Any) -> Any:
    fields = st.lists(st.tuples(NAMES, inner), min_size=1, max_size=3)
    quoted = fields.map(lambda fs: ", ".join(f"`{n.replace('`', '``')}`: {t}" for n, t in fs))
    return st.one_of(
        inner.map("array<{}>".format),
        st.tuples(inner, inner).map(lambda kv: f"map<{kv[0]},{kv[1]}>"),
        quoted.map("struct<{}>".format),
    )


@given(type_=st.recursive(SIMPLE, nested, max_leaves=6), name=NAMES)
def test_what_is_read_is_written_back(type_: str, name: str) -> None:
    schema = parse_ddl(f"`{name.replace('`', '``')}` {type_}, last int")
    assert schema.names == [name, "last"]
    assert parse_ddl(ddl_of(schema)) == schema


def test_aliases_and_defaults_are_spark_s() -> None:
    schema = parse_ddl("A LONG, b Integer, c decimal, d numeric(5), e bool")
    types = [pa.int64(), pa.int32(), pa.decimal128(10, 0), pa.decimal128(5, 0), pa.bool_()]
    assert [item.type for item in schema] == types


@given(text=st.text("abint<>(),:`1 ", max_size=20))
def test_anything_else_is_an_error_of_ours(text: str) -> None:
    with suppress(ConfigError):
        parse_ddl(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id", "expected a name before 'the end'"),
        ("id bigint name string", "expected a comma or the end"),
        ("id array<int", "expected '>'"),
        ("id decimal(40,2)", "p from 1 to 38"),
        ("id int, ID string", "named twice"),
        ("a " + "array<" * 70 + "int" + ">" * 70, "at most 64 types in each other"),
    ],
)
def test_a_mistake_says_what_was_expected(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_ddl(text)
    assert words in str(caught.value)


def test_what_spark_prints_is_taken() -> None:
    text = (
        "a INT NOT NULL COMMENT 'it\\'s \n x', b VARCHAR(9),c STRUCT<d: CHAR(3) COMMENT 'q', "
        "e: TIMESTAMP_LTZ NOT NULL>,`f g` TIMESTAMP_NTZ, t TIME(6), u STRING COLLATE UNICODE, "
        "v timestamp without time zone -- the last one\n"
    )
    instant = pa.timestamp("us", tz="UTC")
    assert parse_ddl(text) == pa.schema(
        [
            ("a", pa.int32()),
            ("b", pa.string()),
            ("c", pa.struct([("d", pa.string()), ("e", instant)])),
            ("f g", pa.timestamp("us")),
            ("t", pa.time64("us")),
            ("u", pa.string()),
            ("v", pa.timestamp("us")),
        ]
    )


@pytest.mark.parametrize("type_", ["INTERVAL", "INTERVAL DAY TO SECOND", "VARIANT", "VOID"])
def test_a_type_of_spark_without_a_column_is_refused_by_name(type_: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_ddl(f"id int, a array<{type_}>")
    word = type_.split(maxsplit=1)[0].lower()
    assert f"type '{word}' of Spark has no column here; write " in str(caught.value)


def test_a_schema_printed_as_one_struct_is_its_fields() -> None:
    """`simpleString` and `catalogString` print it so."""
    inner = "id:bigint,`a b`:struct<t:timestamp_ntz>"
    for text in (f"struct<{inner}>", f" STRUCT<{inner} > -- all\n"):
        assert parse_ddl(text) == parse_ddl(inner)
    assert parse_ddl("struct int, b struct<c: int>").names == ["struct", "b"]
    with pytest.raises(ConfigError, match="expected the end before ', b int'"):
        parse_ddl("struct<a: int>, b int")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a INT DEFAULT 5, b INT", "DEFAULT has no effect"),
        ("a INT NOT NULL GENERATED ALWAYS AS (1)", "GENERATED has no effect"),
        ('{"type":"struct","fields":[]}', "it is JSON; write the same as DDL"),
    ],
)
def test_what_has_no_effect_or_another_notation_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_ddl(text)
    assert words in str(caught.value)
