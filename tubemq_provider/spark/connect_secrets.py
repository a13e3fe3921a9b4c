"""Secrets on the way to a Spark Connect server, which has no access to files of the client.

Formats name files of the driver's host that hold their secrets (`credentials_file`). Under Spark
Connect the driver is the server, on another machine. So the registered class includes the contents
of these files: it is pickled by value, inside a command of the session, and appears in no plan,
option or log. On the server the files exist, in memory, while a method of the format runs.
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


def with_secrets(source: type[DataSource], texts: Mapping[str, str]) -> type[DataSource]:
    """Return `source` with the contents of the files that its options name, by path. Without
    contents, return `source` itself."""
    if not texts:
        return source

    # Defined here, so that it is pickled by value; the functions it calls are found by name.
    class SecretsCarrier(DataSource):
        def __init__(self, options: MutableMapping[str, str]) -> None:
            super().__init__(options)
            self._source_options = dict(options)

        @classmethod
        def name(cls) -> str:
            return source.name()

        def schema(self) -> Any:
            with secret_files_restored(texts, self._source_options) as options:
                return source(options).schema()

        def reader(self, schema: StructType) -> DataSourceReader:
            with secret_files_restored(texts, self._source_options) as options:
                return source(options).reader(schema)

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
            with secret_files_restored(texts, self._source_options) as options:
                return source(options).writer(schema, overwrite)

    return SecretsCarrier


@contextmanager
def secret_files_restored(
    texts: Mapping[str, str], options: Mapping[str, str]
) -> Iterator[dict[str, str]]:
    """Replace the paths of `texts` in `options` by those of temporary files with the contents,
    while the body runs."""
    with ExitStack() as stack:
        renamed = dict(options)
        for path, text in texts.items():
            path_here = stack.enter_context(secret_file(Path(path).name, text))
            renamed = {name: _renamed(value, path, path_here) for name, value in renamed.items()}
        yield renamed


def _renamed(value: str, before: str, now: str) -> str:
    """Replace a path, also inside of JSON."""
    return value.replace(_in_json(before), _in_json(now)).replace(before, now)


def _in_json(path: str) -> str:
    return json.dumps(path)[1:-1]
