"""Links on a task's page: to its progress, its windows, its sink, its topic and its Spark UI.

Airflow calls them in the worker when a task ends, and stores them as XCom. They contain addresses
and names, never credentials. An operator without a target for a link returns "".
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
    """Return Airflow's list of assets, filtered to this one: a worker does not know its id."""
    base = conf.get("api", "base_url", fallback="").rstrip("/")
    return f"{base}/assets?name_pattern={quote(asset.name, safe='')}"


class TubeMQOffsetsLink(BaseOperatorLink):
    """Link to the offsets asset: position, plans and events of the group."""

    name = "Offsets"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        """Return the asset's page."""
        asset: Any = getattr(operator, "offsets_asset", None)
        return _assets_page(asset) if asset is not None else ""


class TubeMQPageLink(BaseOperatorLink):
    """Link to the web page with the groups of the task's Dag, unless the page is disabled."""

    name = "Windows"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        """Return the page, for this Dag."""
        if not conf.getboolean("tubemq", "page", fallback=True):
            return ""
        base = conf.get("api", "base_url", fallback="").rstrip("/")
        return f"{base}/tubemq/?dag_id={quote(ti_key.dag_id, safe='')}"


class TubeMQSinkLink(BaseOperatorLink):
    """Link to the sink's asset: its events, and the Dags that they trigger."""

    name = "Sink"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        """Return the asset's page."""
        spec = getattr(operator, "sink", None) or getattr(operator, "path", None)
        sink = sink_asset(spec) if isinstance(spec, str) else None
        # An empty run, and a template in the address, leave it out; the author may declare others.
        return _assets_page(sink) if sink and declared(sink, operator.outlets) else ""


class TubeMQTopicLink(BaseOperatorLink):
    """Link to the master's answer about the topic, if the connection has its HTTP address."""

    name = "Topic"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        """Return the address of the master's answer, which is JSON."""
        admin_url: Any = getattr(operator, "admin_url", None)
        topic: Any = getattr(operator, "topic", None)
        if not admin_url or not topic:
            return ""
        name = quote(topic, safe="")
        return f"{admin_url}/webapi.htm?method=admin_query_topic_info&topicName={name}"


class TubeMQSparkLink(BaseOperatorLink):
    """Link to the Spark UI of the task's session, while it runs."""

    name = "Spark"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002
        """Return the address of the Spark UI."""
        address: Any = getattr(operator, "spark_ui", None)
        return address or ""
