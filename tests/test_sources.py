"""The seam for sources: who may know what an offset of TubeMQ is."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tubemq_client.errors import ConfigError
from tubemq_provider.sources.tubemq.space import SPACE
from tubemq_provider.windows import spaces
from tubemq_provider.windows.errors import DocumentError
from tubemq_provider.windows.plan import WindowPlan, WindowScope

ROOT = Path(__file__).resolve().parent.parent / "tubemq_provider"
NEUTRAL = ("windows", "files", "sinks", "offsets", "sources/base.py", "operators", "dagster", "cli")
KNOWLEDGE = re.compile(r"INDEX_ENTRY_BYTES|PARTITIONS_PER_STORE|\bstore_(id|key)\b|[%/*] ?28\b")
SCOPE = WindowScope("main", "orders", "lake", "/lake")

QUEUES = spaces.OffsetSpace(
    source="queues",
    key_form="'<broker>:<queue>'",
    step=1,
    is_key=lambda key: isinstance(key, str) and bool(re.fullmatch(r"[a-z-]+:\d+", key)),
    order=lambda key: (key.rpartition(":")[0], int(key.rpartition(":")[2])),
    log_of=lambda key: key,
    partition=lambda topic, key: SimpleNamespace(topic=topic, key=key),
    range=lambda partition, start, end: SimpleNamespace(
        partition=partition, start=start, end=end, entries=end - start
    ),
)


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> WindowScope:
    """A second kind of source, with names for brokers and offsets that count records."""
    monkeypatch.setitem(spaces.SOURCES, "queues", "tests.test_sources")
    monkeypatch.setattr("tests.test_sources.SPACE", QUEUES)
    spaces.space_of.cache_clear()
    return replace(SCOPE, source="queues")


@pytest.mark.parametrize("room", NEUTRAL)
def test_only_the_source_knows_entries_and_stores(room: str) -> None:
    place = ROOT / room
    found = {
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in (place.rglob("*.py") if place.is_dir() else [place])
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if KNOWLEDGE.search(line)
    }

    assert found == set()


def test_the_first_source_leaves_no_trace_in_ids_and_documents() -> None:
    plan = WindowPlan.cursor(SCOPE, 1, {"1:0": (0, 28)})

    assert SCOPE.h == "929933c2fc"  # as before there was a second kind
    assert "source" not in plan.to_document()
    assert plan.to_document()["v"] == 1


def test_another_kind_of_source_has_windows_of_its_own(queues: WindowScope) -> None:
    plan = WindowPlan.cursor(queues, 1, {"broker-a:10": (0, 3), "broker-a:2": (5, 5)})
    document = json.loads(plan.canonical())

    assert queues.h != SCOPE.h
    assert (document["source"], document["v"]) == ("queues", 2)
    assert WindowPlan.from_document(document) == plan
    assert [(found.partition.key, found.end) for found in plan.reads()] == [("broker-a:10", 3)]
    assert list(plan.ranges) == ["broker-a:2", "broker-a:10"]
    assert plan.entries == 3


def test_keys_and_offsets_are_judged_by_their_own_source(queues: WindowScope) -> None:
    with pytest.raises(DocumentError, match="the key is not '<broker id>:<partition id>'"):
        WindowPlan.cursor(SCOPE, 1, {"broker-a:0": (0, 28)})
    with pytest.raises(DocumentError, match="3 is not a multiple of 28"):
        WindowPlan.cursor(SCOPE, 1, {"1:0": (0, 3)})
    with pytest.raises(DocumentError, match="the key is not '<broker>:<queue>'"):
        WindowPlan.cursor(queues, 1, {"1:0": (0, 3)})


def test_a_plan_of_an_unknown_source_is_refused_with_its_name() -> None:
    document = WindowPlan.cursor(SCOPE, 1, {"1:0": (0, 28)}).to_document()

    with pytest.raises(DocumentError, match="no source of kind 'elsewhere'"):
        WindowPlan.from_document({**document, "v": 2, "source": "elsewhere"})
    with pytest.raises(ConfigError, match="known: tubemq"):
        spaces.space_of("elsewhere")


def test_partitions_of_a_store_share_a_log() -> None:
    assert SPACE.logs(["1:0", "1:9999", "1:10000", "2:0"]) == {
        "1/0": ["1:0", "1:9999"],
        "1/1": ["1:10000"],
        "2/0": ["2:0"],
    }
    assert SPACE.ordered(["10:0", "2:10", "2:9"]) == ["2:9", "2:10", "10:0"]
