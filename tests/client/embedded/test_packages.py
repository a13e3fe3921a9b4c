"""The extra `embedded` has all packages that the embedded server needs."""

from __future__ import annotations

import subprocess
import sys

from tools.devkit.patience import PATIENCE

CHANGE = """
import sys
sys.modules |= dict.fromkeys(("multipart", "python_multipart"))  # starlette's own wish, for forms
from tubemq_client.admin import AdminClient
from tubemq_client.embedded import EmbeddedTubeMQ
with EmbeddedTubeMQ() as mq, AdminClient(mq.master_web, token="abc") as admin:
    admin.create_topic("demo")
    print("made" if "demo" in {topic.name for topic in admin.topics()} else "not made")
"""


def test_changes_by_http_need_no_package_for_forms() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHANGE],
        capture_output=True,
        text=True,
        timeout=60 * PATIENCE,
        check=False,
    )
    assert done.stdout == "made\n", done.stderr
