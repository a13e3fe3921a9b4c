"""Plans in pieces: runs of one window make the same ones, and the first to publish forgets them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.provider.offsets.accessors import Event, Inlet, LedgerState, State, before_set
from tubemq_provider.offsets.asset_state import AssetStateOffsetStore
from tubemq_provider.offsets.ledger.envelope import WINDOW
from tubemq_provider.offsets.ledger.store import LedgerStore
from tubemq_provider.offsets.ledger.tables import metadata
from tubemq_provider.testing.offset_store_suite import RunWorld
from tubemq_provider.windows.protocols import Document

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

ID = "t-20260101T000000Z-20260101T010000Z-0123456789"


def plan(end: int) -> Document:
    return {"v": 1, "ranges": {f"{n % 7}:{n}": [0, end] for n in range(4_000)}}


class Side:
    """One offsets asset in a store, as tasks see it that run beside each other."""

    def __init__(self, kind: type[AssetStateOffsetStore], state: State, head: str) -> None:
        self.kind, self.state, self.head = kind, state, head

    def task(self, name: str) -> AssetStateOffsetStore:
        return self.kind(
            asset_state=self.state,
            task_state=State(),
            inlet_events=Inlet([]),
            outlet_event=Event({}),
            writer=name,
        )


@pytest.fixture(params=["asset_state", "ledger"])
def side(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Side]:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/airflow.db")
    metadata.create_all(engine)
    if request.param == "ledger":
        yield Side(LedgerStore, LedgerState(engine), WINDOW + ID)
    else:
        yield Side(AssetStateOffsetStore, State(), f"win/{ID}")
    engine.dispose()


def test_a_plan_that_another_run_forgets_while_it_is_stored_is_no_plan(side: Side) -> None:
    """Its head names pieces that are gone: every run after that failed before it asked the sink."""
    first, second = side.task("a"), side.task("b")
    for task in (first, second):
        assert task.load_plan(ID) is None
    first.store_plan(ID, plan(28))
    before_set(side.state, side.head, lambda: first.forget_plan(ID))
    second.store_plan(ID, plan(28))
    assert second.load_plan(ID) is None
    another = side.task("c")
    assert another.load_plan(ID) is None
    another.store_plan(ID, plan(56))
    assert side.task("d").load_plan(ID) == plan(56)


def test_a_cursor_without_its_pieces_is_still_an_error() -> None:
    """No other document shows that it exists: a group would begin again."""
    state = State()
    task = Side(AssetStateOffsetStore, state, "").task("a")
    task.store_cursor(plan(28))
    for chunk in [key for key in state if key.startswith("cursor~")]:
        state.delete(chunk)
    with pytest.raises(ValueError, match="pieces of it are missing"):
        task.load_cursor()


def test_a_window_whose_plan_was_forgotten_half_way_is_written_once() -> None:
    side = Side(AssetStateOffsetStore, State(), "")
    world = RunWorld(side.task)
    for number in range(5_000):
        world.log.append(f"{1 + number % 7}:{number}")
    for step in world.over(side.task("dead")).steps():
        if step.point == "plan stored":
            break
    chunks = [key for key in side.state if key.startswith("win/") and "~" in key]
    for chunk in chunks:
        side.state.delete(chunk)
    assert chunks
    world.log.append("1:0", 3)
    assert world.over(side.task("next")).run().total == 5_003
    assert world.sink.records() == Counter(world.log.all_records())
