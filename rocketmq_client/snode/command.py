"""The command `rocketmq-snode`: one process that serves until SIGTERM or SIGINT.

`rocketmq-snode serve --config snode.toml`; `rocketmq-snode list ns1:9876` lists the nodes. Logs one
JSON object per line on standard error. SIGTERM and SIGINT drain; a second one ends at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rocketmq_client import errors
from rocketmq_client.config import ClientConfig
from rocketmq_client.model import address_text
from rocketmq_client.snode.options import read_options
from rocketmq_client.snode.registry import known_nodes
from rocketmq_client.snode.server import Snode
from rocketmq_client.snode.settings import SnodeSettings

__all__ = ["main"]

_DESCRIPTORS = 65_536
"""Limit of descriptors that the process requests, up to its hard limit: each client and each
connection of a member needs one."""

_USUAL = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""Attributes of every log record; all others are details of this one."""


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        members = {
            "ts": round(record.created, 3),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        members |= {key: value for key, value in vars(record).items() if key not in _USUAL}
        if record.exc_info:
            members["exception"] = self.formatException(record.exc_info)
        return json.dumps(members, ensure_ascii=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 2 for invalid options, 1 if no name server answers."""
    chosen = _parser().parse_args(arguments)
    try:
        if chosen.what == "list":
            return _list(chosen.name_servers)
        handler = logging.StreamHandler()
        handler.setFormatter(_JsonLines())
        logging.basicConfig(level=logging.INFO, handlers=[handler])
        asyncio.run(_serve(read_options(chosen.config, os.environ)))
    except errors.RocketMQError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, errors.ConfigError) else 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rocketmq-snode", description="RocketMQ service node")
    commands = parser.add_subparsers(required=True, dest="what")
    serve = commands.add_parser("serve", help="serve until SIGTERM")
    serve.add_argument(
        "--config", type=Path, help="TOML file; SNODE_… in the environment has precedence"
    )
    list_nodes = commands.add_parser(
        "list", help="list the nodes that renewed their entry recently"
    )
    list_nodes.add_argument("name_servers", help="host:port;host:port")
    return parser


def _list(name_servers: str) -> int:
    """Print name, address, clients and age of each live node."""
    settings = ClientConfig.parse({"name_servers": name_servers}).settings()
    for name, entry in asyncio.run(known_nodes(settings)).items():
        age = max(0.0, time.time() - entry["ts"] / 1000)
        print(f"{name} {entry['addr']} clients={entry['clients']} age={age:.0f}s")
    return 0


async def _serve(settings: SnodeSettings) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, hard))
    stop_signal = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        stop_signal.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)  # the next one ends the process

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    async with Snode(settings) as node:
        print(f"listening on {address_text(node.address)}", flush=True)
        await stop_signal.wait()


if __name__ == "__main__":
    sys.exit(main())
