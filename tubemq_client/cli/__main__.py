"""`python -m tubemq_client.cli`: the `tubemq` command of this interpreter.

For scripts that must not depend on PATH. It only calls `main`.
"""

from tubemq_client.cli import main

main()
