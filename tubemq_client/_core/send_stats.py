"""Statistics of a producer: counts, bytes, errors by code, a histogram of latencies.

Counting only; nothing here prints or sleeps. Times are monotonic milliseconds given by the caller.
A snapshot is a separate value, so reading it costs a copy and never disturbs a sender.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from tubemq_client import errors
from tubemq_client.model import ConnectionStats, ProducerStats, SendReceipt, SendSummary

__all__ = ["LATENCY_BOUNDS_MS", "SendStats", "SendTotals"]

LATENCY_BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
"""Upper bounds of the buckets of the histogram, inclusive; the last bucket is unbounded."""


@dataclass(slots=True)
class SendStats:
    """Counts of one producer. A record counts as sent once, even if it was sent again."""

    stored: int = 0
    failed: int = 0
    sent_again: int = 0
    bytes_stored: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    latencies: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_MS) + 1))

    def receipt(self, size: int, latency_ms: int) -> None:
        self.stored += 1
        self.bytes_stored += size
        self.latencies[bisect_left(LATENCY_BOUNDS_MS, latency_ms)] += 1

    def resent(self, error: errors.TubeMQError) -> None:
        self.sent_again += 1
        self.codes[error.code] += 1

    def failure(self, error: errors.TubeMQError) -> None:
        self.failed += 1
        self.codes[error.code] += 1

    def snapshot(
        self,
        in_flight: int,
        left_out: int,
        connections: dict[str, ConnectionStats] | None = None,
    ) -> ProducerStats:
        bounds = (*map(float, LATENCY_BOUNDS_MS), float("inf"))
        return ProducerStats(
            in_flight=in_flight,
            stored=self.stored,
            failed=self.failed,
            sent_again=self.sent_again,
            bytes_stored=self.bytes_stored,
            errors_by_code=dict(self.codes),
            latencies_ms=dict(zip(bounds, self.latencies, strict=True)),
            brokers_left_out=left_out,
            connections=connections or {},
        )


@dataclass(slots=True)
class SendTotals:
    """Totals of one `send_all`."""

    stored: int = 0
    bytes: int = 0
    first: SendReceipt | None = None
    last: SendReceipt | None = None
    failures: list[errors.TubeMQError] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.stored + len(self.failures)

    def add(self, outcome: SendReceipt | errors.TubeMQError, size: int) -> None:
        if isinstance(outcome, errors.TubeMQError):
            self.failures.append(outcome)
            return
        self.stored += 1
        self.bytes += size
        self.first = self.first or outcome
        self.last = outcome

    def summary(self) -> SendSummary:
        return SendSummary(self.stored, self.bytes, self.first, self.last, tuple(self.failures))
