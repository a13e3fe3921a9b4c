"""The stores of one broker: each a log, its file if data is kept, and the rule for flushing.

This is the only place where a log and its file meet, so the two always agree: a record becomes
stable exactly when its bytes are in the file. Time is an argument (ms); no thread, no socket.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from tubemq_client.embedded.options import Switches
from tubemq_client.embedded.persistence import DataDirectory, StoredLog, StoreFile
from tubemq_client.embedded.store import Appended, StoreLog

__all__ = ["Storage", "Store", "new_message_id"]


def new_message_id() -> int:
    """Return the first id of a range of message ids: random, so practically never used before."""
    return secrets.randbits(40) << 22 | 1


class Store:
    """One store. Appends go through here so that the flush rule sees them."""

    def __init__(self, log: StoreLog, file: StoreFile | None, switches: Switches) -> None:
        self.log = log
        self._file = file
        self._interval_ms = switches.flush_interval_ms
        self._limit = switches.unflushed_records
        self._data_bytes = switches.segment_bytes
        self._index_records = switches.reads.segment_records
        self._oldest_ms = 0

    def append(
        self,
        partition_id: int,
        payload: bytes,
        *,
        time_ms: int,
        checksum: int,
        flag: int,
        key_code: int,
        sent_addr: int,
    ) -> Appended:
        """Store one record, and flush if the rule requires it."""
        log = self.log
        appended = log.append(
            partition_id,
            payload,
            time_ms=time_ms,
            checksum=checksum,
            flag=flag,
            key_code=key_code,
            sent_addr=sent_addr,
        )
        waiting = log.unflushed
        if waiting == 1:
            self._oldest_ms = time_ms
        if self._interval_ms == 0 or (self._limit is not None and waiting >= self._limit):
            self.flush()
        return appended

    def tick(self, now_ms: int) -> None:
        """Flush if the oldest unflushed record has waited for the interval."""
        if (
            self._interval_ms is not None
            and self.log.unflushed
            and now_ms - self._oldest_ms >= self._interval_ms
        ):
            self.flush()

    def flush(self) -> None:
        """Make everything stable."""
        log = self.log
        if self._file is not None and log.unflushed:
            self._file.append(log.slice(log.stable_end, log.end))
        log.flush()

    def expire_to(self, offset: int) -> None:
        """Remove records below `offset`, data and index, as retention does in the end."""
        self.flush()
        self.log.expire_to(offset)
        self._rewrite()

    def expire_data_to(self, offset: int) -> None:
        """Remove the data of the records below `offset`; the broker still lists them."""
        self.flush()
        self.log.expire_data_to(offset)
        self._rewrite()

    def expire_index_to(self, offset: int) -> None:
        """Remove the index entries below `offset` and leave the data."""
        self.flush()
        self.log.expire_index_to(offset)
        self._rewrite()

    def expire_segments(self, before_ms: int) -> None:
        """Remove closed segments whose last record was stored before `before_ms`."""
        if self.log.expire_segments(
            before_ms, data_bytes=self._data_bytes, index_records=self._index_records
        ):
            self._rewrite()

    def truncate_to(self, offset: int) -> int:
        """Lose records from `offset` on; return the number lost."""
        lost = self.log.truncate_to(offset, first_message_id=new_message_id())
        self._rewrite()
        return lost

    def crash(self, *, lose_unflushed: bool) -> int:
        """Crash the store like a hard kill; return the number of records lost."""
        if not lose_unflushed:
            self.flush()
        return self.log.truncate_to(self.log.stable_end, first_message_id=new_message_id())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def delete(self) -> None:
        """Release the file and remove it."""
        if self._file is not None:
            self._file.delete()

    def _rewrite(self) -> None:
        if self._file is not None:
            log = self.log
            records = list(log.slice(log.min_offset, log.end))
            start = records[0].data_offset if records else log.data_end
            self._file.rewrite(StoredLog(log.min_offset, start, log.min_data_offset, records))


class Storage:
    """All opened stores of one broker, by (topic, store id)."""

    def __init__(self, broker_id: int, directory: DataDirectory | None, switches: Switches) -> None:
        self._broker_id = broker_id
        self._directory = directory
        self._switches = switches
        self._stores: dict[tuple[str, int], Store] = {}
        for topic, store_id in directory.stores(broker_id) if directory else ():
            self.open(topic, store_id)

    def __iter__(self) -> Iterator[tuple[str, int, Store]]:
        for (topic, store_id), store in sorted(self._stores.items()):
            yield topic, store_id, store

    def get(self, topic: str, store_id: int) -> Store | None:
        return self._stores.get((topic, store_id))

    def open(self, topic: str, store_id: int) -> Store:
        """Return the store, created if it does not exist yet."""
        store = self._stores.get((topic, store_id))
        if store is None:
            store = self._stores[topic, store_id] = self._load(topic, store_id)
        return store

    def drop(self, topic: str) -> None:
        """Delete every store of a topic permanently."""
        for key in [key for key in self._stores if key[0] == topic]:
            self._stores.pop(key).delete()

    def tick(self, now_ms: int) -> None:
        for store in self._stores.values():
            store.tick(now_ms)

    def flush(self) -> None:
        for store in self._stores.values():
            store.flush()

    def crash(self, *, lose_unflushed: bool) -> int:
        """Crash all stores like a hard kill of the broker; return the number of records lost."""
        return sum(store.crash(lose_unflushed=lose_unflushed) for store in self._stores.values())

    def close(self) -> None:
        for store in self._stores.values():
            store.close()

    def _load(self, topic: str, store_id: int) -> Store:
        if self._directory is None:
            return Store(StoreLog(first_message_id=new_message_id()), None, self._switches)
        file = self._directory.store_file(self._broker_id, topic, store_id)
        stored = file.open()
        log = StoreLog(
            first_message_id=new_message_id(),
            base_offset=stored.base_offset,
            min_data_offset=stored.min_data_offset,
            data_end=stored.base_data_offset,
            records=stored.records,
        )
        return Store(log, file, self._switches)
