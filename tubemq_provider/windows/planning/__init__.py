"""Planning of windows: from a position, an interval or explicit ranges to a plan.

`cursor_planner` plans the next window after a cursor, `standalone_planner` time and explicit
windows, and `boundary_book` fixes the offsets of instants. `read_limits`, `retention`, `claims`,
`log_identity`, `other_scopes` and `overlaps` are the rules that they apply. Decisions only: I/O
goes through objects that callers pass.
"""
