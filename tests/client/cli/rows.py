"""Rows for the tests of the command line: flights with a time and a carrier."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

TOPIC = "flights"
FIRST_DAY = datetime(2013, 1, 1, tzinfo=UTC)
CARRIERS = ("AA", "UA", "DL")


class Outcome(NamedTuple):
    """Result of a command."""

    code: int
    out: str
    err: str

    def rows(self) -> list[Any]:
        """Parse standard output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


def flights(start: datetime, *, days: int, a_day: int) -> list[dict[str, Any]]:
    """Rows spread evenly over the days, the first of each exactly at midnight."""
    step = timedelta(days=1) / a_day
    return [
        {
            "at": (start + number * step).isoformat(),
            "carrier": CARRIERS[number % len(CARRIERS)],
            "flight": number,
        }
        for number in range(days * a_day)
    ]
