"""Envelopes of change records: the JSON of Debezium, Canal, Maxwell and Oracle GoldenGate.

Each reader takes a parsed body and returns the changes of rows that it holds, or a `Notice`: DDL, a
heartbeat, a truncated table, a tombstone, the bounds of a transaction. What each member means is
taken from the formats' documentation. A body that is neither raises `BadValue` with the reason.
This module must not know columns or types.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from tubemq_provider.rows.changes.values import BadValue, json_text

__all__ = ["FORMATS", "Change", "Notice", "parse_body", "parse_document"]

FORMATS: Final = ("debezium", "canal", "maxwell", "ogg")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Change:
    """Change of one row. `op` is ``c`` (insert), ``r`` (read by a snapshot), ``u`` or ``d``.

    `row` is the row after the change, or the deleted one; `before` is None if the format does not
    have it. `kinds` are the fields of Debezium's schema by name. `position` is a text whose order
    is that of the source's log.
    """

    op: str
    row: Mapping[str, Any]
    before: Mapping[str, Any] | None = None
    database: str | None = None
    table: str | None = None
    position: str | None = None
    time: datetime | None = None
    transaction: str | None = None
    kinds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Notice:
    """Record without a row: ``ddl``, ``truncate``, ``heartbeat``, ``tombstone``, ``transaction``
    or ``message``, with the table and a text that says more."""

    kind: str
    table: str | None = None
    text: str = ""


def parse_body(format_: str, body: bytes) -> list[Change] | Notice:
    """Parse one body of `format_`. Raises `BadValue` if it is not of the format."""
    if not body.strip():
        return Notice("tombstone")
    try:
        text = body.decode(json.detect_encoding(body))
        document = _JSON.decode(text)
        if "\\u" in text:
            json_text(document).encode()  # refuses halves of surrogate pairs, which no column takes
    except (ValueError, RecursionError) as error:
        raise BadValue(f"it is not valid JSON: {error}") from error
    if document is None:
        return Notice("tombstone")
    if not isinstance(document, dict):
        raise BadValue(f"it is JSON of another kind ({type(document).__name__}), not an object")
    return parse_document(format_, document)


def parse_document(format_: str, document: dict[str, Any]) -> list[Change] | Notice:
    """Parse the document of one body of `format_`. Raises `BadValue` if it is not of the format."""
    try:
        return _READERS[format_](document)
    except (KeyError, TypeError, AttributeError, OverflowError, ArithmeticError) as error:
        raise BadValue(f"it is no record of {format_}: {error!r}") from error


def _refuse(word: str) -> Any:
    raise BadValue(f"{word} is not JSON")


_JSON: Final = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse)
"""`json.loads` with these options would make a decoder for each record."""


def _object(value: Any, name: str) -> Mapping[str, Any] | None:
    if value is None or isinstance(value, dict):
        return value
    raise BadValue(f"{name!r} is a {type(value).__name__}, not an object")


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _instant(value: Any, *, per_second: int) -> datetime | None:
    if value is None:
        return None
    return _EPOCH + timedelta(microseconds=int(Decimal(value) * 1_000_000 / per_second))


def _padded(number: Any, width: int = 20) -> str:
    return str(int(number)).zfill(width)


def _log_file(name: Any) -> str:
    """Return the name of a binary log, whose number has six digits at first and more later on."""
    base, point, number = str(name).rpartition(".")
    return f"{base}.{_padded(number, 10)}" if point and number.isdecimal() else str(name)


def _name(*parts: Any) -> str | None:
    return ".".join(str(part) for part in parts if part) or None


# -- Debezium -------------------------------------------------------------------------------------


def _debezium(document: dict[str, Any]) -> list[Change] | Notice:
    schema = None
    if "payload" in document and document.keys() <= {"schema", "payload"}:
        schema, document = document.get("schema"), document["payload"]
        if document is None:
            return Notice("tombstone")
        if not isinstance(document, dict):
            raise BadValue("'payload' is not an object")
    op = document.get("op")
    if op is None:
        return _debezium_notice(document)
    source = _object(document.get("source"), "source") or {}
    schema_name = source.get("schema")
    table = source.get("table") or source.get("collection")
    if op == "t":
        return Notice("truncate", _name(source.get("db"), schema_name, table))
    if op == "m":
        return Notice("message")
    if op not in ("c", "r", "u", "d"):
        raise BadValue(f"'op' is {op!r}, which is none of c, r, u, d, t, m")
    before = _object(document.get("before"), "before")
    after = _object(document.get("after"), "after")
    row = before if op == "d" else after
    if row is None:
        hint = "; set REPLICA IDENTITY (PostgreSQL) at the source" if op == "d" else ""
        raise BadValue(f"a change {op!r} without {'before' if op == 'd' else 'after'!r}{hint}")
    transaction = (_object(document.get("transaction"), "transaction") or {}).get("id")
    for name in ("txId", "gtid"):
        transaction = source.get(name) if transaction is None else transaction
    change = Change(
        op,
        row,
        before,
        _text(source.get("db")),
        _name(schema_name, table) if schema_name else _text(table),
        _debezium_position(source),
        _instant(source.get("ts_ms"), per_second=1000),
        _text(transaction),
        _kinds(schema, "before" if op == "d" else "after"),
    )
    return [change]


def _debezium_notice(document: dict[str, Any]) -> Notice:
    if "ddl" in document or "tableChanges" in document:
        source = document.get("source") or {}
        table = _name(document.get("databaseName"), document.get("schemaName"), source.get("table"))
        return Notice("ddl", table, str(document.get("ddl") or ""))
    if document.get("status") in ("BEGIN", "END") and "id" in document:
        return Notice("transaction")
    if document.keys() and document.keys() <= {"ts_ms", "ts_us", "ts_ns"}:
        return Notice("heartbeat")
    raise BadValue(
        "it has no 'op'; rows that were unwrapped (ExtractNewRecordState) have lost what happened "
        "to them: take the transformation out, or decode them as json"
    )


def _debezium_position(source: Mapping[str, Any]) -> str | None:
    """Return a text that sorts as the source's log, from what the connector says of it."""
    if source.get("lsn") is not None:  # PostgreSQL
        return _padded(source["lsn"])
    if source.get("file"):  # MySQL, MariaDB
        row = _padded(source.get("row") or 0, 10)
        return f"{_log_file(source['file'])}:{_padded(source['pos'])}:{row}"
    if source.get("commit_lsn"):  # SQL Server
        serial = _padded(source.get("event_serial_no") or 0, 10)
        return f"{source['commit_lsn']}:{source.get('change_lsn') or ''}:{serial}"
    if source.get("scn"):  # Oracle
        return _padded(source["scn"], 40)
    return None


