"""`tubemq topics` and `tubemq brokers`: list and change them over HTTP administration.

Changes need the masters' token and a confirmation; the methods of `tubemq_client.admin` document
their effect on clients. Nothing here speaks RPC.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from tubemq_client import errors
from tubemq_client.admin import TopicInfo, TopicProperties
from tubemq_client.cli.options import (
    Admin,
    AdminToken,
    Output,
    OutputAs,
    RpcTimeout,
    Topic,
    Yes,
    admin_client,
    confirmed,
    note,
    show,
    show_json,
)

__all__ = ["brokers", "topics"]

topics = typer.Typer(no_args_is_help=True, help="List, show, create, modify and delete topics.")
brokers = typer.Typer(
    no_args_is_help=True, help="List brokers, take them on and offline, reload them."
)

_ONLY_JSON = ("flush_records", "flush_interval_ms", "accepts_publish", "accepts_subscribe")
"""Columns that are only in the JSON output, for want of room on a terminal."""

OnBrokers = Annotated[
    list[int] | None,
    typer.Option("--broker", "-b", metavar="ID", help="Only on this broker; repeatable."),
]
Stores = Annotated[int | None, typer.Option(help="Stores on each broker.")]
Partitions = Annotated[int | None, typer.Option(help="Partitions of each store.")]
Retention = Annotated[
    str | None, typer.Option(metavar="POLICY", help="For instance delete,72h (at most 168h).")
]
Publish = Annotated[
    bool | None, typer.Option("--publish/--no-publish", help="Whether producers may send.")
]
Subscribe = Annotated[
    bool | None, typer.Option("--subscribe/--no-subscribe", help="Whether consumers may read.")
]
FlushRecords = Annotated[int | None, typer.Option(help="Fsync after this many records.")]
FlushInterval = Annotated[
    int | None,
    typer.Option("--flush-interval-ms", metavar="MS", help="Fsync at least at this interval."),
]
BrokerIds = Annotated[
    list[int], typer.Argument(metavar="ID…", help="Broker ids.", show_default=False)
]


# ---------------------------------------------------------------------- topics


_EXISTS = 402
"""Upstream's `DataOpErrCode` of a record that exists already."""


@topics.command("list")
def list_topics(
    admin: Admin,
    everything: Annotated[
        bool, typer.Option("--all", help="Also the system's own topics.")
    ] = False,
    rpc_timeout_ms: RpcTimeout = 10_000,
    output: OutputAs = Output.TABLE,
) -> None:
    """List topics, their partitions (configured and in use) and their brokers."""
    with admin_client(admin, rpc_timeout_ms) as client:
        infos = client.topics()
    rows = [
        {
            "topic": info.name,
            "partitions": info.partitions,
            "running": info.running_partitions,
            "publish": info.accepts_publish,
            "subscribe": info.accepts_subscribe,
            "brokers": [deployment.broker_id for deployment in info.deployments],
        }
        for info in infos
        if everything or not info.name.startswith("__")
    ]
    show(rows, output=output, title="topics")


@topics.command("show")
def show_topic(
    topic: Topic, admin: Admin, rpc_timeout_ms: RpcTimeout = 10_000, output: OutputAs = Output.TABLE
) -> None:
    """Show a topic's properties on every broker."""
    with admin_client(admin, rpc_timeout_ms) as client:
        info = client.topic(topic)
    rows = _topic_rows(info)
    if output is Output.TABLE:
        hidden = ("address", "in_use", *_ONLY_JSON)
        rows = [{name: row[name] for name in row if name not in hidden} for row in rows]
    show(rows, output=output, title=f"topic {topic}")
    if output is Output.TABLE:
        note(
            f"{info.running_partitions} of {info.partitions} partitions in use, "
            f"records up to {info.max_message_mb} MiB"
        )


