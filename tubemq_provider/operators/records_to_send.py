"""Records to send, from a Dag author's values, functions and files.

A value that is not yet a record becomes the body of one. Reads files row by row and keeps only the
records in flight in memory; knows no connection and no Airflow.
"""

from __future__ import annotations

import csv
import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from tubemq_client import Record, errors
from tubemq_client.json_text import load_unique_json

__all__ = ["RecordsHash", "RecordsToSend", "of_file", "of_values"]


class RecordsHash:
    """Running hash of a sequence of records.

    Equal for sequences with equal bodies, streams and attributes. Times are left out, as they may
    be those of a try.
    """

    def __init__(self) -> None:
        self._hash = sha256()

    def add(self, record: Record) -> None:
        """Add the next record."""
        body: object = record.body
        metadata = [record.stream_id, sorted((record.attributes or {}).items())]
        is_bytes = isinstance(body, bytes | bytearray | memoryview)
        self._hash.update(sha256(body if is_bytes else repr(body).encode()).digest())  # type: ignore[arg-type]
        self._hash.update(sha256(json.dumps(metadata).encode()).digest())

    @property
    def hash(self) -> str:
        """Hash of the records so far."""
        return self._hash.hexdigest()


class RecordsToSend(Iterator[Record]):
    """Records in flight, counted in bytes of bodies as they are taken.

    `under_way` are those whose receipts have not been taken yet, in order. A source that fails ends
    the iteration, with the error in `failure`: records before it are in flight by then, and their
    receipts are worth waiting for.
    """

    def __init__(self, records: Iterator[Record]) -> None:
        self._records = records
        self.bytes = 0
        self.under_way: deque[Record] = deque()
        self.failure: Exception | None = None

    def __next__(self) -> Record:
        try:
            record = next(self._records)
        except StopIteration:
            raise
        except Exception as exc:
            self.failure = exc
            raise StopIteration from exc
        self.bytes += len(record.body)
        self.under_way.append(record)
        return record


def of_values(values: Iterable[Any], stream_field: str | None) -> Iterator[Record]:
    """Return a record for each value. Raises `errors.ConfigError` for one that cannot be sent."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise errors.ConfigError(
            f"records come as a list or from a generator, not as {type(values).__name__}",
            subject="records",
        )
    return (_record(value, index, stream_field) for index, value in enumerate(values))


def of_file(path: str, stream_field: str | None) -> Iterator[Record]:
    """Yield a record for each row of a file. Raises `errors.ConfigError` if it cannot be read."""
    suffix = Path(path).suffix
    try:
        with Path(path).open(
            encoding="utf-8-sig", newline="" if suffix == ".csv" else None
        ) as file:
            yield from _rows(file, path, stream_field, table=suffix == ".csv")
    except (OSError, UnicodeDecodeError, csv.Error) as exc:
        raise errors.ConfigError(f"{path} cannot be read: {exc}", subject="file") from exc


def _rows(
    file: Iterable[str], path: str, stream_field: str | None, *, table: bool
) -> Iterator[Record]:
    """Yield records of a table's rows, or of lines that are not blank."""
    if table:
        for index, row in enumerate(csv.DictReader(file)):
            if None in row or None in row.values():
                problem = f"{path}: row {index + 1} has not as many fields as the header"
                raise errors.ConfigError(problem, subject="file")
            yield _record(row, index, stream_field)
        return
    lines = ((number, raw.rstrip("\n")) for number, raw in enumerate(file, 1))
    for index, (number, line) in enumerate(item for item in lines if item[1]):
        # The line itself is the body: a parser would not reproduce numbers exactly.
        fields: object = line
        if stream_field is not None and path.endswith(".jsonl"):
            fields = _parsed(line, path, number)
        yield Record(line.encode(), stream_id=_stream(fields, index, stream_field))


def _parsed(line: str, path: str, number: int) -> Any:
    try:
        return load_unique_json(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as exc:
        raise errors.ConfigError(f"{path}, line {number}: {exc}", subject="file") from exc


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _record(value: object, index: int, stream_field: str | None) -> Record:
    if isinstance(value, Record):
        return value
    return Record(_body(value, index), stream_id=_stream(value, index, stream_field))


def _stream(value: object, index: int, stream_field: str | None) -> str | None:
    if stream_field is None:
        return None
    if not isinstance(value, Mapping) or stream_field not in value:
        raise errors.ConfigError(
            f"record {index} has no field {stream_field!r}", subject="stream_field"
        )
    if value[stream_field] in (None, ""):
        raise errors.ConfigError(
            f"record {index} has an empty field {stream_field!r}", subject="stream_field"
        )
    return str(value[stream_field])


def _body(value: object, index: int) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise errors.ConfigError(
            f"record {index} is {type(value).__name__}: {exc}", subject="records"
        ) from exc
