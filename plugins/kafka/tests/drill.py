"""Random windows of a genuine Kafka against what its own console consumer reads.

    python plugins/kafka/tests/drill.py --windows 200 --seed 1

A topic of four partitions gets a history with repeated keys, which the broker compacts; then a
producer continues with transactions, aborts and plain records, while windows of random offsets, and
cursor windows, are read through the ordinary job into Parquet. In between the broker is killed with
SIGKILL and started again. In the end the console consumer reads the topic with `read_committed`:
each window must have exactly its records, and the cursor windows together all of them, once.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src"), str(HERE.parents[2])]

PARTITIONS = 4
KEYS = 7
"""Keys of the history."""
LINE = re.compile(r"Partition:(\d+)\tOffset:(\d+)\t([^\t]*)\t(.*)")

Row = tuple[str, int, str, str]


class Window(NamedTuple):
    """A window that was read: its offsets by partition, and its rows."""

    ranges: dict[str, tuple[int, int]]
    rows: list[Row]


class LiveProducer(threading.Thread):
    """Producer of records with unique keys, in and out of transactions, until `stop`."""

    def __init__(self, topics: Any, topic: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._topics, self._topic, self._random = topics, topic, random.Random(seed)
        self._done = threading.Event()
        self.sent = 0

    def stop(self) -> None:
        """End after the current transaction."""
        self._done.set()
        self.join(120)

    def run(self) -> None:
        """Send; a producer that the broker's death has broken is replaced."""
        while not self._done.is_set():
            try:
                self._send_on()
            except Exception as error:  # noqa: BLE001 - the broker was killed
                print(f"    producer: {error}")
                self._done.wait(0.5)

    def _send_on(self) -> None:
        producer = self._topics.new_producer(
            transactional_id=uuid.uuid4().hex, transaction_timeout_ms=5000
        )
        producer.init_transactions(30)
        plain = self._topics.new_producer(acks="all")
        while not self._done.wait(self._random.random() / 20):
            kind = self._random.choice(("plain", "commit", "abort"))
            target = plain if kind == "plain" else producer
            if kind != "plain":
                producer.begin_transaction()
            for _ in range(self._random.randint(1, 8)):
                self.sent += 1
                value = f"{kind}-{self.sent}"
                key = uuid.uuid4().hex
                target.produce(self._topic, value, key, self._random.randrange(PARTITIONS))
            if kind == "plain":
                plain.flush(30)
            elif kind == "commit":
                producer.commit_transaction(30)
            else:
                producer.flush(30)
                producer.abort_transaction(30)


def drill(kafka: Any, folder: Path, windows: int, seed: int, kills: int = 3) -> list[str]:
    """Return what differs; an empty list is what is wanted."""
    from lake import Lake
    from topics import Topics

    randoms = random.Random(seed)
    topics = Topics(kafka.address)
    topic = topics.create(
        partitions=PARTITIONS,
        cleanup_policy="compact",
        segment_ms="500",
        min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms="500",
    )
    whole = Lake(kafka.address, topic, folder / "cursor")
    write_history(topics, topic, randoms)
    wait_for_compaction(whole, topics, topic)
    live = LiveProducer(topics, topic, seed)
    live.start()
    read: list[Window] = []
    chained: list[Any] = []
    killed_at = set(randoms.sample(range(windows), min(kills, windows)))
    for number in range(windows):
        dying = kill_soon(kafka, randoms.random()) if number in killed_at else None
        lake = Lake(kafka.address, topic, folder / f"w{number}")
        read.append(retried(lambda lake=lake: random_window(lake, randoms)))
        if number % 5 == 0:
            chained.append(retried(lambda: whole.run(max_records=randoms.randint(20, 2000))))
        if dying is not None:
            dying.join()
        if number % 20 == 19:
            print(f"  {number + 1} windows, {live.sent} records sent", flush=True)
    live.stop()
    while not (last := retried(whole.run)).empty:
        chained.append(last)
    return differences(console(kafka, topic), read, whole, chained)


def write_history(topics: Any, topic: str, randoms: random.Random) -> None:
    """Send records with repeated keys, some of them in transactions that are aborted."""
    for round_ in range(12):
        for partition in range(PARTITIONS):
            producer = topics.open_transaction(topic, [], partition)
            for number in range(randoms.randint(5, 20)):
                key = f"same{number % KEYS}"
                producer.produce(topic, f"h{round_}-{number}", key, partition)
            producer.flush(30)
            (producer.abort_transaction if round_ % 3 == 1 else producer.commit_transaction)(30)
        time.sleep(0.6 if round_ % 4 == 3 else 0)


