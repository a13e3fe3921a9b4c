"""Conversations with name servers and brokers as generators of effects; no I/O below this line.

The effects are `tubemq_client._core.effects`, which know no protocol. Time is an argument.
"""
