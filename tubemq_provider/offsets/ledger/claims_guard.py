"""Guard of other stores against windows that a group still has claimed in the ledger.

Windows that were claimed there, or published after a claimed one, lie beyond the position in
commit events. A run that does not use the ledger would store their records a second time. The
ledger is read through asset state: with its backend the value comes from its tables, without it
from the copy in Airflow's table. This module must not import airflow or sqlalchemy.
"""

from __future__ import annotations

from shlex import quote
from typing import Any, Protocol

from tubemq_client.errors import ConfigError
from tubemq_provider.offsets.chunking import chunk_names, join
from tubemq_provider.offsets.ledger.envelope import CURSOR, PIECE, PREFIX
from tubemq_provider.windows.errors import DocumentError
from tubemq_provider.windows.plan import named_group
from tubemq_provider.windows.planning.claims import windows_beyond
from tubemq_provider.windows.spaces import FIRST_SOURCE

__all__ = ["refuse_claims"]


class Readable(Protocol):
    """Part of Airflow's accessor of asset state that is used here."""

    def get(self, key: str) -> Any: ...


def refuse_claims(state: Readable) -> None:
    """Raise `ConfigError` if the ledger has windows of this group beyond its position, and
    `DocumentError` if its copy was edited and is invalid."""
    value = state.get(CURSOR)
    if not isinstance(value, dict):
        return
    book = value.get("doc", value)
    if not isinstance(book, dict):
        raise DocumentError(f"ledger key {CURSOR!r}", [f"it is {book!r}, not an object"])
    names = [f"{PIECE}{CURSOR.removeprefix(PREFIX)}/{name}" for name in chunk_names(book)]
    chunks = [state.get(name) for name in names]
    if names and None not in chunks:
        book = join(book, [chunk.get("doc") for chunk in chunks], CURSOR)
    windows = windows_beyond(book)
    if windows or chunk_names(book):
        raise ConfigError(
            f"the ledger has windows of this group that are claimed or wait for a claimed one "
            f"({', '.join(windows) or 'too many to be read from here'}): let runs with "
            f"offset_store='ledger' finish them, {_way_out(value, book)}",
            subject="offset_store",
        )


def _way_out(value: dict[str, Any], book: dict[str, Any]) -> str:
    """Return other advice. Deleting the key helps only without a ledger, which keeps its cursor."""
    if value.get("ledger") == 1:
        plans = [claim.get("plan", {}) for claim in book.get("pending", {}).values()]
        source = next((plan["source"] for plan in plans if "source" in plan), FIRST_SOURCE)
        names = [str(book.get(name)) for name in ("cluster", "topic", "group")]
        asset = quote(named_group(source, *names))
        return (
            f"after 'airflow tubemq offsets adopt {asset}' if their tasks are gone; or 'airflow "
            f"tubemq offsets rebuild {asset} --sink SINK' notes those that are in the sink, and "
            f"with --drop-claims forgets the others"
        )
    return (
        f"or, as this Airflow has no ledger any more, remove the key {CURSOR!r} from the asset's "
        f"state if all of them are known to be in the sink"
    )
