"""Schemas: the product's parser against Spark's own, on generated schemas and on Spark's output.

Both return one type where both accept a schema. The product refuses more (`_STRICTER`) and accepts
a little more (a colon after the name of a column, the word `bool`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tubemq_client.errors import ConfigError
from tubemq_provider.rows.ddl import ddl_of, parse_ddl

__all__ = ["Spark", "generated", "run", "spark_of"]

Spark = Callable[[str], "tuple[str, list[str]] | None"]
"""JSON of a schema and the ways in which Spark prints it; None for one that it refuses."""

_SIMPLE = [
    *("BOOLEAN", "TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG"),
    *("FLOAT", "REAL", "DOUBLE", "STRING", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_LTZ"),
    *("TIMESTAMP_NTZ", "timestamp without time zone", "VARCHAR(9)", "CHAR(3)", "CHARACTER(4)"),
    *("DECIMAL", "DEC(5)", "NUMERIC(10, 2)", "decimal(38,38)", "INTERVAL", "INTERVAL YEAR"),
    *("INTERVAL DAY TO SECOND", "VARIANT", "VOID", "TIME", "time(3)", "STRING COLLATE UNICODE"),
]
_NAMES = ["a", "B", "_x", "select", "comment", "not", "time", "1a", "`f g`", "`x``y`", "`é`", "`1`"]
_COMMENTS = [
    "'x'",
    "''",
    "'it''s'",
    "'it\\'s'",
    '"a, b"',
    '"say ""x"""',
    "'a' 'b'",
    "r'\\n'",
    "'é\n'",
]
_STRICTER = (
    "named twice",
    "has no column here",
    "in `…` if it is a number",
    "a name before '>'",
    "a name before '``",
)
_SPACES = [" ", "  ", "\n", "\t", " /* x */ ", " -- y\n"]


def generated(random: Random) -> str:
    """Generate a schema, one in ten damaged."""
    text = _fields(random, 3, ",")
    if random.random() < 0.1:
        at = random.randrange(len(text))
        text = text[:at] + random.choice(["", ",", ">", "<", "'", "x", "(", "`"]) + text[at + 1 :]
    return text


def _fields(random: Random, depth: int, separator: str, colon: str = "") -> str:
    names = random.sample(_NAMES, random.randrange(1, 4))
    made = []
    for name in names:
        space = random.choice(_SPACES)
        mark = random.choice(["", colon]) if colon else ""
        one = f"{name}{mark}{space}{_type(random, depth)}"
        if random.random() < 0.3:
            one += random.choice([" NOT NULL", " not  null"])
        if random.random() < 0.3:
            one += f"{random.choice(_SPACES)}COMMENT {random.choice(_COMMENTS)}"
        made.append(one)
    return f"{separator} ".join(made)


def _type(random: Random, depth: int) -> str:
    pick = random.random()
    if depth and pick < 0.12:
        return f"ARRAY<{_type(random, depth - 1)}>"
    if depth and pick < 0.22:
        return f"map<STRING,{_type(random, depth - 1)}>"
    if depth and pick < 0.36:
        return f"STRUCT<{_fields(random, depth - 1, ',', ':')}>"
    return random.choice(_SIMPLE)


def spark_of(session: Any) -> Spark:
    """Return Spark's parser, in the JVM of a session."""
    schemas = session._jvm.org.apache.spark.sql.types.StructType

    def parse(text: str) -> tuple[str, list[str]] | None:
        try:
            found = schemas.fromDDL(text)
        except Exception:  # noqa: BLE001 - Py4J's, of several classes
            return None
        return found.json(), [found.toDDL(), found.sql()[len("STRUCT<") : -1]]

    return parse


def _said(fields: list[dict[str, Any]]) -> str:
    return ", ".join(f"`{f['name'].replace('`', '``')}` {_said_type(f['type'])}" for f in fields)


def _said_type(type_: Any) -> str:
    """Convert Spark's JSON of a type to the notation of this project."""
    if isinstance(type_, str):
        word = type_.partition("(")[0]
        known = {
            "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint",
            "varchar": "string", "char": "string", "time": "time",
        }  # fmt: skip
        return known.get(word, type_)
    if type_["type"] == "array":
        return f"array<{_said_type(type_['elementType'])}>"
    if type_["type"] == "map":
        return f"map<{_said_type(type_['keyType'])}, {_said_type(type_['valueType'])}>"
    members = ", ".join(
        f"`{f['name'].replace('`', '``')}`: {_said_type(f['type'])}" for f in type_["fields"]
    )
    return f"struct<{members}>"


def difference(text: str, spark: Spark) -> str | None:
    """Return the difference for one schema."""
    found = spark(text)
    try:
        ours = ddl_of(parse_ddl(text))
    except ConfigError as error:
        if found is None or any(reason in str(error) for reason in _STRICTER):
            return None
        return f"refused, and Spark takes it: {error}"
    if found is None:
        return None if ":" in text or "bool " in text.lower() else "taken, and Spark refuses it"
    wanted = _said(json.loads(found[0])["fields"])
    if ours != wanted:
        return f"another schema\n  {ours}\n  {wanted}"
    for printed in found[1]:
        try:
            if ddl_of(parse_ddl(printed)) != ours:
                return f"another schema of what Spark prints: {printed}"
        except ConfigError as error:
            return f"what Spark prints is refused: {printed}: {error}"
    return None


def run(inputs: int, seed: int, jars: Path | None) -> tuple[int, list[str]]:
    """Compare `inputs` schemas, with a separate Spark session."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = builder.getOrCreate()
    try:
        return compare(inputs, seed, spark_of(session))
    finally:
        session.stop()


def compare(inputs: int, seed: int, spark: Spark) -> tuple[int, list[str]]:
    """Compare `inputs` schemas."""
    random, problems = Random(seed), []
    for _ in range(inputs):
        text = generated(random)
        if problem := difference(text, spark):
            problems.append(f"{problem}\n  {text!r}")
    return inputs, problems
