"""Change records of Debezium, Canal, Maxwell and GoldenGate, as their documentation shows them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from tests.provider.rows.decoded import batch, decode
from tubemq_client.errors import ConfigError
from tubemq_client.model import CorruptRecords
from tubemq_client.tdmsg import TDMsgBuilder
from tubemq_provider.rows.decoding import BadRecord, BadRecords, RowDecoder
from tubemq_provider.rows.inference import infer
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.sources.tubemq.columns import RECORDS
from tubemq_provider.windows.errors import TableAltered

pa = pytest.importorskip("pyarrow")

CUSTOMER = "id int, first_name string, last_name string, email string"
ANNE = {"id": 1004, "first_name": "Anne", "last_name": "Kretchmar", "email": "annek@noanswer.org"}
MYSQL = {
    "connector": "mysql", "name": "mysql-server-1", "ts_ms": 1465581029100, "snapshot": "false",
    "db": "inventory", "table": "customers", "server_id": 223344, "gtid": None,
    "file": "mysql-bin.000003", "pos": 484, "row": 0,
}  # fmt: skip
POSTGRES = {
    "connector": "postgresql", "db": "shop", "schema": "public", "table": "customers",
    "txId": 556, "lsn": 24023128, "ts_ms": 1559033904863,
}  # fmt: skip


def debezium(op: str, before: Any, after: Any, **more: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "source": MYSQL, "op": op, "ts_ms": 5, **more}


def body(document: Any) -> bytes:
    return json.dumps(document).encode()


def test_debezium_of_mysql_with_and_without_the_schema_of_the_envelope() -> None:
    spec = {"format": "debezium", "schema": CUSTOMER, "before": True}
    updated = {**ANNE, "first_name": "Anne Marie"}
    plain = [
        debezium("c", None, ANNE),
        debezium("u", ANNE, updated),
        debezium("d", updated, None),
        debezium("r", None, ANNE),
    ]
    wrapped = [{"schema": {"type": "struct", "fields": []}, "payload": one} for one in plain]
    for bodies in (plain, wrapped):
        rows, bad = decode(spec, [body(one) for one in bodies])
        assert bad == []
        assert [row["_op"] for row in rows] == ["c", "u", "d", "r"]
        assert [row["first_name"] for row in rows] == ["Anne", "Anne Marie", "Anne Marie", "Anne"]
        assert [row["_before"] for row in rows] == [None, ANNE, updated, None]
        assert {row["_database"] for row in rows} == {"inventory"}
        assert {row["_table"] for row in rows} == {"customers"}
        at = datetime(2016, 6, 10, 17, 50, 29, 100_000, UTC)
        assert {row["_source_time"] for row in rows} == {at}
        position = "mysql-bin.0000000003:00000000000000000484:0000000000"
        assert {row["_source_position"] for row in rows} == {position}


def test_debezium_of_postgresql_names_schema_lsn_and_transaction() -> None:
    record = debezium("c", None, ANNE, transaction={"id": "571:53195829", "total_order": 1})
    record["source"] = POSTGRES
    bare = {**debezium("c", None, ANNE), "source": POSTGRES}
    rows, _ = decode({"format": "debezium", "schema": CUSTOMER}, [body(record), body(bare)])
    assert [row["_transaction_id"] for row in rows] == ["571:53195829", "556"]
    assert rows[0]["_table"] == "public.customers"
    assert rows[0]["_source_position"] == "00000000000024023128"


def test_positions_sort_as_the_log() -> None:
    records = []
    for file, pos, row in (("mysql-bin.000003", 9, 1), ("mysql-bin.000003", 10, 0),
                           ("mysql-bin.000003", 10, 2), ("mysql-bin.000010", 4, 0),
                           ("mysql-bin.999999", 4, 0), ("mysql-bin.1000000", 4, 0)):  # fmt: skip
        record = debezium("c", None, ANNE)
        record["source"] = {**MYSQL, "file": file, "pos": pos, "row": row}
        records.append(body(record))
    rows, _ = decode({"format": "debezium", "schema": CUSTOMER}, records)
    positions = [row["_source_position"] for row in rows]
    assert positions == sorted(positions)


def kinds(**fields: Any) -> dict[str, Any]:
    """Return the schema of an envelope whose rows have these fields."""
    row = [{"field": name, "optional": True, **kind} for name, kind in fields.items()]
    images = [{"field": name, "type": "struct", "fields": row} for name in ("before", "after")]
    return {"type": "struct", "fields": images}


def test_debezium_types_come_from_the_schema_of_the_envelope() -> None:
    decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
               "parameters": {"scale": "2", "connect.decimal.precision": "10"}}  # fmt: skip
    schema = kinds(
        price=decimal,
        free={"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"},
        day={"type": "int32", "name": "io.debezium.time.Date"},
        at_ms={"type": "int64", "name": "io.debezium.time.Timestamp"},
        at_us={"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        at_ns={"type": "int64", "name": "io.debezium.time.NanoTimestamp"},
        zoned={"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
        clock={"type": "int64", "name": "io.debezium.time.MicroTime"},
        data={"type": "bytes"},
        shape={"type": "struct", "name": "io.debezium.data.geometry.Point"},
    )
    row = {
        "price": "BNI=", "free": {"scale": 3, "value": "AQ=="}, "day": 18_262,
        "at_ms": 1_577_836_800_123, "at_us": 1_577_836_800_123_456,
        "at_ns": 1_577_836_800_123_456_000, "zoned": "2020-01-01T02:00:00.5+02:00",
        "clock": 30_600_000_000, "data": "aGk=",
        "shape": {"wkb": "AQEAAAA=", "srid": None},
    }  # fmt: skip
    columns = (
        "price decimal(10,2), free decimal(9,3), day date, at_ms timestamp_ntz, at_us "
        "timestamp_ntz, at_ns timestamp, zoned timestamp, clock time, data binary, "
        "shape struct<wkb: binary, srid: int>"
    )
    record = {"schema": schema, "payload": debezium("c", None, row)}
    rows, bad = decode({"format": "debezium", "schema": columns}, [body(record)])
    assert bad == []
    at = datetime(2020, 1, 1, 0, 0, 0, 123_456, UTC)
    expected = {
        "price": Decimal("12.34"), "free": Decimal("0.001"), "day": date(2020, 1, 1),
        "at_ms": datetime(2020, 1, 1, 0, 0, 0, 123_000), "at_us": at.replace(tzinfo=None),  # noqa: DTZ001
        "at_ns": at, "zoned": datetime(2020, 1, 1, 0, 0, 0, 500_000, UTC), "clock": time(8, 30),
        "data": b"hi", "shape": {"wkb": b"\x01\x01\x00\x00\x00", "srid": None},
    }  # fmt: skip
    assert {name: rows[0][name] for name in expected} == expected


def test_what_is_ambiguous_without_a_schema_is_refused_until_options_say_it() -> None:
    spec = {"format": "debezium", "schema": "at timestamp, price decimal(10,2)"}
    record = body(debezium("c", None, {"at": 1_577_836_800_123, "price": "BNI="}))
    _, bad = decode(spec, [record])
    assert "set times='ms', 'us'" in bad[0].reason
    _, bad = decode({**spec, "times": "ms"}, [record])
    assert "set decimals='base64'" in bad[0].reason
    rows, bad = decode({**spec, "times": "ms", "decimals": "base64"}, [record])
    assert (rows[0]["price"], bad) == (Decimal("12.34"), [])
    assert rows[0]["at"] == datetime(2020, 1, 1, 0, 0, 0, 123_000, UTC)


def test_a_value_that_did_not_change_is_taken_from_before_or_the_record_is_bad() -> None:
    absent = "__debezium_unavailable_value"
    spec = {"format": "debezium", "schema": CUSTOMER}
    after = {**ANNE, "email": absent}
    rows, bad = decode(spec, [body(debezium("u", ANNE, after)), body(debezium("u", None, after))])
    assert [row["email"] for row in rows] == ["annek@noanswer.org"]
    assert "REPLICA IDENTITY FULL" in bad[0].reason


CANAL = {
    "data": [{"id": "111", "name": "scooter", "weight": "5.18", "raw": "\u00ff\u0001"}],
    "database": "inventory", "es": 1589373560000, "id": 9, "isDdl": False,
    "mysqlType": {"id": "INTEGER", "name": "VARCHAR(255)", "weight": "FLOAT", "raw": "BLOB"},
    "old": [{"weight": "5.15"}], "pkNames": ["id"], "sql": "",
    "sqlType": {"id": 4, "name": 12, "weight": 7}, "table": "products",
    "ts": 1589373560798, "type": "UPDATE",
}  # fmt: skip
PRODUCT = "id bigint, name string, weight decimal(10,2), raw binary"


def test_canal_has_texts_and_several_rows_in_a_record() -> None:
    spec = {"format": "canal", "schema": PRODUCT, "before": True}
    two = [{"id": "1", "name": None, "weight": "1"}, {"id": "2", "weight": None, "extra": "x"}]
    inserted = {**CANAL, "type": "INSERT", "data": two, "old": None}
    deleted = {**CANAL, "type": "DELETE", "old": None}
    rows, bad = decode(spec, [body(CANAL), body(inserted), body(deleted)])
    assert bad == []
    assert [(row["id"], row["_op"], row["weight"]) for row in rows] == [
        (111, "u", Decimal("5.18")), (1, "c", Decimal("1.00")), (2, "c", None),
        (111, "d", Decimal("5.18")),
    ]  # fmt: skip
    assert rows[0]["raw"] == b"\xff\x01"
    assert rows[0]["_before"]["weight"] == Decimal("5.15")
    assert rows[0]["_before"]["name"] == "scooter"
    assert rows[0]["_source_time"] == datetime(2020, 5, 13, 12, 39, 20, tzinfo=UTC)
    assert [row["offset"] for row in rows] == [0, 28, 28, 56]


def test_a_bad_row_makes_its_canal_record_bad_as_a_whole() -> None:
    rows = [{"id": "1"}, {"id": "x"}]
    record = {**CANAL, "type": "INSERT", "data": rows, "old": None}
    decoded, bad = decode({"format": "canal", "schema": PRODUCT}, [body(record), body(CANAL)])
    assert [row["id"] for row in decoded] == [111]
    assert bad[0].reason == "column 'id': 'x' is no bigint" or "'x'" in bad[0].reason


MAXWELL = {
    "database": "test", "table": "e", "type": "update", "ts": 1477053217, "xid": 23396,
    "commit": True, "position": "master.000006:800911", "server_id": 23042,
    "data": {"id": 2, "m": 5.444, "c": "2016-10-21 05:33:54.631000", "comment": "I am"},
    "old": {"m": 4.2341, "c": "2016-10-21 05:33:37.523000"},
}  # fmt: skip


def test_maxwell() -> None:
    schema = "id bigint, m decimal(8,4), c timestamp, comment string"
    spec = {"format": "maxwell", "schema": schema, "before": True}
    key_change = {**MAXWELL, "old": {"id": 1}}
    loaded = {**MAXWELL, "type": "bootstrap-insert", "old": None}
    deleted = {**MAXWELL, "type": "delete", "old": None}
    bodies = [body(one) for one in (MAXWELL, key_change, loaded, deleted)]
    rows, bad = decode(spec, bodies)
    assert bad == []
    assert [row["_op"] for row in rows] == ["u", "u", "r", "d"]
    assert rows[0]["_before"]["m"] == Decimal("4.2341")
    assert rows[0]["m"] == Decimal("5.4440")
    assert [row["_before"] and row["_before"]["id"] for row in rows] == [2, 1, None, 2]
    assert rows[0]["_transaction_id"] == "23396"
    assert rows[0]["_source_position"] == "master.0000000006:00000000000000800911:0000000000"


OGG = {
    "table": "OGG.TBL_TEST", "op_type": "U", "op_ts": "2020-05-13 17:26:27.936000",
    "current_ts": "2020-05-13T17:26:32.533000", "pos": "00000000140000000854",
    "primary_keys": ["id"], "before": {"id": 111, "name": "scooter", "weight": 5.15},
    "after": {"id": 111, "name": "scooter", "weight": 5.18},
}  # fmt: skip


def test_goldengate() -> None:
    spec = {"format": "ogg", "schema": "id int, name string, weight double", "before": True}
    inserted = {**OGG, "op_type": "I", "before": None}
    deleted = {**OGG, "op_type": "D", "after": None}
    compressed = {**OGG, "after": {"id": 111, "name_isMissing": True, "name": None, "weight": 6}}
    bodies = [body(one) for one in (OGG, inserted, deleted, compressed)]
    rows, bad = decode(spec, bodies)
    assert bad == []
    assert [(row["_op"], row["weight"]) for row in rows] == [
        ("u", 5.18), ("c", 5.18), ("d", 5.15), ("u", 6.0),
    ]  # fmt: skip
    assert rows[3]["name"] == "scooter"
    assert (rows[0]["_database"], rows[0]["_table"]) == ("OGG", "TBL_TEST")
    assert rows[0]["_source_position"] == "00000000140000000854"
    assert rows[0]["_source_time"] == datetime(2020, 5, 13, 17, 26, 27, 936_000, UTC)


def packed(bodies: list[bytes]) -> bytes:
    builder = TDMsgBuilder()
    for one in bodies:
        builder.add({"streamId": "s"}, one)
    return builder.build(0)


DDL = [
    ("debezium", {"source": MYSQL, "databaseName": "inventory", "ddl": "ALTER TABLE customers"}),
    ("debezium", {"source": MYSQL, "op": "t", "before": None, "after": None}),
    (
        "canal",
        {**CANAL, "type": "ALTER", "isDdl": True, "data": None, "sql": "ALTER TABLE products"},
    ),
    ("canal", {**CANAL, "type": "TRUNCATE", "isDdl": True, "data": None}),
    ("maxwell", {"type": "table-alter", "database": "test", "table": "e", "sql": "ALTER TABLE e"}),
    ("maxwell", {"type": "table-create", "database": "test", "table": "e", "def": {}}),
    ("ogg", {"table": "OGG.TBL_TEST", "op_type": "T", "pos": "1"}),
]


@pytest.mark.parametrize(("format_", "document"), DDL)
def test_ddl_and_truncated_tables_fail_the_window_or_are_counted(
    format_: str, document: Any
) -> None:
    spec = {"format": format_, "schema": "id int"}
    with pytest.raises(TableAltered, match="on_ddl='ignore'"):
        decode(spec, [body(document)])
    assert notices({**spec, "on_ddl": "ignore"}, [body(document)]).keys() <= {"ddl", "truncate"}
    other = {**spec, "tables": ["elsewhere.t"]}
    assert sum(notices(other, [body(document)]).values()) == 1


def notices(spec: Any, bodies: list[bytes]) -> dict[str, int]:
    decoder = RowDecoder(DecodeSpec.parse(spec), RECORDS)
    rows = decoder.rows(batch(bodies, decoder.read_schema), BadRecords(CorruptRecords.FAIL))
    assert rows.num_rows == 0
    return dict(decoder.notices)


def test_records_without_rows_are_counted_by_kind() -> None:
    bodies = [b"", b"null", b'{"ts_ms": 1}', b'{"status": "BEGIN", "id": "7"}', body({"op": "m"})]
    wrapped = body({"schema": None, "payload": None})
    spec = {"format": "debezium", "schema": "id int", "tables": ["inventory.orders"]}
    assert notices(spec, [*bodies, wrapped, body(debezium("c", None, ANNE))]) == {
        "tombstone": 3, "heartbeat": 1, "transaction": 1, "message": 1, "other_table": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("format_", "document", "reason"),
    [
        ("debezium", {"id": 1}, "ExtractNewRecordState"),
        ("debezium", debezium("d", None, None), "REPLICA IDENTITY"),
        ("debezium", debezium("x", None, ANNE), "none of c, r, u, d, t, m"),
        ("debezium", debezium("c", None, {"order_id": 1}), "none of the schema's columns"),
        ("debezium", debezium("c", None, {"id": 2**31}), "does not fit"),
        ("debezium", debezium("c", None, {"id": 1.5}), "no whole number"),
        ("debezium", debezium("c", None, {"id": True}), "no whole number"),
        ("debezium", debezium("c", None, "row"), "not an object"),
        ("debezium", [1], "another kind"),
        ("canal", {**CANAL, "data": []}, "no rows"),
        ("canal", {**CANAL, "old": None}, "without 'old'"),
        ("canal", {**CANAL, "type": "UPSERT", "sql": ""}, "which Canal has not"),
        ("maxwell", {**MAXWELL, "old": None}, "without 'old'"),
        ("maxwell", {"type": "upsert"}, "which Maxwell has not"),
        ("ogg", {**OGG, "after": None}, "without 'after'"),
    ],
)
def test_a_record_that_is_not_of_the_format_is_bad(
    format_: str, document: Any, reason: str
) -> None:
    rows, bad = decode({"format": format_, "schema": "id int"}, [body(document)])
    assert rows == []
    assert reason in bad[0].reason


def test_changes_inside_packs() -> None:
    pack = packed([body(CANAL), body({**CANAL, "type": "HEARTBEAT"}), body(CANAL)])
    only_notices = packed([body({**CANAL, "type": "HEARTBEAT"})])
    spec = {"format": "tdmsg", "then": {"format": "canal", "schema": PRODUCT}}
    rows, bad = decode(spec, [pack, only_notices])
    assert [(row["id"], row["packed_index"]) for row in rows] == [(111, 0), (111, 2)]
    assert bad == []
    decoder = RowDecoder(DecodeSpec.parse(spec), RECORDS)
    decoder.rows(batch([pack, only_notices], decoder.read_schema), BadRecords(CorruptRecords.FAIL))
    assert decoder.notices == {"heartbeat": 2}


def _same(bodies: Any) -> Any:
    return bodies


def test_schemas_are_inferred_from_envelopes_or_rows(tmp_path: Any) -> None:
    wrapped = {
        "schema": kinds(
            id={"type": "int64"}, day={"type": "int32", "name": "io.debezium.time.Date"}
        ),
        "payload": debezium("c", None, {"id": 1, "day": 3}),
    }
    for name, documents, expected in (
        ("a", [wrapped], "`id` bigint, `day` date"),
        ("b", [debezium("c", None, {"id": 1, "n": "x"})], "`id` bigint, `n` string"),
    ):
        spec = DecodeSpec.parse({"format": "debezium", "schema_file": str(tmp_path / name)})
        bodies = pa.array([body(one) for one in documents], pa.binary())
        assert infer(spec, partial(_same, bodies)).schema == expected


def test_options_of_changes_are_checked() -> None:
    problems = DecodeSpec.judge(
        {"format": "canal", "schema": "id int", "on_ddl": "skip", "before": "yes", "tables": "a.b"}
    )
    assert [problem.split(":")[0] for problem in problems] == ["on_ddl", "before", "tables"]
    with pytest.raises(ConfigError, match="'_op' has the name of one of changes"):
        decode({"format": "canal", "schema": "_op string"}, [])
    spec = DecodeSpec.parse({"format": "canal", "schema": "id int", "tables": ["a.b"]})
    assert DecodeSpec.parse(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("type_", "bad_ones", "sound"),
    [
        ("bigint", ["1e999999999", '"1e999999999"', '"1_000"', '"\u0661"', "1.5", '"NaN"'], "1e3"),
        ("double", ["1e400", '"1e400"', '"-1.8e308"', '"1_0"', '"\u0661"', '""'], '"1e3"'),
        ("float", ["3.5e38", '"3.5e38"', '"-1e400"', '"1_0"'], '"1000"'),
        ("decimal(9,2)", ["1e999999999", '"1_000"', '"\u0661"', '"NaN"', '"Infinity"'], '"1e3"'),
    ],
)
def test_texts_and_numbers_that_python_alone_reads_are_bad(
    type_: str, bad_ones: list[str], sound: str
) -> None:
    """A text too big for a double became infinite, `1_000` was a number, and the whole number
    1e999999999 was written out digit by digit, for hours."""
    spec = {"format": "debezium", "schema": f"n {type_}"}
    bodies = [
        body(debezium("c", None, {"n": "HERE"})).replace(b'"HERE"', number.encode())
        for number in [*bad_ones, sound]
    ]
    rows, bad = decode(spec, bodies)
    assert [row["n"] for row in rows] == [1000]
    assert [entry.position for entry in bad] == list(range(len(bad_ones)))


def test_texts_that_say_infinity_or_nan_are_doubles() -> None:
    spec = {"format": "debezium", "schema": "n double"}
    texts = ["Infinity", "-Infinity", "NaN"]
    rows, bad = decode(spec, [body(debezium("c", None, {"n": text})) for text in texts])
    assert (repr([row["n"] for row in rows]), bad) == ("[inf, -inf, nan]", [])


@pytest.mark.parametrize("sign", [".", ","])
def test_nanoseconds_are_not_cut_unasked_whatever_precedes_them(sign: str) -> None:
    text = f"2024-01-01T00:00:00{sign}123456789Z"
    spec = {"format": "debezium", "schema": "t timestamp"}
    rows, bad = decode(spec, [body(debezium("c", None, {"t": text}))])
    assert (rows, "nanoseconds" in bad[0].reason) == ([], True)
    rows, bad = decode({**spec, "nanoseconds": "cut"}, [body(debezium("c", None, {"t": text}))])
    assert (rows[0]["t"].microsecond, bad) == (123_456, [])


@pytest.mark.parametrize(
    "text", ['"\\ud800"', '{"\\udfff": 1}', '"\udce9"', '"\udced\udca0\udc80"']
)
@pytest.mark.parametrize("name", ["n", "other"])
def test_texts_that_are_no_unicode_make_one_record_bad(name: str, text: str) -> None:
    """A half of a surrogate pair failed the window, whatever `corrupt_records` said."""
    record = debezium("c", None, {name: "HERE", "n": "a"} if name == "other" else {name: "HERE"})
    broken = body(record).replace(b'"HERE"', text.encode("utf-8", "surrogateescape"))
    sound = body(debezium("c", None, {"n": "\U0001f600"}))
    rows, bad = decode({"format": "debezium", "schema": "n string"}, [broken, sound])
    assert [row["n"] for row in rows] == ["\U0001f600"]
    assert "it is not valid JSON" in bad[0].reason


@pytest.mark.parametrize(
    ("rows", "in_pack", "kept", "bad"),
    [
        ([[1, 2], [3]], False, [1, 2, 3], 0),
        ([[1, None], [3], [None]], False, [3], 2),
        ([[1, None], [3], [None]], True, [1, 3], 1),
    ],
)
def test_a_body_without_a_value_of_the_key_is_bad(
    rows: list[list[int | None]], in_pack: bool, kept: list[int], bad: int
) -> None:
    """Of packed bodies only its row, as the pack has others."""
    insert = {**CANAL, "type": "INSERT", "old": None}
    bodies = [body({**insert, "data": [{"id": id_} for id_ in ids]}) for ids in rows]
    bodies = [packed(bodies)] if in_pack else bodies
    changes = {"format": "canal", "schema": "id bigint"}
    spec = {"format": "tdmsg", "then": changes} if in_pack else changes
    found: list[BadRecord] = []
    decoder = RowDecoder(DecodeSpec.parse(spec), RECORDS, key=("id", "partition"))
    decoded = decoder.rows(
        batch(bodies, decoder.read_schema), BadRecords(CorruptRecords.QUARANTINE, found.append)
    )
    assert decoded.column("id").to_pylist() == kept
    assert [record.reason for record in found] == ["no value in 'id', which is of the key"] * bad


def test_a_column_that_only_the_row_before_has_did_not_change() -> None:
    """By default GoldenGate leaves columns out that an update did not change."""
    images = {"before": {"id": 1, "name": "a", "weight": 2}, "after": {"id": 1, "name": "b"}}
    document = {"table": "S.T", "op_type": "U", "op_ts": "2020-05-13 17:26:27", **images}
    spec = {"format": "ogg", "schema": "id int, name string, weight int, color string"}
    rows, bad = decode(spec, [body(document)])
    assert [(row["name"], row["weight"], row["color"]) for row in rows] == [("b", 2, None)]
    assert bad == []
