"""Values that a task and the state backend exchange through Airflow's asset state.

Asset state has only get, set and delete of a JSON value under a key. Keys that begin with `PREFIX`
belong to the ledger: a written value is an *envelope* that names the revision it replaces, a read
value has its revision. This module must not import airflow or sqlalchemy; both sides of the API
server use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tubemq_provider.offsets.chunking import chunk_names
from tubemq_provider.windows.protocols import Document

__all__ = [
    "CURSOR",
    "DONE",
    "PIECE",
    "PREFIX",
    "PROBE",
    "WINDOW",
    "Envelope",
    "Versioned",
    "chunk_keys",
]

PREFIX: Final = "tubemq-ledger/"
CURSOR: Final = PREFIX + "cursor"
WINDOW: Final = PREFIX + "win/"
DONE: Final = PREFIX + "done/"
PIECE: Final = PREFIX + "chunk/"
PROBE: Final = PREFIX + "probe"
"""Key that only the ledger's backend answers; nothing is stored under it."""


def chunk_keys(key: str, head: Document) -> list[str]:
    """Return the keys of the chunks of a long document under `key`; none for a whole one."""
    return [f"{PIECE}{key.removeprefix(PREFIX)}/{name}" for name in chunk_names(head)]


@dataclass(frozen=True, slots=True)
class Versioned:
    """Stored document with its revision, the number of its writes."""

    rev: int
    document: Document

    def to_value(self) -> dict[str, Any]:
        """Return the value that a read of a ledger key returns."""
        return {"ledger": 1, "rev": self.rev, "doc": self.document}

    @classmethod
    def from_value(cls, value: object) -> Versioned | None:
        """Parse a read value; None for None, or for a value that no ledger returned."""
        if not isinstance(value, Mapping) or value.get("ledger") != 1 or "doc" not in value:
            return None
        return cls(int(value["rev"]), dict(value["doc"]))


@dataclass(frozen=True, slots=True)
class Envelope:
    """Write request: `document` replaces revision `expected` (0: none is stored).

    `write_id` is unique per write. Airflow's client repeats a request whose answer was lost; the id
    makes the repetition idempotent.
    """

    expected: int
    write_id: str
    document: Document

    def to_value(self) -> dict[str, Any]:
        """Return the value to set under a ledger key."""
        return {"rev": self.expected, "write": self.write_id, "doc": self.document}

    @classmethod
    def from_value(cls, value: object) -> Envelope:
        """Parse a value. Raises `ValueError` if it is no envelope."""
        if (
            not isinstance(value, Mapping)
            or not isinstance(value.get("rev"), int)
            or not isinstance(value.get("write"), str)
            or not isinstance(value.get("doc"), dict)
        ):
            raise ValueError(f"keys below {PREFIX!r} take {{rev, write, doc}} only")  # noqa: TRY004 - of a request
        return cls(value["rev"], value["write"], value["doc"])
