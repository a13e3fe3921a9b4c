"""One module per revision of the ledger's tables, oldest first.

A revision, once released, is never edited.
"""
