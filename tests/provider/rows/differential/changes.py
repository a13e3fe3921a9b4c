"""Change records: the product against the published formats of Apache Flink (`flink-json`).

Both read the same bodies with the same columns: each kind of value in each kind of change, records
without rows, and rows of random values. What differs must have one of the reasons of `explanation`,
which are those of docs/changes.md; anything else is a difference.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, time
from decimal import Decimal
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa

from tools.devkit.maven import Artifact, jars_of
from tubemq_provider.rows.changes.bodies import BEFORE, OP, ChangeBodies
from tubemq_provider.rows.changes.envelopes import FORMATS
from tubemq_provider.rows.ddl import parse_ddl
from tubemq_provider.rows.spec import DecodeSpec
from tubemq_provider.windows.errors import TableAltered

__all__ = [
    "FROZEN", "Case", "cases_of", "explanation", "flink_answers", "flink_jars", "freeze",
    "our_answer", "run", "sample",
]  # fmt: skip

FLINK: Final = "1.20.1"
_PARTS: Final = (
    "flink-json", "flink-table-runtime", "flink-table-common", "flink-core", "flink-table-api-java",
)  # fmt: skip

FROZEN: Final = Path(__file__).with_name("flink_answers.jsonl")

Answer = Any
"""Rows with their kind and cells as texts, or a text "!" and the error."""


@dataclass(frozen=True)
class Column:
    """Column with its types here and in Flink, and values of JSON to try."""

    name: str
    ours: str
    flinks: str
    values: tuple[Any, ...]


_TEXT = Column("name", "string", "STRING", ("scooter", "", "ä€😀", " x ", 5, 1.5, True, {"a": 1}))
_COUNT = Column("n", "int", "INT", (0, -5, "7", 2_147_483_647, 2_147_483_648, 1.5, "x", True))
_BIG = Column("big", "bigint", "BIGINT", (2**63 - 1, -(2**63), 2**63, "12", ""))
_UNSIGNED = Column(
    "u", "decimal(20,0)", "DECIMAL(20,0)", (2**64 - 1, "18446744073709551615", 0, "x", 1.5)
)
_PRICE = Column(
    "price", "decimal(10,2)", "DECIMAL(10,2)",
    (1, "5.18", -2.25, "0.00", "99999999.99", "123456789.12", "1.005", "1e2", "BNI=", True),
)  # fmt: skip
_RATIO = Column("ratio", "double", "DOUBLE", (0.1, "5.25", -1e300, 3, "1e3", "x", True, "NaN"))
_SINGLE = Column("f", "float", "FLOAT", (0.5, "0.25", 3, 16_777_217))
_FLAG = Column("ok", "boolean", "BOOLEAN", (True, False, "true", "false", "1", 1, 0, "x"))
_DAY = Column("day", "date", "DATE", ("2020-02-29", "1969-12-31", "2020-13-01", 18_262, "x"))
_CLOCK = Column("clock", "time", "TIME(3)", ("08:30:00", "23:59:59", "25:00:00", "x"))
_ZONELESS = {
    "debezium": ("2020-01-01T01:02:03", "2020-01-01T01:02:03.123456", "1969-12-31T23:59:59.5", 5),
    "sql": ("2020-01-01 01:02:03", "2020-01-01 01:02:03.123456", "1969-12-31 23:59:59.5", "x", 5),
}
_RAW = Column("raw", "binary", "BYTES", ("aGk=", "", "AAECAw==", "!"))
_TAGS = Column("tags", "array<string>", "ARRAY<STRING>", ([], ["a", None], ["ä"], "x"))
_SHAPE = Column(
    "shape", "struct<wkb: binary, srid: int>", "ROW<wkb BYTES, srid INT>",
    ({"wkb": "AQEAAAA=", "srid": None}, {"wkb": "AQEAAAA=", "srid": 4326, "z": 1}, {}),
)  # fmt: skip


def _columns(format_: str) -> list[Column]:
    which = "debezium" if format_ == "debezium" else "sql"
    at = Column("at", "timestamp_ntz", "TIMESTAMP(6)", _ZONELESS[which])
    key = Column("id", "bigint", "BIGINT", ())
    simple = (key, _TEXT, _COUNT, _BIG, _UNSIGNED, _PRICE, _RATIO, _SINGLE, _FLAG, _DAY, _CLOCK, at)
    return [*simple, _RAW, _TAGS, *([] if format_ == "canal" else [_SHAPE])]


@dataclass(frozen=True)
class Case:
    """One body: `name` says what it tries, `columns` are the two texts of its columns."""

    format: str
    name: str
    body: bytes
    columns: tuple[str, str]
    wrapped: bool = False


def cases_of(format_: str) -> list[Case]:
    """Return all cases of a format."""
    found = [*_values(format_), *_specials(format_)]
    if format_ == "debezium":
        kinds = {"type": "struct", "fields": []}
        found += [
            Case(one.format, f"{one.name} in an envelope with a schema",
                 json.dumps({"schema": kinds, "payload": json.loads(one.body)}).encode(),
                 one.columns, wrapped=True)
            for one in found if one.body.startswith(b"{") and one.body.endswith(b"}")
        ]  # fmt: skip
    return found


def _values(format_: str) -> Iterator[Case]:
    for column in _columns(format_)[1:]:
        columns = (
            f"id bigint, {column.name} {column.ours}",
            (f"ROW<id BIGINT, `{column.name}` {column.flinks}>"),
        )
        tried = [({column.name: value}, repr(value)) for value in (*column.values, None)]
        for cells, what in [*tried, ({}, "absent")]:
            row = {"id": "1" if format_ == "canal" else 1, **cells}
            other = {"id": row["id"], column.name: None}
            name = f"{column.name} {what}"
            yield Case(format_, f"insert {name}", _document(format_, "c", None, row), columns)
            yield Case(format_, f"update {name}", _document(format_, "u", other, row), columns)
            yield Case(format_, f"from {name}", _document(format_, "u", row, other), columns)
            yield Case(format_, f"delete {name}", _document(format_, "d", row, None), columns)


def _document(format_: str, op: str, old: Any, new: Any) -> bytes:
    if format_ == "debezium":
        made = {"op": op, "before": old, "after": new, "source": {"db": "d", "table": "t"}}
    elif format_ == "ogg":
        word = {"c": "I", "u": "U", "d": "D", "r": "I"}[op]
        made = {"op_type": word, "before": old, "after": new, "table": "D.T", "pos": "1",
                "op_ts": "2020-05-13 17:26:27.936000", "primary_keys": ["id"]}  # fmt: skip
    else:
        row = new if new is not None else old
        changed = {n: v for n, v in (old or {}).items() if n not in new or v != new[n]} if (
            op == "u"
        ) else None  # fmt: skip
        if format_ == "canal":
            word = {"c": "INSERT", "u": "UPDATE", "d": "DELETE"}[op]
            made = {"type": word, "data": [row], "old": None if changed is None else [changed],
                    "database": "d", "table": "t", "isDdl": False, "es": 1, "ts": 2}  # fmt: skip
        else:
            word = {"c": "insert", "u": "update", "d": "delete", "r": "bootstrap-insert"}[op]
            made = {"type": word, "data": row, "database": "d", "table": "t", "ts": 1}
            if changed is not None:
                made["old"] = changed
    return json.dumps(made).encode()


_A, _B = {"id": 1, "name": "a"}, {"id": 2, "name": "b"}
_SPECIALS: Final[dict[str, list[tuple[str, Any]]]] = {
    "debezium": [
        ("ddl", {"source": {}, "databaseName": "d", "ddl": "ALTER TABLE t"}),
        ("truncate", {"op": "t", "before": None, "after": None, "source": {"table": "t"}}),
        ("message", {"op": "m", "source": {}}),
        ("heartbeat", {"ts_ms": 1}),
        ("transaction", {"status": "BEGIN", "id": "1"}),
        ("snapshot", {"op": "r", "before": None, "after": _A}),
        ("update without before", {"op": "u", "before": None, "after": _A}),
        ("delete without before", {"op": "d", "before": None, "after": None}),
        ("insert without after", {"op": "c", "before": None, "after": None}),
        ("unknown op", {"op": "x", "before": None, "after": _A}),
        ("unwrapped", _A),
    ],
    "canal": [
        ("ddl", {"type": "ALTER", "isDdl": True, "data": None, "sql": "ALTER TABLE t"}),
        ("create", {"type": "CREATE", "isDdl": True, "data": None, "sql": "CREATE TABLE t"}),
        ("truncate", {"type": "TRUNCATE", "isDdl": True, "data": None, "sql": "TRUNCATE t"}),
        ("two inserts", {"type": "INSERT", "data": [_A, _B], "old": None}),
        ("two updates", {"type": "UPDATE", "data": [_A, _B], "old": [{"name": "x"}, {"id": 9}]}),
        ("two deletes", {"type": "DELETE", "data": [_A, _B], "old": None}),
        ("update without old", {"type": "UPDATE", "data": [_A], "old": None}),
        ("update of a null", {"type": "UPDATE", "data": [_A], "old": [{"name": None}]}),
        ("no rows", {"type": "INSERT", "data": [], "old": None}),
        ("unknown type", {"type": "UPSERT", "data": [_A], "old": None}),
        ("query", {"type": "QUERY", "data": None, "sql": "SELECT 1", "isDdl": False}),
    ],
    "maxwell": [
        ("ddl", {"type": "table-alter", "database": "d", "table": "t", "sql": "ALTER TABLE t"}),
        ("create", {"type": "table-create", "database": "d", "table": "t", "sql": "CREATE"}),
        ("bootstrap start", {"type": "bootstrap-start", "data": {}, "table": "t"}),
        ("bootstrap row", {"type": "bootstrap-insert", "data": _A, "table": "t"}),
        ("bootstrap end", {"type": "bootstrap-complete", "data": {}, "table": "t"}),
        ("update without old", {"type": "update", "data": _A}),
        ("update of a null", {"type": "update", "data": _A, "old": {"name": None}}),
        ("update of nothing", {"type": "update", "data": _A, "old": {}}),
        ("insert without data", {"type": "insert", "data": None}),
        ("unknown type", {"type": "upsert", "data": _A}),
    ],
    "ogg": [
        ("truncate", {"op_type": "T", "table": "D.T", "pos": "1"}),
        ("ddl", {"ddl": "ALTER TABLE t", "table": "D.T"}),
        ("update without before", {"op_type": "U", "before": None, "after": _A, "table": "D.T"}),
        ("delete without before", {"op_type": "D", "before": None, "after": _A, "table": "D.T"}),
        ("insert without after", {"op_type": "I", "before": None, "table": "D.T"}),
        ("unknown type", {"op_type": "X", "after": _A, "table": "D.T"}),
    ],
}  # fmt: skip


def _specials(format_: str) -> Iterator[Case]:
    columns = "id bigint, name string", "ROW<id BIGINT, name STRING>"
    for op, old, new in (("u", _A, _B), ("u", _A, {**_A, "id": 2}), ("u", _A, _A)):
        yield Case(format_, f"key {old} {new}", _document(format_, op, old, new), columns)
    extra = {**_A, "more": [1, {"x": None}]}
    yield Case(format_, "more fields", _document(format_, "c", None, extra), columns)
    for name, document in _SPECIALS[format_]:
        yield Case(format_, name, json.dumps(document).encode(), columns)
    for name, body in (("tombstone", b""), ("no JSON", b"{"), ("list", b"[1]"), ("null", b"null")):
        yield Case(format_, name, body, columns)


def random_cases(format_: str, count: int, random: Random) -> Iterator[Case]:
    """Yield changes of rows with all columns, each of which has one of its values, or none."""
    columns = _columns(format_)
    texts = ", ".join(f"{one.name} {one.ours}" for one in columns)
    flinks = ", ".join(f"`{one.name}` {one.flinks}" for one in columns)

    def row(key: int) -> dict[str, Any]:
        cells = {one.name: random.choice([*one.values, None]) for one in columns[1:]}
        return {"id": key, **{name: cells[name] for name in cells if random.random() < 0.5}}

    for number in range(count):
        old, new = row(random.randint(1, 3)), row(random.randint(1, 3))
        op = random.choice("cuud")
        images = (None if op == "c" else old, None if op == "d" else new)
        yield Case(format_, f"random {number}", _document(format_, op, *images),
                   (texts, f"ROW<{flinks}>"))  # fmt: skip


# -- the two readers --------------------------------------------------------------------------


def flink_jars() -> list[Path]:
    """Return the jars of Flink's formats. Raises `MavenUnavailable`."""
    artifacts = [Artifact("org.apache.flink", part, FLINK) for part in _PARTS]
    return jars_of(f"flink-json-{FLINK}", artifacts)


