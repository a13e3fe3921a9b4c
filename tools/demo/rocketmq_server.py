"""An embedded RocketMQ in a separate process, for the demo: in memory, on loopback.

Writes its address into a file when it is ready, and runs until it is terminated. It takes no other
commands.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
from pathlib import Path

from rocketmq_client.embedded import EmbeddedRocketMQ


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--topic", action="append", default=[], metavar="NAME:QUEUES")
    parser.add_argument("--ready-file", type=Path, required=True)
    options = parser.parse_args()
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    topics = {name: int(queues) for name, queues in (text.split(":") for text in options.topic)}
    with EmbeddedRocketMQ(topics=topics, brokers=options.brokers) as server:
        host, port = server.name_server
        draft = options.ready_file.with_suffix(".draft")
        draft.write_text(json.dumps({"name_servers": f"{host}:{port}"}))
        draft.replace(options.ready_file)
        ended.wait()


if __name__ == "__main__":
    main()
