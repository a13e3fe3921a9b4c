"""`TubeMQLagTrigger`: rings while a group is behind on a topic, for Dags scheduled on an asset.

For an `AssetWatcher`. It compares the ends of the logs with the cursor that the ingest task keeps
in asset state: it consumes nothing, joins no group and moves no offset, so any number of watchers
disturb no consumer. An event says that there is something to read, and never what a run is to read:
the run plans its window itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from pydantic import Field

from tubemq_client import errors
from tubemq_client.config import GroupName, TopicName
from tubemq_client.model import Partition
from tubemq_provider._airflow import (
    AssetStateStoreAccessor,
    has_asset_state,
    needs_asset_state,
)
from tubemq_provider.assets import offsets_asset
from tubemq_provider.hooks.aio import TubeMQAsyncHook
from tubemq_provider.hooks.metrics import gauge_group
from tubemq_provider.ingest.validation import ClusterAlias, TaskArguments, parse
from tubemq_provider.offsets.watching import AsyncState, Kept, kept_position, load_note, store_note
from tubemq_provider.sources.tubemq.space import SPACE
from tubemq_provider.triggers._watch import Backoff, LagWatch, jittered
from tubemq_provider.windows.lag import lag_between

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tubemq_client.aio import Metadata
    from tubemq_provider.windows.spaces import Ends

__all__ = ["TubeMQLagTrigger"]


class WatchArguments(TaskArguments):
    """Arguments of `TubeMQLagTrigger`: wrong ones would be waited for without an end."""

    topic: TopicName
    group: GroupName
    cluster: ClusterAlias
    min_lag: int = Field(1, ge=1)
    max_wait: float | None = Field(None, ge=0, allow_inf_nan=False)
    poll_interval: float = Field(15.0, ge=1, allow_inf_nan=False)
    ring_again_after: float = Field(300.0, allow_inf_nan=False)

    def cross_field_problems(self, unknown: frozenset[str]) -> list[str]:
        """It cannot ring more often than it looks."""
        if unknown & {"poll_interval", "ring_again_after"}:
            return []
        if self.ring_again_after < self.poll_interval:
            return [f"ring_again_after: {self.ring_again_after:g} is less than poll_interval"]
        return []


class TubeMQLagTrigger(BaseEventTrigger):
    """Ring when `group` is at least `min_lag` index entries behind on `topic`, and again while
    lag remains.

    It rings once for a position; when the position moves and lag remains, at once anew; and after
    `ring_again_after` seconds for lag that nothing has taken, so a lost or merged event strands no
    backlog. Brokers, masters and the API server may be away: it waits, says so once, and goes on,
    with the connection as it is by then.

    :param topic: topic to look at.
    :param group: group whose windows the scheduled Dag runs.
    :param cluster: the connection's cluster alias; needed where that is not the connection id.
    :param min_lag: index entries to ring for: an upper bound on records.
    :param max_wait: seconds after which any lag rings. Default: never.
    :param poll_interval: seconds between looks, a fifth more or less.
    :param ring_again_after: seconds after which it rings again for the same position.
    :param tubemq_conn_id: the connection; its secrets never enter the trigger's arguments.

    Payload: ``{"topic", "group", "cluster", "lag", "reason", "ends": {"1:0": 2800}}`` with `reason`
    ``lag``, ``age`` or ``again``; more than 100 partitions are left out of `ends`.
    """

    def __init__(
        self,
        *,
        topic: str,
        group: str,
        cluster: str | None = None,
        min_lag: int = 1,
        max_wait: float | None = None,
        poll_interval: float = 15.0,
        ring_again_after: float = 300.0,
        tubemq_conn_id: str = "tubemq_default",
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        given = {
            "topic": topic,
            "group": group,
            "cluster": cluster or tubemq_conn_id,
            "min_lag": min_lag,
            "max_wait": max_wait,
            "poll_interval": poll_interval,
            "ring_again_after": ring_again_after,
        }
        said = parse(WatchArguments, given)
        if not has_asset_state():
            problem = needs_asset_state("TubeMQLagTrigger", "wait with TubeMQLagSensor")
            raise errors.ConfigError(problem, subject="lag trigger")
        self.topic = said.topic
        self.group = said.group
        self.cluster = said.cluster
        self.min_lag = said.min_lag
        self.max_wait = said.max_wait
        self.poll_interval = said.poll_interval
        self.ring_again_after = said.ring_again_after
        self.tubemq_conn_id = tubemq_conn_id
        self._asset = offsets_asset(self.cluster, topic, group)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and its arguments; deterministic, as Airflow tells watchers apart by them."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {
            "topic": self.topic,
            "group": self.group,
            "cluster": self.cluster,
            "min_lag": self.min_lag,
            "max_wait": self.max_wait,
            "poll_interval": self.poll_interval,
            "ring_again_after": self.ring_again_after,
            "tubemq_conn_id": self.tubemq_conn_id,
        }

    @property
    def state(self) -> AsyncState:
        """State of the offsets asset, whatever asset is watched."""
        found: AsyncState = AssetStateStoreAccessor(name=self._asset.name)
        return found

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look, ring, wait; ends only by cancellation."""
        watch = LagWatch(self.min_lag, self.max_wait, self.ring_again_after)
        backoff = Backoff()
        client: Metadata | None = None
        async with AsyncExitStack() as stack:
            while True:
                try:
                    if client is None:
                        client = await self._connect(stack, watch)
                    kept = await kept_position(self.state)
                    # A broker that is away delays its own partitions only.
                    found = await client.reachable_ends(self.topic, self.group)
                    event = self._look(watch, kept, found)
                except Exception as exc:  # noqa: BLE001 - whatever it is, a watcher outlives it
                    pause = backoff.failed()
                    if isinstance(exc, errors.TubeMQError):
                        # The connection may be edited meanwhile: it is read anew.
                        client = None
                        await _left(stack)
                    if backoff.failures == 1:
                        self.log.warning("topic %s: not reachable, waiting: %s", self.topic, exc)
                else:
                    if backoff.worked():
                        self.log.info("topic %s: reachable again", self.topic)
                    if event is not None:
                        yield event
                        watch.rang(time.monotonic(), kept.taken)
                        await self._remember(kept)
                    pause = jittered(self.poll_interval)
                await asyncio.sleep(pause)

    async def _connect(self, stack: AsyncExitStack, watch: LagWatch) -> Metadata:
        """Read the connection, and what a triggerer before this one has rung for."""
        hook = TubeMQAsyncHook(self.tubemq_conn_id)
        await hook.expect_cluster(self.cluster)
        kept = await kept_position(self.state)
        if not watch.has_rung:
            await self._recall(watch, kept)
        return await stack.enter_async_context(hook.connected())

    def _look(
        self, watch: LagWatch, kept: Kept, ends: Mapping[Partition, Ends]
    ) -> TriggerEvent | None:
        lag, untaken = self._lag(ends, kept.accepted), self._lag(ends, kept.taken)
        now = time.monotonic()
        reason = watch.reason(now, lag, kept.taken, untaken=untaken)
        behind = watch.behind(now)
        gauge_group(self.cluster, self.topic, self.group, lag=lag, behind_seconds=behind)
        if reason is None:
            return None
        self.log.info("topic %s: lag %s, ringing (%s)", self.topic, lag, reason)
        shown = {p.key: found.max_offset for p, found in sorted(ends.items())}
        return TriggerEvent(  # type: ignore[no-untyped-call]
            {
                "topic": self.topic,
                "group": self.group,
                "cluster": self.cluster,
                "lag": lag,
                "reason": reason,
                "ends": shown if len(shown) <= 100 else {},
            }
        )

    def _lag(self, ends: Mapping[Partition, Ends], position: Mapping[str, int]) -> int:
        """Lag behind `position`; a log that ends before it counts whole, as the run must judge."""
        starts = {}
        for partition, found in ends.items():
            offset = position.get(partition.key)
            regressed = offset is not None and offset > found.max_offset
            starts[partition] = found.min_offset if regressed else offset
        return lag_between(ends, starts, SPACE).total

    async def _recall(self, watch: LagWatch, kept: Kept) -> None:
        """After a restart of the triggerer: what it rang for before, it has rung for."""
        note = await load_note(self.state)
        age = time.time() - note.get("at", 0) if isinstance(note.get("at"), int) else None
        if age is not None and note.get("position") == kept.taken and age >= 0:
            watch.rang(time.monotonic() - age, kept.taken)

    async def _remember(self, kept: Kept) -> None:
        """Kept after the event is handed over: a crash between rings twice rather than never."""
        try:
            await store_note(self.state, {"at": int(time.time()), "position": dict(kept.taken)})
        except Exception as exc:  # noqa: BLE001 - the asset may not exist before the first run
            self.log.debug("the ring was not noted: %s", exc)


async def _left(stack: AsyncExitStack) -> None:
    """Leave the connection, which others may still use; that it is broken is known already."""
    with suppress(Exception):
        await stack.aclose()
