"""Small records that several parts of the embedded master keep: audit stamps, topic properties.

Plain data with TubeMQ's defaults; `cluster` and `controls` attach them.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["UNDEFINED", "Audit", "TopicProps"]

UNDEFINED = -2
"""TubeMQ's "no value" for ids and numbers."""


@dataclass(slots=True)
class Audit:
    """Audit stamp: user and time of creation and last change; times are ms since the epoch."""

    create_user: str
    created_ms: int
    modify_user: str
    modified_ms: int
    serial_id: int
    data_version_id: int = UNDEFINED

    @classmethod
    def new(cls, user: str, now_ms: int) -> Audit:
        return cls(user, now_ms, user, now_ms, now_ms)

    @classmethod
    def by_system(cls, now_ms: int) -> Audit:
        """Return the stamp of a record that the master creates because another one needs it."""
        return cls("systemSelf", now_ms, "systemSelf", now_ms, now_ms, data_version_id=0)

    def touch(self, user: str, now_ms: int) -> None:
        # Serial ids are times on real masters; two changes within a millisecond must differ, too.
        self.modify_user, self.modified_ms = user, now_ms
        self.serial_id = max(now_ms, self.serial_id + 1)


@dataclass(slots=True)
class TopicProps:
    """The settable properties of a topic on a broker, with TubeMQ's defaults."""

    stores: int = 1
    partitions: int = 1
    unflush_threshold: int = 1000
    unflush_interval: int = 10_000
    unflush_data_hold: int = 0
    cache_mb: int = 3
    cache_count_k: int = 10
    cache_flush_ms: int = 20_000
    accept_publish: bool = True
    accept_subscribe: bool = True
    delete_policy: str = "delete,168h"
    store_type: int = UNDEFINED
    data_path: str = ""

    @property
    def kept_ms(self) -> int:
        """Time in ms for which the policy ``delete,<n><unit>`` keeps a closed segment."""
        text = self.delete_policy.rpartition(",")[2]
        return int(text[:-1]) * {"s": 1_000, "m": 60_000, "h": 3_600_000}[text[-1]]
