"""The command `rocketmq-snode`: one process that serves until it is told to stop.

`rocketmq-snode serve --config snode.toml`. Logs one JSON object a line on standard error. SIGTERM
and SIGINT drain; a second one ends at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rocketmq_client import errors
from rocketmq_client.model import address_text
from rocketmq_client.snode.options import read_options
from rocketmq_client.snode.server import Snode
from rocketmq_client.snode.settings import SnodeSettings

__all__ = ["main"]


_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; the rest is what the node says of this one."""


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        said = {
            "ts": round(record.created, 3),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        said |= {key: value for key, value in vars(record).items() if key not in _USUAL}
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 2 for options that are wrong."""
    parser = argparse.ArgumentParser(prog="rocketmq-snode", description="RocketMQ service node")
    serve = parser.add_subparsers(required=True).add_parser("serve", help="serve until SIGTERM")
    serve.add_argument("--config", type=Path, help="TOML file; SNODE_… in the environment wins")
    chosen = parser.parse_args(arguments)
    handler = logging.StreamHandler()
    handler.setFormatter(_JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    try:
        asyncio.run(_serve(read_options(chosen.config, os.environ)))
    except errors.ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


async def _serve(settings: SnodeSettings) -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        told.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)  # the next one ends the process

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    async with Snode(settings) as node:
        print(f"listening on {address_text(node.address)}", flush=True)
        await told.wait()


if __name__ == "__main__":
    sys.exit(main())
