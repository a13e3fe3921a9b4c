"""CPU of a window behind a long history: ``python -m tools.benchmarks.history``.

Fills a lake window by window over the embedded server. After each number of windows in ``--after``,
three processes that have just started run one more window each, as tasks of Airflow do; the median
of their CPU (this process and its threads, imports left out) is printed, and its ratio to the
first. ``--kind time`` has windows of one minute in Parquet directories, the others are windows by
cursor.

  python -m tools.benchmarks.history --kind delta --after 100 1000 10000
  python -m tools.benchmarks.history --kind time --after 10 5000
"""

from __future__ import annotations

import argparse
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from tubemq_client import ClientSettings, Partition, Producer, Record
from tubemq_client.config import ClientConfig
from tubemq_client.embedded import EmbeddedTubeMQ, TopicSpec
from tubemq_client.sync import Metadata
from tubemq_provider.engines.inline import InlineEngine
from tubemq_provider.offsets.memory import MemoryJournal, MemoryOffsetStore
from tubemq_provider.sinks.factory import sink_for
from tubemq_provider.sources.tubemq.source import TubeMQSource
from tubemq_provider.windows.plan import WindowScope
from tubemq_provider.windows.planning.cursor_planner import CursorPlanner
from tubemq_provider.windows.planning.standalone_planner import TimePlanner
from tubemq_provider.windows.policies import Policies
from tubemq_provider.windows.run.kinds import window_run

__all__ = ["main"]

TOPIC, RECORDS, TRIES = "history", 8, 3
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
STEP = timedelta(minutes=1)
DEFAULTS = {"parquet": [10, 500], "time": [10, 500], "delta": [100, 500], "iceberg": [10, 200]}


class _Ends:
    """Resolver whose instants are the ends of the windows that were filled."""

    name, exact = "history", False

    def __init__(self, ends: Mapping[datetime, Mapping[str, int]]) -> None:
        self._ends = ends

    def offsets_at(self, instant: datetime) -> Mapping[str, int]:
        return self._ends[instant]


class _Lake:
    """Windows of one group in one place."""

    def __init__(self, kind: str, root: Path, settings: ClientSettings) -> None:
        self._kind, self._settings = kind, settings
        addresses = {"delta": f"delta:{root}/table", "iceberg": "iceberg:history/bench.windows"}
        options: dict[str, Any] = {}
        if kind == "iceberg":
            options["catalog_properties"] = {
                "type": "sql", "uri": f"sqlite:///{root}/catalog.db", "warehouse": f"file://{root}",
            }  # fmt: skip
        self._sink = sink_for(addresses.get(kind, f"{root}/lake"), **options)
        self.journal = MemoryJournal()
        self.ends: dict[datetime, Mapping[str, int]] = {BEGIN: {"1:0": 0}}
        self.number = 0

    def run(self) -> None:
        """Run the next window."""
        source = TubeMQSource(self._settings, identity="bench", topic=TOPIC, group="bench")
        store = MemoryOffsetStore(self.journal, task=str(self.number))
        engine = InlineEngine.for_source(source, policies=Policies())
        window_run(self._planner(), store, self._sink, engine, attempt="1").run()
        self.number += 1

    def _planner(self) -> Any:
        scope = WindowScope("bench", TOPIC, "bench", self._sink.identity)
        if self._kind != "time":
            return CursorPlanner(scope, self._newest, initial_position="earliest")
        start, ends = BEGIN + self.number * STEP, self._newest()
        self.ends[start + STEP] = {p.key: end.max_offset for p, end in ends.items()}
        resolver = _Ends(self.ends)
        return TimePlanner(
            scope, start, start + STEP, resolver, lambda: ends, self._sink.boundaries
        )

    def _newest(self) -> Any:
        with Metadata(self._settings) as metadata:
            return metadata.ends(TOPIC, "bench", stable=True)


def main() -> int:
    """Print a line for each number of windows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kind", choices=DEFAULTS, default="time")
    parser.add_argument("--after", type=int, nargs="+", metavar="WINDOWS")
    chosen = parser.parse_args()
    numbers = sorted(chosen.after or DEFAULTS[chosen.kind])
    first = None
    topic = TopicSpec(TOPIC)
    with EmbeddedTubeMQ(topics=[topic], http=False) as mq, tempfile.TemporaryDirectory() as root:
        settings = ClientConfig.parse({"masters": mq.masters}).settings()
        lake = _Lake(chosen.kind, Path(root), settings)
        with Producer(settings) as producer:
            for number in numbers:
                while lake.number < number:
                    _produce(mq, producer)
                    lake.run()
                seconds = []
                for _ in range(TRIES):
                    _produce(mq, producer)
                    seconds.append(_in_a_new_process(chosen.kind, Path(root), mq.masters, lake))
                middle = median(seconds)
                first = first or middle
                print(
                    f"{chosen.kind}, after {number:>6} windows: {1000 * middle:6.0f} ms CPU, "
                    f"{middle / first:.2f} × the first",
                    flush=True,
                )
    return 0


def _produce(mq: EmbeddedTubeMQ, producer: Producer) -> None:
    record = Record(b"x" * 100, partition=Partition(1, TOPIC, 0))
    list(producer.send_many(TOPIC, [record] * RECORDS))
    mq.broker(1).flush()


def _in_a_new_process(kind: str, root: Path, masters: str, lake: _Lake) -> float:
    """Run the next window in a new process, and return the seconds of CPU it took."""
    state = root / "state.pickle"
    state.write_bytes(pickle.dumps((lake.journal, lake.ends, lake.number)))
    command = [sys.executable, "-m", __spec__.name, "--child", kind, str(root), masters]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    lake.journal, lake.ends, lake.number = pickle.loads(state.read_bytes())  # noqa: S301
    return float(done.stdout.splitlines()[-1])


def _child(kind: str, root: str, masters: str) -> int:
    """Run a window in another place first, so that imports are not counted."""
    settings = ClientConfig.parse({"masters": masters}).settings()
    with tempfile.TemporaryDirectory() as other:
        _Lake(kind, Path(other), settings).run()
    lake, state = _Lake(kind, Path(root), settings), Path(root) / "state.pickle"
    lake.journal, lake.ends, lake.number = pickle.loads(state.read_bytes())  # noqa: S301
    began = time.process_time()
    lake.run()
    print(time.process_time() - began)
    state.write_bytes(pickle.dumps((lake.journal, lake.ends, lake.number)))
    return 0


if __name__ == "__main__":
    raise SystemExit(_child(*sys.argv[2:]) if sys.argv[1:2] == ["--child"] else main())
