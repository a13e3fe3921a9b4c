"""A public test kit: substitutes for a TubeMQ cluster.

Nothing here is needed to produce or consume. Import the module you need; this package itself
imports nothing. The launcher of genuine servers is in the source tree's `devkit`, outside the
wheel.

Without sockets and without waiting:

- `clock`: a clock that stands still until a test moves it; the embedded server accepts it too
- `memory`: a master and brokers in memory, whose replies can be lost, delayed or replaced
- `scripted`: runs conversations on such a clock and traces requests and their times

Over sockets (a whole server in this process is `tubemq_client.embedded`):

- `proxy`: a loopback proxy that cuts, splits, stalls and corrupts
"""
