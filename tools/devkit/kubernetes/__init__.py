"""A Kubernetes for tests: the genuine API server with its etcd, and a node that we play.

`binaries` has Go build the servers, `cluster` starts them on loopback, `node` schedules pods and
runs their containers as processes. There is no controller, scheduler or kubelet: what a test needs
of them is done by hand, and said where it is.
"""
