"""Event-driven: a run for the commands on a topic, each of which the run can read.

The watcher in Airflow's triggerer reads the topic as a consumer group of its own and rings for each
record, at least once; events that come together start one run. For a few records a second: a topic
of data is for `tubemq_on_records`.

Set the environment variables below where Airflow's processes run.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

from airflow.providers.common.messaging.triggers.msg_queue import MessageQueueTrigger
from airflow.sdk import DAG, Asset, AssetWatcher, task

TOPIC = os.environ.get("TUBEMQ_EXAMPLE_COMMANDS_TOPIC", "commands")
GROUP = os.environ.get("TUBEMQ_EXAMPLE_COMMANDS_GROUP", "airflow_commands")
CLUSTER = os.environ.get("TUBEMQ_EXAMPLE_CLUSTER", "tubemq_default")

commands = Asset(
    name=f"{TOPIC}_for_{GROUP}",
    group="tubemq",
    watchers=[
        AssetWatcher(
            name=f"{GROUP}_messages",
            trigger=MessageQueueTrigger(
                scheme="tubemq",
                kind="message",
                topic=TOPIC,
                group=GROUP,
                cluster=CLUSTER,
            ),
        )
    ],
)

with DAG(
    dag_id="tubemq_on_message",
    description="A run for the commands on a TubeMQ topic",
    schedule=[commands],
    start_date=datetime(2013, 1, 1, tzinfo=UTC),
    catchup=False,
    tags=["tubemq"],
):

    @task
    def obey(triggering_asset_events: Any = None) -> list[str]:
        """What the records say, each once: a record may ring twice, and has one id."""
        found: dict[tuple[str, int], str] = {}
        for events in triggering_asset_events.values():
            for event in events:
                said = event.extra["payload"]
                found[said["partition"], said["message_id"]] = said["body"]
        return list(found.values())

    obey()
