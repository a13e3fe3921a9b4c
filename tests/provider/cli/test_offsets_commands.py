"""``airflow tubemq offsets``: what a change is compared with, on a database of the test's."""

from __future__ import annotations

import argparse
import inspect
import json
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa

from tests.provider.cli.test_definition import parsed
from tests.provider.offsets.accessors import ASSET, LedgerState
from tests.provider.windows.world import MemorySink
from tools.devkit.airflow.history import add_asset, empty_tables
from tubemq_client.errors import ConfigError
from tubemq_client.model import Anchor
from tubemq_provider.cli import epochs, offsets
from tubemq_provider.cli.definition import get_tubemq_commands
from tubemq_provider.offsets import metadata_db
from tubemq_provider.offsets.ledger.tables import metadata
from tubemq_provider.offsets.metadata_db import Group
from tubemq_provider.windows.cursor import Cursor, Position, epoch_command
from tubemq_provider.windows.errors import DocumentError, SinkHistoryLost, StoreConflict
from tubemq_provider.windows.plan import WindowPlan, WindowScope
from tubemq_provider.windows.planning.claims import ClaimBook
from tubemq_provider.windows.protocols import Document, IngestCounts, Marker
from tubemq_provider.windows.run._progress import windows_lost

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

SCOPE = WindowScope("c1", "orders", "g1", "memory:test")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Here(Group):
    """A group whose state and events are the test's."""

    def __init__(self, state: LedgerState, *, ledger: bool, name: str = ASSET) -> None:
        super().__init__(name, 1, None)
        self.state, self.ledger = state, ledger
        self.accepted: list[Document] = []

    def events(self, *, most: int | None = None) -> Generator[Document]:
        yield from self.accepted

    def _ledgers(self) -> bool:
        return self.ledger

    def _state(self) -> Any:
        return self.state


@pytest.fixture(params=["ledger", "asset_state"])
def group(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Here]:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/airflow.db")
    metadata.create_all(engine)
    here = Here(LedgerState(engine), ledger=request.param == "ledger")

    @contextmanager
    def open_group(_: str) -> Iterator[Here]:
        yield here

    monkeypatch.setattr(offsets, "open_group", open_group)
    book = ClaimBook(Position(2, {"1:0": 280}))
    here.cursor()
    here.store_cursor(request.param, book.to_document(SCOPE, NOW, "task"))
    yield here
    engine.dispose()


LEDGER_ONLY = pytest.mark.parametrize("group", ["ledger"], indirect=True)


def ask(command: Callable[[Any], None], **arguments: Any) -> None:
    """Run a command without what Airflow wraps around it."""
    given = {"asset": "c1/orders/g1", "output": "table", "yes": True, **arguments}
    inspect.unwrap(command)(SimpleNamespace(**given))


def rebuild(directory: Path, *, drop_claims: bool = False) -> None:
    ask(offsets.rebuild, sink=str(directory / "sink"), sink_conn_id=None, drop_claims=drop_claims)


def event(seq: int, end: int) -> Document:
    return {
        "v": 1,
        "position": Position(seq, {"1:0": end}).to_document(SCOPE.scope_hash, SCOPE.space),
    }


