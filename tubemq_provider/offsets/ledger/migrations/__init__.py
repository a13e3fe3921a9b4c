"""Alembic migrations of the ledger's tables, run by `LedgerDBManager`.

`env` configures Alembic, `versions` has one module per revision. No other code imports them.
"""
