"""Taking one window from its plan to its commit event, exactly once.

`steps` holds what the eight steps of all runs share (`WindowRun`); `standalone_run`,
`cursor_run` and `claimed_run` are the three kinds, `kinds` says which one a window takes, `result`
what a run says when it is done. Nothing here knows a store, a sink or an engine by name.
"""