def flink_answers(cases: list[Case], jars: list[Path]) -> list[Answer]:
    """Read each body by Flink, in one process."""
    lines = "".join(
        f"{c.format}\t{c.columns[1]}\t{str(c.wrapped).lower()}\t{c.body.hex()}\n" for c in cases
    )
    done = subprocess.run(
        ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", ":".join(map(str, jars)),
         str(Path(__file__).with_name("ReadChanges.java"))],
        input=lines.encode(), capture_output=True, timeout=3_000, check=True,
    )  # fmt: skip
    said = done.stdout.decode().splitlines()
    assert len(said) == len(cases), done.stderr.decode()[-2_000:]
    return [line if line.startswith("!") else json.loads(line) for line in said]


def our_answer(case: Case) -> Answer:
    """Read a body by the product, in the form of Flink's answer."""
    decoder = _decoder(case.format, case.columns[0])
    try:
        decoded = decoder.decode(pa.record_batch({"value": pa.array([case.body], pa.binary())}))
    except TableAltered as error:
        return f"!altered: {error}"
    if decoded.bad:
        return f"!{decoded.bad[0].reason}"
    answer: list[Any] = []
    names = decoder.schema.names[: decoder.schema.get_field_index(OP)]
    for row in decoded.rows.to_pylist():
        cells = [_plain(row[name]) for name in names]
        if row[OP] != "u":
            answer.append(["-D" if row[OP] == "d" else "+I", *cells])
            continue
        before = row[BEFORE] or {}
        answer.append(["-U", *(_plain(before.get(name)) for name in names)])
        answer.append(["+U", *cells])
    return answer or [["none", *sorted(decoded.notices)]]


