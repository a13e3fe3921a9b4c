"""The one composition root: checked arguments become source, planner, store, sink, engine and run.

The ingest operators of Airflow (`operators.ingest`, `operators.base`) and Dagster's assets build
their windows here, so what one can say the other can; `tubemq_provider.engines` executes the plans.
Free of frameworks: what a framework brings (connections, state, the interval of a run) is handed
in. `arguments` judges, `job` puts together, `resolvers` and `engines` choose by name, `narrate`
tells a log, `upkeep` is what a person does to a group between runs.
"""
