"""Taking one window from its plan to its commit event, exactly once.

`steps` holds the eight steps (`WindowRun`), `claimed` the run of several at once, `result` what a
run says when it is done. Nothing here knows a store, a sink or an engine by name.
"""
