"""Avro: the product against Avro's Java library, and against fastavro where there is no Java.

The product may refuse what an oracle reads, for these reasons only (`_STRICTER`); whatever it
reads, the oracle reads too, as the same values. Each is a rule of docs/typed-rows.md.
"""

from __future__ import annotations

import io
import json
import math
import subprocess
from base64 import b64encode
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

from tests.provider.rows.decoded import decoded_both_ways
from tests.provider.rows.differential.avro_cases import AvroCase, avro_case
from tubemq_client.errors import ConfigError

__all__ = ["Answer", "JavaAvro", "avro_differences", "fastavro_answers"]

Answer = Any
"""Fields of a body as plain values, or a text "!" and the error."""

_STRICTER = (
    "a boolean is",  # Java: false; fastavro: true
    "a number has more than",  # Java drops bits beyond 32 or 64, fastavro beyond 64
    "codec can't decode",  # Java: U+FFFD
    "a map has a key twice",  # the last one counts in both
    "another size than it says",  # neither looks at the size of a block
    "items cannot be in a body",  # both create any declared number of items without bytes
    "is no time of day",  # a number to both
    "of the years 1 to 9999",  # a number to both
    "more digits than the precision",  # neither looks at it
    "a decimal has no byte",  # fastavro: 0
    "is not one of",  # fastavro takes negative indexes
    "is not its only one",
    "a length is negative",  # fastavro reads nothing, or the rest
)


def avro_differences(
    cases: Iterable[AvroCase],
    oracle: Callable[[AvroCase], list[Answer]],
    policy: str = "leave_out",
) -> tuple[int, list[str]]:
    """Compare each body; return the number of comparisons, and the differences."""
    problems: list[str] = []
    count = 0
    for case in cases:
        ours = _answers(case, policy)
        theirs = oracle(case)
        count += len(case.bodies)
        for body, mine, other in zip(case.bodies, ours, theirs, strict=True):
            if problem := _difference(mine, other):
                problems.append(f"{problem}\n  {case.schema}\n  {body.hex()}\n  {mine}\n  {other}")
    return count, problems


def _difference(ours: Answer, theirs: Answer) -> str | None:
    refused, other_refused = (isinstance(one, str) for one in (ours, theirs))
    if refused:
        if other_refused or any(reason in ours for reason in _STRICTER):
            return None
        return "refused, and the oracle reads it"
    if other_refused:
        return "read, and the oracle refuses it"
    shared = {name: value for name, value in theirs.items() if name in ours}
    return None if _same(ours, _pruned(shared, ours)) else "another value"


