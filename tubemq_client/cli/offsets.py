"""`tubemq offsets`: show and move the positions that brokers keep for groups, over HTTP.

Every change is shown before it is made and confirmed at the terminal, unless `--yes`; `--dry-run`
stops after showing. Stop the group's consumers first: docs/administration.md describes the effect
on a running one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import typer

from tubemq_client import errors
from tubemq_client.admin import AdminClient, OffsetChange
from tubemq_client.cli.options import (
    Admin,
    DryRun,
    Output,
    OutputAs,
    RpcTimeout,
    Yes,
    admin_client,
    confirmed,
    note,
    show,
    show_json,
)
from tubemq_client.model import Partition

__all__ = ["offsets"]

offsets = typer.Typer(
    no_args_is_help=True, help="Show, set, copy and remove the positions of a group."
)

GroupArgument = Annotated[str, typer.Argument(help="Consumer group.", show_default=False)]
TopicArgument = Annotated[str, typer.Argument(help="Topic name.", show_default=False)]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", help="Only on this topic; repeatable."),
]
Target = int | Literal["earliest", "latest"]


@offsets.command("show")
def show_offsets(
    group: GroupArgument,
    admin: Admin,
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Only on this topic.")] = None,
    rpc_timeout_ms: RpcTimeout = 10_000,
    output: OutputAs = Output.TABLE,
) -> None:
    """Show the positions of a group, batches in flight, and the logs' bounds (end in memory)."""
    with admin_client(admin, rpc_timeout_ms) as client:
        positions = client.group_positions(group, topic)
    rows = [
        {
            "topic": row.partition.topic,
            "partition": row.partition.key,
            "position": row.position,
            "in_flight": row.in_flight,
            "min": row.min_offset,
            "max": row.max_offset,
            "lag": row.lag_entries,
        }
        for row in positions
    ]
    show(rows, output=output, title=f"positions of {group}")


@offsets.command("set")
def set_offsets(
    group: GroupArgument,
    topic: TopicArgument,
    to: Annotated[
        list[str],
        typer.Argument(
            metavar="TO…",
            help="For every partition: earliest, latest or an offset. For one: 1:0=OFFSET.",
            show_default=False,
        ),
    ],
    admin: Admin,
    dry_run: DryRun = False,
    yes: Yes = False,
    rpc_timeout_ms: RpcTimeout = 10_000,
    output: OutputAs = Output.TABLE,
) -> None:
    """Set positions of a group on a topic. Running consumers continue from there."""
    with admin_client(admin, rpc_timeout_ms) as client:
        targets = _targets(client, topic, to)
        plan = client.set_offsets(group, targets, dry_run=True)
        _show(plan, output if dry_run else Output.TABLE, title=f"positions of {group} on {topic}")
        if not confirmed(f"Set {len(plan)} positions of {group}?", yes=yes, dry_run=dry_run):
            return
        # The confirmed offsets, even if the end has moved since.
        fixed: dict[Partition, Target] = {c.partition: c.after or 0 for c in plan}
        _done(client.set_offsets(group, fixed), output)


def _targets(client: AdminClient, topic: str, to: Sequence[str]) -> dict[Partition, Target]:
    """Return the target of each partition; a target for one overrides that for all."""
    by_partition: dict[Partition | None, Target] = {}
    for text in to:
        key, is_one, value = text.rpartition("=")
        try:
            partition = Partition.from_key(topic, key) if is_one else None
        except ValueError as error:
            raise errors.ConfigError(str(error), subject="partitions") from None
        if partition in by_partition:
            raise errors.ConfigError(f"{text!r}: given more than once")
        by_partition[partition] = _target(value)
    targets: dict[Partition, Target] = {}
    if None in by_partition:
        targets = dict.fromkeys(client.topic(topic).partition_list(), by_partition.pop(None))
    return targets | {p: target for p, target in by_partition.items() if p is not None}


def _target(text: str) -> Target:
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if not text.isdecimal():
        raise errors.ConfigError(f"{text!r} is not earliest, latest or an offset")
    return int(text)


@offsets.command("clone")
def clone_offsets(
    source: Annotated[str, typer.Argument(help="Group to copy from.", show_default=False)],
    target: Annotated[str, typer.Argument(help="Group to copy to.", show_default=False)],
    admin: Admin,
    topic: Topics = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    rpc_timeout_ms: RpcTimeout = 10_000,
    output: OutputAs = Output.TABLE,
) -> None:
    """Give one group the positions of another."""
    with admin_client(admin, rpc_timeout_ms) as client:
        plan = client.clone_offsets(source, target, topic or (), dry_run=True)
        _show(plan, output if dry_run else Output.TABLE, title=f"positions of {target}")
        question = f"Copy {len(plan)} positions from {source} to {target}?"
        if confirmed(question, yes=yes, dry_run=dry_run):
            _done(client.clone_offsets(source, target, topic or ()), output)


@offsets.command("remove")
def remove_offsets(
    group: GroupArgument,
    admin: Admin,
    topic: Topics = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    rpc_timeout_ms: RpcTimeout = 10_000,
    output: OutputAs = Output.TABLE,
) -> None:
    """Remove positions of a group. It then starts where its consumers' options say."""
    with admin_client(admin, rpc_timeout_ms) as client:
        plan = client.remove_offsets(group, topic or (), dry_run=True)
        if not plan:
            where = f" on {', '.join(topic)}" if topic else ""
            raise errors.ConfigError(f"group {group} has no position{where}", subject="offsets")
        _show(plan, output if dry_run else Output.TABLE, title=f"positions of {group}")
        if confirmed(f"Remove {len(plan)} positions?", yes=yes, dry_run=dry_run):
            _done(client.remove_offsets(group, topic or ()), output)


def _show(plan: Sequence[OffsetChange], output: Output, title: str) -> None:
    """Show the plan, as JSON only if it is the whole output, else on standard error."""
    from tubemq_client.cli.options import print_table, status_console

    if output is Output.TABLE:
        print_table(status_console, _rows(plan), title)
    else:
        show_json(_rows(plan), output)


def _done(changes: Sequence[OffsetChange], output: Output) -> None:
    show_json(_rows(changes), output)
    note(f"{sum(change.changes for change in changes)} positions changed")


def _rows(changes: Sequence[OffsetChange]) -> list[dict[str, object]]:
    return [
        {
            "topic": change.partition.topic,
            "partition": change.partition.key,
            "before": change.before,
            "after": change.after,
            "applied": change.applied,
        }
        for change in changes
    ]
