"""Stores of progress: implementations of `windows.protocols.OffsetStore`.

`asset_state`, the default, uses Airflow's asset and task state; `ledger` separate tables in the
metadata database; `commit_events` asset events alone; `file` a directory; `memory` the process.
`registry` chooses. Stores keep and return documents and decide nothing. `metadata_db` is no store:
it reads and changes progress from outside of tasks.
"""
