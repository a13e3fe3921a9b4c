"""Windows that are rewritten because a user cleared their task and set `on_clear`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.provider.windows.planning.test_claims import MemoryClaims
from tests.provider.windows.world import (
    MemoryEngine,
    ReplacingMemorySink,
    World,
    memory_world,
)
from tubemq_provider.offsets.memory import MemoryOffsetStore
from tubemq_provider.windows.errors import CountMismatch
from tubemq_provider.windows.plan import WindowPlan
from tubemq_provider.windows.protocols import IngestCounts, IngestWatch, OffsetStore, Staging
from tubemq_provider.windows.run.kinds import window_run
from tubemq_provider.windows.run.result import WindowResult


class LosingEngine(MemoryEngine):
    """Reads what it can, and has lost the rest meanwhile."""

    lost = IngestCounts({})

    def ingest(self, plan: WindowPlan, staging: Staging, watch: IngestWatch) -> IngestCounts:
        counts = super().ingest(plan, staging, watch)
        return replace(counts, gaps=self.lost.gaps, corrupt=self.lost.corrupt)


world = memory_world({"1:0": 3}, sink=ReplacingMemorySink, engine=LosingEngine)


def run(world: World, store: OffsetStore, *, cleared: bool = False) -> WindowResult:
    planner = world.planner(policies={"on_clear": "rewrite", "gap_policy": "skip"})
    return window_run(planner, store, world.sink, world.engine, attempt="a", cleared=cleared).run()


@pytest.mark.parametrize("claims", [False, True], ids=["cursor", "claims"])
def test_a_window_behind_the_position_is_written_again(world: World, claims: bool) -> None:
    def store(task: str) -> OffsetStore:
        if claims:
            return MemoryClaims(world.journal, task=task, dead=set())
        return MemoryOffsetStore(world.journal, task=task)

    first = run(world, store("first"))
    world.log.append("2:0", 2)
    run(world, store("second"))
    again = run(world, store("first"), cleared=True)
    assert (again.window_id, again.hash, again.replayed) == (first.window_id, first.hash, False)
    assert len(world.engine.ingested) == 3
    assert world.sink.records() == Counter(world.log.all_records())
    assert again.position is not None
    assert again.position.seq == 2


@pytest.mark.parametrize(
    "lost",
    [IngestCounts({}, gaps={"1:0": [[0, 28]]}), IngestCounts({}, corrupt=1)],
    ids=["retention", "corruption"],
)
def test_a_rewrite_never_replaces_records_by_a_gap(world: World, lost: IngestCounts) -> None:
    store = MemoryOffsetStore(world.journal)
    assert isinstance(world.engine, LosingEngine)
    run(world, store)
    world.engine.lost = lost
    with pytest.raises(CountMismatch, match="left as it is"):
        run(world, store, cleared=True)
    assert world.sink.records() == Counter(world.log.all_records())
    marker = world.sink.marker(world.id(1))
    assert marker is not None
    assert (marker.counts.gaps, marker.counts.corrupt) == ({}, 0)


def test_what_was_lost_before_may_be_lost_again(world: World) -> None:
    store = MemoryOffsetStore(world.journal)
    assert isinstance(world.engine, LosingEngine)
    world.engine.lost = IngestCounts({}, gaps={"1:0": [[0, 56]]}, corrupt=1)
    run(world, store)
    world.engine.lost = IngestCounts({}, gaps={"1:0": [[28, 56]]}, corrupt=1)
    assert not run(world, store, cleared=True).replayed
