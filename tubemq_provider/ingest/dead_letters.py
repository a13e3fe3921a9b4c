"""Quarantined records of a published window, sent to a topic once.

Two documents beside the marker: where the topic ended before the first letter was sent, and the
receipts after the last. A try that finds the first and not the second asks the topic which letters
it has. Runs of one window at the same time may send a letter twice; cursor tasks are serialised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tubemq_client.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tubemq_provider.sources.base import LetterTopic
    from tubemq_provider.windows.protocols import Marker, Progress, Sink

__all__ = ["DeadLetters"]

_BOOK: Final = "_dead_letters"
_COLUMNS: Final = ("partition", "batch_offset", "position", "message_id", "reason")
_LONGEST_REASON: Final = 500


class DeadLetters:
    """Delivery of quarantined records from `sink` to `topic`; `progress` receives each action."""

    def __init__(self, sink: Sink, topic: LetterTopic, progress: Progress) -> None:
        book = sink.book(_BOOK)
        if book is None:
            raise ConfigError(
                f"quarantine_topic needs a directory or an object store as sink, which notes what "
                f"was sent; {sink.kind} does not",
                subject="quarantine_topic",
            )
        self._book = book
        self._sink = sink
        self._topic = topic
        self._progress = progress

    def deliver(self, marker: Marker) -> None:
        """Send what is quarantined of a published window and was not sent yet."""
        if not marker.counts.corrupt:
            return
        window_id = marker.plan.window_id
        key = f"{window_id}.{self._topic.name}"
        if self._book.read(f"{key}.sent") is not None:
            return
        begun = self._book.read(f"{key}.begun")
        there: set[int] = set()
        if begun is not None:
            there = self._topic.sent_since(begun["ends"], window_id)
        else:
            self._book.fix(f"{key}.begun", {"ends": self._topic.ends()})
        self._progress("dead letters begun")
        receipts: dict[str, list[int]] = {}
        letters = (letter for letter in self._letters(marker) if letter[0] not in there)
        sent = 0
        for partition, offset in self._topic.send(window_id, letters):
            sent += 1
            receipts.setdefault(partition, []).append(offset)
            self._progress("dead letter sent")
        spans = {partition: [min(of), max(of)] for partition, of in receipts.items()}
        document = {"records": len(there) + sent, "topic": self._topic.name, "offsets": spans}
        self._book.fix(f"{key}.sent", document)
        self._progress("dead letters noted")

    def _letters(self, marker: Marker) -> Iterator[tuple[int, bytes, Mapping[str, str]]]:
        """Yield number, body and attributes of each quarantined record, in a fixed order."""
        number = 0
        for table in self._sink.quarantined(marker):
            for row in table.to_pylist():
                origin = {name: str(row[name])[:_LONGEST_REASON] for name in _COLUMNS}
                yield number, row["data"], {"topic": marker.plan.topic, **origin}
                number += 1
