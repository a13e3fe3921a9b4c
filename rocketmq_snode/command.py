"""The command `rocketmq-snode`: one process that serves until SIGTERM or SIGINT.

`rocketmq-snode serve --config snode.toml`; `rocketmq-snode list ns1:9876` lists the nodes. `serve`
logs one JSON object per line on standard error. SIGTERM and SIGINT drain; a second one ends at
once. Modules of the node are imported when a command runs, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tubemq_client import __version__

if TYPE_CHECKING:
    from rocketmq_snode.settings import SnodeSettings

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
    from rocketmq_client import errors

    try:
        if chosen.command == "list":
            return _list(chosen.name_servers, chosen.cluster, chosen.output)
        if chosen.command == "completion":
            print(_completion(chosen.shell))
            return 0
        import asyncio

        from rocketmq_client.model import address_text
        from rocketmq_snode.options import read_options

        settings = read_options(chosen.config, os.environ)
        if chosen.check_config:
            print(f"valid options: the node would listen on {address_text(settings.listen)}")
            return 0
        handler = logging.StreamHandler()
        handler.setFormatter(_JsonLines())
        logging.basicConfig(level=logging.INFO, handlers=[handler])
        asyncio.run(_serve(settings))
    except errors.RocketMQError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, errors.ConfigError) else 1
    return 0


class _Parser(argparse.ArgumentParser):
    """Parser that answers a wrong word with the near ones besides the whole list."""

    def format_help(self) -> str:
        """Return the help; that of `serve` ends with the variables of the environment."""
        text = super().format_help()
        return f"{text}\n{_variables()}\n" if self.prog.endswith(" serve") else text

    def error(self, message: str) -> NoReturn:
        """Print usage and message; exit with 2."""
        wrong, listed, choices = message.partition(" (choose from ")
        words = [word.strip("' )") for word in choices.split(",")]
        if near := get_close_matches(wrong.rpartition(": ")[2].strip("'"), words if listed else []):
            message += f"; did you mean {' or '.join(map(repr, near))}?"
        super().error(message)


def _parser() -> argparse.ArgumentParser:
    parser = _with_examples(
        _Parser(prog="rocketmq-snode", description="RocketMQ service node."),
        "rocketmq-snode serve --config snode.toml",
        "rocketmq-snode list ns1:9876",
    )
    parser.add_argument("-V", "--version", action="version", version=__version__)
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, dest="command"
    )
    serve = _with_examples(
        commands.add_parser("serve", help="serve until SIGTERM or SIGINT"),
        "rocketmq-snode serve --config snode.toml",
        "SNODE_NAME_SERVERS=ns1:9876 rocketmq-snode serve",
        "rocketmq-snode serve --config snode.toml --check-config",
    )
    serve.add_argument(
        "-c",
        "--config",
        metavar="FILE",
        type=Path,
        help="TOML file, or Java properties (*.properties, *.conf); variables of the environment "
        "have precedence",
    )
    serve.add_argument(
        "--check-config", action="store_true", help="check the options and end; 2 if one is wrong"
    )
    list_nodes = _with_examples(
        commands.add_parser("list", help="list the nodes that renewed their entry recently"),
        "rocketmq-snode list ns1:9876",
        "rocketmq-snode list 'ns1:9876;ns2:9876' -o json",
        "rocketmq-snode list ns1:9876 --cluster DefaultCluster",
    )
    list_nodes.add_argument("name_servers", help="host:port;host:port")
    list_nodes.add_argument("--cluster", metavar="NAME", help="only nodes of this cluster")
    list_nodes.add_argument(
        "-o",
        "--output",
        choices=["table", "json", "jsonl"],
        default="table",
        help="a table (default), one JSON array (json), or an object per line (jsonl)",
    )
    completion = _with_examples(
        commands.add_parser("completion", help="print the completion script of a shell"),
        'eval "$(rocketmq-snode completion bash)"',
        "rocketmq-snode completion fish | source",
    )
    completion.add_argument("shell", choices=["bash", "zsh", "fish"])
    return parser


def _with_examples(parser: argparse.ArgumentParser, *examples: str) -> argparse.ArgumentParser:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join(["examples:", *(f"  $ {line}" for line in examples)])
    return parser


def _variables() -> str:
    """Return a line for each option that the environment can give."""
    from rocketmq_snode.options import SnodeConfig

    lines = [
        f"  SNODE_{name.upper():<26} {field.description}"
        for name, field in SnodeConfig.model_fields.items()
        if name != "tls"
    ]
    return "\n".join(["variables of the environment (in a file: the name without SNODE_):", *lines])


def _completion(shell: str) -> str:
    """Return a script that completes commands and options, and names of files where none fits."""
    words = "serve list completion --config --check-config --cluster --output --version --help"
    if shell == "fish":
        return f"complete -c rocketmq-snode -a '{words}'"
    complete = f"complete -o default -W '{words}' rocketmq-snode"
    if shell == "zsh":
        return f"autoload -U +X compinit bashcompinit && compinit && bashcompinit\n{complete}"
    return complete


def _list(name_servers: str, cluster: str | None, output: str) -> int:
    """Print name, cluster, address, clients and age of each live node."""
    import asyncio

    from rocketmq_client.config import ClientConfig
    from rocketmq_snode.registry import known_nodes

    settings = ClientConfig.parse({"name_servers": name_servers}).settings()
    rows = [
        {
            "name": name,
            "cluster": entry.get("cluster"),
            "address": entry["addr"],
            "clients": entry["clients"],
            "age_s": round(max(0.0, time.time() - entry["ts"] / 1000)),
        }
        for name, entry in asyncio.run(known_nodes(settings)).items()
        if cluster is None or entry.get("cluster") == cluster
    ]
    if output == "json":
        print(json.dumps(rows, indent=1))
    elif output == "jsonl":
        for row in rows:
            print(json.dumps(row))
    else:
        for row in rows:
            print(
                f"{row['name']} {row['address']} cluster={row['cluster'] or '-'} "
                f"clients={row['clients']} age={row['age_s']}s"
            )
    return 0


async def _serve(settings: SnodeSettings) -> None:
    import asyncio

    from rocketmq_client.model import address_text
    from rocketmq_snode.server import Snode

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
