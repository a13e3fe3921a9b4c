"""Queries to brokers for the page: few at once, cached for a while, never waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tubemq_client.errors import ConnectError, GroupInconsistent, UnknownTopic
from tubemq_provider.plugins.lag import LagRequests, UnknownCluster

pytestmark = pytest.mark.timeout(60)


class Desk(LagRequests):
    """Desk whose threads run when the test starts them, on the test's clock."""

    def __init__(self, **options: Any) -> None:
        self.now = 100.0
        self.begun: list[Callable[[], None]] = []
        self.threads: int | None = None
        super().__init__(clock=lambda: self.now, **options)

    def _start(self, work: Callable[[], None]) -> None:
        if self.threads == 0:
            raise RuntimeError("can't start new thread")
        self.begun.append(work)

    def run(self) -> None:
        while self.begun:
            self.begun.pop(0)()


def nothing() -> dict[Any, Any]:
    return {}


def failing(error: Exception) -> Callable[[], dict[Any, Any]]:
    def ask() -> dict[Any, Any]:
        raise error

    return ask


def test_a_query_runs_once_and_its_answer_is_cached() -> None:
    desk = Desk()
    assert desk.look("a", "c", nothing).state == "asking"
    assert desk.look("a", "c", nothing).state == "asking"
    assert len(desk.begun) == 1
    desk.run()
    assert desk.look("a", "c", nothing).state == "known"
    assert not desk.begun
    desk.now += desk.fresh_s
    # An old answer is shown while a new query runs.
    assert desk.look("a", "c", nothing).state == "known"
    assert len(desk.begun) == 1


def test_old_ends_are_not_shown_with_a_current_position() -> None:
    desk = Desk()
    desk.look("a", "c", nothing)
    desk.run()
    desk.now += desk.stale_s
    assert desk.look("a", "c", nothing).state == "asking"
    desk.run()
    assert desk.look("a", "c", nothing).state == "known"


def test_a_hundred_queries_use_a_few_threads() -> None:
    desk = Desk(most=4)
    for name in range(100):
        assert desk.look(name, "c", nothing).state == "asking"
    assert len(desk.begun) == 4
    desk.run()
    assert desk.look(50, "c", nothing).state == "asking"
    assert len(desk.begun) == 1


def test_an_unreachable_cluster_is_not_queried_for_other_topics() -> None:
    desk = Desk()
    away = failing(ConnectError("connecting to 10.0.0.7:8715: refused"))
    desk.look("a", "c", away)
    desk.run()
    found = desk.look("b", "c", nothing)
    assert found.state == "unreachable"
    assert "10.0.0.7" not in found.note
    assert not desk.begun
    assert desk.look("x", "other", nothing).state == "asking"
    desk.now += desk.trouble_s
    assert desk.look("b", "c", nothing).state == "asking"
    desk.run()
    assert desk.look("b", "c", nothing).state == "known"


def test_a_missing_topic_does_not_mark_its_cluster() -> None:
    desk = Desk()
    desk.look("gone", "c", failing(UnknownTopic("no such topic")))
    desk.run()
    assert desk.look("gone", "c", nothing).state == "unreachable"
    assert desk.look("there", "c", nothing).state == "asking"


def test_a_cluster_without_a_connection_gets_advice() -> None:
    desk = Desk()
    desk.look("a", "c", failing(UnknownCluster("name it in page_connections")))
    desk.run()
    assert desk.look("a", "c", nothing).note == "name it in page_connections"


def test_a_look_up_refused_by_the_master_is_repeated() -> None:
    desk = Desk()
    desk.look("a", "c", failing(GroupInconsistent("other topics")))
    desk.run()
    assert desk.look("a", "c", nothing).state == "asking"
    desk.run()
    assert desk.look("a", "c", nothing).state == "known"


def test_a_hanging_query_is_reported_and_not_repeated() -> None:
    desk = Desk()
    desk.look("a", "c", nothing)
    desk.now += desk.patience_s + 1
    found = desk.look("a", "c", nothing)
    assert found.state == "unreachable"
    assert "16 s" in found.note
    assert len(desk.begun) == 1
    desk.run()
    assert desk.look("a", "c", nothing).state == "known"


def test_a_query_without_a_free_thread_is_repeated() -> None:
    desk = Desk(most=1)
    desk.threads = 0
    assert desk.look("a", "c", nothing).state == "asking"
    desk.threads = None
    desk.look("a", "c", nothing)
    desk.run()
    assert desk.look("a", "c", nothing).state == "known"
