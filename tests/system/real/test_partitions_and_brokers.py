"""Windows on the genuine server while a partition is added, and while its broker is down."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.real import topics
from tests.system.real.pipeline import GROUP, Pipeline, wait_for
from tools.devkit.tubemq.genuine import GenuineTubeMQ
from tubemq_client import ClientSettings, Metadata
from tubemq_client.admin import AdminClient, TopicProperties
from tubemq_client.errors import ConnectError

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(400)]

TOPIC = topics.SPARES[6].name


def test_a_partition_is_added_and_the_broker_dies_and_comes_back(
    genuine: GenuineTubeMQ, tmp_path: Path
) -> None:
    pipeline = Pipeline(ClientSettings(masters=(genuine.master_address,)), tmp_path, TOPIC)
    with Metadata(pipeline.settings) as metadata:
        boundaries = [pipeline.ends(metadata, stable=True)]
        assert len(boundaries[0]) == 2
        pipeline.produce(20)
        assert pipeline.cursor_window().total == 20
        boundaries.append(pipeline.ends(metadata, stable=True))

        # Readers learn of the partition some ten seconds later, producers half a minute later:
        # after the restart both learn of it at once.
        with AdminClient(genuine.master_web, token=genuine.admin_token) as admin:
            admin.modify_topic(TOPIC, TopicProperties(partitions=3))
        wait_for(lambda: len(metadata.topic(TOPIC, GROUP).subscribable) == 3)
        genuine.kill_broker()
        with pytest.raises(ConnectError):
            pipeline.cursor_window()
        genuine.start_broker()

        pipeline.produce(30, over=3)
        joined = pipeline.cursor_window()
        assert joined.total == 30
        assert len(joined.ranges) == 3
        assert pipeline.rows("cursor") == {"1:0": 20, "1:1": 20, "1:2": 10}
        boundaries.append(pipeline.ends(metadata, stable=True))

        # The newer window first; the partition is there when the older one is planned.
        assert pipeline.time_window(1, boundaries).total == 30
        assert pipeline.time_window(0, boundaries).total == 20
        assert pipeline.each_once("cursor")
        assert pipeline.each_once("time")
