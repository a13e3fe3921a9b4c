"""Counters of a node, as Prometheus text, and a small HTTP port that serves them.

`/metrics` and `/healthz` only; anything else is 404. Request bodies are not read, lines are
bounded, and idle clients are cut off.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

from rocketmq_client.model import Address
from rocketmq_snode.listener import Listener

__all__ = ["Metrics", "serve_http"]

_LINE_BYTES = 4_096
_PATIENCE_S = 5.0
_MOST_READERS = 32
_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 30.0)
_MOST_TOPICS = 1_000
_OTHER = "(other)"
_PLAIN, _KINDS = "text/plain; version=0.0.4", {"{": "application/json"}
_LARGEST_CODE = 9_999


class Metrics:
    """Counters by name and labels; gauges are read when they are shown. Requests and answers have
    separate counters, which cost a few dictionary look-ups."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
        self._asked: dict[int, list[int]] = {}
        self._answers: Counter[int] = Counter()
        self._spent: dict[int, _Spent] = {}
        self._topics: dict[str, dict[str, int]] = {}
        self._groups: dict[str, _OfGroup] = {}

    def add(self, name: str, amount: int = 1, **labels: object) -> None:
        """Add `amount` to a counter."""
        key = tuple((label, str(value)) for label, value in sorted(labels.items()))
        self._counts[name, key] += amount

    def asked(self, code: int, size: int) -> None:
        """Count a request of `size` bytes."""
        if not 0 <= code <= _LARGEST_CODE:
            code = -1
        counts = self._asked.get(code)
        if counts is None:
            counts = self._asked[code] = [0, 0]
        counts[0] += 1
        counts[1] += size

    def answered(self, asked: int, code: int, size: int, seconds: float) -> None:
        """Count an answer with `code` after `seconds`."""
        if not 0 <= asked <= _LARGEST_CODE:
            asked = -1
        self._answers[code] += 1
        histogram = self._spent.get(asked)
        if histogram is None:
            histogram = self._spent[asked] = _Spent()
        histogram.bytes += size
        histogram.seconds += seconds
        histogram.buckets[bisect_left(_BOUNDS_S, seconds)] += 1

    def moved(self, topic: str, way: str, size: int) -> str:
        """Count bytes of a topic, "in" or "out". Return the label under which they are counted:
        clients choose topic names, so after the first `1000` the rest share one."""
        counts = self._topics.get(topic)
        if counts is None:
            if len(self._topics) >= _MOST_TOPICS:
                topic = _OTHER
            counts = self._topics.setdefault(topic, {"in": 0, "out": 0})
        counts[way] += size
        return topic

    def moved_for(self, group: str, way: Literal["in", "out"], size: int) -> str:
        """Count a request ("in") or an answer ("out") of a group, of consumers or producers. Return
        the label under which it is counted, as for topics."""
        counts = self._groups.get(group)
        if counts is None:
            if len(self._groups) >= _MOST_TOPICS:
                group = _OTHER
            counts = self._groups.setdefault(group, _OfGroup())
        counts.frames[way] += 1
        counts.bytes[way] += size
        return group

    def text(self, gauges: Mapping[str, float]) -> str:
        """Return Prometheus' text format."""
        lines: list[str] = []
        for name, samples in _by_name(self._all()).items():
            lines.append(f"# TYPE snode_{name} counter")
            lines += [f"snode_{name}{_labels(labels)} {value:.15g}" for labels, value in samples]
        lines.append("# TYPE snode_answer_seconds histogram")
        for code, histogram in sorted(self._spent.items()):
            lines += histogram.lines(code)
        for name, amount in gauges.items():
            lines += [f"# TYPE snode_{name} gauge", f"snode_{name} {amount:.12g}"]
        return "\n".join(lines) + "\n"

    def _all(self) -> Iterator[tuple[str, tuple[tuple[str, str], ...], float]]:
        for (name, labels), value in sorted(self._counts.items()):
            yield name, labels, value
        for code, (count, size) in sorted(self._asked.items()):
            yield "requests", (("code", str(code)),), count
            yield "request_bytes", (("code", str(code)),), size
        for code, count in sorted(self._answers.items()):
            yield "answers", (("code", str(code)),), count
        for code, histogram in sorted(self._spent.items()):
            yield "answer_bytes", (("code", str(code)),), histogram.bytes
        for topic, ways in sorted(self._topics.items()):
            for way, size in ways.items():
                yield "topic_bytes", (("topic", topic), ("way", way)), size
        for group, counts in sorted(self._groups.items()):
            for way in ("in", "out"):
                labels = (("group", group), ("way", way))
                yield "group_frames", labels, counts.frames[way]
                yield "group_bytes", labels, counts.bytes[way]


class _OfGroup:
    """Requests and answers of one group: how many, and how many bytes."""

    __slots__ = ("bytes", "frames")

    def __init__(self) -> None:
        self.frames = {"in": 0, "out": 0}
        self.bytes = {"in": 0, "out": 0}


class _Spent:
    """Histogram of answer times of one type of request, and bytes of its answers."""

    __slots__ = ("buckets", "bytes", "seconds")

    def __init__(self) -> None:
        self.bytes, self.seconds = 0, 0.0
        self.buckets = [0] * (len(_BOUNDS_S) + 1)

    def lines(self, code: int) -> Iterator[str]:
        count, name = 0, "snode_answer_seconds"
        for bound, here in zip((*_BOUNDS_S, "+Inf"), self.buckets, strict=True):
            count += here
            yield f'{name}_bucket{{code="{code}",le="{bound}"}} {count}'
        yield f'{name}_sum{{code="{code}"}} {self.seconds:.6f}'
        yield f'{name}_count{{code="{code}"}} {count}'


def _by_name(
    samples: Iterable[tuple[str, tuple[tuple[str, str], ...], float]],
) -> dict[str, list[tuple[tuple[tuple[str, str], ...], float]]]:
    names: dict[str, list[tuple[tuple[tuple[str, str], ...], float]]] = {}
    for name, labels, value in samples:
        names.setdefault(name, []).append((labels, value))
    return names


def _labels(labels: tuple[tuple[str, str], ...]) -> str:
    inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
    return f"{{{inner}}}" if inner else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


async def serve_http(
    address: Address, pages: Mapping[str, Callable[[], tuple[int, str]]]
) -> Listener:
    """Listen; `pages` returns status and text by path. One descriptor is reserved for a page, so
    that it can be read while clients use all others. Raises `OSError`."""
    reading = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal reading
        reading += 1
        try:
            async with asyncio.timeout(_PATIENCE_S):
                words = (await reader.readline()).split()
                page = pages.get(words[1].decode("latin-1")) if len(words) > 1 else None
                status, text = page() if page else (404, "not here\n")
                body = text.encode()
                head = (
                    f"HTTP/1.1 {status} {'OK' if status == 200 else 'NO'}\r\n"
                    f"Content-Type: {_KINDS.get(text[:1], _PLAIN)}\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                )
                writer.write(head.encode() + body)
                await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass  # not a request that can be answered
        finally:
            reading -= 1
            writer.close()
            asyncio.get_running_loop().call_later(0.1, listener.renew_spare)

    def protocol() -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=_LINE_BYTES), serve)

    listener = Listener(protocol, admits=lambda: reading < _MOST_READERS, spare=True)
    await listener.listen(address)
    return listener
