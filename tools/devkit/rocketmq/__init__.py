"""Genuine Apache RocketMQ name servers and brokers, for tests: resolved, started, killed, stopped.

`artifacts` has Maven resolve the published jars of a line, `genuine` runs them on loopback. Lines
4.9.7 and 5.5.0 are the ones that are completely published and tested here.
"""
