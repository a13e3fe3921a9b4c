"""State of one broker and the operations on it: its stores, positions and leases.

`broker_rpc` puts the RPCs on top, `http_broker` the administration. Nothing here waits, listens or
locks: the server calls it from one thread, a test may call it directly with its own clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from tubemq_client._core.flow_control import FlowRules
from tubemq_client._wire import payload
from tubemq_client.embedded.checks import OFFSET_HISTORY_TOPIC, Refused
from tubemq_client.embedded.cluster import REMOVED, Cluster, Deployment
from tubemq_client.embedded.history import scan_groups
from tubemq_client.embedded.leases import Lease, Leases
from tubemq_client.embedded.options import Switches
from tubemq_client.embedded.persistence import DataDirectory
from tubemq_client.embedded.positions import PositionKey, Positions
from tubemq_client.embedded.scripted_replies import ScriptedPages, ScriptedReplies
from tubemq_client.embedded.storage import Storage, Store
from tubemq_client.embedded.store import Ends
from tubemq_client.model import PARTITIONS_PER_STORE

__all__ = ["Broker", "Clock", "Faults"]

Clock = Callable[[], int]
"""Milliseconds since the epoch."""

EMPTY_STORE = Ends(0, 0, 0, 0)

_log = logging.getLogger(__name__)

_parsed = lru_cache(maxsize=8)(FlowRules.parse)


@dataclass(slots=True)
class Faults:
    """Faults on demand. `silent` holds ids of methods that are never answered, `overflow_every`
    n > 0 refuses every n-th send with 419, `corrupt_next` is the number of delivered records that
    still get a wrong checksum (the stored ones stay sound), `empty_next` the number of fetches
    that still succeed without a record or progress. `wait_hint` replaces the wait (ms) in a 404.
    """

    reading: bool = True
    writing: bool = True
    overflow_every: int = 0
    corrupt_next: int = 0
    empty_next: int = 0
    wait_hint: int | None = None
    silent: set[int] = field(default_factory=set)
    sends: int = 0

    def overflows(self) -> bool:
        """Count one send; return True if it must be refused."""
        self.sends += 1
        return self.overflow_every > 0 and self.sends % self.overflow_every == 0

    def checksum_of(self, checksum: int) -> int:
        """Return `checksum`, or a wrong one if the fault is on."""
        if self.corrupt_next <= 0:
            return checksum
        self.corrupt_next -= 1
        return checksum ^ 1

    def empties(self) -> bool:
        """Count one successful fetch; return True if it must return nothing."""
        if self.empty_next <= 0:
            return False
        self.empty_next -= 1
        return True


class Broker:
    """State of one broker. Offsets are index offsets, times ms of `clock`.

    `flow_rules` are the cluster's, whose data limits a broker enforces; groups' rules never reach
    it.
    """

    def __init__(
        self,
        broker_id: int,
        cluster: Cluster,
        switches: Switches,
        clock: Clock,
        directory: DataDirectory | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.cluster = cluster
        self.switches = switches
        self.clock = clock
        self.faults = Faults()
        self.scripted = ScriptedReplies()
        self.scripted_pages = ScriptedPages()
        self.running = True
        self.flow_rules = FlowRules()
        self.leases = Leases(switches.lease_ms)
        self.positions = Positions(reset_beyond_max=switches.reset_beyond_max)
        self.storage = Storage(broker_id, directory, switches)
        self._directory = directory
        self._saved_version = 0
        self._cluster_version = -1
        if directory is not None:
            self.positions.load(directory.load_positions(broker_id))
            self._saved_version = self.positions.version
        self._saved_positions = self.positions.dump()
        self._next_scan_ms = clock() + (switches.history_period_ms or 0)
        self._next_retention_ms = clock() + (switches.retention_scan_ms or 0)

    # ------------------------------------------------------------------ look-ups

    @property
    def host(self) -> str:
        """Address under which the master announces this broker."""
        return self.cluster.brokers[self.broker_id].host

    def deployment(self, topic: str) -> Deployment:
        """Return the topic's deployment here. Raises `Refused` 403 if there is none."""
        record = self.cluster.deployment(topic, self.broker_id)
        if record is None:
            raise Refused(403, f"topicName {topic} not existed, please check your configure")
        return record

    def store_for(self, topic: str, partition_id: int) -> Store | None:
        """Return the store of a partition, opened if need be; None if it cannot exist."""
        props = self.deployment(topic).props
        store_id, partition = divmod(partition_id, PARTITIONS_PER_STORE)
        if partition_id < 0 or partition >= props.partitions:
            return None
        if store_id >= props.stores and not self.switches.create_undeclared_stores:
            return None
        return self.storage.open(topic, store_id)

    def ends(self, topic: str, partition_id: int) -> Ends:
        """Return the marks of a partition's store; all 0 if it was never opened."""
        store = self.storage.get(topic, partition_id // PARTITIONS_PER_STORE)
        return store.log.ends if store else EMPTY_STORE

    def query_priority(self, lease: Lease) -> int:
        """Return the priority in force for a registration: its own, else the cluster's."""
        if lease.query_priority > 0:
            return lease.query_priority
        setting = self.cluster.controls.setting
        return setting.query_priority if setting else self.switches.default_query_priority

    @property
    def data_limits(self) -> FlowRules:
        """Flow rules to enforce: the cluster's while they are on, else those set by hand."""
        setting = self.cluster.controls.setting
        if setting is None or not setting.flow.enabled:
            return self.flow_rules
        return _parsed(setting.flow.text)

    def max_offset(self, lease: Lease, ends: Ends) -> int:
        """Return the end that a registration or commit reply announces.

        The whole priority number is compared with 1, so 1 means fsynced, 101 does not.
        """
        return ends.stable if self.query_priority(lease) <= 1 else ends.memory

    # ------------------------------------------------------------------ time

    def tick(self) -> None:
        """Run what the broker does by timer: record its groups, flush, save positions."""
        if self.switches.history_period_ms is not None and self.clock() >= self._next_scan_ms:
            self._next_scan_ms = self.clock() + self.switches.history_period_ms
            self._record_groups()
        self._delete_removed_topics()
        self.storage.tick(self.clock())
        if self.switches.retention_scan_ms is not None and self.clock() >= self._next_retention_ms:
            self._next_retention_ms = self.clock() + self.switches.retention_scan_ms
            self.expire_segments()
        self.save_positions()

    def expire_segments(self) -> None:
        """Remove the closed segments of all stores that are older than their topic's policy."""
        for topic, _, store in self.storage:
            deployed = self.cluster.deployment(topic, self.broker_id)
            if deployed is not None:
                store.expire_segments(self.clock() - deployed.props.kept_ms)

    def _delete_removed_topics(self) -> None:
        if self.cluster.version == self._cluster_version:
            return
        self._cluster_version = self.cluster.version
        for record in self.cluster.on_broker(self.broker_id):
            if record.status == REMOVED:
                self.storage.drop(record.topic)
                self.cluster.undeploy(record.topic, self.broker_id)

    def _record_groups(self) -> None:
        now_ms, store = self.clock(), self.storage.open(OFFSET_HISTORY_TOPIC, 0)
        history = list(
            scan_groups(self.broker_id, self.positions, self.leases, self.storage, now_ms)
        )
        for record in history:
            store.append(
                record.partition_id,
                record.data,
                time_ms=now_ms,
                checksum=payload.checksum(record.data),
                flag=record.flag,
                key_code=record.key_code,
                sent_addr=0,
            )

    def sweep_leases(self) -> list[PositionKey]:
        """Remove and return expired leases; their batches in flight will be read again."""
        expired = self.leases.sweep(self.clock())
        for key in expired:
            self.positions.drop_in_flight(key)
        return expired

    def save_positions(self) -> None:
        """Save confirmed offsets so that they survive a crash."""
        if self.positions.version == self._saved_version:
            return
        self._saved_positions = self.positions.dump()
        self._saved_version = self.positions.version
        if self._directory is not None:
            self._directory.save_positions(self.broker_id, self._saved_positions)

    # ------------------------------------------------------------------ hooks

    def release_lease(self, key: PositionKey) -> bool:
        """Make the owner's next call fail with 411; return False if there was no owner."""
        released = self.leases.release(key) is not None
        if released:
            self.positions.drop_in_flight(key)
        return released

    def steal_lease(self, key: PositionKey, client_id: str) -> None:
        """Give the partition to another client: the owner's next call fails with 412."""
        self.release_lease(key)
        self.leases.grant(key, Lease(client_id), self.clock())

    def crash(self, *, lose_unflushed: bool = True, lose_positions: bool = False) -> int:
        """Stop like a hard kill; return the number of records lost.

        `lose_positions` also sets confirmed offsets back to the last save.
        """
        self.running = False
        lost = self.storage.crash(lose_unflushed=lose_unflushed)
        self.leases.clear()
        self.positions.drop_all_in_flight()
        if lose_positions:
            self.positions.load(self._saved_positions)
        _log.info("broker %d crashed, %d records lost", self.broker_id, lost)
        return lost

    def stop(self) -> None:
        """Stop in order: all records become stable, batches in flight count as consumed."""
        self.running = False
        self.storage.flush()
        self.positions.commit_all()
        self.positions.drop_all_in_flight()
        self.leases.clear()
        self.save_positions()

    def start(self) -> None:
        self.running = True

    def close(self) -> None:
        """Release files."""
        self.storage.close()
