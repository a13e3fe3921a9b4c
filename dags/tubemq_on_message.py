"""Event-driven: a run for the commands on a topic, each of which the run can read.

The watcher in Airflow's triggerer reads the topic as a separate consumer group and fires an event
for each record, at least once; events that arrive together start one run. For a few records a
second; use `tubemq_on_records` for a topic of data.

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
        """Return the text of each record once: it may have several events, and has one id."""
        texts: dict[tuple[str, int], str] = {}
        for events in triggering_asset_events.values():
            for event in events:
                record = event.extra["payload"]
                texts[record["partition"], record["message_id"]] = record["body"]
        return list(texts.values())

    obey()
