"""Positions of groups over HTTP: reading them, lag, and moving them.

Conversations. Positions live on brokers, which require no token. Offsets to set are checked against
the logs first, because a broker silently clamps offsets and drops unknown partitions. Each function
documents the effect on a running consumer (`docs/administration.md`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Any, Literal

from tubemq_client import errors
from tubemq_client.admin import _parsing
from tubemq_client.admin._brokers import broker_urls, online_broker_urls
from tubemq_client.admin._topics import topic as one_topic
from tubemq_client.admin._web import Conversation, Web, in_batches, parsed
from tubemq_client.admin.model import (
    GroupLag,
    OffsetChange,
    PartitionPosition,
    PositionSample,
)
from tubemq_client.model import INDEX_ENTRY_BYTES, Partition, PartitionEnds

__all__ = [
    "clone_offsets",
    "group_offsets",
    "group_positions",
    "lag",
    "position_history",
    "remove_offsets",
    "set_offsets",
    "topic_ends",
]

Target = int | Literal["earliest", "latest"]


def group_offsets(
    web: Web, topic: str, group: str, broker_ids: Collection[int] | None = None
) -> Conversation[dict[Partition, int]]:
    """Return confirmed positions of `group` on the brokers in `broker_ids` (default: all online).

    Partitions without a position are missing. A broker lists a new group up to 5 s late.
    """
    confirmed: dict[Partition, int] = {}
    urls = yield from online_broker_urls(web)
    for broker_id, url in sorted(urls.items()):
        if broker_ids is not None and broker_id not in broker_ids:
            continue
        rows = yield from _positions(web, broker_id, url, group, [topic], {})
        confirmed |= {
            row.partition: row.position
            for row in rows
            if row.position is not None and row.partition.topic == topic
        }
    return confirmed


def topic_ends(web: Web, topic: str) -> Conversation[dict[Partition, PartitionEnds]]:
    """Return minimum offset and end in memory of every partition, without registering.

    The end in memory can go back when a broker crashes; `Metadata.ends` knows the stable one. A
    store that was not used since its broker started counts as empty.
    """
    ends = yield from _ends(web, topic)
    return {
        partition: PartitionEnds(partition, low, high, stable=False)
        for partition, (low, high) in sorted(ends.items())
    }


def _ends(web: Web, topic: str) -> Conversation[dict[Partition, tuple[int, int]]]:
    info = yield from one_topic(web, topic)
    urls = yield from broker_urls(web)
    ends = dict.fromkeys(info.partition_list(), (0, 0))
    for broker_id in sorted({partition.broker_id for partition in ends}):
        method = "admin_query_pubinfo"
        body = yield from web.broker(_url(urls, broker_id), method, topicName=topic)
        ends |= parsed(_parsing.ends_by_partition, method, body, broker_id)
    return ends


def _url(urls: Mapping[int, str], broker_id: int) -> str:
    if broker_id not in urls:
        raise errors.ConfigError(
            f"no broker has id {broker_id}; ids are {', '.join(map(str, sorted(urls)))}",
            subject="partitions",
        )
    return urls[broker_id]


def _positions(
    web: Web,
    broker_id: int,
    url: str,
    group: str,
    topics: Sequence[str],
    ends: Mapping[Partition, tuple[int, int]],
) -> Conversation[list[PartitionPosition]]:
    method = "admin_query_offset"
    body = yield from web.broker(url, method, groupName=group, topicName=topics or None)
    rows_by_group = parsed(lambda: _parsing.position_rows(body, broker_id, ends), method)
    return rows_by_group.get(group, [])


def group_positions(
    web: Web, group: str, topic: str | None = None
) -> Conversation[list[PartitionPosition]]:
    """List every partition of the topics that `group` has positions on, or of `topic`, in order.

    With positions, batches in flight, the stores' minimum offsets and ends in memory. Partitions
    without a position have None. A broker lists a new group up to 5 s late.
    """
    urls = yield from online_broker_urls(web)
    positions: dict[Partition, PartitionPosition] = {}
    for broker_id, url in sorted(urls.items()):
        rows = yield from _positions(web, broker_id, url, group, [topic] if topic else [], {})
        positions |= {row.partition: row for row in rows}
    names = [topic] if topic else sorted({partition.topic for partition in positions})
    with_ends: dict[Partition, PartitionPosition] = {}
    for name in names:
        ends = yield from _ends(web, name)
        with_ends |= {
            p: _with_ends(p, positions.get(p), low, high) for p, (low, high) in ends.items()
        }
    return [with_ends[partition] for partition in sorted(with_ends)]


def _with_ends(
    partition: Partition, row: PartitionPosition | None, low: int, high: int
) -> PartitionPosition:
    """Merge a position with the ends, queried later, so that a busy topic shows no negative lag."""
    if row is None:
        return PartitionPosition(partition, None, 0, low, high)
    return PartitionPosition(partition, row.position, row.in_flight, low, max(high, row.max_offset))


def lag(web: Web, group: str, topic: str | None = None) -> Conversation[list[GroupLag]]:
    """Return the lag of `group` behind the end in memory, by topic.

    Counts index entries, an upper bound on records; a partition without a position is behind by its
    whole log. Reads only: no consumer is disturbed.
    """
    rows = yield from group_positions(web, group, topic)
    by_topic: dict[str, list[PartitionPosition]] = {}
    for row in rows:
        by_topic.setdefault(row.partition.topic, []).append(row)
    return [GroupLag(group, name, tuple(positions)) for name, positions in sorted(by_topic.items())]


def set_offsets(
    web: Web, group: str, offsets: Mapping[Partition, Target], *, dry_run: bool = False
) -> Conversation[list[OffsetChange]]:
    """Set positions of `group`; an offset, ``"earliest"`` or ``"latest"`` (end in memory).

    `dry_run` only returns what would change. Raises `errors.ConfigError` listing every offset
    outside its log or off an entry, and every unknown partition; nothing is set then. Brokers are
    changed one after the other: if one fails, those before have their new positions. `before`
    misses positions of a group that first registered within the last 5 s.

    A running consumer continues there with its next fetch. Its current batch is delivered already
    and confirming it moves nothing, so records between are read twice or not at all: stop consumers
    of the group first.
    """
    ends: dict[Partition, tuple[int, int]] = {}
    for name in sorted({partition.topic for partition in offsets}):
        topic_bounds = yield from _ends(web, name)
        ends |= topic_bounds
    targets = _checked(offsets, ends)
    before = yield from _before(web, group, targets)
    urls = yield from broker_urls(web)
    for broker_id in sorted({partition.broker_id for partition in targets}) if not dry_run else ():
        by_name = {str(p): offset for p, offset in targets.items() if p.broker_id == broker_id}
        yield from web.broker(
            _url(urls, broker_id),
            "admin_set_offset",
            write=True,
            groupName=group,
            modifyUser=web.user,
            manualSet=True,
            offsetJsonInfo=json.dumps(by_name, separators=(",", ":")),
        )
    return [
        OffsetChange(group, partition, before.get(partition), offset, applied=not dry_run)
        for partition, offset in sorted(targets.items())
    ]


def _checked(
    offsets: Mapping[Partition, Target], ends: Mapping[Partition, tuple[int, int]]
) -> dict[Partition, int]:
    targets: dict[Partition, int] = {}
    problems = []
    for partition, target in offsets.items():
        if partition not in ends:
            problems.append(f"{partition}: the topic has no such partition")
            continue
        low, high = ends[partition]
        offset = {"earliest": low, "latest": high}.get(str(target), target)
        if not isinstance(offset, int) or offset % INDEX_ENTRY_BYTES:
            problems.append(f"{partition}: {target} is no multiple of {INDEX_ENTRY_BYTES}")
        elif not low <= offset <= high:
            problems.append(f"{partition}: {offset} is not within the log, {low} to {high}")
        else:
            targets[partition] = offset
    if not offsets:
        problems.append("no partition given")
    if problems:
        raise errors.ConfigError(problems, subject="offsets")
    return targets


def _before(
    web: Web, group: str, partitions: Iterable[Partition]
) -> Conversation[dict[Partition, int]]:
    before: dict[Partition, int] = {}
    for name in sorted({partition.topic for partition in partitions}):
        positions = yield from group_offsets(web, name, group)
        before |= positions
    return before


def clone_offsets(
    web: Web,
    source: str,
    target: str,
    topics: Sequence[str] = (),
    *,
    dry_run: bool = False,
) -> Conversation[list[OffsetChange]]:
    """Give `target` the positions of `source`, on `topics` or all that `source` has positions on.

    `dry_run` only returns what would change. Brokers copy their positions at that moment: while
    `source` runs they may be later than the returned ones. Positions of `target` elsewhere stay.
    The effect on a running consumer of `target` is that of `set_offsets`. Raises
    `errors.ConfigError` if `source` has no position there.
    """
    if source == target:
        raise errors.ConfigError("source and target are the same group", subject="offsets")
    urls = yield from online_broker_urls(web)
    rows = yield from _stored(web, urls, source, topics)
    if not rows:
        raise errors.ConfigError(f"group {source} has no position to copy", subject="offsets")
    before = yield from _stored(web, urls, target, topics)
    if not dry_run:
        fields = {"sourceGroupName": source, "targetGroupName": target}
        yield from _each(web, urls, rows, "admin_clone_offset", fields)
    return [
        OffsetChange(target, partition, before.get(partition), offset, applied=not dry_run)
        for partition, offset in sorted(rows.items())
    ]


def remove_offsets(
    web: Web, group: str, topics: Sequence[str] = (), *, dry_run: bool = False
) -> Conversation[list[OffsetChange]]:
    """Remove positions of `group`, on `topics` or all that it has positions on.

    `dry_run` only returns what would change. A running consumer continues from the start of the log
    with its next fetch: stop consumers of the group first. The name stays listed until the broker
    is restarted.
    """
    urls = yield from online_broker_urls(web)
    rows = yield from _stored(web, urls, group, topics)
    if not dry_run:
        yield from _each(web, urls, rows, "admin_rmv_offset", {"groupName": group})
    return [
        OffsetChange(group, partition, offset, None, applied=not dry_run)
        for partition, offset in sorted(rows.items())
    ]


def _each(
    web: Web,
    urls: Mapping[int, str],
    partitions: Iterable[Partition],
    method: str,
    fields: Mapping[str, str],
) -> Conversation[None]:
    """Send one request or several to each broker of `partitions`, for their topics there."""
    topics: dict[int, set[str]] = {}
    for partition in partitions:
        topics.setdefault(partition.broker_id, set()).add(partition.topic)
    for broker_id, names in sorted(topics.items()):
        for batch in in_batches(sorted(names)):
            yield from web.broker(
                urls[broker_id],
                method,
                write=True,
                **fields,
                topicName=batch,
                modifyUser=web.user,
            )


def _stored(
    web: Web, urls: Mapping[int, str], group: str, topics: Sequence[str]
) -> Conversation[dict[Partition, int]]:
    """Return positions that exist, on every broker."""
    stored: dict[Partition, int] = {}
    for broker_id, url in sorted(urls.items()):
        rows = yield from _positions(web, broker_id, url, group, topics, {})
        stored |= {row.partition: row.position for row in rows if row.position is not None}
    return stored


def position_history(
    web: Web,
    group: str,
    since: datetime,
    count: int = 3,
    *,
    zone: tzinfo | None = None,
) -> Conversation[list[PositionSample]]:
    """Return brokers' records about `group` from `since` on, at most `count` of each broker.

    A broker writes one record a minute (its `groupOffsetScanDurMs`) of every group with a position.
    `since` is aware; `zone` is the time zone that the broker's machine runs in (default: this
    machine's), because the request carries no zone.
    """
    if since.tzinfo is None:
        raise errors.ConfigError("since: give a time with a zone", subject="history")
    method = "admin_get_group_history_offset"
    samples: list[PositionSample] = []
    urls = yield from online_broker_urls(web)
    for url in (url for _, url in sorted(urls.items())):
        body = yield from web.broker(
            url,
            method,
            groupName=group,
            recordTime=since.astimezone(zone).strftime("%Y%m%d%H%M%S"),
            msgCount=count,
        )
        samples += parsed(_samples_of, method, body, group)
    return sorted(samples, key=lambda sample: (sample.time_ms, sample.partition))


def _samples_of(body: Mapping[str, Any], group: str) -> list[PositionSample]:
    return [
        sample
        for entry in body["data"]
        if entry["groupName"] == group
        for record in entry.get("records") or []
        for sample in _parsing.samples(record)
    ]
