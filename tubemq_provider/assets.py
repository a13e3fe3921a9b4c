"""Airflow assets of this provider: names, URIs, and the handler of their URIs.

The *offsets asset* carries progress of one (cluster, topic, group); Airflow keys its state by the
asset's name, so names are defined only here. `<cluster>` is an alias, never an address: moving
masters must not move offsets. Nothing here opens a connection or reads one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from airflow.sdk import Asset, AssetAlias

from tubemq_provider.sinks.factory import sink_uri
from tubemq_provider.windows.plan import CLUSTER_PATTERN
from tubemq_provider.windows.spaces import FIRST_SOURCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic import JsonValue

__all__ = [
    "create_asset",
    "declared",
    "offsets_asset",
    "sanitize_uri",
    "sink_asset",
    "tables_alias",
    "to_openlineage",
    "topic_asset",
    "without",
]


GROUP = "tubemq"
"""Airflow's group of this provider's assets; names and URIs distinguish them."""


def offsets_asset(cluster: str, topic: str, group: str, source: str = FIRST_SOURCE) -> Asset:
    """Return the asset with the progress of `group` on `topic`; `source` is the topic's kind.

    The ingest task has it as inlet *and* outlet: Airflow lets a task read state and events of
    inlets only, and deletes the state of assets that are only outlets when a Dag file is missing
    for a while. Raises `ValueError` for names that TubeMQ or a URI could not carry.
    """
    name = f"{source}:{cluster}/{topic}/{group}"
    return Asset(name=name, uri=_uri(cluster, topic, group, source), group=GROUP)


def declared(asset: Asset, among: Iterable[object]) -> bool:
    """Return True if `asset` is one of `among`.

    Compared by name and URI, as Airflow does: an asset that a Dag's author has built may have
    another group.
    """
    return any(_same(asset, other) for other in among)


def without(assets: Iterable[Any], asset: Asset) -> list[Any]:
    """Return `assets` without `asset`, compared by name and URI."""
    return [other for other in assets if not _same(asset, other)]


def topic_asset(cluster: str, topic: str) -> Asset:
    """Return the asset of a topic, the same for all groups: an outlet of producing tasks."""
    return create_asset(cluster=cluster, topic=topic)


def create_asset(
    *,
    cluster: str,
    topic: str,
    group: str | None = None,
    extra: Mapping[str, JsonValue] | None = None,
) -> Asset:
    """Return an asset for a topic, or for a group on it, as in hook lineage."""
    name = f"tubemq:{cluster}/{topic}" + (f"/{group}" if group else "")
    return Asset(name=name, uri=_uri(cluster, topic, group), group=GROUP, extra=dict(extra or {}))


def sink_asset(spec: str) -> Asset:
    """Return the asset of a sink, for scheduling downstream Dags.

    Its URI is `sink_uri` of the spec: the path of a Parquet directory or the location of a table,
    without credentials.

    `spec` is an argument of `sink_for`. Trailing slashes do not matter.
    """
    uri = sink_uri(spec).rstrip("/")
    return Asset(name=uri, uri=uri, group=GROUP)


def tables_alias(offsets: Asset) -> AssetAlias:
    """Return the alias under which a task with routes announces its tables.

    They are known only when records of theirs come. `offsets` is the group's offsets asset.
    """
    return AssetAlias(name=f"{offsets.name}/tables", group=GROUP)


def to_openlineage(asset: Asset, lineage_context: object) -> Any:  # noqa: ARG001
    """Return a topic as OpenLineage's dataset: namespace ``<kind>://<cluster>``, name
    ``<topic>``."""
    from airflow.providers.common.compat.openlineage.facet import Dataset

    parts = urlsplit(asset.uri)
    return Dataset(
        namespace=f"{parts.scheme}://{parts.netloc}", name=unquote(parts.path.strip("/"))
    )


def sanitize_uri(parts: SplitResult) -> SplitResult:
    """Normalise `<kind>://<cluster>/<topic>[?group=<group>]`; Airflow calls it for the schemes.

    Raises `ValueError` for anything else. The case of names is kept, as TubeMQ distinguishes it.
    """
    topic = parts.path.strip("/")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    query = dict(pairs)
    problems = []
    if "@" in parts.netloc:
        problems.append("what stands before @ is not a cluster alias (a user is not one)")
    elif not CLUSTER_PATTERN.fullmatch(parts.netloc):
        problems.append(f"{parts.netloc!r} is not a cluster alias (an address is not one)")
    if not topic or "/" in topic:
        problems.append("the path must be exactly one topic")
    if unknown := sorted(set(query) - {"group"}):
        problems.append(f"unknown query keys {', '.join(unknown)}")
    if "group" in query and not query["group"]:
        problems.append("group is empty")
    if len(pairs) > len(query):
        problems.append("a group is told twice")
    if parts.fragment:
        problems.append("what is behind # would have no effect")
    if problems:
        shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        raise ValueError(f"URI {shown!r}: " + "; ".join(problems))
    return parts._replace(path=f"/{topic}", query=urlencode(query), fragment="")


def _same(asset: Asset, other: object) -> bool:
    return isinstance(other, Asset) and (other.name, other.uri) == (asset.name, asset.uri)


def _uri(cluster: str, topic: str, group: str | None, source: str = FIRST_SOURCE) -> str:
    query = f"?group={quote(group, safe='')}" if group else ""
    return f"{source}://{cluster}/{quote(topic, safe='')}{query}"
