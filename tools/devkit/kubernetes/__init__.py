"""A Kubernetes for tests: the genuine API server with its etcd, and a simulated node.

`binaries` has Go build the servers, `cluster` starts them on loopback, `node` schedules pods and
runs their containers as processes. There is no controller, scheduler or kubelet: the parts of them
that a test needs are done by hand, and documented there.
"""
