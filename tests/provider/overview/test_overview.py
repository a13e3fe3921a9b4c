"""Groups in the command line and the page, read from Airflow's own tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from airflow.models.asset import TaskOutletAssetReference
from sqlalchemy.orm import Session

from tools.devkit.airflow.history import (
    add_asset,
    add_event,
    add_task,
    empty_tables,
    window,
)
from tubemq_provider.offsets.metadata_db import Group, find_groups
from tubemq_provider.overview.accepted_windows import accepted, window_rows
from tubemq_provider.overview.event_coverage import covered
from tubemq_provider.overview.group_progress import group_position

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]

H = "0123456789"


@pytest.fixture
def session() -> Iterator[Session]:
    with empty_tables() as found:
        yield found


@pytest.fixture
def group(session: Session) -> Group:
    return Group("tubemq:c/t/g", add_asset(session, "tubemq:c/t/g"), session)


def names(session: Session, **how: Any) -> list[str]:
    return [group.name for group in find_groups(session, **how)]


def test_groups_are_found_by_name_behind_a_name_and_of_every_kind(session: Session) -> None:
    for name in ("tubemq:c/t/b", "rocketmq:r/t/g", "tubemq:c/t/a", "tubemq:c/t", "other:c/t/g"):
        add_asset(session, name)
    add_asset(session, "tubemq:c/50%_off/g")
    every = ["rocketmq:r/t/g", "tubemq:c/50%_off/g", "tubemq:c/t/a", "tubemq:c/t/b"]
    assert names(session) == every
    assert names(session, after="tubemq:c/50%_off/g") == every[2:]
    assert names(session, containing="%_OFF") == ["tubemq:c/50%_off/g"]
    assert [g.source for g in find_groups(session)][:2] == ["rocketmq", "tubemq"]
    assert [g.label for g in find_groups(session)][:1] == ["r/t/g"]


def test_groups_of_a_dag_are_those_that_its_tasks_have_as_outlet(session: Session) -> None:
    mine, other = (add_asset(session, f"tubemq:c/t/{name}") for name in ("mine", "other"))
    add = sa.insert(TaskOutletAssetReference)
    session.execute(add.values(asset_id=mine, dag_id="loads", task_id="ingest"))
    session.execute(add.values(asset_id=other, dag_id="others", task_id="ingest"))
    assert names(session, dag_id="loads") == ["tubemq:c/t/mine"]
    assert names(session, dag_id="none") == []
    assert names(session, asset_id=other) == ["tubemq:c/t/other"]


def test_events_of_dags_that_a_user_may_not_read_are_hidden(group: Group) -> None:
    session = group.session
    add_event(session, group.asset_id, 1, window(f"c-1-{H}", {"1:0": [0, 28]}), dag_id="open")
    add_event(session, group.asset_id, 2, window(f"c-2-{H}", {"1:0": [28, 56]}), dag_id="secret")
    add_event(session, group.asset_id, 3, window(f"c-3-{H}", {"1:0": [56, 84]}), dag_id=None)
    assert list(accepted(group)) == [f"c-{n}-{H}" for n in (1, 2, 3)]
    limited = Group(group.name, group.asset_id, session, frozenset({"open"}))
    assert list(accepted(limited)) == [f"c-1-{H}", f"c-3-{H}"]
    told = window_rows(limited, skip=0, most=9)["windows"]
    assert [row["dag_id"] for row in told] == [None, "open"]


def test_windows_come_in_pages_and_empty_runs_count(group: Group) -> None:
    for minute in range(5):
        document = window(f"c-{minute}-{H}", {"1:0": [28 * minute, 28 * minute + 28]})
        add_event(group.session, group.asset_id, minute, document)
    add_event(group.session, group.asset_id, 6, {"v": 1, "kind": "cursor"})
    add_event(group.session, group.asset_id, 7, None)
    first = window_rows(group, skip=0, most=4)
    assert [row["window"] for row in first["windows"]] == ["", f"c-4-{H}", f"c-3-{H}"]
    second = window_rows(group, skip=first["next"], most=4)
    assert [row["window"] for row in second["windows"]] == [f"c-{n}-{H}" for n in (2, 1, 0)]
    assert second["next"] is None
    assert second["windows"][0]["records"] == 1
    assert second["windows"][0]["place"] == "parquet /lake"


def test_holes_gaps_and_replays_show_in_the_coverage(group: Group) -> None:
    session, number = group.session, group.asset_id
    hours = [f"t-20260101T0{n}0000Z-20260101T0{n + 1}0000Z-{H}" for n in range(4)]
    add_event(session, number, 1, window(hours[0], {"1:0": [0, 28]}))
    add_event(session, number, 2, window(hours[1], {"1:0": [28, 56]}, gaps={"1:0": [[28, 56]]}))
    add_event(session, number, 3, window(hours[3], {"1:0": [84, 112]}))
    add_event(session, number, 4, window(hours[3], {"1:0": [84, 112]}, replayed=1))
    found = covered(group)
    (scope,) = found["scopes"]
    assert (scope["windows"], scope["replays"], scope["records"]) == (3, 1, 3)
    hole = ["2026-01-01T02:00:00Z", "2026-01-01T03:00:00Z"]
    assert scope["intervals"] == {"missing": [hole], "overlapping": []}
    assert scope["days"] == [["2026-01-01", "##.#" + " " * 20]]
    (partition,) = scope["offsets"]
    assert partition["missing"] == [[56, 84]]
    assert partition["lost"] == [[28, 56]]
    assert (found["events"], found["older"]) == (4, False)
    assert covered(group, most=2)["older"]


def test_memory_of_large_events_is_bounded(group: Group) -> None:
    ranges = {f"1:{number}": [0, 28] for number in range(300)}
    add_event(group.session, group.asset_id, 1, window(f"c-1-{H}", ranges))
    (scope,) = covered(group)["scopes"]
    assert scope["partitions"] == 300
    assert len(scope["offsets"]) == 64


def test_each_epoch_of_a_group_has_separate_coverage(group: Group) -> None:
    other = "fedcba9876"
    add_event(group.session, group.asset_id, 1, window(f"c-1-{H}", {"1:0": [0, 280]}))
    add_event(group.session, group.asset_id, 2, window(f"c-1-{other}", {"1:0": [0, 28]}, epoch="b"))
    scopes = covered(group)["scopes"]
    assert [(found["scope"], found["epoch"]) for found in scopes] == [(other, "b"), (H, "")]
    assert not any(part["overlapping"] for found in scopes for part in found["offsets"])


def test_a_recreated_topic_is_another_log_without_duplicates(group: Group) -> None:
    session, number = group.session, group.asset_id
    add_event(session, number, 1, window(f"c-1-{H}", {"1:0": [0, 280], "1:1": [0, 28]}))
    moved = {"1:0": [0, 28], "1:1": [28, 56]}
    add_event(session, number, 2, window(f"c-2-{H}", moved, resets={"1:0": 280}))
    add_event(session, number, 3, window(f"c-3-{H}", {"1:0": [28, 56]}))
    (scope,) = covered(group)["scopes"]
    first, second = scope["offsets"]
    assert (first["done"], first["missing"], first["overlapping"]) == ([[0, 280], [0, 56]], [], [])
    assert second["done"] == [[0, 56]]


def test_windows_adopted_by_a_later_run_are_shown(group: Group) -> None:
    session, number = group.session, group.asset_id
    add_event(session, number, 1, window(f"c-1-{H}", {"1:0": [0, 28]}))
    add_event(session, number, 2, window(f"c-3-{H}", {"1:0": [56, 84]}, recovered=[f"c-2-{H}"]))
    add_event(session, number, 3, {"v": 1, "kind": "cursor", "recovered": [f"c-4-{H}"]})
    (scope,) = covered(group)["scopes"]
    assert (scope["recovered"], scope["offsets"][0]["missing"]) == (2, [[28, 56]])


@pytest.mark.parametrize(
    "strange",
    [
        {"records": {"1:0": "many"}},
        {"records": [1]},
        {"ranges": {"1:0": 5}},
        {"ranges": {"1:0": ["a", "b"]}},
        {"gaps": {"1:0": 7}},
        {"sink": "somewhere"},
        {"recovered": 3},
        {"window_id": ["c-2"]},
    ],
)
def test_an_event_that_was_made_by_hand_hides_no_other(
    group: Group, strange: dict[str, Any]
) -> None:
    session, number = group.session, group.asset_id
    add_event(session, number, 1, window(f"c-1-{H}", {"1:0": [0, 28]}))
    add_event(session, number, 2, {**window(f"c-2-{H}", {"1:0": [28, 56]}), **strange})
    assert [row["window"] for row in window_rows(group, skip=0, most=9)["windows"]] == [f"c-1-{H}"]
    assert covered(group)["scopes"][0]["windows"] == 1
    assert list(accepted(group)) == [f"c-1-{H}"]


def test_many_windows_of_time_are_not_searched_for_a_position(group: Group) -> None:
    position = {"seq": 3, "next": {"1:0": 84}, "h": H}
    add_event(group.session, group.asset_id, 1, {"v": 1, "position": position})
    for minute in range(2, 6):
        add_event(group.session, group.asset_id, minute, {"v": 1, "kind": "time"})
    assert group_position(group).next == {"1:0": 84}
    assert group_position(group, most=5).next == {"1:0": 84}
    assert group_position(group, most=4).next == {}


def test_tasks_that_only_read_hide_no_position(group: Group) -> None:
    position = {"seq": 3, "next": {"1:0": 84}, "h": H}
    add_event(group.session, group.asset_id, 1, {"v": 1, "position": position})
    for minute in range(2, 40):
        add_event(group.session, group.asset_id, minute, None, dag_id="alert")
    assert group_position(group, most=1).next == {"1:0": 84}


def test_the_position_of_a_group_is_that_of_its_newest_event(group: Group) -> None:
    position = {"seq": 3, "next": {"1:0": 84}, "h": H}
    add_event(group.session, group.asset_id, 1, {"v": 1, "position": position})
    found = group_position(group)
    assert found.next == {"1:0": 84}
    assert {"asset": "c/t/g", "store": "events", "seq": 3}.items() <= found.row().items()


def test_running_tasks_show_their_progress(group: Group) -> None:
    session = group.session
    add_task(session, group.asset_id, "loads", "ingest", progress={"read": 5})
    add_task(session, group.asset_id, "loads", "done", state="success")
    other = add_asset(session, "tubemq:c/t/other")
    add_task(session, other, "loads", "foreign")
    (task,) = group.tasks()
    assert (task.task_id, task.state) == ("ingest", "running")
    assert task.progress == {"read": 5}
    hidden = Group(group.name, group.asset_id, session, frozenset({"other"}))
    assert hidden.tasks() == []
