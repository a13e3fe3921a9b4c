"""The one composition root: checked arguments become source, planner, store, sink, engine and run.

The ingest operators of Airflow (`operators.ingest`, `operators.base`) and Dagster's assets build
their windows here, so both have the same options; `tubemq_provider.engines` executes the plans.
Free of frameworks: what a framework provides (connections, state, the interval of a run) is passed
in. `arguments` validates, `job` assembles, `resolvers` and `engines` choose by name, `progress`
logs progress, `maintenance` has the administrative changes to a group.
"""