def _topic_rows(info: TopicInfo) -> list[dict[str, Any]]:
    return [
        {
            "broker": d.broker_id,
            "address": f"{d.host}:{d.port}",
            "status": d.status,
            "stores": d.properties.stores,
            "partitions": d.properties.partitions,
            "publish": d.properties.accept_publish,
            "subscribe": d.properties.accept_subscribe,
            "in_use": bool(d.publishing),
            "retention": d.properties.retention,
            "flush_records": d.properties.flush_records,
            "flush_interval_ms": d.properties.flush_interval_ms,
        }
        for d in info.deployments
    ]


@topics.command("create")
def create_topic(
    topic: Topic,
    admin: Admin,
    admin_token: AdminToken = None,
    broker: OnBrokers = None,
    stores: Stores = None,
    partitions: Partitions = None,
    retention: Retention = None,
    flush_records: FlushRecords = None,
    flush_interval_ms: FlushInterval = None,
    rpc_timeout_ms: RpcTimeout = 10_000,
    output: OutputAs = Output.TABLE,
) -> None:
    """Create a topic on all brokers, or on some. A genuine master takes up to a minute."""
    properties = TopicProperties(
        stores=stores,
        partitions=partitions,
        retention=retention,
        flush_records=flush_records,
        flush_interval_ms=flush_interval_ms,
    )
    with admin_client(admin, rpc_timeout_ms, admin_token) as client:
        try:
            ids = client.create_topic(topic, properties, broker or None)
        except errors.AdminError as exc:
            if any(failure.code == _EXISTS for failure in exc.failures):
                note(f"topic {topic} exists: tubemq topics show {topic}; tubemq topics modify")
            raise
    _topic_done("created", topic, ids, output)


Authorisation = Annotated[
    bool | None,
    typer.Option(
        "--authorisation/--no-authorisation",
        help="Whether only groups with a permission may read (tubemq groups control).",
    ),
]


@topics.command("modify")
def modify_topic(
    topic: Topic,
    admin: Admin,
    admin_token: AdminToken = None,
    broker: OnBrokers = None,
    stores: Stores = None,
    partitions: Partitions = None,
    retention: Retention = None,
    publish: Publish = None,
    subscribe: Subscribe = None,
    flush_records: FlushRecords = None,
    flush_interval_ms: FlushInterval = None,
    authorisation: Authorisation = None,
    yes: Yes = False,
    rpc_timeout_ms: RpcTimeout = 10_000,
    output: OutputAs = Output.TABLE,
) -> None:
    """Change a topic's properties. Stores and partitions can only grow."""
    properties = TopicProperties(
        stores=stores,
        partitions=partitions,
        retention=retention,
        accept_publish=publish,
        accept_subscribe=subscribe,
        flush_records=flush_records,
        flush_interval_ms=flush_interval_ms,
    )
    changes = properties.fields()
    with admin_client(admin, rpc_timeout_ms, admin_token) as client:
        confirmed(f"Change topic {topic}?", yes=yes)
        if authorisation is not None:
            client.set_topic_control(topic, authorisation=authorisation)
        if changes or authorisation is None:
            ids = client.modify_topic(topic, properties, broker or None)
        else:
            ids = [deployment.broker_id for deployment in client.topic(topic).deployments]
    _topic_done("changed", topic, ids, output)


@topics.command("delete")
def delete_topic(
    topic: Topic,
    admin: Admin,
    admin_token: AdminToken = None,
    broker: OnBrokers = None,
    remove_data: Annotated[
        bool, typer.Option("--remove-data", help="Delete the records too, for good.")
    ] = False,
    yes: Yes = False,
    rpc_timeout_ms: RpcTimeout = 10_000,
    output: OutputAs = Output.TABLE,
) -> None:
    """Delete a topic. This cannot be undone, even if records are kept on disk."""
    with admin_client(admin, rpc_timeout_ms, admin_token) as client:
        info = client.topic(topic)
        where = _named(broker or [d.broker_id for d in info.deployments])
        data = "and every record of it" if remove_data else "(records stay on disk)"
        confirmed(f"Delete topic {topic} {data} on brokers {where}?", yes=yes)
        ids = client.delete_topic(topic, broker or None, remove_data=remove_data)
    _topic_done("deleted", topic, ids, output)


