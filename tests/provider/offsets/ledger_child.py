"""A process that adds to one number in the ledger, beside others: `URL count`."""

from __future__ import annotations

import sys

import sqlalchemy as sa

from tests.provider.offsets.accessors import ledger_store
from tubemq_provider.windows.protocols import Document


def main(url: str, count: int) -> None:
    store = ledger_store(sa.create_engine(url), "child")
    for _ in range(count):
        store.change_cursor(one_more)


def one_more(document: Document | None) -> Document:
    return {"n": (document or {"n": 0})["n"] + 1}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