def _pruned(theirs: Any, ours: Any) -> Any:
    """Drop members that have no column."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return {k: _pruned(v, ours[k]) for k, v in theirs.items() if k in ours}
    if isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        return [_pruned(a, b) for a, b in zip(theirs, ours, strict=True)]
    return theirs


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and one == other


def _answers(case: AvroCase, policy: str) -> list[Answer]:
    spec = {"format": "avro", "schema": case.schema, "columns": ["offset"]}
    try:
        rows, bad = decoded_both_ways({**spec, "unsupported_fields": policy}, case.bodies)
    except ConfigError as error:
        assert "no field with a column" in str(error), str(error)  # noqa: PT017
        return ["!a map has a key twice: nothing to compare"] * len(case.bodies)
    found: list[Answer] = [None] * len(case.bodies)
    for one in bad:
        found[one.position] = f"!{one.reason}"
    names = rows.schema.names[1:]
    columns = [plain_cells(rows.column(name)) for name in names]
    for place, offset in enumerate(rows.column("offset").to_pylist()):
        found[offset // 28] = {n: c[place] for n, c in zip(names, columns, strict=True)}
    return found


def plain_cells(column: Any) -> list[Any]:
    """Return values as the Java tool writes them."""
    import pyarrow as pa

    type_ = column.type
    if pa.types.is_struct(type_):
        parts = [plain_cells(part) for part in column.flatten()]
        names = [item.name for item in type_]
        return [
            dict(zip(names, [part[i] for part in parts], strict=True)) if ok else None
            for i, ok in enumerate(column.is_valid().to_pylist())
        ]
    if pa.types.is_list(type_):
        return [None if not cell.is_valid else plain_cells(cell.values) for cell in column]
    if pa.types.is_map(type_):
        found: list[Any] = []
        for cell in column:
            if not cell.is_valid:
                found.append(None)
                continue
            keys, values = cell.values.flatten()
            found.append(dict(zip(keys.to_pylist(), plain_cells(values), strict=True)))
        return found
    if pa.types.is_date(type_):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(type_) or pa.types.is_time(type_):
        column = column.cast(pa.int64())
    return [_plain(cell) for cell in column.to_pylist()]


def _plain(cell: Any) -> Any:
    if isinstance(cell, Decimal):
        sign, digits, _ = cell.as_tuple()
        return f"decimal {int(''.join(map(str, digits))) * (-1 if sign else 1)}"
    if isinstance(cell, bytes):
        return b64encode(cell).decode()
    if isinstance(cell, float) and not math.isfinite(cell):
        return "NaN" if math.isnan(cell) else "Infinity" if cell > 0 else "-Infinity"
    return cell


class JavaAvro:
    """Avro's Java library in a separate process; `answers` are those of all cases."""

    def __init__(self, jars: Path) -> None:
        names = ("avro-1*", "jackson-*", "slf4j-api*", "commons-*")
        self._path = ":".join(
            str(jar) for name in names for jar in sorted(jars.glob(f"{name}.jar"))
        )

    def answers(self, cases: list[AvroCase]) -> list[list[Answer]]:
        """Read each body of each case."""
        lines = "".join(f"{c.schema}\t{body.hex()}\n" for c in cases for body in c.bodies)
        tool = Path(__file__).with_name("ReadAvro.java")
        done = subprocess.run(
            ["java", "-Xmx512m", "-cp", self._path, str(tool)],
            input=lines.encode(), capture_output=True, timeout=3_000, check=True,
        )  # fmt: skip
        said = iter(done.stdout.decode().splitlines())
        return [[_parsed(next(said)) for _ in case.bodies] for case in cases]


def _parsed(line: str) -> Answer:
    return line if line.startswith("!") else json.loads(line)


def fastavro_answers(case: AvroCase) -> list[Answer]:
    """Read base values by fastavro, from a schema without logical types: the product differs in
    nothing but numbers of milliseconds, decimals and UUIDs, which `without_logical` removes from
    the schema."""
    import fastavro

    schema = fastavro.parse_schema(json.loads(case.schema))
    found: list[Answer] = []
    for body in case.bodies:
        stream = io.BytesIO(body)
        try:
            datum = fastavro.schemaless_reader(stream, schema, None)
            if stream.tell() != len(body):
                raise ValueError("bytes are left")  # noqa: TRY301
            found.append(_plain_datum(datum))
        except Exception as error:  # noqa: BLE001 - of any class
            found.append(f"!{error!r}")
    return found


def _plain_datum(datum: Any) -> Any:
    if isinstance(datum, dict):
        return {key: _plain_datum(value) for key, value in datum.items()}
    if isinstance(datum, list):
        return [_plain_datum(value) for value in datum]
    return _plain(datum)


def without_logical(case: AvroCase) -> AvroCase:
    """Replace the logical types by their base types."""

    def base(item: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in item.items() if k not in ("logicalType", "precision", "scale")}

    return AvroCase(json.dumps(json.loads(case.schema, object_hook=base)), case.bodies)


def run(inputs: int, seed: int, jars: Path | None) -> tuple[int, list[str]]:
    """Compare `inputs` bodies, with Java if its `jars` are given."""
    random, count, problems = Random(seed), 0, []
    while count < inputs:
        cases = [avro_case(random) for _ in range(min(20_000, (inputs - count) // 4 + 1))]
        if jars is not None:
            said = iter(JavaAvro(jars).answers(cases))
            more, found = avro_differences(cases, lambda _, said=said: next(said))  # type: ignore[misc]
        else:
            more, found = avro_differences(map(without_logical, cases), fastavro_answers)
        count += more
        problems += found
    return count, problems
