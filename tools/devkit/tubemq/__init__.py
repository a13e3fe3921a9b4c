"""A genuine, published TubeMQ for tests and benchmarks.

`genuine` starts ZooKeeper, a master and a broker; `guarded` the same with users and TLS;
`two_masters` a fail-over pair; `artifacts` fetches the jars. The public test kit of substitutes for
servers (clock, memory, scripted driver, fault proxy) is `tubemq_client.testing`.
"""
