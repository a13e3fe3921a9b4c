"""Input and output datasets of tasks, for lineage collectors.

Two mechanisms of Airflow: hooks report the topics that they read and write to its lineage
collector; operators give OpenLineage the datasets of a window. Names follow OpenLineage: a
namespace and a name, no credentials. Without the OpenLineage provider nothing happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tubemq_provider._airflow import get_hook_lineage_collector
from tubemq_provider.sinks.factory import sink_uri
from tubemq_provider.windows.spaces import FIRST_SOURCE

if TYPE_CHECKING:
    from tubemq_provider.windows.run.result import WindowResult


def read_from(hook: Any, topic: str, group: str | None = None) -> None:
    """Report that the hook has read the topic."""
    named = {"cluster": hook.cluster, "topic": topic, **({"group": group} if group else {})}
    get_hook_lineage_collector().add_input_asset(hook, scheme="tubemq", asset_kwargs=named)


def wrote_to(hook: Any, topic: str) -> None:
    """Report that the hook has sent records to the topic."""
    named = {"cluster": hook.cluster, "topic": topic}
    get_hook_lineage_collector().add_output_asset(hook, scheme="tubemq", asset_kwargs=named)


def sink_dataset(spec: str) -> tuple[str, str]:
    """Return namespace and name of a sink's data.

    ``("s3://lake", "orders")``, ``("file", "/lake/a")``, ``("postgresql://host:5432",
    "db/schema.table")``.
    """
    parts = urlsplit(sink_uri(spec))
    path = parts.path.strip("/")
    if parts.scheme in ("", "file"):
        return "file", f"/{path}"
    return f"{parts.scheme}://{parts.netloc}", path or "/"


def window_lineage(
    cluster: str, topic: str, spec: str, result: WindowResult | None, source: str = FIRST_SOURCE
) -> Any:
    """Return OpenLineage's document of an ingest task; None without its provider.

    `source` is the topic's kind.
    """
    try:
        from airflow.providers.common.compat.openlineage.facet import (
            Dataset,
            OutputDataset,
            OutputStatisticsOutputDatasetFacet,
        )

        extractors: Any = import_module("airflow.providers.openlineage.extractors")
    except ImportError:
        return None
    namespace, name = sink_dataset(spec) if spec else ("", "")
    facet: Any = OutputStatisticsOutputDatasetFacet
    statistics: Mapping[str, Any] = {}
    if result is not None and result.window_id is not None and not result.replayed:
        statistics = {"outputStatistics": facet(rowCount=result.total, size=result.bytes)}
    outputs = [OutputDataset(namespace=namespace, name=name, outputFacets=dict(statistics))]
    tables = {} if result is None else result.tables
    for address, entry in tables.items():
        namespace, name = sink_dataset(address)
        known = statistics and not entry.get("failed")
        facets = {"outputStatistics": facet(rowCount=entry["rows"])} if known else {}
        outputs.append(OutputDataset(namespace=namespace, name=name, outputFacets=facets))
    return extractors.OperatorLineage(
        inputs=[Dataset(namespace=f"{source}://{cluster}", name=topic)],
        outputs=outputs if spec else [],
    )