def _kinds(schema: Any, image: str) -> dict[str, Mapping[str, Any]]:
    """Return the fields of a row by name, of the schema that an envelope brings."""
    if not isinstance(schema, dict):
        return {}
    for member in schema.get("fields") or ():
        if member.get("field") == image:
            return {str(item["field"]): item for item in member.get("fields") or ()}
    return {}


# -- Canal ----------------------------------------------------------------------------------------

_CANAL_OPS: Final = {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}


def _canal(document: dict[str, Any]) -> list[Change] | Notice:
    word = str(document.get("type") or "").upper()
    table = _name(document.get("database"), document.get("table"))
    if word == "TRUNCATE":
        return Notice("truncate", table, str(document.get("sql") or ""))
    if word in ("HEARTBEAT", "TRANSACTIONBEGIN", "TRANSACTIONEND"):
        return Notice("heartbeat" if word == "HEARTBEAT" else "transaction")
    if document.get("isDdl") or (word and word not in _CANAL_OPS and document.get("sql")):
        return Notice("ddl", table, str(document.get("sql") or word))
    if word not in _CANAL_OPS:
        raise BadValue(f"'type' is {document.get('type')!r}, which Canal has not")
    rows = document.get("data")
    if not isinstance(rows, list) or not rows:
        raise BadValue("'data' has no rows")
    old = document.get("old")
    if old is not None and (not isinstance(old, list) or len(old) != len(rows)):
        raise BadValue("'old' has not an entry for each row of 'data'")
    op = _CANAL_OPS[word]
    changes = []
    for at, row in enumerate(rows):
        if not isinstance(row, dict):
            raise BadValue("'data' holds something that is no row")
        before = row if op == "d" else None
        if op == "u":
            if old is None:
                raise BadValue("an update without 'old', which says what was there before")
            before = {**row, **(_object(old[at], "old") or {})}
        changes.append(
            Change(
                op,
                row,
                before,
                _text(document.get("database")),
                _text(document.get("table")),
                _gtid_position(document.get("gtid")),
                _instant(document.get("es"), per_second=1000),
                document.get("gtid") or None,
            )
        )
    return changes


