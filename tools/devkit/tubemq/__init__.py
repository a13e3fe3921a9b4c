"""A genuine TubeMQ for tests and benchmarks, as it is published.

`genuine` starts ZooKeeper, a master and a broker; `guarded` the same with users and TLS;
`two_masters` a fail-over pair; `artifacts` gets the jars. The public test kit that stands in for
servers (clock, memory, scripted driver, fault proxy) is `tubemq_client.testing`.
"""
