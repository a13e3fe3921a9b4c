"""Ledger: offset store in separate tables of the metadata database, with compare-and-set. Opt-in.

`tables` has the SQL, `backend` the state backend and `db_manager` the migrations that a deployment
configures, `store` the store that a task uses. A task has no database access: it uses the task
SDK's asset state, and the API server's backend recognises the ledger's keys (`envelope`).
"""
