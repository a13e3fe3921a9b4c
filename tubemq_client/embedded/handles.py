"""Handles of a broker and of a store for tests and demos: addresses, marks, and faults.

Handles may be used from any thread; each call runs on the server's own thread and waits for it.
They have no state and stay valid across crash and restart.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from tubemq_client._core.flow_control import FlowRules
from tubemq_client.embedded._scripting import ScriptableReplies
from tubemq_client.embedded.loop_thread import LoopThread
from tubemq_client.embedded.positions import PositionKey
from tubemq_client.embedded.runtime import ServedBroker
from tubemq_client.embedded.scripted_replies import ScriptedReplies
from tubemq_client.embedded.storage import Store
from tubemq_client.embedded.store import Ends

__all__ = ["BrokerHandle", "StoreHandle"]

T = TypeVar("T")


class BrokerHandle(ScriptableReplies):
    """One broker, with the faults that it can simulate."""

    def __init__(self, thread: LoopThread, served: ServedBroker) -> None:
        self._thread = thread
        self._served = served

    @property
    def _scripted(self) -> ScriptedReplies:
        return self._served.broker.scripted

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.broker_id}, {self.address!r})"

    @property
    def broker_id(self) -> int:
        """Id under which the master announces the broker."""
        return self._served.broker.broker_id

    @property
    def address(self) -> str:
        """``host:port`` of the RPC listener."""
        return f"{self._served.host}:{self._served.port}"

    @property
    def tls_address(self) -> str | None:
        """``host:port`` of the TLS listener, None without TLS."""
        return self._served.tls_address

    @property
    def connections(self) -> int:
        """Number of clients connected to the RPC listeners now."""
        return self._thread.do(lambda: self._served.connections)

    @property
    def web(self) -> str | None:
        """``host:port`` of the administration (any path), None without HTTP."""
        return self._served.web_address

    def store(self, topic: str, store_id: int = 0) -> StoreHandle:
        """Return a store of this broker, opened if it does not exist yet."""
        return StoreHandle(self._thread, self._served, topic, store_id)

    def flush(self) -> None:
        """Make every store's records stable."""
        self._thread.do(self._served.broker.storage.flush)

    def expire_to(self, topic: str, offset: int, store_id: int = 0) -> Ends:
        """Move a store's min offset, as retention does; return the marks afterwards."""
        return self.store(topic, store_id).expire_to(offset)

    def expire_segments(self) -> None:
        """Remove closed segments of data and of the index that are older than the policy of their
        topic, as `Switches.retention_scan_ms` does by timer."""
        self._thread.do(self._served.broker.expire_segments)

    # ------------------------------------------------------------------ life cycle

    def crash(self, *, lose_unflushed: bool = True, lose_positions: bool = False) -> int:
        """Die as on SIGKILL, connections included; return the number of acknowledged records lost.

        Their offsets will be assigned again. `lose_positions` also sets confirmed offsets back to
        the last save. The master counts the broker as online for another
        `Switches.broker_timeout_ms`.
        """
        return self._thread.wait(
            lambda: self._served.crash(lose_unflushed=lose_unflushed, lose_positions=lose_positions)
        )

    def stop(self) -> None:
        """Stop in order: all records become stable, batches in flight count as consumed."""
        self._thread.wait(self._served.stop)

    def restart(self) -> None:
        """Restart on the same port; a running broker is stopped in order first."""
        self._thread.wait(self._served.restart)

    # ------------------------------------------------------------------ faults

    def stop_reading(self) -> None:
        """Answer fetches with 503."""
        self._set("reading", value=False)

    def resume_reading(self) -> None:
        """Answer fetches again."""
        self._set("reading", value=True)

    def stop_writing(self) -> None:
        """Answer sends with 503."""
        self._set("writing", value=False)

    def resume_writing(self) -> None:
        """Accept records again."""
        self._set("writing", value=True)

    def overflow_every(self, sends: int) -> None:
        """Refuse every n-th send with 419; 0 turns it off."""
        self._set("overflow_every", value=sends)

    def corrupt_next(self, records: int = 1) -> None:
        """Give the next delivered records a wrong checksum; the stored ones stay sound."""
        self._set("corrupt_next", value=records)

    def empty_next(self, fetches: int = 1) -> None:
        """Let the next fetches succeed without a record and without moving the position."""
        self._set("empty_next", value=fetches)

    def hint_wait(self, wait_ms: int | None) -> None:
        """Send this wait (ms, garbage is allowed) in every 404; None turns it off."""
        self._set("wait_hint", value=wait_ms)

    def limit_readers(self, rules: str) -> None:
        """Enforce the data limits in `rules`, flow-control JSON; ``"[]"`` turns them off. Raises
        `ConfigError` for rules that no master would accept.
        """
        self._thread.do(partial(setattr, self._served.broker, "flow_rules", FlowRules.parse(rules)))

    def silence(self, *method_ids: int) -> None:
        """Never answer these methods; without ids, answer all again."""
        self._set("silent", value=set(method_ids))

    def revoke_lease(self, group: str, topic: str, partition_id: int) -> bool:
        """Make the owner's next call fail with 411; return False if there was no owner."""
        key = PositionKey(group, topic, partition_id)
        return self._thread.do(lambda: self._served.broker.release_lease(key))

    def steal_lease(
        self, group: str, topic: str, partition_id: int, client_id: str = "thief"
    ) -> None:
        """Give the partition to `client_id`: the owner's next call fails with 412."""
        key = PositionKey(group, topic, partition_id)
        self._thread.do(lambda: self._served.broker.steal_lease(key, client_id))

    # ------------------------------------------------------------------ queries

    def groups(self) -> list[str]:
        """Return every group that has a position at the broker."""
        return self._thread.do(self._served.broker.positions.groups)

    def position(self, group: str, topic: str, partition_id: int) -> int | None:
        """Return the group's confirmed offset, None if it has none."""
        key = PositionKey(group, topic, partition_id)
        position = self._thread.do(lambda: self._served.broker.positions.get(key))
        return None if position is None else position.confirmed

    def _set(self, name: str, *, value: Any) -> None:
        self._thread.do(lambda: setattr(self._served.broker.faults, name, value))