def test_a_change_is_refused_if_a_task_wrote_while_the_operator_read(
    group: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    def task_claims(_: Any) -> None:
        other = Here(group.state, ledger=group.ledger)
        store, _cursor = other.cursor()
        book = ClaimBook(Position(2, {"1:0": 280}), rev=1)
        plan = WindowPlan.cursor(SCOPE, 3, {"1:0": (280, 308)})
        claimed = book.claim(plan, "task", NOW)
        assert claimed is not None
        other.store_cursor(store, claimed.to_document(SCOPE, NOW, "task"))

    monkeypatch.setattr(offsets, "confirm", task_claims)
    with pytest.raises(StoreConflict):
        ask(offsets.set_position, offsets=json.dumps({"1:0": 28}))
    _, cursor = group.cursor()
    assert cursor is not None
    assert list(cursor["pending"]) == [f"c-3-{SCOPE.scope_hash}"]


def test_a_window_that_was_cleared_is_accepted_once(
    group: Here, capsys: pytest.CaptureFixture[str]
) -> None:
    again = {**event(2, 280), "window_id": f"c-2-{SCOPE.scope_hash}"}
    group.accepted = [
        again,
        again,
        {**again, "window_id": f"c-1-{SCOPE.scope_hash}"},
        event(2, 280),
    ]
    ask(offsets.show, output="json", tubemq_conn_id=None)
    assert json.loads(capsys.readouterr().out)["windows_accepted"] == 2


def test_a_position_is_set_behind_the_newest_accepted_window(group: Here) -> None:
    group.accepted = [event(4, 560)]
    ask(offsets.set_position, offsets=json.dumps({"1:0": 28}))
    _, cursor = group.cursor()
    assert cursor is not None
    assert (cursor["seq"], cursor["next"]) == (4, {"1:0": 28})


LAST = {"1:0": Anchor(252, 9, 1)}


def test_a_position_set_by_hand_drops_the_anchors(group: Here) -> None:
    """It may have been set for a recreated topic, which the old anchors would refuse for ever."""
    group.cursor()
    book = ClaimBook(Position(2, {"1:0": 280}, LAST), rev=1)
    group.store_cursor(
        "ledger" if group.ledger else "asset_state", book.to_document(SCOPE, NOW, "t")
    )
    ask(offsets.set_position, offsets=json.dumps({"1:0": 28}))
    _, cursor = group.cursor()
    assert cursor is not None
    assert "last" not in cursor


def test_a_rebuilt_position_has_anchors_and_ended_epochs(group: Here, tmp_path: Path) -> None:
    """Otherwise a recreated topic would be read from the position, and an ended epoch return."""
    position = Position(4, {"1:0": 560}, LAST).to_document(SCOPE.scope_hash, SCOPE.space)
    group.accepted = [{"v": 1, "position": position, "epoch": "second", "past": [""]}]
    rebuild(tmp_path)
    _, cursor = group.cursor()
    assert cursor is not None
    assert Cursor.from_document(cursor, SCOPE).position.last == LAST
    assert (cursor["epoch"], cursor["past"]) == ("second", [""])


def test_rebuilding_does_not_bring_an_ended_epoch_back(group: Here, tmp_path: Path) -> None:
    group.accepted = [event(5, 560)]
    store, cursor = group.cursor()
    begun = {"epoch": "second", "past": [""], "begin": "earliest", "seq": 0}
    group.store_cursor(store, {"v": 1, **begun})
    with pytest.raises(ConfigError, match="epoch 'second' has begun"):
        rebuild(tmp_path)
    later = {"v": 1, **begun, "next": {"1:0": 28}, "seq": 1}
    group.cursor()
    group.store_cursor(store, later)
    ask(offsets.set_position, offsets=json.dumps({"1:0": 0}))
    _, cursor = group.cursor()
    assert cursor is not None
    assert cursor["seq"] == 1  # not that of the ended epoch


def test_rebuilding_never_goes_back(group: Here, tmp_path: Path) -> None:
    group.accepted = [event(1, 140)]
    with pytest.raises(ConfigError, match="window 2"):
        rebuild(tmp_path)


@LEDGER_ONLY
def test_of_two_cursors_the_newer_is_set_and_the_ledger_s_is_rebuilt(
    group: Here, tmp_path: Path
) -> None:
    newer = ClaimBook(Position(5, {"1:0": 560})).to_document(SCOPE, NOW, "task")
    group.state.set("cursor", newer)
    ask(offsets.set_position, offsets=json.dumps({"1:0": 28}))
    assert group.state.get("cursor")["next"] == {"1:0": 28}
    group.accepted = [event(5, 560)]
    rebuild(tmp_path)
    _, cursor = group.cursor()
    assert cursor is not None
    assert (cursor["seq"], cursor["next"], cursor["pending"]) == (5, {"1:0": 560}, {})


@LEDGER_ONLY
def test_an_epoch_of_a_group_that_has_left_the_ledger_stays_the_one_that_commands_change(
    group: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows of an epoch count from one: the old cursor in the ledger has a higher number."""
    monkeypatch.setattr(epochs, "open_group", offsets.open_group)
    group.state.set("cursor", Cursor(Position(3, {"1:0": 308})).to_document(SCOPE, NOW))
    ask(epochs.begin, name="second", begin="earliest", seen=None)
    store, cursor = group.cursor()
    assert cursor is not None
    assert (store, cursor["epoch"]) == ("asset_state", "second")
    of_second = replace(SCOPE, epoch="second")
    run = Cursor(Position(1, {"1:0": 280}), past=("",))
    group.state.set("cursor", run.to_document(of_second, NOW))
    ask(offsets.set_position, offsets='{"1:0": 28}')
    assert group.state.get("cursor")["next"] == {"1:0": 28}
    ask(epochs.begin, name="third", begin="earliest", seen=None)
    assert group.state.get("cursor")["past"] == ["", "second"]


@pytest.mark.parametrize(
    "edited",
    [
        {"v": 1, "next": {"1:0": 28}},
        {"v": 1, "seq": "5", "next": {"1:0": 28}},
        {"v": 1, "seq": 5, "next": [28]},
    ],
)
def test_a_cursor_that_was_edited_is_named_and_hides_no_other_group(
    group: Here,
    edited: Document,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = Here(LedgerState(group.state.engine, "other"), ledger=group.ledger)
    other.cursor()
    other.store_cursor("asset_state", Cursor(Position(7, {"1:0": 28})).to_document(SCOPE, NOW))

    @contextmanager
    def groups() -> Iterator[list[Here]]:
        yield [group, other]

    monkeypatch.setattr(offsets, "groups", groups)
    group.state.set("cursor", edited)
    with pytest.raises(DocumentError):
        ask(offsets.show)
    with pytest.raises(DocumentError):
        ask(offsets.set_position, offsets='{"1:0": 28}')
    ask(offsets.list_groups, output="json")
    broken, whole = json.loads(capsys.readouterr().out)
    assert (broken["store"], broken["seq"]) == ("unreadable", "")
    assert (whole["store"], whole["seq"]) == ("asset_state", 7)


@LEDGER_ONLY
def test_a_ledger_from_before_the_first_event_is_rebuilt_from_its_own_position(
    group: Here, tmp_path: Path
) -> None:
    """A restored database may have a ledger and no event; the sink alone then told too little."""
    rebuild(tmp_path)
    _, cursor = group.cursor()
    assert cursor is not None
    assert (cursor["seq"], cursor["next"]) == (2, {"1:0": 280})


@LEDGER_ONLY
def test_a_claim_that_can_never_be_read_is_dropped_if_asked(group: Here, tmp_path: Path) -> None:
    group.accepted = [event(2, 280)]
    plan = WindowPlan.cursor(SCOPE, 3, {"1:0": (280, 2800)})
    claimed = ClaimBook(Position(2, {"1:0": 280})).claim(plan, "task", NOW)
    assert claimed is not None
    group.cursor()
    group.store_cursor("ledger", claimed.to_document(SCOPE, NOW, "task"))
    for drop, left in ((False, [plan.window_id]), (True, [])):
        rebuild(tmp_path, drop_claims=drop)
        _, cursor = group.cursor()
        assert cursor is not None
        assert list(cursor["pending"]) == left


@LEDGER_ONLY
def test_windows_that_do_not_follow_each_other_name_a_command_that_goes_on(
    group: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A position was set by hand before the ledger was lost. 'Set it by hand' was refused then."""
    sink = MemorySink()
    plan = WindowPlan.cursor(SCOPE, 3, {"1:0": (560, 588)})
    sink.windows[plan.window_id] = (Marker(plan, IngestCounts({}), ""), [])
    monkeypatch.setattr(offsets, "sink_of", lambda _: sink)
    monkeypatch.setattr(epochs, "open_group", offsets.open_group)
    group.accepted = [event(2, 280)]
    with pytest.raises(SinkHistoryLost, match="by hand") as refused:
        ask(offsets.rebuild, sink="memory", sink_conn_id=None, drop_claims=False)
    command = str(refused.value).partition("newest window: ")[2].replace("<name>", "second")
    inspect.unwrap(epochs.begin)(parsed(command.removeprefix("airflow ") + " --yes"))
    _, cursor = group.cursor()
    assert cursor is not None
    assert (cursor["epoch"], cursor["begin"]) == ("second", {"1:0": 588})


def test_an_epoch_begins_with_a_name_that_the_group_has_not_had(
    group: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def open_group(_: str) -> Iterator[Here]:
        yield group

    monkeypatch.setattr(epochs, "open_group", open_group)
    group.accepted.append(event(2, 280))
    group.state.set("watch", {"v": 1})
    ask(epochs.begin, name="second", begin='{"1:0": 56}', seen=None)
    assert group.state.get("watch") is None  # samples of logs that are gone
    _, cursor = group.cursor()
    assert cursor is not None
    assert (cursor["epoch"], cursor["past"], cursor["begin"]) == ("second", [""], {"1:0": 56})
    with pytest.raises(ConfigError, match="no window yet"):
        ask(offsets.set_position, offsets='{"1:0": 0}')
    ask(offsets.show)
    for name in ("", "second", "a b"):
        with pytest.raises(ConfigError, match="it had '', 'second'"):
            ask(epochs.begin, name=name, begin="earliest", seen=None)
    with pytest.raises(ConfigError, match="1:0: 5 is not a multiple"):
        ask(epochs.begin, name="third", begin='{"1:0": 5}', seen=None)
    for name, word in (("third", "stable"), ("fourth", "latest")):
        ask(epochs.begin, name=name, begin=word, seen=None)
        _, cursor = group.cursor()
        assert cursor is not None
        assert (cursor["epoch"], cursor["begin"]) == (name, "stable")
    assert cursor["past"] == ["", "second", "third"]


def test_an_epoch_is_refused_if_the_group_has_advanced_since_the_error(
    group: Here, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(epochs, "open_group", offsets.open_group)
    group.accepted.append(event(4, 280))
    for seen in (f"c-3-{SCOPE.scope_hash}", "c-4-0123456789"):
        with pytest.raises(ConfigError, match=f"the last one is c-4-{SCOPE.scope_hash} now"):
            ask(epochs.begin, name="second", begin="earliest", seen=seen)
    with pytest.raises(ConfigError, match="not the id of a cursor window"):
        ask(epochs.begin, name="second", begin="earliest", seen="yesterday")
    # The run that failed may have followed the sink's markers further than what is stored.
    for name, seen in (("second", None), ("third", f"c-4-{SCOPE.scope_hash}"), ("fourth", None)):
        ask(epochs.begin, name=name, begin="earliest", seen=seen)
        _, cursor = group.cursor()
        assert cursor is not None
        assert cursor.get("seen") == {"second": f"c-4-{SCOPE.scope_hash}", "third": seen}.get(name)
    assert f'"last_window": "c-4-{SCOPE.scope_hash}"' in capsys.readouterr().out


def test_a_group_without_cursor_gets_advice_to_begin_an_epoch(
    group: Here, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With offset_store='events' the command changed nothing, and said nothing of it."""
    monkeypatch.setattr(epochs, "open_group", offsets.open_group)
    ask(epochs.begin, name="second", begin="earliest", seen=None)
    assert "offset_store='events'" not in capsys.readouterr().out
    group.cursor()
    position = Position(4, {"1:0": 280}).to_document(SCOPE.scope_hash, SCOPE.space)
    told = {"v": 1, "position": position, "epoch": "second", "past": [""]}
    group.accepted.append(told)
    ask(epochs.begin, name="third", begin="earliest", seen=None)
    assert "offset_store='events'" in capsys.readouterr().out


def test_a_group_of_rocketmq_is_moved_and_begins_an_epoch_by_its_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path}/airflow.db")
    metadata.create_all(engine)
    here = Here(LedgerState(engine), ledger=False, name="rocketmq:c1/orders/g1")

    @contextmanager
    def open_group(_: str) -> Iterator[Here]:
        yield here

    for module in (offsets, epochs):
        monkeypatch.setattr(module, "open_group", open_group)
    scope = WindowScope("c1", "orders", "g1", "memory:test", source="rocketmq")
    here.cursor()
    book = ClaimBook(Position(2, {"broker-a:0": 280}))
    here.store_cursor("asset_state", book.to_document(scope, NOW, "task"))

    ask(offsets.set_position, offsets='{"broker-a:0": 5}')
    _, cursor = here.cursor()
    assert cursor is not None
    assert (cursor["seq"], cursor["next"]) == (2, {"broker-a:0": 5})
    command = epoch_command(scope).replace("<name>", "life-2") + """ --begin '{"broker-a:0": 7}'"""
    typed = parsed(command.removeprefix("airflow ") + " --yes")
    inspect.unwrap(epochs.begin)(typed)
    _, cursor = here.cursor()
    assert cursor is not None
    assert (cursor["epoch"], cursor["begin"]) == ("life-2", {"broker-a:0": 7})
    assert typed.asset == here.asset == here.name
    with pytest.raises(ConfigError, match="<broker name>:<queue id>"):
        ask(epochs.begin, name="third", begin='{"1": 56}', seen=None)
    engine.dispose()


def test_a_group_is_found_by_its_kind_of_source_and_never_confused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with empty_tables() as session:
        for name in ("tubemq:c1/orders/g1", "rocketmq:c1/orders/g1", "rocketmq:c1/paid/g1"):
            add_asset(session, name)

        @contextmanager
        def create_session() -> Iterator[Any]:
            yield session

        monkeypatch.setattr(metadata_db, "create_session", create_session)
        found = {}
        for asset in ("c1/orders/g1", "tubemq:c1/orders/g1", "rocketmq:c1/orders/g1"):
            with metadata_db.open_group(asset) as group:
                found[asset] = group.name
        assert list(found.values()) == ["tubemq:c1/orders/g1", *list(found)[1:]]
        with (
            pytest.raises(ConfigError, match=r"'c1/paid/g1'; there are: .*rocketmq:c1/paid/g1"),
            metadata_db.open_group("c1/paid/g1"),
        ):
            pass
        ask(offsets.list_groups, output="json")
    rows = json.loads(capsys.readouterr().out)
    assert [(row["asset"], row["cluster"]) for row in rows] == [
        ("rocketmq:c1/orders/g1", "c1"),
        ("rocketmq:c1/paid/g1", "c1"),
        ("c1/orders/g1", "c1"),
    ]


def test_the_command_that_errors_advise_is_understood_as_it_is_written() -> None:
    command = epoch_command(SCOPE, seen=f"c-3-{SCOPE.scope_hash}").replace("<name>", "life-2")
    words = command.split()
    assert words[:3] == ["airflow", "tubemq", "offsets"]
    parser = argparse.ArgumentParser()
    (tubemq,) = get_tubemq_commands()
    group: Any = next(found for found in tubemq.subcommands if found.name == words[2])
    action: Any = next(found for found in group.subcommands if found.name == words[3])
    for arg in action.args:
        arg.add_to_parser(parser)
    given = parser.parse_args(words[4:])
    assert (given.asset, given.name, given.begin) == ("c1/orders/g1", "life-2", "earliest")
    assert (given.seen, given.yes) == (f"c-3-{SCOPE.scope_hash}", False)


def test_the_commands_of_an_error_about_lost_windows_are_understood(group: Here) -> None:
    """They are typed as the error has them."""
    position, there = Position(2, {"1:0": 280}), WindowPlan.cursor(SCOPE, 1, {"1:0": (0, 28)})
    marker = Marker(there, IngestCounts({"1:0": 1}), "place")
    lost = ["c-2-x"]
    texts = [
        str(windows_lost(SCOPE, position, lost, marker, None, "sink", empty=False)),
        str(windows_lost(SCOPE, position, lost, None, None, "sink", empty=True)),
        str(windows_lost(SCOPE, position, lost, marker, {"1:0": 28}, "sink", empty=False)),
    ]
    found = [line for text in texts for line in re.findall(r": airflow (.*)", text)]
    typed = [parsed(line.replace("<name>", "life-2") + " --yes") for line in found]
    assert [getattr(one, "offsets", None) for one in typed] == [
        '{"1:0": 280}',
        '{"1:0": 28}',
        '{"1:0": 280}',
        None,
        None,
    ]
    assert [one.begin for one in typed[3:]] == ["earliest", '{"1:0": 28}']
    inspect.unwrap(offsets.set_position)(typed[1])
    _, cursor = group.cursor()
    assert cursor is not None
    assert (cursor["seq"], cursor["next"], cursor["by_hand"]) == (2, {"1:0": 28}, 1)