@cache
def _decoder(format_: str, columns: str) -> ChangeBodies:
    spec = DecodeSpec.parse({"format": format_, "schema": columns, "before": True})
    return ChangeBodies(parse_ddl(columns), spec)


def _plain(cell: Any) -> Any:
    if cell is None:
        return None
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, bytes):
        return cell.hex()
    if isinstance(cell, dict):
        return [_plain(value) for value in cell.values()]
    if isinstance(cell, list):
        return [_plain(value) for value in cell]
    if isinstance(cell, (datetime, time)):
        return cell.isoformat(timespec="microseconds")
    if isinstance(cell, float):
        return cell if cell == cell else "NaN"  # noqa: PLR0124 - of NaN only it is False
    if isinstance(cell, Decimal):
        return format(cell, "f")
    return str(cell)


# -- the comparison ---------------------------------------------------------------------------

_CANNOT_HOLD: Final = ("no whole number", "does not fit", "is no boolean")


def explanation(case: Case, ours: Answer, flinks: Answer) -> str | None:
    """Return why answers differ; "" if they are equal, None if nothing explains it."""
    if ours == flinks:
        return ""
    ours_bad, flinks_bad = isinstance(ours, str), isinstance(flinks, str)
    if ours_bad and flinks_bad:
        return ""
    no_row = not ours_bad and ours[0][0] == "none"
    if no_row and (flinks_bad or flinks == []):
        return "a record without rows is counted by kind"
    if ours_bad and ours.startswith("!altered"):
        return "DDL fails the window"
    if ours_bad and flinks == []:
        return "a record of rows that has none is bad"
    if ours_bad and any(reason in ours for reason in _CANNOT_HOLD):
        return "a value that the column cannot hold is bad"
    if "update without before" in case.name:
        return "an update needs no row before it"
    if "bootstrap row" in case.name:
        return "rows of Maxwell's bootstrap are rows"
    if "two updates" in case.name:
        return "each row of a Canal update has its own 'old'"
    return _of_values(case, ours, flinks)


