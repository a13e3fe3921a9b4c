"""What a node counts, as Prometheus text, and a small HTTP port that shows it.

`/metrics` and `/healthz` only; anything else is 404. No request body is read, a line is bounded,
and a client that sends nothing is cut off.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping

__all__ = ["Metrics", "serve_http"]

_LINE_BYTES = 4_096
_PATIENCE_S = 5.0


class Metrics:
    """Counters by name and labels; gauges are asked for when they are shown."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()

    def add(self, name: str, amount: int = 1, **labels: object) -> None:
        """Count."""
        key = tuple((label, str(value)) for label, value in sorted(labels.items()))
        self._counts[name, key] += amount

    def get(self, name: str, **labels: object) -> int:
        """What was counted."""
        key = tuple((label, str(value)) for label, value in sorted(labels.items()))
        return self._counts[name, key]

    def text(self, gauges: Mapping[str, float]) -> str:
        """Prometheus' text format."""
        lines: list[str] = []
        last = ""
        for (name, labels), value in sorted(self._counts.items()):
            if name != last:
                lines.append(f"# TYPE snode_{name} counter")
                last = name
            inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
            lines.append(f"snode_{name}{{{inner}}} {value}")
        for name, amount in gauges.items():
            lines += [f"# TYPE snode_{name} gauge", f"snode_{name} {amount:g}"]
        return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


async def serve_http(
    host: str, port: int, pages: Mapping[str, Callable[[], tuple[int, str]]]
) -> asyncio.Server:
    """Listen; `pages` gives status and text by path."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                words = (await reader.readline()).split()
                page = pages.get(words[1].decode("latin-1")) if len(words) > 1 else None
                status, text = page() if page else (404, "not here\n")
                body = text.encode()
                head = (
                    f"HTTP/1.1 {status} {'OK' if status == 200 else 'NO'}\r\n"
                    "Content-Type: text/plain; version=0.0.4\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
                )
                writer.write(head.encode() + body)
                await writer.drain()
        except (OSError, TimeoutError, ValueError):
            pass  # it asked nothing that can be answered
        finally:
            writer.close()

    return await asyncio.start_server(serve, host, port, limit=_LINE_BYTES)
