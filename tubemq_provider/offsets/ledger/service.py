"""What a key of the ledger means on the server: which table, which operation.

`backend` calls it inside the API server. It only needs the ledger's tables and the name of an
asset, so a test can call it on a plain connection. This module must not import airflow.
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
    """What reading `key` gives, or None."""
    if key == PROBE:
        return {"ledger": 1}
    if key.startswith(WINDOW):
        found = ledger.read_plan(asset, key.removeprefix(WINDOW))
    else:
        found = ledger.read(asset, key.removeprefix(PREFIX))
    return found.to_value() if found else None


def set_value(ledger: LedgerTables, asset: str, key: str, value: object) -> Envelope:
    """Carry out a write; what was written.

    Raises `StoreConflict` if it comes too late, `ValueError` if it is none.
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
    """Forget a plan, or remove a piece. A cursor stays: nobody deletes progress in passing."""
    if key.startswith(WINDOW):
        ledger.forget_plan(asset, key.removeprefix(WINDOW))
    elif key.startswith(PIECE):
        ledger.remove(asset, key.removeprefix(PREFIX))
