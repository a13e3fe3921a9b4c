"""Position history: what brokers recorded of a group. Last, so that a genuine one had time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.client.admin.conftest import Make, Site
from tests.system.behaviour.sites import SINGLE, eventually
from tubemq_client import Partition, errors
from tubemq_client.embedded import EmbeddedTubeMQ, Switches, TopicSpec


@pytest.mark.parametrize("site", [pytest.param("genuine", marks=pytest.mark.real)], indirect=True)
def test_a_genuine_broker_remembers(
    site: Site, admin: Any, remembered: str, once_on_genuine: None
) -> None:
    group = remembered
    since = datetime.now(UTC) - timedelta(minutes=10)
    history = eventually(lambda: admin.position_history(group, since) or None)
    assert history[0].partition == Partition(site.broker_id, SINGLE, 0)
    assert history[0].position <= history[0].max_offset
    assert history[0].online is False


def test_an_embedded_broker_remembers(make: Make) -> None:
    switches = Switches(history_period_ms=50)
    with EmbeddedTubeMQ(2, [TopicSpec("past")], switches=switches) as server:
        admin = make(server.master_web)
        place = Partition(2, "past", 0)
        admin.set_offsets("keeper", {place: "latest"})
        since = datetime.now(UTC) - timedelta(seconds=5)
        (newest, *_) = eventually(lambda: admin.position_history("keeper", since, 1) or None)
        assert (newest.partition, newest.position, newest.group) == (place, 0, "keeper")
        assert abs(newest.time_ms / 1000 - datetime.now(UTC).timestamp()) < 60
        later = datetime.now(UTC) + timedelta(hours=1)
        assert admin.position_history("keeper", later) == []
        assert admin.position_history("nobody_known", since) == []
        with pytest.raises(errors.ConfigError, match="zone"):
            admin.position_history("keeper", datetime(2020, 1, 1))  # noqa: DTZ001