def wait_for_compaction(lake: Any, topics: Any, topic: str) -> None:
    """Wait until no key is there twice, so that later readings find the same records."""
    with lake.source() as source:
        ends = {each.key: end.max_offset for each, end in source.ends().items()}
    deadline = time.monotonic() + 240
    while True:
        for partition in range(PARTITIONS):  # the active segment is never compacted
            topics.send(topic, [f"filler{time.time()}"], partition, key=uuid.uuid4().hex)
        time.sleep(1)
        with lake.source() as source:
            ranges = [source.space.ranges(topic, key, 0, end) for key, end in ends.items()]
            left = [sum(1 for _ in source.probe()(range_)) for range_ in ranges]
        if all(count <= KEYS for count in left):
            print(f"  compacted: {left} records are left of {list(ends.values())} offsets")
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"the broker did not compact the history: {left} records are left")


def random_window(lake: Any, randoms: random.Random) -> Window:
    """Read a window between random offsets."""
    with lake.source() as source:
        ends = {each.key: end.max_offset for each, end in source.ends().items()}
    pairs = {key: sorted(randoms.randint(0, end) for _ in "ab") for key, end in ends.items()}
    lake.run(
        mode="time",
        resolver="explicit",
        starting_offsets={key: low for key, (low, _) in pairs.items()},
        ending_offsets={key: high for key, (_, high) in pairs.items()},
    )
    return Window({key: (low, high) for key, (low, high) in pairs.items()}, rows_of(lake))


def rows_of(lake: Any) -> list[Row]:
    """Return the rows of a lake in the form of the console consumer's lines."""
    return sorted(
        (row["partition"], row["offset"], text(row["key"]), text(row["value"]))
        for row in lake.rows()
    )


def text(value: bytes | None) -> str:
    """Return a key or value as the console consumer prints it."""
    return "null" if value is None else value.decode()


def retried(run: Callable[[], Any]) -> Any:
    """Return the result of a task that is retried while the broker is down."""
    from tubemq_client.errors import TubeMQError

    for left in reversed(range(30)):
        try:
            return run()
        except TubeMQError as error:
            if error.fatal or not left:
                raise
            print(f"    retried: {type(error).__name__}: {str(error).splitlines()[0][:150]}")
            time.sleep(2)
    raise AssertionError


def kill_soon(kafka: Any, delay: float) -> threading.Thread:
    """Kill the broker after `delay` seconds, and start it again."""

    def kill() -> None:
        time.sleep(delay)
        print("    broker killed", flush=True)
        kafka.kill()
        time.sleep(1)
        kafka.start()

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def console(kafka: Any, topic: str) -> list[Row]:
    """Return what Kafka's own console consumer reads with `read_committed`."""
    properties = [
        word
        for name in ("partition", "offset", "key")
        for word in ("--property", f"print.{name}=true")
    ]
    output = kafka.run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", kafka.address, "--topic", topic, "--from-beginning"),
        *("--isolation-level", "read_committed", "--timeout-ms", "15000", *properties),
    )
    found = (LINE.fullmatch(line) for line in output.splitlines())
    return sorted((m[1], int(m[2]), m[3], m[4]) for m in found if m)


def differences(
    expected: list[Row], read: list[Window], whole: Any, chained: list[Any]
) -> list[str]:
    """Return the windows that differ from the console consumer's reading."""
    problems = []
    for number, window in enumerate(read):
        wanted = [
            row for row in expected if window.ranges[row[0]][0] <= row[1] < window.ranges[row[0]][1]
        ]
        if window.rows != wanted:
            lost, more = set(wanted) - set(window.rows), set(window.rows) - set(wanted)
            problems.append(
                f"window {number}: {len(lost)} lost, {len(more)} too many: {lost or more}"
            )
    together = rows_of(whole)
    if together != expected:
        problems.append(f"cursor windows: {len(together)} rows, {len(expected)} expected")
    if any(row[3].startswith("abort") for row in together):
        problems.append("aborted records were read")
    print(
        f"  {len(read)} random windows with {sum(len(w.rows) for w in read)} rows, "
        f"{len(chained)} cursor windows with {len(together)} rows, "
        f"{len(expected)} records read by the console consumer"
    )
    return problems


def main() -> int:
    """Run the drill on a separate broker."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=3)
    given = parser.parse_args()
    from conftest import SETTINGS, free_port, installed

    from tools.devkit.kafka import Kafka
    from tubemq_provider.engines.java import find_java

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        sys.path.insert(0, str(installed(folder / "site")))
        broker = Kafka(folder / "kafka", find_java(), port=free_port(), settings=SETTINGS)
        with broker as kafka:
            problems = drill(kafka, folder, given.windows, given.seed, given.kills)
    print("\n".join(problems) or "no difference")
    return bool(problems)


if __name__ == "__main__":
    raise SystemExit(main())