class StoreHandle:
    """One store of one broker. Offsets are index offsets, multiples of 28."""

    def __init__(self, thread: LoopThread, served: ServedBroker, topic: str, store_id: int) -> None:
        self._thread = thread
        self._storage = served.broker.storage
        self._topic = topic
        self._store_id = store_id

    @property
    def ends(self) -> Ends:
        """Marks of the store: min, stable, file, memory."""
        return self._do(lambda store: store.log.ends)

    def flush(self) -> Ends:
        """Make everything stable; return the marks afterwards."""
        self._do(Store.flush)
        return self.ends

    def write(self) -> Ends:
        """Write everything to the file without making it stable; return the marks afterwards."""
        self._do(lambda store: store.log.write())
        return self.ends

    def swap(self) -> Ends:
        """Turn the receiving memory buffer into the backup buffer; return the marks afterwards."""
        self._do(lambda store: store.log.swap())
        return self.ends

    def expire_to(self, offset: int) -> Ends:
        """Remove records below `offset`, as retention does; return the marks afterwards."""
        self._do(lambda store: store.expire_to(offset))
        return self.ends

    def expire_data_to(self, offset: int) -> Ends:
        """Remove the data of the records below `offset` and leave their index entries, as retention
        does where data segments are older than those of the index; return the marks afterwards.
        """
        self._do(lambda store: store.expire_data_to(offset))
        return self.ends

    def expire_index_to(self, offset: int) -> Ends:
        """Remove the index entries below `offset`, leave the data; return the marks afterwards."""
        self._do(lambda store: store.expire_index_to(offset))
        return self.ends

    def truncate_to(self, offset: int) -> int:
        """Lose records from `offset` on, so that offsets are reused; return the number lost."""
        return self._do(lambda store: store.truncate_to(offset))

    def corrupt(self, offset: int) -> None:
        """Corrupt the stored checksum of the record at `offset`. Raises `ValueError` if absent."""
        self._do(lambda store: store.log.corrupt(offset))

    def _do(self, work: Callable[[Store], T]) -> T:
        return self._thread.do(lambda: work(self._storage.open(self._topic, self._store_id)))
