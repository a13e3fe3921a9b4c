"""The ledger: progress in tables of its own, with a real compare-and-set. Opt-in.

`tables` is the SQL, `backend` the state backend and `db_manager` the migrations that a deployment
configures, `store` what a task uses. A task has no database access: it speaks the task SDK's asset
state, and the API server's backend recognises the ledger's keys (`envelope`).
"""
