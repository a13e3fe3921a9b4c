"""`TubeMQLagTrigger`: fire events while a group has lag on a topic, for Dags scheduled on an asset.

For an `AssetWatcher`. It compares the ends of the logs with the cursor that the ingest task stores
in asset state: it consumes nothing, joins no group and moves no offset, so any number of watchers
disturb no consumer. An event only means that there is something to read: the run plans its window
itself.
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
from tubemq_provider._airflow import (
    AssetStateStoreAccessor,
    has_asset_state,
    needs_asset_state,
)
from tubemq_provider.assets import offsets_asset
from tubemq_provider.hooks.aio import SHARE_OF_POLL, SourceAsyncHook, TubeMQAsyncHook, async_hook
from tubemq_provider.hooks.metrics import gauge_group
from tubemq_provider.ingest.validation import (
    ClusterAlias,
    ConsumerConfig,
    SourceGroup,
    SourceTopic,
    TaskArguments,
    parse,
)
from tubemq_provider.offsets.group_position import (
    AsyncState,
    GroupPosition,
    group_position,
    load_note,
    store_note,
)
from tubemq_provider.triggers._firing import (
    Backoff,
    LagWatch,
    arguments_of,
    class_path,
    jittered,
)
from tubemq_provider.windows.lag import lag_between
from tubemq_provider.windows.spaces import FIRST_SOURCE, space_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tubemq_provider.windows.spaces import Ends

__all__ = ["TubeMQLagTrigger"]


class WatchArguments(TaskArguments):
    """Arguments of `TubeMQLagTrigger`, checked at once: wrong ones would wait for ever."""

    source: str = FIRST_SOURCE
    topic: SourceTopic
    group: SourceGroup
    cluster: ClusterAlias
    consumer_config: ConsumerConfig = Field(default_factory=dict, repr=False)
    min_lag: int = Field(1, ge=1)
    max_wait: float | None = Field(None, ge=0, allow_inf_nan=False)
    poll_interval: float = Field(15.0, ge=1, allow_inf_nan=False)
    fire_again_after: float = Field(300.0, allow_inf_nan=False)

    def cross_field_problems(self, unknown: frozenset[str]) -> list[str]:
        """Refuse to fire more often than to poll."""
        if unknown & {"poll_interval", "fire_again_after"}:
            return []
        if self.fire_again_after < self.poll_interval:
            return [f"fire_again_after: {self.fire_again_after:g} is less than poll_interval"]
        return []


class TubeMQLagTrigger(BaseEventTrigger):
    """Fire when `group` has a lag of `min_lag` index entries on `topic`, and again while it
    remains.

    It fires once per position: again at once when the position moves and lag remains, and after
    `fire_again_after` seconds for lag that no run has claimed, so a lost or merged event strands no
    backlog. During an outage of brokers, masters or the API server it waits, logs one warning, and
    resumes with the connection as it is by then.

    :param topic: topic to check.
    :param group: group whose windows the scheduled Dag runs.
    :param cluster: the connection's cluster alias; needed where that is not the connection id.
    :param min_lag: index entries to fire for: an upper bound on records.
    :param max_wait: seconds after which any lag fires. Default: never.
    :param poll_interval: seconds between polls, with a jitter of a fifth.
    :param fire_again_after: seconds after which it fires again for the same position.
    :param tubemq_conn_id: the connection; its secrets never enter the trigger's arguments.
    :param source: kind of the topic, built in or a plug-in's. Ends of other kinds than the
        first are asked in a thread, by the kind's own source.
    :param consumer_config: options of the client.

    Payload: ``{"topic", "group", "cluster", "lag", "reason", "ends": {"1:0": 2800}}`` with `reason`
    ``lag``, ``age`` or ``again``; `ends` is empty beyond 100 partitions.
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
        fire_again_after: float = 300.0,
        tubemq_conn_id: str = "tubemq_default",
        source: str = FIRST_SOURCE,
        consumer_config: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        values = {
            "topic": topic,
            "group": group,
            "cluster": cluster or tubemq_conn_id,
            "min_lag": min_lag,
            "max_wait": max_wait,
            "poll_interval": poll_interval,
            "fire_again_after": fire_again_after,
            "source": source,
            "consumer_config": dict(consumer_config or {}),
        }
        space_of(source)
        arguments = parse(WatchArguments, values)
        if not has_asset_state():
            problem = needs_asset_state("TubeMQLagTrigger", "wait with TubeMQLagSensor")
            raise errors.ConfigError(problem, subject="lag trigger")
        self.topic = arguments.topic
        self.group = arguments.group
        self.cluster = arguments.cluster
        self.min_lag = arguments.min_lag
        self.max_wait = arguments.max_wait
        self.poll_interval = arguments.poll_interval
        self.fire_again_after = arguments.fire_again_after
        self.tubemq_conn_id = tubemq_conn_id
        self.source = source
        self.consumer_config = arguments.consumer_config
        self._asset = offsets_asset(self.cluster, topic, group, source)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and its arguments; deterministic, as Airflow identifies watchers by
        them."""
        return class_path(self), arguments_of(self, TubeMQLagTrigger)

    @property
    def state(self) -> AsyncState:
        """State of the offsets asset, whichever asset is watched."""
        state: AsyncState = AssetStateStoreAccessor(name=self._asset.name)
        return state

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll, fire, wait; ends only by cancellation."""
        watch = LagWatch(self.min_lag, self.max_wait, self.fire_again_after)
        backoff = Backoff()
        hook: TubeMQAsyncHook | SourceAsyncHook | None = None
        async with AsyncExitStack() as stack:
            while True:
                try:
                    if hook is None:
                        hook = await self._connect(stack, watch)
                    stored = await group_position(self.state)
                    # A broker that does not answer delays only its partitions.
                    ends = await hook.shared_ends(
                        self.topic, self.group, max_age_s=SHARE_OF_POLL * self.poll_interval
                    )
                    event = self._look(watch, stored, ends)
                except Exception as exc:  # noqa: BLE001 - a watcher survives any error
                    pause = backoff.failed()
                    if isinstance(exc, errors.TubeMQError):
                        # The connection may be edited meanwhile: read it again.
                        hook = None
                        await _leave(stack)
                    if backoff.failures == 1:
                        self.log.warning("topic %s: not reachable, waiting: %s", self.topic, exc)
                else:
                    if backoff.worked():
                        self.log.info("topic %s: reachable again", self.topic)
                    if event is not None:
                        yield event
                        watch.note_event(time.monotonic(), stored.taken)
                        await self._remember(stored)
                    pause = jittered(self.poll_interval)
                await asyncio.sleep(pause)

    async def _connect(
        self, stack: AsyncExitStack, watch: LagWatch
    ) -> TubeMQAsyncHook | SourceAsyncHook:
        """Read the connection, and the events that an earlier triggerer noted; share a session."""
        hook = async_hook(self.source, self.tubemq_conn_id, self.consumer_config)
        await hook.expect_cluster(self.cluster)
        stored = await group_position(self.state)
        if not watch.has_fired:
            await self._recall(watch, stored)
        await stack.enter_async_context(hook.connected())
        return hook

    def _look(
        self, watch: LagWatch, stored: GroupPosition, ends: Mapping[Any, Ends]
    ) -> TriggerEvent | None:
        lag, untaken = self._lag(ends, stored.accepted), self._lag(ends, stored.taken)
        now = time.monotonic()
        reason = watch.reason(now, lag, stored.taken, untaken=untaken)
        behind = watch.behind(now)
        gauge_group(self.cluster, self.topic, self.group, lag=lag, behind_seconds=behind)
        if reason is None:
            return None
        self.log.info("topic %s: lag %s, event fired (%s)", self.topic, lag, reason)
        shown = {p.key: ends_there.max_offset for p, ends_there in sorted(ends.items())}
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

    def _lag(self, ends: Mapping[Any, Ends], position: Mapping[str, int]) -> int:
        """Return the lag behind `position`.

        A log that ends before it counts whole; the run handles that.
        """
        starts = {}
        for partition, ends_there in ends.items():
            offset = position.get(partition.key)
            regressed = offset is not None and offset > ends_there.max_offset
            starts[partition] = ends_there.min_offset if regressed else offset
        return lag_between(ends, starts, space_of(self.source)).total

    async def _recall(self, watch: LagWatch, stored: GroupPosition) -> None:
        """Restore the last event after a restart of the triggerer."""
        note = await load_note(self.state)
        age = time.time() - note.get("at", 0) if isinstance(note.get("at"), int) else None
        if age is not None and note.get("position") == stored.taken and age >= 0:
            watch.note_event(time.monotonic() - age, stored.taken)

    async def _remember(self, stored: GroupPosition) -> None:
        """Note an event after it was fired: a crash in between fires twice rather than never."""
        try:
            await store_note(self.state, {"at": int(time.time()), "position": dict(stored.taken)})
        except Exception as exc:  # noqa: BLE001 - the asset may not exist before the first run
            self.log.debug("the event was not noted: %s", exc)


async def _leave(stack: AsyncExitStack) -> None:
    """Release the connection, which others may still use; errors of a broken one are ignored."""
    with suppress(Exception):
        await stack.aclose()
