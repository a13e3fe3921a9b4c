"""Conversations with masters and brokers, written once and without I/O.

Everything here is a generator of effects (`effects.py`) or a plain value; sockets, threads and
clocks are in `_io`, `sync` and `aio`. Start with `range_read` for exact ranges, `sending` for
producing, `balance` and `assigned` for group members, and `master` and `registration` for their
requests to masters and brokers.
"""