def _gtid_position(gtid: Any) -> str | None:
    """Return a text that sorts as the transactions of one server; a set has no order."""
    server, _, number = str(gtid or "").rpartition(":")
    return f"{server}:{_padded(number)}" if server and number.isdigit() else None


# -- Maxwell --------------------------------------------------------------------------------------

_MAXWELL_OPS: Final = {"insert": "c", "bootstrap-insert": "r", "update": "u", "delete": "d"}
_MAXWELL_DDL: Final = ("table-", "database-")


def _maxwell(document: dict[str, Any]) -> list[Change] | Notice:
    word = str(document.get("type") or "")
    table = _name(document.get("database"), document.get("table"))
    if word in ("bootstrap-start", "bootstrap-complete", "heartbeat"):
        return Notice("heartbeat")
    if word.startswith(_MAXWELL_DDL):
        sql = str(document.get("sql") or word)
        is_truncate = sql.lstrip().lower().startswith("truncate")
        return Notice("truncate" if is_truncate else "ddl", table, sql)
    op = _MAXWELL_OPS.get(word)
    if op is None:
        raise BadValue(f"'type' is {document.get('type')!r}, which Maxwell has not")
    row = _object(document.get("data"), "data")
    if row is None:
        raise BadValue("'data' has no row")
    before = row if op == "d" else None
    if op == "u":
        if (old := _object(document.get("old"), "old")) is None:
            raise BadValue("an update without 'old', which says what was there before")
        before = {**row, **old}
    change = Change(
        op,
        row,
        before,
        _text(document.get("database")),
        _text(document.get("table")),
        _maxwell_position(document),
        _instant(document.get("ts"), per_second=1),
        _text(document.get("xid")),
    )
    return [change]


def _maxwell_position(document: Mapping[str, Any]) -> str | None:
    """Return the position with the change's number in its transaction, if Maxwell was asked for
    positions (``output_binlog_position``)."""
    file, _, offset = str(document.get("position") or "").rpartition(":")
    if not (file and offset.isdigit()):
        return None
    number = _padded(document.get("xoffset") or 0, 10)
    return f"{_log_file(file)}:{_padded(offset)}:{number}"


# -- Oracle GoldenGate ----------------------------------------------------------------------------

_OGG_OPS: Final = {"I": "c", "U": "u", "D": "d"}


def _ogg(document: dict[str, Any]) -> list[Change] | Notice:
    word = document.get("op_type")
    table = _text(document.get("table"))
    if word == "T":
        return Notice("truncate", table)
    if word is None and ("ddl" in document or "$schema" in document):
        table = table or _text(document.get("title"))  # of a JSON schema
        return Notice("ddl", table, str(document.get("ddl") or "a new schema"))
    op = _OGG_OPS.get(str(word))
    if op is None:
        raise BadValue(f"'op_type' is {word!r}, which is none of I, U, D, T")
    before = _object(document.get("before"), "before")
    after = _object(document.get("after"), "after")
    row = before if op == "d" else after
    if row is None:
        raise BadValue(f"a change {word!r} without {'before' if op == 'd' else 'after'!r}")
    owner, _, name = (table or "").rpartition(".")
    tokens = document.get("tokens") or {}
    change = Change(
        op,
        row,
        before,
        owner or None,
        name or None,
        _text(document.get("pos")),
        _ogg_time(document.get("op_ts")),
        _text(document.get("xid") or tokens.get("TRANID") or tokens.get("TK-XID")),
    )
    return [change]


def _ogg_time(text: Any) -> datetime | None:
    """Return the time of an operation. It has no zone; GoldenGate's default is UTC."""
    if text is None:
        return None
    time = datetime.fromisoformat(str(text)[:26])
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


_READERS: Final[Mapping[str, Callable[[dict[str, Any]], list[Change] | Notice]]] = {
    "debezium": _debezium,
    "canal": _canal,
    "maxwell": _maxwell,
    "ogg": _ogg,
}
