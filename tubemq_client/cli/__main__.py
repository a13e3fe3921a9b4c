"""`python -m tubemq_client.cli`: the `tubemq` command of the interpreter at hand.

For scripts that must not depend on PATH. It does nothing of its own: everything is `main`.
"""

from tubemq_client.cli import main

main()
