"""Connections that the page asks for the ends of a cluster: all that have its alias."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.provider.plugins.test_lag import Desk
from tubemq_client.errors import NetworkError
from tubemq_provider.plugins import clusters
from tubemq_provider.plugins.lag import Answer

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(60)]


class _Hook:
    """A hook whose connection leads to `ends`, or to servers that do not answer."""

    def __init__(self, ends: Mapping[Any, Any] | None) -> None:
        self._ends = ends

    def observed_ends(self, topic: str) -> Mapping[Any, Any]:
        if self._ends is None:
            raise NetworkError(f"10.0.0.1:8715 does not answer about {topic}")
        return self._ends


def _named(monkeypatch: pytest.MonkeyPatch, **hooks: Mapping[Any, Any] | None) -> None:
    pairs = [(name, _Hook(ends)) for name, ends in hooks.items()]
    monkeypatch.setattr(clusters, "_hooks_to", lambda source, cluster: iter(pairs))


def test_every_connection_with_the_alias_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    _named(monkeypatch, bad_host=None, good={"1:0": "ends"})
    assert clusters.ends_of("tubemq", "main", "orders") == {"1:0": "ends"}


def test_connections_that_lead_nowhere_are_named_without_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _named(monkeypatch, bad_host=None, worse=None)
    desk = Desk()

    def look() -> Answer:
        return desk.look("t", "c", lambda: clusters.ends_of("tubemq", "main", "orders"))

    assert look().state == "asking"
    desk.run()
    answer = look()
    assert (answer.state, answer.of_cluster) == ("unreachable", True)
    assert "'bad_host', 'worse'" in answer.note
    assert "10.0.0.1" not in answer.note
