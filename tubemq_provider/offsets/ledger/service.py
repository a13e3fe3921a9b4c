"""Server side of the ledger's keys: maps each key to a table and an operation.

`backend` calls it inside the API server. It needs only the ledger's tables and the name of an
asset, so that a test can call it on a plain connection. This module must not import airflow.
"""

from __future__ import annotations

from typing import Any

from tubemq_provider.offsets.ledger.envelope import (
    CURSOR,
    DONE,
    PIECE,
    PREFIX,
    PROBE,
    WINDOW,
    Envelope,
)
from tubemq_provider.offsets.ledger.tables import LedgerTables

__all__ = ["delete_value", "get_value", "set_value"]


def get_value(ledger: LedgerTables, asset: str, key: str) -> dict[str, Any] | None:
    """Return the value of a read of `key`, or None."""
    if key == PROBE:
        return {"ledger": 1}
    if key.startswith(WINDOW):
        versioned = ledger.read_plan(asset, key.removeprefix(WINDOW))
    else:
        versioned = ledger.read(asset, key.removeprefix(PREFIX))
    return versioned.to_value() if versioned else None


def set_value(ledger: LedgerTables, asset: str, key: str, value: object) -> Envelope:
    """Execute a write and return its envelope.

    Raises `StoreConflict` for an outdated revision, `ValueError` for an invalid envelope or key.
    """
    envelope = Envelope.from_value(value)
    if key.startswith(WINDOW):
        ledger.write_plan(asset, key.removeprefix(WINDOW), envelope)
    elif key.startswith(DONE):
        ledger.finish(asset, key.removeprefix(DONE), envelope)
    elif key == CURSOR or key.startswith(PIECE):
        ledger.write(asset, key.removeprefix(PREFIX), envelope)
    else:
        raise ValueError(f"the ledger has no key {key!r}")
    return envelope


def delete_value(ledger: LedgerTables, asset: str, key: str) -> None:
    """Forget a plan, or remove a chunk. A cursor stays: deleting a key must not lose progress."""
    if key.startswith(WINDOW):
        ledger.forget_plan(asset, key.removeprefix(WINDOW))
    elif key.startswith(PIECE):
        ledger.remove(asset, key.removeprefix(PREFIX))
