"""Boundaries: the windows between consecutive ones hold exactly the rows of their interval."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.client.cli.conftest import Run
from tests.client.cli.rows import FIRST_DAY, flights
from tools.devkit.patience import PATIENCE
from tubemq_client import (
    ClientSettings,
    Metadata,
    OffsetRange,
    Partition,
    PartitionEnds,
    RangeReader,
)
from tubemq_client.cli.boundaries import BoundaryWriter, StoreEnds
from tubemq_client.embedded import EmbeddedTubeMQ

Boundaries = dict[datetime, dict[str, int]]


def load(path: Path, topic: str) -> Boundaries:
    """Boundaries of one topic, by instant, in order."""
    document = json.loads(path.read_text())
    found = {datetime.fromisoformat(at): topics[topic] for at, topics in document.items()}
    return dict(sorted(found.items()))


def window(
    settings: ClientSettings,
    topic: str,
    starts: dict[str, int],
    ends: dict[str, int],
    filters: tuple[str, ...] = (),
) -> Counter[int]:
    """Flights of the window between two boundaries, all partitions together."""
    assert starts.keys() == ends.keys()
    with RangeReader(settings, group="windows", filters=filters) as reader:
        ranges = [
            OffsetRange(Partition.from_key(topic, key), starts[key], ends[key]) for key in starts
        ]
        return Counter(
            json.loads(m.body)["flight"]
            for range_ in ranges
            for batch in reader.read(range_)
            for m in batch.messages()
        )


def check_every_interval(
    settings: ClientSettings, topic: str, found: Boundaries, rows: list[dict[str, object]]
) -> None:
    for (start, starts), (end, ends) in itertools.pairwise(found.items()):
        wanted = [r for r in rows if start <= datetime.fromisoformat(str(r["at"])) < end]
        got = window(settings, topic, starts, ends)
        assert got == Counter(r["flight"] for r in wanted), (start, end)
        united = window(settings, topic, starts, ends, ("UA",))
        assert united == Counter(r["flight"] for r in wanted if r["carrier"] == "UA"), (start, end)


def rows_of(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def options(file: Path, boundaries: Path, *more: object) -> tuple[object, ...]:
    fields = ("--stream-field", "carrier", "--time-field", "at")
    return ("--file", file, *fields, "--boundaries", boundaries, *more)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "boundaries.json"


def test_windows_between_boundaries_hold_exactly_the_rows_of_their_interval(
    run: Run, file: Path, path: Path, fresh: str, settings: ClientSettings
) -> None:
    days = ("--from", "2013-01-01", "--to", "2013-01-04")
    assert run("produce", fresh, *options(file, path, *days)).code == 0
    found = load(path, fresh)
    assert list(found) == [FIRST_DAY + timedelta(days=n) for n in range(4)]
    check_every_interval(settings, fresh, found, rows_of(file))


def test_many_small_intervals_some_of_them_empty(
    run: Run, file: Path, path: Path, fresh: str, settings: ClientSettings
) -> None:
    rows = [r for r in rows_of(file) if not 3 <= datetime.fromisoformat(str(r["at"])).hour < 9]
    file.write_text("\n".join(map(json.dumps, rows)))
    period = ("--from", "2013-01-01", "--to", "2013-01-02", "--boundary-every", "20m")
    assert run("produce", fresh, *options(file, path, *period)).code == 0
    found = load(path, fresh)
    assert len(found) == 24 * 3 + 1
    check_every_interval(settings, fresh, found, rows)


def test_produce_continues_where_the_file_ends(
    run: Run, file: Path, path: Path, fresh: str, settings: ClientSettings
) -> None:
    cuts = ["2013-01-01", "2013-01-01T10:30", "2013-01-03", "2013-01-04"]
    for start, end in itertools.pairwise(cuts):
        before = path.read_text() if path.exists() else "{}"
        outcome = run("produce", fresh, *options(file, path, "--from", start, "--to", end))
        assert outcome.code == 0, outcome
        # Existing boundaries did not move.
        assert json.loads(before).items() <= json.loads(path.read_text()).items()
    found = load(path, fresh)
    assert [at.isoformat()[:16] for at in found] == [
        "2013-01-01T00:00",
        "2013-01-01T10:30",
        "2013-01-02T00:00",
        "2013-01-03T00:00",
        "2013-01-04T00:00",
    ]
    check_every_interval(settings, fresh, found, rows_of(file))
    whole = window(settings, fresh, found[FIRST_DAY], found[FIRST_DAY + timedelta(days=3)])
    assert whole == Counter(range(180))


def test_an_interval_without_an_end_stays_open(
    run: Run, file: Path, path: Path, fresh: str, settings: ClientSettings
) -> None:
    run("produce", fresh, *options(file, path, "--limit", 90))
    assert [at.day for at in load(path, fresh)] == [1, 2]
    outcome = run("produce", fresh, *options(file, path, "--from", "2013-01-02T12:00:00"))
    assert outcome.code == 0
    assert "30 records after its newest boundary" in outcome.err
    found = load(path, fresh)
    whole_second_day = found.popitem(), found.pop(FIRST_DAY + timedelta(days=1))
    (last_at, last), second = whole_second_day
    assert last_at == FIRST_DAY + timedelta(days=2)
    assert window(settings, fresh, second, last) == Counter(range(60, 120))


def test_a_run_that_its_limit_ends_fixes_no_boundary_behind_rows_that_are_left(
    run: Run, file: Path, path: Path, fresh: str, settings: ClientSettings
) -> None:
    """The boundaries up to `--to` were fixed where the log ended: the intervals before them were
    empty, and their rows refused."""
    run("produce", fresh, *options(file, path, "--to", "2013-01-04", "--limit", 60))
    rest = run("produce", fresh, *options(file, path, "--from", "2013-01-02", "--to", "2013-01-04"))
    assert rest.code == 0, rest
    found = load(path, fresh)
    assert list(found) == [FIRST_DAY + timedelta(days=n) for n in range(4)]
    check_every_interval(settings, fresh, found, rows_of(file))


def test_rows_before_a_boundary_that_exists_are_refused(
    run: Run, file: Path, path: Path, fresh: str, settings: ClientSettings
) -> None:
    run("produce", fresh, *options(file, path, "--from", "2013-01-02", "--to", "2013-01-03"))
    before = path.read_text()
    for late in (("--from", "2013-01-01"), ("--to", "2013-01-02"), ()):
        outcome = run("produce", fresh, *options(file, path, *late))
        assert outcome.code == 2, outcome
        assert "is fixed" in outcome.err
    assert path.read_text() == before
    (_, starts), (_, ends) = load(path, fresh).items()
    assert sum(window(settings, fresh, starts, ends).values()) == 60


def test_a_failure_halfway_keeps_the_boundaries_that_were_passed(
    run: Run, path: Path, fresh: str, settings: ClientSettings
) -> None:
    rows = flights(FIRST_DAY, days=2, a_day=40)
    text = "".join(json.dumps(row) + "\n" for row in rows) + "no json\n"
    fields = ("--stream-field", "carrier", "--time-field", "at")
    outcome = run("produce", fresh, *fields, "--boundaries", path, text=text)
    assert outcome.code == 2
    assert "80 records stored" in outcome.err
    found = load(path, fresh)
    assert [at.day for at in found] == [1, 2]
    check_every_interval(settings, fresh, found, rows)


def test_a_file_of_another_topic_state_is_refused(
    run: Run, mq: EmbeddedTubeMQ, file: Path, path: Path, fresh: str
) -> None:
    run("produce", fresh, *options(file, path, "--to", "2013-01-03"))
    document = json.loads(path.read_text())
    for topics in document.values():
        topics[fresh] = {key: offset + 280_000 for key, offset in topics[fresh].items()}
    path.write_text(json.dumps(document))
    outcome = run("produce", fresh, *options(file, path, "--from", "2013-01-03"))
    assert outcome.code == 2
    assert "another state of topic" in outcome.err


@pytest.mark.parametrize(
    ("content", "word"), [("{", "boundaries.json"), ("[]", "is not"), ('{"x": {}}', "'x'")]
)
def test_a_damaged_file_is_refused(
    run: Run, file: Path, path: Path, fresh: str, content: str, word: str
) -> None:
    path.write_text(content)
    outcome = run("produce", fresh, *options(file, path))
    assert outcome.code == 2, outcome
    assert word in outcome.err
    assert path.read_text() == content


def test_topics_share_a_file(run: Run, file: Path, path: Path, fresh: str) -> None:
    run("produce", fresh, *options(file, path, "--to", "2013-01-02"))
    run("produce", "plain", *options(file, path, "--to", "2013-01-03"))
    document = json.loads(path.read_text())
    assert sorted(document["2013-01-02T00:00:00Z"]) == ["plain", fresh]
    assert list(document["2013-01-03T00:00:00Z"]) == ["plain"]


def test_topics_that_are_sent_at_once_share_a_file(path: Path) -> None:
    writers = []
    for topic in ("flights", "trains"):
        ends = StoreEnds()
        ends.begin([PartitionEnds(Partition(1, topic, 0), 0, 280, stable=False)])
        writers.append(BoundaryWriter(path, topic, "1d", ends))
    for writer in writers:
        writer.begin(FIRST_DAY)
        writer.close(FIRST_DAY + timedelta(days=1))
    for writer in writers:
        writer.save()
    days = [FIRST_DAY, FIRST_DAY + timedelta(days=1)]
    assert [list(load(path, topic)) for topic in ("flights", "trains")] == [days, days]


def test_sigterm_keeps_the_boundaries_that_were_passed(
    mq: EmbeddedTubeMQ, path: Path, fresh: str, settings: ClientSettings
) -> None:
    words = ("produce", fresh, "--masters", mq.masters, "--time-field", "at", "--boundaries", path)
    with subprocess.Popen(
        [sys.executable, "-m", "tubemq_client.cli", *map(str, words)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        rows = flights(FIRST_DAY, days=2, a_day=2)
        process.stdin.write("".join(json.dumps(row) + "\n" for row in rows))
        process.stdin.flush()
        with Metadata(settings) as metadata:
            deadline = time.monotonic() + 30 * PATIENCE
            while sum(entries(metadata, fresh)) < 3 and time.monotonic() < deadline:
                time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 130
        assert "Traceback" not in process.stderr.read()
    assert [at.day for at in load(path, fresh)] == [1, 2]


def entries(metadata: Metadata, topic: str) -> list[int]:
    """Count the records of each store."""
    ends = metadata.ends(topic, "any", stable=False)
    return list({p.store_key: end.max_offset // 28 for p, end in ends.items()}.values())