def _of_values(case: Case, ours: Answer, flinks: Answer) -> str | None:
    if b'"ok": "1"' in case.body or b'"ok": 1' in case.body:
        return "1 is true"
    if case.format == "canal" and b'"raw": "' in case.body:
        return "Canal's bytes are its ISO-8859-1 text"
    if b'"day": 18262' in case.body and isinstance(flinks, str):
        return "a date may be a number of days"
    return None


def sample() -> list[Case]:
    """Return the cases whose answers of Flink are kept: all but updates, deletes and envelopes with
    a schema of single values."""
    several = ("update ", "from ", "delete ")
    return [
        case for format_ in FORMATS for case in cases_of(format_)
        if not case.wrapped and (not case.name.startswith(several) or "without" in case.name)
    ]  # fmt: skip


def freeze() -> None:
    """Ask Flink, and keep its answers to `sample` for `test_changes_differential`."""
    cases = sample()
    answers = [
        answer.partition(" ")[0] if isinstance(answer, str) else answer
        for answer in flink_answers(cases, flink_jars())
    ]
    lines = (
        json.dumps([case.format, case.name, answer], ensure_ascii=False)
        for case, answer in zip(cases, answers, strict=True)
    )
    FROZEN.write_text("\n".join(lines) + "\n")


def run(inputs: int, seed: int, _jars: Path | None = None) -> tuple[int, list[str]]:
    """Compare all cases, and random ones up to `inputs` altogether."""
    random, jars, count = Random(seed), flink_jars(), 0
    problems: list[str] = []
    tally: Counter[tuple[str, str]] = Counter()
    for format_ in FORMATS:
        cases = cases_of(format_)
        cases += random_cases(format_, max(0, inputs // len(FORMATS) - len(cases)), random)
        for case, flinks in zip(cases, flink_answers(cases, jars), strict=True):
            ours = our_answer(case)
            reason = explanation(case, ours, flinks)
            tally[format_, "not explained" if reason is None else reason or "equal"] += 1
            if reason is None:
                problems.append(f"{format_}: {case.name}\n  {case.body!r}\n  {ours}\n  {flinks}")
        count += len(cases)
    for (format_, reason), number in sorted(tally.items()):
        print(f"{format_:10}{number:8}  {reason}")
    return count, problems
