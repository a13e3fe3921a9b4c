"""Links on a task's page: where its progress, its windows, its sink, its topic and its Spark are.

Airflow asks for them in the worker when a task ends, and keeps them as XCom. They hold addresses
and names, never credentials. An operator that has nothing to show for a link has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

from tubemq_provider._airflow import conf
from tubemq_provider.assets import declared, sink_asset

if TYPE_CHECKING:
    from airflow.sdk import Asset, BaseOperator
    from airflow.sdk.types import TaskInstanceKey

__all__ = [
    "TubeMQOffsetsLink",
    "TubeMQPageLink",
    "TubeMQSinkLink",
    "TubeMQSparkLink",
    "TubeMQTopicLink",
]


def _assets_page(asset: Asset) -> str:
    """Airflow's list of assets, with this one alone: a worker does not know the asset's number."""
    base = conf.get("api", "base_url", fallback="").rstrip("/")
    return f"{base}/assets?name_pattern={quote(asset.name, safe='')}"


class TubeMQOffsetsLink(BaseOperatorLink):
    """The offsets asset: position, plans and events of the group."""

    name = "Offsets"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        """The asset's page."""
        asset: Any = getattr(operator, "offsets_asset", None)
        return _assets_page(asset) if asset is not None else ""


class TubeMQPageLink(BaseOperatorLink):
    """The web page with the groups of the task's Dag, unless the page is switched off."""

    name = "Windows"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        """The page, for this Dag."""
        if not conf.getboolean("tubemq", "page", fallback=True):
            return ""
        base = conf.get("api", "base_url", fallback="").rstrip("/")
        return f"{base}/tubemq/?dag_id={quote(ti_key.dag_id, safe='')}"


class TubeMQSinkLink(BaseOperatorLink):
    """The sink's asset: its events say which windows came, and which Dags run for them."""

    name = "Sink"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        """The asset's page."""
        spec = getattr(operator, "sink", None) or getattr(operator, "path", None)
        sink = sink_asset(spec) if isinstance(spec, str) else None
        # An empty run, and a template in the address, leave it out; others are the author's own.
        return _assets_page(sink) if sink and declared(sink, operator.outlets) else ""


class TubeMQTopicLink(BaseOperatorLink):
    """What TubeMQ's master says of the topic, where the connection has its HTTP address."""

    name = "Topic"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        """The master's answer, as JSON."""
        admin_url: Any = getattr(operator, "admin_url", None)
        topic: Any = getattr(operator, "topic", None)
        if not admin_url or not topic:
            return ""
        name = quote(topic, safe="")
        return f"{admin_url}/webapi.htm?method=admin_query_topic_info&topicName={name}"


class TubeMQSparkLink(BaseOperatorLink):
    """Spark's own page of the session that the task uses, while it runs."""

    name = "Spark"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        """The address that Spark gave."""
        found: Any = getattr(operator, "spark_ui", None)
        return found or ""
