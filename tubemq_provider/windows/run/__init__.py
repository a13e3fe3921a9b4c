"""Window runs: take one window from its plan to its commit event, exactly once.

`steps` has the eight steps that all runs share (`WindowRun`). `standalone_run`, `cursor_run` and
`claimed_run` are the three kinds, and `kinds` chooses between them. `result` defines the result and
the commit event. Nothing here knows a store, a sink or an engine by name.
"""
