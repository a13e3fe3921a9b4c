"""Topic that quarantined records are sent to, and a look at what it already has.

A letter names its window and its number there in its attributes. A try that died among its sends
is found out by reading the topic from where it ended before. This module must not read a sink.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from tubemq_client import Metadata, OffsetRange, Producer, RangeReader, Record
from tubemq_provider.sources.tubemq.space import SPACE
from tubemq_provider.windows.errors import WindowError

if TYPE_CHECKING:
    from tubemq_client import ClientSettings

__all__ = ["DeadLetterTopic"]

_WINDOW, _NUMBER = "window", "number"
_SAFE = " :/()'[]{}\"-_."
"""Signs that a reason keeps; others, which attributes cannot have, are escaped as in URLs."""


class DeadLetterTopic:
    """The topic `name` of a cluster; `group` is who looks at it."""

    def __init__(self, settings: ClientSettings, name: str, group: str) -> None:
        self.name = name
        self._settings = settings
        self._group = group

    def ends(self) -> dict[str, int]:
        """Return the ends of its partitions, in the brokers' memory. Raises `WindowError` if a
        broker does not answer."""
        with Metadata(self._settings) as client:
            found = client.reachable_ends(self.name, self._group, stable=False)
        if found.away:
            which = ", ".join(sorted(map(str, found.away)))
            raise WindowError(f"quarantine_topic {self.name!r}: no answer from {which}")
        return {partition.key: ends.max_offset for partition, ends in found.items()}

    def sent_since(self, ends: Mapping[str, int], window_id: str) -> set[int]:
        """Return the numbers of a window's letters that were sent after `ends`."""
        found = set()
        with RangeReader(self._settings, group=self._group) as reader:
            for key, end in self.ends().items():
                range_ = OffsetRange(SPACE.partition(self.name, key), ends.get(key, 0), end)
                for batch in reader.read(range_) if range_.start < end else ():
                    for message in batch.messages():
                        if message.attributes.get(_WINDOW) == window_id:
                            found.add(int(message.attributes[_NUMBER]))
        return found

    def send(
        self, window_id: str, letters: Iterable[tuple[int, bytes, Mapping[str, str]]]
    ) -> Iterator[tuple[str, int]]:
        """Send letters (number, body, attributes); yield partition and offset of each."""
        records = (
            Record(
                body,
                {
                    _WINDOW: window_id,
                    _NUMBER: str(number),
                    **{name: quote(text, safe=_SAFE) for name, text in attributes.items()},
                },
            )
            for number, body, attributes in letters
        )
        with Producer(self._settings) as producer:
            for receipt in producer.send_many(self.name, records):
                yield receipt.partition.key, receipt.offset
