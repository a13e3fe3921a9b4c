"""The one composition root: checked arguments become source, planner, store, sink, engine and run.

Airflow's operators and Dagster's assets both build their windows here, so what one can say the
other can. Free of frameworks: what a framework brings (connections, state, the interval of a run)
is handed in. `arguments` judges, `job` puts together, `resolvers` and `engines` choose by name,
`narrate` tells a log, `upkeep` is what a person does to a group between runs.
"""
