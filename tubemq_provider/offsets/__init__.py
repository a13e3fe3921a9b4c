"""Stores of progress behind `windows.protocols.OffsetStore`.

`asset_state`, the default, keeps it in Airflow's metadata, `ledger` in tables of its own beside it,
`commit_events` in events of assets, `file` in a directory, `memory` in the process; `registry`
chooses. Stores keep and return documents; they decide nothing. `metadata_db` is none: it looks at
progress from outside of a task.
"""
