"""`tubemq groups`: members of groups, permissions, rate limits, and the group names of readers.

Reads and changes over HTTP administration; changes need the masters' token and a confirmation. No
group's position moves here: that is `tubemq offsets`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tubemq_client import errors
from tubemq_client.admin import AdminClient, ConsumeControl
from tubemq_client.cli.options import (
    Admin,
    AdminToken,
    Output,
    OutputAs,
    RpcTimeout,
    Yes,
    admin_client,
    confirmed,
    note,
    show,
)
from tubemq_client.config import ConsumerConfig
from tubemq_client.json_text import load_unique_json

__all__ = ["groups"]

groups = typer.Typer(
    no_args_is_help=True, help="List groups, show members, set permissions and rate limits."
)

GroupArgument = Annotated[str, typer.Argument(help="Consumer group.", show_default=False)]
TopicOption = Annotated[
    str | None, typer.Option("--topic", "-t", help="Only groups that subscribe this topic.")
]


@groups.command("list")
def list_groups(
    admin: Admin,
    topic: TopicOption = None,
    rpc_timeout_ms: RpcTimeout = 10_000,
    output: OutputAs = Output.TABLE,
) -> None:
    """List groups online, and groups that have positions on brokers."""
    with admin_client(admin, rpc_timeout_ms) as client:
        infos = client.groups(topic)
    rows = [
        {
            "group": info.name,
            "members": info.members,
            "topics": list(info.topics),
            "positions_on": list(info.brokers),
        }
        for info in infos
    ]
    show(rows, output=output, title="groups")


@groups.command("show")
def show_group(
    group: GroupArgument,
    admin: Admin,
    rpc_timeout_ms: RpcTimeout = 10_000,
    output: OutputAs = Output.TABLE,
) -> None:
    """Show the members of a group online and their partitions."""
    with admin_client(admin, rpc_timeout_ms) as client:
        detail = client.group(group)
    members = detail.members if detail else ()
    rows = [
        {
            "member": member.client_id,
            "host": member.host,
            "partitions": [str(partition) for partition in member.partitions],
        }
        for member in members
    ]
    show(rows, output=output, title=f"members of {group}")
    if detail is not None and output is Output.TABLE:
        filters = "; ".join(f"{t}: {', '.join(items)}" for t, items in detail.filters.items())
        note(f"balance: {detail.balance}, topics: {', '.join(detail.topics)}")
        note(f"filters: {filters or 'none'}")


@groups.command("names")
def names(
    group: Annotated[str, typer.Argument(help="Consumer group of a window.", show_default=False)],
    pool_size: Annotated[
        int, typer.Option(min=1, max=100, help="Reader groups, and as many probe groups.")
    ] = 32,
    output: OutputAs = Output.TABLE,
) -> None:
    """List every group name that readers of GROUP use, for clusters that authorise groups."""
    from tubemq_client._core.identity import ReaderPool, end_lookup_group

    # Validates the group's name; the topic is a placeholder that the model needs.
    ConsumerConfig.parse({"masters": "localhost", "topic": "any_topic", "group": group})
    pool = ReaderPool(group, pool_size)
    uses = [
        *(("reads ranges", pool.reader(slot)) for slot in range(pool_size)),
        *(("probes where ranges end", pool.probe(slot)) for slot in range(pool_size)),
        ("looks up ends", end_lookup_group(group)),
    ]
    rows = [{"group": name, "use": use} for use, name in uses]
    show(rows, output=output, title=f"groups of {group}")


ControlTopic = Annotated[
    str | None, typer.Option("--topic", "-t", help="Topic of --allow or --deny.")
]
Allow = Annotated[
    bool | None, typer.Option("--allow/--deny", help="Whether the group may read the topic.")
]
Reason = Annotated[str, typer.Option(help="Why it is denied: letters, digits and _.")]
Streams = Annotated[
    list[str] | None,
    typer.Option("--stream", "-s", metavar="ID", help="Stream id it must filter by; repeatable."),
]
FlowRules = Annotated[
    Path | None,
    typer.Option(exists=True, dir_okay=False, help="JSON file of flow rules to turn on."),
]
NoFlowRules = Annotated[bool, typer.Option("--no-flow-rules", help="Turn flow rules off.")]
ClientsPerBroker = Annotated[
    int | None, typer.Option(min=0, help="Brokers one member may read from; 0: no limit.")
]
Forget = Annotated[bool, typer.Option("--forget", help="Delete all controls of the group.")]


@groups.command("control")
def control(
    group: GroupArgument,
    admin: Admin,
    admin_token: AdminToken = None,
    topic: ControlTopic = None,
    allow: Allow = None,
    reason: Reason = "",
    stream: Streams = None,
    flow_rules: FlowRules = None,
    no_flow_rules: NoFlowRules = False,
    clients_per_broker: ClientsPerBroker = None,
    forget: Forget = False,
    yes: Yes = False,
    rpc_timeout_ms: RpcTimeout = 10_000,
    output: OutputAs = Output.TABLE,
) -> None:
    """Show the controls of a group; with options, set whether it may read a topic, and how fast.

    Permissions are checked when a consumer registers; members learn flow rules by heartbeat.
    """
    _refuse_idle(allow, topic, reason, stream)
    if no_flow_rules and flow_rules is not None:
        raise errors.ConfigError("--flow-rules and --no-flow-rules exclude each other")
    rules = _rules(flow_rules)
    switch = False if no_flow_rules else (True if rules is not None else None)
    changes: dict[str, Callable[[AdminClient], None]] = {}
    if forget:
        changes[f"Forget every control of group {group}?"] = lambda client: _forget(client, group)
    if allow is not None:
        permission = _permission(group, topic, allow, reason, stream or ())
        question = f"{'Allow' if allow else 'Deny'} group {group} to read topic {topic}?"
        changes[question] = lambda client: client.set_consume_control(permission)
    if switch is not None or clients_per_broker is not None:
        changes[f"Change settings of group {group}?"] = lambda client: client.set_resource_control(
            group, flow_control=switch, flow_rules=rules, clients_per_broker=clients_per_broker
        )
    with admin_client(admin, rpc_timeout_ms, admin_token) as client:
        for question in changes:  # ask for all of them before the first change
            confirmed(question, yes=yes)
        for change in changes.values():
            change(client)
        rows = _controls(client, group)
    show(rows, output=output, title=f"controls of {group}")


def _refuse_idle(allow: bool | None, topic: str | None, reason: str, streams: object) -> None:
    """Refuse options of a permission that have no effect without --allow or --deny."""
    if allow is not None:
        return
    options = {"--topic": topic, "--reason": reason, "--stream": streams}
    idle = [name for name, value in options.items() if value]
    if idle:
        raise errors.ConfigError([f"{name}: goes with --allow or --deny" for name in idle])


def _permission(
    group: str, topic: str | None, allow: bool, reason: str, streams: Sequence[str]
) -> ConsumeControl:
    if topic is None:
        raise errors.ConfigError("--allow and --deny need --topic")
    return ConsumeControl(group, topic, allow, reason, bool(streams), tuple(streams))


def _rules(file: Path | None) -> list[dict[str, Any]] | None:
    if file is None:
        return None
    try:
        rules = load_unique_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise errors.ConfigError(f"--flow-rules {file}: {error}") from None
    if not isinstance(rules, list):
        raise errors.ConfigError(f"--flow-rules {file}: it is not a JSON list")
    return rules


def _forget(client: AdminClient, group: str) -> None:
    for control in client.consume_controls(group):
        client.delete_consume_control(control.group, control.topic)
    if client.resource_controls(group):
        client.delete_resource_control(group)


def _controls(client: AdminClient, group: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {
            "topic": control.topic,
            "may_read": control.enabled,
            "must_filter_by": list(control.filters) if control.filter_required else [],
            "reason": control.reason or None,
            "flow_rules": None,
            "clients_per_broker": None,
        }
        for control in client.consume_controls(group)
    ]
    rows += [
        {
            "topic": None,
            "may_read": None,
            "must_filter_by": [],
            "reason": None,
            "flow_rules": json.dumps(control.flow_rules) if control.flow_control else "off",
            "clients_per_broker": control.clients_per_broker,
        }
        for control in client.resource_controls(group)
    ]
    return rows
