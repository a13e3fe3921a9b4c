"""Conversations with masters and brokers, written once and without I/O.

Everything here is a generator of effects (`effects.py`) or a plain value; sockets, threads and
clocks live in `_io` and the shells. To begin with: `range_read` reads exact ranges, `sending`
produces, `balance` and `assigned` are members of groups, `master` and `registration` what each of
them says to masters and brokers.
"""
