"""Bytes ↔ values: frames, headers, stored records, batches, properties, bodies, signatures.

Pure functions and one small buffer (`framing.CommandDecoder`). Nothing here knows a socket, a
thread, a clock or the order of calls; those belong to higher layers.

Malformed input from a peer raises `errors.ProtocolViolation`; malformed arguments of the caller
raise `ValueError`.
"""
