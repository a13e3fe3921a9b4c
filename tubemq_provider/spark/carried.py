"""What must stay secret on the way to a Spark Connect server, which sees none of our files.

Formats name files of the driver's host that have their secrets (`credentials_file`). Under Spark
Connect the driver is the server, on another machine. So the class that is registered carries the
texts of these files: it is pickled by value, inside a command of the session, and stands in no
plan, option or log. On the server the files exist while a format looks at them, in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceWriter

from tubemq_provider.spark.credentials_file import secret_file

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["carrying", "unpacked"]


def carrying(source: type[DataSource], texts: Mapping[str, str]) -> type[DataSource]:
    """`source`, with the texts of the files that its options name, by path. Without texts, `source`
    itself."""
    if not texts:
        return source

    # Made here, so that it is pickled by value; what it calls is found on the server by name.
    class Carrying(DataSource):
        def __init__(self, options: MutableMapping[str, str]) -> None:
            super().__init__(options)
            self._given = dict(options)

        @classmethod
        def name(cls) -> str:
            return source.name()

        def schema(self) -> Any:
            with unpacked(texts, self._given) as options:
                return source(options).schema()

        def reader(self, schema: StructType) -> DataSourceReader:
            with unpacked(texts, self._given) as options:
                return source(options).reader(schema)

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
            with unpacked(texts, self._given) as options:
                return source(options).writer(schema, overwrite)

    return Carrying


@contextmanager
def unpacked(texts: Mapping[str, str], options: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """`options` with the paths of `texts` replaced by those of files that have them, while the body
    runs."""
    with ExitStack() as stack:
        here = dict(options)
        for path, text in texts.items():
            made = stack.enter_context(secret_file(Path(path).name, text))
            here = {name: _renamed(value, path, made) for name, value in here.items()}
        yield here


def _renamed(value: str, before: str, now: str) -> str:
    """As it is, or inside of a JSON text."""
    return value.replace(_in_json(before), _in_json(now)).replace(before, now)


def _in_json(path: str) -> str:
    return json.dumps(path)[1:-1]
