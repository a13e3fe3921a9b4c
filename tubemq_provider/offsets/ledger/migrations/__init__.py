"""Alembic migrations of the ledger's tables, run by `LedgerDBManager`.

`env` says how, `versions` has one module per revision. Nothing here is imported by other code.
"""
