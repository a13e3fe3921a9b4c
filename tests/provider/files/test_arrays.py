"""Arrays of a window's own values equal pyarrow's, and no window imports pandas for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tubemq_provider.files.arrays import binaries, flags, int32s, int64, int64s, no_rows, texts


@pytest.mark.parametrize(
    ("make", "values", "type_"),
    [
        (int64s, [0, -1, 2**63 - 1], pa.int64()),
        (int64s, range(3), pa.int64()),
        (int64s, [], pa.int64()),
        (int32s, [1, 2], pa.int32()),
        (flags, [True, False, True], pa.bool_()),
        (texts, ["ä", None, ""], pa.string()),
        (texts, [], pa.string()),
        (binaries, [b"\x00", b"", None], pa.binary()),
        (binaries, [b"a", b"b"], pa.binary()),
    ],
)
def test_arrays_equal_those_of_pyarrow(make: Any, values: Any, type_: pa.DataType) -> None:
    made = make(values)
    made.validate(full=True)
    assert made.equals(pa.array(values, type_))


def test_a_scalar_and_no_rows() -> None:
    assert int64(5).equals(pa.scalar(5, pa.int64()))
    schema = pa.schema([("a", pa.list_(pa.map_(pa.string(), pa.int8()))), ("b", pa.int64())])
    assert no_rows(schema).equals(pa.RecordBatch.from_pylist([], schema))


def test_a_window_of_typed_rows_does_not_load_pandas(tmp_path: Path) -> None:
    """Instants in the footers, a record for the quarantine, and rows around it."""
    code = """if True:
        import sys
        from contextlib import ExitStack
        from tools.benchmarks.window_requests import _Silent
        from tubemq_client import Producer
        from tubemq_client.config import ClientConfig
        from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
        from tubemq_provider.ingest.arguments import IngestArguments
        from tubemq_provider.ingest.job import IngestJob
        from tubemq_provider.ingest.validation import parse
        from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
        from tubemq_provider.sinks.parquet import ParquetSink
        from tubemq_provider.sources.tubemq.source import TubeMQSource

        body = '{"a": 1, "b": "x", "d": "2026-01-01T00:00:00Z", "e": "%s"}'
        decode = {"format": "json", "schema": "a long, b string, d timestamp, e string"}
        with EmbeddedTubeMQ(topics=[TopicSpec("orders")], http=False) as mq, ExitStack() as stack:
            settings = ClientConfig.parse({"masters": mq.masters}).settings()
            with Producer(settings) as producer:
                for number in range(3):
                    producer.send("orders", (body % number).encode())
                producer.send("orders", b"{no")
            mq.broker(1).flush()
            arguments = parse(IngestArguments, {
                "topic": "orders", "group": "lake", "cluster": "c1", "engine": "inline",
                "initial_position": "earliest", "path": sys.argv[1], "decode": decode,
                "corrupt_records": "quarantine",
            })
            source = TubeMQSource(settings, identity="c1", topic="orders", group="lake")
            job = IngestJob(arguments, source, ParquetSink(sys.argv[1]), stack)
            store = MemoryOffsetStore(MemoryJournal(), task="1")
            done = job.run(store, attempt="1", serialised=True, observer=_Silent())
            print(done.total, done.corrupt, "pandas" in sys.modules)
    """
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3", "1", "False"]
