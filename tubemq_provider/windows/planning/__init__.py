"""What a window will consist of: from a position, an interval or explicit ranges to a plan.

`cursor_planner` plans the next window of a cursor, `standalone_planner` one that stands alone,
`boundary_book` fixes where instants lie; `read_limits`, `retention`, `claims` and `scopes` are what
they weigh. Decisions only: nothing here does I/O.
"""