# ---------------------------------------------------------------------- brokers


@brokers.command("list")
def list_brokers(
    admin: Admin, rpc_timeout_ms: RpcTimeout = 10_000, output: OutputAs = Output.TABLE
) -> None:
    """List brokers with their configured status, their run status, and changes under way."""
    with admin_client(admin, rpc_timeout_ms) as client:
        web = client.broker_urls()
        statuses = client.broker_status()
    rows = [
        {
            "broker": s.broker_id,
            "address": f"{s.host}:{s.port}",
            "web": web.get(s.broker_id),
            "set_to": s.manage_status,
            "runs": s.run_status,
            "state": s.sub_status,
            "accepts_publish": s.accepts_publish,
            "accepts_subscribe": s.accepts_subscribe,
        }
        for s in statuses
    ]
    if output is Output.TABLE:
        rows = [{name: row[name] for name in row if name not in _ONLY_JSON} for row in rows]
    show(rows, output=output, title="brokers")


@brokers.command("online")
def online(
    ids: BrokerIds,
    admin: Admin,
    admin_token: AdminToken = None,
    yes: Yes = False,
    rpc_timeout_ms: RpcTimeout = 10_000,
    output: OutputAs = Output.TABLE,
) -> None:
    """Open brokers to clients."""
    with admin_client(admin, rpc_timeout_ms, admin_token) as client:
        confirmed(f"Take brokers {_named(ids)} online?", yes=yes)
        client.online_brokers(ids)
    _brokers_done("online", ids, output)


@brokers.command("offline")
def offline(
    ids: BrokerIds,
    admin: Admin,
    admin_token: AdminToken = None,
    yes: Yes = False,
    rpc_timeout_ms: RpcTimeout = 10_000,
    output: OutputAs = Output.TABLE,
) -> None:
    """Close brokers to clients; records stay."""
    with admin_client(admin, rpc_timeout_ms, admin_token) as client:
        confirmed(f"Take brokers {_named(ids)} offline?", yes=yes)
        client.offline_brokers(ids)
    _brokers_done("offline", ids, output)


@brokers.command("reload")
def reload(
    ids: BrokerIds,
    admin: Admin,
    admin_token: AdminToken = None,
    rpc_timeout_ms: RpcTimeout = 10_000,
    output: OutputAs = Output.TABLE,
) -> None:
    """Send brokers their changed configuration."""
    with admin_client(admin, rpc_timeout_ms, admin_token) as client:
        client.reload_brokers(ids)
    _brokers_done("reloaded", ids, output)


@brokers.command("access")
def access(
    ids: BrokerIds,
    admin: Admin,
    admin_token: AdminToken = None,
    publish: Publish = None,
    subscribe: Subscribe = None,
    yes: Yes = False,
    rpc_timeout_ms: RpcTimeout = 10_000,
    output: OutputAs = Output.TABLE,
) -> None:
    """Open or close brokers online to producers and to consumers."""
    with admin_client(admin, rpc_timeout_ms, admin_token) as client:
        confirmed(f"Change access to brokers {_named(ids)}?", yes=yes)
        client.set_broker_access(ids, publish=publish, subscribe=subscribe)
    _brokers_done("changed", ids, output)


def _topic_done(done: str, topic: str, ids: Sequence[int], output: Output) -> None:
    note(f"{done} {topic} on brokers {_named(ids)}")
    show_json([{"topic": topic, "broker": id_, "done": done} for id_ in ids], output)


def _brokers_done(done: str, ids: Sequence[int], output: Output) -> None:
    note(f"{done}: {_named(ids)}")
    show_json([{"broker": id_, "done": done} for id_ in ids], output)


def _named(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))
