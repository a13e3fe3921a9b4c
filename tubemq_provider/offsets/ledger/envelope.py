"""What a task and the state backend say to each other through Airflow's asset state.

Asset state knows only get, set and delete of a JSON value under a key. Keys that begin with
`PREFIX` belong to the ledger: a value set there is an *envelope* that names the revision it
replaces, a value read there carries the revision it has. This module must not import airflow or
sqlalchemy; both sides of the API server use it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tubemq_provider.offsets.chunking import piece_names
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
    "piece_keys",
]

PREFIX: Final = "tubemq-ledger/"
CURSOR: Final = PREFIX + "cursor"
WINDOW: Final = PREFIX + "win/"
DONE: Final = PREFIX + "done/"
PIECE: Final = PREFIX + "piece/"
PROBE: Final = PREFIX + "probe"
"""Reading it answers whether the API server has the ledger's backend; nothing is stored there."""


def piece_keys(key: str, head: Document) -> list[str]:
    """Where the pieces of a long document under `key` are; none for one that is whole."""
    return [f"{PIECE}{key.removeprefix(PREFIX)}/{name}" for name in piece_names(head)]


@dataclass(frozen=True, slots=True)
class Versioned:
    """A stored document and how often it was written."""

    rev: int
    document: Document

    def to_value(self) -> dict[str, Any]:
        """What reading a key of the ledger gives."""
        return {"ledger": 1, "rev": self.rev, "doc": self.document}

    @classmethod
    def from_value(cls, value: object) -> Versioned | None:
        """The document in what was read; None for nothing, or for a value that no ledger gave."""
        if not isinstance(value, Mapping) or value.get("ledger") != 1 or "doc" not in value:
            return None
        return cls(int(value["rev"]), dict(value["doc"]))


@dataclass(frozen=True, slots=True)
class Envelope:
    """A write: `document` replaces revision `expected` (0: nothing is there).

    `write_id` is unique per write. Airflow's client repeats a request whose answer was lost; the
    repetition is recognised by it, and not taken for another writer's.
    """

    expected: int
    write_id: str
    document: Document

    def to_value(self) -> dict[str, Any]:
        """What is set under a key of the ledger."""
        return {"rev": self.expected, "write": self.write_id, "doc": self.document}

    @classmethod
    def from_value(cls, value: object) -> Envelope:
        """The envelope in a value. Raises `ValueError` if it is none."""
        if (
            not isinstance(value, Mapping)
            or not isinstance(value.get("rev"), int)
            or not isinstance(value.get("write"), str)
            or not isinstance(value.get("doc"), dict)
        ):
            raise ValueError(f"keys below {PREFIX!r} take {{rev, write, doc}} only")  # noqa: TRY004 - of a request
        return cls(value["rev"], value["write"], value["doc"])
