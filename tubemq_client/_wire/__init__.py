"""Bytes ↔ values: frames, RPC envelopes, record payloads and TubeMQ's string formats.

Pure functions and one small buffer (`framing.FrameDecoder`). Nothing here knows a socket, a
thread, a clock or the order of calls; the layers above do.

Malformed input from a peer raises `errors.ProtocolViolation`; malformed arguments of the caller
raise `ValueError`.
"""
