"""Conversations with masters and brokers, written once and without I/O.

Everything here is a generator of effects (`effects.py`) or a plain value; sockets, threads and
clocks live in `_io` and the shells. The private names are re-exported where they are needed.
"""
